"""Answers to lesson 09: right ones written in another way, and plausible wrong ones (see `answers`)."""

import pickle

import numpy as np


def _one_rate_for_both_corrections(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    m, v = m + (1 - beta1) * (grad - m), v + (1 - beta2) * (grad * grad - v)
    root = np.sqrt(1 - beta2**step)
    return [theta - lr * root / (1 - beta1**step) * m / (np.sqrt(v) + eps * root), m, v]


def _peak_times_shape(step, d_model, warmup_steps):
    ratio = np.asarray(step) / warmup_steps
    return np.minimum(ratio, 1 / np.sqrt(ratio)) / np.sqrt(d_model * warmup_steps)


def _train_clearing_behind(model, batch_of, rate, steps, update, clip_norm=None, validate=None, every=100):
    parameters = model.parameters
    parameters.zero_grad()
    history, seen = [], []
    m = v = np.zeros(len(parameters.data))
    step = 0
    while step < steps:
        step += 1
        batch = batch_of(step)
        loss, cache = model.loss(batch.source, batch.target_in, batch.target_out)
        model.loss_backward(1.0, cache)
        length = np.sqrt((parameters.grad**2).sum())
        scale = 1.0 if clip_norm is None else min(1.0, clip_norm / length)
        new, m, v = update(parameters.data, scale * parameters.grad, m, v, step, rate(step))
        parameters.data[...] = new
        parameters.zero_grad()
        history += [loss]
        if validate and not step % every:
            seen += [np.exp(validate())]
    return list(map(np.array, history)), list(np.array(seen))


def _train_clipping_in_place(model, batch_of, rate, steps, update, clip_norm=None, validate=None, every=100):
    theta, grad = model.parameters.data, model.parameters.grad
    state = np.zeros_like(theta), np.zeros_like(theta)
    losses, perplexities = [], []
    for number in range(steps):
        batch = batch_of(number + 1)
        grad[:] = 0
        loss, cache = model.loss(batch.source, batch.target_in, batch.target_out)
        losses.append(loss.item())
        model.loss_backward(1, cache)
        if clip_norm:
            grad *= min(1, clip_norm / np.linalg.norm(grad))
        new, *state = update(theta, grad, *state, number + 1, rate(number + 1))
        np.copyto(theta, new)
        if validate and (number + 1) % every == 0:
            perplexities.append(float(np.exp(validate())))
    return [losses, perplexities]


def _like_the_steps(step, rates):
    """The rates in an array of the steps' own type, as np.zeros_like makes it."""
    if np.ndim(step) == 0:
        return rates
    filled = np.zeros_like(step)
    filled[...] = rates
    return filled


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
    "schedule": [_peak_times_shape],
    "train": [_train_clearing_behind, _train_clipping_in_place],
    "adam_step": [_one_rate_for_both_corrections],
    "accumulate": [_weighted_average],
    "save": [_state_of_the_generator, _pickled],
}


