"""Pictures of lesson 02: a look-up and its gradient, merge trees, vocabulary against length, words in a plane."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from minitransformer.data.tokenizer import BPETokenizer

from ..style import BLUE, COLOURS, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SIGNED, dark, show


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of tokens, each column as wide as its longest token."""
    widths = [max(map(len, column)) + 1 for column in zip(*rows, strict=True)]
    lines = ("".join(f"{token:<{width}}" for token, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"    {line}" for line in lines)


def draw_lookup(
    tokenizer: BPETokenizer,
    table: np.ndarray,
    ids: np.ndarray,
    dy: np.ndarray,
    dtable: np.ndarray,
    others: Sequence[int],
) -> None:
    """Draw a look-up of `ids` `(T,)` in `table` `(V, C)`, and its gradient: rows, places, and lines between them.

    Of the table, the rows of these ids are drawn, and `others`, which nobody looks up.
    """
    rows, tokens = [*dict.fromkeys(ids.tolist()), *others], tokenizer.tokens(ids)
    places = [1.0 * place for place in range(len(tokens))]
    heights = np.linspace(0, len(tokens) - 1, len(rows)).tolist()
    limit, width = 2.5, 1.8
    _, panels = plt.subplots(1, 2, figsize=(7.4, 3.4))
    sides = (
        ("forward: rows are read", table[rows], table[ids], "E", "y"),
        ("backward: gradients are added", dtable[rows], dy, "dE", "dy"),
    )
    for axes, (title, left, right, left_name, right_name) in zip(panels, sides, strict=True):
        for vectors, at, start in ((left, heights, 0.0), (right, places, 5.0)):
            for vector, height in zip(vectors, at, strict=True):
                box = (start, start + width, height - 0.33, height + 0.33)
                axes.imshow(vector[None], cmap=SIGNED, vmin=-limit, vmax=limit, extent=box, aspect="auto", zorder=2)
                axes.add_patch(Rectangle((start, height - 0.33), width, 0.66, fill=False, ec=GREY, lw=0.5, zorder=3))
        for height, row, label in zip(heights, rows, tokenizer.tokens(rows), strict=True):
            axes.text(-0.15, height, f"{label}  {row}", ha="right", va="center", fontsize=8, color=INK)
            looked_up = [place for place, i in zip(places, ids, strict=True) if i == row]
            for place in looked_up:
                ends = ((width, height), (5.0, place))
                start, end = ends if left_name == "E" else ends[::-1]
                style = {
                    "arrowstyle": "-|>",
                    "color": INK,
                    "lw": 1.8 if len(looked_up) > 1 else 0.6,
                    "shrinkA": 1,
                    "shrinkB": 1,
                }
                axes.annotate("", end, start, arrowprops=style)
        for place, token in zip(places, tokens, strict=True):
            axes.text(5.15 + width, place, token, ha="left", va="center", fontsize=8, color=INK)
        for place, name in ((width / 2, left_name), (5 + width / 2, right_name)):
            axes.text(place, -0.75, name, ha="center", va="center", color=INK)
        axes.set(xlim=(-1.9, 8.2), ylim=(len(tokens) - 0.5, -1.1))
        axes.set_title(title)
        axes.axis("off")
    show(
        "Rows of a table are copied to the places of their tokens; on the way back the gradients of the places are "
        "added to the rows. The row of a token that stands in the sentence twice is read twice and gets the sum of "
        "two gradients; rows that nobody reads get zeros."
    )


def draw_merge_trees(words: Sequence[str], merges: Sequence[tuple[str, str]], cuts: Sequence[int]) -> None:
    """Draw the merges of byte-pair encoding that make each of `words`, the oldest lowest, with lines at `cuts`."""
    trees = [_tree(word, merges) for word in words]
    numbers = sorted({joint.number for tree in trees for joint in tree})
    row_of = {number: row for row, number in enumerate(numbers, start=1)}
    widths = [len(word) + 1 for word in words]
    _, panels = plt.subplots(1, len(words), figsize=(7.2, 4.8), width_ratios=widths, sharey=True, squeeze=False)
    for axes, word, tree in zip(panels[0], words, trees, strict=True):
        for place, character in enumerate(word):
            axes.text(place, -0.15, character.replace(" ", "▁"), ha="center", va="top", color=INK)
        for joint in tree:
            height = row_of[joint.number]
            (left, low), (right, lower) = ((place, row_of.get(number, 0)) for place, number in joint.parts)
            axes.plot([left, left, right, right], [low, height, height, lower], color=GREY, lw=1, zorder=1)
            axes.text(
                joint.place, height, joint.text.replace(" ", "▁"), ha="center", va="center", fontsize=7, zorder=2,
                bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"},
            )  # fmt: skip
        for cut in cuts:
            axes.axhline(sum(number <= cut for number in numbers) + 0.5, color=GREEN, lw=1.2, ls=":", zorder=0)
        axes.set(ylim=(-1, len(numbers) + 0.8), xlim=(-0.7, len(word) - 0.3), xticks=[])
        axes.spines["bottom"].set_visible(False)
    panels[0, 0].set_yticks(list(row_of.values()), [f"{number:,}" for number in numbers], fontsize=7)
    panels[0, 0].set_ylabel("number of the merge")
    for cut in cuts:
        height = sum(number <= cut for number in numbers) + 0.5
        panels[0, -1].text(
            1.0, height, f"{cut} merges", transform=panels[0, -1].get_yaxis_transform(), ha="right", va="bottom",
            color=GREEN, fontsize=7,
        )  # fmt: skip
    show(
        "Two words as trees of merges, from characters at the bottom to the whole word at the top. Early merges join "
        "frequent pairs of letters, later ones join pieces of words."
    )


class Joint(NamedTuple):
    """A merge in a word: its number, what it makes, its place, and its two parts' (place, number; 0 a character)."""

    number: int
    text: str
    place: float
    parts: tuple[tuple[float, int], tuple[float, int]]


def _tree(word: str, merges: Sequence[tuple[str, str]]) -> list[Joint]:
    """The merges that put `word` together, in their order."""
    nodes = [(character, float(place), 0) for place, character in enumerate(word)]
    joints = []
    for number, (left, right) in enumerate(merges, start=1):
        joined = nodes[:1]
        for node in nodes[1:]:
            first = joined[-1]
            if (first[0], node[0]) == (left, right):
                place = (first[1] + node[1]) / 2
                joints.append(Joint(number, left + right, place, (first[1:], node[1:])))
                joined[-1] = (left + right, place, number)
            else:
                joined.append(node)
        nodes = joined
    return joints


def draw_vocabulary(
    sizes: np.ndarray, lengths: Mapping[str, np.ndarray], word_lengths: Mapping[str, float], num_words: int,
    rare: np.ndarray,
) -> None:  # fmt: skip
    """Draw the tokens of a sentence against the vocabulary's size, by language, and the share of rare tokens."""
    _, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.1))
    for (language, length), colour, style in zip(lengths.items(), (BLUE, ORANGE), ("o-", "s--"), strict=True):
        left.plot(sizes, length, style, ms=3, color=colour, label=language)
        left.plot(num_words, word_lengths[language], "*", ms=10, color=colour)
    left.set(xscale="log", xlabel="tokens in the vocabulary", ylabel="tokens in a sentence (mean)", ylim=(0, 85))
    left.set_title("a larger vocabulary, shorter sentences …")
    whole = num_words, min(word_lengths.values())
    left.annotate("whole words", whole, (0, -16), textcoords="offset points", ha="center")
    left.annotate("characters", (sizes[0], max(v[0] for v in lengths.values())), (7, 2), textcoords="offset points")
    left.legend()
    right.plot(sizes, 100 * rare, "o-", ms=3, color=PURPLE)
    right.set(xscale="log", xlabel="tokens in the vocabulary", ylabel="seen less than ten times (%)", ylim=(0, None))
    right.set_title("… and more tokens hardly seen")
    show(
        "The larger the vocabulary, the fewer tokens in a sentence, down to about as many as it has words; but the "
        "share of tokens that are hardly ever seen rises to about a half."
    )


