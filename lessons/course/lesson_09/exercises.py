"""Lesson 09: Adam, the schedule, the training loop, accumulation, and what a checkpoint must hold."""

import copy
from types import SimpleNamespace

import numpy as np

from minitransformer import ops
from minitransformer.training.optimizer import noam

from ..checks import (
    distinct,
    in_case,
    largest_error,
    require,
    require_array,
    require_arrays,
    require_close,
    type_name,
    unpack,
)
from ..exercise import Attempt, exercise
from . import solutions
from .loop import Recorder, check_loop

STATE = ("theta", "m", "v", "step", "rng")


def _adam_step(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    theta, m, v = theta.copy(), m.copy(), v.copy()
    ops.adam_step(theta, grad, m, v, step=step, lr=lr, beta1=beta1, beta2=beta2, eps=eps)
    return theta, m, v


@exercise(answer=_adam_step)
def adam_step(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    grad = np.array([3.0, -0.5, 0.02, -40.0])
    zero = np.zeros(4)
    again = [attempt(zero, grad, zero, zero, 2, 0.1) for _ in range(2)]
    require(
        np.array_equal(again[0][0], again[1][0]),
        "the same call gives another theta the second time: it must go by the m, v and step that it is given, and keep "
        "none of its own",
    )
    theta, m, v = require_arrays(attempt(zero, grad, zero, zero, 1, 0.1), "theta", "m", "v")
    for name, mean in (("m", 0.1 * grad), ("v", 0.02 * grad**2)):
        require(not np.allclose(theta, mean), f"what is returned first is {name}: theta, m, v is the order")
    require_close(
        "after one step from m = 0, m",
        m,
        0.1 * grad,
        factors={
            "β₁ where 1 − β₁ should be": 9,
            "1 / (1 − β₁): grad counts 1 − β₁ in m, and m's correction is for the step alone": 10,
            "1 − β₂ where 1 − β₁ should be": 0.2,
        },
    )
    require(
        np.allclose(attempt(zero, 2 * grad, zero, zero, 1, 0.1)[2], 4 * v),
        "a gradient twice as large must make v four times as large: v is the mean of the squares",
    )
    require(
        np.allclose(attempt(zero, 1e3 * grad, zero, zero, 1, 0.1)[2], 1e6 * v),
        "a gradient a thousand times as large does not make v a million times as large: is it clipped? Adam takes it "
        "as it comes",
    )
    require_close(
        "after one step from v = 0, v",
        v,
        0.02 * grad**2,
        factors={
            "β₂ where 1 − β₂ should be": 49,
            "1 / (1 − β₂): grad² counts 1 − β₂ in v, and v's correction is for the step alone": 50,
            "1 − β₁ where 1 − β₂ should be": 5,
            "1 − 0.999: the paper's β₂ is 0.98": 0.05,
            "(1 − β₁)²: v is the mean of grad², not of m²": 0.01,
        },
    )
    _judge_first_step(attempt, grad)
    _judge_second_step(attempt, grad)
    coarse = attempt(zero, np.ones(4), zero, zero, 1, 1.0, 0.9, 0.98, 0.5)[0]
    require(
        np.allclose(coarse, -1 / 1.5),
        f"with ε = 0.5 and a gradient of 1 the first step is {-float(np.mean(coarse)):.3f} long and must be 1/(1 + ε): "
        "ε is added to √v̂, outside the root, after the correction",
    )
    _judge_ten_steps(attempt, rng)


def _judge_first_step(attempt: Attempt, grad: np.ndarray) -> None:
    zero = np.zeros(4)
    theta = attempt(zero, grad, zero, zero, 1, 0.1)[0]
    require(
        np.isfinite(theta).all(),
        "theta holds NaN or infinity after step 1: `step` counts from 1, where 1 − β^step is not 0",
    )
    require(
        np.allclose(attempt(zero, grad, zero, zero, 1, 0.2)[0], 2 * theta),
        "with twice the learning rate the step must be twice as long",
    )
    moved = -theta / (0.1 * np.sign(grad))
    require(
        (moved > 0).all(),
        "it steps up the gradient, or not at all, at some elements: where grad is positive theta must fall",
    )
    require(
        np.ptp(moved) < 1e-3 * moved.max(),
        "in the first step gradients of different size make steps of different length; m̂ / √v̂ is ±1 there",
    )
    known = {
        0.1 / np.sqrt(0.02): "neither m nor v is corrected for beginning at 0",
        0.1: "v is corrected for beginning at 0, and m is not",
        1 / np.sqrt(0.02): "m is corrected for beginning at 0, and v is not",
        5.0: "m is corrected by β₂, and its own is β₁",
        np.sqrt(0.1 / 0.02): "v is corrected by β₁, and its own is β₂",
        1e9: "√v̂ is multiplied by ε, which must be added",
        0.01: "m is multiplied by 1 − β₁^step, and must be divided by it",
    }
    for length, why in known.items():
        require(
            abs(moved[0] / length - 1) > 1e-4,
            f"the first step is {length:.3g} learning rates long and must be 1: {why}",
        )
    require(
        abs(moved[0] - 1) < 1e-4,
        f"the first step is {distinct(moved[0], 1)[0]} learning rates long and must be 1: "
        "m / (1 − β₁^step) is grad there, and the root of v / (1 − β₂^step) is |grad|, with step = 1",
    )
    require(
        np.allclose(attempt(zero + 10, grad, zero, zero, 1, 0.1)[0], theta + 10),
        "from theta = 10 it goes another way than from 0: the step is subtracted from theta, and knows nothing of it",
    )


def _judge_second_step(attempt: Attempt, grad: np.ndarray) -> None:
    zero = np.zeros(4)
    _, m, v = attempt(zero, grad, zero, zero, 1, 0.1)
    later = attempt(zero, grad, m, v, 2, 0.1)[0]
    require(
        not np.allclose(later, attempt(zero, grad, m, v, 1, 0.1)[0]),
        "from the same m and v, step 1 and step 2 are the same: the corrections 1 − β^step follow the step",
    )
    require(
        attempt(zero, zero, m, v, 2, 0.1)[0].all(),
        "where the new gradient is 0 a weight stays where it is: it must go on with m, the mean of those before",
    )
    steady = -later / (0.1 * np.sign(grad))
    require(
        not np.allclose(steady, 2**-0.5, atol=1e-4),
        "step 2 is 1/√2 learning rates long: the rate is `lr` as it is given, and the schedule's part of it is done",
    )
    require(
        np.allclose(steady, 1, atol=1e-4),
        f"where step 2 has the gradient of step 1 it is {largest_error(steady, 1)[1]} learning rates long and must "
        "be 1: m and v are the new ones, and the corrections are 1 − β to the power of the step",
    )


def _judge_ten_steps(attempt: Attempt, rng: np.random.Generator) -> None:
    theta, m, v = rng.standard_normal(50), np.zeros(50), np.zeros(50)
    expected = theta, m, v
    for step in range(1, 11):
        grad = rng.standard_normal(50)
        theta, m, v = require_arrays(attempt(theta, grad, m, v, step, 0.01), "theta", "m", "v")
        expected = _adam_step(expected[0], grad, *expected[1:], step, 0.01)
        for name, mine, theirs in zip(("theta", "m", "v"), (theta, m, v), expected, strict=True):
            require_close(f"after step {step} of ten, {name}", mine, theirs, tolerance=1e-12)
    grad, options = rng.standard_normal(50), {"step": 11, "lr": 0.01, "beta1": 0.7, "beta2": 0.8, "eps": 1e-9}
    changed = require_arrays(attempt(theta, grad, m, v, **options), "theta", "m", "v")
    for name, mine, theirs in zip(("m", "v", "theta"), changed[1:] + changed[:1], (1, 2, 0), strict=True):
        right = _adam_step(theta, grad, m, v, **options)[theirs]
        require(
            np.allclose(mine, right, rtol=1e-9),
            f"with beta1 = 0.7 and beta2 = 0.8, {name} is not what it should be: are the β's that were given used, and "
            "not 0.9 and 0.98?",
        )


@exercise(answer=solutions.schedule)
def schedule(attempt: Attempt) -> None:
    d, w = 50, 100
    peak = (d * w) ** -0.5

    def at(step: float, d: int = d, w: int = w) -> float:
        rate = attempt(step, d, w)
        require(np.ndim(rate) == 0, f"for one step it must return one number, not an {type_name(rate)}")
        require(np.isfinite(rate), f"at step {step} it gives NaN or infinity")
        return float(rate)

    require(at(200) > 0, f"at step 200 of a climb of {w} the rate is {at(200):.3g}, and must be above 0")
    require(
        not (np.isclose(at(w // 4), 2 * peak) and np.isclose(at(4 * w), 4 * peak)),
        "it goes along the higher one of the two pieces: the rate follows the lower one, so that it first climbs",
    )
    require(
        not np.isclose(at(w), 2 * peak),
        "the two pieces are added: the rate follows the lower one of them",
    )
    require(
        np.isclose(at(16 * w), at(4 * w) / 2, rtol=1e-6),
        f"four times the steps after the climb must give half the rate, and give {at(16 * w) / at(4 * w):.3g} of it",
    )
    require(
        not np.isclose(at(w), peak / np.sqrt(w)) and not np.isclose(at(w), 1 / np.sqrt(w)),
        f"at step w = {w} the rate is {at(w):.3g} and must be 1 / √(d_model · w), {peak:.3g}: is d_model in it, once?",
    )
    for power, name in ((-1, "−1"), (-0.5, "−0.5"), (1.5, "1.5")):
        require(
            not np.isclose(at(1), min(d**-0.5, d**-0.5 * w**power)),
            f"the climb's slope is w^{name} / √d_model, and must be w^−1.5 / √d_model: at w it meets the other piece",
        )
    require(not np.isclose(at(w), d * peak), "the rate is multiplied by √d_model, and must be divided by it")
    require(
        np.isclose(at(40), 2 * at(20)) and np.isclose(at(1), at(w) / w),
        f"the climb must be a straight line that begins at 0: at step 1 the rate is {at(1) / at(w):.3g} of the peak, "
        f"and must be 1 / w, {1 / w:.3g}",
    )
    require(
        np.isclose(at(w), peak),
        f"at step w = {w} the rate is {distinct(at(w), peak)[0]} and must be 1 / √(d_model · w), "
        f"{distinct(at(w), peak)[1]}",
    )
    for step, width, climb in ((3, 512, 4000), (900, 512, 4000), (50_000, 1024, 4000), (7, 32, 7)):
        mine, right = at(step, width, climb), noam(step, width, climb)
        require(
            np.isclose(mine, right, rtol=1e-9, atol=0),
            f"at step {step} with d_model = {width} and a climb of {climb} steps the rate is "
            f"{distinct(mine, right)[0]} and should be {distinct(mine, right)[1]}: does it use the sizes it is given?",
        )
    steps = np.arange(1.0, 401.0).reshape(2, 200)
    result = attempt(steps, d, w)
    require(
        np.shape(result) == steps.shape,
        f"for steps of shape {steps.shape} it returns {type_name(result)}: it must work for every step of an array "
        "(np.minimum compares element by element)",
    )
    require_close("for an array of steps, the rate", result, np.vectorize(noam)(steps, d, w))
    whole = np.arange(1, 401)
    require_close("for an array of whole numbers, the rate", attempt(whole, d, w), np.vectorize(noam)(whole, d, w))


@exercise(answer=solutions.train)
def train(attempt: Attempt) -> None:
    for clip_norm, steps, every, validates in ((None, 6, 2, True), (0.5, 7, 3, True), (2.0, 4, 2, False)):
        recorder = Recorder(clip_norm, steps, every if validates else steps + 1)
        validate = recorder.validate if validates else None
        result = attempt(*recorder.given, clip_norm=clip_norm, validate=validate, every=every)
        check_loop(recorder, result)
    recorder = Recorder(0.5, 4, 2)
    with in_case("where clip_norm, validate and every are given without their names,"):
        check_loop(recorder, attempt(*recorder.given, 0.5, recorder.validate, 2))
    recorder = Recorder(None, 205, 100)
    with in_case("where neither clip_norm nor every is given,"):
        check_loop(recorder, attempt(*recorder.given, validate=recorder.validate))
    recorder = Recorder(None, 2, 3)
    with in_case("where no validate is given,"):
        check_loop(recorder, attempt(*recorder.given, every=1))


class _Part:
    """Part of a batch: some target tokens, each with a loss and a gradient (3,), in `sentences` sentences."""

    def __init__(self, rng: np.random.Generator, targets: int) -> None:
        self.rows, self.sentences = rng.standard_normal((targets, 4)), targets

    def __len__(self) -> int:
        return self.sentences


@exercise(answer=solutions.accumulate)
def accumulate(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    calls = []

    def gradient(part):
        grad = part.rows[:, 1:].mean(axis=0)
        calls.append((grad, grad.copy()))
        return float(part.rows[:, 0].mean()), grad, len(part.rows)

    def of(*parts):
        calls.clear()
        result = attempt(given := list(parts), gradient)
        require(given == list(parts), "it changes the order of the parts, in the list that it was given")
        loss, _ = unpack(result, "loss", "grad")
        require(
            len(calls) == len(parts),
            f"gradient was called {len(calls)} times for {len(parts)} part{'s' * (len(parts) > 1)}: once for each, "
            "since a call costs a forward and a backward",
        )
        require(
            all(np.array_equal(grad, before) for grad, before in calls),
            "it writes into an array that `gradient` returned (g *= n, or += on the first one): that array is the "
            "caller's, and a model may keep it; n * g makes a new one",
        )
        require(loss.ndim == 0, f"the loss must be one number, not an {type_name(loss)}")
        whole = np.concatenate([part.rows for part in parts])
        return (float(loss), require_array(result[1], "grad")), (whole[:, 0].mean(), whole[:, 1:].mean(axis=0))

    single = _Part(rng, 5)
    (_, alone), (_, expected) = of(single)
    of(_Part(rng, 2))
    require(
        np.allclose(of(single)[0][1], alone),
        "the same part gives another gradient the second time: a sum must begin at 0 in every call",
    )
    require_close(
        "of a single part, the gradient", alone, expected, factors={"the number of its targets": 5, "1 / 5": 0.2}
    )
    three = [_Part(rng, 4) for _ in range(3)]
    (_, grad), (_, expected) = of(*three)
    require(grad.any(), "of three parts the gradient is 0: // makes every share a whole number, which is 0")
    for number in range(3):
        silent = copy.deepcopy(three)
        silent[number].rows *= 0
        require(
            not np.allclose(of(*silent)[0][1], grad),
            f"of three parts, number {number + 1} does not count: are gradients added, or overwritten?",
        )
    require_close(
        "of three equal parts, the gradient",
        grad,
        expected,
        factors={"the number of parts: a sum is not a mean": 3, "1 / 3: divided by the parts once too often": 1 / 3},
    )
    one, seven = _Part(rng, 1), _Part(rng, 7)
    (loss, grad), (expected_loss, expected) = of(one, seven)
    require(
        np.allclose(grad, expected),
        "it is right for parts of equal size, and not for one target beside seven: each part counts by its share of "
        "the targets, num_targets / all of them",
    )
    require(
        np.allclose(loss, expected_loss),
        "the gradient is right, and the loss is not: its parts count by their shares of the targets too",
    )
    one.sentences, seven.sentences = 5, 3
    require(
        np.allclose(of(one, seven)[0][1], expected),
        "it changes with len(part), which is something else than the number of targets (here of sentences): a part "
        "counts by the num_targets that gradient returns",
    )
    (loss, grad), (expected_loss, expected) = of(*(_Part(rng, targets) for targets in (2, 3, 11, 5)))
    require_close("of parts of 2, 3, 11 and 5 targets, the gradient", grad, expected)
    require_close("of parts of 2, 3, 11 and 5 targets, the loss", loss, float(expected_loss))


class _Run:
    """A training of a parabola, with the attributes of the lesson's: theta is the model's own array of weights."""

    def __init__(self, seed: int) -> None:
        self.theta = np.full(6, 1.0 + seed)
        self.model = SimpleNamespace(weights=self.theta)
        self.m, self.v, self.step = np.zeros(6), np.zeros(6), 0
        self.rng = np.random.default_rng(seed)

    def train(self, steps: int) -> None:
        """Train as in the lesson, with all arrays updated in place."""
        for _ in range(steps):
            self.step += 1
            grad = self.model.weights + self.rng.standard_normal(6)
            ops.adam_step(self.theta, grad, self.m, self.v, step=self.step, lr=0.1 / self.step)


def _same(a, b) -> bool:
    """Return True if two values of a run are equal; generators are equal if they will draw the same numbers."""
    if isinstance(a, np.random.Generator):
        return a.bit_generator.state == b.bit_generator.state
    return np.array_equal(a, b)


@exercise(answer=solutions.save)
def save(attempt: Attempt) -> None:
    run = _Run(0)
    run.train(5)
    at_stop = copy.deepcopy(vars(run))
    held = {name: getattr(run, name) for name in STATE}
    saved = attempt(run)
    for name in STATE:
        require(
            getattr(run, name) is held[name] and _same(getattr(run, name), at_stop[name]),
            f"the run's own {name} is not what it was before: a save only looks, or the run goes another way after it",
        )
    require(isinstance(saved, dict), f"it must return a dict, not {type(saved).__name__}")
    unknown = ", ".join(repr(name) for name in saved if name not in STATE)
    require(
        not unknown,
        f"it saves {unknown}: restore would set that too, and what changes as the run trains is {', '.join(STATE)}",
    )
    for name, value in saved.items():
        require(
            isinstance(value, type(at_stop[name])),
            f"{name} is saved as one {type(value).__name__} and must be what the run has, one "
            f"{type(at_stop[name]).__name__}: restore puts it in as it is",
        )
        require(
            _same(value, at_stop[name]),
            f"what is saved of {name} is not what the run had when it was saved: a copy, please, and nothing new",
        )
    generator, cause = saved.get("rng"), "so save a copy"
    if generator is run.rng:
        cause = "and a generator moves on with every draw: save a copy"
    elif generator is not None and generator.bit_generator is run.rng.bit_generator:
        cause = "and copy.copy of a generator shares what moves: copy.deepcopy it"
    run.train(5)

    resumed = _Run(1)
    for name, value in saved.items():
        if isinstance(value, np.ndarray):
            getattr(resumed, name)[:] = value
        else:
            setattr(resumed, name, copy.deepcopy(value))
    why = {
        "theta": "the weights are another model's",
        "m": "Adam's mean of the gradients begins again at 0",
        "v": "Adam's mean of the squares begins again at 0, and the next steps are much too long",
        "step": "the schedule and Adam's corrections begin again",
        "rng": "the batches and dropout masks that come next are others",
    }
    for name in STATE:
        same = _same(getattr(resumed, name), at_stop[name])
        if name not in saved:
            require(same, f"after restore {name} is not what it was when the run was saved: {why[name]}")
        require(
            same,
            f"what was saved of {name} has changed since: the run went on and wrote into it, "
            + (cause if name == "rng" else "so save a copy"),
        )
    resumed.train(5)
    require(np.array_equal(resumed.theta, run.theta), "the resumed run does not end where the other one did")
    attempt(run)  # a second call, which must not change the result of the first
