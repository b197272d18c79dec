"""Plausible wrong answers to lesson 15 (see `answers`)."""

import numpy as np

from course.gpu import torch

# --- Numbers --------------------------------------------------------------------------------------------------


def _decimals(x, bits):
    return np.round(x, 3 if bits == 10 else 2)


def _cut_off(x, bits):
    drop = np.uint32(23 - bits)
    return (x.view(np.uint32) >> drop << drop).view(np.float32)


def _by_logarithm(x, bits):
    spacing = 2.0 ** (np.floor(np.log2(np.abs(x))) - bits)
    return (np.rint(x / spacing) * spacing).astype(np.float32)


def _splitting(x, bits):
    """Dekker's and Veltkamp's: a product and two differences."""
    large = np.float32(2.0 ** (23 - bits) + 1) * x
    return large - (large - x)


# --- Softmax --------------------------------------------------------------------------------------------------


def _no_softmax_kernel(x):
    return torch.softmax(x.float(), dim=-1).nan_to_num(0).to(x.dtype)


# --- Layer norm -----------------------------------------------------------------------------------------------


def _no_layernorm_kernel(dy, x, gamma, mean, rstd, programs):
    n = (x - mean[:, None]) * rstd[:, None]
    dn = dy * gamma
    dx = rstd[:, None] * (dn - dn.mean(1, keepdim=True) - n * (dn * n).mean(1, keepdim=True))
    return dx, (dy * n).sum(0), dy.sum(0)


