"""Lesson 10: short sentences of the grammar, the instruments that watch a training run, and words for printing."""

from itertools import islice

import numpy as np

from minitransformer.grammar import sample

MOST_WORDS = 7


def short(split, count):
    """The first `count` examples of a split with at most MOST_WORDS English words."""
    return list(islice((e for e in sample(split, 0) if len(e.english.split()) <= MOST_WORDS), count))


def encoded(tokenizer, examples):
    """Two lists of token ids, English and German."""
    return [tokenizer.encode(e.english) for e in examples], [tokenizer.encode(e.german) for e in examples]


def observe(model, batch, pair, spread):
    """Test loss with another's source and with the right one, the spread of each head, and the map of one pair.

    `batch` and `pair` are collated; the spread is (layers, H), the map (Tq, Tk), of the last layer, mean of its heads.
    """
    losses = []
    for source in (np.roll(batch.source, 1, axis=0), batch.source):
        losses.append(float(model.loss(source, batch.target_in, batch.target_out, with_grad=False)[0]))
    cross = np.stack(model.attention_maps(batch.source, batch.target_in)["cross"])  # (layers, B, H, Tq, Tk)
    real = (batch.target_out != model.config.pad_id)[:, None, :]  # (B, 1, Tq)
    mean_spread = (spread(cross) * real).sum(axis=(1, 3)) / real.sum()  # (layers, H)
    last = model.attention_maps(pair.source, pair.target_in)["cross"][-1]  # (1, H, Tq, Tk)
    return *losses, mean_spread, last[0].mean(axis=0)


def words_of(labels):
    """The words of a list of token labels, and for each token the number of its word."""
    numbers = np.cumsum([not label.startswith("·") for label in labels]) - 1
    words = [""] * (numbers[-1] + 1)
    for number, label in zip(numbers, labels, strict=True):
        words[number] += label.removeprefix("·")
    return words, numbers


def marked(text, reference):
    """The text, with [ ] around the first word in which it differs."""
    words, wanted = text.split(), reference.split()
    at = next((i for i, (a, b) in enumerate(zip(words, wanted, strict=False)) if a != b), min(len(words), len(wanted)))
    return " ".join([*words[:at], f"[{words[at] if at < len(words) else ''}]", *words[at + 1 :]])
