"""`info` of folders and GGUF files: sizes, one line for a block, and what is there and not used. No weight is read."""

import json
import re
from pathlib import Path

import gguf
import pytest
import tokenizers
from support.cli_runs import Command, in_this_process
from support.gguf_files import write_gguf
from support.pretrained_cases import KINDS, random_model, tr
from test_gguf import small_model

from minitransformer.costs import cache_bytes
from minitransformer.layers import SparseConfig
from minitransformer.models import (
    BERTConfig,
    CaptionerConfig,
    CLIPConfig,
    GPTConfig,
    T5Config,
    TransformerConfig,
    ViTConfig,
)
from minitransformer.outline import outline
from minitransformer.pretrained import load, look
from minitransformer.pretrained.gguf_file import Packed
from minitransformer.system.tensor_file import Tensor


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return in_this_process(capsys)


def row(out: str, name: str) -> str:
    found = re.search(rf"^  {re.escape(name)} +(\S.*)$", out, re.MULTILINE)
    assert found, out
    return found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_is_looked_at_and_not_read(
    kind: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(kind, 3)
    model.half().save_pretrained(tmp_path)
    ours, _ = load(tmp_path)
    for each in (Tensor, Packed):
        monkeypatch.setattr(each, "_read", lambda *_: pytest.fail("a weight was read"))
    if kind == "marian":
        monkeypatch.undo()  # its sinusoids are compared
    monkeypatch.setattr("minitransformer.pretrained.memory_limit", lambda: 1)
    status, out, _ = command("info", tmp_path, "--length", "7")
    assert status == 0
    assert row(out, "all") == f"{ours.parameters.count:,}"
    kept = {tensor for tensor in look(tmp_path).tensors.values() if tensor.type == "F16"}
    assert sum(tensor.nbytes for tensor in kept) < (tmp_path / "model.safetensors").stat().st_size
    assert f"{len(kept)} tensors of F16" in out
    stacks = [stack for name in ("encoder", "decoder") if (stack := getattr(ours.config, name, None))]
    lines = re.findall(r"^  (?:en|de)coder, blocks? (\d+)(?: to (\d+))? ", out, re.MULTILINE)
    assert sum(int(last or first) - int(first) + 1 for first, last in lines) == sum(s.num_layers for s in stacks)
    if isinstance(ours.config, GPTConfig):
        state = ours.start_decoding([[1, 2, 3, 4, 5, 6, 7]])
        parts = [part[:, :, :7] for keys, values, _ in state.cache.grown.values() for part in (keys, values)]
        if ours.config.window is None:
            assert cache_bytes(ours.config, 7) == sum(part.nbytes for part in parts)


def test_the_lines_of_blocks() -> None:
    llama = GPTConfig.llama(num_layers=2, num_kv_heads=8, d_ff=11_008)
    rows = outline(llama)
    assert rows["input"] == "32,000 tokens → 4,096"
    assert rows["decoder, blocks 1 to 2"] == (
        "x + attention(rmsnorm(x)) [32 heads of 128, 8 of keys and values, rotary, θ 10,000]; "
        "x + network(rmsnorm(x)) [4,096 → 11,008 → 4,096, silu, gated]"
    )
    assert rows["output"] == "4,096 → 32,000 tokens"
    gemma = GPTConfig.llama(num_layers=5, window=4095, sparse=SparseConfig(full_every=3), extra_norms="outputs")
    found = outline(gemma)
    names = [name for name in found if name.startswith("decoder")]
    assert names == ["decoder, blocks 1 to 2", "decoder, block 3", "decoder, blocks 4 to 5"]
    assert ["window of 4,095" in found[name] for name in names] == [True, False, True]
    assert "x + rmsnorm(network(rmsnorm(x)))" in found[names[0]]
    alone = outline(GPTConfig(9, d_model=8, num_heads=2, d_ff=0, num_layers=1))
    assert alone["decoder, block 1"] == "x + attention(layernorm(x)) [2 heads of 4, biases]"
    paper = outline(TransformerConfig.base())
    assert "layernorm(x + attention to the memory(x)); layernorm(x + network(x))" in paper["decoder, blocks 1 to 6"]
    assert paper["output"] == "512 → 37,000 tokens (the table of the input)"
    vit = outline(ViTConfig())
    assert (vit["input"], "output" in vit) == ("196 patches → 768, encoder: learned positions", False)
    captioner = outline(CaptionerConfig(100))
    assert captioner["input"].startswith("64 patches and 100 tokens → 128, encoder: learned positions, decoder:")
    assert captioner["output"] == "128 → 100 tokens (the table of the input)"
    clip = outline(CLIPConfig(100))
    assert clip["input"].endswith("→ 128, picture encoder: learned positions, text encoder: learned positions")
    assert (list(clip)[2], clip["output"]) == ("text encoder, blocks 1 to 2", "128 → 64 for a picture and for a text")
    assert "relative positions" in outline(T5Config(100))["encoder, blocks 1 to 6"]
    assert "encoder: learned positions" in outline(BERTConfig(100))["input"]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "t5", "bert", "vit"])
