"""The describer: it says in words what a picture shows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.batching import check_special_ids
from ..data.tokenizer import BPETokenizer
from ..models import Captioner
from .images import GREY, processor_of
from .loading import FromCheckpoint
from .search import Start, beam_search
from .tokenizer import check_vocabulary

PICTURES = 64
"""So many go through the model at once."""


def start_of(config: Any, count: int) -> Start:
    """Return the start of so many captions, which get neither padding nor another <s>."""
    return Start(np.full(count, config.bos_id), np.full(count, config.max_length), (config.pad_id, config.bos_id))


class Describer(FromCheckpoint):
    """Describes pictures in the model's language: `Describer.from_checkpoint(path).describe(["scene.png"])`.

    Raises `ValueError` for a model of another kind, and one whose vocabulary or special ids are not the tokenizer's.
    """

    def __init__(self, model: Any, tokenizer: BPETokenizer) -> None:
        if not isinstance(model, Captioner):
            raise ValueError(f"a model of kind {model.config.kind!r}, which describes no pictures: a captioner does")
        config = model.config
        check_vocabulary(config, tokenizer, exactly=True)
        check_special_ids(config.pad_id, config.bos_id, config.eos_id)
        self.model, self.tokenizer, self.processor = model, tokenizer, processor_of(model, GREY)

    def describe(self, pictures: Sequence[Any], beam: int = 4, length_penalty: float = 0.6) -> list[str]:
        """Return a caption of each picture: paths of files, or arrays `(channels, height, width)` of numbers −1 to 1.

        A beam of one is greedy search. Raises `OSError` for a file that can't be read, `ValueError` for one that holds
        no picture and for an array of another size than the model's, or of integers, `TypeError` for one str, and as
        `beam_search` does.
        """
        config = self.model.config
        captions: list[str] = []
        for start in range(0, len(pictures), PICTURES):
            part = pictures[start : start + PICTURES]
            images = self.processor.arrays(part, config)
            found = beam_search(self.model, images, beam, length_penalty, start=start_of(config, len(part)))
            captions += [self.tokenizer.decode(best.ids) for (best,) in found]
        return captions
