# %% [markdown]
# # 14 · NumPy as fast as PyTorch
#
# **You will be able to** say how long an array operation will take before you run it, and make a training step faster
# for a reason.
#
# | | |
# |---|---|
# | you know | the model and its training: lessons [08](08_model.ipynb) and [09](09_training.ipynb) |
# | runs in | at most 40 s on 2 cores, with nothing else running; no GPU, no PyTorch, no network |
# | in the paper | §5.2: the hardware, and the seconds of a step |
# | in the package | [`adam_step`](../minitransformer/ops/adam.py), [`Threads`](../minitransformer/system/threads.py) |
#
# This course runs on NumPy, and its training keeps up with PyTorch's. There is no trick: both leave their matrix
# products to a library (BLAS), and both wait for the same memory. This lesson is about the few numbers that decide, and
# about a habit: **predict, measure, explain the difference.**

# %%
import json
import math
from dataclasses import replace

import numpy as np

from course import start
from course.lesson_14.pictures import PARTS, draw_blocks, draw_predictions, draw_rates, draw_steps
from course.measuring import (
    BENCHMARKS,
    Passes,
    Stopwatch,
    blas_threads,
    page_faults,
    quietest,
    race,
    this_machine,
)
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
# When an operation on arrays runs, Python finds the function to call, numbers travel between the memory and the core,
# and the core computes. Three measurements on one core give the price of each:
#
# * **flops**: the core's floating-point operations a second, in a large matrix product, the best that a core can do. A
#   GFLOP is a thousand million operations.
# * **bandwidth**: the bytes that travel in a second, read and written, while an array far larger than the caches is
#   copied.
# * **call**: the seconds that NumPy takes to add two arrays of one element.

# %%
machine = this_machine()
rates = f"{machine.flops / 1e9:.0f} GFLOP/s, {machine.bandwidth / 1e9:.1f} GB/s"
print(f"one core: {rates}, {1e6 * machine.call:.2f} µs a call")
print(f"operations that it could do while one float32 comes from memory: {4 * machine.flops / machine.bandwidth:.0f}")
print(f"and during one call that computes next to nothing: {machine.call * machine.flops:,.0f}")

# %% [markdown]
# The last two lines are the whole lesson. `a + b` on large arrays does *one* operation for three numbers that travel,
# so nearly all of the time the core waits. Only a matrix product uses each number that it loads many times. And in an
# operation on few numbers, the call takes most of the time.
#
# Between the core and the memory lie the caches, small, fast memories that hold the numbers used last. So the bandwidth
# describes large arrays only. Here we multiply arrays of every size by a number, in place:

# %%
sizes = (2 ** np.arange(8, 25)).tolist()  # elements
arrays = {size: np.ones(size, np.float32) for size in sizes}
seconds = race({size: lambda x=x: np.multiply(x, 1, out=x) for size, x in arrays.items()}, rounds=7, turn=0.002)
draw_rates(sizes, seconds, machine)

# %% [markdown]
# On the left the call decides, in the middle the caches, several times as fast as the memory. On the right the array
# fits into no cache of the core's own, and the curve falls to about the dashed line. (A copy touches two arrays, this
# operation only one, and other programs share the last cache.)
#
# ### Exercise 1 ★☆☆: predict before measuring
#
# How long does a product of two matrices take, $(m, k)$ times $(k, n)$, at the least? Its $mn$ results are sums of $k$
# products each. At the least, both matrices are read once, and the product is written once. The core computes *while*
# numbers travel. The call comes before both.


# %% tags=["exercise"]
def predicted_seconds(m, k, n, machine):
    """Seconds that a product of float32 matrices, (m, k) @ (k, n), takes at the least.

    machine has `flops` (operations a second), `bandwidth` (bytes a second) and `call` (seconds). → a number.
    """
    raise NotImplementedError


# %%
predicted_seconds = check(predicted_seconds)

# %% [markdown] tags=["help"]
# You have three times: the call, the arithmetic, the memory. Which of them overlap? And how long do two times take
# together if they overlap?
#
# ---
#
# The arithmetic is `2 * m * k * n` operations: a multiplication and an addition each. The memory is the elements of
# three matrices, at 4 bytes. The longer of the two counts, and the call is added to it:
# `machine.call + max(arithmetic, memory)`.

# %% [markdown]
# Your prediction against the machine, for products that are small and large, square, tall and thin. A small product is
# *bound by the call*, a large square one *by arithmetic*, a matrix times a vector *by memory*, however large:

# %%
shapes = [(4, 4, 4), (32, 32, 32), (64, 64, 64), (128, 128, 128), (1024, 128, 512), (1024, 1024, 1024)]
shapes += [(256, 256, 1), (1024, 1024, 1), (6144, 6144, 1), (1 << 18, 64, 4)]
operands = {(m, k, n): (randn(m, k), randn(k, n)) for m, k, n in shapes}
with blas_threads(1):
    measured = race({shape: lambda a=a, b=b: a @ b for shape, (a, b) in operands.items()}, rounds=5)

predicted = {shape: predicted_seconds(*shape, machine) for shape in shapes}
draw_predictions(predicted, measured, machine)
off = [measured[shape] / predicted[shape] for shape in shapes]
print(f"measured ÷ predicted: {min(off):.1f} at the least, {np.median(off):.1f} the median, {max(off):.1f} at the most")

# %% [markdown]
# Three numbers predict all of them up to a small factor, and the misses have reasons. `@` checks more than `+` before
# it computes. A small or thin product stays below the large one's rate, because BLAS first copies blocks of its
# operands into an order that suits the core. And a matrix that is still in a cache may be faster than predicted.
#
# ## A step of training, taken apart
#
# Now a whole step of a small Transformer: 2 + 2 layers, width 128, 32 pairs of sentences of 32 tokens. With both cores
# at the rate of the large product, its matrix products alone would take:

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
# How long does the step really take, and where? A model reaches its arithmetic through a table of operations (`ops`),
# so a stopwatch is a table whose functions do the same and note the time. First the *naive* operations, the formulas of
# lessons 04 to 09 as printed, which is the right way to write them first:

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
# The products are only a part of this. The rest goes over arrays again and again.
#
# ## Passes through memory: Adam
#
# Adam is the purest case: four arrays, one number for each parameter, and no matrix product. In loops, and as printed:


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
# Each operator of the printed form reads its operands and writes a new array. Count one *pass* for each array that is
# read and one for each that is written. `Passes` is an array that counts them while NumPy works:

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
# * **In place.** `m *= beta1` writes where it has read, and needs no new array.
# * **In blocks.** Even in place, each pass runs over arrays larger than the cache: when the next pass begins, the start
#   of the array has left it. So do *all* passes on the first few thousand parameters, which stay in the cache
#   meanwhile; then on the next few thousand. Memory sees each array once.

# %%
ways = {"as printed": lambda: adam_printed(*many, 3, 1e-4)}
ways["in place, in blocks"] = lambda: package_adam_step(*many, step=3, lr=1e-4)
for what, taken in race(ways, rounds=3, turn=0).items():
    print(f"{what:<20} {1e3 * taken:5.1f} ms")

# %% [markdown]
# ### Exercise 2 ★★☆: Adam in blocks (optional)
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
# How large should a block be? Calls favour a large one: a step of Adam makes some fifteen for each block. The cache
# favours a small one: slices of four arrays must fit, and a scratch array or two. Predict where the valley is, then
# look:

# %%
blocks = (2 ** np.arange(9, 23)).tolist()
calls = {block: lambda block=block: adam_step(*many, 3, 1e-4, block) for block in blocks}
times = race(calls | {"printed": lambda: adam_printed(*many, 3, 1e-4)}, rounds=3, turn=0)
nanoseconds = {what: 1e9 * t / count for what, t in times.items()}
in_blocks = {block: nanoseconds[block] for block in blocks}
draw_blocks(count, in_blocks, nanoseconds["printed"], {"printed": passes, "least": least}, machine)

# %% [markdown]
# On the left the calls decide. On the right the slices outgrow the caches, and the memory decides. Between them is a
# wide valley, which lies above the dotted line because a square root and a division take time too. The package's block
# is 65,536 parameters. Yours, and the package's, against the printed form:

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
# NumPy walks over an array with an inner loop along one axis, and starting this loop costs extra for each *row*. The
# rows of a Transformer are short (a model's width, a sentence's length), so a sum over the last axis is often
# expensive. `np.vecdot` of each row with a vector of ones is the same sum without this price. Four operations of a
# Transformer, each in a plain form and in a faster one, at two sizes:


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
# Impressive, and a trap: such a table does not say what a whole step will gain. Remember these numbers until the
# section "Which change helped?".
#
# ## Memory that the system takes back (optional)
#
# When Python drops a large array, its memory may go back to the system. The next array of that size then gets new
# memory, which the system fills with zeros, page by page, at the first touch: a *page fault* each time.
# [One call](../minitransformer/system/allocator.py) tells the C library (glibc) to keep freed memory for the next step:


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
# How much later steps pay depends on the blocks that were freed before, from which glibc learns. So this call saves
# little time in a training run. It does save memory: one thread can use what another has freed
# ([STEPS.md](../tests/benchmarks/STEPS.md) has the numbers).
#
# ## Two cores: replicas in threads
#
# BLAS's own threads share only the products; NumPy's loops run on one core. Python threads can share all of the step:
# the interpreter's lock (the GIL) lets only one thread run Python at a time, but inside a loop over an array, and
# inside BLAS, NumPy releases it. So each core gets half of the batch and a *replica* of the model, with the same
# parameters and gradients of its own. Each half's loss is weighted by its share of the targets; then the gradients
# add up:

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
# Part $i$ takes the share $s_i$ of the time, and becomes $k_i$ times as fast. The rest stays as slow as it was. How
# much faster is the whole? (The answer is called Amdahl's law, of 1967.)


