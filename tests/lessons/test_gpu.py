"""The lessons about kernels where PyTorch or Triton is missing, or where there is no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from course import gpu
from course.notebooks import execute
from course.sources import LESSONS, number_of, read_source, solved_notebook, sources

WITH_KERNELS = [source for source in sources() if number_of(source) in ("15", "16", "17", "20")]
HIDE = "import sys\nfor name in {hidden!r}:\n    sys.modules[name] = None\n"
DEFINE_AND_RUN = """
import json
from course.gpu import DEVICE, MISSING, machine, require_kernels, tl, torch, triton

HALF = tl.constexpr(0.5)

@triton.jit
def double_kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 2 * tl.load(x_ptr + i, i < n), i < n)

@triton.jit(do_not_specialize=["n"])
def other_kernel(x_ptr, n):
    '''Never launched.'''
    raise NotImplementedError

def run():
    require_kernels()
    x = torch.ones(3)
    double_kernel[(1,)](x, 3, BLOCK=triton.next_power_of_2(3))
    return x.tolist()

try:
    result = run()
except ModuleNotFoundError as missing:
    result = str(missing)
print(json.dumps([DEVICE, MISSING, machine(), result, triton.cdiv(7, 2), triton.next_power_of_2(5)]))
"""


def without(hidden: list[str], folder: Path) -> dict[str, str]:
    """The environment of a process that finds none of the packages `hidden`."""
    (folder / "sitecustomize.py").write_text(HIDE.format(hidden=hidden), encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if name not in ("TRITON_INTERPRET", "COURSE_RECORD")}
    places = [str(folder), str(LESSONS), str(LESSONS.parent), *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(places), "CUDA_VISIBLE_DEVICES": ""}


def run(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=LESSONS, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("hidden", "missing"),
    [
        ([], None),
        pytest.param(["triton"], gpu.NO_TRITON, marks=pytest.mark.slow),
        (["torch"], gpu.NO_TORCH),
        (["torch", "triton"], gpu.NO_TORCH),
    ],
    ids=lambda value: "+".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_kernels_can_be_defined_anywhere_and_what_runs_them_says_what_is_missing(hidden, missing, tmp_path):
    # The interpreter needs a kernel's source in a file.
    script = tmp_path / "script.py"
    script.write_text(DEFINE_AND_RUN, encoding="utf-8")
    printed = run(f"import runpy; runpy.run_path({str(script)!r})", without(hidden, tmp_path))
    device, found, machine, result, *arithmetic = json.loads(printed)
    assert (device, found, arithmetic) == ("cpu", missing, [4, 8])
    assert result == (missing or [2.0, 2.0, 2.0])
    assert machine.startswith(missing or "Triton 3.")


def test_in_this_process_too_a_missing_triton_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    _, triton, tl, _, missing = gpu._load()
    assert missing == "Triton is not installed here (it is made for Linux)"
    assert triton.jit(do_not_specialize=["n"])(run).__name__ == "run"
    with pytest.raises(ModuleNotFoundError, match=r"^Triton is not installed here"):
        triton.jit(run)[(1,)]
    assert tl.constexpr(0.5).value == 0.5


def test_in_this_process_too_an_interpreter_asked_for_too_late_is_told(monkeypatch):
    pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[kernels]'")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr("triton.language.sum", max)
    assert "restart the kernel" in (gpu._load()[-1] or "")


@pytest.mark.slow
def test_an_interpreter_asked_for_too_late_is_told(tmp_path):
    printed = run("import triton\nfrom course.gpu import MISSING\nprint(MISSING)", without([], tmp_path))
    assert "restart the kernel" in printed


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda:75", "cuda:90"])
@pytest.mark.parametrize(("number", "kernels"), [("15", 15), ("16", 6), ("20", 1)])
def test_a_lessons_kernels_compile_for_a_hosted_gpu_and_fit_it(number, kernels, target, tmp_path):
    """A T4 and an H100, in two types each: registers that suffice, and no more shared memory than a T4 has."""
    script = Path(__file__).parents[1] / "support" / "lessons" / "compile_lesson.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path, number, target],
        env=without([], tmp_path), cwd=LESSONS, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 2 * kernels
    for name, _, spilled, shared in lines:
        assert int(spilled) == 0, name
        assert int(shared) <= 64 * 1024, name


@pytest.mark.slow
@pytest.mark.parametrize("hidden", ["torch", "triton"])
@pytest.mark.parametrize("source", WITH_KERNELS, ids=lambda s: s.stem)
def test_a_lesson_shows_what_was_recorded_where_a_package_is_missing(source, hidden, tmp_path, monkeypatch):
    for name, value in without([hidden], tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    for notebook in (read_source(source), solved_notebook(source)):
        execute(notebook)
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        printed = "".join(output.text for output in outputs if output.get("name") == "stdout")
        assert "is not installed here" in printed
        assert not [output.text for output in outputs if output.get("name") == "stderr"]
        assert "raises" not in printed
