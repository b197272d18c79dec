# %% [markdown]
# # 17 · Swapping the kernels in: the roofline, and what a speed-up may be
#
# **You will be able to** say how much a kernel can gain at most before you write it, and swap it into a model that then
# computes the same; and, if you like, read its machine code, and find a race that the interpreter hides.
#
# | | |
# |---|---|
# | you know | lessons [14](14_numpy_speed.ipynb), [15](15_triton_rows.ipynb) and [16](16_flash_attention.ipynb) |
# | runs in | at most 40 s on 2 cores, in Triton's interpreter; without PyTorch with recorded results; or on a GPU |
# | in the paper | §5.2: eight P100 GPUs |
# | in the package | [`kernels`](../kernels/__init__.py), their tables [`Ops`](../kernels/tables.py) |
#
# Two questions are left. Does a whole model on your kernels compute the same? And how much are they worth? The honest
# way to answer the second is to say first what the hardware allows, and then to measure on it. The **ledger**, below,
# keeps the checks and the times on a GPU; a part of it was measured on an H200. The rest of this lesson's numbers are
# *predictions*, labelled so, and measurements of this machine's processor. On a GPU, the same cells time the kernels
# there, in half precision (floats of 16 bits). To install PyTorch and Triton:
# `pip install -c constraints.txt torch==2.13.0 triton==3.7.1`, or the same with `uv pip`; on Windows in WSL
# ([which build](../.github/CONTRIBUTING.md#pytorch); [both shells' commands](15_triton_rows.ipynb)).

# %%
import math
import textwrap
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from course import recorded, start
from course.compiled import compiled, dissected
from course.gpu import DEVICE, MISSING, machine, require_kernels, tl, torch, triton  # before others import triton
from course.lesson_17.machine_code import abridged, draw_execution, lines_of
from course.lesson_17.pictures import draw_core, draw_kernels, draw_ladder
from course.lesson_17.roofline import GPUS, WORKS, Gpu, gpu_named
from course.measuring import blas_threads, race, this_machine
from course.tensors import numpy, tensor
from kernels import speedup
from kernels.proof.ledger import entries, ledgers, report
from minitransformer import Transformer, TransformerConfig, Translator, ops
from minitransformer.costs import flops_per_token
from minitransformer.data.batching import collate
from minitransformer.gradcheck import error
from minitransformer.textbook import textbook_ops

check = start("17")
print(machine())
print("the ledger:", *report(), sep="\n  ")

# %% [markdown]
# ## The roofline
#
# Lesson 14 predicted the time of an operation from three numbers. Without the call, two are left: a machine does $P$
# floating-point operations a second, and its memory moves $W$ bytes a second. Both happen at the same time.
#
# ### Exercise 1 ★☆☆: which of the two?


# %% tags=["exercise"]
def least_seconds(flops, moved, gpu):
    """The least time of `flops` operations and `moved` bytes, which overlap, and which of the two decides.

    gpu has `flops` (operations a second) and `bandwidth` (bytes a second). → the tuple (seconds, "memory" or
    "arithmetic").
    """
    raise NotImplementedError


# %%
least_seconds = check(least_seconds)

# %% [markdown] tags=["help"]
# You carry ten boxes and read a book on the way. When are you done: after one, after the other, after both in turn?
#
# ---
#
# `arithmetic, memory = flops / gpu.flops, moved / gpu.bandwidth` are two times in seconds. Return the larger one and
# its name.

# %% [markdown]
# An operation that computes $F$ floating-point operations and moves $M$ bytes therefore takes
#
# $$ \begin{aligned}
#    &t \ge \max\!\left(\frac{F}{P},\, \frac{M}{W}\right) \\
#    &\text{so it computes at most}\quad \frac{F}{t} \le \min\!\left(P,\; \frac{F}{M}\, W\right)
# \end{aligned} $$
#
# operations a second. Only its **intensity** $I = F/M$ counts, in operations a byte. Drawn over $I$, the bound is a
# roof: on its slope memory decides, on its flat part arithmetic. They meet at the **ridge**, $I = P/W$ (Williams,
# Waterman and Patterson 2009).
#
# These are NVIDIA's data sheets, for the formats used in training. (They are the dense rates. The newer sheets also
# print rates "with sparsity", twice as high.)

