# %% [markdown]
# # 15 · Triton I: kernels that read each number once
#
# **You will be able to** write softmax and layer norm as GPU kernels, forward and backward; count the bytes that they
# move; and say what each of the GPU's number formats does to your numbers.
#
# | | |
# |---|---|
# | you know | [softmax](01_softmax.ipynb), [layer norm](07_sublayers.ipynb), [memory traffic](14_numpy_speed.ipynb) |
# | runs in | at most 60 s on 2 cores; Linux with PyTorch and Triton; a GPU if you like |
# | in the paper | between §3, "softmax" and "LayerNorm", and §5.2, "8 NVIDIA P100 GPUs" |
# | in the package | [`kernels/softmax`](../kernels/softmax.py), [`kernels/layernorm`](../kernels/layernorm.py) |
#
# Without a GPU, kernels run in Triton's **interpreter**: it takes the programs of a kernel one after the other and
# computes each in NumPy. Results are right and times mean nothing, so this lesson times nothing: it counts. Where
# PyTorch or Triton is missing (Triton is made for Linux), each cell says so and shows what was recorded; in the
# repository's folder, `pip install -e '.[kernels]'` adds them.
#
# **When this was written, none of these kernels had run on a GPU.** The course's tests run them in the interpreter
# and compile the solutions for a T4 and an H100. To compile and run everything on a real GPU, for example a free
# hosted T4, open this notebook there and run first:
#
# ```
# !git clone --depth 1 THE_ADDRESS_OF_THIS_REPOSITORY minitransformer
# %cd minitransformer/lessons
# %pip install --quiet ..
# ```

# %%
import numpy as np

import kernels
from course import bytes_moved, recorded, start
from course.gpu import DEVICE, DTYPE, machine, tl, torch, triton  # before anything else imports triton
from course.lesson_15.pictures import draw_formats, draw_partial_sums, draw_tile_walk, draw_traffic
from course.tensors import numpy, tensor
from minitransformer import ops
from minitransformer.gradcheck import error

check = start("15")
rng = np.random.default_rng(0)
print(machine())

# %% [markdown]
# ## What a GPU is short of
#
# A GPU is thousands of small calculators in front of one memory. NVIDIA's data sheets say how many float32 operations
# a second the calculators do, and how many bytes a second the memory delivers. Divide:

# %%
data_sheets = {  # float32 operations and bytes of memory a second; of P100, A100 and H100 the SXM forms
    "P100": (10.6e12, 732e9),
    "T4": (8.1e12, 320e9),
    "A100": (19.5e12, 2039e9),
    "H100": (67e12, 3350e9),
}
for name, (operations, memory) in data_sheets.items():
    print(f"{name:<5} {4 * operations / memory:4.0f} operations in the time that one float32 takes to arrive")

# %% [markdown]
# (The P100 is the paper's.) Softmax does a handful of operations with each number, layer norm a few more. Whatever a
# GPU does with them, it waits for its memory nearly all of the time. So the way to a fast softmax is not to compute
# less. It is to **read every number once, keep it close, and write the result once**. Put together from elementary
# operations, as one does in NumPy, that is impossible: each one reads its arguments from memory and writes its result
# back. A kernel can do it.
#
# ## Numbers first
#
# The second way to move fewer bytes is shorter numbers. A float is a sign, an exponent and a fraction:
#
# $$ x = \pm\, 1.f_1 f_2 \dots f_m \times 2^{E} $$
#
# The $m$ bits of the **fraction** say how finely numbers are spaced: between 1 and 2 they are $2^{-m}$ apart, between
# 2 and 4 twice that, and so on. The bits of the **exponent** say how large and how small numbers can be. The leading
# 1 is not stored. Four formats matter here:

# %%
formats = {"float32": (8, 23), "tf32": (8, 10), "bfloat16": (8, 7), "float16": (5, 10)}  # exponent, fraction
for name, (exponent, fraction) in formats.items():
    largest = (2 - 2.0**-fraction) * 2.0 ** (2 ** (exponent - 1) - 1)
    smallest = 2.0 ** (2 - 2 ** (exponent - 1))
    print(f"{name:<9} after 1 comes 1 + {2.0**-fraction:.1e}   largest {largest:.1e}   smallest normal {smallest:.1e}")

