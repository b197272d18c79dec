"""The command line as processes: signals, pipes, and what importing the package costs."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli_runs import PROGRAM, SMALL, Run
from support.processes import wait_for

import minitransformer
from minitransformer import Translator, load_checkpoint
from minitransformer.cli import main
from minitransformer.cli.common import one_line
from minitransformer.system.threads import available_cores
from minitransformer.system.workers import Workers
from minitransformer.training import read_log
from minitransformer.training.checkpoint import checkpoint_path, latest


def test_ctrl_c_saves_and_says_how_to_go_on(trained: Run, tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    options = [*SMALL, "--steps", "100000", "--valid-interval", "100000", "--checkpoint-interval", "100000"]
    process = subprocess.Popen(
        [*PROGRAM, "train", "--data", str(trained.data), "--out", str(folder), *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    log = folder / "log.jsonl"
    wait_for(log.exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    step = read_log(log)[-1]["step"]
    assert f"interrupted after step {step}" in err
    resume = re.search(r"^to go on: python -m minitransformer (.*)$", out, re.MULTILINE)
    assert resume
    assert resume[1] == f"train --resume '{folder}'"
    assert main(["train", "--resume", str(folder), "--steps", str(step + 1)]) == 0


COMMANDS = """
import json, sys
from minitransformer import cli, plots
plots.plot_loss = lambda *_: None
for command in json.loads(sys.argv[1]):
    assert cli.main(command) == 0
"""
"""A program that runs several commands, without the time that pictures take."""


def test_a_resumed_training_computes_the_same_bits_whatever_threads_blas_may_use(trained: Run, tmp_path: Path) -> None:
    """Wide enough that BLAS would share its products among threads, which round otherwise."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    wide = [*SMALL, "--d-model", "64", "--d-ff", "128", "--steps", "3", "--clip-norm", "1", "--valid-interval", "100"]
    begin, resume = [], []
    for threads in "12":
        train = ["train", "--data", str(trained.data), *wide, "--threads", threads, "--out"]
        whole, stopped = (str(tmp_path / f"{name} {threads}") for name in ("whole", "stopped"))
        begin += [[*train, whole], [*train, stopped, "--minutes", "1e-9"]]
        resume += [["train", "--resume", stopped, "--minutes", "60"]]
    for commands in (begin, resume):
        program = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
        run = subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=60)
        for stopped in (tmp_path / "stopped 1", tmp_path / "stopped 2"):
            assert (f"train --resume '{stopped}'" in run.stdout) == (commands is begin)
            assert latest(stopped) == checkpoint_path(stopped, 1 if commands is begin else 3)
    for threads in "12":
        expected, resumed = (
            load_checkpoint(checkpoint_path(tmp_path / f"{name} {threads}", 3)).parameters
            for name in ("whole", "stopped")
        )
        assert all((resumed[name] == array).all() for name, array in expected.items())


INTERRUPT = """
import os, runpy, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
module, sys.argv = sys.argv[1], ["minitransformer", "info", "--preset", "tiny"]
sys.meta_path.insert(0, Interrupt())
runpy.run_module("minitransformer", run_name="__main__", alter_sys=True)
"""
"""The program with a Ctrl-C at the moment when it imports a module."""


@pytest.mark.parametrize("module", ["minitransformer.cli", "argparse", "numpy", "numpy.linalg"])
def test_ctrl_c_while_the_program_starts(module: str) -> None:
    run = subprocess.run([sys.executable, "-c", INTERRUPT, module], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("streams", "arguments", "status", "said"),
    [
        pytest.param("<&-", ["A dog."], 0, "", marks=pytest.mark.slow),
        ("<&-", [], 2, "standard input is closed: give sentences, or --file FILE"),
        (">&-", ["A dog."], 2, "standard output is closed"),
        ("2>&-", ["A dog."], 0, ""),
        pytest.param("2>&-", ["--beam", "x"], 2, "", marks=pytest.mark.slow),
        pytest.param("<&- 2>&-", ["A dog."], 0, "", marks=pytest.mark.slow),
        ("<&- >&- 2>&-", ["A dog."], 2, ""),
    ],
)
def test_closed_streams(trained: Run, streams: str, arguments: list[str], status: int, said: str) -> None:
    script = f'exec "$0" -m minitransformer translate "$@" {streams}'
    run = subprocess.run(
        ["bash", "-c", script, sys.executable, str(trained.checkpoint), *arguments],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert run.returncode == status
    assert bool(run.stdout) == (status == 0)
    assert said in run.stderr
    assert run.stderr.count("\n") == bool(said)


def test_a_reader_that_has_gone_is_no_error(trained: Run) -> None:
    command = 'yes "A dog." | head -n 500 | "$0" -m minitransformer translate "$1" --batch-size 4 | head -n 1'
    run = subprocess.run(
        ["bash", "-c", f"{command}; echo status ${{PIPESTATUS[2]}}", sys.executable, str(trained.checkpoint)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert run.stderr == ""
    assert run.stdout.endswith("status 141\n")


@pytest.mark.skipif(
    not Workers.supported() or available_cores() < 2, reason="needs Linux and two cores: otherwise one process does all"
)
def test_a_process_that_is_killed_gives_one_sentence(trained: Run, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("A dog sleeps in the old house of the king.\n" * 50_000)
    process = subprocess.Popen(
        [*PROGRAM, "translate", str(trained.checkpoint), "--file", str(tmp_path / "text"), "--threads", "2"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_for(lambda: children.read_text().split())
    os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert said == "minitransformer: error: a process that shared the work was killed: perhaps memory ran out\n"
    assert process.returncode == 2


def test_output_comes_before_the_input_ends(trained: Run) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "translate", str(trained.checkpoint), "--batch-size", "1"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("A dog.\n")
    process.stdin.flush()
    (translation,) = Translator.from_checkpoint(trained.checkpoint).translate("A dog.")
    assert process.stdout.readline() == one_line(translation) + "\n"
    assert process.communicate("", timeout=30) == ("", None)


def test_importing_the_package_is_cheap_and_its_names_resolve() -> None:
    program = (
        "import sys, numpy\nbefore = set(sys.modules)\nimport minitransformer\n"
        "print(len(set(sys.modules) - before))\n"
        "print(all(hasattr(minitransformer, name) for name in minitransformer.__all__))\n"
        "print(sorted({'torch', 'triton', 'matplotlib', 'sacrebleu', 'tqdm'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    loaded, all_there, heavy = out.splitlines()
    assert int(loaded) <= 3
    assert (all_there, heavy) == ("True", "[]")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = minitransformer.nothing  # pyright: ignore[reportAttributeAccessIssue]
