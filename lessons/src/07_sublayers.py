# %% [markdown]
# # 07 · Around attention: feed-forward, residual, layer norm, dropout
#
# **You will be able to** write and prove the four parts that stand around attention in every layer, and say what would
# go wrong without each.
#
# | | |
# |---|---|
# | you know | the chain rule on arrays ([00](00_gradients.ipynb)), attention ([04](04_attention.ipynb)) |
# | runs in | at most 20 s on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §3.1 (Add & Norm), §3.3 and eq. 2 (feed-forward), §5.4 (residual dropout) |
# | in the package | [`layernorm`](../minitransformer/ops/norms.py), [dropout](../minitransformer/ops/dropout.py) |
#
# Attention moves information between positions. The other parts of a layer let it do so many layers deep. The paper
# says it in one line, [Add & Norm](glossary.md#add--norm). Dropout (§5.4) sets random numbers to 0 in training:
#
# $$ \mathrm{LayerNorm}\big(x + \mathrm{Dropout}(\mathrm{Sublayer}(x))\big) $$
#
# The sub-layer is attention or the feed-forward network. We take the line apart, from the inside out.

# %%
import numpy as np

from course import recorded, start
from course.lesson_07 import pictures as draw
from course.lesson_07.stack import run_stack
from minitransformer import ops
from minitransformer.gradcheck import GradientError, check_gradients, error

check = start("07")
rng = np.random.default_rng(0)

# %% [markdown]
# ## The feed-forward network: each position alone
#
# $$ \mathrm{FFN}(x) = \max(0,\; x W_1 + b_1)\, W_2 + b_2 $$
#
# $x$ has shape $(T, C)$: $T$ positions of $C$ channels each. $W_1$ has shape $(C, F)$, $W_2$ has $(F, C)$, and the
# biases have $(F,)$ and $(C,)$. In the paper's base model $C = 512$ and $F = 2048$.
#
# Read it as $F$ questions. Column $f$ of $W_1$ asks a position one question, and the relu, $\max(0, \cdot)$, keeps the
# answer if it is positive. The answer times row $f$ of $W_2$ is added to the output. The loops show that no position
# sees another:


# %%
def feed_forward_loops(x, weight1, bias1, weight2, bias2):
    """Eq. 2, a position at a time and a hidden unit at a time."""
    y = np.zeros_like(x)
    for t in range(len(x)):
        y[t] = bias2
        for f in range(len(bias1)):
            answer = x[t] @ weight1[:, f] + bias1[f]
            if answer > 0:
                y[t] += answer * weight2[f]
    return y


# %% [markdown]
# ### Exercise 1 ★☆☆: the feed-forward network
#
# Write it without loops: two products serve all positions at once. Return also the arrays that a backward needs.


# %% tags=["exercise"]
def feed_forward_forward(x, weight1, bias1, weight2, bias2):
    """Equation 2: max(0, x W₁ + b₁) W₂ + b₂, for every position at once.

    x (T, C), weight1 (C, F), bias1 (F,), weight2 (F, C), bias2 (C,) → the tuple y (T, C), cache.
    cache is the tuple (x, active, weight1, weight2), with active (T, F) the output of the relu.
    """
    raise NotImplementedError


# %%
feed_forward_forward = check(feed_forward_forward)

# %% [markdown] tags=["help"]
# The loop over $t$ does the same for every row of $x$. Which operation of lesson 00 does the same for every row? And
# what do the two loops compute before they look at the sign, seen as one array of shape $(T, F)$?
#
# ---
#
# `hidden = x @ weight1 + bias1` has shape $(T, F)$, and `active = np.maximum(0, hidden)`. The output needs one more
# product and one more bias. The backward needs `active` twice: for the gradient of `weight2`, and to see where the relu
# was open.

# %% [markdown]
# The backward is two linear maps of lesson 00 with the relu between them. Where `active` is 0 the relu was shut, and no
# gradient comes through:


# %%
def feed_forward_backward(dy, cache):
    """The forward, read from its end: the gradients of x, weight1, bias1, weight2, bias2."""
    x, active, weight1, weight2 = cache
    dweight2, dbias2 = active.T @ dy, dy.sum(axis=0)  # y = active @ weight2 + bias2
    dhidden = (dy @ weight2.T) * (active > 0)  # active = max(0, hidden)
    dweight1, dbias1 = x.T @ dhidden, dhidden.sum(axis=0)  # hidden = x @ weight1 + bias1
    return dhidden @ weight1.T, dweight1, dbias1, dweight2, dbias2


