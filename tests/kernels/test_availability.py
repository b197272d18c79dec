"""The cost of `import kernels`, whose package it is, and the messages where something is missing."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import kernels
from kernels import availability

ROOT = Path(__file__).parents[2]


def test_the_kernels_that_are_imported_are_ours():
    """A published package has the same name: a fresh environment is needed where it is installed."""
    assert Path(kernels.__file__).parent == ROOT / "kernels"


def test_importing_loads_nothing_and_never_initialises_cuda():
    program = (
        "import sys, kernels; assert not {'torch', 'triton', 'numpy'} & set(sys.modules), 'import loads too much';"
        "import torch; torch.cuda._lazy_init = lambda: sys.exit('CUDA is initialised');"
        "dir(kernels); ops = kernels.torch_ops('cpu'); ops.relu.forward(torch.ones(2)); kernels.relu_forward;"
        "kernels.tables.triton_entries(); assert 'transformers' not in sys.modules, 'a table needs no transformers'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


@pytest.mark.parametrize("name", kernels.__all__)
def test_every_public_name_is_there(name):
    assert callable(getattr(kernels, name))
    assert name in dir(kernels)


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="flash"):
        _ = kernels.flash


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch):
    """Hides a package from the search that the messages come from."""

    def hide(package: str) -> None:
        find = importlib.util.find_spec
        monkeypatch.setattr(availability, "find_spec", lambda name: None if name == package else find(name))
        for name in ("triton_ops", "torch_ops", "softmax_forward"):
            monkeypatch.delitem(vars(kernels), name, raising=False)

    return hide


@pytest.mark.parametrize(
    ("package", "use", "says"),
    [
        ("triton", lambda: kernels.softmax_forward, r"Triton is not installed.*torch backend"),
        ("triton", lambda: kernels.triton_ops("cuda"), r"Triton is not installed.*torch backend"),
        ("torch", lambda: kernels.torch_ops, r"PyTorch is not installed.*numpy backend"),
        ("torch", lambda: kernels.softmax_forward, r"PyTorch is not installed.*numpy backend"),
    ],
)
def test_what_is_said_where_a_package_is_missing(missing, package, use, says):
    missing(package)
    with pytest.raises(ModuleNotFoundError, match=says):
        use()


@pytest.mark.parametrize("device", [None, "cuda", "cuda:1", "cpu", "mps"])
def test_triton_on_a_device_without_a_gpu(monkeypatch, device):
    """Whatever device is named, the advice is one that can be followed."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"the triton backend needs a GPU.*use the torch backend or numpy"):
        kernels.triton_ops(device)


@pytest.mark.parametrize(
    ("make", "arguments", "error", "says"),
    [
        (kernels.torch_ops, ("cpu", "float8"), ValueError, "dtype is 'float8', expected one of float64"),
        (kernels.torch_ops, ("cpu", "int64"), ValueError, "dtype is 'int64'"),
        (kernels.torch_ops, ("abacus",), ValueError, "device is 'abacus', expected cpu, cuda or mps"),
        (kernels.torch_ops, ("meta",), ValueError, "device is 'meta', expected cpu, cuda or mps"),
        (kernels.torch_ops, (None,), ValueError, "expected cpu, cuda or mps"),
        (kernels.torch_ops, (1.5,), ValueError, "expected cpu, cuda or mps"),
        (kernels.torch_ops, ("cuda:2",), RuntimeError, "there is no cuda:2 here: the last one is cuda:1"),
        (kernels.triton_ops, (None, "float64"), ValueError, r"float64.*expected one of float32, bfloat16, float16"),
    ],
)
def test_what_the_tables_refuse(monkeypatch, make, arguments, error, says):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(error, match=says):
        make(*arguments)


def test_a_device_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="no device of the kind 'cuda'"):
        kernels.torch_ops("cuda")


@pytest.mark.skipif(
    not availability.interpreting(),
    reason="hide the GPU, CUDA_VISIBLE_DEVICES='': one computes bfloat16 rightly",
)
def test_bfloat16_in_the_interpreter():
    with pytest.raises(ValueError, match="interpreter computes bfloat16 wrongly"):
        kernels.triton_ops(dtype="bfloat16")
    x = torch.ones(1, 1, 4, 8, dtype=torch.bfloat16)
    for op, arguments in (("softmax", (x,)), ("attention", (x, x, x)), ("relu", (x,))):
        with pytest.raises(ValueError, match="interpreter computes bfloat16 wrongly"):
            getattr(kernels, f"{op}_forward")(*arguments)


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float32"), torch.float32])
def test_a_dtype_by_any_of_its_names(dtype):
    assert kernels.torch_ops("cpu", dtype).zeros((1,)).dtype == torch.float32
