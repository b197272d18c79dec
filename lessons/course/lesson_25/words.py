"""A small model of language for lesson 25: the next word of a sentence, from the four words before it."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minitransformer import ops

CONTEXT = 4
"""The words that the model sees."""

END = "</s>"
OTHER = "<unk>"

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]


def softmax(x: NDArray[Any]) -> NDArray[Any]:
    """The softmax over the last axis."""
    return ops.softmax_forward(x)[0]


def log_softmax(x: NDArray[Any]) -> NDArray[Any]:
    """The logarithm of the softmax over the last axis."""
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class Words:
    """The most frequent words of some sentences; all others are one word, `<unk>`."""

    def __init__(self, sentences: Sequence[str], size: int):
        counts = Counter(word for sentence in sentences for word in _split(sentence))
        self.words = [END, OTHER, *(word for word, _ in counts.most_common(size - 2))]
        self.number = {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def rows(self, sentences: Sequence[str]) -> tuple[Ids, Ids]:
        """For each word of the sentences, and for the end of each, the four before it `(N, 4)`, and its own id `(N,)`.

        Before a sentence stand ends of others.
        """
        contexts, targets = [], []
        for sentence in sentences:
            ids = [0] * CONTEXT + [self.number.get(word, 1) for word in _split(sentence)] + [0]
            for place in range(CONTEXT, len(ids)):
                contexts.append(ids[place - CONTEXT : place])
                targets.append(ids[place])
        return np.array(contexts), np.array(targets)


def _split(sentence: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", sentence.lower())


class WordModel:
    """Scores of the next word: the vectors of four words, one hidden layer, a score for each word (Bengio et al. 2003).

    All weights lie in one flat array, `data`, and their gradients in `grad`, as Adam wants them.
    """

    def __init__(self, vocab_size: int, width: int, hidden: int, seed: int = 0):
        shapes = (vocab_size, width), (CONTEXT * width, hidden), (hidden,), (hidden, vocab_size), (vocab_size,)
        scales = 0.3, (CONTEXT * width) ** -0.5, 0.0, 0.1 * hidden**-0.5, 0.0
        rng = np.random.default_rng(seed)
        parts = [
            scale * rng.standard_normal(shape, dtype=np.float32) for shape, scale in zip(shapes, scales, strict=True)
        ]
        self.data: Floats = np.concatenate([part.ravel() for part in parts]).astype(np.float32)
        self.grad = np.zeros_like(self.data)
        edges = np.cumsum([0, *(part.size for part in parts)])
        self._places = [(slice(*edge), shape) for edge, shape in zip(pairwise(edges), shapes, strict=True)]

    def views(self, flat: Floats) -> list[Floats]:
        """The parts of a flat array: the table, the hidden layer's weight and bias, the output layer's."""
        return [flat[part].reshape(shape) for part, shape in self._places]

    def forward(self, contexts: Ids) -> tuple[Floats, Any]:
        """The scores `(N, V)` after contexts `(N, 4)`."""
        table, weight, bias, out_weight, out_bias = self.views(self.data)
        vectors, embedded = ops.embedding_forward(contexts, table)  # (N, 4, width)
        first, entered = ops.linear_forward(vectors.reshape(len(contexts), -1), weight, bias)  # (N, hidden)
        hidden, bent = ops.relu_forward(first)
        logits, left = ops.linear_forward(hidden, out_weight, out_bias)  # (N, V)
        return logits, (embedded, entered, bent, left, vectors.shape)

    def backward(self, dlogits: Floats, cache: Any) -> None:
        """Write the gradients of all weights into `grad`."""
        embedded, entered, bent, left, shape = cache
        dhidden, dout_weight, dout_bias = ops.linear_backward(dlogits, left)
        dvectors, dweight, dbias = ops.linear_backward(ops.relu_backward(dhidden, bent), entered)
        dtable = ops.embedding_backward(dvectors.reshape(shape), embedded)
        parts = dtable, dweight, dbias, dout_weight, dout_bias
        for view, part in zip(self.views(self.grad), parts, strict=True):
            view[...] = part

    def loss(self, contexts: Ids, targets: Ids) -> float:
        """The mean of −log P of the targets, in nats."""
        return float(ops.cross_entropy_forward(self.forward(contexts)[0], targets)[0])


def train(
    model: WordModel,
    backward: Callable[..., NDArray[Any]],
    contexts: Ids,
    targets: Ids,
    held_out: tuple[Ids, Ids],
    taught_by: WordModel | None = None,
    temperature: float = 1.0,
    steps: int = 600,
) -> list[float]:
    """Train a model with distillation's backward; return its loss on held-out sentences every 50 steps.

    Without a teacher its share of the loss is 0, and only the words of the text count.
    """
    rng, losses = np.random.default_rng(0), []
    m, v = np.zeros((2, len(model.data)), np.float32)
    share = 0.0 if taught_by is None else 1.0
    theirs = np.zeros((len(contexts), 1), np.float32) if taught_by is None else taught_by.forward(contexts)[0]  # once
    for step in range(1, steps + 1):
        rows = rng.integers(len(contexts), size=256)
        logits, cache = model.forward(contexts[rows])
        taught = np.broadcast_to(theirs[rows], logits.shape)
        dlogits = backward(1.0, logits, taught, targets[rows], temperature, share)
        model.backward(dlogits.astype(np.float32), cache)
        ops.adam_step(model.data, model.grad, m, v, step=step, lr=0.01 * (1 - step / (steps + 1)))
        if step % 50 == 0:
            losses.append(model.loss(*held_out))
    return losses
