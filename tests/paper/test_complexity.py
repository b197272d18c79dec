"""Table 1, counted."""

import math

import pytest

from minitransformer.paper.complexity import (
    KERNEL_WIDTH,
    LAYER_TYPES,
    WINDOW,
    LayerType,
    exponent,
    num_calls,
    operations,
    path_length,
    seconds,
)

BY_NAME = {kind.name: kind for kind in LAYER_TYPES}
EXPONENTS = {
    "Self-Attention": (2, 1),
    "Recurrent": (1, 2),
    "Convolutional": (1, 2),
    "Self-Attention (restricted)": (1, 1),
}
"""Of n and of d, as table 1 prints them."""

every_kind = pytest.mark.parametrize("kind", LAYER_TYPES, ids=lambda kind: kind.name)


@every_kind
def test_operations_grow_as_is_printed(kind: LayerType) -> None:
    lengths, widths = [256, 512, 1024], [8, 16, 32]
    over_n = exponent(lengths, [operations(kind, n, 8) for n in lengths])
    over_d = exponent(widths, [operations(kind, 256, d) for d in widths])
    of_n, of_d = EXPONENTS[kind.name]
    assert over_n == pytest.approx(of_n, abs=0.02)
    assert over_d == pytest.approx(of_d)


def test_operations_by_hand() -> None:
    n, d = 20, 4
    assert operations(BY_NAME["Self-Attention"], n, d) == 4 * n * n * d
    assert operations(BY_NAME["Recurrent"], n, d) == 4 * n * d * d
    assert operations(BY_NAME["Convolutional"], n, d) == 2 * KERNEL_WIDTH * n * d * 2 * d  # twice: value and gate
    pairs = n * (2 * WINDOW + 1) - WINDOW * (WINDOW + 1)  # both ends see less
    assert operations(BY_NAME["Self-Attention (restricted)"], n, d) == 4 * pairs * d


@every_kind
def test_only_a_recurrent_layer_waits_for_itself(kind: LayerType) -> None:
    """Two ops more for each position, the product with the state and its tanh; the others call as many for any n."""
    more = num_calls(kind, 30) - num_calls(kind, 20)
    assert more == (20 if kind.name == "Recurrent" else 0)


@every_kind
@pytest.mark.parametrize("n", [9, 33, 100])
def test_paths(kind: LayerType, n: int) -> None:
    expected = {
        "Self-Attention": 1,
        "Recurrent": n - 1,
        "Convolutional": math.ceil((n - 1) / (KERNEL_WIDTH // 2)),
        "Self-Attention (restricted)": math.ceil((n - 1) / WINDOW),
    }
    assert path_length(kind, n) == expected[kind.name]


@every_kind
def test_layers_can_be_timed(kind: LayerType) -> None:
    assert 0 < seconds(kind, 16, 8, repeats=1) < 60


def test_an_exponent_is_found() -> None:
    assert exponent([1, 2, 4], [3.0, 3.0 * 2**1.5, 3.0 * 4**1.5]) == pytest.approx(1.5)
