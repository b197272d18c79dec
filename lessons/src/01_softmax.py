# %% [markdown]
# # 01 · Softmax, cross-entropy, gradient descent
#
# **You will be able to** turn scores into probabilities without an overflow, differentiate the loss that language
# models are trained with, and minimise it step by step.
#
# | | |
# |---|---|
# | you know | lesson [00](00_gradients.ipynb): vector–Jacobian products, `linear`, central differences |
# | runs in | 20 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §3.2.1, eq. 1 (the softmax inside attention); §3.4 (the one at the output); §5.4 (label smoothing) |
# | in the package | [`ops`](../minitransformer/ops): `softmax.py`, `cross_entropy.py` |
#
# A network computes **scores** (or logits): a number $x_i$ of any size for each option. Softmax turns them into
# probabilities. A Transformer needs it at its output, over the vocabulary, and inside every attention head, over the
# sentence.

# %%
import numpy as np

from course import start
from course.lesson_01.pictures import draw_descent, draw_jacobians, draw_losses_and_slopes, draw_overflow, draw_regions
from minitransformer.gradcheck import error, numerical_gradient
from minitransformer.ops import cross_entropy_forward, linear_backward, linear_forward

check = start("01")
rng = np.random.default_rng(0)

# %% [markdown]
# ## From scores to probabilities
#
# $$ y_i = \frac{e^{x_i}}{\sum_j e^{x_j}} $$
#
# Exponentials are positive, and the division makes them sum to 1. In a ratio of two probabilities the sum cancels: $y_i
# / y_j = e^{x_i - x_j}$. So **only differences of scores count**. Here is the formula in loops, with the same number
# added to all three scores:


# %%
def softmax_loops(x):
    """y[i] = exp(x[i]) / Σ_j exp(x[j]), one number at a time."""
    total = 0.0
    for score in x:
        total += np.exp(score)
    return np.array([np.exp(score) / total for score in x])


x = np.array([2.0, 1.0, -1.0])
for shift in (0, 5, 1000, -1000):
    with np.errstate(all="ignore"):
        print(f"{shift:>5} added to each score: probabilities", softmax_loops(x + shift).round(3))

# %% [markdown]
# The formula is right, but the program is not. Beyond the largest float the exponential is infinite, and ∞ / ∞ is NaN,
# "not a number". At the other end all are 0, and 0 / 0 is NaN too.
#
# ### Exercise 1 ★☆☆: a stable softmax
#
# You may subtract a number from all scores of a row before you take the exponential. Which number, so that nothing
# overflows and the sum cannot be 0? Work over the last axis, with any number of axes before it.


# %% tags=["exercise"]
def softmax(x):
    """y_i = exp(x_i) / Σ_j exp(x_j) over the last axis of x (..., n), for scores of any size → y, of x's shape."""
    raise NotImplementedError


# %%
softmax = check(softmax)

# %% [markdown] tags=["help"]
# exp is dangerous for large positive numbers only. Which number must you subtract so that none is above 0, while at
# least one is exactly 0, whose exponential is 1?
#
# ---
#
# Subtract the row's maximum: `x - x.max(axis=-1, keepdims=True)`. Without `keepdims=True` the axis disappears, and the
# subtraction no longer lines up row by row. The sum in the denominator needs it too.

# %% [markdown]
# ### The stable softmax in float32 (optional)
#
# Compare the formula with your [softmax](glossary.md#softmax) in float32. The same number is added to all three scores,
# so nothing should change.

# %%
shifts = np.linspace(-140, 140, 561, dtype=np.float32)
scores = x.astype(np.float32) + shifts[:, None]  # (S, 3)
with np.errstate(all="ignore"):
    naive = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
draw_overflow(shifts, naive, softmax(scores))

# %% [markdown]
# On the left the formula fails even before the grey bands: the exponentials near them have only a few bits left, and
# the probabilities jitter. With the row's maximum subtracted, the largest exponent is 0 and the sum is at least 1.
# Whatever underflows to 0 now is too small to matter.
#
# ## The Jacobian: how scores compete
#
# Write $y_i = e^{x_i} / S$ with $S = \sum_k e^{x_k}$. How does $y_i$ move with the score $x_j$? The quotient rule for
# $u / S$ gives $u' / S - u\,S' / S^2$. Here $S' = e^{x_j}$, since only one term of the sum moves, and $u' =
# \delta_{ij}\,e^{x_i}$, where $\delta_{ij}$ is 1 if $i = j$ and 0 otherwise. So
#
# $$ \frac{\partial y_i}{\partial x_j} = \frac{\delta_{ij}\, e^{x_i}}{S} - \frac{e^{x_i} e^{x_j}}{S^2}
#    = y_i\,(\delta_{ij} - y_j) $$


