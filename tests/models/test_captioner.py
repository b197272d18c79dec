"""The captioner: patches as PyTorch's convolution, blocks as its twins, and a memory that no mask hides."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support import oracles
from support.model_cases import STREAM, moved, ragged
from support.prove import Proof
from support.torch_twins import Weights, dropped, embedded, inside, part, torch_layer

from minitransformer.gradcheck import error
from minitransformer.inside import attention_maps
from minitransformer.layers import Context, DropoutStream
from minitransformer.models import CaptionerConfig, TransformerConfig, build_model

TOLERANCE = 1e-9
SIZES: dict[str, Any] = {"d_model": 6, "num_heads": 2, "d_ff": 7, "num_layers": 2, "max_length": 8}
CONFIG = CaptionerConfig(11, image_size=6, patch_size=2, channels=2, **SIZES, activation="relu")
CONFIGS = {
    "plain": CONFIG,
    "dropout": replace(CONFIG, dropout=0.3, attention_dropout=0.3),
    "one layer to write": replace(CONFIG, num_decoder_layers=1, patch_size=3, channels=1),
}
_, TARGET_IN, TARGET_OUT = ragged([1, 1, 1], [4, 2, 5])


def images_of(config: CaptionerConfig) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((3, config.channels, config.image_size, config.image_size))


def stack(model: Any, w: Weights, side: str, x: torch.Tensor, context: Context) -> torch.Tensor:
    for index, layer in enumerate(getattr(model, side).layers):
        x = torch_layer(layer, inside(w, f"{side}.layers.{index}"), x, context=context)
    return part(getattr(model, side), inside(w, side), "final_norm", x, context=context)


def twin(model: Any, w: Weights, images: np.ndarray, stream: DropoutStream | None) -> torch.Tensor:
    """Logits; the first map is the convolution that it stands for."""
    config, patches, context = model.config, inside(w, "patches.projection"), Context(dropout=stream)
    size = config.patch_size
    kernel = patches["weight"].T.reshape(config.d_model, config.channels, size, size)
    x = F.conv2d(torch.tensor(images), kernel, patches["bias"], stride=size).flatten(2).transpose(1, 2)
    x = dropped(model.encoder.embedding, x + w["encoder.embedding.positions.table"], context)
    context = Context(memory=stack(model, w, "encoder", x, context), dropout=stream)
    table = {"tokens.table": w["tokens.table"], **inside(w, "decoder.embedding")}
    y = embedded(model.decoder.embedding, table, torch.tensor(TARGET_IN), context)
    return F.linear(stack(model, w, "decoder", y, context), w["tokens.table"])


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_loss_and_every_gradient_are_autograd_s(name: str, proof: Proof) -> None:
    config = CONFIGS[name]
    model, images = moved(config), images_of(config)
    weights = {name: torch.tensor(w, requires_grad=True) for name, w in model.parameters.state_dict().items()}
    expected = twin(model, weights, images, STREAM)
    logits, _ = model.forward(images, TARGET_IN, STREAM)
    assert error(logits, expected.detach()) <= TOLERANCE

    loss, cache = model.loss(images, TARGET_IN, TARGET_OUT, 0.1, STREAM)
    model.loss_backward(0.7, cache)
    expected = oracles.cross_entropy(expected, torch.tensor(TARGET_OUT), 0.1, config.pad_id)
    (0.7 * expected).backward()
    assert error(loss, expected.item()) <= TOLERANCE
    for name, weight in weights.items():
        assert weight.grad is not None
        worst = error(model.parameters.named[name].grad, weight.grad)
        proof.record("Captioner", "autograd", worst)
        assert worst <= TOLERANCE, name


@pytest.mark.parametrize("beams", [1, 3])
def test_words_one_by_one_are_the_forward_s(beams: int) -> None:
    model, images = moved(CONFIG), images_of(CONFIG)
    ids = np.random.default_rng(2).integers(3, 11, (3, 6))
    whole = model.forward(images, ids)[0]
    state = model.start_decoding(images, beams)
    for t in range(6):
        logits = model.decode_step(np.repeat(ids[:, t : t + 1], beams, axis=1), state)
        assert error(logits, np.repeat(whole[:, t : t + 1], beams, axis=1)) <= 1e-11
        if t == 2:
            state.select(np.array([2, 0]))
            ids, whole = ids[[2, 0]], whole[[2, 0]]


def test_a_word_looks_at_the_patches_and_no_token_stands_before_them() -> None:
    maps = attention_maps(moved(CONFIG), images_of(CONFIG), TARGET_IN)
    shapes = {name: weights.shape for name, weights in maps.items()}
    assert shapes["encoder.layers.0.self_attention"] == (3, 2, 9, 9)
    assert shapes["decoder.layers.1.cross_attention"] == (3, 2, 5, 9)


def test_a_captioner_is_the_transformer_s_blocks_over_patches() -> None:
    """It has the parameters of a Transformer of the same sizes, and those of the patches."""
    sizes = {name: SIZES[name] for name in ("d_model", "num_heads", "d_ff", "num_layers")}
    theirs = TransformerConfig(11, **sizes, norm_first=True, positions="learned", max_length=8)
    patches = 2 * 2 * 2 * 6 + 6
    assert CONFIG.num_parameters == theirs.num_parameters + (9 - 8) * 6 + patches


def test_what_is_no_picture_is_refused() -> None:
    model, images = build_model(CONFIG), images_of(CONFIG)
    for given in (images[:, :1], images[..., 1:], images[0]):
        with pytest.raises(ValueError, match=r"images have shape \(.*\), expected \(B, 2, 6, 6\)"):
            model.forward(given, TARGET_IN)
    with pytest.raises(ValueError, match="source_mask is of tokens, and a picture has no padding"):
        model.start_decoding(images, source_mask=np.ones((3, 9), bool))
    with pytest.raises(ValueError, match="source has 2 sentences and target 3"):
        model.loss(images[:2], TARGET_IN, TARGET_OUT)
    with pytest.raises(ValueError, match="patch_size is 4 and does not divide image_size, 6"):
        replace(CONFIG, patch_size=4)
