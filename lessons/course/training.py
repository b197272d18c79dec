"""Lesson 09's training loop, with Adam, for lessons that are about something else."""

from collections.abc import Callable, Mapping
from typing import Any

from minitransformer.training.optimizer import Adam, Schedule, clip_scale


def train(
    model: Any,
    batch_of: Callable[[], Mapping[str, Any]],
    steps: int,
    peak_lr: float = 3e-3,
    warmup: int = 100,
    watch: Callable[[int], None] = lambda step: None,
) -> list[float]:
    """Train a model, in place, and return the losses of the batches.

    batch_of returns the arguments of the model's loss; watch gets the number of each step after it.
    """
    optimizer, schedule, losses = Adam(model.parameters, model.ops), Schedule(peak_lr, warmup), list[float]()
    for step in range(1, steps + 1):
        model.parameters.zero_grad()
        loss, cache = model.loss(**batch_of())
        model.loss_backward(1.0, cache)
        optimizer.step(schedule(step), clip_scale(optimizer.grad_norm(), 1.0))
        losses.append(float(loss))
        watch(step)
    return losses
