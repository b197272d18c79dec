"""Pictures of scenes with their captions, drawn when a batch needs them, and the tokenizer of the captions."""

import itertools
import zlib
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..grammar.captions import SIDES, Description, Language, caption, spell
from ..grammar.scenes import COLOURS, HELD_OUT, RADII, SHAPES, SIDE, Pairs, Scene, draw, draw_scene
from ..models import IGNORED
from .batching import BOS_ID, EOS_ID, PAD_ID, check_special_ids, pad
from .bpe import split_words
from .rows import RowBatches, Rows
from .tokenizer import BPETokenizer

SCENES = 100_000
"""Scenes in an epoch of a training."""

VALIDATION = 256
"""Scenes of a validation."""

CAPTION_LANGUAGES: dict[str, Language] = {"en": "english", "de": "german"}


@cache
def caption_tokenizer(language: Language = "english") -> BPETokenizer:
    """Return the tokenizer of captions: each of their words is one token. Its merges build a word letter by letter."""
    sides = itertools.cycle(itertools.product(SIDES, repeat=2))
    texts = [
        spell(Description((size,) * 3, (colour,) * 3, (shape,) * 3, next(sides)), language)
        for size, colour, shape in itertools.product(RADII, COLOURS, SHAPES)
    ]
    words = sorted({word for text in texts for word in split_words(" " + text)})
    merges = dict.fromkeys((word[:end], word[end]) for word in words for end in range(1, len(word)))
    return BPETokenizer("".join(sorted({letter for word in words for letter in word})), merges)


def caption_language(tokenizer: Any) -> Language:
    """Return the language whose captions a tokenizer is for. Raises ValueError for another tokenizer."""
    for language in CAPTION_LANGUAGES.values():
        if tokenizer == caption_tokenizer(language):
            return language
    raise ValueError("the captions of scenes are English or German, and the model's tokenizer is for neither")


def check_pictures(config: Any) -> None:
    """Raise ValueError for the configuration of a model that takes other pictures than those of scenes."""
    expected, shape = (3, SIDE, SIDE), (config.channels, config.image_size, config.image_size)
    if shape != expected:
        raise ValueError(f"the pictures have shape {expected}, but the model takes {shape}")


class Captioned(Rows):
    """Rows of pictures, captions that begin with <s>, and captions that end with </s>: these are the targets."""

    @property
    def targets(self) -> NDArray[np.int64]:
        """The tokens to write `(B, T)`, −100 after the end."""
        targets = self.inputs[2]
        assert targets is not None
        return targets


class Matched(Rows):
    """Rows of pictures and of their captions between <s> and </s>: the targets are the pairs themselves.

    Two scenes of a batch may have the same caption, and the loss then calls a right text wrong. Among 128 scenes of a
    training 0.5 have such a twin on average, measured on 7,680, so that nothing is done about it; CLIP does nothing
    either. A validation's recall, for which that would be a ceiling, takes scenes whose captions differ.
    """

    @property
    def num_targets(self) -> int:
        """The number of pairs."""
        return self.num_sentences


@dataclass(frozen=True)
class SceneDataset:
    """`count` scenes of a split with their captions; in epoch e of a training these are the next `count` of its seed.

    They are drawn from so many that a training hardly sees one twice.
    """

    split: str
    count: int
    seed: int = 0
    language: Language = "english"
    held_out: Pairs = HELD_OUT

    def __len__(self) -> int:
        """The number of scenes in an epoch."""
        return self.count

    def scene(self, number: int) -> Scene:
        """Return a scene by its number, counted through all epochs."""
        return draw_scene(self.split, self.seed, number, self.held_out)

    @cached_property
    def scenes(self) -> list[Scene]:
        """The scenes of the first epoch."""
        return [self.scene(number) for number in range(self.count)]

    def different(self, count: int | None = None) -> dict[str, Scene]:
        """Return the first scenes whose captions are all different, by their captions: `count`, or the epoch's."""
        found = dict[str, Scene]()
        for scene in self.scenes if count is None else map(self.scene, itertools.count()):
            found.setdefault(caption(scene, self.language), scene)
            if len(found) == count:
                break
        return found

    def checksum(self) -> int:
        """Return the CRC-32 of the choice of scenes and of the first pictures and captions."""
        scenes = [self.scene(number) for number in range(min(self.count, 100))]
        facts = (
            f"{self.split} {self.seed} {sorted(self.held_out)} {[caption(scene, self.language) for scene in scenes]}"
        )
        return zlib.crc32(
            np.stack([draw(scene) for scene in scenes]).astype("<f4").tobytes(), zlib.crc32(facts.encode())
        )

    def batches(self, tokens_per_batch: int, seed: int | None, config: Any) -> RowBatches:
        """Return batches (pictures, target_in, target_out) of at most `tokens_per_batch` patches, but of one picture.

        For a CLIP they are (pictures, captions). Raises ValueError for a model of other pictures, of other special ids,
        or with too few tokens for the captions, and for a CLIP's batches of one pair.
        """
        check_pictures(config)
        check_special_ids(config.pad_id, config.bos_id, config.eos_id)
        tokenizer = caption_tokenizer(self.language)
        if config.vocab_size < len(tokenizer):
            raise ValueError(f"the captions have {len(tokenizer)} tokens, but the model knows {config.vocab_size}")
        two, compares = 2 * config.num_patches, config.model.compares_rows
        if compares and tokens_per_batch < two:
            raise ValueError(
                f"tokens_per_batch is {tokens_per_batch}, expected {two} or more: a CLIP compares the pairs of a batch"
            )

        def make(rows: NDArray[np.int64], epoch: int, rng: np.random.Generator) -> Rows:
            scenes = [self.scene(epoch * self.count + row) for row in rows.tolist()]
            ids = [tokenizer.encode(caption(scene, self.language)) for scene in scenes]
            pictures = np.stack([draw(scene) for scene in scenes])
            if compares:
                return Matched((pictures, pad([[BOS_ID, *each, EOS_ID] for each in ids], PAD_ID)))
            target_in = pad([[BOS_ID, *each] for each in ids], PAD_ID)
            return Captioned((pictures, target_in, pad([[*each, EOS_ID] for each in ids], IGNORED)))

        return RowBatches(self.count, max(1, tokens_per_batch // config.num_patches), seed, make)


def scenes(seed: int, language: Language = "english") -> tuple[SceneDataset, SceneDataset]:
    """Return the scenes to train on, which follow from a seed, and those that validate, always the same."""
    return SceneDataset("train", SCENES, seed, language), SceneDataset("valid", VALIDATION, language=language)
