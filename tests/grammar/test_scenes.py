"""Scenes and their captions: what is drawn, what is said of it, and who judges whether that is true."""

import itertools

import numpy as np
import pytest

from minitransformer.grammar.captions import PARTS, SIDES, Description, caption, describe, judge, parse, spell
from minitransformer.grammar.scenes import (
    COLOURS,
    HELD_OUT,
    PLACES,
    RADII,
    SHAPES,
    SIDE,
    SPLITS,
    THINGS,
    Scene,
    Thing,
    count_scenes,
    draw,
    draw_scene,
    is_clear,
    side_of,
)

LOOKS = list(itertools.product(RADII, COLOURS, SHAPES))
SCENES = [draw_scene("train", 3, number) for number in range(400)]
LEFT, MIDDLE, BELOW = (
    Thing("big", "red", "circle", 6, 6),
    Thing("small", "blue", "square", 20, 9),
    Thing("big", "green", "diamond", 20, 25),
)
THREE = Scene((LEFT, MIDDLE, BELOW))
ENGLISH = "A big red circle is left of a small blue square, which is above a big green diamond."
GERMAN = "Ein großer roter Kreis liegt links von einem kleinen blauen Quadrat, das über einer großen grünen Raute liegt"
GERMAN += "."


# --- Captions -------------------------------------------------------------------------------------------------


def test_a_scene_has_a_caption_in_english_and_in_german():
    assert (caption(THREE), caption(THREE, "german")) == (ENGLISH, GERMAN)
    assert caption(Scene((MIDDLE, LEFT))) == "A small blue square is right of a big red circle."
    assert caption(Scene((BELOW, MIDDLE)), "german") == (
        "Eine große grüne Raute liegt unter einem kleinen blauen Quadrat."
    )


NOMINATIVE = {"m": ("ein", "er"), "n": ("ein", "es"), "f": ("eine", "e")}
DATIVE = {"m": "einem", "n": "einem", "f": "einer"}
PRONOUN = {"m": "der", "n": "das", "f": "die"}
GENDERS = {"circle": "mKreis", "square": "nQuadrat", "triangle": "nDreieck", "cross": "nKreuz"}
GENDERS |= {"diamond": "fRaute", "ring": "mRing"}
STEMS = {"red": "rot", "green": "grün", "blue": "blau", "yellow": "gelb", "black": "schwarz", "white": "weiß"}
STEMS |= {"small": "klein", "big": "groß"}


@pytest.mark.parametrize("look", LOOKS, ids="-".join)
def test_german_endings_of_every_thing_in_every_place(look):
    """After "ein" an adjective ends in -er, -es, -e by the gender; in the dative both end in -en."""
    size, colour, shape = look
    gender, noun = GENDERS[shape][0], GENDERS[shape][1:]
    article, ending = NOMINATIVE[gender]
    said = Description((size,) * 3, (colour,) * 3, (shape,) * 3, ("left", "above"))
    dative = f"{DATIVE[gender]} {STEMS[size]}en {STEMS[colour]}en {noun}"
    first = f"{article} {STEMS[size]}{ending} {STEMS[colour]}{ending} {noun}"
    expected = f"{first} liegt links von {dative}, {PRONOUN[gender]} über {dative} liegt."
    assert spell(said, "german") == expected[0].upper() + expected[1:]


@pytest.mark.parametrize("language", ["english", "german"])
def test_every_caption_is_read_back(language):
    """Every look in each of three places beside one of the others, and every pair of sides."""
    others = itertools.cycle(LOOKS[1:])
    for first, place in itertools.product(LOOKS, range(3)):
        things = [next(others), next(others), next(others)]
        things[place] = first
        for sides in [("left",), ("above", "right"), *itertools.product(SIDES, repeat=2)][place::3]:
            sizes, colours, shapes = zip(*things[: len(sides) + 1], strict=True)
            said = Description(sizes, colours, shapes, sides)
            assert parse(spell(said, language), language) == said


@pytest.mark.parametrize(
    "text",
    [
        "",
        ENGLISH.lower(),
        ENGLISH[:-1],
        ENGLISH.replace(",", ""),
        ENGLISH.replace("left of", "left"),
        ENGLISH.replace("A big red", "A red big"),
        "A big red circle.",
        ENGLISH[:-1] + ", which is above a big green diamond.",
        GERMAN,
    ],
)
def test_what_is_no_caption_is_not_read(text):
    assert parse(text) is None
    assert judge(text, THREE) == (False,) * 5


