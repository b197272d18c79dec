"""From text to token ids: what `train` and `demo` do before the first step, kept in the training's folder.

    data/corpus.json      which text it was, and a fingerprint of it
    data/tokenizer.json   trained on the training text
    data/train, valid     token ids (see `minitransformer.data.token_dataset`)

`corpus.json` is written last: where it stands, the rest is complete.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from ..atomic import atomic_write
from ..data import BPETokenizer, multi30k
from ..data.corpus import Corpus, corpus_from_folder
from ..data.grammar import pairs as grammar_pairs
from ..data.parallel import SentencePair
from ..data.token_dataset import TokenDataset
from .common import progress_wanted

DATASETS = ("grammar", "multi30k")
GRAMMAR_VALIDATION = 1000
FINGERPRINT_SENTENCES = 500
TOKENIZER_SENTENCES = 20_000  # of the grammar: enough to see every word many times


@dataclass(frozen=True, kw_only=True)
class CorpusChoice:
    """Which text to train on and how it becomes tokens; the defaults are the demo's.

    dataset     one of DATASETS, or None for the files in `data`
    data        folder of train.<source>, train.<target>, valid.…
    source      language, or suffix of the files
    target      likewise
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
        if self.dataset == "grammar":
            grammar_language(self.target)

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


def prepare(folder: Path, choice: CorpusChoice) -> PreparedData:
    """The data of `choice` in `folder`: opened where it is there, otherwise made.

    Raises OSError where a file can't be read or written, ValueError where the text is damaged or too small.
    """
    corpus = choice.corpus()
    fingerprint = _fingerprint(choice, corpus)
    description = folder / "corpus.json"
    if description.is_file() and _read(description)["fingerprint"] == fingerprint:
        return open_prepared(folder)
    description.unlink(missing_ok=True)
    tokenizer = BPETokenizer.train(_texts(_tokenizer_pairs(choice, corpus)), choice.vocab_size)
    _write(folder / "tokenizer.json", tokenizer.to_json())
    for split in ("train", "valid"):
        TokenDataset.build(
            _pairs(choice, corpus, split), tokenizer, folder / split, choice.max_length, progress=progress_wanted()
        )
    _write(description, json.dumps({"choice": asdict(choice), "fingerprint": fingerprint}, indent=2) + "\n")
    return open_prepared(folder)


def open_prepared(folder: Path) -> PreparedData:
    """The data that `prepare` left in `folder`; raises FileNotFoundError, or ValueError where it is damaged."""
    choice = CorpusChoice(**_read(folder / "corpus.json")["choice"])
    tokenizer = BPETokenizer.load(folder / "tokenizer.json")
    return PreparedData(choice, tokenizer, TokenDataset.open(folder / "train"), TokenDataset.open(folder / "valid"))


def grammar_language(code: str) -> Literal["german", "french"]:
    """The grammar's name for a language; raises ValueError for one that it does not write."""
    if code == "de":
        return "german"
    if code == "fr":
        return "french"
    raise ValueError(f"the grammar writes de and fr, not {code!r}")


def _pairs(choice: CorpusChoice, corpus: Corpus | None, split: Literal["train", "valid"]) -> Iterator[SentencePair]:
    if corpus is not None:
        return (corpus.train if split == "train" else corpus.valid).read()
    count = choice.sentences if split == "train" else GRAMMAR_VALIDATION
    return grammar_pairs(split, choice.seed, grammar_language(choice.target), count)


def _tokenizer_pairs(choice: CorpusChoice, corpus: Corpus | None) -> Iterator[SentencePair]:
    pairs = _pairs(choice, corpus, "train")
    return pairs if corpus is not None else islice(pairs, TOKENIZER_SENTENCES)


def _texts(pairs: Iterable[SentencePair]) -> Iterator[str]:
    return (text for pair in pairs for text in pair)


def _fingerprint(choice: CorpusChoice, corpus: Corpus | None) -> str:
    """A hash of the choice and of every byte of its files; of the grammar, of enough to notice another edition."""
    digest = hashlib.sha256(json.dumps(asdict(choice)).encode())
    if corpus is None:
        digest.update("".join(_texts(islice(_pairs(choice, corpus, "train"), FINGERPRINT_SENTENCES))).encode())
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