# %% [markdown]
# bfloat16 is float32 with the last 16 bits of its fraction gone: float32's reach, two or three digits. float16 keeps
# three more bits of fraction and pays with reach: beyond its largest number is infinity. tf32 is no format to store
# in: the tensor cores of an A100 and later read float32 *inputs* of a product as tf32.
#
# ### Exercise 1: round
#
# NumPy has float16, but neither bfloat16 nor tf32. Make them. Take a number apart into its fraction and its exponent,
# round the fraction to so many bits, put it together (`np.frexp`, `np.rint` and `np.ldexp` are made for that; or work
# on the bits, with `x.view(np.uint32)`).


# %% tags=["exercise"]
def round_to(x, bits):
    """The nearest float with `bits` bits of fraction, and float32's exponents; a tie goes to the even neighbour.

    x: float32, any shape, neither infinite nor subnormal, perhaps 0; bits from 1 to 22 → float32 of x's shape.
    """
    raise NotImplementedError


# %%
round_to = check(round_to)

# %% [markdown]
# With it, the worst rounding error for numbers of every size:

# %%
size = np.logspace(-12, 12, 241)
samples = (size[:, None] * np.linspace(1, 1.1, 60)).astype(np.float32)  # (241, 60)
with np.errstate(over="ignore"):  # beyond 65504 a float16 is infinite
    rounded = {
        "float32": samples,
        "tf32": round_to(samples, 10),
        "bfloat16": round_to(samples, 7),
        "float16": samples.astype(np.float16),
    }
exact = size[:, None] * np.linspace(1, 1.1, 60)
draw_formats(formats, size, {name: np.abs(r / exact - 1).max(axis=1).clip(max=1) for name, r in rounded.items()})

# %% [markdown]
# Three formats are level: the error is relative, whatever the size. float16 is a valley with walls. To the right,
# infinity. To the left its smallest numbers are all equally far apart, so that the relative error grows, until they
# become 0. That is where small gradients go, and why training in float16 multiplies the loss by a large number first
# and divides the gradients by it again ("loss scaling"), which bfloat16 does not need.
#
# ### Store short, add long
#
# A short number is good enough to *store*. It is no place to *add in*. Count to ten thousand by adding ones:

# %%


def count_up(to, bits):
    """1 + 1 + 1 + …, `to` times, in a format with so many bits of fraction."""
    total = np.zeros(1, np.float32)
    for _ in range(to):
        total = round_to(total + np.float32(1), bits)
    return total[0]


print(f"ten thousand ones: {count_up(10_000, 10):.0f} with 10 bits of fraction, {count_up(10_000, 7):.0f} with 7")

# %% [markdown]
# At $2^{m+1}$ the neighbours are 2 apart, adding 1 lands half-way between them, the tie goes to the even one, and the
# sum stands still. Terms that are no whole numbers lose bits long before. So tensor cores take short numbers and add
# in float32, and so does every kernel here. A product of matrices says what that is worth:

# %%
a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 512), (512, 64)))
truth = a.astype(np.float64) @ b
for name, bits in (("tf32", 10), ("bfloat16", 7)):
    short_a, short_b = round_to(a, bits), round_to(b, bits)
    total = np.zeros((64, 64), np.float32)
    for k in range(512):
        total = round_to(total + short_a[:, k : k + 1] * short_b[k], bits)
    print(f"{name:<9} inputs: {error(short_a @ short_b, truth):.0e} off, added in float32   "
          f"{error(total, truth):.0e} off, added in {name}")  # fmt: skip
print(f"{'float32':<9} inputs: {error(a @ b, truth):.0e} off")

# %% [markdown]
# (In Triton's interpreter bfloat16 comes out wrong and tf32 is computed as float32, and a T4 has neither. So from
# here on it is float32, and float16 where a shorter number is to be shown.)
#
# ## A program, a block, a mask
#
# A Triton kernel is a Python function that is launched as a **grid of programs**. All programs run the same code; each
# knows its own number, `tl.program_id(0)`, and works on a **block** of elements at once. In loops:


