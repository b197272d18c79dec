"""Lesson 20: RMS normalisation, SwiGLU, rotary positions, grouped heads; and a kernel."""

from typing import Any

import numpy as np

import kernels
from minitransformer import ops

from ..checks import (
    in_case,
    require,
    require_array,
    require_arrays,
    require_close,
    require_gradients,
    require_precision,
    type_name,
    unpack,
)
from ..exercise import Attempt, exercise
from ..gpu import require_kernels, torch
from ..sanitizer import partly_written, require_few_launches, require_safe_access, require_single_pass, sanitize
from ..tensors import as_numbers, needs_kernels, tensor

FLOAT32 = 1e-5  # tolerance


# --- RMS normalisation ----------------------------------------------------------------------------------------


def _rmsnorm_backward(dy, cache):
    return ops.rmsnorm_backward(dy, cache)


@exercise(answer=_rmsnorm_backward)
def rmsnorm_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    x, dy = 3 * rng.standard_normal((2, 3, 5)), rng.standard_normal((2, 3, 5))
    gamma, ones = rng.standard_normal(5), np.ones(5)
    _, (normed, rstd, _) = ops.rmsnorm_forward(x, ones, 0.0)

    def gradients(dy, normed, rstd, gamma):
        return require_arrays(attempt(dy, (normed, rstd, gamma)), "dx", "dgamma")

    dx, dgamma = gradients(dy, normed, rstd, ones)
    require(
        not (dx.shape == gamma.shape and dgamma.shape == x.shape),
        "the two gradients are returned in the other order: dx comes first, then dgamma",
    )
    require(dx.shape == x.shape, f"dx has shape {dx.shape} and must have x's, {x.shape}")
    require(
        dgamma.shape == gamma.shape,
        f"dgamma has shape {dgamma.shape} and must have gamma's, {gamma.shape}: gamma serves every position of every "
        "sentence, so its gradient is a sum over both",
    )
    _judge_dgamma(gradients, dy, normed, rstd, dgamma)
    _judge_dx(gradients, dy, normed, rstd, dx)

    tilted = gradients(dy, normed, rstd, gamma)[0]
    require(
        np.allclose((tilted * normed).sum(-1), 0),
        "it is right where all of gamma is the same, and not elsewhere: dn = dy · gamma stands in both terms",
    )
    require_gradients(
        lambda x, gamma: ops.rmsnorm_forward(x, gamma, 0.0),
        lambda dy, cache: attempt(dy, cache),
        {"x": x, "gamma": gamma},
    )
    _, cache = ops.rmsnorm_forward(x, gamma, 2.0)
    require(
        np.allclose(attempt(dy, cache)[0], ops.rmsnorm_backward(dy, cache)[0]),
        "dx is right for ε = 0, and not where ε counts and the mean square of normed is below 1: the mean of "
        "dn · normed is a sum divided by C, and not by the sum of normed²",
    )
    for shape in ((1, 4, 8), (3, 2, 3)):
        dy, x, gamma = rng.standard_normal(shape), rng.standard_normal(shape), rng.standard_normal(shape[-1])
        _, cache = ops.rmsnorm_forward(x, gamma, 1e-6)
        found = require_arrays(attempt(dy, cache), "dx", "dgamma")
        for name, a, e in zip(("dx", "dgamma"), found, ops.rmsnorm_backward(dy, cache), strict=True):
            require(
                a.shape == e.shape and np.allclose(a, e),
                f"with x of shape (2, 3, 5) it is right, with {shape} {name} is wrong: is a number written where B, T "
                "or C belongs?",
            )


def _judge_dgamma(gradients: Any, dy: Any, normed: Any, rstd: Any, dgamma: Any) -> None:
    ones = np.ones(len(dgamma))
    twice = [np.concatenate([each, each]) for each in (dy, normed, rstd)]
    require(
        np.allclose(gradients(*twice, ones)[1], 2 * dgamma),
        "with each sentence given twice, dgamma must double: positions and sentences add up, they are not averaged",
    )
    require(
        np.allclose(gradients(dy, normed, rstd, 2 * ones)[1], dgamma),
        "dgamma depends on gamma, but y = gamma · normed is linear in gamma: the slope is normed",
    )
    x = normed / rstd
    require(
        not np.allclose(dgamma, (dy * x).sum((0, 1))),
        "dgamma is the sum of dy · x: gamma is multiplied by normed, not by x",
    )
    require(
        not np.allclose(dgamma, dy.sum((0, 1))),
        "dgamma is the sum of dy, as beta's would be: here it is of dy · normed",
    )
    require(
        not np.allclose(dgamma, normed.sum((0, 1))),
        "dgamma is the sum of normed without dy: the chain rule multiplies by what comes from above",
    )
    require_close("dgamma", dgamma, (dy * normed).sum((0, 1)))


