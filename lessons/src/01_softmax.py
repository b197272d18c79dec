# %% [markdown]
# # 01 · Softmax, cross-entropy, gradient descent
#
# **You will be able to** turn scores into probabilities without an overflow, differentiate the loss that language
# models are trained with, and walk down it.
#
# | | |
# |---|---|
# | you know | lesson [00](00_gradients.ipynb): vector–Jacobian products, `linear`, central differences |
# | runs in | 20 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §3.2.1, eq. 1 (the softmax inside attention); §3.4 (the one at the output); §5.4 (label smoothing) |
# | in the package | [`ops`](../minitransformer/ops): `softmax.py`, `cross_entropy.py` |
#
# A network computes **scores** (also called logits): $x$ of shape $(n)$, any real numbers, one for each thing that it
# could choose. Softmax makes probabilities of them. A Transformer does this in two places. At its output, over the
# vocabulary: which token comes next? And inside every attention head, over the sentence: which tokens do I look at?

# %%
import numpy as np

from course import start
from course.lesson_01.pictures import (
    draw_descent,
    draw_jacobians,
    draw_losses_and_slopes,
    draw_overflow,
    draw_regions,
)
from minitransformer.gradcheck import check_gradients, error, numerical_gradient
from minitransformer.ops import cross_entropy_forward, linear_backward, linear_forward, softmax_forward
from minitransformer.ops import softmax_backward as package_softmax_backward

check = start("01")
rng = np.random.default_rng(0)

# %% [markdown]
# ## From scores to probabilities
#
# $$ y_i = \frac{e^{x_i}}{\sum_j e^{x_j}} $$
#
# The exponential makes every score positive, the division makes them sum to 1. Divide two of them and the sum cancels:
# $y_i / y_j = e^{x_i - x_j}$. So **only differences of scores count**, and one more on a score multiplies its odds, its
# probability over that of all the rest, by $e$. In loops:


# %%
def softmax_loops(x):
    """y[i] = exp(x[i]) / Σ_j exp(x[j]), one number at a time."""
    total = 0.0
    for score in x:
        total += np.exp(score)
    y = np.zeros_like(x)
    for i, score in enumerate(x):
        y[i] = np.exp(score) / total
    return y


x = np.array([2.0, 1.0, -1.0])
print("scores       ", x)
print("probabilities", softmax_loops(x).round(3))
print("all scores 5 higher, probabilities moved by", f"{np.abs(softmax_loops(x + 5) - softmax_loops(x)).max():.1e}")

# %% [markdown]
# ### The formula is right, and the program is not
#
# Numbers in a computer end somewhere. Beyond these scores the exponential is infinite:

# %%
for dtype in (np.float16, np.float32, np.float64):
    print(f"{dtype.__name__:<8} exp overflows above {np.log(float(np.finfo(dtype).max)):.1f}")

# %% [markdown]
# Nothing in a network keeps scores below that. So take three scores in float32, add the same number to all of them,
# which must change nothing, and see what the formula makes of it. On the right is the remedy: since only
# differences count, subtract the row's maximum $m$ first.
#
# $$ y_i = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}}, \qquad m = \max_j x_j $$
#
# The largest exponent is now 0. Nothing can overflow, the sum is at least 1, and what underflows to 0 was too small to
# matter.

# %%
shifts = np.linspace(-140, 140, 561, dtype=np.float32)
scores = x.astype(np.float32) + shifts[:, None]  # (S, 3)
with np.errstate(all="ignore"):
    naive = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
below_max = np.exp(scores - scores.max(axis=-1, keepdims=True))
draw_overflow(shifts, naive, below_max / below_max.sum(axis=-1, keepdims=True))

# %% [markdown]
# At the left it is wrong even before it breaks: beside the band, the exponentials have only a few bits left, and the
# probabilities jitter.
#
# ### Exercise 1: a softmax that lasts
#
# Over the last axis, whatever the number of axes before it: a batch of rows is a batch of separate softmaxes.