@pytest.mark.parametrize("wrong", [("roter", "rotes"), ("einer", "einem"), ("das", "der"), ("kleinen", "kleinem")])
def test_german_with_a_wrong_ending_is_not_read(wrong):
    assert parse(GERMAN, "german") is not None
    assert parse(GERMAN.replace(*wrong), "german") is None


@pytest.mark.parametrize("language", ["english", "german"])
def test_the_judge_takes_every_true_caption_and_no_other_number_of_things(language):
    for scene in SCENES[:20]:
        for things in itertools.permutations(scene.things):
            assert judge(caption(Scene(things), language), scene, language) == (True,) * 5
        other = Scene(scene.things[:2]) if len(scene.things) == 3 else THREE
        assert judge(caption(other, language), scene, language) == (False,) * 5


def test_the_judge_refuses_each_changed_word_and_names_its_part():
    words = dict(zip(PARTS, (RADII, COLOURS, SHAPES, SIDES), strict=True))
    tried = 0
    for scene in SCENES[:60]:
        said = describe(scene)
        if len(set(zip(*said[:3], strict=True))) < len(scene.things):
            continue  # of two equal things each lies left and right of the other
        for part, (field, values) in zip(PARTS, zip(said._fields, said, strict=True), strict=True):
            for place, other in itertools.product(range(len(values)), words[part]):
                if other != values[place]:
                    changed = said._replace(**{field: (*values[:place], other, *values[place + 1 :])})
                    verdict = judge(spell(changed), scene)
                    assert not verdict.true
                    assert not all(verdict[1:])
                    tried += 1
    assert tried > 1500
    wrong = judge(ENGLISH.replace("red", "white").replace("above", "left of"), THREE)
    assert wrong._asdict() == {"true": False, "size": True, "colour": False, "shape": True, "relation": False}


# --- Scenes ---------------------------------------------------------------------------------------------------


def test_of_two_things_it_is_clear_where_each_lies():
    opposite = {"left": "right", "right": "left", "above": "below", "below": "above"}
    for scene in SCENES:
        for one, other in itertools.combinations(scene.things, 2):
            side = side_of(one, other)
            assert side is not None
            assert side_of(other, one) == opposite[side]
    centre = Thing("small", "red", "ring", 15, 15)
    sides = [side_of(centre._replace(x=15 + x, y=15 + y), centre) for x, y in ((-8, 5), (8, 6), (0, -3), (-4, 7))]
    assert sides == ["left", None, "above", "below"]
    assert [is_clear(centre._replace(x=15 + x), centre) for x in (7, 8)] == [False, True]


def test_a_scene_follows_from_its_number_alone():
    assert [draw_scene("train", 3, number) for number in (7, 2)] == [SCENES[7], SCENES[2]]
    assert len(set(SCENES)) == len(SCENES)
    assert [len(scene.things) for scene in SCENES[:4]] == [2, 3, 2, 3]
    assert draw_scene("train", 4, 7) != SCENES[7]


def test_big_things_are_named_first_and_others_from_left_to_right():
    for scene in SCENES:
        for one, next_one in itertools.pairwise(scene.things):
            assert (one.size, next_one.size) != ("small", "big")
            if one.size == next_one.size:
                assert (one.x, one.y) < (next_one.x, next_one.y)
    said = {side for scene in SCENES for side in describe(scene).sides}
    assert said == set(SIDES)


def test_splits_share_no_things_that_stand_together_and_new_pairs_are_only_in_their_own():
    together = {}
    for split in SPLITS:
        scenes = [draw_scene(split, 0, number) for number in range(100)]
        together[split] = {tuple(sorted(thing.words for thing in scene.things)) for scene in scenes}
        for scene in scenes:
            assert (not HELD_OUT.isdisjoint(scene.pairs)) == (split == "new pairs")
    for one, other in itertools.combinations(SPLITS, 2):
        assert together[one].isdisjoint(together[other])
    none = [draw_scene("train", 0, number, frozenset()) for number in range(100)]
    assert any(not HELD_OUT.isdisjoint(scene.pairs) for scene in none)
    # held out: each colour once, each shape once
    assert {colour for colour, _ in HELD_OUT} == set(COLOURS)
    assert {shape for _, shape in HELD_OUT} == set(SHAPES)


