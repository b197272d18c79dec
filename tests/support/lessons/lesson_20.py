"""Answers to lesson 20: right ones written in another way, and plausible wrong ones (see `answers`)."""

# pyright: reportInvalidTypeForm=false

import numpy as np

from course.gpu import tl, torch, triton


def _rmsnorm_in_steps(dy, cache):
    normed, rstd, gamma = cache
    C = len(gamma)
    x = normed / rstd
    dnormed = dy * gamma
    drstd = (dnormed * x).sum(axis=-1, keepdims=True)  # normed = x * rstd
    dsquare = -0.5 * rstd**3 * drstd  # rstd = (square + eps)^(-1/2)
    return rstd * dnormed + 2 / C * x * dsquare, np.einsum("btc,btc->c", dy, normed)


def _swiglu_with_hyperbolic_cosine(dy, cache):
    gate, up = cache
    half = np.tanh(gate / 2)
    slope = (1 + half) / 2 + gate * (1 - half**2) / 4
    return [up * slope * dy, (1 + half) * gate / 2 * dy]


def _rope_as_complex(x, cos, sin):
    half = x.shape[-1] // 2
    turned = (x[..., :half] + 1j * x[..., half:]) * (cos + 1j * sin)
    return [np.concatenate([turned.real, turned.imag], axis=-1), (cos, sin)]


@triton.jit
def _rmsnorm_two_dimensions_kernel(x_ptr, gamma_ptr, y_ptr, rstd_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0) + tl.arange(0, 1)
    column = tl.arange(0, BLOCK)
    mask = (column < n)[None, :]
    x = tl.load(x_ptr + row[:, None] * n + column[None, :], mask, other=0.0)  # (1, BLOCK)
    rms = tl.sqrt(tl.sum(x * x, axis=1) / n + eps)  # (1,)
    y = x / rms[:, None] * tl.load(gamma_ptr + column, column < n)[None, :]
    tl.store(rstd_ptr + row, 1 / rms)
    tl.store(y_ptr + row[:, None] * n + column[None, :], y, mask)


def _rmsnorm_two_dimensions(x, gamma, eps=1e-6):
    y, rstd = torch.empty_like(x), torch.empty(len(x), device=x.device)
    block = triton.next_power_of_2(x.shape[1])
    _rmsnorm_two_dimensions_kernel[(len(x),)](x, gamma, y, rstd, x.shape[1], eps, BLOCK=block)
    return y, rstd


@triton.jit
def _rmsnorm_last_row_first_kernel(x_ptr, gamma_ptr, y_ptr, rstd_ptr, num_rows, n, eps, BLOCK: tl.constexpr):
    row = num_rows - 1 - tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < n
    x = tl.load(x_ptr + row * n + column, mask)
    x = tl.where(mask, x, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(x * x / n, axis=0) + eps)
    tl.store(rstd_ptr + row, rstd)
    tl.store(y_ptr + row * n + column, tl.load(gamma_ptr + column, mask) * (x * rstd), mask)


def _rmsnorm_last_row_first(x, gamma, eps=1e-6):
    (N, n), y = x.shape, torch.zeros_like(x)
    rstd = torch.zeros(N, device=x.device)
    _rmsnorm_last_row_first_kernel[(N,)](x, gamma, y, rstd, N, n, eps, BLOCK=triton.next_power_of_2(n))
    return [y, rstd]


def _no_rmsnorm_kernel(x, gamma, eps=1e-6):
    rstd = torch.rsqrt((x * x).mean(dim=1) + eps)
    return x * rstd[:, None] * gamma, rstd


