"""Tokenizers of each kind that the explorer's page has, trained on the grammar's sentences."""

import io
import json
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as formats
from support.explorer_engine import payload_of
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from minitransformer.data import BPETokenizer
from minitransformer.grammar import sample
from minitransformer.models import GPT, GPTConfig
from minitransformer.pretrained.bpe import bpe_as_json
from minitransformer.pretrained.gguf_tokenizer import LLAMA3, QWEN2
from minitransformer.pretrained.tokenizers import PretrainedTokenizer
from minitransformer.pretrained.vocabularies import by_scores, spaces, surround

O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im"]


@cache
def sentences() -> list[str]:
    """Sentences in three languages, with some characters that the grammar lacks."""
    found = [text for each in islice(sample("train", seed=3), 300) for text in (each.english, each.german, each.french)]
    found += ["aaa aaaa aaaaa --- ----- haaaa"] * 20
    return [*found, "It's 12 o'clock, 2024! Don't they'll WE'RE", "naïve café — 日本 👍 \n\n\t  x  =  y"] * 2


def _trained(inner: Tokenizer, size: int = 600, **options: Any) -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet() if options.pop("bytes", True) else []
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=alphabet, **options)
    inner.train_from_iterator(sentences(), trainer)
    return inner


def _of_bytes(*cuts: Any, normalizer: Any = None, prefix: bool = False, **model: Any) -> Tokenizer:
    inner = Tokenizer(models.BPE(**model))
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=not cuts or cuts[-1] == "digits")
    digits = pre_tokenizers.Digits(individual_digits=True)
    steps = [digits if each == "digits" else pre_tokenizers.Split(Regex(each), "isolated") for each in cuts]
    inner.pre_tokenizer = pre_tokenizers.Sequence([*steps, last]) if steps else last
    if normalizer:
        inner.normalizer = normalizer
    inner.decoder = decoders.ByteLevel()
    inner = _trained(inner, special_tokens=MARKS)
    surround(inner, {"bos": MARKS[0]}, begins=LLAMA3 in cuts, ends=False)
    return inner


@cache
def _sentencepiece(kind: str) -> Any:
    """A model of sentencepiece, with its own normalisation and bytes for unknown characters in byte pairs."""
    out = io.BytesIO()
    options: dict[str, Any] = {"byte_fallback": kind == "bpe", "normalization_rule_name": "nmt_nfkc"}
    options |= {"normalization_rule_name": "identity"} if kind == "bpe" else {}
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(sentences()), model_writer=out, vocab_size=500, model_type=kind, minloglevel=2, **options
    )
    proto: Any = formats.ModelProto()  # pyright: ignore[reportAttributeAccessIssue]
    proto.ParseFromString(out.getvalue())
    return proto


def _llama2(older: bool = False) -> Tokenizer:
    proto = _sentencepiece("bpe")
    ids = {piece.piece: index for index, piece in enumerate(proto.pieces)}
    inner = by_scores(ids, {piece.piece: piece.score for piece in proto.pieces})
    spaces(inner, {}, True)
    if older:  # as tokenizer.json wrote it before Metaspace could
        inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        inner.pre_tokenizer = None  # pyright: ignore[reportAttributeAccessIssue]
    inner.add_special_tokens(["<s>", "</s>", "<unk>"])
    inner.add_tokens([AddedToken("<|user|>", rstrip=True, normalized=False), AddedToken("walrus", normalized=True)])
    surround(inner, {"bos": "<s>"}, begins=True, ends=False)
    return inner


def _gemma() -> Tokenizer:
    inner = _llama2()
    inner.normalizer = normalizers.Replace(" ", "▁")
    inner.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return inner


def _t5(newer: bool = False) -> Tokenizer:
    proto = _sentencepiece("unigram")
    gaps = [f"<extra_id_{number}>" for number in reversed(range(3))]
    pieces = [(piece.piece, piece.score) for piece in proto.pieces] + [(gap, 0.0) for gap in gaps]
    inner = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    charsmap = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="always")
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    inner.normalizer = charsmap
    if newer:
        more = [normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]
        inner.normalizer, inner.pre_tokenizer = normalizers.Sequence([charsmap, *more]), metaspace
    inner.decoder = decoders.Metaspace(prepend_scheme="always")
    inner.add_special_tokens([AddedToken(gap, lstrip=True, rstrip=newer) for gap in gaps] + ["</s>", "<unk>"])
    surround(inner, {"eos": "</s>"}, begins=False, ends=True)
    return inner


def _unknown() -> Tokenizer:
    """Byte pairs of characters, of which some are unknown; added tokens in a normalised text."""
    inner = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    inner.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase()])
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    inner.decoder = decoders.Metaspace(prepend_scheme="first")
    inner = _trained(inner, 300, bytes=False, special_tokens=["<unk>"])
    inner.add_tokens([AddedToken("Café DOG", normalized=True), AddedToken("  gap", lstrip=True, normalized=False)])
    return inner


def _ours() -> Tokenizer:
    ours = BPETokenizer.train(sentences(), 400)
    return Tokenizer.from_str(json.dumps(bpe_as_json(ours, GPTConfig(400, bos_id=1, eos_id=2))))


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "GPT-2": lambda: _of_bytes(),
    "GPT-2, a space before": lambda: _of_bytes(prefix=True),
    "SmolLM2": lambda: _of_bytes("digits"),
    "Llama 3": lambda: _of_bytes(LLAMA3, ignore_merges=True),
    "Qwen 2": lambda: _of_bytes(QWEN2, normalizer=normalizers.NFC()),
    "GPT-4o": lambda: _of_bytes(O200K),
    "DeepSeek": lambda: _of_bytes(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"),
    "Llama 2": _llama2,
    "Llama 2, older": lambda: _llama2(older=True),
    "Gemma": _gemma,
    "T5": _t5,
    "mT5": lambda: _t5(newer=True),
    "unknown characters": _unknown,
    "ours": _ours,
}


@cache
def tokenizer_of(kind: str) -> PretrainedTokenizer:
    """The tokenizer of a kind, as `pretrained.load` returns it."""
    return PretrainedTokenizer(KINDS[kind](), {}, {})


def model_for(tokenizer: Any) -> GPT:
    """A tiny model with this tokenizer's vocabulary, for texts of any length."""
    sizes: dict[str, Any] = {"d_model": 4, "num_heads": 1, "d_ff": 4, "num_layers": 1}
    return GPT(GPTConfig(tokenizer.vocab_size, **sizes, positions="none"))


def page_of(tokenizer: Any) -> dict[str, Any]:
    """The payload of such a model, which cuts no text off."""
    content = payload_of(model_for(tokenizer), tokenizer)
    return {**content, "config": {**content["config"], "maxLength": 100_000}}
