"""Small models of every kind, every option in one of them at least, and ragged batches for their proofs."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from support.prove import read_only

from minitransformer.layers import DropoutStream, SparseConfig
from minitransformer.models import ConvolutionalConfig, ModelConfig, RecurrentConfig, TransformerConfig, build_model

CACHED: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"positions": "rotary", "num_kv_heads": 1},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative"},
    "a window": {"window": 3},
    "windows in turn": {"window": 3, "sparse": SparseConfig(full_every=2)},
}
"""Options of a GPT, by what its cache has to keep."""

STREAM = DropoutStream(seed=11, step=3, sentence=2)


def config(**changes: Any) -> TransformerConfig:
    """One layer each, so narrow that a test takes milliseconds."""
    sizes = {"vocab_size": 11, "d_model": 6, "num_heads": 2, "d_ff": 7, "num_layers": 1, "max_length": 16}
    return TransformerConfig(**{**sizes, "dropout": 0.0, **changes})


SIZES: dict[str, Any] = {"vocab_size": 11, "d_model": 6, "max_length": 16, "dropout": 0.3}
BASELINES: dict[str, RecurrentConfig | ConvolutionalConfig] = {
    "tanh": RecurrentConfig(**SIZES, num_layers=1, cell="tanh", attention=False),
    "tanh, attention": RecurrentConfig(**SIZES, num_layers=2, cell="tanh"),
    "lstm": RecurrentConfig(**SIZES, num_layers=2, attention=False),
    "lstm, attention": RecurrentConfig(**SIZES, num_layers=1),
    "convolutional": ConvolutionalConfig(**SIZES, num_layers=2),
    "convolutional, wide": ConvolutionalConfig(**SIZES, num_layers=1, kernel_width=5),
    "convolutional, narrow": ConvolutionalConfig(**SIZES, num_layers=1, kernel_width=1),
}
TRANSFORMERS: dict[str, TransformerConfig] = {
    "post-norm": config(num_layers=2, dropout=0.3, attention_dropout=0.3),
    "pre-norm, learned": config(norm_first=True, positions="learned", dropout=0.3),
    "window": config(window=1, num_layers=2, dropout=0.3),
    "widths": config(d_k=3, d_v=2, num_heads=3, num_layers=1, num_decoder_layers=2),
    "one head": config(num_heads=1),
}
MODELS: dict[str, TransformerConfig | RecurrentConfig | ConvolutionalConfig] = {**TRANSFORMERS, **BASELINES}
every_model = pytest.mark.parametrize("config", MODELS.values(), ids=list(MODELS))
every_baseline = pytest.mark.parametrize("config", BASELINES.values(), ids=list(BASELINES))


def of_kind(kind: type[ModelConfig], sizes: Mapping[str, Any]) -> ModelConfig:
    """A configuration with those of the sizes that its kind has."""
    return kind(**{each.name: sizes[each.name] for each in fields(cast(Any, kind)) if each.name in sizes})


def moved(config: ModelConfig, dtype: str = "float64", seed: int = 0, by: float = 0.3) -> Any:
    """A model with every parameter moved away from where it starts, so that no bias is 0 and no gamma 1."""
    model = build_model(config, dtype=dtype, seed=seed)
    rng = np.random.default_rng(seed)
    for parameter in model.parameters.named.values():
        parameter.data += by * rng.standard_normal(parameter.shape)
    return model


def model_of(dtype: str = "float64", seed: int = 0, **changes: Any) -> Any:
    """A Transformer with such parameters."""
    return moved(config(**changes), dtype, seed)


class Pairs(NamedTuple):
    """Sentences in ids, padded on the right with 0: what `Model.loss` takes."""

    source: np.ndarray
    target_in: np.ndarray
    target_out: np.ndarray


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
