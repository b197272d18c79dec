"""Table 1, from the measurement to the report."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paper.experiments import table1
from paper.experiments.table1.complexity import ATTENTION, CONVOLUTION, RECURRENT, RESTRICTED
from paper.experiments.table1.gradients import KINDS, gradient_logarithms, gradients_left
from paper.experiments.table1.times import ALONE_SUFFIX, SERIES, Effort, timed
from paper.task import GRAMMAR
from study.experiment import Context, Findings
from study.measuring import in_rounds
from study.trials.runner import Runner

TINY = table1.Sizes(
    lengths=(8, 16, 32),
    width=8,
    widths=(4, 8, 16),
    length=16,
    counted=(16, 32),
    counted_widths=(4, 8),
    called=(10, 20),
    paths=(9, 25, 26),
    effort=Effort(rounds=2, repeats=1, least=0.0),
    positions=30,
    seeds=3,
)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(GRAMMAR, 1.0, Runner(tmp_path))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    folder = tmp_path_factory.mktemp("table1")
    return table1.find(Context(GRAMMAR, 1.0, Runner(folder)), TINY)


@pytest.fixture
def findings(measured: Findings) -> Findings:
    """As JSON gives them back, with times that are known: attention's grow as n² and d, the others' as n and d²."""
    found = json.loads(json.dumps(measured))
    for axis, sizes, powers in (("over_n", TINY.lengths, (2, 1)), ("over_d", TINY.widths, (1, 2))):
        for name, series in found[axis]["series"].items():
            power = powers[0] if name.startswith(ATTENTION) else powers[1]
            series["best"] = [1e-3 * size**power for size in sizes]
    found["compared"] |= {
        "linear": 2e-6,
        "square": 1e-8,
        "miss": 0.125,
        "worst": 16,
        "counted": 8.0,
        "layer": {"value": 20.0, "rounds": [19.0, 21.0]},
        "alone": {"value": None, "rounds": [None, 30.0]},
        "restricted": {"value": 8.0, "rounds": [8.0, 8.0]},
        "at_d": {"value": 1.5, "rounds": [1.25, 1.75]},
        "shortest": {"value": 2.5, "rounds": [2.25, 2.75]},
    }
    return found


def report(findings: Findings) -> str:
    return "\n".join(table1.report(findings))


def test_it_trains_nothing() -> None:
    assert list(table1.trials(GRAMMAR, 1.0)) == []


def test_what_is_found(measured: Findings) -> None:
    rows = {row["name"]: row for row in measured["layers"]}
    assert list(rows) == [ATTENTION, RECURRENT, CONVOLUTION, RESTRICTED]
    assert rows[ATTENTION]["operations"] == {"n": [4 * 16 * 16 * 4, 4 * 32 * 32 * 4], "d": [4096, 8192]}
    assert all(row["operations"] == row["derived"] for row in rows.values())
    assert rows[RECURRENT]["exponents"] == {"n": pytest.approx(1), "d": pytest.approx(2)}
    assert rows[RECURRENT]["calls"][1] - rows[RECURRENT]["calls"][0] == 2 * 10
    assert rows[CONVOLUTION]["paths"] == [4, 12, 13]
    assert measured["dilated"] == [2, 2, 3]
    assert rows[ATTENTION]["whole_at_d"] == 3 * rows[RECURRENT]["whole_at_d"]
    assert measured["compared"]["counted"] == pytest.approx(TINY.width)


def test_every_series_is_timed_in_every_round(measured: Findings) -> None:
    for axis, sizes in (("over_n", TINY.lengths), ("over_d", TINY.widths)):
        assert list(measured[axis]["series"]) == [series.name for series in SERIES]
        for series in measured[axis]["series"].values():
            assert [len(times) for times in series["rounds"]] == [len(sizes)] * TINY.effort.rounds
            assert series["best"] == [min(times) for times in zip(*series["rounds"], strict=True)]


def test_gradients_and_their_intervals(measured: Findings) -> None:
    found = measured["gradients"]
    assert found["distances"] == [1, 10, 29]
    for kind in KINDS:
        each = found["kinds"][kind]
        assert each["norms"][0] == 1
        assert len(each["norms"]) == TINY.positions
        for distance in found["distances"]:
            left = each["left"][str(distance)]
            assert left["low"] <= left["value"] <= left["high"]
            assert math.exp(left["value"]) == pytest.approx(each["norms"][distance])
    pair = found["pairs"][0]
    assert (pair["more"], pair["less"]) == ("LSTM", "RNN")
    gap = found["kinds"]["LSTM"]["left"]["29"]["value"] - found["kinds"]["RNN"]["left"]["29"]["value"]
    assert pair["by"]["value"] == pytest.approx(gap)


def test_exponents_of_times_are_those_of_either_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times that grow as n up to 4 and as n³ from there; the second round is the slower one throughout."""
    rounds = iter([1.0] * 5 * len(SERIES) + [2.0] * 5 * len(SERIES))
    monkeypatch.setattr(
        "paper.experiments.table1.times.seconds",
        lambda kind, n, d, repeats, **options: next(rounds) * (n if n <= 4 else n**3 / 16),
    )
    sizes = (1, 2, 4, 8, 16)
    times = timed(sizes, [(n, 8) for n in sizes], Effort(rounds=2))
    found = times["series"][RECURRENT]
    assert found["best"] == [1, 2, 4, 32, 256]
    assert found["rounds"][1] == [2, 4, 8, 64, 512]
    assert found["lower"]["value"] == pytest.approx(1)
    assert found["upper"] == {"value": pytest.approx(3), "rounds": [pytest.approx(3)] * 2}


