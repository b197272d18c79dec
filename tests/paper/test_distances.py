"""Gradients over a distance."""

from pathlib import Path

import numpy as np

from paper.experiments.table1.distances import (
    KINDS,
    draw_distances,
    gradient_logarithms,
    gradient_norms,
)


def test_what_is_left_of_a_gradient() -> None:
    """Recurrence loses it with every position, an LSTM more slowly; attention keeps it wherever it came from."""
    left = {kind: gradient_norms(kind, length=40, width=32, seeds=3) for kind in KINDS}
    near, far = ({kind: norms[distance] / norms[0] for kind, norms in left.items()} for distance in (1, 39))
    assert far["RNN"] < 1e-6
    assert far["RNN"] < 1e-3 * far["LSTM"]
    assert far["LSTM"] < 0.1 * far["RNN + attention"]
    assert far["RNN + attention"] > 1e-3
    assert far["Transformer"] > 0.1 * near["Transformer"]


def test_the_mean_of_seeds_is_geometric() -> None:
    each = np.exp(gradient_logarithms("RNN", length=6, width=4, seeds=2))
    assert each.shape == (2, 6)
    assert not np.allclose(each[0], each[1])
    np.testing.assert_allclose(gradient_norms("RNN", length=6, width=4, seeds=2), np.sqrt(each[0] * each[1]))


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    draw_distances({kind: np.array([1.0, 0.5, 0.25]) for kind in KINDS}, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
