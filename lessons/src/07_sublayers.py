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
# | in the package | [`layernorm`](../minitransformer/ops/layernorm.py), [dropout](../minitransformer/ops/dropout.py) |
#
# Attention moves information between positions. Everything else in a layer serves to let it do so again and again, many
# layers deep. The paper says it in one line of §3.1, to which §5.4 adds the dropout:
#
# $$ \mathrm{LayerNorm}\big(x + \mathrm{Dropout}(\mathrm{Sublayer}(x))\big) $$
#
# where the sub-layer is attention or the feed-forward network. We take the line apart from the inside.

# %%
import matplotlib.pyplot as plt
import numpy as np

from course import recorded, start
from course.lesson_07.pictures import draw_bessel, draw_highway, draw_sphere
from course.style import BLUE, GREEN, GREY, ORANGE, VERMILION
from minitransformer.gradcheck import GradientError, check_gradients, error
from minitransformer.layers import FeedForward, FeedForwardConfig, FlatParameters
from minitransformer.ops import (
    Dropout,
    attention_backward,
    attention_forward,
    dropout_key,
    dropout_mask,
    linear_backward,
    linear_forward,
    numpy_ops,
    relu_backward,
    relu_forward,
)
from minitransformer.ops import dropout_backward as package_dropout_backward
from minitransformer.ops import dropout_forward as package_dropout_forward
from minitransformer.ops import layernorm_backward as package_layernorm_backward
from minitransformer.ops import layernorm_forward as package_layernorm_forward

check = start("07")
rng = np.random.default_rng(0)

# %% [markdown]
# ## The feed-forward network: each position alone
#
# $$ \mathrm{FFN}(x) = \max(0,\; x W_1 + b_1)\, W_2 + b_2 $$
#
# with $x$ of shape $(T, C)$, $W_1$ of $(C, F)$, $W_2$ of $(F, C)$; the paper's base model has $C = 512$ and $F = 2048$.
# Read it column by column and row by row: column $f$ of $W_1$ asks a position one question, the relu keeps the answer
# if it is positive, and that much of row $f$ of $W_2$ is added to the output. A position gets a weighted sum of those
# of the $F$ rows whose question it answers with yes.
#
# The same matrices serve every position, and no position sees another. In loops that is plain to see:


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


def feed_forward_forward(x, weight1, bias1, weight2, bias2):
    """The same with two products for all positions at once."""
    hidden, cache1 = linear_forward(x, weight1, bias1)  # (T, F)
    active, relu_cache = relu_forward(hidden)
    y, cache2 = linear_forward(active, weight2, bias2)  # (T, C)
    return y, (cache1, relu_cache, cache2)


def feed_forward_backward(dy, cache):
    """The forward, read from its end."""
    cache1, relu_cache, cache2 = cache
    dactive, dweight2, dbias2 = linear_backward(dy, cache2)
    dhidden = relu_backward(dactive, relu_cache)
    dx, dweight1, dbias1 = linear_backward(dhidden, cache1)
    return dx, dweight1, dbias1, dweight2, dbias2


T, C, F = 8, 16, 64
x = rng.standard_normal((T, C))
weights = {
    "weight1": rng.standard_normal((C, F)) / np.sqrt(C),
    "bias1": rng.standard_normal(F),
    "weight2": rng.standard_normal((F, C)) / np.sqrt(F),
    "bias2": rng.standard_normal(C),
}
y, cache = feed_forward_forward(x, *weights.values())
print(f"loops against two products: {error(y, feed_forward_loops(x, *weights.values())):.1e}")
for name, worst in check_gradients(feed_forward_forward, feed_forward_backward, {"x": x} | weights).items():
    print(f"d{name:<8} against central differences {worst:.1e}")

# %% [markdown]
# The package keeps the weights in a layer, [`FeedForward`](../minitransformer/layers/feed_forward.py), which owns its
# parameters and calls these ops (lesson 08 says how layers are made). Given our weights it must give our output:

# %%
layer = FeedForward(numpy_ops, C, FeedForwardConfig(d_ff=F))
parameters = FlatParameters(dict(layer.named_parameters()), numpy_ops, "float64")
names = ("expand.weight", "expand.bias", "contract.weight", "contract.bias")
parameters.load_state_dict(dict(zip(names, weights.values(), strict=True)))
print(f"ours against the package's layer: {error(y, layer.forward(x)[0]):.1e}")

