# %% [markdown]
# # 16 · Triton II: flash attention
#
# **You will be able to** compute attention, forward and backward, without ever writing down its scores: in NumPy in
# twenty lines, and as a kernel of your own.
#
# | | |
# |---|---|
# | you know | [attention and its backward](04_attention.ipynb), [Triton over rows](15_triton_rows.ipynb) |
# | runs in | at most 90 s on 2 cores; Linux with PyTorch and Triton; a GPU if you like |
# | in the paper | §3.2.1, equation 1, exactly: nothing here is an approximation |
# | in the package | [`forward`](../kernels/attention/forward.py), [`backward`](../kernels/attention/backward.py) |
#
# As in lesson 15, kernels run in Triton's interpreter where there is no GPU, and each cell shows what was recorded
# where PyTorch or Triton is missing; and when this was written, none of these kernels had run on a GPU. To run
# natively on a free hosted T4 (in float16), open this notebook there and run first:
#
# ```
# !git clone --depth 1 THE_ADDRESS_OF_THIS_REPOSITORY minitransformer
# %cd minitransformer/lessons
# %pip install --quiet ..
# ```

# %%
import math

import numpy as np

import kernels
from course import bytes_moved, recorded, start
from course.gpu import DEVICE, DTYPE, machine, tl, torch, triton  # before anything else imports triton
from course.lesson_16.pictures import draw_memory, draw_strip, draw_tiles
from course.tensors import numpy, tensor
from minitransformer import ops
from minitransformer.gradcheck import check_gradients, error

check = start("16")
rng = np.random.default_rng(0)
print(machine())

# %% [markdown]
# ## The largest array of them all
#
# Attention takes queries, keys and values and gives outputs: four arrays of $T \times D$ numbers for each head. On its
# way it makes another, the scores, of $T \times T$. One sentence in one layer of the base model, 8 heads of 64, in
# float32:

# %%
for length in (512, 4_096, 32_768):
    in_and_out, scores = 4 * 4 * length * 512, 4 * 8 * length**2
    print(f"T = {length:>6,}: in and out {in_and_out / 1e6:6.1f} MB, scores {scores / 1e6:8,.0f} MB, "
          f"{scores / in_and_out:3.0f} times as much")  # fmt: skip

# %% [markdown]
# And the scores are made to be consumed at once: scaled, masked, turned into weights, multiplied with the values, one
# pass over that array after the other, and training keeps the weights for the backward. Lesson 15's remedy was to
# keep a row in registers from load to store. A row of scores would fit; but to make it takes *all keys*, and to use
# it all values. What we want is to take the keys a block at a time, and to forget each block's scores.
#
# What stands in the way is the softmax. Its denominator runs over all keys, and its maximum too.
#
# ## The one idea: a softmax in pieces
#
# Take one query, with scores $s_j$ and values $v_j$ (rows of $D$ numbers). Of some block of keys, keep only
#
# $$ m = \max_j s_j \qquad \ell = \sum_j e^{s_j - m} \qquad \mathrm{acc} = \sum_j e^{s_j - m}\, v_j $$
#
# That is a number, a number, and $D$ numbers, however long the block. If the block were all there is, the output
# would be $\mathrm{acc} / \ell$. For all queries at once:


# %%
def block_state(query, key, value):
    """m (T,), l (T,) and acc (T, D) of one block of keys; the scale is in the query already."""
    scores = query @ key.T  # (T, n)
    m = scores.max(axis=1)
    e = np.exp(scores - m[:, None])
    return m, e.sum(axis=1), e @ value


# %% [markdown]
# Now a second block arrives, with a state of its own. Both sums were made relative to their own maximum, and can be
# made relative to the larger of the two afterwards, because the correction is the same for all terms of a block:
#
# $$ e^{s_j - m_{\text{new}}} = e^{s_j - m} \cdot e^{m - m_{\text{new}}} $$
#
# So nothing of the block needs to be seen again. All that was summed up shrinks by one factor.
#
# ### Exercise 1: merge
#
# Everything in this lesson hangs on these few lines. One corner needs care: a query may have seen nothing in a block
# (a mask), and then has $m = -\infty$, $\ell = 0$, $\mathrm{acc} = 0$.


