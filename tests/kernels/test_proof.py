"""Proofs: a check takes all cases of an op, and refuses a wrong kernel."""

from importlib import import_module

import pytest
import torch
from support.kernels.prove_kernel import DEVICE

import kernels
from kernels import KERNELS

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[kernels]'")

from kernels.proof.cases import cases
from kernels.proof.checks import Refused, check


def test_every_op_has_cases():
    assert all(any(cases(op, full)) for op in KERNELS for full in (False, True))


def rectify(x: torch.Tensor) -> tuple:
    return x.clamp(min=0), x


def gradient(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return dy * (x > 0)


def unwritten(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(dy)
    out[:-1] = gradient(dy, x)[:-1]
    return out


@pytest.mark.parametrize(
    ("forward", "backward", "says"),
    [
        (rectify, lambda dy, x: 1.001 * gradient(dy, x), r"gradient 0 is off by 0\.00\d+, allowed 1e-05"),
        (rectify, unwritten, "gradient 0 is off by inf"),
        (rectify, lambda dy, x: gradient(dy, x) + 1e-7 * torch.rand_like(dy), "a second backward gives other bits"),
        (rectify, lambda dy, x: gradient(dy, x)[:-1], ".*shape"),
        (rectify, lambda dy, x: (dy, dy), "there are 2 gradients, expected 1"),
        (lambda x: (x.clamp_(min=0), x), gradient, "an input was written into"),
        (lambda x: import_module("nowhere"), gradient, "ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_wrong_kernel_is_refused(monkeypatch, capsys, forward, backward, says):
    monkeypatch.setattr(kernels, "relu_forward", forward)
    monkeypatch.setattr(kernels, "relu_backward", backward)
    with pytest.raises(Refused, match=rf"^float32, \(3, 5\): {says}"):
        check("relu", torch.float32, DEVICE)
    assert ("Traceback" in capsys.readouterr().err) == ("Error" in says or "shape" in says)