def _judge_dx(gradients: Any, dy: Any, normed: Any, rstd: Any, dx: Any) -> None:
    """Raise `Wrong` for a wrong dx where gamma is 1 and eps is 0."""
    ones = np.ones(dx.shape[-1])
    along = (dy * normed).mean(-1, keepdims=True)
    right = rstd * (dy - normed * along)
    require_precision("dx", dx, right)
    for likely, hint in (
        (dy, "dx is dn alone: normed = x · rstd, and x also moves rstd"),
        (rstd * dy, "dx is rstd · dn alone: x also moves the root mean square, and with it all channels of its row"),
        (
            rstd * (dy - dy.mean(-1, keepdims=True) - normed * along),
            "dx is layer norm's: this forward subtracts no mean, so the backward subtracts no mean(dn)",
        ),
        (
            rstd * (dy - dy.mean(-1, keepdims=True)),
            "dx is rstd · (dn − mean(dn)), as where a forward subtracts a mean: this one subtracts none",
        ),
        (
            rstd * (dy - normed * dy.mean(-1, keepdims=True)),
            "normed is multiplied by mean(dn), and must be by mean(dn · normed)",
        ),
        (
            -rstd * normed * along,
            "the first term, rstd · dn, is missing: x is used in normed, too, and not only in rstd",
        ),
        (rstd * (dy + normed * along), "the second term has the wrong sign: a larger x makes rstd smaller"),
        (rstd * dy - normed * along, "dx is rstd · dn − normed · mean(dn · normed): rstd is a factor of both terms"),
        (dy - rstd * normed * along, "rstd is missing in the first term: it is a factor of both"),
        (dy - normed * along, "rstd is missing: normed = x · rstd"),
        *(
            (
                rstd * (dy - rstd**power * normed * along),
                "normed stands where x belongs: the mean square is that of x = normed / rstd",
            )
            for power in (1, 2)
        ),
        (
            rstd * (dy - along),
            "dx is rstd · (dn − mean(dn · normed)): the mean is taken away along normed, so multiply it by normed",
        ),
        (
            rstd * (dy - normed * len(ones) * along),
            "normed is multiplied by the sum of dn · normed, and must be by the mean: the mean square is a mean, too",
        ),
        (
            rstd * (dy - normed * (dy * normed).mean(1, keepdims=True)),
            "the mean of dn · normed is taken over positions: each position has a root mean square of its own",
        ),
        (rstd**2 * (dy - normed * along), "dx has rstd²: normed = x · rstd, so rstd is a factor once"),
        (
            rstd * (dy - np.abs(normed) * along),
            "the second term has |normed|: its sign counts, as it says which way x moves the mean square",
        ),
        ((dy - normed * along) / rstd, "it divides by rstd, which is 1 / √(mean square) already: multiply by it"),
    ):
        require(not np.allclose(dx, likely), hint)
    moved = dy.copy()
    moved[-1, -1] += 1 + np.arange(dx.shape[-1])
    require(
        np.allclose(gradients(moved, normed, rstd, ones)[0][0], dx[0]),
        "another dy in the last row changes dx in the other rows: the mean is over the channels of each row (axis=-1, "
        "keepdims=True)",
    )
    second, expected = rstd * dy - dx, rstd * normed * along
    times = np.vdot(expected, second) / np.vdot(expected, expected)
    require(
        abs(times - 1) < 1e-3 or not np.allclose(second, times * expected),
        f"the second term, rstd · normed · mean(dn · normed), is {times:.3g} times what it should be: mind the 2 of "
        "x², the ½ of the root and the 1/C of the mean",
    )
    require(
        np.allclose((dx * normed).sum(-1), 0),
        "dx · normed is not 0 in each row, but moving x along normed leaves y as it is: is normed · mean(dn · normed) "
        "subtracted?",
    )
    louder = gradients(dy, normed, rstd, 2 * ones)[0]
    require(not np.allclose(louder, dx), "dx does not depend on gamma, and dn = dy · gamma does: y = gamma · normed")
    require(
        np.allclose(louder, 2 * dx),
        "with gamma twice as large dx must double: dn = dy · gamma stands in both terms",
    )


# --- SwiGLU ---------------------------------------------------------------------------------------------------


