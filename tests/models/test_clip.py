"""CLIP against `transformers`: its vectors, its loss, every gradient; and what its vectors depend on."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from support.model_cases import moved
from support.prove import Proof

from minitransformer.gradcheck import error
from minitransformer.models import CLIPConfig, build_model
from minitransformer.training import Trainer, TrainingSettings

TOLERANCE = 1e-9
SIZES: dict[str, Any] = {"d_model": 6, "num_heads": 2, "d_ff": 7, "num_layers": 2, "embedding": 5, "max_length": 8}
CONFIG = CLIPConfig(11, image_size=6, patch_size=2, channels=2, **SIZES, eos_id=9)
CONFIGS = {
    "plain": CONFIG,
    "large patches": replace(CONFIG, patch_size=3, channels=1, num_layers=1, embedding=9, activation="relu"),
}
IDS = np.array([[1, 3, 4, 9, 0, 0], [1, 5, 6, 7, 8, 9], [1, 10, 9, 9, 3, 0]])  # no id of an end is the largest


def images_of(config: CLIPConfig) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((3, config.channels, config.image_size, config.image_size))


def reference(config: CLIPConfig) -> Any:
    """Their model of the same shape."""
    shared = {"hidden_size": config.d_model, "intermediate_size": config.d_ff, "num_hidden_layers": config.num_layers}
    shared |= {"num_attention_heads": config.num_heads, "hidden_act": config.activation}
    text = shared | {"vocab_size": config.vocab_size, "max_position_embeddings": config.max_length}
    text |= {"pad_token_id": config.pad_id, "bos_token_id": config.bos_id, "eos_token_id": config.eos_id}
    vision = shared | {"image_size": config.image_size, "patch_size": config.patch_size}
    vision |= {"num_channels": config.channels}
    theirs = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=config.embedding)
    return transformers.CLIPModel(theirs).double().eval()


def to_theirs(ours: Mapping[str, np.ndarray], config: CLIPConfig) -> dict[str, np.ndarray]:
    """Our tensors, or their gradients, under the names and in the shapes of `transformers`."""
    size = config.patch_size
    kernel = ours["patches.projection.weight"].T.reshape(config.d_model, config.channels, size, size)
    found = {
        "logit_scale": ours["log_scale"],
        "visual_projection.weight": ours["picture_projection.weight"].T,
        "text_projection.weight": ours["text_projection.weight"].T,
        "vision_model.embeddings.class_embedding": ours["patches.class_token"],
        "vision_model.embeddings.patch_embedding.weight": kernel,
        "text_model.embeddings.token_embedding.weight": ours["tokens.table"],
    }
    norms = {"vision_model.pre_layrnorm": "picture_encoder.embedding.norm"}
    norms |= {"vision_model.post_layernorm": "picture_encoder.final_norm"}
    norms |= {"text_model.final_layer_norm": "text_encoder.final_norm"}
    linears: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for side, stack in (("vision_model", "picture_encoder"), ("text_model", "text_encoder")):
        found[f"{side}.embeddings.position_embedding.weight"] = ours[f"{stack}.embedding.positions.table"]
        for layer in range(config.num_layers):
            there, here = f"{side}.encoder.layers.{layer}", f"{stack}.layers.{layer}"
            norms |= {f"{there}.layer_norm1": f"{here}.self_attention_norm"}
            norms |= {f"{there}.layer_norm2": f"{here}.feed_forward_norm"}
            whole = (ours[f"{here}.self_attention.query_key_value.{part}"] for part in ("weight", "bias"))
            thirds = zip(*(np.split(each, 3, axis=-1) for each in whole), strict=True)
            linears |= {f"{there}.self_attn.{name}_proj": each for name, each in zip("qkv", thirds, strict=True)}
            for name, own in (
                ("self_attn.out_proj", "self_attention.output"),
                ("mlp.fc1", "feed_forward.expand"),
                ("mlp.fc2", "feed_forward.contract"),
            ):
                linears[f"{there}.{name}"] = ours[f"{here}.{own}.weight"], ours[f"{here}.{own}.bias"]
    for there, here in norms.items():
        found |= {f"{there}.weight": ours[f"{here}.gamma"], f"{there}.bias": ours[f"{here}.beta"]}
    for there, (weight, bias) in linears.items():
        found |= {f"{there}.weight": weight.T, f"{there}.bias": bias}
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_vectors_loss_and_every_gradient_are_those_of_transformers(name: str, proof: Proof) -> None:
    """Their map of patches has no bias, so ours is 0; its gradient is the sum of those of the patches' positions."""
    config = CONFIGS[name]
    model, theirs, images = moved(config), reference(config), images_of(config)
    named = model.parameters.named
    named["patches.projection.bias"].data[...] = 0
    weights = to_theirs(model.parameters.state_dict(), config)
    theirs.load_state_dict({name: torch.tensor(each) for name, each in weights.items()})
    out = theirs(torch.tensor(IDS), torch.tensor(images), return_loss=True)
    pictures, texts = model.encode_pictures(images), model.encode_texts(IDS)
    assert error(pictures, out.image_embeds.detach()) <= TOLERANCE
    assert error(texts, out.text_embeds.detach()) <= TOLERANCE
    assert error(np.exp(model.log_scale.data) * pictures @ texts.T, out.logits_per_image.detach()) <= TOLERANCE

    loss, cache = model.loss(images, IDS)
    model.loss_backward(0.7, cache)
    (0.7 * out.loss).backward()
    assert error(loss, out.loss.item()) <= TOLERANCE
    gradients = {name: each.grad for name, each in named.items()}
    expected = dict(theirs.named_parameters())
    assert weights.keys() == expected.keys()
    for name, gradient in to_theirs(gradients, config).items():
        worst = error(gradient, expected[name].grad)
        proof.record("CLIP", "autograd", worst)
        assert worst <= TOLERANCE, name
    of_patches = gradients["picture_encoder.embedding.positions.table"][1:].sum(0)
    assert error(gradients["patches.projection.bias"], of_patches) <= TOLERANCE


