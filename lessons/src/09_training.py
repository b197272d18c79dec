# %% [markdown]
# # 09 · Training: batches, Adam, warm-up, and a run that can stop
#
# **You will be able to** write the optimiser, the schedule and the loop that train the model; say what each rule of the
# paper's recipe is for; and, if you like, stop and resume a training run without changing a bit of it.
#
# | | |
# |---|---|
# | you know | the [whole model](08_model.ipynb) and its gradients; tokens (02); cross-entropy (01) |
# | runs in | at most 60 s on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §5.1 (batches), §5.3 (Adam, eq. 3), §5.4, §6.1 (averaging) |
# | in the package | [`training`](../minitransformer/training): optimizer, step, trainer |
#
# The gradient says which way is down, for every weight at once. This lesson follows it: how many tokens make a batch,
# how far to step, and how to resume a run that was interrupted (optional). You will see a model that never learns to
# translate, because one rule of the recipe is missing.

# %%
import copy

import matplotlib.pyplot as plt
import numpy as np

from course import recorded, start
from course.lesson_09.pictures import draw_batches, draw_runs, draw_schedules
from course.lesson_09.translation import VOCABULARY, small_model, training, validation_loss, watching
from course.measuring import blas_threads
from course.style import BLUE, VERMILION, show
from minitransformer import ops
from minitransformer.data.token_dataset import Batches
from minitransformer.gradcheck import error
from minitransformer.layers import DropoutStream
from minitransformer.training import DataParallel, optimizer, training_step

check = start("09")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)
print(f"{len(training):,} pairs, {training.target_lengths.mean():.0f} target tokens on average, "
      f"{training.target_lengths.max()} at most")  # fmt: skip

# %% [markdown]
# ## Batches: counted in tokens, of about the same length
#
# `training` has English and German sentences from the grammar of lesson 02, as ids. A batch is a rectangle of ids, so a
# shorter sentence is filled up with padding, and all arithmetic for padding is wasted. Therefore sentences of about the
# same length go together ("batched together by approximate sequence length", §5.1), as many as give about the same
# number of *tokens*: a batch of short sentences is tall, one of long sentences is wide.


# %%
def cut(lengths, tokens_per_batch):
    """Lengths in the order given, cut into batches whose longest × count is at most tokens_per_batch."""
    batch, batches = [], []
    for length in lengths:
        if max([*batch, length]) * (len(batch) + 1) > tokens_per_batch:
            batches.append(np.array(batch))
            batch = []
        batch.append(length)
    return [*batches, np.array(batch)]


lengths = rng.permutation(training.target_lengths + 1)  # + 1: the end mark
draw_batches({
    "In random order (target side)": cut(lengths, 600)[:6],
    "Sorted by length": [cut(np.sort(lengths), 600)[i] for i in (5, 25, 45, 60, 75, 85)],
})  # fmt: skip

# %% [markdown]
# An epoch is one pass through all pairs. If it went from the short sentences to the long ones, the model would be
# pulled one way and then the other. So the *batches* are shuffled after they are cut, and sentences of equal length are
# mixed anew in every epoch. In [`Batches`](../minitransformer/data/token_dataset.py) batch $i$ of epoch $e$ depends on
# (seed, $e$, $i$) alone.

# %%
batches = Batches(training, tokens_per_batch=384, seed=0, vocab_size=VOCABULARY)
batch = batches.batch(epoch=0, index=0)
print(f"{len(batches)} batches an epoch; the first: source {batch.source.shape}, target {batch.target_in.shape}, "
      f"{batch.num_target_tokens} target tokens that count")  # fmt: skip


def batch_of(step):
    """The batch of a step, counted from 1: epoch after epoch."""
    return batches.batch(*divmod(step - 1, len(batches)))


# %% [markdown]
# ## The number to watch: perplexity
#
# The loss is the mean of $-\log p$ over the target tokens that are not padding, with $p$ the probability of the right
# token. Its exponential is the [**perplexity**](glossary.md#perplexity): the model is as unsure as if it had to choose
# among that many tokens, all equally likely. The perplexity of a uniform guess is the size of the vocabulary. A model
# that only knows how often each token occurs has less:

