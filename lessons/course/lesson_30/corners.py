"""Lesson 30: a small world of pictures, corners of scenes: two things at sixteen places, in four colours and shapes."""

import numpy as np
from numpy.typing import NDArray

from minitransformer.data.batching import BOS_ID, EOS_ID, PAD_ID, pad
from minitransformer.data.scenes import caption_tokenizer
from minitransformer.grammar.captions import caption
from minitransformer.grammar.scenes import COLOURS, RADII, SHAPES, Scene, Thing, draw, is_clear, stencil
from minitransformer.models import IGNORED

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

SIDE, PATCH = 24, 4
"""The height and width of a picture, and of a patch, in pixels."""

PLACES = range(5, SIDE - 4, 4)
"""Columns and rows of the things' centres: these lie alike in their patches."""

WORDS = tuple(RADII), tuple(COLOURS)[:4], tuple(SHAPES)[:4]
NEW = frozenset(zip(*WORDS[1:], strict=True))
"""Pairs of a colour and a shape that training never shows: each colour and each shape in one of them."""

tokenizer = caption_tokenizer()


def draw_scenes(rng: np.random.Generator, count: int, new: bool = False) -> list[Scene]:
    """Return scenes of two things, the left one first (of two in one column the upper one).

    new: each has a pair of `NEW`, one or two; else none has.
    """
    scenes: list[Scene] = []
    while len(scenes) < count:
        words = [rng.choice(each, 2) for each in (*WORDS, PLACES, PLACES)]
        things = [Thing(str(s), str(c), str(k), int(x), int(y)) for s, c, k, x, y in zip(*words, strict=True)]
        if is_clear(*things):
            scene = Scene(tuple(sorted(things, key=lambda thing: (thing.x, thing.y))))
            if new != NEW.isdisjoint(scene.pairs):
                scenes.append(scene)
    return scenes


def pictures(scenes: list[Scene]) -> Floats:
    """Return the pictures of scenes, `(B, 3, 24, 24)`, from −1 to 1."""
    return np.stack([draw(scene)[:, :SIDE, :SIDE] for scene in scenes])


def tokens(texts: list[str]) -> tuple[Ids, Ids]:
    """Return captions `(B, T)` that begin with <s>, and those that end with </s>, −100 after it: the targets."""
    ids = [tokenizer.encode(text) for text in texts]
    return pad([[BOS_ID, *each] for each in ids], PAD_ID), pad([[*each, EOS_ID] for each in ids], IGNORED)


def batch(scenes: list[Scene]) -> dict[str, NDArray]:
    """Return the arguments of a captioner's loss."""
    target_in, target_out = tokens([caption(scene) for scene in scenes])
    return {"source": pictures(scenes), "target_in": target_in, "target_out": target_out}


def pixels_of(thing: Thing) -> NDArray[np.bool_]:
    """Return the pixels that a thing covers, wholly or in part, `(24, 24)`."""
    covered, radius = np.zeros((SIDE, SIDE), bool), RADII[thing.size]
    rows, columns = (slice(middle - radius, middle + radius + 1) for middle in (thing.y, thing.x))
    covered[rows, columns] = stencil(thing.shape, radius) > 0
    return covered
