"""The ops that each configuration reaches, and that a model computes with its own table, in its own type."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from support.model_cases import BASELINES, MODELS, STREAM, config, every_model, moved, ragged
from support.spies import Spies

import kernels
from minitransformer.gradcheck import error
from minitransformer.models import (
    CLIP,
    GPT,
    CLIPConfig,
    EncoderDecoder,
    GPTConfig,
    Model,
    ModelConfig,
    Transformer,
    ViT,
    ViTConfig,
    build_model,
)
from minitransformer.ops import numpy_ops
from minitransformer.textbook import textbook_ops

BATCH = ragged([4, 2], [3, 4])
IMAGES = np.random.default_rng(0).standard_normal((2, 1, 4, 4))
TEXTS = np.array([[1, 5, 2], [1, 2, 0]])
OPTIONS = {"post-norm": {"norm_first": False, "dropout": 0.3}, "pre-norm": {"norm_first": True, "dropout": 0.3}}


def run_loss(model: Model) -> float:
    batches = {GPT: (BATCH.source, BATCH.source), ViT: (IMAGES, np.array([0, 2])), CLIP: (IMAGES, TEXTS)}
    loss, cache = model.loss(*batches.get(type(model), BATCH), 0.1, STREAM)
    model.loss_backward(1.0, cache)
    return loss


def run_logits(model: EncoderDecoder) -> np.ndarray:
    logits, cache = model.forward(BATCH.source, BATCH.target_in, STREAM)
    model.backward(np.ones_like(logits), cache)
    return logits


def run_decoding(model: EncoderDecoder) -> np.ndarray:
    state = model.start_decoding(BATCH.source, num_beams=2)
    return np.stack([model.decode_step(np.ones((2, 2), np.int64), state) for _ in range(3)])


def run_maps(model: Transformer) -> dict:
    return model.attention_maps(BATCH.source, BATCH.target_in)


def spied(**changes) -> tuple[Spies, Transformer]:
    """A model whose making is not counted."""
    spies = Spies()
    model = Transformer(config(**changes), spies.ops)
    spies.calls.clear()
    return spies, model


@pytest.mark.parametrize("run", [run_loss, run_logits, run_decoding, run_maps])
@pytest.mark.parametrize(("norm", "op"), [("post-norm", "add_layernorm"), ("pre-norm", "layernorm")])
def test_ops_reached(norm, op, run):
    spies, model = spied(**OPTIONS[norm])
    run(model)
    reached = {"linear", "relu", "dropout", "embedding", "attention", op}
    reached |= {"linear_cross_entropy"} if run is run_loss else set()
    assert spies.math == reached
    if run in (run_loss, run_logits):  # every forward has its backward
        assert all(spies.calls[f"{name}_forward"] == spies.calls[f"{name}_backward"] for name in reached)


def test_how_often_each_op_is_called():
    """An encoder layer: 4 linear maps, 1 attention, 1 relu, 2 Add & Norm. A decoder layer: 7, 2, 1 and 3."""
    spies, model = spied(num_layers=2, num_decoder_layers=3)
    run_loss(model)
    expected = {"linear": 2 * 4 + 3 * 7, "attention": 2 + 3 * 2, "relu": 2 + 3, "add_layernorm": 2 * 2 + 3 * 3}
    assert {name: spies.calls[f"{name}_forward"] for name in expected} == expected
    assert spies.calls["linear_cross_entropy_forward"] == 1


@pytest.mark.parametrize("run", [run_loss, run_logits, run_decoding, run_maps])
@pytest.mark.parametrize("norm", OPTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_op_sees_and_gives_the_model_s_type_alone(dtype, norm, run):
    spies = Spies()
    model = Transformer(config(**OPTIONS[norm], attention_dropout=0.3, positions="learned"), spies.ops, dtype)
    run(model)
    met = {name: types for name, types in spies.dtypes.items() if name not in ("asarray", "cast")}
    assert {name for name, types in met.items() if types - {np.dtype(dtype)}} == set()
    assert {model.parameters.data.dtype, model.parameters.grad.dtype} == {np.dtype(dtype)}


@every_model
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_have_the_model_s_type(config, dtype):
    model = moved(config, dtype)
    results = [run_loss(model), run_logits(model), run_decoding(model), model.parameters.grad]
    if isinstance(model, Transformer):
        results += run_maps(model)["cross"]
    state = model.start_decoding(BATCH.source, 2)
    model.decode_step(np.ones((2, 2), np.int64), state)
    for kept in (state.cache.rows, state.cache.shared):
        results += [array for arrays in kept.values() for array in arrays]
    assert {np.asarray(result).dtype for result in results} == {np.dtype(dtype)}


REACHED = {
    "tanh": {"tanh"},
    "tanh, attention": {"tanh", "additive_attention"},
    "lstm": {"tanh", "sigmoid"},
    "lstm, attention": {"tanh", "sigmoid", "additive_attention"},
    "convolutional": {"sigmoid", "conv1d", "attention"},
}


@pytest.mark.parametrize("kind", REACHED)
def test_ops_reached_by_baselines(kind):
    """Every forward has its backward; but for a state's product all positions have theirs in one product."""
    spies = Spies()
    run_loss(build_model(BASELINES[kind], spies.ops))
    assert spies.math == REACHED[kind] | {"linear", "dropout", "embedding", "linear_cross_entropy"}
    unpaired = {name for name in spies.math if spies.calls[f"{name}_forward"] != spies.calls[f"{name}_backward"]}
    assert unpaired == (set() if kind == "convolutional" else {"linear"})