# %% tags=["exercise"]
def softmax(x):
    """y_i = exp(x_i) / Σ_j exp(x_j) over the last axis of x (..., n), for scores of any size → y, of x's shape."""
    raise NotImplementedError


# %%
softmax = check(softmax)

# %%
rows = rng.standard_normal((4, 5))
theirs, _ = softmax_forward(rows)
print(f"against the loops   {error(softmax(rows), np.stack([softmax_loops(row) for row in rows])):.1e}")
print(f"against the package {error(softmax(rows), theirs):.1e}")
print("with 1,000 on the first score:", softmax(x + np.array([1000, 0, 0])))

# %% [markdown]
# ## The Jacobian: what one score takes from the others
#
# Write $y_i = e^{x_i} / S$ with $S = \sum_k e^{x_k}$ and use the quotient rule. A score $x_j$ stands in the numerator
# of $y_j$ alone ($\partial e^{x_i} / \partial x_j = \delta_{ij}\, e^{x_i}$, where $\delta_{ij}$ is 1 for $i = j$, else
# 0), and in everyone's denominator ($\partial S / \partial x_j = e^{x_j}$):
#
# $$ \frac{\partial y_i}{\partial x_j} = \frac{\delta_{ij}\, e^{x_i}}{S} - \frac{e^{x_i} e^{x_j}}{S^2}
#    = y_i\,(\delta_{ij} - y_j) \qquad\text{that is}\qquad J = \mathrm{diag}(y) - y\,y^\top $$


# %%
def jacobian(y):
    """J[i, j] = ∂y_i / ∂x_j of a softmax with output y (n,)."""
    return np.diag(y) - np.outer(y, y)


x = np.array([2.0, 1.2, 0.4, -0.4, -1.2])
measured = np.stack([numerical_gradient(lambda x, i=i: softmax(x)[i], x) for i in range(len(x))])
print(f"formula against central differences: {error(jacobian(softmax(x)), measured):.1e}")

# %% [markdown]
# Here it is for these five scores, made smaller, as they are, and made larger.

# %% tags=["picture"]
scales = (0.1, 1, 5)
outputs = np.stack([softmax(scale * x) for scale in scales])  # (3, 5)
jacobians = np.stack([jacobian(y) for y in outputs])  # (3, 5, 5)
draw_jacobians([f"scores × {scale:g}" for scale in scales], outputs, jacobians)

# %%
print("largest sum of a row or a column:", f"{max(np.abs(jacobians.sum(a)).max() for a in (1, 2)):.1e}")
print("different from its transpose by: ", f"{np.abs(jacobians - jacobians.swapaxes(1, 2)).max():.1e}")
for scale, matrix in zip(scales, jacobians, strict=True):
    print(f"scores × {scale:<4g}largest slope {matrix.max():.3f}")

# %% [markdown]
# Three things to see.
#
# * **The diagonal is positive, the rest negative.** What a score wins, the others pay.
# * **Rows and columns sum to 0.** Rows, because adding the same to all scores changes nothing. Columns, because the
#   probabilities always sum to 1.
# * **On the right there is almost nothing left.** Where one probability is nearly 1, no score matters any more: the
#   softmax is *saturated*, and hardly any gradient comes through it. This is the paper's reason for dividing
#   attention's scores by $\sqrt{d_k}$ (§3.2.1); lesson 04 measures it.
#
# ## The product, without the matrix
#
# Over the vocabulary of the paper's English–German model, one token's Jacobian would already be this large:

# %%
vocabulary, batch_tokens = 37_000, 25_000
print(f"one token:            {4 * vocabulary**2 / 1e9:.1f} GB as float32")
print(f"a batch of the paper: {4 * vocabulary**2 * batch_tokens / 1e12:.0f} TB")
print(f"what we want of it:   {4 * vocabulary * batch_tokens / 1e9:.1f} GB")

