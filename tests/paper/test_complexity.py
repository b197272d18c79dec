"""Table 1, counted."""

import math
from itertools import count
from types import SimpleNamespace

import pytest

from minitransformer.ops import numpy_ops
from minitransformer.probe import probe
from paper.experiments.table1 import complexity
from paper.experiments.table1.complexity import (
    KERNEL_WIDTH,
    LAYER_TYPES,
    WINDOW,
    LayerType,
    dilated_layers,
    exponent,
    num_calls,
    operations,
    path_length,
    seconds,
    two_terms,
)
from study.measuring import crossing

BY_NAME = {kind.name: kind for kind in LAYER_TYPES}
BY_HAND = {  # the exponents of n and of d that table 1 prints; operations; hops from end to end
    "Self-Attention": ((2, 1), lambda n, d: 4 * n * n * d, lambda n: 1),
    "Recurrent": ((1, 2), lambda n, d: 4 * n * d * d, lambda n: n - 1),
    "Convolutional": (
        (1, 2),
        lambda n, d: 2 * KERNEL_WIDTH * n * d * 2 * d,  # twice: value and gate
        lambda n: math.ceil((n - 1) / (KERNEL_WIDTH // 2)),
    ),
    "Self-Attention (restricted)": (
        (1, 1),
        lambda n, d: 4 * (n * (2 * WINDOW + 1) - WINDOW * (WINDOW + 1)) * d,  # both ends see less
        lambda n: math.ceil((n - 1) / WINDOW),
    ),
}
every_kind = pytest.mark.parametrize("kind", LAYER_TYPES, ids=lambda kind: kind.name)


@every_kind
def test_operations_grow_as_is_printed(kind: LayerType) -> None:
    lengths, widths = [256, 512, 1024], [8, 16, 32]
    over_n = exponent(lengths, [operations(kind, n, 8) for n in lengths])
    over_d = exponent(widths, [operations(kind, 256, d) for d in widths])
    (of_n, of_d), *_ = BY_HAND[kind.name]
    assert over_n == pytest.approx(of_n, abs=0.02)
    assert over_d == pytest.approx(of_d)


@every_kind
@pytest.mark.parametrize(("n", "d"), [(9, 4), (20, 3), (300, 8)])
def test_the_derivation_is_what_is_counted_and_what_is_found_by_hand(kind: LayerType, n: int, d: int) -> None:
    assert operations(kind, n, d) == kind.derived(n, d) == BY_HAND[kind.name][1](n, d)


def test_attention_has_four_projections_on_top() -> None:
    n, d = 20, 4
    assert operations(BY_NAME["Self-Attention"], n, d, whole=True) == 4 * n * n * d + 8 * n * d * d
    assert operations(BY_NAME["Recurrent"], n, d, whole=True) == 4 * n * d * d


@every_kind
def test_only_a_recurrent_layer_waits_for_itself(kind: LayerType) -> None:
    """Two ops more for each position, the product with the state and its tanh; the others call as many for any n."""
    more = num_calls(kind, 30) - num_calls(kind, 20)
    assert more == (20 if kind.name == "Recurrent" else 0)


@every_kind
@pytest.mark.parametrize("n", [9, 33, 100])
def test_paths(kind: LayerType, n: int) -> None:
    assert path_length(kind, n) == BY_HAND[kind.name][2](n)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_dilated_convolutions_meet_after_a_logarithm(k: int) -> None:
    """From one power of k to the next it takes one layer more: counted, without a logarithm's rounding."""
    assert dilated_layers(1, k) == 0
    for layers in range(1, 6):
        assert dilated_layers(k ** (layers - 1) + 1, k) == layers
        assert dilated_layers(k**layers, k) == layers


@pytest.mark.parametrize(("n", "k"), [(0, 3), (10, 1)])
def test_what_never_meets_is_refused(n: int, k: int) -> None:
    with pytest.raises(ValueError, match="at least 1 and 2"):
        dilated_layers(n, k)


@every_kind
def test_layers_can_be_timed(kind: LayerType) -> None:
    assert seconds(kind, 16, 8, repeats=1) > 0


def test_short_layers_are_timed_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = count()
    monkeypatch.setattr(complexity, "perf_counter", lambda: float(next(looks)))  # so that each layer takes a second
    assert seconds(BY_NAME["Self-Attention"], 16, 8, repeats=2, least=5.0) == 1
    assert next(looks) == 2 * 5


@pytest.mark.parametrize("name", ["Self-Attention", "Self-Attention (restricted)"])
def test_attention_alone_can_be_timed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock ticks with each forward and backward: attention's, and two of projections, three of them in one."""
    called: list[str] = []
    ops = probe(numpy_ops.unchecked(), lambda call: called.extend([call.op] if call.way else []))
    monkeypatch.setattr(complexity, "numpy_ops", SimpleNamespace(unchecked=lambda: ops))
    monkeypatch.setattr(complexity, "perf_counter", lambda: float(len(called)))
    alone, whole = (seconds(BY_NAME[name], 32, 8, alone=alone) for alone in (True, False))
    assert (alone, whole) == (2, 2 + 2 * 2)


def test_what_has_no_projections_cannot_be_timed_without() -> None:
    with pytest.raises(ValueError, match="no projections to leave out"):
        seconds(BY_NAME["Recurrent"], 16, 8, alone=True)


def test_an_exponent_is_found() -> None:
    assert exponent([1, 2, 4], [3.0, 3.0 * 2**1.5, 3.0 * 4**1.5]) == pytest.approx(1.5)


SIZES = [8, 16, 32, 64]


@pytest.mark.parametrize(("a", "b"), [(3.0, 0.5), (2.0, 0.0), (0.0, 0.25)])
def test_two_terms_are_found(a: float, b: float) -> None:
    assert two_terms(SIZES, [a * n + b * n * n for n in SIZES]) == pytest.approx((a, b), abs=1e-9)


def test_no_term_is_negative() -> None:
    """A cube is best fitted by too many squares and a negative line; a root by a line and a negative square."""
    linear, square = two_terms(SIZES, [float(n**3) for n in SIZES])
    assert linear == 0 < square
    linear, square = two_terms(SIZES, [n**0.5 for n in SIZES])
    assert linear > 0 == square


def test_two_terms_need_two_sizes() -> None:
    with pytest.raises(ValueError, match="expected at least 2"):
        two_terms([8], [1.0])


def test_a_crossing_is_found() -> None:
    squares, lines = [n * n for n in SIZES], [20 * n for n in SIZES]
    assert crossing(SIZES, squares, lines) == pytest.approx(20)
    assert crossing(SIZES, squares, [1000 * n for n in SIZES]) is None
    assert crossing(SIZES, squares, SIZES) == 8
    assert crossing(SIZES, [2.0, 0.5, 0.5, 2.0], [1.0] * 4) == pytest.approx(2**5.5)  # the last time counts
