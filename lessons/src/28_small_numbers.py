# %% [markdown]
# # 28 · Small numbers: weights in four bits, and tokens by the handful
#
# **You will be able to** store a weight in four bits and compute with it, and say how wrong it is at most and what that
# costs a translator. In optional parts: train beside such weights; and let a small model write drafts, of which a large
# one keeps many without changing one probability.
#
# | | |
# |---|---|
# | you know | [decoding](11_decoding.ipynb), [why bytes cost time](14_numpy_speed.ipynb), [sampling](19_gpt.ipynb) |
# | runs in | 60 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §7: "Making generation less sequential is another research goals of ours" |
# | in the package | [`ops/quantized.py`](../minitransformer/ops/quantized.py), `pretrained/gguf.py` |
#
# A model with 8 billion weights answers you. For every token that it writes, it reads all its weights once. A large GPU
# computes nearly a thousand billion operations in a millisecond. Yet it can write only some two hundred such tokens a
# second, and most of that time it does not compute at all. It waits for bytes. *How do we make it wait less?*

# %%
import itertools

import numpy as np

from course import start
from course.lesson_17.roofline import GPUS
from course.lesson_28 import pictures
from course.lesson_28.packed import Packed
from course.lesson_28.questions import reader
from course.lesson_28.translator import Rounded, after
from course.measuring import blas_threads, race
from minitransformer import ops
from minitransformer.gradcheck import check_gradients
from minitransformer.ops import quantized
from minitransformer.pretrained import gguf

check = start("28")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)

# %% [markdown]
# ## Each weight is read once a token
#
# Decoding computes one token after the other. So a linear map gets one row $x$, and each weight does one
# multiplication and one addition: two operations for each weight that is read. In float16, of two bytes, that is one
# operation a byte. Lesson [17](17_speed_ups.ipynb) calls this the *intensity*, and compares it with the GPU's own. Here
# are an H100 by its data sheet, and a laptop whose memory, we assume, gives 100 GB a second:

# %%
WEIGHTS = 8e9
h100 = next(gpu for gpu in GPUS if gpu.name == "H100")
print(f"an {h100.name} has time for {h100.ridge:.0f} operations for each byte that it reads; decoding in float16 has 1")
print("bits a weight   gigabytes   tokens a second at most: H100   laptop   busy computing, H100")
for bits in (32, 16, 8.5, 5, 4.5):
    size = WEIGHTS * bits / 8  # bytes
    most = h100.bandwidth / size
    print(f"{bits:13}{size / 1e9:12.1f}{most:32.0f}{100e9 / size:9.1f}{2 * WEIGHTS * most / h100.flops:22.2%}")

# %% [markdown]
# The number of operations is the same in every row. Only the bytes change, and the speed with them. Try it with NumPy:
# a matrix times one vector, in float64 and in float32, which has half the bytes.

# %%
many = {dtype: rng.random((2048, 6144)).astype(dtype) for dtype in ("f8", "f4")}
one = {dtype: np.ones(6144, dtype) for dtype in many}
seconds = race({dtype: lambda dtype=dtype: many[dtype] @ one[dtype] for dtype in many}, rounds=40)
for dtype, each in many.items():
    rate = each.nbytes / seconds[dtype]
    print(f"{each.nbytes / 1e6:5.1f} MB: {1e3 * seconds[dtype]:.1f} ms, {rate / 1e9:.1f} GB a second")
del many

# %% [markdown]
# Half the bytes take about half the time, or even less where they fit into a cache (lesson
# [14](14_numpy_speed.ipynb)).
#
# There are two ways out, and this lesson takes both:
#
# * **Fewer bytes for a weight.** Store it in 8 or 4 bits instead of 32.
# * **More tokens for a read.** If one pass over the weights could serve several tokens, each would cost less. With many
#   users at a time that is easy. For one user each token needs the one before it, and yet there is a way: the second
#   half of the lesson.
#
# ## Sixteen levels
#
# Four bits tell 16 numbers apart: $q = 0, 1, \dots, 15$. So each weight becomes one of 16 *levels*, at equal distances
# $d$ above a lowest level $m$:
#
# $$ w \approx d\,q + m $$
#
# $d$ is called the *scale*. Rounding weights to levels is called [*quantisation*](glossary.md#quantisation). Which $d$
# and $m$? The lowest level is the smallest weight and the highest one the largest. Sixteen levels have fifteen steps
# between them:
#
# $$ m = \min w, \qquad d = \frac{\max w - \min w}{15} $$
#
# But the minimum of which weights? If all weights of a matrix share $d$ and $m$, one large weight sets the distance of
# the levels for all others. So the weights that make one output are cut into *groups* of 32 neighbours, and each group
# has a $d$ and an $m$ of its own. They are stored in float16, 2 bytes each, and they count: $4 + (16 + 16)/32 = 5$ bits
# a weight.
#
# Here is a matrix of our translator (lesson [10](10_translator.ipynb)) in one scale, and in groups. In loops first:


# %%
def rounded_in_loops(weight, group):
    """weight (C_in, C_out) → what it is after rounding to sixteen levels in each group along C_in."""
    new = np.empty_like(weight)
    for output in range(weight.shape[1]):
        for first in range(0, weight.shape[0], group):
            part = weight[first : first + group, output]
            m, d = part.min(), (part.max() - part.min()) / 15
            for i, w in enumerate(part):
                new[first + i, output] = d * round((w - m) / d) + m
    return new


