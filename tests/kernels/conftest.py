"""Poisoned outputs for the tests of the kernels; and without Triton its tests are left out."""

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch
from support.kernels.interpreter import fast_interpreter  # noqa: F401

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is only then deterministic
collect_ignore_glob = [] if find_spec("triton") else ["test_triton_*.py"]


@pytest.fixture(autouse=True, scope="session")
def _poisoned_outputs() -> Iterator[None]:
    """PyTorch fills what is allocated and not yet written with NaN: an element that no program writes is seen."""
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory  # pyright: ignore[reportAttributeAccessIssue]
    yield
    torch.use_deterministic_algorithms(False)
