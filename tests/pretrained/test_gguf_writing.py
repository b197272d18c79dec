"""GGUF files that are written: the package gguf and transformers read them, and so do we, to the last bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
import torch
from support.gguf_files import KINDS, packed
from support.word_models import LINES, word_tokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM

from minitransformer.data import BPETokenizer
from minitransformer.layers import RotaryConfig, SparseConfig
from minitransformer.models import GPTConfig, Tuning, build_model, is_adapter
from minitransformer.pretrained import PretrainedError, load, save
from minitransformer.pretrained.tokenizers import PretrainedTokenizer, load_tokenizer

SIZES: dict[str, Any] = {"d_model": 64, "num_heads": 4, "d_ff": 96, "num_layers": 2, "num_kv_heads": 2}
SIZES |= {"max_length": 32, "norm_eps": 2.0**-17}
CONFIGS = {
    "llama": GPTConfig.llama(50, **SIZES, bos_id=1, eos_id=2, other_eos_ids=(4, 3)),
    "llama, tied, biased": GPTConfig.llama(50, **SIZES, tied=True, bias=True, attention_bias=True),
    "llama 3": GPTConfig.llama(50, **SIZES | {"d_model": 256}, rotary=RotaryConfig(theta=500_000.0, factor=8.0)),
    "qwen2": GPTConfig.llama(50, **SIZES, attention_bias="inputs"),
    "qwen3": GPTConfig.llama(50, **SIZES, d_k=32, extra_norms="heads"),
}
GEMMA: dict[str, Any] = {**SIZES, "norm": "rmsnorm1p", "embedding_scale": 8.0, "activation": "gelu_tanh", "tied": True}
CONFIGS["gemma"] = GPTConfig.llama(50, **GEMMA)
WINDOWS: dict[str, Any] = {"window": 5, "sparse": SparseConfig(full_every=2), "softcap": 50.0, "logits_softcap": 30.0}
CONFIGS["gemma2"] = GPTConfig.llama(50, **GEMMA, **WINDOWS, d_k=256, extra_norms="outputs")
IDS = np.random.default_rng(0).integers(0, 50, (2, 9))


def random_model(kind: str) -> Any:
    model = build_model(CONFIGS[kind], seed=1)
    rng = np.random.default_rng(2)
    for name, parameter in model.parameters.named.items():
        parameter.data[...] += 0.3 * rng.standard_normal(parameter.shape)
        if name.endswith("gamma"):
            parameter.data[...] = np.round(4096 * parameter.data) / 4096  # 1 can be added, and taken away again
    return model


@pytest.mark.parametrize("bits", [None, 8, 4])
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_model_comes_back_with_the_same_bits(kind: str, bits: int | None, tmp_path: Path) -> None:
    model = random_model(kind)
    few = model if bits is None else model.quantized(bits)
    save(few, tmp_path / "some.gguf")
    found, tokenizer = load(tmp_path / "some.gguf", bits=bits)
    assert tokenizer is None
    for name in ("bos_id", "eos_id", "other_eos_ids", "max_length", "norm_eps", "tied"):
        assert getattr(found.config, name) == getattr(model.config, name)
    np.testing.assert_array_equal(found.forward(IDS)[0], few.forward(IDS)[0])
    np.testing.assert_array_equal(load(tmp_path / "some.gguf")[0].parameters.data, few.merged().parameters.data)
    save(model, tmp_path / "again.gguf", bits=bits)
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "some.gguf").read_bytes()


@pytest.mark.parametrize("bits", [8, 4])
def test_the_package_gguf_reads_what_it_would_write(bits: int, tmp_path: Path) -> None:
    model = random_model("llama")
    save(model, tmp_path / "some.gguf", bits=bits)
    reader = gguf.GGUFReader(tmp_path / "some.gguf")
    kind = {8: "Q8_0", 4: "Q4_1"}[bits]
    assert reader.fields["general.file_type"].contents() == gguf.LlamaFileType[f"MOSTLY_{kind}"]
    assert reader.fields["llama.attention.head_count_kv"].contents() == 2
    found = {each.name: each for each in reader.tensors}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    down = found[names.get_name("model.layers.1.mlp.down_proj.weight", (".weight",)) or ""]
    theirs = model.parameters.named["decoder.layers.1.feed_forward.contract.weight"].data.T
    assert down.tensor_type == KINDS[kind]
    np.testing.assert_array_equal(down.data, packed(theirs, kind))
    assert {each.tensor_type for each in reader.tensors if each.name in ("token_embd.weight", "output.weight")} == {
        KINDS["Q8_0"]
    }
    assert all(each.tensor_type == KINDS["F32"] for each in reader.tensors if "norm" in each.name)
    assert all(each.data_offset % 32 == 0 for each in reader.tensors)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma2"])
def test_transformers_reads_it(kind: str, tmp_path: Path) -> None:
    few = random_model(kind).quantized(8)
    save(few, tmp_path / "some.gguf")
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="some.gguf", dtype=torch.float32, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(IDS)).logits.numpy()
    assert abs(few.forward(IDS)[0] - wanted).max() <= 1e-4 * abs(wanted).max()


def test_a_folder_holds_what_few_bits_stand_for_and_merged_adapters(tmp_path: Path) -> None:
    few = random_model("llama").quantized(4)
    save(few, tmp_path / "folder")
    np.testing.assert_array_equal(load(tmp_path / "folder")[0].parameters.data, few.merged().parameters.data)
    tuned = few.tuned(Tuning(("*",), rank=2))
    for name, parameter in tuned.parameters.named.items():
        parameter.data[...] += 0.1 * is_adapter(name)
    save(tuned, tmp_path / "merged.gguf")
    np.testing.assert_array_equal(load(tmp_path / "merged.gguf")[0].parameters.data, tuned.merged().parameters.data)


# --- Tokenizers -----------------------------------------------------------------------------------------------


def byte_pairs(how: str) -> PretrainedTokenizer:
    """A tokenizer of bytes, as GPT-2's or SmolLM's, with two special tokens and one that is text."""
    inner = tokenizers.Tokenizer(models.BPE())
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if how == "smollm" else []
    inner.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    inner.decoder = decoders.ByteLevel()
    special = ["<|end|>", "<|start|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    inner.train_from_iterator([*LINES, "12345 12"], trainer)
    inner.add_tokens(["  "])
    return PretrainedTokenizer(inner, {"eos_token": "<|end|>", "chat_template": "{{ messages }}"}, {})


@pytest.mark.parametrize("how", ["gpt-2", "smollm"])
def test_a_tokenizer_goes_with_the_model(how: str, tmp_path: Path) -> None:
    tokenizer = byte_pairs(how)
    config = GPTConfig.llama(320, **SIZES, bos_id=1, eos_id=0)
    save(build_model(config), tmp_path / "some.gguf", tokenizer, bits=8)
    model, found = load(tmp_path / "some.gguf", bits=8)
    assert (model.config.bos_id, model.config.eos_id) == (1, 0)
    for text in [*LINES[:3], "12345 don't  stop<|end|>\n", "日本 ü"]:
        ids = tokenizer.encode(text)
        assert (found.encode(text), found.decode(ids)) == (ids, tokenizer.decode(ids))
    assert found.template == "{{ messages }}"
    fields = gguf.GGUFReader(tmp_path / "some.gguf").fields
    assert fields["tokenizer.ggml.eos_token_id"].contents() == 0
    kinds = fields["tokenizer.ggml.token_type"].contents()
    assert (kinds[0], kinds[5], kinds[-1]) == (3, 1, 5)
    assert kinds[found.inner.token_to_id("  ")] == 4


def test_what_no_file_can_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    word_tokenizer(tmp_path / "words", ["<s>"], [])
    words = load_tokenizer(tmp_path / "words", "llama", values={})
    config = GPTConfig.llama(200, **SIZES)
    gpt2, relu = GPTConfig(50, **{**SIZES, "num_kv_heads": 2}), GPTConfig.llama(50, **SIZES, activation="relu")
    many = GPTConfig.llama(50, **SIZES, eos_id=1, other_eos_ids=(2, 3, 4))
    for each, tokenizer, message in (
        (gpt2, None, "a model as of gpt2 can't be written in a GGUF file, only llama, qwen2, qwen3, gemma, gemma2"),
        (config, words, "the tokenizer can't be written in a GGUF file, only byte pairs as GPT-2's or Llama's"),
        (config, BPETokenizer("", []), "a BPETokenizer can't be written in a GGUF file, only one that was loaded"),
        (relu, None, "activation 'relu' can't be written as a GGUF file, only 'silu'"),
        (many, None, "a GGUF file names three tokens that end a text, and the model has 4"),
        (replace(CONFIGS["gemma2"], scale=0.25), None, "query_pre_attn_scalar 16 can't be written .* only 256"),
        (replace(CONFIGS["gemma2"], softcap=None), None, "a GGUF file needs attn_logit_softcapping, which the model"),
        (replace(CONFIGS["gemma2"], sparse=None), None, "sparse None can't be written as a GGUF file"),
        (replace(CONFIGS["gemma"], tied=False), None, "tied False can't be written as a GGUF file"),
    ):
        model = build_model(each)
        with pytest.raises(PretrainedError, match=message):
            save(model, path, tokenizer)
        assert not path.exists()
    with pytest.raises(ValueError, match="bits go into a file whose name ends in"):
        save(build_model(config), tmp_path / "folder", bits=8)
