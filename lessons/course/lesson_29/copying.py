"""Lesson 29: rows of random tokens of which a stretch comes again, and a GPT of attention alone that reads them."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from minitransformer.inside import Site, attention_maps, logit_difference, patch
from minitransformer.layers import Norm
from minitransformer.models import GPT, GPTConfig
from minitransformer.ops import log_softmax

from ..training import train

VOCABULARY, LENGTH, HEADS = 32, 40, 2

Floats = NDArray[np.floating]
Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]


def rows_of(rng: np.random.Generator, count: int) -> tuple[Ids, Flags]:
    """Return random tokens `(count, LENGTH + 1)` of which a stretch comes again, and True where they can be known.

    A stretch of 10 to 19 tokens stands somewhere in the row, and again somewhere after it. Its first token can't be
    known, the others can.
    """
    ids = rng.integers(0, VOCABULARY, (count, LENGTH + 1))
    known = np.zeros(ids.shape, bool)
    for row, flags in zip(ids, known, strict=True):
        length = rng.integers(LENGTH // 4, LENGTH // 2)
        first = rng.integers(0, LENGTH + 2 - 2 * length)
        again = rng.integers(first + length, LENGTH + 2 - length)
        row[again : again + length] = row[first : first + length]
        flags[again + 1 : again + length] = True
    return ids, known


def model_of(num_layers: int) -> GPT:
    """Return a GPT of attention alone, `d_ff=0`, with the weights of the start."""
    config = GPTConfig(VOCABULARY, d_model=64, num_heads=HEADS, d_ff=0, num_layers=num_layers, max_length=LENGTH,
                       positions="rotary", tied=False, init_std=0.1, dropout=0.0, attention_dropout=0.0)  # fmt: skip
    return GPT(config, seed=0)


def losses(logits: Floats, ids: Ids) -> Floats:
    """Return −log p of each row's tokens from the second on, `(B, LENGTH)`."""
    chances = log_softmax(logits.astype(np.float64))
    return -np.take_along_axis(chances, ids[:, 1:, None], -1)[..., 0]


@dataclass
class History:
    """A model after some steps: losses of tokens that can be known, and of the others, and attention's maps.

    maps  `(layers, B, H, T, T)` each, of rows that training never saw
    """

    steps: list[int] = field(default_factory=list)
    known: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    maps: list[Floats] = field(default_factory=list)


def read(model: GPT, steps: int, unseen: Ids, every: int = 20) -> History:
    """Train a model on fresh rows; return its history, with the maps of unseen rows."""
    rng, history = np.random.default_rng(0), History()
    test, known = rows_of(np.random.default_rng(1), 64)

    def batch() -> dict[str, Ids]:
        ids, _ = rows_of(rng, 32)
        return {"ids": ids[:, :-1], "targets": ids[:, 1:]}

    def watch(step: int) -> None:
        if step % every:
            return
        each = losses(model.forward(test[:, :-1])[0], test)
        history.steps.append(step)
        history.known.append(float(each[known[:, 1:]].mean()))
        history.others.append(float(each[~known[:, 1:]].mean()))
        history.maps.append(np.stack(list(attention_maps(model, unseen).values())))

    train(model, batch, steps, peak_lr=5e-3, warmup=50, watch=watch)
    return history


def weights_of(model: GPT, layer: int, distance: int = 0) -> tuple[Floats, Floats, Floats, Floats]:
    """Return a layer's weights of queries, keys, values `(C, H·D)` and of its output `(H·D, C)`, in float64.

    The gain of the norm in front and what it subtracts are in the first three; its scale is not. The queries are turned
    against keys that stand `distance` tokens before them.
    """
    block = model.decoder.layers[layer]
    attention, norm = block.self_attention, block.self_attention_norm
    query, key, value = np.split(_after(norm) @ attention.query_key_value.weight.data, 3, axis=1)
    heads = query.reshape(len(query), 1, HEADS, -1).swapaxes(1, 2)  # (C, H, 1, D): one position
    assert attention.rotary is not None
    turned, _ = attention.rotary.forward(heads, distance)
    return turned.swapaxes(1, 2).reshape(query.shape), key, value, attention.output.weight.data.astype(np.float64)


def embeddings_of(model: GPT) -> tuple[Floats, Floats]:
    """Return the vectors of tokens, less their mean `(V, C)`, and the directions of logits `(V, C)` before the norm."""
    final = model.decoder.final_norm
    assert final is not None
    vectors = model.tokens.table.data.astype(np.float64)
    return vectors, model.output.table.data.astype(np.float64) @ _after(final).T


def _after(norm: Norm) -> Floats:
    """The matrix `(C, C)` of a norm that does not divide."""
    width = len(norm.gamma.data)
    return (np.eye(width) - 1 / width) * norm.gamma.data


class Pair:
    """Two rows that differ in one token: in `other` the row's last token stands at `place` too, in `own` it does not.

    The token after `place` is `wanted`. Of eight random pairs it is the one that the model tells apart most clearly.
    """

    def __init__(self, model: GPT) -> None:
        self.model, self.place = model, 8
        self.own, self.other, self.wanted = max((self._drawn(seed) for seed in range(8)), key=self._lead)

    def _drawn(self, seed: int) -> tuple[Ids, Ids, int]:
        tokens = np.random.default_rng(seed).permutation(VOCABULARY)
        other = np.append(tokens[: LENGTH // 2], tokens[self.place])[None]  # (1, T)
        own = other.copy()
        own[0, self.place] = tokens[-1]  # a token that stands nowhere else
        return own, other, int(tokens[self.place + 1])

    def _lead(self, drawn: tuple[Ids, Ids, int]) -> float:
        own, other, wanted = drawn
        values = [logit_difference(wanted)(self.model.forward(ids)[0])[0] for ids in (own, other)]
        return values[1] - values[0]

    def measure(self, logits: Floats) -> tuple[float, Floats]:
        """Return the logit of the wanted token at the end, and its gradient."""
        return logit_difference(self.wanted)(logits)

    def after(self, depth: int) -> Callable[[Floats], float]:
        """Return the function that goes on from the stream `(T, C)` after so many layers, to the wanted logit."""
        return lambda x: self.measure(patch(self.model, {Site("stream", depth): x[None]}, self.own))[0]
