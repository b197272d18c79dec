"""Lesson 28: the course's translator with its weights in few bits, and what that costs it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minitransformer.data.batching import collate
from minitransformer.decoding import Translator
from minitransformer.evaluation import evaluate
from minitransformer.grammar import pairs

Floats = NDArray[np.float32]
Probabilities = NDArray[np.float64]
TABLE = "tokens.table"


class Rounded:
    """A translator whose weights a function may change, and sentences of the grammar's test set.

    The matrices are `(C_in, C_out)`. The table of tokens, `(V, C)`, is the output layer too: it is given as `(C, V)`.
    """

    def __init__(self, path: str, count: int):
        self.translator = Translator.from_checkpoint(path)
        self.views = self.translator.model.parameters.views(self.translator.model.parameters.data)
        self.matrices = {
            name: np.array(view.T if name == TABLE else view) for name, view in self.views.items() if view.ndim == 2
        }
        encode = self.translator.tokenizer.encode
        sentences = list(pairs("test", seed=0, count=count))
        self.sources, self.references = map(list, zip(*sentences, strict=True))
        self.encoded = [encode(source) for source in self.sources]
        self._batch = collate(self.encoded, [encode(reference) for reference in self.references])

    def change(self, rounded: Callable[[Floats], Floats]) -> float:
        """Put a function of each matrix in its place; return the size of all changes, relative to the matrices'."""
        off = size = 0.0
        for name, matrix in self.matrices.items():
            new = rounded(matrix)
            self.views[name][...] = new.T if name == TABLE else new
            off, size = off + float(((new - matrix) ** 2).sum()), size + float((matrix**2).sum())
        return float(np.sqrt(off / size))

    def loss(self) -> float:
        """The mean of −log P of the test set's tokens, in nats."""
        return float(self.translator.model.loss(*self._batch.inputs)[0])

    def bleu(self) -> float:
        """BLEU of the greedy translations of the test set."""
        return evaluate(self.translator.translate(self.sources, beam=1), self.references).bleu

    def probabilities(self, temperature: float) -> Probabilities:
        """The probabilities of the next token at each place of the references, `(places, V)`."""
        source, target, out = self._batch.inputs
        return _softmax(self.translator.model.forward(source, target)[0][out != 0] / temperature)


def after(
    translator: Translator, source: Sequence[int], prefix: Sequence[int], last: int, temperature: float
) -> Probabilities:
    """The probabilities of the next token after each of the last so many tokens of a prefix, in one pass: `(last, V)`.

    `<s>` comes before the prefix, and counts as one of its tokens.
    """
    model: Any = translator.model
    logits, _ = model.forward(np.array([source]), np.array([[model.config.bos_id, *prefix]]))
    return _softmax(logits[0, -last:] / temperature)


def _softmax(logits: NDArray[Any]) -> Probabilities:
    """The softmax over the last axis, in float64: the probabilities of thousands of tokens must sum to 1."""
    exponentials = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