def test_what_is_not_used_can_go(kind: str, tmp_path: Path, command: Command) -> None:
    """Without the files and the keys that `info` names, a folder holds the same model and the same tokenizer."""
    model = random_model(kind, 1)
    model.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 3, "temperature": 0.7, "do_sample": true}')
    if kind == "llama":
        inner = tr.PreTrainedTokenizerFast(
            tokenizer_object=tokenizers.ByteLevelBPETokenizer()._tokenizer, bos_token="<s>", eos_token="</s>"
        )
        inner.save_pretrained(tmp_path)
        (tmp_path / "merges.txt").write_text("")
    values = json.loads((tmp_path / "config.json").read_text())
    values |= {"use_cache": True, "author": "Ann", "auto_map": {"a": "b"}, "torch_dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(values))
    for name in ("modeling.py", "model.onnx", "README.md"):
        (tmp_path / name).write_text("")
    (tmp_path / "1_Pooling").mkdir()
    before, tokenizer = load(tmp_path)
    out = command("info", tmp_path)[1].split("\nnot used\n")[1]
    places = ("files", "config.json", "generation_config.json")
    files, keys, generation = (row(out, name).split(", ") for name in places)
    assert set(files) == {"1_Pooling/", "model.onnx", "modeling.py", *(["merges.txt"] if kind == "llama" else [])}
    assert {"use_cache", "torch_dtype"} <= set(keys)
    assert not {"author", "model_type", "architectures", "vocab_size", "eos_token_id"} & set(keys)
    assert generation == ["do_sample", "temperature"]
    for name in files:
        path = tmp_path / name
        path.rmdir() if path.is_dir() else path.unlink()
    for name, dropped in (("config.json", keys), ("generation_config.json", generation)):
        kept = json.loads((tmp_path / name).read_text())
        (tmp_path / name).write_text(json.dumps({key: value for key, value in kept.items() if key not in dropped}))
    after, again = load(tmp_path)
    assert (after.config, after.parameters.data.tobytes()) == (before.config, before.parameters.data.tobytes())
    assert (again is None) == (tokenizer is None) == (kind != "llama")
    assert not any(look(tmp_path).unused()[name] for name in places)


def test_a_gguf_file(tmp_path: Path, command: Command) -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    model = small_model("qwen2", 1, **sizes, intermediate_size=96)
    tokens = ["w", "1", *(f"w{i}" for i in range(1, model.config.vocab_size - 1))]
    values = {"model": "gpt2", "pre": "qwen2", "tokens": tokens, "token_type": [1] * len(tokens), "merges": ["w 1"]}
    more = {f"tokenizer.ggml.{name}": value for name, value in values.items()}
    more |= {"tokenizer.ggml.seperator_token_id": 1, "tokenizer.ggml.token_type_count": 2, "general.name": "Small"}
    more |= {"quantize.imatrix.file": "a.dat", "qwen2.rope.scaling.finetuned": True, "tokenizer.chat_template": "Hi"}
    write_gguf(tmp_path / "some.gguf", model, "Q8_0", more=more)
    status, out, _ = command("info", tmp_path / "some.gguf")
    assert status == 0
    theirs = gguf.GGUFReader(tmp_path / "some.gguf").tensors
    found = look(tmp_path / "some.gguf").tensors
    assert sum(tensor.nbytes for tensor in found.values()) == sum(int(tensor.n_bytes) for tensor in theirs)
    assert f"{sum(each.tensor_type.name == 'Q8_0' for each in theirs)} tensors of Q8_0" in out
    assert row(out, "metadata").split(", ") == [
        *("quantize.imatrix.file", "qwen2.rope.scaling.finetuned"),
        *("tokenizer.ggml.seperator_token_id", "tokenizer.ggml.token_type_count"),
    ]
    assert row(out, "tokenizer") == f"{len(tokens)} tokens"
    assert row(out, "keys and values, a token") == f"{4 * model.config.num_hidden_layers * 2 * 2 * 16} bytes"
