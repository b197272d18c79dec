"""Any model, any table: losses, gradients, training, decoding and checkpoints do not depend on what computes them."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.kernels.prove_kernel import DEVICE
from support.kernels.tables import IN_HOST_MEMORY, TOLERANCES, every_table, table
from support.model_cases import BASELINES, STREAM, config, moved, ragged
from support.spies import Spies
from support.toy_training import backwards

import kernels
from minitransformer import Trainer, TrainingSettings
from minitransformer.decoding import batches, beam_search, greedy_search
from minitransformer.gradcheck import error
from minitransformer.layers import RotaryConfig, SparseConfig
from minitransformer.models import IGNORED, GPTConfig, Transformer, build_model
from minitransformer.ops import numpy_ops
from minitransformer.system.threads import Threads
from minitransformer.training import read_log
from minitransformer.training.optimizer import Adam

BATCH, SHORT = ragged([4, 2, 5], [3, 4, 1]), ragged([2, 1], [3, 4])
KINDS = {kind: BASELINES[kind] for kind in ("tanh, attention", "lstm", "convolutional")}
CONFIGS = {
    "post-norm": config(dropout=0.3),
    "pre-norm": config(dropout=0.3, norm_first=True),
    "everything": config(
        attention_dropout=0.2, positions="learned", window=1, d_k=3, d_v=4, num_decoder_layers=2
    ),
    **KINDS,
}  # fmt: skip
DEEP = {f"norm_first {first}": config(num_layers=2, norm_first=first) for first in (False, True)}
every_kind = pytest.mark.parametrize("configuration", [config(dropout=0.1), *KINDS.values()], ids=["paper's", *KINDS])


def models(backend: str, dtype: str, configuration: Any = None) -> tuple[Any, Any]:
    """Return one model in float64 on NumPy and on the backend."""
    reference = moved(configuration or config())
    model = build_model(reference.config, table(backend, dtype), dtype)
    model.parameters.load_state_dict(reference.parameters.state_dict())
    return reference, model


@every_table
@pytest.mark.parametrize("configuration", CONFIGS.values(), ids=CONFIGS)
def test_loss_and_every_gradient(backend, dtype, configuration):
    reference, model = models(backend, dtype, configuration)
    gradients = []
    for each in (reference, model):
        loss, cache = each.loss(*SHORT, 0.1, STREAM)
        each.loss_backward(1.0, cache)
        named = each.parameters.named
        gradients.append({name: each.ops.to_numpy(p.grad) for name, p in named.items()} | {"loss": float(loss)})
    expected, actual = gradients
    for name, gradient in actual.items():
        assert error(np.asarray(gradient, dtype=np.float64), expected[name]) <= TOLERANCES[dtype], name


@every_table
def test_logits_their_gradients_and_attention_maps(backend, dtype):
    found = []
    for each in models(backend, dtype):
        logits, cache = each.forward(SHORT.source, SHORT.target_in)
        each.backward(np.ones(logits.shape), cache)
        maps = [layer for kind in each.attention_maps(SHORT.source, SHORT.target_in).values() for layer in kind]
        found.append([each.ops.to_numpy(logits), each.ops.to_numpy(each.parameters.grad), *maps])
    for expected, actual in zip(*found, strict=True):
        assert isinstance(actual, np.ndarray)
        assert error(actual, expected) <= TOLERANCES[dtype]


@every_table
@pytest.mark.parametrize("rotary", [RotaryConfig(), RotaryConfig(4, interleaved=True)], ids=["halves", "neighbours"])
def test_rotary_positions(backend, dtype, rotary):
    """Queries and keys are parts of one projection; a token alone has angles that stand further down."""
    sizes: dict[str, Any] = {"d_model": 12, "num_heads": 2, "num_kv_heads": 1, "d_ff": 8, "num_layers": 1}
    ids, found = np.array([[3, 4, 5, 6, 7], [1, 8, 2, 4, 9]]), []
    for each in models(backend, dtype, GPTConfig(11, **sizes, max_length=16, positions="rotary", rotary=rotary)):
        logits, cache = each.forward(ids)
        each.backward(np.ones(logits.shape), cache)
        next_logits = each.decode_step(ids[:, :1], each.start_decoding(ids))
        found.append([each.ops.to_numpy(array) for array in (logits, each.parameters.grad, next_logits)])
    for expected, actual in zip(*found, strict=True):
        assert error(actual, expected) <= TOLERANCES[dtype]


@every_table
@pytest.mark.parametrize(
    "configuration",
    [
        *(pytest.param(each, id=name) for name, each in {"paper's": config(), **KINDS}.items()),
        *(pytest.param(each, id=name, marks=pytest.mark.slow) for name, each in DEEP.items()),
    ],
)
def test_translations_are_the_same(backend, dtype, configuration):
    reference, model = models(backend, dtype, configuration)
    for search in (greedy_search, beam_search):
        expected, actual = (search(each, SHORT.source, max_extra=2) for each in (reference, model))
        for wanted, hypotheses in zip(expected, actual, strict=True):
            pairs = zip(*(h if isinstance(h, list) else [h] for h in (wanted, hypotheses)), strict=True)
            for one, other in pairs:
                assert other.ids == one.ids
                assert other.score == pytest.approx(one.score, abs=1e-4)


@every_table
def test_only_numpy_searches_in_several_threads(backend, dtype, monkeypatch):
    """Others have threads of their own, and two that launch kernels only wait for each other."""
    counts = []

    class Counted(Threads):
        def __init__(self, count: int | None) -> None:
            counts.append(count)
            super().__init__(count)

    monkeypatch.setattr(batches, "Threads", Counted)
    model = Transformer(config(num_heads=1), table(backend, dtype), dtype)
    list(batches.search(model, [[5, 2], [6, 2]], batch_tokens=2, threads=2, max_extra=1))
    assert counts == [2 if backend in IN_HOST_MEMORY else 1]


@pytest.mark.parametrize(
    ("backend", "steps", "heads"),
    [("torch", 20, 2), ("triton", 2, 1), pytest.param("triton", 20, 2, marks=pytest.mark.slow)],
)
def test_steps_of_training_follow_numpys(backend, steps, heads):
    """Dropout and smoothing on, the same seed: losses within 1e-4. (The interpreter takes as long for each head.)"""
    losses = []
    for ops in (numpy_ops, table(backend)):
        model = Transformer(config(dropout=0.1, attention_dropout=0.1, d_model=8, num_heads=heads), ops)
        adam = Adam(model.parameters, model.ops)
        found = []
        for step in range(1, steps + 1):
            model.parameters.zero_grad()
            loss, cache = model.loss(*BATCH, 0.1, dataclasses.replace(STREAM, step=step))
            model.loss_backward(1.0, cache)
            adam.step(3e-3)
            found.append(float(loss))
        losses.append(found)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert losses[0][-1] < losses[0][0]


# --- Narrow activations beside float32 parameters -------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_activations(configuration, dtype):
    """Parameters, gradients and moments stay float32; gamma and beta go into ops as float32, all else narrow."""
    reference, model = build_model(configuration), build_model(configuration, kernels.torch_ops("cpu", dtype))
    adam, losses = Adam(model.parameters, model.ops), []
    for each in (reference, model):
        loss, cache = each.loss(*BATCH, 0.1, STREAM)
        each.loss_backward(1.0, cache)
        losses.append(float(loss))
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)
    for name, parameter in model.parameters.named.items():
        assert error(parameter.grad, reference.parameters.named[name].grad) <= 2e-2, name
    for _ in range(2):
        adam.step(1e-3)
    for name, parameter in model.parameters.named.items():
        exact = name.endswith(("gamma", "beta"))
        assert str(parameter.value.dtype) == ("torch.float32" if exact else f"torch.{dtype}"), name
        assert str(parameter.data.dtype) == str(parameter.grad.dtype) == "torch.float32"
        assert torch.equal(parameter.value, parameter.data.to(parameter.value.dtype)), f"{name}: the copy is behind"
    assert beam_search(model, BATCH.source, 2, max_extra=3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_sparse_pattern_of_prompts_of_different_lengths(dtype):
    """Its bias hides what it should in narrow types too, and changes no other score."""
    sizes: dict[str, Any] = {"d_model": 8, "num_heads": 2, "d_ff": 8, "num_layers": 1, "max_length": 16}
    prompts, logits = np.array([[3, 4, 5, 6, 7, 8, 9], [IGNORED, IGNORED, 3, 4, 5, 6, 7]]), []
    reference = moved(GPTConfig(11, **sizes, window=1, sparse=SparseConfig(global_tokens=1)), "float32")
    model = build_model(reference.config, kernels.torch_ops("cpu", dtype))
    model.parameters.load_state_dict(reference.parameters.state_dict())
    for each in (reference, model):
        out = each.decode_step(np.array([[1], [8]]), each.start_decoding(prompts))
        logits.append(np.asarray(each.ops.to_numpy(out), np.float64))
    assert error(logits[1], logits[0]) <= (1e-5 if dtype == "float32" else 2e-2)


@pytest.mark.parametrize("table", [kernels.torch_ops, kernels.triton_ops], ids=lambda table: table.__name__)
def test_a_step_of_adam_brings_the_shadow_along(table):
    model = Transformer(config(), table(DEVICE, "float16"))
    before = model.parameters.shadow.clone()
    model.parameters.grad[...] = 1.0
    Adam(model.parameters, model.ops).step(0.1)
    assert not torch.equal(model.parameters.shadow, before)
    assert torch.equal(model.parameters.shadow, model.parameters.data.half())


def test_loading_and_starting_refresh_the_shadow():
    model = Transformer(config(), kernels.torch_ops("cpu", "bfloat16"))
    assert float(model.tokens.table.value.float().abs().sum()) > 0
    state = {name: np.ones_like(array) for name, array in model.parameters.state_dict().items()}
    model.parameters.load_state_dict(state)
    assert bool((model.tokens.table.value == 1).all())


# --- Training and checkpoints across backends -----------------------------------------------------------------


def toy_trainer(ops, folder: Path, steps: int) -> Trainer:
    settings = TrainingSettings(
        steps=steps, tokens_per_batch=64, warmup_steps=5, peak_lr=1e-2, checkpoint_interval=3, threads=1
    )
    model = Transformer(config(vocab_size=20, dropout=0.1), ops)
    return Trainer(model, backwards(40, seed=1), settings, folder=folder, progress=False)


@pytest.mark.parametrize(("first", "second"), [("torch", "numpy"), ("numpy", "torch"), ("torch", "torch")])
def test_a_checkpoint_of_one_backend_continues_on_another(tmp_path, first, second):
    toy_trainer(numpy_ops, tmp_path / "reference", 6).train()
    toy_trainer(table(first), tmp_path / "run", 3).train()
    resumed = toy_trainer(table(second), tmp_path / "run", 6)
    resumed.resume()
    assert resumed.step == 3
    resumed.train()
    expected, actual = (
        [record["loss"] for record in read_log(tmp_path / folder / "log.jsonl")] for folder in ("reference", "run")
    )
    assert len(actual) == 6
    np.testing.assert_allclose(actual, expected, rtol=1e-4)


# --- One op at a time -----------------------------------------------------------------------------------------


def test_a_swapped_op_is_the_one_that_is_called():
    """Any softmax pair reaches attention through `attention_from`, any layernorm pair Add & Norm."""
    spies = Spies(kernels.torch_ops(DEVICE))
    attention = kernels.attention_from(spies.ops.softmax)
    norm = kernels.add_layernorm_from(spies.ops.layernorm)
    ops = dataclasses.replace(kernels.torch_ops(DEVICE), attention=attention, add_layernorm=norm)
    reference = Transformer(config(dropout=0.2))
    model = Transformer(config(dropout=0.2), ops)
    loss, cache = model.loss(*BATCH, 0.1, STREAM)
    model.loss_backward(1.0, cache)
    assert float(loss) == pytest.approx(float(reference.loss(*BATCH, 0.1, STREAM)[0]), rel=1e-5)
    assert spies.calls == {
        "softmax_forward": 3, "softmax_backward": 3, "layernorm_forward": 5, "layernorm_backward": 5
    }  # fmt: skip


def test_a_triton_pair_in_the_table_of_torch():
    triton = kernels.triton_ops(DEVICE)
    mixed = dataclasses.replace(kernels.torch_ops(DEVICE), add_layernorm=triton.add_layernorm)
    model = Transformer(config(dropout=0.2), mixed)
    reference = Transformer(config(dropout=0.2))
    for each in (model, reference):
        _, cache = each.loss(*BATCH, 0.1, STREAM)
        each.loss_backward(1.0, cache)
    assert error(model.ops.to_numpy(model.parameters.grad), reference.parameters.grad) <= 1e-5


def test_the_triton_table_has_every_kernel():
    ops = kernels.triton_ops(DEVICE)
    plain = kernels.torch_ops(DEVICE)
    kept = {name for name, pair in ops.pairs() if pair == getattr(plain, name)}
    assert kept == {name for name, _ in ops.pairs()} - set(kernels.KERNELS)
    assert ops.adam_step is not plain.adam_step
    assert ops.global_norm is not plain.global_norm
