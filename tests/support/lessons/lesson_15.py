"""Plausible wrong answers to lesson 15 (see `answers`)."""

# pyright: reportInvalidTypeForm=false
import numpy as np

from course.gpu import tl, torch, triton

# --- Numbers --------------------------------------------------------------------------------------------------


def _round(x, bits):
    """Right."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(fraction, bits + 1)), exponent - bits - 1)


def _decimals(x, bits):
    return np.round(x, 3 if bits == 10 else 2)


def _cut_off(x, bits):
    drop = np.uint32(23 - bits)
    return (x.view(np.uint32) >> drop << drop).view(np.float32)


def _leading_bit_counted(x, bits):
    return _round(x, bits - 1)


def _one_bit_too_many(x, bits):
    return _round(x, bits + 2)


def _halves_go_up(x, bits):
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.sign(x) * np.floor(np.ldexp(np.abs(fraction), bits + 1) + 0.5), exponent - bits - 1)


def _by_logarithm(x, bits):
    spacing = 2.0 ** (np.floor(np.log2(np.abs(x))) - bits)
    return (np.rint(x / spacing) * spacing).astype(np.float32)


def _splitting(x, bits):
    """Dekker's and Veltkamp's: a product and two differences."""
    large = np.float32(2.0 ** (23 - bits) + 1) * x
    return large - (large - x)


def _two_formats(x, bits):
    return _round(x, 10 if bits == 10 else 7)


# --- Softmax --------------------------------------------------------------------------------------------------


@triton.jit
def _softmax_kernel(
    x_ptr, y_ptr, num_rows, n, stride_x, stride_y, FLAW: tl.constexpr, OTHER: tl.constexpr, BLOCK: tl.constexpr
):
    first = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < n
    for row in range(first, num_rows if FLAW == "a loop over rows" else first + 1):
        place = x_ptr + row * stride_x + column
        x = tl.load(place, (FLAW == "load") | mask, other=None if FLAW == "no other" else OTHER).to(tl.float32)
        if FLAW == "load":
            x = tl.where(mask, x, OTHER)
        m = tl.max(x, axis=0)
        if FLAW != "no guard":
            m = tl.where(m == float("-inf"), 0.0, m)
        if FLAW != "no maximum":
            x -= m
        if FLAW == "two sweeps":
            x = tl.load(place, mask, other=OTHER).to(tl.float32) - m
        e = tl.exp(x)
        if FLAW == "sums in half":
            e = e.to(y_ptr.dtype.element_ty)
        total = tl.sum(e, axis=0)
        if FLAW != "no guard":
            total = tl.where(total == 0, 1.0, total)
        place = y_ptr + row * stride_y + column
        if FLAW == "stored twice":
            tl.store(place, e, mask)
        y = e if FLAW == "divided afterwards" else e / total
        tl.store(place, y.to(y_ptr.dtype.element_ty), (FLAW == "store") | mask)


def _softmax(flaw="", other=float("-inf")):
    """A softmax with one thing wrong with it."""

    def softmax_rows(x):
        num_rows, n = x.shape
        block = 16 if flaw == "a block of 16" else triton.next_power_of_2(n)
        width = block if flaw in ("rows of a block", "a slice") else n
        y = x if flaw == "in place" else torch.empty((num_rows, width), dtype=x.dtype, device=x.device)
        if flaw == "copied first":
            x = x.clone()
        if flaw == "rows of a block":
            padded = torch.zeros((num_rows, width), device=x.device)
            padded[:, :n] = x.float()
            x = padded
        programs = 1 if flaw in ("one program", "a loop over rows") else num_rows
        for row in range(num_rows if flaw == "a launch a row" else 1):
            alone = flaw == "a launch a row"
            _softmax_kernel[(1 if alone else programs,)](
                x[row:], y[row:], num_rows, n, n if flaw == "the stride is n" else x.stride(0), width,
                FLAW=flaw, OTHER=other, BLOCK=block,
            )  # fmt: skip
        if flaw == "divided afterwards":
            y = (y.float() / y.float().sum(1, keepdim=True).masked_fill(~y.any(1, keepdim=True), 1)).to(y.dtype)
        return y[:, :n] if flaw == "a slice" else y.flatten()[: num_rows * n].view(num_rows, n)

    return softmax_rows


def _no_softmax_kernel(x):
    return torch.softmax(x.float(), dim=-1).nan_to_num(0).to(x.dtype)


# --- Layer norm -----------------------------------------------------------------------------------------------


@triton.jit
def _layernorm_kernel(
    dy_ptr, x_ptr, gamma_ptr, mean_ptr, rstd_ptr, dx_ptr, dgamma_ptr, dbeta_ptr, num_rows, n,
    FLAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Partial sums, right as it stands."""
    me, programs = tl.program_id(0), tl.num_programs(0)
    column = tl.arange(0, BLOCK)
    mask = column < n
    width = BLOCK if FLAW == "means over the block" else n
    gamma = tl.load(gamma_ptr + column, mask, other=0.0)
    dgamma = tl.zeros((BLOCK,), tl.float32)
    dbeta = tl.zeros((BLOCK,), tl.float32)
    for row in range(me, min(num_rows, programs) if FLAW == "a row a program" else num_rows, programs):
        place = row * n + column
        mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
        dy = tl.load(dy_ptr + place, mask, other=None if FLAW == "no other" else 0.0)
        x = tl.load(x_ptr + place, mask, other=0.0)
        normed = (x - mean) * rstd
        normed = tl.where(mask, normed, 0.0)
        dnormed = dy * gamma
        dx = dnormed
        if FLAW != "no mean of dn":
            dx = dx - tl.sum(dnormed, axis=0) / width
        if FLAW != "nothing along n":
            dx = dx - normed * tl.sum(dnormed * normed, axis=0) / width
        tl.store(dx_ptr + place, dx * rstd, (FLAW == "store") | mask)
        if FLAW == "two loops":
            dy = tl.load(dy_ptr + place, mask, other=0.0)
            normed = tl.where(mask, (tl.load(x_ptr + place, mask, other=0.0) - mean) * rstd, 0.0)
        if FLAW == "of x":
            normed = x
        if FLAW == "all add to one row":
            tl.store(dgamma_ptr + column, tl.load(dgamma_ptr + column, mask) + dy * normed, mask)
            tl.store(dbeta_ptr + column, tl.load(dbeta_ptr + column, mask) + dy, mask)
        if FLAW == "atomics":
            tl.atomic_add(dgamma_ptr + column, dy * normed, mask)
            tl.atomic_add(dbeta_ptr + column, dy, mask)
        dgamma += dy * normed
        dbeta += dy
        if FLAW == "written by whoever had a row":
            tl.store(dgamma_ptr + me * n + column, dgamma, mask)
            tl.store(dbeta_ptr + me * n + column, dbeta, mask)
    if FLAW == "the last program wins":
        tl.store(dgamma_ptr + column, dgamma, mask)
        tl.store(dbeta_ptr + column, dbeta, mask)
    elif FLAW not in ("all add to one row", "atomics", "written by whoever had a row"):
        tl.store(dgamma_ptr + me * n + column, dgamma, mask)
        tl.store(dbeta_ptr + me * n + column, dbeta, mask)