RIGHT = {
    "rmsnorm_backward": [_rmsnorm_in_steps],
    "swiglu_backward": [_swiglu_with_hyperbolic_cosine],
    "rope_forward": [_rope_as_complex],
    "rope_backward": [lambda dy, cache: _rope_as_complex(dy, cache[0], -cache[1])[0]],
    "repeat_heads_backward": [
        lambda dy, kv_heads: np.add.reduceat(dy, np.arange(0, dy.shape[1], dy.shape[1] // kv_heads), axis=1)
    ],
    "rmsnorm_rows": [_rmsnorm_two_dimensions, _rmsnorm_last_row_first],
}


MISTAKES = r"""
[rmsnorm_backward]
rstd a constant | - normed * along → | x also moves the root mean square
layer norm's | - normed * along → - dnormed.mean(axis=-1, keepdims=True) - normed * along | dx is layer norm's
plus | - normed * along → + normed * along | a larger x makes rstd smaller
rstd on the first term alone | returns rstd * dnormed - normed * along, dgamma | a factor of both terms
no rstd | rstd * (dnormed → 1 * (dnormed | rstd is missing
not along normed | - normed * along → - along | multiply it by normed
divided by rstd | returns (dnormed - normed * along) / rstd, dgamma | multiply by it
a sum | .mean(axis=-1 → .sum(axis=-1 | and must be by the mean
half of it | - normed * along → - normed * along / 2 | is 0.5 times what it should be
twice | - normed * along → - 2 * normed * along | is 2 times what it should be
a mean of a mean | .mean(axis=-1, keepdims=True)  # → .mean(axis=-1, keepdims=True) / 5  # | is 0.2 times what
normed for x | - normed * along → - rstd**2 * normed * along | normed stands where x belongs
dn alone | returns dnormed, dgamma | dx is dn alone
the second term alone | rstd * (dnormed - → rstd * ( - | the first term, rstd · dn, is missing
rstd on the second term alone | rstd * (dnormed - normed * along) → dnormed - rstd * normed * along | in the first term
a mean's backward | - normed * along → - dnormed.mean(axis=-1, keepdims=True) | this one subtracts none
times the mean of dn | (dnormed * normed).mean → dnormed.mean | and must be by mean(dn · normed)
no mean at all | - normed * along → - normed * dnormed * normed / 5 | moving x along normed
dgamma without dy | (dy * normed).sum(axis=(0 → normed.sum(axis=(0 | the sum of normed without dy
rounded on the way
    dnormed = dy * gamma → dnormed = (dy * gamma).astype(np.float32).astype(float) | dx is right to about
a mean of everything | .mean(axis=-1, keepdims=True)  # → .mean(keepdims=True)  # | changes dx in the other rows
a mean over positions
    .mean(axis=-1, keepdims=True)  # → .mean(axis=1, keepdims=True)  # | a root mean square of its own
the mean of dy | (dnormed * normed).mean → (dy * normed).mean | with gamma twice as large dx must double
gamma forgotten | dnormed = dy * gamma → dnormed = dy | does not depend on gamma
gamma at the end | dnormed = dy * gamma → dnormed = dy
    returns rstd * gamma * (dnormed - normed * along), dgamma | where all of gamma is the same
by the sum of normed²
    .mean(axis=-1, keepdims=True)  # → .sum(axis=-1, keepdims=True) / (normed**2).sum(-1)[..., None]  #
    not where ε counts
dgamma of every position | .sum(axis=(0, 1)) → | sum over both
dgamma over sentences alone | .sum(axis=(0, 1)) → .sum(axis=0) | dgamma has shape (3, 5)
dgamma a mean | .sum(axis=(0, 1)) → .mean(axis=(0, 1)) | dgamma must double
dgamma with gamma | (dy * normed).sum(axis=(0 → (gamma * dy * normed).sum(axis=(0 | is linear in gamma
dgamma of x | (dy * normed).sum(axis=(0 → (dy * normed / rstd).sum(axis=(0 | by normed, not by x
beta's | (dy * normed).sum(axis=(0 → dy.sum(axis=(0 | as beta's would be
the other order | returns answer[::-1] | in the other order
five channels | .mean(axis=-1, keepdims=True)  # → .sum(axis=-1, keepdims=True) / 5  # | is a number written where
[swiglu_backward]
the gate for up | returns dy * gate * slope, dy * silu | has gate where up belongs
the other order | returns answer[::-1] | in the other order
dup of the gate | returns dy * up * slope, dy * gate | what multiplies up is silu(gate)
dup of the sigmoid | returns dy * up * slope, dy * sigmoid | gate · σ(gate)
dup of relu | returns dy * up * slope, dy * np.maximum(gate, 0) | the activation is silu
dup times up | returns dy * up * slope, dy * up * silu | is the other factor alone
dup without dy | returns dy * up * slope, silu | dup is silu(gate) without dy
dgate without up | returns dy * slope, dy * silu | dgate is without up
dgate without dy | returns up * slope, dy * silu | dgate is without dy
no slope | returns dy * up, dy * silu | the slope of silu is still to come
silu for its slope | returns dy * up * silu, dy * silu | where its slope belongs
the gate a constant | sigmoid + silu * (1 - sigmoid) → sigmoid | so there are two terms
the sigmoid a constant | sigmoid + silu * (1 - sigmoid) → silu * (1 - sigmoid) | σ is missing
the sigmoid's slope | sigmoid + silu * (1 - sigmoid) → sigmoid * (1 - sigmoid) | the sigmoid's slope, σ (1 − σ)
no factor gate | sigmoid + silu * (1 - sigmoid) → sigmoid + sigmoid * (1 - sigmoid) | lacks the factor gate
minus | sigmoid + silu → sigmoid - silu | add
no parentheses | returns dy * up * sigmoid + silu * (1 - sigmoid), dy * silu | mind the parentheses
a factor σ too few | sigmoid + silu * (1 - sigmoid) → sigmoid + gate * (1 - sigmoid) | and its factor σ is missing
the gate's slope alone | sigmoid + silu * (1 - sigmoid) → 1 + silu * (1 - sigmoid) | times σ(gate)
both factors σ missing | sigmoid + silu * (1 - sigmoid) → 1 + gate * (1 - sigmoid) | the factor σ(gate) is missing
1 − silu | sigmoid + silu * (1 - sigmoid) → sigmoid + silu * (1 - silu) | where 1 − σ(gate) belongs
silu for up | returns dy * silu * slope, dy * silu | where up belongs
gate and up exchanged | gate, up = cache → up, gate = cache | gate and up are exchanged
dup of up | returns dy * up * slope, dy * up | dup is dy · up
dup of silu(up) | returns dy * up * slope, dy * up * (1 + np.tanh(up / 2)) / 2 | dup is dy · silu(up)
dup with a slope | returns dy * up * slope, dy * slope | no slope is needed
σ of −z | np.tanh(gate / 2) → np.tanh(-gate / 2) | with the minus
relu's slope | sigmoid + silu * (1 - sigmoid) → gate > 0 | relu's slope, 0 or 1
an overflow | (1 + np.tanh(gate / 2)) / 2 → np.exp(gate) / (1 + np.exp(gate)) | e^800 overflows
clipped | (1 + np.tanh(gate / 2)) / 2 → 1 / (1 + np.exp(-np.clip(gate, -2, 2))) | dup is wrong in
clipped at 500 | gate, up = cache → gate, up = np.clip(cache[0], -500, 500), cache[1] | for gates of ±800 and more dup
summed | returns answer[0].sum(axis=0), answer[1] | dgate has shape (3, 4)
[rope_forward]
nothing | returns x.copy(), (cos, sin) | nothing is turned
neighbours
    is lambda x, cos, sin: (_woven(x[..., 0::2], x[..., 1::2], cos, sin), (cos, sin)) | the pairs are neighbours
woven | is lambda x, cos, sin: (_woven(*np.split(x, 2, axis=-1), cos, sin), (cos, sin)) | woven into each other
exchanged halves
    [a * cos - b * sin, b * cos + a * sin] → [b * cos + a * sin, a * cos - b * sin] | of the result are exchanged
the other way | a * cos - b * sin, b * cos + a * sin → a * cos + b * sin, b * cos - a * sin | turns the other way
sin for cos | a, b = np.split(x → cos, sin = sin, cos\n    a, b = np.split(x | angle 0, with cos 1
the new a | is _late | Both lines need the old a and b
half of it | b * cos + a * sin → b | only the first half is turned
the other half | a * cos - b * sin, → a, | only the second half is turned
tables repeated for neighbours
    is lambda x, cos, sin: (_by_halves(x, np.repeat(cos, 2, -1), np.repeat(sin, 2, -1)), (cos, sin)) | as by np.repeat
even and odd channels | a, b = np.split(x, 2, axis=-1) → a, b = x[..., ::2], x[..., 1::2] | and written as halves
halves not exchanged | a * cos - b * sin, b * cos + a * sin → a * cos - a * sin, b * cos + b * sin | are not exchanged
no cosines | a * cos - b * sin, b * cos + a * sin → - b * sin, a * sin | terms with cos are missing
one angle for all pairs
    a, b = np.split(x → cos, sin = cos[:, :1], sin[:, :1]\n    a, b = np.split(x | of the first: column j
minus everything | returns -answer[0], answer[1] | the wrong sign everywhere
channels from both ends
    is lambda x, cos, sin: (_from_both_ends(x, cos, sin), (cos, sin)) | as far from the end
by cos and by sin | a * cos - b * sin, b * cos + a * sin → a * cos, b * sin | a rotation mixes the two
no sines | a * cos - b * sin, b * cos + a * sin → a * cos, b * cos | terms with sin are missing
a mirror | b * cos + a * sin → b * cos - a * sin | in the second half is wrong
both plus | a * cos - b * sin → a * cos + b * sin | in the first half is wrong
sines twice as large | a, b = np.split(x → cos, sin = cos, 2 * sin\n    a, b = np.split(x | a rotation keeps them
one position late | a, b = np.split(x → cos, sin = np.roll(cos, 1, 0), np.roll(sin, 1, 0)\n    a, b = np.split(x
    position 0, whose angles are all 0
the first head alone | is _first_head | all heads of a position turn
y alone | returns answer[0] | the tuple y, cache, not one array
sin and cos in the cache | returns answer[0], (sin, cos) | the order is (cos, sin)
x in the cache | returns answer[0], (x, cos, sin) | the backward needs no more
[rope_backward]
turned and mirrored | db * cos - da * sin → da * sin - db * cos | that turns and mirrors
nothing | returns dy.copy() | a rotation has a backward
turned on | da * cos + db * sin, db * cos - da * sin → da * cos - db * sin, db * cos + da * sin | turns back
neighbours | is lambda dy, cache: _woven(dy[..., 0::2], dy[..., 1::2], cache[0], -cache[1]) | the pairs are neighbours
minus both | returns -answer | the wrong sign everywhere
one plus too many | db * cos - da * sin → db * cos + da * sin | the sign of one sin is wrong
one minus too many | da * cos + db * sin → da * cos - db * sin | a went into b' with + sin
no sines | da * cos + db * sin, db * cos - da * sin → da * cos, db * cos | the terms with sin are missing
sin for cos | cos, sin = cache → sin, cos = cache | cos and sin are exchanged
the new da | is _late_back | is a overwritten before it is used?
exchanged halves
    [da * cos + db * sin, db * cos - da * sin] → [db * cos - da * sin, da * cos + db * sin] | halves of the result are
woven | is lambda dy, cache: _woven(*np.split(dy, 2, axis=-1), cache[0], -cache[1]) | woven into each other
neighbours, turned on
    is lambda dy, cache: _woven(dy[..., 0::2], dy[..., 1::2], *cache) | and they turn the other way
even and odd channels | da, db = np.split(dy, 2, axis=-1) → da, db = dy[..., ::2], dy[..., 1::2] | written as halves
tables repeated for neighbours
    is lambda dy, cache: _by_halves(dy, np.repeat(cache[0], 2, -1), -np.repeat(cache[1], 2, -1)) | as by np.repeat
divided | da * cos + db * sin, db * cos - da * sin → da / cos, db / cos | the lengths of pairs change
half of it | db * cos - da * sin → db | only the first half is turned
no cosines | da * cos + db * sin, db * cos - da * sin → db * sin, -da * sin | terms with cos are missing
a tuple | returns (answer, None, None) | an array, not tuple
summed over heads | returns answer.sum(axis=1) | dx has shape (2, 5, 8)
[repeat_heads_backward]
no sum | returns dy.copy() | the sum over the heads that used it
the groups and their size exchanged
    dy.reshape(B, kv_heads, H // kv_heads, T, D) → dy.reshape(B, H // kv_heads, kv_heads, T, D)
    are one group, and there are
heads that lie apart
    dy.reshape(B, kv_heads, H // kv_heads, T, D).sum(axis=2) → dy.reshape(B, H // kv_heads, kv_heads, T, D).sum(axis=1)
    neighbours share, head h
heads that lie apart, averaged
    dy.reshape(B, kv_heads, H // kv_heads, T, D).sum(axis=2) → dy.reshape(B, H // kv_heads, kv_heads, T, D).mean(axis=1)
    neighbours share, and their gradients add
a mean | sum(axis=2) → mean(axis=2) | they are not averaged
the first of each | .sum(axis=2) → [:, :, 0] | only the first head of each group
the last of each | .sum(axis=2) → [:, :, -1] | is something overwritten
the largest | .sum(axis=2) → .max(axis=2) | the largest of each group is taken
the axis stays | sum(axis=2) → sum(axis=2, keepdims=True)[:, :, 0:1] | has become (2, 2, 1, 4, 5)
all heads | .sum(axis=2) → .sum(axis=(1, 2))[:, None] | only the heads of one group are added
over positions | .sum(axis=2) → .sum(axis=(2, 3)) | has become (2, 2, 5) and must become
in reverse | returns solution(dy, kv_heads)[:, ::-1] | in the reverse order
all heads for each
    returns np.repeat(dy.sum(axis=1, keepdims=True), kv_heads, axis=1) | only those of its group used it
the first heads | returns dy[:, :kv_heads].copy() | are there as they were
one head too few
    .sum(axis=2) → [:, :, :-1].sum(axis=2) | is wrong in
groups of three | H // kv_heads, T, D) → 3, T, D) | cannot reshape
[rmsnorm_rows]
no gamma | x * rstd * gamma, mask → x * rstd, mask | gamma is not used
layer norm
    rstd = tl.rsqrt → x = tl.where(mask, x - tl.sum(x, axis=0) / n, 0.0)\n    rstd = tl.rsqrt | it is layer norm
a sum | axis=0) / n + eps → axis=0) + eps | is not divided by n
eps beside the root
    tl.rsqrt(tl.sum(x * x, axis=0) / n + eps) → 1 / (tl.sqrt(tl.sum(x * x, axis=0) / n) + eps) | it stands under it
its own eps | axis=0) / n + eps → axis=0) / n + 1e-6 | changes nothing
gamma plus 1 | x * rstd * gamma, mask → x * rstd * (1 + gamma), mask | 1 is added to gamma
gamma first
    rstd = tl.rsqrt → x *= gamma\n    rstd = tl.rsqrt | x * rstd * gamma, mask → x * rstd, mask | gamma comes after
rstd lies apart | tl.store(rstd_ptr + row, → tl.store(rstd_ptr + row * n, | is row r of rstd where it belongs
one row by all | tl.program_id(0) → tl.program_id(1) | a part of y holds NaN
a column too few | column < n → column < n - 1 | 21 of y's 24 numbers: are BLOCK and the mask
a program for each column | [(num_rows,)] → [(n,)] | and those beyond the last row have none
no root | tl.rsqrt(tl.sum(x * x, axis=0) / n + eps) → 1 / (tl.sum(x * x, axis=0) / n + eps) | the root is missing
multiplied | tl.rsqrt(tl → tl.sqrt(tl | divide by it
the root is stored | tl.store(rstd_ptr + row, rstd) → tl.store(rstd_ptr + row, 1 / rstd) | 1 divided by it
a mean over the block | axis=0) / n + eps → axis=0) / BLOCK + eps | over the block's 8 lanes
lanes are anything | n + column, mask, other=0.0) → n + column, mask) | is given a mask and no `other`
lanes are 1 | n + column, mask, other=0.0) → n + column, mask, other=1.0) | y of rows of 5
a short block | triton.next_power_of_2(n) → 16 | of rows of 100 the kernel writes 16 numbers
one program | [(num_rows,)] → [(1,)] | is there a program for each row?
rows begin at r · BLOCK
    row * n + column, mask, other → row * BLOCK + column, mask, other
    whatever the block's length
the store has no mask | x * rstd * gamma, mask) → x * rstd * gamma) | tl.store wants the mask too
the load has no mask
    n + column, mask, other=0.0) → n + column)\n    x = tl.where(mask, x, 0.0) | tl.load wants the mask too
a launch for each row
    rmsnorm_kernel[(num_rows,)](x, gamma, y, rstd, →
        for row in range(num_rows):\n        rmsnorm_kernel[(1,)](x[row:], gamma, y[row:], rstd[row:],
    were launched 3 times
loaded twice
    tl.store(y_ptr → x = tl.load(x_ptr + row * n + column, mask, other=0.0)\n    tl.store(y_ptr
    each number of x is read 2 times
rstd by PyTorch | returns y, torch.rsqrt((x * x).mean(dim=1) + eps) | have written 0 of the 4 numbers of rstd
another default | eps=1e-6 → eps=1e-5 | it must be 1e-6
no kernel | is _no_rmsnorm_kernel | no kernel was launched
"""


def _woven(a, b, cos, sin):
    """The turned pairs as neighbours."""
    y = np.empty((*a.shape[:-1], 2 * a.shape[-1]))
    y[..., 0::2], y[..., 1::2] = a * cos - b * sin, b * cos + a * sin
    return y


def _by_halves(x, cos, sin):
    """x cos + rotate_half(x) sin, with tables of D channels."""
    a, b = np.split(x, 2, axis=-1)
    return x * cos + np.concatenate([-b, a], axis=-1) * sin


def _from_both_ends(x, cos, sin):
    """Channel j with channel D − 1 − j."""
    a, b = np.split(x, 2, axis=-1)
    b = b[..., ::-1]
    return np.concatenate([a * cos - b * sin, (b * cos + a * sin)[..., ::-1]], axis=-1)


def _late(x, cos, sin):
    y, half = x.copy(), x.shape[-1] // 2
    y[..., :half] = y[..., :half] * cos - y[..., half:] * sin
    y[..., half:] = y[..., half:] * cos + y[..., :half] * sin
    return y, (cos, sin)


def _late_back(dy, cache):
    cos, sin = cache
    return _late(dy, cos, -sin)[0]


def _first_head(x, cos, sin):
    y = x.copy()
    y[:, :1] = _rope_as_complex(x[:, :1], cos, sin)[0]
    return y, (cos, sin)
