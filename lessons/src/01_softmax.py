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
# A network computes **scores** (also called logits): one number $x_i$, of any size, for each thing that it could
# choose. Softmax makes probabilities of them. A Transformer does this in two places. At its output, over the
# vocabulary: which token comes next? And inside every attention head, over the sentence: which tokens do I look at?

# %%
import numpy as np

from course import start
from course.lesson_01.pictures import draw_descent, draw_jacobians, draw_losses_and_slopes, draw_overflow, draw_regions
from minitransformer.gradcheck import check_gradients, error, numerical_gradient
from minitransformer.ops import cross_entropy_forward, linear_backward, linear_forward

check = start("01")
rng = np.random.default_rng(0)

# %% [markdown]
# ## From scores to probabilities
#
# $$ y_i = \frac{e^{x_i}}{\sum_j e^{x_j}} $$
#
# The exponential makes every score positive. The division makes them sum to 1. Divide one probability by another, and
# the sum cancels: $y_i / y_j = e^{x_i - x_j}$. So **only differences of scores count**. Here is the formula in loops,
# with three scores, and then with the same number added to all three:


# %%
def softmax_loops(x):
    """y[i] = exp(x[i]) / Σ_j exp(x[j]), one number at a time."""
    total = 0.0
    for score in x:
        total += np.exp(score)
    return np.array([np.exp(score) / total for score in x])


x = np.array([2.0, 1.0, -1.0])
print(f"the largest float64 is about e to the power of {np.log(np.finfo(np.float64).max):.1f}")
for shift in (0, 5, 1000, -1000):
    with np.errstate(all="ignore"):
        print(f"{shift:>5} added to each score: probabilities", softmax_loops(x + shift).round(3))

# %% [markdown]
# The formula is right, and the program is not. Beyond the largest float the exponential is infinite, and ∞ / ∞ is NaN,
# "not a number". At the other end all exponentials become 0, and 0 / 0 is NaN too. Nothing in a network keeps its
# scores small.
#
# ### Exercise 1 ★☆☆: a softmax that lasts
#
# Only differences count, so you may subtract a number from all scores of a row before you take the exponential. Which
# number, so that nothing can overflow and the sum cannot be 0? Work over the last axis, with any number of axes before
# it: a batch of rows is a batch of separate softmaxes.


# %% tags=["exercise"]
def softmax(x):
    """y_i = exp(x_i) / Σ_j exp(x_j) over the last axis of x (..., n), for scores of any size → y, of x's shape."""
    raise NotImplementedError


# %%
softmax = check(softmax)

# %% [markdown] tags=["help"]
# exp is dangerous for large positive numbers only. What must you subtract so that no number above 0 is left, while at
# least one number stays at 0, whose exponential is 1?
#
# ---
# The row's maximum: `x - x.max(axis=-1, keepdims=True)`. Without `keepdims=True` the axis is gone, and the subtraction
# no longer lines up row by row. The sum below the fraction line needs it too.

# %% [markdown]
# ### What the remedy does
#
# The three scores again, now in float32: on the left the formula, on the right your [softmax](glossary.md#softmax). The
# same number is added to all three. Nothing should change.

# %%
shifts = np.linspace(-140, 140, 561, dtype=np.float32)
scores = x.astype(np.float32) + shifts[:, None]  # (S, 3)
with np.errstate(all="ignore"):
    naive = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
draw_overflow(shifts, naive, softmax(scores))

# %% [markdown]
# On the left the formula is wrong even before it breaks: at the edge of the grey band the exponentials have only a few
# bits left, and the probabilities jitter. With the row's maximum subtracted, the largest exponent is 0, and the sum is
# at least 1. What becomes 0 now was too small to matter.
#
# ## The Jacobian: what one score takes from the others
#
# Write $y_i = e^{x_i} / S$ with $S = \sum_k e^{x_k}$. How does $y_i$ move with the score $x_j$? The derivative of a
# fraction $u / S$ is $u' / S - u\,S' / S^2$. Here $S' = e^{x_j}$, since one term of the sum moves. And $u' =
# \delta_{ij}\,e^{x_i}$, where $\delta_{ij}$ means "1 if $i = j$, else 0". So
#
# $$ \frac{\partial y_i}{\partial x_j} = \frac{\delta_{ij}\, e^{x_i}}{S} - \frac{e^{x_i} e^{x_j}}{S^2}
#    = y_i\,(\delta_{ij} - y_j) $$