# %% [markdown]
# But we only need $J^\top \mathrm{d}y$, and $J$ is a diagonal minus a product of two vectors. Line by line, for one
# row:
#
# $$ \mathrm{d}x_j = \sum_i \mathrm{d}y_i\, y_i (\delta_{ij} - y_j)
#    = \mathrm{d}y_j\, y_j - y_j \sum_i \mathrm{d}y_i\, y_i
#    = y_j \Big(\mathrm{d}y_j - \underbrace{\sum_i y_i\, \mathrm{d}y_i}_{\text{the mean of d}y\text{ under }y}\Big) $$
#
# It can be read aloud: *a score is pushed as far as its slope differs from the average slope, in proportion to the
# probability that it has.*
#
# ### Exercise 2: a vector–Jacobian product


# %% tags=["exercise"]
def softmax_backward(dy, y):
    """Gradient of the scores. dy (..., n), y = softmax(x) (..., n) → dx (..., n); no Jacobian is built."""
    raise NotImplementedError


# %%
softmax_backward = check(softmax_backward)


# %%
def forward(x):
    """The pair's first half: y, and the cache, which is y too."""
    y = softmax(x)
    return y, y


x, dy = rng.standard_normal((4, 5)), rng.standard_normal((4, 5))
y, cache = softmax_forward(x)
dx = softmax_backward(dy, y)
print(f"against Jᵀ dy, row by row {error(dx, np.stack([jacobian(y[n]).T @ dy[n] for n in range(len(y))])):.1e}")
print(f"against the package       {error(dx, package_softmax_backward(dy, cache)):.1e}")
print(f"central differences say   {check_gradients(forward, softmax_backward, {'x': x})['x']:.1e}")
print(f"each row of dx sums to    {np.abs(dx.sum(axis=-1)).max():.1e}")

# %% [markdown]
# ## Cross-entropy: how surprised were you?
#
# The model gave probabilities $y$ over $V$ tokens, then token $t$ came. How good was that? It gave the truth
# probability $y_t$. A whole text has the product of such probabilities, a number too small for any computer, so take
# the logarithm: the product becomes a sum. Turn the sign, so that less is better, and take the mean over the $N$
# tokens, so that it does not depend on how many there were:
#
# $$ L = -\frac{1}{N} \sum_n \log y_{n, t_n} $$
#
# It is measured in nats. Certainty of the truth costs 0; a model that knows nothing pays $\log V$.
#
# ### Again the formula is right and the program is not
#
# $y_t$ may be too small for a float, and then its logarithm is $-\infty$. The logarithm undoes the exponential, so do
# that on paper:
#
# $$ \log y_t = \log \frac{e^{x_t - m}}{\sum_j e^{x_j - m}} = (x_t - m) - \log \sum_j e^{x_j - m} $$

# %%
far = np.array([0.0, 2000.0])  # the truth is the first one
with np.errstate(divide="ignore"):
    print("−log(softmax(x)):", -np.log(softmax(far))[0])
print("done on paper:   ", -(far[0] - far.max() - np.log(np.exp(far - far.max()).sum())))

# %% [markdown]
# ### Its gradient is the simplest one of all
#
# For one token, $L = -\log y_t$, so $\mathrm{d}y$ is $-1 / y_t$ at place $t$ and 0 elsewhere. Then
# $\sum_i y_i\, \mathrm{d}y_i = -1$, and the product from above gives
#
# $$ \mathrm{d}x_j = y_j\,(\mathrm{d}y_j + 1) = y_j - \delta_{jt} $$
#
# **Probabilities minus the truth.** The $1 / y_t$, which explodes where the model is badly wrong, met the $y_t$ from
# the softmax and is gone. That is why the two are computed together, and it is a good reason for this loss. Compare it
# with one that may look as natural, the squared error $\tfrac12 \sum_i (y_i - \delta_{it})^2$. Two tokens, the right
# one's score ahead by a gap $g$:

# %%
gap = np.linspace(-10, 10, 201)
p = softmax(np.stack([gap, np.zeros_like(gap)], axis=-1))  # (G, 2): the first is right
squared_slope = softmax_backward(p - np.array([1.0, 0.0]), p)[:, 0]
draw_losses_and_slopes(
    gap,
    {"cross-entropy": -np.log(p[:, 0]), "squared error": (1 - p[:, 0]) ** 2},
    {"cross-entropy": p[:, 0] - 1, "squared error": squared_slope},
    xlabel="gap g, right minus wrong score",
)

# %% [markdown]
# Look at the left ends. The model is sure, and wrong. Cross-entropy pulls with a slope of almost −1. The squared error
# is at its highest there, and flat: its slope has to pass through the saturated softmax, and nothing comes out.
#
# ## Label smoothing: do not be too sure
#
# With one right answer, cross-entropy is never content: whatever the gap, a larger one is better, and scores grow
# without end. The paper (§5.4) mixes a little of everything into the truth. Instead of all on $t$, the model should
# predict
#
# $$ q_v = (1 - \varepsilon)\,\delta_{vt} + \frac{\varepsilon}{V}, \qquad
#    L = -\sum_v q_v \log y_v, \qquad \mathrm{d}x = y - q $$
#
# with $\varepsilon = 0.1$. The gradient keeps its form: now $\mathrm{d}y_v = -q_v / y_v$, so $\sum_v y_v\,
# \mathrm{d}y_v = -\sum_v q_v = -1$ as before, and $\mathrm{d}x_v = y_v\,(\mathrm{d}y_v + 1) = y_v - q_v$. It is zero
# where $y = q$, at a finite gap. Here the right token is ahead of all $V - 1$ others by $g$:

# %%
V, smoothing = 37_000, 0.1
gap = np.linspace(0, 30, 301)
p = np.exp(gap) / (np.exp(gap) + V - 1)  # of the right token
log_others = -np.log(np.exp(gap) + V - 1)  # of each other one
losses, slopes = {}, {}
for eps in (0.0, smoothing):
    q = 1 - eps + eps / V
    losses[f"ε = {eps:g}"] = -(q * (gap + log_others) + (1 - q) * log_others)
    slopes[f"ε = {eps:g}"] = p - q
q_right, q_other = 1 - smoothing + smoothing / V, smoothing / V
best_gap, floor = np.log(q_right / q_other), -(q_right * np.log(q_right) + (V - 1) * q_other * np.log(q_other))
draw_losses_and_slopes(gap, losses, slopes, "gap g, right score minus every other", mark=(best_gap, floor))
print(f"best gap {best_gap:.1f}, where the loss is {floor:.2f} nats; a model that knows nothing pays {np.log(V):.2f}")

# %% [markdown]
# Beyond the dot the slope is positive: the loss pushes the right answer back. And a smoothed loss never reaches 0, so
# it is not comparable with one that is not smoothed. The paper says what it buys: perplexity, which is $e^L$, gets
# worse, "as the model learns to be more unsure", and the translations better (accuracy, and BLEU, lesson 11's score).
#
# There are two conventions for the share of the others. The one above, of Szegedy et al. (2016, §7) and of PyTorch,
# gives every token $\varepsilon / V$, the right one too. The paper's own code gave $\varepsilon / (V - 1)$ to every
# token but the right one. With $V$ this large nobody can tell them apart; on five tokens a test can.
#
# ### Exercise 3: the loss and its gradient


# %% tags=["exercise"]
def cross_entropy(logits, targets, label_smoothing=0.0):
    """Mean over the rows of −Σ_v q_v log softmax(logits)_v, where q = (1 − ε)·onehot(target) + ε/V, and its gradient.

    logits (N, V), targets (N,) integers in [0, V), ε = label_smoothing → the tuple loss (one number), dlogits (N, V).
    """
    raise NotImplementedError