# %%
def double_loops(x, BLOCK):
    """y = 2x: what a grid of programs does. On a GPU they run side by side, in any order."""
    y = np.zeros_like(x)
    for program in range(-(-len(x) // BLOCK)):  # enough programs for all of x
        i = program * BLOCK + np.arange(BLOCK)  # the elements of this program's block
        mask = i < len(x)  # the last block sticks out
        y[i[mask]] = 2 * x[i[mask]]
    return y


print(double_loops(np.arange(10), BLOCK=4))

# %% [markdown]
# The body of that loop is the kernel. A few rules, and you can read any Triton:
#
# * An array arrives as a **pointer** to its first element, and `x_ptr + i` is a block of pointers. There is no shape,
#   no bounds check: you say where things lie.
# * `tl.load(pointers, mask, other=…)` gives a block of numbers; lanes whose mask is off get `other`, and touch no
#   memory; without `other` they hold anything. `tl.store` leaves out the lanes whose mask is off.
# * A block's length is a **power of two**, known when the kernel is compiled (`tl.constexpr`).
# * Between load and store, numbers are in registers. What happens there costs no memory traffic.


# %%
@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    mask = i < n
    x = tl.load(x_ptr + i, mask)
    tl.store(y_ptr + i, 2 * x, mask)


def double(x):
    y = torch.empty_like(x)
    programs = triton.cdiv(x.numel(), 4)  # rounded up
    double_kernel[(programs,)](x, y, x.numel(), BLOCK=4)
    return y


print(recorded("15_double", lambda: double(tensor(np.arange(10.0))).tolist()))

# %% [markdown]
# ## The picture: the tile walk
#
# For an array $(N, n)$ a program takes a **tile**: a few whole rows. Its lanes have two indices, and the address of
# element (row, column) is `row * n + column`. Let each program write its own number into its elements, and look who
# wrote what:


# %% tags=["picture"]
@triton.jit
def owner_kernel(out_ptr, num_rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)  # (R,)
    column = tl.arange(0, BLOCK)  # (n,)
    mask = (row < num_rows)[:, None] & (column < n)[None, :]  # (R, n)
    tl.store(out_ptr + row[:, None] * n + column[None, :], tl.program_id(0), mask)


def owners(num_rows, n, ROWS, BLOCK):
    out = tensor(np.full((num_rows, n), -1))
    owner_kernel[(triton.cdiv(num_rows, ROWS),)](out, num_rows, n, ROWS=ROWS, BLOCK=BLOCK)
    return out.tolist()


owner = np.array(recorded("15_owners", lambda: owners(5, 11, ROWS=2, BLOCK=16)))
draw_tile_walk(owner, rows=2, block=16)

# %% [markdown]
# Rows are 11 long, blocks must be 16, so five lanes of each row stick out. Look at the red numbers: the lane after the
# end of row 0 has the address 11, and 11 is the *first element of row 1* (both outlined, and where they lie in
# memory). Memory has no rows. Without the mask, that lane would not fail: it would read a neighbour's number, or
# write over it.
#
# ## Softmax in one pass
#
# First without masks, for rows whose length *is* a power of two. A program takes a row, and everything between
# the load and the store stays in registers:


# %%
@triton.jit
def softmax_unmasked_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + column)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + column, e / tl.sum(e, axis=0))


def softmax_unmasked(x, n):
    """Of 4 rows of n, at the beginning of x (and y): the rest is there to be trodden on."""
    y = torch.zeros_like(x)
    softmax_unmasked_kernel[(4,)](x, y, n, BLOCK=triton.next_power_of_2(n))
    return numpy(y)[: 4 * n].reshape(4, n).sum(axis=1).tolist()


numbers = rng.standard_normal(600)
by_length = recorded("15_unmasked", lambda: {n: softmax_unmasked(tensor(numbers), n) for n in (128, 100)})
for n, sums in by_length.items():
    print(f"rows of {n} sum to", " ".join(f"{total:.3f}" for total in sums))

