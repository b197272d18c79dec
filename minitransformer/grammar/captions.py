"""Captions of scenes in English and German, a parser that reads them back, and a judge who compares them with a scene.

English: A big red circle is left of a small blue square, which is above a small green ring.
German: Ein großer roter Kreis liegt links von einem kleinen blauen Quadrat, das über einem kleinen grünen Ring liegt.
"""

from __future__ import annotations

import itertools
import re
from typing import Literal, NamedTuple, get_args

from .german import RELATIVE_PRONOUNS
from .lexicon.adjectives import ADJECTIVES, ENDINGS
from .lexicon.function_words import A
from .scenes import COLOURS, RADII, SHAPES, Scene, side_of
from .syntax import DATIVE, FEMININE, MASCULINE, NEUTER, NOMINATIVE

Language = Literal["english", "german"]
NOUNS = {
    "circle": ("Kreis", MASCULINE),
    "square": ("Quadrat", NEUTER),
    "triangle": ("Dreieck", NEUTER),
    "cross": ("Kreuz", NEUTER),
    "diamond": ("Raute", FEMININE),
    "ring": ("Ring", MASCULINE),
}
"""The German noun of each shape, with its gender."""

SIDES = {
    "left": ("left of", "links von"),
    "right": ("right of", "rechts von"),
    "above": ("above", "über"),
    "below": ("below", "unter"),
}
"""The prepositions in English and German, where they take the dative."""

GERMAN = {each.english: each.german for each in ADJECTIVES}
PARTS = ("size", "colour", "shape", "relation")
"""The parts of a caption, which are judged one by one."""


class Description(NamedTuple):
    """The content of a caption, in its order: two or three things, and on which side of the next one each lies."""

    sizes: tuple[str, ...]
    colours: tuple[str, ...]
    shapes: tuple[str, ...]
    sides: tuple[str, ...]


class Verdict(NamedTuple):
    """A judgement of a caption: `true` if all of it is, and for each part True if all its words are right."""

    true: bool
    size: bool = False
    colour: bool = False
    shape: bool = False
    relation: bool = False


def describe(scene: Scene) -> Description:
    """Return the content of the caption of a scene."""
    sizes, colours, shapes = zip(*(thing.words for thing in scene.things), strict=True)
    sides = tuple(side_of(*two) or "" for two in itertools.pairwise(scene.things))
    return Description(sizes, colours, shapes, sides)


def caption(scene: Scene, language: Language = "english") -> str:
    """Return the caption of a scene, which names its things in their order."""
    return spell(describe(scene), language)


def spell(description: Description, language: Language = "english") -> str:
    """Return a description as a sentence."""
    text = _english(*description) if language == "english" else _german(*description)
    return text[0].upper() + text[1:] + "."


def _english(sizes: tuple[str, ...], colours: tuple[str, ...], shapes: tuple[str, ...], sides: tuple[str, ...]) -> str:
    first, *others = (f"a {' '.join(words)}" for words in zip(sizes, colours, shapes, strict=True))
    return first + ", which".join(f" is {SIDES[side][0]} {other}" for side, other in zip(sides, others, strict=True))


def _german(sizes: tuple[str, ...], colours: tuple[str, ...], shapes: tuple[str, ...], sides: tuple[str, ...]) -> str:
    words = zip(sizes, colours, shapes, strict=True)
    first, *others = (_noun_phrase(*each, DATIVE if place else NOMINATIVE) for place, each in enumerate(words))
    text = f"{first} liegt {SIDES[sides[0]][1]} {others[0]}"
    for shape, side, other in zip(shapes[1:], sides[1:], others[1:], strict=False):
        text += f", {RELATIVE_PRONOUNS[NOUNS[shape][1]][NOMINATIVE]} {SIDES[side][1]} {other} liegt"
    return text


def _noun_phrase(size: str, colour: str, shape: str, case: int) -> str:
    noun, gender = NOUNS[shape]
    article, ending = A.german[gender][case]
    return f"{article} {GERMAN[size][ending]} {GERMAN[colour][ending]} {noun}"


def _vocabulary(language: Language) -> list[dict[str, str]]:
    """Return the words that tell sizes, colours, shapes and sides, each with what it stands for."""
    if language == "english":
        return [{word: word for word in words} for words in (RADII, COLOURS, SHAPES, SIDES)]
    inflected = ({GERMAN[word][ending]: word for word in words for ending in ENDINGS} for words in (RADII, COLOURS))
    nouns = {noun: shape for shape, (noun, _) in NOUNS.items()}
    sides = {german.split()[0]: side for side, (_, german) in SIDES.items()}
    return [*inflected, nouns, sides]


LANGUAGES: tuple[Language, ...] = get_args(Language)
VOCABULARIES = {language: _vocabulary(language) for language in LANGUAGES}


def parse(text: str, language: Language = "english") -> Description | None:
    """Return what a caption says, or None if it is not one: a caption is what `spell` writes, letter by letter."""
    words = re.findall(r"\w+", text)
    said = Description(*(tuple(table[word] for word in words if word in table) for table in VOCABULARIES[language]))
    count = len(said.sizes)
    whole = count in (2, 3) and list(map(len, said)) == [count, count, count, count - 1]
    return said if whole and spell(said, language) == text else None


def judge(text: str, scene: Scene, language: Language = "english") -> Verdict:
    """Compare a caption with a scene, whose things it may name in any order.

    Of all ways to find the caption's things in the scene, the one counts in which most words are right. A text that is
    no caption, or that names another number of things, is wrong in every part.
    """
    said = parse(text, language)
    if said is None or len(said.sizes) != len(scene.things):
        return Verdict(False)
    orders = (describe(Scene(things)) for things in itertools.permutations(scene.things))
    right = [
        [[word == other for word, other in zip(*part, strict=True)] for part in zip(said, true, strict=True)]
        for true in orders
    ]
    parts = [all(part) for part in max(right, key=lambda parts: sum(map(sum, parts)))]
    return Verdict(all(parts), *parts)