mine = Rounded("weights/en-de.safetensors", count=60)
NAME = "encoder.layers.1.self_attention.query_key_value.weight"
matrix = mine.matrices[NAME]  # (96, 288)
in_groups, size = rounded_in_loops(matrix, 32), np.linalg.norm(matrix)
d, m = (matrix.max() - matrix.min()) / 15, matrix.min()
used = np.rint((matrix - m) / d).astype(int)
in_one = d * used + m
often = np.sort(np.bincount(used.ravel(), minlength=16))[::-1].cumsum() / used.size
print(f"{matrix.shape} weights; the largest is {abs(matrix).max() / matrix.std():.1f} times their standard deviation")
print(f"with one scale, {(often < 0.95).sum() + 1} of the 16 levels hold 95 % of the weights")
for name, new in (("one scale for all", in_one), ("groups of 32", in_groups)):
    print(f"{name:<18} error {np.linalg.norm(new - matrix) / size:.1%} of the matrix")

# %% [markdown]
# ## The picture: the levels among the weights
#
# The output whose weight is the largest of all:

# %% tags=["picture"]
output = np.unravel_index(abs(matrix).argmax(), matrix.shape)[1]
weights = matrix[:, output].reshape(3, 32)
low, high = weights.min(axis=1, keepdims=True), weights.max(axis=1, keepdims=True)
pictures.draw_levels(weights, m + d * np.arange(16), low + (high - low) / 15 * np.arange(16))

# %% [markdown]
# Above, the grid was made for the whole matrix. Below, each group has a grid of its own, as wide as it must be. The
# large weight (an *outlier*) makes the levels coarse only in its own group.
#
# ### Exercise 1 ★★☆: sixteen levels for each group
#
# Write it without loops. The result is what is stored: the numbers $q$, and $d$ and $m$ of each group.


# %% tags=["exercise"]
def quantize(weight, group):
    """A weight in sixteen levels, in groups of inputs: weight ≈ scale · q + minimum.

    weight (C_in, C_out), float32; group divides C_in: the weights that share a scale, neighbours along C_in.
    → numbers q (C_out, C_in/group, group), uint8, 0 to 15, each that of the nearest level;
      scales (C_out, C_in/group), float16: (max − min) / 15 of each group;
      minima (C_out, C_in/group), float16: the smallest weight of each group.
    Where a scale is 0 (all weights of a group alike, or nearly) its numbers are 0, and nothing is divided by 0.
    """
    raise NotImplementedError


# %%
quantize = check(quantize)

# %% [markdown] tags=["help"]
# Which axis of `weight` has the inputs of one output? Bring the outputs to the front first, then cut the inputs into
# groups: an axis more. What are the minimum and the maximum along the last axis? And what must not be divided by 0?
#
# ---
#
# `groups = weight.T.reshape(C_out, C_in // group, group)`. The nearest level is `np.floor(t + 0.5)` for
# `t = (groups - low[..., None]) / steps[..., None]`, cut off to 0 … 15 with `np.clip`: `astype(np.uint8)` takes a 16
# without complaint, and four bits cannot hold it. Replace steps by 1 where the scale is 0 in float16.

# %%
numbers, scales, minima = quantize(matrix, 32)
values = scales[..., None].astype(np.float32) * numbers + minima[..., None]  # (288, 3, 32)
back = values.reshape(288, 96).T
print(f"the loops' and yours differ by {abs(back - in_groups).max():.1e} at most: d and m are rounded to float16 now")

# %% [markdown]
# ## How wrong is a weight at most?
#
# **Half a step.** Let $t = (w - m)/d$. The smallest weight has $t = 0$, the largest $t = 15$, all others lie between.
# The nearest whole number $q$ is at most $\tfrac12$ away from $t$, and it is one of $0, \dots, 15$. So
#
# $$ |w - (d\,q + m)| = d\,|t - q| \le \frac d2 $$
#
# Then $d$ and $m$ are rounded to float16. A float16 has 11 binary digits, so rounding changes a number by at most
# $2^{-11}$ of its size. (Below 0.00006 it has fewer digits.) That adds at most $2^{-11}(15\,d + |m|)$ to the error.
#
# Other types of levels do without $m$. They lie *symmetrically* about 0, so only $d$ is stored:
#
# * **Eight bits**, $q = -127, \dots, 127$ and $d = \max|w|/127$. Again $|w/d| \le 127$ lies between the outer levels,
#   so the error is at most $d/2$.
# * **Four bits**, $q = 0, \dots, 15$ for $d\,(q - 8)$. There is one level more on one side: $-8d, \dots, 7d$. So that
#   no weight lies outside by much, the *farthest* weight $f$ gets the outer level: $d = f / (-8)$. (If $f$ is positive,
#   $d$ is negative.) But a weight on the *other* side may be as large as $8|d|$, and the last level there is $7|d|$. So
#   this type has an exception: **a whole step.**
#
# The files of llama.cpp (format *GGUF*) call these three types Q8_0, Q4_0 and Q4_1; the last is yours. All have groups
# of 32. Are the bounds right, and are they reached? On all matrices of the translator:


# %%
def q8_0(groups):
    """groups (n, 32) → numbers, scales (n, 1), and what the numbers stand for."""
    d = abs(groups).max(axis=1, keepdims=True) / 127
    q = np.rint(groups / d)
    return q, d, d * q