# %%
for gpu in GPUS:
    rates = f"{gpu.flops / 1e12:6.1f} TFLOP/s in {gpu.kind:<9}{gpu.bandwidth / 1e12:6.2f} TB/s"
    print(f"{gpu.name:<5} {gpu.year}  {rates}   ridge {gpu.ridge:5.0f} operations a byte")
old, new = GPUS[0], GPUS[-1]
print(f"since the paper's P100: arithmetic × {new.flops / old.flops:.0f}, memory × {new.bandwidth / old.bandwidth:.1f}")

# %% [markdown]
# That last line is why this part of the course exists. In the paper's year a dozen operations for each byte kept a GPU
# busy. Today it takes more than ten times as many, and the GPU waits for every pass over memory that could be saved.
#
# ## Is the roof real? A processor, measured
#
# A [roofline](glossary.md#roofline) describes any machine, so try it on one core of this processor. First count. Each
# addition, multiplication, maximum, exponential or root is one operation; for a linear layer and for attention only the
# products count, as is usual. The bytes are the least: each input is read once, each output written once, 4 bytes a
# number.

# %%
core = this_machine()
cpu = Gpu("one core", 0, "float32", core.flops, core.bandwidth)
rng = np.random.default_rng(0)


def randn(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


rows, width, n = 16_384, 512, 1024
x = randn(rows, width)
gamma, beta, weight, square = randn(width), randn(width), randn(width, width), randn(6144, 6144)
q, k, v = randn(3, 1, 4, n, 64)
elements, products = rows * width, 4 * 4 * n * n * 64
tasks = {  # name: (operations, bytes, what to run)
    "relu": (elements, 4 * 2 * elements, lambda: ops.relu_forward(x)),
    "softmax": (5 * elements, 4 * 2 * elements, lambda: ops.softmax_forward(x)),
    "layernorm": (7 * elements, 4 * 2 * elements, lambda: ops.layernorm_forward(x, gamma, beta)),
    "matrix · vector": (2 * square.size, 4 * square.size, lambda: square @ square[0]),
    "attention": (products, 4 * 4 * q.size, lambda: ops.attention_forward(q, k, v)),
    "linear": (2 * n * width**2, 4 * (2 * n * width + width**2), lambda: ops.linear_forward(x[:n], weight, beta)),
}
print(f"{'':<16}{'operations a byte':>18}   predicted: decided by, at least")
for name, (flops, moved, _) in tasks.items():
    seconds, limit = least_seconds(flops, moved, cpu)
    print(f"{name:<16}{flops / moved:>18.2f}   {limit:<12}{1e3 * seconds:6.1f} ms")

# %% [markdown]
# Now run them:

# %%
with blas_threads(1):
    measured = race({name: run for name, (_, _, run) in tasks.items()}, rounds=9, turn=0)
draw_core({name: (flops, moved, measured[name]) for name, (flops, moved, _) in tasks.items()}, cpu)

# %% [markdown]
# The roof holds, give or take the noise of its numbers, which were measured too. The tasks at the left were predicted
# to wait for memory. The more *passes* and new arrays their NumPy form makes, the further they lie below the roof, and
# a **fused** kernel, which does all in one pass, could win most of that distance. (Not all: an exponential counts as
# one operation, and takes a core the time of several.) Products stand closest to their roof, so a kernel can win little
# there. Attention in NumPy writes its scores and reads them again, so it does not reach the rate of its products.
#
# ### Exercise 2 ★★☆: flash attention's intensity (optional)
#
# Take one head's forward: query, key, value and output are $(T, D)$. There are two products, $QK^\top$ and the weights
# times $V$; count only these. *Fused*, the scores never leave the chip. *Unfused*, the first product writes them, a
# softmax reads them and writes the weights, and the second product reads those.


# %% tags=["exercise"]
def attention_work(T, D, fused):
    """Operations of the two products of one head, and the least bytes that it moves, with 2 bytes a number.

    T tokens, D the width of the head; `fused` says whether the T × T scores and weights stay on the chip.
    → the tuple (operations, bytes).
    """
    raise NotImplementedError


# %%
attention_work = check(attention_work)

# %% [markdown] tags=["help"]
# A product of (a, b) and (b, c) has a · c sums of b terms: how many operations is that? And how often does each T × T
# array pass through memory if it is not kept on the chip?
#
# ---
#
# The two products are 2 · (2 T² D) operations. Four arrays of (T, D) always move. Unfused, the scores are written and
# read, and so are the weights: four times T² numbers more.

# %%
print(f"{'T':>7}{'fused':>10}{'unfused':>10}   operations for each byte, D = 64")
for T in (32, 512, 4096, 16_384):
    fused, unfused = (flops / moved for flops, moved in (attention_work(T, 64, True), attention_work(T, 64, False)))
    print(f"{T:>7,}{fused:>10.0f}{unfused:>10.1f}")

# %% [markdown]
# Fused, the intensity is $T/2$, whatever $D$ is: it grows with the sentence. Unfused, it stays below $D/2$ however long
# the sentence is, far below the ridge of every GPU in the table but the first. This is the whole case for flash
# attention, and a weak one for sentences of some 30 tokens, as in translation.
#
# ## Every kernel's dot
#
# The same counts for the kernels, in half precision, at the sizes of the [script](../tests/benchmarks/gpu/rows.py) that
# times them. Hollow marks are predictions, for a kernel that does only the counted work. Full marks are measurements,
# from the ledger or from the GPU that runs this notebook.


# %%
def timed():
    """A GPU, seconds of WORKS on it by their number, and whence: this machine, the ledger, or nowhere."""
    if DEVICE == "cuda" and not MISSING:
        from course.lesson_17.live import measured_here, this_gpu

        return this_gpu(), measured_here(WORKS), "hollow: predicted, full: measured here"
    for name, ledger in ledgers().items():
        found = entries(ledger, "rows") + entries(ledger, "attention")
        seconds = {i: s for i, work in enumerate(WORKS) if (s := work.measured(found)) is not None}
        if seconds and (gpu := gpu_named(name)):
            return gpu, seconds, f"hollow: predicted, full: measured, in the ledger of {name}"
    return GPUS[-1], {}, "hollow: predicted. No kernel has been timed on a GPU yet"


shown, seconds_here, source = timed()

# %% tags=["picture"]
draw_kernels(shown, seconds_here, source)

# %% [markdown]
# All but attention and the fused loss lie on the slope: no kernel for relu takes less time than a copy of its array.
# But a kernel *can* move a dot along the roof, with fewer passes for the same arithmetic. The crosses are softmax in
# PyTorch's single operations, as [its file](../kernels/softmax.py) counts them, and attention that writes its scores.
# As a table:

# %%
print(f"{shown.name:<27}{'':<20}{'intensity':>10}   {'decided by':<11}{'at least':>10}{'measured':>10}")
for number, work in enumerate(WORKS):
    seconds, limit = least_seconds(work.flops, work.moved, shown)
    found = f"{1e3 * seconds_here[number]:.3f} ms" if number in seconds_here else "–"
    print(f"{work.name:<27}{work.what:<20}{work.intensity:>10.2f}   {limit:<11}{1e3 * seconds:>7.3f} ms{found:>10}")

# %% [markdown]
# ## How many tokens keep a GPU busy? (optional)
#
# The linear layers run on NVIDIA's library, cuBLAS, but the roofline limits them too. A layer $(C_{in} \to C_{out})$
# reads its weights once, for however many tokens. With one token, as in decoding (lesson 11), there are two operations
# for each weight of two bytes: an intensity of 1, which is hopeless. So a GPU needs many tokens at a time. How many?
#
# ### Exercise 3 ★★☆: how many tokens keep a GPU busy


# %% tags=["exercise"]
def enough_tokens(C_in, C_out, gpu):
    """The least number of tokens for which a linear layer, x (N, C_in) @ weight (C_in, C_out), is not bound by memory.

    In half precision: x, weight and what comes out move once, 2 bytes a number. → a whole number, as an int or a float;
    math.inf where no number is enough.
    """
    raise NotImplementedError


# %%
enough_tokens = check(enough_tokens)

# %% [markdown] tags=["help"]
# Each further token adds time for its operations, and time for its own bytes. Which of the two must be longer, so that
# enough tokens make up for reading the weights?
#
# ---
#
# N tokens take 2 N C_in C_out operations, and N (C_in + C_out) + C_in C_out numbers of 2 bytes. Set the time of the
# first equal to the time of the second and solve for N. Where a token's bytes take longer than its operations, no N
# will do.

# %%
layers = {
    "a small model": (128, 512),
    "base": (512, 2048),
    "big": (1024, 4096),
    "a width of today": (8192, 28_672),
}
gpus = GPUS[1:]  # those with tensor cores, in half precision
print(f"{'':<24}" + "".join(f"{gpu.name:>9}" for gpu in gpus))
for name, (C_in, C_out) in layers.items():
    counts = [enough_tokens(C_in, C_out, gpu) for gpu in gpus]
    text = "".join(f"{'never' if count == math.inf else f'{count:,.0f}':>9}" for count in counts)
    print(f"{name:<24}{text}   ({C_in:,} → {C_out:,})")

# %% [markdown]
# Layers as narrow as those of this course's models never keep a modern GPU's arithmetic busy, whatever the batch, as
# long as their inputs and outputs pass through memory. The layers of the base model need batches. And decoding, token
# by token, is bound by memory on all of these GPUs.
#
# ## Do they compute the same? The swap
#
# A model reaches its arithmetic through a table, [`Ops`](../minitransformer/ops/__init__.py), so one line swaps a
# kernel in: `replace(table, softmax=other.softmax)`. A swap takes the pair of forward and backward, because the
# backward reads the cache of its own forward.
#
# Take lesson 10's small trained translator and two sentences. The truth is NumPy's loss and gradient in float64, and
# the error of NumPy's own float32 is the scale for the others:

# %%
translator = Translator.from_checkpoint(Path("weights/en-de.safetensors"))
config, weights = translator.model.config, translator.model.parameters.state_dict()
english = ["The old teacher reads a book.", "The dog sleeps."]
german = ["Der alte Lehrer liest ein Buch.", "Der Hund schläft."]
encode = translator.tokenizer.encode
batch = collate([encode(text) for text in english], [encode(text) for text in german])


def loss_and_gradient(table, dtype="float32"):
    """The translator on a table of operations: its loss on the two sentences, and the gradient of all parameters."""
    model = Transformer(config, table, dtype)
    model.parameters.load_state_dict(weights)
    model.parameters.zero_grad()
    loss, cache = model.loss(batch.source, batch.target_in, batch.target_out, label_smoothing=0.1)
    model.loss_backward(1.0, cache)
    return float(loss), model.ops.to_numpy(model.parameters.grad)


true_loss, true_gradient = loss_and_gradient(ops.numpy_ops, "float64")
scale = np.abs(true_gradient).max()


def line(name, loss, off):
    print(f"{name:<26} loss {loss:.6f}   gradient off by {off:.0e} of its largest element")


def off_by(gradient):
    return float(np.abs(gradient - true_gradient).max() / scale)


loss, gradient = loss_and_gradient(ops.numpy_ops)
line("NumPy, float64", true_loss, 0.0)
line("NumPy, float32", loss, off_by(gradient))

# %% [markdown]
# ### A mistake that a swap found (optional)
#
# A swap within NumPy: the loss as its formula stands, with all logits at once, is no more exact than the package's,
# which takes a block at a time.

# %%
printed_loss = replace(ops.numpy_ops, linear_cross_entropy=textbook_ops.linear_cross_entropy)  # the formula as printed
loss_as_printed, gradient_as_printed = loss_and_gradient(printed_loss)
line("the same, loss as printed", loss_as_printed, off_by(gradient_as_printed))

# %% [markdown]
# That was not always so. For short rows, a product with ones is faster than `sum` (an optional part of lesson 14
# measures it), and the package once added up the exponentials of this loss this way. Where a model is sure, one of them
# is 1 and thousands are tiny:

# %%
rows = np.full((64, 2000), 5e-5, np.float32)
rows[:, 0] = 1
true_sum = rows[0].sum(dtype=np.float64)
for name, sums in (("a product with ones", rows @ np.ones(2000, np.float32)), ("sum", rows.sum(axis=-1))):
    print(f"{name:<20} off by {np.abs(sums / true_sum - 1).max():.0e}")

# %% [markdown]
# A product adds the terms one by one to a few running sums, and each term loses its last digits to the 1. `sum` adds
# them in pairs, and pairs of pairs. A trained model's gradient is a small difference between probabilities and targets,
# and such an error can spoil it. A swap found it.
#
# ### One kernel at a time
#
# Now PyTorch's arithmetic, then each kernel alone in its place, so that a wrong one cannot hide behind another:


# %%
def swapped():
    """For each swap: its name, the loss, and the gradient's largest error beside its largest element."""
    require_kernels()
    import kernels

    triton = kernels.triton_ops(DEVICE)
    swaps = {
        "PyTorch's operations": {},
        "softmax": {"attention": kernels.attention_from(triton.softmax)},
        "flash attention": {"attention": triton.attention},
        "add_layernorm": {"add_layernorm": triton.add_layernorm},
        "linear_cross_entropy": {"linear_cross_entropy": triton.linear_cross_entropy},
        "embedding": {"embedding": triton.embedding},
        "relu": {"relu": triton.relu},
    }
    found = []
    for name, ours in swaps.items():
        loss, gradient = loss_and_gradient(replace(kernels.torch_ops(DEVICE), **ours))
        found.append([name, loss, off_by(gradient)])
    return found


for row in recorded("17_swap", swapped):
    line(*row)

# %% [markdown]
# All losses agree to the last digit shown, or nearly: sums in another order round differently. The gradients are as
# near as NumPy's own in float32. (The translator has no dropout; [`test_swap.py`](../tests/kernels/test_swap.py) swaps
# that kernel too.)
#
# ### Adam (optional)
#
# Adam updates a flat array, so a slice will do:


# %%
def one_update():
    """The largest difference between a step of Adam by the kernel and by NumPy, on the first parameters."""
    require_kernels()
    import kernels

    table = kernels.torch_ops(DEVICE)
    host = [translator.model.parameters.data[:5000].copy(), gradient[:5000].copy(), *np.zeros((2, 5000), np.float32)]
    device = [table.asarray(array.copy()) for array in host]
    ops.adam_step(*host, step=1, lr=1e-3)
    kernels.adam_step(*device, step=1, lr=1e-3)
    return error(table.to_numpy(device[0]), host[0])


print(f"Adam, after a step: {recorded('17_adam', one_update):.0e}")

# %% [markdown]
# ## The swap ladder
#
# How much is each swap worth in a whole training step of the paper's base model, on its batch of 25,000 tokens a side?
# Count every launch of PyTorch's operations (on its device "meta", tensors have shapes and no numbers, so that a step
# of any size is counted quickly). Each launch gets its own roofline, $\max(F/P, M/W)$, and they add up. A formula for
# the products ([`costs`](../minitransformer/costs.py)) checks the count.


# %%
def counted():
    """(operations, bytes, number) of the launches, for each rung and each part of a step."""
    from course.lesson_17.traffic import base_step

    return base_step()


rungs = recorded("17_ladder", counted)
least_ms = {
    rung: {
        part: 1e3 * sum(number * least_seconds(flops, moved, shown)[0] for flops, moved, number in launches)
        for part, launches in parts.items()
    }
    for rung, parts in rungs.items()
}
draw_ladder(least_ms, shown)

first, *_, last = least_ms
for rung in (first, last):
    number = sum(number for launches in rungs[rung].values() for _, _, number in launches)
    print(f"{rung:<28} {sum(least_ms[rung].values()):5.1f} ms at the least, in {number:,.0f} launches")
tokens = 2 * 784 * 32
formula = tokens * flops_per_token(TransformerConfig.base(), 32).training
in_products = sum(flops * number for launches in rungs[first].values() for flops, _, number in launches)
print(f"operations of the products, counted ÷ by the formula: {in_products / formula:.3f}")

# %% [markdown]
# The bars are lower bounds of each *form*, so a difference of two of them is only a prediction:
#
# * The large steps are Add & Norm and the loss: many passes over large arrays become few.
# * Flash attention hardly shows: with 32 tokens a head's scores (T × T) are smaller than its queries (T × D). For long
#   sentences the same kernel is the one that matters.
# * In the end mostly products are left, cuBLAS's, which no kernel of ours makes faster.
#
# The first rung is our table of PyTorch's *single* operations; with PyTorch's fused functions (layer norm, attention)
# and its compiler one starts further down. The bars leave out three things: the copies between layers; the launches,
# each of which costs the host, the processor that launches the kernels, some microseconds (CUDA graphs launch many
# kernels at once: [`graph`](../kernels/graph.py)); and dropout, whose random numbers take our PyTorch table dozens of
# passes, which would flatter the kernels.
#
# ### On your own GPU
#
# [`kernels.speedup`](../kernels/speedup.py) climbs the ladder, dropout included. It checks each kernel against float64
# first, and a rung whose loss differs from the first one's gets no time. On a GPU the next cell does so, in two
# minutes, and draws `speedup.png`. Without one it shows the run on an H200 (the kernels have changed since, says the
# ledger at the top). The last two columns say how many times as long the rung before, and the first one, took.
#
# Colab lends a T4: clone this repository there, and in its folder run a cell with two lines,
# `%pip install '.[kernels]'` and `!python -m kernels.speedup`. It takes a smaller batch, and float16 instead of
# bfloat16. Triton uses no tensor cores on a T4, which slows flash attention alone, because only it computes its own
# products.

# %%
if DEVICE == "cuda" and not MISSING:
    speedup.main([])
else:
    print(*speedup.recorded(), sep="\n")

# %% [markdown]
# On the H200 the two large steps are those that were predicted. But every rung takes far longer than its bar, and the
# last two swaps (Adam; embedding, dropout and relu) gain nothing: by then the GPU waits for the host. With all launches
# in one CUDA graph the same kernels take three fifths of the time.
#
# ## From blocks to machine code (optional)
#
# You write kernels in blocks, but a GPU has **threads**, of which 32, here called the *lanes* of a
# [wave](glossary.md#wave), execute one instruction together. (NVIDIA says *warp*.) By default a program is launched as
# four waves, which run independently. The compiler translates your blocks to these waves.
#
# To look at its code, you need no GPU. Here it compiles for an AMD gfx1100, whose instructions are documented, and
# [`kernels.machine`](../kernels/machine/__init__.py) executes them in NumPy, one by one, in a process of its own. Take
# the softmax of lesson 15 in its shortest form, for rows of exactly 128 numbers:


# %%
@triton.jit
def softmax_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + i, e / tl.sum(e, axis=0))


