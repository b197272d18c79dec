# %% [markdown]
# # 15 · Triton I: kernels that read each number once
#
# **You will be able to** write GPU kernels in Triton for rows of numbers, up to softmax, and say why the bytes that
# they move decide how fast they are; and, if you like, count these bytes, and write layer norm's backward.
#
# | | |
# |---|---|
# | you know | [softmax](01_softmax.ipynb), [layer norm](07_sublayers.ipynb), [memory traffic](14_numpy_speed.ipynb) |
# | runs in | at most 60 s on 2 cores; Linux with PyTorch and Triton; a GPU if you like |
# | in the paper | between §3, "softmax" and "LayerNorm", and §5.2, "8 NVIDIA P100 GPUs" |
# | in the package | [`softmax`](../kernels/softmax.py), [`norms/layernorm`](../kernels/norms/layernorm.py) |
#
# A **kernel** is a function that runs on a GPU. Without a GPU, the kernels of this lesson run in Triton's
# **interpreter**, which takes the programs of a kernel one after the other and computes each in NumPy. The results are
# right, and the times mean nothing. With a GPU, the same cells compile the kernels and run them on it. Where PyTorch or
# Triton is missing, each cell says so and shows the recorded results. To install both, in the repository's folder and
# an environment of its own (POSIX shells: `source .venv/bin/activate`; Windows: `.venv\Scripts\activate`):
#
# ```bash
# pip install -c constraints.txt torch==2.13.0 triton==3.7.1
# pip install -c constraints.txt -e ".[lessons]"
# ```
#
# With uv write `uv pip install`. Triton needs Linux: on Windows work in WSL, or leave out `triton==3.7.1`. On Linux
# pip's usual PyTorch is large: [which build to take](../.github/CONTRIBUTING.md#pytorch).

# %%
import numpy as np

import kernels
from course import bytes_moved, recorded, start
from course.gpu import DEVICE, DTYPE, machine, tl, torch, triton  # before anything else imports triton
from course.lesson_15 import pictures as draw
from course.recorded import gpu_times
from course.tensors import numpy, tensor
from minitransformer import ops
from minitransformer.gradcheck import error

check = start("15")
rng = np.random.default_rng(0)
print(machine())
print(gpu_times("15"))

# %% [markdown]
# ## A GPU, and its bottleneck
#
# A GPU has about a hundred **multiprocessors**, each with about a hundred small calculators, and one large memory. A
# [kernel](glossary.md#kernel) is started as a **grid of programs**: many copies of one function, each with a number.
# The GPU hands them out to its multiprocessors, in any order. Here is an H100:

# %%
draw.draw_gpu({
    "multiprocessors": "132", "registers": "256 KB", "shared memory": "228 KB",
    "L2 cache": "50 MB", "device memory": "80 GB", "bandwidth": "3.35 TB a second",
})  # fmt: skip

# %% [markdown]
# From top to bottom, memory gets slower and, from shared memory down, larger. The calculators work on **registers**
# only. The threads of a program (the workers that compute its numbers) exchange numbers in the **shared memory** of
# their multiprocessor. (**Tensor cores** multiply small matrices.) Triton manages registers and shared memory for you.
# You decide which numbers go between them and the **device memory**, where the arrays lie: when a kernel ends, all that
# it has not written there is lost.
#
# NVIDIA's data sheets give the float32 operations of the calculators and the bytes of the memory in a second. Divide:

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
# (The P100 is the paper's.) Now three tasks, for the paper's batch of 25,000 tokens of 512 channels, on an H100: count
# the operations and the bytes, and divide by the two numbers of the data sheet:

# %%
tokens, width = 25_000, 512
numbers = tokens * width
counts = {  # operations; numbers that are read or written, at the least
    "x + y": (numbers, 3 * numbers),
    "softmax": (5 * numbers, 2 * numbers),
    "a linear layer, 512 → 2048": (2 * numbers * 2048, numbers + width * 2048 + tokens * 2048),
}
operations, memory = data_sheets["H100"]
draw.draw_time({name: (4 * moved / memory, work / operations) for name, (work, moved) in counts.items()})

