# %% [markdown]
# # 16 · Triton II: flash attention
#
# **You will be able to** compute attention without ever writing down its scores, in NumPy in twenty lines and as a
# kernel of your own; and, if you like, its backward.
#
# | | |
# |---|---|
# | you know | [attention and its backward](04_attention.ipynb), [Triton over rows](15_triton_rows.ipynb) |
# | runs in | at most 90 s on 2 cores; Linux with PyTorch and Triton; a GPU if you like |
# | in the paper | §3.2.1, equation 1, exactly |
# | in the package | [`minimal`](../kernels/attention/minimal.py), then its [room](../kernels/attention/__init__.py) |
#
# As in lesson 15, kernels run in Triton's interpreter where there is no GPU, and each cell shows the recorded results
# where PyTorch or Triton is missing. On a GPU, the same cells compile and run them, in float16. To install both:
# `pip install -c constraints.txt torch==2.13.0 triton==3.7.1`, or the same with `uv pip`; on Windows in WSL
# ([which build](../.github/CONTRIBUTING.md#pytorch); [both shells' commands](15_triton_rows.ipynb)).

# %%
import math

import numpy as np

import kernels
from course import bytes_moved, recorded, start
from course.gpu import DEVICE, DTYPE, machine, tl, torch, triton  # before anything else imports triton
from course.lesson_16.pictures import draw_memory, draw_steps, draw_strip, draw_tiles
from course.lesson_16.solutions import causal_blocks  # exercise 5 writes it again
from course.recorded import gpu_times
from course.tensors import numpy, tensor
from minitransformer import ops
from minitransformer.gradcheck import check_gradients, error

check = start("16")
rng = np.random.default_rng(0)
print(machine())
print(gpu_times("16"))

# %% [markdown]
# ## The largest array
#
# For each head, attention takes queries, keys and values and gives outputs, four arrays of $T \times D$ numbers: $T$ is
# the length of the sentence and $D$ the width of a head. On the way it makes the scores, $T \times T$. One sentence in
# one layer of the base model, 8 heads of 64, in float32:

# %%
for length in (512, 4_096, 32_768):
    in_and_out, scores = 4 * 4 * length * 512, 4 * 8 * length**2
    print(f"T = {length:>6,}: in and out {in_and_out / 1e6:6.1f} MB, scores {scores / 1e6:8,.0f} MB")

# %% [markdown]
# The scores are scaled, masked, turned into weights, and multiplied with the values: pass after pass over the largest
# array. We want to take the keys a block at a time, and to forget the scores of each block. The softmax stands in the
# way: its maximum and its sum run over all keys.
#
# ## The one idea: a softmax in pieces
#
# Puzzle 6 of lesson 15 updated a maximum and a sum in a loop. Now the values join them. For one query, with scores
# $s_j$ and values $v_j$ (rows of $D$ numbers), keep only three things of a block of keys:
#
# $$ \begin{aligned}
#    &m = \max_j s_j \\
#    &\ell = \sum_j e^{s_j - m} \\
#    &\mathrm{acc} = \sum_j e^{s_j - m}\, v_j
# \end{aligned} $$
#
# These $2 + D$ numbers are the block's **state**, however long the block is. If it held all the keys, the output would
# be $\mathrm{acc} / \ell$. For all queries at once:


# %%
def block_state(query, key, value):
    """m (T,), l (T,) and acc (T, D) of one block of keys; the scale is in the query already."""
    scores = query @ key.T  # (T, n)
    m = scores.max(axis=1)
    e = np.exp(scores - m[:, None])
    return m, e.sum(axis=1), e @ value


# %% [markdown]
# A second block has a state of its own, relative to its own maximum. Both states can be made relative to the larger
# maximum afterwards, because the correction is the same for all terms of a block:
#
# $$ e^{s_j - m_{\text{new}}} = e^{s_j - m} \cdot e^{m - m_{\text{new}}} $$
#
# So $\ell$ and $\mathrm{acc}$ shrink by one factor, and the block need not be read again.
#
# ### Exercise 1 ★★☆: merge
#
# One corner case needs care: with a mask, a query may see no key of a block. It then has $m = -\infty$, $\ell = 0$,
# $\mathrm{acc} = 0$.