def _swiglu_backward(dy, cache):
    gate, up = cache
    _, cache = ops.gated_forward(gate, up, "silu")
    return ops.gated_backward(dy, cache)


@exercise(answer=_swiglu_backward)
def swiglu_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    gate, up, dy = rng.standard_normal((3, 2, 3, 4))
    sigmoid = 1 / (1 + np.exp(-gate))
    silu = gate * sigmoid
    dgate, dup = require_arrays(attempt(dy, (gate, up)), "dgate", "dup")
    for name, gradient in (("dgate", dgate), ("dup", dup)):
        require(
            gradient.shape == gate.shape,
            f"{name} has shape {gradient.shape} and must have {gate.shape}, gate's and up's",
        )
    right = dy * up * (sigmoid + silu * (1 - sigmoid)), dy * silu
    require(
        not (np.allclose(dgate, right[1]) and np.allclose(dup, right[0])),
        "the two gradients are returned in the other order: dgate, dup",
    )
    of_up = (1 + np.tanh(up / 2)) / 2
    exchanged = dy * gate * of_up * (1 + up * (1 - of_up)), dy * up * of_up
    for a, b in (exchanged, exchanged[::-1]):
        require(
            not (np.allclose(dgate, a) and np.allclose(dup, b)),
            "gate and up are exchanged: the cache is the tuple gate, up, and silu is of gate",
        )
    for likely, hint in (
        (dy * up, "dup is dy · up: the slope of silu(gate) · up in up is the other factor, silu(gate)"),
        (dy * up * of_up, "dup is dy · silu(up): the slope in up is the other factor, silu(gate)"),
        (dy * gate * (1 - sigmoid), "dup is dy · gate · σ(−gate): σ(z) is 1 / (1 + e^−z), with the minus"),
        (right[0] / up, "dup is dy times the slope of silu: y is linear in up, so no slope is needed"),
        (dy * gate, "dup is dy · gate: what multiplies up is silu(gate)"),
        (dy * sigmoid, "dup is dy · σ(gate): what multiplies up is silu(gate) = gate · σ(gate)"),
        (dy * np.maximum(gate, 0), "dup is dy · relu(gate): the activation is silu"),
        (dy * silu * up, "dup is dy · silu(gate) · up: the slope of a product in one factor is the other factor alone"),
        (silu, "dup is silu(gate) without dy: the chain rule multiplies by what comes from above"),
        (dy * silu * (1 - sigmoid), "dup has a factor 1 − σ(gate): y is linear in up, so no slope is needed"),
        (dy * up * sigmoid, "dup is dy · up · σ(gate): the slope in up is the other factor, gate · σ(gate)"),
        *(
            (dy * gate / (1 + np.exp(-times * gate)), f"dup has σ({times:g} · gate): silu is gate · σ(gate)")
            for times in (1.702, 2.0, 0.5)
        ),
    ):
        require(not np.allclose(dup, likely), hint)
    require_close("dup", dup, right[1])
    for likely, hint in (
        (right[0] / up, "dgate is without up: y = silu(gate) · up, so the slope in silu(gate) is up"),
        (right[0] / dy, "dgate is without dy: the chain rule multiplies by what comes from above"),
        (dy * up, "dgate is dy · up: that is the gradient of silu(gate), and the slope of silu is still to come"),
        (dy * up * silu, "dgate has silu(gate) itself where its slope belongs"),
        (right[0] * silu / up, "dgate has silu(gate) where up belongs: the slope in one factor is the other factor"),
        (
            dy * up * sigmoid + silu * (1 - sigmoid),
            "dy · up multiplies the first term alone: it is a factor of σ + gate · σ (1 − σ), so mind the parentheses",
        ),
        (
            dy * up * (sigmoid + gate * (1 - sigmoid)),
            "dgate has σ + gate · (1 − σ): the slope of σ is σ (1 − σ), and its factor σ is missing",
        ),
        (
            dy * up * (1 + gate * (1 - sigmoid)),
            "dgate has 1 + gate · (1 − σ) for the slope of silu: the factor σ(gate) is missing",
        ),
        (
            dy * up * (1 + silu * (1 - sigmoid)),
            "dgate has 1 + gate · σ (1 − σ): the first term is the slope of gate, 1, times σ(gate)",
        ),
        (
            dy * up * (sigmoid + silu * (1 - silu)),
            "dgate has 1 − silu(gate) where 1 − σ(gate) belongs: σ (1 − σ) is the slope of the sigmoid",
        ),
        (
            dy * up * sigmoid,
            "dgate has σ(gate) for the slope of silu: gate stands twice in gate · σ(gate), so there are two terms",
        ),
        (
            dy * up * silu * (1 - sigmoid),
            "dgate has gate · σ (1 − σ) for the slope of silu: gate stands twice in gate · σ(gate); σ is missing",
        ),
        (dy * up * sigmoid * (1 - sigmoid), "dgate has the sigmoid's slope, σ (1 − σ): silu is gate · σ(gate)"),
        (
            dy * up * (sigmoid + sigmoid * (1 - sigmoid)),
            "dgate has σ + σ (1 − σ): the second term lacks the factor gate",
        ),
        (dy * up * (sigmoid - silu * (1 - sigmoid)), "dgate has σ − gate · σ (1 − σ): the two terms of a product add"),
        (
            dy * gate * (right[0] / dy / up),
            "dgate has gate where up belongs: the slope in one factor is the other factor",
        ),
        (dy * up * (1 - np.tanh(gate) ** 2), "dgate has tanh's slope, 1 − tanh²: the activation is silu"),
        (
            dy * up * silu * (1 + gate * (1 - sigmoid)),
            "dgate has a factor gate too many: the slope of gate · σ(gate) is σ + gate · σ (1 − σ)",
        ),
        (
            dy * up * (silu + silu * (1 - sigmoid)),
            "dgate has gate · σ(gate) for the first term: the slope of gate is 1, so that term is σ(gate)",
        ),
        (dy * up * (sigmoid + silu * (1 - sigmoid**2)), "dgate has 1 − σ² where 1 − σ belongs: the slope is σ (1 − σ)"),
        (right[0] + right[1], "dgate has dup added: gate and up are two arguments, and each has its own gradient"),
        (dy * up * (gate > 0), "dgate has relu's slope, 0 or 1: the activation is silu"),
    ):
        require(not np.allclose(dgate, likely), hint)
    require_close("dgate", dgate, right[0])

    require_gradients(
        lambda gate, up: (ops.gated_forward(gate, up, "silu")[0], (gate, up)),
        lambda dy, cache: attempt(dy, cache),
        {"gate": 2 * gate, "up": up},
    )
    large = np.array([[[-1e4, -800.0, 800.0, 1e4]]])
    dgate, dup = require_arrays(attempt(np.ones_like(large), (large, 3 * np.ones_like(large))), "dgate", "dup")
    require(
        np.isfinite(dgate).all() and np.isfinite(dup).all(),
        "gates of ±800 or more give NaN or infinity: e^800 overflows, and ∞ / ∞ or 0 · ∞ is NaN. The sigmoid is also "
        "(1 + tanh(gate / 2)) / 2, which never overflows",
    )
    require_close("for gates of ±800 and more dgate", dgate, np.array([[[0.0, 0.0, 3.0, 3.0]]]))
    require_close("for gates of ±800 and more dup", dup, np.maximum(large, 0))
    for shape in ((1, 1, 7), (3, 4, 2)):
        gate, up, dy = rng.standard_normal((3, *shape))
        found = require_arrays(attempt(dy, (gate, up)), "dgate", "dup")
        for name, mine, e in zip(("dgate", "dup"), found, _swiglu_backward(dy, (gate, up)), strict=True):
            require_close(f"for arrays of shape {shape} {name}", mine, e)