T, C, F = 8, 16, 64
x = rng.standard_normal((T, C))
shapes = {"weight1": (C, F), "bias1": F, "weight2": (F, C), "bias2": C}
weights = {name: rng.standard_normal(shape) / 4 for name, shape in shapes.items()}
y, cache = feed_forward_forward(x, *weights.values())
print(f"loops against two products: {error(y, feed_forward_loops(x, *weights.values())):.1e}")
for name, worst in check_gradients(feed_forward_forward, feed_forward_backward, {"x": x} | weights).items():
    print(f"d{name:<8} against central differences {worst:.1e}")

# %% [markdown]
# Attention mixes positions, the [feed-forward network](glossary.md#feed-forward-network) mixes channels. It also has
# most of an encoder layer's weights: two matrices of $C \times F$ with $F = 4C$, beside attention's four of
# $C \times C$.
#
# ### Who talks to whom (optional)
#
# Which inputs does an output depend on? Feed d$y$ in at one position $t$ only, and see at which positions d$x$ is not
# zero.


# %%
def influence(forward, backward):
    """(T, T): how long the gradient is at each position s, of a random direction of the output at each t."""
    out, cache = forward(x)
    reached = np.zeros((T, T))
    for t in range(T):
        dout = np.zeros_like(out)
        dout[t] = rng.standard_normal(C)
        reached[t] = np.linalg.norm(backward(dout, cache), axis=-1)
    return reached


def self_attention_forward(x):
    """One head, whose queries, keys and values are x itself; a small scale spreads its attention for the picture."""
    out, cache = ops.attention_forward(x[None, None], x[None, None], x[None, None], scale=0.1)  # (1, 1, T, C)
    return out[0, 0], cache


reached = {
    "self-attention": influence(
        self_attention_forward, lambda dout, cache: sum(ops.attention_backward(dout[None, None], cache))[0, 0]
    ),
    "feed-forward": influence(
        lambda x: feed_forward_forward(x, *weights.values()), lambda dout, cache: feed_forward_backward(dout, cache)[0]
    ),
}
draw.influences(reached)
others = ~np.eye(T, dtype=bool)
print(f"feed-forward, largest gradient off the diagonal: {reached['feed-forward'][others].max():.0f}")
print(f"self-attention, smallest off the diagonal: {reached['self-attention'][others].min():.1e}")

# %% [markdown]
# ## The residual connection
#
# Stack many sub-layers $f_1, \dots, f_n$. On its way back the gradient passes all of them, and each multiplies it by
# its Jacobian, transposed (lesson 00). If each shrinks it a little, nothing is left after many. So do not replace $x$.
# Add to it:
#
# $$ \begin{aligned}
#    &x_l = x_{l-1} + f_l(x_{l-1}) \\
#    &\Longrightarrow\quad \mathrm{d}x_{l-1} = \mathrm{d}x_l + J_l^\top \mathrm{d}x_l = (I + J_l^\top)\,\mathrm{d}x_l
# \end{aligned} $$
#
# Here $J_l$ is the Jacobian of $f_l$, and $I$ the identity matrix. In code it is `dx = dy + sublayer_backward(dy)`: $x$
# was used twice, so its gradients add. The vector that all sub-layers add to is called the
# [residual stream](glossary.md#residual-stream). Along it the gradient reaches the bottom unchanged, whatever the
# sub-layers do.
#
# But what is added is never taken away again. So the numbers grow from layer to layer, forward and backward. The norm
# takes care of that.
#
# ## Layer normalisation
#
# [Layer normalisation](glossary.md#layer-normalisation), for one position's vector $x$ of $C$ channels:
#
# $$ \begin{aligned}
#    &m = \frac1C\sum_c x_c \\
#    &v = \frac1C\sum_c (x_c - m)^2 \\
#    &r = \frac{1}{\sqrt{v + \epsilon}} \\
#    &n_c = (x_c - m)\, r \\
#    &y_c = \gamma_c\, n_c + \beta_c
# \end{aligned} $$
#
# The mean $m$, the variance $v$ and the reciprocal of the standard deviation $r$ (`rstd` in the code) are one number
# for each position. The normed vector $n$ (`normed`) has mean 0 and variance 1. $\gamma$ and $\beta$, of shape $(C,)$,
# are learned, a scale and a shift for each channel; $\epsilon$ keeps us from dividing by zero. No position looks at
# another, so nothing depends on padding, on later words or, unlike in batch normalisation, on the other sentences of
# the batch.
#
# ### Exercise 2 ★☆☆: layer normalisation
#
# Write it for all rows at once. The cache holds the three arrays that the backward will need.


