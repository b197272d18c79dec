"""Lesson 26: a small Transformer that learns German from the grammar, and the gradients of a batch's shards."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minitransformer import Transformer, TransformerConfig
from minitransformer.data.batching import Batch
from minitransformer.data.token_dataset import Batches, TokenDataset
from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.grammar import pairs
from minitransformer.training.optimizer import Adam

VOCABULARY, SHARDS = 400, 8

Floats = NDArray[np.float32]


@cache
def _dataset() -> TokenDataset:
    english_german = list(pairs("train", seed=0, count=1200))
    tokenizer = BPETokenizer.train([text for pair in english_german[:300] for text in pair], VOCABULARY)
    return TokenDataset.from_pairs([(tokenizer.encode(one), tokenizer.encode(other)) for one, other in english_german])


@cache
def _batches() -> Batches:
    return Batches(_dataset(), tokens_per_batch=512, seed=0, vocab_size=VOCABULARY)


def small_model() -> Transformer:
    """Return the model, with the same weights each time."""
    return Transformer(
        TransformerConfig(VOCABULARY, d_model=32, num_heads=4, d_ff=64, num_layers=2, max_length=128, dropout=0.0)
    )


def batch_of(step: int) -> Batch:
    """Return the batch of a step, counted from 1: epoch after epoch."""
    return _batches().batch(*divmod(step - 1, len(_batches())))


def loss_and_grad(model: Transformer, part: Batch, weight: float) -> tuple[float, Floats]:
    """Return weight times the loss of a part of a batch, and its gradient."""
    model.parameters.zero_grad()
    loss, cache = model.loss(part.source, part.target_in, part.target_out)
    model.loss_backward(weight, cache)
    return weight * float(loss), model.parameters.grad.copy()


def shard_gradients(model: Transformer, batch: Batch) -> tuple[float, list[Floats]]:
    """Return the loss of a batch, and the gradients of its eight shards, whose sum is the batch's."""
    parts = batch.split(SHARDS)
    found = [loss_and_grad(model, part, part.num_targets / batch.num_targets) for part in parts]
    empty = [np.zeros_like(model.parameters.grad)] * (SHARDS - len(parts))  # a batch of few sentences has fewer parts
    return sum(loss for loss, _ in found), [grad for _, grad in found] + empty


def sentences_by_length(count: int, parts: int) -> tuple[Batch, list[Batch]]:
    """Return a batch of so many sentences, and the same sorted by length in parts of equally many sentences."""
    everything = Batches(TokenDataset.from_pairs([_dataset()[i] for i in range(count)]), 10_000, seed=0).batch(0, 0)
    by_length = np.argsort((everything.target_out != 0).sum(axis=1), kind="stable")
    return everything, [
        Batch(*[ids[rows] for ids in everything.inputs], first=0) for rows in np.array_split(by_length, parts)
    ]


# --- Two runs that drift apart ----------------------------------------------------------------------------------


def training(total_of: Callable[[list[Floats]], Floats], steps: int) -> Iterator[tuple[float, Floats]]:
    """Train a model whose shards' gradients one function adds; after each step give its loss and its weights."""
    model = small_model()
    adam = Adam(model.parameters, model.ops)
    for step in range(1, steps + 1):
        loss, grads = shard_gradients(model, batch_of(step))
        model.parameters.grad[:] = total_of(grads)
        adam.step(5e-3 * min(step / 50, (50 / step) ** 0.5))
        yield loss, model.parameters.data


class Drift(NamedTuple):
    """Two runs, step by step: their losses, and differences of weights in the root mean square and by hidden unit."""

    losses: list[tuple[float, float]]
    differences: dict[str, list[float]]
    units: list[dict[str, Floats]]


def drift(one: Callable[[list[Floats]], Floats], other: Callable[[list[Floats]], Floats], steps: int) -> Drift:
    """Make two training runs that differ in the function that adds the shards' gradients, and compare them."""
    parameters = small_model().parameters
    names = parameters.views(np.arange(len(parameters.data)))  # where each parameter lies in the flat array
    is_key_bias = np.zeros(len(parameters.data), bool)
    for name, places in names.items():
        if name.endswith("query_key_value.bias"):
            is_key_bias[np.split(places, 3)[1]] = True
        elif name.endswith("key_value.bias"):
            is_key_bias[np.split(places, 2)[0]] = True
    keys, others, of_loss = list[float](), list[float](), list[float]()
    losses, units = list[tuple[float, float]](), list[dict[str, Floats]]()
    for (loss, weights), (other_loss, other_weights) in zip(training(one, steps), training(other, steps), strict=True):
        off = weights - other_weights
        losses.append((loss, other_loss))
        keys.append(_rms(off[is_key_bias]))
        others.append(_rms(off[~is_key_bias]))
        of_loss.append(abs(loss - other_loss))
        units.append({name: np.abs(off[names[name]]).max(axis=0) for name in names if name.endswith("expand.weight")})
    return Drift(losses, {"key biases": keys, "all other weights": others, "loss": of_loss}, units)


def _rms(x: Floats) -> float:
    return float(np.sqrt(np.mean(x**2)))


def in_one_step(found: Drift, skipped: int = 20) -> Sequence[str]:
    """Say in which step the other weights drift apart most, after the first ones, and in which hidden unit."""
    other = np.array(found.differences["all other weights"])
    jump = int(np.argmax(other[skipped:] / other[skipped - 1 : -1])) + skipped
    most = max(found.units[jump], key=lambda name: found.units[jump][name].max())
    grown = other[jump] / other[jump - 1]
    lines = [f"in step {jump + 1} the difference of the other weights becomes {grown:.0f} times as large"]
    for step in (jump - 1, jump):
        units = found.units[step][most]
        lines.append(
            f"step {step + 1}, {most}: largest difference in unit {np.argmax(units)} {units.max():.0e}, "
            f"in the median unit {np.median(units):.0e}"
        )
    return lines
