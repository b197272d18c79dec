"""Plausible wrong answers to lesson 00, each with words of the hint it must get."""

import numpy as np


def _one_sided(f, x, eps=1e-5):
    slopes = np.empty_like(x)
    for index in np.ndindex(x.shape):
        up = x.copy()
        up[index] += eps
        slopes[index] = (f(up) - f(x)) / eps
    return slopes


def _halved(f, x, eps=1e-5):
    slopes = np.empty_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += eps
        down[index] -= eps
        slopes[index] = (f(up) - f(down)) / eps
    return slopes


def _everything_moves(f, x, eps=1e-5):
    return np.full_like(x, (f(x + eps) - f(x - eps)) / (2 * eps))


def _rows_move(f, x, eps=1e-5):
    slopes = np.empty_like(x)
    for row in range(len(x)):
        up, down = x.copy(), x.copy()
        up[row] += eps
        down[row] -= eps
        slopes[row] = (f(up) - f(down)) / (2 * eps)
    return slopes


def _no_copies(f, x, eps=1e-5):
    slopes = np.empty_like(x)
    for index in np.ndindex(x.shape):
        up = down = x
        up[index] += eps
        down[index] -= eps
        slopes[index] = (f(up) - f(down)) / (2 * eps)
    return slopes


def _its_own_eps(f, x, eps=1e-5):
    slopes = np.empty_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += 1e-5
        down[index] -= 1e-5
        slopes[index] = (f(up) - f(down)) / 2e-5
    return slopes


def _leaves_a_mark(f, x, eps=1e-5):
    slopes = np.empty_like(x)
    for index in np.ndindex(x.shape):
        x[index] += eps
        above = f(x)
        x[index] -= eps
        slopes[index] = (above - f(x)) / eps
        x[index] -= eps
    return slopes


WRONG = {
    "numerical_gradient": {
        "one-sided": (_one_sided, "is the difference taken from f(x + ε) to f(x − ε)"),
        "divided by ε": (_halved, "is it divided by 2ε?"),
        "every element moves at once": (_everything_moves, "with 6 elements moved at once"),
        "a row moves at once": (_rows_move, "with 3 elements moved at once"),
        "no copies": (_no_copies, "only ever called at x itself"),
        "another ε": (_its_own_eps, "is the `eps` used that was given?"),
        "x is not put back": (_leaves_a_mark, "writes into its argument x"),
        "one number": (lambda f, x, eps=1e-5: (f(x + eps) - f(x - eps)) / (2 * eps), "the gradient has shape ()"),
    },
    "linear_backward": {
        "the sum over rows is missing": (lambda dy, x, weight: (dy @ weight.T, x.T @ dy, dy), "dbias has shape"),
        "in another order": (lambda dy, x, weight: (x.T @ dy, dy @ weight.T, dy.sum(0)), "in the order dx, dweight"),
        "transposed": (lambda dy, x, weight: (dy @ weight.T, dy.T @ x, dy.sum(0)), "dweight has shape"),
        "averaged": (
            lambda dy, x, weight: (dy @ weight.T, x.T @ dy / len(dy), dy.sum(0)),
            "with each row given twice, dweight must double",
        ),
        "mean of the bias": (
            lambda dy, x, weight: (dy @ weight.T, x.T @ dy, dy.mean(0)),
            "with each row given twice, dbias must double",
        ),
        "sign": (lambda dy, x, weight: (-dy @ weight.T, x.T @ dy, dy.sum(0)), "wrong sign"),
        "one array": (lambda dy, x, weight: dy @ weight.T, "must return 3 arrays"),
    },
}