# %% tags=["exercise"]
def merge(left, right):
    """The state of two blocks of keys together, from their states.

    left and right: tuples m (T,), l (T,), acc (T, D), which stay as they are → such a tuple. Nothing overflows,
    whatever the scores; where a query's state is m = −inf, l = 0, acc = 0, merging with it changes nothing.
    """
    raise NotImplementedError


# %%
merge = check(merge)

# %% [markdown] tags=["help"]
# What is the maximum of both blocks together? And by which factor is each of the two sums too large, once that is the
# maximum?
#
# ---
#
# With `m = np.maximum(left[0], right[0])`, the left sums shrink by `np.exp(left[0] - m)`, the right ones by
# `np.exp(right[0] - m)`, and then they are added. Where both maxima are −∞ the difference is NaN: subtract 0 there
# (`np.where`).

# %% [markdown]
# With it, attention is a loop over blocks of keys. Against the package's:


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
# They agree to the last digits for every size of block: this is attention itself, added up in another order.
#
# ## The picture: the running (m, ℓ, acc)
#
# One query, 30 keys, blocks of 6. Above, the scores, with the maximum so far. In the middle, the exponentials relative
# to it: the old ones shrink when a larger score turns up. Below, the output if the keys ended there:

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
# The output moves until the last block; the state never grows.
#
# ## From the loop to the kernel, in four steps
#
# A program owns a block of $M$ queries. It keeps their query rows, $m$, $\ell$ and acc in registers, and walks over the
# blocks of keys and values, $N$ rows each. Each tile of $M \times N$ scores is made in registers and overwritten by the
# next one. The four steps:

# %%
draw_steps()

# %% [markdown]
# (Blue: the current tile. Light blue: tiles seen before. Orange: written to memory in the end. ×: never visited.) In
# all four steps:
#
# * **Powers of two.** GPUs have an instruction for $2^x$, and $e^x = 2^{x \log_2 e}$. So $\log_2 e$ goes into the
#   scale, where it costs nothing, and the whole softmax is in base 2: `tl.exp2`, `tl.log2`.
# * **Products** of two blocks are `tl.dot(a, b, input_precision="ieee")` (in full precision), each side at least 16
#   long.
#
# Two helpers hide the pointers. `load_rows` gives zeros for rows beyond the last, `store_rows` leaves these rows out:

# %%
LOG2_E = math.log2(math.e)
LOWEST = tl.constexpr(float(np.finfo(np.float32).min))  # a maximum that begins here is never −inf
TILE = (32, 16) if DEVICE == "cuda" else (16, 16)  # of step 4, QUERIES and KEYS: small enough for a T4


