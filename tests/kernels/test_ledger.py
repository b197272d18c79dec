"""The ledger tells the truth: whatever an op runs is in its hash, and a change of it is seen."""

import ast
import importlib.util
import json
import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernels import KERNELS, functions_of
from kernels.proof import fingerprint, ledger

ROOT = Path(ledger.__file__).parents[2]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The module of fingerprints of a copy of the package: who changes a file of it, or what was read, mends it."""
    tmp_path = tmp_path_factory.mktemp("copy")
    for package in ("kernels", "minitransformer"):
        ignored = shutil.ignore_patterns("__pycache__", "results")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    folder = tmp_path / "kernels" / "proof"
    spec = importlib.util.spec_from_file_location("fingerprint_of_a_copy", folder / "fingerprint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("op", KERNELS)
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_change_of_anything_that_an_op_runs_is_seen(copy, op, step):
    """Every kernel, every helper, every wrapper and every constant, one at a time; or each fifth of them."""
    module, names = KERNELS[op][0], functions_of(op)
    before = copy.fingerprint(module, *names)
    assert before == ledger.current(op)
    places = list(copy.reached(module, *names))
    assert {place.name for place in places} >= set(names)
    assert any(place.name.endswith("_kernel") for place in places)
    for place in places[::step]:
        parsed = copy.definitions(place.path)  # as good as the file, and read only once
        node = parsed[place.name]
        parsed[place.name] = changed_node(node)
        assert copy.fingerprint(module, *names) != before, f"{place} can change unseen"
        parsed[place.name] = node
    assert copy.fingerprint(module, *names) == before


def changed_node(node: ast.AST) -> ast.AST:
    """A function or class with one more statement, or a constant with another value."""
    node = deepcopy(node)
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
        node.body.append(ast.Pass())
    else:
        assert isinstance(node, ast.Assign | ast.AnnAssign)
        assert node.value is not None
        node.value = ast.Tuple([node.value], ast.Load())
    return node


def test_a_change_of_what_is_taken_from_the_reference_is_seen(copy):
    """The masks are the reference's: its `Dropout` says what to drop."""
    places = {str(place) for place in copy.reached("dropout", "dropout_forward")}
    assert "minitransformer/ops/dropout.py:Dropout" in places
    assert places >= {"kernels/hashing.py:mix", "kernels/dropout.py:dropout_kernel"}


def test_the_hash_is_the_same_in_every_version_of_python():
    """3.12 gives functions and classes a field, `type_params`, which is empty where nobody uses it."""
    (function,) = ast.parse("def f(x): return x + 1").body
    before = fingerprint.canonical(function)
    for node in ast.walk(function):
        newer: Any = node
        newer._fields = (*node._fields, "a_new_field")
        newer.a_new_field = []
    assert fingerprint.canonical(function) == before
    assert "a_new_field" in ast.dump(function)


@pytest.mark.parametrize(
    ("file", "before", "after", "seen"),
    [
        pytest.param("elementwise.py", "ELEMENTS = 2048", "ELEMENTS = 4096", True, id="a constant"),
        pytest.param(
            "elementwise.py", "ELEMENTS = 2048", "ELEMENTS = 2048\nELEMENTS *= 2", True, id="a constant made of itself"
        ),
        pytest.param("elementwise.py", '"""Activations', '# A comment.\n"""Activations', False, id="a comment"),
        pytest.param("elementwise.py", "`y = max(0, x)`", "The rectifier", False, id="a docstring"),
        pytest.param("softmax.py", "def inverse(", "MORE = 1\n\n\ndef inverse(", False, id="another op"),
    ],
)
def test_which_changes_of_a_file_are_seen(copy, file, before, after, seen):
    hashed = copy.fingerprint("elementwise", "relu_forward", "relu_backward")
    caches = (copy.definitions, copy.imports, copy._tree, copy.mentioned)
    path = copy.ROOT / "kernels" / file
    text = path.read_text(encoding="utf-8")
    assert before in text
    try:
        path.write_text(text.replace(before, after), encoding="utf-8")
        for cached in caches:
            cached.cache_clear()
        assert (copy.fingerprint("elementwise", "relu_forward", "relu_backward") != hashed) == seen
    finally:
        path.write_text(text, encoding="utf-8")
        for cached in caches:
            cached.cache_clear()


def test_a_name_that_is_not_there():
    with pytest.raises(ValueError, match=r"elementwise\.py has no rectify"):
        fingerprint.fingerprint("elementwise", "rectify")


def test_what_is_reported(tmp_path):
    hashes = {"relu": ledger.current("relu"), "softmax": "0" * 64}
    ops = {op: {"hash": value, "date": "2030-01-02"} for op, value in hashes.items()}
    ledger.write(tmp_path / "gpu.json", {"gpu": "NVIDIA X1", "ops": ops})
    executed = {op: {"hash": value, "date": "2030-01-03"} for op, value in hashes.items()}
    (tmp_path / ledger.MANIFEST).write_text(json.dumps({"ops": executed}), encoding="utf-8")
    lines = ledger.report(tmp_path)
    assert lines[0] == "NVIDIA X1"
    middle = lines.index("machine code of a gfx1100, on a CPU")
    said, on_a_cpu = (dict(line.split(maxsplit=1) for line in part) for part in (lines[1:middle], lines[middle + 1 :]))
    assert set(said) == set(on_a_cpu) == set(KERNELS)
    assert on_a_cpu["relu"] == "executed as machine code on 2030-01-03"
    assert on_a_cpu["softmax"] == "changed since it was executed as machine code on 2030-01-03"
    assert on_a_cpu["dropout"] == "not yet executed as machine code"
    assert said["relu"] == "verified on 2030-01-02"
    assert said["softmax"] == "changed since it was verified on 2030-01-02"
    assert said["dropout"] == "not yet verified"


def test_without_any_result(tmp_path):
    (tmp_path / "compiled.json").write_text("{}", encoding="utf-8")  # no ledger of a GPU
    assert ledger.report(tmp_path)[0] == f"not yet verified on a GPU: {', '.join(KERNELS)}"


def test_our_time_of_an_op_whose_check_failed_is_not_shown():
    """In the file it is kept."""
    times = {"ours": {"ms": 1.0}, "PyTorch": {"ms": 2.0}}
    kept = [{"op": op, "contestants": times} for op in ("relu", "softmax")]
    ops = {"relu": {"failed": ["float32: off"]}, "softmax": {}}
    relu, softmax = ledger.entries({"ops": ops, "sections": {"rows": {"entries": kept}}}, "rows")
    assert relu["contestants"] == times | {"ours": ledger.WRONG}
    assert softmax == kept[1]
    assert kept[0]["contestants"] is times


def test_the_command_needs_neither_torch_nor_triton():
    program = (
        "import sys; sys.modules['torch'] = sys.modules['triton'] = None; import runpy; "
        "runpy.run_module('kernels.ledger', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "verified" in done.stdout
