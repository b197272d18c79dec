"""Answers to lesson 25: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np


def _distillation_from_logs(dloss, logits, teacher_logits, targets, temperature, share):
    def softmax(x):
        return np.exp(x - np.logaddexp.reduce(x, axis=1)[:, None])

    q = np.eye(logits.shape[1])[targets]
    dhard = dloss * (1 - share) / len(logits) * (softmax(logits) - q)
    du = dloss * share * temperature**2 / len(logits)  # the gradient of u = z / T, but for p − q
    return dhard + du * (softmax(logits / temperature) - softmax(teacher_logits / temperature)) / temperature


def _optimal_tokens_first(theta, operations):
    a, alpha, b, beta, _ = theta
    ratio = beta * np.exp(b) / (alpha * np.exp(a))
    d = ratio ** (1 / (alpha + beta)) * (operations / 6) ** (alpha / (alpha + beta))
    return operations / (6 * d), d


def _objective_by_matrices(dloss, theta, log_n, log_d, log_loss, delta):
    n = len(log_n)
    design = np.zeros((n, 3, 5))  # terms = design @ theta
    design[:, 0, 0] = design[:, 1, 2] = design[:, 2, 4] = 1
    design[:, 0, 1], design[:, 1, 3] = -log_n, -log_d
    terms = design @ theta
    log_total = np.logaddexp.reduce(terms, axis=1)
    r = log_total - log_loss
    pull = dloss * np.where(np.abs(r) <= delta, r, delta * np.sign(r))
    return np.einsum("n,nk,nkp->p", pull, np.exp(terms - log_total[:, None]), design)


def _step_by_roots(residuals, slopes, damping, delta):
    roots = np.sqrt(np.minimum(1, delta / np.maximum(np.abs(residuals), 1e-300)))
    scaled = roots[:, None] * slopes
    below = np.diag(np.sqrt(damping) * np.linalg.norm(scaled, axis=0))
    system = np.concatenate([scaled, below])
    return np.linalg.lstsq(system, np.concatenate([-roots * residuals, np.zeros(slopes.shape[1])]), rcond=None)[0]


RIGHT = {
    "distillation_backward": [_distillation_from_logs],
    "compute_optimal": [_optimal_tokens_first],
    "objective_backward": [_objective_by_matrices],
    "damped_step": [_step_by_roots],
}


MISTAKES = r"""
[distillation_backward]
no 1 at the target | hard[np.arange(N), targets] -= 1 → pass | is the softmax alone
no T² | share * temperature * soft → share / temperature * soft | which is 1/T²
no chain rule | share * temperature * soft → share * temperature**2 * soft | which is T: the logits are divided by T
neither | share * temperature * soft → share * soft | which is 1/T: T² from the loss
T³ | share * temperature * soft → share * temperature**3 * soft | which is T²: the probabilities have
only the teacher is soft | softmax(logits / temperature) → softmax(logits) | only the teacher's logits are divided
only the student is soft | softmax(teacher_logits / temperature) → softmax(teacher_logits)
    only the student's logits are divided
no temperature | softmax(logits / temperature) → softmax(logits)
    softmax(teacher_logits / temperature) → softmax(teacher_logits) | the probabilities are those of temperature 1
a sum | dloss / N * → dloss * | which is N: the loss is the mean
a mean over all numbers | dloss / N * → dloss / logits.size * | which is 1/V
the teacher's best token | softmax(teacher_logits / temperature) →
        np.eye(logits.shape[-1])[teacher_logits.argmax(axis=-1)]
    the teacher's best token alone
share exchanged | returns dloss / N * (share * hard + (1 - share) * temperature * soft)
    dlogits is the teacher's part: that has the weight share
the whole right token | (1 - share) * hard + → hard * (share < 1) + | still has all of its weight
a hot right token | hard = softmax(logits) → hard = softmax(logits / temperature) | with share 0 the temperature changes
no dloss | dloss / N * → 1 / N * | with dloss = −2.5
the sign | returns -answer | has the wrong sign everywhere
overflow | np.exp(x - x.max(axis=-1, keepdims=True)) → np.exp(x) | take the maximum of each row off
one maximum for all | x.max(axis=-1, keepdims=True) → x.max() | subtract each row's own maximum
logits matched | returns dloss / N * ((1 - share) * hard + share * (logits - teacher_logits))
    is the difference of the logits
two gradients | returns answer, -answer | nothing goes back to the teacher
multiplied by the temperature | softmax(logits / temperature) → softmax(logits * temperature)
    softmax(teacher_logits / temperature) → softmax(teacher_logits * temperature) | not multiplied