@triton.jit
def load_rows(x_ptr, T, rows, D: tl.constexpr):
    """Rows of x (T, D), by their numbers: (rows, D), zeros beyond the last."""
    place = rows[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(x_ptr + place, (rows < T)[:, None], other=0.0)


@triton.jit
def store_rows(x_ptr, T, rows, values, D: tl.constexpr):
    """The reverse, in x's own dtype."""
    place = rows[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(x_ptr + place, values.to(x_ptr.dtype.element_ty), (rows < T)[:, None])


# %% [markdown]
# ### Exercise 2 ★☆☆: step 1, a tile of scores (optional)
#
# A warm-up: one head, and lengths that are multiples of the tile. In this step alone, each program writes its tile of
# scores to memory. Its block of queries is `tl.program_id(0)`, its block of keys `tl.program_id(1)`. The transpose of a
# block is `tl.trans(key)`.


# %% tags=["exercise"]
@triton.jit
def scores_kernel(
    query_ptr, key_ptr, scores_ptr, Tq, Tk, scale, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr
):
    """A tile, QUERIES × KEYS, of query keyᵀ · scale, (Tq, Tk)."""
    raise NotImplementedError


def attention_scores(query, key):
    """The scores query keyᵀ / √D in base 2, so times log2(e).

    query (Tq, D) and key (Tk, D), float32, Tq and Tk multiples of 16, D a power of two → (Tq, Tk).
    """
    (Tq, D), Tk = query.shape, len(key)
    scores = torch.empty((Tq, Tk), device=query.device)
    scores_kernel[(Tq // 16, Tk // 16)](query, key, scores, Tq, Tk, LOG2_E / math.sqrt(D), D=D, QUERIES=16, KEYS=16)
    return scores


# %%
attention_scores = check(attention_scores)

# %% [markdown] tags=["help"]
# One product is enough, as all of D fits. Which rows of the query belong to this program, and which rows of the key?
#
# ---
#
# `queries = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)`, and keys alike; then `query = load_rows(query_ptr, Tq,
# queries, D)`. A score belongs at `scores_ptr + queries[:, None] * Tk + keys[None, :]`.

# %% [markdown]
# ### The walk
#
# The program walks over blocks of keys. It keeps $m$ and $\ell$ for each query, two blocks of $M$ numbers, and writes
# no scores. In the end it writes, for the backward, one number for each query, the log-sum-exp
# $\mathrm{lse} = \log_2 \sum_j 2^{s_j} = m + \log_2 \ell$.
#
# Let $m$ begin at `LOWEST` instead of $-\infty$, as `tl.full((QUERIES,), LOWEST, tl.float32)`; then no difference of
# two infinities can arise. `tl.max(scores, axis=1)` and `tl.sum` go along the rows of a tile.
#
# ### Exercise 3 ★★☆: step 2, the softmax over blocks of keys (optional)
#
# One more small step on the way to step 3: the walk without the values.


# %% tags=["exercise"]
@triton.jit
def lse_kernel(query_ptr, key_ptr, lse_ptr, Tq, Tk, scale, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    """log2 Σ_j 2^score_j of each of a block of queries; scores are query keyᵀ · scale."""
    raise NotImplementedError


def attention_lse(query, key):
    """The log-sum-exp, in base 2, of each query's scores; each program reads each key once.

    query (Tq, D) and key (Tk, D), float32, Tq and Tk multiples of 16, D a power of two → (Tq,).
    """
    (Tq, D), Tk = query.shape, len(key)
    lse = torch.empty(Tq, device=query.device)
    lse_kernel[(Tq // 16,)](query, key, lse, Tq, Tk, LOG2_E / math.sqrt(D), D=D, QUERIES=16, KEYS=16)
    return lse


# %%
attention_lse = check(attention_lse)

# %% [markdown] tags=["help"]
# Puzzle 6 of lesson 15 did this for one row of numbers. Here a program has QUERIES rows at once: which of m, l and the
# scores have one number for each query, and which have a row for each query?
#
# ---
#
# The loop is `for first in range(0, Tk, KEYS):`. In it, `new_m = tl.maximum(m, tl.max(scores, axis=1))`, the terms are
# `tl.exp2(scores - new_m[:, None])`, and l shrinks by `tl.exp2(m - new_m)` before their sums are added.

# %% [markdown]
# ### Exercise 4 ★★☆: step 3, with the output
#
# One head, and lengths that are multiples of the tile. In each round of the walk the program makes a tile of scores,
# `tl.dot(query, tl.trans(key), input_precision="ieee") * scale`, updates $m$ and $\ell$, and adds to acc, a block of
# $M \times D$. acc is rescaled as $\ell$ is, and divided by $\ell$ once, at the end. The
# tile of weights times the block of values is a product again. `tl.dot` needs one type on both
# sides, so round the weights to the values' type: `weights.to(value.dtype)`. Sums stay in float32.


# %% tags=["exercise"]
@triton.jit
def attention_kernel(
    query_ptr, key_ptr, value_ptr, out_ptr, lse_ptr, Tq, Tk, scale,
    D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """out and lse of a block of queries; scores are query keyᵀ · scale."""
    raise NotImplementedError


def attention_out(query, key, value):
    """softmax(query keyᵀ / √D) value of one head, and the log-sum-exp of the scores in base 2.

    query (Tq, D), key and value (Tk, D), float32 or float16, Tq and Tk multiples of 16, D a power of two
    → out (Tq, D) in their dtype, lse (Tq,) in float32. Each program reads each key and each value once.
    """
    (Tq, D), Tk = query.shape, len(key)
    out, lse = torch.empty_like(query), torch.empty(Tq, device=query.device)
    attention_kernel[(Tq // 16,)](query, key, value, out, lse, Tq, Tk, LOG2_E / math.sqrt(D), D=D, QUERIES=16, KEYS=16)
    return out, lse


# %%
attention_out = check(attention_out)

# %% [markdown] tags=["help"]
# Puzzle 6 of lesson 15 kept m and l for one row of numbers; here they have one number for each query. When the maximum
# rises, by which factor must l shrink, and acc with it?
#
# ---
#
# `queries = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)`, and `query = load_rows(query_ptr, Tq, queries, D)`.
# Before the loop `acc = tl.zeros((QUERIES, D), tl.float32)`. The loop is `for first in range(0, Tk, KEYS):`. In it,
# `new_m = tl.maximum(m, tl.max(scores, axis=1))`, the weights are `tl.exp2(scores - new_m[:, None])`, and
# `rescale = tl.exp2(m - new_m)`: acc becomes `acc * rescale[:, None]` plus the product of the weights and the values, l
# likewise with the weights' sums. After it, store `acc / l[:, None]`.

# %% [markdown]
# That is [flash attention](glossary.md#flash-attention) for one head without a mask. Next, causal attention, in which
# query $i$ sees the keys up to its own position, $T_k - T_q + i$: the queries are the last positions, as with a
# key/value cache (lesson 11).
#
# ### Exercise 5 ★☆☆: skip the future (optional)
#
# A block of queries sees the first blocks of keys *whole*, and needs no mask for them. It sees the next ones in part,
# and needs a mask. The rest lie in the future of all its queries. `causal_blocks` counts the first kind, and the first
# two kinds together. Here is its result; then write it:

# %%
tile, Tq, Tk = (8, 4), 24, 32
draw_tiles([causal_blocks(block, tile, Tq, Tk) for block in range(Tq // tile[0])], tile, Tq, Tk)
for length in (512, 4_096, 32_768):
    stops = [causal_blocks(block, (128, 64), length, length)[1] for block in range(length // 128)]
    print(f"T = {length:>6,}, tiles of 128 × 64: {sum(stops) / (length // 128 * length // 64):.0%} of them visited")


# %% tags=["exercise"]
def causal_blocks(block, tile, Tq, Tk):
    """The blocks of keys that a block of queries visits, in causal attention.

    block: the number of the block of queries; tile = (QUERIES, KEYS): rows of a block of queries and of one of keys.
    The last block of either may stick out. Query i sees the keys 0 … Tk − Tq + i.
    → (whole, stop), ints: each of the queries sees all of blocks 0 … whole − 1; some see some of blocks 0 … stop − 1.
    """
    raise NotImplementedError


# %%
causal_blocks = check(causal_blocks)

# %% [markdown] tags=["help"]
# Which query of the block sees the fewest keys, the first or the last? How many does it see, and how many whole blocks
# do they fill? And which one sees the most?
#
# ---
#
# The first query stands at position `block * QUERIES + Tk - Tq` and sees one key more than that number, but at least 0.
# The last one is `min((block + 1) * QUERIES, Tq) - 1`. Divide the number of keys by KEYS: rounded down for `whole`,
# rounded up for `stop`.


# %% [markdown]
# ### Exercise 6 ★★☆: step 4, the whole kernel
#
# Begin with your kernel of step 3, and add four things.
#
# * **Heads.** The arrays are $(H, T, D)$, and a program's head is `tl.program_id(1)`. The rows of a head begin
#   `head * T * D` numbers behind the first, so `load_rows` gets another pointer. (Make head a 64-bit number,
#   `.to(tl.int64)`: large arrays need it.)
# * **Edges.** Any length must work. `load_rows` gives zeros for keys beyond the last: their scores of 0 must become
#   $-\infty$ (`tl.where`).
# * **The future.** Blocks of keys in the future of all queries are not visited. `causal_blocks` (exercise 5, or the
#   course's) has counted the others; the loop runs over `range(tl.load(stop_ptr + block))`. `if CAUSAL:` in a kernel is
#   decided when it is compiled.
# * **Nothing to see.** A query may see no key at all. Its out is 0, and its lse is $+\infty$.


# %% tags=["exercise"]
@triton.jit
def flash_forward_kernel(
    query_ptr, key_ptr, value_ptr, out_ptr, lse_ptr, stop_ptr, Tq, Tk, scale,
    CAUSAL: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """out and lse of a block of queries; scores, in base 2, are query keyᵀ · scale."""
    raise NotImplementedError


def flash_forward(query, key, value, causal=False, tile=TILE):
    """softmax(query keyᵀ / √D) value, and the log-sum-exp of the scores in base 2.

    query (H, Tq, D), key and value (H, Tk, D), contiguous, D a power of two → out (H, Tq, D) in their dtype, and lse
    (H, Tq) in float32. A query that sees nothing has an out of 0 and an lse of +inf. Launches the kernel above once, in
    tiles of `tile` = (QUERIES, KEYS); programs read only the blocks of keys that they visit.
    """
    (H, Tq, D), Tk, (QUERIES, KEYS) = query.shape, key.shape[1], tile
    blocks = triton.cdiv(Tq, QUERIES)
    stops = [causal_blocks(n, tile, Tq, Tk)[1] if causal else triton.cdiv(Tk, KEYS) for n in range(blocks)]
    stops = torch.tensor(stops, dtype=torch.int32, device=query.device)
    out, lse = torch.empty_like(query), torch.empty((H, Tq), device=query.device)
    flash_forward_kernel[(blocks, H)](
        query, key, value, out, lse, stops, Tq, Tk, LOG2_E / math.sqrt(D),
        CAUSAL=causal, D=D, QUERIES=QUERIES, KEYS=KEYS,
    )  # fmt: skip
    return out, lse


# %%
flash_forward = check(flash_forward)

# %% [markdown] tags=["help"]
# Which pairs of a query and a key in a tile must not be seen, at the end of the keys and in the future? One mask of (M,
# N) answers both. And what is l for a query that saw nothing?
#
# ---
#
# `seen = (keys < Tk)[None, :]`, and if CAUSAL also `keys[None, :] <= queries[:, None] + (Tk - Tq)`. Scores are
# `tl.where(seen, scores, float("-inf"))`. In the end `nothing = l == 0`: divide by 1 there, and store `float("inf")`
# as lse. The store of lse wants the mask `queries < Tq`.

# %% [markdown]
# Against NumPy in float64, with lengths that fill no block:


# %%
def forward_errors():
    arrays = [rng.standard_normal((2, T, 32)) for T in (45, 70, 70)]
    expected = ops.attention_forward(*(array[None] for array in arrays), causal=True)[0][0]
    tensors = [tensor(array) for array in arrays]
    return [error(numpy(flash_forward(*each, True)[0]), expected) for each in (tensors, [t.half() for t in tensors])]


single, half = recorded("16_forward", forward_errors)
print(f"causal: off by {single:.0e} in float32 and by {half:.0e} in float16")

# %% [markdown]
# ### The same, in the package (optional)
#
# The package's kernel has many options. [`minimal.py`](../kernels/attention/minimal.py) is your kernel and nothing
# else. It takes as many queries as keys and keeps no lse, so every query sees the first key, and no row needs a guard.
# There the kernel itself counts the blocks of keys to visit.


# %%
def beside_the_minimal():
    from kernels.attention.minimal import attention_minimal

    tensors = [tensor(array) for array in np.random.default_rng(1).standard_normal((3, 2, 70, 32))]
    minimal = attention_minimal(*(t[None] for t in tensors), causal=True)[0]
    return error(numpy(flash_forward(*tensors, True)[0]), numpy(minimal))


print(f"off by {recorded('16_minimal', beside_the_minimal):.0e} from minimal.py")

# %% [markdown]
# ## The picture: memory against T (optional)
#
# Counted as in lesson 15: on the left the largest array on the way, on the right the bytes that go through memory.
# "Written out" is attention as the formula stands, in PyTorch's operations.


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
# Left: when $T$ doubles, flash attention's memory doubles too, and the scores become four times as large. Right: each
# block of queries reads *all* keys and values, so the bytes fall as the block gets more rows: $2 \cdot T D \cdot T / M$
# numbers, for $T / M$ blocks. So blocks are as large as registers and shared memory allow (128 rows on large GPUs, 32
# on a T4, in the package's [tables](../kernels/attention/tiles.py)). On a GPU the L2 cache answers many of these reads.

# %%
for row_count, counted, formula in zip(rows, moved, predicted, strict=True):
    print(f"blocks of {row_count:>3} queries: {counted / 1e6:5.2f} MB counted, {formula / 1e6:5.2f} predicted, "
          f"{moved_written_out / counted:4.1f} times less than written out")  # fmt: skip

# %% [markdown]
# ## The backward, without the weights (optional)
#
# From lesson 04, with $P$ the weights, $S$ the scaled scores, $O$ the output, and d$O$ given:
#
# $$ \begin{aligned}
#    &\mathrm{d}V = P^\top \mathrm{d}O \\
#    &\mathrm{d}P = \mathrm{d}O\, V^\top \\
#    &\mathrm{d}S_{ij} = P_{ij} \Big( \mathrm{d}P_{ij} - \sum_k P_{ik}\, \mathrm{d}P_{ik} \Big) \\
#    &\mathrm{d}Q = \tfrac{1}{\sqrt D}\, \mathrm{d}S\, K \\
#    &\mathrm{d}K = \tfrac{1}{\sqrt D}\, \mathrm{d}S^\top Q
# \end{aligned} $$
#
# $P$ was never stored. But from the lse that the forward kept, one number for each query, we can quickly compute a tile
# of it again: $P_{ij} = e^{S_{ij} - \mathrm{lse}_i}$. Computing it twice is cheaper than storing it.
#
# One term still needs a whole row: the sum over all keys $k$. Put in $\mathrm{d}P_{ik} = \sum_d
# \mathrm{d}O_{id} V_{kd}$, where $d$ counts the channels, and exchange the two sums:
#
# $$ \sum_k P_{ik}\, \mathrm{d}P_{ik} = \sum_d \mathrm{d}O_{id} \underbrace{\sum_k P_{ik} V_{kd}}_{O_{id}}
#    = \sum_d \mathrm{d}O_{id}\, O_{id} =: \delta_i $$
#
# A sum over $T$ keys has become one over $D$ channels, of two arrays that are there already. (Dao and others write $D$
# for $\delta$.) In numbers:

# %%
weights = ops.attention_weights(query[None, None], key[None, None])[0, 0]  # (T, T)
out = weights @ value
dout = rng.standard_normal(out.shape)
over_keys, over_channels = (weights * (dout @ value.T)).sum(axis=1), (dout * out).sum(axis=1)
print(f"Σ over keys against Σ over channels: {error(over_channels, over_keys):.0e}")

# %% [markdown]
# ### Exercise 7 ★★☆: the backward of a block of keys


# %% tags=["exercise"]
def backward_block(dout, out, lse, query, key, value):
    """The part of one block of keys in the gradients of attention over all keys.

    dout and out (T, Dv), the gradient and the output of all keys; lse (T,), log Σ_j e^score_j over all keys;
    query (T, D); key (n, D) and value (n, Dv) of the block alone. Scores are query · key / √D; nothing overflows.
    → the tuple dquery (T, D), this block's part of it, dkey (n, D), dvalue (n, Dv).
    """
    raise NotImplementedError


# %%
backward_block = check(backward_block)

# %% [markdown] tags=["help"]
# Which of the five formulas need only this block's keys and values, dout, and the weights of this block? For the one
# that needs more, what did the algebra above put in its place?
#
# ---
#
# The block's weights are `np.exp(scale * query @ key.T - lse[:, None])`: relative to all keys, since lse is. Then
# `delta = (dout * out).sum(axis=1)`, and the rest are the formulas, one line each.

# %% [markdown]
# The whole backward is a loop again. The proof is lesson 00's, central differences in float64, on the forward that
# merges blocks.


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
# ## The backward kernels (optional)
#
# dquery sums over blocks of keys, dkey and dvalue sum over blocks of queries. In one kernel, programs would have to add
# into rows of others, with atomics and in a random order (lesson 15, "a sum over all rows"). So there are two kernels:
# in one, programs own queries and write dquery; in the other, they own keys. Both compute the tiles of weights once
# more: seven products instead of five, for the same bits in every run.


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
    query = load_rows(query_ptr + head * Tq * D, Tq, queries, D)  # (M, D)
    dout = load_rows(dout_ptr + head * Tq * D, Tq, queries, D)
    out = load_rows(out_ptr + head * Tq * D, Tq, queries, D)
    lse = tl.load(lse_ptr + head * Tq + queries, queries < Tq, other=float("inf"))
    delta = tl.sum(dout.to(tl.float32) * out.to(tl.float32), axis=1)  # (M,)
    tl.store(delta_ptr + head * Tq + queries, delta, queries < Tq)
    dquery = tl.zeros((QUERIES, D), tl.float32)
    stop = Tk
    if CAUSAL:
        stop = tl.maximum(tl.minimum((block + 1) * QUERIES + (Tk - Tq), Tk), 0)
    for first in range(0, stop, KEYS):
        keys = first + tl.arange(0, KEYS)  # (N,)
        key = load_rows(key_ptr + head * Tk * D, Tk, keys, D)  # (N, D)
        value = load_rows(value_ptr + head * Tk * D, Tk, keys, D)
        weights = tile_weights(query, key, lse, queries, keys, Tq, Tk, scale, CAUSAL)  # (M, N)
        dweights = tl.dot(dout, tl.trans(value), input_precision="ieee")
        dscores = weights * (dweights - delta[:, None])
        dquery += tl.dot(dscores.to(key.dtype), key, input_precision="ieee")
    store_rows(dquery_ptr + head * Tq * D, Tq, queries, dquery * dscale, D)


@triton.jit
def dkey_dvalue_kernel(
    query_ptr, key_ptr, value_ptr, dout_ptr, lse_ptr, delta_ptr, dkey_ptr, dvalue_ptr, Tq, Tk, scale, dscale,
    CAUSAL: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """dkey and dvalue of a block of keys; the blocks of queries come by."""
    block, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    keys = block * KEYS + tl.arange(0, KEYS)  # (N,)
    key = load_rows(key_ptr + head * Tk * D, Tk, keys, D)  # (N, D)
    value = load_rows(value_ptr + head * Tk * D, Tk, keys, D)
    dkey = tl.zeros((KEYS, D), tl.float32)
    dvalue = tl.zeros((KEYS, D), tl.float32)
    start = 0
    if CAUSAL:
        start = tl.maximum(block * KEYS - (Tk - Tq), 0) // QUERIES * QUERIES  # the first query that sees the first key
    for first in range(start, Tq, QUERIES):
        queries = first + tl.arange(0, QUERIES)  # (M,)
        query = load_rows(query_ptr + head * Tq * D, Tq, queries, D)  # (M, D)
        dout = load_rows(dout_ptr + head * Tq * D, Tq, queries, D)
        lse = tl.load(lse_ptr + head * Tq + queries, queries < Tq, other=float("inf"))
        delta = tl.load(delta_ptr + head * Tq + queries, queries < Tq, other=0.0)
        weights = tile_weights(query, key, lse, queries, keys, Tq, Tk, scale, CAUSAL)  # (M, N)
        dvalue += tl.dot(tl.trans(weights).to(dout.dtype), dout, input_precision="ieee")
        dweights = tl.dot(dout, tl.trans(value), input_precision="ieee")
        dscores = weights * (dweights - delta[:, None])
        dkey += tl.dot(tl.trans(dscores).to(query.dtype), query, input_precision="ieee")
    store_rows(dkey_ptr + head * Tk * D, Tk, keys, dkey * dscale, D)
    store_rows(dvalue_ptr + head * Tk * D, Tk, keys, dvalue, D)


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
# A lane beyond the queries, or a query that sees nothing, has an `lse` of +∞: its weights are $2^{-\infty} = 0$, so it
# needs no mask of its own. The proof: NumPy in float64, which lesson 04 proved by central differences, PyTorch's
# autograd, and the package's kernels.


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
        _, cache = ops.attention_forward(*(array[None] for array in (query, key, value)), causal=causal)
        expected = ops.attention_backward(dout[None], cache)
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
# ## What the package adds (optional)
#
# The package's [`forward`](../kernels/attention/forward.py) also has masks for padding, windows (Table 1), dropout
# whose mask is computed in the kernel, separate loops for tiles without a mask, head widths that are no power of two,
# and tiles for each kind of GPU. On a GPU, a first look at the time:

# %%
if DEVICE == "cuda":
    arrays = [torch.randn(16, 2048, 64, dtype=DTYPE, device=DEVICE) for _ in range(3)]
    from kernels.attention.minimal import attention_minimal

    whole = [array[None] for array in arrays]  # a batch of one
    for name, attention in {
        "written out": lambda: written_out(*arrays),
        "yours": lambda: flash_forward(*arrays),
        "minimal.py": lambda: attention_minimal(*whole),
        "the package's": lambda: kernels.attention_forward(*whole),
    }.items():
        print(f"{name:<13} {triton.testing.do_bench(attention):6.2f} ms")
else:
    print("There is no GPU here, and the interpreter's times mean nothing.")

# %% [markdown]
# ## Common mistakes, and what they look like
#
# * **The old sums are not rescaled.** That is right as long as the largest score comes first. Scores that rise along
#   the sequence show the mistake.
# * **Outputs are averaged instead of states**: a block of irrelevant keys gets as much weight as any other. Divide
#   once, at the end.
# * **−∞ − (−∞).** A query that sees nothing in its first tile has $m = -\infty$, and $e^{-\infty - (-\infty)}$ is NaN,
#   which stays.
# * **A causal mask aligned at the top left** where there are fewer queries than keys: the newest query of a decoder
#   would see only the first key.
#
# ### The mistakes, run (optional)
#
# Without rescaling, in three blocks of keys:


# %%
def not_rescaled(left, right):
    m = np.maximum(left[0], right[0])
    b = np.exp(right[0] - m)
    return m, left[1] + b * right[1], left[2] + b[:, None] * right[2]


def error_of(combine, scores):
    """The error of the output, when three blocks of four keys are combined from left to right."""
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
# Outputs averaged (merged pair by pair, the last block even gets half):


# %%
def averaged(left, right):
    return left[0], np.ones(1), (left[2] / left[1][:, None] + right[2] / right[1][:, None]) / 2


print(f"rising scores, outputs averaged: {error_of(averaged, np.linspace(-2, 2, 12)):.0e}")

# %% [markdown]
# Two bases: with lse in base 2, the weights $e^{s - \mathrm{lse}}$ do not add up to 1, and the gradients are wrong
# everywhere, by no constant factor:

# %%
scores = rng.standard_normal((3, 50))
lse2 = np.log2(np.exp2(scores * LOG2_E).sum(axis=1))
for name, weights in (("2^(s·log2 e − lse)", np.exp2(scores * LOG2_E - lse2[:, None])),
                      ("e^(s − lse)", np.exp(scores - lse2[:, None]))):  # fmt: skip
    print(f"{name:<19} weights add up to", " ".join(f"{total:.2f}" for total in weights.sum(axis=1)))

# %% [markdown]
# ## What changed since 2017
#
# Milakov and Gimelshein (2018) computed a softmax's maximum and sum in one sweep. Rabe and Staats (2021) showed that
# attention needs no quadratic memory. Dao and others (FlashAttention, 2022, 2023 and 2024) made it fast, and PyTorch 2
# (2023) runs it, or a relative of it, as `scaled_dot_product_attention`. The $T^2$ products are still there.
#
# ## Where next
#
# [Lesson 17](17_speed_ups.ipynb): the kernels go into the model one at a time, and a roofline says how much each can
# gain.
