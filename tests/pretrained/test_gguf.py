"""GGUF files: the weights that the package gguf reads, bit for bit, and the models and tokenizers of `transformers`."""

import re
import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from support.cli_runs import in_this_process, refuse
from support.folders import flips
from support.gguf_files import KINDS, add, finish, packed, tensor, text, whole, write_gguf
from support.pretrained_cases import inputs, random_model, theirs
from support.refusals import refused_by_load
from test_vocabularies import texts, train_pieces

from minitransformer.grammar.generation import sample
from minitransformer.ops import dequantize, quantize
from minitransformer.pretrained import PretrainedError, load, save
from minitransformer.pretrained.gguf import PACKINGS, QUANTIZED, as_blocks, fields, from_blocks
from minitransformer.pretrained.gguf_file import opened
from minitransformer.pretrained.tokenizers import tokenizer_in

# --- Weights --------------------------------------------------------------------------------------------------


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype == np.float32 and a.tobytes() == b.tobytes()


def test_four_bits_of_a_byte() -> None:
    np.testing.assert_array_equal(fields(np.array([0x2B, 0xF0], np.uint8), 4), [11, 0, 2, 15])
    np.testing.assert_array_equal(fields(np.array([0b11100100], np.uint8), 2), [0, 1, 2, 3])


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_is_that_of_the_package(kind: str, tmp_path: Path) -> None:
    """Blocks of random bytes have all numbers and scales, infinite ones too. They are read in pieces and at once."""
    generator, writer = np.random.default_rng(len(kind)), gguf.GGUFWriter(tmp_path / "some.gguf", "llama")
    _, weights, size, _ = next(each for each in PACKINGS.values() if each.name == kind)
    for number, shape in enumerate([(3, 256), (1, 512), (4, 2, 768), (4099, 256)]):
        raw = generator.integers(0, 256, (*shape[:-1], shape[-1] // weights * size), dtype=np.uint8)
        writer.add_tensor(f"{number}.weight", raw, raw_dtype=KINDS[kind])
    finish(writer)
    found = opened(tmp_path / "some.gguf").tensors
    for wanted in gguf.GGUFReader(tmp_path / "some.gguf").tensors:
        with np.errstate(all="ignore"):
            array = gguf.quants.dequantize(wanted.data, wanted.tensor_type)
        assert same_bits(found[wanted.name].read(), array)
        assert same_bits(np.concatenate([piece for _, piece in found[wanted.name].pieces()]), array.reshape(-1))


@pytest.mark.parametrize(("kind", "levels"), [("Q4_1", 16), ("Q5_1", 32)])
def test_a_weight_is_wrong_by_at_most_half_a_step(kind: str, levels: int) -> None:
    weights = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    found = next(each for each in PACKINGS.values() if each.name == kind).read(packed(weights, kind))
    steps = np.ptp(weights, axis=1, keepdims=True) / (levels - 1)
    assert (np.abs(found - weights) <= 0.53 * steps).all()  # d and m are rounded too


@pytest.mark.parametrize(("bits", "minima"), QUANTIZED)
def test_a_weight_in_few_bits_is_the_bytes_of_a_file(bits: int, minima: bool) -> None:
    """To the bytes that the package writes, and from any bytes to the weights that it reads."""
    kind, generator = QUANTIZED[bits, minima], np.random.default_rng(bits)
    weight = generator.normal(size=(96, 5)).astype(np.float32)
    name, blocks = as_blocks(quantize(weight, bits, symmetric=not minima))
    assert name == kind
    np.testing.assert_array_equal(blocks, packed(weight.T, kind))
    raw = generator.integers(0, 256, (7, blocks.shape[1]), dtype=np.uint8)
    with np.errstate(all="ignore"):
        wanted = gguf.quants.dequantize(raw, KINDS[kind])
        assert same_bits(dequantize(from_blocks(kind, raw)).T, wanted)
    np.testing.assert_array_equal(as_blocks(from_blocks(kind, raw))[1], raw)


def test_what_no_file_holds_is_refused() -> None:
    weight = np.ones((64, 3))
    kinds = "one of Q8_0, Q4_0, Q4_1"
    with pytest.raises(
        ValueError, match=f"^weight has groups of 64 in 8 bits without minima, expected what is {kinds}$"
    ):
        as_blocks(quantize(weight, 8, 64))
    with pytest.raises(ValueError, match=f"^weight has groups of 32 in 8 bits with minima, expected what is {kinds}$"):
        as_blocks(quantize(weight, 8, symmetric=False))
    with pytest.raises(ValueError, match=f"^kind is 'Q6_K', expected {kinds}$"):
        from_blocks("Q6_K", np.zeros((1, 210), np.uint8))
    with pytest.raises(
        ValueError, match=r"^blocks are uint8 of shape \(1, 33\), expected uint8 rows of a multiple of 34 "
    ):
        from_blocks("Q8_0", np.zeros((1, 33), np.uint8))


# --- Models ---------------------------------------------------------------------------------------------------


def small_model(family: str, seed: int, **changed: Any) -> Any:
    """A random model of `transformers`, of a kind that llama.cpp's files can hold, whose ε fits into a float32."""
    model = random_model(family, seed)
    values = {**model.config.to_dict(), "rms_norm_eps": 2.0**-17, **changed}
    if values["rope_parameters"]["rope_type"] == "llama3":
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": 500.0}
    llama, gemma = {"mlp_bias": False}, {"attention_bias": False, "tie_word_embeddings": True}
    qwen2 = {"use_sliding_window": False, "layer_types": None}
    gemma2 = {
        "query_pre_attn_scalar": values["head_dim"],
        "layer_types": None,
        "hidden_activation": "gelu_pytorch_tanh",
    }
    gemma2 |= {
        "attn_logit_softcapping": 4.0,
        "final_logit_softcapping": 8.0,
        "sliding_window": 3,
        "num_hidden_layers": 3,
    }
    values |= {
        "llama": llama,
        "qwen2": qwen2,
        "qwen3": {**qwen2, "attention_bias": False},
        "gemma": {**gemma, "hidden_act": "gelu_pytorch_tanh"},
        "gemma2": gemma | gemma2,
    }[family]
    torch.manual_seed(seed)
    fresh = type(model)(type(model.config)(**values))
    for parameter in fresh.parameters():
        parameter.data = torch.randn_like(parameter) * 0.4
        if parameter.ndim == 1:  # so that 1 can be added to a norm's, and taken away again
            parameter.data = (parameter.data * 128).round() / 128
    return fresh.eval()


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma", "gemma2"])
@pytest.mark.parametrize("seed", range(4))
def test_a_model_is_the_same_as_from_its_folder(seed: int, family: str, kind: str, tmp_path: Path) -> None:
    model = small_model(family, seed)
    sort = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind]
    for parameter in model.parameters():
        parameter.data = parameter.data.to(sort).float()
    write_gguf(tmp_path / "some.gguf", model, kind)
    model.save_pretrained(tmp_path / "folder")
    found, tokenizer = load(tmp_path / "some.gguf")
    wanted, _ = load(tmp_path / "folder")
    assert tokenizer is None
    marks = {name: getattr(found.config, name) for name in ("bos_id", "eos_id", "other_eos_ids")}
    assert found.config == replace(wanted.config, **marks)
    np.testing.assert_array_equal(found.parameters.data, wanted.parameters.data)
    save(found, tmp_path / "back")
    again = type(model).from_pretrained(tmp_path / "back", dtype=torch.float32).eval()
    given = inputs(family, model, seed)
    with torch.no_grad():
        logits = theirs(model, given)
        assert torch.equal(theirs(again, given), logits)
    ours, _ = found.forward(given["input_ids"], given["attention_mask"])
    assert np.abs(ours - logits.numpy()).max() <= 1e-5 * np.abs(logits.numpy()).max()


@pytest.mark.parametrize(
    ("kind", "family"), [*((kind, "llama") for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")), ("Q4_1", "qwen2")]
)
def test_a_model_of_few_bits_is_that_of_transformers(kind: str, family: str, tmp_path: Path) -> None:
    """Their reader puts the rows of queries and keys back in its own way."""
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    model = small_model(family, 1, **sizes, intermediate_size=96, attention_bias=False, num_hidden_layers=2)
    write_gguf(tmp_path / "some.gguf", model, kind)
    found, _ = load(tmp_path / "some.gguf")
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    tensors = load_gguf_checkpoint(tmp_path / "some.gguf", return_tensors=True, model_to_load=model)["tensors"]
    assert not model.load_state_dict(tensors, strict=False).unexpected_keys
    given = inputs(family, model, 0)
    with torch.no_grad():
        wanted = theirs(model, given).numpy()
    logits, _ = found.forward(given["input_ids"], given["attention_mask"])
    assert np.abs(logits - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_stretched_rotations_of_llama_3_are_known(factor: float, tmp_path: Path) -> None:
    """llama.cpp's files hold divisors, computed as its converter does, in place of the options."""
    model = small_model("llama", 2, head_dim=64)
    base = model.config.rope_parameters["rope_theta"] = 500_000.0
    divisors = []
    for frequency in base ** (-np.arange(0, 64, 2) / 64):
        length = 2 * np.pi / frequency
        smooth = (8192 / length - 1) / (4 - 1)
        middle = factor if length > 8192 else 1 / ((1 - smooth) / factor + smooth)
        divisors.append(1.0 if length < 8192 / 4 else middle)
    write_gguf(tmp_path / "some.gguf", model, tensors={"rope_freqs.weight": divisors})
    rotary = load(tmp_path / "some.gguf")[0].config.rotary
    assert (rotary.factor, rotary.theta, rotary.original_max_length) == (factor, base, 8192)
    write_gguf(tmp_path / "some.gguf", model, tensors={"rope_freqs.weight": [2.0] * 32})
    with pytest.raises(PretrainedError, match="stretches positions in another way"):
        load(tmp_path / "some.gguf")


# --- Tokenizers -----------------------------------------------------------------------------------------------


def write_tokenizer(path: Path, values: dict[str, Any]) -> Any:
    """A file without a model; returns our tokenizer of it."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in {"block_count": 1, "context_length": 8, "embedding_length": 8, "feed_forward_length": 8}.items():
        writer.add_uint32(f"llama.{name}", value)
    for name, value in {"head_count": 1, "head_count_kv": 1}.items():
        writer.add_uint32(f"llama.attention.{name}", value)
    writer.add_layer_norm_rms_eps(1e-5)
    for name, value in values.items():
        add(writer, f"tokenizer.ggml.{name}", value)
    finish(writer)
    return tokenizer_in(path, opened(path).metadata, {"vocab_size": len(values["tokens"])})


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return [each.english for each in islice(sample("train", seed=1), 600)] + ["naïve Café, x² ½ 2024 I'LL"] * 200


@pytest.fixture(scope="module")
def pairs(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("pairs")
    inner = tokenizers.ByteLevelBPETokenizer()
    inner.train_from_iterator(lines, vocab_size=420, special_tokens=["<|endoftext|>", "<s>"], show_progress=False)
    inner.save_model(str(folder))
    vocabulary = inner.get_vocab()
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    merges = (folder / "merges.txt").read_text().splitlines()[1:]
    kinds = [3, 3, *[1] * (len(tokens) - 2), 4, 3]
    values = {"tokens": [*tokens, "<think>", "<go>"], "token_type": kinds, "merges": merges, "model": "gpt2"}
    return values | {"bos_token_id": 1, "eos_token_id": 0, "unknown_token_id": 0}


@pytest.mark.parametrize("begins", [None, True, False])
@pytest.mark.parametrize("how", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_byte_pairs_are_those_of_transformers(how: str, begins: bool | None, pairs: Any, tmp_path: Path) -> None:
    more = {} if begins is None else {"add_bos_token": begins}
    ours = write_tokenizer(tmp_path / "some.gguf", pairs | more | {"pre": how})
    there: Any = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="some.gguf")
    inner = there.backend_tokenizer
    if how == "smollm":  # they take it for GPT-2's; SmolLM's own folder cuts off each digit first, as llama.cpp does
        steps = [tokenizers.pre_tokenizers.Digits(individual_digits=True), inner.pre_tokenizer]
        inner.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps)
    if how == "llama-bpe":  # so says Llama 3's own folder
        inner.model.ignore_merges = True
    if how == "qwen2":  # so says Qwen's own folder
        inner.normalizer = tokenizers.normalizers.NFC()
    first = [1] if begins or (begins is None and how == "llama-bpe") else []
    for each in [*texts(), "<|endoftext|><think>Go<go> 12345 I'LL", "e\u0301 don't\n\n  x"]:
        wanted = there(each, add_special_tokens=False)["input_ids"]
        assert ours.encode(each, special_tokens=True) == first + wanted
        assert ours.decode(wanted) == there.decode(wanted, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert (ours.bos_id, ours.eos_id) == (1, 0)


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepieces_are_those_of_its_own_file(prefix: bool, lines: list[str], tmp_path: Path) -> None:
    options: dict[str, Any] = {"model_type": "bpe", "byte_fallback": True, "character_coverage": 0.999}
    options |= {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "add_dummy_prefix": prefix}
    options |= {"control_symbols": ["<go>"], "user_defined_symbols": ["<br>"], "vocab_size": 600}
    (tmp_path / "folder").mkdir()
    model = train_pieces(tmp_path / "folder" / "tokenizer.model", lines, **options)
    count = range(model.get_piece_size())
    kinds = [2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 1 for i in count]
    kinds[model.piece_to_id("<br>")] = 4
    values = {"model": "llama", "pre": "default", "tokens": [model.id_to_piece(i) for i in count], "token_type": kinds}
    values |= {"scores": [model.get_score(i) for i in count], "add_space_prefix": prefix}
    values |= {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
    ours = write_tokenizer(tmp_path / "some.gguf", values)
    from minitransformer.pretrained.tokenizers import load_tokenizer

    wanted = load_tokenizer(tmp_path / "folder", "llama", {"vocab_size": len(count)})
    for each in texts():
        ids = wanted.encode(each)
        assert ours.encode(each, special_tokens=True) == [1, *ids]
        assert ours.decode(ids) == wanted.decode(ids)


def test_a_model_with_its_tokenizer_writes_at_the_command_line(
    pairs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = small_model("llama", 3, vocab_size=len(pairs["tokens"]))
    template = "{{ messages }}"
    values = {f"tokenizer.ggml.{name}": value for name, value in (pairs | {"pre": "smollm"}).items()}
    write_gguf(tmp_path / "some.gguf", model, more=values | {"tokenizer.chat_template": template})
    status, out, _ = in_this_process(capsys)("generate", tmp_path / "some.gguf", "The old", "--max-tokens", "5")
    assert (status, bool(out.strip())) == (0, True)
    found, tokenizer = load(tmp_path / "some.gguf")
    assert tokenizer.template == template
    save(found, tmp_path / "folder", tokenizer)
    there: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    assert there.chat_template == template
    assert [there(each, add_special_tokens=False)["input_ids"] for each in texts()[:50]] == [
        tokenizer.encode(each) for each in texts()[:50]
    ]


# --- Bad files ------------------------------------------------------------------------------------------------

LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.context_length": 8,
    "llama.embedding_length": 8,
    "llama.feed_forward_length": 8,
    "llama.attention.head_count": 2,
    "llama.attention.layer_norm_rms_epsilon": 0.5,
    "llama.vocab_size": 5,
}
ONE = tensor("output_norm.weight", (8,))
PAIRS = {"model": "gpt2", "pre": "gpt-2", "merges": struct.pack("<IIQ", 9, 8, 0)}
SPM = {"model": "llama"}


def listed(*values: str | bytes) -> bytes:
    return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))


def numbers(*values: int) -> bytes:
    return struct.pack(f"<IIQ{len(values)}i", 9, 5, len(values), *values)


def llama_with(*tensors: bytes, data: bytes = b"", **more: Any) -> bytes:
    return whole(LLAMA | {name.replace("__", "."): value for name, value in more.items()}, tensors, data)


def small() -> bytes:
    """A Llama of one layer that can be read."""
    shapes = {"token_embd.weight": (5, 8), "output_norm.weight": (8,)}
    shapes |= {
        f"blk.0.{name}.weight": (8, 8) for name in "attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down".split()
    }
    shapes |= {"blk.0.attn_norm.weight": (8,), "blk.0.ffn_norm.weight": (8,)}
    described, content = [], b""
    for name, shape in shapes.items():
        described.append(tensor(name, shape, start=len(content)))
        content += np.ones(shape, np.float32).tobytes()
    return whole(LLAMA, tuple(described), content)


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "another magic": (lambda: b"GGML\3\0\0\0", "is no GGUF file: it begins with b'GGML'"),
    "another version": (lambda: whole({}, begin=b"GGUF\1\0\0\0"), "is of version 1 of GGUF"),
    "the highest byte first": (lambda: whole({}, begin=b"GGUF\0\0\0\3"), "is of version 50331648"),
    "nothing behind its name": (lambda: b"GGUF", "its header does not fit"),
    "endless tensors": (lambda: whole({}, counts=(1 << 62, 0)), "counts 4,611,686,018,427,387,904 tensors"),
    "endless metadata": (lambda: whole({}, counts=(0, 1 << 62)), "counts 4,611,686,018,427,387,904"),
    "fewer entries than it counts": (lambda: whole({}, counts=(0, 3)), "its header does not fit"),
    "an entry twice": (lambda: whole({"a": 1, "b": 2}).replace(b"b", b"a"), "it has 'a' twice"),
    "a name without end": (
        lambda: b"GGUF\3\0\0\0" + struct.pack("<QQ", 0, 1) + b"\xff" * 8,
        "its header does not fit",
    ),
    "a text without end": (lambda: whole({"a": struct.pack("<IQ", 8, 1 << 60)}), "its header does not fit"),
    "a list without end": (lambda: whole({"a": struct.pack("<IIQ", 9, 8, 1 << 60)}), "its header does not fit"),
    "numbers without end": (lambda: whole({"a": struct.pack("<IIQ", 9, 12, 1 << 61)}), "its header does not fit"),
    "a list of lists": (lambda: whole({"a": struct.pack("<IIQ", 9, 9, 1)}), "a list of the type 9"),
    "an unknown value": (lambda: whole({"a": struct.pack("<I", 13)}), "a value of the unknown type 13"),
    "a text of odd bytes": (lambda: whole({"a": struct.pack("<I", 8) + text(b"\xff")}), "not UTF-8"),
    "no architecture": (lambda: whole({"general.name": "a"}), "architecture None is not supported, only llama, qwen2"),
    "another architecture": (lambda: whole({"general.architecture": "mamba"}), "architecture 'mamba' is not supported"),
    "a list for an architecture": (lambda: whole({"general.architecture": listed("llama")}), "is not supported"),
    "an adapter": (lambda: llama_with(general__type="adapter"), "is not a whole model"),
    "one of several parts": (lambda: llama_with(split__count=3), "is not a whole model"),
    "an odd alignment": (lambda: llama_with(general__alignment=24), "general.alignment is 24"),
    "an alignment of nothing": (lambda: llama_with(general__alignment=0), "general.alignment is 0"),
    "a text for an alignment": (lambda: llama_with(general__alignment="32"), "general.alignment is '32'"),
    "an unknown option": (lambda: llama_with(llama__shortcut=3), "'shortcut' is no key that is known here"),
    "experts": (lambda: llama_with(llama__expert_count=8), "expert_count 8 is not supported"),
    "yarn": (lambda: llama_with(llama__rope__scaling__type="yarn"), "rope.scaling.type 'yarn' is not supported"),
    "a list of heads": (lambda: llama_with(llama__attention__head_count_kv=numbers(2, 2)), "is a list"),
    "a part of a head": (
        lambda: llama_with(llama__attention__key_length=4, llama__rope__dimension_count=2),
        "rope.dim",
    ),
    "values of another width": (lambda: llama_with(llama__attention__value_length=3), "value_length 3 is not that"),
    "a text for a width": (lambda: llama_with(llama__embedding_length="8"), "d_model must be an integer"),
    "no heads": (
        lambda: llama_with(tensor("blk.0.attn_q.weight", (8, 8)), data=bytes(256), llama__attention__head_count=0),
        "not those of 0 heads",
    ),
    "rows of no head": (
        lambda: llama_with(tensor("blk.0.attn_q.weight", (6, 8)), data=bytes(192)),
        "6 rows, not those of 2 heads",
    ),
    "no tensors": (lambda: llama_with(), "1 layers|lacks"),
    "another tensor": (lambda: small().replace(b"output_norm", b"output_nrm_"), "lacks 1 tensors|does not have"),
    "another shape": (lambda: small().replace(b"ffn_up", b"ffn_gu"), "lacks 1 tensors"),
    "a tensor twice": (lambda: llama_with(ONE, ONE, data=bytes(32)), "the tensor 'output_norm.weight' twice"),
    "many axes": (lambda: llama_with(tensor("a", (4,), axes=99)), "'a' has 99 axes"),
    "no axes": (lambda: llama_with(tensor("a", ())), "has no whole blocks"),
    "half a block": (lambda: llama_with(tensor("a", (4, 48), 2)), "no whole blocks of 32 in a row"),
    "two bits": (lambda: llama_with(tensor("a", (256,), 10)), "is of type Q2_K, which is not supported"),
    "an unknown type": (lambda: llama_with(tensor("a", (256,), 999)), "is of type 999, which is not supported"),
    "integers": (lambda: llama_with(tensor("a", (8,), 26)), "is of type I32"),
    "a tensor larger than the file": (
        lambda: llama_with(tensor("a", (1 << 60, 1 << 60)), data=bytes(32)),
        "is truncated",
    ),
    "truncated": (lambda: small()[:-1], "is truncated"),
    "longer": (lambda: small() + b"12345", "is damaged: it has"),
    "one above the other": (lambda: llama_with(ONE, tensor("b", (8,), start=0), data=bytes(64)), "'b' does not follow"),
    "a gap": (lambda: llama_with(ONE, tensor("b", (8,), start=64), data=bytes(96)), "'b' does not follow"),
    "a place before the numbers": (
        lambda: llama_with(tensor("a", (8,), start=(1 << 64) - 32), data=bytes(32)),
        "not follow",
    ),
    "divisors without end": (
        lambda: llama_with(tensor("rope_freqs.weight", (1 << 20,)), data=bytes(1 << 22)),
        "stretches",
    ),
}
BAD_TOKENIZERS: dict[str, tuple[dict[str, Any], str]] = {
    "another kind": ({"model": "bert"}, "a tokenizer 'bert' is not supported"),
    "a number for a kind": ({"model": 5}, "a tokenizer 5 is not supported"),
    "no tokens": (PAIRS | {"tokens": "abc"}, "it has no tokenizer.ggml.tokens"),
    "too few kinds": (PAIRS | {"token_type": numbers(1)}, "does not give a kind for each of 5 tokens"),
    "a long token": (PAIRS | {"tokens": listed("a" * 1001, *"bcde")}, "a token of more than 1,000 characters"),
    "unknown words": (PAIRS | {"pre": "viking"}, "tokenizer.ggml.pre 'viking' is not supported"),
    "no words": ({k: v for k, v in PAIRS.items() if k != "pre"}, "tokenizer.ggml.pre None is not supported"),
    "a list of words": (PAIRS | {"pre": listed("gpt-2")}, "is not supported"),
    "no merges": (PAIRS | {"merges": "a b"}, "merges is not a list of pairs"),
    "a merge of three": (PAIRS | {"merges": listed("a b c")}, "merges is not a list of pairs"),
    "a merge of strangers": (PAIRS | {"merges": listed("x y")}, "holds no tokenizer"),
    "a mark that is not there": (PAIRS | {"eos_token_id": 9}, "eos_token_id is 9, no token of 5"),
    "a text for a mark": (PAIRS | {"bos_token_id": "a"}, "bos_token_id is 'a', no token"),
    "a number for a flag": (PAIRS | {"add_bos_token": 5}, "add_bos_token is 5, expected true or false"),
    "a space before bytes": (PAIRS | {"add_space_prefix": True}, "add_space_prefix is not supported"),
    "an unknown option": (PAIRS | {"shortcut": 3}, "'shortcut' is no key that is known here"),
    "a map of characters": (SPM | {"precompiled_charsmap": "abc"}, "precompiled_charsmap 'abc' is not supported"),
    "no scores": (SPM, "scores does not give a score for each"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By `load`, and at the command line with status 2."""
    make, message = BAD[name]
    path = tmp_path / "some.gguf"
    path.write_bytes(make())
    assert str(path) in refused_by_load(path, *message.split("|"))
    refuse(in_this_process(capsys), "generate", path, "A", says=str(path))


@pytest.mark.parametrize("name", BAD_TOKENIZERS)
def test_a_bad_tokenizer_is_refused(name: str, tmp_path: Path) -> None:
    values, message = BAD_TOKENIZERS[name]
    given = {"tokens": listed(*"abcde"), "token_type": numbers(1, 1, 1, 1, 1), **values}
    path = tmp_path / "some.gguf"
    path.write_bytes(whole({f"tokenizer.ggml.{name}": value for name, value in given.items()}))
    with pytest.raises(PretrainedError, match=re.escape(message)) as caught:
        tokenizer_in(path, opened(path).metadata, {"vocab_size": 5})
    assert str(path) in str(caught.value)


def test_the_small_file_is_good(tmp_path: Path) -> None:
    (tmp_path / "some.gguf").write_bytes(small())
    model, tokenizer = load(tmp_path / "some.gguf")
    assert (model.config.num_layers, tokenizer) == (1, None)


def test_a_changed_byte_is_noticed_or_changes_numbers_alone(tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(small())
    read = refused = 0
    for _ in flips(path, step=13):
        try:
            load(path)
            read += 1
        except (PretrainedError, FileNotFoundError):
            refused += 1
    assert min(read, refused) > 20