# %% tags=["exercise"]
def layernorm_forward(x, gamma, beta, eps=1e-5):
    """Each row with mean 0 and variance 1, then scaled by gamma and shifted by beta.

    x (N, C), gamma and beta (C,) → the tuple y (N, C), cache.
    cache is the tuple (normed, rstd, gamma): normed (N, C) = (x − mean) · rstd, rstd (N, 1) = 1 / √(variance + eps).
    """
    raise NotImplementedError


# %%
layernorm_forward = check(layernorm_forward)

# %% [markdown] tags=["help"]
# Which numbers belong to a row, and which to a channel? Along which axis is the mean taken, and what shape must it have
# so that it can be subtracted from all channels of its row?
#
# ---
#
# `centred = x - x.mean(axis=-1, keepdims=True)`: `keepdims` makes the mean $(N, 1)$, which fits beside $(N, C)$. The
# variance is the mean of `centred**2`, taken in the same way; `rstd` is 1 over the root of variance + `eps`.

# %% [markdown]
# Against the package:

# %%
rows, gamma, beta = 3 + 2 * rng.standard_normal((6, 5)), rng.standard_normal(5), rng.standard_normal(5)
y, cache = layernorm_forward(rows, gamma, beta)
print(f"arrays against the package: {error(y, ops.layernorm_forward(rows, gamma, beta)[0]):.1e}")

# %% [markdown]
# ### The same in loops (optional)


# %%
def layernorm_loops(x, gamma, beta, eps=1e-5):
    """Position by position, channel by channel."""
    y = np.zeros_like(x)
    N, C = x.shape
    for n in range(N):
        mean = sum(x[n]) / C
        variance = sum((x[n, c] - mean) ** 2 for c in range(C)) / C
        for c in range(C):
            y[n, c] = gamma[c] * (x[n, c] - mean) / np.sqrt(variance + eps) + beta[c]
    return y


print(f"loops against arrays: {error(y, layernorm_loops(rows, gamma, beta)):.1e}")

# %% [markdown]
# ### Exercise 3 ★★★: the backward of layer normalisation
#
# Take the forward in single steps, with $a$ for the centred row:
#
# | forward | backward |
# |---|---|
# | $a = x - \frac1C \sum_c x_c$ | ? |
# | $v = \frac1C \sum_c a_c^2$ | ? |
# | $r = (v + \epsilon)^{-1/2}$ | ? |
# | $n = a\, r$ | ? |
# | $y = \gamma\, n + \beta$ | $\mathrm{d}n = \mathrm{d}y\,\gamma$ |
#
# Fill in the right column on paper, from the last line to the first. Mind three things:
#
# * $a$ is used twice, in $n$ and in $v$, so it gets two gradients, and they add.
# * $r$, $v$ and the mean are one number for the whole row. Every channel uses them, so their gradients are sums over
#   the channels.
# * $\gamma$ and $\beta$ serve every row, so their gradients are sums over the rows.
#
# You get `normed` and `rstd`, not $x$: with $a = n / r$ they are enough.


# %% tags=["exercise"]
def layernorm_backward(dy, normed, rstd, gamma):
    """Gradients of y = gamma · normed + beta, with normed = (x − mean) · rstd, row by row.

    dy and normed (N, C), rstd (N, 1), gamma (C,) → the tuple dx (N, C), dgamma (C,), dbeta (C,).
    """
    raise NotImplementedError


# %%
layernorm_backward = check(layernorm_backward)

