"""A training's data: turns text into token ids, and keeps them in a folder.

    data/train, valid     token ids (see `minitransformer.data.token_dataset`)
    data/tokenizer.json   trained on the training text
    data/corpus.json      the choice of the text, its fingerprint, and the tokenizer's checksum

They are written in this order, each whole or not at all. Every file has a checksum, so a damaged one does not open. All
have the same fingerprint, so a part that was deleted is made again from the same text. `train` and `valid` also name
the text and the tokenizer: so the program recognises its own files, and it replaces no others.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, get_type_hints

from ..grammar import pairs as grammar_pairs
from ..grammar import sample
from ..system.atomic import atomic_write, remove_unfinished
from ..system.sealed_json import seal, unseal
from . import multi30k
from .sentence_pairs import Corpus, SentencePair, corpus_from_folder, read_lines
from .text import Marked, TextDataset
from .token_dataset import META, TokenDataset, check_replaceable, file_sha256, read_meta, sha256
from .tokenizer import BPETokenizer
from .trees import linearise

Split = Literal["train", "valid", "test"]
DESCRIPTION, TOKENIZER = "corpus.json", "tokenizer.json"
DATASET_FOLDERS: tuple[Split, ...] = ("train", "valid")
DATASETS = ("grammar", "multi30k")
GRAMMAR_LANGUAGES: dict[str, Literal["german", "french"]] = {"de": "german", "fr": "french"}
GRAMMAR_VALIDATION = 1000
FINGERPRINT_SENTENCES = 500
TOKENIZER_SENTENCES = 20_000  # enough of the grammar's for every word to occur many times
HELD_OUT = 20  # one line in 20 of a text file is for validation


@dataclass(frozen=True, kw_only=True)
class CorpusChoice:
    """The choice of a parallel text and of its tokens; the defaults are the demo's.

    dataset     one of DATASETS, or None for the files in `data`
    data        folder with train.<source>, train.<target>, valid.…
    source      the language to translate from, which is also the suffix of its files
    target      the language to translate into; the grammar has de, fr, and tree: a parse tree in one line (see
                `minitransformer.data.trees`)
    vocab_size  tokens of the joint vocabulary
    max_length  the longest sentence to keep, in tokens
    sentences   how many sentences the grammar writes
    seed        the seed of the grammar

    Raises ValueError for a language that the dataset does not have.
    """

    dataset: str | None = "grammar"
    data: str | None = None
    source: str = "en"
    target: str = "de"
    vocab_size: int = 2400
    max_length: int = 512
    sentences: int = 120_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dataset is not None and self.source != "en":
            raise ValueError(f"the source language of {self.dataset} is en, got {self.source!r}")
        if self.dataset == "grammar" and self.target not in (*GRAMMAR_LANGUAGES, "tree"):
            raise ValueError(f"the grammar writes de, fr and tree, not {self.target!r}")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "CorpusChoice":
        """Return the choice of a corpus or a text whose `asdict` gave `values`. Raises ValueError for other values."""
        if "text" in values and cls is CorpusChoice:
            return (TableChoice if "table" in values else TextChoice).from_dict(values)
        kinds = {each.name: get_type_hints(cls)[each.name] for each in fields(cls)}
        if values.keys() != kinds.keys() or not all(isinstance(values[name], kind) for name, kind in kinds.items()):
            raise ValueError("it does not say which text it was")
        return cls(**values)

    @property
    def languages(self) -> tuple[str, str] | None:
        """Source and target; None for a text."""
        return self.source, self.target

    @property
    def name(self) -> str:
        """A short name for folders."""
        return f"{self.dataset or Path(self.data or '').name}-{self.source}-{self.target}"

    def corpus(self) -> Corpus | None:
        """Return the files, downloaded if necessary; None for the grammar."""
        if self.dataset == "grammar":
            return None
        if self.dataset == "multi30k":
            return multi30k.load(self.target)
        return corpus_from_folder(self.data or "", self.source, self.target)

    def pairs(self, split: Split, corpus: Corpus | None = None) -> Iterator[SentencePair]:
        """Return the sentence pairs of a split; `corpus`, if given, saves finding the files again.

        Raises FileNotFoundError if there is no test set.
        """
        corpus = corpus or self.corpus()
        if corpus is not None:
            files = getattr(corpus, split)
            if files is None:
                raise FileNotFoundError(f"{self.dataset or self.data} has no {split} set")
            return files.read()
        count = self.sentences if split == "train" else GRAMMAR_VALIDATION
        if self.target == "tree":
            examples = islice(sample(split, self.seed), count)
            return (SentencePair(each.english, linearise(each.tree)) for each in examples)
        return map(SentencePair._make, grammar_pairs(split, self.seed, GRAMMAR_LANGUAGES[self.target], count))


@dataclass(frozen=True, kw_only=True)
class TextChoice(CorpusChoice):
    """The choice of a language model's text: the lines of the file `text`, or the source side of a corpus.

    The last twentieth of a file's lines, and at least one, is for validation.
    """

    text: str | None = None

    @property
    def languages(self) -> tuple[str, str] | None:
        """None: a text is not translated."""
        return None

    @property
    def name(self) -> str:
        """A short name for folders."""
        name = self.dataset or Path(self.text or self.data or "").name.split(".")[0]
        return name if self.text else f"{name}-{self.source}"

    def corpus(self) -> Corpus | None:
        """Return the files of a corpus, of a folder only the source side; None for the grammar and for a file."""
        if self.text:
            return None
        if self.dataset is None:
            return corpus_from_folder(self.data or "", self.source, self.source)
        return super().corpus()

    def lines(self, split: Split, corpus: Corpus | None = None) -> Iterator[str]:
        """Return the lines of a split; `corpus`, if given, saves finding the files again.

        Blank lines at the end of a file do not count. Raises ValueError if it has fewer than two others.
        """
        if self.text is None:
            return (pair.source for pair in self.pairs(split, corpus))
        count = max((number for number, line in enumerate(read_lines(self.text), start=1) if line.strip()), default=0)
        if count < 2:
            raise ValueError(
                f"{self.text} has {count} lines, and a text needs two: one to train on, one for validation"
            )
        kept = count - max(1, count // HELD_OUT)
        return islice(read_lines(self.text), kept) if split == "train" else islice(read_lines(self.text), kept, None)


@dataclass(frozen=True, kw_only=True)
class TableChoice(TextChoice):
    """The choice of texts with labels: the lines of the file `table` are a text, a tab and its label.

    Every twentieth line is for validation.
    """

    table: str = ""

    @property
    def name(self) -> str:
        """A short name for folders."""
        return Path(self.table).name.split(".")[0]

    def corpus(self) -> Corpus | None:
        """Return None: a table is one file."""
        return None

    def pairs(self, split: Split, corpus: Corpus | None = None) -> Iterator[SentencePair]:
        """Return the texts of a split and their labels. Raises ValueError for a line without a tab or a label."""
        return (pair for number, pair in self._rows() if (number % HELD_OUT == 0) == (split == "valid"))

    def _rows(self) -> Iterator[tuple[int, SentencePair]]:
        """Return the lines that are not blank, with their numbers."""
        for number, line in enumerate(read_lines(self.table), start=1):
            text, tab, label = line.rpartition("\t")
            if line.strip() and not (tab and label.strip()):
                raise ValueError(f"{self.table}, line {number}: expected a text, a tab and a label")
            if line.strip():
                yield number, SentencePair(text, label.strip())

    def labels(self) -> tuple[str, ...]:
        """Return the labels in order.

        Raises ValueError for fewer than two, for a table without a line that validates, and for a label that no other
        line has.
        """
        found: dict[str, list[int]] = {}
        for number, pair in self._rows():
            found.setdefault(pair.target, []).append(number)
        if len(found) < 2:
            raise ValueError(f"{self.table} needs two labels or more, and has {', '.join(found) or 'no line'}")
        if all(number % HELD_OUT for numbers in found.values() for number in numbers):
            raise ValueError(f"{self.table} has no text in line {HELD_OUT}: every {HELD_OUT}th line is for validation")
        for label, numbers in found.items():
            if all(number % HELD_OUT == 0 for number in numbers):
                raise ValueError(
                    f"{self.table}, line {numbers[0]}: only lines for validation, every {HELD_OUT}th, have the label "
                    f"{label!r}, so that it can't be learned"
                )
        return tuple(sorted(found))


def fingerprint_of(choice: CorpusChoice, corpus: Corpus | None = None) -> str:
    """Return a hash of the choice and of every byte of its files; for the grammar, of its first sentences."""
    corpus = corpus or choice.corpus()
    digest = hashlib.sha256(json.dumps(asdict(choice)).encode())
    file = choice.table if isinstance(choice, TableChoice) else getattr(choice, "text", None)
    if file:
        digest.update(bytes.fromhex(file_sha256(Path(file))))
    elif corpus is None:
        first = islice(choice.pairs("train"), FINGERPRINT_SENTENCES)
        digest.update("".join(chain.from_iterable(first)).encode())
    else:
        paths = corpus.train.source, corpus.train.target, corpus.valid.source, corpus.valid.target
        for path in dict.fromkeys(paths):  # a text has the same file on both sides
            digest.update(bytes.fromhex(file_sha256(path)))
    return digest.hexdigest()


@dataclass(frozen=True)
class PreparedData:
    """A training's data, and the choice that it was made from."""

    choice: CorpusChoice
    tokenizer: Any
    train: TokenDataset
    valid: TokenDataset

    def valid_sentences(self, count: int) -> tuple[list[str], list[str]]:
        """Return the first `count` validation sentences and their translations, decoded from their tokens."""
        decode = self.tokenizer.decode
        chosen = [(decode(source), decode(target)) for source, target in islice(self.valid, count)]
        return [source for source, _ in chosen], [target for _, target in chosen]


