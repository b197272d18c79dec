# %% [markdown]
# # 13 · Why self-attention: Table 1, measured
#
# **You will be able to** compare four kinds of layer by their cost, by the steps that must wait for each other, and by
# the distance that a signal travels; measure all three; and say what the paper's table hides about your machine.
#
# | | |
# |---|---|
# | you know | recurrent networks from [03](03_before_attention.ipynb), attention from [04](04_attention.ipynb) |
# | runs in | 40 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §4 and Table 1 |
# | in the package | [Table 1's layers, counted][complexity]; [`attention`][attention] with a window; [`conv1d`][conv] |
#
# [complexity]: paper/experiments/table1/complexity.py
# [attention]: ../minitransformer/ops/attention.py
# [conv]: ../minitransformer/ops/convolution.py
#
# Every layer in this lesson does the same job: it takes $n$ vectors of $d$ numbers, lets them meet, and returns $n$
# vectors of $d$ numbers. Section 4 of the paper asks three questions. How many **operations** does a layer take? How
# many of them must run **one after the other**? And how long is the **path** between two positions: how many steps
# does a signal, or a gradient, take from one to the other? The answers are Table 1:
#
# | layer | operations | sequential | longest path |
# |---|---|---|---|
# | self-attention | $O(n^2 \cdot d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n \cdot d^2)$ | $O(n)$ | $O(n)$ |
# | convolutional, kernel $k$ | $O(k \cdot n \cdot d^2)$ | $O(1)$ | $O(\log_k n)$ |
# | self-attention, restricted to $r$ | $O(r \cdot n \cdot d)$ | $O(1)$ | $O(n/r)$ |
#
# $O(n^2 \cdot d)$ means: it grows like $n^2 \cdot d$, up to a constant factor. At the lengths that people use, the
# constants decide which layer is faster, and the table hides them. So we count the operations, and measure the time.

# %%
import itertools
import time

import numpy as np

from course import start
from course.lesson_13.pictures import draw_costs, draw_paths
from minitransformer.gradcheck import GradientError, check_gradients, error
from minitransformer.ops import attention_backward, attention_forward, conv1d_forward, softmax_forward
from minitransformer.system.allocator import keep_freed_memory
from minitransformer.system.threads import Threads
from paper.experiments.table1.complexity import (
    ATTENTION,
    CONVOLUTION,
    KERNEL_WIDTH,
    LAYER_TYPES,
    RECURRENT,
    RESTRICTED,
    WINDOW,
    exponent,
    num_calls,
    operations,
    path_length,
    seconds,
)
from study.measuring import crossing

check = start("13")
rng = np.random.default_rng(0)
layers = {kind.name: kind for kind in LAYER_TYPES}

# %% [markdown]
# A picture answers the third question first. It has nine positions. A grey line connects two that meet in a layer; the
# arrows are a shortest way from the first position to the last.

# %%
draw_paths()

# %% [markdown]
# You have met self-attention and recurrence. In **restricted self-attention** a query meets only the keys at a distance
# of $r$ or less. A **convolution** of kernel width $k$ adds up the products of $k$ neighbours $x$ with matrices
# $W_\tau$ of shape $(d, d)$, one for each relative position, and a bias $b$; beyond the ends there are zeros
# ($\lfloor k/2 \rfloor$ is $k/2$ rounded down). A *dilated* one leaves gaps between its neighbours.
#
# $$ y_t = b + \sum_{\tau=0}^{k-1} x_{t+\tau-\lfloor k/2 \rfloor}\, W_\tau $$


# %%
def convolution_loops(x, weight, bias):
    """x (n, d), weight (k, d, d), bias (d,) → y (n, d)."""
    n, k = len(x), len(weight)
    y = np.tile(bias, (n, 1))
    for t, tau in np.ndindex(n, k):
        seen = t + tau - k // 2
        if 0 <= seen < n:
            y[t] += x[seen] @ weight[tau]
    return y


x, weight, bias = rng.standard_normal((7, 4)), rng.standard_normal((3, 4, 4)), rng.standard_normal(4)
theirs, _ = conv1d_forward(x[None], weight, bias, padding="same")
print(f"convolution, loops against the package: {error(convolution_loops(x, weight, bias), theirs[0]):.1e}")

# %% [markdown]
# ## Operations
#
# We count the operations that let positions meet. A product of two vectors of $d$ numbers takes $d$ multiplications and
# $d$ additions: $2d$ operations. A vector times a $d \times d$ matrix takes $2d^2$. The rest is to count the pairs that
# meet (here $k = 5$ and $r = 8$):

