"""Patches and a linear map are the convolution with which ViT begins."""

import numpy as np
import pytest
import torch
from support.prove import evaluate, normal

from minitransformer.gradcheck import error
from minitransformer.ops import linear_forward, patches_forward


@pytest.mark.parametrize(("size", "height", "width"), [(1, 2, 3), (2, 4, 6), (3, 3, 9)])
def test_with_a_linear_map_they_are_a_convolution(size, height, width):
    """A convolution's weight `(C_out, channels, size, size)`, flattened and transposed, is that of the linear map."""
    rng, channels, C_out = np.random.default_rng(0), 3, 5
    images, bias = normal(rng, 2, channels, height, width), normal(rng, C_out)
    weight = normal(rng, C_out, channels, size, size)
    rows, _ = patches_forward(images, size)  # (B, T, channels·size²)
    y, _ = linear_forward(rows, weight.reshape(C_out, -1).T, bias)  # (B, T, C_out)
    expected = evaluate(lambda *given: torch.nn.functional.conv2d(*given, stride=size), images, weight, bias)
    assert error(y, expected.reshape(2, C_out, -1).swapaxes(1, 2)) <= 1e-13