# --- Rotary positions -----------------------------------------------------------------------------------------


def _rope_forward(x, cos, sin):
    y, _ = ops.rope_forward(x, cos, sin)
    return y, (cos, sin)


def _rope_backward(dy, cache):
    _, cache = ops.rope_forward(dy, *cache)
    return ops.rope_backward(dy, cache)


def _turned(x: np.ndarray, cos: Any, sin: Any) -> np.ndarray:
    """The halves (a, b) of x as (a cos − b sin, b cos + a sin)."""
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def _mistaken(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> list[tuple[np.ndarray, str]]:
    """Return x turned by each known mistake, with its hint; for the backward, pass `sin` with the other sign."""
    a, b = np.split(x, 2, axis=-1)
    even, odd = x[..., 0::2], x[..., 1::2]
    first, second = a * cos - b * sin, b * cos + a * sin
    halves = _turned(np.concatenate([even, odd], axis=-1), cos, sin)
    last_first = b[..., ::-1]

    def halved(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.concatenate([first, second], axis=-1)

    def woven(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.stack([first, second], axis=-1).reshape(x.shape)

    return [
        (
            woven(*np.split(halves, 2, axis=-1)),
            "the pairs are neighbours, channels 2j and 2j + 1: here channel j goes with channel j + D/2",
        ),
        (
            woven(even * cos + odd * sin, odd * cos - even * sin),
            "the pairs are neighbours, where channel j goes with channel j + D/2; and they turn the other way",
        ),
        (halves, "the pairs are read as neighbours, 2j and 2j + 1, and written as halves: read channels j and j + D/2"),
        (
            woven(first, second),
            "the two halves of the result are woven into each other: the first of all pairs stand in the first half",
        ),
        (halved(second, first), "the two halves of the result are exchanged: what a becomes stands in the first half"),
        (-halved(first, second), "the wrong sign everywhere: an angle and its opposite have the same cos"),
        (_turned(x, sin, cos), "cos and sin are exchanged: angle 0, with cos 1, leaves a pair as it is"),
        (_turned(x, -sin, -cos), "cos and sin are exchanged in it: angle 0, with cos 1, leaves a pair as it is"),
        (
            halved(first, b * cos + first * sin),
            "the new a has a part in the new b: is a overwritten before it is used? Both lines need the old a and b",
        ),
        (
            halved(first, -second),
            "the second half has the wrong sign: that turns and mirrors, as with b' = a sin − b cos for b cos + a sin",
        ),
        (halved(-first, second), "the first half has the wrong sign: that turns and mirrors"),
        (_turned(x, cos**2 - sin**2, 2 * sin * cos), "it turns twice as far: by twice the angles"),
        (_turned(x, cos[::-1], sin[::-1]), "positions are counted from the end: row t of cos and sin is position t's"),
        (halved(first, b), "only the first half is turned: b becomes something, too"),
        (halved(a, second), "only the second half is turned: a becomes something, too"),
        (halved(a * cos, b * sin), "a is multiplied by cos and b by sin: a rotation mixes the two"),
        (halved(a * cos, b * cos), "the terms with sin are missing: a and b both stand in both lines"),
        (halved(-b * sin, a * sin), "the terms with cos are missing: a and b both stand in both lines"),
        (
            halved(a * cos - a * sin, b * cos + b * sin),
            "the halves are not exchanged in the terms with sin: a becomes something of b, and b of a",
        ),
        (
            x * np.repeat(cos, 2, axis=-1) + halved(-b, a) * np.repeat(sin, 2, axis=-1),
            "neighbours share a number of cos and sin, as by np.repeat: here channels j and j + D/2 share number j",
        ),
        (
            halved(a * cos - last_first * sin, (last_first * cos + a * sin)[..., ::-1]),
            "channel j goes with the channel that is as far from the end: here channel j goes with channel j + D/2",
        ),
        (
            _turned(x, cos[:, :1], sin[:, :1]),
            "all pairs of a position turn by the angle of the first: column j of cos and sin is pair j's",
        ),
    ]


def _angles(rng: Any, T: int, D: int) -> tuple[np.ndarray, np.ndarray]:
    angles = rng.uniform(-3, 3, (T, D // 2))
    angles[0] = 0
    return np.cos(angles), np.sin(angles)


ROPE_SHAPES = ((2, 3, 5, 8), (1, 4, 4, 6), (3, 1, 2, 2))


@exercise(answer=_rope_forward)
def rope_forward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    for shape in ROPE_SHAPES:
        x, (cos, sin) = rng.standard_normal(shape), _angles(rng, *shape[2:])
        result = attempt(x, cos, sin)
        require(
            isinstance(result, tuple | list) and len(result) == 2,
            f"it must return the tuple y, cache, not {_what(result)}",
        )
        y, cache = require_array(result[0], "y"), result[1]
        require(y.shape == x.shape, f"y has shape {y.shape} and must have x's, {x.shape}")
        with in_case(f"for x of shape {shape}"):
            _judge_turned(x, cos, sin, y)
        exchanged = isinstance(cache, tuple | list) and len(cache) == 2 and np.array_equal(cache[0], sin)
        require(
            not (exchanged and np.array_equal(cache[1], cos)),
            "the cache is (sin, cos), and the order is (cos, sin), as they were given",
        )
        require(
            isinstance(cache, tuple | list)
            and len(cache) == 2
            and all(np.shape(mine) == cos.shape for mine in cache)
            and np.array_equal(cache[0], cos)
            and np.array_equal(cache[1], sin),
            "the cache must be the tuple (cos, sin), as they were given: the backward needs no more",
        )


def _judge_turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, y: np.ndarray) -> None:
    a, b = np.split(x, 2, axis=-1)
    right = _turned(x, cos, sin)
    for likely, hint in (
        (x, "y is x: nothing is turned"),
        (_turned(x, cos, -sin), "it turns the other way: a' = a cos − b sin, b' = b cos + a sin"),
        (
            np.concatenate([a * cos - b * sin, b * cos - a * sin], axis=-1),
            "the sign of sin in the second half is wrong: b' = b cos + a sin",
        ),
        (
            np.concatenate([a * cos + b * sin, b * cos + a * sin], axis=-1),
            "the sign of sin in the first half is wrong: a' = a cos − b sin",
        ),
        *_mistaken(x, cos, sin),
    ):
        require(np.allclose(likely, right) or not np.allclose(y, likely), hint)
    require(
        np.allclose(_lengths(y), _lengths(x)),
        "the lengths of pairs change, and a rotation keeps them: a'² + b'² = a² + b². Mind the signs, and which "
        "channels go together",
    )
    require(
        np.allclose(y[:, :, 0], x[:, :, 0]),
        "position 0, whose angles are all 0, does not stay as it is: row t of cos and sin belongs to position t",
    )
    for heads in range(x.shape[1]):
        require(
            not np.allclose(y[:, heads], right[:, heads]) or np.allclose(y, right),
            f"head {heads} is right and another is not: all heads of a position turn by the same angles",
        )
    require_close("y", y, right)


def _lengths(x: np.ndarray) -> np.ndarray:
    """The lengths of the pairs."""
    return np.hypot(*np.split(x, 2, axis=-1))


@exercise(answer=_rope_backward)
def rope_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    for shape in ROPE_SHAPES:
        dy, (cos, sin) = rng.standard_normal(shape), _angles(rng, *shape[2:])
        dx = require_array(attempt(dy, (cos, sin)), "dx")
        require(dx.shape == dy.shape, f"dx has shape {dx.shape} and must have dy's, {dy.shape}")
        da, db = np.split(dy, 2, axis=-1)
        right = _turned(dy, cos, -sin)
        with in_case(f"for dy of shape {shape}"):
            for likely, hint in (
                (dy, "dx is dy: a rotation has a backward, too"),
                (
                    _turned(dy, cos, sin),
                    "dy is turned on, by the same angles as x: the transpose of a rotation turns back",
                ),
                (
                    np.concatenate([da * cos + db * sin, db * cos + da * sin], axis=-1),
                    "the sign of one sin is wrong: da = da' cos + db' sin, db = db' cos − da' sin",
                ),
                (
                    np.concatenate([da * cos - db * sin, db * cos - da * sin], axis=-1),
                    "the sign of a's sin is wrong: da = da' cos + db' sin, since a went into b' with + sin",
                ),
                *_mistaken(dy, cos, -sin),
            ):
                require(np.allclose(likely, right) or not np.allclose(dx, likely), hint)
            require(
                np.allclose(_lengths(dx), _lengths(dy)),
                "the lengths of pairs change: a rotation keeps them, backwards too. Mind the signs, and which channels "
                "go together",
            )
            require_close("dx", dx, right)
            require_gradients(
                lambda x, cos=cos, sin=sin: (_turned(x, cos, sin), (cos, sin)),
                lambda dy, cache: attempt(dy, cache),
                {"x": rng.standard_normal(shape)},
            )


def _what(result: Any) -> str:
    return f"{len(result)} things" if isinstance(result, tuple | list) else f"one {type_name(result)}"


# --- Grouped heads --------------------------------------------------------------------------------------------


def _repeat_heads_backward(dy, kv_heads):
    batch, heads, time, width = dy.shape
    return dy.reshape(batch, kv_heads, heads // kv_heads, time, width).sum(2)


@exercise(answer=_repeat_heads_backward)
def repeat_heads_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    for (B, Hk, T, D), groups in (((2, 2, 4, 5), 3), ((1, 4, 3, 2), 2), ((2, 1, 2, 3), 4), ((3, 3, 2, 2), 1)):
        H = Hk * groups
        dy = rng.standard_normal((B, H, T, D))
        dx = require_array(attempt(dy, Hk))
        right = _repeat_heads_backward(dy, Hk)
        for shape, hint in (
            ((B, groups, T, D), f"H / Hk = {groups} heads of queries are one group, and there are Hk = {Hk} groups"),
            ((B, H, T, D), "a head of keys gets one gradient, the sum over the heads that used it"),
            ((B, 1, T, D), "only the heads of one group are added"),
            ((B, Hk, 1, T, D), "the axis of the group stays: sum it away"),
        ):
            require(
                dx.shape != shape or shape == right.shape,
                f"dy of shape {dy.shape} with {Hk} heads of keys has become {dx.shape} and must become {right.shape}: "
                f"{hint}",
            )
        require(
            dx.shape == right.shape,
            f"dy of shape {dy.shape} with {Hk} heads of keys has become {dx.shape} and must become {right.shape}",
        )
        grouped = dy.reshape(B, Hk, groups, T, D)
        alternate = dy.reshape(B, groups, Hk, T, D)
        case = f"with {H} heads of queries and {Hk} of keys"
        for likely, hint in (
            (
                alternate.sum(1),
                "heads that lie Hk apart are added: neighbours share, head h of the queries uses head h // (H / Hk)",
            ),
            (
                grouped[:, :, 0],
                "only the first head of each group is there: all of them used the same keys, and add up",
            ),
            (
                grouped[:, :, -1],
                "only the last head of each group is there: is something overwritten, where it must add?",
            ),
            (alternate.mean(1), "heads that lie Hk apart are averaged: neighbours share, and their gradients add"),
            (grouped.max(2), "the largest of each group is taken: gradients of what is used several times add"),
            (right[:, ::-1], "the groups are in the reverse order"),
            (
                np.repeat(dy.sum(1, keepdims=True), Hk, axis=1),
                "all heads of queries are added for each head of keys: only those of its group used it",
            ),
            (
                dy.reshape(B, Hk, T, groups, D).sum(3),
                "positions are mixed: cut the axis of the heads in two, (B, Hk, H / Hk, T, D), and no other",
            ),
            (dy[:, :Hk], "the first heads of dy are there as they were: a sum over each group is asked for"),
        ):
            require(np.allclose(likely, right) or not np.allclose(dx, likely), f"{case}, {hint}")
        require_close(
            f"{case}, the result",
            dx,
            right,
            factors={
                "one divided by the size of a group: gradients add, they are not averaged": 1 / groups,
                "one divided by the root of the size of a group: gradients add": groups**-0.5,
            },
        )
        require_gradients(
            lambda x, groups=groups: (np.repeat(x, groups, axis=1), x.shape[1]),
            lambda dy, kv_heads: attempt(dy, kv_heads),
            {"x": rng.standard_normal((B, Hk, T, D))},
        )


# --- A kernel -------------------------------------------------------------------------------------------------


def _rmsnorm_rows(x, gamma, eps=1e-6):
    require_kernels()
    y, cache = kernels.rmsnorm_forward(x, gamma, eps)
    return y, cache.rstd


@exercise(answer=_rmsnorm_rows)
def rmsnorm_rows(attempt: Attempt) -> None:
    needs_kernels(attempt, None, None)
    rng = np.random.default_rng(0)

    def judged(x: np.ndarray, eps: float | None = None) -> Any:
        """Return y and rstd and the right ones, in float64, the report, and the tensors x, y and rstd."""
        gamma = (1 + rng.random(x.shape[1])).astype(np.float32)
        given, gains = tensor(x), tensor(gamma)
        with sanitize() as seen:
            found = attempt(given, gains) if eps is None else attempt(given, gains, eps)
        unpack(found, "y", "rstd")
        shapes = {"y": x.shape, "rstd": (len(x),)}
        numbers = [as_numbers(name, f, shapes[name], torch.float32) for name, f in zip(shapes, found, strict=True)]
        x64, gamma64 = x.astype(np.float32).astype(np.float64), gamma.astype(np.float64)
        right, (_, rstd, _) = ops.rmsnorm_forward(x64, gamma64, 1e-6 if eps is None else eps)
        return *numbers, right, rstd[:, 0], gamma64, x64, seen, (given, found[0], found[1])

    y, rstd, right, right_rstd, gamma, x, seen, tensors = judged(3 + rng.standard_normal((3, 8)), 0.5)
    written = seen.written(tensors[1])
    require(
        not partly_written(seen, tensors[1]) or written % 8,
        f"of 3 rows of 8, kernels have written {written} of y's 24 numbers: is there a program for each row?",
    )
    require(
        not partly_written(seen, tensors[1]),
        f"of 3 rows of 8, kernels have written {written} of y's 24 numbers: are BLOCK and the mask as long as a row?",
    )
    for name, tensor_, numbers in (("y", tensors[1], y), ("rstd", tensors[2], rstd)):
        require(
            not (seen.written(tensor_) and np.isnan(numbers).any()),
            f"a part of {name} holds NaN, as memory does here that nobody has written: are the rows that the programs "
            f"write all rows (tl.program_id(0)), and is row r of {name} where it belongs?",
        )
    n = x * right_rstd[:, None]
    centred = x - x.mean(-1, keepdims=True)
    square = (x * x).mean(-1, keepdims=True)
    for likely, hint in (
        (n, "gamma is not used"),
        (centred / np.sqrt(x.var(-1, keepdims=True) + 0.5) * gamma, "it is layer norm: here no mean is subtracted"),
        (x / np.sqrt((x * x).sum(-1, keepdims=True) + 0.5) * gamma, "the sum of squares is not divided by n"),
        (x / (np.sqrt(square) + 0.5) * gamma, "eps is added to the root: it stands under it"),
        (x / np.sqrt(square) * gamma, "eps = 0.5 was given, and changes nothing"),
        (x / (square + 0.5) * gamma, "it divides by the mean square: the root is missing"),
        (x * np.sqrt(square + 0.5) * gamma, "it multiplies by the root: divide by it"),
        (n * (1 + gamma), "1 is added to gamma"),
        (
            x * gamma / np.sqrt(((x * gamma) ** 2).mean(-1, keepdims=True) + 0.5),
            "x is multiplied by gamma before its mean square is taken: gamma comes after",
        ),
        (
            x / np.sqrt(x.mean(-1, keepdims=True) ** 2 + 0.5) * gamma,
            "it has the square of the mean, not the mean square",
        ),
        (x / np.sqrt(np.abs(x).mean(-1, keepdims=True) + 0.5) * gamma, "it has the mean of |x|, and not that of x²"),
        (x / np.sqrt(square * x.shape[1] / (x.shape[1] - 1) + 0.5) * gamma, "the sum of squares is divided by n − 1"),
        (n / gamma, "it is divided by gamma: multiply"),
        (gamma * right_rstd[:, None], "x is not in it: y = x · rstd · gamma"),
        (x / np.sqrt(square - 0.5) * gamma, "eps is subtracted: it is added under the root"),
    ):
        require(np.abs(y - likely).max() > 1e-3, f"y is wrong: {hint}")
    require_close("y", y, right, tolerance=FLOAT32)
    require(
        np.abs(rstd - 1 / right_rstd).max() > 1e-3,
        "rstd is the root mean square itself, and must be 1 divided by it: the backward multiplies by it",
    )
    require_close("rstd", rstd, right_rstd, tolerance=FLOAT32)
    require_few_launches(seen, "rmsnorm_kernel", 1, "3 rows")

    for rows, width in ((4, 5), (4, 100), (2, 4000), (3, 1)):
        x = 2 + rng.standard_normal((rows, width))
        y, rstd, right, right_rstd, *_, seen, tensors = judged(x)
        off = np.nan_to_num(np.abs(y - right).max(axis=1), nan=np.inf)
        require(
            not off[0] <= FLOAT32 or (off <= 10 * FLOAT32).all(),
            f"of {rows} rows of {width} the first is right and another is not: row r begins at r · {width}, whatever "
            "the block's length",
        )
        require(
            not partly_written(seen, tensors[1]),
            f"rows of 8 are right, and of rows of {width} the kernel writes {seen.written(tensors[1]) // rows} "
            "numbers: BLOCK must be as long as a row at least",
        )
        require(
            not np.isnan(y).any(),
            f"rows of 8 are right, and rows of {width} hold NaN: where tl.load is given a mask and no `other`, lanes "
            "whose mask is off hold anything",
        )
        lanes = 1 << (width - 1).bit_length()
        require_close(
            f"y of rows of {width} (rows of 8 are right: is the mean taken over the block's {lanes} lanes?)",
            y,
            right,
            tolerance=FLOAT32,
        )
        require_close(f"rstd of rows of {width} (rows of 8 are right)", rstd, right_rstd, tolerance=FLOAT32)
        require(
            not seen.interpreted or seen.programs[0] <= rows,
            f"for {rows} rows of {width} the kernel ran {seen.programs[0]} programs: one for each row is enough, and "
            "those beyond the last row have none",
        )
        require_safe_access(seen, f"in rows of {width}")
        require(
            not seen.interpreted or width < 1000 or seen.programs == [rows],
            f"for {rows} rows the kernel ran {seen.programs[0]} program{'s' * (seen.programs[0] != 1)}: with a program "
            "for each row they run side by side",
        )
        require_single_pass(seen, x=("read", tensors[0]), y=("written", tensors[1]), rstd=("written", tensors[2]))
    small = judged(1e-4 * rng.standard_normal((2, 6)))
    require_close("where eps is not given it must be 1e-6: y", small[0], small[2], tolerance=FLOAT32)