# %% [markdown] tags=["help"]
# Begin with $r$, which is one number for the row. How much does $y$ change if $r$ alone moves a little? Every channel
# of $n = a\,r$ moves with it, so $\mathrm{d}r$ is a sum over channels. Then ask the same of $v$, and of the mean.
#
# ---
#
# The right column, from its last line but one to the first:
#
# $$ \begin{aligned}
#    &\mathrm{d}r = \sum_c \mathrm{d}n_c\, a_c \\
#    &\mathrm{d}v = -\tfrac12 r^3\, \mathrm{d}r \\
#    &\mathrm{d}a = r\,\mathrm{d}n + \tfrac2C\, a\, \mathrm{d}v \\
#    &\mathrm{d}x = \mathrm{d}a - \mathrm{mean}(\mathrm{d}a)
# \end{aligned} $$
#
# With $a\,r = n$, the second use of $a$ becomes
# $\tfrac2C\, a\, \mathrm{d}v = -\tfrac1C\, a\, r^3 \sum_c \mathrm{d}n_c\, a_c
# = -\, r\, n\; \mathrm{mean}(\mathrm{d}n \cdot n)$. The last step subtracts the mean of all this over the channels, and
# $n$ itself has mean 0. So
#
# $$ \mathrm{d}x = r\,\big(\mathrm{d}n - \mathrm{mean}(\mathrm{d}n) - n\,\mathrm{mean}(\mathrm{d}n \cdot n)\big) $$

# %% [markdown]
# d$x$ is proportional to $r$: a row of large numbers gets a small gradient. In a deep stack of random sub-layers, the
# numbers and the gradient fade without a residual connection, grow with it alone, and keep their size with a norm. (The
# optional part "Both together" measures it.)

# %%
arrays = {"x": rows, "gamma": gamma, "beta": beta}
for name, worst in check_gradients(layernorm_forward, lambda dy, cache: layernorm_backward(dy, *cache), arrays).items():
    print(f"d{name:<6} against central differences {worst:.1e}")

# %% [markdown]
# ### A second witness (optional)
#
# PyTorch's own layer norm and its autograd, in float64, never saw our derivation:

# %%
dy = rng.standard_normal(rows.shape)
mine = layernorm_backward(dy, *cache)


def against_torch():
    import torch

    tensors = [torch.tensor(array, requires_grad=True) for array in (rows, gamma, beta)]
    out = torch.nn.functional.layer_norm(tensors[0], (rows.shape[1],), *tensors[1:], eps=1e-5)
    out.backward(torch.tensor(dy))
    pairs = zip((y, *mine), (out.detach(), *(tensor.grad for tensor in tensors)), strict=True)
    return [error(ours, torchs.numpy()) for ours, torchs in pairs]


for name, worst in zip(("y", "dx", "dgamma", "dbeta"), recorded("07_layernorm", against_torch), strict=True):
    print(f"{name:<7} against PyTorch {worst:.1e}")

# %% [markdown]
# ### The picture: a circle (optional)
#
# The formula has a shape. Take three channels, so that we can draw it. Subtracting the mean moves every row onto the
# plane where the channels sum to zero. Dividing by the standard deviation then moves it straight out or straight in, to
# the circle of radius $\sqrt C$, because $\sum_c n_c^2 = C$ (up to $\epsilon$). With more channels it is a sphere. Only
# the direction of a row is left.
#
# The gradient has the same shape. Moving $x$ along $(1, 1, 1)$ changes nothing, and moving it straight outwards changes
# nothing. So d$x$ can have no part in these two directions. The two means in the solution of exercise 3 remove exactly
# those parts:

# %%
ones = np.ones(3)
angles = np.linspace(0.3, 2 * np.pi, 9)[:-1]
around = np.stack([np.cos(angles), np.cos(angles - 2 * np.pi / 3), np.cos(angles + 2 * np.pi / 3)], axis=1)
three = around * rng.uniform(0.6, 2.2, (8, 1)) + rng.standard_normal((8, 1))
turned = angles + np.array([0.9, 2.6, -1.2, 0.4, 4.2, 1.6, -0.7, 2.2])
arriving = np.stack([np.cos(turned), np.cos(turned - 2 * np.pi / 3), np.cos(turned + 2 * np.pi / 3)], axis=1)
arriving += 0.5 * rng.standard_normal((8, 1))  # a part along (1, 1, 1) too, which the plane does not show
draw.sphere(
    three,
    lambda x: layernorm_forward(x, ones, 0 * ones),
    lambda dy, cache: layernorm_backward(dy, *cache)[0],
    arriving,
)
_, (normed, rstd, _) = layernorm_forward(three, ones, 0 * ones, eps=0.0)
dx, _, _ = layernorm_backward(arriving, normed, rstd, ones)
print(f"largest part of dx along (1, 1, 1): {np.abs(dx.sum(axis=1)).max():.1e}")
print(f"largest part of dx outwards:        {np.abs((dx * normed).sum(axis=1)).max():.1e}")

