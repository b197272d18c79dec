"""One test body for every kernel: what is checked on a GPU (`kernels.proof.checks`), on the arrays of a test."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.proof.cases import Case, draw
from minitransformer.gradcheck import error

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16, *([torch.bfloat16] if DEVICE == "cuda" else [])]
"""The interpreter computes bfloat16 wrongly (triton issue 11584): it is checked on a GPU only."""

NARROW_LATER = [torch.float32, *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in DTYPES[1:])]
"""For what another test proves in narrow dtypes too."""

few = settings(max_examples=8)
"""Cases of a hypothesis test: the interpreter takes milliseconds for each block of a kernel."""

seeds = st.integers(0, 2**32 - 1)


def prove_kernel(
    op: str,
    arrays: dict[str, np.ndarray],
    dtype: torch.dtype,
    forward: Callable[..., Any] | None = None,
    peer: Callable[..., Tensor] | None = None,
    **options: Any,
) -> None:
    """Prove a pair of kernels right at `arrays`, float64 or integer, the floats given in `dtype`.

    `forward` takes the place of the op's own, and `peer` that of PyTorch's function, by whose error a narrow dtype's is
    judged. Arrays and received gradients lie in memory contiguously, transposed or with gaps.
    """
    from kernels.proof.checks import findings_of  # without Triton this file can still be imported

    rng = np.random.default_rng(sum(array.size for array in arrays.values()))

    def lie(tensor: Tensor) -> Tensor:
        layout = rng.choice(["contiguous", "transposed", "strided"]) if tensor.ndim else "contiguous"
        if layout == "transposed" and tensor.ndim > 1:
            return tensor.mT.contiguous().mT
        if layout == "strided":
            between = torch.full_like(tensor, torch.nan) if tensor.is_floating_point() else tensor
            return torch.stack([tensor, between], dim=-1)[..., 0]
        return tensor

    how = {"forward": forward, "lie": lie, "exact": (), "in_all_ways": False}
    for what, found, allowed in findings_of(op, Case("", arrays, options), dtype, DEVICE, peer, **how):
        assert found <= allowed, f"{what} is off by {found:.3g}, allowed {allowed:.3g}"


def qkv(
    seed: int = 0, batch: int = 1, heads: int = 1, tq: int = 3, tk: int = 4, d: int = 4, dv: int = 4, group: int = 1
) -> dict[str, np.ndarray]:
    """Queries, keys and values for attention; `group` heads of queries share a head of keys and values."""
    rng = np.random.default_rng(seed)
    return draw("attention", rng, B=batch, H=heads * group, Hk=heads, Tq=tq, Tk=tk, D=d, Dv=dv)


def on_device(arrays: Mapping[str, Any] | Sequence[Any], dtype: torch.dtype = torch.float32) -> list[Any]:
    """The arrays as tensors, floats as `dtype`."""
    values = arrays.values() if isinstance(arrays, Mapping) else arrays
    tensors = (torch.from_numpy(np.asarray(array)).to(DEVICE) for array in values)
    return [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors]


def check(what: str, actual: Tensor, expected: Any, bound: float) -> None:
    """`actual` has the shape of `expected` and is within `bound` of it; NaN never is."""
    assert tuple(actual.shape) == np.shape(expected), f"{what} has shape {tuple(actual.shape)}"
    found = error(to_numpy(actual), np.asarray(expected, dtype=np.float64))
    assert found <= bound, f"{what} is off by {found:.3g}, allowed {bound:.3g}"


def assert_same_bits(found: Iterable[Tensor], expected: Iterable[Tensor]) -> None:
    """As many tensors, each equal to its counterpart to the last bit."""
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def to_numpy(tensor: Tensor) -> np.ndarray:
    """The tensor in float64 (integers as they are)."""
    tensor = tensor.detach().cpu()
    return tensor.double().numpy() if tensor.is_floating_point() else tensor.numpy()
