# %% [markdown]
# # 14 · NumPy as fast as PyTorch
#
# **You will be able to** say how long an array operation will take before you run it, and make a training step faster
# for a reason.
#
# | | |
# |---|---|
# | you know | the model and its training: lessons [08](08_model.ipynb) and [09](09_training.ipynb) |
# | runs in | at most 40 s on 2 cores; no GPU, no PyTorch, no network. Let the machine do nothing else meanwhile |
# | in the paper | §5.2: the hardware, and the seconds of a step |
# | in the package | [`adam_step`](../minitransformer/ops/adam.py), [`Threads`](../minitransformer/system/threads.py) |
#
# Everything in this course runs on NumPy, and its training keeps up with PyTorch's. There is no trick to it. Both leave
# their matrix products to a library (BLAS), and both wait for the same memory. This lesson is about the few numbers
# that decide, and about a habit: **predict, measure, explain the difference.**
#
# In the figures up to the last, grey stands for the price of calls, blue for that of arithmetic, vermilion for that of
# memory.

# %%
import json
import math
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

from course import start
from course.lesson_14.pictures import PARTS, stacked_steps
from course.measuring import (
    BENCHMARKS,
    Passes,
    Stopwatch,
    blas_threads,
    caches,
    page_faults,
    quietest,
    race,
    this_machine,
)
from course.style import BLUE, GREY, INK, PALE, VERMILION
from minitransformer import Transformer, TransformerConfig
from minitransformer.costs import flops_per_token
from minitransformer.data.batching import Batch
from minitransformer.gradcheck import error
from minitransformer.ops import adam_step as package_adam_step
from minitransformer.ops import numpy_ops
from minitransformer.system.allocator import keep_freed_memory
from minitransformer.system.threads import Threads
from minitransformer.textbook import textbook_ops
from minitransformer.training import DataParallel
from minitransformer.training.optimizer import Adam

check = start("14")
rng = np.random.default_rng(0)