# %% [markdown]
# ### Who talks to whom
#
# Feed d$y$ in at one position $t$ only, and see at which positions d$x$ is not zero. Attention fills the square: every
# output depends on every input. The feed-forward network stays on the diagonal. The two share the work: attention mixes
# positions, the feed-forward network mixes channels.


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
    out, cache = attention_forward(x[None, None], x[None, None], x[None, None], scale=0.1)  # (1, 1, T, C)
    return out[0, 0], cache


reached = {
    "self-attention": influence(
        self_attention_forward, lambda dout, cache: sum(attention_backward(dout[None, None], cache))[0, 0]
    ),
    "feed-forward": influence(
        lambda x: feed_forward_forward(x, *weights.values()), lambda dout, cache: feed_forward_backward(dout, cache)[0]
    ),
}
figure, both = plt.subplots(1, 2, figsize=(7.2, 3.0), sharey=True)
for axes, (name, lengths) in zip(both, reached.items(), strict=True):
    image = axes.imshow(lengths / lengths.max(), vmin=0, vmax=1)
    axes.set(title=name, xlabel="input position $s$")
both[0].set_ylabel("output position $t$")
figure.colorbar(image, ax=both, label="length of the gradient\n(the largest is 1)", shrink=0.8)
figure.suptitle("Which inputs does an output depend on?", fontsize=10)
plt.show()
off = reached["feed-forward"][~np.eye(T, dtype=bool)]
print(f"feed-forward, largest gradient off the diagonal: {off.max():.0f}")
print(f"self-attention, smallest off the diagonal: {reached['self-attention'][~np.eye(T, dtype=bool)].min():.1e}")

# %% [markdown]
# In numbers of weights the feed-forward network is the larger part of an encoder layer. Attention has four matrices of
# $C \times C$, the network two of $C \times F$:

# %%
base_C, base_F = 512, 2048
attention_weights, network_weights = 4 * base_C**2, 2 * base_C * base_F
print(f"base model, per encoder layer: attention {attention_weights:,} weights, feed-forward {network_weights:,}")

# %% [markdown]
# ## The residual connection: a highway
#
# Stack many sub-layers $f_1, \dots, f_L$, each on the output of the one before, and the gradient has to pass every one
# of them on its way back. Each multiplies it by its Jacobian, transposed. If they shrink it a little, what arrives
# after many is nothing.
#
# So do not replace $x$, add to it:
#
# $$ x_l = x_{l-1} + f_l(x_{l-1}) \qquad\Longrightarrow\qquad
#    \mathrm{d}x_{l-1} = \mathrm{d}x_l + J_l^\top \mathrm{d}x_l = (I + J_l^\top)\,\mathrm{d}x_l $$
#
# with $J_l$ the Jacobian of $f_l$. In code it is `dx = dy + sublayer_backward(dy)`: $x$ was used twice, so its
# gradients add. Multiply out the product over all layers:
#
# $$ \mathrm{d}x_0 = (I + J_1^\top)(I + J_2^\top)\cdots(I + J_L^\top)\,\mathrm{d}x_L
#    = \underbrace{\mathrm{d}x_L}_{\text{past all of them}}
#    + \underbrace{\sum_l J_l^\top \mathrm{d}x_L}_{\text{through one}}
#    + \underbrace{\sum_{l<m} J_l^\top J_m^\top \mathrm{d}x_L}_{\text{through two}} + \dots $$
#
# There is a term for every choice of sub-layers to pass through, $2^L$ in all, and the first passes through none. We
# can measure how much comes by ways of each length: keep the gradients sorted by the number of sub-layers that they
# came through.

# %% tags=["picture"]
C, F, depth = 64, 256, 32


def xavier(fan_in, fan_out):
    """Where the package's matrices start (Glorot & Bengio 2010)."""
    bound = np.sqrt(6 / (fan_in + fan_out))
    return rng.uniform(-bound, bound, (fan_in, fan_out))


stack = [(xavier(C, F), np.zeros(F), xavier(F, C), np.zeros(C)) for _ in range(depth)]
x = rng.standard_normal((16, C))
top = rng.standard_normal((16, C))
top /= np.linalg.norm(top)  # the gradient at the end of the stack, of length 1


