"""Lesson 11: ask the trained model for the probabilities of the next token, and take the time."""

import time
from typing import Any, NamedTuple

import numpy as np

from minitransformer.ops import numpy_ops


class Asking(NamedTuple):
    """A translator as three functions of token ids."""

    translator: Any

    def encoded(self, sentence):
        """A batch of one source sentence, (1, Ts)."""
        tokenizer = self.translator.tokenizer
        return np.array([[*tokenizer.encode(sentence), tokenizer.eos_id]])

    def after(self, prefix, source):
        """log P(· | prefix, source), (V,): one forward of the whole model, whose last row is used."""
        tokenizer = self.translator.tokenizer
        logits, _ = self.translator.model.forward(source, np.array([[tokenizer.bos_id, *prefix]]))  # (1, T, V)
        log_probs = numpy_ops.log_softmax(logits[0, -1].astype(np.float64))
        log_probs[[tokenizer.pad_id, tokenizer.bos_id]] = -np.inf  # never written
        return log_probs

    def log_prob(self, sentence, source):
        """log P(Y | X) of ids that end in </s>."""
        return sum(self.after(sentence[:t], source)[token] for t, token in enumerate(sentence))

    def label(self, ids):
        """The last token, with a `·` where it goes on inside a word."""
        token = self.translator.tokenizer.tokens(ids)[-1]
        return token.removeprefix("▁") if token.startswith("▁") else "·" + token


def milliseconds(run, length, repeats=3):
    """The fastest of some runs."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run(length)
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)
