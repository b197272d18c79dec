"""The package's softmax, made of the learner's: lesson 04 hands it to those who write attention."""

import numpy as np

from ..lesson_01.solutions import softmax


def softmax_forward(x):
    """`softmax` with a cache, and with zeros for a row of −∞ alone."""
    empty = np.isneginf(x).all(axis=-1, keepdims=True)
    y = np.where(empty, 0, softmax(np.where(empty, 0, x)))
    return y, y
