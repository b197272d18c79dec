# %% [markdown]
# # 20 · Modern blocks: RMSNorm, SwiGLU, RoPE, grouped heads
#
# **You will be able to** compute the four parts in which Llama's block differs from GPT-2's, prove them, and say what
# each of them is worth. Two backwards (RMSNorm's and SwiGLU's) and a whole model on your parts are optional.
#
# | | |
# |---|---|
# | you know | [GPT](19_gpt.ipynb)'s blocks, [layer norm](07_sublayers.ipynb), [rotations](06_positions.ipynb) |
# | runs in | at most 30 s on 2 cores; no GPU, no network; Triton in one optional part, or its recording |
# | in the paper | LLaMA, §2.2; Llama 2, §2.2 (grouped heads); of Vaswani and others 2017 §3.2.2, §3.3, §3.5 |
# | in the package | [rmsnorm, gated, rope](../minitransformer/ops); [`GPTConfig`](../minitransformer/models/gpt.py) |
#
# Open the files of Llama, Mistral or Qwen. You find the block of lesson 19 with nearly always the same four parts
# replaced. **What would happen if you took a GPT and removed the mean from all its layer norms?** In this lesson you do
# it.

# %%
from dataclasses import replace

import numpy as np

import kernels
from course import recorded, start
from course.gpu import machine, tl, torch, triton  # noqa: F401 - before anything else imports triton
from course.lesson_20 import pictures as draw
from course.lesson_20.measured import COLOURS, beyond, gaps, measured
from course.measuring import blas_threads
from course.style import show
from course.tensors import numpy, tensor
from minitransformer import ops
from minitransformer.costs import num_parameters
from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.gradcheck import check_gradients, error
from minitransformer.grammar import pairs
from minitransformer.layers import BiasConfig, RelativeBias, RotaryConfig
from minitransformer.layers.parameter import FlatParameters
from minitransformer.models import GPT, GPTConfig
from minitransformer.ops import Pair, attention_backward, attention_forward, attention_weights, numpy_ops
from minitransformer.ops.rope import bucket_of
from minitransformer.pretrained.llama import table as llama_table
from study.measuring import rounds_text

check = start("20")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)

# %% [markdown]
# ## The picture: two blocks
#
# Read both from the bottom up. The thick line is the [*residual stream*](glossary.md#residual-stream). The numbered
# boxes are what changed.

# %% tags=["picture"]
draw.draw_blocks()
show(
    "Two blocks side by side. Llama's has RMSNorm in place of layer norm, two heads of keys and values for four of "
    "queries, queries and keys turned by position in place of an added vector, and a gate multiplied with up."
)

# %% [markdown]
# | | part | question |
# |---|---|---|
# | 1 | RMSNorm | Layer norm subtracts the mean and divides by the standard deviation: why both? |
# | 2 | SwiGLU | A hidden unit lets one number decide whether something passes, and what. Why not two? |
# | 3 | RoPE | Positions are added at the bottom, but attention needs distances. Why not put them there? |
# | 4 | grouped heads | Does every head need its own keys and values in the cache? |
#
# In the shapes, $B$ counts sentences, $T$ positions, $C$ channels, $H$ heads and $F$ hidden units, and $D = C/H$.
#
# ## RMSNorm: layer norm without the mean
#
# [RMS normalisation](glossary.md#rms-normalisation) ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467))
# leaves out the mean, and in most models the shift $\beta$, too. For one position's vector $x$:
#
# $$ \begin{aligned}
#    &s = \frac1C\sum_c x_c^2 \\
#    &r = \frac{1}{\sqrt{s + \epsilon}} \\
#    &n_c = x_c\, r \\
#    &y_c = \gamma_c\, n_c
# \end{aligned} $$
#
# $s$ is the mean square, and $\sqrt{s}$ the *root mean square*, RMS. The vector $n$ has length $\sqrt{C}$ (up to
# $\epsilon$), so it lies on a sphere. First in loops, then for all rows at once:


# %%
def rmsnorm_loops(x, gamma, eps=1e-6):
    """Position by position, channel by channel. x (B, T, C)."""
    y = np.zeros_like(x)
    B, T, C = x.shape
    for b in range(B):
        for t in range(T):
            mean_square = sum(x[b, t, c] ** 2 for c in range(C)) / C
            for c in range(C):
                y[b, t, c] = gamma[c] * x[b, t, c] / np.sqrt(mean_square + eps)
    return y


def rmsnorm_forward(x, gamma, eps=1e-6):
    """x (B, T, C), gamma (C,) → y (B, T, C), cache."""
    rstd = 1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)  # (B, T, 1)
    normed = x * rstd
    return gamma * normed, (normed, rstd, gamma)


x, gamma = 3 + 2 * rng.standard_normal((2, 4, 6)), rng.standard_normal(6)
y, _ = rmsnorm_forward(x, gamma)
print(f"loops against arrays:       {error(y, rmsnorm_loops(x, gamma)):.1e}")
print(f"arrays against the package: {error(y, ops.rmsnorm_forward(x, gamma, 1e-6)[0]):.1e}")

# %% [markdown]
# ### Exercise 1 ★★☆: the backward of RMSNorm (optional)
#
# Go through the forward from its end, as you did for layer norm in lesson 07:
#
# | forward | backward |
# |---|---|
# | $s = \frac1C \sum_c x_c^2$ | ? |
# | $r = (s + \epsilon)^{-1/2}$ | ? |
# | $n = x\, r$ | ? |
# | $y = \gamma\, n$ | $\mathrm{d}n = \mathrm{d}y\,\gamma$ |
#
# $x$ is used twice, in $n$ and in $s$. The cache holds $n$, $r$ and $\gamma$, and not $x$: that is enough.


# %% tags=["exercise"]
def rmsnorm_backward(dy, cache):
    """Gradients of y = gamma · normed, with normed = x · rstd and rstd = 1 / √(mean(x²) + eps), row by row.

    dy (B, T, C); cache is the tuple normed (B, T, C), rstd (B, T, 1), gamma (C,)
    → the tuple dx (B, T, C), dgamma (C,).
    """
    raise NotImplementedError


