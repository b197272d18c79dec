"""What of a model is trained: frozen parameters and adapters, in every kind of model with blocks."""

import pickle
from copy import deepcopy
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest

from minitransformer.data.batching import Batch
from minitransformer.data.rows import Rows
from minitransformer.layers import AdaptedLinear
from minitransformer.models import (
    BERTConfig,
    GPTConfig,
    Model,
    RecurrentConfig,
    T5Config,
    TransformerConfig,
    Tuning,
    build_model,
    is_adapter,
)
from minitransformer.training import DataParallel
from minitransformer.training.optimizer import Adam
from minitransformer.training.step import training_step

SIZES: dict[str, Any] = {"d_model": 8, "num_heads": 2, "d_ff": 12, "num_layers": 2, "max_length": 16}
LLAMA = GPTConfig.llama(20, **SIZES | {"num_kv_heads": 1})
CONFIGS = {
    "gpt": GPTConfig(20, **SIZES),
    "llama": replace(LLAMA, tied=True),
    "bert": BERTConfig(20, **SIZES, init_std=0.3),
    "classes": BERTConfig(20, **SIZES, init_std=0.3, head="classes", num_classes=3),
    "t5": T5Config(20, **SIZES, d_k=4),
    "transformer": TransformerConfig(20, **SIZES),
    "recurrent": RecurrentConfig(20, d_model=8, num_layers=1, dropout=0.0),
}
LORA = Tuning(frozen=("*",), rank=2, alpha=3.0)
each_config = pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind != "recurrent"])


def batch_of(kind: str, rows: int = 3) -> Any:
    rng = np.random.default_rng(1)
    ids, targets = rng.integers(3, 20, (2, rows, 7))
    if kind in ("t5", "transformer", "recurrent"):
        return Batch(ids, np.concatenate((np.ones((rows, 1), np.int64), targets[:, :-1]), 1), targets)
    return Rows((ids, targets[:, 0] % 3 if kind == "classes" else targets))


def tuned(kind: str, tuning: Tuning = LORA, dtype: str = "float64") -> Model[Any]:
    """A model whose adapters are not 0."""
    model = build_model(CONFIGS[kind], dtype=dtype, seed=1).tuned(tuning, seed=2)
    rng = np.random.default_rng(3)
    for name, parameter in model.parameters.named.items():
        if is_adapter(name):
            parameter.data[...] = rng.normal(size=parameter.shape)
    return model


def loss_of(model: Model[Any], batch: Any) -> float:
    return float(model.loss(*batch.inputs)[0])


def gradients(model: Model[Any], batch: Any) -> dict[str, np.ndarray]:
    model.parameters.zero_grad()
    model.loss_backward(1.0, model.loss(*batch.inputs)[1])
    return {name: each.grad.copy() for name, each in model.parameters.named.items() if each.trained}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@each_config
def test_a_training_with_adapters_starts_at_the_model_as_it_was(kind: str, dtype: str) -> None:
    model = build_model(CONFIGS[kind], dtype=dtype, seed=1)
    assert loss_of(model.tuned(LORA), batch_of(kind)) == loss_of(model, batch_of(kind))


@each_config
def test_merged_adapters_do_what_they_did_apart(kind: str) -> None:
    apart, batch = tuned(kind), batch_of(kind)
    merged = apart.merged()
    assert not any(map(is_adapter, merged.parameters.named))
    assert abs(loss_of(merged, batch) - loss_of(apart, batch)) <= 1e-12
    assert abs(loss_of(apart, batch) - loss_of(build_model(CONFIGS[kind], dtype="float64", seed=1), batch)) > 1e-3
    assert loss_of(merged.merged(), batch) == loss_of(merged, batch)