# %%
def jacobian(y):
    """J[i, j] = ∂y_i / ∂x_j of a softmax with output y (n,): y on the diagonal, minus all products y_i y_j."""
    return np.diag(y) - np.outer(y, y)


# %% [markdown]
# Here it is for five scores, scaled by three factors. Green is positive, purple negative.

# %% tags=["picture"]
x, scales = np.array([2.0, 1.2, 0.4, -0.4, -1.2]), (0.1, 1, 5)
outputs = np.stack([softmax(scale * x) for scale in scales])  # (3, 5)
jacobians = np.stack([jacobian(y) for y in outputs])  # (3, 5, 5)
draw_jacobians([f"scores × {scale:g}" for scale in scales], outputs, jacobians)

# %% [markdown]
# * **The diagonal is positive, the rest negative.** If one score gains, the others lose.
# * **Rows and columns sum to 0.** A row, because the same number added to all scores changes nothing. A column, because
#   the probabilities always sum to 1.
# * **On the right almost nothing is left.** If one probability is nearly 1, the softmax is *saturated*, and hardly any
#   gradient passes through it. This is why the paper divides attention's scores by $\sqrt{d_k}$ (lesson 04).
#
# ## The product, without the matrix
#
# Again we never build the Jacobian, and compute $J^\top \mathrm{d}y$. For one row:
#
# $$ \mathrm{d}x_j = \sum_i \mathrm{d}y_i\, \frac{\partial y_i}{\partial x_j}
#    = \sum_i \mathrm{d}y_i\, y_i\, (\delta_{ij} - y_j) $$
#
# ### Exercise 2 ★☆☆: finish the derivation, and write it
#
# Split this sum in two. In the first half only one term has $\delta_{ij} = 1$. The second half contains a sum that is
# the same for every $j$. So no matrix is needed.


# %% tags=["exercise"]
def softmax_backward(dy, y):
    """Gradient of the scores. dy (..., n), y = softmax(x) (..., n) → dx (..., n); no Jacobian is built."""
    raise NotImplementedError


# %%
softmax_backward = check(softmax_backward)

# %% [markdown] tags=["help"]
# In $\sum_i \mathrm{d}y_i\, y_i\, \delta_{ij}$ all terms are 0 except one. Which one? In $\sum_i \mathrm{d}y_i\, y_i\,
# y_j$, which factor can you take out of the sum, and what is left inside?
#
# ---
#
# $\mathrm{d}x_j = y_j\,\big(\mathrm{d}y_j - \sum_i y_i\, \mathrm{d}y_i\big)$. In words: a score's gradient is its own
# d$y$ minus the average d$y$ (weighted by $y$), times its probability. The sum is one number for each row:
# `(dy * y).sum(axis=-1, keepdims=True)`.

# %%
rows, dy = rng.standard_normal((4, 5)), rng.standard_normal((4, 5))
y = softmax(rows)
slow = np.stack([jacobian(y[n]).T @ dy[n] for n in range(len(y))])
measured = numerical_gradient(lambda rows: np.sum(dy * softmax(rows)), rows)
print(f"against Jᵀ dy, row by row   {error(softmax_backward(dy, y), slow):.1e}")
print(f"against central differences {error(softmax_backward(dy, y), measured):.1e}")