def randn(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


# %% [markdown]
# ## Three numbers
#
# When an operation on arrays runs, three things happen: Python finds out what to call, numbers travel between the
# memory and the core, and the core computes. Three measurements on one core give the price of each:
#
# * **flops**: how many floating-point operations a core does in a second. We measure a large matrix product, the best
#   that a core can do. A GFLOP is a thousand million operations.
# * **bandwidth**: how many bytes travel in a second. We copy an array far larger than the caches, and count the bytes
#   that are read and those that are written.
# * **call**: how many seconds NumPy takes to add two arrays of one element.

# %%
machine = this_machine()
rates = f"{machine.flops / 1e9:.0f} GFLOP/s, {machine.bandwidth / 1e9:.1f} GB/s"
print(f"one core: {rates}, {1e6 * machine.call:.2f} µs a call")
print(f"operations that it could do while one float32 comes from memory: {4 * machine.flops / machine.bandwidth:.0f}")
print(f"and during one call that computes next to nothing: {machine.call * machine.flops:,.0f}")

# %% [markdown]
# The last two lines are the whole lesson. `a + b` on large arrays does *one* operation for three numbers that travel.
# So nearly all of the time the core waits. Only a matrix product uses each number that it has loaded many times. And an
# operation on few numbers is mostly the call.
#
# Between the core and the memory lie the caches: small, fast memories that hold what was used last. So one number for
# the bandwidth describes large arrays only. Here we multiply arrays of every size by a number, in place:

# %%
sizes = (2 ** np.arange(8, 25)).tolist()  # elements
arrays = {size: np.ones(size, np.float32) for size in sizes}
seconds = race({size: lambda x=x: np.multiply(x, 1, out=x) for size, x in arrays.items()}, rounds=7, turn=0.002)
kib = np.array(sizes) * 4 / 1024

figure, axes = plt.subplots()
axes.plot(kib, [8 * n / seconds[n] / 1e9 for n in sizes], "o-", color=INK, ms=4, label="measured")
without = [8 * n / (machine.call + 8 * n / machine.bandwidth) / 1e9 for n in sizes]
axes.plot(kib, without, color=VERMILION, ls="--", label="without caches: call + bytes / bandwidth")
axes.set(xscale="log", xlabel="size of the array, KiB", ylabel="GB/s, read and written", ylim=(0, None))
axes.set_title("The same operation on arrays of all sizes, one core")
for name, size in caches().items():
    axes.axvline(size / 1024, color=PALE, lw=2, zorder=0)
    axes.text(size / 1024, 0.98, f"{name} ", color=INK, ha="right", va="top", transform=axes.get_xaxis_transform())
axes.legend(loc="upper left", bbox_to_anchor=(0, 1), fontsize=8)
plt.show()

# %% [markdown]
# On the left the call decides. In the middle the caches do, and the rate is several times that of the memory. On the
# right the array fits into no cache of its own, and the curve falls to about the dashed line. (It may end above or
# below it: a copy touches two arrays, this operation only one, and other programs share the last cache.)
#
# ### Exercise 1 ★☆☆: predict before measuring
#
# How long does a product of two matrices take, $(m, k)$ times $(k, n)$, at the least? Count its operations: there are
# $mn$ results, and each is a sum of $k$ products. Count the bytes: at the least, both matrices are read once, and the
# product is written once. The core computes *while* numbers travel. The call comes before both.


# %% tags=["exercise"]
def predicted_seconds(m, k, n, machine):
    """Seconds that a product of float32 matrices, (m, k) @ (k, n), takes at the least.

    machine has `flops` (operations a second), `bandwidth` (bytes a second) and `call` (seconds). → a number.
    """
    raise NotImplementedError


# %%
predicted_seconds = check(predicted_seconds)

# %% [markdown] tags=["help"]
# You have three prices, in seconds: the call, the arithmetic, the memory. Which of them happen at the same time? How
# long do two things take together if they happen at the same time?
#
# ---
#
# The arithmetic is `2 * m * k * n` operations: a multiplication and an addition each. The memory is the elements of
# three matrices, at 4 bytes. The longer of the two counts, and the call is added to it:
# `machine.call + max(arithmetic, memory)`.

# %% [markdown]
# Now your prediction against the machine, from products of a few numbers to large ones, square, tall and thin. A small
# product is *bound by the call*: nothing else matters. A large square product is bound *by arithmetic*. A matrix times
# a vector, however large, is bound *by memory*.

# %%
shapes = [(4, 4, 4), (32, 32, 32), (64, 64, 64), (128, 128, 128), (1024, 128, 512), (1024, 1024, 1024)]
shapes += [(256, 256, 1), (1024, 1024, 1), (6144, 6144, 1), (1 << 18, 64, 4)]
operands = {(m, k, n): (randn(m, k), randn(k, n)) for m, k, n in shapes}
with blas_threads(1):
    measured = race({shape: lambda a=a, b=b: a @ b for shape, (a, b) in operands.items()}, rounds=5)


def bound_by(m, k, n):
    limits = {
        "the call": machine.call,
        "arithmetic": 2 * m * k * n / machine.flops,
        "memory": 4 * (m * k + k * n + m * n) / machine.bandwidth,
    }
    return max(limits, key=limits.get)


figure, axes = plt.subplots(figsize=(7.2, 3.8))
predicted = {shape: predicted_seconds(*shape, machine) for shape in shapes}
for kind, colour in (("the call", GREY), ("arithmetic", BLUE), ("memory", VERMILION)):
    mine = [shape for shape in shapes if bound_by(*shape) == kind]
    x, y = ([1e6 * times[shape] for shape in mine] for times in (predicted, measured))
    axes.plot(x, y, "o", color=colour, ms=6, label=f"bound by {kind}")
    for shape, left, up in zip(mine, x, y, strict=True):
        text = "·".join(f"{size // 1024}k" if size % 1024 == 0 else f"{size}" for size in shape)
        above = kind != "the call" and shape[-1] > 1
        place = {"xytext": (-6, 4), "ha": "right"} if above else {"xytext": (7, -6)}
        axes.annotate(text, (left, up), textcoords="offset points", fontsize=8, color=colour, **place)
diagonal = np.array([0.2, 1e5])
axes.plot(diagonal, diagonal, color=GREY, lw=1)
axes.fill_between(diagonal, diagonal, 2 * diagonal, color=PALE, alpha=0.5, lw=0, label="up to twice the prediction")
axes.set(xscale="log", yscale="log", xlabel="predicted, µs", ylabel="measured, µs")
axes.set_title("Products (m, k) @ (k, n) on one core, labelled m·k·n")
axes.legend(loc="upper left")
plt.show()
off = [measured[shape] / predicted[shape] for shape in shapes]
print(
    f"measured ÷ predicted: {min(off):.1f} at the least, {np.median(off):.1f} the median, {max(off):.1f} at the most;"
)
print(f"the longest takes {max(measured.values()) / min(measured.values()):,.0f} times as long as the shortest")

# %% [markdown]
# Three numbers predict all of them up to a small factor, and the misses teach something too. `@` has more to find out
# than `+` before it computes. A small or thin product does not reach the rate of the large one, because BLAS first
# copies blocks of its operands into an order that suits the core. And a matrix that is still in a cache may be faster
# than a prediction that fetches it from memory.
#
# ## A step of training, taken apart
#
# Now a whole step of a small Transformer: 2 + 2 layers, width 128, 32 pairs of sentences of 32 tokens. How long would
# its matrix products alone take, with both cores at the rate of the large product?

# %%
CORES = 2
config = TransformerConfig(
    vocab_size=1000, d_model=128, num_heads=4, d_ff=512, num_layers=2, dropout=0.0, max_length=32
)
ids = rng.integers(3, config.vocab_size, (2, 32, 33))
batch = Batch(ids[0, :, 1:], ids[1, :, :-1], ids[1, :, 1:])  # random tokens, no padding

tokens = batch.num_source_tokens + batch.num_target_tokens
flops = tokens * flops_per_token(config, 32).training
products_ms = 1000 * flops / (CORES * machine.flops)
print(f"{flops / 1e9:.1f} GFLOP: {products_ms:.1f} ms on {CORES} cores, and every other operation free")

# %% [markdown]
# And how long does it take, and where? A model reaches its arithmetic through a table of operations (`ops`). So a
# stopwatch is a table whose functions do the same and note the time. First we take the *naive* operations: the formulas
# of lessons 04 to 09 as they are printed. That is the right way to write them first.

# %%
NAIVE = "add_layernorm", "attention", "relu", "linear_cross_entropy", "embedding", "adam_step"
naive_ops = replace(numpy_ops, **{name: getattr(textbook_ops, name) for name in NAIVE})  # minitransformer/textbook/


def training_step(ops):
    """One step of training on the batch, as a function; BLAS may use what threads it likes."""
    model = Transformer(config, ops)
    adam = Adam(model.parameters, model.ops)

    def step():
        model.parameters.zero_grad()
        loss, cache = model.loss(batch.source, batch.target_in, batch.target_out, 0.1)
        model.loss_backward(1.0, cache)
        adam.step(1e-4)
        return float(loss)

    return step


naive_watch = Stopwatch(naive_ops)
naive_step = training_step(naive_watch.ops)
losses = [naive_step() for _ in range(3)]  # and it is warm
with blas_threads(CORES):
    naive = quietest({"": lambda: naive_watch.profile(naive_step)}, seconds=3)[""]
for part, (label, _) in PARTS.items():
    print(f"{label:<22} {naive[part]:6.1f} ms  {naive[part] / naive['total']:4.0%}")
rest = naive["total"] - sum(naive[part] for part in PARTS)
print(f"{'everything else':<22} {rest:6.1f} ms  {rest / naive['total']:4.0%}\n{'a step':<22} {naive['total']:6.1f} ms")

# %% [markdown]
# The products are only a part of this. The rest goes over arrays again and again. What can be done about it?
#
# ## Passes through memory: Adam
#
# Adam is the purest case: four arrays as long as the model has parameters, and no product anywhere. Here it is in
# loops, and as the formula is printed:


# %%
def adam_loops(data, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    for i in range(data.size):
        m[i] = beta1 * m[i] + (1 - beta1) * grad[i]
        v[i] = beta2 * v[i] + (1 - beta2) * grad[i] ** 2
        data[i] -= lr * (m[i] / (1 - beta1**step)) / (math.sqrt(v[i] / (1 - beta2**step)) + eps)


def adam_printed(data, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    m[...] = beta1 * m + (1 - beta1) * grad
    v[...] = beta2 * v + (1 - beta2) * grad**2
    data -= lr * (m / (1 - beta1**step)) / (np.sqrt(v / (1 - beta2**step)) + eps)


def parameters(count):
    """data, grad, m and v."""
    return [*randn(3, count), np.abs(randn(count))]


few = parameters(10_000)
for form in (adam_loops, adam_printed):
    taken = race({"": lambda form=form: form(*few, 3, 1e-4)}, rounds=1)[""]
    print(f"{form.__name__:<13} {1e9 * taken / few[0].size:7.1f} ns for a parameter")

# %% [markdown]
# Each operator of the printed form is a loop over whole arrays: it reads its operands and writes a new array. Count one
# *pass* for each array that is read and one for each that is written. `Passes` is an array that counts them while NumPy
# works:

# %%
count = 4 << 20  # parameters: 16 MiB an array
data, grad, m, v = many = parameters(count)
passes = Passes.count(lambda *arrays: adam_printed(*arrays, 3, 1e-4), *many)
least = 4 + 3  # data, grad, m and v are read; data, m and v are written
for what, number in (("as printed", passes), ("at the least", least)):
    predicted_ms = 1e3 * number * 4 * count / machine.bandwidth
    print(f"{what:<14} {number:2.0f} passes: predicted {predicted_ms:5.1f} ms for {count:,} parameters")

# %% [markdown]
# Two ideas lead from the first number to the second:
#
# * **In place.** `m *= beta1` writes where it has read. There is no new array, whose memory the system would first have
#   to hand out.
# * **In blocks.** In place there is still pass after pass over arrays larger than the cache. When the second pass
#   begins, the start of the array is no longer in the cache. So do *all* of the passes on the first few thousand
#   parameters, which stay in the cache meanwhile; then on the next few thousand. Memory sees each array once.
#
# ### Exercise 2 ★★☆: Adam in blocks
#
# Slices are views, so `m[part] *= beta1` writes into `m`. You may use a scratch array of the block's size. The last
# block may be shorter. And mind the *scalars*: Python's own floats leave float32 arrays as they are, NumPy's float64
# does not.


# %% tags=["exercise"]
def adam_step(data, grad, m, v, step, lr, block=1 << 16, beta1=0.9, beta2=0.98, eps=1e-9):
    """One step of Adam, in place on the flat arrays data, m and v (P,), `block` parameters at a time.

    grad (P,) is only read. The formulas are those of `adam_printed`; temporary arrays hold a few blocks at the most.
    """
    raise NotImplementedError


# %%
adam_step = check(adam_step)

# %% [markdown] tags=["help"]
# Which arrays must change, and which may not? Go through the printed form operator by operator: where is a new array
# made, and which of them could be the scratch array that you already have?
#
# ---
#
# The loop is `for start in range(0, data.size, block)`, with `part = slice(start, start + block)`. Inside it, begin
# with `m[part] *= beta1` and `m[part] += (1 - beta1) * grad[part]`. Numbers such as `math.sqrt(1 - beta2**step)` are
# computed once, before the loop.

# %% [markdown]
# How large should a block be? The calls want it large: a step of Adam makes some fifteen of them for each block. The
# cache wants it small: slices of four arrays must fit, and a scratch array or two. Predict where the valley is, then
# look:

# %%
blocks = (2 ** np.arange(9, 23)).tolist()
calls = {block: lambda block=block: adam_step(*many, 3, 1e-4, block) for block in blocks}
times = race(calls | {"printed": lambda: adam_printed(*many, 3, 1e-4)}, rounds=3, turn=0)
nanoseconds = {what: 1e9 * t / count for what, t in times.items()}

figure, axes = plt.subplots(figsize=(7.2, 3.5))
axes.plot(
    blocks, [nanoseconds[block] for block in blocks], "o-", color=INK, ms=4, label="in place, in blocks, measured"
)
axes.axhline(nanoseconds["printed"], color=INK, label="as printed, measured")
axes.axhline(passes * 4e9 / machine.bandwidth, color=VERMILION, ls="--", label=f"{passes:.0f} passes through memory")
axes.axhline(least * 4e9 / machine.bandwidth, color=VERMILION, ls=":", label=f"{least} passes through memory")
axes.plot(blocks, [15e9 * machine.call / block for block in blocks], color=GREY, ls="--", label="15 calls a block")
for name, size in caches().items():
    axes.axvline(size / (6 * 4), color=PALE, lw=2, zorder=0)
    where = {"ha": "right", "va": "bottom", "rotation": 90, "transform": axes.get_xaxis_transform()}
    axes.text(0.93 * size / (6 * 4), 0.02, f"6 slices fill {name}", color=INK, fontsize=8, **where)
axes.set(xscale="log", yscale="log", xlabel="parameters in a block", ylabel="ns for a parameter")
axes.set(ylim=(0.3, 3 * max(nanoseconds["printed"], nanoseconds[blocks[0]])), yticks=(0.5, 1, 2, 5, 10, 20, 50))
axes.yaxis.set_major_formatter("{x:g}")
axes.yaxis.set_minor_locator(plt.NullLocator())
axes.set_title(f"A step of Adam over {count:,} parameters, one core")
axes.legend(loc="upper center", fontsize=8, ncols=2)
plt.show()

# %% [markdown]
# The black lines are measured. On the left the calls decide. On the right the slices outgrow the caches, and the memory
# decides; the smaller the last cache, the steeper the rise. Between them is a wide valley. (It lies above the dotted
# line: a square root and a division take time too.) The package's block is 65,536 parameters. Here are yours, the
# printed form and the package's:

# %%
start_from = parameters(100_000)
printed = [array.copy() for array in start_from]
adam_printed(*printed, 3, 1e-4)
for name, form in {"yours": adam_step, "the package's": package_adam_step}.items():
    arrays = [array.copy() for array in start_from]
    form(*arrays, step=3, lr=1e-4)
    errors = {name: error(a, b) for name, a, b in zip(("data", "grad", "m", "v"), arrays, printed, strict=True)}
    print(f"{name:<14} against the printed form: " + ", ".join(f"{name} {e:.0e}" for name, e in errors.items()))

# %% [markdown]
# ## Rows that are short (optional)
#
# NumPy walks over an array with an inner loop along one axis. Everything around this loop costs extra for each *row*.
# The rows of a Transformer are short (a model's width, a sentence's length), so a sum over the last axis is often
# expensive. The dot product of each row with a vector of ones is the same sum, and `np.vecdot` does not have this
# price. Here are four operations of a Transformer, each in a plain form and in a faster one, at two sizes:


# %%
def forms(rows):
    """Name → (plain, faster), on arrays of `rows` rows of 128, or of a quarter as many numbers in attention's shape."""
    x, y = randn(rows, 128), randn(rows, 128)
    ones = np.ones(128, np.float32)
    query, key = randn(2, rows // 128, 4, 32, 32)
    return {
        "mean of each row": (lambda: x.mean(-1), lambda: np.vecdot(x, ones) / 128),
        "sum of squares": (lambda: (x * x).sum(-1), lambda: np.vecdot(x, x)),
        "backward of relu": (lambda: np.where(y > 0, x, np.float32(0)), lambda: x * (y > 0)),
        "scores of attention": (
            lambda: np.einsum("bhqd,bhkd->bhqk", query, key),
            lambda: query @ key.swapaxes(-1, -2),
        ),
    }


print(f"{'':<22}{'same result to':>15}{'on 512 rows':>18}{'on 32,768 rows':>18}")
small, large = forms(512), forms(32_768)
for name, (plain, fast) in small.items():
    gain = {}
    for rows, (slow, quick) in ((512, (plain, fast)), (32_768, large[name])):
        with blas_threads(1):
            t = race({"plain": slow, "faster": quick}, rounds=5, turn=0.005)
        gain[rows] = t["plain"] / t["faster"]
    print(f"{name:<22}{error(fast(), plain()):>15.0e}{gain[512]:>15.1f} ×{gain[32_768]:>16.1f} ×")

# %% [markdown]
# Impressive, and a trap: such a table makes us believe that we know what a step will gain. Keep these numbers in mind
# until the section on what helped.
#
# ## Memory that the system takes back (optional)
#
# When Python drops an array, its memory goes back to the C library, and a large piece may go on to the system. The next
# array of that size then gets new memory, which the system fills with zeros, page by page, when it is first touched.
# Each time is a *page fault*. [One call](../minitransformer/system/allocator.py) tells the C library (glibc) to keep
# what is freed for the next step:


# %%
def faults_of(step, steps=3):
    """Page faults of a step."""
    before = page_faults()
    for _ in range(steps):
        step()
    after = page_faults()
    return "unknown" if before is None or after is None else f"{(after - before) / steps:,.0f}"


plain_step = training_step(numpy_ops)
print(f"page faults of the first step: {faults_of(plain_step, 1)}, of later ones: {faults_of(plain_step)}")
told = "told to keep what is freed" if keep_freed_memory() else "not told anything, for this is no glibc"
plain_step()
print(f"{told}: {faults_of(plain_step)}")

# %% [markdown]
# How much later steps pay depends on what glibc has seen so far: it learns from the blocks that are freed. So this
# trick looks good on paper, and gains little time in a training. What it does gain is memory: with several threads, one
# can use what another has freed ([STEPS.md](../tests/benchmarks/STEPS.md) has the numbers).
#
# ## Two cores: replicas in threads
#
# BLAS has threads of its own, but they share out the products alone; NumPy's loops run on one core. Could Python
# threads do better? The interpreter has a lock (the GIL): only one thread at a time runs Python. But inside a loop over
# an array, and inside BLAS, NumPy lets go of the lock. So give each core a *replica* of the model and one half of the
# batch. A replica has the same parameters, and gradients of its own. The halves may hold different numbers of targets,
# so each loss is weighted by its share; then the gradients add up:

# %%
model = Transformer(config, dtype="float64")  # so that only mistakes can differ
replicas = [model, model.replica()]


def part_loss(replica, part):
    """The share of a part of the batch in the loss; the gradient of the part is left in the replica."""
    share = part.num_target_tokens / batch.num_target_tokens
    replica.parameters.zero_grad()
    loss, cache = replica.loss(part.source, part.target_in, part.target_out, 0.1)
    replica.loss_backward(share, cache)
    return share * float(loss)


whole_loss = part_loss(model, batch)
whole = model.parameters.grad.copy()
with Threads(2) as threads:  # and BLAS has one thread each
    loss = sum(threads.map(part_loss, replicas, batch.split(2)))
summed = sum(replica.parameters.grad for replica in replicas)
print(f"two halves against the whole batch: loss {abs(loss - whole_loss):.0e}, gradient {error(summed, whole):.0e}")

# %% [markdown]
# The package's [`DataParallel`](../minitransformer/training/parallel/data_parallel.py) does this, and dropout too. How
# much faster will a step be?
#
# ### Exercise 3 ★☆☆: what a faster part is worth
#
# Part $i$ takes the share $s_i$ of the time, and becomes $k_i$ times as fast. What is not in the list stays as slow as
# it was. How much faster is the whole? (The answer is called Amdahl's law, of 1967.)


# %% tags=["exercise"]
def speed_up(shares, times):
    """The speed-up of the whole when part i, `shares[i]` of its time, becomes `times[i]` times as fast.

    shares (n,), between 0 and 1, their sum at most 1; times (n,), positive, perhaps infinite. → a number.
    """
    raise NotImplementedError


# %%
speed_up = check(speed_up)

# %% [markdown] tags=["help"]
# A step takes one second. Half of it becomes twice as fast. How many seconds does the step take now? And what adds up,
# seconds or speed-ups?
#
# ---
#
# The new time is what is not in the list, `1 - shares.sum()`, plus the sum of `shares / times`. The speed-up is the old
# time, 1, divided by the new one.

# %% [markdown]
# Now predict, from a profile of the package's operations on one core. BLAS's own threads can at best halve the large
# products: the linear layers and the output layer. Replicas can halve everything except Adam, which comes after the
# sum.

# %%
watch = Stopwatch(numpy_ops)
one_step = training_step(watch.ops)
one_step()
with blas_threads(1):
    single = quietest({"": lambda: watch.profile(one_step)}, seconds=3)[""]
products = (single["linear"] + single["linear_cross_entropy"]) / single["total"]
all_but_adam = 1 - single["adam"] / single["total"]
expected = {
    "BLAS's threads": speed_up(np.array([products]), np.array([CORES])),
    "replicas": speed_up(np.array([all_but_adam]), np.array([CORES])),
}
print(f"one core: {single['total']:.1f} ms, linear and output layers {products:.0%}, all but Adam {all_but_adam:.0%}")
for name, times_faster in expected.items():
    print(f"{name:<16} at most {times_faster:.2f} times as fast")

# %% [markdown]
# ## The picture: a step, before and after
#
# Four versions of the same step take turns. Of each we show the quietest round, because other programs on the machine
# can only make a step longer. The losses agree.

# %% tags=["picture"]
workers = DataParallel(Transformer(config, watch.ops), CORES)
adam = Adam(workers.model.parameters, watch.ops)


def replica_step():
    loss = workers.gradients([batch], 0.1, seed=0, step=1)
    adam.step(1e-4)
    return loss


def with_blas(watch, step, count=CORES):
    with blas_threads(count):
        step()  # not counted: after a product BLAS's threads keep a core busy for a while, looking out for the next
        return watch.profile(step)


def with_replicas():
    with workers:
        replica_step()
        return watch.profile(replica_step, threads=CORES)


best = quietest(
    {
        "naive operations,\nBLAS's threads": lambda: with_blas(naive_watch, naive_step),
        "package's operations,\none core": lambda: with_blas(watch, one_step, 1),
        "package's operations,\nBLAS's threads": lambda: with_blas(watch, one_step),
        "package's operations,\nreplicas in threads": with_replicas,
    }
)

figure, axes = plt.subplots(figsize=(7.2, 3.8))
stacked_steps(axes, best, products_ms)
axes.set_title(f"One step of training, {tokens:,} tokens, {CORES} cores")
figure.legend(loc="outside lower center", ncols=4, fontsize=8)
plt.show()

fresh = [training_step(ops)() for ops in (naive_ops, numpy_ops)]
print(f"first losses: {fresh[0]:.6f} naive, {fresh[1]:.6f} the package's")
_, one_core, *threaded = (each["total"] for each in best.values())
for (name, times_faster), total in zip(expected.items(), threaded, strict=True):
    print(f"{name:<16} predicted at most {times_faster:.2f} times one core's speed, measured {one_core / total:.2f}")

# %% [markdown]
# If the machine does something else meanwhile, BLAS's threads may even be slower than one core. They wait for each
# other at every product, and for a long time if another program has the core. Replicas wait for each other once a step.
# So it depends on the machine and on the batch which of the last two bars is shorter.
#
# What is left between the last bar and the dotted line? Passes that nobody has saved, products too small for BLAS's
# best rate, and Python itself, where two threads wait for one lock.
#
# ## Against PyTorch
#
# This was measured beforehand, at three sizes of model (S, M and B): both on two cores, in turns, with the same losses.

# %%
training = json.loads((BENCHMARKS / "results" / "training.json").read_text())
for each in training["races"]:
    if each.get("dropout") and each["shape"] in "SMB":
        seconds = {name: np.array(entry["seconds"]) for name, entry in each["contestants"].items()}
        ours = seconds.pop("ours")
        longer = {name: float(np.median(theirs / ours)) for name, theirs in seconds.items()}
        fastest = min(longer, key=longer.get)
        print(f"shape {each['shape']}: NumPy {1e3 * np.median(ours):5.1f} ms; PyTorch eager takes", end=" ")
        print(f"{longer['PyTorch eager']:.2f} times as long, its best ({fastest}) {longer[fastest]:.2f} times")

# %% [markdown]
# ## What was it that helped? (optional)
#
# The bars show *that* a step became faster. Which change did it? A benchmark took each change back alone. Before it
# ran, the authors wrote down what they expected. They knew tables like the one about short rows.

# %%
PREDICTED = {  # time without it ÷ time with it, at shape S
    "threads": 1.3,
    "memory": 1.2,
    "layernorm": 1.25,
    "attention": 1.25,
    "loss": 1.15,
    "embedding": 1.15,
    "relu": 1.08,
    "adam": 1.05,
}
ledger = json.loads((BENCHMARKS / "results" / "steps.json").read_text())
contestants = next(each for each in ledger["races"] if each.get("shape") == "S")["contestants"]
ours = np.array(contestants["ours"]["seconds"])
print("time without it ÷ time with it   predicted   measured")
for name, hoped in PREDICTED.items():
    print(f"{name:<32} {hoped:9.2f} {np.median(np.array(contestants[name]['seconds']) / ours):10.2f}")

# %% [markdown]
# Threads and relu pay, layer normalisation and Adam a little, the rest hardly at all. The tricks with rows looked so
# good in a table of their own! But in the step they act on half a batch that lies in a core's cache, and on a small
# part of the time. That is Amdahl's law again, and the reason to measure the *step*. (The bars further up compare two
# whole steps. Here each trick was taken back alone, from the code as it was then.) Several of these tricks have since
# gone back to the formula in the package: [`STEPS.md`](../tests/benchmarks/STEPS.md) says which stayed, and why.

# %% [markdown]
# ## Common mistakes, and what they look like
#
# * **A scalar that widens.** `np.sqrt(2)` is an `np.float64`, and since NumPy 2 it makes float64 of every float32 array
#   that it meets. Everything after it moves twice the bytes, and nothing says so.
# * **A new array under an old name.** `data = data - update` in a function changes nothing outside of it.
# * **`einsum` where `@` would do.** It is correct, and it may not call BLAS at all.
# * **The first run.** It pays for memory, caches and imports; later runs do not.
# * **Threads over threads.** Two Python threads, and in each of them BLAS with two of its own: four that want two
#   cores.

# %%
x = randn(1 << 20)
t = race({"wide": lambda: x * np.sqrt(2), "narrow": lambda: x * math.sqrt(2)}, rounds=5)
print(f"x * np.sqrt(2) is {(x * np.sqrt(2)).dtype}, {t['wide'] / t['narrow']:.1f} times as slow as x * math.sqrt(2)")


def forgetful(data, update):
    data = data - update


data = np.ones(3)
forgetful(data, 0.5)
print(f"after `data = data - 0.5` in a function: {data}")

a, b = randn(2, 128, 4, 32, 32)
with blas_threads(1):
    t = race({"einsum": lambda: np.einsum("bhij,bhjk->bhik", a, b), "@": lambda: a @ b}, rounds=5)
print(f"einsum takes {t['einsum'] / t['@']:.0f} times as long as @")

new = Stopwatch(numpy_ops)
step = training_step(new.ops)
with blas_threads(1):
    print("steps of a new model, ms:", " ".join(f"{new.profile(step, steps=1)['total']:.0f}" for _ in range(5)))


def with_threads(count):
    with workers, blas_threads(count):
        replica_step()
        return watch.profile(replica_step)


both = {"one BLAS thread each": lambda: with_threads(1), "two BLAS threads each": lambda: with_threads(2)}
print("replicas:", ", ".join(f"{name} {best['total']:.0f} ms" for name, best in quietest(both, seconds=3).items()))

# %% [markdown]
# ## What changed since 2017
#
# A step of the paper's base model took 0.4 s on eight P100 GPUs (§5.2), and models of that size are trained on GPUs
# today too. Since version 1.20 NumPy chooses its loops by the vector units of the processor that it finds (NEP 38).
# `np.vecdot` came with 2.0, and Python can be had without its lock since 3.13 (PEP 703). The order of the three numbers
# is still the same. On GPUs they lie further apart than here.
#
# ## Where next
#
# [Lesson 15](15_triton_rows.ipynb) writes kernels for a GPU. There *you* decide what is read, what stays on the chip
# and what is written. [Lesson 17](17_speed_ups.ipynb) draws the three numbers as one picture, the roofline.
