"""Lesson 09: a model that records what a training loop does with it, and the checks of every step."""

import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ..checks import largest_error, require, require_float64, type_name

START = np.array([3.0, -2.0, 1.0, 0.5])
OLD = 7.0


class Update(NamedTuple):
    """The arguments of the update in a step."""

    theta: np.ndarray
    grad: np.ndarray
    m: np.ndarray
    v: np.ndarray
    step: Any
    lr: Any


class Recorder:
    """A model of four weights, whose loss is a parabola in them, and the other arguments of a training loop.

    `parameters.grad` holds an old gradient when the training begins. `events` has the calls of the loop, in order.
    """

    def __init__(self, clip_norm: float | None, steps: int, every: int) -> None:
        self.clip_norm, self.steps, self.every = clip_norm, steps, every
        self.weights = START.copy()
        self.parameters = SimpleNamespace(data=self.weights, grad=np.full(4, OLD), zero_grad=self._zero_grad)
        self.grad = self.parameters.grad
        self.events, self.more = list[tuple[str, Any]](), False
        self.given = self, self.batch_of, self.rate, steps, self.update  # the arguments of every training
        self.updates, self.returned, self.validated = list[Update](), list[tuple[np.ndarray, ...]](), list[np.ndarray]()

    def _zero_grad(self) -> None:
        self.grad[:] = 0

    def batch_of(self, step):
        self.events.append(("batch", step))
        return SimpleNamespace(
            source=np.array([step]), target_in=np.array([10 + step]), target_out=np.array([20 + step])
        )

    def rate(self, step):
        self.events.append(("rate", step))
        return 0.05 * step

    def loss(self, source, target_in, target_out, *rest, **options):
        number = int(np.ravel(source)[0]) if np.size(source) else 0
        self.events.append(("loss", (source, target_in, target_out)))
        self.more = self.more or bool(rest or options)
        return np.float64(self.truth(number, self.weights)[0]), number

    def loss_backward(self, dloss, cache):
        self.events.append(("backward", dloss))
        self.grad += float(dloss) * self.truth(cache, self.weights)[1]

    def update(self, theta, grad, m, v, step, lr):
        self.events.append(("update", step))
        self.updates.append(Update(np.array(theta), np.array(grad), np.array(m), np.array(v), step, lr))
        m, v = m + 0.1 * grad, v + 0.01 * grad**2  # not Adam's rule, to detect a training that calls adam_step itself
        self.returned.append((theta - lr * m, m, v))
        return self.returned[-1]

    def validate(self):
        self.events.append(("validate", None))
        self.validated.append(self.weights.copy())
        return 1.0 + 0.25 * len(self.validated)

    def truth(self, number: int, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Loss and gradient of a batch at theta."""
        away = theta - 0.1 * number * np.arange(4)
        return float((away**2).sum() / 8), away / 4


def check_loop(recorder: Recorder, result) -> None:
    """Check a training of some steps: its calls, their order and arguments, and its results."""
    steps, updates = recorder.steps, recorder.updates
    _check_calls(recorder)
    require(
        recorder.parameters.data is recorder.weights,
        "it puts a new array in place of parameters.data: the layers hold views into the old one, so write into it, "
        "data[:] = …",
    )
    m = v = np.zeros(4)
    theta, grads = START, []
    if len(updates) > 1:
        moved = recorder.returned[0][0]
        handed_on = np.array_equal(updates[1].theta, moved) and not np.array_equal(moved, START)
        require(
            not (handed_on and np.array_equal(recorder.parameters.data, START)),
            "theta moves, and the model's own weights stay where they were: write into parameters.data, data[:] = …",
        )
        first, second = recorder.truth(1, START)[1], recorder.truth(2, recorder.returned[0][0])[1]
        require(
            not (np.allclose(updates[0].grad, OLD + first) and np.allclose(updates[1].grad, second)),
            "the first step's gradient has also what was in grad before the training: clear it before that step too",
        )
    for number, update in enumerate(updates, 1):
        place = f"in step {number}"
        require(
            np.shape(update.theta) == (4,) and np.allclose(update.theta, theta),
            f"{place} the update gets {update.theta.round(3)} for theta, and the weights are {theta.round(3)}: each "
            "step goes on from the last",
        )
        grads.append(recorder.truth(number, theta)[1])
        _check_gradient(update.grad, grads, recorder.clip_norm, place)
        require(
            number == 1 or not (np.allclose(update.m, v) and np.allclose(update.v, m)),
            f"{place} the update gets m and v exchanged: it returns theta, m, v",
        )
        for name, given, right in (("m", update.m, m), ("v", update.v, v)):
            require(given.shape == (4,), f"{place} {name} has shape {given.shape} and must have theta's, (4,)")
            require(
                np.allclose(given, right),
                f"{place} {name} is {'0' if not given.any() else 'something else'} where the update must get what it "
                f"returned for {name} in the step before"
                if number > 1
                else f"in the first step {name} must be 0",
            )
        for name, given in zip(("theta", "the gradient", "m", "v"), update[:4], strict=True):
            require_float64(f"{place} {name}", given)
        theta, m, v = recorder.returned[number - 1]
    require(
        np.allclose(recorder.weights, theta),
        "after the training the weights are not what the last update returned: write theta into parameters.data",
    )
    _check_results(recorder, result)
    require(len(updates) == steps, f"it takes {len(updates)} steps where {steps} were asked for")


def _check_calls(recorder: Recorder) -> None:
    """Raise `Wrong` unless every step has its batch, loss, backward, rate and update, with the step's number."""
    steps, events = recorder.steps, recorder.events
    numbers = {event: [value for name, value in events if name == event] for event in ("batch", "rate", "update")}
    require(
        recorder.updates,
        "the `update` that is given is never called: the lesson, and this check, hand in their own, so call that one",
    )
    right = list(range(1, steps + 1))
    for event, what in (("update", "`update` gets the steps"), ("batch", "batch_of is asked for the steps")):
        found = numbers[event]
        require(found != [step - 1 for step in right], f"{what} 0 … {steps - 1}: steps are counted from 1")
        require(
            len(found) == steps,
            f"{event if event == 'update' else 'batch_of'} is called {len(found)} times in {steps} steps: once in each",
        )
        require(found == right, f"{what} {', '.join(map(str, found))}, and not for each of 1 … {steps}")
    backwards = [value for name, value in events if name == "backward"]
    losses = [value for name, value in events if name == "loss"]
    require(len(losses) == steps, f"model.loss is called {len(losses)} times in {steps} steps: once in each")
    require(
        len(backwards) == steps, f"model.loss_backward is called {len(backwards)} times in {steps} steps: once in each"
    )
    require(
        all(np.ndim(value) == 0 and value == 1 for value in backwards),
        "model.loss_backward must get 1.0, the slope of the loss by itself, and then the cache",
    )
    require(
        not recorder.more,
        "model.loss gets more than source, target_in and target_out: without smoothing and without dropout, please, or "
        "the losses are no longer those of the data",
    )
    for step, (source, target_in, target_out) in enumerate(losses, 1):
        given = [int(np.ravel(each)[0]) for each in (source, target_in, target_out)]
        require(
            sorted(given) != sorted([step, 10 + step, 20 + step]) or given == [step, 10 + step, 20 + step],
            "model.loss gets the batch's arrays in another order than source, target_in, target_out",
        )
        require(
            given == [step, 10 + step, 20 + step],
            f"in step {step} model.loss does not get source, target_in and target_out of that step's batch",
        )
    for number, update in enumerate(recorder.updates, 1):
        expected = 0.05 * number
        for off, why in ((-1, "that of the step before"), (1, "that of the next step")):
            require(
                not np.isclose(update.lr, expected + 0.05 * off),
                f"in step {number} the learning rate is {why}, not its own",
            )
        require(
            np.ndim(update.lr) == 0 and np.isclose(update.lr, expected),
            f"in step {number} the learning rate is not rate({number})",
        )


def _check_gradient(given: np.ndarray, grads: list[np.ndarray], clip_norm: float | None, place: str) -> None:
    """Raise `Wrong` unless the update gets the gradient of this step's batch alone, clipped if it is too long."""
    grad, norm = grads[-1], float(np.linalg.norm(grads[-1]))
    scale = 1.0 if clip_norm is None else min(1.0, clip_norm / norm)
    right = scale * grad
    if np.shape(given) == grad.shape and np.allclose(given, right):
        return
    old = np.full(4, OLD)
    for likely, why in (
        (old + sum(grads), "the sum of all so far, and of what was in grad before: clear it before each backward"),
        (sum(grads), "the sum of all gradients so far: clear them before each backward"),
        (np.zeros(4), "0: it is cleared after the backward, and must be cleared before"),
    ):
        total = np.asarray(likely)
        clipped = total * (1.0 if clip_norm is None else min(1.0, clip_norm / max(float(np.linalg.norm(total)), 1e-9)))
        require(not np.allclose(given, clipped), f"{place} the update gets a gradient that is {why}")
    if clip_norm is None:
        shrunk = float(np.linalg.norm(given)) / norm
        require(
            not (np.shape(given) == grad.shape and shrunk < 1 and np.allclose(given, shrunk * grad)),
            f"{place} the gradient is scaled from norm {norm:.3g} to {shrunk * norm:.3g}, and clip_norm is None, which "
            "is no limit",
        )
    else:
        require(
            not np.allclose(given, grad), f"{place} the gradient has norm {norm:.3g}, and is not clipped to {clip_norm}"
        )
        require(
            not np.allclose(given, clip_norm / norm * grad),
            f"{place} the gradient has norm {norm:.3g}, which is allowed, and is stretched to {clip_norm}: clip only "
            "what is longer",
        )
        require(
            not np.allclose(given, norm / clip_norm * grad),
            f"{place} the gradient is multiplied by norm / clip_norm, and must be by clip_norm / norm",
        )
        require(
            not np.allclose(given, np.clip(grad, -clip_norm, clip_norm)),
            f"{place} each element of the gradient is clipped: scale the whole, so that its direction stays",
        )
    times = float(np.vdot(grad, given) / norm**2)
    require(
        not np.allclose(given, times * grad),
        f"{place} the gradient is scaled by {times:.3g}, and must be by {float(right @ grad) / norm**2:.3g}: clip_norm "
        "is a limit on its own norm",
    )
    index, mine, wanted = largest_error(np.asarray(given, dtype=float), right)
    require(False, f"{place} the update gets another gradient than this batch has: at {index} {mine} and not {wanted}")


def _check_results(recorder: Recorder, result) -> None:
    """Raise `Wrong` for wrong losses or perplexities, and for validations at wrong steps."""
    steps, every = recorder.steps, recorder.every
    losses, perplexities = _two_lists(result)
    asked = [place for place, (name, _) in enumerate(recorder.events) if name == "validate"]
    after = [sum(name == "update" for name, _ in recorder.events[:place]) for place in asked]
    right = [step for step in range(1, steps + 1) if step % every == 0]
    require(
        after != [step - 1 for step in right] or not right,
        f"validate is asked before the update of step {right[:1]}, and must be asked after it",
    )
    require(
        after == right,
        f"with every = {every} validate is asked after the steps {_listed(after)}, and must be asked after "
        f"{_listed(right)}",
    )
    for step, seen in zip(right, recorder.validated, strict=True):
        require(
            np.allclose(seen, recorder.returned[step - 1][0]),
            f"when validate is asked after step {step}, the model does not have its new weights yet",
        )
    require(len(losses) == steps, f"it returns {len(losses)} losses for {steps} steps")
    expected, theta = [], START
    for number, (after_step, _, _) in enumerate(recorder.returned, 1):
        expected.append(recorder.truth(number, theta)[0])
        theta = after_step
    require(
        np.allclose(np.asarray(losses, dtype=float), expected),
        "the losses are not those of the steps' batches, before their updates",
    )
    require(
        len(perplexities) == len(right),
        f"there are {len(perplexities)} perplexities, and there must be {len(right)}: exp(validate()), each time it is "
        "asked, and none where no validate is given",
    )
    plain = [1.0 + 0.25 * number for number in range(1, len(right) + 1)]
    require(
        not (right and np.allclose(perplexities, plain)),
        "the perplexities are the validation losses themselves: a perplexity is exp(loss)",
    )
    require(
        np.allclose(perplexities, [math.exp(loss) for loss in plain]),
        f"where validate() gives {plain[:1]} the perplexity is {perplexities[:1]}, and must be its exponential",
    )


def _two_lists(result) -> list[list[float]]:
    """The losses and the perplexities, as the contract has them: two lists of numbers."""
    require(
        isinstance(result, tuple | list) and len(result) == 2,
        f"it must return two lists, losses and perplexities, not {type_name(result)}",
    )
    for name, numbers in zip(("losses", "perplexities"), result, strict=True):
        require(isinstance(numbers, list), f"{name} must be a list, as the contract says, not {type_name(numbers)}")
        others = [one for one in numbers if np.ndim(one) or not np.issubdtype(np.asarray(one).dtype, np.number)]
        require(not others, f"{name} must be a list of numbers, and holds one {type_name(others[0]) if others else 0}")
    return [[float(one) for one in numbers] for numbers in result]


def _listed(steps: list[int]) -> str:
    """Return a list of steps for a hint, cut to the first ones."""
    return f"{steps[:8]}"[:-1] + ", …]" if len(steps) > 8 else f"{steps}"