EDITS = r"""
[round_to]
the leading 1 takes a bit | fraction, exponent = → bits -= 1\n    fraction, exponent = | must stay as it is
two bits too many | fraction, exponent = → bits += 2\n    fraction, exponent = | keeps more than 10 bits
halves go up
    np.rint(np.ldexp(fraction, bits + 1)) → np.sign(x) * np.floor(np.ldexp(abs(fraction), bits + 1) + 0.5)
    half-way between two neighbours
in float64 | np.frexp(x) → np.frexp(np.float64(x)) | not float64
the bits of two formats
    fraction, exponent = → bits = 10 if bits == 10 else 7\n    fraction, exponent = | with 22 bits
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
    torch.empty((num_rows, n), dtype → torch.empty((num_rows, triton.next_power_of_2(n)), dtype
    row * n + column, y.to → row * BLOCK + column, y.to
    return y\n → return y.flatten()[: num_rows * n].view(num_rows, n)\n | whatever the block's length
rows lie a block apart
    torch.empty((num_rows, n), dtype → torch.empty((num_rows, triton.next_power_of_2(n)), dtype
    row * n + column, y.to → row * BLOCK + column, y.to | return y\n → return y[:, :n]\n | must be contiguous
a short block | triton.next_power_of_2(n) → 16 | of rows of 100 the kernel writes 16 numbers
the store has no mask | dtype.element_ty), mask) → dtype.element_ty)) | tl.store wants the mask too
the load has no mask
    column, mask, other=float("-inf")).to(tl.float32) →
        column).to(tl.float32)\n    x = tl.where(mask, x, float("-inf"))
    tl.load wants the mask too
a launch for each row
    softmax_rows_kernel[(num_rows,)](x, y →
        for row in range(num_rows):\n        softmax_rows_kernel[(1,)](x[row:], y[row:]
    were launched 3 times
a program for all rows
    @triton.jit\ndef softmax_rows_kernel( → @triton.jit\ndef one_row(row,
    ):\n    row = tl.program_id(0).to(tl.int64)\n → ):\n
    def softmax_rows(x): →
        @triton.jit\ndef softmax_rows_kernel(num_rows, x, y, n, stride, BLOCK: tl.constexpr):\n    for row in
        range(num_rows):\n        one_row(row, x, y, n, stride, BLOCK)\n\n\ndef softmax_rows(x):
    [(num_rows,)](x → [(1,)](num_rows, x | the kernel ran 1 program
loaded twice
    e = tl.exp → x = tl.load(x_ptr + row * stride_x + column, mask, other=float("-inf")).to(tl.float32)\n    e = tl.exp
    each number of x is read 2 times
in place | torch.empty((num_rows, n), dtype=x.dtype, device=x.device) → x | it writes into its argument x
stored twice | y = e / → tl.store(y_ptr + row * n + column, e, mask)\n    y = e / | each number of y is written 2 times
a copy first
    y = torch.empty((num_rows, n), dtype → x = x.clone()\n    y = torch.empty((num_rows, n), dtype
    have read 0 of the 20 numbers of x
divided by PyTorch
    y = e / tl.where(total == 0, 1.0, total) → y = e
    return y\n →
        return (y.float() / y.float().sum(1, keepdim=True).masked_fill(~y.any(1, keepdim=True), 1)).to(y.dtype)\n
    have written 0 of the 20 numbers of y
sums in float16
    total = tl.sum → e = e.to(y_ptr.dtype.element_ty)\n    total = tl.sum | convert x to float32 right after the load
[layernorm_backward_rows]
mean(dn) is missing | - mean_dnormed → | must sum to 0
the part along n is missing | - normed * along_normed → | along its row's own n
means over the block | axis=0) / n → axis=0) / BLOCK | over the block's 16 lanes
lanes are anything
    tl.load(dy_ptr + row * n + column, mask, other=0.0) → tl.load(dy_ptr + row * n + column, mask)
    is given a mask and no `other`
a short block | triton.next_power_of_2(n) → 16 | of rows of 1100 not all of dx is written
dgamma is of x | dgamma += dy * normed → dgamma += dy * x | the sum over rows of dy · n
averaged | dgammas.sum(dim=0), dbetas.sum(dim=0) → dgammas.mean(dim=0), dbetas.mean(dim=0) | are added, not averaged
the last program wins
    tl.program_id(0) * n + column, d → column, d | (torch.empty((programs → (torch.zeros((programs | a row of its own
a row a program
    num_rows, tl.num_programs(0)) → min(num_rows, tl.num_programs(0)), tl.num_programs(0))
    so that each row is somebody's
all add to one row
    dgamma += dy * normed → tl.store(dgamma_ptr + column, tl.load(dgamma_ptr + column, mask) + dy * normed, mask)
    dbeta += dy\n → tl.store(dbeta_ptr + column, tl.load(dbeta_ptr + column, mask) + dy, mask)\n
    (torch.empty((programs → (torch.zeros((programs
    tl.store(dgamma_ptr + tl.program_id(0) * n + column, dgamma, mask) → pass
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
a program for each row
    dx = torch.empty_like(x) → programs, dx = num_rows, torch.empty_like(x) | of `programs` = 3 for 4 rows
one program | dx = torch.empty_like(x) → programs, dx = 1, torch.empty_like(x) | for 4 rows the kernel made 1
loaded twice
    dgamma += dy * normed → dy = tl.load(dy_ptr + row * n + column, mask, other=0.0)\n        dgamma += dy * normed
    each number of dy is read 2 times
rstd by PyTorch | return dx, → return 1.0 * dx, | have written 0 of the 4,400 numbers of dx
in float64
    dgammas.sum(dim=0), dbetas.sum(dim=0) → dgammas.double().sum(dim=0), dbetas.double().sum(dim=0)
    is torch.float64 and must be torch.float32
dgamma and dbeta by PyTorch
    dgammas.sum(dim=0), dbetas.sum(dim=0) → (dy * (x - mean[:, None]) * rstd[:, None]).sum(dim=0), dy.sum(dim=0)
    tl.store(dgamma_ptr + tl.program_id(0) * n + column, dgamma, mask) → pass
    tl.store(dbeta_ptr + tl.program_id(0) * n + column, dbeta, mask) → pass | does PyTorch make them
"""

WRONG = {
    "round_to": {
        "decimals": (_decimals, "spacing of floating-point numbers is relative"),
        "cut off": (_cut_off, "moves away from zero"),
        "a logarithm": (_by_logarithm, "0 becomes nan and must stay 0"),
        "overflow": (_splitting, "with 7 bits 3.3e+38 becomes nan"),
    },
    "softmax_rows": {"no kernel": (_no_softmax_kernel, "no kernel was launched")},
    "layernorm_backward_rows": {
        "no kernel": (_no_layernorm_kernel, "no kernel was launched"),
        "one array": (lambda dy, *_: dy, "must return 3 arrays"),
    },
}
