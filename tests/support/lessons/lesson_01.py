"""Answers to lesson 01: right ones written in another way, and plausible wrong ones (see `answers`)."""

import math

import numpy as np


def _softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _naive(x):
    return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)


def _global_max(x):
    e = np.exp(x - x.max())
    return e / e.sum(axis=-1, keepdims=True)


def _minus_the_mean(x):
    return _naive(x - x.mean(axis=-1, keepdims=True))


def _cut(x):
    return _naive(np.clip(x, -50, 50))


def _columns(x):
    e = np.exp(x - x.max(axis=0))
    return e / e.sum(axis=0)


def _whole(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def _powers_of_two(x):
    e = 2.0 ** (x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _no_keepdims(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1)


def _q(logits, targets, label_smoothing):
    V = logits.shape[1]
    return label_smoothing / V + (1 - label_smoothing) * np.eye(V)[targets]


def _summed(logits, targets, label_smoothing=0.0):
    y, q = _softmax(logits), _q(logits, targets, label_smoothing)
    return -(q * np.log(y)).sum(), y - q


def _log_of_softmax(logits, targets, label_smoothing=0.0):
    y, q = _softmax(logits), _q(logits, targets, label_smoothing)
    return -(q * np.log(y)).sum() / len(y), (y - q) / len(y)


def _log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _log_of_a_little_more(logits, targets, label_smoothing=0.0):
    y, q = _softmax(logits), _q(logits, targets, label_smoothing)
    return -(q * np.log(y + 1e-12)).sum() / len(y), (y - q) / len(y)


def _averaged_over_tokens(logits, targets, label_smoothing=0.0):
    y, q = _log_softmax(logits), _q(logits, targets, label_smoothing)
    return -(q * y).mean(), (np.exp(y) - q) / len(y)


def _one_maximum(logits, targets, label_smoothing=0.0):
    shifted, q = logits - logits.max(), _q(logits, targets, label_smoothing)
    y = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return -(q * y).sum() / len(y), (np.exp(y) - q) / len(y)


def _gradient_not_averaged(logits, targets, label_smoothing=0.0):
    y, q = _log_softmax(logits), _q(logits, targets, label_smoothing)
    return -(q * y).sum() / len(y), np.exp(y) - q


def _gradient_not_smoothed(logits, targets, label_smoothing=0.0):
    y, q = _log_softmax(logits), _q(logits, targets, label_smoothing)
    return -(q * y).sum() / len(y), (np.exp(y) - np.eye(logits.shape[1])[targets]) / len(y)


def _gradient_half_smoothed(logits, targets, label_smoothing=0.0):
    y, q = _log_softmax(logits), _q(logits, targets, label_smoothing)
    return -(q * y).sum() / len(y), (np.exp(y) - q + label_smoothing / logits.shape[1]) / len(y)


def _smoothing_added(logits, targets, label_smoothing=0.0):
    y = _log_softmax(logits)
    q = np.eye(logits.shape[1])[targets] + label_smoothing / logits.shape[1]
    return -(q * y).sum() / len(y), (np.exp(y) - q) / len(y)


def _among_the_others(logits, targets, label_smoothing=0.0):
    y, right = _log_softmax(logits), np.eye(logits.shape[1])[targets]
    q = (1 - label_smoothing) * right + label_smoothing / (logits.shape[1] - 1) * (1 - right)
    return -(q * y).sum() / len(y), (np.exp(y) - q) / len(y)


def _along(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def _in_place(x):
    x -= x.max(axis=-1, keepdims=True)
    return _naive(x)


def _jacobian(dy, y):
    jacobian = y[..., None] * (np.eye(y.shape[-1]) - y[..., None, :])
    return np.einsum("...ij,...j->...i", jacobian, dy)


def _right(logits, targets, label_smoothing=0.0):
    y, q = _log_softmax(logits), _q(logits, targets, label_smoothing)
    return -(q * y).sum() / len(y), (np.exp(y) - q) / len(y)


def _over_the_rows(logits, targets, label_smoothing=0.0):
    y, q = _along(logits, 0), _q(logits, targets, label_smoothing)
    return -(q * np.log(y)).sum() / len(y), (y - q) / len(y)


def _shared_by_five(logits, targets, label_smoothing=0.0):
    rows = np.arange(len(targets))
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_y = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    q = np.full(logits.shape, label_smoothing / 5)
    q[rows, targets] += 1 - label_smoothing
    return -(q * log_y).sum() / len(rows), (np.exp(log_y) - q) / len(rows)


def _softmax_of_lists(x):
    rows = []
    for row in x.reshape(-1, x.shape[-1]).tolist():
        e = [math.exp(score - max(row)) for score in row]
        rows.append([each / sum(e) for each in e])
    return np.array(rows).reshape(x.shape)


def _softmax_backward_loops(dy, y):
    dx = np.zeros_like(y)
    for row in np.ndindex(y.shape[:-1]):
        mean = sum(dy[row] * y[row])
        for i in range(y.shape[-1]):
            dx[(*row, i)] = y[(*row, i)] * (dy[(*row, i)] - mean)
    return dx


def _cross_entropy_loops(logits, targets, label_smoothing=0.0):
    (N, V), loss, dlogits = logits.shape, 0.0, np.zeros_like(logits)
    for n in range(N):
        log_total = max(logits[n]) + math.log(sum(math.exp(score - max(logits[n])) for score in logits[n]))
        for v in range(V):
            q = label_smoothing / V + (1 - label_smoothing) * (v == targets[n])
            loss -= q * (logits[n, v] - log_total)
            dlogits[n, v] = (math.exp(logits[n, v] - log_total) - q) / N
    return loss / N, dlogits


def _cross_entropy_of_two_means(logits, targets, label_smoothing=0.0):
    N, V = logits.shape
    log_y = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    dlogits = np.exp(log_y) - label_smoothing / V
    dlogits[np.arange(N), targets] -= 1 - label_smoothing
    truth = log_y[np.arange(N), targets].mean()
    return float(-(1 - label_smoothing) * truth - label_smoothing * log_y.mean()), dlogits / N


RIGHT = {
    "softmax": [
        _softmax_of_lists,
        lambda x: np.exp(x - np.logaddexp.reduce(x, axis=-1)[..., None]),
        lambda x: np.apply_along_axis(_softmax_of_lists, -1, x),
    ],
    "softmax_backward": [
        _softmax_backward_loops,
        lambda dy, y: y * dy - y * np.einsum("...i,...i->...", y, dy)[..., None],
        lambda dy, y: y * (dy - (dy[..., None, :] @ y[..., :, None])[..., 0]),
    ],
    "cross_entropy": [_cross_entropy_loops, _cross_entropy_of_two_means],
}


WRONG = {
    "softmax": {
        "overflow": (_naive, "exp overflows unless the maximum goes first"),
        "the mean for the maximum": (_minus_the_mean, "not the mean"),
        "scores are cut": (_cut, "with every score 1000 more"),
        "one maximum for all rows": (_global_max, "subtract each row's own maximum"),
        "over the columns": (_columns, "the columns sum to 1"),
        "over everything": (_whole, "all rows together sum to 1"),
        "another base": (_powers_of_two, "must multiply its odds by e"),
        "no keepdims": (_no_keepdims, "it raises ValueError"),
        "with a cache": (lambda x: (_softmax(x), x), "it must return one array, not tuple"),
        "axis 1": (lambda x: _along(x, 1), "axis=1 only of a matrix"),
        "a matrix only": (
            lambda x: _softmax(x) if x.ndim > 1 else _softmax(x[:, None])[:, 0],
            "softmax of one row alone",
        ),
        "rounded": (lambda x: _softmax(x).round(6), "e = 2.71828, and multiplies them by 2.71829"),
        "float32": (lambda x: _softmax(x).astype(np.float32), "softmax(x) is float32"),
        "in place": (_in_place, "writes into its argument x"),
        "complex": (lambda x: _softmax(x).astype(complex), "is complex128, and all that it is made of is float64"),
    },
    "softmax_backward": {
        "the numerator alone": (lambda dy, y: y * dy, "the score is in the denominator too"),
        "the diagonal alone": (lambda dy, y: y * (1 - y) * dy, "off the diagonal the Jacobian is not zero"),
        "sign": (lambda dy, y: y * ((dy * y).sum(-1, keepdims=True) - dy), "a sign is turned"),
        "summed over all rows": (lambda dy, y: y * (dy - (dy * y).sum()), "each row has its own sum"),
        "plain sum": (lambda dy, y: y * (dy - dy.sum(-1, keepdims=True)), "the mean of dy is weighted by y"),
        "plain mean": (lambda dy, y: y * (dy - (dy * y).mean(-1, keepdims=True)), "is not divided by n"),
        "y forgotten outside": (lambda dy, y: dy - (dy * y).sum(-1, keepdims=True), "is all of it times y?"),
        "the Jacobian": (_jacobian, "that is the Jacobian"),
        "axis 1": (lambda dy, y: y * (dy - (dy * y).sum(1, keepdims=True)), "axis=1 only of a matrix"),
        "a mean that is not weighted": (
            lambda dy, y: y * (dy - dy.mean(-1, keepdims=True)),
            "is the mean that comes off dy weighted by y",
        ),
        "float32": (lambda dy, y: (y * (dy - (dy * y).sum(-1, keepdims=True))).astype(np.float32), "is float32"),
        "half": (lambda dy, y: y * (dy - (dy * y).sum(-1, keepdims=True)) / 2, "0.5 times the true gradient"),
        "cut": (
            lambda dy, y: (y * (dy - (dy * y).sum(axis=-1, keepdims=True))).clip(-1, 1),
            "1000 times the dy must give",
        ),
    },
    "cross_entropy": {
        "a sum": (_summed, "the loss is the mean over the rows, not the sum"),
        "a mean over the tokens too": (_averaged_over_tokens, "over the tokens it is a sum"),
        "1e-12 in the log": (_log_of_a_little_more, "added before the log"),
        "one maximum for all rows": (_one_maximum, "each row's own maximum"),
        "the log of the softmax": (_log_of_softmax, "never the log of a probability that may be 0"),
        "q sums to more than 1": (_smoothing_added, "q must sum to 1"),
        "shared among the others": (_among_the_others, "all V tokens, the target included"),
        "dlogits is not averaged": (_gradient_not_averaged, "its dlogits must halve"),
        "dlogits knows no smoothing": (_gradient_not_smoothed, "dlogits with ε = 0.3"),
        "dlogits forgets ε/V": (_gradient_half_smoothed, "each row of dlogits must sum to 0"),
        "probabilities": (lambda logits, targets, label_smoothing=0.0: _softmax(logits), "must return 2 arrays"),
        "over the rows": (_over_the_rows, "the first row's dlogits change with the second row's scores"),
        "no smoothing": (lambda logits, targets, label_smoothing=0.0: _right(logits, targets), "is it used?"),
        "one smoothing for all": (
            lambda logits, targets, label_smoothing=0.0: _right(logits, targets, 0.3 if label_smoothing else 0.0),
            "is the ε used that was given",
        ),
        "base 2": (
            lambda *a: (_right(*a)[0] / np.log(2), _right(*a)[1]),
            "is 1.4427 times what it should be, which is 1/log 2: the logarithm is natural",
        ),
        "the gradient's sign": (lambda *a: (_right(*a)[0], -_right(*a)[1]), "has the wrong sign everywhere"),
        "the loss in float32": (lambda *a: (np.float32(_right(*a)[0]), _right(*a)[1]), "smoothing is float32"),
        "the gradient in float32": (lambda *a: (_right(*a)[0], np.float32(_right(*a)[1])), "dlogits is float32"),
        "ε / 5": (_shared_by_five, "with N = 3 and V = 7 the loss is wrong where ε = 0.3"),
        "dlogits cut": (
            lambda *a: (_right(*a)[0], _right(*a)[1].clip(-0.3, 0.3)),
            "must begin with −1 and 1: is it cut?",
        ),
    },
}
