"""Whole models in few bits: loaded from folders and GGUF files, they are the models of the weights that they hold."""

import pickle
import tracemalloc
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from support.gguf_files import write_gguf

import kernels
from minitransformer.models import BERTConfig, GPTConfig, T5Config, TransformerConfig, ViTConfig, build_model
from minitransformer.pretrained import PretrainedError, load, save
from minitransformer.pretrained.gguf import as_blocks
from minitransformer.pretrained.gguf_file import opened

SIZES: dict[str, Any] = {"vocab_size": 23, "d_model": 64, "num_heads": 4, "d_ff": 96, "num_layers": 2}
NONE: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0}
IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
CONFIGS = {
    "gpt2": GPTConfig(**SIZES, **NONE, max_length=16),
    "llama": GPTConfig.llama(**SIZES, num_kv_heads=2, max_length=16),
    "bert": BERTConfig(**SIZES, **NONE, max_length=16),
    "t5": T5Config(**SIZES, dropout=0.0, tied=False),
    "marian": TransformerConfig(**SIZES, dropout=0.0, max_length=16),
    "vit": ViTConfig(image_size=16, patch_size=8, d_model=64, num_heads=4, d_ff=96, num_layers=2),
}


def random_model(kind: str, dtype: str = "float32") -> Any:
    model = build_model(CONFIGS[kind], dtype=dtype)
    rng = np.random.default_rng(len(kind))
    for parameter in model.parameters.named.values():
        parameter.data[...] += 0.2 * rng.standard_normal(parameter.shape)
    return model


def outputs(kind: str, model: Any) -> np.ndarray:
    images = np.random.default_rng(0).standard_normal((2, 3, 16, 16))
    given = (images.astype(model.dtype),) if kind == "vit" else (IDS, IDS) if kind in ("t5", "marian") else (IDS,)
    return model.ops.to_numpy(model.forward(*given)[0])


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_model_in_few_bits_is_that_of_the_weights_it_holds(kind: str, bits: int, tmp_path: Path) -> None:
    save(random_model(kind), tmp_path)
    found, _ = load(tmp_path, dtype="float64", bits=bits)
    assert (found.bits, found.merged().bits) == (bits, None)
    wanted = outputs(kind, found.merged())
    np.testing.assert_allclose(outputs(kind, found), wanted, rtol=0, atol=1e-12 * abs(wanted).max())
    in_float, _ = load(tmp_path, dtype="float64")
    assert found.config == in_float.config
    assert found.parameters.count == in_float.parameters.count == found.config.num_parameters
    assert abs(wanted - outputs(kind, in_float)).max() > 0
    kept = {name: each.value for name, each in found.parameters.quantized.items()}
    assert {each.bits for name, each in kept.items() if name.endswith("weight")} == {bits}
    rounded = in_float.quantized(bits).parameters.quantized
    assert {name: blocks_of(each) for name, each in kept.items()} == {
        name: blocks_of(each.value) for name, each in rounded.items()
    }
    assert all(each.ndim == 1 or "positions" in name or "types" in name or "token" in name or "relative" in name
               for name, each in found.parameters.state_dict().items())  # fmt: skip


def blocks_of(weight: Any) -> bytes:
    return as_blocks(weight)[1].tobytes()


def llama(**sizes: Any) -> Any:
    """A Llama of `transformers` whose heads' rows llama.cpp turns."""
    torch.manual_seed(0)
    values: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    values |= {"intermediate_size": 96, "vocab_size": 50, "num_hidden_layers": 2}
    values |= {"max_position_embeddings": 32, "rms_norm_eps": 2.0**-17}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**values | sizes))


@pytest.mark.parametrize(("kind", "bits"), [("Q8_0", 8), ("Q4_0", 4), ("Q4_1", 4), ("Q4_0", 8)])
def test_what_a_file_has_in_few_bits_is_not_rounded_again(kind: str, bits: int, tmp_path: Path) -> None:
    write_gguf(tmp_path / "some.gguf", llama(), kind)
    found, _ = load(tmp_path / "some.gguf", bits=bits)
    in_float, _ = load(tmp_path / "some.gguf")
    np.testing.assert_array_equal(found.merged().parameters.data, in_float.parameters.data)
    content = opened(tmp_path / "some.gguf").tensors
    assert {as_blocks(each.value)[0] for each in found.parameters.quantized.values()} == {kind}
    down = found.parameters.quantized["decoder.layers.1.feed_forward.contract.weight"]
    assert blocks_of(down.value) == content["blk.1.ffn_down.weight"].rows().tobytes()
    wanted = in_float.forward(IDS)[0]
    np.testing.assert_allclose(found.forward(IDS)[0], wanted, rtol=0, atol=1e-5 * abs(wanted).max())


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_1", "F16"])
def test_a_file_with_more_bits_is_rounded(kind: str, tmp_path: Path) -> None:
    write_gguf(tmp_path / "some.gguf", llama(), kind)
    found, rounded = load(tmp_path / "some.gguf", bits=4)[0], load(tmp_path / "some.gguf")[0].quantized(4)
    for name, parameter in rounded.parameters.quantized.items():
        assert blocks_of(found.parameters.quantized[name].value) == blocks_of(parameter.value)


