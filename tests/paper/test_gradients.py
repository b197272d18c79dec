"""Gradients over a distance."""

import numpy as np

from paper.experiments.table1.gradients import KINDS, gradient_logarithms, gradients_left


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
