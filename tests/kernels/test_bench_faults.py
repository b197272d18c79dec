"""Rehearsals with faults: whatever breaks is written down and gone past, and nothing that was measured is lost."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_bench_supervisor import gone

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[kernels]'")

from support.kernels import bench_faults as faults

from kernels import KERNELS
from kernels.bench import __main__ as command_line
from kernels.bench import ledger, run
from kernels.bench.ledger import LATE

pytestmark = pytest.mark.usefixtures("known_machine")


def rehearsal(folder: Path, *only: str, before: Any = run.nothing) -> tuple[int, ledger.Ledger]:
    """The status, and what was written."""
    status = command_line.main(["--smoke", "--only", *only, "--out", str(folder)], before)
    return status, ledger.read(folder / "smoke.json")


def times(written: ledger.Ledger) -> dict[str, dict[str, str]]:
    """By op, everybody in the races over rows: why there is no time, or "ms"."""
    return {
        entry["op"]: {name: found.get("failed", "ms") for name, found in entry["contestants"].items()}
        for entry in ledger.entries(written, "rows")
    }


def test_checks_go_past_what_fails(tmp_path, monkeypatch, capsys):
    """What else may end a process, and be wrong with an op, tests of the supervisor and of a check say."""
    monkeypatch.setattr(run, "KERNELS", {op: KERNELS[op] for op in ("relu", "softmax", "adam")})
    status, written = rehearsal(tmp_path, "checks", before=faults.in_checks)
    assert status == 1
    ops = written["ops"]
    assert "failed" not in ops["adam"]
    assert ops["adam"]["errors"].keys() == {"float32"}
    for op, reason in {
        "relu": "float32, (3, 5): the output is off by",
        "softmax": "float32: its process was ended by SIGKILL (out of memory?)",
    }.items():
        assert ops[op]["hash"] == ledger.current(op)
        (why,) = ops[op]["failed"]
        assert why.startswith(reason)
        assert ledger.state(op, written) == f"failed its check on {ops[op]['date']}"
    said = capsys.readouterr()
    assert "adam: float32" in said.out
    assert len(written["failures"]) == 2
    assert all(f"failed: {failure}\n" in said.err for failure in written["failures"])


def test_races_go_past_what_fails(tmp_path):
    status, written = rehearsal(tmp_path, "rows", before=faults.in_races)
    assert status == 1
    found = times(written)
    killed, illegal = "its process was ended by SIGKILL (out of memory?)", f"RuntimeError: {faults.ILLEGAL}"
    assert found.pop("adam") == {
        "ours": "ms", "naive": "ms", "PyTorch": illegal, "PyTorch, fused": illegal, "torch.compile": "ms"
    }  # fmt: skip
    ours = {"relu": "RuntimeError: no room for this", "dropout": killed, "softmax": "ms", "embedding": illegal}
    assert {op: contestants.pop("ours") for op, contestants in found.items()} == ours
    assert {why for contestants in found.values() for why in contestants.values()} == {"ms"}
    for task in ("relu", "dropout", "embedding", "adam"):
        assert any(failure.startswith(f"{task}, ") for failure in written["failures"])
    assert len(written["failures"]) == 5


@pytest.mark.slow
def test_one_that_hangs_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setitem(run.PATIENCE, "rows", 6)
    status, written = rehearsal(tmp_path, "rows", before=faults.a_peer_hangs)
    assert status == 1
    hung = f"not a word for {6 * run.LEISURE} s"
    assert times(written)["adam"] == {
        "ours": "ms", "naive": "ms", "PyTorch": hung, "PyTorch, fused": hung, "torch.compile": "ms"
    }  # fmt: skip


@pytest.mark.slow
def test_what_there_is_no_time_for_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "SECONDS", dict.fromkeys(run.SECONDS, 1))  # and as many times as long as a rehearsal gets
    status, written = rehearsal(tmp_path, "rows", before=faults.a_peer_hangs)
    assert status == 0
    why = times(written)["adam"]
    assert why["PyTorch"] == why["PyTorch, fused"] == why["torch.compile"] == LATE["failed"]
    assert re.search(r"rows: \d+ times were left out for lack of time", capsys.readouterr().out)


@pytest.mark.slow
def test_a_section_that_cannot_begin_leaves_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KERNELS", {"relu": KERNELS["relu"]})
    status, written = rehearsal(tmp_path, "checks", "rows", before=faults.at_the_start)
    assert status == 1
    assert written["failures"] == ["rows: its process was ended by SIGKILL (out of memory?)"]
    assert "relu" in written["ops"]
    assert "rows" not in written["sections"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_that_is_ended_leaves_what_it_found_and_no_processes(tmp_path, number):
    """Then it is run again, and finds the rest."""
    pids = tmp_path / "pids"
    pids.mkdir()
    program = (
        "import signal, sys, functools, pathlib\n"
        "for number in (signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_DFL)\n"  # nohup ignores it
        "from support.kernels import bench_faults\n"
        "from kernels.bench.__main__ import main\n"
        "if __name__ == '__main__': sys.exit(main(['--smoke', '--only', 'rows', '--out', sys.argv[1]], "
        "functools.partial(bench_faults.hangs_visibly, pathlib.Path(sys.argv[2]))))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, str(tmp_path), str(pids)]
    running = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path = tmp_path / "smoke.json"
    while not (path.exists() and set(times(ledger.read(path)).get("relu", {"": ""}).values()) == {"ms"}):
        assert running.poll() is None
        time.sleep(0.2)
    running.send_signal(number)
    _, said = running.communicate()
    assert running.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert number == signal.SIGKILL or said.startswith(f"stopped; what was found until then is in {path}\n")
    assert gone([int(file.name) for file in pids.iterdir()])
    before = ledger.read(path)
    assert set(times(before)["relu"].values()) == {"ms"}
    assert times(before)["adam"]["PyTorch"] == LATE["failed"]

    status, written = rehearsal(tmp_path, "rows", before=faults.few)
    assert status == 0
    assert {why for contestants in times(written).values() for why in contestants.values()} == {"ms"}


# --- Where to write -------------------------------------------------------------------------------------------


def test_where_nothing_can_be_written_nothing_is_begun(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert command_line.main(["--smoke", "--out", str(tmp_path / "file" / "folder")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"cannot write {tmp_path / 'file' / 'folder' / 'smoke.json'}: Not a directory\n"


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"gpu": "x", "ops": 1, "sections": {}}'])
def test_what_is_no_ledger_is_left_alone(tmp_path, capsys, content):
    path = tmp_path / "smoke.json"
    path.write_text(content)
    assert command_line.main(["--smoke", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"{path} is no ledger")
    assert path.read_text() == content


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_disk_that_fills_up_loses_nothing(tmp_path, monkeypatch, capsys, elsewhere):
    """What was found goes to the system's folder for such, or is printed."""
    full, other = tmp_path / "full", tmp_path / "other"
    write, begun = ledger.write, []

    def fill(path: Path, written: ledger.Ledger) -> None:
        if begun and (path.parent == full or not elsewhere):
            raise OSError(errno.ENOSPC, f"cannot write {path}: No space left on device")
        begun.append(path)
        write(path, written)

    monkeypatch.setattr(ledger, "write", fill)
    monkeypatch.setattr(run.tempfile, "gettempdir", lambda: str(other))
    monkeypatch.setattr(run, "KERNELS", {"relu": KERNELS["relu"]})
    assert command_line.main(["--smoke", "--only", "checks", "--out", str(full)]) == 1
    said = capsys.readouterr()
    assert f"failed: cannot write {full / 'smoke.json'}: No space left on device" in said.err
    if elsewhere:
        assert "relu" in ledger.read(other / "smoke.json")["ops"]
    else:
        assert '"relu": {"hash"' in said.out


def test_a_folder_of_its_own_begins_with_what_is_known(tmp_path, monkeypatch):
    """What is kept in the checkout is added to elsewhere, and stays as it is."""
    known, out = tmp_path / "known", tmp_path / "out"
    monkeypatch.setattr(run, "RESULTS", known)
    kept = {"gpu": "a GPU", "smoke": False, "ops": {"relu": {"hash": "0"}}, "sections": {}, "failures": ["old"]}
    ledger.write(ledger.path_of(known, "a GPU"), kept)
    assert run.Run(smoke=False, folder=out, before=run.nothing).ledger == kept | {"failures": []}
    assert ledger.read(known / "a-gpu.json") == kept
    assert ledger.read(out / "a-gpu.json") == kept | {"failures": []}
