# %% [markdown]
# # 09 · Training: batches, Adam, warm-up, and a run that can stop
#
# **You will be able to** write the optimiser and the loop that train the model, say what each rule of the paper's
# recipe is for, and split, stop and resume a training without changing a bit of it.
#
# | | |
# |---|---|
# | you know | the [whole model](08_model.ipynb) and its gradients; tokens (02); cross-entropy (01) |
# | runs in | at most 60 s on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §5.1 (batches), §5.3 (Adam, eq. 3), §5.4, §6.1 (averaging) |
# | in the package | [`training`](../minitransformer/training): optimizer, step, trainer |
#
# The gradient says which way is down, for every weight at once. This lesson is about going there: how many tokens to
# ask, how far to step, and how to do it for days on machines that stop. One rule of the recipe is the difference
# between a translator and nothing at all, and we shall watch it.

# %%
import copy

import matplotlib.pyplot as plt
import numpy as np

from course import recorded, start
from course.lesson_09.pictures import draw_batches, draw_schedules, draw_trainings
from course.style import BLUE, VERMILION
from minitransformer import Transformer, TransformerConfig
from minitransformer.data.batching import Batches
from minitransformer.data.token_dataset import TokenDataset
from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.gradcheck import error
from minitransformer.grammar import pairs
from minitransformer.layers import DropoutStream
from minitransformer.ops import adam_step as package_adam_step
from minitransformer.training.optimizer import clip_scale

check = start("09")
rng = np.random.default_rng(0)

# %% [markdown]
# English and German from the grammar of lesson 02, as ids:

# %%
VOCABULARY = 400


def dataset(split, count):
    return TokenDataset.from_pairs(
        [(tokenizer.encode(english), tokenizer.encode(german)) for english, german in pairs(split, seed=0, count=count)]
    )


texts = [text for pair in pairs("train", seed=0, count=300) for text in pair]
tokenizer = BPETokenizer.train(texts, VOCABULARY)
training, validation = dataset("train", 1200), dataset("valid", 100)
print(f"{len(training):,} pairs, {training.target_lengths.mean():.0f} target tokens on average, "
      f"{training.target_lengths.max()} at most")  # fmt: skip

# %% [markdown]
# ## Batches: counted in tokens, of about the same length
#
# A batch is a rectangle of ids, and sentences are not: what is shorter than the longest is filled with padding, for
# which all the arithmetic is done and thrown away. So sentences of about the same length go together ("batched together
# by approximate sequence length", §5.1), and a batch holds as many as give about the same number of *tokens*. A batch
# of short sentences is tall, one of long sentences is wide, and both weigh the same.


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
    "Random company (target side)": cut(lengths, 600)[:6],
    "Sorted by length": [cut(np.sort(lengths), 600)[i] for i in (5, 25, 45, 60, 75, 85)],
})  # fmt: skip

# %% [markdown]
# If the epoch went through the sorted list from short to long, the model would be pulled one way and then the other. So
# the *batches* are shuffled after they are cut, and ties are broken anew in every epoch.
# [`Batches`](../minitransformer/data/batching.py) does this, and does it as a function: batch $i$ of epoch $e$ follows
# from (seed, $e$, $i$) alone. Keep that in mind for the end of the lesson.

# %%
batches = Batches(training, tokens_per_batch=384, seed=0, vocab_size=VOCABULARY)
batch = batches.batch(epoch=0, index=0)
print(f"{len(batches)} batches an epoch; the first: source {batch.source.shape}, target {batch.target_in.shape}, "
      f"{batch.num_target_tokens} target tokens that count")  # fmt: skip

# %% [markdown]
# ## The number to watch: perplexity
#
# The loss is the mean of $-\log p$ over the target tokens that are not padding. Its exponential is the **perplexity**:
# the model is as unsure as if it had to choose among so many tokens, all equally likely. A model that knows nothing has
# the perplexity of the vocabulary; one that knows how often each token occurs, and no more, that of the frequencies:

# %%
counts = np.bincount(np.concatenate([[*target, 2] for _, target in training]), minlength=VOCABULARY)
shares = counts[counts > 0] / counts.sum()
frequency_loss = -np.sum(shares * np.log(shares))
print(f"knows nothing:     loss {np.log(VOCABULARY):.2f}, perplexity {VOCABULARY}")
print(f"knows frequencies: loss {frequency_loss:.2f}, perplexity {np.exp(frequency_loss):.0f}")

# %% [markdown]
# ## Adam
#
# Gradient descent, $\theta \leftarrow \theta - \eta\, g$, has one rate $\eta$ for every weight. But the gradients of a
# Transformer differ by orders of magnitude: lesson 08's layers among each other, matrices from norms, and in the table
# of tokens the row of a rare word hears far less than that of a full stop. A rate that suits one is too long or too
# short for another.
#
# Adam (Kingma and Ba 2015) keeps two running means for every weight, of the gradient and of its square:
#
# $$ m \leftarrow \beta_1 m + (1 - \beta_1)\, g \qquad\qquad v \leftarrow \beta_2 v + (1 - \beta_2)\, g^2 $$
#
# and steps by their ratio, so that the size of the gradient drops out and its consistency remains: $m / \sqrt v$ is
# near $\pm 1$ where the gradient keeps its sign, and near 0 where it is noise.
#
# Both start at 0, so at first both are too small: after $t$ steps with a constant $g$, $m = (1 - \beta_1^t)\, g$.
# Dividing by this factor mends it (*bias correction*):
#
# $$ \hat m = \frac{m}{1 - \beta_1^t} \qquad \hat v = \frac{v}{1 - \beta_2^t} \qquad
#    \theta \leftarrow \theta - \eta\, \frac{\hat m}{\sqrt{\hat v} + \epsilon} $$
#
# with $t = 1, 2, \dots$ The paper takes $\beta_1 = 0.9$, $\beta_2 = 0.98$, $\epsilon = 10^{-9}$.
#
# ### Exercise 1: Adam