def q4_0(groups):
    farthest = np.take_along_axis(groups, abs(groups).argmax(axis=1)[:, None], axis=1)
    d = farthest / -8
    q = np.clip(np.floor(groups / d + 8.5), 0, 15)
    return q, d, d * (q - 8)


def q4_1(groups):
    low = groups.min(axis=1, keepdims=True)
    d = (groups.max(axis=1, keepdims=True) - low) / 15
    q = np.rint((groups - low) / d)
    return q, d, d * q + low


groups = np.concatenate([each.T.reshape(-1, 32) for each in mine.matrices.values()]).astype(np.float64)
print(f"{len(groups):,} groups           largest error in steps   error, of the weights' size")
for kind in (q8_0, q4_0, q4_1):
    _, steps, values = kind(groups)
    off = abs(values - groups)
    print(f"{kind.__name__:<25}{(off / abs(steps)).max():18.3f}{np.linalg.norm(off) / np.linalg.norm(groups):26.2%}")

# %% [markdown]
# Other libraries write $d\,(q - z)$ with a whole number $z$, the [*zero point*](glossary.md#zero-point): the number
# that stands for 0. That is the same with $m = -d z$, except that then 0 itself is always one of the levels.
#
# ### Where the error sits (optional)
#
# The error of a weight depends on its step alone, and not on its own size. Each point of the picture is one of the
# matrix's groups:

# %%
cut = matrix.T.reshape(-1, 32)
ways = {"one scale for all": in_one.T.reshape(-1, 32), "a scale for each group": in_groups.T.reshape(-1, 32)}
pictures.draw_errors(
    np.ptp(cut, axis=1), {name: np.sqrt(((new - cut) ** 2).mean(axis=1)) for name, new in ways.items()}
)

# %% [markdown]
# With one scale every group has about the same error, $d/\sqrt{12}$, as for a number that is drawn evenly between two
# levels. For groups of small weights that is much. With a scale of its own, a group has an error in proportion to its
# range.
#
# ## Two numbers in a byte
#
# NumPy's smallest number has eight bits. So two numbers $q$ share a byte: one in its lower four bits, one in its upper
# four. `a << 4` moves bits up by four places, as a product with 16 does. `b >> 4` moves them down again. `a | b` joins
# bits, and `b & 15` keeps the lower four alone, since 15 is `00001111`.
#
# Which two share a byte? In GGUF not neighbours, but number $j$ and number $j + 16$ of a group of 32: then the lower
# halves of all bytes are the first half of the group, and a processor unpacks 16 bytes with one instruction.
#
# ### Exercise 2 ★☆☆: two numbers in a byte


# %% tags=["exercise"]
def pack(numbers):
    """Two numbers below 16 in each byte.

    numbers (..., n), uint8, n even. → (..., n/2), uint8: byte j holds number j in its lower four bits, and number
    j + n/2 in its upper four. "..." is any number of axes, also none.
    """
    raise NotImplementedError


def unpack(packed):
    """The numbers that `pack` has put into bytes: (..., k), uint8 → (..., 2 k), uint8."""
    raise NotImplementedError


# %%
pack = check(pack)
unpack = check(unpack)

# %% [markdown] tags=["help"]
# Cut the last axis into halves. Which half must move, and by how many places? For the way back: which operation leaves
# the lower bits alone, and which brings the upper bits down?
#
# ---
#
# `numbers[..., :half]` and `numbers[..., half:] << 4`, joined by `|`. Back: `packed & 15` and `packed >> 4`, side by
# side along the last axis. All of them stay uint8. (With int8, `>>` would fill up with copies of the sign.)

# %%
packed = Packed(pack(numbers), scales, minima)
print(f"{matrix.nbytes:,} bytes in float32, {packed.nbytes:,} packed: {8 * packed.nbytes / matrix.size} bits a weight")
print("unpacked as before:", np.array_equal(unpack(packed.packed), numbers))

# %% [markdown]
# ### To the byte: a block of a file (optional)
#
# In a GGUF file a group is a *block*: $d$, then $m$ if there is one, each in 2 bytes with the lower byte first, and
# then the numbers. Here is the first group of our matrix in all three types, beside the bytes that the package writes:

# %%
group = matrix[:32, 0]


def block(kind):
    """The bytes of the group in one of the three types."""
    if kind == "Q4_1":
        (numbers,), (scales,), (minima,) = quantize(group[:, None], 32)
        return scales.tobytes() + minima.tobytes() + pack(numbers).tobytes()
    q, d, _ = {"Q8_0": q8_0, "Q4_0": q4_0}[kind](group[None])
    numbers = q.astype(np.int8) if kind == "Q8_0" else pack(q.astype(np.uint8))
    return d.astype(np.float16).tobytes() + numbers.tobytes()


for kind, bits, symmetric in (("Q8_0", 8, True), ("Q4_0", 4, True), ("Q4_1", 4, False)):
    ours = block(kind)
    name, theirs = gguf.as_blocks(quantized.quantize(group[:, None], bits, 32, symmetric))
    print(
        f"{name}: {len(ours)} bytes, {8 * len(ours) / 32} bits a weight, as the package's: {ours == theirs.tobytes()}"
    )
print("Q4_1:", ours.hex(" "))
d, m = np.frombuffer(ours[:4], "<f2")
print(f"read by hand: d = {d:.5f}, m = {m:.5f}; byte 4 is {ours[4]:08b}, so q of weight 0 is {ours[4] & 15} and of "
      f"weight 16 is {ours[4] >> 4}")  # fmt: skip
