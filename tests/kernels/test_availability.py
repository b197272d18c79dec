"""What `import kernels` costs, whose it is, and what is said where something is missing."""

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
        "dir(kernels); ops = kernels.torch_ops('cpu'); ops.relu.forward(torch.ones(2)); kernels.relu_forward"
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
    ("package", "name", "says"),
    [
        ("triton", "softmax_forward", r"Triton is not installed.*torch backend"),
        ("torch", "torch_ops", r"PyTorch is not installed.*numpy backend"),
        ("torch", "softmax_forward", r"PyTorch is not installed.*numpy backend"),
    ],
)
def test_what_is_said_where_a_package_is_missing(missing, package, name, says):
    missing(package)
    with pytest.raises(ModuleNotFoundError, match=says):
        getattr(kernels, name)


def test_what_is_said_without_triton_when_its_table_is_asked_for(missing):
    missing("triton")
    with pytest.raises(ModuleNotFoundError, match=r"Triton is not installed.*torch backend"):
        kernels.triton_ops("cuda")


def test_what_is_said_without_a_gpu(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"needs a GPU.*use the torch backend or numpy"):
        kernels.triton_ops()


@pytest.mark.parametrize(
    ("device", "dtype", "error", "says"),
    [
        ("cpu", "float8", ValueError, "dtype is 'float8', expected one of float64"),
        ("cpu", "int64", ValueError, "dtype is 'int64'"),
        ("abacus", "float32", ValueError, "device is 'abacus', expected cpu, cuda or mps"),
        ("meta", "float32", ValueError, "device is 'meta', expected cpu, cuda or mps"),
    ],
)
def test_what_torch_ops_refuse(device, dtype, error, says):
    with pytest.raises(error, match=says):
        kernels.torch_ops(device, dtype)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "cpu", "mps"])
def test_triton_on_a_device_without_a_gpu(monkeypatch, device):
    """Whatever device is named, the advice is one that can be followed."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"the triton backend needs a GPU.*use the torch backend"):
        kernels.triton_ops(device)


@pytest.mark.skipif(not availability.interpreting(), reason="a GPU computes bfloat16 rightly")
def test_bfloat16_in_the_interpreter():
    with pytest.raises(ValueError, match="interpreter computes bfloat16 wrongly"):
        kernels.triton_ops(dtype="bfloat16")
    x = torch.ones(1, 1, 4, 8, dtype=torch.bfloat16)
    for op, arguments in (("softmax", (x,)), ("attention", (x, x, x)), ("relu", (x,))):
        with pytest.raises(ValueError, match="interpreter computes bfloat16 wrongly"):
            getattr(kernels, f"{op}_forward")(*arguments)


def test_a_gpu_of_a_number_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(RuntimeError, match="there is no cuda:2 here: the last one is cuda:1"):
        kernels.torch_ops("cuda:2")


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float32"), torch.float32])
def test_a_dtype_by_any_of_its_names(dtype):
    assert kernels.torch_ops("cpu", dtype).zeros((1,)).dtype == torch.float32


@pytest.mark.parametrize("device", [None, 1.5])
def test_what_is_no_device(device):
    with pytest.raises(ValueError, match="expected cpu, cuda or mps"):
        kernels.torch_ops(device)


def test_a_device_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="no device of the kind 'cuda'"):
        kernels.torch_ops("cuda")


def test_triton_computes_no_float64():
    with pytest.raises(ValueError, match=r"float64.*expected one of float32, bfloat16, float16"):
        kernels.triton_ops(dtype="float64")
