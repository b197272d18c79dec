"""Scenes: two or three coloured shapes at free places, drawn as small pictures whose content is known exactly.

Things never touch, and of each two it is clear on which side one lies of the other: the distance along one axis is
larger than along the other by `MARGIN` pixels or more. So a caption that says it is either true or false.

Any order of things is true, but a writer must settle on one, and then a model need not guess it: it learns sooner when
the order follows from the scene (Vinyals, Bengio & Kudlur 2016, "Order matters: sequence to sequence for sets").
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .generation import split_of
from .spaces import Choice, Record, Space

SIDE = 32
"""The height and width of a picture in pixels."""

RADII = {"small": 3, "big": 5}
"""The pixels between the centre of a thing and its edge: a big thing is 11 pixels wide."""

COLOURS = {
    "red": (1.0, -0.8, -0.8),
    "green": (-0.8, 0.4, -0.8),
    "blue": (-0.6, -0.6, 1.0),
    "yellow": (1.0, 0.8, -0.8),
    "black": (-1.0, -1.0, -1.0),
    "white": (1.0, 1.0, 1.0),
}
"""Red, green and blue from −1 to 1; the background is grey, 0."""

Inside = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.bool_]]
SHAPES: dict[str, Inside] = {
    "circle": lambda x, y: x**2 + y**2 <= 1,
    "square": lambda x, y: np.maximum(abs(x), abs(y)) <= 0.85,
    "triangle": lambda x, y: abs(x) <= (y + 1) / 2,
    "cross": lambda x, y: np.minimum(abs(x), abs(y)) <= 0.3,
    "diamond": lambda x, y: abs(x) + abs(y) <= 1,
    "ring": lambda x, y: abs(x**2 + y**2 - 0.65) <= 0.35,
}
"""For each shape whether points are inside: x to the right and y downwards, from −1 to 1 across the thing."""

GAP, MARGIN = 1, 3
"""In pixels: the least background between two things, and by how much the distances along the axes differ."""

HELD_OUT = frozenset(zip(COLOURS, SHAPES, strict=True))
"""Pairs of a colour and a shape that training never shows: each colour and each shape in one of them."""

SPLITS = ("train", "valid", "test", "new pairs")
BYTES = 16  # of randomness; a scene of three things uses 46 bits
SAMPLES = 8  # along each side of a pixel
Pairs = frozenset[tuple[str, str]]


class Thing(NamedTuple):
    """A thing in a scene; its centre is the middle of the pixel in column x of row y."""

    size: str
    colour: str
    shape: str
    x: int
    y: int

    @property
    def words(self) -> tuple[str, str, str]:
        """Its size, colour and shape, which a caption tells."""
        return self[:3]


@dataclass(frozen=True)
class Scene:
    """Two or three things, in the order in which the caption of this scene names them.

    Raises ValueError for another number of things, and for two that are not clear: see `is_clear`.
    """

    things: tuple[Thing, ...]

    def __post_init__(self) -> None:
        if len(self.things) not in (2, 3):
            raise ValueError(f"things must be two or three, got {len(self.things)}")
        for two in itertools.combinations(self.things, 2):
            if not is_clear(*two):
                raise ValueError(f"things must lie apart, each clearly on one side of the other, got {two}")

    @property
    def pairs(self) -> Pairs:
        """The pairs of a colour and a shape in it."""
        return frozenset((thing.colour, thing.shape) for thing in self.things)

    @property
    def split(self) -> str:
        """The split of all scenes with these things, wherever they lie: "train", "valid" or "test"."""
        return split_of(" ".join(sorted(" ".join(thing.words) for thing in self.things)))


PLACES = range(max(RADII.values()), SIDE - max(RADII.values()))
"""Columns and rows in which the centre of any thing may lie."""

THINGS: Space = Record(
    Thing,
    size=Choice(tuple(RADII)),
    colour=Choice(tuple(COLOURS)),
    shape=Choice(tuple(SHAPES)),
    x=Choice(PLACES),
    y=Choice(PLACES),
)


def side_of(thing: Thing, other: Thing) -> str | None:
    """Return on which side of another thing this one lies: left, right, above or below; None if that is not clear."""
    across, down = thing.x - other.x, thing.y - other.y
    if abs(abs(across) - abs(down)) < MARGIN:
        return None
    if abs(across) > abs(down):
        return "left" if across < 0 else "right"
    return "above" if down < 0 else "below"


def is_clear(thing: Thing, other: Thing) -> bool:
    """Return True if two things have background between them, and it is clear on which side each lies of the other."""
    farther = max(abs(thing.x - other.x), abs(thing.y - other.y))
    return farther > RADII[thing.size] + RADII[other.size] + GAP and side_of(thing, other) is not None


def naming_order(thing: Thing) -> tuple[float, ...]:
    """Return what things are sorted by: big ones first, then from left to right, of two in one column the upper one."""
    return -RADII[thing.size], thing.x, thing.y


def draw_scene(split: str, seed: int, number: int, held_out: Pairs = HELD_OUT) -> Scene:
    """Return scene `number` of a split, which follows from the arguments. Even numbers have two things, odd three.

    Things are sorted by `naming_order`. Those of one scene, wherever they lie, are those of no scene in another split.
    No scene of "train", "valid" or "test" has a pair of a colour and a shape in `held_out`; each of "new pairs" has one
    or more. Raises ValueError for an unknown split, a negative number, and "new pairs" where nothing is held out.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    if number < 0:
        raise ValueError(f"number must not be negative, got {number}")
    if split == "new pairs" and not held_out & set(itertools.product(COLOURS, SHAPES)):
        raise ValueError(f"the split 'new pairs' needs a pair of a colour and a shape in held_out, got {set(held_out)}")
    return next(
        scene
        for scene in _drawn(seed, number)
        if (scene.split if held_out.isdisjoint(scene.pairs) else "new pairs") == split
    )