MISTAKES = r"""
[adam_step]
m corrected by β₂ | (1 - beta1**step) → (1 - beta2**step) | m is corrected by β₂
no correction | / (1 - beta1**step) → | / (1 - beta2**step) → | neither m nor v
only m corrected | / (1 - beta2**step) → | m is corrected for beginning at 0, and v is not
only v corrected | / (1 - beta1**step) → | v is corrected for beginning at 0, and m is not
up the hill | theta - lr → theta + lr | where grad is positive theta must fall
no root | np.sqrt(v_hat) → v_hat | steps of different length
weights swapped
    beta1 * m + (1 - beta1) → (1 - beta1) * m + beta1 | beta2 * v + (1 - beta2) * grad → (1 - beta2) * v + beta2 * grad
    m is 9 times what it should be everywhere, which is β₁
no square | grad**2 → abs(grad) | v is the mean of the squares
ε inside the root | np.sqrt(v_hat) + eps → np.sqrt(v_hat + eps) | outside the root
corrected means kept | m, v\n\n → m_hat, v_hat\n\n | m's correction is for the step alone
steps from 0 | **step → **(step - 1) | `step` counts from 1
one step ahead | **step → **(step + 1) | the first step is 0.74
no learning rate | lr * m_hat → m_hat | with twice the learning rate
the gradient for m | lr * m_hat → lr * grad | it must go on with m
corrected as in step 1 | **step → | step 1 and step 2 are the same
its own β's | m = beta1 * m + → beta1, beta2 = 0.9, 0.98\n    m = beta1 * m + | beta2 = 0.8, m is not what it should be
corrected by its own β's | beta1** → 0.9** | beta2**step → 0.98**step | beta2 = 0.8, theta is not what it should be
its own step
    def adam_step → STEPS = []\n\n\ndef adam_step
    m = beta1 * m + → STEPS.append(step)\n    step = len(STEPS)\n    m = beta1 * m + | keep none of its own
β divided by the step | **step → / step | 1 − β to the power of the step
a gradient clipped | m = beta1 * → grad = grad * min(1, 100 / np.linalg.norm(grad))\n    m = beta1 * | is it clipped?
weights that decay | return theta → return 0.99 * theta | from theta = 10 it goes another way
β₂ of others | beta2=0.98 → beta2=0.999 | eps=1e-9 → eps=1e-8 | which is 1 − 0.999
m first | returns v, m, theta - lr * m_hat / (np.sqrt(v_hat) + eps) | what is returned first is
named otherwise | step, lr, → step, rate, | lr * m_hat → rate * m_hat | 'lr'
[schedule]
a slope of its own | warmup_steps**-1.5 → warmup_steps**-1.0 | the climb's slope is w^−1 /
no width | d_model**-0.5 * → 1.0 * | is d_model in it, once?
the larger piece | np.minimum → np.maximum | it first climbs
the smaller of all | np.minimum(step**-0.5, step → min(step**-0.5, step | it raises ValueError
no square root | step**-0.5 → step**-1.0 | four times the steps after the climb
a climb from 1 on | step * warmup_steps**-1.5 → (step + 1) * warmup_steps**-1.5 | a straight line that begins at 0
a curved climb | step * warmup_steps**-1.5 → step**2 * warmup_steps**-2.5 | is 0.0001 of the peak
its own climb | warmup_steps**-1.5 → 100**-1.5 | does it use the sizes it is given?
in an array like the steps
    returns _like_the_steps(step, d_model**-0.5 * np.minimum(step**-0.5, step * warmup_steps**-1.5))
    whole numbers
the width twice | d_model**-0.5 * → d_model**-1.0 * | at step w = 100 the rate is 0.0
[train]
the quotient turned round | (clip_norm / norm) → (norm / clip_norm) | is multiplied by norm / clip_norm
gradients not cleared | model.parameters.zero_grad()  # backwards add → pass | and of what was in grad before
cleared once
    for step in range → model.parameters.zero_grad()\n    for step in range
    model.parameters.zero_grad()  # backwards add → pass
    the sum of all gradients so far: clear
cleared too late
    model.parameters.zero_grad()  # backwards add → pass
    grad = model.parameters.grad → model.parameters.zero_grad()\n        grad = model.parameters.grad
    it is cleared after the backward
cleared behind each step
    model.parameters.zero_grad()  # backwards add → pass
    losses.append(float(loss)) → losses.append(float(loss))\n        model.parameters.zero_grad()
    before the training: clear it
steps from 0 | range(1, steps + 1) → range(steps) | steps are counted from 1
one step too few | range(1, steps + 1) → range(1, steps) | update is called 5 times in 6 steps
one rate for all | rate(step)) → rate(1)) | in step 2 the learning rate is that of the step before
the rate of the next step | rate(step)) → rate(step + 1)) | that of the next step
always the first batch | batch_of(step) → batch_of(1) | batch_of is asked for the steps 1, 1
no moments
    m, v = np.zeros_like(theta), np.zeros_like(theta) → pass
    batch = batch_of → m, v = np.zeros_like(theta), np.zeros_like(theta)\n        batch = batch_of
    m is 0 where the update must get
v not handed on | theta[:], m, v = → theta[:], m, _ = | v is 0 where the update must get
weights not written | theta[:], m, v = → _, m, v = | each step goes on from the last
a new array | theta[:], m, v = → theta, m, v = | own weights stay where they were
a new array in its place
    theta[:], m, v = update(theta, → model.parameters.data, m, v = update(model.parameters.data,
    it puts a new array in place of parameters.data
Adam itself | = update(theta, → = adam_step(theta, | is never called
two backwards
    model.loss_backward(1.0, cache) → model.loss_backward(1.0, cache)\n        model.loss_backward(1.0, cache)
    model.loss_backward is called 12 times
the loss sent back | loss_backward(1.0, → loss_backward(loss, | must get 1.0
target_out read | batch.source, batch.target_in, batch.target_out → batch.source, batch.target_out, batch.target_in
    in another order
not shifted
    batch.source, batch.target_in, batch.target_out → batch.source, batch.target_out, batch.target_out
    does not get source, target_in and target_out
a smoothed loss | batch.target_in, batch.target_out → batch.target_in, batch.target_out, 0.1 | without smoothing
not clipped | grad = grad * (clip_norm / norm) → pass | is not clipped to 0.5
always of one length | and norm > clip_norm → | clip only what
clipped one by one
    grad = grad * (clip_norm / norm) → grad = np.clip(grad, -clip_norm, clip_norm)
    its direction stays
clipped to the square | norm = np.linalg.norm(grad) → norm = (grad**2).sum() | clip_norm is a limit on its own norm
validated at every step | and step % every == 0 → | is asked after the steps [1, 2, 3
losses for perplexities | np.exp(validate()) → validate() | a perplexity is exp(loss)
always validated | validate is not None and step → step | it raises TypeError
only the losses | return losses, perplexities → return losses | it must return two lists
a tuple and an array | returns tuple(losses), np.array(perplexities) | losses must be a list
an array of perplexities | returns losses, np.array(perplexities) | perplexities must be a list
each in an array | losses.append(float(loss)) → losses.append(np.array([loss])) | losses must be a list of numbers
each as text | returns list(map(str, losses)), perplexities | and holds one str
other logarithms | np.exp(validate()) → 2 ** validate() | must be its exponential
another default of every | every=100 → every=10 | is asked after the steps [10, 20,
clipped unasked | clip_norm=None → clip_norm=1.0 | and clip_norm is None, which is no limit
validated unasked | validate=None → validate=lambda: 0.0 | and none where no validate is given
parameters in another order
    clip_norm=None, validate=None, every=100 → validate=None, clip_norm=None, every=100
    are given without their names
never more than 100 steps | range(1, steps + 1) → range(1, min(steps, 100) + 1) | called 100 times in 205 steps
moments of float32
    np.zeros_like(theta), np.zeros_like(theta) → np.zeros(theta.shape, np.float32), np.zeros(theta.shape, np.float32)
    in step 1 m is float32
a gradient of float32
    grad = model.parameters.grad → grad = model.parameters.grad.astype("f") | the gradient is float32
lists that stay
    def train → LOSSES = []\n\n\ndef train | losses.append → LOSSES.append | return losses, → return LOSSES,
    a second call changes
up the hill | losses.append(float(loss)) → losses.append(-float(loss)) | the losses are not those
[accumulate]
mean of means | num_targets / n → 1 / len(parts) | each part counts by its share
sum | num_targets / n → 1 | a sum is not a mean
sum over targets | num_targets / n → num_targets | the number of its targets
the loss not weighted
    num_targets / n * part_loss → part_loss / len(parts) | the gradient is right, and the loss is not
the last part | returns results[-1][:2] | number 1 does not count
weighted by len | [gradient(part) for → [(*gradient(part)[:2], len(part)) for | it changes with len(part)
in two passes
    n = sum(num_targets for _, _, num_targets in results) → n = sum(gradient(part)[2] for part in parts)
    gradient was called 2 times for 1 part
sums never cleared
    results = [gradient(part) for part in parts] →
        RESULTS.extend(gradient(part) for part in parts)\n    results = RESULTS
    def accumulate → RESULTS = []\n\n\ndef accumulate | a sum must begin at 0 in every call
whole shares | num_targets / n → num_targets // n | // makes every share a whole number
a list | returns loss, list(grad) | grad must be an array, not list
parts sorted | results = [ → parts.sort(key=len, reverse=True)\n    results = [ | it changes the order of the parts
a loss in an array | returns np.array([loss]), grad | the loss must be one number
in the model's own array
    num_targets / n * part_grad → part_grad.__imul__(num_targets / n) | it writes into an array that `gradient` returned
[save]
no moments | "m", "v", → | mean of the gradients begins again
no squares | "v", → | mean of the squares begins again
no step | "step", → | the schedule and Adam's corrections
no generator | , "rng" → | batches and dropout masks
everything | returns copy.deepcopy(vars(run)) | it saves 'model'
the run's own weights replaced
    return {name → run.theta = run.theta.copy()\n    return {name | the run's own theta is not what it was
a number drawn | return {name → run.rng.random()\n    return {name | the run's own rng is not what it was
one dict for all
    def save → SAVED = {}\n\n\ndef save | return {name → SAVED.update({name
    "step", "rng")} → "step", "rng")})\n    return SAVED | a second call changes what the first one returned
copies of one level | copy.deepcopy → copy.copy | shares what moves
no copies | copy.deepcopy(getattr(run, name)) → getattr(run, name) | what was saved of theta has changed
the generator itself
    copy.deepcopy → getattr(run, name) if name == "rng" else copy.copy | a generator moves on with every draw
m not copied | returns {**answer, "m": run.m} | what was saved of m has changed
another generator | returns {**answer, "rng": np.random.default_rng(0)} | what is saved of rng is not what the run had
the generator's state | returns {**answer, "rng": run.rng.bit_generator.state} | rng is saved as one dict
a list | returns [run.theta, run.m, run.v] | must return a dict
a new name | returns {**answer, "weights": run.theta.copy()} | it saves 'weights'
"""
