"""The table of ops: what layers and models call."""

import dataclasses

import pytest

import minitransformer.ops
from minitransformer.ops import Ops, numpy_ops

NAMES = [field.name for field in dataclasses.fields(Ops)]
PAIRS = """
    linear relu softmax layernorm add_layernorm dropout embedding attention cross_entropy linear_cross_entropy
    tanh sigmoid conv1d additive_attention
"""


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_is_the_function_of_its_name(name):
    assert getattr(numpy_ops, name) is getattr(minitransformer.ops, name)
    assert name in minitransformer.ops.__all__


def test_every_op_is_a_pair():
    assert {f"{op}_{way}" for op in PAIRS.split() for way in ("forward", "backward")} <= set(NAMES)
    assert {name.replace("_forward", "_backward") for name in NAMES} <= set(NAMES)


def test_one_op_can_be_swapped():
    def softmax_forward(x):
        return x, None

    swapped = dataclasses.replace(numpy_ops, softmax_forward=softmax_forward)
    assert swapped.softmax_forward is softmax_forward
    assert swapped.softmax_backward is numpy_ops.softmax_backward
