"""Tokenizers of older folders, which have no `tokenizer.json`: the package tokenizers builds them from a vocabulary.

    GPT2Tokenizer    vocab.json, merges.txt   byte-pair encoding of bytes
    BertTokenizer    vocab.txt                WordPiece: the longest known piece, again and again
    T5Tokenizer      spiece.model             Unigram: the most probable pieces; and the marks of gaps
    LlamaTokenizer   tokenizer.model          byte-pair encoding; an unknown character falls back to its bytes

The two `.model` files are sentencepiece's. Options that a folder lacks have the defaults of these classes in
`transformers`. Where `transformers` and sentencepiece differ, the tokenizers here follow `transformers`: a Llama's text
that begins with a space gets no second one, and a T5's text begins anew after a special token. There is one exception:
a `.model` file's options for spaces, which those classes ignore, are obeyed, or the file is refused.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, Unigram, WordPiece

from .files import PretrainedError
from .pipeline import LONGEST_PIECE, MOST_GROWTH, charsmap_growth, check_pipeline

SPACE = "▁"
"""The character that sentencepiece writes for a space."""

MARKS = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
"""The special tokens with a name; those that are not in the vocabulary get the next ids in this order."""

UNIGRAM, BYTE_PAIRS = 1, 2
"""The kinds of sentencepiece's models."""

CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
"""Kinds of sentencepiece's pieces: the first two stand for themselves, and no text is cut into the third."""

Options = Mapping[str, Any]


def read(folder: Path, options: Options, name: str) -> Tokenizer:
    """Read `tokenizer.json`; the options of `tokenizer_config.json` override it, as in `transformers`."""
    path = folder / "tokenizer.json"
    inner = tokenizer_of(path, path.read_text(encoding="utf-8"))
    named = {"do_lower_case": "lowercase", "strip_accents": "strip_accents"}
    named |= {"tokenize_chinese_chars": "handle_chinese_chars"}
    if name == "BertTokenizer" and isinstance(inner.normalizer, normalizers.BertNormalizer):
        for theirs, ours in named.items():
            if theirs in options:
                setattr(inner.normalizer, ours, flag(options, theirs, getattr(inner.normalizer, ours)))
    metaspace = inner.pre_tokenizer is None and isinstance(inner.model, BPE) and inner.model.byte_fallback
    if name == "LlamaTokenizer" and metaspace:
        inner.normalizer = None
        spaces(inner, options, True)
    if name == "GPT2Tokenizer" and isinstance(inner.pre_tokenizer, pre_tokenizers.ByteLevel):
        inner.pre_tokenizer.add_prefix_space = flag(options, "add_prefix_space", inner.pre_tokenizer.add_prefix_space)
    named = {name: options[name] for each in MARKS if options.get(name := f"{each}_token")}
    known = [name for name, value in named.items() if inner.token_to_id(mark(value).content) is not None]
    add_marks(inner, folder, {name: value for name, value in options.items() if name not in known})
    return inner


def tokenizer_of(place: Path | str, content: str) -> Tokenizer:
    """Return the tokenizer in the content of a `tokenizer.json`."""
    check_pipeline(place, json.loads(content))
    inner = Tokenizer.from_str(content)
    inner.no_truncation()  # a file may hold the truncation and the padding of its last use
    inner.no_padding()
    return inner