# %%
counts = np.bincount(np.concatenate([[*target, 2] for _, target in training]), minlength=VOCABULARY)
shares = counts[counts > 0] / counts.sum()
frequency_loss = -np.sum(shares * np.log(shares))
print(f"uniform guess:     loss {np.log(VOCABULARY):.2f}, perplexity {VOCABULARY}")
print(f"knows frequencies: loss {frequency_loss:.2f}, perplexity {np.exp(frequency_loss):.0f}")

# %% [markdown]
# ## Adam
#
# Gradient descent, $\theta \leftarrow \theta - \eta\, g$, takes the weights $\theta$ one step against the gradient $g$.
# It has one [learning rate](glossary.md#learning-rate) $\eta$ for all weights. But the gradients of a Transformer
# differ by orders of magnitude: between layers (lesson 08), between matrices and norms, and in the table of tokens,
# between the row of a rare word and that of a full stop. A rate that suits one weight is too large or too small for
# another.
#
# [Adam](glossary.md#adam) (Kingma and Ba 2015) keeps two running means for every weight, of the gradient and of its
# square:
#
# $$ \begin{aligned}
#    &m \leftarrow \beta_1 m + (1 - \beta_1)\, g \\
#    &v \leftarrow \beta_2 v + (1 - \beta_2)\, g^2
# \end{aligned} $$
#
# and steps by their ratio $m / \sqrt v$. The size of the gradient cancels in it. The ratio is near $\pm 1$ where the
# gradient keeps its sign, and near 0 where the gradient is noise.
#
# Both means start at 0, so at first both are too small: after $t$ steps with a constant $g$, $m = (1 - \beta_1^t)\, g$.
# Dividing by this factor corrects it (*bias correction*):
#
# $$ \begin{aligned}
#    &\hat m = \frac{m}{1 - \beta_1^t} \\
#    &\hat v = \frac{v}{1 - \beta_2^t} \\
#    &\theta \leftarrow \theta - \eta\, \frac{\hat m}{\sqrt{\hat v} + \epsilon}
# \end{aligned} $$
#
# with $t = 1, 2, \dots$ The paper takes $\beta_1 = 0.9$, $\beta_2 = 0.98$, $\epsilon = 10^{-9}$.
#
# ### Exercise 1 ★★☆: Adam