for place, q in ((0, ours[4] & 15), (16, ours[4] >> 4)):
    print(f"weight {place:2}: d · {q} + m = {float(d) * q + float(m):.5f}, was {group[place]:.5f}")

# %% [markdown]
# (Where a weight lies between two levels, the last digit of a division decides. So a version that rounds in another way
# may differ in a number there, and be as good.)
#
# ## Compute with it
#
# The linear map is $y = xW + b$ as ever, but there is no $W$ in memory. Unpack a few columns, use them, and forget
# them. The arithmetic is done in float32: only what is *stored* is small.


# %%
def columns(weight, count=64):
    """A few columns of a packed weight after the other: which they are, and the columns as rows, (columns, C_in)."""
    for first in range(0, len(weight.packed), count):
        part = slice(first, first + count)
        numbers = unpack(weight.packed[part]).astype(np.float32)  # (columns, groups, group)
        groups = weight.scales[part, :, None] * numbers + weight.minima[part, :, None]
        yield part, groups.reshape(len(groups), -1)


def quantized_linear_forward(x, weight, bias):
    """x (N, C_in), weight (C_in, C_out) packed, bias (C_out,) → y (N, C_out)."""
    y = np.empty((len(x), len(bias)), x.dtype)
    for part, block in columns(weight):  # (columns, C_in)
        y[:, part] = x @ block.T
    return y + bias


x, bias = rng.standard_normal((5, 96), dtype=np.float32), np.zeros(288, np.float32)
y = quantized_linear_forward(x, packed, bias)
theirs, _ = quantized.quantized_linear_forward(x, quantized.quantize(matrix, 4), bias)
print(f"as with the unpacked matrix: {abs(y - x @ back).max():.0e}; as the package's: {abs(y - theirs).max():.0e}; "
      f"changed by rounding: {np.linalg.norm(y - x @ matrix) / np.linalg.norm(x @ matrix):.1%}")  # fmt: skip

# %% [markdown]
# A GPU's kernel unpacks in registers, between reading and multiplying, and then the time falls with the bytes. NumPy
# has to write the unpacked block to memory first. So *here* four bits save memory and cost time:

# %%
seconds = race({"float32": lambda: x @ matrix, "four bits": lambda: quantized_linear_forward(x, packed, bias)})
print(", ".join(f"{name} {1e6 * each:,.0f} µs" for name, each in seconds.items()))

# %% [markdown]
# ## What do few bits cost?
#
# We round all matrices of the translator, its table of tokens too. Biases and the gains of the norms stay as they are:
# they are few. Other numbers of bits are simulated: the weights are rounded to $2^{\text{bits}}$ levels and stay in
# float32.


# %%
def rounded(weight, bits, group=None):
    """weight (C_in, C_out) → what it is in 2^bits levels, d and m in float16; without a group one scale for all."""
    cut = weight.T.reshape(-1, group or weight.size)
    low = cut.min(axis=1, keepdims=True)
    steps = (cut.max(axis=1, keepdims=True) - low) / (2**bits - 1)
    d, m = (each.astype(np.float16).astype(np.float32) for each in (steps, low))
    q = np.clip(np.rint((cut - low) / np.maximum(steps, 1e-30)), 0, 2**bits - 1)
    return (d * q + m).reshape(weight.T.shape).T


exact = mine.loss()
print(f"float32: loss {exact:.4f}\n\nloss in                   groups of 32   groups of 96   one scale for all")
costs = {"groups of 32": [], "groups of 96": [], "one scale for all": []}
for bits in (8, 4, 3, 2):
    for points, group in zip(costs.values(), (32, 96, None), strict=True):
        mine.change(lambda weight, bits=bits, group=group: rounded(weight, bits, group))
        points.append((bits, bits + (32 / group if group else 0), mine.loss()))
    losses = "".join(f"{points[-1][2]:15.4f}" for points in costs.values())
    print(f"{bits} bits, with scales {', '.join(f'{p[-1][1]:.2f}' for p in list(costs.values())[:2])}{losses}")
pictures.draw_costs(costs, exact)

# %% [markdown]
# Eight bits change nothing that we can see. Four bits in groups of 32 cost a little. Below that the loss rises steeply,
# and with one scale for a matrix it does so one bit earlier. But the scales and minima of small groups cost a bit
# themselves, and the picture counts that (the numbers at the blue points are the bits without them). At equal bytes the
# larger groups are as good here, or better. (Newer types in GGUF, whose names end in K, have groups of 16 or 32 and
# store *their scales* in four to eight bits.)
#
# A loss is a mean over all tokens. Do the *translations* change?

# %%
for bits in (32, 8, 4, 3):
    mine.change(lambda weight, bits=bits: weight if bits == 32 else rounded(weight, bits, 32))
    print(f"{bits:2} bits: BLEU {mine.bleu():.1f}")