# %%
n, d, k, r = 24, 16, KERNEL_WIDTH, WINDOW
pairs = list(itertools.product(range(n), repeat=2))
by_hand = {
    ATTENTION: sum(2 * d + 2 * d for i, j in pairs),  # query · key, and weight × value
    RECURRENT: sum(2 * d * d + 2 * d * d for t in range(n)),  # x_t W, and h_{t−1} U
    CONVOLUTION: sum(2 * d * 2 * d for t in range(n) for tau in range(k)),  # W_τ is (d, 2d): the package's has a gate
    RESTRICTED: sum(2 * d + 2 * d for i, j in pairs if abs(i - j) <= r),
}
print(f"{f'n = {n}, d = {d}':<28} by hand   counted while the package's layer runs")
for name, count in by_hand.items():
    print(f"{name:<28} {count:>7,}   {operations(layers[name], n, d):>7,.0f}")

# %% [markdown]
# With their constants, the counts are $4 n^2 d$ for self-attention, $4 n d^2$ for recurrence, $2 k n d^2$ for a
# convolution (the package's has a gate for each number, which doubles it), and about $4 (2r+1) n d$ for restricted
# self-attention. (The paper's $r$ is our $2r + 1$, the whole neighbourhood.) Attention has an $n^2$, but only one
# factor $d$, where the recurrent and the convolutional layer have $d^2$.
#
# ### Exercise 1 ★☆☆: the crossover
#
# §4 says: "In terms of computational complexity, self-attention layers are faster than recurrent layers when the
# sequence length $n$ is smaller than the representation dimensionality $d$". Generalise it: another computation takes
# $c\, n\, d^2$ operations, with a constant $c$. At which length do attention's $4 n^2 d$ equal them? And guess: in the
# paper's base model, from how many words on does attention cost more than the projections and the feed-forward network
# around it?


# %% tags=["exercise"]
def crossover(d, c):
    """The length n > 0 at which 4 n² d = c n d², for a width d and a constant c: a number, not rounded."""
    raise NotImplementedError


# %%
crossover = check(crossover)

# %% [markdown] tags=["help"]
# You want the $n$ at which two costs are equal. Write them on both sides of an equation. What do both sides have in
# common?
#
# ---
#
# $4 n^2 d = c\, n\, d^2$. Since $n > 0$ and $d > 0$, divide both sides by $n d$, and then by 4.

# %% [markdown]
# The first line of the next table is the paper's sentence, and the last answers your guess. Attention needs four
# projections (query, key, value, output: $4 \cdot 2 n d^2$), and an encoder layer has its feed-forward network
# ($2 \cdot 2 n d \cdot 4d$):

# %%
others = {
    "a recurrent layer": 4,
    "a convolution, k = 5": 2 * 5,
    "its own projections": 8,
    "all else in a Transformer's layer": 8 + 16,
}
print("attention costs as much as          c   from n =    for d = 512")
for name, c in others.items():
    print(f"{name:<34} {c:>3} {crossover(1, c):>8.1f} d {crossover(512, c):>14,.0f}")

# %% [markdown]
# Below the length in the last line, the famous $n^2$ is the smaller part of a layer's work.
#
# But **with** its projections, self-attention takes more operations than recurrence at *any* length, since $8 > 4$. The
# sentence of §4 leaves them out. If self-attention is faster, there must be another reason: the second question.
#
# ## Which steps have to wait
#
# A processor with thousands of arithmetic units needs work that can run at the same time. So we count the calls that
# must come one after the other. A call is one operation of the package, on all the positions that it gets at once:

# %%
print(f"{'calls one after the other':<28} {'n = 64':>8} {'n = 128':>8}")
for name, kind in layers.items():
    print(f"{name:<28} {num_calls(kind, 64):>8} {num_calls(kind, 128):>8}")

# %% [markdown]
# For each further position, a recurrent layer makes two more calls: a product and its tanh. They need the state before
# them, so they cannot start earlier. For the other layers the length makes no difference.
#
# ## How far a signal travels
#
# A gradient checks the picture above. Send one in at the last position, and see how far back it reaches after one
# layer. From the first position to the last there are $n - 1$ steps: divided by that reach and rounded up, they give
# the number of layers (*hops*) from end to end. (In a recurrent layer a hop is one step from state to state.)

