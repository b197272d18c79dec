# %% [markdown]
# # 23 · Efficient attention: windows, global tokens, and a recurrent network in disguise
#
# **You will be able to** say what attention costs on a text of any length; leave out pairs of tokens, and know what can
# no longer be found; and turn attention into a recurrent network, in optional parts also backward and as a kernel.
#
# | | |
# |---|---|
# | you know | [attention](04_attention.ipynb), [caches](11_decoding.ipynb), [Table 1](13_why_attention.ipynb) |
# | runs in | at most 60 s on 2 cores; no GPU, no network; PyTorch and Triton in one optional part, or its recording |
# | in the paper | §4, "restricted self-attention"; Child et al. 2019; Beltagy et al. 2020; Katharopoulos et al. 2020 |
# | in the package | [`Pattern`](../minitransformer/ops/pattern.py), [`linear_attention`][linear] |
#
# [linear]: ../minitransformer/ops/linear_attention.py
#
# The paper's sentences have some 30 tokens. What would happen if a text had 100,000, like a novel of 300 pages, a large
# program or a day of meetings? Every token would look at every other one. Make a guess before you go on: what breaks
# first, the time or the memory? And what would you leave out?

# %%
import re
import textwrap

import matplotlib.pyplot as plt
import numpy as np

from after.command import STUDY
from course import recorded, start
from course.compiled import compiled
from course.gpu import tl, torch, triton  # before anything else imports triton
from course.lesson_17.roofline import GPUS
from course.lesson_23.needle import SPECIAL, found
from course.lesson_23.pictures import draw_chunks, draw_decoding, draw_distances, draw_layers, draw_recall
from course.measuring import blas_threads, race
from course.style import show
from course.tensors import numpy, tensor
from minitransformer import ops
from minitransformer.gradcheck import GradientError, check_gradients, error
from minitransformer.layers import SparseConfig
from minitransformer.ops import Pattern, attention_backward, attention_forward, attention_weights
from study.measuring import crossing_text
from study.report import sections

check = start("23")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)

# %% [markdown]
# ## Count first
#
# Take six layers of the paper's base model, $C = 512$ and 8 heads. Lesson 13 counted: in each layer attention takes
# $4n^2C$ operations, and the rest $24nC^2$. Three more numbers matter. The *attention weights* of one layer, in
# float32: training keeps them for the backward. The *time* of one pass forward on an H100, if it did only these
# products, at the full rate of its data sheet. And the *cache* of keys and values: a token that is written after $n$
# others reads all of it.

# %%
C, H, LAYERS = 512, 8, 6
h100 = next(gpu for gpu in GPUS if gpu.name == "H100")


