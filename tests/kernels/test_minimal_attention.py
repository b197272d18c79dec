"""The minimal flash attention, which is for reading, computes what the whole one does."""

from pathlib import Path

import pytest
import torch
from support.kernels.machine_faults import in_a_process

from kernels.attention.minimal import attention_minimal

SCRIPTS = Path(__file__).parents[1] / "support" / "kernels"


def given(length: int, width: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(length)
    return [torch.randn(2, 3, width, length, generator=generator).mT for _ in range(3)]


def error(out: torch.Tensor, inputs: list[torch.Tensor], causal: bool) -> float:
    query, key, value = (x.double() for x in inputs)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
    return float((out.double() - expected).abs().max())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "width"), [(1, 16), (33, 32), (130, 64)])
def test_it_is_the_formula(length: int, width: int, causal: bool) -> None:
    inputs = given(length, width)
    assert error(attention_minimal(*inputs, causal=causal, block=32), inputs, causal) < 1e-6


@pytest.mark.slow
def test_it_is_the_formula_as_machine_code_too() -> None:
    in_float16, in_bfloat16 = in_a_process(str(SCRIPTS / "machine_proofs.py"), "minimal")
    assert in_float16 < 2e-3
    assert in_bfloat16 < 2e-2


def test_other_shapes_are_refused() -> None:
    query, key, value = given(4, 16)
    assert attention_minimal(query[:, :, :0], key[:, :, :0], value[:, :, :0]).shape == (2, 3, 0, 16)
    with pytest.raises(ValueError, match="D 16, 32, 64 or 128"):
        attention_minimal(query[..., :7], key[..., :7], value[..., :7])
    with pytest.raises(ValueError, match="expected three times"):
        attention_minimal(query, key[:, :, :3], value)
