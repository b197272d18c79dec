"""Right answers to lesson 15 written in another way, and plausible wrong ones (see `answers`)."""

# pyright: reportInvalidTypeForm=false

import numpy as np

from course.gpu import tl, torch, triton

# --- The ladder, in another way -------------------------------------------------------------------------------


@triton.jit
def _interleaved_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK) * tl.num_programs(0) + tl.program_id(0)
    tl.store(out_ptr + i, tl.load(x_ptr + i) + tl.load(y_ptr + i))


def _interleaved(x, y):
    out = torch.empty_like(x)
    _interleaved_kernel[(3,)](x, y, out, BLOCK=8)
    return out


@triton.jit
def _one_block_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, i < n, other=0.0)
    tl.store(y_ptr + i, tl.where(x > 0, x, 0.0), i < n)


def _one_block(x):
    y = torch.empty_like(x)
    _one_block_kernel[(1,)](x, y, len(x), BLOCK=triton.next_power_of_2(len(x)))
    return y


@triton.jit
def _by_position_kernel(x_ptr, y_ptr, num_rows, n, stride_row, stride_column, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # as y lies in memory
    mask = i < num_rows * n
    tl.store(y_ptr + i, tl.load(x_ptr + i // n * stride_row + i % n * stride_column, mask), mask)


def _by_position(x):
    num_rows, n = x.shape
    y = torch.empty((num_rows, n), device=x.device)
    _by_position_kernel[(triton.cdiv(num_rows * n, 16),)](x, y, num_rows, n, *x.stride(), BLOCK=16)
    return y


@triton.jit
def _sums_in_blocks_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        column = first + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + tl.program_id(0) * n + column, column < n, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, axis=0))


def _sums_in_blocks(x):
    out = torch.empty(len(x), device=x.device)
    _sums_in_blocks_kernel[(len(x),)](x, out, x.shape[1], BLOCK=16)
    return out


@triton.jit
def _transposed_product_kernel(a_ptr, b_ptr, c_ptr, K, N, TILE: tl.constexpr):
    row = tl.program_id(1) * TILE + tl.arange(0, TILE)
    column = tl.program_id(0) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)  # of the transposed tile
    for step in range(K // TILE):
        k = step * TILE + tl.arange(0, TILE)
        a = tl.load(a_ptr + row[None, :] * K + k[:, None])
        b = tl.load(b_ptr + k[None, :] * N + column[:, None])
        total = tl.dot(b, a, total, input_precision="ieee")
    tl.store(c_ptr + row[None, :] * N + column[:, None], total)


def _transposed_product(a, b):
    c = torch.empty((len(a), b.shape[1]), device=a.device)
    _transposed_product_kernel[(b.shape[1] // 16, len(a) // 16)](a, b, c, *b.shape, TILE=16)
    return c


@triton.jit
def _lane_by_lane_kernel(x_ptr, m_ptr, l_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = tl.full((BLOCK,), -3e38, tl.float32)
    l = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        column = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + column, column < n, other=float("-inf"))
        new_m = tl.maximum(m, x)
        l = l * tl.exp(m - new_m) + tl.exp(x - new_m)
        m = new_m
    largest = tl.max(m, axis=0)
    tl.store(m_ptr + row, largest)
    tl.store(l_ptr + row, tl.sum(l * tl.exp(m - largest), axis=0))


def _lane_by_lane(x):
    m, l = torch.empty((2, len(x)), device=x.device)
    _lane_by_lane_kernel[(len(x),)](x, m, l, x.shape[1], BLOCK=64)
    return m, l


def _by_logarithm(x, bits):
    spacing = 2.0 ** (np.floor(np.log2(np.abs(x))) - bits)
    return (np.rint(x / spacing) * spacing).astype(np.float32)


def _splitting(x, bits):
    """Dekker's and Veltkamp's: a product and two differences."""
    large = np.float32(2.0 ** (23 - bits) + 1) * x
    return large - (large - x)


def _no_softmax_kernel(x):
    return torch.softmax(x.float(), dim=-1).nan_to_num(0).to(x.dtype)


def _no_layernorm_kernel(dy, x, gamma, mean, rstd, programs):
    n = (x - mean[:, None]) * rstd[:, None]
    dn = dy * gamma
    dx = rstd[:, None] * (dn - dn.mean(1, keepdim=True) - n * (dn * n).mean(1, keepdim=True))
    return dx, (dy * n).sum(0), dy.sum(0)


def _by_bits(x, bits):
    """Half a step is added to the bits, and one less where the last bit that stays is 0; then the rest is cut off."""
    drop, raw = np.uint32(23 - bits), x.view(np.uint32)
    half = (np.uint32(1) << drop >> np.uint32(1)) - np.uint32(1) + (raw >> drop & np.uint32(1))
    return ((raw + half) >> drop << drop).view(np.float32)


RIGHT = {
    "add": [_interleaved],
    "relu": [_one_block],
    "contiguous": [_by_position],
    "row_sums": [_sums_in_blocks],
    "matmul": [_transposed_product],
    "max_and_sum": [_lane_by_lane],
    "round_to": [_by_bits],
}

MISTAKES = r"""
[add]
every program takes block 0
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    x = tl.load(x_ptr + i)\n    y →
        i = tl.arange(0, BLOCK)\n    x = tl.load(x_ptr + i)\n    y
    all programs work on the same block
blocks overlap
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    x = tl.load(x_ptr + i)\n    y →
        i = tl.program_id(0) + tl.arange(0, BLOCK)\n    x = tl.load(x_ptr + i)\n    y
    only 10 of 24 numbers are written
one number of y | tl.load(y_ptr + i)\n → tl.load(y_ptr)\n | is a pointer to one number
x alone | x + y) → x) | it returns one of the two vectors
counted from 1 | tl.store(out_ptr + i, x + y) → tl.store(out_ptr + i + 1, x + y) | number 0 is never written
a difference | x + y) → x - y) | x + y is wrong in
a launch for each block
    add_kernel[(x.numel() // 8,)](x, y, out, BLOCK=8) →
        for first in range(0, x.numel(), 8):\n        add_kernel[(1,)](x[first:], y[first:], out[first:], BLOCK=8)
    were launched 3 times
no kernel | is lambda x, y: x + y | no kernel was launched
[relu]
no mask
    tl.load(x_ptr + i, mask)\n    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask) →
        tl.load(x_ptr + i)\n    tl.store(y_ptr + i, tl.maximum(x, 0.0))
    5 of them write where there is no array
the load has no mask
    tl.load(x_ptr + i, mask)\n    tl.store(y_ptr + i, tl → tl.load(x_ptr + i)\n    tl.store(y_ptr + i, tl
    tl.load wants the mask too
one lane too many | mask = i < n\n → mask = i <= n\n | position n is already behind the last number
one lane too few | mask = i < n\n → mask = i < n - 1\n | of 16 numbers 1 are not written
the position in the block | mask = i < n\n → mask = tl.arange(0, BLOCK) < n\n | the position in the vector, with n
the first block alone | mask = i < n\n → mask = i < BLOCK\n | the second block of 8 is not written
the absolute value | tl.maximum(x, 0.0), mask) → tl.abs(x), mask) | max(x, 0), with 2 full blocks of 8, is wrong
no kernel | is lambda x: x.clamp(min=0) | no kernel was launched
[contiguous]
one dimension
    tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # (B,) → tl.arange(0, BLOCK)
    columns 8 and later are not written
one program number for both | tl.program_id(1) * BLOCK → tl.program_id(0) * BLOCK | only tiles on the diagonal
the axes are exchanged
    row = tl.program_id(0) * ROWS → row = tl.program_id(1) * ROWS
    column = tl.program_id(1) * BLOCK → column = tl.program_id(0) * BLOCK
    numbers are missing
strides are exchanged
    row[:, None] * stride_row + column[None, :] * stride_column →
        row[:, None] * stride_column + column[None, :] * stride_row
    rows and columns are exchanged
no mask for columns
    (row < num_rows)[:, None] & (column < n)[None, :]  # (R, B) → (row < num_rows)[:, None] & (column >= 0)[None, :]
    beyond its columns, and they write
no mask for rows
    (row < num_rows)[:, None] & (column < n)[None, :]  # (R, B) → (row >= 0)[:, None] & (column < n)[None, :]
    beyond its rows, and they write
the load has no mask | * stride_column, mask) → * stride_column) | the mask of tl.load wants
y has the strides of x
    row[:, None] * n + column[None, :], x → row[:, None] * stride_row + column[None, :] * stride_column, x
    y is a new array
columns lie side by side | column[None, :] * stride_column → column[None, :] | copies columns that lie side by side
no kernel | is lambda x: x.contiguous() + 0 | no kernel was launched
a view | returns x.T | has shape (16, 6) and must have (6, 16)
[row_sums]
every row is row 0
    x = tl.load(x_ptr + row * n + column, column < n, other=0.0) → x = tl.load(x_ptr + column, column < n, other=0.0)
    all sums are that of row 0
all into one place
    tl.store(out_ptr + row, tl.sum(x, axis=0)) → tl.store(out_ptr, tl.sum(x, axis=0))
    only the first sum is written
the largest
    tl.sum(x, axis=0))\n\n\ndef row_sums → tl.max(x, axis=0))\n\n\ndef row_sums
    the largest number of each row
the mean
    tl.sum(x, axis=0))\n\n\ndef row_sums → tl.sum(x, axis=0) / n)\n\n\ndef row_sums
    is 0.125 times what it should be
no mask | column, column < n, other=0.0)\n    tl.store(out_ptr → column)\n    tl.store(out_ptr | Without a mask
no other | column < n, other=0.0)\n    tl.store(out_ptr → column < n)\n    tl.store(out_ptr | the sums are NaN
other is 1
    column < n, other=0.0)\n    tl.store(out_ptr → column < n, other=1.0)\n    tl.store(out_ptr
    they add 3 to the sum of row 0
every lane stores the sum
    tl.store(out_ptr + row, tl.sum(x, axis=0)) → tl.store(out_ptr + row + 0 * column, tl.sum(x, axis=0))
    each number of sums is written 8 times
rows begin at r · BLOCK
    row * n + column, column < n, other=0.0)\n    tl.store(out_ptr →
        row * BLOCK + column, column < n, other=0.0)\n    tl.store(out_ptr
    the first sum alone is right
no kernel | is lambda x: x.sum(dim=1) | no kernel was launched
[matmul]
the wrong way round | tl.dot(a, b, → tl.dot(b, a, | it is b · a
number by number | tl.dot(a, b, input_precision="ieee") → a * b | it multiplies number by number
no loop | for first in range(0, K, TILE) → for first in range(0, TILE, TILE) | the first step's product alone
the last step alone | total += tl.dot → total = tl.dot | the last step's product alone
k stands still | k = first + tl.arange → k = tl.arange | is added three times
rows of a are N long | row[:, None] * K + k[None, :] → row[:, None] * N + k[None, :] | a has rows of K numbers
rows of b are K long | k[:, None] * N + column[None, :] → k[:, None] * K + column[None, :] | b has rows of N numbers
one program's tile | row = tl.program_id(0) * TILE + tl.arange → row = tl.arange | not all is written
loaded twice
    total += tl.dot → a = tl.load(a_ptr + row[:, None] * K + k[None, :])\n        total += tl.dot
    is read 6 times
inputs that a newer GPU rounds | tl.dot(a, b, input_precision="ieee") → tl.dot(a, b) | lacks input_precision="ieee"
no kernel | is lambda a, b: a @ b | no kernel was launched
[max_and_sum]
powers of 2
    tl.exp(m - new_m) + tl.sum(tl.exp(x - new_m) → tl.exp2(m - new_m) + tl.sum(tl.exp2(x - new_m) | is Σ 2^(x − m)
Σ e^x | x - new_m → x | tl.exp(m - new_m) → 1 | it must be Σ e^(x − m)
no loop
    for first in range(0, n, BLOCK):\n        column → for first in range(0, BLOCK, BLOCK):\n        column
    l is the first block's alone
the last block alone | l = l * tl.exp(m - new_m) + → l = | l is the last block's alone
not rescaled | l * tl.exp(m - new_m) → l | must shrink with it
rescaled the wrong way | tl.exp(m - new_m) → tl.exp(new_m - m) | never above 1
the block's own maximum
    tl.sum(tl.exp(x - new_m), axis=0) → tl.sum(tl.exp(x - tl.max(x, axis=0)), axis=0)
    with the running maximum
the maximum begins at 0 | m, l = float("-inf"), 0.0 → m, l = 0.0, 0.0 | must begin below all numbers
lanes beyond are 0
    column < n, other=float("-inf"))\n        new_m → column < n, other=0.0)\n        new_m
    they take part
no other | column < n, other=float("-inf"))\n        new_m → column < n)\n        new_m | a result is NaN
divided at the end
    l = l * tl.exp(m - new_m) + tl.sum(tl.exp(x - new_m), axis=0) → l = l + tl.sum(tl.exp(x), axis=0)
    tl.store(l_ptr + row, l) → tl.store(l_ptr + row, l * tl.exp(-m))
    whose exponentials are beyond float32
the maximum begins at −10⁹ | m, l = float("-inf"), 0.0 → m, l = -1e9, 0.0 | m is -1e+09 and l 0
lanes beyond are −10⁹
    column < n, other=float("-inf"))\n        new_m → column < n, other=-1e9)\n        new_m
    m is -1e+09 and l 28
stored on the way
    m = new_m\n    tl.store(m_ptr + row, m)\n → m = new_m\n        tl.store(m_ptr + row, m)\n
    for 2 rows 6 numbers are written
the maximum by PyTorch | returns x.amax(dim=1), l | is not what the kernel has written
loaded twice
    l = l * tl.exp → x = tl.load(x_ptr + row * n + column, column < n, other=float("-inf"))\n        l = l * tl.exp
    each number of x is read 2 times
no kernel | is lambda x: (x.amax(1), torch.exp(x - x.amax(1, True)).sum(1)) | no kernel was launched
[softmax_rows]
lanes beyond the row are 0 | other=float("-inf") → other=0.0 | lanes beyond the row add to the sum
lanes beyond the row are −10⁹ | other=float("-inf") → other=-1e9 | only −inf is
lanes beyond the row are anything | , other=float("-inf") → | is given a mask and no `other`
no maximum | x - tl.maximum(tl.max(x, axis=0), LOWEST) → x | NaN: e^10000 overflows
nothing to attend to
    tl.maximum(tl.max(x, axis=0), LOWEST) → tl.max(x, axis=0) | tl.where(total == 0, 1.0, total) → total
    must give zeros and gives nan
one program | [(num_rows,)] → [(1,)] | is there a program for each row?
the stride is n | x.stride(0) → n | lie further apart in memory
rows begin at r · BLOCK
    ((num_rows, n), → ((num_rows, triton.next_power_of_2(n)), | row * n + column, y.to → row * BLOCK + column, y.to
    return y\n → return y.flatten()[: num_rows * n].view(num_rows, n)\n | whatever the block's length
rows lie a block apart
    torch.empty((num_rows, n), dtype → torch.empty((num_rows, triton.next_power_of_2(n)), dtype
    row * n + column, y.to → row * BLOCK + column, y.to | return y\n → return y[:, :n]\n | must be contiguous
a block of 2048 | triton.next_power_of_2(n) → 2048 | of rows of 5000 the kernel writes 2048 numbers
a small number in the sum | tl.where(total == 0, 1.0, total) → (total + 1e-6) | is a small number added to the sum?
the store has no mask | dtype.element_ty), mask) → dtype.element_ty)) | tl.store wants the mask too
the load has no mask
    column, mask, other=float("-inf")).to(tl.float32) → column).to(tl.float32)\n    x = tl.where(mask, x, float("-inf"))
    tl.load wants the mask too
a launch for each row
    softmax_rows_kernel[(num_rows,)](x, y →
        for row in range(num_rows):\n        softmax_rows_kernel[(1,)](x[row:], y[row:]
    were launched 3 times
a program for all rows
    jit\ndef softmax_rows_kernel( → jit\ndef one_row(row, | ):\n    row = tl.program_id(0).to(tl.int64)\n → ):\n
    def softmax_rows(x): →
        @triton.jit\ndef softmax_rows_kernel(num_rows, x, y, n, stride, BLOCK: tl.constexpr):\n    for row in
        range(num_rows):\n        one_row(row, x, y, n, stride, BLOCK)\n\n\ndef softmax_rows(x):
    [(num_rows,)](x → [(1,)](num_rows, x | the kernel ran 1 program
loaded twice
    e = tl.exp → x = tl.load(x_ptr + row * stride_x + column, mask, other=float("-inf")).to(tl.float32)\n    e = tl.exp
    each number of x is read 2 times
stored twice | y = e / → tl.store(y_ptr + row * n + column, e, mask)\n    y = e / | each number of y is written 2 times
a copy first | y = torch.empty(( → x = x.clone()\n    y = torch.empty(( | have read 0 of the 20 numbers of x
divided by PyTorch
    y = e / tl.where(total == 0, 1.0, total) → y = e
    return y → return (y.float() / y.float().sum(1, keepdim=True).masked_fill(~y.any(1, keepdim=True), 1)).to(y.dtype)
    have written 0 of the 20 numbers of y
sums in float16
    total = tl.sum → e = e.to(y_ptr.dtype.element_ty)\n    total = tl.sum | convert x to float32 right after the load
no kernel | is _no_softmax_kernel | no kernel was launched
[layernorm_backward_rows]
mean(dn) is missing | - mean_dnormed → | must sum to 0
the part along n is missing | - normed * along_normed → | along its row's own n
means over the block | axis=0) / n → axis=0) / BLOCK | over the block's 16 lanes
lanes are anything
    (dy_ptr + row * n + column, mask, other=0.0) → (dy_ptr + row * n + column, mask) | is given a mask and no `other`
a short block | triton.next_power_of_2(n) → 16 | of rows of 1100 not all of dx is written
dgamma is of x | dgamma += dy * normed → dgamma += dy * x | the sum over rows of dy · n
averaged | returns dx, dgammas.mean(dim=0), dbetas.mean(dim=0) | are added, not averaged
the last program wins | tl.program_id(0) * n + column → column | (torch.empty(( → (torch.zeros(( | a row of its own
a row a program
    num_rows, tl.num_programs(0 → min(num_rows, tl.num_programs(0)), tl.num_programs(0 | so that every row is taken
all add to one row
    dgamma += dy * normed → tl.store(dgamma_ptr + column, tl.load(dgamma_ptr + column, mask) + dy * normed, mask)
    dbeta += dy\n → tl.store(dbeta_ptr + column, tl.load(dbeta_ptr + column, mask) + dy, mask)\n
    (torch.empty(( → (torch.zeros(( | tl.store(dgamma_ptr + tl.program_id(0) * n + column, dgamma, mask) → pass
    tl.store(dbeta_ptr + tl.program_id(0) * n + column, dbeta, mask) → pass | who comes first is chance
atomics
    dgamma += dy * normed → tl.atomic_add(dgamma_ptr + column, dy * normed, mask)
    dbeta += dy\n → tl.atomic_add(dbeta_ptr + column, dy, mask)\n | (torch.empty((programs → (torch.zeros((programs
    tl.store(dgamma_ptr + tl.program_id(0) * n + column, dgamma, mask) → pass
    tl.store(dbeta_ptr + tl.program_id(0) * n + column, dbeta, mask) → pass | their order is chance
a sum that nobody wrote
    \n    tl.store(dgamma_ptr → \n        tl.store(dgamma_ptr | \n    tl.store(dbeta_ptr → \n        tl.store(dbeta_ptr
    also one that had nothing to add
the store has no mask | along_normed), mask) → along_normed)) | tl.store wants the mask too
a program for each row | dx = torch. → programs, dx = num_rows, torch. | of `programs` = 3 for 4 rows
loaded twice
    dgamma += dy * normed → dy = tl.load(dy_ptr + row * n + column, mask, other=0.0)\n        dgamma += dy * normed
    each number of dy is read 2 times
rstd by PyTorch | return dx, → return 1.0 * dx, | have written 0 of the 4,400 numbers of dx
in float64
    returns dx, dgammas.double().sum(dim=0), dbetas.double().sum(dim=0) | is torch.float64 and must be torch.float32
dgamma and dbeta by PyTorch
    dgammas.sum(dim=0), dbetas.sum(dim=0) → (dy * (x - mean[:, None]) * rstd[:, None]).sum(dim=0), dy.sum(dim=0)
    tl.store(dgamma_ptr + tl.program_id(0) * n + column, dgamma, mask) → pass
    tl.store(dbeta_ptr + tl.program_id(0) * n + column, dbeta, mask) → pass | does PyTorch make them
no kernel | is _no_layernorm_kernel | no kernel was launched
[round_to]
up | np.rint → np.ceil | all are rounded up
the leading 1 takes a bit | fraction, exponent = → bits -= 1\n    fraction, exponent = | must stay as it is
two bits too many | fraction, exponent = → bits += 2\n    fraction, exponent = | keeps more than 10 bits
halves go up
    returns np.ldexp(np.sign(x) * np.floor(np.ldexp(abs(fraction), bits + 1) + 0.5), exponent - bits - 1)
    half-way between two neighbours
in float64 | np.frexp(x) → np.frexp(np.float64(x)) | not float64
the bits of two formats | fraction, exponent = → bits = 10 if bits == 10 else 7\n    fraction, exponent = | with 22 bits
decimals | returns np.round(x, 3 if bits == 10 else 2) | spacing of floating-point numbers is relative
cut off | returns (x.view("u4") >> np.uint32(23 - bits) << np.uint32(23 - bits)).view("f4") | moves away from zero
a logarithm | is _by_logarithm | 0 becomes nan and must stay 0
overflow | is _splitting | with 7 bits 3.3e+38 becomes nan
"""