def _drawn(seed: int, number: int) -> Iterator[Scene]:
    """Yield scenes without end, all equally likely: draws in which things touch, or lie unclearly, are left out."""
    for attempt in itertools.count():
        digits = int.from_bytes(blake2b(f"{seed} {number} {attempt}".encode(), digest_size=BYTES).digest(), "little")
        things = list[Thing]()
        for _ in range(2 + number % 2):
            thing, digits = THINGS.draw(digits)
            if not all(is_clear(thing, other) for other in things):
                break
            things.append(thing)
        else:
            yield Scene(tuple(sorted(things, key=naming_order)))


def count_scenes() -> dict[int, int]:
    """Return the exact number of scenes of two things and of three, in any order, in all splits together."""
    places = np.array(list(itertools.product(PLACES, PLACES)))
    distances = np.sort(abs(places[:, None] - places), axis=-1)  # (places, places, 2): the smaller and the larger
    sure = distances[..., 1] - distances[..., 0] >= MARGIN
    clear = {
        (one, other): (sure & (distances[..., 1] > one + other + GAP)).astype(np.float64)
        for one, other in itertools.product(RADII.values(), repeat=2)
    }
    looks = len(COLOURS) * len(SHAPES)
    two = sum(int(each.sum()) for each in clear.values())
    three = sum(
        int((clear[a, b] @ clear[b, c] * clear[a, c]).sum()) for a, b, c in itertools.product(RADII.values(), repeat=3)
    )
    return {2: looks**2 * two // 2, 3: looks**3 * three // 6}


def draw(scene: Scene) -> NDArray[np.float32]:
    """Return the picture of a scene, `(3, 32, 32)`: red, green and blue from −1 to 1 on grey, with smooth edges."""
    picture = np.zeros((3, SIDE, SIDE), np.float32)
    for thing in scene.things:
        radius = RADII[thing.size]
        covered = stencil(thing.shape, radius)
        box = picture[:, thing.y - radius : thing.y + radius + 1, thing.x - radius : thing.x + radius + 1]
        box += covered * (np.array(COLOURS[thing.colour], np.float32)[:, None, None] - box)
    return picture


@cache
def stencil(shape: str, radius: int) -> NDArray[np.float32]:
    """Return the part of each pixel that a shape covers, from 0 to 1, `(2·radius + 1, 2·radius + 1)`."""
    width = 2 * radius + 1
    points = (np.arange(width * SAMPLES) + 0.5) * 2 / (width * SAMPLES) - 1
    inside = SHAPES[shape](points[None, :], points[:, None])
    return inside.reshape(width, SAMPLES, width, SAMPLES).mean((1, 3), dtype=np.float32)
