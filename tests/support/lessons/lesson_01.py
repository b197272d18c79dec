"""Answers to lesson 01: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np


def _cross_entropy_of_two_means(logits, targets, label_smoothing=0.0):
    N, V = logits.shape
    log_y = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    dlogits = np.exp(log_y) - label_smoothing / V
    dlogits[np.arange(N), targets] -= 1 - label_smoothing
    truth = log_y[np.arange(N), targets].mean()
    return float(-(1 - label_smoothing) * truth - label_smoothing * log_y.mean()), dlogits / N


RIGHT = {
    "softmax": [lambda x: np.exp(x - np.logaddexp.reduce(x, axis=-1)[..., None])],
    "softmax_backward": [lambda dy, y: y * dy - y * np.einsum("...i,...i->...", y, dy)[..., None]],
    "cross_entropy": [_cross_entropy_of_two_means],
}


MISTAKES = r"""
[softmax]
not divided | returns exponentials | is e^(x − max), not yet divided
logarithms
    returns np.log(exponentials / exponentials.sum(axis=-1, keepdims=True)) | is the logarithm of the probabilities
overflow | x - x.max(axis=-1, keepdims=True) → x | exp overflows unless the maximum goes first
the mean for the maximum | x.max → x.mean | not the mean
scores are cut | x - x.max(axis=-1, keepdims=True) → np.clip(x, -50, 50) | with every score 1000 more
one maximum for all rows | x.max(axis=-1, keepdims=True) → x.max() | subtract each row's own maximum
over the columns | axis=-1 → axis=0 | the columns sum to 1
over everything | (axis=-1, keepdims=True) → () | all rows together sum to 1
no keepdims | returns exponentials / exponentials.sum(axis=-1) | it raises ValueError
with a cache | return exponentials / → return x, exponentials / | it must return one array, not tuple
axis 1 | axis=-1 → axis=1 | axis=1 only of a matrix
a matrix only | returns answer if x.ndim > 1 else solution(x[:, None])[:, 0] | softmax of one row alone
rounded | returns answer.round(6) | e = 2.71828, and multiplies them by 2.71829
complex | returns answer.astype(complex) | is complex128, and all that it is made of is float64
the largest in size | x.max( → np.abs(x).max( | with every score 1000 less
a small number below
    return exponentials / exponentials.sum(axis=-1, keepdims=True) →
        return exponentials / (1e-8 + exponentials.sum(axis=-1, keepdims=True))
    must sum to 1, and one row is off by
[cross_entropy]
the shares exchanged | label_smoothing / V → (1 - label_smoothing) / V | += 1 - label_smoothing → += label_smoothing
    has ε/V and 1 − ε exchanged
the maximum on one side alone | shifted - np.log(total) → logits - np.log(total) | takes the maximum off on one side
every target in every row | q[np.arange(N), targets] → q[:, targets] | counts every target in every row
the slope of a square | (np.exp(log_y) - q) / N → 2 * (np.exp(log_y) - q) / N | that is the slope of a square
a sum | / N → | the loss is the mean over the rows, not the sum
a mean over the tokens too | -(q * log_y).sum() / N → -(q * log_y).mean() | over the tokens it is a sum
1e-12 in the log | shifted - np.log(total) → np.log(np.exp(shifted) / total + 1e-12) | added before the log
one maximum for all rows | logits.max(axis=-1, keepdims=True) → logits.max() | each row's own maximum
the log of the softmax
    shifted - np.log(total) → np.log(np.exp(shifted) / total) | never the log of a probability that may be 0
q sums to more than 1 | += 1 - label_smoothing → += 1 | q must sum to 1
shared among the others
    / V → / (V - 1) | += 1 - label_smoothing → = 1 - label_smoothing | all V tokens, the target included
dlogits is not averaged | (np.exp(log_y) - q) / N → np.exp(log_y) - q | its dlogits must halve
dlogits knows no smoothing | - q) / N → - np.eye(V)[targets]) / N | dlogits with ε = 0.3
dlogits forgets ε/V | - q) / N → - q + label_smoothing / V) / N | each row of dlogits must sum to 0
over the rows | axis=-1 → axis=0 | the first row's dlogits change with the second row's scores
no smoothing | N, V = logits.shape → (N, V), label_smoothing = logits.shape, 0.0 | is it used?
one smoothing for all
    N, V = logits.shape → (N, V), label_smoothing = logits.shape, 0.3 if label_smoothing else 0.0
    is the ε used that was given
base 2 | () / N → () / N / np.log(2) | is 1.4427 times what it should be, which is 1/log 2: the logarithm is natural
the gradient's sign | np.exp(log_y) - q → q - np.exp(log_y) | has the wrong sign everywhere
the loss in float32 | -(q * log_y).sum() / N → np.float32(-(q * log_y).sum() / N) | smoothing is float32
ε / 5 | label_smoothing / V → label_smoothing / 5 | with N = 3 and V = 7 the loss is wrong where ε = 0.3
dlogits cut | (np.exp(log_y) - q) / N → ((np.exp(log_y) - q) / N).clip(-0.3, 0.3) | must begin with −1 and 1: is it cut?
[softmax_backward]
the numerator alone | returns y * dy | the score is in the denominator too
the diagonal alone | returns y * (1 - y) * dy | off the diagonal the Jacobian is not zero
sign | returns -answer | a sign is turned
summed over all rows | returns y * (dy - (dy * y).sum()) | each row has its own sum
plain mean | returns y * (dy - (dy * y).mean(-1, keepdims=True)) | is not divided by n
y forgotten outside | returns dy - (dy * y).sum(-1, keepdims=True) | is all of it times y?
the Jacobian
    returns np.einsum("...ij,...j->...i", y[..., None] * (np.eye(y.shape[-1]) - y[..., None, :]), dy)
    that is the Jacobian
axis 1 | returns y * (dy - (dy * y).sum(1, keepdims=True)) | axis=1 only of a matrix
half | returns answer / 2 | 0.5 times the true gradient
cut | returns answer.clip(-1, 1) | 1000 times the dy must give
the second half added | is lambda dy, y: y * (dy + (dy * y).sum(-1, keepdims=True)) | here it is added
y_j lost | is lambda dy, y: y * dy - (dy * y).sum(-1, keepdims=True) | the second half has lost it
y_j for y_i | is lambda dy, y: y * dy - y * y * dy.sum(-1, keepdims=True) | and y_i stays in it
no keepdims | is lambda dy, y: y * (dy - (dy * y).sum(-1)) | it raises ValueError: operands could not be
"""
