"""From text to token ids: what comes before a training's first step, kept in a folder.

    data/corpus.json      which text it was, and a fingerprint of it
    data/tokenizer.json   trained on the training text
    data/train, valid     token ids (see `minitransformer.data.token_dataset`)

`corpus.json` is written last: where it stands, the rest is complete.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from ..atomic import atomic_write
from . import multi30k
from .corpus import Corpus, corpus_from_folder
from .grammar import pairs as grammar_pairs
from .grammar import sample
from .parallel import SentencePair
from .token_dataset import TokenDataset
from .tokenizer import BPETokenizer
from .trees import linearise

Split = Literal["train", "valid", "test"]
DATASETS = ("grammar", "multi30k")
GRAMMAR_LANGUAGES: dict[str, Literal["german", "french"]] = {"de": "german", "fr": "french"}
GRAMMAR_VALIDATION = 1000
FINGERPRINT_SENTENCES = 500
TOKENIZER_SENTENCES = 20_000  # of the grammar: enough to see every word many times


@dataclass(frozen=True, kw_only=True)
class CorpusChoice:
    """Which text to train on and how it becomes tokens; the defaults are the demo's.

    dataset     one of DATASETS, or None for the files in `data`
    data        folder of train.<source>, train.<target>, valid.…
    source      language, or suffix of the files
    target      likewise; of the grammar de, fr, or tree, the parse tree in one line (see `minitransformer.data.trees`)
    vocab_size  tokens of the joint vocabulary
    max_length  the longest sentence in tokens that is kept
    sentences   how many the grammar writes
    seed        of the grammar

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

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.source, self.target

    @property
    def name(self) -> str:
        """A short name for folders."""
        return f"{self.dataset or Path(self.data or '').name}-{self.source}-{self.target}"

    def corpus(self) -> Corpus | None:
        """The files, downloaded where need be; None for the grammar."""
        if self.dataset == "grammar":
            return None
        if self.dataset == "multi30k":
            return multi30k.load(self.target)
        return corpus_from_folder(self.data or "", self.source, self.target)

    def pairs(self, split: Split, corpus: Corpus | None = None) -> Iterator[SentencePair]:
        """The sentences of a split with their translations, from `corpus` where it is at hand.

        Raises FileNotFoundError where the text has no test set.
        """
        corpus = corpus or self.corpus()
        if corpus is None:
            count = self.sentences if split == "train" else GRAMMAR_VALIDATION
            return _grammar_pairs(split, self.seed, self.target, count)
        files = getattr(corpus, split)
        if files is None:
            raise FileNotFoundError(f"{self.dataset or self.data} has no {split} set")
        return files.read()


@dataclass(frozen=True)
class PreparedData:
    """What a training reads, and the choice that it was made from."""

    choice: CorpusChoice
    tokenizer: BPETokenizer
    train: TokenDataset
    valid: TokenDataset

    def valid_sentences(self, count: int) -> tuple[list[str], list[str]]:
        """The first `count` validation sentences and their translations, read back from their tokens."""
        chosen = list(islice(self.valid, count))
        sources, targets = ([self.tokenizer.decode(pair[side]) for pair in chosen] for side in (0, 1))
        return sources, targets


def prepare(folder: Path, choice: CorpusChoice, progress: bool = False) -> PreparedData:
    """The data of `choice` in `folder`: opened where it is there, otherwise made, with a bar if there is to be one.

    Raises OSError where a file can't be read or written, ValueError where the text is damaged or too small.
    """
    corpus = choice.corpus()
    fingerprint = fingerprint_of(choice, corpus)
    description = folder / "corpus.json"
    if description.is_file() and _read(description)["fingerprint"] == fingerprint:
        with contextlib.suppress(FileNotFoundError):  # a file of it was deleted: make all of them again
            return open_prepared(folder)
    description.unlink(missing_ok=True)
    tokenizer = BPETokenizer.train(_texts(_tokenizer_pairs(choice, corpus)), choice.vocab_size)
    _write(folder / "tokenizer.json", tokenizer.to_json())
    for split in ("train", "valid"):
        TokenDataset.build(choice.pairs(split, corpus), tokenizer, folder / split, choice.max_length, progress)
    _write(description, json.dumps({"choice": asdict(choice), "fingerprint": fingerprint}, indent=2) + "\n")
    return open_prepared(folder)


def open_prepared(folder: Path) -> PreparedData:
    """The data that `prepare` left in `folder`; raises FileNotFoundError, or ValueError where it is damaged."""
    choice = CorpusChoice(**_read(folder / "corpus.json")["choice"])
    tokenizer = BPETokenizer.load(folder / "tokenizer.json")
    return PreparedData(choice, tokenizer, TokenDataset.open(folder / "train"), TokenDataset.open(folder / "valid"))


def _grammar_pairs(split: str, seed: int, target: str, count: int) -> Iterator[SentencePair]:
    if target == "tree":
        return (SentencePair(each.english, linearise(each.tree)) for each in islice(sample(split, seed), count))
    return grammar_pairs(split, seed, GRAMMAR_LANGUAGES[target], count)


def _tokenizer_pairs(choice: CorpusChoice, corpus: Corpus | None) -> Iterator[SentencePair]:
    pairs = choice.pairs("train", corpus)
    return pairs if corpus is not None else islice(pairs, TOKENIZER_SENTENCES)


def _texts(pairs: Iterable[SentencePair]) -> Iterator[str]:
    return (text for pair in pairs for text in pair)


def fingerprint_of(choice: CorpusChoice, corpus: Corpus | None = None) -> str:
    """A hash of the choice and of every byte of its files; of the grammar, of enough to notice another edition."""
    corpus = corpus or choice.corpus()
    digest = hashlib.sha256(json.dumps(asdict(choice)).encode())
    if corpus is None:
        digest.update("".join(_texts(islice(choice.pairs("train"), FINGERPRINT_SENTENCES))).encode())
        return digest.hexdigest()
    for files in (corpus.train, corpus.valid):
        for path in (files.source, files.target):
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): delete it, and the data is prepared anew") from None


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text.encode())
