"""A training of a second or so: a tiny model learns to write a sequence of ids backwards."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.data import BPETokenizer
from minitransformer.data.token_dataset import TokenDataset
from minitransformer.models import Transformer, TransformerConfig
from minitransformer.training import Trainer, TrainingSettings

SETTINGS = TrainingSettings(
    steps=40, tokens_per_batch=64, accumulate=2, warmup_steps=10, peak_lr=0.01, clip_norm=1.0, seed=5, threads=2,
    valid_interval=9, checkpoint_interval=4, keep=2,
)  # fmt: skip


TOKENIZER = BPETokenizer.train(["a toy"], vocab_size=264)


def backwards(count: int, seed: int) -> TokenDataset:
    """Sentences of 1 to 8 ids between 3 and 11, and the same ids in reverse."""
    rng = np.random.default_rng(seed)
    sentences = [rng.integers(3, 12, rng.integers(1, 9)) for _ in range(count)]
    return TokenDataset.from_pairs((ids, ids[::-1]) for ids in sentences)


def toy_model(dtype: str = "float32", **options: Any) -> Transformer:
    """One layer on each side, with dropout in every place."""
    config = TransformerConfig(
        vocab_size=12, d_model=16, num_heads=2, d_ff=32, num_layers=1, max_length=16, dropout=0.1, attention_dropout=0.1
    )
    return Transformer(replace(config, **options), dtype=dtype, seed=1)


def toy_trainer(folder: Path | None, settings: TrainingSettings = SETTINGS, **options: Any) -> Trainer:
    """A trainer of a new toy model; `options` are the trainer's."""
    model = options.pop("model", None) or toy_model()
    dataset = options.pop("dataset", None) or backwards(150, seed=0)
    options = {"valid": backwards(20, seed=1), "tokenizer": TOKENIZER, "progress": False} | options
    return Trainer(model, dataset, settings, folder=folder, **options)