def gpt2(folder: Path, options: Options) -> Tokenizer:
    """Build byte-pair encoding of a text's bytes, each written as a printable character."""
    inner = Tokenizer(BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    prefix = flag(options, "add_prefix_space", False)
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    inner.decoder = decoders.ByteLevel()
    end = "<|endoftext|>"
    marks = add_marks(inner, folder, options, bos=end, eos=end, unk=end)
    surround(inner, marks, flag(options, "add_bos_token", False), flag(options, "add_eos_token", False))
    return inner


def bert(folder: Path, options: Options) -> Tokenizer:
    """Build WordPiece within the words and signs of a cleaned text; `do_lower_case` removes accents too."""
    if not flag(options, "do_basic_tokenize", True):
        raise PretrainedError(f"{folder}: do_basic_tokenize False is not supported without tokenizer.json")
    with open(folder / "vocab.txt", encoding="utf-8") as file:
        vocabulary = {line.rstrip("\n"): index for index, line in enumerate(file)}
    unknown = mark(options.get("unk_token") or "[UNK]").content
    if unknown not in vocabulary:
        raise PretrainedError(f"{folder / 'vocab.txt'} holds no {unknown!r}, which stands for unknown words")
    inner = Tokenizer(WordPiece(vocabulary, unk_token=unknown))
    inner.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=flag(options, "tokenize_chinese_chars", True),
        strip_accents=flag(options, "strip_accents", None),
        lowercase=flag(options, "do_lower_case", True),
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece(prefix="##")
    names = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
    marks = add_marks(inner, folder, options, **names)
    if not {"cls", "sep"} <= marks.keys():
        raise PretrainedError(f"{folder} names no cls_token or no sep_token, which stand around a BERT's text")
    first, last = marks["cls"], marks["sep"]
    inner.post_processor = processors.TemplateProcessing(
        single=[first, "$A", last],
        pair=[first, "$A", last, "$B:1", f"{last}:1"],
        special_tokens=[(each, inner.token_to_id(each)) for each in (first, last)],
    )
    return inner


def t5(folder: Path, options: Options) -> Tokenizer:
    """Build sentencepiece's unigrams, then the marks of gaps: `<extra_id_0>` has the last id."""
    expected = {"add_dummy_prefix": True, "remove_extra_whitespaces": True, "split_by_whitespace": True}
    proto = sentencepiece_of(folder / "spiece.model", model_type=UNIGRAM, byte_fallback=False, **expected)
    count = options.get("extra_ids", 100)
    if type(count) is not int or not 0 <= count <= 10_000:
        raise PretrainedError(f"{folder}: extra_ids is {count!r}, expected a whole number of at most 10,000")
    gaps = [f"<extra_id_{number}>" for number in reversed(range(count))]
    pieces = [(piece.piece, piece.score) for piece in proto.pieces] + [(gap, 0.0) for gap in gaps]
    inner = Tokenizer(Unigram(pieces, unk_id=proto.trainer_spec.unk_id, byte_fallback=False))
    if proto.normalizer_spec.precompiled_charsmap:
        inner.normalizer = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")]
    )
    inner.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    marks = add_marks(inner, folder, options, *_fixed(proto), *gaps, eos="</s>", unk="<unk>", pad="<pad>")
    surround(inner, marks, begins=False, ends=True)
    return inner


def llama(folder: Path, options: Options) -> Tokenizer:
    """Build sentencepiece's byte pairs; merges with a higher score of their piece are made first."""
    expected = {"byte_fallback": True, "remove_extra_whitespaces": False}
    proto = sentencepiece_of(folder / "tokenizer.model", model_type=BYTE_PAIRS, **expected)
    if proto.normalizer_spec.precompiled_charsmap:
        raise PretrainedError(f"{folder / 'tokenizer.model'} normalises texts, which is not supported for Llama")
    ids = {piece.piece: index for index, piece in enumerate(proto.pieces)}
    inner = by_scores(ids, {piece.piece: piece.score for piece in proto.pieces})
    spaces(inner, options, proto.normalizer_spec.add_dummy_prefix)
    marks = add_marks(inner, folder, options, *_fixed(proto), bos="<s>", eos="</s>", unk="<unk>")
    surround(inner, marks, flag(options, "add_bos_token", False), flag(options, "add_eos_token", False))
    return inner


def by_scores(ids: dict[str, int], scores: Mapping[str, float]) -> Tokenizer:
    """Build byte pairs from the pieces that they make; a pair whose piece has a higher score is merged first."""
    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(ids, key=lambda piece: -scores[piece])
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    return Tokenizer(BPE(ids, merges, fuse_unk=True, byte_fallback=True))


def spaces(inner: Tokenizer, options: Options, prefix: bool) -> None:
    """Let a tokenizer write spaces as Llama does, with one more before a text unless an option forbids it."""
    prefix = flag(options, "add_prefix_space", prefix)
    scheme = ("always" if flag(options, "legacy", False) else "first") if prefix else "never"
    inner.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme, split=False)
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    inner.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * prefix)


BUILDERS = {"GPT2Tokenizer": gpt2, "BertTokenizer": bert, "T5Tokenizer": t5, "LlamaTokenizer": llama}
"""The functions that build tokenizers, by the folder's `tokenizer_class`."""


def flag(options: Options, name: str, default: Any) -> Any:
    """Return an option that is true or false. Raises PretrainedError for another value."""
    value = options.get(name)
    if value is not None and type(value) is not bool:
        raise PretrainedError(f"{name} is {value!r}, expected true or false")
    return default if value is None else value


def mark(value: Any) -> AddedToken:
    """Return a special token, which a folder writes as its text or as an object with options."""
    values: dict[str, Any] = value if isinstance(value, dict) else {"content": value}
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    given = {name: flag(values, name, None) for name in names if values.get(name) is not None}
    if not isinstance(values.get("content"), str) or not values["content"]:
        raise PretrainedError(f"a special token is {value!r}, expected a text")
    return AddedToken(values["content"], **{"special": True, **given})


