"""Tokenizers from and to other libraries' files: `tokenizer.json` with the package tokenizers, and Marian's.

In a checkpoint, and beside the ids of a training, a tokenizer is one JSON object: `{"format": ..., "inner": ...}`.
"""

import base64
import codecs
import errno
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

from ..data.masked import MASK
from ..data.tokenizer import SPECIAL_TOKENS, BPETokenizer
from ..models import BERTConfig, ModelConfig
from ..system.atomic import atomic_write
from ..system.visible import printed
from .bpe import bpe_as_json
from .files import PretrainedError, read_json, write_json
from .names import token

FILE, CONFIG, OLDER = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
TEMPLATE = "chat_template.jinja"
LARGEST = 100_000_000
"""In bytes: a larger file of a tokenizer is refused."""

FORMAT = "minitransformer's copy of a tokenizer"
"""The format of the JSON text of a tokenizer in a checkpoint."""

VOCABULARIES = {
    "GPT2Tokenizer": ("vocab.json", "merges.txt"),
    "BertTokenizer": ("vocab.txt",),
    "T5Tokenizer": ("spiece.model",),
    "LlamaTokenizer": ("tokenizer.model",),
    "MarianTokenizer": ("source.spm", "target.spm", "vocab.json"),
}
"""The files in place of `tokenizer.json` in older folders, by the class of `transformers` that wrote them."""

ADDED = "added_tokens.json"
TOKENIZER_FILES = sorted(
    {FILE, CONFIG, OLDER, ADDED, TEMPLATE, *(name for names in VOCABULARIES.values() for name in names)}
)
"""All files from which tokenizers are read."""

CLASSES = {name.removesuffix("Tokenizer").lower(): name for name in VOCABULARIES}
CLASSES |= {"distilbert": "BertTokenizer", "mistral": "LlamaTokenizer", "mt5": "T5Tokenizer"}
"""The tokenizer's class by the kind of model, for folders that name none."""

SAME = {"DistilBertTokenizer": "BertTokenizer", "MT5Tokenizer": "T5Tokenizer"}
"""Classes with another name that do the same."""


MARKS = [f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
"""The special tokens that a chat template may name."""

SPACE = "▁"
_PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BYTE_OF = {chr(byte): byte for byte in _PRINTED}
BYTE_OF |= {chr(0x100 + number): byte for number, byte in enumerate(sorted({*range(256)} - {*_PRINTED}))}
"""The byte of each character with which tokenizers such as GPT-2's write the bytes of a text: Ġ is the space."""


def _in_brackets(error: UnicodeError) -> tuple[str, int]:
    """Write the bytes that are no whole character as <0xC3>."""
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"<0x{byte:02X}>" for byte in error.object[error.start : error.end]), error.end


codecs.register_error("bytes in brackets", _in_brackets)