# %%
def jacobian(y):
    """J[i, j] = ∂y_i / ∂x_j of a softmax with output y (n,): y on the diagonal, minus all products y_i y_j."""
    return np.diag(y) - np.outer(y, y)


x = np.array([2.0, 1.2, 0.4, -0.4, -1.2])
measured = np.stack([numerical_gradient(lambda x, i=i: softmax(x)[i], x) for i in range(len(x))])
print(f"formula against central differences: {error(jacobian(softmax(x)), measured):.1e}")

# %% [markdown]
# Here it is for these five scores: made smaller, as they are, and made larger. Green is positive, purple is negative.

# %% tags=["picture"]
scales = (0.1, 1, 5)
outputs = np.stack([softmax(scale * x) for scale in scales])  # (3, 5)
jacobians = np.stack([jacobian(y) for y in outputs])  # (3, 5, 5)
draw_jacobians([f"scores × {scale:g}" for scale in scales], outputs, jacobians)

# %% [markdown]
# Three things to see.
#
# * **The diagonal is positive, the rest negative.** What one score wins, the others lose.
# * **Rows and columns sum to 0.** A row, because the same number added to all scores changes nothing. A column, because
#   the probabilities always sum to 1.
# * **On the right almost nothing is left.** Where one probability is nearly 1, no score matters any more. The softmax
#   is *saturated*, and hardly any gradient comes through it. For this reason the paper divides attention's scores by
#   $\sqrt{d_k}$ (§3.2.1); lesson 04 measures it.
#
# ## The product, without the matrix
#
# The paper's English–German vocabulary has about 37,000 tokens. How large is the Jacobian of one token's softmax?

# %%
vocabulary = 37_000
print(f"the Jacobian: {4 * vocabulary**2 / 1e9:.1f} GB as float32;   dx: {4 * vocabulary / 1e6:.2f} MB")

# %% [markdown]
# But we only need $J^\top \mathrm{d}y$. For one row:
#
# $$ \mathrm{d}x_j = \sum_i \mathrm{d}y_i\, \frac{\partial y_i}{\partial x_j}
#    = \sum_i \mathrm{d}y_i\, y_i\, (\delta_{ij} - y_j) $$
#
# ### Exercise 2 ★☆☆: finish the derivation, and write it
#
# Split this sum in two. In the first half $\delta_{ij}$ leaves only one term. The second half holds a sum that is the
# same for every $j$. So no matrix is needed.


# %% tags=["exercise"]
def softmax_backward(dy, y):
    """Gradient of the scores. dy (..., n), y = softmax(x) (..., n) → dx (..., n); no Jacobian is built."""
    raise NotImplementedError


# %%
softmax_backward = check(softmax_backward)

# %% [markdown] tags=["help"]
# In $\sum_i \mathrm{d}y_i\, y_i\, \delta_{ij}$ all terms are 0 except one. Which one? In $\sum_i \mathrm{d}y_i\, y_i\,
# y_j$, what can stand in front of the sum, and what is then left inside?
#
# ---
# $\mathrm{d}x_j = y_j\,\big(\mathrm{d}y_j - \sum_i y_i\, \mathrm{d}y_i\big)$. The sum is one number for each row:
# `(dy * y).sum(axis=-1, keepdims=True)`.


# %%
def forward(x):
    """The pair's first half: y, and the cache, which is y too."""
    y = softmax(x)
    return y, y


rows, dy = rng.standard_normal((4, 5)), rng.standard_normal((4, 5))
y = softmax(rows)
slow = np.stack([jacobian(y[n]).T @ dy[n] for n in range(len(y))])
print(f"against Jᵀ dy, row by row {error(softmax_backward(dy, y), slow):.1e}")
print(f"central differences say   {check_gradients(forward, softmax_backward, {'x': rows})['x']:.1e}")

