"""Lesson 09's training loop, with Adam, for lessons that are about something else."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from minitransformer.system import WEBASSEMBLY
from minitransformer.system.progress import tqdm
from minitransformer.training.optimizer import Adam, Schedule, clip_scale


@contextmanager
def stoppable() -> Iterator[None]:
    """Let the notebook's stop button end a training run as its last step would."""
    try:
        yield
    except KeyboardInterrupt:
        print("stopped: the lesson goes on with what is trained by now")


def train(
    model: Any,
    batch_of: Callable[[], Mapping[str, Any]],
    steps: int,
    peak_lr: float = 3e-3,
    warmup: int = 100,
    watch: Callable[[int], None] = lambda step: None,
) -> list[float]:
    """Train a model, in place, and return the losses of the batches.

    batch_of returns the arguments of the model's loss; watch gets the number of each step after it. The notebook's stop
    button ends it early.
    """
    optimizer, schedule, losses = Adam(model.parameters, model.ops), Schedule(peak_lr, warmup), list[float]()
    with stoppable():
        for step in tqdm(range(1, steps + 1), disable=not WEBASSEMBLY):  # minutes, there
            model.parameters.zero_grad()
            loss, cache = model.loss(**batch_of())
            model.loss_backward(1.0, cache)
            optimizer.step(schedule(step), clip_scale(optimizer.grad_norm(), 1.0))
            losses.append(float(loss))
            watch(step)
    return losses
