"""The two operations of an optimiser over a model's flat arrays."""

import math
from itertools import combinations

import numpy as np

from .arguments import Array, arguments, check_not_negative, check_scalar

BLOCK = 1 << 16
"""Elements updated at a time: so few that all passes over a block find it in the processor's cache."""

SMALL = 1e-20
"""A sum of squares from which on none of them is lost that would count: float32 holds 1e-38."""


@arguments("data P, grad P, m P, v P", beta1=check_not_negative, beta2=check_not_negative, eps=check_not_negative)
def adam_step(
    data: Array,
    grad: Array,
    m: Array,
    v: Array,
    *,
    step: int | Array,
    lr: float | Array,
    beta1: float = 0.9,
    beta2: float = 0.98,
    eps: float = 1e-9,
    grad_scale: float | Array = 1.0,
) -> None:
    """Update the flat arrays `data`, `m` and `v` in place by one step of Adam; `grad` is read only.

    `g = grad_scale · grad`; `m ← β₁ m + (1 − β₁) g`; `v ← β₂ v + (1 − β₂) g²`;
    `data ← data − lr · m̂ / (√v̂ + ε)` with `m̂ = m / (1 − β₁^step)`, `v̂ = v / (1 − β₂^step)`. Steps count from 1.
    Raises `ValueError`, and changes nothing, for a rate that is not finite, a beta outside [0, 1), an eps of 0, what
    is read-only but shall be changed, and shared memory. Source: Kingma & Ba 2015, algorithm 1; Vaswani 2017, §5.3.
    """
    arrays = {"data": data, "m": m, "v": v, "grad": grad}
    for name in ("data", "m", "v"):
        if not arrays[name].flags.writeable:
            raise ValueError(f"{name} is read-only, expected an array that can be changed in place")
    for (name, array), (other_name, other) in combinations(arrays.items(), 2):
        if np.shares_memory(array, other):  # flat arrays: exact, and cheap
            raise ValueError(f"{name} and {other_name} share memory, expected an array each: one is changed in place")
    step, lr, grad_scale = check_scalar("step", step), check_scalar("lr", lr), check_scalar("grad_scale", grad_scale)
    if step < 1 or step % 1:
        raise ValueError(f"step is {step:g}, expected 1, 2, …: Adam's bias correction divides by 1 − β^step")
    check_not_negative("lr", lr)
    check_not_negative("grad_scale", grad_scale)
    if max(beta1, beta2) >= 1 or not eps:
        raise ValueError(f"beta1, beta2, eps are {beta1}, {beta2}, {eps}, expected betas below 1 and eps above 0")
    # data − lr·m̂/(√v̂ + ε) = data − lr′·m/(√v + ε′): the corrections are scalars, so they are applied to scalars.
    number = data.dtype.type
    root_correction = math.sqrt(1 - beta2**step)
    lr_corrected = number(lr * root_correction / (1 - beta1**step))
    eps_corrected = number(eps * root_correction)
    for start in range(0, data.size, BLOCK):
        block = slice(start, start + BLOCK)
        g = grad[block] * number(grad_scale)
        m[block] *= number(beta1)
        m[block] += number(1 - beta1) * g
        v[block] *= number(beta2)
        g *= g
        g *= number(1 - beta2)
        v[block] += g
        denominator = np.sqrt(v[block], out=g)
        denominator += eps_corrected
        update = np.divide(m[block], denominator, out=g)
        update *= lr_corrected
        data[block] -= update


@arguments("grad ...")
def global_norm(grad: Array) -> float:
    """Return `√Σ grad²`. Sums of blocks are added in float64, which also holds squares that float32 can't hold.

    Source: Pascanu, Mikolov, Bengio 2013, §3.2.
    """
    flat, squares = grad.reshape(-1), 0.0
    with np.errstate(over="ignore", under="ignore"):
        for dtype in (grad.dtype, np.float64):
            squares = 0.0
            for start in range(0, flat.size, BLOCK):
                block = flat[start : start + BLOCK].astype(dtype, copy=False)
                squares += float(block @ block)
            if SMALL < squares < math.inf:  # 1e20² is infinite in float32, and 1e-30² is 0
                break
    return math.sqrt(squares)