# %% [markdown]
# ## Cross-entropy: how surprised was the model?
#
# The model gave probabilities $y$ over $V$ tokens, and then token $t$ came. For a whole text we would multiply the
# probabilities $y_t$, and the product would underflow. So we take the logarithm, which turns the product into a sum,
# change the sign so that less is better, and take the mean over $N$ tokens:
#
# $$ L = -\frac{1}{N} \sum_n \log y_{n, t_n} $$
#
# A model that is certain of the right token has loss 0; a uniform guess has $\log V$. (The unit is called nat.) Again
# $y_t$ may underflow, and $\log 0 = -\infty$. But the logarithm undoes the exponential, so on paper, with $m$ the row's
# maximum:
#
# $$ \log y_t = \log \frac{e^{x_t - m}}{\sum_j e^{x_j - m}} = (x_t - m) - \log \sum_j e^{x_j - m} $$
#
# ### Its gradient is the simplest of all
#
# The paper's target (§5.4) gives each of the $V$ tokens a small share $\varepsilon / V$, and the rest to $t$. This is
# [**label smoothing**](glossary.md#label-smoothing), with $\varepsilon = 0.1$. For one token
#
# $$ q_v = (1 - \varepsilon)\,\delta_{vt} + \frac{\varepsilon}{V}, \qquad L = -\sum_v q_v \log y_v $$
#
# and $\varepsilon = 0$ is the loss above. Now the gradient. The derivative of the logarithm gives $\mathrm{d}y_v = -q_v
# / y_v$. The softmax's backward is $\mathrm{d}x_v = y_v\,(\mathrm{d}y_v - \sum_u y_u\, \mathrm{d}y_u)$. Its sum is
# $-\sum_u q_u = -1$, so
#
# $$ \mathrm{d}x_v = y_v\,(\mathrm{d}y_v + 1) = y_v - q_v $$
#
# **Probabilities minus the target.** The factor $1 / y_v$, which explodes where the model is badly wrong, cancels with
# the $y_v$ of the softmax.
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
# do you make $q$ when `targets` holds one column number for each row? And the loss is a mean over rows: how does that
# change the gradient of each row?
#
# ---
#
# `q = np.full((N, V), label_smoothing / V)`, then `q[np.arange(N), targets] += 1 - label_smoothing`. With `shifted` for
# the [logits](glossary.md#logits) minus their row's maximum, `log_y = shifted - np.log(np.exp(shifted).sum(axis=-1,
# keepdims=True))`. Then $L = -\sum q \log y \,/\, N$, and dlogits is $(y - q) / N$.

# %%
logits, targets = rng.standard_normal((6, 5)), rng.integers(0, 5, 6)
loss, dlogits = cross_entropy(logits, targets, 0.1)
theirs, _ = cross_entropy_forward(logits, targets, label_smoothing=0.1)
measured = numerical_gradient(lambda z: cross_entropy(z, targets, 0.1)[0], logits)
print(f"loss against the package            {error(loss, theirs):.1e}")
print(f"dlogits against central differences {error(dlogits, measured):.1e}")

# %% [markdown]
# ### Why not the squared error? (optional)
#
# The squared error $\tfrac12 \sum_i (y_i - \delta_{it})^2$ may look as natural. Compare the two losses for two tokens,
# where the right one's score is ahead of the other by a gap $g$:

# %%
gap = np.linspace(-10, 10, 201)
p = softmax(np.stack([gap, np.zeros_like(gap)], axis=-1))  # (G, 2): the first is right
squared_slope = softmax_backward(p - np.array([1.0, 0.0]), p)[:, 0]
draw_losses_and_slopes(
    gap,
    {"cross-entropy": -np.log(p[:, 0]), "squared error": (1 - p[:, 0]) ** 2},
    {"cross-entropy": p[:, 0] - 1, "squared error": squared_slope},
    xlabel="gap g, right minus wrong score",
    alt="Where the wrong score is far ahead, cross-entropy has a slope near −1; the squared error is high and flat.",
)

# %% [markdown]
# Look at the left ends, where the model is sure and wrong. [Cross-entropy](glossary.md#cross-entropy) has a slope of
# almost −1 there, a strong pull. The squared error is at its highest, and flat: its slope has to pass through the
# saturated softmax, which lets nothing through.
#
# ### How label smoothing limits the scores (optional)
#
# Without smoothing a larger gap always lowers cross-entropy, so the scores grow without end. With label smoothing the
# gradient $y - q$ is zero where $y = q$, at a finite gap. Here the right token is ahead of all $V - 1$ others by $g$:

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
    alt="Without smoothing the loss falls with the gap towards 0; with it the loss has a minimum, and rises again.",
    mark=(best_gap, floor),
)
print(f"best gap {best_gap:.1f}, where the loss is {floor:.2f} nats; a uniform guess has {np.log(V):.2f}")

