"""`torchrun` before the command that everybody knows: the same files, whatever is killed, and nothing left running."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from support.cli_runs import PROGRAM, SMALL, Command, Run
from support.folders import assert_same_training
from support.process_groups import returned, with_processes
from support.processes import wait_for

from minitransformer.cli import main
from minitransformer.training.checkpoint import list_checkpoints, step_of

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
MODULE = PROGRAM[1:]


def torchrun(size: int, *arguments: object, restarts: int = 0) -> list[str]:
    options = ["--nproc-per-node", size, "--max-restarts", restarts]
    return [*TORCHRUN, *map(str, [*options, *MODULE, *arguments])]


def start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with open(log, "wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)


def workers(folder: Path) -> list[int]:
    """The processes that train in a folder, without their launcher."""
    listed = subprocess.run(["pgrep", "-f", f"minitransformer train .*{folder}"], capture_output=True, text=True)
    found = []
    for number in map(int, listed.stdout.split()):
        try:
            arguments = Path(f"/proc/{number}/cmdline").read_bytes()
        except OSError:
            continue
        if b"torch.distributed.run" not in arguments:
            found.append(number)
    return found


def training(trained: Run, folder: Path, *options: str) -> list[str]:
    return ["train", "--data", str(trained.data), "--out", str(folder), *SMALL, "--shards", "4", *options]


def test_two_processes_write_what_one_does(trained: Run, tmp_path: Path, command: Command) -> None:
    """Training, validation and BLEU, and the evaluation of a test set; with the variables that torchrun sets."""
    assert command(*training(trained, tmp_path / "one"))[0] == 0
    (first, told), second = returned(with_processes(2, said, training(trained, tmp_path / "two"), joins=False))
    assert (first, told.count("training in")) == (0, 1)
    assert second == (0, "")
    assert_same_training(tmp_path / "two", tmp_path / "one")
    options = ["evaluate", str(tmp_path / "two" / "step-00000004.safetensors"), "--data", str(trained.data)]
    status, out, _ = command(*options)
    assert returned(with_processes(2, said, options, joins=False)) == [(status, out), (0, "")]


def test_a_clip_trains_with_the_advice_of_its_refusal(tmp_path: Path) -> None:
    """The default of eight shards is refused."""
    tiny = ["--d-model", "16", "--num-heads", "2", "--d-ff", "16", "--num-layers", "1", "--tokens-per-batch", "64"]
    train = ["train", "--kind", "clip", *tiny, "--steps", "1", "--shards", "1", "--out", str(tmp_path / "two")]
    assert [status for status, _ in returned(with_processes(2, said, train, joins=False))] == [0, 0]


def said(rank: int, arguments: list[str]) -> tuple[int, str]:
    """The status of a command in one of several processes, and its standard output."""
    with redirect_stdout(StringIO()) as out:
        return main(arguments), out.getvalue()


def steps_of(folder: Path) -> int:
    """The steps in a training's log, which loses those after the last checkpoint where it goes on."""
    log = folder / "log.jsonl"
    return log.read_bytes().count(b'"grad_norm"') if log.exists() else 0


@pytest.mark.slow
def test_twenty_kills_change_nothing(trained: Run, tmp_path: Path, command: Command) -> None:
    """Any process, at any moment: torchrun starts all again, and the run ends with the bits of an undisturbed one."""
    options = ["--steps", "800", "--checkpoint-interval", "5", "--valid-interval", "200"]
    assert command(*training(trained, tmp_path / "alone", *options))[0] == 0
    folder, rng, kills = tmp_path / "killed", random.Random(0), 0
    running = start(torchrun(2, *training(trained, folder, *options), restarts=30), tmp_path / "log")
    while kills < 20 and running.poll() is None:
        wait_for(lambda: len(workers(folder)) == 2 or running.poll() is not None)
        moment, until = time.monotonic() + rng.uniform(1.0, 5.0), steps_of(folder) + rng.randrange(30)
        wait_for(lambda at=moment, step=until: time.monotonic() > at or steps_of(folder) > step)
        found = workers(folder)
        if found:
            os.kill(rng.choice(found), signal.SIGKILL)
            kills += 1
    assert running.wait(300) == 0, (tmp_path / "log").read_text()[-3000:]
    assert kills == 20
    assert_same_training(folder, tmp_path / "alone")
    assert not workers(folder)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["launcher", "one process", "launcher, without a word"])
def test_a_stop_leaves_one_checkpoint_and_no_process(trained: Run, tmp_path: Path, command: Command, who: str) -> None:
    """Ctrl-C, SIGTERM to one process, and a launcher that is killed: all stop after one step, from which it goes on."""
    folder, rarely = tmp_path / "stopped", ["--checkpoint-interval", "9000", "--valid-interval", "9000"]
    running = start(torchrun(2, *training(trained, folder, "--steps", "9000", *rarely)), tmp_path / "log")
    wait_for(lambda: (folder / "log.jsonl").exists())
    time.sleep(1)
    if who == "one process":
        os.kill(workers(folder)[-1], signal.SIGTERM)
    else:
        running.send_signal(signal.SIGINT if who == "launcher" else signal.SIGKILL)
    status = running.wait(60)
    wait_for(lambda: not workers(folder), 60)
    assert (status == 0) == (who == "one process")
    (checkpoint,) = list_checkpoints(folder)
    assert not (folder / "minitransformer.lock").exists()
    steps = str((step_of(checkpoint) or 0) + 2)
    assert command("train", "--resume", folder, "--steps", steps)[0] == 0
    assert command(*training(trained, tmp_path / "alone", "--steps", steps, *rarely))[0] == 0
    last = list_checkpoints(folder)[-1]
    assert last.read_bytes() == (tmp_path / "alone" / last.name).read_bytes()
