"""The operations that count as a cost, and those that cost nothing."""

import numpy as np
import pytest

from course import bytes_moved
from course.counting import Counted, counted

X = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    ("function", "numbers"),
    [
        (lambda x: x[1:].reshape(4, 2).T[::2].view(np.ndarray), 0),
        (lambda x: x.T.reshape(3, 4), 12 + 12),  # this one copies
        (lambda x: np.shape(x) + np.flip(np.transpose(x)).shape, 0),
        (lambda x: np.split(np.asarray(x), 3), 0),
        (lambda x: x + 1, 12 + 12),
        (lambda x: x[[0, 2]], 8),
        (lambda x: x[1, 2], 1),
        (lambda x: np.cumsum(x, axis=0), 12 + 12),
        (lambda x: x.sum(axis=1), 12 + 3),
        (lambda x: x.copy().tolist(), 12 + 12 + 12),
        (lambda x: x.T @ x, 12 + 12 + 16 + 4 * 3 * 4),
        (lambda x: x.T.dot(x), 12 + 12 + 16 + 4 * 3 * 4),
        (lambda x: np.einsum("...i, i -> ...", x, x[0]), 12 + 4 + 3 + 4),
        (lambda x: np.convolve(x[0], x[1]), 4 + 4 + 7 + 4 * 4),
        (lambda x: np.add(np.zeros(4), np.ones(4), out=np.empty(4)), 12 + 12),
        (lambda x: [np.array([x, x]).view(np.ndarray).max()], 12 + 12 + 24 + 24),
    ],
)
def test_what_is_read_written_and_multiplied_is_counted(function, numbers):
    found, right = counted(function)(X), function(X)
    assert Counted.numbers == numbers
    assert type(found) is type(right)
    assert np.array_equal(found, right)


def test_an_array_that_is_written_into_stays_itself_and_numpy_what_it_was():
    def function(x):
        sums = same = np.zeros(4)
        sums += x[0]
        np.add.at(sums, [0, 0], x[0, 1])
        sums[2:] = 7
        assert sums is same
        return same

    before = np.zeros
    assert np.array_equal(counted(function)(X), [2, 1, 7, 7])
    assert Counted.numbers == 4 + (4 + 4 + 4) + 1 + 2
    assert np.zeros is before


def test_the_stand_in_for_flash_forward_moves_what_lesson_16_predicts():
    """Query and out once, keys and values once a block of queries, in the tile that is asked for; and lse."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[kernels]'")
    from course.lesson_16.exercises import flash_forward
    from course.tensors import tensor

    T, D, rows = 128, 16, 64
    arrays = [tensor(np.ones((1, T, D))) for _ in range(3)]
    moved = bytes_moved.of_kernels(lambda: flash_forward.answer(*arrays, False, (rows, 16)))
    assert moved.read + moved.written == 4 * (T * D * (2 + 2 * T // rows) + T)
