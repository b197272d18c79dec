"""Figures 1 and 2 show the model that they are given."""

from typing import Any

import numpy as np
import pytest

from minitransformer.models import Transformer, TransformerConfig
from paper.experiments.figures.architecture import Trace, architecture_page, attention_page, trace, trace_attention

SOURCE, TARGET = np.full((2, 7), 3), np.full((2, 5), 3)
SIZES = {"d_model": 8, "num_heads": 2, "d_k": 3, "d_v": 5, "d_ff": 12, "num_layers": 2, "num_decoder_layers": 3}

ENCODER_LAYER = ["Multi-Head\nAttention", "Add & Norm", "Feed\nForward", "Add & Norm"]
DECODER_LAYER = ["Masked Multi-Head\nAttention", "Add & Norm", *ENCODER_LAYER]


def model_of(**options: Any) -> Transformer:
    sizes: dict[str, Any] = SIZES | options
    return Transformer(TransformerConfig(50, **sizes))


def names(traced: Trace) -> tuple[list[str], list[str]]:
    return [stage.name for stage in traced.encoder], [stage.name for stage in traced.decoder]


def test_the_papers_stages_with_their_shapes() -> None:
    traced = trace(model_of(), SOURCE, TARGET)
    assert names(traced) == (["Embedding", *ENCODER_LAYER * 2], ["Embedding", *DECODER_LAYER * 3])
    assert {stage.shape for stage in traced.encoder} == {(2, 7, 8)}
    assert {stage.shape for stage in traced.decoder} == {(2, 5, 8)}
    assert traced.output.shape == (2, 5, 50)
    inside = [stage.inside for stage in traced.encoder[1:4] if stage.inside]
    assert inside == [("2 heads", (2, 2, 7, 5)), ("hidden", (2, 7, 12))]


def test_pre_norm_normalises_first_and_at_the_end() -> None:
    encoder, decoder = names(trace(model_of(norm_first=True, dropout=0.1), SOURCE, TARGET))
    layer = ["Norm", "Multi-Head\nAttention", "Add", "Norm", "Feed\nForward", "Add"]
    masked = ["Norm", "Masked Multi-Head\nAttention", "Add"]
    assert encoder == ["Embedding", *layer * 2, "Norm"]
    assert decoder == ["Embedding", *(masked + layer) * 3, "Norm"]


@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"positions": "learned"}])
def test_every_stage_and_shape_is_on_the_page(options: dict) -> None:
    axes = architecture_page(model_of(**options), SOURCE, TARGET).figure.axes[0]
    written = [text.get_text() for text in axes.texts]
    for text in ("Inputs  (2, 7)", "Outputs, shifted right  (2, 5)", "2 ×", "3 ×", "(2, 5, 50)", "hidden\n(2, 7, 12)"):
        assert text in written
    boxes = [text for text in written if text in (*DECODER_LAYER, "Norm", "Add")]
    one_layer_each = len(ENCODER_LAYER) + len(DECODER_LAYER)
    norms_first_and_at_the_ends = 5 + 2
    assert len(boxes) == one_layer_each + norms_first_and_at_the_ends * ("norm_first" in options)
    assert ("+ Learned\nPositions" in written) == (options.get("positions") == "learned")
    (top,) = {axes.get_ylim()[1]}
    assert all(0 < text.get_position()[1] < top for text in axes.texts), "something is off the page"


def test_attention_with_its_shapes() -> None:
    """d_k is 3 and d_v is 5: no two of them can be taken for each other."""
    shapes = trace_attention(model_of(), SOURCE)
    assert (shapes.query, shapes.key, shapes.value) == ((2, 2, 7, 3), (2, 2, 7, 3), (2, 2, 7, 5))
    assert (shapes.scores, shapes.heads, shapes.concatenated) == ((2, 2, 7, 7), (2, 2, 7, 5), (2, 7, 10))
    assert (shapes.x, shapes.projected, shapes.output) == ((2, 7, 8), (2, 7, 2 * (3 + 3 + 5)), (2, 7, 8))
    written = [text.get_text() for text in attention_page(model_of(), SOURCE).figure.axes[0].texts]
    for text in ("Scale by 1/√3", "Multi-Head Attention, h = 2", "(2, 2, 7, 7)", "(2, 2, 7, 5)", "(2, 7, 10)"):
        assert text in written