# %% [markdown]
# Rows of 128 are right. Rows of 100 are not: each program also took 28 numbers of the next row into its sum, and
# wrote 28 weights over the next row's. (Here that row's own program came later and wrote over them again. On a GPU,
# who comes later is chance.)
#
# ### Exercise 2: rows that are no power of two
#
# Mask the load and the store. The question to think about is `other`: what must a lane beyond the row hold, so that it
# changes neither the maximum nor the sum? And two details that the package's kernel has too: x may be a slice whose
# rows lie further apart than they are long, and a row of all −∞ (a query with nothing to attend to, lesson 04) must
# give zeros.

# %%
LOWEST = tl.constexpr(float(np.finfo(np.float32).min))  # a maximum that begins here is never −inf
# To convert: x.to(tl.float32). To the dtype that y is stored in: y.to(y_ptr.dtype.element_ty).


# %% tags=["exercise"]
@triton.jit
def softmax_rows_kernel(x_ptr, y_ptr, n, stride_x, BLOCK: tl.constexpr):
    """A row of x, whose first element is at x_ptr + row · stride_x, and of y, at y_ptr + row · n."""
    raise NotImplementedError


def softmax_rows(x):
    """Softmax over the last axis of x (N, n), n ≥ 1, computed in float32 → y (N, n) of x's dtype, contiguous.

    Elements of a row lie side by side, rows x.stride(0) apart. A row of all −inf gives zeros. Launches the kernel above
    once, with a program for each row; it loads each number of x once and stores each of y once.
    """
    raise NotImplementedError


# %%
softmax_rows = check(softmax_rows)

# %% [markdown]
# Beside the package's version and the NumPy reference of lesson 01:


# %%
def softmax_errors():
    x = rng.standard_normal((6, 100))
    y = numpy(softmax_rows(tensor(x)))
    package = numpy(kernels.softmax_forward(tensor(x))[0])
    half = softmax_rows(tensor(x, torch.float16))
    reference = ops.softmax_forward(x)[0]
    return {
        "against the package's kernel": error(y, package),
        "against NumPy in float64": error(y, reference),
        "in float16, against NumPy in float64": error(numpy(half), reference),
    }


for what, off in recorded("15_softmax", softmax_errors).items():
    print(f"{what:<38} {off:.0e}")

# %% [markdown]
# One row a program is right, and wasteful for short rows: an NVIDIA GPU runs a program on 32 threads at least, and
# with a row of 20 many of them idle. So the package's kernel takes a tile, as in the picture: several short rows, or
# one long one. Here is its backward in that form, from $\mathrm{d}x = y \circ (\mathrm{d}y - \sum_j \mathrm{d}y_j\,
# y_j)$ (lesson 01):


# %%
@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, num_rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)  # (R,)
    column = tl.arange(0, BLOCK)  # (n,)
    mask = (row < num_rows)[:, None] & (column < n)[None, :]
    place = row[:, None] * n + column[None, :]  # (R, n)
    dy = tl.load(dy_ptr + place, mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + place, mask, other=0.0).to(tl.float32)
    along = tl.sum(dy * y, axis=1)  # (R,)
    dx = y * (dy - along[:, None])
    tl.store(dx_ptr + place, dx.to(dx_ptr.dtype.element_ty), mask)


def softmax_backward(dy, y, ROWS=4):
    dx = torch.empty_like(y)
    num_rows, n = y.shape
    grid = (triton.cdiv(num_rows, ROWS),)
    softmax_backward_kernel[grid](dy, y, dx, num_rows, n, ROWS=ROWS, BLOCK=triton.next_power_of_2(n))
    return dx


# %% [markdown]
# Here `other=0` is right: a lane of zeros adds nothing to Σ dy·y. Is the gradient right? float32 is too coarse for
# central differences (lesson 00), so the proof goes by way of NumPy: `ops.softmax_backward` was proved in float64,
# and the kernel must agree with it. PyTorch's autograd has a say as well:


# %%
def softmax_backward_errors():
    x, dy = rng.standard_normal((2, 6, 100))
    y = softmax_rows(tensor(x))
    dx = numpy(softmax_backward(tensor(dy), y))
    leaf = torch.tensor(x, requires_grad=True)
    torch.softmax(leaf, dim=-1).backward(torch.tensor(dy))
    return {
        "against NumPy in float64": error(dx, ops.softmax_backward(dy, ops.softmax_forward(x)[1])),
        "against PyTorch's autograd in float64": error(dx, numpy(leaf.grad)),
        "against the package's kernel": error(dx, numpy(kernels.softmax_backward(tensor(dy), y))),
    }


