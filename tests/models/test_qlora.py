"""QLoRA: adapters beside weights in few bits are trained, and nothing else. Source: Dettmers et al. 2023, §3."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from minitransformer.data.batching import Batch
from minitransformer.data.rows import Rows
from minitransformer.layers import AdaptedLinear, FlatParameters, Linear, LoRA, QuantizedLinear, QuantizedParameter
from minitransformer.models import BERTConfig, GPTConfig, T5Config, Tuning, build_model, is_adapter
from minitransformer.ops import Quantized, numpy_ops
from minitransformer.training import Trainer, TrainingSettings
from minitransformer.training.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from minitransformer.training.trainer import kept_of

SIZES: dict[str, Any] = {"d_model": 32, "num_heads": 2, "d_ff": 64, "num_layers": 2, "max_length": 16}
CONFIGS = {
    "gpt": GPTConfig(20, **SIZES, dropout=0.0, attention_dropout=0.0),
    "llama": GPTConfig.llama(20, **SIZES, num_kv_heads=1),
    "bert": BERTConfig(20, **SIZES, dropout=0.0, attention_dropout=0.0),
    "t5": T5Config(20, **SIZES, d_k=16, dropout=0.0),
}
LORA = Tuning(frozen=("*",), rank=2, alpha=3.0, targets=("*.query", "*.value", "*.contract", "*.output"))
IDS = np.random.default_rng(1).integers(3, 20, (2, 3, 7))


def tuned(kind: str, bits: int = 4, dtype: str = "float64") -> Any:
    """A model in few bits with adapters that are not 0."""
    model = build_model(CONFIGS[kind], dtype=dtype, seed=1).quantized(bits).tuned(LORA, seed=2)
    for name, parameter in model.parameters.named.items():
        if is_adapter(name):
            parameter.data[...] = np.random.default_rng(len(name)).normal(size=parameter.shape) / 4
    return model


def batch_of(kind: str) -> Any:
    ids, targets = IDS
    return Batch(ids, targets, targets) if kind == "t5" else Rows((ids, targets))


def gradients(model: Any, batch: Any) -> dict[str, np.ndarray]:
    model.parameters.zero_grad()
    model.loss_backward(1.0, model.loss(*batch.inputs)[1])
    return {name: each.grad.copy() for name, each in model.parameters.named.items() if each.trained}


@pytest.mark.parametrize("bits", [8, 4])
def test_an_adapter_beside_few_bits_has_autograds_gradients(bits: int) -> None:
    """By PyTorch on the weight that the bits stand for, with a trained bias."""
    rng = np.random.default_rng(bits)
    plain, weight = Linear(numpy_ops, 64, 5, 3), QuantizedParameter((64, 8), bits)
    adapted = AdaptedLinear(QuantizedLinear(plain, weight), [LoRA(numpy_ops, 64, 5, 2, 1.5), None])
    parameters = FlatParameters(dict(adapted.named_parameters()), numpy_ops, "float64")
    parameters.set_quantized({"weight": weight.rounded(rng.standard_normal((64, 8)) / 8)})
    parameters.data[...] = rng.standard_normal(parameters.data.shape) / 8
    x, dy = rng.standard_normal((2, 3, 64)), rng.standard_normal((2, 3, 8))
    y, cache = adapted.forward(x)
    dx = adapted.backward(dy, cache)

    tensors = {name: torch.tensor(each.data, requires_grad=True) for name, each in parameters.named.items()}
    theirs = torch.tensor(x, requires_grad=True)
    matrix = torch.tensor(weight.floats(numpy_ops), dtype=torch.float64)
    change = 1.5 * theirs @ tensors["adapters.0.a"] @ tensors["adapters.0.b"]
    wanted = theirs @ matrix + tensors["bias"] + torch.nn.functional.pad(change, (0, 3))
    wanted_dx, *gradients = torch.autograd.grad(wanted, [theirs, *tensors.values()], torch.tensor(dy))
    np.testing.assert_allclose(y, wanted.detach().numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(dx, wanted_dx, rtol=1e-12, atol=1e-12)
    assert set(tensors) == {"bias", "adapters.0.a", "adapters.0.b"}
    for name, gradient in zip(tensors, gradients, strict=True):
        np.testing.assert_allclose(parameters.named[name].grad, gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", CONFIGS)
def test_adapters_have_the_gradients_of_those_beside_floats(kind: str, bits: int) -> None:
    model, batch = tuned(kind, bits), batch_of(kind)
    found = gradients(model, batch)
    assert found.keys() == {name for name in model.parameters.named if is_adapter(name)}
    base = build_model(CONFIGS[kind], dtype="float64", seed=1).quantized(bits).merged()
    beside = base.tuned(LORA)
    for name, parameter in model.parameters.named.items():
        beside.parameters.named[name].data[...] = parameter.data
    for name, gradient in gradients(beside, batch).items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-9, atol=1e-13)
    merged = model.merged()
    assert (merged.bits, merged.tuning) == (None, None)
    assert abs(float(merged.loss(*batch.inputs)[0]) - float(model.loss(*batch.inputs)[0])) <= 1e-12
    name, number = "decoder.layers.1.feed_forward.contract.adapters.0.b", (1, 3)
    name = name if kind != "bert" else name.replace("decoder", "encoder")
    losses = []
    for step in (1e-5, -1e-5):
        model.parameters.named[name].data[number] += step
        losses.append(float(model.loss(*batch.inputs)[0]))
        model.parameters.named[name].data[number] -= step
    np.testing.assert_allclose(found[name][number], (losses[0] - losses[1]) / 2e-5, rtol=1e-6, atol=1e-10)


def test_a_step_makes_no_matrix_of_floats() -> None:
    config = GPTConfig.llama(64, d_model=256, num_heads=4, d_ff=4096, num_layers=2, max_length=8, tied=True)
    model = build_model(config, seed=None).quantized(4).tuned(Tuning(("*",), rank=4))
    assert model.parameters.nbytes < config.weight_bytes() / 6
    tracemalloc.start()
    try:
        model.loss_backward(1.0, model.loss(*IDS[:, :1])[1])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 256 * 8192 * 0.8  # the map to gates and ups, 8.4 MB


def test_what_can_not_be_trained_is_refused() -> None:
    model = build_model(CONFIGS["llama"]).quantized(4)
    options: dict[str, Any] = {"tokens_per_batch": 32, "steps": 1}
    with pytest.raises(ValueError, match="nothing of the model is trained: its matrices are in 4 bits, so train adapt"):
        Trainer(model, None, TrainingSettings(**options))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"adapters can't be merged into weights in 4 bits: tune what merged\(\) ret"):
        model.tuned(LORA).tuned(LORA)


# --- Checkpoints ----------------------------------------------------------------------------------------------


def checkpoint_of(model: Any) -> Checkpoint:
    quantized = {name: each.value for name, each in model.parameters.quantized.items()}
    parameters = model.parameters.state_dict()
    return Checkpoint(model.config.to_dict(), parameters, state=kept_of(model), quantized=quantized)


@pytest.mark.parametrize("bits", [8, 4])
def test_a_checkpoint_holds_the_bits_and_the_adapters(bits: int, tmp_path: Path) -> None:
    model, batch = tuned("llama", bits, "float32"), batch_of("llama")
    path = tmp_path / "some.safetensors"
    save_checkpoint(path, checkpoint_of(model))
    assert path.stat().st_size < model.config.weight_bytes() / 2
    back = load_checkpoint(path).model()  # beside few bits adapters are not merged
    assert (back.bits, back.tuning) == (bits, LORA)
    np.testing.assert_array_equal(back.parameters.data, model.parameters.data)
    assert float(back.loss(*batch.inputs)[0]) == float(model.loss(*batch.inputs)[0])


def test_a_checkpoint_whose_bits_are_damaged_is_refused(tmp_path: Path) -> None:
    model = tuned("llama", 4, "float32")
    good = checkpoint_of(model).quantized
    name, weight = next((name, each) for name, each in good.items() if each.bits == 4)
    path = tmp_path / "some.safetensors"

    def refused(message: str, changed: Any, state: Any = None) -> None:
        checkpoint = checkpoint_of(model)
        checkpoint.quantized, checkpoint.state = changed, checkpoint.state | (state or {})
        save_checkpoint(path, checkpoint)
        with pytest.raises(CheckpointError, match=message):
            load_checkpoint(path).model()

    short = Quantized(weight.packed[..., :8], weight.scales, weight.zeros, 4)
    refused("is no weight in few bits", good | {name: short})
    few = Quantized(weight.packed, weight.scales[:, :-1], weight.zeros, 4)
    refused("has other scales than its numbers need", good | {name: few})
    refused("the checkpoint holds .* weights in .* arrays", {each: good[each] for each in good if each != name})
    refused("weights in few bits are not those of its model", {f"x{each}": good[each] for each in good})
    refused("its bits is 5, expected 8 or 4", good, {"bits": 5})