# %%
rmsnorm_backward = check(rmsnorm_backward)

# %% [markdown] tags=["help"]
# $r$ is one number for the whole row. How much does $y$ change if $r$ alone moves a little? Then ask the same of $s$.
# And can you say, before you compute anything, along which direction of $x$ nothing changes?
#
# ---
#
# $\mathrm{d}r = \sum_c \mathrm{d}n_c\, x_c$, $\mathrm{d}s = -\tfrac12 r^3\,\mathrm{d}r$, and
# $\mathrm{d}x = r\,\mathrm{d}n + \tfrac2C\, x\, \mathrm{d}s$. Put $x = n / r$ into it, and simplify: a mean over the
# channels of the row remains.

# %% [markdown]
# <details><summary>The right column</summary>
#
# $$ \begin{aligned}
#    &\mathrm{d}r = \sum_c \mathrm{d}n_c\, x_c \\
#    &\mathrm{d}s = -\tfrac12 r^3\, \mathrm{d}r \\
#    &\mathrm{d}x = r\,\mathrm{d}n + \tfrac2C\, x\,\mathrm{d}s
# \end{aligned} $$
#
# With $x\,r = n$ this is $\mathrm{d}x = r\,\big(\mathrm{d}n - n\,\mathrm{mean}(\mathrm{d}n \cdot n)\big)$.
#
# </details>
#
# Compare yours with lesson 07's formula: one term is missing. Where a change of $x$ does not change $y$, the gradient
# has to be 0. RMSNorm does not see the length of $x$ (for $\epsilon = 0$), so $\mathrm{d}x$ has no part along $x$.
# Layer norm does not see a shift of $x$ either, so its backward has one more term.

# %%
arrays = {"x": x, "gamma": gamma}
for name, worst in check_gradients(rmsnorm_forward, rmsnorm_backward, arrays).items():
    print(f"d{name:<6} against central differences {worst:.1e}")
dy = rng.standard_normal(x.shape)
ours = rmsnorm_backward(dy, rmsnorm_forward(x, gamma)[1])
theirs = ops.rmsnorm_backward(dy, ops.rmsnorm_forward(x, gamma, 1e-6)[1])
for name, mine, other in zip(arrays, ours, theirs, strict=True):
    print(f"d{name:<6} against the package {error(mine, other):.1e}")
along = (rmsnorm_backward(dy, rmsnorm_forward(x, gamma, eps=0.0)[1])[0] * x).sum(axis=-1)
print(f"for ε = 0, dx along x, which the norm does not see: {np.abs(along).max():.1e}")

# %% [markdown]
# ### What is the mean worth?
#
# If $x$ has mean 0, its variance is its mean square, and the two norms are equal. So
#
# $$ \mathrm{LayerNorm}(x) = \mathrm{RMSNorm}\big(x - \mathrm{mean}(x)\big) + \beta $$
#
# In a pre-norm model every norm reads the residual stream, and only linear maps write into it: the tables of tokens and
# positions, the output matrix of attention, the second matrix of the feed-forward network. Subtract the mean over the
# channels from *their* rows and biases. Then the residual stream has mean 0 at every position, for every input, and
# layer norm finds nothing to subtract.
#
# We take a GPT with layer norm and random weights, without $\beta$ and without tied tables (centred rows of a tied
# table would change the logits), and put its weights into a model with RMSNorm, first as they are, then centred:

# %%
V = 50
config = GPTConfig(
    V, d_model=24, num_heads=4, d_ff=96, num_layers=3, max_length=32, dropout=0.0, attention_dropout=0.0,
    norm_bias=False, tied=False, init_std=0.2,
)  # fmt: skip
with_layernorm = GPT(config, dtype="float64")
with_rmsnorm = GPT(replace(config, norm="rmsnorm"), dtype="float64")
weights = with_layernorm.parameters.state_dict()
WRITERS = ("tokens.table", "positions.table", "self_attention.output.weight", "self_attention.output.bias",
           "contract.weight", "contract.bias")  # fmt: skip
centred = {
    name: each - each.mean(axis=-1, keepdims=True) if name.endswith(WRITERS) else each for name, each in weights.items()
}

ids = rng.integers(0, V, (4, 16))
logits, _ = with_layernorm.forward(ids)
for what, state in (("as they are", weights), ("with centred writers", centred)):
    with_rmsnorm.parameters.load_state_dict(state)
    print(f"RMSNorm, weights {what:<22} logits off by {error(with_rmsnorm.forward(ids)[0], logits):.0e}")

# %% [markdown]
# With centred weights the model computes the same function as the one with layer norm. **Whatever layer norm's mean
# does, the matrices before it can do as well** ([Jiang and others 2023](https://arxiv.org/abs/2305.14858) prove it for
# pre-norm). RMSNorm's savings are small (one sum over the channels instead of two, half a norm's parameters), but they
# cost nothing.
#
# ## SwiGLU: a gate
#
# A hidden unit of lesson 07 computes one number $a$ from $x$, and $\mathrm{relu}(a) = a\cdot[a > 0]$: the same number
# decides *whether* something passes, and is *what* passes. A gated linear unit takes two numbers ([Dauphin and others
# 2017](https://arxiv.org/abs/1612.08083), [Shazeer 2020](https://arxiv.org/abs/2002.05202)). With $z = xW_{gate}$ and
# $u = xW_{up}$, both $(T, F)$:
#
# $$ \begin{aligned}
#    &\mathrm{SwiGLU}(x) = \big(\mathrm{silu}(z) \odot u\big)\, W_{down} \\
#    &\mathrm{silu}(z) = z\,\sigma(z) \\
#    &\sigma(z) = \frac{1}{1 + e^{-z}}
# \end{aligned} $$
#
# silu is also called *swish*, hence the name. Its shape is nearly gelu's:

# %%
z = np.linspace(-4, 4, 201)
of_gelu, gelu_cache = ops.gelu_forward(z)
of_silu = z / (1 + np.exp(-z))
curves = {
    "relu": (np.maximum(z, 0), (z > 0).astype(float)),
    "gelu": (of_gelu, ops.gelu_backward(np.ones_like(z), gelu_cache)),
    "silu": (of_silu, np.gradient(of_silu, z)),  # by differences: the formula is for you to find
}
draw.draw_gates(z, curves, product=z[:, None] * of_silu[None, :])
show(
    "relu, gelu and silu and their slopes: the last two are smooth. Beside them the product silu(gate) · up: almost "
    "nothing left of gate 0; right of it the product grows with the gate and has the sign of up."
)

# %% [markdown]
# On the right is one unit's output. Left of the line the gate is nearly shut, and little of *up* passes. Right of it
# *up* passes with either sign, and a larger gate lets more of it through. A relu's output is never negative. In code:


# %%
def swiglu_forward(gate, up):
    """silu(gate) · up, element by element: gate and up (B, T, F) → y (B, T, F), cache."""
    sigmoid = (1 + np.tanh(gate / 2)) / 2  # 1 / (1 + e^−gate), and never overflows
    return gate * sigmoid * up, (gate, up)


# %% [markdown]
# ### Exercise 2 ★★☆: the backward of SwiGLU (optional)
#
# The two matrices are linear maps, whose backward you have written in lesson 00. Only the part between them is new.
# Mind that $z$ is used twice in $z\,\sigma(z)$. The sigmoid's own slope is $\sigma(1 - \sigma)$.


# %% tags=["exercise"]
def swiglu_backward(dy, cache):
    """Gradients of y = silu(gate) · up, with silu(z) = z · σ(z).

    dy (B, T, F); cache is the tuple gate, up, (B, T, F) each → the tuple dgate, dup, (B, T, F) each.
    Gates of any size do no harm.
    """
    raise NotImplementedError


# %%
swiglu_backward = check(swiglu_backward)

# %% [markdown] tags=["help"]
# $y$ is a product of two factors, silu(gate) and up. What is a product's slope in one of its factors? Then one step
# further down, silu(gate) is itself a product of two factors, and both of them move with gate.
#
# ---
#
# `dup = dy * silu`. And `dgate = dy * up * slope`, where the slope of silu is $\sigma + z\,\sigma(1 - \sigma)$. For
# large negative gates $e^{-z}$ overflows; `(1 + np.tanh(gate / 2)) / 2` is the same number, and does not.

# %% [markdown]
# <details><summary>The two gradients</summary>
#
# $y = \mathrm{silu}(z)\,u$ is a product, and so is $\mathrm{silu}(z) = z\,\sigma(z)$:
#
# $$ \mathrm{d}u = \mathrm{d}y\;\mathrm{silu}(z) \qquad
#    \mathrm{d}z = \mathrm{d}y\; u\, \big(\sigma(z) + z\,\sigma(z)\,(1 - \sigma(z))\big) $$
#
# </details>
#
# Each factor's gradient is scaled by the *other* factor: a gate learns from what would have passed, and *up* learns
# only as far as the gate is open.

# %%
gate, up = rng.standard_normal((2, 2, 3, 5))
for name, worst in check_gradients(swiglu_forward, swiglu_backward, {"gate": gate, "up": up}).items():
    print(f"d{name:<5} against central differences {worst:.1e}")
dy = rng.standard_normal(gate.shape)
theirs = ops.gated_backward(dy, ops.gated_forward(gate, up, "silu")[1])
for name, mine, other in zip(("gate", "up"), swiglu_backward(dy, (gate, up)), theirs, strict=True):
    print(f"d{name:<5} against the package {error(mine, other):.1e}")

# %% [markdown]
# ### What is the gate worth? (optional)
#
# With a gate a network can *multiply*. Since $\sigma(z) + \sigma(-z) = 1$,
#
# $$ \mathrm{silu}(z) - \mathrm{silu}(-z) = z\,\sigma(z) + z\,\sigma(-z) = z $$
#
# So two units with gates $z$ and $-z$ and the same $u$ give $z\,u$: the exact product of two linear maps of $x$. A
# network of relus is linear in pieces: it can only approach a product. Here is how well $F$ relus do, with random
# directions and the best last layer (least squares):

# %%
points = rng.uniform(-1, 1, (4000, 2))
wanted = points[:, 0] * points[:, 1]
two_gates, _ = swiglu_forward(np.stack([points[:, 0], -points[:, 0]], axis=-1), points[:, [1, 1]])  # (N, 2)
print(f"two gated units:  error {error(two_gates @ [1.0, -1.0], wanted):.0e}")
for F in (2, 8, 32, 128):
    hidden = np.maximum(0, points @ rng.standard_normal((2, F)) + rng.uniform(-1, 1, F))
    features = np.concatenate([hidden, np.ones((len(points), 1))], axis=1)
    best = np.linalg.lstsq(features, wanted, rcond=None)[0]
    print(f"{F:3d} relu units:  root mean square error {np.sqrt(np.mean((features @ best - wanted) ** 2)):.3f}")

# %% [markdown]
# The price is a third matrix. For the same number of weights, $3CF' = 2CF$, so $F' = \frac23 F$. With the usual
# $F = 4C$ that is $\frac83 C$: this is where Llama's odd width comes from.

# %%
C = 4096
print(f"C = {C}: F = 4C = {4 * C:,}; two thirds of it {2 * 4 * C / 3:,.1f}; the next multiple of 256 is "
      f"{-(-2 * 4 * C // 3 // 256) * 256:,}; Llama's smallest model has {GPTConfig.llama().d_ff:,}")  # fmt: skip