# %%
x = rng.standard_normal((1, 1, 64, 4))
for reach in (None, 8):
    _, cache = attention_forward(x, x, x, window=reach)
    dout = np.zeros_like(x)
    dout[0, 0, -1] = 1
    _, _, dvalue = attention_backward(dout, cache)
    print(f"window {reach!s:<5} reaches back {63 - np.flatnonzero(dvalue[0, 0].any(axis=1))[0]:>3} positions")
print()
print(f"{'hops from end to end':<28} {'n = 16':>8} {'n = 256':>8} {'n = 1024':>8}")
for name, kind in layers.items():
    print(f"{name:<28} " + " ".join(f"{path_length(kind, length):>8,}" for length in (16, 256, 1024)))

# %% [markdown]
# The convolution's hops grow in proportion to $n$, because our layer sees only its neighbours. Why does a short path
# matter? In lesson 03 a recurrent layer multiplied the gradient once in each step, and little was left after a few
# dozen steps. Between two positions one step apart, nothing has to be remembered on the way.
#
# ### Exercise 2 ★☆☆: dilated layers (optional)
#
# The table's $O(\log_k n)$ belongs to **dilated** convolutions: in layer $l = 0, 1, \dots$ a position sees itself and
# $k-1$ positions before it, which are $k^l$ apart. So each layer multiplies by $k$ the number of positions that a
# position has heard of, itself included. How many layers does it take until the last of $n$ positions has heard of the
# first?


# %% tags=["exercise"]
def dilated_layers(n, k):
    """The least number of layers, an int, after which the last of n ≥ 1 positions has heard of the first.

    In layer l = 0, 1, … a position hears what the positions 0, 1, …, k − 1 times k^l before it had heard; k ≥ 2.
    """
    raise NotImplementedError


# %%
dilated_layers = check(dilated_layers)

# %% [markdown] tags=["help"]
# With $k = 3$: how many positions are heard of after 0, 1, 2, 3 layers? Which of these numbers is enough for $n = 9$,
# and which for $n = 10$?
#
# ---
#
# You want the least $l$ with $k^l \ge n$. A logarithm gives it in exact arithmetic, but the computer's logarithms are
# rounded. A loop over whole numbers is always right: `heard = 1`, and `heard *= k` for each layer while `heard < n`.

# %%
print(f"{'Convolutional, dilated':<28} " + " ".join(f"{dilated_layers(n, KERNEL_WIDTH):>8,}" for n in (16, 256, 1024)))

# %% [markdown]
# ## Time
#
# Operations say what a layer *should* cost. Now we time it: forward and backward of one sequence at $d = 64$, on one
# thread of BLAS, the shortest of several runs (other programs can only make a run longer). Self-attention is timed with
# its projections, as it is used, and *alone*, as Table 1 counts it.

# %% tags=["picture"]
WIDTH = 64
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)
ALONE = f"{ATTENTION}, alone"


def timed(kind, **options):
    return [seconds(kind, n, WIDTH, repeats=3, least=0.02, **options) for n in LENGTHS]


keep_freed_memory()  # as in training: large arrays that are freed are kept for the next call (lesson 14)
times = {}
with Threads(1):
    for _ in range(3):  # rounds, so that no layer has the machine's bad minute for itself
        measured = {name: timed(kind) for name, kind in layers.items()} | {ALONE: timed(layers[ATTENTION], alone=True)}
        times = {name: np.minimum(times.get(name, np.inf), found) for name, found in measured.items()}

counts = {name: [kind.derived(n, WIDTH) for n in LENGTHS] for name, kind in layers.items()}
paths = {name: [path_length(kind, n) for n in LENGTHS] for name, kind in layers.items()}

draw_costs(LENGTHS, counts, times, paths, crossover(WIDTH, 4))

# %% [markdown]
# Left, the theory: straight lines, and attention crosses the recurrent layer where exercise 1 says. Middle, the
# machine: the lines bend, and the crossing lies elsewhere. Right, the paths. In numbers, with the exponent of each
# line: at 1, twice the length takes twice as long; at 2, four times as long.


# %%
def from_where(values, others):
    n = crossing(LENGTHS, values, others)
    return f"at no n up to {LENGTHS[-1]:,}" if n is None else f"from n ≈ {n:,.0f}"


print("attention costs more than recurrence")
print("   in operations             ", from_where(counts[ATTENTION], counts[RECURRENT]))
print("   in time, attention alone  ", from_where(times[ALONE], times[RECURRENT]))
print("   in time, with projections ", from_where(times[ATTENTION], times[RECURRENT]))