def test_a_figure_in_rounds() -> None:
    found = in_rounds(lambda a, b: a[0] / b[0], [[6.0], [4.0]], [[2.0], [4.0]])
    assert found == {"value": 2.0, "rounds": [3.0, 1.0]}


def test_pictures(measured: Findings, tmp_path: Path) -> None:
    table1.draw(json.loads(json.dumps(measured)), tmp_path)
    pictures = {path.name: path.read_bytes()[:4] for path in tmp_path.glob("*.png")}
    assert pictures == {"table1-time.png": b"\x89PNG", "table1-gradients.png": b"\x89PNG"}


def test_a_report_of_what_was_measured(measured: Findings) -> None:
    """It is rebuilt from JSON, and shows both pictures and the paper's formulas."""
    text = report(json.loads(json.dumps(measured)))
    assert text == report(measured)
    for shown in ("O(n² · d)", "O(log_k(n))", "pictures/table1-time.png", "pictures/table1-gradients.png"):
        assert shown in text
    assert "for all four layers" in text
    assert "These are the counts." in text
    assert "as many at any n" in text


def test_counts_that_differ_from_the_derivation_are_named(findings: Findings) -> None:
    findings["layers"][0]["operations"]["n"][0] += 1
    findings["layers"][2]["paths"][0] += 1
    findings["layers"][3]["calls"][1] += 1
    text = report(findings)
    assert f"the same number except for {ATTENTION}." in text
    assert f"The counts differ from that for {CONVOLUTION}." in text
    assert f"more too: {RESTRICTED}" in text


def test_the_comparison_in_words(findings: Findings) -> None:
    text = report(findings)
    assert "a = 2.00 µs a position and b = 10.00 ns a pair, two terms equal at n ≈ 200" in text
    assert "furthest from the times at n = 16, by 12 %" in text
    assert "by the counts, from n = 8." in text
    assert "attention alone at no n up to 32 (single rounds: 30 to more than 32)" in text
    assert "with its projections from n ≈ 20 (19 to 21)" in text
    assert "faster than unrestricted at every n from 8 (single rounds: 8 to 8)" in text
    assert "2.50 (2.25 to 2.75) times as long as self-attention" in text


def test_other_outcomes_of_the_comparison(findings: Findings) -> None:
    findings["compared"] |= {"linear": 0.0, "counted": None}
    text = report(findings)
    assert "two terms one of which is nothing" in text
    assert "by the counts, at no n up to 32" in text


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        ([1.25, 1.75], "with fewer operations, since each position waits"),
        ([0.9, 1.75], "recurrence is not slower in every round"),
        ([0.9, 0.8], None),
    ],
)
def test_waiting_is_claimed_where_every_round_shows_it(findings: Findings, rounds: list[float], said: str) -> None:
    findings["compared"]["at_d"]["rounds"] = rounds
    if said is None:
        findings["compared"]["shortest"]["rounds"] = rounds
    text = report(findings)
    claims = ["each position waits", "recurrence is not slower"]
    assert [claim in text for claim in claims] == [bool(said and claim in said) for claim in claims]


