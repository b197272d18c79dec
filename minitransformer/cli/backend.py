"""The options `--backend`, `--dtype` and `--device`: which library computes, in which numbers, and where."""

import argparse
from dataclasses import dataclass

from ..ops import Ops, numpy_ops
from ..system.allocator import memory_limit

DTYPES = {
    "numpy": ("float32", "float64"),
    "torch": ("float32", "float64", "bfloat16", "float16"),
    "triton": ("float32", "bfloat16", "float16"),
}
"""The types of activations, the default first. Parameters are float64 with float64, and float32 with all others."""


@dataclass(frozen=True)
class Backend:
    """A table of ops and the dtype of parameters, to make a model with; `str` gives a description for the user."""

    ops: Ops = numpy_ops
    dtype: str = "float32"
    description: str = "NumPy, float32"
    device: str = "cpu"

    def __str__(self) -> str:
        return self.description

    def memory(self) -> int | None:
        """Return the bytes of memory of the device that computes, or None if unknown."""
        if not self.device.startswith("cuda"):
            return memory_limit()
        from kernels import availability

        return availability.gpu_memory(self.device)


NUMPY = Backend()


def add_backend_options(parser: argparse._ActionsContainer) -> None:
    """Add the three options."""
    help_text = "NumPy (default), PyTorch's arithmetic, or the project's Triton kernels on a GPU"
    parser.add_argument("--backend", choices=tuple(DTYPES), default="numpy", help=help_text)
    help_text = "numbers to compute with (default: float32); on a GPU bfloat16 to train, float16 too to translate"
    parser.add_argument("--dtype", choices=("float32", "float64", "bfloat16", "float16"), help=help_text)
    help_text = "of the torch backend: cpu, cuda or mps (default: cuda where there is one)"
    parser.add_argument("--device", metavar="DEVICE", help=help_text)


def chosen_backend(args: argparse.Namespace) -> Backend:
    """Return the backend that the options name. Raises ValueError, saying what works instead, if it is missing."""
    dtype = args.dtype or "float32"
    if dtype not in DTYPES[args.backend]:
        raise ValueError(f"the {args.backend} backend computes in {' or '.join(DTYPES[args.backend])}, not in {dtype}")
    if args.backend == "numpy":
        if args.device not in (None, "cpu"):
            raise ValueError(f"the numpy backend runs on the cpu, not on {args.device}")
        return Backend(numpy_ops, dtype, f"NumPy, {dtype}")
    try:
        ops, device = _tensor_ops(args.backend, dtype, args.device, getattr(args, "threads", None))
    except (ImportError, RuntimeError, ValueError) as error:
        raise ValueError(str(error)) from error
    kept_in = "float64" if dtype == "float64" else "float32"
    return Backend(ops, kept_in, f"{args.backend} on {device}, {dtype}", device)


def _tensor_ops(backend: str, dtype: str, device: str | None, threads: int | None) -> tuple[Ops, str]:
    import kernels
    from kernels import availability

    make = kernels.triton_ops if backend == "triton" else kernels.torch_ops  # says so where PyTorch is missing
    if device is None:
        device = availability.triton_device() if backend == "triton" else availability.torch_device()
    if threads is not None:
        availability.use_threads(threads)
    return make(device, dtype), device