def _layernorm(flaw=""):
    """The gradients, with one thing wrong with them."""

    def layernorm_backward_rows(dy, x, gamma, mean, rstd, programs):
        num_rows, n = x.shape
        asked, programs = programs, {"a program a row": num_rows, "one program": 1}.get(flaw, programs)
        dx = torch.empty_like(x)
        make = torch.zeros if flaw in ("all add to one row", "atomics", "the last program wins") else torch.empty
        sums = [make((programs, n), device=x.device) for _ in range(2)]
        block = 16 if flaw == "a block of 16" else triton.next_power_of_2(n)
        _layernorm_kernel[(programs,)](dy, x, gamma, mean, rstd, dx, *sums, num_rows, n, FLAW=flaw, BLOCK=block)
        if flaw == "scaled afterwards":
            dx = dx * 1.0
        if flaw == "averaged":
            return dx, *(each.sum(0) / asked for each in sums)
        if flaw == "in float64":
            return dx, *(each.double().sum(0) for each in sums)
        return dx, *(each.sum(0) for each in sums)

    return layernorm_backward_rows


def _no_layernorm_kernel(dy, x, gamma, mean, rstd, programs):
    n = (x - mean[:, None]) * rstd[:, None]
    dn = dy * gamma
    dx = rstd[:, None] * (dn - dn.mean(1, keepdim=True) - n * (dn * n).mean(1, keepdim=True))
    return dx, (dy * n).sum(0), dy.sum(0)