# %% tags=["exercise"]
def merge(left, right):
    """The state of two blocks of keys together, from their states.

    left and right: tuples m (T,), l (T,), acc (T, D), which stay as they are → such a tuple. Nothing overflows,
    whatever the scores; where a query's state is m = −inf, l = 0, acc = 0, merging with it changes nothing.
    """
    raise NotImplementedError


# %%
merge = check(merge)

# %% [markdown]
# With it, attention is a loop over blocks of keys. Beside the package's attention, which writes all scores down:


# %%
def attention_in_blocks(query, key, value, block):
    """softmax(query keyᵀ / √D) value, a block of keys at a time; also returns lse = m + log l."""
    T, D = query.shape
    state = np.full(T, -np.inf), np.zeros(T), np.zeros_like(value, shape=(T, value.shape[1]))
    for first in range(0, len(key), block):
        part = slice(first, first + block)
        state = merge(state, block_state(query / math.sqrt(D), key[part], value[part]))
    m, l, acc = state
    return acc / l[:, None], m + np.log(l)


query, key, value = rng.standard_normal((3, 20, 8))
expected = ops.attention_forward(*(array[None, None] for array in (query, key, value)))[0][0, 0]
for block in (1, 6, 20):
    print(f"blocks of {block:>2}: {error(attention_in_blocks(query, key, value, block)[0], expected):.0e}")

# %% [markdown]
# The same to the last digits, for every size of block, one key at a time included. It is not an approximation of
# attention. It is attention, added up in another order.
#
# ## The picture: the running (m, ℓ, acc)
#
# One query, 30 keys, blocks of 6. Above the scores, with the maximum so far. In the middle the exponentials relative
# to that maximum: watch the old ones shrink when a larger score turns up. Below, what the output would be if the keys
# ended there:

# %%
one = np.array([[0.3, 1.6, -0.8, 0.9, -1.2, 0.5, 0.2, -0.7]])
keys, values = rng.standard_normal((30, 8)) * np.linspace(0.6, 1.5, 30)[:, None], rng.standard_normal((30, 8))
state, frames = block_state(one, keys[:6], values[:6]), []
for first in range(6, 36, 6):
    frames.append((state[0][0], state[1][0], state[2][0]))
    if first < 30:
        state = merge(state, block_state(one, keys[first : first + 6], values[first : first + 6]))
draw_strip((one @ keys.T)[0], frames, block=6)

# %% [markdown]
# The output moves until the last block; the state never grows. (Those who know lesson 03: this is a recurrence, whose
# state is the same size for any length. But its steps can be merged in any order, so it need not be run in sequence.)
#
# ## From the loop to the kernel
#
# * **A program owns a block of queries** of one head: $M$ rows of the query, $m$, $\ell$, acc. They live in registers
#   from the first block of keys to the last. Programs need nothing from each other.
# * It walks over the **blocks of keys** and their values, $N$ rows each. The tile of $M \times N$ scores is made in
#   registers, used and overwritten by the next one. No array of $T \times T$ exists anywhere.
# * Products are `tl.dot(a, b, input_precision="ieee")`, each side at least 16; on tensor cores where numbers are
#   short and the GPU is an A100 or later (Triton does not use a T4's). The weights are rounded to the values' type
#   for it, as `tl.dot` wants both sides alike. Sums are float32.
# * **Powers of two.** The hardware has $2^x$, and $e^x = 2^{x \log_2 e}$. So $\log_2 e$ goes into the scale, where it
#   costs nothing, and the whole softmax is in base 2.
# * For the backward it also writes `lse`, the log-sum-exp $\log_2 \sum_j 2^{s_j} = m + \log_2 \ell$: one number a
#   query, with which each weight can be computed again: $2^{s_j - \mathrm{lse}}$.
#
# ### Which tiles?
#
# In causal attention query $i$ sees the keys up to its own position. Positions are aligned at the end: with fewer
# queries than keys (a key/value cache, lesson 11), query $i$ stands at position $T_k - T_q + i$. For a block of
# queries, the blocks of keys fall into three kinds: those that *all* of its queries see whole, which need no mask;
# those on the diagonal, which do; and those in the future of all, which need not be visited. In order, so two numbers
# say it all.
#
# ### Exercise 2: skip what nobody sees


