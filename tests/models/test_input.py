"""The inputs of a model: those it takes, those it can't, and that it writes into none."""

import numpy as np
import pytest
from support.model_cases import STREAM, every_model, model_of, moved, ragged
from support.prove import read_only

from minitransformer.models import BERTConfig, GPTConfig, MarianConfig, Transformer, ViTConfig, build_model

IDS = np.ones((2, 3), np.int64)


@pytest.mark.parametrize(
    ("source", "target", "kind", "message"),
    [
        (IDS[0], IDS, ValueError, r"source has shape \(3,\), expected \(B, T\)"),
        (IDS, IDS[0], ValueError, r"target has shape \(3,\), expected \(B, T\)"),
        (IDS, IDS[:1], ValueError, "source has 2 sentences and target 1"),
        (IDS + 10, IDS, ValueError, "ids holds 11, expected ids from 0 to 10"),
        (IDS, -IDS, ValueError, "ids holds -1, expected ids from 0 to 10"),
        (IDS, IDS * 1.0, TypeError, "ids must be an integer"),
        (np.ones((2, 17), int), IDS, ValueError, "source has 17 tokens, more than the model's max_length of 16"),
        (IDS, np.ones((2, 17), int), ValueError, "target has 17 tokens, more than the model's max_length of 16"),
    ],
)
def test_ids_that_a_model_can_not_take(source, target, kind, message):
    with pytest.raises(kind, match=message):
        model_of().forward(source, target)


def test_targets_out_of_range():
    with pytest.raises(ValueError, match="targets holds 11, expected ids from 0 to 10"):
        model_of().loss(IDS, IDS, IDS + 10)


@pytest.mark.parametrize("config", [model_of().config, MarianConfig(11, 4, 2, 4, num_layers=1)], ids=["plain", "bias"])
def test_targets_that_are_no_integers(config):
    """Also beside a bias of the logits, where the loss is that of an op which takes probabilities too."""
    with pytest.raises(TypeError, match="targets must be an integer array, got float64"):
        build_model(config).loss(IDS, IDS, IDS * 1.0)


def test_a_loss_without_gradient_has_no_backward():
    model = model_of()
    loss, cache = model.loss(IDS, IDS, IDS, with_grad=False)
    assert loss == model.loss(IDS, IDS, IDS)[0]
    with pytest.raises(ValueError, match="with_grad=False"):
        model.loss_backward(1.0, cache)


@pytest.mark.parametrize(("config", "count"), [(model_of().config, 3), (GPTConfig(11, 4, 2, 4, 1), 2)])
def test_a_mask_in_the_place_of_with_grad_is_refused(config, count):
    with pytest.raises(TypeError, match="with_grad must be True or False, got ndarray"):
        build_model(config).loss(*[IDS] * count, 0.1, None, IDS > 0)


@pytest.mark.parametrize("dtype", ["int32", np.int64, "list"])
def test_any_integers_are_ids(dtype):
    model = model_of()
    ids = IDS.tolist() if dtype == "list" else IDS.astype(dtype)
    assert model.loss(ids, ids, ids)[0] == model.loss(IDS, IDS, IDS)[0]


@every_model
@pytest.mark.parametrize(("batch", "source", "target"), [(0, 3, 2), (2, 0, 2), (2, 3, 0)])
def test_empty_arrays(config, batch, source, target):
    model = moved(config)
    ids, ids_in = np.ones((batch, source), np.int64), np.ones((batch, target), np.int64)
    loss, cache = model.loss(ids, ids_in, ids_in)
    model.loss_backward(1.0, cache)
    assert model.forward(ids, ids_in)[0].shape == (batch, target, 11)
    assert np.isfinite(loss)
    assert np.isfinite(model.parameters.grad).all()
    if source:
        state = model.start_decoding(ids, num_beams=2)
        for _ in range(2):
            assert model.decode_step(np.ones((batch, 2), np.int64), state).shape == (batch, 2, 11)


@every_model
def test_nothing_is_written_into_what_a_model_is_given(config):
    """Every array that it is given, and every parameter, is read-only here."""
    model, batch = moved(config), ragged([3, 2], [2, 4])
    for parameter in model.parameters.named.values():
        read_only(parameter.data)
    _, cache = model.loss(*batch, 0.1, STREAM)
    model.loss_backward(1.0, cache)
    logits, cache = model.forward(batch.source, batch.target_in, STREAM)
    model.backward(read_only(np.ones(logits.shape)), cache)
    if isinstance(model, Transformer):
        model.attention_maps(batch.source, batch.target_in)
    state = model.start_decoding(batch.source, num_beams=2)
    model.decode_step(read_only(np.ones((2, 2), np.int64)), state)
    state.reorder(read_only(np.zeros((2, 2), np.int64)))
    state.select(read_only(np.zeros(1, np.int64)))


def test_gradients_of_another_type_are_cast_at_the_boundary():
    model, batch = model_of(), ragged([3, 2], [2, 4])
    logits, cache = model.forward(batch.source, batch.target_in)
    dlogits = np.random.default_rng(0).standard_normal(logits.shape).astype(np.float32)
    gradients = []
    for given in (dlogits, dlogits.astype(np.float64)):
        model.parameters.zero_grad()
        model.backward(given, cache)
        gradients.append(model.parameters.grad.copy())
    np.testing.assert_array_equal(*gradients)
    with pytest.raises(ValueError, match=r"dy has shape \(2, 4, 1\), expected its output's \(2, 4, 11\)"):
        model.backward(dlogits[..., :1], cache)


@pytest.mark.parametrize(
    ("config", "given"),
    [
        (GPTConfig(11, 4, 2, 4, 1), IDS),
        (BERTConfig(11, 4, 2, 4, 1), IDS),
        (ViTConfig(3, image_size=4, patch_size=2, d_model=4, num_heads=2, d_ff=4, num_layers=1), np.ones((2, 3, 4, 4))),
    ],
    ids=["gpt", "bert", "vit"],
)
def test_a_gradient_with_swapped_axes_is_refused(config, given):
    model = build_model(config)
    out, cache = model.forward(given)
    with pytest.raises(ValueError, match=r"dy has shape .*, expected its output's"):
        model.backward(np.ones(out.swapaxes(0, 1).shape), cache)


@pytest.mark.parametrize("shape", [(5, 3), (15,), (3, 4)])
def test_targets_of_another_shape_are_refused(shape):
    model, batch = model_of(), ragged([3, 4, 2], [5, 4, 2])
    with pytest.raises(ValueError, match=r"the targets have shape .*, expected \(3, 5\)"):
        model.loss(batch.source, batch.target_in, np.ones(shape, dtype=np.int64))


@pytest.mark.parametrize("dtype", [np.float32, np.dtype("float32"), "float32"])
def test_a_type_may_be_given_by_name_or_as_itself(dtype):
    assert Transformer(model_of().config, dtype=dtype).parameters.data.dtype == np.float32


@pytest.mark.parametrize("dtype", ["float16", "int64", np.int32])
def test_no_other_type_makes_a_model(dtype):
    with pytest.raises(TypeError, match="expected float32 or float64"):
        Transformer(model_of().config, dtype=dtype)


def test_a_text_without_a_token_has_no_class():
    model = build_model(BERTConfig(11, 4, 2, 4, 1, head="classes"))
    with pytest.raises(ValueError, match="ids has texts without a token"):
        model.forward(np.zeros((2, 0), int))