@triton.jit
def _dx_kernel(dy_ptr, x_ptr, gamma_ptr, mean_ptr, rstd_ptr, dx_ptr, num_rows, n, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < n
    gamma = tl.load(gamma_ptr + column, mask, other=0.0)
    for row in range(tl.program_id(0), num_rows, tl.num_programs(0)):
        mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
        dnormed = tl.load(dy_ptr + row * n + column, mask, other=0.0) * gamma
        normed = tl.where(mask, (tl.load(x_ptr + row * n + column, mask, other=0.0) - mean) * rstd, 0.0)
        dx = dnormed - tl.sum(dnormed, axis=0) / n - normed * tl.sum(dnormed * normed, axis=0) / n
        tl.store(dx_ptr + row * n + column, dx * rstd, mask)


def _only_dx_by_the_kernel(dy, x, gamma, mean, rstd, programs):
    num_rows, n = x.shape
    dx = torch.empty_like(x)
    _dx_kernel[(programs,)](dy, x, gamma, mean, rstd, dx, num_rows, n, BLOCK=triton.next_power_of_2(n))
    return dx, (dy * (x - mean[:, None]) * rstd[:, None]).sum(dim=0), dy.sum(dim=0)


WRONG = {
    "round_to": {
        "decimals": (_decimals, "spacing of floating-point numbers is relative"),
        "cut off": (_cut_off, "moves away from zero"),
        "the leading 1 takes a bit": (_leading_bit_counted, "must stay as it is"),
        "two bits too many": (_one_bit_too_many, "keeps more than 10 bits"),
        "halves go up": (_halves_go_up, "half-way between two neighbours"),
        "a logarithm": (_by_logarithm, "0 becomes nan and must stay 0"),
        "in float64": (lambda x, bits: _round(x.astype(np.float64), bits), "not float64"),
        "overflow": (_splitting, "with 7 bits 3.3e+38 becomes nan"),
        "the bits of two formats": (_two_formats, "with 22 bits"),
    },
    "softmax_rows": {
        "lanes beyond the row are 0": (_softmax(other=0.0), "lanes beyond the row add to the sum"),
        "lanes beyond the row are −10⁹": (_softmax(other=-1e9), "only −inf is"),
        "lanes beyond the row are anything": (_softmax("no other"), "is given a mask and no `other`"),
        "no maximum": (_softmax("no maximum"), "NaN: e^10000 overflows"),
        "nothing to attend to": (_softmax("no guard"), "must give zeros and gives nan"),
        "one program": (_softmax("one program"), "is there a program for each row?"),
        "the stride is n": (_softmax("the stride is n"), "lie further apart in memory"),
        "rows begin at r · BLOCK": (_softmax("rows of a block"), "whatever the block's length"),
        "rows lie a block apart": (_softmax("a slice"), "must be contiguous"),
        "a short block": (_softmax("a block of 16"), "of rows of 100 the kernel writes 16 numbers"),
        "the store has no mask": (_softmax("store"), "tl.store wants the mask too"),
        "the load has no mask": (_softmax("load"), "tl.load wants the mask too"),
        "no kernel": (_no_softmax_kernel, "no kernel was launched"),
        "a launch for each row": (_softmax("a launch a row"), "were launched 3 times"),
        "a program for all rows": (_softmax("a loop over rows"), "the kernel ran 1 program"),
        "loaded twice": (_softmax("two sweeps"), "each number of x is read 2 times"),
        "in place": (_softmax("in place"), "it writes into its argument x"),
        "stored twice": (_softmax("stored twice"), "each number of y is written 2 times"),
        "a copy first": (_softmax("copied first"), "have read 0 of the 20 numbers of x"),
        "divided by PyTorch": (_softmax("divided afterwards"), "have written 0 of the 20 numbers of y"),
        "sums in float16": (_softmax("sums in half"), "convert x to float32 right after the load"),
    },
    "layernorm_backward_rows": {
        "mean(dn) is missing": (_layernorm("no mean of dn"), "must sum to 0"),
        "the part along n is missing": (_layernorm("nothing along n"), "along its row's own n"),
        "means over the block": (_layernorm("means over the block"), "over the block's 16 lanes"),
        "lanes are anything": (_layernorm("no other"), "is given a mask and no `other`"),
        "a short block": (_layernorm("a block of 16"), "of rows of 1100 not all of dx is written"),
        "dgamma is of x": (_layernorm("of x"), "the sum over rows of dy · n"),
        "averaged": (_layernorm("averaged"), "are added, not averaged"),
        "the last program wins": (_layernorm("the last program wins"), "a row of its own"),
        "a row a program": (_layernorm("a row a program"), "so that each row is somebody's"),
        "all add to one row": (_layernorm("all add to one row"), "who comes first is chance"),
        "atomics": (_layernorm("atomics"), "their order is chance"),
        "a sum that nobody wrote": (_layernorm("written by whoever had a row"), "also one that had nothing to add"),
        "the store has no mask": (_layernorm("store"), "tl.store wants the mask too"),
        "no kernel": (_no_layernorm_kernel, "no kernel was launched"),
        "a program for each row": (_layernorm("a program a row"), "of `programs` = 3 for 4 rows"),
        "one program": (_layernorm("one program"), "for 4 rows the kernel made 1"),
        "loaded twice": (_layernorm("two loops"), "each number of dy is read 2 times"),
        "rstd by PyTorch": (_layernorm("scaled afterwards"), "have written 0 of the 4,400 numbers of dx"),
        "in float64": (_layernorm("in float64"), "is torch.float64 and must be torch.float32"),
        "one array": (lambda dy, *_: dy, "must return 3 arrays"),
        "dgamma and dbeta by PyTorch": (_only_dx_by_the_kernel, "does PyTorch make them"),
    },
}