# %% [markdown]
# Beyond the green dot the slope is positive: the loss pushes the right score back. A smoothed loss never reaches 0, so
# do not compare it with an unsmoothed one. (In this repository's demo the training loss stays *above* the validation
# loss, which is measured without smoothing.) The paper reports that smoothing makes perplexity ($e^L$) worse, "as the
# model learns to be more unsure", but improves accuracy and BLEU, the score of lesson 11.
#
# There are two conventions for the shares. The one above (Szegedy et al. 2016, §7, and PyTorch) gives every token
# $\varepsilon / V$, the right one too. The paper's own code gave $\varepsilon / (V - 1)$ to every token except the
# right one. With a vocabulary as large as this the difference is invisible; with five tokens a test can see it.
#
# ## Gradient descent: walk downhill
#
# The gradient points to where the loss grows fastest. So take a step the other way, and repeat:
#
# $$ x \leftarrow x - \eta\, \mathrm{d}x $$
#
# The **learning rate** $\eta$ (eta) scales the step. In a network each step takes a small random **batch** of the data,
# whose gradient is right on average. This is *stochastic* gradient descent.
#
# ### How large may the learning rate be? (optional)
#
# Try three learning rates on a problem with a known answer. Of ten observations six were A, three B and one C. Learn
# three scores, one for each. With the frequencies $f = (0.6, 0.3, 0.1)$ the mean loss is $-\sum_i f_i \log y_i$, and
# its gradient is $y - f$. So the minimum is at $y = f$: **a model trained with cross-entropy learns frequencies.**

# %%
frequencies = np.array([0.6, 0.3, 0.1])


def walk(lr, steps=20):
    """The scores after every step of gradient descent from zero, (steps + 1, 3)."""
    path = [np.zeros(3)]
    for _ in range(steps):
        path.append(path[-1] - lr * (softmax(path[-1]) - frequencies))
    return np.stack(path)


paths = {f"η = {lr:g}": walk(lr) for lr in (0.25, 2.5, 5.5)}
draw_descent(frequencies, paths, outcomes="ABC")
for name, path in paths.items():
    print(f"{name:<9} y after 20 steps: {softmax(path[-1]).round(3)}")

# %% [markdown]
# Each panel is a map of the loss with lines of equal height, from the start (square) to the frequencies (green star).
# (Three scores fit on a flat map because each row of the gradient sums to 0: their sum stays 0.) A small rate is slow,
# a good one arrives in a few steps, and a large one jumps from side to side and never settles.
#
# Where is the limit? Near its minimum the loss is a bowl. Walk in one direction: the slope is your distance from the
# minimum times a number $\lambda$, the curvature. So a step of $\eta$ times the slope multiplies your distance by $1 -
# \eta\lambda$. The distance shrinks only if $\eta < 2 / \lambda$. The steepest direction of the bowl sets the limit.
#
# How steep is it? The curvature is the derivative of the gradient $y - f$, and you know this matrix: it is the
# softmax's Jacobian. The curvatures in its main directions are its *eigenvalues*; NumPy finds them, and the largest one
# counts.

# %%
steepest = np.linalg.eigvalsh(jacobian(frequencies)).max()
print(f"largest curvature {steepest:.3f}, so the learning rate must be below {2 / steepest:.2f}")

# %% [markdown]
# ## All together: a classifier (optional)
#
# Lesson 00's linear layer and this lesson's loss are the output of a Transformer; lesson 08 puts them there. There the
# input is the last layer's vector, and the classes are the tokens. Here the input has two features and there are three
# classes, each a cloud of points, so we can draw it. Each step takes a random batch of 64 points.

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
# better on average (on the points that it has learned from, a model may). The loss does not go to zero because the
# clouds overlap, and the model says so: where they meet, the colours mix.
#
# ## Common mistakes, and what they look like

# %%
scores, right = 20 * np.eye(1000), np.arange(1000)  # 1,000 rows, each with its own right token, and sure of it
for name, logits in (("once", scores), ("twice", softmax(scores))):
    print(f"a perfect model's loss, softmax {name + ':':<6} {cross_entropy(logits, right)[0]:.2g}")

# %% [markdown]
# * **Softmax twice.** The loss takes scores. If you pass probabilities, two of them differ by at most 1: the best
#   possible loss is high and the gradient small, but you get no error.
# * **The wrong axis.** With `axis=0`, or none, the rows no longer sum to 1.
# * **A sum instead of a mean.** The step grows with the batch, and a large one diverges.
#
# ## What changed since 2017 (optional)
#
# The formulas have not changed. But vocabularies have grown, and the logits became the largest array of a training
# step. They are now often computed block by block, together with their gradient, and never stored whole
# ([`linear_cross_entropy`](../minitransformer/ops/cross_entropy.py)). Most large models use no label smoothing.
#
# ## Where next
#
# [Lesson 02](02_text.ipynb): where the tokens come from, and how a token becomes a vector.