# %% [markdown]
# BLEU (lesson [11](11_decoding.ipynb)) looks only at the best token, and where one token is far ahead, it stays ahead.
# A large language model is used for harder things than ours, and has larger outliers. Dettmers and Zettlemoyer (2023)
# compared many of them at equal bytes: a larger model in four bits was nearly always better than a smaller one in more.
#
# ## Training beside packed weights (optional)
#
# The numbers $q$ are whole numbers. There is no small step for them, so they are *frozen*. But the gradient must pass
# through the map to the layers below it: $\mathrm{d}x = \mathrm{d}y\,W^\top$. Nothing else is needed, not even $x$, so
# the forward keeps nothing but the packed weight itself.
#
# ### Exercise 3 ★★☆: back through packed weights
#
# `columns(weight)` gives you `part` and `block` of a few columns, as in the forward. The whole $W$ must never be in
# memory. (The bias is not packed, and has a gradient as ever.)


# %% tags=["exercise"]
def quantized_linear_backward(dy, weight):
    """Gradients of y = x W + b, where W (C_in, C_out) is packed, and frozen.

    dy (..., C_out); "..." is any number of axes, also none. weight: a `Packed`, of which `columns(weight)` yields a few
    columns at a time. → dx (..., C_in), of dy's type, and dbias (C_out,). No array of W's size is made.
    """
    raise NotImplementedError


# %%
quantized_linear_backward = check(quantized_linear_backward)

# %% [markdown] tags=["help"]
# The forward writes some columns of $y$ in each round: `y[:, part] = x @ block.T`. Which columns of `dy` come back
# through this block, and to how many of dx's numbers? What must happen to what the other blocks have brought?
#
# ---
#
# Make all axes but the last one axis. Begin with zeros, `(N, C_in)`, of dy's type, and add `rows[:, part] @ block` for
# each block. At the end give back the axes. C_in is `groups · group`, from the shape of `weight.packed`. `dbias` is the
# sum over the rows.

# %%
rows, bias = rng.standard_normal((5, 96)), rng.standard_normal(288)
for name, worst in check_gradients(
    lambda x, bias: (quantized_linear_forward(x, packed, bias), packed), quantized_linear_backward,
    {"x": rows, "bias": bias},
).items():  # fmt: skip
    print(f"{name}: error {worst:.0e}")

# %% [markdown]
# Beside a frozen map stands an adapter, and it is trained: LoRA (lesson [24](24_real_weights.ipynb)). LoRA over weights
# in four bits is called *QLoRA* (Dettmers and others 2023). With it, people fine-tune models whose weights in float16
# would not fit into their GPU.
#
# The demonstration is small. The model of lesson [25](25_smaller_and_larger.ipynb) guesses the next word from the four
# before it. It has read *statements* of our grammar, and no question. Its two matrices are packed. Then adapters of
# rank 4 learn questions.


# %%
def adapted_forward(x, weight, bias, A, B):
    """x W + b + 2 (x A) B, with a packed W."""
    low = x @ A  # (N, r)
    return quantized_linear_forward(x, weight, bias) + 2 * (low @ B), (x, low, weight, A, B)


def adapted_backward(dy, cache):
    """→ dx, dA, dB."""
    x, low, weight, A, B = cache
    dlow = 2 * (dy @ B.T)
    dx, _ = quantized_linear_backward(dy, weight)
    return dx + dlow @ A.T, x.T @ dlow, 2 * (low.T @ dy)


def packed_of(weight, group=32):
    numbers, scales, minima = quantize(weight, group)
    return Packed(pack(numbers), scales, minima)


small = reader()
hidden, out = packed_of(small.weight), packed_of(small.out_weight)
before = [array.tobytes() for array in (*hidden, *out)]
draws, shapes = np.random.default_rng(1), [(96, 4), (4, 128), (128, 4), (4, 300)]
starts = [draws.standard_normal(shape) / shape[0] ** 0.5 * (shape[1] == 4) for shape in shapes]  # A random, B zero
theta = np.concatenate([each.ravel() for each in starts]).astype(np.float32)
ends = np.cumsum([each.size for each in starts])[:-1]
adapters = [part.reshape(shape) for part, shape in zip(np.split(theta, ends), shapes, strict=True)]  # views of theta
mean, square = np.zeros((2, len(theta)), np.float32)


def logits_of(contexts):
    x = small.table[contexts].reshape(len(contexts), -1)  # (N, 96)
    h, below = adapted_forward(x, hidden, small.bias, *adapters[:2])
    logits, above = adapted_forward(np.maximum(h, 0), out, small.out_bias, *adapters[2:])
    return logits, (below, h, above)


def loss_of_questions():
    contexts, targets = small.unseen
    return float(ops.cross_entropy_forward(logits_of(contexts)[0], targets)[0])


STEPS = 100
print(f"before: {loss_of_questions():.2f} nats a word on questions that it has not seen")
for step in range(1, STEPS + 1):
    chosen = rng.integers(len(small.questions[1]), size=128)
    logits, (below, h, above) = logits_of(small.questions[0][chosen])
    dlogits = ops.cross_entropy_backward(1.0, ops.cross_entropy_forward(logits, small.questions[1][chosen])[1])
    dh, *of_out = adapted_backward(dlogits, above)
    _, *of_hidden = adapted_backward(dh * (h > 0), below)
    grad = np.concatenate([each.ravel() for each in (*of_hidden, *of_out)])
    ops.adam_step(theta, grad, mean, square, step=step, lr=0.01 * (1 - step / (STEPS + 1)))
    if step % 25 == 0:
        print(f"step {step:3}: {loss_of_questions():.2f}")
print("packed weights unchanged:", before == [array.tobytes() for array in (*hidden, *out)])
print(f"trained: {len(theta):,} numbers; frozen: {small.weight.size + small.out_weight.size:,}")

