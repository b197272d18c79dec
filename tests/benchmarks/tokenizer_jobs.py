"""Byte-pair encoding of a text file, a sentence a line: learning a vocabulary, and encoding with it.

The answer is how many pieces the text becomes. The three libraries cut words alike only in spirit, so it differs a
little; nobody is held to another's.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

from race import Work
from workloads import VOCAB_SIZE

from minitransformer.data import BPETokenizer


@contextmanager
def minitransformer(threads: int, text: str, encode: str | None) -> Iterator[tuple[int, Work]]:
    """Ours: pure Python, one thread."""
    lines = _lines(text)
    learned = BPETokenizer.train(lines, VOCAB_SIZE)
    yield _job(
        encode,
        lambda: BPETokenizer.train(lines, VOCAB_SIZE),
        lambda: BPETokenizer.from_json(learned.to_json()),
        lambda bpe: map(bpe.encode, lines),
    )


@contextmanager
def tokenizers(threads: int, text: str, encode: str | None) -> Iterator[tuple[int, Work]]:
    """Hugging Face's library, in Rust: byte-level BPE, as many threads as it likes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    lines = _lines(text)

    def learn() -> Tokenizer:
        bpe = Tokenizer(models.BPE())
        bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
        bpe.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        bpe.train_from_iterator(
            lines, trainers.BpeTrainer(vocab_size=VOCAB_SIZE, show_progress=False, initial_alphabet=alphabet)
        )
        return bpe

    saved = learn().to_str()
    yield _job(
        encode,
        learn,
        lambda: Tokenizer.from_str(saved),
        lambda bpe: (encoding.ids for encoding in bpe.encode_batch_fast(lines)),
    )


@contextmanager
def subword_nmt(threads: int, text: str, encode: str | None) -> Iterator[tuple[int, Work]]:
    """The paper's tool (Sennrich et al. 2016), on words parted by spaces: Python, one thread."""
    from subword_nmt.apply_bpe import BPE  # pyright: ignore[reportMissingImports]
    from subword_nmt.learn_bpe import learn_bpe  # pyright: ignore[reportMissingImports]

    lines = _lines(text)

    def codes() -> str:
        learned = io.StringIO()
        with redirect_stderr(io.StringIO()):  # its progress bar
            learn_bpe(io.StringIO("\n".join(lines)), learned, VOCAB_SIZE)
        return learned.getvalue()

    saved = codes()
    yield _job(
        encode,
        codes,
        lambda: BPE(io.StringIO(saved)),
        lambda bpe: (bpe.process_line(line).split() for line in lines),
    )


def _lines(text: str) -> list[str]:
    return Path(text).read_text(encoding="utf-8").splitlines()


def _job(
    encode: str | None, learn: Callable[[], Any], load: Callable[[], Any], encoded: Callable[[Any], Any]
) -> tuple[int, Work]:
    """The work and its answer: to learn, or to encode the text with words "unseen" (a fresh copy) or "cached"."""
    bpe = load()

    def encode_all() -> int:
        return sum(map(len, encoded(load() if encode == "unseen" else bpe)))

    return encode_all(), encode_all if encode else learn