def softmax_of_128(x):
    y = torch.empty_like(x)
    softmax_kernel[(len(x),)](x, y, BLOCK=128)
    return y


scores = rng.standard_normal((3, 128))


def softmax_twice():
    """The largest error in the interpreter and as machine code, and how many waves a program has."""
    truth, found = ops.softmax_forward(scores)[0], compiled(softmax_of_128, scores)
    here = numpy(softmax_of_128(tensor(scores)))
    return error(here, truth), error(np.array(found["returned"]), truth), found["launches"][0]["waves"]


here, there, num_waves = recorded("17_softmax", softmax_twice)
print(f"off by {here:.0e} here, by {there:.0e} as machine code; {num_waves} waves of 32 lanes: a number for each")

# %% [markdown]
# Its machine code, under the line of Python that it comes from. Of several instructions of one kind in a row the first
# is shown:

# %%
found = recorded("17_machine-code", lambda: dissected(softmax_of_128, np.zeros((1, 128))))
for python, instructions in lines_of(found["code"]):
    print(python)
    print(*abridged(instructions, first=21 if "tl.max" in python else 4), sep="\n")
print("in all", dict(Counter(kind for kind, *_ in found["code"])))
log2_e = np.uint32(0x3FB8AA3B).view(np.float32)
print(f"0x3fb8aa3b is {log2_e:.6f}, log₂ e is {math.log2(math.e):.6f}. Where it stands, or v_exp:")
print(*(f"    {text}" for _, text, *_ in found["code"] if "0x3fb8aa3b" in text or "v_exp" in text), sep="\n")

