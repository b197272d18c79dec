"""Lesson 25: what a trained translator thinks of the next word."""

from pathlib import Path

import numpy as np

from minitransformer.data.batching import collate
from minitransformer.decoding import Translator


def next_word(weights: Path, sentence: str, beginning: str) -> tuple[np.ndarray, list[int], list[str]]:
    """Return a translator's logits `(V,)` after a beginning; the best seven tokens and the median, and their names."""
    translator = Translator.from_checkpoint(weights)
    tokenizer = translator.tokenizer
    batch = collate([tokenizer.encode(sentence)], [tokenizer.encode(beginning)])
    logits = translator.model.forward(batch.source, batch.target_in)[0][0, -1].astype(float)
    order = np.argsort(-logits)
    shown = [*map(int, order[:7]), int(order[len(order) // 2])]
    names = [tokenizer.decode([token]) for token in shown]
    return logits, shown, [*names[:-1], f"the median: {names[-1]}"]