for what, off in recorded("15_softmax-backward", softmax_backward_errors).items():
    print(f"{what:<38} {off:.0e}")

# %% [markdown]
# ## Layer norm: a mask that is easy to forget
#
# $y = \gamma \circ n + \beta$ with $n = (x - \mu)\, r$ and $r = 1/\sqrt{\sigma^2 + \epsilon}$: for each row of x its
# own mean $\mu$ and variance $\sigma^2$; $\gamma$ and $\beta$ of shape $(C,)$ are shared by all rows. The backward
# will want $\mu$ and $r$, two numbers a row, so the kernel writes them too.


# %%
@triton.jit
def layernorm_kernel(
    x_ptr, gamma_ptr, beta_ptr, y_ptr, mean_ptr, rstd_ptr, n, eps, MASKED: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < n
    x = tl.load(x_ptr + row * n + column, mask, other=0.0)
    mean = tl.sum(x, axis=0) / n
    centred = x - mean
    if MASKED:
        centred = tl.where(mask, centred, 0.0)  # the lanes beyond the row were 0; now they are −mean
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=0) / n + eps)
    gamma = tl.load(gamma_ptr + column, mask)
    beta = tl.load(beta_ptr + column, mask)
    tl.store(y_ptr + row * n + column, centred * rstd * gamma + beta, mask)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


def layernorm(x, gamma, beta, masked=True):
    y = torch.empty_like(x)
    num_rows, n = x.shape
    mean, rstd = (torch.empty(num_rows, device=x.device) for _ in range(2))
    layernorm_kernel[(num_rows,)](
        x, gamma, beta, y, mean, rstd, n, 1e-5, MASKED=masked, BLOCK=triton.next_power_of_2(n)
    )
    return y, mean, rstd


def layernorm_errors():
    gamma, beta = 1 + rng.random(512), rng.standard_normal(512)
    errors = {}
    for n in (512, 300):
        for shift in (0, 5):
            x = shift + rng.standard_normal((4, n))
            reference = ops.layernorm_forward(x, gamma[:n], beta[:n])[0]
            tensors = [tensor(array) for array in (x, gamma[:n], beta[:n])]
            errors[f"rows of {n}, mean {shift}"] = [
                error(numpy(layernorm(*tensors, masked=masked)[0]), reference) for masked in (True, False)
            ]
    return errors


for what, (right, wrong) in recorded("15_layernorm", layernorm_errors).items():
    print(f"{what:<20} off by {right:.0e}   without the `where` {wrong:.0e}")

# %% [markdown]
# Without the `where`, each lane beyond the row adds $\mu^2$ to the sum of squares. With a block that is full nothing
# shows; with a mean near zero hardly anything. It is the kind of mistake that only a test with ragged sizes *and*
# shifted inputs finds.
#
# ## The backward, and a sum over all rows
#
# For a row, with $\mathrm{d}n = \mathrm{d}y \circ \gamma$ (lesson 07):
#
# $$ \mathrm{d}x = r \left( \mathrm{d}n - \overline{\mathrm{d}n} - n \, \overline{\mathrm{d}n \circ n} \right)
#    \qquad\text{(a bar is the mean over the row)} $$
#
# That stays within a row. But γ was used by every row, so its gradient is a sum over all of them, and so over all
# programs: $\mathrm{d}\gamma = \sum_{\text{rows}} \mathrm{d}y \circ n$ and $\mathrm{d}\beta = \sum_{\text{rows}}
# \mathrm{d}y$. Three ways to do it:
#
# 1. **Each program adds to dgamma in memory**: load, add, store. Wrong. Two programs load the same old value, each
#    adds its own row, and one of the two stores is lost. In the interpreter, which runs one program at a time, *it
#    works*. (`check` finds it all the same: it watches which program reads what another one wrote.)
# 2. **Atomic additions**, which memory performs one after the other. Right, but in an order that is chance, and
#    floating sums depend on their order:

# %%
terms = rng.standard_normal(1000).astype(np.float32)


def sum_in_order(terms):
    return np.cumsum(terms, dtype=np.float32)[-1]  # one addition after the other


sums = {sum_in_order(rng.permutation(terms)) for _ in range(200)}
print(f"the same 1000 numbers, added in 200 orders: {len(sums)} different sums, {max(sums) - min(sums):.0e} apart")

# %% [markdown]
#    A training that does not repeat to the bit is one that cannot be debugged by repeating it.
#
# 3. **Partial sums.** A fixed number of programs; program $p$ takes the rows $p$, $p + P$, $p + 2P$, …, keeps its sum
#    in registers, and in the end writes it to a row of its own. A second, small sum adds these up, always in the same
#    order.

# %%
draw_partial_sums(owner=np.arange(7) % 3, terms=rng.integers(-9, 10, (7, 5)))

# %% [markdown]
# ### Exercise 3: layer norm's backward, with partial sums
#
# A loop over rows inside a kernel is `for row in range(tl.program_id(0), num_rows, tl.num_programs(0))`, and a block
# of zeros to begin with is `tl.zeros((BLOCK,), tl.float32)`. The final sum over programs may be PyTorch's.


# %% tags=["exercise"]
@triton.jit
def layernorm_backward_kernel(
    dy_ptr, x_ptr, gamma_ptr, mean_ptr, rstd_ptr, dx_ptr, dgamma_ptr, dbeta_ptr, num_rows, n, BLOCK: tl.constexpr
):
    """Some rows of dx, and this program's row of dgamma's and dbeta's partial sums, (programs, n)."""
    raise NotImplementedError


def layernorm_backward_rows(dy, x, gamma, mean, rstd, programs):
    """Gradients of y = gamma · n + beta, n = (x − mean) · rstd, mean and rstd those of each row.

    dy and x (N, n), gamma (n,), mean and rstd (N,): float32 and contiguous → the tuple dx (N, n), dgamma (n,),
    dbeta (n,), float32 too. Launches the kernel above once with `programs` programs, also where that is more than there
    are rows; it loads each number of dy and x once, stores each of dx once, and uses no atomics.
    """
    raise NotImplementedError


# %%
layernorm_backward_rows = check(layernorm_backward_rows)


# %%
def layernorm_backward_errors():
    x, dy = rng.standard_normal((2, 40, 300))
    gamma, beta = 1 + rng.random(300), rng.standard_normal(300)
    expected = ops.layernorm_backward(dy, ops.layernorm_forward(x, gamma, beta)[1])
    _, mean, rstd = layernorm(tensor(x), tensor(gamma), tensor(beta))
    arguments = [*(tensor(array) for array in (dy, x, gamma)), mean, rstd]
    once, again = (layernorm_backward_rows(*arguments, 8) for _ in range(2))
    package = kernels.layernorm_backward(
        tensor(dy), kernels.layernorm_forward(tensor(x), tensor(gamma), tensor(beta))[1]
    )
    errors = {
        name: [error(numpy(mine), right), error(numpy(mine), numpy(theirs))]
        for name, mine, right, theirs in zip(("dx", "dgamma", "dbeta"), once, expected, package, strict=True)
    }
    return errors, all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


errors, repeats = recorded("15_layernorm-backward", layernorm_backward_errors)
for name, (from_numpy, from_package) in errors.items():
    print(f"{name:<7} off by {from_numpy:.0e} from NumPy in float64, by {from_package:.0e} from the package's kernel")
print("the same bits in a second run:", repeats)

# %% [markdown]
# ## Bytes moved
#
# Now count. `bytes_moved.of_operations` watches PyTorch's operations, each of which reads its arguments from memory
# and writes its result; `bytes_moved.of_kernels` watches the interpreter's loads and stores, lane by lane, but for γ
# and β, which are short and stay in the caches. The unit is a *pass*: as many bytes as the array has. "PyTorch's
# operations" are the formula put together from small ones; PyTorch's own `softmax` and `layer_norm` are fused
# kernels, too.