# %% [markdown]
# ## Write first, check after (optional)
#
# Now the second way out: several tokens for one read of the weights.
#
# In *training*, a Transformer computes the probabilities at all positions of a text in one pass: the causal mask keeps
# each position from looking ahead. So if somebody *guessed* the next $k$ tokens, one pass of the large model would
# check all of them. It would read its weights once. The guesses come from a small model, the *draft model*, which is
# cheap. This is [*speculative decoding*](glossary.md#speculative-decoding) (Leviathan and others 2023; Chen and others
# 2023).
#
# Which guesses may we keep? If the large model takes its best token each time (greedy), it is simple: keep guesses as
# long as they are its best tokens. But if it *samples*, a guess is neither right nor wrong. We want the tokens to have
# exactly the large model's probabilities, as if there were no draft.
#
# ### The rule
#
# Let $p$ be the large model's probabilities of the next token, and $q$ those of the draft model, which has drawn the
# token $x$ from $q$. We keep $x$ with a chance $a(x)$, and if we refuse it, we draw a token from some other
# distribution $r$. Then a token $x$ comes out with the probability
#
# $$ q(x)\,a(x) + R\,r(x), \qquad R = 1 - \sum_y q(y)\,a(y) $$
#
# where $R$ is the chance that a draft is refused. This must be $p(x)$. So $q(x)\,a(x)$ can't be above $p(x)$, and
# $a(x)$ is a chance, at most 1. The largest possible one is
#
# $$ a(x) = \min\Bigl(1, \frac{p(x)}{q(x)}\Bigr) $$
#
# With it, $q(x)\,a(x) = \min(p(x), q(x))$. What is left of $p(x)$ must come from $r$:
#
# $$ r(x) = \frac{p(x) - \min(p(x), q(x))}{R} = \frac{\max(p(x) - q(x),\, 0)}{R} $$
#
# Is $r$ a distribution? It is nowhere negative, and its sum is $(1 - (1 - R))/R = 1$, because $1 - R = \sum_x
# \min(p(x), q(x))$. So it is, and the sum of both parts is $p(x)$, for *every* draft model, however bad. (If $R$ is 0,
# $p$ and $q$ are equal, and nothing is ever refused.)
#
# A bad draft model only makes it slower. A draft is kept with the chance $\sum_x \min(p(x), q(x))$. We call this the
# *overlap*. It is $1 - \mathrm{TV}(p, q)$, where $\mathrm{TV}(p, q) = \tfrac12 \sum_x |p(x) - q(x)|$ is the [*total
# variation*](glossary.md#total-variation), a distance of distributions.
#
# With $k$ drafted tokens we go from the first to the last. As long as they are kept, the next one is tested with the
# probabilities of *its* position. At the first refusal, the token drawn from $r$ takes its place, and all behind it is
# thrown away: it was guessed after a token that is not there. If all $k$ are kept, the large model's pass has given the
# probabilities *after* the last one too, so one more token is drawn from them, for nothing. A round always gives 1 to
# $k + 1$ tokens.
#
# ### Exercise 4 ★★☆: keep, or draw
#
# Random numbers are given, so that the result is certain. `draw` makes a token of a number:


# %%
def draw(probabilities, number):
    """The token (a place in probabilities, which sum to 1) that a number from [0, 1) stands for."""
    return int(np.searchsorted(np.cumsum(probabilities), number, side="right"))


print([draw([0.5, 0.25, 0.25], number) for number in (0.1, 0.6, 0.9)])


# %% tags=["exercise"]
def accept(drafted, p, q, numbers):
    """The tokens of a round: those drafted ones that are kept, and one that is drawn.

    drafted: a list of k tokens, also none. p (k + 1, V): the large model's probabilities at the place of each drafted
    token, and after the last. q (k, V): those from which the draft model has drawn them.
    numbers (k + 1,): drawn evenly from [0, 1). Token i is kept if numbers[i] is below p / q of that token, and all
    before it are kept. The last number draws the token at the end, by `draw`: after a refusal from what is left there,
    max(p − q, 0) divided by its sum; if all are kept, from the last row of p.
    → a list of whole numbers, 1 to k + 1 of them.
    """
    raise NotImplementedError


# %%
accept = check(accept)

# %% [markdown] tags=["help"]
# What are the two ways in which a round can end? Each ends with one drawn token. From which distribution in each? Write
# the loop so that a refusal leaves it at once.
#
# ---
#
# `for i, token in enumerate(drafted)`: refused if `numbers[i] * q[i, token] >= p[i, token]` (that needs no division).
# Then `left = np.maximum(p[i] - q[i], 0)`, and return the first `i` drafted tokens and
# `draw(left / left.sum(), numbers[k])`. After the loop: all drafted tokens, and `draw(p[k], numbers[k])`.

# %% [markdown]
# ### The proof, by counting
#
# Take a vocabulary of five tokens, and two models that know only the last token: each is a table of $5 \times 5$
# probabilities. That is small enough to go through *all* cases: all drafts, and for each of them all outcomes of the
# random numbers. `accept` is a function of the numbers that changes at a few places only, so we try one number between
# any two of these places, and count it with their distance.

# %%
V, K, START = 5, 2, 0
large, draft = (np.random.default_rng(seed).dirichlet(np.ones(V), size=V) for seed in (3, 4))  # rows: the last token


