"""The script for a rented GPU: rehearsals with faults, what a second run does, and what is kept."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

sys.path.append(str(Path(__file__).parents[1] / "benchmarks" / "gpu"))  # the processes of a part look there too

import ahead
import charts
import lease
import measured
import tables
from lease import joined
from support.kernels import lease_faults as faults
from support.kernels.lease_faults import rehearsal
from test_supervisor import gone
from timing import Machine

from course.recorded import gpu_times
from kernels.attention import tiles
from kernels.proof import checks, ledger
from kernels.proof.cases import cases
from kernels.proof.ledger import LATE

GPU = Path(lease.__file__).parent
KILLED = "its process was ended by SIGKILL (out of memory?)"


def words(written: ledger.Ledger, section: str) -> dict[str, dict[str, str]]:
    """Return for each task of a section and each contestant "right", "ms" or why there is neither."""
    return {
        f"{entry['op']}, {entry['what']}": {
            who: found.get("failed", "ms" if "ms" in found else "right") for who, found in entry["contestants"].items()
        }
        for entry in ledger.entries(written, section)
    }


def test_schedules_that_fail_are_named_and_the_rest_goes_on(tmp_path):
    status, written, out, _ = rehearsal(tmp_path, faults.in_schedules, "first", "schedules", "ab")
    assert status == 1
    (found,) = words(written, "schedules").values()
    why = {}
    for who, said in found.items():
        schedule, _, dtype = who.rpartition(" in ")
        why.setdefault(schedule, set()).add(said.replace(dtype, "DTYPE"))
    assert why.pop("") == why.pop("right") == {"right"}
    nowhere = "AttributeError: module 'kernels.attention.tiles' has no attribute 'no_such_name'"
    assert why.pop("nowhere") == {nowhere}
    assert why.pop("is killed") == {KILLED}
    assert why.pop("breaks the GPU") == {f"Refused: DTYPE, padding: RuntimeError: {faults.ILLEGAL}"}
    assert all(
        re.match("DTYPE, padding: (the output|gradient 0) is off by", said)
        for said in why.pop("off") | why.pop("far off")
    )
    assert not why

    attention = written["ops"]["attention"]
    assert attention["errors"].keys() == {"float32", "float16"}
    assert ledger.state("attention", written) == f"verified on {attention['date']}"
    (entry,) = ledger.entries(written, "ab")
    times = entry["contestants"]
    assert {who for who, each in times.items() if "ms" in each} == {"ours", "right"}
    assert all(len(times[who]["turns"]) == 3 for who in ("ours", "right"))
    assert times["right"]["ratio"] == pytest.approx(times["right"]["ms"] / times["ours"]["ms"])
    assert times["right"]["expected"] == "as fast"
    for who in ("off", "far off", "is killed", "breaks the GPU", "nowhere"):
        assert times[who]["failed"].startswith("its check: ")
    assert re.search("; right: .* × ours .expected: as fast", out)


def test_a_variant_that_computes_other_numbers_is_not_timed(monkeypatch):
    """Whatever its check has said."""
    faults.in_schedules(monkeypatch)
    machine = Machine("cpu", smoke=True, ceilings={"matmul_tflops": 1.0})
    (task,) = measured.TASKS["ab"](machine)
    assert "ms" in task.contestants["off"](machine)
    with pytest.raises(AssertionError, match="it computes other numbers"):
        task.contestants["far off"](machine)


@pytest.mark.slow
def test_a_schedule_that_hangs_is_given_up(tmp_path):
    status, written, *_ = rehearsal(tmp_path, faults.in_a_schedule_that_hangs, "first", "schedules", "ab")
    assert status == 1
    hung = f"not a word for {6 * lease.LEISURE} s"
    (found,) = words(written, "schedules").values()
    assert {who.rpartition(" in ")[0]: said for who, said in found.items()} == {
        "": "right", "right": "right", "hangs": hung
    }  # fmt: skip
    (entry,) = ledger.entries(written, "ab")
    assert {who: found.get("failed") for who, found in entry["contestants"].items()} == {
        "ours": None, "right": None, "hangs": f"its check: {hung}"
    }  # fmt: skip


def test_ops_that_fail_are_named_and_a_second_run_measures_only_them(tmp_path):
    status, written, *_ = rehearsal(tmp_path, faults.in_ops, "second", "checks", "rows")
    assert status == 1
    ops = written["ops"]
    assert "failed" not in ops["adam"]
    for op, reason in {
        "relu": r"float32, \(3, 5\): the output is off by",
        "softmax": re.escape(KILLED),
        "dropout": r".*RuntimeError: no room for this",
        "embedding": f".*RuntimeError: {faults.ILLEGAL}",
    }.items():
        assert re.match(reason, ops[op]["failed"][0])
        assert ledger.state(op, written) == f"failed its check on {ops[op]['date']}"
    assert words(written, "rows")["relu, forward"]["ours"] == ledger.WRONG["failed"]  # its time is marked
    found = {entry["op"]: entry["contestants"] for entry in written["sections"]["rows"]["entries"]}
    assert {op: each["ours"].get("failed") for op, each in found.items()} == {
        "relu": None,
        "softmax": KILLED,
        "dropout": "RuntimeError: no room for this",
        "embedding": f"RuntimeError: {faults.ILLEGAL}",
        "adam": None,
    }
    assert found["adam"]["PyTorch"]["died"]
    for op, each in found.items():
        assert all("ms" in each[who] for who in each if who == "torch.compile" or (who == "PyTorch" and op != "adam"))
    assert len(written["failures"]) == 4 * 2 + 3 + 2

    status, again, *_ = rehearsal(tmp_path, faults.few_ops, "second", "checks", "rows")
    assert status == 0
    assert not any("failed" in state for state in again["ops"].values())
    assert {said for each in words(again, "rows").values() for said in each.values()} == {"ms"}
    for entry in again["sections"]["rows"]["entries"]:
        for who, before in found[entry["op"]].items():
            assert "failed" in before or entry["contestants"][who] == before


@pytest.mark.slow
@pytest.mark.parametrize("part", lease.PARTS)
def test_a_whole_part(tmp_path, part):
    """The command itself rehearses a part without faults, and report and charts take its file."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(GPU.parents[2])
    command = [sys.executable, str(GPU / "lease.py"), part, "--smoke", "--out", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    written = ledger.read(tmp_path / "smoke-lease.json")
    assert written["sections"].keys() == lease.PARTS[part].keys()
    for name in lease.PARTS[part]:
        for entry in ledger.entries(written, name):
            for who, found in entry["contestants"].items():
                assert found != LATE
                if who.startswith(("ours", measured.SOLUTION, *ledger.DTYPES)):
                    assert "failed" not in found
    checked = {"attention"} if part == "first" else set(lease.KERNELS) - {"attention"}
    assert written["ops"].keys() == checked
    kept = tmp_path / "kept" / "a-gpu.json"
    ledger.write(kept, written | {"smoke": False})
    assert "ours |" in " ".join(tables.times(kept.parent).values())
    assert "**interpreter**" in tables.section(kept.parent)
    assert charts.draw(kept)


def test_what_there_is_no_time_for_is_left_out(tmp_path):
    status, written, out, _ = rehearsal(tmp_path, faults.no_time, "second", "rows")
    assert status == 0
    assert {why for each in words(written, "rows").values() for why in each.values()} == {LATE["failed"]}
    assert re.search(r"rows: \d+ s, of 0", out)


def test_a_part_ends_in_time_whatever_its_processes_do(tmp_path):
    program = f"import lease\nwith lease.stopped_after(1):\n    __import__('time').sleep({faults.FOREVER})"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 128 + signal.SIGALRM


@pytest.mark.parametrize("folder", ["file", "file/folder"])
def test_where_nothing_can_be_written_nothing_is_begun(tmp_path, capsys, folder):
    (tmp_path / "file").touch()
    assert lease.main(["first", "--smoke", "--out", str(tmp_path / folder)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert str(tmp_path / "file") in said.err
    assert said.err.count("\n") == 1


def test_a_full_disk_is_noticed_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    def full(path: Path, written: ledger.Ledger) -> None:
        raise OSError(errno.ENOSPC, f"cannot write {path}: No space left on device")

    monkeypatch.setattr(ledger, "write", full)
    assert lease.main(["first", "--smoke", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("No space left on device\n")


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"gpu": "x", "ops": 1, "sections": {}}'])
def test_what_is_no_ledger_is_left_alone(tmp_path, capsys, content):
    path = tmp_path / "smoke-lease.json"
    path.write_text(content)
    assert lease.main(["first", "--smoke", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"{path} is no ledger")
    assert path.read_text() == content


def test_a_disk_that_fills_up_loses_nothing(tmp_path):
    """The results that could not be written are printed."""
    _, _, out, err = rehearsal(tmp_path, faults.the_disk_fills_up, "second", "checks")
    assert f"cannot write {tmp_path / 'smoke-lease.json'}: No space left on device" in err
    assert '"relu": {"hash"' in out


@pytest.mark.slow
def test_a_section_that_cannot_begin_leaves_the_others(tmp_path):
    status, written, *_ = rehearsal(tmp_path, faults.at_the_start, "second", "rows", "checks")
    assert status == 1
    assert written["failures"] == ["rows: RuntimeError: no room for this"]
    assert "relu" in written["ops"]
    assert "rows" not in written["sections"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_that_is_ended_leaves_what_it_found_and_no_processes(tmp_path, number):
    """Then it is run again, and finds the rest."""
    running = faults.begun(tmp_path, faults.a_peer_hangs, "second", "rows")
    path = tmp_path / "smoke-lease.json"

    def times() -> dict[str, dict[str, str]]:
        return words(ledger.read(path), "rows") if path.exists() else {}

    while times().get("relu, forward", {}).get("PyTorch") != "ms":
        assert running.poll() is None
        time.sleep(0.2)
    running.send_signal(number)
    running.communicate()
    assert running.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert gone([int(file.name) for file in (tmp_path / "pids").iterdir()])
    assert times()["relu, forward"]["PyTorch"] == "ms"
    assert times()["adam, step"]["PyTorch"] == LATE["failed"]

    status, written, *_ = rehearsal(tmp_path, faults.few_ops, "second", "rows")
    assert status == 0
    assert {why for contestants in words(written, "rows").values() for why in contestants.values()} == {"ms"}


@pytest.mark.parametrize("environment", [pytest.param({}, marks=pytest.mark.slow), {"TRITON_INTERPRET": "1"}])
def test_without_a_gpu_one_sentence(tmp_path, environment):
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = inherited | {"PYTHONPATH": str(GPU.parents[2]), "CUDA_VISIBLE_DEVICES": ""} | environment
    command = [sys.executable, str(GPU / "lease.py"), "first", "--out", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("the triton backend needs a GPU that PyTorch can use, and there is none")
    assert done.stderr.count("\n") == 1


def test_the_table_says_what_the_sections_take():
    rows = re.findall(r"^(first|second)? +(\w+) +(\d+) s\b", lease.__doc__ or "", re.MULTILINE)
    said: dict[str, dict[str, int]] = {}
    part = ""
    for name, section, seconds in rows:
        part = name or part
        said.setdefault(part, {})[section] = int(seconds)
    for part, sections in lease.PARTS.items():
        assert said[part] == {"compile": lease.COMPILE.seconds} | {
            name: each.seconds for name, each in sections.items()
        }
        assert f"{part} --out DIR" in (lease.__doc__ or "")
        assert sum(said[part].values()) <= lease.LIMITS[part] - lease.TO_END
    assert {name for sections in lease.PARTS.values() for name in sections} == measured.TASKS.keys()


def test_what_is_measured_on_a_gpu():
    """All tasks can be listed at their full sizes, and no two have the same words."""
    gpu = ahead.HOPPER
    listed = {name: list(tasks(gpu)) for name, tasks in measured.TASKS.items()}
    for tasks in listed.values():
        words = [ledger.task_of(task.entry()) for task in tasks]
        assert len(set(words)) == len(words) > 0
    compared = {(task.op, task.what, task.size.get("columns")): set(task.contestants) for task in listed["ab"]}
    for op, columns in {"softmax": 32_768, "layernorm": 4096}.items():
        assert compared.pop((op, "forward", columns)) == {"ours", *measured.OF_ROWS[op, "forward"]}
    assert {(op, what) for op, what, _ in compared} == measured.OF_ROWS.keys() - {
        ("softmax", "forward"), ("layernorm", "forward")
    } | {("attention", "forward")}  # fmt: skip
    (check,) = listed["schedules"]
    assert len(check.contestants) == 3 * 4 + 2 * (len(measured.SCHEDULES) + len(measured.HOISTING))
    assert len(listed["attention"]) == 2 * 12
    assert set(measured.REACHING) <= {case.name for case in cases("attention", full=True)}
    assert list(ahead.launches(gpu, ["schedules", "ab", "attention", "checks", "rows"]))
    variants = [*(measured.SCHEDULES | measured.HOISTING).values(), measured.UNALIGNED, measured.UNSPLIT]
    variants += [variant for variants in measured.OF_ROWS.values() for variant in variants.values()]
    for variant in variants:
        with measured.applied(variant.changes):
            pass


def test_the_parts_of_attentions_check_are_all_of_its_cases(monkeypatch):
    seen = []
    monkeypatch.setattr(checks, "check", lambda op, dtype, device, some: seen.extend(case.name for case in some) or {})
    for part in range(3):
        measured.checked("attention", torch.float32, Machine("cpu", smoke=True), part, 3)
    assert sorted(seen) == sorted(case.name for case in checks.chosen("attention", torch.float32))
    assert len(seen) > 9


def test_a_wheel_for_another_python_has_a_key_of_its_own(tmp_path):
    library, about = (
        tmp_path / "triton" / "_C" / "libtriton.so",
        tmp_path / f"triton-{ahead.triton.__version__}.dist-info",
    )
    library.parent.mkdir(parents=True)
    library.write_bytes(b"another library")
    with pytest.raises(ValueError, match="is not Triton"):
        ahead.key_of(tmp_path)
    about.mkdir()
    key, here = ahead.key_of(tmp_path), ahead.triton_key()
    assert key != here
    assert sha256(b"another library").hexdigest() in key
    assert len(key) == len(here)


# --- What still holds ------------------------------------------------------------------------------------------


def section_of(*entries: dict[str, Any], **about: Any) -> dict[str, Any]:
    """Return a section."""
    return {"versions": {"torch": "1"}, "hashes": {"relu": "a", "gelu": "b"}, "entries": list(entries)} | about


def entry_of(op: str, **contestants: Any) -> dict[str, Any]:
    """Return an entry of an op."""
    return {"op": op, "what": "forward", "size": {"rows": 1}, "date": "then", "contestants": contestants}


def test_what_was_measured_of_the_same_code_is_joined():
    time, other, hung = {"ms": 1.0}, {"ms": 2.0}, {"failed": "it hung"}
    planned = entry_of("relu", ours=LATE, PyTorch=LATE)
    earlier = section_of(entry_of("relu", ours=time, PyTorch=hung), entry_of("gelu", ours=other))
    relu, gelu = joined(section_of(planned), earlier).values()
    assert relu["contestants"] == {"ours": time, "PyTorch": hung}
    assert gelu == earlier["entries"][1]
    (alone,) = joined(section_of(planned), earlier | {"hashes": {"relu": "old"}}).values()
    assert alone == planned
    (alone,) = joined(section_of(planned), earlier | {"versions": {"torch": "2"}}).values()
    assert alone == planned
    measured = joined(section_of(entry_of("relu", ours=other)), earlier)
    assert measured["relu, forward: rows 1"]["contestants"]["ours"] == other


def test_what_comes_home_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(charts, "draw", lambda path: [])
    monkeypatch.setattr(ledger, "RESULTS", tmp_path / "results")
    kept = {"gpu": "a GPU", "smoke": False, "ops": {"relu": {"hash": "0", "date": "then"}}, "failures": []}
    kept["sections"] = {"rows": section_of(entry_of("gelu", ours={"ms": 1.0})), "swap": section_of()}
    new = kept | {"ops": {"gelu": {"hash": "1", "date": "now"}}, "failures": ["one"]}
    new["sections"] = {"rows": section_of(entry_of("relu", ours={"ms": 2.0})), "ab": section_of()}
    ledger.write(ledger.path_of(ledger.RESULTS, "a GPU"), kept)
    ledger.write(tmp_path / "a-gpu-lease.json", new)
    assert lease.main(["keep", str(tmp_path / "a-gpu-lease.json")]) == 0
    joint = ledger.read(tmp_path / "results" / "a-gpu.json")
    assert joint["ops"] == kept["ops"] | new["ops"]
    assert joint["sections"].keys() == {"rows", "swap", "ab"}
    assert [entry["op"] for entry in joint["sections"]["rows"]["entries"]] == ["relu", "gelu"]
    assert joint["failures"] == ["one"]


def test_a_lesson_says_what_gpus_made_of_its_solutions(monkeypatch):
    hashes = {lesson: sha256(path.read_bytes()).hexdigest() for lesson, path in measured.LESSONS.items()}
    entry = entry_of("lesson 15", solution={"ms": 0.085, "gbs": 2370.0}, PyTorch={"failed": "no"})
    section = section_of(entry | {"what": "add", "size": {"shape": "64", "dtype": "float32"}}, hashes=hashes)
    kept = {"a GPU": {"ops": {}, "sections": {"lessons": section}}, "an old GPU": {"sections": {}}}
    monkeypatch.setattr(ledger, "ledgers", lambda: kept)
    assert gpu_times("15") == "a GPU: add of 64 (float32): solution 85 µs (2,370 GB/s)"
    assert gpu_times("16").startswith("None of this lesson's kernels has run on a GPU yet")
    section["hashes"] = dict.fromkeys(hashes, "another")
    assert gpu_times("15").startswith("None of this lesson's kernels has run on a GPU yet")


# --- Variants --------------------------------------------------------------------------------------------------


def test_a_variant_is_there_for_all_who_know_the_name_and_then_gone():
    before = tiles.schedule, tiles.candidates
    about = "forward", "hopper", tiles.Tile(128, 64, 8, 3), 128, 128, False
    for name, lead in {"pointers, LEAD 0": 0, "pointers, LEAD 1": 1}.items():
        with measured.applied(measured.SCHEDULES[name].changes):
            assert tiles.schedule(*about)["LEAD"] == lead
            (tile,) = tiles.candidates("forward", "hopper", 128, 128, 2, False, 227 * 1024)
            assert tile.columns == 64
            assert "LEAD" not in tiles.schedule("dquery", *about[1:])
    assert (tiles.schedule, tiles.candidates) == before
    softmax, schedule = ("softmax.name", measured.to(1)), ("attention.tiles.schedule", measured.to(None))
    with pytest.raises(AttributeError, match="has no attribute 'name'"), measured.applied([schedule, softmax]):
        pass
    assert (tiles.schedule, tiles.candidates) == before


def test_a_formula_is_replaced_in_every_module():
    from kernels.norms import layernorm
    from kernels.norms import whole as norms

    def other(*arguments: Any) -> None: ...

    with measured.applied([("norms.whole.norm_forward", measured.to(other))]):
        assert norms.norm_forward is layernorm.norm_forward is other
    assert norms.norm_forward is layernorm.norm_forward is not other
