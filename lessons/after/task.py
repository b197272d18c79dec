"""The texts of the experiments: the grammar's English, and Multi30k."""

from dataclasses import dataclass
from pathlib import Path

from minitransformer.data.preparation import CorpusChoice, TextChoice

VOCAB_SIZE = 1000
"""The tokens of the grammar's English: its words and their endings."""


@dataclass(frozen=True)
class Texts:
    """The texts that all experiments share; `data` is a folder with Multi30k's files, or None: they are downloaded."""

    data: str | None = None
    name: str = "all"

    def english(self, sentences: int) -> TextChoice:
        """The grammar's English, as a text for models that read."""
        return TextChoice(vocab_size=VOCAB_SIZE, sentences=sentences, max_length=128)

    def multi30k(self) -> CorpusChoice:
        """Multi30k, English to German."""
        folder = str(Path(self.data).resolve()) if self.data else None
        return CorpusChoice(dataset=None if folder else "multi30k", data=folder, vocab_size=8000, max_length=256)
