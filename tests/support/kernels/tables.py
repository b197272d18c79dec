"""The tables that must all mean the same: NumPy's, PyTorch's arithmetic, and the Triton kernels."""

from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
from support.kernels.prove_kernel import DEVICE

import kernels
from minitransformer.ops import Ops, numpy_ops

TABLES = {
    "numpy, float64": ("numpy", "float64"),
    "numpy, float32": ("numpy", "float32"),
    "torch, float64": ("torch", "float64"),
    "torch, float32": ("torch", "float32"),
    "triton, float32": ("triton", "float32"),
}
TOLERANCES = {"float64": 1e-10, "float32": 1e-5}

WITHOUT_TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

every_table = pytest.mark.parametrize(
    ("backend", "dtype"),
    [
        pytest.param(*table, id=name, marks=[WITHOUT_TRITON] if table[0] == "triton" else [])
        for name, table in TABLES.items()
    ],
)
"""One test body, run over every backend."""


@cache
def table(backend: str, dtype: Any = "float32") -> Ops:
    """The table of a backend, on the GPU where there is one."""
    if backend == "numpy":
        return numpy_ops
    make = kernels.triton_ops if backend == "triton" else kernels.torch_ops
    return make(DEVICE, dtype)
