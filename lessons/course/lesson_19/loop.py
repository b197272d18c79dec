"""The training loop of lesson 19: lesson 09's, with GPT's schedule."""

from itertools import islice

import numpy as np

from ..training import stoppable


def train(model, batches, steps, adam_step, report=lambda step, losses: None, peak=6e-3, warmup=50):
    """Adam on the first `steps` batches (ids, targets); returns the loss of each step.

    The rate rises linearly to `peak`, and falls along a cosine to 0. `report(step, losses)` is called after each step.
    """
    moments = {name: (np.zeros_like(weight), np.zeros_like(weight)) for name, weight in model.weights.items()}
    losses = []
    with stoppable():
        for step, (ids, targets) in enumerate(islice(batches, steps), 1):
            losses.append(model.loss_and_gradients(ids, targets))
            rate = peak * min(step / warmup, (1 + np.cos(np.pi * step / steps)) / 2)
            for name, weight in model.weights.items():
                m, v = moments[name]
                weight[...], m[...], v[...] = adam_step(weight, model.gradients[name], m, v, step, rate)
            report(step, losses)
    return losses