# %% [markdown]
# ### What `ddof=1` does (optional)
#
# Statistics books divide the variance of a sample by $C-1$ (Bessel's correction; `ddof=1` in NumPy). Layer norm divides
# by $C$. This slip is easy to make: NumPy's `x.std()` divides by $C$, PyTorch's `x.std()` by $C-1$. With it the circle
# shrinks to radius $\sqrt{C-1}$. Everything is multiplied by $\sqrt{(C-1)/C}$, which for large $C$ is about
# $1-\tfrac{1}{2C}$.


# %%
def bessel_forward(x, gamma, beta, eps=1e-5):
    """Layer norm with the slip."""
    centred = x - x.mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(axis=-1, ddof=1, keepdims=True) + eps)
    return gamma * centred * rstd + beta, (centred * rstd, rstd, gamma)


widths = 2 ** np.arange(1, 13)
slips = []
for width in widths:
    sample = rng.standard_normal((4, width))
    right, wrong = (f(sample, np.ones(width), np.zeros(width), 0.0)[0] for f in (layernorm_forward, bessel_forward))
    slips.append(np.max(np.abs(wrong / right - 1)))

draw.bessel(three, widths, slips)
slip = dict(zip(widths, slips, strict=True))
print(f"C = 2: {slip[2]:.0%} too small   C = 64: {slip[64]:.2%}   C = 512: {slip[512]:.2%}")

# %% [markdown]
# At the paper's width you notice the error only beside the right array: it is smaller than rounding in bfloat16, the
# numbers of 16 bits in which large models are trained (lesson 15). Training hides it, because $\gamma$ grows a little
# to make up for it. But if you then load weights that were trained elsewhere, every layer is a little wrong. A proof in
# float64 sees the slip at once, because the backward that we derived belongs to the variance divided by $C$:

# %%
wide = {"x": rng.standard_normal((2, 512)), "gamma": rng.standard_normal(512), "beta": rng.standard_normal(512)}
absorbed = bessel_forward(wide["x"], wide["gamma"] * np.sqrt(512 / 511), wide["beta"], 0.0)[0]
print(f"with gamma scaled up, against the right one: {error(absorbed, layernorm_forward(*wide.values(), 0.0)[0]):.1e}")
try:
    check_gradients(bessel_forward, lambda dy, cache: layernorm_backward(dy, *cache), wide, samples=100)
except GradientError as problem:
    print(problem)

# %% [markdown]
# ## Both together (optional)
#
# Now stack thirty-two feed-forward networks with their initial, random weights, in four ways.
# [`run_stack`](course/lesson_07/stack.py) chains your functions. Watch the size of the numbers on the way up, and the
# size of the gradient on the way down.

# %%
C, F, depth = 64, 256, 32
WAYS = {"plain: f(x)": (0, 0), "residual: x + f(x)": (1, 0), "norm: LN(f(x))": (0, 1),
        "the paper's: LN(x + f(x))": (1, 1)}  # fmt: skip
scale = np.sqrt(2 / (C + F))  # of the initial weights; lesson 08 says why
stack = [(scale * rng.standard_normal((C, F)), np.zeros(F), scale * rng.standard_normal((F, C)), np.zeros(C))
         for _ in range(depth)]  # fmt: skip
functions = feed_forward_forward, feed_forward_backward, layernorm_forward, layernorm_backward
x, top = rng.standard_normal((2, 16, C))
top /= np.linalg.norm(top)  # the gradient at the end of the stack, of length 1
sizes_and_lengths = {name: run_stack(stack, functions, x, top, *way)[:2] for name, way in WAYS.items()}
draw.four_ways(sizes_and_lengths)
for name, (sizes, lengths) in sizes_and_lengths.items():
    print(f"{name:<26} the last x is {sizes[-1]:7.1e} large, the first gradient {lengths[0]:7.1e} long")

# %% [markdown]
# The plain stack fades in both directions, the residual stack grows in both. With a norm, sizes stay, even without the
# [residual connection](glossary.md#residual-connection). So why keep the residual connection? Because size is not
# everything: the norm keeps the gradient's size, the residual connection its direction, as the next part measures.
#
# ### Can the gradient be trusted? (optional)
#
# Move the input by a fifth of its size, and compare the gradient there with the gradient here. The less they agree, the
# shorter the step for which the gradient can be trusted. We measure the cosine between them, averaged over ten such
# moves: 1 where they point the same way, 0 where they are unrelated.