# %%
ROWS, WIDTH = 256, 512


def layernorm_backward_operations(dy, x, gamma, mean, rstd):
    """As the formulas stand, in PyTorch's operations."""
    n = (x - mean[:, None]) * rstd[:, None]
    dn = dy * gamma
    dx = rstd[:, None] * (dn - dn.mean(-1, keepdim=True) - n * (dn * n).mean(-1, keepdim=True))
    return dx, (dy * n).sum(0), dy.sum(0)


def count_passes():
    from kernels.layernorm import layernorm_naive, layernorm_sweeps
    from kernels.softmax import softmax_naive, softmax_online

    x, other, y, dy = (tensor(rng.standard_normal((ROWS, WIDTH))) for _ in range(4))
    gamma, beta = torch.ones_like(x[0]), torch.zeros_like(x[0])
    _, mean, rstd = layernorm(x, gamma, beta)
    ways = [  # what, how, PyTorch's operations, Triton's kernels
        ("softmax", "PyTorch's operations", lambda: softmax_naive(x), None),
        ("softmax", "two sweeps over a row", None, lambda: softmax_online(x)),
        ("softmax", "yours, one pass", None, lambda: softmax_rows(x)),
        ("softmax's backward", "PyTorch's operations", lambda: y * (dy - (dy * y).sum(-1, keepdim=True)), None),
        ("softmax's backward", "the kernel above", None, lambda: softmax_backward(dy, y)),
        ("layer norm", "PyTorch's operations", lambda: layernorm_naive(x, gamma, beta), None),
        ("layer norm", "two sweeps over a row", None, lambda: layernorm_sweeps(x, gamma, beta)),
        ("layer norm", "the kernel above", None, lambda: layernorm(x, gamma, beta)),
        ("layer norm's backward", "PyTorch's operations",
         lambda: layernorm_backward_operations(dy, x, gamma, mean, rstd), None),
        ("layer norm's backward", "yours, partial sums",
         None, lambda: layernorm_backward_rows(dy, x, gamma, mean, rstd, 8)),
        ("Add & Norm", "a sum, then the kernel", lambda: x + other, lambda: layernorm(x, gamma, beta)),
        ("Add & Norm", "the package's, fused", None, lambda: kernels.add_layernorm_forward(x, other, gamma, beta)),
    ]  # fmt: skip
    counted = []
    for what, how, operations, kernel in ways:
        found = [bytes_moved.of_operations(operations)] if operations else []
        found += [bytes_moved.of_kernels(kernel, cached=[gamma, beta])] if kernel else []
        array = 4 * ROWS * WIDTH
        counted.append([what, how, sum(f.read for f in found) / array, sum(f.written for f in found) / array])
    return counted


counted = recorded("15_traffic", count_passes)
draw_traffic(counted)

# %% [markdown]
# One read and one write is the least that a softmax can do: with one pass it moves as little as a copy. The
# backward of layer norm falls furthest, because every intermediate array of the formulas has become a register. And
# the last pair is what *fusion* means: the sum that the residual connection makes is never written, it is made where
# it is used, in the registers of the kernel that normalises it.
#
# What is a pass worth? For the paper's batch, 25,000 tokens of 512 channels in float32, and if memory were the only
# limit:

# %%
array = 4 * 25_000 * 512
for name in ("P100", "T4", "H100"):
    a_pass = 1e3 * array / data_sheets[name][1]  # milliseconds
    unfused, fused = (read + written for what, _, read, written in counted if what == "layer norm's backward")
    print(f"{name:<9} a pass {a_pass:.3f} ms; layer norm's backward {unfused * a_pass:.2f} ms in PyTorch's operations, "
          f"{fused * a_pass:.2f} in one kernel")  # fmt: skip

# %% [markdown]
# These are limits, computed from data sheets. On a GPU, measure:

# %%
if DEVICE == "cuda":
    from kernels.softmax import softmax_naive

    x = torch.randn(16384, 1000, dtype=DTYPE, device=DEVICE)
    for name, softmax in (("PyTorch's operations", softmax_naive), ("yours", softmax_rows)):
        milliseconds = triton.testing.do_bench(lambda softmax=softmax: softmax(x))
        rate = 2 * x.nbytes / milliseconds / 1e6  # one read and one write are what it takes
        print(f"{name:<22} {milliseconds:.2f} ms, {rate:.0f} GB/s")