def test_every_word_and_place_is_drawn():
    seen = [set(values) for values in zip(*(thing for scene in SCENES for thing in scene.things), strict=True)]
    assert seen == [set(RADII), set(COLOURS), set(SHAPES), set(PLACES), set(PLACES)]


def test_the_number_of_scenes_is_exact():
    """Two things are counted by distances along the axes; three by the share of random triples, within 4 deviations."""
    assert count_scenes() == {2: 577_134_720 // 2, 3: 4_423_367_273_472 // 6}  # in any order
    wide, two = len(PLACES), 0
    for one, other, x, y in itertools.product(RADII, RADII, range(wide), range(wide)):  # a distance has two directions
        things = Thing(one, "red", "ring", x, y), Thing(other, "red", "ring", 0, 0)
        two += is_clear(*things) * (wide - x) * (wide - y) * (1 + (x > 0)) * (1 + (y > 0))
    assert count_scenes()[2] == two * 36**2 // 2
    rng, tries = np.random.default_rng(0), 8000
    triples = [[THINGS.draw(int(digits))[0] for digits in row] for row in rng.integers(0, 2**60, (tries, 3))]
    hits = sum(all(is_clear(*two) for two in itertools.combinations(triple, 2)) for triple in triples)
    share = 6 * count_scenes()[3] / THINGS.size**3
    assert abs(hits / tries - share) < 4 * (share * (1 - share) / tries) ** 0.5


@pytest.mark.parametrize(
    ("things", "message"),
    [
        ((LEFT,), "things must be two or three, got 1"),
        ((LEFT, LEFT._replace(x=17, y=16)), "things must lie apart, each clearly on one side of the other"),
        ((LEFT, LEFT._replace(y=16)), "things must lie apart"),
    ],
)
def test_things_that_make_no_scene(things, message):
    with pytest.raises(ValueError, match=message):
        Scene(things)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dev", 0, 0), "split must be one of train, valid, test, new pairs, got 'dev'"),
        (("train", 0, -1), "number must not be negative, got -1"),
        (("new pairs", 0, 0, frozenset()), "needs a pair of a colour and a shape in held_out"),
    ],
)
def test_a_scene_that_is_none(arguments, message):
    with pytest.raises(ValueError, match=message):
        draw_scene(*arguments)


# --- Pictures -------------------------------------------------------------------------------------------------


def test_a_thing_has_its_colour_and_lies_within_its_box():
    for scene in SCENES[:100]:
        picture, left = draw(scene), np.zeros((3, SIDE, SIDE), np.float32)
        for thing in scene.things:
            colour, radius = np.array(COLOURS[thing.colour], np.float32), RADII[thing.size]
            middle = 0 * colour if thing.shape == "ring" else colour
            np.testing.assert_allclose(picture[:, thing.y, thing.x], middle, atol=1e-6)
            rows, columns = (slice(place - radius, place + radius + 1) for place in (thing.y, thing.x))
            covered = picture[:, rows, columns] / colour[:, None, None]  # of its own colour alone, more or less of it
            np.testing.assert_allclose(covered, np.broadcast_to(covered[:1], covered.shape), atol=1e-6)
            assert covered[:, [0, -1]].any()  # it reaches its box's edges
            assert covered[:, :, [0, -1]].any()
            left[:, rows, columns] = picture[:, rows, columns]
        np.testing.assert_array_equal(picture, left)  # all else is grey
        assert picture.dtype == np.float32


def test_a_big_thing_has_the_larger_area_and_no_two_shapes_look_alike():
    pictures = {}
    for shape in SHAPES:
        scenes = (Scene((Thing(size, "white", shape, 8, 8), Thing("big", "red", "ring", 26, 8))) for size in RADII)
        small, big = (draw(scene)[:, :, :16] for scene in scenes)
        assert big.sum() > 2 * small.sum() > 0
        pictures[shape] = small
    for one, other in itertools.combinations(pictures.values(), 2):
        assert abs(one - other).sum() / 3 > 3  # pixels