# %%
moves = 0.2 * rng.standard_normal((10, *x.shape))
for name, way in WAYS.items():
    here, *there = (run_stack(stack, functions, x + move, top, *way)[2] for move in (0 * x, *moves))
    cosines = [np.vdot(here, other) / np.linalg.norm(here) / np.linalg.norm(other) for other in there]
    print(f"{name:<26} {np.mean(cosines):5.2f}")

# %% [markdown]
# Without the residual stream the gradient is *shattered* (Balduzzi and others 2017), and a norm does not mend it. One
# doubt remains. In $\mathrm{LN}(x + f(x))$ the norm stands *on* the residual stream, and divides the gradient at every
# layer. Lesson 08 measures its effect on the whole model, and what happens if the norm moves aside.
#
# ### Which ways the gradient takes (optional)
#
# Multiply out the product over all layers of a residual stack without norms:
#
# $$ \mathrm{d}x_0 = (I + J_1^\top)(I + J_2^\top)\cdots(I + J_n^\top)\,\mathrm{d}x_n
#    = \underbrace{\mathrm{d}x_n}_{\text{past all of them}}
#    + \underbrace{\sum_l J_l^\top \mathrm{d}x_n}_{\text{through one}}
#    + \underbrace{\sum_{l<m} J_l^\top J_m^\top \mathrm{d}x_n}_{\text{through two}} + \dots $$
#
# There is a term for every choice of sub-layers to pass through: $2^n$ in all. To measure how much arrives by ways of
# each length, we keep the gradients sorted by the number of sub-layers that they came through.


# %% tags=["picture"]
def gradients_by_length(x, dy, sublayers):
    """The gradients that reach x through 0, 1, …, n sub-layers of a residual stack: (n + 1, T, C)."""
    caches = []
    for sublayer in sublayers:
        out, cache = feed_forward_forward(x, *sublayer)
        x = x + out
        caches.append(cache)
    by_length = [dy] + [np.zeros_like(dy) for _ in sublayers]
    for cache in reversed(caches):
        through = [feed_forward_backward(gradient, cache)[0] for gradient in by_length[:-1]]
        by_length[1:] = [a + b for a, b in zip(by_length[1:], through, strict=True)]  # one sub-layer more
    return np.array(by_length)


by_length = gradients_by_length(x, top, stack[:8])
draw.residual_stream(np.linalg.norm(by_length, axis=(1, 2)))
print(f"the untouched part against dy: {error(by_length[0], top):.1e}")

# %% [markdown]
# The orange bar came along the residual stream: all of d$y$, whatever the sub-layers do. Most of the rest comes through
# a few sub-layers, and hardly anything through all of them. A deep residual network behaves like the sum of many
# shallow ones (Veit, Wilber, Belongie 2016).
#
# ## Dropout
#
# In training, each element of a sub-layer's output is set to zero with probability $p$, drawn anew in every step (the
# paper: $p = 0.1$). So no part can rely on one other part being there. When the model is used, nothing is dropped.
# *Inverted* [dropout](glossary.md#dropout) keeps the average the same: in training it divides the kept elements by
# $1-p$. Let $k_i$ be 1 if element $i$ is kept, else 0, and $\mathbb{E}$ the average over many draws:
#
# $$ \begin{aligned}
#    &y_i = \frac{k_i}{1 - p}\, x_i, \\
#    &k_i = 1 \text{ with probability } 1 - p, \text{ else } 0, \\
#    &\mathbb{E}[y_i] = \frac{(1 - p) \cdot 1 + p \cdot 0}{1 - p}\, x_i = x_i
# \end{aligned} $$
#
# The map is linear, each element by itself. So the backward is the same map with the same $k$:
# $\mathrm{d}x_i = \frac{k_i}{1-p}\,\mathrm{d}y_i$.
#
# ### Exercise 4 ★☆☆: inverted dropout
#
# The random numbers are given, one for each element, uniform in $[0, 1)$. An element is dropped where its number is
# below $p$, and kept elsewhere.


# %% tags=["exercise"]
def dropout_forward(x, rate, uniform):
    """Inverted dropout: elements whose number in `uniform` is below `rate` become 0, the others grow by 1 / (1 − rate).

    x (any shape), rate in [0, 1), uniform (x's shape, numbers in [0, 1)) → the tuple y, kept, both of x's shape,
    kept with True where an element is kept.
    """
    raise NotImplementedError


# %%
dropout_forward = check(dropout_forward)