@each_config
def test_an_adapter_s_gradients_follow_from_the_merged_weight_s(kind: str) -> None:
    """By the chain rule dA = α/r · dW Bᵀ and dB = α/r · Aᵀ dW, and an adapter's input has the merged map's gradient."""
    apart, batch = tuned(kind), batch_of(kind)
    found, of_merged = gradients(apart, batch), gradients(apart.merged(), batch)
    assert found
    assert all(map(is_adapter, found))
    for name, layer in apart.named_layers():
        for adapter, columns in layer.adapted() if isinstance(layer, AdaptedLinear) else ():
            dweight, start = 1.5 * of_merged[f"{name}.weight"][:, columns], adapter.name
            np.testing.assert_allclose(found[f"{start}.a"], dweight @ adapter.b.data.T, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(found[f"{start}.b"], adapter.a.data.T @ dweight, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "frozen", [("*.weight",), ("*.bias", "*.beta"), ("*tokens.table", "*positions*"), ("*layers.0*",)]
)
@pytest.mark.parametrize("kind", CONFIGS)
def test_what_is_not_frozen_has_the_gradient_that_it_always_had(kind: str, frozen: tuple[str, ...]) -> None:
    model, batch = build_model(CONFIGS[kind], dtype="float64", seed=1), batch_of(kind)
    matched = tuple(each for each in frozen if any(fnmatchcase(name, each) for name in model.parameters.named))
    part = model.tuned(Tuning(matched))
    whole, found = gradients(model, batch), gradients(part, batch)
    assert 0 < len(found) < len(whole) or not matched
    for name, each in found.items():
        np.testing.assert_allclose(each, whole[name], rtol=1e-9, atol=1e-12)
    assert all(each.grad is None for each in part.parameters.named.values() if not each.trained)


@each_config
def test_steps_move_the_adapters_alone_and_keep_moments_of_nothing_else(kind: str) -> None:
    model = build_model(CONFIGS[kind], seed=1)
    adapted = model.tuned(LORA)
    optimizer = Adam(adapted.parameters, adapted.ops)
    with DataParallel(adapted, 2) as workers:
        for _ in range(3):
            training_step(workers, optimizer, [batch_of(kind)], learning_rate=0.1, clip_norm=1.0)
    before, after = model.parameters.state_dict(), adapted.parameters.state_dict()
    for name, array in after.items():
        assert is_adapter(name) or np.array_equal(array, before[name]), name
    assert all(np.abs(array).max() > 0 for name, array in after.items() if is_adapter(name))
    moments = optimizer.state_dict().keys() - {"num_steps"}
    assert moments == {f"{letter}.{name}" for letter in "mv" for name in after if is_adapter(name)}
    assert len(optimizer.m) == len(adapted.parameters.grad) < len(adapted.parameters.data) / 2


def test_copies_replicas_and_pickles_have_the_adapters_too() -> None:
    model, batch = tuned("llama"), batch_of("llama")
    for other in (deepcopy(model), model.replica(), pickle.loads(pickle.dumps(model))):
        assert other.tuning == model.tuning
        assert loss_of(other, batch) == loss_of(model, batch)
        assert len(other.parameters.grad) == len(model.parameters.grad)


def test_any_output_of_a_linear_map_may_have_an_adapter() -> None:
    targets = ("*.key", "*.gate", "decoder.layers.1.*.contract")
    model = tuned("llama", replace(LORA, targets=targets))
    names = {
        name.removeprefix("decoder.layers.").rpartition(".")[0] for name in model.parameters.named if is_adapter(name)
    }
    both = {
        f"{i}.{each}"
        for i in "01"
        for each in ("self_attention.query_key_value.adapters.1", "feed_forward.expand.adapters.0")
    }
    assert names == both | {"1.feed_forward.contract.adapters.0"}


@pytest.mark.parametrize(
    ("tuning", "says"),
    [
        (Tuning(frozen=("*.wieght",)), r"no name matches '\*.wieght', such as"),
        (
            replace(LORA, targets=("q_proj",)),
            "no name matches 'q_proj', such as decoder.layers.1.feed_forward.contract",
        ),
        (replace(LORA, rank=8), "the rank is 8, but .*query_key_value.query is a map of 8 to 8 channels"),
        (Tuning(frozen=("*",)), "all parameters are frozen"),
    ],
)
def test_what_no_model_can_have_is_refused(tuning: Tuning, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build_model(CONFIGS["gpt"]).tuned(tuning)
    with pytest.raises(TypeError, match="frozen must be patterns of names, got 'x'"):
        Tuning(frozen="x")  # type: ignore[arg-type]


def test_adapters_of_another_rank_take_the_place_of_the_first_which_are_merged():
    model: Any = tuned("gpt")
    again = model.tuned(Tuning(("*",), rank=1), seed=5)
    ids = np.random.default_rng(0).integers(3, 20, (2, 5))
    np.testing.assert_allclose(again.forward(ids)[0], model.forward(ids)[0], rtol=0, atol=1e-12)