@pytest.mark.parametrize(("log_scale", "dtype"), [(4.6, "float64"), (4.7, "float64"), (100.0, "float32")])
def test_the_scale_is_cut_off_at_a_hundred_and_may_fall_again(log_scale: float, dtype: str) -> None:
    model, images, signs = moved(CONFIG, dtype), images_of(CONFIG), set[bool]()
    for _ in range(100):  # until each picture is nearest to its own text
        model.parameters.grad[...] = 0
        model.loss_backward(1.0, model.loss(images, IDS)[1])
        model.parameters.data[...] -= 0.03 * model.parameters.grad
    cosines = torch.tensor(model.encode_pictures(images) @ model.encode_texts(IDS).T).double()
    for order in itertools.permutations(range(3)):  # of the texts: the first is right
        model.parameters.grad[...] = 0
        model.log_scale.data[...] = log_scale
        loss, cache = model.loss(images, IDS[list(order)])
        model.loss_backward(1.0, cache)
        scale = torch.tensor(min(log_scale, math.log(100)), dtype=torch.float64, requires_grad=True)
        logits, own = scale.exp() * cosines[:, order], torch.arange(3)
        expected = (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2
        expected.backward()
        assert scale.grad is not None
        signs.add(bool(scale.grad > 0))
        if log_scale > math.log(100):
            scale.grad.clamp_(min=0)
        tolerance = {"float64": TOLERANCE, "float32": 1e-4}[dtype]
        assert error(loss, expected.detach()) <= tolerance
        assert error(model.log_scale.grad, scale.grad) <= tolerance
        assert np.isfinite(model.parameters.grad).all()
    assert signs == {True, False}


def test_a_text_is_all_up_to_its_end_and_nothing_after_it() -> None:
    model = moved(CONFIG)
    whole = model.encode_texts(IDS)
    np.testing.assert_array_equal(np.linalg.norm(whole, axis=1).round(12), np.ones(3))
    assert error(model.encode_texts(IDS[:1, :4]), whole[:1]) <= 1e-12
    for row, length in enumerate((4, 6, 3)):
        for place in range(IDS.shape[1]):
            other = IDS.copy()
            other[row, place] = 2
            if CONFIG.eos_id not in other[row]:
                continue  # its end itself is gone
            same = error(model.encode_texts(other), whole) <= 1e-12
            assert same == (place >= length), (row, place)


def test_what_is_no_pair_is_refused() -> None:
    model, images = build_model(CONFIG), images_of(CONFIG)
    with pytest.raises(ValueError, match=r"images have shape \(3, 1, 6, 6\), expected \(B, 2, 6, 6\)"):
        model.encode_pictures(images[:, :1])
    with pytest.raises(ValueError, match="ids has a text without eos_id, 9, at its end"):
        model.encode_texts(IDS[:, :3])
    with pytest.raises(ValueError, match="ids has 12 tokens, more than the model's max_length of 8"):
        model.encode_texts(np.tile(IDS, 2))
    with pytest.raises(ValueError, match=r"a and b have shapes \(2, 5\) and \(3, 5\)"):
        model.loss(images[:2], IDS)
    vectors, cache = build_model(CONFIG).forward(images, IDS)
    with pytest.raises(ValueError, match=r"dy has shape \(2, 5\), expected its output's \(3, 5\)"):
        model.backward((vectors[0], vectors[1][:2]), cache)
    with pytest.raises(ValueError, match="bos_id and eos_id are both 2: a text would end where it begins"):
        replace(CONFIG, bos_id=2, eos_id=2)
    with pytest.raises(ValueError, match="eos_id is 11, expected an id below the vocabulary"):
        replace(CONFIG, eos_id=11)
    with pytest.raises(ValueError, match="patch_size is 4 and does not divide image_size, 6"):
        replace(CONFIG, patch_size=4)


@pytest.mark.parametrize("given", [{"threads": 2}, {"threads": 1, "shards": 2}, {"threads": 1, "accumulate": 2}])
def test_a_batch_whose_pairs_are_all_compared_is_not_divided(given: dict[str, int]) -> None:
    name, value = list(given.items())[-1]
    data: Any = SimpleNamespace(batches=lambda *given: None)
    with pytest.raises(ValueError, match=f"{name} is {value}, expected 1: .* all pairs of a batch, so --{name} 1"):
        Trainer(build_model(CONFIG), data, TrainingSettings(**given))