# %% [markdown] tags=["help"]
# What share of numbers that are uniform in $[0, 1)$ is below $p$? And if you keep seven of ten elements, by what do you
# multiply them so that their sum stays about the same?
#
# ---
#
# `kept = uniform >= rate` is an array of `True` and `False`, which counts as 1 and 0 in a product. Divide by
# `1 - rate`.

# %% [markdown]
# ### The mean over many masks (optional)
#
# Average over more and more masks. The inverted form settles on $x$, the other one on a smaller value:

# %%
rate, value = 0.3, np.array([2.0])
uniform = rng.random((4000, 1))
dropped, kept = dropout_forward(np.broadcast_to(value, uniform.shape), rate, uniform)
draw.dropout_means(dropped[:, 0], value[0] * kept[:, 0], value[0], rate)

# %% [markdown]
# ### Where the package's masks come from (optional)
#
# A random generator gives numbers in the order in which they are asked for. Split a batch over two threads, and the
# order changes, and so does the training run. So in the package the mask is a **function of the place**: a hash, a
# fixed function whose results look random, of the seed, the step, the dropout's number in the model, the sentence, the
# position and the channel. Half a batch gets half of the same mask, a resumed run goes on with the masks that it would
# have had, and a GPU kernel computes the same masks.

# %%
key = ops.dropout_key(seed=0, step=7, site=3)
whole = ops.dropout_mask((4, 5, 64), ops.Dropout(0.1, key))  # (B, T, C)
second_half = ops.dropout_mask((2, 5, 64), ops.Dropout(0.1, key, sentence=2))
print("sentences 2 and 3 alone get the mask they have in the batch:", np.array_equal(whole[2:], second_half))
print(f"share of {whole.size:,} elements that is dropped: {1 - whole.mean():.3f}")

exactly = ops.Dropout(0.1, key)  # the package compares 16 random bits, so its rate is a multiple of 1/65536
sample, dsample = rng.standard_normal((2, 4, 5, 64))
ours, kept = dropout_forward(sample, 1 - 1 / exactly.scale, np.where(whole, 0.5, 0.0))  # its mask, as numbers
theirs, dropout_cache = ops.dropout_forward(sample, exactly)
print(f"ours against the package's, same mask, forward: {error(ours, theirs):.1e}")
theirs = ops.dropout_backward(dsample, dropout_cache)
print(f"ours against the package's, backward: {error(dsample * kept * exactly.scale, theirs):.1e}")

# %% [markdown]
# ## All of it: Add & Norm around any sub-layer (optional)
#
# $y = \mathrm{LayerNorm}(x + \mathrm{Dropout}(f(x)))$. The sub-layer $f$ is given as a function that returns its output
# and its cache:


# %%
def add_norm_forward(x, sublayer, gamma, beta, rate, uniform):
    """The paper's residual connection around `sublayer`, a function from x to (out, cache)."""
    out, sublayer_cache = sublayer(x)
    dropped, kept = dropout_forward(out, rate, uniform)
    y, norm_cache = layernorm_forward(x + dropped, gamma, beta)
    return y, (sublayer_cache, kept, rate, norm_cache)


# %% [markdown]
# ### Exercise 5 ★★☆: back through Add & Norm
#
# Three steps in reverse. Mind which gradient arrives where: the sum sends the same gradient down both branches, and
# only one of them leads through dropout and the sub-layer.


# %% tags=["exercise"]
def add_norm_backward(dy, cache, sublayer_backward):
    """Gradients of y = LayerNorm(x + Dropout(sublayer(x))); `cache` is what add_norm_forward returned.

    dy (N, C), sublayer_backward(dout, sublayer_cache) → dx of the sub-layer, (N, C)
    → the tuple dx (N, C), dgamma (C,), dbeta (C,).
    `layernorm_backward(dy, *norm_cache)` is yours from exercise 3.
    """
    raise NotImplementedError


# %%
add_norm_backward = check(add_norm_backward)

# %% [markdown] tags=["help"]
# Draw the forward: $x$ goes two ways, one through the sub-layer and dropout, one past them. They meet in a sum, and the
# norm comes last. Now walk back from the end. Which step comes first, and where do the two ways meet again?
#
# ---
#
# `dsum, dgamma, dbeta = layernorm_backward(dy, *norm_cache)` is the gradient of the sum, and both branches receive it.
# The branch of the sub-layer gets `dsum * kept / (1 - rate)`; what `sublayer_backward` gives is added to `dsum`.