def gradients_by_length(x, dy, sublayers):
    """The gradients that reach x through 0, 1, …, L sub-layers of a residual stack: (L + 1, T, C)."""
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
draw_highway(np.linalg.norm(by_length, axis=(1, 2)))
print(f"the untouched part against dy: {error(by_length[0], top):.1e}")

# %% [markdown]
# The vermilion bar is the highway: all of d$y$, whatever the sub-layers are. Most of the rest comes through few
# sub-layers, and hardly anything through all. Deep residual networks behave like many shallow ones added up (Veit,
# Wilber, Belongie 2016).
#
# The highway has a price. What is added is never taken away again: the numbers grow from layer to layer, forward and
# backward. That is the business of the next part.
#
# ## Layer normalisation
#
# For one position's vector $x$ of $C$ channels:
#
# $$ m = \frac1C\sum_c x_c \qquad v = \frac1C\sum_c (x_c - m)^2 \qquad r = \frac{1}{\sqrt{v + \epsilon}} \qquad
#    n_c = (x_c - m)\, r \qquad y_c = \gamma_c\, n_c + \beta_c $$
#
# Mean $m$, variance $v$ and the reciprocal standard deviation $r$ (`rstd` in the code) are one number for each
# position; $n$ (`normed`) has mean 0 and variance 1; $\gamma$ and $\beta$, of shape $(C,)$, are learned and give back
# to each channel a scale and a shift. $\epsilon$ keeps a constant row from being divided by zero.
#
# No position looks at another and no sentence at another, unlike batch normalisation, whose means are taken over the
# batch: nothing depends on the company that a sentence is in, on padding, or on words that come later.


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


