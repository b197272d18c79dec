"""Lesson 21: hiding words, the gradient of a loss at some places, back through [CLS]."""

from typing import Any

import numpy as np

from minitransformer.data.masked import hide
from minitransformer.gradcheck import error
from minitransformer.models import BERT, IGNORED, BERTConfig
from minitransformer.ops import cross_entropy_backward, cross_entropy_forward

from ..checks import (
    in_case,
    require,
    require_arrays,
    require_close,
    require_gradients,
    require_none_of,
    type_name,
)
from ..exercise import Attempt, Wrong, exercise

CLS, SEP, FIRST = 1, 2, 3


def _mask_batch(ids: np.ndarray, mask_id: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return hide(ids, mask_id, rng, np.arange(FIRST, mask_id))


@exercise(answer=_mask_batch)
def mask_batch(attempt: Attempt) -> None:
    lengths = [2, 5, 7, 13, 20, 23]  # for none of them is 15 % halfway between two whole numbers
    ids = _batch(np.random.default_rng(0), [lengths[row % 6] for row in range(120)], mask_id=60)
    hidden, targets = _masked(attempt, ids, 60, 1)
    again, same = _masked(attempt, ids, 60, 1)
    require(
        np.array_equal(hidden, again) and np.array_equal(targets, same),
        "with two generators of one seed it gives two different results: all that is random must come from rng",
    )
    _judge_choice(ids, hidden, targets, 60)

    rows = 2000
    ids = _batch(np.random.default_rng(2), [20] * rows, mask_id=31)  # half of the vocabulary does not occur in it
    rng = np.random.default_rng(3)
    hidden, targets = _masked(attempt, ids, 60, rng)
    _judge_choice(ids, hidden, targets, 60)
    _judge_places(targets[:, 1:21] != IGNORED)
    _, other = _masked(attempt, ids, 60, rng)
    require(
        not np.array_equal(targets, other),
        "two calls with one generator choose the same places: each batch is to be masked anew, with the numbers that "
        "rng gives next",
    )
    _judge_fates(ids, hidden, targets, 60)
    for mask_id in (5, 4):  # with so few words, drawing one too many or too few changes the shares visibly
        ids = _batch(np.random.default_rng(4), [20] * rows, mask_id)
        with in_case(f"with the words 3 to {mask_id - 1} alone"):
            hidden, targets = _masked(attempt, ids, mask_id, 5)
            _judge_choice(ids, hidden, targets, mask_id)
            _judge_fates(ids, hidden, targets, mask_id)
    row = _batch(np.random.default_rng(6), [20], mask_id=60)
    rng = np.random.default_rng(7)
    masks = {int((_masked(attempt, row, 60, rng)[0] == 60).sum()) for _ in range(60)}
    require(
        len(masks) > 1,
        f"in a batch of one row always {min(masks)} of the 3 targets are masked: do not divide a batch's targets into "
        "80, 10 and 10 %, but throw the dice for each",
    )


def _batch(rng: np.random.Generator, lengths: list[int], mask_id: int) -> np.ndarray:
    """Return rows [CLS] words [SEP], padded, with the given numbers of words."""
    places, end = np.arange(max(lengths) + 4), np.array(lengths)[:, None] + 1
    ids = rng.integers(FIRST, mask_id, (len(lengths), len(places)))
    ids[:, 0] = CLS
    return np.where(places < end, ids, SEP * (places == end))


def _masked(
    attempt: Attempt, ids: np.ndarray, mask_id: int, seed: int | np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the attempt's two arrays for a batch, after checks of their types and shapes."""
    result = attempt(ids, mask_id, np.random.default_rng(seed))
    require(
        isinstance(result, tuple | list) and len(result) == 2,
        f"it must return two arrays (hidden, targets), not {_described(result)}",
    )
    for name, each in zip(("hidden", "targets"), result, strict=True):
        require(type(each) is np.ndarray, f"{name} must be an array, not {type(each).__name__}")
        require(each.dtype.kind == "i", f"{name} is {each.dtype}, and ids are integers")
        require(each.shape == ids.shape, f"{name} has shape {each.shape} and must have that of ids, {ids.shape}")
    hidden, targets = result
    require(
        not ((hidden == IGNORED).any() and (targets == mask_id).any()),
        "the two arrays are returned in the other order: first what the model sees, then the targets",
    )
    return hidden, targets


def _described(result: Any) -> str:
    return f"{len(result)}" if isinstance(result, tuple | list) else f"one {type_name(result)}"


def _judge_choice(ids: np.ndarray, hidden: np.ndarray, targets: np.ndarray, mask_id: int) -> None:
    """Raise `Wrong` for wrong places or numbers of targets in the rows, and for changes at other places."""
    chosen, words = targets != IGNORED, (ids > SEP) & (ids < mask_id)
    require(chosen.any(), f"no place is chosen: targets is {IGNORED} everywhere")
    require(not chosen.all(), f"targets is nowhere {IGNORED}, which it must be wherever nothing is asked")
    require(
        not (chosen & (ids == 0)).any(),
        f"padding is among the targets: only words are chosen, ids {FIRST} to {mask_id - 1}",
    )
    require(
        not (chosen & ~words).any(), f"[CLS] or [SEP] is among the targets: only words are, {FIRST} to {mask_id - 1}"
    )
    require(
        not (targets[chosen] == mask_id).any(),
        "a target is the mask itself: a target is what stood there before, so read it off ids, not off the new array",
    )
    require(
        np.array_equal(targets[chosen], ids[chosen]),
        "a target is another word than the one that stood there: where a place is chosen, targets has its id from ids",
    )
    require(
        (hidden[~chosen] == ids[~chosen]).all(),
        "a token changes at a place that is no target: what is not chosen stays as it is",
    )
    found, count = chosen.sum(axis=1), words.sum(axis=1)
    expected = np.maximum(1, np.rint(0.15 * count)).astype(int)
    if (found == expected).all():
        return
    often, asked = (np.bincount(each, minlength=mask_id) for each in (ids[words], targets[chosen]))
    never = np.flatnonzero((often > 300) & (asked == 0))
    if len(never):
        raise Wrong(f"word {never[0]} is never a target: all words may be, {FIRST} to {mask_id - 1}")
    lost = found[(expected == 1) & (count > 3)] == 0
    require(
        (hidden[chosen] == ids[chosen]).any() or (found > expected).any() or not lost.any() or lost.all(),
        "the targets whose word stays are missing in targets: they are asked too, though hidden has the same id as ids",
    )
    if not found.all():
        raise Wrong(f"a row of {count[found == 0].min()} words has no target: each row has one at least")
    row = int(np.argmax(found != expected))
    of_row = f"a row of {count[row]} words has {found[row]} target{'s' if found[row] > 1 else ''} and must have"
    require(
        not (found == np.maximum(1, (0.15 * count).astype(int))).all(),
        f"{of_row} {expected[row]}: 15 % are rounded to the nearest whole number, not down",
    )
    require(
        not (found == np.maximum(1, np.ceil(0.15 * count))).all(),
        f"{of_row} {expected[row]}: 15 % are rounded to the nearest whole number, not up",
    )
    for share in (0.1, 0.2, 0.8):
        likely = np.maximum(1, np.rint(share * count))
        require(not (found == likely).all(), f"{of_row} {expected[row]}: it is {_percent(share)}, and must be 15 %")
    of_all = np.maximum(1, np.rint(0.15 * (ids > 0).sum(axis=1)))
    require(
        not (found == of_all).all(), f"{of_row} {expected[row]}: 15 % of the words; [CLS] and [SEP] are not among them"
    )
    require(
        not (found == np.minimum(count, round(0.15 * ids.shape[1]))).all(),
        f"{of_row} {expected[row]}: 15 % of its words; padding is not among them",
    )
    equal = count == count[row]
    require(
        len(set(found[equal].tolist())) == 1,
        f"rows of {count[row]} words have between {found[equal].min()} and {found[equal].max()} targets: each has "
        f"{expected[row]}, so choose so many different places, and do not toss a coin for each",
    )
    raise Wrong(f"{of_row} {expected[row]}, which is 15 %, rounded")


def _judge_places(chosen: np.ndarray) -> None:
    """Raise `Wrong` unless all places and pairs of a row are chosen equally often; chosen (rows, words)."""
    require(
        not (chosen == chosen[0]).all(), "the same places are chosen in every row: draw them for each row by itself"
    )
    often = chosen.mean(axis=0)
    worst = int(np.argmax(np.abs(often - 0.15)))
    require(
        abs(often[worst] - 0.15) < 0.05,
        f"word {worst + 1} of 20 is chosen in {_percent(often[worst])} of the rows: each should be as often as any "
        "other, in 15 %",
    )
    together = chosen.T.astype(float) @ chosen / len(chosen) * ~np.eye(len(often), dtype=bool)
    one, other = sorted(int(each) for each in np.unravel_index(np.argmax(together), together.shape))
    require(
        together[one, other] < 0.05,  # with 3 chosen of 20, a given pair is in 1.6 % of the rows
        f"words {one + 1} and {other + 1} of 20 are chosen together in {_percent(together[one, other])} of the rows, "
        "far more often than others: every choice of so many words should be as likely as any other",
    )


def _judge_fates(ids: np.ndarray, hidden: np.ndarray, targets: np.ndarray, mask_id: int) -> None:
    """Raise `Wrong` if targets are masked, replaced or kept at wrong rates; each row has three targets."""
    chosen = targets != IGNORED
    now, before = hidden[chosen], targets[chosen]
    masked, other = now == mask_id, (now != mask_id) & (now != before)
    words = mask_id - FIRST
    no_words = now[(now < FIRST) | (now > mask_id)]
    if len(no_words):
        raise Wrong(f"a target is replaced by id {no_words[0]}, which is no word: words are {FIRST} to {mask_id - 1}")
    by_row = masked.reshape(len(ids), -1)
    alike = (by_row == by_row[:, :1]).all(axis=1).mean()
    require(
        masked.all() or not masked.any() or alike < 0.9,
        "all targets of a row share one fate: throw the dice for each target, not for each row",
    )
    by_chance = 0.1 * (words - 1) / words  # the drawn word may be the old one
    said = (
        f"{_percent(masked.mean())} become the mask, {_percent(other.mean())} another word, and "
        f"{_percent((now == before).mean())} stay"
    )
    drawn = 0.8 + 0.1 / (words + 1)  # of the targets, if the mask is one of the words
    require(
        words > 2 or not drawn - 0.006 < masked.mean() < drawn + 0.02,
        f"of the targets {_percent(masked.mean())} become the mask, as if it were drawn at random among the words: the "
        f"words are {FIRST} to {mask_id - 1}, and rng.integers leaves out its end",
    )
    require(not masked.all(), f"of the targets {said}: one in ten becomes a random word, and one in ten stays")
    require(
        words != 2 or abs(masked.mean() - 0.8) > 0.03 or abs(other.mean() - 0.1) > 0.02,
        "a target that gets a random word never gets the one that stood there: any word may come, that one too",
    )
    require(
        abs(masked.mean() - 0.8) < 0.03 and abs(other.mean() - by_chance) < 0.03,
        f"of the targets {said}: 80 %, {_percent(by_chance)} and {_percent(0.2 - by_chance)} are wanted"
        + ", because the random word is often the old one" * (words < 10),
    )
    if words > 2:
        _judge_random_words(now.reshape(len(ids), -1), other.reshape(len(ids), -1), before, mask_id)


def _judge_random_words(now: np.ndarray, other: np.ndarray, before: np.ndarray, mask_id: int) -> None:
    """Raise `Wrong` unless the words that replace targets are equally frequent; now and other (rows, targets)."""
    replaced = now[other]
    counts = np.bincount(replaced, minlength=mask_id)[FIRST:]
    often, rare = int(np.argmax(counts)), int(np.argmin(counts))
    require(
        counts[often] < 5 * counts.mean(),
        f"of {len(replaced)} replacements {counts[often]} are word {FIRST + often}: each replaced target gets a word "
        "of its own, all with the same chance",
    )
    require(
        counts[rare] > 0,
        f"in {len(replaced)} replacements word {FIRST + rare} never comes: any of {FIRST} to {mask_id - 1} may, all "
        f"with the same chance{', also one that no row of ids has' * (FIRST + rare not in before)}",
    )
    two = other.sum(axis=1) == 2
    pairs = now[two][other[two]].reshape(-1, 2)
    require(
        not len(pairs) or (pairs[:, 0] != pairs[:, 1]).any(),
        "two targets of a row that get a random word always get the same one: draw a word for each target",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _masked_loss(hidden: np.ndarray, table: np.ndarray, targets: np.ndarray) -> np.ndarray:
    chosen = targets != IGNORED
    return np.asarray(cross_entropy_forward(hidden[chosen] @ table.T, targets[chosen])[0])


def _masked_loss_backward(dloss: Any, hidden: Any, table: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
    _, cache = cross_entropy_forward(hidden @ table.T, targets, ignore_index=IGNORED)
    dlogits = cross_entropy_backward(dloss, cache)  # (B, T, V), zero at positions without a target
    return dlogits @ table, np.einsum("btv,btc->vc", dlogits, hidden)


@exercise(answer=_masked_loss_backward)
def masked_loss_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    for batch, time, width, vocabulary, count in ((2, 5, 3, 7, 3), (3, 4, 6, 120, 4), (1, 6, 2, 4, 1)):
        hidden, table = rng.standard_normal((batch, time, width)), rng.standard_normal((vocabulary, width))
        targets = np.full((batch, time), IGNORED)
        places = rng.permutation(batch * time)[:count]
        # Word 0 is a word too, and one may be the target of two places.
        targets.reshape(-1)[places] = [0, *rng.permutation(np.arange(1, vocabulary))[[0, 0, 1]]][:count]
        with in_case(f"with B = {batch}, T = {time}, C = {width}, V = {vocabulary} and {count} targets,"):
            _judge_masked_loss(attempt, hidden, table, targets)
    nothing = np.full((2, 3), IGNORED)
    hidden, table = rng.standard_normal((2, 3, 4)), rng.standard_normal((5, 4))
    with in_case("where nothing is asked at all,"):
        gradients = require_arrays(attempt(1.0, hidden, table, nothing), "dhidden", "dtable")
    for name, gradient, of in zip(("dhidden", "dtable"), gradients, (hidden, table), strict=True):
        require(
            gradient.shape == of.shape and not gradient.any(),
            f"where nothing is asked at all, {name} must be zeros of shape {of.shape}: is it divided by a count of 0?",
        )


def _judge_masked_loss(attempt: Attempt, hidden: np.ndarray, table: np.ndarray, targets: np.ndarray) -> None:
    chosen, count = targets != IGNORED, int((targets != IGNORED).sum())
    dhidden, dtable = require_arrays(attempt(1.0, hidden, table, targets), "dhidden", "dtable")
    require(
        (dhidden.shape, dtable.shape) != (table.shape, hidden.shape),
        "the two gradients are returned in the other order: dhidden, then dtable",
    )
    require(
        dhidden.shape == hidden.shape,
        f"dhidden has shape {dhidden.shape} and must have that of hidden, {hidden.shape}: the rows of the chosen "
        "places go back to where they came from, and all others are 0",
    )
    right, right_table = _masked_loss_backward(1.0, hidden, table, targets)
    elsewhere = np.zeros_like(hidden)
    elsewhere.reshape(-1, hidden.shape[2])[:count] = right[chosen]
    require(
        chosen.reshape(-1)[:count].all() or error(dhidden, elsewhere) > 1e-9,
        "the rows of dhidden stand at the first places, and must stand where the targets are",
    )
    beyond = int(dhidden[~chosen].any(axis=-1).sum())
    require(
        not beyond,
        f"dhidden is not 0 at {beyond} place{'s' * (beyond > 1)} without a target: the loss never looks there",
    )
    require(
        dhidden[targets == 0].any() or not dhidden.any() or count == 1,
        "dhidden is 0 where the target is word 0, which is asked like all others: only −100 means that nothing is",
    )
    factors = {
        "the mean over all places; only targets count": count / targets.size,
        "the mean over the sentences; only targets count": count / len(targets),
        "the sum of the targets' gradients; the loss is their mean": float(count),
        "divided by the number of targets twice": 1 / count,
        "1/V: over the vocabulary nothing is averaged": 1 / len(table),
        "1/√(the number of targets): the loss is their mean": count**-0.5,
    }
    factors = {name: factor for name, factor in factors.items() if abs(factor - 1) > 1e-9}
    if count > 1:
        for name, mine, wanted, mistakes in zip(
            ("dhidden", "dtable"),
            (dhidden, dtable),
            (right, right_table),
            _loss_mistakes(hidden, table, targets),
            strict=True,
        ):
            require_none_of(name, mine, wanted, mistakes)
        require_close("dhidden", dhidden, right, factors=factors)
        untouched = np.setdiff1d(np.arange(len(table)), targets[chosen])
        require(
            dtable.shape != table.shape or dtable[untouched].any(),
            "dtable is 0 for every word that is no target: the softmax has a probability for each word, and pushes all "
            "of the others down",
        )
        once, words = right_table.copy(), targets[chosen]
        np.add.at(once, words, hidden[chosen] / count)
        once[words] -= hidden[chosen] / count
        require(
            dtable.shape != table.shape or error(dtable, once) > 1e-9,
            "of two places with the same target dtable has one only: `dtable[ids] -= …` with an id twice keeps the "
            "last; np.subtract.at subtracts both",
        )
        require_close("dtable", dtable, right_table, factors=factors)
    doubled = require_arrays(attempt(2.0, hidden, table, targets), "dhidden", "dtable")
    for name, once, twice in zip(("dhidden", "dtable"), (dhidden, dtable), doubled, strict=True):
        require(np.allclose(twice, 2 * once), f"with dloss = 2 instead of 1 {name} must double: is dloss used?")
    require_gradients(
        lambda hidden, table: (_masked_loss(hidden, table, targets), (hidden, table)),
        lambda dloss, cache: attempt(float(dloss), *cache, targets),
        {"hidden": hidden, "table": table},
    )


def _loss_mistakes(hidden: Any, table: Any, targets: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return what likely mistakes give for dhidden and dtable with dloss = 1."""
    chosen = targets != IGNORED
    rows, count = hidden[chosen], chosen.sum()
    words = np.eye(len(table))[targets[chosen]]
    _, cache = cross_entropy_forward(rows @ table.T, targets[chosen])
    dlogits = cross_entropy_backward(1.0, cache)

    def placed(rows: np.ndarray) -> np.ndarray:
        array = np.zeros_like(hidden)
        array[chosen] = rows
        return array

    softmax = "is made of the softmax alone: the target's one is subtracted from it"
    turned = "has the wrong sign at the targets: softmax − one-hot is subtracted from what it was"
    return (
        {
            softmax: placed((dlogits + words / count) @ table),
            turned: placed((dlogits + 2 * words / count) @ table),
            "has hidden's own rows: the gradient of hidden is dlogits @ table": placed(rows),
        },
        {
            softmax: (dlogits + words / count).T @ rows,
            "is made with dhidden: logits = hidden @ tableᵀ, so it is dlogitsᵀ @ hidden": dlogits.T @ (dlogits @ table),
        },
    )


def _class_head(hidden: Any, w_pool: Any, b_pool: Any, w_class: Any, b_class: Any) -> np.ndarray:
    return np.tanh(hidden[:, 0] @ w_pool + b_pool) @ w_class + b_class


def _class_head_backward(dlogits: Any, hidden: Any, w_pool: Any, b_pool: Any, w_class: Any) -> tuple[np.ndarray, ...]:
    """Run the backward of the package's own head with these weights."""
    width, classes = w_class.shape
    config = BERTConfig(
        FIRST, d_model=width, num_heads=1, d_ff=1, num_layers=1, dropout=0.0, head="classes", num_classes=classes
    )
    model: Any = BERT.blank(config, dtype="float64")
    head = model.head
    head.pooler.weight.data[...], head.pooler.bias.data[...], head.classes.weight.data[...] = w_pool, b_pool, w_class
    pooled, cache = head.pool(hidden)
    logits, classes_cache = head.classes.forward(pooled)
    dhidden = head.pool_backward(head.classes.backward(np.broadcast_to(dlogits, logits.shape), classes_cache), cache)
    return dhidden, *(
        each.grad for each in (head.pooler.weight, head.pooler.bias, head.classes.weight, head.classes.bias)
    )


NAMES = ("dhidden", "dw_pool", "db_pool", "dw_class", "db_class")


@exercise(answer=_class_head_backward)
def class_head_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    for batch, time, width, classes in ((2, 4, 3, 2), (5, 3, 4, 3), (1, 2, 5, 6)):
        hidden = rng.standard_normal((batch, time, width))
        w_pool, b_pool = 0.5 * rng.standard_normal((width, width)), 0.5 * rng.standard_normal(width)
        w_class, b_class = rng.standard_normal((width, classes)), rng.standard_normal(classes)
        dlogits = rng.standard_normal((batch, classes))
        with in_case(f"with B = {batch}, T = {time}, C = {width} and {classes} classes,"):
            _judge_class_head(attempt, dlogits, hidden, w_pool, b_pool, w_class)
            require_gradients(
                lambda *given: (_class_head(*given), given[:-1]),
                lambda dlogits, cache: attempt(dlogits, *cache),
                dict(zip(("hidden", "w_pool", "b_pool", "w_class", "b_class"),
                         (hidden, w_pool, b_pool, w_class, b_class), strict=True)),
            )  # fmt: skip


def _judge_class_head(
    attempt: Attempt, dlogits: np.ndarray, hidden: np.ndarray, w_pool: np.ndarray, b_pool: np.ndarray, w_class: Any
) -> None:
    found: dict[str, np.ndarray] = dict(
        zip(NAMES, require_arrays(attempt(dlogits, hidden, w_pool, b_pool, w_class), *NAMES), strict=True)
    )
    first = hidden[:, 0]
    z = first @ w_pool + b_pool
    pooled, dpooled = np.tanh(z), dlogits @ w_class.T
    dz = dpooled * (1 - pooled**2)
    dfirst = dz @ w_pool.T
    shapes = dict(zip(NAMES, (hidden.shape, w_pool.shape, b_pool.shape, w_class.shape, dlogits.shape[1:]), strict=True))
    returned = [found[name].shape for name in NAMES]
    require(
        returned == list(shapes.values()) or sorted(returned) != sorted(shapes.values()),
        f"the gradients are returned in another order: {', '.join(NAMES)}",
    )
    require(
        found["dhidden"].shape == hidden.shape,
        f"dhidden has shape {found['dhidden'].shape} and must have that of hidden, {hidden.shape}: zeros but for the "
        "first token of each text",
    )
    require(
        found["dhidden"][:, 0].any() or not found["dhidden"][:, -1].any(),
        "dhidden is 0 at the first token and not at the last: [CLS] stands first",
    )
    require(
        not found["dhidden"][:, 1:].any(),
        "dhidden is not 0 beyond the first token: the head reads [CLS] alone, so no other token moves the loss",
    )
    require(found["dhidden"].any(), "dhidden is 0 everywhere: the first token of each text gets a gradient")
    for name, shape in shapes.items():
        actual = found[name].shape
        require(
            actual == shape,
            f"{name} has shape {actual} and must have that of its {'bias' if len(shape) == 1 else 'weight'}, {shape}"
            + ": is it summed over the texts?" * (actual == (len(hidden), *shape)),
        )
    require(
        error(found["dw_class"], z.T @ dlogits) > 1e-9,
        "dw_class is made with z, which is before the tanh, and must be with tanh(z), which the last map reads",
    )
    batch = {"1 / B: the texts' gradients are added, not averaged": 1 / len(hidden)}
    mean, last = hidden.mean(axis=1), hidden[:, -1]
    fed = {
        "is made without b_pool: pooled is tanh(first @ w_pool + b_pool)": np.tanh(first @ w_pool),
        "is made with what has not been pooled: the last map reads tanh(first @ w_pool + b_pool)": first,
        "is made with the mean over the tokens: the head reads the first one alone": np.tanh(mean @ w_pool + b_pool),
        "is made with the last token: [CLS] stands first": np.tanh(last @ w_pool + b_pool),
        "is made with w_pool transposed in the forward: first @ w_pool + b_pool": np.tanh(first @ w_pool.T + b_pool),
        "is made with a relu where the tanh belongs": np.maximum(0, z),
        "is made with b_pool added twice": np.tanh(z + b_pool),
    }
    require_none_of(
        "dw_class", found["dw_class"], pooled.T @ dlogits, {why: each.T @ dlogits for why, each in fed.items()}
    )
    require_close("dw_class", found["dw_class"], pooled.T @ dlogits, factors=batch)
    require_close("db_class", found["db_class"], dlogits.sum(axis=0), factors=batch)
    for what, wrong in (
        ("the gradient of the tanh's output, without the tanh's slope, which is 1 − tanh²", dpooled),
        ("1 − tanh in place of 1 − tanh²: is the square missing?", dpooled * (1 - pooled)),
        ("1 − z², with z before the tanh: the slope is 1 − tanh(z)²", dpooled * (1 - z**2)),
        ("1 + tanh² in place of 1 − tanh²", dpooled * (1 + pooled**2)),
        (
            "1 − tanh(p)², with p after the tanh: p is a tanh already, so the slope is 1 − p²",
            dpooled * (1 - np.tanh(pooled) ** 2),
        ),
        ("the tanh of the gradient: a backward multiplies by the slope of the tanh", np.tanh(dpooled)),
        ("p (1 − p), the slope of the logistic function: that of tanh is 1 − p²", dpooled * pooled * (1 - pooled)),
        (
            "w_class where its transpose belongs: back through y = x @ W goes dy @ Wᵀ",
            dlogits @ w_class.reshape(w_class.shape[::-1]) * (1 - pooled**2),
        ),
    ):
        require(error(found["db_pool"], wrong.sum(axis=0)) > 1e-9, f"db_pool is made with {what}")
    require_close("db_pool", found["db_pool"], dz.sum(axis=0), factors=batch)
    require(
        error(found["dw_pool"], pooled.T @ dz) > 1e-9,
        "dw_pool is made with what came out of the pooler: a weight's gradient is (what came in)ᵀ @ (what arrived)",
    )
    mistakes = {
        "is made without the slope of the tanh, which db_pool has": first.T @ dpooled,
        "is made with all tokens of a text: the head reads the first one alone": hidden.sum(axis=1).T @ dz,
    }
    require_none_of("dw_pool", found["dw_pool"], first.T @ dz, mistakes)
    require_close("dw_pool", found["dw_pool"], first.T @ dz, factors=batch)
    require(
        error(found["dhidden"][:, 0], dz @ w_pool) > 1e-9, "dhidden is made with w_pool, and must be with its transpose"
    )
    flat = {"is made without the slope of the tanh, which db_pool has": dpooled @ w_pool.T}
    require_none_of("dhidden at the first token", found["dhidden"][:, 0], dfirst, flat)
    require_close("dhidden at the first token", found["dhidden"][:, 0], dfirst, factors=batch)