class PretrainedTokenizer:
    """A tokenizer of the package tokenizers with the methods of ours.

    inner: the package's own tokenizer; options: `tokenizer_config.json`; values: the model's `config.json`, whose ids
    of special tokens come before the options'; template: the chat template of a file of its own.
    Raises PretrainedError for a tokenizer that puts ids outside its vocabulary around a text; `encode` and `decode`
    raise it if the package fails.
    """

    def __init__(self, inner: Any, options: Mapping[str, Any], values: Mapping[str, Any], template: str | None = None):
        self.inner, self.options, self.template = inner, options, template
        self.vocab_size = 1 + max(inner.get_vocab().values(), default=-1)
        if any(index >= self.vocab_size for index in self.encode("", special_tokens=True)):
            raise PretrainedError("the tokenizer puts ids around a text that are not in its vocabulary")
        self.pad_id, self.bos_id, self.eos_id = _special_ids(options, values, inner.token_to_id)

    @property
    def mask_token(self) -> str:
        """The text of a masked token."""
        return _text(self.options.get("mask_token")) or MASK

    @property
    def mask_id(self) -> int | None:
        """The id of [MASK], which hides other tokens from a BERT; `None` if there is none."""
        return self.inner.token_to_id(self.mask_token)

    @property
    def words(self) -> list[int]:
        """All ids but those of special tokens."""
        special = {index for index, token in self.inner.get_added_tokens_decoder().items() if token.special}
        return sorted(set(self.inner.get_vocab().values()) - special)

    def encode(self, text: str, special_tokens: bool = False) -> list[int]:
        """Return the ids of a text, with `special_tokens` also those that its model expects around it: [CLS]."""
        return self._encoding(text, special_tokens).ids

    @cached_property
    def _some_texts(self) -> list[str]:
        """A few texts; at least one of them should have tokens."""
        return ["a", *(self.decode([word]) for word in self.words[-8:])]

    def _encoding(self, text: str, special_tokens: bool) -> Any:
        _check_unicode(text)
        failure = "the tokenizer can't encode this text"
        return _ask(failure, self.inner.encode, text, add_special_tokens=special_tokens)

    def around(self, text: str) -> tuple[list[int], list[int], list[int]]:
        """Return the marks that the tokenizer puts before a text, the ids of the text, and the marks after it."""
        encoding = self._encoding(text, True)
        ids, added = encoding.ids, encoding.special_tokens_mask
        own = [place for place, mark in enumerate(added) if not mark]
        if not own:  # without a token between them, another text shows the marks before it and after it
            others = [] if text in self._some_texts else map(self.around, self._some_texts)
            before, after = next(((first, last) for first, own, last in others if own), (ids, []))
            return before, [], after
        return ids[: own[0]], ids[own[0] : own[-1] + 1], ids[own[-1] + 1 :]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, without special tokens."""
        ids = [int(each) for each in ids]
        return _ask("the tokenizer can't decode these ids", self.inner.decode, ids, skip_special_tokens=True)

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True) -> str:
        """Return a conversation as a text, which ends where the model answers: see `chat.render`.

        Each message is a dictionary with a role (system, user, assistant) and a content. Raises PretrainedError too if
        there is no template, or no package jinja2.
        """
        template = self.template or self.options.get("chat_template")
        if isinstance(template, list):  # several, with names
            template = {each.get("name"): each.get("template") for each in template}.get("default")
        if not isinstance(template, str):
            raise PretrainedError("the model's tokenizer has no chat template: it continues texts, and does not chat")
        try:
            from .chat import render
        except ImportError:
            message = "a chat template needs the package jinja2, 3.1.6 or newer: pip install -U jinja2"
            raise PretrainedError(message) from None
        marks = {name: mark for name in MARKS if (mark := self.mark(name))}
        return render(template, messages, marks, add_generation_prompt)

    def mark(self, name: str) -> str | None:
        """Return the special token of a name such as `eos_token`; the model's own where the options say nothing."""
        if name in self.options:
            return _text(self.options[name])
        index = {"pad_token": self.pad_id, "bos_token": self.bos_id, "eos_token": self.eos_id}.get(name)
        return None if index is None else self.inner.id_to_token(index)

    @cached_property
    def turn_ends(self) -> frozenset[int]:
        """The mark that the chat template puts after an answer, if it is a token of its own; else nothing."""
        said = {"user": "Hello", "assistant": "zxqvj"}
        messages = [{"role": role, "content": text} for role, text in said.items()]
        after = self.apply_chat_template(messages, add_generation_prompt=False).rpartition(said["assistant"])[2]
        return frozenset(self.encode(after.lstrip())[:1]) & self.inner.get_added_tokens_decoder().keys()

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return each id as readable text, as `BPETokenizer` does: ▁dog where a word begins, <0xC3> for a byte."""
        added = self.inner.get_added_tokens_decoder()
        known = {id: self.inner.id_to_token(int(id)) for id in ids}
        return [printed(known[id] if id in added else self._read(known[id])) if known[id] else f"<{id}>" for id in ids]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return each id as the vocabulary writes it, <9> for one that it lacks."""
        return [self.inner.id_to_token(int(each)) or f"<{each}>" for each in ids]

    def _read(self, piece: str) -> str:
        """Return a piece, which each vocabulary writes in its own way, as a text with ▁ for spaces."""
        if type(self.inner.model).__name__ == "WordPiece":
            prefix = self.inner.model.continuing_subword_prefix
            return piece.removeprefix(prefix) if piece.startswith(prefix) else SPACE + piece
        decoder = self.inner.decoder
        if decoder and b'"ByteLevel"' in decoder.__getstate__() and BYTE_OF.keys() >= set(piece):
            piece = bytes(map(BYTE_OF.__getitem__, piece)).decode(errors="bytes in brackets")
        return piece.replace(" ", SPACE)

    def to_json(self) -> str:
        """Return the tokenizer as one JSON text, which `tokenizer_from_json` reads."""
        ids = {"pad_token_id": self.pad_id, "bos_token_id": self.bos_id, "eos_token_id": self.eos_id}
        return _written(self.inner.to_str(), self.options, ids, template=self.template)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json`, and the options beside it."""
        with atomic_write(folder / FILE) as file:
            file.write(self.inner.to_str().encode())
        if self.options:
            write_json(folder / CONFIG, self.options)
        if self.template is not None:
            with atomic_write(folder / TEMPLATE) as file:
                file.write(self.template.encode())


SPECIAL = ("</s>", "<unk>", "<pad>")
"""Marian's special tokens."""


class MarianTokenizer:
    """Marian's tokenizer: sentencepiece cuts source and target texts, and `vocab.json` numbers the pieces of both.

    models: the content of `source.spm` and `target.spm`; ids: that of `vocab.json`; place: for messages. A source text
    may begin with the code of a target language, such as `>>de<<`, where the vocabulary has one; options and values are
    as in `PretrainedTokenizer`. Raises PretrainedError for files of other content, or if the package
    sentencepiece is missing.
    """

    def __init__(
        self,
        place: Path | str,
        models: Iterable[bytes],
        ids: dict[str, int],
        options: Mapping[str, Any],
        values: Mapping[str, Any],
    ):
        processor = _sentencepiece(place)
        try:
            self.source, self.target = (processor(model_proto=each) for each in models)
        except RuntimeError:
            raise PretrainedError(f"{place}: source.spm and target.spm must be models of sentencepiece") from None
        self.ids = ids
        if "<unk>" not in self.ids or not all(type(each) is int and each >= 0 for each in self.ids.values()):
            raise PretrainedError(f"{place}: vocab.json does not number pieces, with <unk> among them")
        self.pieces, self.options = {index: piece for piece, index in self.ids.items()}, options
        named = {"pad_token": "<pad>", "eos_token": "</s>", **options}
        self.pad_id, self.bos_id, self.eos_id = _special_ids(named, values, self.ids.get)

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return 1 + max(self.pieces)

    def encode(self, text: str, special_tokens: bool = False) -> list[int]:
        """Return the ids of a source text, with `special_tokens` also its end mark."""
        _check_unicode(text)
        pieces = []
        for part in re.split(f"({'|'.join(SPECIAL)})", text):
            if part in SPECIAL:
                pieces.append(part)
            else:
                code = re.match(">>.*?<<", part, re.DOTALL)
                pieces += [code[0]] if code else []
                pieces += self.source.encode(part[code.end() :] if code else part, out_type=str)
        ids = [self.ids.get(piece, self.ids["<unk>"]) for piece in pieces]
        return ids if self.eos_id is None or not special_tokens else [*ids, self.eos_id]

    def encode_target(self, text: str) -> list[int]:
        """Return the ids of a target text, without its end mark."""
        _check_unicode(text)
        return [self.ids.get(piece, self.ids["<unk>"]) for piece in self.target.encode(text, out_type=str)]

    def around(self, text: str) -> tuple[list[int], list[int], list[int]]:
        """Return the marks before a source text (none), the ids of the text, and its end mark."""
        return [], self.encode(text), [] if self.eos_id is None else [self.eos_id]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the target text of ids, without special tokens."""
        pieces = [self.pieces.get(int(index), "<unk>") for index in ids]
        text = self.target.decode_pieces([piece for piece in pieces if piece not in SPECIAL])
        return text.replace("▁", " ").strip()  # the target's model leaves ▁ in pieces that only the source's has

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return each id as the vocabulary writes it: ▁dog where a word begins."""
        return [printed(self.pieces.get(int(each), "<unk>")) for each in ids]

    def to_json(self) -> str:
        """Return the tokenizer as one JSON text, which `tokenizer_from_json` reads."""
        ids = {"pad_token_id": self.pad_id, "bos_token_id": self.bos_id, "eos_token_id": self.eos_id}
        models = [each.serialized_model_proto() for each in (self.source, self.target)]
        return _written([base64.b64encode(each).decode() for each in models], self.options, ids, ids=self.ids)

    def save(self, folder: Path) -> None:
        """Write the three files, and the options beside them."""
        for name, model in (("source", self.source), ("target", self.target)):
            with atomic_write(folder / f"{name}.spm") as file:
                file.write(model.serialized_model_proto())
        write_json(folder / "vocab.json", self.ids)
        write_json(folder / CONFIG, {"tokenizer_class": "MarianTokenizer", **self.options})


def load_tokenizer(folder: Path, kind: str, values: Mapping[str, Any]) -> Any:
    """Load the tokenizer in a folder, `None` if there is none; `values` is the model's `config.json`.

    Raises PretrainedError for a missing package and for files of other content, FileNotFoundError if only some of the
    tokenizer's files are there.
    """
    options = _options(folder)
    name = options.get("tokenizer_class") or values.get("tokenizer_class") or CLASSES.get(kind, kind)
    name = str(name).removesuffix("Fast")
    name = SAME.get(name, name)
    files = (FILE,) if (folder / FILE).is_file() else VOCABULARIES.get(name, ())
    if not any((folder / file).is_file() for file in files):
        others = {file for each in VOCABULARIES.values() for file in each if (folder / file).is_file()}
        if name not in VOCABULARIES and others:
            raise PretrainedError(f"{folder}: its tokenizer, {shortened(name)}, is not supported without {FILE}")
        return None
    for file in files:
        if not (folder / file).is_file():
            raise FileNotFoundError(errno.ENOENT, "No such file", str(folder / file))
        if (folder / file).stat().st_size > LARGEST:
            raise PretrainedError(f"{folder / file} has more than {LARGEST:,} bytes: it is no tokenizer's")
    if name == "MarianTokenizer" and FILE not in files:
        _sentencepiece(folder)
        models = [(folder / file).read_bytes() for file in files[:2]]
        return MarianTokenizer(folder, models, read_json(folder / "vocab.json"), options, values)
    _check_package(folder)
    from . import vocabularies

    def read() -> PretrainedTokenizer:
        inner = (
            vocabularies.read(folder, options, name) if FILE in files else vocabularies.BUILDERS[name](folder, options)
        )
        return PretrainedTokenizer(inner, options, values, _template(folder))

    return _ask(f"{folder / files[0]} is not a tokenizer", read)


def _written(inner: Any, options: Mapping[str, Any], values: Mapping[str, Any], **more: Any) -> str:
    fields = {"format": FORMAT, "options": dict(options), "values": dict(values), **more, "inner": inner}
    return json.dumps(fields, ensure_ascii=False)


def tokenizer_from_json(text: str) -> Any:
    """Return the tokenizer, of any kind, whose `to_json` wrote the text. Raises ValueError for another text."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a tokenizer must be valid JSON, but this is not: {error}") from None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        return BPETokenizer.from_json(text)
    place = "the checkpoint's tokenizer"

    def read() -> Any:
        inner, options, values = fields["inner"], fields["options"], fields["values"]
        if isinstance(inner, list):
            models = [base64.b64decode(each) for each in inner]
            return MarianTokenizer(place, models, fields["ids"], options, values)
        _check_package(place)
        from . import vocabularies

        vocab = {**values, "vocab_size": sys.maxsize}
        return PretrainedTokenizer(vocabularies.tokenizer_of(place, inner), options, vocab, fields["template"])

    return _ask(f"{place} is damaged", read)


def tokenizer_in(path: Path, metadata: Mapping[str, Any], values: Mapping[str, Any]) -> PretrainedTokenizer | None:
    """Return the tokenizer in a GGUF file with this metadata, `None` if there is none.

    Raises PretrainedError for a missing package, and for a tokenizer that is not supported.
    """
    if metadata.get("tokenizer.ggml.model", "none") in ("none", "no_vocab"):
        return None
    _check_package(path)
    from . import gguf_tokenizer

    def read() -> PretrainedTokenizer:
        template = metadata.get("tokenizer.chat_template")
        try:
            inner, options = gguf_tokenizer.tokenizer_of(metadata)
        except PretrainedError as error:
            raise PretrainedError(f"{path}: {error}") from None
        return PretrainedTokenizer(inner, options, values, template if isinstance(template, str) else None)

    return _ask(f"{path} holds no tokenizer", read)


def _sentencepiece(place: Path | str) -> Any:
    """Return the class of sentencepiece's models. Raises PretrainedError if the package is missing."""
    try:
        from sentencepiece import SentencePieceProcessor  # pyright: ignore[reportMissingImports]
    except ImportError:
        message = "Marian's tokenizer needs the package sentencepiece: pip install sentencepiece"
        raise PretrainedError(f"{place}: {message}") from None
    return SentencePieceProcessor


def _check_package(place: Path | str) -> None:
    """Raise PretrainedError if the package tokenizers is missing."""
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        message = "its tokenizer needs the package tokenizers: pip install tokenizers"
        raise PretrainedError(f"{place}: {message}") from None


def _template(folder: Path) -> str | None:
    """Return the text of the chat's template, `None` if there is none."""
    path = folder / TEMPLATE
    if not path.is_file():
        return None
    if path.stat().st_size > LARGEST:
        raise PretrainedError(f"{path} has more than {LARGEST:,} bytes: it is no template")
    return path.read_text("utf-8", "replace")


def _ask(failure: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function of the package. Raises PretrainedError, with the failure, for every exception of the package.

    It raises bare Exceptions, and panics, which are no Exceptions.
    """
    try:
        return function(*arguments, **options)
    except PretrainedError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise PretrainedError(f"{failure}: {error}") from None


def _check_unicode(text: str) -> None:
    """Raise ValueError for a text with a lone surrogate, which no package accepts."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text is not Unicode: it holds a lone surrogate, which is half of a character") from None


def _special_ids(
    options: Mapping[str, Any], values: Mapping[str, Any], id_of: Callable[[str], int | None]
) -> list[int | None]:
    """Return the ids that pad, begin and end a text: those of the model's configuration, or else the tokenizer's."""
    ids = []
    for name in ("pad", "bos", "eos"):
        index, text = token(values, f"{name}_token_id"), _text(options.get(f"{name}_token"))
        ids.append(id_of(text) if index is None and text else index)
    return ids


def _text(value: Any) -> str | None:
    """Return the text of a special token, which options give as a text or as an object."""
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else None


def _options(folder: Path) -> dict[str, Any]:
    """Read `tokenizer_config.json` and, if it lists no tokens, the older files of special and of added ones."""
    options, special, added = (read_json(folder / n) if (folder / n).is_file() else {} for n in (CONFIG, OLDER, ADDED))
    if "added_tokens_decoder" not in options:
        for name, value in special.items():
            options[name] = {"__type": "AddedToken", **value} if isinstance(value, dict) else value
        if added:
            options["added_tokens_decoder"] = {str(index): {"content": token} for token, index in added.items()}
    return options


def save_tokenizer(tokenizer: Any, folder: Path, config: ModelConfig) -> None:
    """Write a tokenizer, ours or a loaded one, in the files of `transformers`; `config` is its model's.

    Raises PretrainedError for another tokenizer.
    """
    if isinstance(tokenizer, BPETokenizer):
        with atomic_write(folder / FILE) as file:
            file.write(json.dumps(bpe_as_json(tokenizer, config), ensure_ascii=False).encode())
        names = {f"{name}_token": token for name, token in zip(("pad", "bos", "eos"), SPECIAL_TOKENS, strict=True)}
        if isinstance(config, BERTConfig):
            names |= {"cls_token": names["bos_token"], "sep_token": names["eos_token"]}
            names |= {"mask_token": MASK} if config.mask_id == tokenizer.vocab_size else {}
        write_json(folder / CONFIG, {"tokenizer_class": "PreTrainedTokenizerFast", **names})
    elif isinstance(tokenizer, PretrainedTokenizer | MarianTokenizer):
        tokenizer.save(folder)
    else:
        raise PretrainedError(f"a {type(tokenizer).__name__} can't be written for another library")