# --- A swapped op is the one that is called --------------------------------------------------------------------


SMALL: dict[str, Any] = {"d_model": 8, "num_heads": 2, "d_ff": 7, "num_layers": 1, "dropout": 0.3}
FAMILY: dict[str, ModelConfig] = {
    "gpt": GPTConfig(11, **SMALL),
    "gpt, silu": GPTConfig(11, **SMALL, activation="silu"),
    "gpt, post-norm with rmsnorm": GPTConfig(11, **SMALL, norm="rmsnorm", norm_first=False),
    "gpt, linear attention": GPTConfig(11, **SMALL, attention="linear", attention_dropout=0.0),
    "llama": GPTConfig.llama(11, **SMALL),
    "vit": ViTConfig(3, image_size=4, patch_size=2, channels=1, **SMALL),
    "clip": CLIPConfig(11, image_size=4, patch_size=2, channels=1, **SMALL),
}
USERS = {
    "layernorm": "pre-norm, learned", "tanh": "tanh", "sigmoid": "lstm", "additive_attention": "tanh, attention",
    "conv1d": "convolutional", "gelu": "gpt", "silu": "gpt, silu", "gated": "llama", "rmsnorm": "llama",
    "rope": "llama", "add_rmsnorm": "gpt, post-norm with rmsnorm", "linear_attention": "gpt, linear attention",
    "patches": "vit", "cross_entropy": "clip",
}  # fmt: skip
"""For an op that the paper's model has no need of, a model that does."""
MODEL_OF = {op: (MODELS | FAMILY)[USERS.get(op, "post-norm")] for op, _ in numpy_ops.pairs()}
CONTAINED = {"softmax"}  # by attention
OF_REWARDS = {"log_probs", "entropy"}  # of the logits that a model returns
IN_TRAINING = sorted(set(MODEL_OF) - CONTAINED - OF_REWARDS)


@pytest.mark.parametrize("op", IN_TRAINING)
def test_a_swapped_op_is_the_one_that_is_called(op):
    """The textbook's in place of the fast one: the same loss and gradients."""
    spies = Spies(dataclasses.replace(numpy_ops, **{op: getattr(textbook_ops, op)}))
    model, default = (build_model(MODEL_OF[op], table, "float64") for table in (spies.ops, numpy_ops))
    assert error(run_loss(model), run_loss(default)) <= 1e-12
    assert error(model.parameters.grad, default.parameters.grad) <= 1e-12
    missing = f"the model does not call {op}: USERS needs the name of one that does"
    assert {f"{op}_forward", f"{op}_backward"} <= spies.calls.keys(), missing


@pytest.mark.parametrize("kind", sorted({USERS.get(op, "post-norm") for op in IN_TRAINING}))
def test_every_op_takes_narrow_activations(kind):
    """A layer keeps gamma and beta in float32, and the ops of a table of tensors take them beside bfloat16."""
    narrow, reference = (
        build_model((MODELS | FAMILY)[kind], ops) for ops in (kernels.torch_ops("cpu", "bfloat16"), numpy_ops)
    )
    assert float(run_loss(narrow)) == pytest.approx(run_loss(reference), rel=2e-2)
    assert error(narrow.ops.to_numpy(narrow.parameters.grad), reference.parameters.grad) <= 3e-2
