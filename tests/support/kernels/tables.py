"""The tables that must all mean the same: the textbook's, NumPy's, PyTorch's arithmetic, and the Triton kernels."""

from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
from support.kernels.prove_kernel import DEVICE

import kernels
from minitransformer.ops import Ops, numpy_ops
from minitransformer.textbook import textbook_ops

IN_HOST_MEMORY = {"textbook": textbook_ops, "numpy": numpy_ops}

TOLERANCES = {"float64": 1e-10, "float32": 1e-5}

WITHOUT_TRITON = pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton is not installed: pip install -e '.[kernels]'"
)

EVERY = [
    pytest.param(backend, dtype, id=f"{backend}, {dtype}", marks=[WITHOUT_TRITON] if backend == "triton" else [])
    for backend in ("textbook", "numpy", "torch", "triton")
    for dtype in TOLERANCES
    if (backend, dtype) != ("triton", "float64")
]

every_table = pytest.mark.parametrize(("backend", "dtype"), EVERY)
"""One test body, run over every backend."""

every_checking_table = pytest.mark.parametrize(
    ("backend", "dtype"), [table for table in EVERY if table.values[0] != "textbook"]
)
"""… but the textbook, which refuses nothing."""


@cache
def table(backend: str, dtype: Any = "float32") -> Ops:
    """The table of a backend, on the GPU where there is one."""
    if backend in IN_HOST_MEMORY:
        return IN_HOST_MEMORY[backend]
    make = kernels.triton_ops if backend == "triton" else kernels.torch_ops
    return make(DEVICE, dtype)
