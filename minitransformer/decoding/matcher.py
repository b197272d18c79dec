"""The matcher: it says how well pictures and texts belong together, and so finds one by the other."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..data.batching import BOS_ID, EOS_ID, check_special_ids, pad
from ..data.tokenizer import BPETokenizer
from ..models import CLIP
from ..ops import Array
from .images import GREY, processor_of
from .loading import FromCheckpoint
from .tokenizer import check_vocabulary

AT_ONCE = 128
"""So many pictures, or texts, go through the model at once."""


class Matcher(FromCheckpoint):
    """Compares pictures with texts: `Matcher.from_checkpoint(path).similarities(["scene.png"], ["A red ring …"])`.

    Raises `ValueError` for a model of another kind, and one whose vocabulary or special ids are not the tokenizer's.
    """

    def __init__(self, model: Any, tokenizer: BPETokenizer) -> None:
        if not isinstance(model, CLIP):
            raise ValueError(
                f"a model of kind {model.config.kind!r}, which matches no pictures with texts: a CLIP does"
            )
        check_vocabulary(model.config, tokenizer, exactly=True)
        check_special_ids(model.config.pad_id, model.config.bos_id, model.config.eos_id)
        self.model, self.tokenizer, self.processor = model, tokenizer, processor_of(model, GREY)

    def similarities(self, pictures: Sequence[Any], texts: Sequence[str]) -> np.ndarray:
        """Return the cosine of each picture and each text, `(pictures, texts)`; equal texts have equal ones."""
        vectors, places = self._different(texts)
        return (self.pictures(pictures) @ vectors.T)[:, places]

    def pictures(self, pictures: Sequence[Any]) -> np.ndarray:
        """Return vectors of length 1, `(N, E)`, of paths of files or arrays `(channels, height, width)`, −1 to 1.

        Raises `OSError` for a file that can't be read, `ValueError` for one that holds no picture and for an array of
        another size than the model's, or of integers, and `TypeError` for one str.
        """
        config, encode = self.model.config, self.model.encode_pictures
        return self._in_parts(pictures, lambda part: encode(self.processor.arrays(part, config)))

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        """Return vectors of length 1, `(N, E)`. Raises `ValueError` for a text that is too long for the model, and
        `TypeError` for one str.
        """
        vectors, places = self._different(texts)
        return vectors[places]

    def _different(self, texts: Sequence[str]) -> tuple[np.ndarray, list[int]]:
        """Return the vectors of the different texts, `(D, E)`, and the place of each text among them."""
        if isinstance(texts, str):
            raise TypeError("texts must be a sequence of texts, not one str")
        encode, ids_of = self.model.encode_texts, self.tokenizer.encode
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        ids = [[BOS_ID, *ids_of(text), EOS_ID] for text in places]
        return self._in_parts(ids, lambda part: encode(pad(part))), [places[text] for text in texts]

    def _in_parts(self, given: Sequence[Any], encode: Callable[[Sequence[Any]], Array]) -> np.ndarray:
        parts = (given[start : start + AT_ONCE] for start in range(0, len(given), AT_ONCE))
        none = np.zeros((0, self.model.config.embedding), self.model.dtype)
        return np.concatenate([none, *(self.model.ops.to_numpy(encode(part)) for part in parts)])
