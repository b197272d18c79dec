"""Lesson 28: a small model of language that has read statements, and shall learn questions (see lesson 25's words)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minitransformer import ops
from minitransformer.grammar import pairs

from ..lesson_25.words import Ids, WordModel, Words

Floats = NDArray[np.float32]
Rows = tuple[Ids, Ids]


class Reader(NamedTuple):
    """A model that was trained on statements, in parts, and questions: contexts `(N, 4)` and the next words `(N,)`."""

    table: Floats
    weight: Floats
    bias: Floats
    out_weight: Floats
    out_bias: Floats
    questions: Rows
    unseen: Rows


def reader(steps: int = 600) -> Reader:
    """Train the model on the grammar's statements; its hidden layer is `(96, 128)`, its output layer `(128, 300)`."""
    seen, unseen = (
        [source for source, _ in pairs(part, seed=0, count=count)] for part, count in (("train", 4000), ("test", 1500))
    )
    asked = [[each for each in sentences if each.endswith("?")] for sentences in (seen, unseen)]
    told = [each for each in seen if not each.endswith("?")]
    words = Words(told, size=300)
    contexts, targets = words.rows(told)
    model, rng = WordModel(len(words), width=24, hidden=128), np.random.default_rng(0)
    m, v = np.zeros((2, len(model.data)), np.float32)
    for step in range(1, steps + 1):
        rows = rng.integers(len(contexts), size=256)
        logits, cache = model.forward(contexts[rows])
        model.backward(ops.cross_entropy_backward(1.0, ops.cross_entropy_forward(logits, targets[rows])[1]), cache)
        ops.adam_step(model.data, model.grad, m, v, step=step, lr=0.01 * (1 - step / (steps + 1)))
    table, weight, bias, out_weight, out_bias = model.views(model.data)
    return Reader(table, weight, bias, out_weight, out_bias, words.rows(asked[0]), words.rows(asked[1]))
