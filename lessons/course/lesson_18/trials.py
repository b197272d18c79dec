"""What lesson 18 tries the file with: batches of sentences, central differences, and a small model's first weights."""

import numpy as np

from minitransformer.gradcheck import error


def batch_of(examples):
    """Pairs of ids → source (B, Ts), target_in and target_out (B, Tt), filled up with 0."""
    rows = zip(*(([*source, 2], [1, *target], [*target, 2]) for source, target in examples), strict=True)
    return [np.array([ids + [0] * (max(map(len, part)) - len(ids)) for ids in part]) for part in rows]


def gradient_errors(model, batch, rng, elements=3, eps=1e-5):
    """For each weight, the largest error of its gradient against central differences, at a few random elements."""
    model.loss_and_gradients(*batch)
    gradients = {name: gradient.copy() for name, gradient in model.gradients.items()}

    def loss_with(weight, place, value):
        kept, weight[place] = weight[place], value
        loss = model.loss_and_gradients(*batch)
        weight[place] = kept
        return loss

    errors = dict.fromkeys(model.weights, 0.0)
    for name, weight in model.weights.items():
        for place in [tuple(rng.integers(weight.shape)) for _ in range(elements)]:
            up, down = (loss_with(weight, place, weight[place] + by) for by in (eps, -eps))
            slope = np.array((up - down) / (2 * eps))
            errors[name] = max(errors[name], error(np.array(gradients[name][place]), slope))
    return errors


def batches_of(examples, rng, size=64):
    """Batches without end, drawn at random."""
    while True:
        yield batch_of([examples[i] for i in rng.integers(0, len(examples), size)])


def initial_weights(model, width, d_ff, rng):
    """Weights as at the start, by the names of a model of the course, for one layer on each side.

    Matrices start within half of Xavier's bound, as the course's did.
    """
    sizes = {96: width, 192: 2 * width, 288: 3 * width, 384: d_ff}
    weights = {}
    for name, trained in model.weights.items():
        shape = [sizes.get(size, size) for size in trained.shape]
        if name == "tokens.table":
            weights[name] = rng.standard_normal(shape) / width**0.5
        elif len(shape) == 2:
            weights[name] = rng.uniform(-0.5, 0.5, shape) * (6 / sum(shape)) ** 0.5
        else:
            weights[name] = np.full(shape, float(name.endswith("gamma")))
    return {name: weight.astype(np.float32) for name, weight in weights.items() if "layers.1" not in name}
