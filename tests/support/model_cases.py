"""Small models and ragged batches for the proofs of the whole model."""

from typing import Any, NamedTuple

import numpy as np
from support.prove import read_only

from minitransformer.layers import DropoutStream
from minitransformer.models import Transformer, TransformerConfig

STREAM = DropoutStream(seed=11, step=3, sentence=2)


class Pairs(NamedTuple):
    """Sentences in ids, padded on the right with 0: what `Transformer.loss` takes."""

    source: np.ndarray
    target_in: np.ndarray
    target_out: np.ndarray


def config(**changes: Any) -> TransformerConfig:
    """One layer each, so narrow that a test takes milliseconds."""
    sizes = {"vocab_size": 11, "d_model": 6, "num_heads": 2, "d_ff": 7, "num_layers": 1, "max_length": 16}
    return TransformerConfig(**{**sizes, "dropout": 0.0, **changes})


def model_of(dtype: str = "float64", seed: int = 0, **changes: Any) -> Transformer:
    """A model with every parameter moved away from where it starts, so that no bias is 0 and no gamma 1."""
    model = Transformer(config(**changes), dtype=dtype)
    rng = np.random.default_rng(seed)
    for parameter in model.parameters.named.values():
        parameter.data += 0.3 * rng.standard_normal(parameter.shape)
    return model


def ragged(
    source_lengths: list[int], target_lengths: list[int], vocab_size: int = 11, seed: int = 0, longer: int = 0
) -> Pairs:
    """Random sentences of these lengths (marks included), read-only; `longer` more columns of padding."""
    rng = np.random.default_rng(seed)
    source = np.zeros((len(source_lengths), max(source_lengths) + longer), np.int64)
    target = np.zeros((len(target_lengths), max(target_lengths) + 1 + longer), np.int64)
    target[:, 0] = 1  # bos
    for row, length in zip(source, source_lengths, strict=True):
        row[:length] = rng.integers(1, vocab_size, length)
    for row, length in zip(target, target_lengths, strict=True):
        row[1 : length + 1] = rng.integers(2, vocab_size, length)
    target_in, target_out = np.where(target[:, 1:] > 0, target[:, :-1], 0), target[:, 1:].copy()
    return Pairs(*map(read_only, (source, target_in, target_out)))