more_time = times[RECURRENT][LENGTHS.index(WIDTH)] / times[ATTENTION][LENGTHS.index(WIDTH)]
work, our_work = (operations(layers[name], WIDTH, WIDTH, whole=True) for name in (RECURRENT, ATTENTION))
print(f"\nat n = d = {WIDTH} a recurrent layer takes {more_time:.1f} times as long as self-attention with projections,")
microseconds = 1e6 * times[RECURRENT][LENGTHS.index(WIDTH)] / WIDTH
print(f"for {work / our_work:.2f} times the operations: {microseconds:.1f} µs a position")

in_all = counts | {ATTENTION: [4 * n**2 * WIDTH + 8 * n * WIDTH**2 for n in LENGTHS], ALONE: counts[ATTENTION]}
print(f"\n{'exponent of n':<28} {'up to 256':>10} {'from 256':>10} {'operations':>11}")
for name, values in times.items():
    low, high = exponent(LENGTHS[:4], values[:4]), exponent(LENGTHS[3:], values[3:])
    theory = exponent(LENGTHS, in_all[name])
    print(f"{name:<28} {low:>10.2f} {high:>10.2f} {theory:>11.2f}")

# %% [markdown]
# At these sizes the recurrent layer pays for waiting, not for arithmetic. Each call of NumPy has its price, however
# little it computes, and no two of the layer's calls can be joined. (At the other end, attention may grow faster than
# its operations: the weights of all pairs no longer fit into a cache.) On a GPU, with thousands of units to keep busy,
# waiting costs far more. That is the column *sequential*, and the complaint of §1: recurrence "precludes
# parallelization within training examples".
#
# Fitted to the short lengths alone, an exponent misleads: compare the first column with the last. In the first,
# attention alone looks far from quadratic, because calls take much of its time.
#
# ## A window that saves operations (optional)
#
# In restricted attention each query has $2r + 1$ keys. To compute no other pairs, give each query the list of its keys,
# `index` $(n, 2r+1)$, and gather them. At the two ends some places of the list do not exist: there the score is
# $-\infty$ and the weight 0, as in lesson 04:


# %%
def window_index(n, r):
    """The positions that each position sees, (n, 2r + 1), and which of them there are."""
    seen = np.arange(n)[:, None] + np.arange(-r, r + 1)
    return seen.clip(0, n - 1), (seen >= 0) & (seen < n)


def window_forward(query, key, value, r):
    """Attention to keys at distance r or less: query, key, value (n, d) → out (n, d), and the weights (n, 2r + 1)."""
    index, exists = window_index(len(query), r)
    scores = np.einsum("id,iwd->iw", query, key[index]) / np.sqrt(query.shape[1])
    weights, _ = softmax_forward(np.where(exists, scores, -np.inf))
    return np.einsum("iw,iwd->id", weights, value[index]), weights


query, key, value = rng.standard_normal((3, 12, 4))
out, weights = window_forward(query, key, value, r=2)
theirs, _ = attention_forward(query[None, None], key[None, None], value[None, None], window=2)
print(f"window against the package: {error(out, theirs[0, 0]):.1e}")

# %% [markdown]
# The package does not gather. It takes 128 queries at a time, with all keys that they reach together: more pairs than
# necessary, but in large products. A GPU kernel works in tiles for the same reason (lesson 16).
#
# Either way, a mask on full attention saves nothing: all $n^2$ pairs are computed, then most are thrown away.

# %%
n, r = 2048, 8
q = rng.standard_normal((1, 1, n, WIDTH)).astype(np.float32)
distance = abs(np.arange(n)[:, None] - np.arange(n))


def masked(q):
    scores = q @ q.swapaxes(-1, -2) / np.float32(np.sqrt(WIDTH))
    weights, _ = softmax_forward(np.where(distance <= r, scores, np.float32(-np.inf)))
    return weights @ q


def least_time(function, repeats=5):
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        taken.append(time.perf_counter() - started)
    return min(taken)


with Threads(1):
    full = least_time(lambda: attention_forward(q, q, q))
    by_mask = least_time(lambda: masked(q))
    gathered = least_time(lambda: window_forward(q[0, 0], q[0, 0], q[0, 0], r))
    by_blocks = least_time(lambda: attention_forward(q, q, q, window=r))