def add_marks(inner: Tokenizer, folder: Path | str, options: Options, *more: Any, **defaults: str) -> dict[str, str]:
    """Let a tokenizer find special tokens in texts, and leave them out when it decodes; return those with a name.

    Tokens of `added_tokens_decoder` must get the ids that it names, or PretrainedError is raised.
    """
    marks = {name: mark(value) for name in MARKS if (value := options.get(f"{name}_token", defaults.get(name)))}
    others = options.get("extra_special_tokens") or options.get("additional_special_tokens") or []
    others = list(others.values()) if isinstance(others, dict) else others
    if not isinstance(others, list):
        raise PretrainedError(f"{folder}: extra_special_tokens is {others!r}, expected a list")
    tokens = [*marks.values(), *map(mark, [*others, *more])]
    named, listed = {token.content for token in tokens}, sorted(_added(folder, options).items())
    added = [mark({"special": token.get("content") in named, **token}) for _, token in listed]
    inner.add_tokens(added)  # at once: each call looks at all tokens
    for (index, _), token in zip(listed, added, strict=True):
        if inner.token_to_id(token.content) != index:
            raise PretrainedError(f"{folder}: {token.content!r} can't have the id {index}")
    known = {token.content for token in added}
    inner.add_tokens([token for token in tokens if token.content not in known])
    return {name: token.content for name, token in marks.items()}


def _fixed(proto: Any) -> list[dict[str, Any]]:
    """Return sentencepiece's pieces that are never cut."""
    pieces = [piece for piece in proto.pieces if piece.type in (CONTROL, USER_DEFINED)]
    return [{"content": each.piece, "special": each.type == CONTROL, "normalized": False} for each in pieces]


def _added(folder: Path | str, options: Options) -> dict[int, dict[str, Any]]:
    """Return the tokens that were added to the vocabulary, by id."""
    listed = options.get("added_tokens_decoder") or {}
    if not isinstance(listed, dict) or not all(k.isdecimal() and isinstance(v, dict) for k, v in listed.items()):
        raise PretrainedError(f"{folder}: added_tokens_decoder does not give tokens by id")
    return {int(index): token for index, token in listed.items()}


def surround(inner: Tokenizer, marks: Mapping[str, str], begins: bool, ends: bool) -> None:
    """Put the marks that begin and end a text around it, for callers that ask for special tokens."""
    first = [marks["bos"]] if begins and "bos" in marks else []
    last = [marks["eos"]] if ends and "eos" in marks else []
    inner.post_processor = processors.TemplateProcessing(
        single=[*first, "$A", *last],
        pair=[*first, "$A", *last, *first, "$B", *last],
        special_tokens=[(each, inner.token_to_id(each)) for each in {*first, *last}],
    )


def sentencepiece_of(path: Path, **expected: Any) -> Any:
    """Read the model in sentencepiece's file. Raises PretrainedError for another file, or a model of another kind."""
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece import sentencepiece_model_pb2 as formats
    except ImportError:
        packages = "sentencepiece protobuf"
        raise PretrainedError(f"{path} needs the packages {packages}: pip install {packages}") from None
    proto: Any = formats.ModelProto()  # pyright: ignore[reportAttributeAccessIssue]
    try:
        proto.ParseFromString(path.read_bytes())
    except DecodeError:
        raise PretrainedError(f"{path} is not a model of sentencepiece") from None
    if any(len(piece.piece) > LONGEST_PIECE for piece in proto.pieces):
        raise PretrainedError(f"{path} has a piece of more than {LONGEST_PIECE:,} characters")
    if any(piece.type == UNUSED for piece in proto.pieces):
        raise PretrainedError(f"{path} has unused pieces, which is not supported")
    if proto.denormalizer_spec.precompiled_charsmap:
        raise PretrainedError(f"{path} denormalises texts (denormalizer_spec), which is not supported")
    charsmap = proto.normalizer_spec.precompiled_charsmap
    if charsmap and charsmap_growth(charsmap) > MOST_GROWTH:
        raise PretrainedError(f"{path} may make a text more than {MOST_GROWTH:,} times as long")
    for name, value in {"escape_whitespaces": True, "treat_whitespace_as_suffix": False, **expected}.items():
        part = proto.trainer_spec if hasattr(proto.trainer_spec, name) else proto.normalizer_spec
        if getattr(part, name) != value:
            raise PretrainedError(f"{path} has {name} {getattr(part, name)!r}, only {value!r} is supported")
    return proto