def prepare(folder: Path, choice: CorpusChoice, progress: bool = False, given: Marked | None = None) -> PreparedData:
    """Open the data of `choice` in `folder`, or make it if it is not there; `progress` shows a bar on a terminal.

    `given` is the tokenizer of a model that is trained further, with its marks; without it a new one is trained.
    Raises OSError if a file can't be read or written, or if one that this function did not write is in the way;
    ValueError if the text is too small, or the text or the data is damaged.
    """
    corpus, known = choice.corpus(), given and given.tokenizer
    fingerprint = fingerprint_of(choice, corpus)
    remove_unfinished(folder, r"(tokenizer|corpus)\.json")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # nothing was made yet, or a part was deleted
        prepared = open_prepared(folder, known)
        same = given is None or prepared.train.meta["tokenizer"] == sha256(given.to_json().encode())
        if prepared.train.meta["fingerprint"] == fingerprint and same:
            if not (folder / DESCRIPTION).exists():
                _write_description(folder)
            return prepared
    _check_replaceable(folder)
    for name in (DESCRIPTION, TOKENIZER):
        (folder / name).unlink(missing_ok=True)
    count = TOKENIZER_SENTENCES if choice.dataset == "grammar" else None
    if isinstance(choice, TextChoice) and not isinstance(choice, TableChoice):
        texts, build, examples = islice(choice.lines("train", corpus), count), TextDataset.build, choice.lines
    else:
        pairs = islice(choice.pairs("train", corpus), count)
        texts, build, examples = chain.from_iterable(pairs), TokenDataset.build, choice.pairs
    tokenizer: Any = known or BPETokenizer.train(texts, choice.vocab_size)
    for split in DATASET_FOLDERS:
        lines_or_pairs: Any = examples(split, corpus)
        build(
            lines_or_pairs, given or tokenizer, folder / split, choice.max_length, progress, fingerprint, asdict(choice)
        )
    with atomic_write(folder / TOKENIZER) as file:
        file.write(tokenizer.to_json().encode())
    _write_description(folder)
    return open_prepared(folder, tokenizer)