# %% [markdown]
# The result can be read aloud:
#
# $$ \mathrm{d}x_j = y_j \Big(\mathrm{d}y_j - \underbrace{\sum_i y_i\, \mathrm{d}y_i}_{\text{the mean of d}y
#    \text{ under }y}\Big) $$
#
# *A score moves as far as its slope differs from the average slope, in proportion to its probability.*
#
# ## Cross-entropy: how surprised were you?
#
# The model gave probabilities $y$ over $V$ tokens. Then token $t$ came. How good was that? The model gave the truth the
# probability $y_t$. A whole text has the product of all these probabilities, a number too small for any computer. So
# take the logarithm: the product becomes a sum. Change the sign, so that less is better, and take the mean over the $N$
# tokens:
#
# $$ L = -\frac{1}{N} \sum_n \log y_{n, t_n} $$
#
# A model that is certain of the truth pays 0. A model that knows nothing pays $\log V$. (The unit is called nat.)
#
# Again the program needs care: $y_t$ may be too small for a float, and $\log 0 = -\infty$. But the logarithm undoes the
# exponential. So do that on paper, with $m$ the row's maximum:
#
# $$ \log y_t = \log \frac{e^{x_t - m}}{\sum_j e^{x_j - m}} = (x_t - m) - \log \sum_j e^{x_j - m} $$
#
# ### Its gradient is the simplest of all
#
# The paper (§5.4) mixes a little of everything into the truth. The model should not predict $t$ with certainty, but
# give each of the $V$ tokens a small share $\varepsilon / V$, and the rest to $t$. This is [**label
# smoothing**](glossary.md#label-smoothing):
#
# $$ q_v = (1 - \varepsilon)\,\delta_{vt} + \frac{\varepsilon}{V}, \qquad L = -\sum_v q_v \log y_v $$
#
# for one token, with $\varepsilon = 0.1$. For $\varepsilon = 0$ it is the loss above. Now the gradient. By the
# derivative of the logarithm, $\mathrm{d}y_v = -q_v / y_v$. So the sum in the softmax's backward is $\sum_v y_v\,
# \mathrm{d}y_v = -\sum_v q_v = -1$, and
#
# $$ \mathrm{d}x_v = y_v\,(\mathrm{d}y_v + 1) = y_v - q_v $$
#
# **Probabilities minus the truth.** The $1 / y_v$, which explodes where the model is badly wrong, has met the $y_v$ of
# the softmax and is gone. So the two are computed together.
#
# ### Exercise 3 ★★☆: the loss and its gradient


# %% tags=["exercise"]
def cross_entropy(logits, targets, label_smoothing=0.0):
    """Mean over the rows of −Σ_v q_v log softmax(logits)_v, where q = (1 − ε)·onehot(target) + ε/V, and its gradient.

    logits (N, V), targets (N,) integers in [0, V), ε = label_smoothing → the tuple loss (one number), dlogits (N, V).
    """
    raise NotImplementedError


# %%
cross_entropy = check(cross_entropy)

# %% [markdown] tags=["help"]
# Everything follows from two arrays of shape $(N, V)$: $\log y$, which you never take from a probability, and $q$. How
# do you make $q$ when `targets` holds one column number for each row? And the loss is a mean over rows: what does that
# do to the gradient of each row?
#
# ---
#
# `q = np.full((N, V), label_smoothing / V)`, then `q[np.arange(N), targets] += 1 - label_smoothing`. With `shifted`
# for the [logits](glossary.md#logits) minus their row's maximum, `log_y = shifted - np.log(np.exp(shifted).sum(axis=-1,
# keepdims=True))`. Then $L = -\sum q \log y \,/\, N$, and dlogits is $(y - q) / N$.

# %%
logits, targets = rng.standard_normal((6, 5)), rng.integers(0, 5, 6)
for eps in (0.0, 0.1):
    loss, dlogits = cross_entropy(logits, targets, eps)
    theirs, _ = cross_entropy_forward(logits, targets, label_smoothing=eps)
    measured = numerical_gradient(lambda z, eps=eps: cross_entropy(z, targets, eps)[0], logits)
    print(f"ε = {eps:<3g} the loss against the package {error(loss, theirs):.1e},", end=" ")
    print(f"dlogits against central differences {error(dlogits, measured):.1e}")

