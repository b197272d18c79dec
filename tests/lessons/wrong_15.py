"""Plausible wrong answers to lesson 15, each with words of the hint it must get."""

# pyright: reportInvalidTypeForm=false
import numpy as np

from course.gpu import tl, torch, triton

# --- Numbers --------------------------------------------------------------------------------------------------


def _decimals(x, bits):
    return np.round(x, 3 if bits == 10 else 2)


def _cut_off(x, bits):
    drop = np.uint32(23 - bits)
    return (x.view(np.uint32) >> drop << drop).view(np.float32)


def _leading_bit_counted(x, bits):
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)


def _one_bit_too_many(x, bits):
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(fraction, bits + 3)), exponent - bits - 3)


def _halves_go_up(x, bits):
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.sign(x) * np.floor(np.ldexp(np.abs(fraction), bits + 1) + 0.5), exponent - bits - 1)


# --- Softmax --------------------------------------------------------------------------------------------------


@triton.jit
def _softmax_kernel(
    x_ptr, y_ptr, n, stride_x, stride_y,
    OTHER: tl.constexpr, SHIFT: tl.constexpr, GUARD: tl.constexpr, UNMASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < n
    x = tl.load(x_ptr + row * stride_x + column, (UNMASKED == "load") | mask, other=OTHER).to(tl.float32)
    x = tl.where(mask, x, OTHER)
    if SHIFT:
        m = tl.max(x, axis=0)
        if GUARD:
            m = tl.maximum(m, -3e38)
        x -= m
    e = tl.exp(x)
    total = tl.sum(e, axis=0)
    if GUARD:
        total = tl.where(total == 0, 1.0, total)
    tl.store(
        y_ptr + row * stride_y + column, (e / total).to(y_ptr.dtype.element_ty), (UNMASKED == "store") | mask
    )  # fmt: skip


def _softmax(other=float("-inf"), shift=True, guard=True, rows=None, row_step=None, unmasked=""):
    """A softmax with one thing wrong with it."""

    def softmax_rows(x):
        y = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
        num_rows, n = x.shape
        block = triton.next_power_of_2(n)
        with np.errstate(all="ignore"):
            _softmax_kernel[(rows or num_rows,)](
                x, y, n, n if row_step else x.stride(0), n,
                OTHER=other, SHIFT=shift, GUARD=guard, UNMASKED=unmasked, BLOCK=block,
            )  # fmt: skip
        return y

    return softmax_rows


def _rows_of_blocks(x):
    num_rows, n = x.shape
    block = triton.next_power_of_2(n)
    y = torch.zeros((num_rows, block), dtype=x.dtype, device=x.device)
    right = torch.zeros((num_rows, block), device=x.device)
    right[:, :n] = x.float()
    _softmax_kernel[(num_rows,)](
        right, y, n, n, n, OTHER=float("-inf"), SHIFT=True, GUARD=True, UNMASKED="", BLOCK=block
    )  # fmt: skip
    return y.flatten()[: num_rows * n].view(num_rows, n)


# --- Layer norm -----------------------------------------------------------------------------------------------


def _layernorm(mean_of_dn=True, along=True, lanes=False, sums="added", skips=False, of_x=False):
    """The gradients, with one thing wrong with them: in PyTorch's operations, as a judge looks at results alone."""

    def layernorm_backward_rows(dy, x, gamma, mean, rstd, programs):
        width = triton.next_power_of_2(x.shape[1]) if lanes else x.shape[1]
        n = (x - mean[:, None]) * rstd[:, None]
        dn = dy * gamma
        dx = dn.clone()
        if mean_of_dn:
            dx -= dn.sum(1, keepdim=True) / width
        if along:
            dx -= n * (dn * n).sum(1, keepdim=True) / width
        dx *= rstd[:, None]
        if skips and programs > 1:
            dx[programs:] = 0
        dgamma, dbeta = dy * (x if of_x else n), dy
        if sums == "averaged":
            return dx, dgamma.sum(0) / programs, dbeta.sum(0) / programs
        if sums == "last wins":
            return dx, dgamma[programs - 1 :: programs].sum(0), dbeta[programs - 1 :: programs].sum(0)
        return dx, dgamma.sum(0), dbeta.sum(0)

    return layernorm_backward_rows


@triton.jit
def _adding_kernel(terms_ptr, total_ptr, num_rows, n, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), num_rows, tl.num_programs(0)):
        total = tl.load(total_ptr + column, column < n) + tl.load(terms_ptr + row * n + column, column < n)
        tl.store(total_ptr + column, total, column < n)


def _racing(dy, x, gamma, mean, rstd, programs):
    dx, *sums = _layernorm()(dy, x, gamma, mean, rstd, programs)
    n = (x - mean[:, None]) * rstd[:, None]
    for total, terms in zip(sums, (dy * n, dy), strict=True):
        total.zero_()
        _adding_kernel[(programs,)](terms, total, *x.shape, BLOCK=triton.next_power_of_2(x.shape[1]))
    return dx, *sums


WRONG = {
    "round_to": {
        "decimals": (_decimals, "spacing of floating-point numbers is relative"),
        "cut off": (_cut_off, "moves away from zero"),
        "the leading 1 takes a bit": (_leading_bit_counted, "must stay as it is"),
        "two bits too many": (_one_bit_too_many, "keeps more than 10 bits"),
        "halves go up": (_halves_go_up, "half-way between two neighbours"),
    },
    "softmax_rows": {
        "lanes beyond the row are 0": (_softmax(other=0.0), "lanes beyond the row add to the sum"),
        "no maximum": (_softmax(shift=False), "NaN: e^10000 overflows"),
        "nothing to attend to": (_softmax(guard=False), "must give zeros and gives nan"),
        "one program": (_softmax(rows=1), "is there a program for each row?"),
        "the stride is n": (_softmax(row_step=True), "lie further apart in memory"),
        "rows begin at r · BLOCK": (_rows_of_blocks, "whatever the block's length"),
        "the store has no mask": (_softmax(unmasked="store"), "tl.store wants the mask too"),
        "the load has no mask": (_softmax(unmasked="load"), "tl.load wants the mask too"),
    },
    "layernorm_backward_rows": {
        "mean(dn) is missing": (_layernorm(mean_of_dn=False), "must sum to 0"),
        "the part along n is missing": (_layernorm(along=False), "along its row's own n"),
        "means over the block": (_layernorm(lanes=True), "over the block's 16 lanes"),
        "dgamma is of x": (_layernorm(of_x=True), "the sum over rows of dy · n"),
        "averaged": (_layernorm(sums="averaged"), "are added, not averaged"),
        "the last program wins": (_layernorm(sums="last wins"), "a row of its own"),
        "a row a program": (_layernorm(skips=True), "so that each row is somebody's"),
        "all add to one row": (_racing, "who comes first is chance"),
        "one array": (lambda dy, *_: dy, "must return 3 arrays"),
    },
}
