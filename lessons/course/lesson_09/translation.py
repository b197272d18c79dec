"""Lesson 09: pairs of the grammar as batches, a small translator, and an update that records a training run."""

from typing import Any

import numpy as np

from minitransformer import Transformer, TransformerConfig
from minitransformer.data.token_dataset import Batches, TokenDataset
from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.grammar import pairs

VOCABULARY = 400

_texts = [text for pair in pairs("train", seed=0, count=300) for text in pair]
_tokenizer = BPETokenizer.train(_texts, VOCABULARY)


def _dataset(split, count):
    return TokenDataset.from_pairs(
        [(_tokenizer.encode(english), _tokenizer.encode(german)) for english, german in pairs(split, 0, count=count)]
    )


training = _dataset("train", 1200)
_valid = Batches(_dataset("valid", 100), 2000, seed=0)
valid_batches = [_valid.batch(0, number) for number in range(len(_valid))]


def small_model(norm_first=False, seed=0, dtype="float32", **options):
    """A model of four layers in each stack."""
    return Transformer(
        TransformerConfig(VOCABULARY, d_model=32, num_heads=4, d_ff=128, num_layers=4, max_length=128,
                          norm_first=norm_first, **dict[str, Any](dropout=0.0) | options),
        dtype=dtype, seed=seed,
    )  # fmt: skip


def validation_loss(model):
    """The mean over all target tokens of the validation pairs."""
    total = sum(
        float(model.loss(b.source, b.target_in, b.target_out, with_grad=False)[0]) * b.num_target_tokens
        for b in valid_batches
    )
    return total / sum(b.num_target_tokens for b in valid_batches)


def watching(model, adam_step, keep_every=10):
    """An update by `adam_step` that also notes the gradient of the decoder's lowest layer, and keeps the weights."""
    lowest, kept = [], []

    def update(theta, grad, m, v, step, lr):
        layer = model.decoder.layers[0]
        lowest.append(np.sqrt(sum((parameter.grad**2).sum() for _, parameter in layer.named_parameters())))
        theta, m, v = adam_step(theta, grad, m, v, step, lr)
        if step % keep_every == 0:
            kept.append(theta.copy())
        return theta, m, v

    return update, lowest, kept
