"""Who is measured when, and what an earlier run's results are worth."""

from typing import Any

import pytest

from kernels.bench.ledger import FLEX, LATE, entries
from kernels.bench.run import Rounds

TODAY: dict[str, Any] = {"versions": {"torch": "9.0"}, "hashes": {"relu": "r", "softmax": "s"}}
PEERS = ("PyTorch", "Liger")


def planned(*ops: str) -> list[dict[str, Any]]:
    contestants = {"ours": LATE} | ({} if "training step" in ops else dict.fromkeys(PEERS, LATE))
    return [{"op": op, "what": "forward", "size": {"rows": 8}, "contestants": contestants} for op in ops]


def timed(ms: float) -> dict[str, float]:
    return {"ms": ms}


def begun(*ops: str, earlier: Rounds | None = None, date: str = "2030-01-02", **today: Any) -> Rounds:
    section = TODAY | {"entries": earlier.entries} if earlier else {}
    return Rounds(planned(*ops), section, TODAY | today, date)


def measured(rounds: Rounds, ms: float, up_to: int = 1000) -> Rounds:
    """Measure up to so many, each with the same time."""
    while rounds.waiting and up_to:
        rounds.found(timed(ms))
        up_to -= 1
    return rounds


def test_ours_come_first_and_then_everybody_side_by_side():
    beside = [(number, name) for number in (0, 1) for name in ("ours", *PEERS)]
    assert list(begun("relu", "softmax").waiting) == [(0, "ours"), (1, "ours"), *beside]
    assert list(begun("training step").waiting) == [(0, "ours")]  # who is alone is measured once


def test_who_compiles_for_seconds_comes_after_all_others():
    tasks = [entry | {"contestants": {FLEX: LATE} | entry["contestants"]} for entry in planned("relu", "softmax")]
    *others, before_last, last = Rounds(tasks, {}, TODAY, "2030-01-02").waiting
    assert (before_last, last) == ((0, FLEX), (1, FLEX))
    assert others == list(begun("relu", "softmax").waiting)


def test_what_was_found_stands_at_once_and_the_rest_is_late():
    rounds = measured(begun("relu", "softmax"), 2.0, up_to=1)
    relu, softmax = rounds.entries
    assert relu["contestants"] == {"ours": timed(2.0), "PyTorch": LATE, "Liger": LATE}
    assert relu["date"] == "2030-01-02"
    assert softmax == planned("softmax")[0]  # and no date
    rounds = measured(rounds, 3.0)
    assert [entry["contestants"] for entry in rounds.entries] == [dict.fromkeys(("ours", *PEERS), timed(3.0))] * 2


def test_who_ends_its_process_gets_no_other_turn():
    rounds = begun("relu", "softmax")
    assert rounds.gone("SIGKILL") == (0, "ours")
    assert (0, "ours") not in rounds.waiting
    rounds = measured(rounds, 3.0)
    assert rounds.entries[0]["contestants"] == {"ours": {"failed": "SIGKILL"}} | dict.fromkeys(PEERS, timed(3.0))


def test_what_is_whole_stays_until_all_of_it_is_measured_anew():
    old = measured(begun("relu"), 1.0)
    rounds = begun("relu", earlier=old, date="2030-02-03")
    assert list(rounds.waiting) == [(0, "ours"), (0, "PyTorch"), (0, "Liger")]
    assert measured(rounds, 2.0, up_to=2).entries == old.entries
    (new,) = measured(rounds, 2.0).entries
    assert new["date"] == "2030-02-03"
    assert new["contestants"] == dict.fromkeys(("ours", *PEERS), timed(2.0))


def test_what_was_cut_short_comes_before_what_is_whole():
    old = measured(begun("relu", "softmax"), 1.0, up_to=2 + 3 + 1)  # relu is whole, softmax has ours alone
    rounds = begun("relu", "softmax", earlier=old)
    assert [number for number, _ in rounds.waiting] == [1, 1, 1, 0, 0, 0]
    assert measured(rounds, 2.0, up_to=1).entries[1]["contestants"]["ours"] == timed(2.0)


def test_what_failed_is_tried_again_first():
    old = begun("relu", "softmax")
    old.gone("SIGKILL")
    rounds = begun("relu", "softmax", earlier=measured(old, 1.0))
    assert rounds.waiting[0] == (0, "ours")
    assert measured(rounds, 2.0, up_to=1).entries[0]["contestants"]["ours"] == timed(2.0)


@pytest.mark.parametrize(
    "today", [{"versions": {"torch": "9.1"}}, {"hashes": {"relu": "changed", "softmax": "s"}}], ids=["versions", "hash"]
)
def test_what_was_measured_with_other_code_is_not_passed_off_as_todays(today):
    old = measured(begun("relu", "softmax"), 1.0)
    relu, softmax = begun("relu", "softmax", earlier=old, **today).entries
    assert relu == planned("relu")[0]
    assert softmax == (old.entries[1] if "hashes" in today else planned("softmax")[0])


def test_a_training_step_has_run_every_op():
    old = measured(begun("training step"), 1.0)
    changed = {"relu": "r", "softmax": "changed"}
    assert begun("training step", earlier=old).entries == old.entries
    assert begun("training step", earlier=old, hashes=changed).entries == planned("training step")


def test_our_time_of_an_op_whose_check_failed_is_not_shown():
    section = TODAY | {"entries": measured(begun("relu", "softmax"), 1.0).entries}
    ledger = {"ops": {"relu": {"failed": ["float32: off"]}, "softmax": {}}, "sections": {"rows": section}}
    relu, softmax = entries(ledger, "rows")
    assert "ms" not in relu["contestants"]["ours"]
    assert relu["contestants"]["PyTorch"] == timed(1.0)
    assert softmax == section["entries"][1]
    assert section["entries"][0]["contestants"]["ours"] == timed(1.0)  # in the file it is kept