# %% [markdown]
# ### Why not the squared error? (optional)
#
# The squared error $\tfrac12 \sum_i (y_i - \delta_{it})^2$ may look as natural. Compare the two losses where there are
# two tokens, and the right one's score is ahead of the other by a gap $g$:

# %%
gap = np.linspace(-10, 10, 201)
p = softmax(np.stack([gap, np.zeros_like(gap)], axis=-1))  # (G, 2): the first is right
squared_slope = softmax_backward(p - np.array([1.0, 0.0]), p)[:, 0]
draw_losses_and_slopes(
    gap,
    {"cross-entropy": -np.log(p[:, 0]), "squared error": (1 - p[:, 0]) ** 2},
    {"cross-entropy": p[:, 0] - 1, "squared error": squared_slope},
    xlabel="gap g, right minus wrong score",
    alt="Cross-entropy and squared error against the gap between right and wrong score, and their slopes. Where the "
    "model is sure and wrong, cross-entropy has a slope of almost −1; the squared error is flat there.",
)

# %% [markdown]
# Look at the left ends. There the model is sure, and wrong. [Cross-entropy](glossary.md#cross-entropy) has a slope of
# almost −1: it pulls hard. The squared error is at its highest there, and flat. Its slope has to pass through the
# saturated softmax, and nothing comes out.
#
# ### What label smoothing does (optional)
#
# With one right answer, cross-entropy never has enough: whatever the gap, a larger one is better, and the scores grow
# without end. With label smoothing the gradient $y - q$ is zero where $y = q$, at a finite gap. Here the right token is
# ahead of all $V - 1$ others by $g$:

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
draw_losses_and_slopes(
    gap,
    losses,
    slopes,
    xlabel="gap g, right score minus every other",
    alt="The loss with and without label smoothing against the gap. Without it the loss falls on and on; with it there "
    "is a lowest point at a finite gap, beyond which the slope is positive.",
    mark=(best_gap, floor),
)
print(f"best gap {best_gap:.1f}, where the loss is {floor:.2f} nats; a model that knows nothing pays {np.log(V):.2f}")

# %% [markdown]
# Beyond the green dot the slope is positive: the loss pushes the right answer back. And a smoothed loss never reaches
# 0, so do not compare it with one that is not smoothed. The paper says what smoothing brings: perplexity, which is
# $e^L$, gets worse, "as the model learns to be more unsure", but accuracy and BLEU, the score of lesson 11, get better.
#
# There are two conventions for the shares. The one above, of Szegedy et al. (2016, §7) and of PyTorch, gives every
# token $\varepsilon / V$, the right one too. The paper's own code gave $\varepsilon / (V - 1)$ to every token except
# the right one. With a vocabulary as large as this, the difference is invisible; with five tokens a test can see it.
# Label smoothing comes back in lesson 09, which trains with it.
#
# ## Gradient descent: walk downhill
#
# The gradient points to where the loss grows fastest. So take a step the other way, and again:
#
# $$ x \leftarrow x - \eta\, \mathrm{d}x $$
#
# $\eta$ (eta) is the **learning rate**: it says how far. Try it where the answer is known. Of ten observations six were
# A, three B and one C. Learn three scores, one for each. With the frequencies $f = (0.6, 0.3, 0.1)$ the mean loss is
# $-\sum_i f_i \log y_i$, and its gradient is $y - f$. So the walk must end where $y = f$: **a model trained with
# cross-entropy learns frequencies.**

# %%
observed = np.repeat([0, 1, 2], [6, 3, 1])
frequencies = np.bincount(observed) / len(observed)


def walk(lr, steps=20):
    """The scores after every step of gradient descent from zero, (steps + 1, 3)."""
    path = [np.zeros(3)]
    for _ in range(steps):
        _, dlogits = cross_entropy(np.tile(path[-1], (len(observed), 1)), observed)  # (10, 3)
        path.append(path[-1] - lr * dlogits.sum(axis=0))  # every row used the same scores: their gradients add
    return np.stack(path)


paths = {f"η = {lr:g}": walk(lr) for lr in (0.25, 2.5, 5.5)}
draw_descent(frequencies, paths, outcomes="ABC")
for name, path in paths.items():
    print(f"{name:<9} y after 20 steps: {softmax(path[-1]).round(3)}")