def test_why_times_are_not_operations(findings: Findings) -> None:
    """A recurrent layer that takes as long at twice the width waits; attention steeper than n² meets memory."""
    recurrent = findings["over_d"]["series"][RECURRENT]
    alone = findings["over_n"]["series"][ATTENTION + ALONE_SUFFIX]
    recurrent["best"], alone["upper"]["rounds"] = [1e-3, 1.1e-3, 2e-3], [2.1, 2.2]
    text = report(findings)
    assert "4 times the operations and takes 1.10 times as long, 62.5 and 68.8 µs a position" in text
    assert "wait for each other, not for arithmetic" in text
    assert "by n^2.10 or more" in text
    recurrent["best"], alone["upper"]["rounds"] = [1e-3, 4e-3, 16e-3], [1.9, 2.2]
    text = report(findings)
    assert "wait for each other, not for arithmetic" not in text
    assert "grows faster than n²" not in text


def test_orderings_of_gradients_need_their_interval(findings: Findings) -> None:
    ten = math.log(10)
    pair = findings["gradients"]["pairs"][0]
    pair["by"] = {"value": 3 * ten, "low": 2 * ten, "high": 4 * ten}
    assert "LSTM against RNN, in powers of ten: +3.0 (+2.0 to +4.0). LSTM keeps more." in report(findings)
    pair["by"] = {"value": -3 * ten, "low": -4 * ten, "high": -2 * ten}
    assert "−3.0 (−4.0 to −2.0). RNN keeps more." in report(findings)
    pair["by"] = {"value": 3 * ten, "low": -1 * ten, "high": 4 * ten}
    assert "+3.0 (−1.0 to +4.0), no difference that 3 seeds can show." in report(findings)


def changed(findings: Findings, kind: str, **intervals: tuple[float, float, float]) -> str:
    """The report with other figures of that kind."""
    other: dict[str, Any] = copy.deepcopy(findings)
    for name, figures in intervals.items():
        other["gradients"]["kinds"][kind][name] = dict(zip(("value", "low", "high"), figures, strict=True))
    return report(other)


def test_decay_in_words(findings: Findings) -> None:
    half = -math.log(2)
    assert "0.500 | 1.00 (0.50 to 2.00) |" in changed(findings, "RNN", slope=(half, 2 * half, half / 2))
    assert "0.500 | no decay shown |" in changed(findings, "RNN", slope=(half, 2 * half, 0.1))
    two = math.log(2)
    say = "- Transformer, from distance 10 to 29: times "
    assert say + "0.50 (0.25 to 0.50), a loss." in changed(findings, "Transformer", late=(-two, -2 * two, -two))
    assert say + "2.00 (2.00 to 4.00), a gain." in changed(findings, "Transformer", late=(two, two, 2 * two))
    assert say + "1.00 (0.50 to 2.00), no change that 3 seeds" in changed(findings, "Transformer", late=(0, -two, two))


def test_what_is_left_of_a_gradient() -> None:
    """Recurrence loses it with every position, an LSTM more slowly; attention keeps it wherever it came from."""
    left = {kind: np.exp(gradient_logarithms(kind, 40, 3, width=32).mean(0)) for kind in KINDS}
    near, far = ({kind: norms[distance] / norms[0] for kind, norms in left.items()} for distance in (1, 39))
    assert far["RNN"] < 1e-6
    assert far["RNN"] < 1e-3 * far["LSTM"]
    assert far["LSTM"] < 0.1 * far["RNN + attention"]
    assert far["RNN + attention"] > 1e-3
    assert far["Transformer"] > 0.1 * near["Transformer"]


def test_the_mean_of_seeds_is_geometric() -> None:
    each = np.exp(gradient_logarithms("RNN", 12, 2))
    assert each.shape == (2, 12)
    assert not np.allclose(each[0], each[1])
    left = each / each[:, :1]
    np.testing.assert_allclose(gradients_left(12, 2)["kinds"]["RNN"]["norms"], np.sqrt(left[0] * left[1]))