def layernorm_forward(x, gamma, beta, eps=1e-5):
    """x (N, C), gamma and beta (C,) → y (N, C), and the cache (normed, rstd, gamma)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)  # (N, 1)
    normed = centred * rstd  # (N, C)
    return gamma * normed + beta, (normed, rstd, gamma)


rows, gamma, beta = 3 + 2 * rng.standard_normal((6, 5)), rng.standard_normal(5), rng.standard_normal(5)
y, cache = layernorm_forward(rows, gamma, beta)
print(f"loops against arrays:       {error(y, layernorm_loops(rows, gamma, beta)):.1e}")
print(f"arrays against the package: {error(y, package_layernorm_forward(rows, gamma, beta)[0]):.1e}")

# %% [markdown]
# ### The backward, line by line
#
# Each line of the forward undone, last line first. Sums over channels are written as means over them, since the forward
# divides by $C$.
#
# | forward | backward |
# |---|---|
# | $y = \gamma\, n + \beta$ | $\mathrm{d}n = \mathrm{d}y\,\gamma$ |
# | (the same, for every row) | $\mathrm{d}\gamma = \sum \mathrm{d}y\, n$, $\mathrm{d}\beta = \sum \mathrm{d}y$ |
# | $n = a\, r$ with $a = x - m$ | $\mathrm{d}a = \mathrm{d}n\, r$, and $\mathrm{d}r = \sum_c \mathrm{d}n_c\, a_c$ |
# | $r = (v + \epsilon)^{-1/2}$ | $\mathrm{d}v = -\tfrac12 r^3\, \mathrm{d}r$ |
# | $v = \frac1C \sum_c a_c^2$ | $\mathrm{d}a$ gains $\tfrac2C\, a\, \mathrm{d}v$ |
# | $a = x - \frac1C \sum_c x_c$ | $\mathrm{d}x = \mathrm{d}a - \mathrm{mean}(\mathrm{d}a)$ |
#
# Put the middle three together. With $a\,r = n$,
#
# $$ \tfrac2C\, a\, \mathrm{d}v = -\tfrac1C\, a\, r^3 \sum_c \mathrm{d}n_c\, a_c
#    = -\, r\, n\, \tfrac1C \sum_c \mathrm{d}n_c\, n_c = -\, r\, n\; \mathrm{mean}(\mathrm{d}n \cdot n) $$
#
# so $\mathrm{d}a = r\,\big(\mathrm{d}n - n\,\mathrm{mean}(\mathrm{d}n \cdot n)\big)$. The last line subtracts the mean,
# and $n$ has none, so
#
# $$ \boxed{\;\mathrm{d}x
#    = r\,\big(\mathrm{d}n - \mathrm{mean}(\mathrm{d}n) - n\,\mathrm{mean}(\mathrm{d}n \cdot n)\big)\;} $$
#
# Each mean is over the channels of one row.
#
# ### Exercise 1: the backward of layer normalisation


# %% tags=["exercise"]
def layernorm_backward(dy, normed, rstd, gamma):
    """Gradients of y = gamma · normed + beta, with normed = (x − mean) · rstd, row by row.

    dy and normed (N, C), rstd (N, 1), gamma (C,) → the tuple dx (N, C), dgamma (C,), dbeta (C,).
    """
    raise NotImplementedError


# %%
layernorm_backward = check(layernorm_backward)

# %%
arrays = {"x": rows, "gamma": gamma, "beta": beta}
for name, worst in check_gradients(layernorm_forward, lambda dy, cache: layernorm_backward(dy, *cache), arrays).items():
    print(f"d{name:<6} against central differences {worst:.1e}")
dy = rng.standard_normal(rows.shape)
mine, theirs = layernorm_backward(dy, *cache), package_layernorm_backward(dy, cache)
print(f"against the package's backward: {max(error(a, b) for a, b in zip(mine, theirs, strict=True)):.1e}")

# %% [markdown]
# A second witness, which never saw our derivation: PyTorch's own layer norm and its autograd, in float64.


# %%
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
# ### The picture: a circle
#
# The formula has a shape. Take three channels, so that we can look. Subtracting the mean drops every row onto the plane
# where the channels sum to zero. Dividing by the standard deviation moves it straight out or in, to the circle of
# radius $\sqrt C$ (with $C$ channels: to a sphere), since $\sum_c n_c^2 = C$ (but for $\epsilon$). What is left of a
# row is a direction.
#
# And so for the gradient. Moving $x$ along $(1, 1, 1)$ changes nothing, and moving it straight outwards changes
# nothing. d$x$ can have no part in these two directions, and the two means take exactly those parts off:

# %%
ones = np.ones(3)
angles = np.linspace(0.3, 2 * np.pi, 9)[:-1]
around = np.stack([np.cos(angles), np.cos(angles - 2 * np.pi / 3), np.cos(angles + 2 * np.pi / 3)], axis=1)
three = around * rng.uniform(0.6, 2.2, (8, 1)) + rng.standard_normal((8, 1))
turned = angles + np.array([0.9, 2.6, -1.2, 0.4, 4.2, 1.6, -0.7, 2.2])
arriving = np.stack([np.cos(turned), np.cos(turned - 2 * np.pi / 3), np.cos(turned + 2 * np.pi / 3)], axis=1)
arriving += 0.5 * rng.standard_normal((8, 1))  # a part along (1, 1, 1) too, which the plane does not show
draw_sphere(
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
# Note the factor $r$ in front: a row of large numbers gets a small gradient. Layer norm brakes what has grown.
#
# ### What `ddof=1` does
#
# Statistics books divide the variance of a sample by $C-1$ (Bessel's correction; `ddof=1` in NumPy). Layer norm divides
# by $C$. It is the classic slip here, since NumPy's `x.std()` divides by $C$ and PyTorch's `x.std()` by $C-1$. The
# circle shrinks to radius $\sqrt{C-1}$: all is multiplied by $\sqrt{(C-1)/C}$, which for large $C$ is
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

figure, (left, axes) = plt.subplots(1, 2, figsize=(7.2, 3.3), width_ratios=(1, 1.35))
draw_bessel(left, three)
axes.loglog(widths, slips, "o", ms=5, color=VERMILION, label="measured")
axes.loglog(widths, 0.5 / widths, color=VERMILION, lw=1, alpha=0.6, label="1 / 2C")
for name, resolution in (("bfloat16", 2.0**-8), ("float32", 2.0**-24)):
    axes.axhline(resolution, color=GREY, lw=0.8, ls=":")
    axes.text(widths[0], resolution * 1.3, f"half a step of {name}", color=GREY, fontsize=8)
axes.set(xlabel="channels $C$", ylabel="relative error of normed", ylim=(2e-8, 1), title="Many channels")
axes.legend(loc=(0.02, 0.22))
plt.show()
slip = dict(zip(widths, slips, strict=True))
print(f"C = 2: {slip[2]:.0%} too small   C = 64: {slip[64]:.2%}   C = 512: {slip[512]:.2%}")

# %% [markdown]
# At the paper's width it is too small to see in a printed array, and smaller than rounding in bfloat16, the numbers of
# 16 bits in which large models are trained (lesson 15). Who trains with it will not notice: it is as if $\gamma$ were a
# little smaller, and $\gamma$ is learned. Who then loads weights trained elsewhere gets an error in every layer. A
# proof in float64 sees it at once, forward and backward, because the derived backward belongs to the variance divided
# by $C$:

# %%
wide = {"x": rng.standard_normal((2, 512)), "gamma": rng.standard_normal(512), "beta": rng.standard_normal(512)}
absorbed = bessel_forward(wide["x"], wide["gamma"] * np.sqrt(512 / 511), wide["beta"], 0.0)[0]
print(f"with gamma scaled up, against the right one: {error(absorbed, layernorm_forward(*wide.values(), 0.0)[0]):.1e}")
try:
    check_gradients(bessel_forward, lambda dy, cache: layernorm_backward(dy, *cache), wide, samples=100)
except GradientError as problem:
    print(problem)

# %% [markdown]
# ## Both together
#
# Now stack feed-forward networks, thirty-two of them, at their initial weights, in four ways, and watch the size of the
# numbers going up and the size of the gradient coming down.

# %%
WAYS = {
    "plain: f(x)": VERMILION,
    "residual: x + f(x)": ORANGE,
    "norm: LN(f(x))": GREEN,
    "the paper's: LN(x + f(x))": BLUE,
}
gain, shift = np.ones(C), np.zeros(C)


def run_stack(x, dy, residual, norm):
    """The size of x after each sub-layer and of the gradient before each, (L + 1,) both, and the gradient of x."""
    sizes, caches = [np.sqrt((x**2).mean())], []
    for sublayer in stack:
        out, cache = feed_forward_forward(x, *sublayer)
        x = x + out if residual else out
        x, norm_cache = layernorm_forward(x, gain, shift) if norm else (x, None)
        caches.append((cache, norm_cache))
        sizes.append(np.sqrt((x**2).mean()))
    dx, lengths = dy, [np.linalg.norm(dy)]
    for cache, norm_cache in reversed(caches):
        dsum = layernorm_backward(dx, *norm_cache)[0] if norm else dx
        dx = feed_forward_backward(dsum, cache)[0] + (dsum if residual else 0)
        lengths.append(np.linalg.norm(dx))
    return sizes, lengths[::-1], dx


figure, (up, down) = plt.subplots(1, 2, figsize=(7.2, 3.2), sharey=True)
for number, (name, colour) in enumerate(WAYS.items()):
    sizes, lengths, _ = run_stack(x, top, residual=number % 2 == 1, norm=number >= 2)
    style = "--" if number == 3 else "-"  # the two with a norm lie on each other
    up.semilogy(sizes, style, color=colour, label=name)
    down.semilogy(lengths, style, color=colour)
    print(f"{name:<26} the last x is {sizes[-1]:7.1e} large, the first gradient {lengths[0]:7.1e} long")
up.set(title="Forward: size of $x$ (root mean square)", xlabel="after sub-layer", ylim=(1e-9, 1e4))
down.set(title="Backward: length of the gradient (1 at the top)", xlabel="before sub-layer")
up.legend(loc="lower left")
plt.show()

# %% [markdown]
# The plain stack starves in both directions. The residual stack grows in both. With a norm, sizes stay, even without
# the residual connection. So what is the residual connection for, where there is a norm?
#
# Size is not everything. Move the input by a fifth of its size and compare the gradient there with the gradient here:
# the less they agree, the shorter the step for which the gradient can be trusted. The cosine between them, 1 where they
# agree and 0 where they have nothing to do with each other, averaged over ten such moves:

# %%
moves = 0.2 * rng.standard_normal((10, *x.shape))
for number, name in enumerate(WAYS):
    here, *there = (run_stack(x + move, top, number % 2 == 1, number >= 2)[2] for move in (0 * x, *moves))
    cosines = [np.vdot(here, other) / np.linalg.norm(here) / np.linalg.norm(other) for other in there]
    print(f"{name:<26} {np.mean(cosines):5.2f}")

# %% [markdown]
# Without the highway the gradient is shattered (Balduzzi and others 2017), and a norm does not mend it. Norm for the
# size, residual for the direction: the paper's line has both. A doubt remains. In $\mathrm{LN}(x + f(x))$ the norm
# stands *on* the highway, and what comes down it is divided at every layer. Lesson 08 measures what that does to the
# whole model, and what moving the norm aside does.
#
# ## Dropout
#
# In training, each element of a sub-layer's output is set to zero with probability $p$, anew in every step (the paper:
# $p = 0.1$). No part can rely on one other part being there. In use, nothing is dropped.
#
# Then an element would be smaller in training, on average $(1 - p)\,x$, than in use. The remedy that everyone uses
# divides what is kept by $1-p$ in training and leaves the model alone in use (*inverted* dropout):
#
# $$ y_i = \frac{k_i}{1 - p}\, x_i, \qquad k_i = 1 \text{ with probability } 1 - p, \text{ else } 0, \qquad
#    \mathbb{E}[y_i] = \frac{(1 - p) \cdot 1 + p \cdot 0}{1 - p}\, x_i = x_i $$
#
# The map is linear, each element by itself, so the backward is the same map with the same $k$:
# $\mathrm{d}x_i = \frac{k_i}{1-p}\,\mathrm{d}y_i$.
#
# ### Exercise 2: inverted dropout
#
# The random numbers are given, so that it can be judged: an element is kept where its number, uniform in $[0, 1)$, is
# not below $p$.


# %% tags=["exercise"]
def dropout_forward(x, rate, uniform):
    """Inverted dropout: elements whose number in `uniform` is below `rate` become 0, the others grow by 1 / (1 − rate).

    x (any shape), rate in [0, 1), uniform (x's shape, numbers in [0, 1)) → the tuple y, kept, both of x's shape,
    kept with True where an element is kept.
    """
    raise NotImplementedError


# %%
dropout_forward = check(dropout_forward)

# %% [markdown]
# Average over more and more masks: the inverted form settles on $x$, the other one on something smaller.

# %%
rate, value = 0.3, np.array([2.0])
uniform = rng.random((4000, 1))
dropped, kept = dropout_forward(np.broadcast_to(value, uniform.shape), rate, uniform)
counts = np.arange(1, len(uniform) + 1)

figure, axes = plt.subplots(figsize=(7.2, 2.8))
axes.semilogx(counts, np.cumsum(dropped) / counts, color=BLUE, label="inverted: kept elements divided by 1 − p")
axes.semilogx(counts, np.cumsum(value * kept[:, 0]) / counts, color=VERMILION, label="not divided")
axes.axhline(value[0], color=GREY, lw=0.8, ls=":")
axes.axhline((1 - rate) * value[0], color=GREY, lw=0.8, ls=":")
axes.set(xlabel="masks averaged over", ylabel="mean of y")
axes.set_title(f"One element, x = {value[0]:.0f}, dropped with p = {rate}")
axes.legend(loc="upper right")
axes.set_ylim(0, 3.4)
plt.show()

# %% [markdown]
# ### Where the package's masks come from
#
# A random generator gives numbers in the order in which they are asked for. Split a batch over two threads and the
# order changes, and with it the training. So the package's mask is a **function of the place**: a hash of (seed, step,
# which dropout of the model, sentence, position, channel). Half a batch then gets half of the same mask, a resumed
# training goes on with the masks it would have had, and a GPU kernel computes the same ones. Lesson 09 needs the first
# two.

# %%
key = dropout_key(seed=0, step=7, site=3)
whole = dropout_mask((4, 5, 64), Dropout(0.1, key))  # (B, T, C)
second_half = dropout_mask((2, 5, 64), Dropout(0.1, key, sentence=2))
print("sentences 2 and 3 alone get the mask they have in the batch:", np.array_equal(whole[2:], second_half))
print(f"share of {whole.size:,} elements that is dropped: {1 - whole.mean():.3f}")

sample = rng.standard_normal((4, 5, 64))
ours, kept = dropout_forward(sample, 0.1, np.where(whole, 0.5, 0.0))  # the package's mask, as numbers
theirs, dropout_cache = package_dropout_forward(sample, Dropout(0.1, key))
print(f"ours against the package's, same mask: {error(ours, theirs):.1e}")

# %% [markdown]
# The small difference is meant: the package compares 16 random bits, so that its rate is a multiple of 1/65536, and
# divides by one minus that.

# %%
exactly = Dropout(0.1, key)
ours, kept = dropout_forward(sample, 1 - 1 / exactly.scale, np.where(whole, 0.5, 0.0))
dsample = rng.standard_normal(sample.shape)
print(f"at the rounded rate, forward:  {error(ours, theirs):.1e}")
print(
    f"at the rounded rate, backward: "
    f"{error(dsample * kept * exactly.scale, package_dropout_backward(dsample, dropout_cache)):.1e}"
)

# %% [markdown]
# ## All of it: Add & Norm around any sub-layer
#
# $y = \mathrm{LayerNorm}(x + \mathrm{Dropout}(f(x)))$, with $f$ given as a function that returns its output and cache:


# %%
def add_norm_forward(x, sublayer, gamma, beta, rate, uniform):
    """The paper's residual connection around `sublayer`, a function from x to (out, cache)."""
    out, sublayer_cache = sublayer(x)
    dropped, kept = dropout_forward(out, rate, uniform)
    y, norm_cache = layernorm_forward(x + dropped, gamma, beta)
    return y, (sublayer_cache, kept, rate, norm_cache)


# %% [markdown]
# ### Exercise 3: back through Add & Norm
#
# Three steps in reverse. Mind what arrives where: the sum sends the same gradient down both branches, and only one of
# them leads through dropout and the sub-layer.


# %% tags=["exercise"]
def add_norm_backward(dy, cache, sublayer_backward):
    """Gradients of y = LayerNorm(x + Dropout(sublayer(x))); `cache` is what add_norm_forward returned.

    dy (N, C), sublayer_backward(dout, sublayer_cache) → dx of the sub-layer, (N, C)
    → the tuple dx (N, C), dgamma (C,), dbeta (C,).
    `layernorm_backward(dy, *norm_cache)` is yours from exercise 1.
    """
    raise NotImplementedError


# %%
add_norm_backward = check(add_norm_backward)

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
# That is the package's [`ResidualNorm`](../minitransformer/layers/norm.py); the sum, the dropout and the norm are one
# op there, [`add_layernorm`](../minitransformer/ops/layernorm.py), so that a GPU can do them in one pass (lesson 15).
#
# ## Common mistakes
#
# **ε outside the root**, $n = a / (\sqrt v + \epsilon)$, looks harmless until a row is nearly constant. There the
# gradient is as large as $1/\epsilon$ instead of $1/\sqrt\epsilon$:

# %%
constant = np.full((1, 8), 2.0) + 1e-12 * rng.standard_normal((1, 8))
centred = constant - constant.mean()
print(f"largest slope, ε inside the root:  {1 / np.sqrt(centred.var() + 1e-5):8.1e}")
print(f"largest slope, ε outside the root: {1 / (centred.std() + 1e-5):8.1e}")

# %% [markdown]
# **Normalising over the wrong axis.** Over time instead of channels every position knows of the others, the later ones
# too: the causal mask of lesson 04 is undone. Change the last position and look at the first:

# %%
sentence = rng.standard_normal((6, 16))  # (T, C)
changed = sentence.copy()
changed[-1] += 1
for axis, name in ((-1, "channels"), (0, "time")):
    first = [(s - s.mean(axis, keepdims=True)) / s.std(axis, keepdims=True) for s in (sentence, changed)]
    print(f"normalised over {name:<9} the first position moves by {error(first[1][0], first[0][0]):.1e}")

# %% [markdown]
# **A new mask in the backward.** The gradient then belongs to another network. Each is right on average, and the check
# still sees it:


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
# **Dropout left on in use.** The symptom: the same input gives different outputs.

# %%
trained = [add_norm_forward(arrays["x"], lambda x: feed_forward_forward(x, *network), arrays["gamma"], arrays["beta"],
                            rate, rng.random((N, C)))[0] for rate in (0.3, 0.3, 0.0, 0.0)]  # fmt: skip
print(f"two runs, dropout on:  they differ by {error(trained[0], trained[1]):.1e}")
print(f"two runs, dropout off: they differ by {error(trained[2], trained[3]):.1e}")

# %% [markdown]
# ## What changed since 2017
#
# The norm moved off the highway, $x + f(\mathrm{LN}(x))$, which is how nearly all large models are built today (Xiong
# and others 2020; lesson 08). Many drop the mean and $\beta$ and only divide by the root mean square (RMSNorm, Zhang
# and Sennrich 2019), and replace the relu with a gated unit (Shazeer 2020). Large models, which see each text about
# once, mostly train without dropout.
#
# ## Where next
#
# [Lesson 08](08_model.ipynb): these sub-layers and attention, stacked into the encoder, the decoder and the whole
# model.