# %% tags=["exercise"]
def speed_up(shares, times):
    """The speed-up of the whole when part i, `shares[i]` of its time, becomes `times[i]` times as fast.

    shares (n,), between 0 and 1, their sum at most 1; times (n,), positive, perhaps infinite. → a number.
    """
    raise NotImplementedError


# %%
speed_up = check(speed_up)

# %% [markdown] tags=["help"]
# A step takes one second. Half of it becomes twice as fast. How many seconds does the step take now? And which add up,
# seconds or speed-ups?
#
# ---
#
# The new time is the share of the rest, `1 - shares.sum()`, plus the sum of `shares / times`. The speed-up is the old
# time, 1, divided by the new one.

# %% [markdown]
# Now predict, from a profile of the package's operations on one core. BLAS's threads can at best halve the large
# products (the linear layers and the output layer), replicas everything except Adam, which comes after the sum:

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
# Four versions of the same step take turns, and each shows its quietest round. The losses agree.

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

draw_steps(best, products_ms, f"One step of training, {tokens:,} tokens, {CORES} cores")

fresh = [training_step(ops)() for ops in (naive_ops, numpy_ops)]
print(f"first losses: {fresh[0]:.6f} naive, {fresh[1]:.6f} the package's")
_, one_core, *threaded = (each["total"] for each in best.values())
for (name, times_faster), total in zip(expected.items(), threaded, strict=True):
    print(f"{name:<16} predicted at most {times_faster:.2f} times one core's speed, measured {one_core / total:.2f}")

# %% [markdown]
# BLAS's threads wait for each other at every product, and for a long time if another program has the core; replicas
# wait once a step. Which of the last two bars is shorter depends on the machine and on the batch. Between the last bar
# and the dotted line are the remaining passes, products too small for BLAS's best rate, and Python itself, where two
# threads wait for one lock.
#
# ## Against PyTorch
#
# Measured beforehand at three sizes of model (S, M and B), both on two cores, in turns, with the same losses:

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
# ## Which change helped? (optional)
#
# The bars show *that* a step became faster. A benchmark undid each change alone. Before it ran, the authors, who knew
# tables like the one about short rows, wrote down their expectations:

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
# Threads and relu pay, layer normalisation and Adam a little, the rest hardly at all. In the step, the tricks with rows
# act on half a batch that lies in a core's cache, and on a small part of the time: Amdahl's law again, and the reason
# to measure the *step*. Several of these tricks have since gone back to the formula:
# [`STEPS.md`](../tests/benchmarks/STEPS.md) says which stayed, and why.

# %% [markdown]
# ## Common mistakes, and what they look like
#
# * **A scalar that widens.** `np.sqrt(2)` is an `np.float64`, and since NumPy 2 it makes float64 of every float32 array
#   that it meets. Everything after it moves twice the bytes, without a warning.
# * **A new array under an old name.** `data = data - update` in a function changes nothing outside of it.
# * **`einsum` where `@` would do.** It is correct, and it may not call BLAS at all.
# * **The first run timed.** It pays for memory, caches and imports; later runs do not.
# * **Threads within threads.** Two Python threads with two BLAS threads each: four threads for two cores.
#
# ### The mistakes, measured (optional)

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
# A step of the paper's base model took 0.4 s on eight P100 GPUs (§5.2). Since version 1.20 NumPy chooses its loops by
# the vector units of the processor (NEP 38), `np.vecdot` came with 2.0, and there is a Python without the lock since
# 3.13 (PEP 703). The three numbers still have the same order, and on GPUs they lie further apart than here.
#
# ## Where next
#
# [Lesson 15](15_triton_rows.ipynb) writes kernels for a GPU, in which *you* decide which numbers are read, kept on the
# chip and written. [Lesson 17](17_speed_ups.ipynb) draws two of the three numbers as one picture, the roofline.
