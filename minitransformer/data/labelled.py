"""Texts with classes, on which a masked model is fine-tuned."""

import zlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .lines import LineBatches
from .text import TextDataset, TextTask


class LabelledText(TextTask):
    """The lines of a text, each with its class; a row is `<s> line </s>`, padded.

    Raises ValueError unless there are as many classes as lines, and each is 0 or more.
    """

    def __init__(self, text: TextDataset, classes: ArrayLike) -> None:
        super().__init__(text)
        self.classes = np.asarray(classes, np.int64)  # (N,)
        if self.classes.shape != (len(text),):
            raise ValueError(f"classes have shape {self.classes.shape}, but the text has {len(text)} lines")
        if self.classes.min() < 0:
            raise ValueError(f"classes must be 0 or more, got {self.classes.min()}")

    def checksum(self) -> int:
        """Return the CRC-32 of all ids, lengths and classes."""
        return zlib.crc32(self.classes.astype("<i8").tobytes(), self.text.checksum())

    def batches(self, tokens_per_batch: int, seed: int | None, config: Any) -> LineBatches:
        """Return batches (ids, classes, None, mask) of lines of about the same length.

        Raises ValueError for an id outside the vocabulary, a line that is too long for the model or for a batch, and a
        class that the model lacks.
        """
        if self.classes.max() >= config.num_classes:
            raise ValueError(f"the dataset has class {self.classes.max()}, but the model knows {config.num_classes}")
        return LineBatches(
            self.text, tokens_per_batch, seed, config, lambda ids, lines, rng: (ids, self.classes[lines])
        )