# %% [markdown]
# Four things to see:
#
# * **A load does not wait.** `buffer_load` asks memory for a number and goes on. `s_waitcnt` stands where the number is
#   needed, and the compiler puts other work between the two.
# * **Within a wave, lanes read each other's registers.** `v_mov_b32_dpp … row_shr:8` reads the register of the lane 8
#   places before. After steps of 8, 4, 2 and 1, and one more across the middle (`permlanex16`), the last lane has the
#   maximum of all 32, without memory.
# * **Waves exchange numbers through memory.** Each wave stores its maximum in shared memory (`ds_store`), and loads
#   those of the others (`ds_load`). Between the two the compiler puts a [barrier](glossary.md#barrier), `s_barrier`: a
#   wave waits there until all waves of its program have come.
# * **An exponential begins with a product.** `v_exp_f32` computes $2^x$, so x is multiplied by $\log_2 e$ before. And a
#   division is a whole series of instructions, the last ones before the store.
#
# The executor also records which wave executed which instruction, and when. In the picture, a random draw decides at
# each turn which waves go on. Below, all numbers of the row are equal, so each exponential is 1, and a lane's register
# says how many of them it has added up:

# %%
draw_execution(found)

# %% [markdown]
# Above: between barriers any wave may be ahead, and no wave passes a barrier before the last one has come. Below: five
# additions for the 32 lanes of a wave, then two more for the sums of the four waves. Only the last lane of each half
# holds a result that is used; the others compute too.
#
# ### A race that the interpreter cannot see
#
# In a block you cannot write `x[i - 1]`: Triton gives no access to a single lane. A thread gets another one's result
# through memory: store, and load at another place. Here each exponential is compared with its left neighbour:


