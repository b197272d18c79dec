"""A head of a trained translator, switched off. Lesson 12 is about how."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minitransformer.decoding import Translator


@contextmanager
def switched_off(translator: Translator, layer: int, head: int) -> Iterator[None]:
    """Switch off one head of the translator's cross-attention (layer and head from 1) inside this context.

    Raises `ValueError` if there is no such head.
    """
    model: Any = translator.model
    layers, heads = model.decoder.layers, model.config.num_heads
    if not (1 <= layer <= len(layers) and 1 <= head <= heads):
        raise ValueError(
            f"there is no head {head} in layer {layer}: there are layers 1 to {len(layers)}, heads 1 to {heads}"
        )
    weight = layers[layer - 1].cross_attention.output.weight.data  # (H·Dv, C): a head owns Dv of its rows
    rows = weight.reshape(heads, -1, weight.shape[-1])[head - 1]
    kept = rows.copy()
    rows[...] = 0
    try:
        yield
    finally:  # restore the model even after an exception
        rows[...] = kept