def open_prepared(folder: Path, given: Any = None) -> PreparedData:
    """Open the data that `prepare` left in `folder`; `given` is its tokenizer, if it is another library's.

    Raises FileNotFoundError if a part is missing, and ValueError, which says what to do, if one is damaged.
    """
    train, valid = (TokenDataset.open(folder / split) for split in DATASET_FOLDERS)
    path = folder / TOKENIZER
    text, description = path.read_bytes(), _description(folder)
    if description is None:
        raise FileNotFoundError(f"there is no {folder / DESCRIPTION}")
    for split, dataset in zip(DATASET_FOLDERS, (train, valid), strict=True):
        if _described_by(dataset.meta) != description:
            raise ValueError(
                f"{folder / split} is not of the text that {folder / DESCRIPTION} names: "
                f"delete the folder {folder / split}, and the data is made again"
            )
    try:
        if description["tokenizer"] != sha256(text):
            raise ValueError("it does not match its checksum")
        ours = given is None or isinstance(given, BPETokenizer)
        tokenizer = BPETokenizer.from_json(text.decode()) if ours else given
    except ValueError as error:
        raise _damaged(path, error) from None
    return PreparedData(CorpusChoice.from_dict(description["choice"]), tokenizer, train, valid)


def kept_choice(folder: Path) -> CorpusChoice | None:
    """Return the choice of which the data in `folder` was made; None without data. Raises ValueError if damaged."""
    description = _description(folder)
    return None if description is None else CorpusChoice.from_dict(description["choice"])