# %%
cross_entropy = check(cross_entropy)

# %% [markdown]
# The package has it as a pair: the forward returns the loss and a cache, the backward takes the slope of whatever
# follows the loss. With `ignore_index` it skips padding, which lesson 02 introduces.

# %%
logits, targets = rng.standard_normal((6, 5)), rng.integers(0, 5, 6)
for eps in (0.0, 0.1):
    loss, dlogits = cross_entropy(logits, targets, eps)
    theirs, _ = cross_entropy_forward(logits, targets, label_smoothing=eps)
    measured = numerical_gradient(lambda z, eps=eps: cross_entropy(z, targets, eps)[0], logits)
    print(f"ε = {eps:<3g} the loss against the package {error(loss, theirs):.1e},", end=" ")
    print(f"dlogits against central differences {error(dlogits, measured):.1e}")

# %% [markdown]
# ## Gradient descent: walk downhill
#
# The gradient points to where the loss grows fastest. So take a step the other way, and again:
#
# $$ x \leftarrow x - \eta\, \mathrm{d}x $$
#
# $\eta$, the learning rate, says how far. Try it where the answer is known. Of ten observations six were A, three B and
# one C; learn three scores, one for each. The mean loss is $-\sum_i f_i \log y_i$ with the frequencies
# $f = (0.6, 0.3, 0.1)$, its gradient $y - f$. It must end where $y = f$: **a model trained with cross-entropy learns
# frequencies.**
#
# How large may $\eta$ be? Near the minimum the loss is a bowl. Along a direction of curvature $\lambda$ each step
# multiplies the distance by $1 - \eta\lambda$: it shrinks only if $\eta < 2 / \lambda$. And the curvature, the
# derivative of the gradient $y - f$, is a matrix you know: the softmax's Jacobian. Its largest eigenvalue is the
# largest curvature in any direction, and sets the limit.

# %%
observed = np.repeat([0, 1, 2], [6, 3, 1])
frequencies = np.bincount(observed) / len(observed)
limit = 2 / np.linalg.eigvalsh(jacobian(frequencies)).max()


def walk(lr, steps):
    """The scores after every step of gradient descent from zero, (steps + 1, 3)."""
    x = np.zeros(3)
    path = [x]
    for _ in range(steps):
        _, dlogits = cross_entropy(np.tile(x, (len(observed), 1)), observed)  # (10, 3)
        x = x - lr * dlogits.sum(axis=0)  # the same scores were used for every row: their gradients add
        path.append(x)
    return np.stack(path)


def mean_loss(x):
    """−Σ f log softmax(x) for scores (..., 3)."""
    return -(frequencies * np.log(softmax(x))).sum(axis=-1)


best = np.log(frequencies) - np.log(frequencies).mean()
paths = {f"η = {part:g} × limit": walk(part * limit, 20) for part in (0.05, 0.5, 1.1)}
draw_descent(mean_loss, best, paths, outcomes="ABC")
print(f"limit 2/λ = {limit:.2f}")
for name, path in paths.items():
    print(f"{name:<18} y after 20 steps: {softmax(path[-1]).round(3)}  the scores sum to {abs(path[-1].sum()):.0e}")

# %% [markdown]
# Square: the start. Star: the frequencies. The lines are heights of the loss, and each step begins at a right angle to
# them. A small rate creeps, a good one is there in a few steps, one beyond the limit jumps from side to side and never
# settles. All three stay on the plane where the scores sum to 0, because each row of the gradient sums to 0, which is
# why the walk can be drawn on paper.
#
# ## All together: a classifier
#
# Lesson 00's linear layer, then this lesson's loss: that is the output of a Transformer. There the input is the last
# layer's vector and the classes are tokens. Here the input has two features and there are three classes, each a cloud
# of points, so we can see it.
#
# One more thing is real. With much data you do not wait for the gradient of all of it: each step takes a small random
# **batch**, whose gradient is right on average. This is *stochastic* gradient descent.