# %% [markdown]
# Shazeer measured lower losses for all the gated forms that he tried, and attributed their success "to divine
# benevolence". Our own measurement is at the end.
#
# ## RoPE: positions as rotations
#
# Lesson 19 adds learned vectors at the bottom. But only attention needs positions, and mostly it needs the *distance*
# of two tokens. Lesson 06 ended with a rotation $M_m$ for each position $m$: turn the query at $m$ by $M_m$, the key at
# $n$ by $M_n$, and the score depends on $m - n$ alone. This is RoPE
# ([Su and others 2021](https://arxiv.org/abs/2104.09864)). Now we compute it without any matrix.
#
# Read two channels $(a, b)$ of a head as one complex number $a + \mathrm{i}b$, with $\mathrm{i}^2 = -1$. Multiplication
# by $e^{\mathrm{i}\alpha} = \cos\alpha + \mathrm{i}\sin\alpha$ turns it by the angle $\alpha$:
#
# $$ (a + \mathrm{i}b)\,e^{\mathrm{i}\alpha} = (a\cos\alpha - b\sin\alpha) + \mathrm{i}\,(b\cos\alpha + a\sin\alpha) $$
#
# The $D/2$ pairs have numbers $j = 0, 1, \dots$, and each has its own speed, $\omega_j = \theta^{-2j/D}$ with
# $\theta = 10000$: at position $m$ we turn it by the angle $m\,\omega_j$. The dot product of two pairs
# $z = a + \mathrm{i}b$ and $z' = a' + \mathrm{i}b'$ is $aa' + bb' = \mathrm{Re}(z\,\overline{z'})$, where
# $\overline{z'} = a' - \mathrm{i}b'$. Let $q_j$ and $k_j$ be the pairs of a query at $m$ and of a key at $n$. Then the
# score is
#
# $$ \sum_j \mathrm{Re}\Big(q_j e^{\mathrm{i} m\omega_j}\; \overline{k_j e^{\mathrm{i} n\omega_j}}\Big)
#    = \sum_j \mathrm{Re}\Big(q_j\,\overline{k_j}\; e^{\mathrm{i} (m-n)\,\omega_j}\Big) $$
#
# Only $m - n$ is left. Any fixed choice of pairs will do. Su and others, and Meta's own files take neighbours, channels
# $2j$ and $2j + 1$. Llama's files in Hugging Face's format take channels $j$ and $j + D/2$, one from each **half**, and
# so do we. In loops:


# %%
def angle_tables(T, D, theta=10_000.0):
    """cos and sin (T, D/2) of the angles position · ω_j."""
    angles = np.outer(np.arange(T), theta ** (-np.arange(0, D, 2) / D))
    return np.cos(angles), np.sin(angles)