[compute_optimal]
no 6 | operations / 6 → operations | N · D is C: the budget
times 6 | operations / 6 → operations * 6 | N · D is 6 C
exponents exchanged | beta * np.log(products)) → alpha * np.log(products)) | grows with the power α / (α + β)
N and D exchanged | returns products / n, n | N and D are exchanged
half of each | returns np.sqrt(products) + 0 * n, np.sqrt(products) + 0 * n | grows with the power 0.500
without the factors of the derivative | (np.log(alpha) + a - np.log(beta) - b + → (a - b + | left out?
derivatives by N and D
    + beta * np.log(products)) / (alpha + beta) → + (1 + beta) * np.log(products)) / (2 + alpha + beta)
    it is the derivatives by log N and by log D
alpha and beta exchanged | (np.log(alpha) + a - np.log(beta) - b + → (np.log(beta) + a - np.log(alpha) - b +
    α and β before the two losses are exchanged
A and B exchanged | (np.log(alpha) + a - np.log(beta) - b + → (np.log(alpha) + b - np.log(beta) - a +
    A and B are exchanged
no 6 in N | np.log(products) → np.log(operations) | and it is C / 6
6 outside | np.exp(log_n) → np.exp(log_n + beta / (alpha + beta) * np.log(6)) / 6 | and divided by 6 after
rounded | np.exp(log_n) → np.round(np.exp(log_n)) | rounded to whole parameters
upside down | (np.log(alpha) + a - np.log(beta) - b + → (np.log(beta) + b - np.log(alpha) - a + | upside down
logarithms for numbers
    (np.log(alpha) + a - np.log(beta) - b + → (np.log(alpha) + np.log(a) - np.log(beta) - np.log(b) +
    theta holds the logarithms
no root
    n = np.exp(log_n) → n = alpha * np.exp(a) / (beta * np.exp(b)) * products ** (beta / (alpha + beta))
    is not taken
only the power | (np.log(alpha) + a - np.log(beta) - b + → ( | are not in it
E in it | a, alpha, b, beta, _ = theta → a, alpha, b, beta, e = theta\n    a = a + e - np.log(1.7)
    a constant does not move
E in it, for a law | a, alpha, b, beta, _ = theta → a, alpha, b, beta, e = theta\n    a = a + e | N is
a number for all | returns float(np.sum(n)), float(np.sum(products / n)) | for two budgets N has shape ()
a list of budgets | returns np.atleast_1d(n), np.atleast_1d(products / n) | for a budget that is a number
[objective_backward]
no Huber | np.clip(residuals, -delta, delta) → residuals | that of squares
signs | np.clip(residuals, -delta, delta) → np.sign(residuals) | pulls with its sign alone
cut to 0 | np.clip(residuals, -delta, delta) → np.where(abs(residuals) <= delta, residuals, 0) | they are left out
cut above only | np.clip(residuals, -delta, delta) → np.minimum(residuals, delta) | negative ones must be cut off
delta without a sign | np.clip(residuals, -delta, delta) → np.where(abs(residuals) <= delta, residuals, delta)
    has the sign of the residual
the line for its slope
    np.clip(residuals, -delta, delta) →
        np.where(abs(residuals) <= delta, residuals, delta * (abs(residuals) - delta / 2))
    they pull with their loss
clipped at the end
    np.clip(residuals, -delta, delta) → residuals
    slopes @ pulls → np.clip(slopes @ pulls, -delta, delta)
    it is the residuals that are clipped
divided by delta | np.clip(residuals, -delta, delta) → np.clip(residuals / delta, -1, 1) | it is divided by delta
always delta | np.clip(residuals, -delta, delta) → delta * np.sign(residuals) | every residual pulls with delta
no sign | np.clip(residuals, -delta, delta) → np.minimum(abs(residuals), delta) | the sign of the residual is lost
softmax over the trainings | exponentials / total → np.exp(terms) / np.exp(terms).sum(axis=1, keepdims=True)
    over the three terms of each
a logarithm of a logarithm | - log_loss  # → - np.exp(log_loss)  # | holds logarithms already
a loss for its logarithm | - log_loss  # → - log_loss\n    residuals = np.exp(residuals + log_loss) - log_loss  #
    the prediction is of L
float32 inside | a, alpha, b, beta, e = theta → a, alpha, b, beta, e = np.float32(theta) | is right to about
slope 1 beyond delta
    np.clip(residuals, -delta, delta) → np.where(abs(residuals) <= delta, residuals, np.sign(residuals))
    they pull with 1
plus log N | near, -near * log_n, far, -far * log_d → near, near * log_n, far, far * log_d
    so their slopes have one too
in another order | returns answer[[0, 2, 4, 1, 3]] | the order is that of theta
a mean | returns answer / len(log_n) | it is the mean over the training runs
the sign | - log_loss  # → - log_loss\n    residuals = -residuals  # | a residual is the prediction less log L
no shares | exponentials / total → np.ones_like(exponentials) | each term has the slope 1
terms for shares | exponentials / total → exponentials * np.exp(terms.max(axis=0)) | the terms themselves are used
no log N | -near * log_n, far, -far * log_d → -near, far, -far | lack log N and log D
N and D | -near * log_n, far, -far * log_d → -near * np.exp(log_n), far, -far * np.exp(log_d) | hold N and D
exchanged | -near * log_n, far, -far * log_d → -near * log_d, far, -far * log_n | log N and log D are exchanged
residuals of L | + np.log(total) - log_loss → + np.log(total)
    pulls = dloss → residuals = np.exp(residuals) - np.exp(log_loss)\n    pulls = dloss
    the residuals are those of L
twice | returns 2 * answer | it is twice what it should be
the loss for the slope | np.clip(residuals, -delta, delta) → residuals**2 / 2 | pulls with its loss r²/2
no e | far, -far * log_d, floor] → far, -far * log_d, 0 * floor] | is right for a, α, b, β and wrong
overflow | terms - terms.max(axis=0)) → terms) | residuals = terms.max(axis=0) + → residuals = | 3000 on a, b, e
no dloss | dloss * np.clip → np.clip | with dloss = −3
one for each training | returns slopes * pulls | dtheta has shape (5, 9)
a list | returns list(answer) | dtheta must be an array, not list
[damped_step]
weights squared in the curvature alone
    (weights[:, None] * slopes) → (weights[:, None] ** 2 * slopes) | are squared in the curvature
damping subtracted | curvature + damping → curvature - damping | the damping is subtracted
uphill | returns -answer | leads away
a step of gradient descent | returns -gradient | it still has to be divided by the curvature
damped by 1 | damping * np.diag(np.diag(curvature)) → damping * np.eye(len(curvature)) | damping times 1 is added
all is damped | damping * np.diag(np.diag(curvature)) → damping * curvature | all of the curvature is damped
not damped | curvature + damping * np.diag(np.diag(curvature)) → curvature | the damping has no effect
only the diagonal
    curvature + damping * np.diag(np.diag(curvature)) → curvature * (damping == 0) + (curvature + damping * curvature)
        * (np.eye(5) if damping else 0)
    only the diagonal of the curvature
damping at the wrong one
    curvature + damping * np.diag(np.diag(curvature)) → curvature if not damping else
        damping * curvature + np.diag(np.diag(curvature))
    at the wrong one of the two
no weights | weights = np.where(size > delta, delta / np.maximum(size, delta), 1) → weights = np.ones_like(size)
    the outlier counts in full
weights only in the gradient | (weights[:, None] * slopes) → slopes | in the gradient and not in the curvature
weights only in the curvature | (weights * residuals) → residuals | in the curvature and not in the gradient
weights squared
    weights = np.where(size > delta, delta / np.maximum(size, delta), 1) →
        weights = np.where(size > delta, delta / np.maximum(size, delta), 1) ** 2
    the weights are squared
outliers left out
    weights = np.where(size > delta, delta / np.maximum(size, delta), 1) → weights = (size <= delta) + 0.0
    they count less, but they count
the weights upside down | delta / np.maximum(size, delta), 1) → np.maximum(size, delta) / delta, 1)
    with a residual of
roots of the weights
    weights = np.where(size > delta, delta / np.maximum(size, delta), 1) →
        weights = np.where(size > delta, delta / np.maximum(size, delta), 1) ** 0.5
    the roots of the weights
delta for the weight
    weights = np.where(size > delta, delta / np.maximum(size, delta), 1) → weights = np.where(size > delta, delta, 1)
    beyond delta the weight is delta, and it is
weights below delta too
    weights = np.where(size > delta, delta / np.maximum(size, delta), 1) → weights = delta / np.maximum(size, 1e-9)
    residuals up to delta have the weight 1
no absolute value
    size = np.abs(residuals) → size = residuals
    with an outlier below 0
no outlier in the curvature | (weights[:, None] * slopes) → ((weights == 1)[:, None] * slopes)
    left out of the curvature
twice delta
    weights = np.where(size > delta, delta / np.maximum(size, delta), 1) →
        weights = np.where(size > 2 * delta, delta / np.maximum(size, delta), 1)
    with a residual of 30
damped without weights | np.diag(np.diag(curvature)) → np.diag((slopes**2).sum(axis=0))
    the diagonal that is damped
a vector for a diagonal | np.diag(np.diag(curvature)) → np.diag(curvature) | is a vector
divided by zero
    weights = np.where(size > delta, delta / np.maximum(size, delta), 1) → weights = np.minimum(size, delta) / size
    a residual of exactly 0
five constants
    np.diag(np.diag(curvature)) → curvature * np.eye(5)
    it raises
a column | returns answer[:, None] | the step has shape (5, 1)
"""