# %%
@triton.jit
def steps_kernel(x_ptr, e_ptr, y_ptr, BARRIER: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    e = tl.exp(tl.load(x_ptr + i))
    tl.store(e_ptr + i, e)
    if BARRIER:
        tl.debug_barrier()
    left = tl.load(e_ptr + i - 1, i > 0, other=0.0)  # the number that the thread before has stored
    tl.store(y_ptr + i, e - left)


def steps(x, barrier=False):
    """e^(x_i) − e^(x_(i − 1)), of 128 numbers."""
    e, y = torch.empty_like(x), torch.empty_like(x)
    steps_kernel[(1,)](x, e, y, BARRIER=barrier, BLOCK=128)
    return y


def steps_with_a_barrier(x):
    return steps(x, barrier=True)


def wrong_in_the_interpreter():
    """In how many of 100 runs the result is wrong."""
    rows = rng.standard_normal((100, 128))
    return sum(error(numpy(steps(tensor(x))), np.diff(np.exp(x), prepend=0.0)) > 1e-5 for x in rows)


if DEVICE == "cpu":
    print("wrong in", recorded("17_interpreted", wrong_in_the_interpreter), "of 100 runs in the interpreter")

# %% [markdown]
# The interpreter has no threads. It stores the whole block, then it loads the whole block. As machine code:

# %%
numbers = rng.standard_normal(128)
for name, function in (("without", steps), ("with", steps_with_a_barrier)):
    ran = recorded(f"17_{name}-barrier", lambda function=function: compiled(function, numbers))
    print(textwrap.fill(f"{name} a barrier: {ran['fault'] or 'no fault'}", 110, subsequent_indent="    "))
    if ran["fault"]:
        number = int(ran["fault"].split("byte ")[1].split()[0]) // 4
        print(f"    (that is number {number}, which wave {number // 32} stores)")
    else:
        print(f"    off by {error(np.array(ran['returned']), np.diff(np.exp(numbers), prepend=0.0)):.0e}")

# %% [markdown]
# Wave 1 needs the last number of wave 0, and nothing makes sure that wave 0 has stored it. This is a
# [race](glossary.md#race): the result depends on the order of the waves. On a GPU it may come out right a thousand
# times, and wrong on another GPU, or while other programs run. `tl.debug_barrier()` mends it. (In the interpreter it
# does nothing.)
#
# The executor finds a race without a wrong result: it notes for every byte which wave touched it since the last
# barrier. It also finds programs that write to one place, for which there is no barrier, and accesses beside the
# arrays.
#
# ### Exercise 4 ★★☆: running sums, and who waits for whom
#
# The running sums of a row are $y_i = x_0 + \dots + x_i$. Threads find them together, in rounds: to each number add the
# one at distance 1 before it, to each of these sums the one at distance 2, then at distance 4, and so on, for all
# distances below $n$. In every round the threads exchange their sums through y. (Do without `tl.cumsum`, which does the
# same in registers and shared memory.) A loop whose distance doubles is `while distance < n:`.


# %% tags=["exercise"]
@triton.jit
def running_sums_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """A row of y, y_i = x_0 + … + x_i, of n ≤ BLOCK numbers; rows lie one behind the other."""
    raise NotImplementedError


def running_sums(x):
    """The running sums of each row of x (N, n), float32, rows one behind the other → (N, n).

    The same whichever wave comes first: as machine code without a race.
    """
    num_rows, n = x.shape
    y = torch.empty_like(x)
    running_sums_kernel[(num_rows,)](x, y, n, BLOCK=triton.next_power_of_2(n))
    return y


# %%
running_sums = check(running_sums)

# %% [markdown] tags=["help"]
# In a round each thread stores its sum, then loads another one's. What must have happened before any thread loads? And
# before any thread stores its sum of the next round over the old one?
#
# ---
#
# Keep a thread's own sum in a register, `total`. A round is: store `total`, a barrier, add the number `distance` before
# (where `i >= distance`, else 0), a barrier, double the distance. After the last round, store once more.

# %% [markdown]
# In every order of waves that the executor has:


# %%
def in_every_order():
    """The largest error of the running sums, how many different results there were, and the executor's orders."""
    from kernels.machine import ORDERS

    x = rng.standard_normal((3, 200))
    results = [np.array(compiled(running_sums, x, order=order)["returned"]) for order in ORDERS]
    different = len({result.tobytes() for result in results})
    return error(results[0], np.cumsum(x, axis=1)), different, list(ORDERS)


off, different, orders = recorded("17_running-sums", in_every_order)
print(f"waves go {', '.join(orders)}: {different} result, off by {off:.0e}")

# %% [markdown]
# ## Common mistakes, and what they look like
#
# * **Half a swap.** The forward is from one table, the backward from another, which expects another cache.
# * **A speed-up of another computation.** A layer norm that divides by C − 1 instead of C looks right: compare losses
#   to six digits, or better, gradients.
# * **Stopping the clock too soon.** A GPU's launch returns before the work is done. Without a wait for it
#   (`torch.cuda.synchronize()`, or `triton.testing.do_bench`), you measure only the launch.
# * **The wrong peak.** Against the data sheet's rate "with sparsity" every kernel looks half as good as it is.
#
# ### The mistakes, run (optional)
#
# The third with a thread in place of a GPU:

# %%
half = ops.Pair(textbook_ops.linear.forward, ops.numpy_ops.linear.backward)
try:
    loss_and_gradient(replace(ops.numpy_ops, linear=half))
except ValueError as problem:
    print(f"half a swap: {type(problem).__name__}: {problem}")


def nearly_layernorm(x, sublayer_out, gamma, beta, eps=1e-5, dropout=None):
    y, cache = ops.add_layernorm_forward(x, sublayer_out, gamma, beta, eps)
    shrunk = np.float32(math.sqrt(1 - 1 / x.shape[-1]))  # √((C − 1)/C): what ddof=1 does
    return (y - beta) * shrunk + beta, cache


nearly = ops.Pair(nearly_layernorm, ops.numpy_ops.add_layernorm.backward)
loss, gradient = loss_and_gradient(replace(ops.numpy_ops, add_layernorm=nearly))
print(
    f"ddof=1: loss {loss:.6f} instead of {true_loss:.6f}, gradient off by {off_by(gradient):.0e} of its largest element"
)


def work():
    return square[:256] @ square


with ThreadPoolExecutor(1) as pool:
    begin = time.perf_counter()
    future = pool.submit(work)
    launched = time.perf_counter() - begin
    future.result()
    done = time.perf_counter() - begin
print(f"launched after {1e3 * launched:.2f} ms, done after {1e3 * done:.0f} ms")
reached = 0.8 * GPUS[-1].flops
print(
    f"{reached / GPUS[-1].flops:.0%} of the dense peak is {reached / (2 * GPUS[-1].flops):.0%} of the one with sparsity"
)

# %% [markdown]
# ## What changed since 2017
#
# Tensor cores came with the V100 in 2017, and since then the roof's flat part has risen far faster than its slope, as
# the table of data sheets shows. FlashAttention (Dao et al. 2022) began from that observation, and compilers fuse by
# themselves today (`torch.compile`, which writes Triton). Rooflines have gained slopes for the caches, and a flat part
# for each type of number.
#
# ## Where next
#
# [Lesson 18](18_your_transformer.ipynb) makes one file of the parts that you wrote. [The report](paper/paper.md) has
# the paper's tables and figures beside ours. The [command line's page](../minitransformer/cli/README.md#real-text)
# says how to train the model on real text.
