"""Answers to lesson 09: right ones written in another way, and plausible wrong ones (see `answers`)."""

import pickle

import numpy as np

from course.lesson_09.solutions import save


def _one_rate_for_both_corrections(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    m, v = m + (1 - beta1) * (grad - m), v + (1 - beta2) * (grad * grad - v)
    root = np.sqrt(1 - beta2**step)
    return [theta - lr * root / (1 - beta1**step) * m / (np.sqrt(v) + eps * root), m, v]


def _running_mean(parts, gradient):
    loss, grad, seen = 0.0, 0.0, 0
    for part in parts:
        part_loss, part_grad, count = gradient(part)
        seen += count
        loss += (part_loss - loss) * count / seen
        grad = grad + (part_grad - grad) * count / seen
    return loss, grad


def _weighted_average(parts, gradient):
    losses, grads, counts = zip(*map(gradient, parts), strict=True)
    return np.average(losses, weights=counts), np.average(grads, axis=0, weights=counts)


def _state_of_the_generator(run):
    rng = np.random.default_rng()
    rng.bit_generator.state = run.rng.bit_generator.state
    return {"theta": run.theta.copy(), "m": run.m.copy(), "v": run.v.copy(), "step": run.step, "rng": rng}


def _pickled(run):
    return pickle.loads(pickle.dumps({name: getattr(run, name) for name in ("theta", "m", "v", "step", "rng")}))


RIGHT = {
    "adam_step": [_one_rate_for_both_corrections],
    "accumulate": [_running_mean, _weighted_average],
    "save": [_state_of_the_generator, _pickled],
}


EDITS = r"""
[adam_step]
no correction | / (1 - beta1**step) → | / (1 - beta2**step) → | neither m nor v
only m corrected | / (1 - beta2**step) → | m is corrected for beginning at 0, and v is not
only v corrected | / (1 - beta1**step) → | v is corrected for beginning at 0, and m is not
up the hill | theta - lr → theta + lr | where grad is positive theta must fall
no root | np.sqrt(v_hat) → v_hat | steps of different length
weights swapped
    beta1 * m + (1 - beta1) * grad → (1 - beta1) * m + beta1 * grad
    beta2 * v + (1 - beta2) * grad → (1 - beta2) * v + beta2 * grad
    m is 9 times what it should be everywhere, which is β₁
no square | grad**2 → abs(grad) | v is the mean of the squares
ε inside the root | np.sqrt(v_hat) + eps → np.sqrt(v_hat + eps) | outside the root
corrected means kept | m, v\n\n → m_hat, v_hat\n\n | its correction is for the step alone
steps from 0 | **step → **(step - 1) | `step` counts from 1
one step ahead | **step → **(step + 1) | the first step is 0.74
no learning rate | lr * m_hat → m_hat | with twice the learning rate
the gradient for m | lr * m_hat → lr * grad | it must go on with m
corrected as in step 1 | **step → | step 1 and step 2 are the same
its own β's | m = beta1 * m + → beta1, beta2 = 0.9, 0.98\n    m = beta1 * m + | beta2 = 0.8, m is not what it should be
corrected by its own β's
    beta1**step → 0.9**step | beta2**step → 0.98**step | beta2 = 0.8, theta is not what it should be
its own ε | + eps → + 1e-9 | the first step is 1.000 long and must be 1/(1 + ε)
its own step
    def adam_step → STEPS = []\n\n\ndef adam_step
    m = beta1 * m + → STEPS.append(step)\n    step = len(STEPS)\n    m = beta1 * m + | keep none of its own
β divided by the step | **step → / step | 1 − β to the power of the step
a gradient clipped
    m = beta1 * m + → grad = grad * min(1, 100 / np.linalg.norm(grad))\n    m = beta1 * m + | is it clipped?
weights that decay | return theta → return 0.99 * theta | from theta = 10 it goes another way
β₂ of others | beta2=0.98 → beta2=0.999 | eps=1e-9 → eps=1e-8 | which is 1 − 0.999
m first
    return theta - lr * m_hat / (np.sqrt(v_hat) + eps), m, v → return v, m, theta - lr * m_hat / (np.sqrt(v_hat) + eps)
    what is returned first is
in float32
    return theta - lr * m_hat / (np.sqrt(v_hat) + eps), m, v →
        return [np.float32(array) for array in (theta - lr * m_hat / (np.sqrt(v_hat) + eps), m, v)]
    float32, which rounds
named otherwise | step, lr, → step, rate, | lr * m_hat → rate * m_hat | 'lr'
[accumulate]
mean of means | num_targets / n → 1 / len(parts) | each part counts by its share
sum | num_targets / n → 1 | a sum is not a mean
sum over targets | num_targets / n → num_targets | the number of its targets
the loss not weighted
    num_targets / n * part_loss → part_loss / len(parts) | the gradient is right, and the loss is not
the last part | return loss, grad → return results[-1][:2] | number 1 does not count
weighted by len | [gradient(part) for → [(*gradient(part)[:2], len(part)) for | it changes with len(part)
in two passes
    n = sum(num_targets for _, _, num_targets in results) → n = sum(gradient(part)[2] for part in parts)
    gradient was called 2 times for 1 part
sums never cleared
    results = [gradient(part) for part in parts] →
        RESULTS.extend(gradient(part) for part in parts)\n    results = RESULTS
    def accumulate → RESULTS = []\n\n\ndef accumulate | a sum must begin at 0 in every call
whole shares | num_targets / n → num_targets // n | // makes every share a whole number
a list | return loss, grad → return loss, list(grad) | grad must be an array, not list
parts popped
    gradient(part) for part in parts → gradient(parts.pop()) for _ in range(len(parts))
    it writes into its argument parts
parts sorted | results = [ → parts.sort(key=len, reverse=True)\n    results = [ | it changes the order of the parts
a loss in an array | return loss, grad → return np.array([loss]), grad | the loss must be one number
in float32 | return loss, grad → return loss, grad.astype(np.float32) | float32, which rounds
in the model's own array
    num_targets / n * part_grad → part_grad.__imul__(num_targets / n)
    it writes into an array that `gradient` returned
[save]
no moments | "m", "v", → | mean of the gradients begins again
no squares | "v", → | mean of the squares begins again
no step | "step", → | the schedule and Adam's corrections
no generator | , "rng" → | batches and dropout masks
everything
    {name: copy.deepcopy(getattr(run, name)) for name in ("theta", "m", "v", "step", "rng")} → copy.deepcopy(vars(run))
    it saves 'model'
the run's own weights replaced
    return {name → run.theta = run.theta.copy()\n    return {name | the run's own theta is not what it was
a number drawn | return {name → run.rng.random()\n    return {name | the run's own rng is not what it was
one dict for all
    def save → SAVED = {}\n\n\ndef save | return {name → SAVED.update({name
    "step", "rng")} → "step", "rng")})\n    return SAVED | a second call changes what the first one returned
copies of one level | copy.deepcopy → copy.copy | shares what moves
no copies | copy.deepcopy(getattr(run, name)) → getattr(run, name) | what was saved of theta has changed
the generator itself
    copy.deepcopy(getattr(run, name)) → getattr(run, name) if name == "rng" else copy.copy(getattr(run, name))
    a generator moves on with every draw
"""

WRONG = {
    "save": {
        "m not copied": (lambda run: save(run) | {"m": run.m}, "what was saved of m has changed"),
        "another generator": (
            lambda run: save(run) | {"rng": np.random.default_rng(0)},
            "what is saved of rng is not what the run had",
        ),
        "the generator's state": (
            lambda run: save(run) | {"rng": run.rng.bit_generator.state},
            "rng is saved as one dict",
        ),
        "a list": (lambda run: [run.theta, run.m, run.v], "must return a dict"),
        "a new name": (lambda run: save(run) | {"weights": run.theta.copy()}, "it saves 'weights'"),
    }
}