def draw_map(points: np.ndarray, words: Sequence[str], kinds: Sequence[str], shares: np.ndarray) -> None:
    """Draw words at `points` `(N, 2)`, coloured by kind, named where there is room; `shares` of variance."""
    figure, axes = plt.subplots(figsize=(7.2, 4.8))
    names = list(dict.fromkeys(kinds))
    colours = dict(zip(names, [*COLOURS, GREY], strict=False))
    for kind, mark in zip(names, "os^DvP*", strict=False):
        chosen = [place for place, k in zip(points, kinds, strict=True) if k == kind]
        axes.plot(*np.transpose(chosen), mark, ms=3, color=colours[kind], label=kind)
    axes.set(
        title="Nouns by what stands beside them",
        xlabel=f"first principal component ({shares[0]:.0%} of the variance)",
        ylabel=f"second ({shares[1]:.0%})",
    )
    axes.margins(0.06)
    axes.legend(ncols=len(names), loc="lower center", bbox_to_anchor=(0.5, 1.06), columnspacing=1, handletextpad=0.1)
    figure.draw_without_rendering()
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in axes.transData.transform(points)]
    for (x, y), word, kind in zip(points, words, kinds, strict=True):
        at_x, at_y = axes.transData.transform((x, y))
        width = 7 + 5.2 * len(word)
        for side, offset in (("left", 4), ("right", -4)):
            start = at_x + 5 if offset > 0 else at_x - width
            box = (start, at_y - 5, start + width - 5, at_y + 5)
            if all(box[2] < b[0] or box[0] > b[2] or box[3] < b[1] or box[1] > b[3] for b in taken):
                axes.annotate(
                    word, (x, y), (offset, 0), textcoords="offset points", ha=side, va="center", fontsize=7,
                    color=dark(colours[kind]),
                )  # fmt: skip
                taken.append(box)
                break
    axes.set_facecolor("white")
    axes.grid(color=PALE)
    show(
        "Nouns in a plane, placed by the words beside them. People, animals, places, food, texts and objects form "
        "groups of their own, though the program was told no meanings; clothes lie among the objects."
    )
