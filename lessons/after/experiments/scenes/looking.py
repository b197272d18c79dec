"""The looks of a word: the part of its cross-attention that lies on the patches of the thing it names."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minitransformer.data.batching import BOS_ID
from minitransformer.data.scenes import SceneDataset, caption_tokenizer
from minitransformer.grammar.captions import PARTS, caption
from minitransformer.grammar.scenes import COLOURS, RADII, SHAPES, Scene, Thing, draw
from minitransformer.inside import attention_maps
from minitransformer.models import Captioner

NAMING = PARTS[:3]
"""The parts whose words name one thing: its size, its colour, its shape."""

KINDS = dict(zip(NAMING, (RADII, COLOURS, SHAPES), strict=True))


def patches_of(thing: Thing, side: int, patch: int) -> NDArray[np.bool_]:
    """Return True for each patch, row by row, that the box of a thing reaches."""
    reached, radius = np.zeros((side // patch, side // patch), bool), RADII[thing.size]
    rows, columns = (slice((at - radius) // patch, (at + radius) // patch + 1) for at in (thing.y, thing.x))
    reached[rows, columns] = True
    return reached.ravel()


def words_of(scene: Scene) -> list[tuple[int, str, int]]:
    """Return for each word of the caption that names a thing its place, its part, and the number of the thing."""
    words, tokenizer = list[tuple[int, str, int]](), caption_tokenizer()
    tokens = [token.strip("▁") for token in tokenizer.tokens(tokenizer.encode(caption(scene)))]
    for part, known in KINDS.items():
        places = [place for place, token in enumerate(tokens) if token in known]
        words += [(place, part, number) for number, place in enumerate(places)]
    return words


def cross_maps(model: Captioner, scene: Scene) -> NDArray[np.floating]:
    """Return the cross-attention of each head as it writes each word of the caption, `(L, H, T, patches)`.

    The map of a word is that of the position before it, which writes it.
    """
    ids = [BOS_ID, *caption_tokenizer().encode(caption(scene))]
    maps = attention_maps(model, draw(scene)[None], np.array([ids]))
    return np.stack([weights[0] for name, weights in maps.items() if "cross" in name])


def looks(model: Captioner, count: int) -> dict[str, Any]:
    """Return mean shares over the words of each part: `own` and `others` `(L, H)`, and `even`, `others even`.

    own     the attention on the patches of the thing that the word names
    others  on those of the other things, without the patches that the named thing reaches too
    even    the part of the patches that are the thing's, which attention to everything alike would have; likewise of
            the others
    """
    config, found = model.config, {part: list[tuple]() for part in NAMING}
    for scene in SceneDataset("test", count).scenes:
        maps = cross_maps(model, scene)
        reached = [patches_of(thing, config.image_size, config.patch_size) for thing in scene.things]
        for place, part, number in words_of(scene):
            own = reached[number]
            others = np.logical_or.reduce(reached) & ~own
            shares = (maps[:, :, place, which].sum(-1) for which in (own, others))
            found[part].append((*shares, own.mean(), others.mean()))
    names = ("own", "others", "even", "others even")
    return {
        part: {name: np.mean(each, 0).tolist() for name, each in zip(names, zip(*rows, strict=True), strict=True)}
        for part, rows in found.items()
    }


def best_head(shares: dict[str, Any]) -> tuple[int, int]:
    """Return layer and head whose words look most at the thing that they name, over all parts."""
    own = np.mean([shares[part]["own"] for part in NAMING], 0)
    layer, head = np.unravel_index(own.argmax(), own.shape)
    return int(layer), int(head)


def example(model: Captioner, shares: dict[str, Any], number: int = 1) -> dict[str, Any]:
    """Return a scene's number, the words for its first two things, and the best head's maps `(words, patches)`."""
    layer, head = best_head(shares)
    scene = SceneDataset("test", number + 1).scene(number)
    maps = cross_maps(model, scene)[layer, head]
    chosen: Sequence[tuple[int, str, int]] = sorted(word for word in words_of(scene) if word[2] < 2)
    said = [getattr(scene.things[thing], part) for _, part, thing in chosen]
    return {"scene": number, "words": said, "maps": [maps[place].round(4).tolist() for place, _, _ in chosen]}