def rope_loops(x, cos, sin):
    """One head of one sentence, x (T, D): each pair times its 2 × 2 rotation."""
    y = np.zeros_like(x)
    T, D = x.shape
    for t in range(T):
        for j in range(D // 2):
            rotation = np.array([[cos[t, j], -sin[t, j]], [sin[t, j], cos[t, j]]])
            y[t, j], y[t, j + D // 2] = rotation @ [x[t, j], x[t, j + D // 2]]
    return y


# %% [markdown]
# ### Exercise 3 ★★☆: turn, and turn back
#
# Write RoPE for all sentences, heads, positions and pairs at once, and then its backward. For one pair RoPE is a matrix
# $R$, and the backward of a matrix is its transpose (lesson 00). What is the transpose of a rotation?


# %% tags=["exercise"]
def rope_forward(x, cos, sin):
    """The pairs of channels j and j + D/2, turned: (a, b) → (a cos − b sin, b cos + a sin).

    x (B, H, T, D), cos and sin (T, D/2), a row for each position → the tuple y (B, H, T, D), cache.
    cache is the tuple (cos, sin).
    """
    raise NotImplementedError


def rope_backward(dy, cache):
    """The gradient of x in y = rope_forward(x, cos, sin): dy (B, H, T, D), cache (cos, sin) → dx (B, H, T, D)."""
    raise NotImplementedError


# %%
rope_forward = check(rope_forward)
rope_backward = check(rope_backward)

# %% [markdown] tags=["help"]
# `a` is the first half of the channels and `b` is the second, both (B, H, T, D/2). Does `cos`, (T, D/2), fit beside
# them as it is? For the backward: `a` went into both lines of the forward. With which factors?
#
# ---
#
# `a, b = np.split(x, 2, axis=-1)`, then put the two new halves together with `np.concatenate`. Transposed,
# $\begin{pmatrix} \cos & -\sin \\ \sin & \cos \end{pmatrix}$ is the rotation by the opposite angle:
# `da = da' cos + db' sin` and `db = db' cos − da' sin`.

# %%
T, D = 6, 8
cos, sin = angle_tables(T, D)
x = rng.standard_normal((2, 3, T, D))
y, cache = rope_forward(x, cos, sin)
print(f"loops against arrays:        {error(y[0, 0], rope_loops(x[0, 0], cos, sin)):.1e}")
print(f"arrays against the package:  {error(y, ops.rope_forward(x, cos, sin)[0]):.1e}")
checked = check_gradients(lambda x: rope_forward(x, cos, sin), rope_backward, {"x": x})
print(f"dx against central differences {checked['x']:.1e}")
print(f"turned, and turned back        {error(rope_backward(y, cache), x):.1e}")

# %% [markdown]
# The backward needs no $x$, only two small tables that all layers share. And it preserves the length of the gradient.
#
# <details><summary>Why</summary>
#
# Transposed, $\begin{pmatrix} \cos & -\sin \\ \sin & \cos \end{pmatrix}$ has $+\sin$ above and $-\sin$ below: the
# rotation by the opposite angle. So the backward is the forward with $-\sin$: it turns back.
#
# </details>
#
# Now test the claim. Above: one pair of a query and one of a key, at three pairs of places. Below: each pixel is the
# score that one query and one key would have at these two places.

# %%
T, D = 48, 32
cos, sin = angle_tables(T, D)
query = rng.standard_normal(D)
key = query + rng.standard_normal(D)  # somewhat like the query
everywhere = [np.tile(each, (1, 1, T, 1)) for each in (query, key)]  # (1, 1, T, D): the same at each place
turned_query, turned_key = (rope_forward(each, cos, sin)[0][0, 0] for each in everywhere)  # (T, D)
scores = turned_query @ turned_key.T  # (T, T)
draw.draw_turns((0.6, -0.3), 0.35, ((3, 1), (9, 7), (3, 5)), scores)
show(
    "A query and a key at places 3 and 1, and at 9 and 7, have the same angle between them; at 3 and 5 it differs. "
    "Below, the scores of one query and one key at all places are equal along every diagonal, and fall in waves with "
    "the distance."
)
along_diagonals = max(float(np.ptp(np.diagonal(scores, offset))) for offset in range(-T + 1, T))
print(f"largest difference along a diagonal: {along_diagonals:.0e}")

# %% [markdown]
# The first two pairs of places have the same distance, and so the same angle. The third has the opposite distance and
# another angle: RoPE can tell *before* from *after*. In the square every diagonal has one colour: one score for each
# distance. A query and a key that are alike match best side by side, and worse (with waves) as they move apart.
#
# ### What is RoPE worth?
#
# * It has no parameters, and every layer sees the positions, not only the lowest.
# * It fits a cache (lesson 11): a key is turned once, by its own position, and then kept. The *value* is not turned:
#   the position of a word says how much to look at it, not what to fetch.
#
# ### Texts longer than in training (optional)
#
# RoPE does *not* work for longer texts by itself. The slow pairs turn by small angles only, and beyond the longest
# training text they reach angles that no layer has ever seen:

# %%
D, length = 128, 8192
for theta in (10_000.0, 500_000.0):
    turns = length * np.array(RotaryConfig(theta=theta).frequencies(D)) / (2 * np.pi)
    print(f"θ = {theta:7,.0f}: within {length:,} positions {np.sum(turns < 1)} of {D // 2} pairs turn less than once, "
          f"the slowest {turns.min():.3f} of one")  # fmt: skip

# %% [markdown]
# The fast pairs tell neighbours apart, and have been at every angle in training. The slow ones hardly move within a
# text, and tell far from near. For longer texts Llama 3 has $\theta = 500{,}000$; Llama 3.1 slows the slow pairs
# further (`RotaryConfig.factor`).
#
# ## Grouped heads: sharing keys and values
#
# For every new token a model reads the cached keys and values of *all* tokens so far (lesson 11). How much is that for
# the smallest model in the [paper on Llama 3](https://arxiv.org/abs/2407.21783), with 8 billion parameters and numbers
# of 2 bytes?

# %%
layers, H, D = 32, 32, 128
text, sentences = 8192, 16
for Hk, name in ((32, "a pair of keys and values for each head"), (8, "as published"), (1, "one for all heads")):
    a_token = layers * 2 * Hk * D * 2  # keys and values, of 2 bytes a number
    print(f"Hk = {Hk:2d}: {a_token / 2**10:4.0f} KiB a token, {sentences * text * a_token / 2**30:5.1f} GiB for "
          f"{sentences} texts of {text:,} tokens: {name}")  # fmt: skip
print(f"its weights: {8e9 * 2 / 2**30:.1f} GiB")

# %% [markdown]
# With many texts at once the cache can be larger than the model, and reading it takes most of the time: attention does
# two operations for each number that it reads, far below the ridge of any GPU (lesson 17).
#
# The remedy: fewer heads of keys and values, $H_k$, than of queries, $H$. Each of the $H_k$ serves a **group** of
# $G = H / H_k$ neighbours, so query head $h$ uses head $\lfloor h / G \rfloor$. This is *multi-query* attention for
# $H_k = 1$ ([Shazeer 2019](https://arxiv.org/abs/1911.02150)), and *grouped-query* attention for $1 < H_k < H$
# ([Ainslie and others 2023](https://arxiv.org/abs/2305.13245)).

# %%
D = 128
draw.draw_sharing(
    [
        (8, 8, f"Hk = 8: the paper's\n{2 * 8 * D:,} numbers a token and layer"),
        (8, 2, f"Hk = 2: groups of 4\n{2 * 2 * D:,} numbers a token and layer"),
        (8, 1, f"Hk = 1: multi-query\n{2 * 1 * D:,} numbers a token and layer"),
    ]
)
show(
    "Eight heads of queries above their heads of keys and values: eight of their own, two that serve four neighbours "
    "each, or one that serves all."
)


# %%
def grouped_attention_loops(query, key, value):
    """Head by head: query (B, H, T, D), key and value (B, Hk, T, D) → (B, H, T, D)."""
    out = np.zeros_like(query)
    H, Hk = query.shape[1], key.shape[1]
    for h in range(H):
        shared = h // (H // Hk)
        mine = query[:, h : h + 1], key[:, shared : shared + 1], value[:, shared : shared + 1]
        out[:, h : h + 1] = attention_forward(*mine, causal=True)[0]
    return out


# %% [markdown]
# To compute it in one call, copy each shared head $G$ times:
#
# $$ \text{forward: } \quad \mathrm{key}_h = \mathrm{shared}_{\lfloor h/G \rfloor} \qquad\quad
#    \text{backward: } \quad \mathrm{d\,shared}_j = \;? $$
#
# ### Exercise 4 ★☆☆: the gradient of what is shared
#
# Attention gives a gradient for each of the $H$ copies. What is the gradient of the array that was copied?


# %%
def repeat_heads(x, num_heads):
    """x (B, Hk, T, D) → (B, H, T, D): head h is a copy of head h // (H / Hk)."""
    return np.repeat(x, num_heads // x.shape[1], axis=1)


# %% tags=["exercise"]
def repeat_heads_backward(dy, kv_heads):
    """The gradient of x (B, Hk, T, D) in repeat_heads(x, H).

    dy (B, H, T, D), a gradient for each head of queries; kv_heads: Hk, which divides H → dx (B, Hk, T, D).
    """
    raise NotImplementedError


# %%
repeat_heads_backward = check(repeat_heads_backward)

# %% [markdown] tags=["help"]
# Where something is used several times, what happens to its gradients (lesson 00)? And which heads of `dy` belong to
# the same head of keys: neighbours, or every Hk-th?
#
# ---
#
# Cut the axis of the heads in two, groups and members: `dy.reshape(B, kv_heads, H // kv_heads, T, D)`. Then sum over
# the members.


# %%
def grouped_attention_forward(query, key, value, bias=None, **options):
    """query (B, H, T, D), key and value (B, Hk, T, D) → (B, H, T, D), cache."""
    H, kv_heads = query.shape[1], key.shape[1]
    out, cache = attention_forward(query, repeat_heads(key, H), repeat_heads(value, H), bias, **options)
    return out, (cache, kv_heads)


def grouped_attention_backward(dout, cache):
    cache, kv_heads = cache
    dquery, dkey, dvalue = attention_backward(dout, cache)
    return dquery, repeat_heads_backward(dkey, kv_heads), repeat_heads_backward(dvalue, kv_heads)


B, H, Hk, T, D = 2, 6, 2, 5, 4
query, key, value = (rng.standard_normal((B, heads, T, D)) for heads in (H, Hk, Hk))
out, _ = grouped_attention_forward(query, key, value, causal=True)
print(f"copies against loops:       {error(out, grouped_attention_loops(query, key, value)):.1e}")
print(f"copies against the package: {error(out, attention_forward(query, key, value, causal=True)[0]):.1e}")
arrays = {"query": query, "key": key, "value": value}
checked = check_gradients(
    lambda *three: grouped_attention_forward(*three, causal=True), grouped_attention_backward, arrays
)
print("against central differences: " + ", ".join(f"d{name} {worst:.1e}" for name, worst in checked.items()))

# %% [markdown]
# <details><summary>The gradient</summary>
#
# An array that $G$ heads use gets $G$ gradients, and they add:
# $\mathrm{d\,shared}_j = \sum_{\lfloor h/G \rfloor = j} \mathrm{d\,key}_h$, and the same for values.
#
# </details>
#
# ### What are grouped heads worth? (optional)
#
# They save little in training. In decoding the cache is $G$ times smaller: more texts fit into memory, and fewer bytes
# are read for each token. Queries and keys need as many operations as before, so the gain in time depends on the
# machine's bottleneck. This project has timed a step of decoding on a CPU, in NumPy (`make after ARGS=decoding`;
# in brackets the least and the most of its rounds):

# %%
decoding = measured("decoding")
if decoding:
    sizes, ratio = decoding["sizes"], decoding["ratios"]["grouped"]
    print(f"{sizes['num_layers']} layers, {sizes['num_heads']} heads; after {sizes['lengths'][-1]:,} tokens, all "
          f"{sizes['num_heads']} heads of keys against {sizes['kv_heads']}:")  # fmt: skip
    print(f"    {ratio['moved']:.1f} times the bytes, {rounds_text(ratio['time'])} times the time")

# %% [markdown]
# The price is quality: all heads of a group share the same keys. The end of the lesson measures this price at our size.
#
# ## All four: Llama's block, on your parts (optional)
#
# A model of the package takes its operations from a table (`minitransformer.ops.Ops`). Each entry is a pair, forward
# and backward. Exchange four entries, and the whole model runs on what you wrote:

# %%
mine = replace(
    numpy_ops,
    rmsnorm=Pair(rmsnorm_forward, rmsnorm_backward),
    gated=Pair(lambda gate, up, activation: swiglu_forward(gate, up), swiglu_backward),
    rope=Pair(lambda x, cos, sin, interleaved: rope_forward(x, cos, sin), rope_backward),
    attention=Pair(grouped_attention_forward, grouped_attention_backward),
)
texts = [english for english, _ in pairs("train", seed=0, count=600)]
V = 500
tokenizer = BPETokenizer.train(texts[:300], V)
stream = [token for text in texts for token in [*tokenizer.encode(text), tokenizer.eos_id]]
rows = np.array(stream[: len(stream) // 33 * 33]).reshape(-1, 33)  # (N, 33): 32 tokens, and the one after each
config = GPTConfig.llama(V, d_model=32, num_heads=4, num_kv_heads=2, d_ff=88, num_layers=2, max_length=64)


def gradient_on(ops):
    """The loss of a batch and its gradient, on this table of operations."""
    model = GPT(config, ops=ops, dtype="float64")
    loss, cache = model.loss(rows[:8, :-1], rows[:8, 1:])
    model.loss_backward(1.0, cache)
    return model, float(loss), model.parameters.grad


_, loss, grad = gradient_on(mine)
_, their_loss, their_grad = gradient_on(numpy_ops)
print(f"{config.num_parameters:,} parameters; the loss on your parts {loss:.6f}, on the package's {their_loss:.6f}")
print(f"the gradient against the package's: {error(grad, their_grad):.0e}")
# %% [markdown]
# ### One part at a time
#
# Each part can be exchanged alone, too: the configuration has a field for it. From lesson 19's GPT to Llama's block,
# step by step:

# %%
base = GPTConfig(1000, d_model=64, num_heads=4, d_ff=256, num_layers=4, max_length=256)
steps = {
    "lesson 19's": {},
    "RMSNorm": {"norm": "rmsnorm"},
    "SwiGLU": {"activation": "silu", "gated": True, "d_ff": 2 * 256 // 3},
    "RoPE": {"positions": "rotary"},
    "grouped heads": {"num_kv_heads": 2},
    "no biases": {"bias": False, "attention_bias": False},
}
print("with                parameters   kept of each token, in a cache")
changed = base
for name, fields in steps.items():
    changed = replace(changed, **fields)
    attention = changed.decoder.block.attention
    kept = changed.num_layers * attention.kv_heads * (attention.d_k + attention.d_v)
    print(f"{'+ ' * bool(fields) + name:<18} {num_parameters(changed):11,}   {kept:6,} numbers")

# %% [markdown]
# RMSNorm drops the shifts, RoPE the table of positions, grouped heads half of $W^K$ and $W^V$ here. With SwiGLU the
# number hardly moves, because $F$ was chosen so. (Llama leaves out the biases as well.)
#
# These are the names of the weights in Llama's files, which `minitransformer.pretrained` reads and writes:

# %%
for row in llama_table(config)[:8]:
    names = " ".join(name.removeprefix("model.").removesuffix(".weight") for name in row.theirs)
    print(f"{row.ours.removeprefix('decoder.'):<47} {names}  {', '.join(map(str, row.shapes))}")

# %% [markdown]
# Our matrices are (in, out), as in the paper; theirs are (out, in). Our projections of a layer are one matrix, theirs
# are three. Gate and up are one matrix here, and two there. And `post_attention_layernorm` is no post-norm: it stands
# after the attention, and is the pre-norm of the feed-forward network.
#
# ## T5's bias: distances in buckets (optional)
#
# T5 ([Raffel and others 2020](https://arxiv.org/abs/1910.10683)) adds a number to each score instead. It learns a table
# of 32 numbers for each head, shared by all layers. The distance alone decides which of the 32 is added: near distances
# have a **bucket** each, farther ones share one, and the last bucket holds all that is far. An encoder looks both ways,
# so half of its buckets are for keys before the query and half for keys after it. A decoder uses all of them for the
# past.

# %%
distances = np.arange(-150, 151)
buckets = {
    name: np.array([bucket_of(int(each), 32, 128, causal) for each in distances])
    for name, causal in (("encoder", False), ("decoder", True))
}
T = 10
between = np.array([[bucket_of(key - query, 32, 128, False) for key in range(T)] for query in range(T)])  # (Tq, Tk)
draw.draw_buckets(distances, buckets, between)
show(
    "T5's buckets by distance: near distances have a bucket each, far ones share one. An encoder uses half of the "
    "buckets for each direction, a decoder all of them for the past."
)

# %% [markdown]
# The forward is a look-up: `bias[h, i, j] = table[bucket[i, j], h]`. So the backward is that of lesson 02's look-up, a
# **scatter-add**: every score adds its gradient to the bucket that it used. One number of the table serves all pairs of
# tokens at its distances, in every sentence.

# %%
H, D = 3, 4
relative = RelativeBias(numpy_ops, BiasConfig("t5"), H, causal=False, dtype="float64")
FlatParameters(dict(relative.named_parameters()), numpy_ops, "float64").initialize(seed=0)
table = relative.table.data.copy()  # (32, H)
query, key, value = rng.standard_normal((3, 2, H, T, D))


def biased_forward(table):
    return attention_forward(query, key, value, table[between].transpose(2, 0, 1)[None])  # bias (1, H, Tq, Tk)


def biased_backward(dout, cache):
    *_, dbias = attention_backward(dout, cache)  # (1, H, Tq, Tk): the sum over sentences
    dtable = np.zeros_like(table)
    np.add.at(dtable, between, dbias[0].transpose(1, 2, 0))
    return dtable


checked = check_gradients(biased_forward, biased_backward, {"table": table})
print(f"dtable against central differences {checked['table']:.1e}")
out, cache = biased_forward(table)
bias, bias_cache = relative.forward(T, T)
dout = rng.standard_normal(out.shape)
relative.backward(attention_backward(dout, attention_forward(query, key, value, bias)[1])[-1], bias_cache)
print(f"dtable against the package's layer {error(biased_backward(dout, cache), relative.table.grad):.1e}")

# %% [markdown]
# **ALiBi** ([Press and others 2022](https://arxiv.org/abs/2108.12409)) needs no table: it subtracts the distance times
# a fixed slope, another one for each head, so that every head prefers near tokens.
#
# ## RMSNorm as a kernel (optional)
#
# Layer norm's kernel in lesson 15 had a trap: after the mean was subtracted, lanes beyond the row were no longer 0.
# In RMSNorm a 0 stays 0, so its kernel is shorter, and one trap is gone. Without a GPU it runs in Triton's interpreter.

# %%
print(machine())

# %% [markdown]
# ### Exercise 5 ★★☆: RMSNorm's forward in Triton (optional)
#
# One program for each row. It reads the row once, keeps it in registers, and writes $y$, and the $r$ that the backward
# will need.


# %% tags=["exercise"]
@triton.jit
def rmsnorm_kernel(x_ptr, gamma_ptr, y_ptr, rstd_ptr, n, eps, BLOCK: tl.constexpr):
    """One row of y, and its rstd."""
    raise NotImplementedError


def rmsnorm_rows(x, gamma, eps=1e-6):
    """y = gamma · x · rstd with rstd = 1 / √(mean(x²) + eps), row by row.

    x (N, n) and gamma (n,), float32 and contiguous → the tuple y (N, n), rstd (N,), float32 too. Launches the kernel
    above once, with a program for each row; it loads each number of x once, and stores each of y and rstd once.
    """
    raise NotImplementedError


# %%
rmsnorm_rows = check(rmsnorm_rows)

# %% [markdown] tags=["help"]
# Which of the two sums of layer norm's kernel is left? What must lanes beyond the row hold, so that they add nothing to
# it? And by what is it divided: by the length of the row, or of the block?
#
# ---
#
# In the kernel: `x = tl.load(x_ptr + row * n + column, mask, other=0.0)`, then
# `rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n + eps)`; store `x * rstd * gamma` with the mask, and `rstd` at
# `rstd_ptr + row`. On the host: `rmsnorm_kernel[(num_rows,)](..., BLOCK=triton.next_power_of_2(n))`.


# %%
def kernel_errors():
    x, gamma = 2 + rng.standard_normal((40, 300)), 1 + rng.random(300)
    y, rstd = rmsnorm_rows(tensor(x), tensor(gamma))
    expected, (_, expected_rstd, _) = ops.rmsnorm_forward(x, gamma, 1e-6)
    package, _ = kernels.rmsnorm_forward(tensor(x), tensor(gamma), 1e-6)
    return {
        "y against NumPy in float64": error(numpy(y), expected),
        "rstd against NumPy in float64": error(numpy(rstd), expected_rstd[:, 0]),
        "y against the package's kernel": error(numpy(y), numpy(package)),
    }


for what, off in recorded("20_rmsnorm", kernel_errors).items():
    print(f"{what:<31} {off:.0e}")

# %% [markdown]
# ## What each is worth, at equal cost
#
# Does a model *learn* more with a part? This project took a small GPT, exchanged one part at a time, and trained each
# variant with three seeds for the same number of operations (`lessons/after`, experiment `ablation`). Each line below
# is a variant's test loss minus the base's, with its uncertainty over seeds and test sentences. **If the interval
# crosses zero, these training runs cannot tell the two apart.**

# %%
found = measured("ablation")
if found:
    worth = gaps(found)
    print("part            loss minus the base's (95 %)       parameters   steps")
    for name, gap in worth.items():
        of_it = found["variants"][name]
        said = "a training run diverged" if gap is None else gap.text(4, sign=True)
        verdict = "" if gap is None or gap.excludes_zero else "  cannot be told apart"
        print(f"{name:<15} {said:<33} {of_it['parameters']:11,} {of_it['steps']:7,}{verdict}")
    draw.draw_worth({name: gap for name, gap in worth.items() if gap is not None}, COLOURS)
    show(
        "Each variant's loss minus the base's, with its interval: left of the line is better than lesson 19's parts. "
        "The intervals of RMSNorm and of grouped heads cross the line."
    )

# %% [markdown]
# ("grouped" has one head of keys and values for all four of queries; SwiGLU's network is narrower, so that the number
# of parameters is the base's.) These differences hold for this size, this learning rate and these simple sentences; a
# large model may differ. RMSNorm and grouped heads save time and memory; the question is only whether they *raise* the
# loss.
#
# ### Beyond the length of training (optional)
#
# *Ratio* is the perplexity of tokens beyond the length of training, divided by the perplexity of tokens in its second
# half (in brackets the 95 % interval). Near 1 means that the longer text does no harm:

# %%
if found:
    for name, ratio in beyond(found).items():
        print(f"{name:<15} {'a training run diverged' if ratio is None else f'ratio {ratio.text(2)}'}")

# %% [markdown]
# ## Common mistakes, and what they look like
#
# None of these raises an error. A model even trains well with other pairs, other groups or another gate: the mistake
# shows only when you load weights from elsewhere.
#
# * **Halves or neighbours.** Both are right, each with its own weights. Reorder the channels of $W^Q$ and $W^K$ to turn
#   one into the other.
# * **Positions that start again.** A decoder with a cache must know where the new token stands.
# * **Which heads share.** Neighbours do: `np.repeat`, and not `np.tile`.
# * **Which half is the gate.** In `silu(gate) · up` it is the half with the activation.
# * **$1 + \gamma$.** Some models (Gemma) store $\gamma - 1$. Loaded as $\gamma$, every norm has the wrong scale.
#
# ### How far each is off (optional)

# %%
T, D = 6, 8
cos, sin = angle_tables(T, D)
query, key = rng.standard_normal((2, 1, 1, T, D))
right = attention_weights(rope_forward(query, cos, sin)[0], rope_forward(key, cos, sin)[0])

neighbours = [ops.rope_forward(each, cos, sin, interleaved=True)[0] for each in (query, key)]
order = np.arange(D).reshape(2, -1).T.ravel()  # 0, 4, 1, 5, …: the halves' pairs as neighbours
moved = [ops.rope_forward(each[..., order], cos, sin, interleaved=True)[0] for each in (query, key)]
print(
    f"neighbours, with weights that are made for halves:     off by {error(attention_weights(*neighbours), right):.2f}"
)
print(f"the same, with the channels in the other order:        off by {error(attention_weights(*moved), right):.0e}")

one = rope_forward(query[:, :, -1:], cos[:1], sin[:1])[0]  # the newest query, taken for the first
turned = rope_forward(key, cos, sin)[0]
print(f"in decoding, a new token turned as position 0:         off by "
      f"{error(attention_weights(one, turned), right[:, :, -1:]):.2f}")  # fmt: skip

H, Hk = 6, 2
query, key, value = (rng.standard_normal((1, heads, T, D)) for heads in (H, Hk, Hk))
tiled = [np.tile(each, (1, H // Hk, 1, 1)) for each in (key, value)]  # heads 0, 1, 0, 1, …
print(f"head h of the queries with head h % Hk of the keys:    off by "
      f"{error(attention_forward(query, *tiled)[0], attention_forward(query, key, value)[0]):.2f}")  # fmt: skip

gate, up = rng.standard_normal((2, 1, 4, 5))
print(f"gate and up exchanged:                                 off by "
      f"{error(swiglu_forward(up, gate)[0], swiglu_forward(gate, up)[0]):.2f}")  # fmt: skip

# %% [markdown]
# ## What changed since 2017
#
# Most open models agree on pre-norm with RMSNorm, SwiGLU, rotary positions and grouped heads, among them
# [Llama 3](https://arxiv.org/abs/2407.21783), [Mistral 7B](https://arxiv.org/abs/2310.06825) and
# [Qwen2](https://arxiv.org/abs/2407.10671). They differ in other things: [Qwen3](https://arxiv.org/abs/2505.09388)
# normalises queries and keys once more; in [Gemma 2](https://arxiv.org/abs/2408.00118) every second layer sees only a
# window of the text; in [DeepSeek-V3](https://arxiv.org/abs/2412.19437) a token goes through a few of many feed-forward
# networks (a mixture of experts), and heads make their keys and values from a few numbers in the cache.
#
# ## Open projects (optional)
#
# * **Group a trained model.** Take a model with $H$ heads of keys and values. Replace each group of heads in $W^K$ and
#   $W^V$ by their mean, train a few more steps, and see how fast the loss recovers (Ainslie and others 2023, §2.1).
#   Compare the mean with the first head of each group.
# * **Change a file's pairs.** Write the permutation that turns a model with neighbours,
#   `RotaryConfig(interleaved=True)`, into one with halves, and prove that the logits are the same. Mind which of the
#   stacked projections it touches.
# * **Fuse the gate.** Write `silu(gate) · up` as a Triton kernel, forward and backward, without keeping silu(gate).
#   Count the bytes as in lesson 15, and compare with `kernels/elementwise.py`.
#
# ## Where next
#
# The block still reads from left to right. [Lesson 21](21_bert.ipynb) takes the mask away, and reads in both
# directions.