def between(edges):
    """A number in each interval between edges of [0, 1], and its width."""
    edges = np.unique(np.clip([0, *edges, 1], 0, 1))
    return [((low + high) / 2, high - low) for low, high in itertools.pairwise(edges) if high - low > 1e-12]


def rounds(rule):
    """All outcomes of a round after START: each with its probability."""
    for drafted in itertools.product(range(V), repeat=K):
        last = [START, *drafted]
        p, q = large[last], draft[last[:-1]]
        chance = np.prod([row[token] for row, token in zip(q, drafted, strict=True)])
        tests = [between([p[i, token] / q[i, token]]) for i, token in enumerate(drafted)]
        left = np.maximum(p[:K] - q, 0)
        ends = np.concatenate([np.cumsum(rows / rows.sum(axis=1, keepdims=True), axis=1) for rows in (left, p)])
        for numbers in itertools.product(*tests, between(ends.ravel())):
            width = np.prod([width for _, width in numbers])
            yield rule([*drafted], p, q, np.array([number for number, _ in numbers])), chance * width


def sentences(rule):
    """The probability of each sequence of K + 1 tokens; where a round ends earlier, the large model goes on."""
    found = np.zeros([V] * (K + 1))
    for tokens, chance in rounds(rule):
        for rest in itertools.product(range(V), repeat=K + 1 - len(tokens)):
            steps = itertools.pairwise([tokens[-1], *rest])
            found[(*tokens, *rest)] += chance * np.prod([large[last, token] for last, token in steps])
    return found


def from_p_again(drafted, p, q, numbers):
    """A likely mistake: after a refusal a token is drawn from p itself."""
    *kept, _ = accept(drafted, p, q, numbers)
    return [*kept, draw(p[len(kept)], numbers[-1])]


alone = large[START][:, None, None] * large[:, :, None] * large  # (5, 5, 5): without a draft
print(f"{sum(1 for _ in rounds(accept)):,} cases; sequences of {K + 1} tokens: {alone.size}")
for name, rule in (("accept", accept), ("from p again", from_p_again)):
    found = sentences(rule)
    print(f"{name:<13} sum {found.sum():.6f}, largest difference from the large model {abs(found - alone).max():.1e}")

# %% [markdown]
# The draft model is random, and has nothing to do with the large one. The probabilities are the large model's all the
# same, to the last bit or nearly. The likely mistake below it looks harmless. But it adds $R\,p(x)$ to what is kept of
# each token, and not what is missing.
#
# ## How many tokens for a pass? (optional)
#
# A round gives more than $i$ tokens if and only if the first $i$ drafted ones are kept. Suppose that each of them is
# kept with the same chance $\beta$, the overlap, whatever came before. Then that has the probability $\beta^i$, and the
# expected number of tokens is the sum over $i = 0, \dots, k$:
#
# $$ E = 1 + \beta + \dots + \beta^k = \frac{1 - \beta^{k+1}}{1 - \beta} $$
#
# In our table the overlap depends on the last token, so the sum goes over all drafts. Counted, and computed from the
# overlaps:

# %%
counted = sum(len(tokens) * chance for tokens, chance in rounds(accept))
overlap = np.minimum(large, draft).sum(axis=1)  # after each token
after_one = np.minimum(large[START], draft[START])  # the probability that each token is drafted and kept
print(f"expected tokens of a round: counted {counted:.12f}")
print(f"   1 + kept + both kept:            {1 + overlap[START] + after_one @ overlap:.12f}")

# %% [markdown]
# What is a good draft model? It should be cheap, and have a large overlap with the large one. Here the two halves of
# the lesson meet: **the large model itself, in few bits**, has both. (Others are a student, as in lesson
# [25](25_smaller_and_larger.ipynb), or some more heads on the large model.) How large are the overlaps of our
# translator in few bits with the one in float32, on average over all places of the test sentences? Both sample at
# temperature 0.8 (lesson [19](19_gpt.ipynb)): ours was trained with label smoothing, and gives a little to all tokens.

# %%
TEMPERATURE = 0.8
mine.change(lambda weight: weight)
p, overlaps = mine.probabilities(TEMPERATURE), {}  # (places, V)
for bits in (4, 3, 2):
    mine.change(lambda weight, bits=bits: rounded(weight, bits, 32))
    overlaps[f"{bits} bits"] = float(np.minimum(p, mine.probabilities(TEMPERATURE)).sum(axis=1).mean())
print(", ".join(f"{name}: {each:.3f}" for name, each in overlaps.items()), f"; {len(p):,} places")


def expected(beta, k):
    return sum(beta**i for i in range(k + 1))


betas = np.linspace(0.3, 1, 200)
curves = {k: expected(betas, k) for k in (1, 2, 4, 8)}
pictures.draw_overlap(large[START], draft[START], curves, betas, overlaps)

# %% [markdown]
# The lines rise steeply at the end: the last percents of the overlap are worth most. But the draft model takes time,
# too: it reads its own weights for every drafted token. Let one of its passes cost $c$ passes of the large model. A
# round costs $1 + kc$ and gives $E$ tokens, so the speed-up is $E/(1 + kc)$. In bytes, with a large model in float16,
# $c = 5/16$ for four bits in groups of 32, $4/16$ for three and $3/16$ for two. The best $k$ up to 8:

# %%
print("draft       overlap      c   best k   tokens a pass   speed-up at most")
for name, beta in overlaps.items():
    c = (int(name[0]) + 1) / 16
    best = max(range(9), key=lambda k: expected(beta, k) / (1 + k * c))
    many = expected(beta, best)
    print(f"{name:<10}{beta:9.3f}{c:7.2f}{best:9}{many:16.2f}{many / (1 + best * c):19.2f}")
print(f"a small model, overlap 0.9, c = 0.1, k = 8: a speed-up of {expected(0.9, 8) / (1 + 8 * 0.1):.2f} at most")

# %% [markdown]
# If you can live with the model in four bits as it is, that is faster still, $16/5 = 3.2$ times as fast as float16. But
# then the probabilities are other ones. With a draft they are those of float16, exactly.
#
# ### In a translator
#
# The large model is the translator in float32, the draft model the same in three bits. (Without the caches of lesson
# 11, to keep it short: we count passes, not seconds.)


# %%
slow, fast = Rounded("weights/en-de.safetensors", count=8), Rounded("weights/en-de.safetensors", count=8)
fast.change(lambda weight: rounded(weight, 3, 32))
EOS = slow.translator.tokenizer.eos_id


def written_in_rounds(source, k, most=60):
    """Sample a translation; → its tokens and the passes of the large model."""
    written, passes = [], 0
    while EOS not in written and len(written) < most:
        drafted, q = [], []
        while len(drafted) < k and EOS not in drafted:
            q += [*after(fast.translator, source, [*written, *drafted], 1, TEMPERATURE)]
            drafted.append(draw(q[-1], rng.random()))
        p = after(slow.translator, source, [*written, *drafted], len(drafted) + 1, TEMPERATURE)
        q = np.reshape(q, (len(drafted), p.shape[1]))
        written += accept(drafted, p, q, rng.random(len(drafted) + 1))
        passes += 1
    return written[: written.index(EOS)] if EOS in written else written, passes


for k in (0, 4):
    made = [written_in_rounds([*source, EOS], k) for source in slow.encoded]
    tokens, passes = (sum(numbers) for numbers in zip(*((len(written) + 1, n) for written, n in made), strict=True))
    print(f"k = {k}: {tokens} tokens in {passes} passes of the large model, {tokens / passes:.2f} a pass; "
          f"{slow.translator.tokenizer.decode(made[0][0])}")  # fmt: skip
print(f"expected for k = 4: about {expected(overlaps['3 bits'], 4):.2f}, and less, because sentences end")

# %% [markdown]
# ## Common mistakes, and what they look like
#
# * **Arithmetic in float16.** `scales * numbers` of float16 and uint8 is float16 in NumPy, and rounds once more. Make
#   float32 of one of them first.
# * **Neighbours in a byte.** Another program's file is read without an error, and the weights of each group are in
#   another order. The model speaks nonsense.
# * **A signed shift.** `int8 >> 4` copies the sign: the upper numbers from 8 on come out negative.
# * **One level too many.** With $d = (\max w - \min w)/16$ the largest weight needs $q = 16$, and four bits end at 15.
#   Cut off, it is wrong by a whole step. Not cut off, its fifth bit spills into the other number of its byte, or is
#   lost.
# * **Everything in few bits.** Biases, norms and other vectors are few. Rounding them saves nothing, and costs.
# * **A second draw from $p$** after a refusal. Every sample looks fine, and the distribution is wrong. Only counting
#   shows it.
# * **A draft after a refusal.** The tokens behind it were guessed for another text.
# * **A draft that samples at another temperature** than the $q$ that is handed on. The rule holds only for the $q$ from
#   which the token was really drawn.
#
# ## What changed since 2017
#
# The paper's models were small enough for float32. As models grew, weights shrank: eight bits with outliers kept apart
# (LLM.int8, Dettmers and others 2022); four bits chosen so that a layer's *outputs* change least (GPTQ, Frantar and
# others 2022; AWQ, Lin and others 2023); levels at unequal distances and training beside them (QLoRA, Dettmers and
# others 2023). New GPUs multiply numbers of four and eight bits with a common scale themselves. Guesses that one pass
# checks came in 2018, for greedy decoding (Stern, Shazeer and Uszkoreit; the last two are authors of the paper). The
# rule for sampling came in 2023 (Leviathan and others; Chen and others). Today a large model often carries its own
# draft, as some more layers.
#
# Sources (arXiv): Dettmers and others 2208.07339 and 2305.14314, Dettmers and Zettlemoyer 2212.09720, Frantar and
# others 2210.17323, Lin and others 2306.00978, Leviathan and others 2211.17192 (algorithm 1, equation 1, appendix A.1),
# Chen and others 2302.01318, Stern and others 1811.03115.
#
# ## Where next
#
# `generate MODEL --bits 4` and `generate MODEL --draft prompt` do with a published model what you did here
# ([how](../minitransformer/pretrained/README.md)). [`ops/quantized.py`](../minitransformer/ops/quantized.py) has the
# map in both types of levels, and [`gguf.py`](../minitransformer/pretrained/gguf.py) reads more types, also those whose
# scales have a scale themselves. Open questions: our levels lie at equal distances; where would you put sixteen levels
# for weights that are normally distributed? And if a weight is rounded *down* where its neighbour was rounded up, can
# errors of one output cancel each other? There are more [ideas for projects](ideas.md).
# [Lesson 18](18_your_transformer.ipynb) is the one to come back to: everything in one file of your own.
