"""One test body for every kernel: against the float64 reference in NumPy, in each dtype that the device has.

float32 must be within 1e-5. In float16 and bfloat16 the error may be twice that of PyTorch's own function in the same
dtype for outputs, three times for gradients, and never needs to be below the rounding of the result itself.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from hypothesis import settings
from torch import Tensor

from minitransformer.gradcheck import error

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16, *([torch.bfloat16] if DEVICE == "cuda" else [])]
"""The interpreter computes bfloat16 wrongly (triton issue 11584): it is checked on a GPU only."""

FLOAT32_TOLERANCE = 1e-5
OUTPUT_FACTOR, GRADIENT_FACTOR = 2.0, 3.0

few = settings(max_examples=12)
"""Cases of a hypothesis test: the interpreter takes milliseconds for each block of a kernel."""

Arrays = Mapping[str, np.ndarray | None]


def prove_kernel(
    forward: Callable[..., tuple[Any, Any]],
    backward: Callable[[Any, Any], Any],
    reference_forward: Callable[..., tuple[Any, Any]],
    reference_backward: Callable[[Any, Any], Any],
    peer: Callable[..., Tensor],
    arrays: Arrays,
    dtype: torch.dtype,
) -> None:
    """Prove a pair of kernels right at `arrays`, float64 or integer NumPy arrays, or None for what is left out.

    forward, reference_forward and peer (PyTorch's own, differentiated by autograd) take the arrays in their order.
    Besides the errors: gradients of any layout are taken, a second backward repeats the first to the bit, and nothing
    is written into inputs or received gradients.
    """
    rng = np.random.default_rng(sum(array.size for array in arrays.values() if array is not None))
    rounded = {name: _rounded(array, dtype) for name, array in arrays.items()}
    expected, reference_cache = reference_forward(*rounded.values())
    dout = _rounded(rng.standard_normal(np.shape(expected)), dtype)
    assert dout is not None
    expected_gradients = _floats(reference_backward(dout if np.ndim(expected) else dout.item(), reference_cache))

    tensors = [_tensor(array, dtype, rng) for array in rounded.values()]
    dout_tensor = _tensor(dout, dtype, rng)
    before = [None if t is None else t.clone() for t in (*tensors, dout_tensor)]
    out, cache = forward(*tensors)
    gradients = _floats(backward(dout_tensor, cache))
    for again, gradient in zip(_floats(backward(dout_tensor, cache)), gradients, strict=True):
        assert torch.equal(again, gradient), "a second backward gives other bits"
    for tensor, copy in zip((*tensors, dout_tensor), before, strict=True):
        assert tensor is None or copy is None or torch.equal(tensor, copy), "an input was written into"

    if dtype == torch.float32:
        bounds = [FLOAT32_TOLERANCE] * (1 + len(gradients))
    else:
        bounds = _bounds(peer, rounded, dout, dtype, expected, expected_gradients)
    check("output", out, expected, bounds[0])
    for index, (gradient, wanted) in enumerate(zip(gradients, expected_gradients, strict=True)):
        check(f"gradient {index}", gradient, wanted, bounds[1 + index])


def check(what: str, actual: Tensor, expected: Any, bound: float) -> None:
    """`actual` has the shape of `expected` and is within `bound` of it; NaN never is."""
    assert tuple(actual.shape) == np.shape(expected), f"{what} has shape {tuple(actual.shape)}"
    found = error(to_numpy(actual), np.asarray(expected, dtype=np.float64))
    assert found <= bound, f"{what} is off by {found:.3g}, allowed {bound:.3g}"


def to_numpy(tensor: Tensor) -> np.ndarray:
    """The tensor in float64 (integers as they are)."""
    tensor = tensor.detach().cpu()
    return tensor.double().numpy() if tensor.is_floating_point() else tensor.numpy()


def _bounds(
    peer: Callable[..., Tensor], arrays: Arrays, dout: np.ndarray, dtype: torch.dtype, expected: Any, gradients: list
) -> list[float]:
    """What PyTorch's own function in the same dtype is off by, times the factors."""
    leaves = [_leaf(array, dtype) for array in arrays.values()]
    out = peer(*leaves)
    floats = [leaf for leaf in leaves if leaf is not None and leaf.is_floating_point()]
    found = torch.autograd.grad(out, floats, torch.from_numpy(dout).to(DEVICE, out.dtype), allow_unused=True)
    bounds = [max(OUTPUT_FACTOR * error(to_numpy(out), np.asarray(expected)), torch.finfo(dtype).eps)]
    for gradient, wanted in zip(found, gradients, strict=True):
        off = 0.0 if gradient is None else error(to_numpy(gradient), wanted)
        bounds.append(max(GRADIENT_FACTOR * off, torch.finfo(dtype).eps))
    return bounds


def _rounded(array: np.ndarray | None, dtype: torch.dtype) -> np.ndarray | None:
    """What the dtype can hold of a float64 array, in float64: the reference gets the kernel's numbers."""
    if array is None or array.dtype.kind != "f":
        return array
    return torch.from_numpy(np.ascontiguousarray(array)).to(dtype).double().numpy().reshape(array.shape)


def _tensor(array: np.ndarray | None, dtype: torch.dtype, rng: np.random.Generator) -> Tensor | None:
    """The array on the device; floats lie in memory contiguously, transposed or with gaps, drawn by `rng`."""
    if array is None:
        return None
    tensor = torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape).to(DEVICE)
    if not tensor.is_floating_point():
        return tensor
    tensor = tensor.to(dtype)
    layout = rng.choice(["contiguous", "transposed", "strided"]) if tensor.ndim else "contiguous"
    if layout == "transposed":
        return tensor.mT.contiguous().mT if tensor.ndim > 1 else tensor
    if layout == "strided":
        return torch.stack([tensor, torch.full_like(tensor, torch.nan)], dim=-1)[..., 0]
    return tensor


def _leaf(array: np.ndarray | None, dtype: torch.dtype) -> Tensor | None:
    if array is None:
        return None
    tensor = torch.from_numpy(np.array(array)).to(DEVICE)
    return tensor.to(dtype).requires_grad_() if tensor.is_floating_point() else tensor


def _floats(gradients: Any) -> list:
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    return [gradient for gradient in gradients if gradient is not None]