# %% [markdown]
# A product of matrices keeps the calculators busy. In a softmax or a sum, the GPU waits for its numbers nearly all of
# the time. So a fast softmax does not compute less: it **reads every number once, keeps it in registers, and writes the
# result once**. NumPy's small operations cannot do that: each reads its arguments from memory and writes its result
# back.
#
# ## A program and its block
#
# A Triton kernel is a Python function that all programs of its grid run. Each asks for its number, `tl.program_id(0)`,
# and works on a **block** of numbers at once. As a loop in NumPy:


# %%
def double_loops(x, BLOCK):
    """y = 2x: what a grid of programs does. On a GPU they run side by side, in any order."""
    y = np.zeros_like(x)
    for program in range(len(x) // BLOCK):
        i = program * BLOCK + np.arange(BLOCK)  # the positions of this program's block
        y[i] = 2 * x[i]
    return y


print(double_loops(np.arange(12), BLOCK=4))

# %% [markdown]
# The body of that loop is the kernel. With four rules you can read any kernel:
#
# * An array arrives as a **pointer**, the address of its first number. `x_ptr + i` is a block of pointers. There is no
#   shape and no check of bounds.
# * `tl.load(pointers)` gives the block of numbers that lie there; `tl.store(pointers, numbers)` writes a block.
# * A block's length is a **power of two**, known when the kernel is compiled: `tl.constexpr` says so.
# * Between load and store, numbers are in registers, where computing costs no memory traffic.
#
# A place in a block is a **lane**. A launch has the number of programs in brackets, `kernel[(programs,)](arguments)`:


# %%
@triton.jit
def double_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    x = tl.load(x_ptr + i)
    tl.store(y_ptr + i, 2 * x)


def double(x):
    y = torch.empty_like(x)  # memory for the result; it holds anything
    double_kernel[(x.numel() // 4,)](x, y, BLOCK=4)  # numel: how many numbers x has
    return y


print(recorded("15_double", lambda: double(tensor(np.arange(12.0))).tolist()))

# %% [markdown]
# ## A ladder of six puzzles
#
# Each puzzle adds one idea, and takes a few lines. The launch is given; write the kernel. In the interpreter, a check
# puts a fence around the arrays: it stops reads and writes outside them, and notices when a program reads numbers that
# another one has written.
#
# ### Exercise 1 ★☆☆: a block of two vectors (optional)
#
# A warm-up: load a block of x and the same block of y, add them, store the sum.


# %% tags=["exercise"]
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """A block of out = x + y."""
    raise NotImplementedError


def add(x, y):
    """x + y, two float32 vectors whose length is a multiple of 8 → a new vector."""
    out = torch.empty_like(x)
    add_kernel[(x.numel() // 8,)](x, y, out, BLOCK=8)
    return out


# %%
add = check(add)

# %% [markdown] tags=["help"]
# Which positions of the vectors belong to program 0, which to program 1, which to program p? `double_kernel` above has
# the same ones.
#
# ---
#
# `i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)` are the positions. Then come two loads and one store.

# %% [markdown]
# ### Exercise 2 ★☆☆: a mask at the edge
#
# A length is seldom a multiple of the block. The last block then sticks out, and its last lanes must not touch memory.

# %%
draw.draw_lanes(n=13, block=8)

# %% [markdown]
# The idea: `tl.load(pointers, mask)` and `tl.store(pointers, numbers, mask)` leave out the lanes whose mask is off.
# (The larger of a block and a number is `tl.maximum(x, 0.0)`.)


# %% tags=["exercise"]
@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """A block of y = max(x, 0); x and y have n numbers."""
    raise NotImplementedError


def relu(x):
    """max(x, 0) of a float32 vector of any length → a new vector."""
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 8),)](x, y, x.numel(), BLOCK=8)  # cdiv: a division, rounded up
    return y


# %%
relu = check(relu)

# %% [markdown] tags=["help"]
# In the picture, which condition on the position i tells the red lanes from the others?
#
# ---
#
# `mask = i < n`, for the load and for the store.

# %% [markdown]
# ### The picture: the tile walk
#
# Of an array $(N, n)$, N rows of n numbers, a program can take a **tile**: a few rows, or a part of them.
# `row[:, None]` is a column of row numbers, `column[None, :]` a row of column numbers; together they make a
# two-dimensional block. Where rows lie one behind the other, (row, column) is `row * n + column` numbers behind the
# first. Here each program writes its own number into its tile:


# %% tags=["picture"]
@triton.jit
def owner_kernel(out_ptr, num_rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)  # (R,)
    column = tl.arange(0, BLOCK)  # (B,)
    mask = (row < num_rows)[:, None] & (column < n)[None, :]  # (R, B)
    tl.store(out_ptr + row[:, None] * n + column[None, :], tl.program_id(0), mask)


def owners(num_rows, n, ROWS, BLOCK):
    out = tensor(np.full((num_rows, n), -1))
    owner_kernel[(triton.cdiv(num_rows, ROWS),)](out, num_rows, n, ROWS=ROWS, BLOCK=BLOCK)
    return out.tolist()


owner = np.array(recorded("15_owners", lambda: owners(5, 11, ROWS=2, BLOCK=16)))
draw.draw_tile_walk(owner, rows=2, block=16)

# %% [markdown]
# Five lanes of each row stick out. The lane after the end of row 0 has the address 11, where the *first number of row
# 1* lies (both are outlined). Memory has no rows: without the mask that lane would not fail, but read its neighbour's
# number, or write over it.
#
# ### Exercise 3 ★☆☆: two dimensions, and strides (optional)
#
# In PyTorch as in NumPy, a transposed array is the same memory, read in another order. Its **strides** say how: the
# number (row, column) is `row * stride_row + column * stride_column` numbers behind the first. (NumPy counts strides in
# bytes, PyTorch in numbers.)
#
# The idea: read by strides, write side by side. In the grid, `tl.program_id(0)` counts the tiles down,
# `tl.program_id(1)` the tiles across. (In PyTorch this is `x.contiguous()`.)


# %% tags=["exercise"]
@triton.jit
def copy_kernel(x_ptr, y_ptr, num_rows, n, stride_row, stride_column, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """A tile, ROWS × BLOCK, of y (num_rows, n), whose rows lie one behind the other; x has the two strides."""
    raise NotImplementedError


def contiguous(x):
    """A copy of x (N, n), float32 with any strides → (N, n), its rows one behind the other."""
    num_rows, n = x.shape
    y = torch.empty((num_rows, n), device=x.device)
    grid = triton.cdiv(num_rows, 2), triton.cdiv(n, 8)
    copy_kernel[grid](x, y, num_rows, n, x.stride(0), x.stride(1), ROWS=2, BLOCK=8)
    return y


# %%
contiguous = check(contiguous)

# %% [markdown] tags=["help"]
# Which rows belong to a program whose number down is p, and which columns to one whose number across is q? A lane may
# stick out on two sides: which two conditions make its mask?
#
# ---
#
# The mask is `(row < num_rows)[:, None] & (column < n)[None, :]`, and x is read at
# `x_ptr + row[:, None] * stride_row + column[None, :] * stride_column`. y has strides of its own, n and 1.

# %% [markdown]
# ### Exercise 4 ★☆☆: the sum of a row
#
# The idea: `tl.sum(x, axis=0)` adds up all lanes of a block, also those whose mask is off. These hold anything, unless
# the load fills them: `tl.load(pointers, mask, other=…)`. A program takes one row.


# %% tags=["exercise"]
@triton.jit
def row_sums_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """The sum of a row of n numbers; rows lie one behind the other, and BLOCK is at least n."""
    raise NotImplementedError


def row_sums(x):
    """The sum of each row of x (N, n), float32, its rows one behind the other → (N,)."""
    num_rows, n = x.shape
    out = torch.empty(num_rows, device=x.device)
    row_sums_kernel[(num_rows,)](x, out, n, BLOCK=triton.next_power_of_2(n))
    return out


# %%
row_sums = check(row_sums)

# %% [markdown] tags=["help"]
# Where does row number p begin? And what must a lane hold that is no part of the row, so that the sum stays the same?
#
# ---
#
# `x = tl.load(x_ptr + row * n + column, column < n, other=0.0)`. The sum is one number, and `out_ptr + row` is one
# pointer: store it there.

# %% [markdown]
# ### Exercise 5 ★☆☆: a product in tiles (optional)
#
# The idea: a loop in a kernel, `for first in range(0, K, TILE):`, with a total that stays in registers and begins as
# `tl.zeros((TILE, TILE), tl.float32)`. A program owns one tile of c = a · b. Along K, it loads a tile of a and a tile
# of b, multiplies them, and adds to its total. The product of two tiles is `tl.dot(a, b, input_precision="ieee")`.
# (Without `input_precision`, a newer GPU rounds the numbers of a product before it multiplies.)

# %%
draw.draw_product(tiles=(2, 3, 3), program=(1, 2))


# %% tags=["exercise"]
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, K, N, TILE: tl.constexpr):
    """A tile, TILE × TILE, of c = a · b; a has rows of K numbers, b and c of N."""
    raise NotImplementedError


def matmul(a, b):
    """a · b, of a (M, K) and b (K, N), float32, rows one behind the other, M, K and N multiples of 16 → (M, N)."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device)
    matmul_kernel[(M // 16, N // 16)](a, b, c, K, N, TILE=16)
    return c


# %%
matmul = check(matmul)

# %% [markdown] tags=["help"]
# In step 0 the program reads columns 0 to 15 of a and rows 0 to 15 of b. Which does it read in the next step, and what
# stays the same?
#
# ---
#
# In the loop, `k = first + tl.arange(0, TILE)`; a tile of a is at `a_ptr + row[:, None] * K + k[None, :]`.

# %% [markdown]
# Each number of a was loaded once for each tile across, N / 16 times: larger tiles read less. So a product of matrices
# needs shared memory and many registers.
#
# ### Exercise 6 ★☆☆: a maximum on the way
#
# A softmax needs the maximum $m$ of its row, and the sum $l = \sum_j e^{x_j - m}$. Suppose that the row is too long for
# one block. Then $m$ is known only at the end, and it seems that the row must be read twice. It need not: when a larger
# number turns up, the sum so far is too large by one common factor:
#
# $$ e^{x_j - m_{\text{new}}} = e^{x_j - m_{\text{old}}} \cdot e^{m_{\text{old}} - m_{\text{new}}} $$
#
# The idea: a loop in a kernel, `for first in range(0, n, BLOCK):`, which updates $m$ and $l$. (`tl.max(x, axis=0)` is
# the largest lane of a block, `tl.exp(x)` its exponential.) Look at the second line under each block:

# %%
draw.draw_running_maximum(np.random.default_rng(5).standard_normal(32) + np.linspace(-2, 2, 32), block=8)


# %% tags=["exercise"]
@triton.jit
def max_and_sum_kernel(x_ptr, m_ptr, l_ptr, n, BLOCK: tl.constexpr):
    """m and l of a row of n numbers, which may be many blocks long."""
    raise NotImplementedError


def max_and_sum(x):
    """m = max_j x_j and l = Σ_j e^(x_j − m) of each row; x (N, n), float32, rows one behind the other → (N,), (N,).

    Reads each number once, in blocks of 64.
    """
    num_rows, n = x.shape
    m, l = (torch.empty(num_rows, device=x.device) for _ in range(2))
    max_and_sum_kernel[(num_rows,)](x, m, l, n, BLOCK=64)
    return m, l


# %%
max_and_sum = check(max_and_sum)

# %% [markdown] tags=["help"]
# With which m and l does the loop begin, so that the first block needs no special case? And what must a lane beyond the
# row hold, so that it is neither the maximum nor a part of the sum?
#
# ---
#
# Begin with `m, l = float("-inf"), 0.0`. In each round, first `new_m = tl.maximum(m, tl.max(x, axis=0))`; then l is
# `l * tl.exp(m - new_m)` plus the block's own terms, relative to `new_m`.

# %% [markdown]
# Lesson 16 builds attention on this puzzle.
#
# ## Softmax in one sweep
#
# A row that fits in one block, a few thousand numbers, needs no loop: a program loads it once, and the rest stays in
# registers until the store.
#
# ### Exercise 7 ★★☆: softmax of rows
#
# This time the launch is yours, and three details make it the package's kernel. x may be a slice, whose rows lie
# further apart than they are long. x may be float16, 16 bits: store it so, and compute in float32. And a
# row of all −∞, a query with nothing to attend to (lesson 04), must give zeros.

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

# %% [markdown] tags=["help"]
# What must a lane beyond the row hold, so that it changes neither the maximum nor the sum of the exponentials? And
# which two steps go wrong in a row of all −∞?
#
# ---
#
# Load with `other=float("-inf")`. Subtract `tl.maximum(tl.max(x, axis=0), LOWEST)`, which is never −∞, and divide by
# `tl.where(total == 0, 1.0, total)`. The launch is `softmax_rows_kernel[(num_rows,)](…)` with a BLOCK of
# `triton.next_power_of_2(n)`.

# %% [markdown]
# On an NVIDIA GPU a program has at least 32 threads; in a row of 20 numbers, many are idle. So the package's kernel
# takes several short rows, or one long one.
#
# ### Yours beside two others (optional)
#
# The package's version, and the NumPy reference of lesson 01:


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
# ## The backward of softmax (optional)
#
# In the same form, with several rows for each program, $\mathrm{d}x = y \circ (\mathrm{d}y - \sum_j \mathrm{d}y_j\,
# y_j)$ (lesson 01; $\circ$ multiplies number by number):


# %%
@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, num_rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)  # (R,)
    column = tl.arange(0, BLOCK)  # (B,)
    mask = (row < num_rows)[:, None] & (column < n)[None, :]
    place = row[:, None] * n + column[None, :]  # (R, B)
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
# Here `other=0` is right: a lane of zeros adds nothing to $\sum_j \mathrm{d}y_j\, y_j$. float32 is too coarse for
# central differences (lesson 00), so the kernel must agree with `ops.softmax_backward`, which was proved in float64,
# and with PyTorch's autograd:


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
# ## Layer norm: a mask that is easy to forget (optional)
#
# In lesson 07, $y = \gamma \circ \hat x + \beta$ with $\hat x = (x - \mu)\, r$ and $r = 1/\sqrt{\sigma^2 + \epsilon}$.
# Each row of x has a mean $\mu$ and a variance $\sigma^2$ of its own; all rows share the scale $\gamma$ and the shift
# $\beta$, of shape $(C,)$. The backward will need $\mu$ and $r$, so the kernel writes them too.


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
# Without the `where`, each lane beyond the row adds $\mu^2$ to the sum of squares. With a full block or a mean near
# zero it hardly shows: only a test with ragged sizes *and* shifted inputs finds this mistake.
#
# ### The backward, and a sum over all rows
#
# For a row, with $\mathrm{d}\hat x = \mathrm{d}y \circ \gamma$ (lesson 07):
#
# $$ \mathrm{d}x = r \left( \mathrm{d}\hat x - \overline{\mathrm{d}\hat x}
#    - \hat x \, \overline{\mathrm{d}\hat x \circ \hat x} \right)
#    \qquad\text{(a bar is the mean over the row)} $$
#
# That stays within a row. But the gradients of γ and β are sums over all rows, and so over all programs:
# $\mathrm{d}\gamma = \sum_{\text{rows}} \mathrm{d}y \circ \hat x$ and $\mathrm{d}\beta = \sum_{\text{rows}}
# \mathrm{d}y$. There are three ways:
#
# 1. **Each program adds to dgamma in memory**: load, add, store. This is wrong: two programs load the same old value,
#    each adds its own row, and one of the two stores is lost. In the interpreter, one program at a time, *it works*.
#    (The fence finds it all the same.)
# 2. **Atomic additions**: the memory itself adds, one addition after the other. This is right, but the order is random,
#    and sums of floats depend on their order:

# %%
terms = rng.standard_normal(1000).astype(np.float32)


def sum_in_order(terms):
    return np.cumsum(terms, dtype=np.float32)[-1]  # one addition after the other


sums = {sum_in_order(rng.permutation(terms)) for _ in range(200)}
print(f"the same 1000 numbers, added in 200 orders: {len(sums)} different sums, {max(sums) - min(sums):.0e} apart")

# %% [markdown]
#    A training run that does not repeat to the last bit cannot be debugged by running it again.
#
# 3. **Partial sums.** Of $P$ programs, program $p$ takes the rows $p$, $p + P$, $p + 2P$, …, keeps its sum in
#    registers, and in the end writes it to a row of its own. A second, small sum adds up these rows, always in the same
#    order.

# %%
draw.draw_partial_sums(owner=np.arange(7) % 3, terms=rng.integers(-9, 10, (7, 5)))

# %% [markdown]
# ### Exercise 8 ★★★: layer norm's backward, with partial sums (optional)
#
# A loop over rows inside a kernel is `for row in range(tl.program_id(0), num_rows, tl.num_programs(0))`. The final sum
# over programs may be PyTorch's.


# %% tags=["exercise"]
@triton.jit
def layernorm_backward_kernel(
    dy_ptr, x_ptr, gamma_ptr, mean_ptr, rstd_ptr, dx_ptr, dgamma_ptr, dbeta_ptr, num_rows, n, BLOCK: tl.constexpr
):
    """Some rows of dx, and this program's row of dgamma's and dbeta's partial sums, (programs, n)."""
    raise NotImplementedError


def layernorm_backward_rows(dy, x, gamma, mean, rstd, programs):
    """Gradients of y = gamma · normed + beta, normed = (x − mean) · rstd, mean and rstd those of each row.

    dy and x (N, n), gamma (n,), mean and rstd (N,): float32 and contiguous → the tuple dx (N, n), dgamma (n,),
    dbeta (n,), float32 too. Launches the kernel above once with `programs` programs, also where that is more than there
    are rows; it loads each number of dy and x once, stores each of dx once, and uses no atomics.
    """
    raise NotImplementedError


# %%
layernorm_backward_rows = check(layernorm_backward_rows)

# %% [markdown] tags=["help"]
# What must a program remember from one row to the next, and what does it load anew for each? And where do lanes beyond
# the row hold something that is not 0: in dy, in x, in `normed`?
#
# ---
#
# Before the loop: gamma, and two blocks of `tl.zeros((BLOCK,), tl.float32)` for the sums. In the loop
# `normed = tl.where(mask, (x - mean) * rstd, 0.0)`; means are `tl.sum(…, axis=0) / n`. After the loop, store the sums
# at `dgamma_ptr + tl.program_id(0) * n + column`. On the host, the side of the program that
# launches kernels, they are two arrays of (programs, n).


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
# ## Bytes moved (optional)
#
# `bytes_moved.of_operations` watches PyTorch's operations: each reads its arguments from memory and writes its result.
# `bytes_moved.of_kernels` watches the interpreter's loads and stores, lane by lane, without the short γ and β, which
# stay in the caches. The unit is a **pass**: as many bytes as the array has. "PyTorch's operations" are the formula put
# together from small ones (PyTorch's own `softmax` and `layer_norm` are fused kernels, too), "two sweeps" kernels for
# rows too long for one block, which they read twice.

# %%
ROWS, WIDTH = 256, 512


def layernorm_backward_operations(dy, x, gamma, mean, rstd):
    """As the formulas stand, in PyTorch's operations."""
    n = (x - mean[:, None]) * rstd[:, None]
    dn = dy * gamma
    dx = rstd[:, None] * (dn - dn.mean(-1, keepdim=True) - n * (dn * n).mean(-1, keepdim=True))
    return dx, (dy * n).sum(0), dy.sum(0)


def count_passes():
    from kernels.norms.layernorm import layernorm_naive, layernorm_sweeps
    from kernels.softmax import softmax_naive, softmax_online

    x, other, y, dy = (tensor(rng.standard_normal((ROWS, WIDTH))) for _ in range(4))
    gamma, beta = torch.ones_like(x[0]), torch.zeros_like(x[0])
    _, mean, rstd = layernorm(x, gamma, beta)
    _, cache = kernels.layernorm_forward(x, gamma, beta)
    ways = [  # what, how, PyTorch's operations, Triton's kernels
        ("softmax", "PyTorch's operations", lambda: softmax_naive(x), None),
        ("softmax", "two sweeps over a row", None, lambda: softmax_online(x)),
        ("softmax", "yours, one sweep", None, lambda: softmax_rows(x)),
        ("softmax's backward", "PyTorch's operations", lambda: y * (dy - (dy * y).sum(-1, keepdim=True)), None),
        ("softmax's backward", "the kernel above", None, lambda: softmax_backward(dy, y)),
        ("layer norm", "PyTorch's operations", lambda: layernorm_naive(x, gamma, beta), None),
        ("layer norm", "two sweeps over a row", None, lambda: layernorm_sweeps(x, gamma, beta)),
        ("layer norm", "the kernel above", None, lambda: layernorm(x, gamma, beta)),
        ("layer norm's backward", "PyTorch's operations",
         lambda: layernorm_backward_operations(dy, x, gamma, mean, rstd), None),
        ("layer norm's backward", "one kernel, partial sums", None, lambda: kernels.layernorm_backward(dy, cache)),
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
draw.draw_traffic(counted)

# %% [markdown]
# In one sweep a softmax moves two passes, as little as a copy. The backward of layer norm gains most, because every
# intermediate array of the formulas has become a register. The last pair shows **fusion**: the sum of the residual
# connection is never written, because the kernel that normalises it makes it in its registers.
#
# For the paper's batch, if memory were the only limit:

# %%
array = 4 * tokens * width
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
# ## Number formats (optional)
#
# The second way to move fewer bytes is shorter numbers. A float is a sign, an exponent and a fraction:
#
# $$ x = \pm\, 1.f_1 f_2 \dots f_m \times 2^{E} $$
#
# The $m$ bits $f_1 \dots f_m$ of the **fraction** set the distance of neighbours: $2^{-m}$ between 1 and 2, twice that
# between 2 and 4, and so on. The bits of the **exponent** $E$ set the largest and the smallest number. The 1 before the
# point is not stored. Four formats matter here:

# %%
formats = {"float32": (8, 23), "tf32": (8, 10), "bfloat16": (8, 7), "float16": (5, 10)}  # exponent, fraction
for name, (exponent, fraction) in formats.items():
    largest = (2 - 2.0**-fraction) * 2.0 ** (2 ** (exponent - 1) - 1)
    smallest = 2.0 ** (2 - 2 ** (exponent - 1))
    print(f"{name:<9} after 1 comes 1 + {2.0**-fraction:.1e}   largest {largest:.1e}   smallest normal {smallest:.1e}")

# %% [markdown]
# bfloat16 is float32 without the last 16 bits of its fraction: the same range, with two or three digits. float16 has
# three more bits of fraction, and a smaller range. No array is stored in tf32: on an A100 and later, tensor cores
# shorten the float32 *inputs* of a product to it.
#
# ### Exercise 9 ★★☆: round
#
# NumPy has float16, but neither bfloat16 nor tf32. Make them. Take a number apart into its fraction and its exponent,
# round the fraction to the given number of bits, and put it together again. `np.frexp`, `np.rint` and `np.ldexp` are
# made for that; or work on the bits, with `x.view(np.uint32)`.


# %% tags=["exercise"]
def round_to(x, bits):
    """The nearest float with `bits` bits of fraction, and float32's exponents; a tie goes to the even neighbour.

    x: float32, any shape, neither infinite nor subnormal, perhaps 0; bits from 1 to 22 → float32 of x's shape.
    """
    raise NotImplementedError


# %%
round_to = check(round_to)

# %% [markdown] tags=["help"]
# How would you round 314.159 to three digits, if all that you had was a function that rounds to whole numbers?
#
# ---
#
# `fraction, exponent = np.frexp(x)` gives x = fraction · 2^exponent, where |fraction| is at least ½ and below 1. So the
# 1 that is not stored is its first bit: multiply by 2^(bits + 1), round, and divide again.

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
draw.draw_formats(formats, size, {name: np.abs(r / exact - 1).max(axis=1).clip(max=1) for name, r in rounded.items()})

# %% [markdown]
# Three curves are flat: the relative error is the same for every size. float16's is a valley with walls. To the right
# it overflows to infinity. To the left its smallest numbers are equally far apart, so the relative error grows until
# they become 0, and small gradients get lost. So training in float16 multiplies the loss by a large number first and
# divides the gradients by it afterwards ("loss scaling"). bfloat16 does not need that.
#
# ### Store short, add long
#
# A short number is good enough to *store*, but not to keep a *sum*. Count to ten thousand by adding ones:

# %%


def count_up(to, bits):
    """1 + 1 + 1 + …, `to` times, in a format with so many bits of fraction."""
    total = np.zeros(1, np.float32)
    for _ in range(to):
        total = round_to(total + np.float32(1), bits)
    return total[0]


print(f"ten thousand ones: {count_up(10_000, 10):.0f} with 10 bits of fraction, {count_up(10_000, 7):.0f} with 7")

# %% [markdown]
# At $2^{m+1}$ the neighbours are 2 apart. Adding 1 lands half-way between two of them, the tie goes to the even one,
# and the sum stops growing. So tensor cores take short numbers and add in float32, and so does every kernel here. In a
# product of matrices:

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
# (In Triton's interpreter bfloat16 comes out wrong, and tf32 is computed as float32; a T4 has neither. So the course's
# kernels are checked in float32 and in float16.)
#
# ## Common mistakes, and what they look like
#
# * **A store without its mask** writes over the numbers behind the array, without an error.
# * **`other=0` before a maximum, or before an exponential**: lanes beyond the row change the result.
# * **A block whose length is no power of two** is refused. Take `triton.next_power_of_2(n)` and a mask.
# * **An address that does not fit 32 bits**: `row * n` with two int32 wraps around beyond 2³¹. The package's kernels
#   write `row.to(tl.int64) * stride`.
# * **Trusting the interpreter too far.** It shows the mistakes of one program but, without the fence, not how programs
#   disturb each other.
# * **Sums kept in float16** show only as a model that is a little inexact.
# * **`TRITON_INTERPRET` set after triton was imported** is too late for Triton's helpers, such as `tl.sum`: "Cannot
#   call @triton.jit'd outside of the scope of a kernel". Set it first, as `course.gpu` does.
#
# ### The mistakes, run (optional)
#
# A store without its mask; around y is a larger array of sevens:


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
# `other=0`: the scores are all below zero, the maximum of the row becomes 0, and lanes beyond the row weigh the most:


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
# A block of five:


# %%
def refused():
    try:
        careless_kernel[(1,)](tensor(np.zeros(16)), 5, BLOCK=5)
    except Exception as problem:
        return str(problem).strip().splitlines()[-1]
    return "accepted"


print(recorded("15_refused", refused))

# %% [markdown]
# An address in 32 bits. It takes an array of eight gigabytes in float32 to see it, as a crash, or as numbers of another
# array:

# %%
row, n = np.array([70_000], np.int32), np.array([40_000], np.int32)
print(f"row 70,000 of rows of 40,000 begins at {(row.astype(np.int64) * n)[0]:,}; in int32: {(row * n)[0]:,}")

# %% [markdown]
# A race: 100 programs load one number, add to it and store it. On a GPU, many of the additions are lost. Here:


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
# ## What changed since 2017
#
# The paper's GPUs had no tensor cores. The V100's came in 2017 with float16, the A100 brought tf32 and bfloat16 in
# 2020, and the H100 8-bit floats in 2022. Such kernels were written in CUDA then; Triton (Tillet, Kung and Cox, 2019)
# works with blocks instead of threads. Since PyTorch 2 (2023) `torch.compile` writes kernels for rows by itself. It
# does not invent the next lesson's algorithm.
#
# ## Where next
#
# [Lesson 16](16_flash_attention.ipynb): attention's scores are the largest arrays of all. With puzzle 6 they, too,
# never need to touch memory.
