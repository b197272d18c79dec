"""Answers to lesson 00: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np


def _rows_and_columns(f, x, eps=1e-5):
    slopes = np.empty_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            up, down = x.copy(), x.copy()
            up[i, j] += eps
            down[i, j] -= eps
            slopes[i, j] = (f(up) - f(down)) / (2 * eps)
    return slopes


def _put_back(f, x, eps=1e-5):
    slopes = np.empty_like(x)
    for index in np.ndindex(x.shape):
        begin = x[index]
        x[index] = begin + eps
        above = f(x)
        x[index] = begin - eps
        slopes[index] = (above - f(x)) / (2 * eps)
        x[index] = begin
    return slopes


def _directions(f, x, eps=1e-5):
    steps = [eps * unit.reshape(x.shape) for unit in np.eye(x.size)]
    return np.array([f(x + step) - f(x - step) for step in steps]).reshape(x.shape) / (2 * eps)


def _two_halves(f, x, eps=1e-5):
    slopes, here = np.zeros_like(x), f(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += eps
        down[index] -= eps
        slopes[index] = ((f(up) - here) / eps + (here - f(down)) / eps) / 2
    return slopes


def _times_x(f, x, eps=1e-5):
    slopes = np.empty_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] *= 1 + eps
        down[index] *= 1 - eps
        slopes[index] = (f(up) - f(down)) / (2 * eps)
    return slopes


RIGHT = {
    "linear_backward": [
        lambda dy, x, weight: [np.dot(dy, weight.T), np.dot(dy.T, x).T, np.ones(len(dy)) @ dy],
        lambda dy, x, weight: (np.einsum("no,io->ni", dy, weight), np.einsum("ni,no->io", x, dy), np.add.reduce(dy)),
    ],
    "numerical_gradient": [_put_back, _directions, _two_halves],
}


MISTAKES = r"""
[numerical_gradient]
the first column alone | np.ndindex(x.shape) → [(i, 0) for i in range(len(x))] | 4 are never moved
the sign lost | f(up) - f(down) → abs(f(up) - f(down)) | of a function that falls the gradient is positive
half of the way | down[index] -= eps → pass | one step up and one down
one-sided | f(down) → f(x) | (2 * eps) → eps | is the difference taken from f(x + ε) to f(x − ε)
divided by ε | (2 * eps) → eps | is it divided by 2ε?
a row moves at once | np.ndindex(x.shape) → range(len(x)) | with 3 elements moved at once
no copies | x.copy(), x.copy() → x, x | only ever called at x itself
another ε | gradient = np.empty_like(x) → gradient, eps = np.empty_like(x), 1e-5 | is the `eps` used that was given?
ε relative to x
    = eps → = eps * max(1, abs(x[index])) | (2 * eps) → (2 * eps * max(1, abs(x[index])))
    is the step ε for each, however large it is?
/ 2 * eps | / (2 * eps) → / 2 * eps | `/ 2 * eps` multiplies by ε
not divided | / (2 * eps) → | 2ε: is it divided?
a larger ε by default | eps=1e-5 → eps=1e-3 | where no ε is given, it is off by 1e-06
one number | returns (f(x + eps) - f(x - eps)) / (2 * eps) | the gradient has shape ()
two axes only | is _rows_and_columns | `for j in range(x.shape[1]):`, where x is (4,)
ravel of a copy
    np.ndindex(x.shape) → range(x.size) | x.copy(), x.copy() → np.copy(x), np.copy(x) | up[index] → up.ravel()[index]
    down[index] → down.ravel()[index] | gradient[index] → gradient.flat[index] | lies in memory column by column
no brackets | (f(up) - f(down)) / (2 * eps) → f(up) - f(down) / (2 * eps) | The difference needs brackets
turned round | f(up) - f(down) → f(down) - f(up) | the gradient of Σ weights·x has the wrong sign
one axis | return gradient → return gradient.ravel() | the gradient has shape (6,): one slope for each element
steps of ε times x | is _times_x | the step is ε itself, and not ε times the element
[linear_backward]
times x | returns dx * x, dweight, dbias | with x twice as large dx must stay what it is
averaged | x.T @ dy → x.T @ dy / len(dy) | with each row given twice, dweight must double
mean of the bias | dy.sum( → dy.mean( | with each row given twice, dbias must double
a loop | dbias = dy.sum(axis=0) → dbias = sum([row for row in dy]) | loops over the rows in Python
an array that is kept
    import numpy as np → import numpy as np\n\nKEPT = np.empty((3, 4)) | x.T @ dy → np.matmul(x.T, dy, out=KEPT)
    a second call changes what the first one returned
gathered from call to call
    import numpy as np → import numpy as np\n\nGATHERED = np.zeros((3, 4))
    dweight = x.T @ dy → GATHERED[:] += x.T @ dy\n    dweight = GATHERED.copy()
    twice the dy does not give twice the dweight: every term of a gradient has dy
no axis of length 1 | dy.sum(axis=0) → dy.sum(axis=0).squeeze() | dbias, of shape (), is wrong; its shape must be (1,)
the sum over rows is missing | returns dy @ weight.T, x.T @ dy, dy | dbias has shape
in another order | returns x.T @ dy, dy @ weight.T, dy.sum(0) | in the order dx, dweight
transposed | returns dy @ weight.T, dy.T @ x, dy.sum(0) | dweight has shape
sign | returns -dy @ weight.T, x.T @ dy, dy.sum(0) | wrong sign
reshaped | returns dy @ weight.reshape(4, 3), x.T @ dy, dy.sum(0) | `reshape` only cuts the same sequence
without dy | is lambda dy, x, weight: (np.ones_like(dy) @ weight.T, x.T @ dy, dy.sum(0)) | give twice the dx
the bias's own slope | is lambda dy, x, weight: (dy @ weight.T, x.T @ dy, np.ones(4)) | give twice the dbias
summed over the outputs | is lambda dy, x, weight: (dy @ weight.T, x.T @ dy, dy.sum(1)) | dbias has shape (5,)
"""