# %% tags=["exercise"]
def causal_blocks(block, tile, Tq, Tk):
    """Which blocks of keys a block of queries visits, in causal attention.

    block: the number of the block of queries; tile = (QUERIES, KEYS): rows of a block of queries and of one of keys.
    The last block of either may stick out. Query i sees the keys 0 … Tk − Tq + i.
    → (whole, stop), ints: each of the queries sees all of blocks 0 … whole − 1; some see some of blocks 0 … stop − 1.
    """
    raise NotImplementedError


# %%
causal_blocks = check(causal_blocks)

# %%
tile, Tq, Tk = (8, 4), 24, 32
draw_tiles([causal_blocks(block, tile, Tq, Tk) for block in range(Tq // tile[0])], tile, Tq, Tk)

# %% [markdown]
# What it saves, for one long sequence and tiles of 128 × 64:

# %%
for length in (512, 4_096, 32_768):
    reach = [causal_blocks(block, (128, 64), length, length) for block in range(length // 128)]
    visited, whole = sum(stop for _, stop in reach), sum(whole for whole, _ in reach)
    print(f"T = {length:>6,}: {visited / (length // 128 * length // 64):.0%} of the tiles visited, "
          f"{(visited - whole) / visited:5.1%} of those with a mask")  # fmt: skip

# %% [markdown]
# ### Exercise 3: the kernel
#
# Two helpers, so that pointers do not get in the way. The arrays are $(H, T, D)$, contiguous, $D$ a power of two.

# %%
LOG2_E = math.log2(math.e)
LOWEST = tl.constexpr(float(np.finfo(np.float32).min))  # a maximum that begins here is never −inf
TILE = (32, 16) if DEVICE == "cuda" else (16, 16)  # QUERIES, KEYS: small enough for a T4


@triton.jit
def load_rows(x_ptr, head, T, rows, D: tl.constexpr):
    """Rows of a head of x (H, T, D): (rows, D), zeros beyond the last."""
    place = (head * T + rows)[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(x_ptr + place, (rows < T)[:, None], other=0.0)


@triton.jit
def store_rows(x_ptr, head, T, rows, values, D: tl.constexpr):
    """The reverse, in x's own dtype."""
    place = (head * T + rows)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(x_ptr + place, values.to(x_ptr.dtype.element_ty), (rows < T)[:, None])


def launch(kernel, query, key, value, causal, tile):
    """The host's side: a program for each block of queries and each head, and how many blocks of keys it visits."""
    (H, Tq, D), Tk, (QUERIES, KEYS) = query.shape, key.shape[1], tile
    blocks = triton.cdiv(Tq, QUERIES)
    stops = [causal_blocks(n, tile, Tq, Tk)[1] if causal else triton.cdiv(Tk, KEYS) for n in range(blocks)]
    stops = torch.tensor(stops, dtype=torch.int32, device=query.device)
    out, lse = torch.empty_like(query), torch.empty((H, Tq), device=query.device)
    kernel[(blocks, H)](
        query, key, value, out, lse, stops, Tq, Tk, LOG2_E / math.sqrt(D),
        CAUSAL=causal, D=D, QUERIES=QUERIES, KEYS=KEYS,
    )  # fmt: skip
    return out, lse


# %% [markdown]
# What is left is the kernel: `attention_in_blocks` and `merge`, where the second state is a tile's. (If $m$ begins at
# `LOWEST` instead of $-\infty$, no difference of two infinities can arise.) Its block of queries is
# `tl.program_id(0)`, its head `tl.program_id(1)`. You will want `tl.zeros((QUERIES, D), tl.float32)`, `tl.full`,
# `tl.trans`, `tl.max(x, axis=1)`, `tl.sum`, `tl.maximum`, `tl.where`, `tl.exp2` and `tl.log2`. When it is written, let
# `flash_forward` return `launch(flash_forward_kernel, query, key, value, causal, tile)`.


# %% tags=["exercise"]
@triton.jit
def flash_forward_kernel(
    query_ptr, key_ptr, value_ptr, out_ptr, lse_ptr, stop_ptr, Tq, Tk, scale,
    CAUSAL: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """out and lse of a block of queries, which visits the blocks of keys from 0 to tl.load(stop_ptr + block) − 1.

    `scale` is log2(e) / √D: query keyᵀ · scale are the scores in base 2.
    """
    raise NotImplementedError


def flash_forward(query, key, value, causal=False, tile=TILE):
    """softmax(query keyᵀ / √D) value, and the log-sum-exp of the scores in base 2.

    query (H, Tq, D), key and value (H, Tk, D), contiguous → out (H, Tq, D) in their dtype, and in float32 lse (H, Tq),
    log2 Σ_j 2^score_j of the scores in base 2. A query that sees nothing has an out of 0 and an lse of +inf. Launches
    the kernel above once, in tiles of `tile` = (QUERIES, KEYS); programs read no blocks of keys but those they visit.
    """
    raise NotImplementedError


# %%
flash_forward = check(flash_forward)

# %% [markdown]
# Against the package's kernel, and against NumPy in float64, with lengths that fill no block:


# %%
def reference(query, key, value, causal):
    return ops.attention_forward(*(array[None] for array in (query, key, value)), causal=causal)


def forward_errors():
    query, key, value = (rng.standard_normal((2, T, 32)) for T in (45, 70, 70))
    tensors = [tensor(array) for array in (query, key, value)]
    errors = {}
    for causal in (False, True):
        out, _ = flash_forward(*tensors, causal)
        package = kernels.attention_forward(*(t[None] for t in tensors), causal=causal)[0][0]
        half, _ = flash_forward(*(t.half() for t in tensors), causal)
        expected = reference(query, key, value, causal)[0][0]
        errors["causal" if causal else "full"] = [
            error(numpy(out), numpy(package)), error(numpy(out), expected), error(numpy(half), expected)
        ]  # fmt: skip
    return errors


for kind, (from_package, from_numpy, half) in recorded("16_forward", forward_errors).items():
    print(f"{kind:<7} off by {from_package:.0e} from the package and {from_numpy:.0e} from NumPy; float16 {half:.0e}")

# %% [markdown]
# ## The picture: memory against T
#
# Counted again, as in lesson 15: on the left the largest array that is made on the way, on the right the bytes that go
# through memory. "Written out" is attention as the formula stands, in PyTorch's operations.


# %%
WIDTH, LENGTH = 64, 512


def drawn(length):
    return [tensor(rng.standard_normal((1, length, WIDTH))) for _ in range(3)]


def written_out(query, key, value):
    scores = query @ key.mT
    scores = scores / math.sqrt(WIDTH)
    scores = scores - scores.amax(-1, keepdim=True)
    weights = torch.exp(scores)
    weights = weights / weights.sum(-1, keepdim=True)
    return weights @ value


def count_memory():
    largest = {"written out": [], "flash": []}
    for length in (64, 128, 256, 512):
        arrays = drawn(length)
        for name, attention in (("written out", written_out), ("flash", flash_forward)):
            found = bytes_moved.of_operations(lambda attention=attention, arrays=arrays: attention(*arrays))
            largest[name].append(found.largest)
    arrays = drawn(LENGTH)
    found = bytes_moved.of_operations(lambda: written_out(*arrays))
    moved = []
    for rows in (16, 32, 64, 128, 256):
        kernel = bytes_moved.of_kernels(lambda rows=rows: flash_forward(*arrays, False, (rows, 64)))
        moved.append(kernel.read + kernel.written)
    return largest, moved, found.read + found.written


largest, moved, moved_written_out = recorded("16_memory", count_memory)
rows = np.array([16, 32, 64, 128, 256])
predicted = 4 * LENGTH * WIDTH * (2 + 2 * LENGTH / rows)  # query and out once, keys and values once a block of queries
lengths = (64, 128, 256, 512)
by_length = {name: (lengths, sizes) for name, sizes in largest.items()}
draw_memory(by_length, (rows, moved), (rows, predicted), moved_written_out, LENGTH)

# %% [markdown]
# Left: doubling T doubles what flash attention needs and quadruples what the scores need. Right, a subtlety worth
# knowing: flash attention does not read everything once. Each block of queries reads *all* keys and values, so the
# bytes fall as the block gets more rows: $2 \cdot T D \cdot T / M$ numbers. That is why blocks are as large as
# registers and shared memory allow (128 rows on large GPUs, 32 on a T4, say the package's
# [tables](../kernels/attention/tiles.py)), and on a real GPU many of these re-reads are answered by its L2 cache.

# %%
for row_count, counted, formula in zip(rows, moved, predicted, strict=True):
    print(f"blocks of {row_count:>3} queries: {counted / 1e6:5.2f} MB counted, {formula / 1e6:5.2f} predicted, "
          f"{moved_written_out / counted:4.1f} times less than written out")  # fmt: skip

# %% [markdown]
# ## The backward, without the weights
#
# Of lesson 04, with $P$ the weights, $S$ the scaled scores, and d$O$ given:
#
# $$ \mathrm{d}V = P^\top \mathrm{d}O \qquad \mathrm{d}P = \mathrm{d}O\, V^\top \qquad
#    \mathrm{d}S_{ij} = P_{ij} \Big( \mathrm{d}P_{ij} - \sum_k P_{ik}\, \mathrm{d}P_{ik} \Big) \qquad
#    \mathrm{d}Q = \tfrac{1}{\sqrt D}\, \mathrm{d}S\, K \qquad \mathrm{d}K = \tfrac{1}{\sqrt D}\, \mathrm{d}S^\top Q $$
#
# $P$ was never stored. A tile of it is quickly made again: $P_{ij} = e^{S_{ij} - \mathrm{lse}_i}$, with the one
# number a query that the forward kept. Computing twice is cheaper than remembering: that is the second idea of this
# lesson.
#
# One term is left that needs a whole row: the sum over $k$. And here the algebra is kind. Put in $\mathrm{d}P_{ik} =
# \sum_d \mathrm{d}O_{id} V_{kd}$ and exchange the sums:
#
# $$ \sum_k P_{ik}\, \mathrm{d}P_{ik} = \sum_d \mathrm{d}O_{id} \underbrace{\sum_k P_{ik} V_{kd}}_{O_{id}}
#    = \sum_d \mathrm{d}O_{id}\, O_{id} =: \delta_i $$
#
# (Dao et al. call it $D$: the row sums of $\mathrm{d}O \circ O$.) A sum over $T$ keys has become one over $D$
# channels, of two arrays that are there already. In numbers:

# %%
weights = ops.attention_weights(query[None, None], key[None, None])[0, 0]  # (T, T)
out = weights @ value
dout = rng.standard_normal(out.shape)
over_keys, over_channels = (weights * (dout @ value.T)).sum(axis=1), (dout * out).sum(axis=1)
print(f"Σ over keys against Σ over channels: {error(over_channels, over_keys):.0e}")

# %% [markdown]
# ### Exercise 4: the backward of a block of keys


# %% tags=["exercise"]
def backward_block(dout, out, lse, query, key, value):
    """What one block of keys adds to the gradients of attention over all keys.

    dout and out (T, Dv), the gradient and the output of all keys; lse (T,), log Σ_j e^score_j over all keys;
    query (T, D); key (n, D) and value (n, Dv) of the block alone. Scores are query · key / √D; nothing overflows.
    → the tuple dquery (T, D), this block's part of it, dkey (n, D), dvalue (n, Dv).
    """
    raise NotImplementedError


# %%
backward_block = check(backward_block)

# %% [markdown]
# The whole backward is a loop again, and the referee is lesson 00's: central differences in float64, on the forward
# that merges blocks.


# %%
def blocks_forward(query, key, value):
    out, lse = attention_in_blocks(query, key, value, block=6)
    return out, (out, lse, query, key, value)


def blocks_backward(dout, cache):
    out, lse, query, key, value = cache
    dquery, dkey, dvalue = np.zeros_like(query), np.empty_like(key), np.empty_like(value)
    for first in range(0, len(key), 6):
        part = slice(first, first + 6)
        dquery_part, dkey[part], dvalue[part] = backward_block(dout, out, lse, query, key[part], value[part])
        dquery += dquery_part  # every block of keys moves every query; its own keys' gradients are complete
    return dquery, dkey, dvalue


arrays = {"query": query, "key": key, "value": value}
for name, worst in check_gradients(blocks_forward, blocks_backward, arrays).items():
    print(f"d{name:<6} {worst:.0e}")

# %% [markdown]
# ## The backward kernels
#
# The loop shows the difficulty: dquery sums over blocks of keys, dkey and dvalue over blocks of queries. Who owns
# what? One kernel for all would have to add into somebody else's rows, with atomics and in an order that is chance
# (lesson 15). So there are two: one whose programs own queries and write dquery, and one whose programs own keys. The
# tiles of weights are computed once more in each: seven products where five would do, for the same bits in every run.


# %%
@triton.jit
def tile_weights(query, key, lse, queries, keys, Tq, Tk, scale, CAUSAL: tl.constexpr):
    """The weights of a tile again, (M, N): 2^(score − lse), 0 where the query does not see the key."""
    scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
    seen = (keys < Tk)[None, :]
    if CAUSAL:
        seen = seen & (keys[None, :] <= queries[:, None] + (Tk - Tq))
    return tl.exp2(tl.where(seen, scores, float("-inf")) - lse[:, None])


@triton.jit
def dquery_kernel(
    query_ptr, key_ptr, value_ptr, out_ptr, dout_ptr, lse_ptr, delta_ptr, dquery_ptr, Tq, Tk, scale, dscale,
    CAUSAL: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """dquery of a block of queries, and delta for the other kernel."""
    block, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    queries = block * QUERIES + tl.arange(0, QUERIES)  # (M,)
    query = load_rows(query_ptr, head, Tq, queries, D)  # (M, D)
    dout = load_rows(dout_ptr, head, Tq, queries, D)
    out = load_rows(out_ptr, head, Tq, queries, D)
    lse = tl.load(lse_ptr + head * Tq + queries, queries < Tq, other=float("inf"))
    delta = tl.sum(dout.to(tl.float32) * out.to(tl.float32), axis=1)  # (M,)
    tl.store(delta_ptr + head * Tq + queries, delta, queries < Tq)
    dquery = tl.zeros((QUERIES, D), tl.float32)
    stop = Tk
    if CAUSAL:
        stop = tl.maximum(tl.minimum((block + 1) * QUERIES + (Tk - Tq), Tk), 0)
    for first in range(0, stop, KEYS):
        keys = first + tl.arange(0, KEYS)  # (N,)
        key = load_rows(key_ptr, head, Tk, keys, D)  # (N, D)
        value = load_rows(value_ptr, head, Tk, keys, D)
        weights = tile_weights(query, key, lse, queries, keys, Tq, Tk, scale, CAUSAL)  # (M, N)
        dweights = tl.dot(dout, tl.trans(value), input_precision="ieee")
        dscores = weights * (dweights - delta[:, None])
        dquery += tl.dot(dscores.to(key.dtype), key, input_precision="ieee")
    store_rows(dquery_ptr, head, Tq, queries, dquery * dscale, D)


@triton.jit
def dkey_dvalue_kernel(
    query_ptr, key_ptr, value_ptr, dout_ptr, lse_ptr, delta_ptr, dkey_ptr, dvalue_ptr, Tq, Tk, scale, dscale,
    CAUSAL: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """dkey and dvalue of a block of keys; the blocks of queries come by."""
    block, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    keys = block * KEYS + tl.arange(0, KEYS)  # (N,)
    key = load_rows(key_ptr, head, Tk, keys, D)  # (N, D)
    value = load_rows(value_ptr, head, Tk, keys, D)
    dkey = tl.zeros((KEYS, D), tl.float32)
    dvalue = tl.zeros((KEYS, D), tl.float32)
    start = 0
    if CAUSAL:
        start = tl.maximum(block * KEYS - (Tk - Tq), 0) // QUERIES * QUERIES  # the first query that sees the first key
    for first in range(start, Tq, QUERIES):
        queries = first + tl.arange(0, QUERIES)  # (M,)
        query = load_rows(query_ptr, head, Tq, queries, D)  # (M, D)
        dout = load_rows(dout_ptr, head, Tq, queries, D)
        lse = tl.load(lse_ptr + head * Tq + queries, queries < Tq, other=float("inf"))
        delta = tl.load(delta_ptr + head * Tq + queries, queries < Tq, other=0.0)
        weights = tile_weights(query, key, lse, queries, keys, Tq, Tk, scale, CAUSAL)  # (M, N)
        dvalue += tl.dot(tl.trans(weights).to(dout.dtype), dout, input_precision="ieee")
        dweights = tl.dot(dout, tl.trans(value), input_precision="ieee")
        dscores = weights * (dweights - delta[:, None])
        dkey += tl.dot(tl.trans(dscores).to(query.dtype), query, input_precision="ieee")
    store_rows(dkey_ptr, head, Tk, keys, dkey * dscale, D)
    store_rows(dvalue_ptr, head, Tk, keys, dvalue, D)


def flash_backward(dout, query, key, value, out, lse, causal=False, tile=TILE):
    (H, Tq, D), Tk, (QUERIES, KEYS) = query.shape, key.shape[1], tile
    dquery, dkey, dvalue, delta = (torch.empty_like(array) for array in (query, key, value, lse))
    numbers = Tq, Tk, LOG2_E / math.sqrt(D), 1 / math.sqrt(D)
    options = {"CAUSAL": causal, "D": D, "QUERIES": QUERIES, "KEYS": KEYS}
    dquery_kernel[(triton.cdiv(Tq, QUERIES), H)](query, key, value, out, dout, lse, delta, dquery, *numbers, **options)
    dkey_dvalue_kernel[(triton.cdiv(Tk, KEYS), H)](
        query, key, value, dout, lse, delta, dkey, dvalue, *numbers, **options
    )
    return dquery, dkey, dvalue


# %% [markdown]
# The `lse` of a lane beyond the queries, or of a query that sees nothing, is +∞: its weights are $2^{-\infty} = 0$,
# and it sends nothing, without a mask of its own. The proof: NumPy in float64, which lesson 04 proved by central
# differences, PyTorch's autograd, and the package's kernels.


# %%
def backward_errors():
    query, key, value = (rng.standard_normal((2, T, 32)) for T in (45, 70, 70))
    dout = rng.standard_normal((2, 45, 32))
    tensors = [tensor(array) for array in (query, key, value)]
    errors, repeats = {}, True
    for causal in (False, True):
        out, lse = flash_forward(*tensors, causal)
        found, again = (flash_backward(tensor(dout), *tensors, out.contiguous(), lse, causal) for _ in range(2))
        repeats = repeats and all(torch.equal(a, b) for a, b in zip(found, again, strict=True))
        expected = ops.attention_backward(dout[None], reference(query, key, value, causal)[1])
        _, cache = kernels.attention_forward(*(t[None] for t in tensors), causal=causal)
        package = kernels.attention_backward(tensor(dout)[None], cache)
        leaves = [torch.tensor(array, requires_grad=True) for array in (query, key, value)]
        mask = torch.ones(45, 70, dtype=torch.bool).tril(70 - 45) if causal else None
        torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=mask).backward(torch.tensor(dout))
        for name, mine, right, theirs, leaf in zip(
            ("dquery", "dkey", "dvalue"), found, expected, package, leaves, strict=True
        ):
            errors[f"{name}{', causal' * causal}"] = [
                error(numpy(mine), right[0]), error(numpy(mine), numpy(leaf.grad)), error(numpy(mine), numpy(theirs[0]))
            ]  # fmt: skip
    return errors, repeats


errors, repeats = recorded("16_backward", backward_errors)
print(f"{'off by':<16} {'NumPy':>7} {'autograd':>9} {'package':>8}")
for name, (from_numpy, from_torch, from_package) in errors.items():
    print(f"{name:<16} {from_numpy:7.0e} {from_torch:9.0e} {from_package:8.0e}")
print("the same bits in a second run:", repeats)

# %% [markdown]
# That is flash attention, all of it. The package's has, on top: masks for padding, windows (Table 1), dropout whose
# mask is computed in the kernel, loops of their own for tiles without a mask, head widths that are no power of two,
# and tiles for each kind of GPU. On a GPU, a first look at the time:

# %%
if DEVICE == "cuda":
    arrays = [torch.randn(16, 2048, 64, dtype=DTYPE, device=DEVICE) for _ in range(3)]
    for name, attention in (("written out", written_out), ("yours", flash_forward)):
        milliseconds = triton.testing.do_bench(lambda attention=attention: attention(*arrays))
        print(f"{name:<12} {milliseconds:6.2f} ms")
else:
    print("There is no GPU here, and the interpreter's times mean nothing.")

# %% [markdown]
# ## Common mistakes, and what they look like
#
# **The old sums are not rescaled.** Right as long as the largest score comes first, which a test with few keys may
# well have. Keys whose scores rise along the sequence find it, keys that fall do not:


# %%
def not_rescaled(left, right):
    m = np.maximum(left[0], right[0])
    b = np.exp(right[0] - m)
    return m, left[1] + b * right[1], left[2] + b[:, None] * right[2]


def error_of(combine, scores):
    """Of the output, three blocks of four keys combined from left to right."""
    values = np.arange(24.0).reshape(12, 2) / 10
    m = scores.reshape(3, 4).max(axis=1)
    e = np.exp(scores.reshape(3, 4) - m[:, None])
    states = [(m[n : n + 1], e[n : n + 1].sum(axis=1), e[n : n + 1] @ values[4 * n : 4 * n + 4]) for n in range(3)]
    _, l, acc = combine(combine(states[0], states[1]), states[2])
    weights = np.exp(scores - scores.max())
    return error(acc[0] / l[0], weights @ values / weights.sum())


for kind, scores in (("falling", np.linspace(2, -2, 12)), ("rising", np.linspace(-2, 2, 12))):
    print(f"{kind} scores: merge {error_of(merge, scores):.0e}, without rescaling {error_of(not_rescaled, scores):.0e}")

# %% [markdown]
# **Outputs are averaged instead of states.** Each block's own $\mathrm{acc}/\ell$ is right for the block, and their
# mean is not attention: it gives a block of irrelevant keys as much weight as any other. Divide once, at the end.


# %%
def averaged(left, right):
    return left[0], np.ones(1), (left[2] / left[1][:, None] + right[2] / right[1][:, None]) / 2


print(f"rising scores, outputs averaged: {error_of(averaged, np.linspace(-2, 2, 12)):.0e}")

# %% [markdown]
# **Two bases.** The forward's `lse` is in base 2; a backward that computes $e^{s - \mathrm{lse}}$ from it gets weights
# that do not add up to 1, and gradients that are wrong everywhere by no constant factor:

# %%
scores = rng.standard_normal((3, 50))
lse2 = np.log2(np.exp2(scores * LOG2_E).sum(axis=1))
for name, weights in (("2^(s·log2 e − lse)", np.exp2(scores * LOG2_E - lse2[:, None])),
                      ("e^(s − lse)", np.exp(scores - lse2[:, None]))):  # fmt: skip
    print(f"{name:<19} weights add up to", " ".join(f"{total:.2f}" for total in weights.sum(axis=1)))

# %% [markdown]
# **−∞ − (−∞).** A query that sees nothing in its first tile has $m = -\infty$, and $e^{-\infty - (-\infty)}$ is NaN.
# It shows with padding on the left, or with more queries than keys, and it stays in acc for good, as NaN times
# anything is NaN:

# %%
with np.errstate(invalid="ignore"):
    print("a first tile without anybody to see:", np.exp(np.float64(-np.inf) - np.float64(-np.inf)))

# %% [markdown]
# **A causal mask aligned top left** where there are fewer queries than keys: the newest query of a decoder would see
# only the first key. And **delta of the block** instead of dout · out: right with one block of keys, wrong with two
# (exercise 4 says so).
#
# ## What changed since 2017
#
# Nothing in equation 1, and everything in how it is computed. That a softmax's maximum and sum can be had in one
# sweep was written down by Milakov and Gimelshein (2018); Rabe and Staats (2021) showed that attention needs no
# quadratic memory; Dao and others (FlashAttention, 2022; the second version 2023, the third 2024) made it the fast
# way as well. Since PyTorch 2 (2023) `scaled_dot_product_attention` runs it, or its like, on GPUs. Long contexts
# became affordable in memory; the $T^2$ products are still there.
#
# ## Where next
#
# [Lesson 17](17_speed_ups.ipynb): the kernels go into the model one at a time, and each one's place under the
# roofline says what it could still gain.
