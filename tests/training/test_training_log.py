"""The training log: each step once, nothing that a kill or a power cut left behind, and no byte that changed."""

from pathlib import Path

import pytest
from support.folders import flips

from minitransformer.system.sealed_json import seal
from minitransformer.training import read_log
from minitransformer.training.training_log import TrainingLog

GARBAGE = [b"\0" * 60 + b"\n", b"{\n", b"\xff\xfe\n", b"7\n", b'{"seconds": 2.0}\n', b"\n", b"[" * 100_000 + b"\n"]
FIGURES = {"epoch": 0, "loss": 7.5, "grad_norm": 1.0, "learning_rate": 1e-4, "tokens": 99, "tokens_per_second": 1e4}


def lines(*steps: int) -> list[bytes]:
    return [seal({"step": step, **FIGURES, "seconds": 1.5 * step}) for step in steps]


def steps(path: Path) -> list[int]:
    return [record["step"] for record in read_log(path)]


def test_the_log_says_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = TrainingLog(path)
    for step in (1, 2, 3):
        log.write({"step": step, "seconds": step * 1.5})
    with open(path, "ab") as file:
        file.write(b'{"step": 4, "seco')
    log = TrainingLog(path, step=2)
    assert log.seconds == 3.0
    log.write({"step": 3, "seconds": 4.0})
    assert [(record["step"], record["seconds"]) for record in read_log(path)] == [(1, 1.5), (2, 3.0), (3, 4.0)]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_after_the_checkpoint_s_step_is_dropped_with_what_follows(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "log.jsonl"
    for step, before in ((2, [1, 2]), (2, [1, 2, 3]), (0, [1])):
        path.write_bytes(b"".join([*lines(*before), garbage, *lines(4)]))
        log = TrainingLog(path, step)
        assert steps(path) == [1, 2][:step]
        assert log.seconds == 1.5 * step


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_before_the_checkpoint_s_step_is_told_and_nothing_lost(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "log.jsonl"
    content = b"".join([*lines(1, 2), garbage, *lines(4)])
    path.write_bytes(content)
    for read in (read_log, lambda path: TrainingLog(path, step=3)):
        with pytest.raises(ValueError, match=f"^{path}, line 3 is damaged .*: delete the file, and the log begins"):
            read(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [*GARBAGE, b'{"step": 0, "loss": 2.3}\n', b"Dear diary"])
def test_a_stranger_s_file_is_not_a_log_to_begin_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    with pytest.raises(FileExistsError, match=r"log\.jsonl is not a training's log: move it elsewhere or delete it"):
        TrainingLog(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("length", [0, 1, 12, 60, None])
def test_a_log_that_a_kill_cut_in_its_first_line_is_begun_anew(tmp_path: Path, length: int | None) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(lines(1)[0][:length])
    TrainingLog(path)
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lines(1, 2, 2), "it is of step 2, after that of step 2"),
        (lines(1, 3), "it is of step 3, after that of step 1"),
        ([*lines(1), lines(2)[0].replace(b'"loss"', b'"lost"')], "does not match its checksum"),
        ([*lines(1), lines(2)[0].replace(b', "crc32"', b', "crc33"')], "does not match its checksum"),
        ([*lines(1), seal({"step": 2, "loss": "7", "seconds": 3.0})], "not the record of a step"),
        ([*lines(1), seal({"step": 2.5, "seconds": 3.0})], "not the record of a step"),
    ],
)
def test_a_log_of_which_a_line_is_wrong_is_refused(tmp_path: Path, content: list[bytes], reason: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(content))
    with pytest.raises(ValueError, match=reason):
        read_log(path)


def test_a_log_that_breaks_off_before_the_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(lines(1, 2)))
    with pytest.raises(ValueError, match="it ends with step 2, but the checkpoint is of step 3"):
        TrainingLog(path, step=3)
    path.unlink()  # as the message says: then it begins where the training stands
    for _ in range(2):
        TrainingLog(path, step=3).write({"step": 4, "seconds": 6.0})
        assert steps(path) == [4]


def test_no_changed_byte_goes_unnoticed(tmp_path: Path) -> None:
    """Neither in reading the log nor in going on with it; but for the last line, which may be cut short."""
    path = tmp_path / "log.jsonl"
    log = TrainingLog(path)
    for step in (1, 2, 3):
        log.write({"step": step, **FIGURES, "seconds": 1.5 * step})
    for _ in flips(path):
        for read in (read_log, lambda path: TrainingLog(path, step=3)):
            with pytest.raises(ValueError, match=r"log\.jsonl(, line \d)? is damaged .*: delete the file"):
                read(path)