else:
    print("There is no GPU here, and the interpreter's times mean nothing.")

# %% [markdown]
# ## Common mistakes, and what they look like
#
# **A store without its mask** writes over what lies behind. Around y is a larger array of sevens:


# %%
@triton.jit
def careless_kernel(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, i)


def trodden_on():
    memory = tensor(np.full(10, 7.0))
    careless_kernel[(1,)](memory, 5, BLOCK=8)  # y is the first 5 of them
    return memory.tolist()


print("memory after y[:5] was written:", recorded("15_careless", trodden_on))

# %% [markdown]
# **`other=0` before a maximum, or before an exponential.** With scores that are all below zero, the maximum of the row
# becomes 0, and lanes beyond the row weigh the most of all:


# %%
@triton.jit
def zeros_beyond_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + column, column < n, other=0.0)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + column, e / tl.sum(e, axis=0), column < n)


def weights_of_five():
    y = tensor(np.zeros(5))
    zeros_beyond_kernel[(1,)](tensor(np.full(5, -4.0)), y, 5, BLOCK=8)
    return y.tolist()


weights = recorded("15_zeros-beyond", weights_of_five)
print("five equal scores of −4 get weights of", " ".join(f"{weight:.3f}" for weight in weights))

# %% [markdown]
# **A block whose length is no power of two** is refused. Take `triton.next_power_of_2(n)` and a mask:


# %%
def refused():
    try:
        careless_kernel[(1,)](tensor(np.zeros(16)), 5, BLOCK=5)
    except Exception as problem:
        return str(problem).strip().splitlines()[-1]
    return "accepted"


print(recorded("15_refused", refused))

# %% [markdown]
# **An address that does not fit 32 bits.** `row * n` with two int32 wraps around beyond 2³¹. It takes an array of
# eight gigabytes in float32 to see it, and then it is a crash, or somebody else's numbers. The package's kernels write
# `row.to(tl.int64) * stride`:

# %%
row, n = np.array([70_000], np.int32), np.array([40_000], np.int32)
print(f"row 70,000 of rows of 40,000 begins at {(row.astype(np.int64) * n)[0]:,}; in int32: {(row * n)[0]:,}")

# %% [markdown]
# **Trusting the interpreter too far.** It shows wrong results of a program. It cannot show what programs do to each
# other. This kernel adds to one number from 100 programs, and each loads, adds and stores. On a GPU, many
# of the additions are lost. Here:


# %%
@triton.jit
def racing_kernel(total_ptr):
    tl.store(total_ptr, tl.load(total_ptr) + 1)


def raced():
    total = tensor(np.zeros(1))
    racing_kernel[(100,)](total)
    return total.item()


raced_total = recorded("15_race", raced)
print(f"100 programs added 1 each, without atomics: {raced_total:.0f}" + (" (one after the other)" * (DEVICE == "cpu")))

# %% [markdown]
# And two more. Sums kept in float16 (see above) show as a model that is a little inexact, and as nothing else.
# `TRITON_INTERPRET` set after triton was imported comes too late for Triton's own helpers, such as `tl.sum`, and they
# refuse ("Cannot call @triton.jit'd outside of the scope of a kernel"): set it first, as `course.gpu` does.
#
# ## What changed since 2017
#
# The paper's GPUs had no tensor cores: the first, the V100's, came in 2017 with float16, the A100 brought tf32 and
# bfloat16 in 2020, and the H100 8-bit floats in 2022. Who wanted a fused kernel wrote CUDA; Triton (Tillet, Kung and
# Cox, 2019) thinks in blocks instead of threads and since 2021 in Python, and since PyTorch 2 `torch.compile` writes
# such Triton kernels for rows by itself. It does not invent the next lesson's algorithm.
#
# ## Where next
#
# [Lesson 16](16_flash_attention.ipynb): attention's scores are the largest arrays of all, and with one more idea they
# too never need to touch memory.