# %% tags=["exercise"]
def adam_step(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    """One step of Adam; the arrays given stay as they are.

    theta, grad, m, v (P,), step counted from 1, lr the learning rate → the tuple theta, m, v, after the step.
    """
    raise NotImplementedError


# %%
adam_step = check(adam_step)

# %% [markdown] tags=["help"]
# Four lines, and each needs the ones before it. Which of $m$, $v$, $\hat m$, $\hat v$ must be remembered for the next
# step, and which only serve this one?
#
# ---
#
# `m = beta1 * m + (1 - beta1) * grad` makes a new array, so the given one stays as it is; `v` in the same way, with
# `grad**2`. Then `m_hat = m / (1 - beta1**step)`. Return `theta`, `m`, `v`: the running means themselves, not the
# corrected ones.

# %% [markdown]
# Ten steps of yours beside the package's [`adam_step`](../minitransformer/ops/adam.py), which updates in place, and
# beside PyTorch's:

# %%
start_at, grads = rng.standard_normal(1000), rng.standard_normal((10, 1000))
theta, m, v = start_at, np.zeros(1000), np.zeros(1000)
flat, flat_m, flat_v = start_at.copy(), np.zeros(1000), np.zeros(1000)
for step, grad in enumerate(grads, 1):
    theta, m, v = adam_step(theta, grad, m, v, step, lr=0.01)
    ops.adam_step(flat, grad, flat_m, flat_v, step=step, lr=0.01)


def against_torch():
    import torch

    weights = torch.nn.Parameter(torch.tensor(start_at))
    optimizer = torch.optim.Adam([weights], lr=0.01, betas=(0.9, 0.98), eps=1e-9)
    for grad in grads:
        weights.grad = torch.tensor(grad)
        optimizer.step()
    return error(theta, weights.detach().numpy())


print(f"after ten steps, against the package: {error(theta, flat):.1e}")
print(f"after ten steps, against PyTorch:     {recorded('09_adam', against_torch):.1e}")

# %% [markdown]
# Note the very first step: $\hat m = g$ and $\hat v = g^2$, so every weight moves by $\eta$, however small its gradient
# is (if it is far above $\epsilon$), whether it is signal or noise. All weights of the model take a full step because
# of one batch.
#
# ## Warm-up
#
# So the first steps should be small. The paper gives the learning rate of every step $t = 1, 2, \dots$ (equation 3). In
# words:
#
# * For the first $w$ steps (`warmup_steps`, in the paper 4000) the rate climbs in a straight line that begins at 0.
# * From step $w$ on it is $1/\sqrt{d_{model}\, t}$: four times the steps, half the rate. $d_{model}$ is the width of
#   the model, which we also call $C$.
# * At step $w$ the two pieces meet.
#
# ### Exercise 2 ★☆☆: the schedule
#
# Turn these words into one formula. Which rate must the straight line have at step $w$? So how much does it climb a
# step? On which side of $w$ is which piece the smaller one?


# %% tags=["exercise"]
def schedule(step, d_model, warmup_steps):
    """The paper's learning rate: a straight climb for warmup_steps steps, then 1 / √(d_model · step).

    step: a number, or an array of numbers, counted from 1 → the rate, a number or an array of the same shape.
    """
    raise NotImplementedError


# %%
schedule = check(schedule)

# %% [markdown] tags=["help"]
# A straight line through 0 is "slope times step". You know its value at $t = w$. What is the slope? And sketch both
# curves over $t$: the rate follows the lower one on both sides of $w$.
#
# ---
#
# At step $w$ both pieces are $(d_{model}\, w)^{-1/2}$, so the slope is that divided by $w$. The rate is the smaller of
# the two pieces, `np.minimum(step**-0.5, step * warmup_steps**-1.5)`, times a factor with `d_model`. In the paper's
# notation: $\eta(t) = d_{model}^{-0.5} \cdot \min\big(t^{-0.5},\; t \cdot w^{-1.5}\big)$.

# %%
steps = np.arange(1.0, 20_001)
draw_schedules({
    "base: width 512, w = 4000": schedule(steps, 512, 4000),
    "big: width 1024, w = 4000": schedule(steps, 1024, 4000),
    "width 512, w = 1000": schedule(steps, 512, 1000),
})  # fmt: skip
theirs = np.array([optimizer.noam(step, 512, 4000) for step in steps])
print(f"against the package: {error(schedule(steps, 512, 4000), theirs):.1e}")

# %% [markdown]
# Beyond the climb the rate no longer depends on $w$: the dark blue and the light blue line coincide.
#
# ## The loop: one step by hand
#
# A training step takes a batch, clears the gradients, computes the loss and its gradient, and updates the weights with
# Adam at the schedule's rate. The weights are one flat array (lesson 08), so Adam is one call for all of them. Every
# layer holds a view into this array, so the new weights must be written **into** it: `theta[:] = …`.
#
# Now and then a batch has a far longer gradient than the others. Most recipes guard against it by *clipping*: if the
# norm of all gradients together is above $c$, scale them all by $c / \text{norm}$ (Pascanu and others 2013). The
# direction stays, the length becomes $c$. Here is one step, with $c = 1$:

# %%
model, batch = small_model(), batch_of(1)
theta = model.parameters.data
m, v = np.zeros_like(theta), np.zeros_like(theta)

model.parameters.zero_grad()  # backwards add
loss, cache = model.loss(batch.source, batch.target_in, batch.target_out)
model.loss_backward(1.0, cache)
norm = np.linalg.norm(model.parameters.grad)
grad = model.parameters.grad * (1.0 / norm)  # the norm is above 1
theta[:], m, v = adam_step(theta, grad, m, v, step=1, lr=1e-3)

after, _ = model.loss(batch.source, batch.target_in, batch.target_out, with_grad=False)
print(f"loss {loss:.2f}, norm of the gradient {norm:.2f}; after the step the loss is {after:.2f}")

# %% [markdown]
# ### Exercise 3 ★★☆: the training loop
#
# Make a loop of this step, with a batch and a rate for each step number, and with clipping only where it is asked for
# and needed. From time to time, take the perplexity on sentences that are not trained on, the *validation* set. It says
# whether the model learns the language or only its training sentences.


# %% tags=["exercise"]
def train(model, batch_of, rate, steps, update, clip_norm=None, validate=None, every=100):
    """Train the model for some steps, counted from 1; its weights change in place.

    model.parameters has two flat arrays, data (the weights) and grad, and zero_grad(), which clears grad.
    model.loss(source, target_in, target_out) → the tuple loss, cache; model.loss_backward(1.0, cache) adds into grad.
    batch_of(step) → a batch with source, target_in, target_out. rate(step) → the learning rate.
    update(theta, grad, m, v, step, lr) → the tuple theta, m, v after the step: adam_step. m and v begin at 0.
    clip_norm: the greatest norm of the gradient that is allowed; None for no limit.
    validate() → the mean loss on the validation set; ask it after every `every`-th step, unless it is None.
    → the tuple losses, perplexities: a list of the loss of each step's batch, a list of exp(validate()).
    """
    raise NotImplementedError


# %%
train = check(train)

# %% [markdown] tags=["help"]
# Which of the lines above belong before the loop, and which into it? What must be remembered from one step to the next,
# besides the weights?
#
# ---
#
# Before the loop: `theta`, `m`, `v` and two empty lists. In the loop, clip into a new array where
# `clip_norm is not None and norm > clip_norm`: `grad = grad * (clip_norm / norm)`. The update is
# `theta[:], m, v = update(theta, grad, m, v, step, rate(step))`. Validate where `step % every == 0`.

# %% [markdown]
# Twenty steps of yours beside twenty of the package's [`training_step`](../minitransformer/training/step.py), in
# float64 and with clipping:

# %%
yours, packages = small_model(dtype="float64"), small_model(dtype="float64")
losses, perplexities = train(
    yours, batch_of, lambda step: 1e-4 * step, 20, adam_step, 1.0, validate=lambda: validation_loss(yours), every=10
)
adam = optimizer.Adam(packages.parameters, packages.ops)
with DataParallel(packages, threads=1) as workers:
    for step in range(1, 21):
        rate = 1e-4 * step
        training_step(workers, adam, [batch_of(step)], learning_rate=rate, label_smoothing=0.0, clip_norm=1.0)
print(f"your loop against the package's, after 20 steps: {error(yours.parameters.data, packages.parameters.data):.1e}")
print(f"training loss {losses[0]:.2f} → {losses[-1]:.2f}; validation perplexity after 10 and 20 steps: "
      f"{perplexities[0]:.0f}, {perplexities[1]:.0f}")  # fmt: skip

# %% [markdown]
# ### The picture: what happens without warm-up
#
# Three training runs of the same small model, four layers in each stack, on the same batches in the same order:
#
# * post-norm, as the paper prints it, with warm-up to a peak;
# * the same without the climb: the rate begins at the peak, and from step $w$ on it is the same;
# * pre-norm (lesson 08), also without.

# %% tags=["long", "picture"]
PEAK, WARMUP, STEPS = 5e-3, 150, 300


def with_warmup(step):
    return PEAK * min(step / WARMUP, (WARMUP / step) ** 0.5)


def without(step):
    return PEAK * min(1.0, (WARMUP / step) ** 0.5)


WAYS = {
    "post-norm, no warm-up": (False, without),
    "post-norm, warm-up": (False, with_warmup),
    "pre-norm, no warm-up": (True, without),
}
models = {name: small_model(norm_first) for name, (norm_first, _) in WAYS.items()}
losses, perplexities, lowest, stops = {}, {}, {}, {}
for name, (_, rate) in WAYS.items():
    model = models[name]
    update, lowest[name], stops[name] = watching(model, adam_step)
    losses[name], perplexities[name] = train(
        model, batch_of, rate, STEPS, update, validate=lambda model=model: validation_loss(model)
    )
    seen = ", ".join(f"{each:.0f}" for each in perplexities[name])
    print(f"{name:<24} training loss of the last 20 steps {np.mean(losses[name][-20:]):.2f}; validation perplexity "
          f"after 100, 200, 300 steps: {seen}")  # fmt: skip
rates = {name: np.array([rate(step) for step in range(1, STEPS + 1)]) for name, (_, rate) in WAYS.items()}
draw_runs(rates, losses, lowest, frequency_loss)

# %% [markdown]
# Without warm-up the post-norm model learns the frequencies of words within a few dozen steps, faster than the same
# model with warm-up. Then it learns nothing more. It has not exploded, and no number is infinite. It has died, and the
# lowest panel shows when: within the first twenty or thirty steps, when all weights moved at once at the full rate.
# After that hardly any gradient comes down to the bottom of the decoder. The top layer and the table go on learning,
# and alone they can only learn frequencies.
#
# Pre-norm gets through without warm-up; its gradients were level from the start (lesson 08; Xiong and others 2020).
#
# A warning: the result depends on the peak. With a lower peak this small post-norm model would survive without warm-up.
# In [the report](paper/paper.md), at a peak many times higher, pre-norm without enough warm-up does not die, but it
# hardly learns to translate either: 0.5 and 3.5 BLEU, and 61 with warm-up. Lesson 08 has another remedy, half of
# Xavier's bound. Try it: `small_model(init_gain=0.5)`, without warm-up, and with more than one `seed`.
#
# ### Dead or alive, seen from outside (optional)
#
# A model that works gives different logits at different places. Compare how far the logits of a word vary over the
# positions of a batch with how far the words differ from each other:

# %%
print(f"{'':<24} varies over places   lowest layer's gradient, step 20 against step 1")
for name, model in models.items():
    logits, _ = model.forward(batch.source, batch.target_in)
    logits = logits[batch.target_out != 0]  # (N, V): real positions only
    varies = logits.std(axis=0).mean() / logits.mean(axis=0).std()
    print(f"{name:<24} {varies:18.3f} {lowest[name][19] / lowest[name][0]:20.4f}")

# %% [markdown]
# The dead model says the same everywhere, no matter what it reads. With warm-up the gradient at the bottom falls too,
# but not so far, and it recovers: in the picture it turns where the loss leaves the dotted line.
#
# ### What clipping does to Adam (optional)
#
# In general Adam does not mind the scale of gradients, but it minds one gradient that sticks out: $v$ forgets it only
# by a factor $\beta_2$ a step, and until then all steps are too short. One weight with a steady gradient of 1, and one
# accident of 100 at step 30:


# %%
def step_lengths(clip_norm):
    """The distances that Adam moves one weight, step by step, in learning rates."""
    theta, m, v, moved = np.zeros(1), np.zeros(1), np.zeros(1), []
    for step in range(1, 151):
        grad = np.array([100.0 if step == 30 else 1.0])
        before = theta
        grad *= min(1.0, clip_norm / np.abs(grad[0]))
        theta, m, v = adam_step(theta, grad, m, v, step, lr=1.0)
        moved.append((before - theta)[0])
    return moved


_, axes = plt.subplots(figsize=(7.2, 2.6))
axes.plot(range(1, 151), step_lengths(np.inf), color=VERMILION, label="as it came")
axes.plot(range(1, 151), step_lengths(2.0), "--", color=BLUE, label="clipped to norm 2")
axes.set(xlabel="step", ylabel="length of the step (learning rates)", title="A gradient of 100 among gradients of 1")
axes.set_ylim(0, 1.9)
axes.legend(loc="upper right")
show(
    "The length of Adam's steps around one gradient a hundred times too long. As it came, the steps shrink to a tenth "
    "and recover slowly; clipped, they keep their length."
)
print(f"50 steps later: {step_lengths(np.inf)[79]:.2f} as it came, {step_lengths(2.0)[79]:.2f} clipped")

# %% [markdown]
# ## Large batches on small machines: accumulation (optional)
#
# The paper's batches have about 25,000 source and 25,000 target tokens, on eight GPUs. A smaller machine takes them in
# parts and adds the gradients. Backwards add into `grad` anyway. But mind the means. The loss $L$ of the whole batch is
# the mean of the tokens' losses $\ell$ over *all* its $n$ target tokens. Part $i$ gives the mean $L_i$ over its own
# $n_i$ tokens. From
#
# $$ L = \frac1n \sum_{\text{tokens}} \ell
#    \;=\; \sum_i \frac{n_i}{n} \Big( \frac{1}{n_i} \sum_{\text{tokens of } i} \ell \Big)
#    = \sum_i \frac{n_i}{n} L_i $$
#
# each part counts by its share of the targets. Parts rarely contain the same number of targets, because sentences
# differ in length.
#
# ### Exercise 4 ★★☆: the gradient of a large batch, from its parts


# %% tags=["exercise"]
def accumulate(parts, gradient):
    """Loss and gradient of the mean over all target tokens of all parts.

    parts: a list; gradient(part) → (loss, grad, num_targets): the mean loss over the part's num_targets target tokens,
    and its gradient, an array. It is a forward and a backward: call it once for each part.
    → the tuple loss (a number), grad (an array).
    """
    raise NotImplementedError


# %%
accumulate = check(accumulate)

# %% [markdown] tags=["help"]
# A part of 300 tokens and a part of 100: by how much does each count in the mean over all 400? And when do you know the
# 400, before you have called `gradient` for every part, or after?
#
# ---
#
# Call it once for each part and keep the results: `results = [gradient(part) for part in parts]`. Then
# `n = sum(count for _, _, count in results)`, and each part's loss and gradient count by `count / n`.

# %% [markdown]
# A batch at once, and the same in four parts, in float64, **with dropout on**. In the package a dropout mask belongs to
# a sentence by its number (lesson 07, in an optional part), and `part.first` says with which number a part begins:

# %%
model = small_model(dropout=0.1, dtype="float64")


def gradient_of(part):
    dropout = DropoutStream(seed=0, step=1, sentence=part.first)
    model.parameters.zero_grad()
    loss, cache = model.loss(part.source, part.target_in, part.target_out, label_smoothing=0.1, dropout=dropout)
    model.loss_backward(1.0, cache)
    return float(loss), model.parameters.grad.copy(), part.num_target_tokens


mixed = Batches(training, 2000, seed=0).batch(0, 3)
parts = mixed.split(4)
whole_loss, whole_grad, _ = gradient_of(mixed)
loss, grad = accumulate(parts, gradient_of)
print("target tokens in the parts:", ", ".join(str(part.num_target_tokens) for part in parts))
scale = np.abs(whole_grad).max()
print(f"largest difference, of the largest gradient: {np.abs(grad - whole_grad).max() / scale:.1e}")
naive = np.mean([gradient_of(part)[1] for part in parts], axis=0)
print(f"a plain mean over the parts:                 {np.abs(naive - whole_grad).max() / scale:.1e}")

# %% [markdown]
# The same sum over *replicas*, with one thread or GPU each, is data parallelism:
# [`DataParallel`](../minitransformer/training/parallel/data_parallel.py).
#
# ## Averaging checkpoints (optional)
#
# While the rate is not yet small, a training run jitters around the place where it is heading. The mean of the last few
# saved weights, or [checkpoints](glossary.md#checkpoint), is often nearer to that place than any of them (§6.1: the
# last 5 of base, the last 20 of big). It is a mean of the weights, in one line. We judge it on the validation set:

# %%
model = models["post-norm, warm-up"]
kept = stops["post-norm, warm-up"]
for count in (1, 2, 3, 5):
    model.parameters.data[:] = np.mean(kept[-count:], axis=0)
    loss = validation_loss(model)
    print(f"mean of the last {count}, ten steps apart: validation loss {loss:.3f}, perplexity {np.exp(loss):.1f}")
model.parameters.data[:] = kept[-1]

# %% [markdown]
# A few checkpoints that lie close together help, and older ones help less: this run is still falling, and its past is
# worse. Near the end of a long run, where the loss is nearly level, it pays to average more of them.
#
# ## A run that can stop (optional)
#
# A training run of days will be interrupted. What has to be saved, so that it goes on as if nothing had happened, to
# the last bit? Here is a run as an object, as everyone writes it first. It draws its batches and its dropout from a
# random generator:


# %%
class Run:
    """A training run that can be asked to go on."""

    def __init__(self, seed=0):
        self.model = small_model(seed=seed, dropout=0.1)
        self.theta = self.model.parameters.data  # (P,), the weights themselves
        self.m, self.v = np.zeros_like(self.theta), np.zeros_like(self.theta)
        self.step = 0
        self.rng = np.random.default_rng(seed)

    def train(self, steps):
        for _ in range(steps):
            self.step += 1
            batch = batches.batch(0, int(self.rng.integers(len(batches))))
            dropout = DropoutStream(seed=int(self.rng.integers(2**31)), step=0)
            self.model.parameters.zero_grad()
            _, cache = self.model.loss(
                batch.source, batch.target_in, batch.target_out, label_smoothing=0.1, dropout=dropout
            )
            self.model.loss_backward(1.0, cache)
            grad, rate = self.model.parameters.grad, with_warmup(self.step)
            self.theta[:], self.m, self.v = adam_step(self.theta, grad, self.m, self.v, step=self.step, lr=rate)


def restore(run, saved):
    """Put saved values into a new run: arrays are written into, the rest is replaced."""
    for name, value in saved.items():
        if isinstance(value, np.ndarray):
            getattr(run, name)[:] = value
        else:
            setattr(run, name, copy.deepcopy(value))


# %% [markdown]
# ### Exercise 5 ★☆☆: save it, as copies
#
# The run goes on after it was saved, and must not change the saved state.


# %% tags=["exercise"]
def save(run):
    """Everything that `restore` needs so that a new run goes on exactly as `run` would.

    run has the attributes theta, m, v (arrays), step (int) and rng (a generator), which all change as it trains
    → dict from the names of these five to copies of their values.
    """
    raise NotImplementedError


# %%
save = check(save)

# %% [markdown] tags=["help"]
# What happens to the saved values when the run goes on and writes into the same arrays?
#
# ---
#
# Five values change: `theta`, `m`, `v`, `step`, `rng`. Each must be a copy that shares nothing with the run.
# `copy.deepcopy` copies arrays and generators alike; `getattr(run, name)` gives an attribute by its name.

# %%
straight = Run()
straight.train(10)
saved = save(straight)
straight.train(10)

resumed = Run(seed=1)  # another start, all of which must be overwritten
restore(resumed, saved)
resumed.train(10)
print("20 steps, and 10 + 10 in two runs, to the last bit:", np.array_equal(straight.theta, resumed.theta))

# %% [markdown]
# It also works with less. The package has no generator to save: the next batch follows from (seed, step), and so do the
# dropout masks. Its checkpoints hold the weights, $m$, $v$ and the step.
# [A test](../tests/training/test_resume.py) kills a training run at random moments, resumes it, and compares the files
# byte by byte.
#
# **A resumed run that forgot Adam's moments**, its running means, goes on, but with a jolt. With only one gradient in
# $m$ and $v$, every weight moves equally far, noise or not (by 0.66 and not by 1, since the bias correction counts 101
# steps). Take a run after a hundred steps, and its next step with the moments, and without:

# %%
straight.train(100 - straight.step)
saved = save(straight)
for name, forgotten in (("all restored", {}), ("no moments", {"m": 0 * saved["m"], "v": 0 * saved["v"]})):
    run = Run(seed=1)
    restore(run, saved | forgotten)
    run.train(1)
    moved = np.abs(run.theta - saved["theta"]) / with_warmup(run.step)  # in learning rates
    print(f"{name:<13} the weights move by {moved.mean():.2f} learning rates on average, "
          f"the middle eight tenths by {np.quantile(moved, 0.1):.2f} to {np.quantile(moved, 0.9):.2f}")  # fmt: skip

# %% [markdown]
# ## Common mistakes, and what they look like
#
# **Gradients that are not cleared.** Backwards add. Without `zero_grad` a step follows the sum of all gradients so far:

# %%
model = small_model()
for times in (1, 2, 3):
    _, cache = model.loss(batch.source, batch.target_in, batch.target_out)
    model.loss_backward(1.0, cache)
    print(f"backward number {times}: norm of the gradient {np.linalg.norm(model.parameters.grad):.2f}")

# %% [markdown]
# **Padding in the mean.** Padding is easy to predict, and there is much of it. A model that counts it reports a loss
# that is too low, and still lower for batches with more padding.
#
# **The perplexity of a smoothed loss.** With label smoothing (lesson 01) the loss cannot reach 0, even if the model is
# always right and exactly as sure as the smoothed target. The exponential of this loss is no perplexity. Measure
# perplexity without smoothing:

# %%
epsilon, V = 0.1, 37_000
target = np.full(V, epsilon / V)
target[0] += 1 - epsilon
least = -np.sum(target * np.log(target))
print(f"least possible smoothed loss, ε = {epsilon}, V = {V:,}: {least:.2f}; its exponential: {np.exp(least):.1f}")

# %% [markdown]
# ## What changed since 2017
#
# The default today is AdamW (Loshchilov and Hutter 2019): Adam with weight decay, which makes every weight a little
# smaller in each step, beside Adam's step and not through its gradient. $\beta_2$ is 0.95 to 0.99, clipping is at norm
# 1, and after the warm-up the rate falls along a cosine or a straight line to nearly zero. Optimisers that treat a
# matrix as a matrix (Muon, 2024) have begun to compete.
#
# ## Where next
#
# [Lesson 10](10_translator.ipynb): the loop runs for longer, and translates.
