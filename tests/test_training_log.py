"""The training log: each step once, and nothing that a kill or a power cut left behind."""

import json

import pytest

from minitransformer.training import read_log
from minitransformer.training.training_log import TrainingLog

GARBAGE = [b"\0" * 60 + b"\n", b"{\n", b"\xff\xfe\n", b"7\n", b'{"seconds": 2.0}\n', b"\n"]


def lines(*steps):
    return [json.dumps({"step": step, "seconds": 1.5 * step}).encode() + b"\n" for step in steps]


def steps(path):
    return [record["step"] for record in read_log(path)]


def test_the_log_says_nothing_twice(tmp_path):
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
def test_garbage_after_the_checkpoint_s_step_is_dropped_with_what_follows(tmp_path, garbage):
    path = tmp_path / "log.jsonl"
    for step, before in ((2, [1, 2]), (2, [1, 2, 3]), (0, []), (0, [1])):
        path.write_bytes(b"".join([*lines(*before), garbage, *lines(4)]))
        log = TrainingLog(path, step)
        assert steps(path) == [1, 2][:step]
        assert log.seconds == 1.5 * step


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_before_the_checkpoint_s_step_is_told_and_nothing_lost(tmp_path, garbage):
    path = tmp_path / "log.jsonl"
    content = b"".join([*lines(1, 2), garbage, *lines(4)])
    path.write_bytes(content)
    for read in (read_log, lambda path: TrainingLog(path, step=3)):
        with pytest.raises(ValueError, match=f"^{path}, line 3 is damaged: it is no record of a step$"):
            read(path)
    assert path.read_bytes() == content