def test_tensors_of_several_types_in_one_map_are_rounded_together(tmp_path: Path) -> None:
    """llama.cpp mixes types: a map with such neighbours is in one type here."""
    write_gguf(tmp_path / "some.gguf", llama(), "Q4_0", kinds={"v_proj": "Q4_1"})
    found, rounded = load(tmp_path / "some.gguf", bits=4)[0], load(tmp_path / "some.gguf")[0].quantized(4)
    kept, again = found.parameters.quantized, rounded.parameters.quantized
    mixed = "decoder.layers.0.self_attention.query_key_value.weight"
    assert blocks_of(kept[mixed].value) == blocks_of(again[mixed].value)
    assert as_blocks(kept["decoder.layers.0.feed_forward.expand.weight"].value)[0] == "Q4_0"


def test_a_quantised_model_does_what_a_model_does(tmp_path: Path) -> None:
    save(random_model("llama"), tmp_path)
    model, _ = load(tmp_path, bits=4)
    logits, plain = model.forward(IDS)[0], model.merged()
    np.testing.assert_allclose(model.hidden_states(IDS), plain.hidden_states(IDS), atol=1e-4)
    state = model.start_decoding(IDS[:, :4])
    np.testing.assert_allclose(model.decode_step(IDS[:, 4:], state)[:, 0], logits[:, 4], atol=1e-4)
    for twin in (deepcopy(model), pickle.loads(pickle.dumps(model)), model.replica(), model.tuned(None)):
        assert (twin.bits, len(twin.parameters.grad)) == (4, 0)
        np.testing.assert_array_equal(twin.forward(IDS)[0], logits)
    on_torch, _ = load(tmp_path, kernels.torch_ops("cpu"), bits=4)
    np.testing.assert_allclose(on_torch.forward(IDS)[0].numpy(), logits, atol=1e-4)


def test_matrices_that_do_not_fit_stay_in_float(tmp_path: Path) -> None:
    sizes: dict[str, Any] = SIZES | {"d_ff": 40}
    save(build_model(GPTConfig(**sizes, max_length=8)), tmp_path / "some")
    model, _ = load(tmp_path / "some", bits=8)
    names = [name for name in model.parameters.named if name.endswith("weight")]
    assert names == [f"decoder.layers.{i}.feed_forward.contract.weight" for i in range(2)]
    sizes["d_model"] = 40
    save(build_model(GPTConfig(**sizes, max_length=8)), tmp_path / "none")
    with pytest.raises(ValueError, match="no matrix of the model has rows of a multiple of 32 weights, which few bits"):
        load(tmp_path / "none", bits=8)
    with pytest.raises(ValueError, match="bits is 5, expected 4 or 8"):
        load(tmp_path / "some", bits=5)
    for kind in ("4", None):  # of a model in few bits too
        with pytest.raises(TypeError, match=r"^bits must be an integer"):
            model.quantized(kind)  # pyright: ignore[reportArgumentType]


def test_what_few_bits_can_not_do_is_refused() -> None:
    model = random_model("bert").quantized(8)
    with pytest.raises(ValueError, match="the model is in 8 bits already: round what merged"):
        model.quantized(4)
    with pytest.raises(ValueError, match="a model in 8 bits gets no new head"):
        model.with_head("classes")


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("bits", [8, 4])
def test_the_memory_is_known_before_it_is_taken(kind: str, bits: int) -> None:
    model, config = random_model(kind).quantized(bits), CONFIGS[kind]
    padding = model.parameters.data.nbytes - 4 * sum(each.data.size for each in model.parameters.named.values())
    assert config.weight_bytes(bits=bits) == model.parameters.nbytes - padding
    assert config.weight_bytes() == 4 * config.num_parameters
    assert config.weight_bytes("float64") == 8 * config.num_parameters


def test_the_model_in_float_is_never_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, Any] = {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8, "vocab_size": 500}
    llama(**sizes, num_hidden_layers=6).save_pretrained(tmp_path)
    tracemalloc.start()
    try:
        model, _ = load(tmp_path, bits=4)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    largest = 4 * 512 * 2048
    assert peak <= model.parameters.nbytes + 4 * largest < model.config.weight_bytes() / 2
    monkeypatch.setattr("minitransformer.pretrained.memory_limit", lambda: 2 * model.parameters.nbytes)
    load(tmp_path, bits=4)
    with pytest.raises(PretrainedError, match="bytes for its weights"):
        load(tmp_path)