# %%
centres = np.array([[0.0, 1.6], [-1.5, -0.8], [1.5, -0.8]])
labels = rng.integers(0, 3, 1500)
points = centres[labels] + rng.standard_normal((1500, 2))

weight, bias = np.zeros((2, 3)), np.zeros(3)
losses = []
for _ in range(300):
    batch = rng.integers(0, len(points), 64)
    logits, cache = linear_forward(points[batch], weight, bias)  # (64, 3)
    loss, dlogits = cross_entropy(logits, labels[batch])
    _, dweight, dbias = linear_backward(dlogits, cache)
    weight, bias = weight - 0.3 * dweight, bias - 0.3 * dbias
    losses.append(loss)

# The clouds have one shape, so the true probabilities are softmax(−distance²/2); what is quadratic in it is the same
# for all three and cancels, so a linear layer can express them.
truth = -((points[:, None] - centres) ** 2).sum(axis=-1) / 2  # (1500, 3)
draw_regions(points, labels, lambda at: softmax(at @ weight + bias), np.array(losses), cross_entropy(truth, labels)[0])

# %%
learned = points @ weight + bias
for name, logits in (("learned", learned), ("true", truth)):
    loss, right = cross_entropy(logits, labels)[0], (logits.argmax(axis=-1) == labels).mean()
    print(f"{name:<8}on all points: loss {loss:.3f}, most probable class right {right:.1%}")

# %% [markdown]
# The red line is the loss of the very probabilities that the points were drawn with. On new points no model does better
# on average; on the points that it learned from it may come out a hair ahead, having learned a little of their chance.
# The loss does not go to zero because the clouds overlap, and the model says so: where they meet, the colours mix.
#
# ## Common mistakes, and what they look like

# %%
eye = np.eye(1000)  # 1,000 rows, each with its own right token
scores, right = 20 * eye, np.arange(1000)
print(f"softmax twice: a perfect model's loss is {cross_entropy(softmax(scores), right)[0]:.2f}, not", end=" ")
print(f"{cross_entropy(scores, right)[0]:.1e}")

y = np.exp(rows) / np.exp(rows).sum(axis=0, keepdims=True)
print("the wrong axis: rows sum to", y.sum(axis=-1).round(2))

_, dlogits = cross_entropy(learned, labels)
step, step_of_sum = 0.3 * dlogits.sum(axis=0), 0.3 * (dlogits * len(labels)).sum(axis=0)
print(f"a sum, not a mean: the bias moves {np.abs(step_of_sum).max() / np.abs(step).max():.0f} times as far in a step")

# %% [markdown]
# * **Softmax twice.** The loss takes scores. Give it probabilities, and the gap between two of them is at most 1:
#   the best possible loss is high, the gradient small, and nothing complains.
# * **The wrong axis.** `axis=0`, or none. The rows no longer sum to 1. In attention it would mix sentences.
# * **A sum instead of a mean.** The step now grows with the batch, and the learning rate that worked yesterday diverges
#   on a larger machine.
# * **A smoothed loss next to one that is not.** The training loss of this repository's demo stays *above* its
#   validation loss, which is measured without smoothing. That is the floor you saw, and not a bug.
#
# ## What changed since 2017
#
# The formulas have not changed; how they are computed has. Vocabularies have grown until the logits were the largest
# array of a training step, so they are now often made block by block, together with their gradient, and never stored
# whole (the package's [`linear_cross_entropy`](../minitransformer/ops/cross_entropy.py) does this). Large language
# models are mostly trained without label smoothing; some add a penalty on $\log^2 S$, which keeps scores from drifting
# (PaLM, 2022).
#
# ## Where next
#
# [Lesson 02](02_text.ipynb): where the tokens come from, and how a token becomes a vector.
