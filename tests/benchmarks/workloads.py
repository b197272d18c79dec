"""The work of the races: shapes of models with their batches, the same numbers for every contestant."""

from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.data import BPETokenizer, multi30k
from minitransformer.data.batching import Batch
from minitransformer.data.sentence_pairs import Corpus, corpus_from_folder
from minitransformer.data.token_dataset import Batches, TokenDataset
from minitransformer.models import TransformerConfig

SHAPES: dict[str, dict[str, Any]] = {
    "XS": {"vocab_size": 50, "d_model": 16, "num_heads": 2, "d_ff": 32, "num_layers": 1},
    "S": {"vocab_size": 1000, "d_model": 128, "num_heads": 4, "d_ff": 512, "num_layers": 2},
    "M": {"vocab_size": 8000, "d_model": 256, "num_heads": 8, "d_ff": 1024, "num_layers": 3},
    "B": {"vocab_size": 8000, "d_model": 512, "num_heads": 8, "d_ff": 2048, "num_layers": 6},
    "tiny": {"vocab_size": 8000, "d_model": 128, "num_heads": 4, "d_ff": 256, "num_layers": 4},
    "S8": {"vocab_size": 8000, "d_model": 128, "num_heads": 4, "d_ff": 512, "num_layers": 2},
}
FULL_BATCHES = {"XS": (4, 8), "S": (32, 32), "M": (32, 32), "B": (8, 64)}
"""Sentences in a batch, and tokens in each sentence (source and target). XS is for rehearsals and tests."""

NUM_RAGGED_BATCHES, TOKENS_PER_BATCH, VOCAB_SIZE = 6, 4096, 8000

SMOOTHING, LEARNING_RATE = 0.1, 1e-4

TRANSLATION_SHAPE, SOURCE_TOKENS, TARGET_TOKENS = "S8", 16, 20
"""The shape of the race of translations, and its tokens a sentence: weights are random, outputs of a fixed length."""


def configuration(shape: str, dropout: float = 0.0) -> TransformerConfig:
    """A model of this shape, its embeddings tied."""
    return TransformerConfig(**SHAPES[shape], dropout=dropout, max_length=128)


def training_batches(shape: str, token_file: str | None) -> list[Batch]:
    """One batch without padding; given a file of token ids, the real ones that are in it."""
    if token_file is not None:
        return load_batches(token_file)
    return [full_batch(SHAPES[shape]["vocab_size"], *FULL_BATCHES[shape])]


def full_batch(vocab_size: int, sentences: int, length: int) -> Batch:
    """Random tokens without padding, source and target `(sentences, length)`."""
    ids = np.random.default_rng(0).integers(3, vocab_size, (2, sentences, length + 1))
    return Batch(ids[0, :, 1:], ids[1, :, :-1], ids[1, :, 1:])


def ragged_batches(corpus: Corpus) -> list[Batch]:
    """Every n-th batch of a training epoch on a corpus, made and padded as the trainer does."""
    pairs = list(corpus.train.read())
    tokenizer = BPETokenizer.train([line for pair in pairs for line in pair], VOCAB_SIZE)
    encoded = [(tokenizer.encode(source), tokenizer.encode(target)) for source, target in pairs]
    batches = Batches(TokenDataset.from_pairs(encoded), TOKENS_PER_BATCH)
    return [batches.batch(0, index) for index in np.linspace(0, len(batches) - 1, NUM_RAGGED_BATCHES).astype(int)]


def save_batches(path: Path, batches: list[Batch]) -> None:
    """Writes batches for the contestants' processes."""
    names = ("source", "target_in", "target_out")
    np.savez(path, **{f"{name}{i}": getattr(batch, name) for i, batch in enumerate(batches) for name in names})


def load_batches(path: str) -> list[Batch]:
    """Read the batches that `save_batches` wrote."""
    with np.load(path) as arrays:
        return [
            Batch(arrays[f"source{i}"], arrays[f"target_in{i}"], arrays[f"target_out{i}"])
            for i in range(len(arrays.files) // 3)
        ]


def real_text(folder: str | None) -> Corpus:
    """Multi30k English→German from a folder, or downloaded."""
    return corpus_from_folder(folder, "en", "de") if folder else multi30k.load("de")


def sources(num_sentences: int) -> np.ndarray:
    """Source ids `(B, 16)` without padding."""
    return np.random.default_rng(0).integers(3, SHAPES[TRANSLATION_SHAPE]["vocab_size"], (num_sentences, SOURCE_TOKENS))