def readable(count):
    """Bytes in the unit that a reader can picture."""
    power = int(np.log2(count) // 10)
    return f"{count / 2 ** (10 * power):,.0f} {' KMGT'[power]}iB"


print(f"{'n':>10} {'share of attention':>19} {'time, at least':>16} {'attention weights':>19} {'cache':>10}")
for n in (32, 1_000, 10_000, 100_000, 1_000_000):
    attention, rest = LAYERS * 4 * n**2 * C, LAYERS * 24 * n * C**2
    milliseconds = 1e3 * (attention + rest) / h100.flops
    weights, cache = 4 * H * n**2, LAYERS * 4 * 2 * n * C
    share = attention / (attention + rest)
    print(f"{n:>10,} {share:>19.1%} {milliseconds:>13,.3f} ms {readable(weights):>19} {readable(cache):>10}")

# %% [markdown]
# The attention weights break first. Lesson 16 has the cure: flash attention never stores them. But it does not reduce
# the number of operations. At 100,000 tokens nearly all operations are attention's, and ten times the text takes a
# hundred times as long. The cache grows only as $n$, but to write 1,000 tokens you read it 1,000 times.
#
# There are two ways out. **See less**: leave out most of the pairs. Or **add up differently**: change the formula so
# that the pairs are never needed. Neither is free, so for each we measure what it saves, and what a model can no longer
# find.
#
# ## See less
#
# An $n \times n$ matrix of truth values says which query may see which key. The package describes it by a `Pattern`.
# Its parts are joined; `causal` then hides the future from all of them.
#
# | part | a query sees | from |
# |---|---|---|
# | `window=r` | keys at a distance of $r$ or less | the paper's §4 |
# | `global_tokens=(0,)` | these tokens, which see every key | Longformer (Beltagy 2020) |
# | `block=b` | the keys of its own block of $b$ positions | Sparse Transformer, *fixed* (Child 2019) |
# | `summary=s` | the last $s$ keys of every block | the same |
# | `stride=s` | keys at a distance that is a multiple of $s$ | Sparse Transformer, *strided* |

# %%
T, R = 64, 8
PATTERNS = {
    "full, causal": Pattern(causal=True),
    "window, causal": Pattern(causal=True, window=R),
    "window and global token": Pattern(window=R, global_tokens=(0,)),
    "the same, causal": Pattern(causal=True, window=R, global_tokens=(0,)),
    "block and summary, causal": Pattern(causal=True, block=R, summary=1),
    "window and stride, causal": Pattern(causal=True, window=R, stride=R),
}
positions = np.arange(T)
allowed = {name: pattern.allows(positions[:, None], positions[None]) for name, pattern in PATTERNS.items()}
for name, each in allowed.items():
    print(f"{name:<28} {each.sum():>5,} of {T * T:,} pairs")

# %% [markdown]
# A pair that is left out is not lost. Position 9 sees position 1, and position 17 sees position 9, so after two layers
# something of position 1 may have arrived at position 17. The question is how many layers it takes.
#
# ### Exercise 1 ★☆☆: how many layers until it is heard?
#
# All layers have the same pattern. Around each attention is a residual connection (lesson 07), so a position keeps what
# it has.


# %% tags=["exercise"]
def layers_until_heard(allowed):
    """The least number of layers after which each position has heard of each other one.

    allowed (T, T) bool: in every layer, query i sees key j where allowed[i, j]. Besides, each position keeps what it
    has heard of. → integers (T, T): in row i, column j the number of layers after which position i has heard of
    position j; 0 for itself, −1 for never.
    """
    raise NotImplementedError


# %%
layers_until_heard = check(layers_until_heard)

# %% [markdown] tags=["help"]
# Keep a matrix `heard`: has $i$ heard of $j$? Before the first layer it is the identity. In a layer, $i$ listens to
# some positions. Which positions has it heard of afterwards?
#
# ---
#
# After a layer, $i$ has heard of $j$ if it listens to *any* position that had heard of $j$. That is a product of two
# matrices, `listens @ heard > 0`, with `listens = allowed | identity`. Write the layer's number wherever `heard` has
# just become true. Stop when nothing is new.

# %% [markdown]
# ### The picture
#
# A row is a query, a column is a key. The darkest shade is the query's own place; the paler a place, the more layers it
# takes until the query has heard of the key; white is never. Above each map are its price, the mean number of keys that
# a query sees, and the layers until the last position has heard of all before it.

# %% tags=["picture"]
draw_layers({name: layers_until_heard(each) for name, each in allowed.items()}, allowed)
show("Six patterns. With full attention every earlier key is heard of after one layer. With a causal window it takes "
     "more layers the farther back the key is, and a global token at the beginning does not help. All other patterns "
     "need two layers.")  # fmt: skip

# %% [markdown]
# * **Window.** Each layer adds $r$ positions. After $L$ layers a position has heard of what is up to $L \cdot r$ back,
#   its [**receptive field**](glossary.md#receptive-field), as in a convolution. That is cheap and slow.
# * **Window and [global token](glossary.md#global-token).** Position 0 sees all positions, and all see position 0. In
#   the first layer it collects, in the second it passes on. Two layers are enough for any $n$.
# * **The same, causal.** The global token no longer passes anything on! It is at the beginning, so it sees only itself:
#   a notice board that all can read and none can write on. In a causal model such a token must stand at the *end* of
#   what it sums up, as summaries do.
# * **Block and summary.** The last position of each block takes in its block (first layer), and all later positions
#   look at it (second layer). Two layers, and it is causal.
# * **Window and stride.** One layer goes back by any multiple of $r$, and another one by the rest, which is within the
#   window. Two layers, too.
#
# In the last two, let the block or the stride be $\sqrt n$. Then each query sees at most about $2\sqrt n$ keys, two
# layers reach everything, and a layer costs $O(n \sqrt n)$: the idea of the Sparse Transformer. For our 100,000 tokens:

# %%
n = 100_000
root = round(n**0.5)
print(f"full:             {n:>7,} keys at most,   1 layer  from end to end")
for r in (512, 4096):
    print(f"window {r:>5,}:     {r + 1:>7,} keys at most, {-(-(n - 1) // r):>3} layers from end to end")
print(f"block, b = {root}:   {2 * root:>7,} keys at most,   2 layers from end to end")

# %% [markdown]
# ### What it saves
#
# A mask saves nothing: all scores are computed, and most of them are thrown away (lesson 13 measured it). The package
# cuts the matrix into pieces instead, each a product of some queries with the keys that they reach together. Here are
# 4,096 tokens, one head, forward:

# %%
n, r = 4096, 64
q, k, v = rng.standard_normal((3, 1, 1, n, 64), dtype=np.float32)
LONG = {
    "full": Pattern(causal=True),
    "window": Pattern(causal=True, window=r),
    "window and global token": Pattern(causal=True, window=r, global_tokens=(0,)),
    "block and summary": Pattern(causal=True, block=r, summary=1),
    "window and stride": Pattern(causal=True, window=r, stride=r),
}
runs = {name: lambda pattern=pattern: attention_forward(q, k, v, pattern=pattern) for name, pattern in LONG.items()}
seconds = race(runs, rounds=3, turn=0)
print(f"{f'n = {n:,}, r = b = s = {r}':<25}{'pairs':>12} {'time':>11} {'of full attention':>20}")
for name, pattern in LONG.items():
    pairs = pattern.allows(np.arange(n)[:, None], np.arange(n)[None]).sum()
    print(f"{name:<24} {pairs:>12,} {1e3 * seconds[name]:>8.1f} ms {seconds[name] / seconds['full']:>20.0%}")

# %% [markdown]
# The time falls, but less than the number of pairs. Pieces are larger than what they keep. And a stride's keys are not
# neighbours in memory, so they have to be collected first.
#
# ## The gradient of a global token (optional)
#
# An ordinary key in a window is seen by a few queries, a global token by all $n$. What does that mean for the way back?
# The weights of query $i$ sum to 1 over all the keys that it sees. Let $w_{ig}$ be its weight on the global token $g$,
# and $s_{ig} = q_i \cdot k_g / \sqrt D$ its score. The softmax's backward needs the other keys in one place only, the
# mean $\sum_j \mathrm{d}w_{ij} w_{ij}$. An optional part of lesson 16 has a shortcut for it, its $\delta_i$:
#
# $$ \sum_j \mathrm{d}w_{ij}\, w_{ij} = \sum_j (\mathrm{d}o_i \cdot v_j)\, w_{ij} = \mathrm{d}o_i \cdot o_i $$
#
# So one column of the weights and the output are enough; the other keys are not needed.
#
# ### Exercise 2 ★★☆: the backward of a global token


# %% tags=["exercise"]
def global_token_backward(dout, out, query, value_g, weights_g):
    """Gradients of the key and the value of one token that all queries see.

    dout and out (T, Dv); query (T, D); value_g (Dv,), its value; weights_g (T,): each query's weight on it. The scores
    were divided by √D. → the tuple dkey_g (D,), dvalue_g (Dv,): through this key and this value alone.
    """
    raise NotImplementedError


# %%
global_token_backward = check(global_token_backward)

# %% [markdown] tags=["help"]
# The output of query $i$ is $\dots + w_{ig} v_g$. To how many outputs does $v_g$ contribute? And what happens to a
# gradient if something is used in many places?
#
# ---
#
# `dvalue_g = weights_g @ dout`. For the key: `dweights_g = dout @ value_g`, then the softmax's backward for this
# column, `dscores_g = weights_g * (dweights_g - mean)`, where the mean of row $i$ is $\mathrm{d}o_i \cdot o_i$. Then
# back through $q_i \cdot k_g / \sqrt D$, and the sum over $i$ is a product.

# %%
n, g = 400, 5
query, key, value = rng.standard_normal((3, n, 16))
pattern = Pattern(window=2, global_tokens=(g,))
heads = query[None, None], key[None, None], value[None, None]
out, cache = attention_forward(*heads, pattern=pattern)
weights = attention_weights(*heads[:2], pattern=pattern)[0, 0]
dout = rng.standard_normal(out.shape)
_, dkey, dvalue = (gradient[0, 0] for gradient in attention_backward(dout, cache))

dkey_g, dvalue_g = global_token_backward(dout[0, 0], out[0, 0], query, value[g], weights[:, g])
print(f"against the package: dkey {error(dkey_g, dkey[g]):.0e}, dvalue {error(dvalue_g, dvalue[g]):.0e}")
for name, gradient in (("dkey", dkey), ("dvalue", dvalue)):
    size = np.linalg.norm(gradient, axis=1)
    print(f"{name:<7} of the global token: length {size[g]:5.2f}; of the others: median {np.median(size):.2f}")

# %% [markdown]
# Its gradient is a sum of $n$ terms. Others have six: from the five queries whose windows hold them, and from the
# global token's own query, which sees every key. So a global token learns with a larger gradient than its neighbours.
# (Longformer gives global tokens three projections of their own.) And if a text is spread over several processors, each
# has a part of this sum, and they must add the parts up.
#
# ## Which models find it?
#
# A path in the picture says that a signal *could* travel. Does a trained model use it? Here is a task whose answer may
# be far away. A text has 64 tokens. Nearly all are noise, but somewhere among them is one of eight special tokens, the
# needle. The last token is a question mark, and there the model must name the needle. [The
# models](course/lesson_23/needle.py) are small and trained for some seconds. Each is a decoder alone, which the package
# calls a `GPT`, without positions, because the task needs none.

# %%
REACH = 12
hits = {
    "window 12, 2 layers": found(num_layers=2, window=REACH),
    "window 12, 3 layers": found(num_layers=3, window=REACH),
    "window 12 and global token, 2 layers": found(num_layers=2, window=REACH, sparse=SparseConfig(global_tokens=1)),
    "block 8 and summary, 2 layers": found(num_layers=2, sparse=SparseConfig(block=8, summary=1)),
    "linear attention, 2 layers": found(num_layers=2, attention="linear"),
}

# %%
layers = {name: int(re.findall(r"(\d) layers", name)[0]) for name in hits}
draw_distances(hits, {name: layers[name] * REACH for name in hits if "window" in name}, 1 / SPECIAL)
show("The share of needles found at each distance. With windows it is 1 up to layers times window, then chance; a "
     "global token adds the farthest distance. Blocks with summaries, and linear attention, find all.")  # fmt: skip

# %% [markdown]
# The dotted lines are not fitted: they are at $L \cdot r$. Up to there the windows find the needle, in relays: layer 1
# carries it up to 12 positions, layer 2 carries it on. Beyond that line there is no path, so the model guesses, and no
# training could change that. The causal global token helps at one distance, the largest: there the needle *is* the
# global token. Block and summary find it everywhere, with a quarter of the pairs, and so does [linear
# attention](glossary.md#linear-attention), which is next.
#
# ## Add up differently
#
# Attention gives each query a weighted mean. Write $\mathrm{sim}(q, k)$ for the weight before it is divided by the sum:
#
# $$ o_i = \frac{\sum_j \mathrm{sim}(q_i, k_j)\, v_j}{\sum_j \mathrm{sim}(q_i, k_j)}
#    \qquad \text{softmax: } \mathrm{sim}(q, k) = e^{q \cdot k / \sqrt D} $$
#
# The exponential ties $q_i$ and $k_j$ together, so it has to be computed for each pair. Now choose another
# $\mathrm{sim}$, a product of [**features**](glossary.md#feature-map): $\mathrm{sim}(q, k) = \phi(q) \cdot \phi(k)$.
# Vectors are rows, so $\phi(q) \cdot \phi(k) = \phi(q)\, \phi(k)^\top$, and $\phi(q_i)$ is at the left of every term.
# Take it out of the sum:
#
# $$ \begin{aligned}
#    &\sum_j \phi(q_i)\, \phi(k_j)^\top v_j = \phi(q_i)
#      \Big( \underbrace{\sum_j \phi(k_j)^\top v_j}_{S\ (D,\, D_v)} \Big) \\
#    &\sum_j \phi(q_i)\, \phi(k_j)^\top = \phi(q_i) \cdot \underbrace{\sum_j \phi(k_j)}_{z\ (D,)}
# \end{aligned} $$
#
# $S$ and $z$ do not depend on $i$: they are computed once and serve every query. With matrices, only the brackets
# change: $(\phi(Q)\,\phi(K)^\top)\,V = \phi(Q)\,(\phi(K)^\top V)$. On the left the product in the middle is
# $n \times n$, on the right $D \times D_v$.
#
# The weights should be positive, and they are if $\phi$ is. Katharopoulos and others (2020) take
# $\phi(x) = \mathrm{elu}(x) + 1$, number by number: $x + 1$ above 0, and $e^x$ below.


# %%
def phi(x):
    """elu(x) + 1, always positive."""
    return np.maximum(x, 0) + np.exp(np.minimum(x, 0))


n, D = 4096, 64
query, key, value = rng.standard_normal((3, n, D))


def pairs_first():
    weights = phi(query) @ phi(key).T  # (n, n)
    return weights @ value / weights.sum(axis=1, keepdims=True)


def states_first():
    state, total = phi(key).T @ value, phi(key).sum(axis=0)  # (D, Dv), (D,)
    return phi(query) @ state / (phi(query) @ total)[:, None]


print(f"the same up to {error(pairs_first(), states_first()):.0e}")
print(f"operations: 4 n² D = {4 * n * n * D / 1e9:.2f}e9 and 4 n D² = {4 * n * D * D / 1e9:.2f}e9")
both = race({"pairs": pairs_first, "states": states_first}, rounds=3, turn=0)
print(f"time: {1e3 * both['pairs']:.0f} ms and {1e3 * both['states']:.1f} ms")

# %% [markdown]
# This is **not** a faster softmax attention. It is another function with other weights, and a model must be trained
# with it. The weights of a model that was trained with the softmax fit, raise no error, and do not work.
#
# ### Causal: a running sum
#
# In a language model query $t$ may see the keys up to $t$ only, so each query needs its own $S$. But neighbouring $S$
# differ by one term:
#
# $$ \begin{aligned}
#    &S_t = S_{t-1} + \phi(k_t)^\top v_t \\
#    &z_t = z_{t-1} + \phi(k_t) \\
#    &o_t = \frac{\phi(q_t)\, S_t}{\phi(q_t) \cdot z_t + \epsilon}
# \end{aligned} $$
#
# Look again. There is a [state](glossary.md#state); each token changes it, and then something is read from it. That is
# a **recurrent network**, as in lesson [03](03_before_attention.ipynb)! (Katharopoulos and others call their paper
# "Transformers are RNNs".) Its state has $D \cdot D_v + D$ numbers, $D(D + 1)$ if $D_v = D$, however long the text is.
# The small $\epsilon$ keeps the division safe where all features are tiny.
#
# ### Exercise 3 ★☆☆: linear attention as a running sum


# %% tags=["exercise"]
def linear_attention(query, key, value, eps=1e-6):
    """Causal linear attention of one sequence, one head: query and key (T, D), value (T, Dv) → out (T, Dv).

    out_t = φ(q_t) S_t / (φ(q_t) · z_t + eps), where S_t and z_t hold the keys up to t, t included. `phi` is above. The
    numbers that are read, written and multiplied grow as T, and no array is as large as (T, T) or (T, D, Dv).
    """
    raise NotImplementedError


# %%
linear_attention = check(linear_attention)

# %% [markdown] tags=["help"]
# What has to be remembered from one token to the next, and in which shapes? What comes first at token $t$, writing into
# the state or reading from it?
#
# ---
#
# `state` begins as zeros (D, Dv), `total` as zeros (D,). For each `t`: add `np.outer(phi(key[t]), value[t])` to the
# one and `phi(key[t])` to the other. Then `phi(query[t]) @ state`, divided by `phi(query[t]) @ total + eps`.

# %%
T, D, Dv = 200, 8, 6
query, key, value = rng.standard_normal((T, D)), rng.standard_normal((T, D)), rng.standard_normal((T, Dv))
out = linear_attention(query, key, value)
weights = np.tril(phi(query) @ phi(key).T)  # (T, T)
print(f"against all weights at once: {error(out, weights @ value / (weights.sum(axis=1, keepdims=True) + 1e-6)):.0e}")

heads = [part[None, None] for part in (query, key, value)]  # the package's (B, H, T, D)
theirs, cache = ops.linear_attention_forward(*heads, causal=True)
print(f"against the package:         {error(out, theirs[0, 0]):.0e}")

state = (None, None)
steps = []
for t in range(T):  # as a decoder writes: one token, and what is left of all before it
    step, state = ops.linear_attention_step(*(part[:, :, t : t + 1] for part in heads), *state)
    steps.append(step[0, 0, 0])
kept = sum(part.size for part in state)
print(f"token by token:              {error(out, np.array(steps)):.0e}; state: {kept} = {D} · ({Dv} + 1) numbers")

# %% [markdown]
# ### Backwards through the running sum (optional)
#
# Take the forward apart: $a_t = \phi(q_t) S_t$, $b_t = \phi(q_t) \cdot z_t + \epsilon$ and $o_t = a_t / b_t$. First
# undo the quotient:
#
# $$ \mathrm{d}a_t = \frac{\mathrm{d}o_t}{b_t} \qquad \mathrm{d}b_t = -\,\mathrm{d}a_t \cdot o_t $$
#
# Both reach the query through what it read: $\mathrm{d}\phi(q_t) = \mathrm{d}a_t\, S_t^\top + \mathrm{d}b_t\, z_t$. For
# this the states are needed again, in the order of the forward.
#
# And the keys? $k_t$ and $v_t$ went into $S_t$, and from there into $S_{t+1}$ and all later states. Each query
# $i \ge t$ has read from a state that holds them. So the gradient of $S_t$ is a sum over all these queries:
#
# $$ \begin{aligned}
#    &\mathrm{d}S_t = \sum_{i \ge t} \phi(q_i)^\top\, \mathrm{d}a_i \\
#    &\text{that is}\quad \mathrm{d}S_t = \mathrm{d}S_{t+1} + \phi(q_t)^\top\, \mathrm{d}a_t
# \end{aligned} $$
#
# It is a running sum again, **from the end to the beginning**: backpropagation through time (lesson 03), with one
# difference. There each step back multiplied the gradient by a matrix and by a slope, and it vanished. Here each step
# back multiplies by 1, and a distant gradient arrives as it was sent.
#
# ### Exercise 4 ★★★: backwards through the running sum (optional)
#
# $z$ has such a sum too. And in the end, $\phi(q)$ is not yet $q$: the slope of $\phi$ is 1 above 0, and $e^x$ below.


# %%
def phi_slope(x):
    """φ'(x): 1 above 0, e^x below."""
    return np.exp(np.minimum(x, 0))


# %% tags=["exercise"]
def linear_attention_backward(dout, query, key, value, eps=1e-6):
    """Gradients of linear_attention(query, key, value, eps): dout (T, Dv) → the tuple dquery, dkey, dvalue.

    You may compute again what the forward computed on its way; `phi` and `phi_slope` are above. The numbers
    that are read, written and multiplied grow as T, and no array is as large as (T, T) or (T, D, Dv).
    """
    raise NotImplementedError


# %%
linear_attention_backward = check(linear_attention_backward)

# %% [markdown] tags=["help"]
# Two walks through the sequence. Which gradients can you finish on the way forward, where $S_t$ and $z_t$ are at hand?
# What must be kept for the second walk? And what is $\mathrm{d}z_t$, by the argument for $\mathrm{d}S_t$?
#
# ---
#
# Forward: compute $S_t$ and $z_t$ as before, then `dnumerator[t]` ($\mathrm{d}a_t$), `ddenominator[t]`
# ($\mathrm{d}b_t$) and the gradient of $\phi(q_t)$. Backward, from the last `t`: first add
# `np.outer(phi(query[t]), dnumerator[t])` to `dstate` and `phi(query[t]) * ddenominator[t]` to `dtotal`. Then undo
# `S += φ(k)ᵀ v` and `z += φ(k)`: the gradient of $\phi(k_t)$ is `dstate @ value[t] + dtotal`, that of $v_t$ is
# `phi(key[t]) @ dstate`. Last, multiply by `phi_slope`.

# %%
arrays = {"query": query[:12], "key": key[:12], "value": value[:12]}
worst = check_gradients(
    lambda *given: (linear_attention(*given), given), lambda d, given: linear_attention_backward(d, *given), arrays
)
dout = rng.standard_normal(out.shape)
mine = linear_attention_backward(dout, query, key, value)
for name, ours, other in zip(arrays, mine, ops.linear_attention_backward(dout[None, None], cache), strict=True):
    print(f"d{name:<6} central differences {worst[name]:.0e}   the package {error(ours, other[0, 0]):.0e}")

# %% [markdown]
# **A common mistake: the denominator is taken for a constant.** Keys and queries also change what they are divided by.
# Values do not, so `dvalue` is right, and the rest is not. Query 0 shows it best. It sees one key, so its output is
# $v_0$ whatever it asks, and its gradient is nearly zero:


# %%
def constant_denominator(dout, given):
    query, key, value = given
    weights = np.tril(phi(query) @ phi(key).T)
    dnumerator = dout / (weights.sum(axis=1, keepdims=True) + 1e-6)
    dweights = np.tril(dnumerator @ value.T)
    return dweights @ phi(key) * phi_slope(query), dweights.T @ phi(query) * phi_slope(key), weights.T @ dnumerator


try:
    check_gradients(lambda *given: (linear_attention(*given), given), constant_denominator, arrays)
except GradientError as problem:
    print(problem)

# %% [markdown]
# ### In between: chunks (optional)
#
# The running sum takes few operations and $T$ steps, one after the other. All pairs at once take many operations and
# one step. Lesson 13 showed which of the two a machine prefers. You can combine both: cut the text into **chunks**.
# Within a chunk, use the weights, as attention does; all that came before the chunk is one state:


# %%
def linear_attention_in_chunks(query, key, value, chunk, eps=1e-6):
    """Linear attention, with the result of linear_attention, in ⌈T / chunk⌉ steps."""
    features, key_features = phi(query), phi(key)
    extended = np.concatenate([value, np.ones_like(value[:, :1])], axis=1)  # [v, 1]: z is one more column of S
    state = np.zeros((key.shape[1], extended.shape[1]), value.dtype)  # (D, Dv + 1)
    sums = np.empty_like(extended)
    for first in range(0, len(query), chunk):
        part = slice(first, first + chunk)
        weights = np.tril(features[part] @ key_features[part].T)  # (chunk, chunk)
        sums[part] = weights @ extended[part] + features[part] @ state
        state += key_features[part].T @ extended[part]
    return sums[:, :-1] / (sums[:, -1:] + eps)


for chunk in (1, 7, 64, T):
    print(f"chunks of {chunk:>3}: {error(linear_attention_in_chunks(query, key, value, chunk), out):.0e}")

# %%
n, D = 4096, 64
sizes = (1, 4, 16, 64, 256, 1024, 4096)
long = rng.standard_normal((3, n, D), dtype=np.float32)
taken = race({c: lambda c=c: linear_attention_in_chunks(*long, c) for c in sizes}, rounds=2, turn=0)
operations = [n * (2 * c * D + 2 * c * (D + 1) + 4 * D * (D + 1)) for c in sizes]

_, axes = plt.subplots(figsize=(6.4, 2.9))
draw_chunks(axes, sizes, list(taken.values()), operations)
axes.set_title(f"Linear attention, {n:,} tokens, D = {D}: from a recurrent network to all pairs")
show("Against the size of a chunk: the operations at most double up to D positions, then grow in proportion; the time "
     "is high for the smallest and largest chunks, and lowest between.")  # fmt: skip

# %% [markdown]
# With chunks of 1 it is a recurrent network, with one chunk it is attention, and the function is always the same. With
# small chunks the calls cost time, with large ones the operations do. Up to a chunk of $D$ positions the operations at
# most double, and the steps become $D$ times fewer. The package takes chunks of 64, and its backward walks over the
# same chunks from the last to the first: exercise 4, with products in the place of single steps.
#
# ## Decoding: what a token costs
#
# Here a recurrent network pays off. Full attention keeps a key and a value of every token, $2D$ numbers for each head,
# and reads all of them for each new token. Linear attention keeps $D(D+1)$ numbers. Beyond $n = (D + 1)/2$ tokens that
# is less. But it writes them as well as reads them, so both move about the same at $n = D + 1$. The study [After the
# paper](after/after.md) has timed it; *grouped* means that two heads of keys and values serve all eight heads of
# queries (Ainslie and others 2023):

# %%
study = next(section for section in sections(STUDY, STUDY.out) if section.experiment.NAME == "decoding")
findings = study.findings
sizes, kinds = findings["sizes"], findings["kinds"]
lengths = sizes["lengths"]
draw_decoding(lengths, kinds)
show("Left, the time of a token against the length of the text: it rises most with full attention, less with grouped, "
     "and is flat with linear attention, which is fastest for long texts. Right, what is kept: it is in proportion to "
     "the length for the first two, and constant for linear attention.")  # fmt: skip

print("recorded on:", study.origin.machine)
print(f"d_model {sizes['d_model']}, {sizes['num_heads']} heads, {sizes['num_layers']} layers, NumPy, one thread")
for kind, each in kinds.items():
    last = each["best"][-1]
    print(f"{kind:<8} a token after {lengths[-1]:,} takes {1e3 * last:.2f} ms, {last / each['best'][0]:.1f} times one "
          f"after {lengths[0]}; kept: {each['kept'][-1] / 2**20:.3g} MiB")  # fmt: skip
print(f"linear costs as much as full at n = {findings['equal']['operations']} by operations, at n = "
      f"{findings['equal']['bytes']} by bytes, and less beyond;")  # fmt: skip
print(f"it takes less time {crossing_text(findings['crossings']['linear'], lengths)}")

# %% [markdown]
# (In brackets: the range over single rounds.) Linear attention's line is flat: its token needs the same
# operations and bytes at any length. In time the lines cross later than in operations, because for short texts a
# token's time is mostly calls of NumPy and the other layers.
#
# ## What linear attention loses
#
# A state of fixed size has to forget. What exactly? Here is a test that needs no training. A text holds $N$ pairs of a
# key and a value. Then a query asks with one of the keys for its value. The output is $o_i = \sum_j W_{ij} v_j$ with
# weights $W$ $(N, N)$, and it is perfect if $W$ is the identity. Let the values be random numbers of mean 0 and
# variance 1, independent of each other and of the keys. Then the expected squared error of a recalled number is exactly
# $\lVert W - I \rVert^2 / N$, the sum of all squares divided by $N$.
#
# We build $W$ directly, with heads of $D = 32$:
#
# * **softmax**: keys in random directions, which are long, so that the softmax is sharp;
# * **linear, the same keys**;
# * **linear, the best keys**: key $j$ is large at place $j \bmod D$ and very negative elsewhere, so $\phi(k_j)$ is
#   nearly zero but for one place. Each place is a drawer of its own. With more pairs than drawers, pairs share one.

# %%
D = 32


def softmax_weights(key):
    """Each key asks for itself; scores are divided by √D."""
    return attention_weights(key[None, None], key[None, None])[0, 0]


def linear_weights(key):
    weights = phi(key) @ phi(key).T
    return weights / weights.sum(axis=1, keepdims=True)


def recall_error(weights):
    return np.sum((weights - np.eye(len(weights))) ** 2) / len(weights)


counts = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
errors = {"linear, the same keys": [], "linear, the best keys": [], "softmax": [], "bound for any φ: 1 − D/N": []}
for N in counts:
    directions = rng.standard_normal((N, D))
    keys = 20 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    drawers = np.where(np.arange(N)[:, None] % D == np.arange(D), 30.0, -30.0)
    errors["softmax"].append(recall_error(softmax_weights(keys)))
    errors["linear, the same keys"].append(recall_error(linear_weights(keys)))
    errors["linear, the best keys"].append(recall_error(linear_weights(drawers)))
    errors["bound for any φ: 1 − D/N"].append(max(0, 1 - D / N))

_, axes = plt.subplots(figsize=(7.2, 3.3))
draw_recall(axes, counts, errors, D)
axes.set_title("How well a pair is recalled: 0 is perfect, 1 is nothing")
show("The error of a recalled value against the number of pairs. The softmax's stays at zero. Linear attention's with "
     "the best keys is zero up to D pairs, then on the bound; with the same keys it errs from the start.")  # fmt: skip
print(f"{counts[-1]:,} pairs: softmax {errors['softmax'][-1]:.0e}, linear with the best keys "
      f"{errors['linear, the best keys'][-1]:.2f}")  # fmt: skip

# %% [markdown]
# With 32 numbers a key, softmax recalls a thousand pairs. Linear attention recalls as many pairs as it has features,
# 32, and only with the best keys. With random keys it confuses even four: features are positive, so every key is a
# little like every other one.
#
# This is the trade-off. Attention's memory grows with the text, and nothing is lost. A recurrent network's memory is
# fixed, so something has to go. (Several heads and layers have more room, but again a fixed amount of it.) Which is
# better depends on the task: does it need a text's overall content, or its details?
#
# ### Why no other φ helps (optional)
#
# The dashed bound has a proof. $W$ is a matrix $\phi(Q)\,\phi(K)^\top$ whose rows are divided by numbers.
# $\phi(K)^\top$ is $(D, N)$, so there are $N - D$ directions $u$, at right angles and of length 1, with
# $\phi(K)^\top u = 0$, and so with $W u = 0$. In each of them $(W - I)u = -u$ has length 1. Now multiply any matrix by
# vectors of length 1 that are at right angles to each other: the squared lengths of the results sum to at most the sum
# of all its squares. So $\lVert W - I \rVert^2 \ge N - D$. No choice of $\phi$ with $D$ features, and no training,
# helps. The exponential escapes, because it is a product of *infinitely* many features
# ($e^{xy} = \sum_m x^m y^m / m!$). Its price is that the sum over the keys cannot be taken first.
#
# ## A kernel as machine code, with its races (optional)
#
# On a GPU linear attention runs in chunks, in [three kernels](../kernels/linear_attention.py): one program for each
# chunk makes the chunk's own state $\sum \phi(k)^\top v$; another kernel adds up the states along the text; the third
# one reads them. Why three? An optional part of lesson 17 showed a race between neighbours in a row. Here are two more,
# and both look innocent. Try to do the first two jobs in one kernel, for chunks of 16 and $D = 16$:


# %%
@triton.jit
def states_kernel(key_ptr, value_ptr, states_ptr, CHUNKS: tl.constexpr, D: tl.constexpr, BARRIER: tl.constexpr):
    row, column = tl.arange(0, D)[:, None], tl.arange(0, D)[None, :]
    tile = row * D + column  # a chunk of D rows, and a state: both (D, D)
    for chunk in range(CHUNKS):
        key = tl.load(key_ptr + chunk * D * D + tile)
        value = tl.load(value_ptr + chunk * D * D + tile)
        features = tl.maximum(key, 0.0) + tl.exp(tl.minimum(key, 0.0))
        own = tl.dot(tl.trans(features), value, input_precision="ieee")  # (D, Dv)
        tl.store(states_ptr + chunk * D * D + tile, own)
    if BARRIER:
        tl.debug_barrier()
    all_states = states_ptr + tl.arange(0, CHUNKS)[:, None] * D * D + tl.arange(0, D * D)[None, :]  # (CHUNKS, D·Dv)
    tl.store(all_states, tl.cumsum(tl.load(all_states), axis=0))


def chunk_states(key, value, barrier=False):
    """The state after each chunk of 16 positions: key and value (T, 16) → (T / 16, 16, 16)."""
    chunks = key.shape[0] // 16
    states = torch.empty((chunks, 16, 16), device=key.device)
    states_kernel[(1,)](key, value, states, CHUNKS=chunks, D=16, BARRIER=barrier)
    return states


def chunk_states_with_a_barrier(key, value):
    return chunk_states(key, value, barrier=True)


@triton.jit
def relay_kernel(key_ptr, value_ptr, states_ptr, D: tl.constexpr):
    tile = tl.arange(0, D)[:, None] * D + tl.arange(0, D)[None, :]
    chunk = tl.program_id(0)  # a program for each chunk, which goes on from the state of the one before
    key = tl.load(key_ptr + chunk * D * D + tile)
    value = tl.load(value_ptr + chunk * D * D + tile)
    features = tl.maximum(key, 0.0) + tl.exp(tl.minimum(key, 0.0))
    before = tl.load(states_ptr + chunk * D * D + tile)
    after = before + tl.dot(tl.trans(features), value, input_precision="ieee")
    tl.store(states_ptr + (chunk + 1) * D * D + tile, after)


def chunk_states_in_a_relay(key, value):
    chunks = key.shape[0] // 16
    states = torch.zeros((chunks + 1, 16, 16), device=key.device)
    relay_kernel[(chunks,)](key, value, states, D=16)
    return states[1:]


# %% [markdown]
# In Triton's interpreter, which runs one operation on a whole block after the other, and one program after the other:

# %%
keys, values = rng.standard_normal((2, 64, 16))
own = phi(keys).reshape(4, 16, 16).swapaxes(1, 2) @ values.reshape(4, 16, 16)  # (chunks, D, Dv)
truth = np.cumsum(own, axis=0)
variants = {
    "one program": chunk_states,
    "one program, with a barrier": chunk_states_with_a_barrier,
    "a relay of programs": chunk_states_in_a_relay,
}
for name, function in variants.items():
    off = recorded(f"23_{function.__name__}-interpreted",
                   lambda function=function: error(numpy(function(tensor(keys), tensor(values))), truth))  # fmt: skip
    print(f"{name:<28} off by {off:.0e}")

# %% [markdown]
# All three are right. Now the machine code that Triton compiles for an AMD GPU, executed on the CPU by
# [`kernels.machine`](../kernels/machine/__init__.py), which watches which wave (32 threads that execute together)
# touches what:

# %%
for name, function in variants.items():
    ran = recorded(f"23_{function.__name__}", lambda function=function: compiled(function, keys, values))
    print(textwrap.fill(f"{name}: {ran['fault'] or 'no fault'}", 110, subsequent_indent="    "))
    if ran["fault"]:
        place = int(re.findall(r"byte (\d+)", ran["fault"])[0]) // 4 // 256
        print(f"    (that is in row {place} of {len(truth) + (function is chunk_states_in_a_relay)} states)")
    else:
        print(f"    off by {error(np.array(ran['returned']), truth):.0e}")

# %% [markdown]
# **The first race is within one program.** No thread reads at a shifted place here: the program stores a block and
# loads the same block. But a block has no threads. The compiler deals it out to them, a $(D, D)$ product in one way and
# a $(\text{chunks}, D^2)$ block in another, so one wave loads what another one has stored. The fault is in the last
# chunk. The earlier ones are saved by luck: the products that come after them exchange numbers through shared memory,
# and bring barriers of their own. `tl.debug_barrier()` mends it.
#
# **The second race is between programs.** Programs have no barrier: each may run before, after or beside any other. In
# the interpreter program 1 always comes after program 0; a GPU does not promise that. The only barrier between programs
# is the end of a kernel. That is why the package launches three.
#
# ### Exercise 5 ★★☆: the states' gradients, and no race
#
# Now backwards. All later chunks have read the state that chunk $n$ leaves behind. So its gradient is a sum over their
# queries, from the end to the beginning:
#
# $$ \mathrm{d}S_n = \sum_{m > n}\; \sum_{t \,\in\, \text{chunk } m} \phi(q_t)^\top\, \mathrm{d}a_t $$
#
# Write it as one kernel, with a program for each head. No wave may load what another one has stored.


# %% tags=["exercise"]
@triton.jit
def chunk_states_backward_kernel(query_ptr, dnumerator_ptr, dstates_ptr, CHUNKS: tl.constexpr, D: tl.constexpr):
    """One head of dstates: CHUNKS chunks of D rows, D numbers a row. Heads lie one behind the other in all arrays."""
    raise NotImplementedError


def chunk_states_backward(query, dnumerator):
    """The gradient of the state after each chunk of 16 positions: the sum that the later chunks send to it.

    query and dnumerator (H, T, 16), float32, T a multiple of 16 → (H, T / 16, 16, 16); zeros for the last chunk. The
    result must not depend on the order of the waves.
    """
    heads, time, width = query.shape
    dstates = torch.empty((heads, time // 16, width, width), device=query.device)
    chunk_states_backward_kernel[(heads,)](query, dnumerator, dstates, CHUNKS=time // 16, D=16)
    return dstates


# %%
chunk_states_backward = check(chunk_states_backward)

# %% [markdown] tags=["help"]
# A race needs memory. Where can a running sum of $16 \times 16$ numbers be kept, if not in memory? And in which order
# does a program walk through the chunks?
#
# ---
#
# Begin with `dstate = tl.zeros((D, D), tl.float32)` and walk from the last chunk to the first, `CHUNKS - 1 - n`. First
# store `dstate` for the chunk, then load its queries and gradients, and add
# `tl.dot(tl.trans(features), dnumerator, input_precision="ieee")`. What was stored is never loaded.


# %%
def in_every_order():
    """The largest error, the number of different results, and the executor's orders."""
    from kernels.machine import ORDERS

    query, dnumerator = rng.standard_normal((2, 2, 48, 16))
    results = [
        np.array(compiled(chunk_states_backward, query, dnumerator, order=order)["returned"]) for order in ORDERS
    ]
    sums = phi(query).reshape(2, 3, 16, 16).swapaxes(-1, -2) @ dnumerator.reshape(2, 3, 16, 16)
    right = np.stack([sums[:, 1] + sums[:, 2], sums[:, 2], 0 * sums[:, 2]], axis=1)
    return error(results[0], right), len({result.tobytes() for result in results}), list(ORDERS)


off, different, orders = recorded("23_in-every-order", in_every_order)
print(f"waves go {', '.join(orders)}: {different} result, off by {off:.0e}")

# %% [markdown]
# ## Common mistakes, and what they look like
#
# **A stride alone.** Without a window, a query reaches only keys whose distance is a multiple of the stride, however
# many layers there are:

# %%
alone = layers_until_heard(Pattern(causal=True, stride=8).allows(positions[:, None], positions[None]))
with_window = layers_until_heard(allowed["window and stride, causal"])
for name, each in (("stride alone", alone), ("with a window", with_window)):
    print(f"{name:<14} the last of 64 positions has heard of {np.sum(each[-1] >= 0)}")

# %% [markdown]
# **A long sum in few digits.** $z$ only ever grows. In half precision it soon hardly grows, because a term of 1 is lost
# beside some thousands. In float32 it loses digits slowly. The package's kernels keep their sums in float32 whatever
# the tokens come in, and add a chunk's sum as one number:

# %%
terms = phi(rng.standard_normal(100_000))
exact = np.cumsum(terms)
for n in (1_000, 10_000, 100_000):
    sums = [float(np.cumsum(terms[:n].astype(dtype), dtype=dtype)[-1]) for dtype in (np.float16, np.float32)]
    print(f"after {n:>7,} terms: {exact[n - 1]:>9,.1f}; in float16 {sums[0]:>8,.1f}, in float32 off by "
          f"{abs(sums[1] / exact[n - 1] - 1):.0e}")  # fmt: skip

# %% [markdown]
# ## What changed since 2017
#
# The Sparse Transformer (Child and others 2019) had blocks and strides; Longformer (Beltagy and others 2020) and
# BigBird (Zaheer and others 2020) had windows and global tokens. Linear attention became a recurrent network in 2020,
# and with it an old idea came back: matrices that are written by outer products are the *fast weights* of Schmidhuber
# (1992), as Schlag and others (2021) showed. Then flash attention (2022) made full attention so cheap in memory that
# most patterns were given up. Windows stayed: in Mistral 7B (2023), and in every second layer of Gemma 2 (2024).
#
# Today both ways are in large models:
#
# * **Sparse attention chooses its pairs by content.** In Native Sparse Attention (Yuan and others, DeepSeek, 2025) a
#   query sees a window, summaries of all earlier blocks, and the tokens of the few blocks whose summaries fit best. In
#   DeepSeek-V3.2 (2025) a small *indexer* scores all earlier tokens, and attention reads only the best of them. (The
#   cheap scores are still $n^2$.)
# * **The recurrent state learned to forget**: by an update that overwrites (the delta rule, Schlag and others 2021), by
#   decay (RetNet, Sun and others 2023), by gates that depend on the token (Mamba, Gu and Dao 2023), or by delta rule
#   and gate together (Gated DeltaNet, Yang and others 2024).
# * **Layers are mixed**, as the test of recall suggests. Full attention is one layer in eight of Jamba (Lieber and
#   others 2024), and one in four of Qwen3-Next and Kimi Linear (both 2025), whose other layers are a Gated DeltaNet or
#   close to it. This is not settled: MiniMax-M1 (2025) was such a hybrid, and M2, of the same year, has full attention
#   again.
#
# Sources for the last years: DeepSeek-AI 2025, *DeepSeek-V3.2*; Yuan and others 2025, *Native sparse attention:
# Hardware-aligned and natively trainable sparse attention*; Yang and others 2024, *Gated delta networks: Improving
# Mamba2 with delta rule*; Kimi Team 2025, *Kimi Linear: An expressive, efficient attention architecture*.
#
# ### Open projects (optional)
#
# * **The delta rule.** Before a pair is written, take out what the state holds for its key:
#   $S_t = S_{t-1} + \phi(k_t)^\top (v_t - \phi(k_t) S_{t-1})$, with $\phi(k)$ scaled to length 1 and without the
#   denominator. Write its backward. Does the test of recall get better below $N = D$? Can it beyond?
# * **A decay.** $S_t = \gamma S_{t-1} + \phi(k_t)^\top v_t$. What changes in exercise 4, and what is the gradient of
#   $\gamma$? How far back does it find the needle?
# * **A learned summary.** Train the needle's task with a window and a global token in the *middle* of the text. Predict
#   at which distances it will be found, then look.
#
# ## Where next
#
# [Lesson 24](24_real_weights.ipynb) reads the weights of other people's models. [The report](after/after.md) has the
# other ideas that came after the paper, measured, and [lesson 17](17_speed_ups.ipynb) more of the machine code.