print(f"forward, n = {n:,}, d = {WIDTH}, in milliseconds")
print(f"   full attention            {1e3 * full:>6.1f}")
print(f"   r = {r} by a mask           {1e3 * by_mask:>6.1f}")
print(f"   r = {r} gathered, as above  {1e3 * gathered:>6.1f}")
print(f"   r = {r} in the package      {1e3 * by_blocks:>6.1f}")

# %% [markdown]
# ### Exercise 3 ★★★: the window's gradient (optional)
#
# The forward is eq. 1 with gathered keys, so most of the backward is lesson 04's. The new part is the way back through
# `key[index]` and `value[index]`: a key stands in the windows of up to $2r + 1$ queries, and gets the **sum** of the
# gradients that they send, like a word that occurs twice in lesson 02.


# %% tags=["exercise"]
def window_backward(dout, query, key, value, weights, r):
    """Gradients of window_forward, without an (n, n) array.

    dout, query, key, value (n, d), weights (n, 2r + 1) as window_forward returned them, 0 where there is no key
    → the tuple dquery, dkey, dvalue, (n, d) each and of query's dtype. The scores were scaled by 1/√d.
    """
    raise NotImplementedError


# %%
window_backward = check(window_backward)


# %% [markdown] tags=["help"]
# Forget the window for a moment: which gradients does eq. 1 send to the weights, to the scores, to the query? Now, a
# position stands in several windows. What happens to `array[index] += part` if `index` names a place twice?
#
# ---
#
# `dweights = np.einsum("id,iwd->iw", dout, value[index])`, and the softmax's backward for each row of $2r + 1$ weights.
# To add up all that is sent to a place: `np.add.at(dkey, index, dscores[..., None] * query[:, None])`, and the same for
# `dvalue` with `weights` and `dout`.


# %%
def windowed(query, key, value):
    out, weights = window_forward(query, key, value, r=2)
    return out, (query, key, value, weights, 2)


arrays = {"query": query, "key": key, "value": value}
worst = check_gradients(windowed, lambda dout, cache: window_backward(dout, *cache), arrays)
dout = rng.standard_normal(out.shape)
_, cache = attention_forward(query[None, None], key[None, None], value[None, None], window=2)
mine, theirs = window_backward(dout, query, key, value, weights, 2), attention_backward(dout[None, None], cache)
for name, a, b in zip(arrays, mine, theirs, strict=True):
    print(f"d{name:<6} against the package {error(a, b[0, 0]):.1e}, against central differences {worst[name]:.1e}")

# %% [markdown]
# ## What Table 1 does not say
#
# * **Memory.** The backward needs the $n^2$ weights of full attention. They are kept for each head and each layer, or
#   computed again (lesson 16).
# * **Writing.** A translation is written one word after another. For each word, a recurrent layer takes a step of
#   constant cost; attention takes a step that grows with the words written so far, and a cache (lesson 11).

# %%
for n in (512, 8_192, 131_072):
    print(f"n = {n:>7,}: weights of one head, float32: {4 * n * n / 2**20:>9,.0f} MiB")

# %% [markdown]
# ## Common mistakes, and what they look like
#
# * **Attention timed without its projections** looks cheaper than it is at short lengths (the dashed line above).
# * **A mask taken for a saving**: the result is right, but all $n^2$ pairs were computed.
#
# ### Adding at repeated places (optional)
#
# In exercise 3, `dkey[index] += part` adds only *one* part for each key: NumPy reads all the old values, adds, and
# writes, so that only the last write to a place stays. `np.add.at` adds them all:


# %%
def buffered(dout, cache):
    *_, value, weights, r = cache
    index, _ = window_index(len(value), r)
    dquery, dkey, _ = window_backward(dout, *cache)
    dvalue = np.zeros_like(value)
    dvalue[index] += weights[..., None] * dout[:, None]
    return dquery, dkey, dvalue


try:
    check_gradients(windowed, buffered, arrays)
except GradientError as problem:
    print(problem)

# %% [markdown]
# ## What changed since 2017
#
# The operations are still those of the table; the way they are run has changed. Flash attention (2022) no longer stores
# the $n^2$ weights. Windows came back in large models, alone (Mistral 7B, 2023) or alternating with full layers (Gemma
# 2, 2024). And a recurrence without a nonlinearity between its states, as in Mamba (2023), takes only $O(\log n)$
# sequential steps (a *parallel scan*): the $O(n)$ of the table is the price of the tanh.
#
# ## Where next
#
# [Lesson 14](14_numpy_speed.ipynb): operations are not time. So where does the time go, and how can a second hold more
# operations?