# %% [markdown]
# Each picture is a map of the loss; a grey line joins places of equal height. (Three scores fit on a flat map because
# each row of the gradient sums to 0: the walk never leaves the plane where the scores sum to 0.) The black square is
# the start, the green star the frequencies. A small rate creeps. A good one arrives in a few steps. A large one jumps
# from side to side and never settles.
#
# A network has too much data to use all of it for each step. A step takes a small random **batch**, whose gradient is
# right on average. This is *stochastic* gradient descent.
#
# ### How large may the learning rate be? (optional)
#
# Near its lowest point the loss is a bowl. Walk in one direction: the slope is your distance from the lowest point,
# times a number $\lambda$, the curvature. So a step of $\eta$ times the slope multiplies your distance by $1 -
# \eta\lambda$. The distance shrinks only if $\eta < 2 / \lambda$. The steepest direction of the bowl sets the limit.
#
# How steep is it? The curvature is the derivative of the gradient $y - f$, and that is a matrix that you know: the
# softmax's Jacobian. The curvatures in its main directions are called its *eigenvalues*; NumPy finds them, and the
# largest counts.

# %%
steepest = np.linalg.eigvalsh(jacobian(frequencies)).max()
print(f"largest curvature {steepest:.3f}, so the learning rate must be below {2 / steepest:.2f}")

# %% [markdown]
# ## All together: a classifier (optional)
#
# Lesson 00's linear layer, then this lesson's loss: that is the output of a Transformer, and lesson 08 puts it there.
# The input there is the last layer's vector, and the classes are tokens. Here the input has two features and there are
# three classes, each a cloud of points, so we can see it. Each step takes a random batch of 64 points.

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

# The clouds have one shape, so the true probabilities are softmax(−distance²/2). Their quadratic part is the same for
# all three classes and cancels, so a linear layer can express them.
truth = -((points[:, None] - centres) ** 2).sum(axis=-1) / 2  # (1500, 3)
draw_regions(points, labels, lambda at: softmax(at @ weight + bias), np.array(losses), cross_entropy(truth, labels)[0])

# %%
for name, logits in (("learned", points @ weight + bias), ("true", truth)):
    loss, right = cross_entropy(logits, labels)[0], (logits.argmax(axis=-1) == labels).mean()
    print(f"{name:<8}on all points: loss {loss:.3f}, most probable class right {right:.1%}")

# %% [markdown]
# The green line is the loss of the true probabilities, from which the points were drawn. On new points no model does
# better on average (on the points that it has learned from, a model may). The loss does not go to zero because
# the clouds overlap, and the model says so: where they meet, the colours mix.
#
# ## Common mistakes, and what they look like

# %%
scores, right = 20 * np.eye(1000), np.arange(1000)  # 1,000 rows, each with its own right token, and sure of it
print(f"softmax twice: a perfect model's loss is {cross_entropy(softmax(scores), right)[0]:.2f}, not", end=" ")
print(f"{cross_entropy(scores, right)[0]:.1e}")

y = np.exp(rows) / np.exp(rows).sum(axis=0, keepdims=True)
print("the wrong axis: rows sum to", y.sum(axis=-1).round(2))

# %% [markdown]
# * **Softmax twice.** The loss takes scores. Give it probabilities, and the gap between two of them is at most 1: the
#   best possible loss is high, the gradient small, and nothing complains.
# * **The wrong axis.** `axis=0`, or none. The rows no longer sum to 1. In attention this mixes sentences.
# * **A sum instead of a mean.** The step grows with the batch, so a rate that is good for a small batch diverges for a
#   large one.
# * **A smoothed loss beside one that is not.** The training loss of this repository's demo stays *above* its validation
#   loss, which is measured without smoothing. This is no bug: a smoothed loss cannot reach 0.
#
# ## What changed since 2017
#
# The formulas have not changed. But vocabularies have grown, and the logits became the largest array of a training
# step. So they are now often made block by block, together with their gradient, and never stored whole (as in the
# package's [`linear_cross_entropy`](../minitransformer/ops/cross_entropy.py)). Most large language models are trained
# without label smoothing.
#
# ## Where next
#
# [Lesson 02](02_text.ipynb): where the tokens come from, and how a token becomes a vector.