# %% tags=["exercise"]
def adam_step(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    """One step of Adam; the arrays given stay as they are.

    theta, grad, m, v (P,), step counted from 1, lr the learning rate → the tuple theta, m, v, after the step.
    """
    raise NotImplementedError


# %%
adam_step = check(adam_step)

# %% [markdown]
# Ten steps of yours beside the package's [`adam_step`](../minitransformer/ops/adam.py), which updates in place, block
# by block, so that its passes stay in the cache; and beside PyTorch's:

# %%
start_at, grads = rng.standard_normal(1000), rng.standard_normal((10, 1000))
theta, m, v = start_at, np.zeros(1000), np.zeros(1000)
flat, flat_m, flat_v = start_at.copy(), np.zeros(1000), np.zeros(1000)
for step, grad in enumerate(grads, 1):
    theta, m, v = adam_step(theta, grad, m, v, step, lr=0.01)
    package_adam_step(flat, grad, flat_m, flat_v, step=step, lr=0.01)


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
# (if it is far above $\epsilon$), whether it was signal or noise. All weights of the model take a full step on the word
# of one batch.
#
# ## Warm-up
#
# Which brings us to equation 3 of the paper:
#
# $$ \eta(t) = d_{model}^{-0.5} \cdot \min\big(t^{-0.5},\; t \cdot w^{-1.5}\big) $$
#
# For $w$ = `warmup_steps` = 4000 steps the rate climbs in a straight line from almost nothing. There the two terms meet
# ($w^{-0.5} = w \cdot w^{-1.5}$), at the peak $(d_{model}\, w)^{-0.5}$. From then on it falls with $1/\sqrt t$,
# whatever $w$ was: four times the steps, half the rate.


# %%
def noam(step, d_model, warmup_steps):
    """Equation 3, by its name in the authors' code."""
    return d_model**-0.5 * np.minimum(step**-0.5, step * warmup_steps**-1.5)


steps = np.arange(1.0, 20_001)
draw_schedules({
    "base: width 512, w = 4000": noam(steps, 512, 4000),
    "big: width 1024, w = 4000": noam(steps, 1024, 4000),
    "width 512, w = 1000": noam(steps, 512, 1000),
})  # fmt: skip
print(f"peak of base: {noam(4000.0, 512, 4000):.1e}   at step 16,000: {noam(16_000.0, 512, 4000):.1e}")

# %% [markdown]
# ### The picture: what happens without it
#
# A loop with everything so far. The weights are one flat array (lesson 08), so a step of the optimiser is one call:


# %%
def gradient_norm(layer):
    """The norm of the gradient of all parameters of one layer."""
    return np.sqrt(sum((parameter.grad**2).sum() for _, parameter in layer.named_parameters()))


def train(model, rate, steps, keep_every=10):
    """Train on `batches` with the rate of each step.

    Returns the losses, the norm of the gradient in the decoder's lowest layer, and copies of the weights on the way.
    """
    theta, losses, lowest, kept = model.parameters.data, [], [], []
    m, v = np.zeros_like(theta), np.zeros_like(theta)
    for step in range(1, steps + 1):
        batch = batches.batch(*divmod(step - 1, len(batches)))
        model.parameters.zero_grad()
        loss, cache = model.loss(batch.source, batch.target_in, batch.target_out)
        model.loss_backward(1.0, cache)
        theta[:], m, v = adam_step(theta, model.parameters.grad, m, v, step, rate(step))
        losses.append(float(loss))
        lowest.append(gradient_norm(model.decoder.layers[0]))
        if step % keep_every == 0:
            kept.append(theta.copy())
    return np.array(losses), np.array(lowest), kept


# %% [markdown]
# Three trainings of the same small model, four layers in each stack, on the same batches in the same order:
#
# * post-norm, as the paper prints it, with warm-up to a peak;
# * the same without the way up: the rate begins at that peak, and is the same from step $w$ on;
# * pre-norm (lesson 08), also without.

# %% tags=["picture"]
PEAK, WARMUP, STEPS = 5e-3, 150, 300


def small_model(norm_first=False, seed=0, **options):
    return Transformer(
        TransformerConfig(VOCABULARY, d_model=32, num_heads=4, d_ff=128, num_layers=4, max_length=128,
                          norm_first=norm_first, **{"dropout": 0.0} | options),
        seed=seed,
    )  # fmt: skip


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
losses, lowest, stops = {}, {}, {}
for name, (_, rate) in WAYS.items():
    losses[name], lowest[name], stops[name] = train(models[name], rate, STEPS)
rates = {name: np.array([rate(step) for step in range(1, STEPS + 1)]) for name, (_, rate) in WAYS.items()}
draw_trainings(rates, losses, lowest, frequency_loss)
for name, values in losses.items():
    print(f"{name:<24} last 20 steps: loss {values[-20:].mean():.2f}, perplexity {np.exp(values[-20:].mean()):.0f}")

# %% [markdown]
# Without warm-up the post-norm model learns the frequencies of words within a few dozen steps, faster than the same
# model with warm-up, and then nothing more. It has not exploded; no number is infinite. It has died, and the lowest
# panel shows when: within the first twenty or thirty steps, at the full rate, all weights at once. After them hardly
# any gradient comes down to the bottom of the decoder. The top layer and the table go on learning, and all that they
# can learn alone is frequencies.
#
# How can one tell from outside? A model that works gives different logits at different places. Compare how far the
# logits of a word vary over the positions of a batch with how far words differ:

# %%
print(f"{'':<24} varies over places   lowest layer's gradient, step 20 against step 1")
for name, model in models.items():
    logits, _ = model.forward(batch.source, batch.target_in)
    logits = logits[batch.target_out != 0]  # (N, V): real positions only
    varies = logits.std(axis=0).mean() / logits.mean(axis=0).std()
    print(f"{name:<24} {varies:18.3f} {lowest[name][19] / lowest[name][0]:20.4f}")

# %% [markdown]
# The dead model says the same everywhere, whatever it reads. With warm-up the gradient at the bottom falls too, but not
# so far, and recovers: watch it turn as the loss breaks away from the dotted line. Pre-norm gets through without
# warm-up; its gradients were level to begin with (lesson 08; Xiong and others 2020).
#
# A warning about experiments of this kind: the result depends on the peak. With a lower one this small post-norm model
# would live without warm-up, and in [the report](paper/paper.md), at a peak many times higher, pre-norm dies too.
# Lesson 08's other remedy, a start at half of Xavier's bound, is yours to try: `small_model(init_gain=0.5)`, without
# warm-up, and with more than one `seed`.
#
# ## Large batches on small machines: accumulation
#
# The paper's batches have about 25,000 source and 25,000 target tokens, on eight GPUs. A machine that cannot hold so
# many takes them in parts and adds the gradients. Backwards add into `grad` anyway. But mind what is added. The loss of
# the whole batch is the mean over *all* its $n$ target tokens; part $i$ gives the mean over its own $n_i$. From
#
# $$ L = \frac1n \sum_{\text{tokens}} \ell
#    \;=\; \sum_i \frac{n_i}{n} \Big( \frac{1}{n_i} \sum_{\text{tokens of } i} \ell \Big)
#    = \sum_i \frac{n_i}{n} L_i $$
#
# each part counts by its share of the targets. Parts hardly ever hold equally many: sentences are not equally long.
#
# ### Exercise 2: the gradient of a large batch, from its parts


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

# %% [markdown]
# A batch at once, and the same in four parts, in float64, **with dropout on**. It works because a mask belongs to a
# sentence by its number (lesson 07), and `part.first` says which number a part begins with:

# %%
model = Transformer(small_model(dropout=0.1).config, dtype="float64")


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
# The same sum over *replicas*, one thread or GPU each, is data parallelism:
# [`DataParallel`](../minitransformer/training/step.py).
#
# ## Clipping
#
# Now and then a batch has a gradient far longer than the others. The paper does not mention it, and most recipes guard
# against it: if the norm of all gradients together exceeds $c$, scale them all to length $c$ (Pascanu and others 2013),
# `g *= min(1, c / norm)`. The direction stays. Adam does not mind the scale of gradients in general, but it minds one
# that sticks out: $v$ forgets it only by a factor $\beta_2$ a step, and until then all steps are too short. One weight
# with a steady gradient of 1, and one accident of 100 at step 30:


# %%
def step_lengths(clip_norm):
    """How far Adam moves one weight at each step, in learning rates."""
    theta, m, v, moved = np.zeros(1), np.zeros(1), np.zeros(1), []
    for step in range(1, 151):
        grad = np.array([100.0 if step == 30 else 1.0])
        before = theta
        theta, m, v = adam_step(theta, grad * clip_scale(float(np.abs(grad[0])), clip_norm), m, v, step, lr=1.0)
        moved.append((before - theta)[0])
    return moved


_, axes = plt.subplots(figsize=(7.2, 2.6))
axes.plot(range(1, 151), step_lengths(None), color=VERMILION, label="as it came")
axes.plot(range(1, 151), step_lengths(2.0), color=BLUE, label="clipped to norm 2")
axes.set(xlabel="step", ylabel="length of the step (learning rates)", title="A gradient of 100 among gradients of 1")
axes.set_ylim(0, 1.9)
axes.legend(loc="upper right")
plt.show()
print(f"50 steps later: {step_lengths(None)[79]:.2f} as it came, {step_lengths(2.0)[79]:.2f} clipped")

# %% [markdown]
# ## Averaging checkpoints
#
# A training with a rate that is not yet small jitters around where it is going. The mean of the last few stops is often
# nearer to it than any of them (§6.1: the last 5 checkpoints of base, the last 20 of big). Of the weights, in one line,
# and then judged on sentences that were not trained on:

# %%
model = models["post-norm, warm-up"]
valid_batches = [Batches(validation, 2000, seed=0).batch(0, i) for i in range(len(Batches(validation, 2000, seed=0)))]


def validation_loss(theta):
    """The mean over all target tokens of the validation pairs: the shares of exercise 2 again."""
    model.parameters.data[:] = theta
    total = sum(
        float(model.loss(b.source, b.target_in, b.target_out, with_grad=False)[0]) * b.num_target_tokens
        for b in valid_batches
    )
    return total / sum(b.num_target_tokens for b in valid_batches)


kept = stops["post-norm, warm-up"]
for count in (1, 2, 3, 5):
    loss = validation_loss(np.mean(kept[-count:], axis=0))
    print(f"mean of the last {count}, ten steps apart: validation loss {loss:.3f}, perplexity {np.exp(loss):.1f}")
model.parameters.data[:] = kept[-1]

# %% [markdown]
# A few stops close together help, and older ones less: this run is still falling, and its past is worse. Near the end
# of a long training, where the loss is nearly level, more of them pay.
#
# ## A run that can stop
#
# A training that takes days will be interrupted. What has to be saved, so that it goes on as if nothing had happened,
# to the bit? Here is a training as an object, of the kind that everyone writes first. It draws its batches and its
# dropout from a random generator:


# %%
class Run:
    """A training that can be asked to go on."""

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
            _, cache = self.model.loss(batch.source, batch.target_in, batch.target_out, 0.1, dropout)
            self.model.loss_backward(1.0, cache)
            grad = self.model.parameters.grad
            self.theta[:], self.m, self.v = adam_step(
                self.theta, grad, self.m, self.v, self.step, with_warmup(self.step)
            )


def restore(run, saved):
    """Put what was saved into a new run: arrays are written into, the rest is replaced."""
    for name, value in saved.items():
        if isinstance(value, np.ndarray):
            getattr(run, name)[:] = value
        else:
            setattr(run, name, copy.deepcopy(value))


# %% [markdown]
# ### Exercise 3: what has to be saved
#
# The run goes on after it was saved, and must not change what was saved.


# %% tags=["exercise"]
def save(run):
    """Everything that `restore` needs so that a new run goes on exactly as `run` would.

    run has the attributes theta, m, v (arrays), step (int) and rng (a generator), which all change as it trains
    → dict from the names of these five to copies of their values.
    """
    raise NotImplementedError


# %%
save = check(save)

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
# It can be had with less. In the package there is no generator to save: which batch comes next follows from (seed,
# step), and so do the dropout masks. What step 1,000 does can be told without taking the 999 before it. Its checkpoints
# hold weights, $m$, $v$ and the step, and [a test](../tests/test_resume.py) kills a training at random moments, resumes
# it, and compares the files byte by byte.
#
# ## Common mistakes
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
# that is too low, and lower for batches with more padding:

# %%
logits, _ = models["post-norm, warm-up"].forward(mixed.source, mixed.target_in)
shifted = logits - logits.max(axis=-1, keepdims=True)
log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))  # (B, Tt, V)
token_loss = -np.take_along_axis(log_p, mixed.target_out[..., None], axis=-1)[..., 0]  # (B, Tt)
real = mixed.target_out != 0
token_loss[~real] = -np.log(0.99)  # as if it had learned to say padding
for name, chosen in (("the tokens that count", token_loss[real]), ("the whole rectangle", token_loss)):
    print(f"mean over {name:<22} {chosen.mean():.2f}")