# %%
N, C, F = 5, 6, 12
network = (rng.standard_normal((C, F)), rng.standard_normal(F), rng.standard_normal((F, C)), rng.standard_normal(C))
uniform = rng.random((N, C))


def sublayer_forward(x, gamma, beta):
    """A feed-forward network with dropout in its Add & Norm."""
    return add_norm_forward(x, lambda x: feed_forward_forward(x, *network), gamma, beta, 0.3, uniform)


def sublayer_backward(dy, cache):
    return add_norm_backward(dy, cache, lambda dout, cache: feed_forward_backward(dout, cache)[0])


arrays = {"x": rng.standard_normal((N, C)), "gamma": rng.standard_normal(C), "beta": rng.standard_normal(C)}
for name, worst in check_gradients(sublayer_forward, sublayer_backward, arrays).items():
    print(f"d{name:<6} against central differences {worst:.1e}")

# %% [markdown]
# That is the package's [`ResidualNorm`](../minitransformer/layers/norm.py). There the sum, the dropout and the norm are
# one operation, [`add_layernorm`](../minitransformer/ops/norms.py), so that a GPU can do them in one pass (lesson 15).
#
# Two mistakes with dropout are common. **A new mask in the backward**: the gradient then belongs to another network.
# Its shape and its size look right, but the check sees it:


# %%
def fresh_mask_backward(dy, cache):
    sublayer_cache, _, rate, norm_cache = cache
    other = np.random.default_rng(1).random(dy.shape) >= rate
    return add_norm_backward(
        dy, (sublayer_cache, other, rate, norm_cache), lambda dout, cache: feed_forward_backward(dout, cache)[0]
    )


try:
    check_gradients(sublayer_forward, fresh_mask_backward, arrays)
except GradientError as problem:
    print(problem)

# %% [markdown]
# **Dropout left on in use**: the same input gives different outputs.

# %%
trained = [add_norm_forward(arrays["x"], lambda x: feed_forward_forward(x, *network), arrays["gamma"], arrays["beta"],
                            rate, rng.random((N, C)))[0] for rate in (0.3, 0.3, 0.0, 0.0)]  # fmt: skip
print(f"two runs, dropout on:  they differ by {error(trained[0], trained[1]):.1e}")
print(f"two runs, dropout off: they differ by {error(trained[2], trained[3]):.1e}")

# %% [markdown]
# ## Common mistakes, and what they look like
#
# * **ε outside the root**, $n = a / (\sqrt v + \epsilon)$, looks harmless until a row is nearly constant. There the
#   gradient is as large as $1/\epsilon$ instead of $1/\sqrt\epsilon$.
# * **Normalising over the wrong axis.** With means over time instead of channels, every position knows of the others,
#   the later ones too, and the causal mask of lesson 04 is undone.
# * **A new mask in dropout's backward.** The gradient then belongs to another network; its size looks right.
# * **Dropout left on in use.** The same input gives different outputs.
#
# ### The first two, run (optional)

# %%
constant = np.full((1, 8), 2.0) + 1e-12 * rng.standard_normal((1, 8))
print(f"largest slope, ε inside the root:  {1 / np.sqrt(constant.var() + 1e-5):8.1e}")
print(f"largest slope, ε outside the root: {1 / (constant.std() + 1e-5):8.1e}")

# %% [markdown]
# The wrong axis: change the last position and look at the first:

# %%
sentence = rng.standard_normal((6, 16))  # (T, C)
changed = sentence.copy()
changed[-1] += 1
for axis, name in ((-1, "channels"), (0, "time")):
    first = [(s - s.mean(axis, keepdims=True)) / s.std(axis, keepdims=True) for s in (sentence, changed)]
    print(f"normalised over {name:<9} the first position moves by {error(first[1][0], first[0][0]):.1e}")

# %% [markdown]
# ## What changed since 2017
#
# In nearly all large models the norm moved off the residual stream, $x + f(\mathrm{LN}(x))$ (Xiong and others 2020;
# lesson 08). Many use RMSNorm (Zhang and Sennrich 2019) and a gated unit in place of the relu (Shazeer 2020; [lesson
# 20](20_modern_blocks.ipynb) builds them). Large models mostly train without dropout.
#
# ## Where next
#
# [Lesson 08](08_model.ipynb): these sub-layers and attention, stacked into the encoder, the decoder and the whole
# model.