def is_made_from(folder: Path, choice: CorpusChoice) -> bool:
    """Return True if the data in `folder` was made from this choice, and the text has not changed since.

    Raises ValueError if the data is damaged, and FileNotFoundError if a file of the text is missing.
    """
    description = _description(folder)
    return description is not None and description["fingerprint"] == fingerprint_of(choice)


def _description(folder: Path) -> dict[str, Any] | None:
    """Return the content of `corpus.json`, made of a dataset's `meta.json` if it is missing; None without either."""
    path = folder / DESCRIPTION
    if not path.exists():
        return next((_described_by(meta) for meta in _metas(folder) if meta["notes"]), None)
    try:
        description = unseal(path.read_bytes())
        CorpusChoice.from_dict(description["choice"])
        return description
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _damaged(path, error) from None


def _metas(folder: Path) -> Iterator[dict[str, Any]]:
    """Return the `meta.json` of each dataset in the folder."""
    return (read_meta(folder / split) for split in DATASET_FOLDERS if (folder / split / META).is_file())


def _described_by(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of `corpus.json`, from the `meta.json` of a dataset."""
    return {"choice": meta["notes"], "fingerprint": meta["fingerprint"], "tokenizer": meta["tokenizer"]}


def _write_description(folder: Path) -> None:
    with atomic_write(folder / DESCRIPTION) as file:
        file.write(seal(_described_by(read_meta(folder / DATASET_FOLDERS[0])), indent=2))


def _damaged(path: Path, reason: Exception) -> ValueError:
    return ValueError(
        f"{path} is damaged, or not written by this program ({reason}): "
        "move it elsewhere or delete it, and the data is made again"
    )


def _check_replaceable(folder: Path) -> None:
    """Raise FileExistsError if a file that `prepare` did not write is in the way, ValueError for a damaged one.

    A tokenizer is recognised by its checksum, which each of the other parts holds.
    """
    for split in DATASET_FOLDERS:
        check_replaceable(folder / split)
    path, description = folder / TOKENIZER, _description(folder)
    checksums = {part.get("tokenizer") for part in (description, *_metas(folder)) if part}
    if path.exists() and file_sha256(path) not in checksums:
        raise FileExistsError(f"{path} was not made with the data in {folder}: move it elsewhere or delete it")