# %% [markdown]
# **The perplexity of a smoothed loss.** With label smoothing (lesson 01) the loss cannot reach 0 even if the model is
# always right and as sure as it was told to be. Its exponential is no perplexity; measure that without smoothing:

# %%
epsilon, V = 0.1, 37_000
target = np.full(V, epsilon / V)
target[0] += 1 - epsilon
least = -np.sum(target * np.log(target))
print(f"least possible smoothed loss, ε = {epsilon}, V = {V:,}: {least:.2f}; its exponential: {np.exp(least):.1f}")

# %% [markdown]
# **A resumed run that forgot Adam's moments.** It goes on, with a bump: with one gradient in $m$ and $v$ every weight
# moves equally far, noise or not. A hundred steps into a run, the next with the moments and with none in their place:

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
# ## What changed since 2017
#
# Weight decay applied beside Adam and not through its gradient (AdamW, Loshchilov and Hutter 2019) is the default now,
# with $\beta_2$ of 0.95 to 0.99, clipping at norm 1, a warm-up of some hundred to some thousand steps,
# and a decay by a cosine or a straight line to nearly zero in place of $1/\sqrt t$. Optimisers that treat a matrix as a
# matrix (Muon, 2024) have begun to compete.
#
# ## Where next
#
# [Lesson 10](10_translator.ipynb): the loop runs for longer, and translates.
