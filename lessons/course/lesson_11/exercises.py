"""Lesson 11: decoding, and BLEU."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from itertools import permutations, product
from types import SimpleNamespace
from typing import Any

import numpy as np

from minitransformer import decoding, ops
from minitransformer.ops import numpy_ops

from ..checks import (
    distinct,
    in_case,
    require,
    require_arrays,
    require_close,
    require_none_of,
    require_precision,
    type_name,
)
from ..exercise import Attempt, Wrong, exercise
from . import solutions
from .toy_models import (
    EOS,
    Prefix,
    ToyModel,
    all_sentences,
    closing_place,
    ends_in_three,
    greedy,
    late_winner,
    narrow_search,
    slow_but_sure,
    toy_model,
    two_sentences,
)

SPECIALS = 2  # the padding and begin tokens that the package needs: `_Searchable` puts them in front of the toy's ids


class _Prefixes:
    """The state of decoding one sentence: the prefix of each beam."""

    def __init__(self, num_beams: int):
        self.prefixes: list[Prefix] = [()] * num_beams
        self.begun = False

    def reorder(self, beams: np.ndarray) -> None:
        self.prefixes = [self.prefixes[beam] for beam in beams[0]]


class _Searchable:
    """A function `next_log_probs(prefix)` as a model that the package can search; its ids are moved by SPECIALS."""

    ops = numpy_ops

    def __init__(self, next_log_probs: Any, eos: int, max_length: int):
        self.next_log_probs, self.eos, self.max_length = cache(next_log_probs), eos, max_length
        self.config: Any = SimpleNamespace(pad_id=0, bos_id=1, eos_id=eos + SPECIALS, max_length=max_length)
        self.vocab_size = len(self.next_log_probs(()))

    def start_decoding(self, source: np.ndarray, num_beams: int = 1) -> _Prefixes:
        return _Prefixes(num_beams)

    def decode_step(self, ids: np.ndarray, state: _Prefixes) -> np.ndarray:
        if state.begun:
            state.prefixes = [(*p, int(i) - SPECIALS) for p, i in zip(state.prefixes, ids[0], strict=True)]
        state.begun = True
        return np.stack([self._row(prefix) for prefix in state.prefixes])[None]  # (1, K, SPECIALS + V)

    def _row(self, prefix: Prefix) -> np.ndarray:
        closed = self.eos in prefix or min(prefix, default=0) < 0  # the beam has ended, or has never begun
        log_probs = np.zeros(self.vocab_size) if closed else self.next_log_probs(prefix)
        rest = np.log1p(-min(np.exp(log_probs).sum(), 1.0))  # log P of padding, so that the row sums to 1
        return np.r_[rest, [-np.inf] * (SPECIALS - 1), log_probs]


def _beam_search(next_log_probs, num_beams, eos, max_length, length_penalty=0.0):
    model = _Searchable(next_log_probs, eos, max_length)
    source, options = np.ones((1, 1), dtype=np.int64), {"length_penalty": length_penalty, "max_extra": max_length}
    with np.errstate(divide="ignore"):
        ((best,),) = decoding.beam_search(model, source, num_beams, **options)
    ids = tuple(token - SPECIALS for token in best.ids)
    return (*ids, eos) if best.ended else ids, best.log_prob


@exercise(answer=_beam_search)
def beam_search(attempt: Attempt) -> None:
    _judge_one_place(attempt)
    _judge_every_place(attempt, 0.0)
    ids, _ = _sentence(attempt(late_winner, 200, EOS, 4))
    require(
        ids == (3, 3, EOS),
        f"200 places are enough for every prefix, and yet {ids} is found and not (3, 3, 0): a place that no prefix has "
        "filled yet stays open; only a sentence that ends takes one away",
    )
    ids, _ = _sentence(attempt(ends_in_three, 200, 3, 4))
    require(ids == (0, 0, 3), f"with eos = 3 it finds {ids}, and not (0, 0, 3): the end is the token that eos says")
    _judge_narrow(attempt, 0.0)
    asked: list[Any] = []
    ids, _ = _sentence(attempt(lambda prefix: asked.append(prefix) or slow_but_sure(prefix), 2, EOS, 4, 1.0))
    require(
        ids == (1, 1, 1, EOS) or (1, 1, 1) in asked,
        f"with α = 1 it finds {ids}, and not (1, 1, 1, 0): a prefix with the worse score can still win, since lp grows "
        "with every token; stop when no place is left",
    )
    _judge_length_penalty(attempt)
    _judge_every_place(attempt, 1.0)
    _judge_narrow(attempt, 1.0)
    ids, _ = _sentence(attempt(closing_place, 2, EOS, 4))
    require(
        ids != (1, 2, EOS),
        "two places, and the second best first token is eos: its place is closed, so from then on there is one, and "
        f"{ids} is beyond its reach",
    )
    _judge_narrow(attempt, 2.0, (20, 29))  # prefixes ranked by the score, and not by log P, give another result here
    for alpha, seed, width in product((0.0, 1.0), range(12), (1, 3)):
        model = toy_model(seed)
        expected, log_prob = _narrow(seed, width, alpha, 2)
        case = f"where {'nothing' if expected[-1] != EOS else 'something'} ends within max_length = 2,"
        with in_case(case):
            ids, found = _search(attempt, model, width, alpha, 2)
        longest = max(map(len, model.asked))
        require(longest < 2, f"with max_length = 2 it goes on from a prefix that has {longest} tokens already")
        require(
            ids == expected,
            f"{case} it finds {ids}, and not {expected}: prefixes that are cut off count only if nothing ended",
        )
        said, right = distinct(found, log_prob)
        require(abs(found - log_prob) < 1e-9, f"{case} it says that log P{ids} = {said}, and it is {right}")


@cache
def _everything(seed: int) -> dict[Prefix, float]:
    return all_sentences(toy_model(seed))


@cache
def _narrow(seed: int, width: int, alpha: float, longest: int = 4) -> tuple[Prefix, float]:
    return narrow_search(toy_model(seed), width, alpha, longest)


def _search(
    attempt: Attempt, model: ToyModel, num_beams: int, alpha: float, max_length: int = 4
) -> tuple[Prefix, float]:
    """Return the attempt's result. Raise `Wrong` if it changes the model's rows or asks for one of them twice."""
    found = _sentence(attempt(model, num_beams, EOS, max_length, alpha))
    require(
        model.untouched,
        "it writes into what next_log_probs returned, which is the model's own: row + number makes a new array, "
        "row += number does not",
    )
    calls, prefixes = len(model.asked), len(set(model.asked))
    require(
        calls <= prefixes + 1,  # one more call is allowed, to find the size of the vocabulary
        f"it calls next_log_probs {calls} times for {prefixes} prefix{'es' * (prefixes > 1)}: each call is a forward "
        "of the whole model, so ask once for each prefix and keep the row",
    )
    return found


def _judge_one_place(attempt: Attempt) -> None:
    worse, better = sorted((0, 1), key=lambda seed: _everything(seed)[greedy(toy_model(seed))])
    first, _, again = (_search(attempt, toy_model(seed), 1, 0.0) for seed in (worse, better, worse))
    require(
        first == again,
        "the same search finds something else after another one: does it keep sentences from call to call? A default "
        "such as ended=[] is made once, for all calls",
    )
    for alpha, seed in product((0.0, 1.0), range(12)):
        model = toy_model(seed)
        ids, log_prob = _search(attempt, model, 1, alpha)
        require(ids[-1] == EOS and EOS not in ids[:-1], f"it returns {ids}: a sentence has one end, and that is eos")
        everything = _everything(seed)
        require(
            ids in everything,
            f"it returns {ids}, which is no sentence: of the tokens 0 to 3, at most four, and nothing before the first",
        )
        truth = everything[ids]
        likely = (
            ", and this is the score: log P divided by the length penalty, which only ranks"
            if abs(log_prob * decoding.penalty(len(ids), alpha) - truth) < 1e-9
            else ""
        )
        said, added = distinct(log_prob, truth)
        require(
            abs(log_prob - truth) < 1e-9,
            f"it says that log P{ids} = {said}; the log-probabilities of its tokens add up to {added}{likely}",
        )
        best = greedy(model)
        parting = next((t for t, (mine, other) in enumerate(zip(ids, best, strict=False)) if mine != other), 0)
        likely = (
            f"after {ids[:parting]} the most probable is the end, it takes the only place, and nothing goes on"
            if best[parting] == EOS
            else f"after {ids[:parting]} it takes {ids[parting]}, and {best[parting]} is more probable"
        )
        require(ids == best, f"with one place it must do what greedy search does, find {best} and not {ids}: {likely}")


def _judge_every_place(attempt: Attempt, alpha: float) -> None:
    for seed in range(12):
        model = toy_model(seed)
        everything = _everything(seed)
        scores = {ids: log_prob / decoding.penalty(len(ids), alpha) for ids, log_prob in everything.items()}
        best = max(scores, key=scores.__getitem__)
        ids, _ = _search(attempt, model, 200, alpha)
        asked, prefixes = len(set(model.asked)), len(model.table)
        which = "log P / lp with α = 1" if alpha else "log P"
        penalised = {max(everything, key=lambda s: everything[s] / decoding.penalty(len(s), a)) for a in (0.6, 1.0)}
        if asked < prefixes:
            likely = f"it went on from {asked} prefix{'es' * (asked > 1)} of {prefixes}, and there was room for all"
        elif alpha:
            likely = "log P is divided by ((5 + |Y|) / 6)^α, and |Y| counts eos"
        elif ids in penalised:
            likely = "that is the best with a length penalty, and α = 0 asks for none"
        else:
            likely = "of all complete sentences the best is wanted, whenever it ended"
        require(
            scores.get(ids, -np.inf) >= scores[best] - 1e-12,
            f"the beam is wide enough for every prefix, and yet {ids} is found, with {which} = "
            f"{scores.get(ids, -np.inf):.4f}, and not {best}, with {scores[best]:.4f}: {likely}",
        )


def _judge_narrow(attempt: Attempt, alpha: float, seeds: Iterable[int] = range(12)) -> None:
    for seed, width in product(seeds, (2, 3)):
        model = toy_model(seed)
        expected, _ = _narrow(seed, width, alpha)
        ids, _ = _search(attempt, model, width, alpha)
        for length in range(4):
            asked = len({prefix for prefix in model.asked if len(prefix) == length})
            require(
                asked <= width,
                f"with {width} places it goes on from {asked} prefixes of length {length}: the best {width} of all "
                "extensions together go on",
            )
        require(
            ids == expected,
            f"with {width} places (α = {alpha:.0f}) it finds {ids}, and not {expected}: of all extensions together "
            "those with the highest log P are kept, as many as there are places left, and one that ended takes its "
            "place with it",
        )


def _judge_length_penalty(attempt: Attempt) -> None:
    """Raise `Wrong` for a wrong length penalty: it decides up to which ratio of log P the longer sentence wins."""
    for (short, long), alpha in product(((3, 9), (2, 14)), (None, 0.0, 0.6, 1.0, 2.0)):
        given = () if alpha is None else (alpha,)
        expected = decoding.penalty(long, alpha or 0.0) / decoding.penalty(short, alpha or 0.0)

        def long_wins(ratio: float, short: int = short, long: int = long, given: tuple = given) -> bool:
            model = two_sentences(short, long, ratio)
            return len(_sentence(attempt(model, 2, EOS, 20, *given))[0]) == long

        if long_wins(0.999 * expected) and not long_wins(1.001 * expected):
            continue
        low, high = 1 / 64, 1024.0
        for _ in range(25):
            middle = np.sqrt(low * high)
            low, high = (middle, high) if long_wins(middle) else (low, middle)
        which = "without a length_penalty" if alpha is None else f"with α = {alpha:g}"
        raise Wrong(
            f"{which} a sentence of {long} tokens wins against one of {short} while its log P is at most {low:.5g} "
            f"times the other's, and must win up to {expected:.5g} times, which is lp({long}) / lp({short}): "
            "lp = ((5 + |Y|) / 6)^α, and |Y| counts eos"
        )


def _sentence(result: Any) -> tuple[Prefix, float]:
    require(isinstance(result, tuple | list) and len(result) == 2, "it must return two things, the ids and their log P")
    ids, log_prob = result
    require(np.ndim(ids) == 1 and np.ndim(log_prob) == 0, "it must return the ids of one sentence and one number")
    require(isinstance(ids, tuple), f"the ids must be a tuple, not one {type_name(ids)}")
    require(len(ids), "it returns a sentence without a token: at least eos must be there")
    other = [token for token in ids if not isinstance(token, int | np.integer)]
    require(not other, f"the ids must be whole numbers, and one of them is {other[:1]}")
    return tuple(int(token) for token in ids), float(log_prob)


def _cached_step(query, key, value, keys, values):
    keys = np.concatenate([keys, key[:, None]], axis=1)  # (H, t + 1, D)
    values = np.concatenate([values, value[:, None]], axis=1)  # (H, t + 1, Dv)
    mixed, _ = ops.attention_forward(query[None, :, None], keys[None], values[None])
    return mixed[0, :, 0], keys, values


@exercise(answer=_cached_step)
def cached_step(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    heads, time, width, value_width = 2, 5, 6, 3
    query, key = rng.standard_normal((2, heads, time, width))
    value = rng.standard_normal((heads, time, value_width))
    keys, values = np.zeros((heads, 0, width)), np.zeros((heads, 0, value_width))
    rows = []
    for t in range(time):
        arguments = query[:, t], key[:, t], value[:, t], keys, values
        with in_case(f"with {t or 'no'} earlier position{'s' * (t != 1)} in the cache"):
            mixed, new_keys, new_values = require_arrays(attempt(*arguments), "mixed", "keys", "values")
        for name, grown, every in (("keys", new_keys, key), ("values", new_values, value)):
            expected = every[:, : t + 1]
            require(
                grown.shape == expected.shape,
                f"after position {t} the cached {name} have shape {grown.shape} and must have {expected.shape}: one "
                "position more than before, on axis 1",
            )
            require_close(f"after position {t}, which is put last, the cache of {name}", grown, expected)
        if t == 0:
            require_close("the first position's output, which can attend to nothing but itself,", mixed, value[:, 0])
        louder = require_arrays(attempt(*arguments[:2], value[:, t] + 1, *arguments[3:]), "mixed", "keys", "values")[0]
        require(
            not np.allclose(louder, mixed),
            f"at position {t} a change of its own value changes nothing: a position attends to itself too, so its key "
            "and value go into the cache before the attention",
        )
        if t:
            earlier = require_arrays(attempt(*arguments[:4], values + 1), "mixed", "keys", "values")[0]
            require(not np.allclose(earlier, mixed), f"at position {t} the values in the cache are never mixed in")
        rows.append(mixed)
        keys, values = new_keys, new_values
    whole = ops.attention_forward(query[None], key[None], value[None], causal=True)[0][0]  # (H, T, Dv)
    divisor = _divisor(attempt, query[:, 0], key[:, 0], key[:, 1], value_width)
    require(
        np.isnan(divisor) or np.isclose(divisor, np.sqrt(width)),
        f"by its weights of two positions it divides the scores by {divisor:.3g}, and must divide them by "
        f"√D = √{width} = {np.sqrt(width):.3g}",
    )
    means = np.cumsum(value, axis=1) / np.arange(1, time + 1)[:, None]
    uniform = {"is the plain mean of the values: each has a weight, by the softmax of query · key / √D": means}
    require_none_of("step by step, mixed", np.stack(rows, axis=1), whole, uniform)
    require_close("step by step, the attention of five positions", np.stack(rows, axis=1), whole)
    other = rng.standard_normal((5, 3, 4))  # (…, H, D): the position and two earlier ones
    new, earlier = tuple(other[:3]), tuple(np.stack([rows, -rows], axis=1) for rows in other[3:])
    require_close("with three heads of width 4, mixed", attempt(*new, *earlier)[0], _cached_step(*new, *earlier)[0])
    loud = new[0] * np.array([[1e4], [1.0], [1.0]])
    mixed = attempt(loud, *new[1:], *earlier)[0]
    require(
        np.isfinite(mixed).all(),
        "where one head's scores are in the thousands mixed is NaN: the softmax subtracts each head's own largest "
        "score before the exponential (lesson 01)",
    )
    require_close(
        "where one head's scores are in the thousands, mixed", mixed, _cached_step(loud, *new[1:], *earlier)[0]
    )
    near, values = np.array([0.0, 1.0, 2.0])[:, None] * np.eye(3)[:1], rng.standard_normal((1, 3, 3))
    for first, order in product((3e3, -3e3), permutations(range(3))):  # the largest at each place
        keys = (near + np.array([0.0, first, 0.0]))[list(order)]
        arguments = np.array([[1.0, 1.0, 0.0]]), keys[None, -1], values[:, -1], keys[None, :-1], values[:, :-1]
        require_close(
            f"where all scores are near {first / np.sqrt(3):+,.0f} and differ by little, mixed",
            attempt(*arguments)[0],
            _cached_step(*arguments)[0],
        )
    long = [rng.standard_normal((2, 70, size)) for size in (4, 3)]
    arguments = *rng.standard_normal((2, 2, 4)), rng.standard_normal((2, 3)), *long
    require_close("with 70 earlier positions, mixed", attempt(*arguments)[0], _cached_step(*arguments)[0])


def _divisor(attempt: Attempt, query, key, other_key, value_width: int) -> float:
    """Return the divisor of the scores, from the weights of two positions; NaN if these do not determine it."""
    values = np.zeros((2, len(query), value_width))  # one-hot, so that the output shows the weights
    values[0, :, 0] = values[1, :, 1] = 1
    mixed = require_arrays(attempt(query, key, values[1], other_key[:, None], values[0][:, None]), "mixed", "", "")[0]
    if not (mixed[:, :2] > 0).all():
        return np.nan
    divisors = (query * (key - other_key)).sum(axis=-1) / np.log(mixed[:, 1] / mixed[:, 0])  # one for each head
    return float(divisors[0]) if np.isfinite(divisors).all() and np.allclose(divisors, divisors[0]) else np.nan


def _bleu(hypotheses, references):
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError:  # in a browser
        return solutions.bleu(hypotheses, references)

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    names: dict[str, str] = {}  # sacrebleu splits at spaces, and a token may contain one
    lines = [
        [" ".join(names.setdefault(token, str(len(names))) for token in tokens) for tokens in corpus]
        for corpus in (hypotheses, references)
    ]
    return metric.corpus_score(lines[0], [lines[1]]).score


@exercise(answer=_bleu)
def bleu(attempt: Attempt) -> None:
    sentence = "the old dog sees the small cat in the garden".split()
    other = "a girl gives the teacher an old book about the sea".split()

    def score(hypotheses, references) -> float:
        result = attempt(*([list(tokens) for tokens in corpus] for corpus in (hypotheses, references)))
        require(np.ndim(result) == 0, "it must return one number for the whole corpus")
        return float(result)

    perfect = score([sentence, other], [sentence, other])
    require(
        abs(perfect - 100) < 1e-9,
        f"the references themselves, as translations, get {perfect:.12g} and must get 100"
        + (": BLEU is given in percent" if abs(perfect - 1) < 1e-9 else ""),
    )
    for hypothesis, what in (
        ("x y z u v", "without a word in common"),
        ("the dog the cat the garden", "without a 4-gram in common"),
        ("the old", "of two words, which holds no 4-gram,"),
        ("", "without a token"),
    ):
        with in_case(f"for a translation {what.removesuffix(',')}, whose score is 0,"):
            nothing = score([hypothesis.split()], [sentence])
        require(
            nothing == 0,
            f"a translation {what} gets {nothing:.4g} and must get 0: the mean of the four precisions is geometric, "
            "and one that is zero is enough",
        )
    garbled = "the old dog the small cat sees in a garden".split()
    pair = score([garbled, other], [sentence, other])
    require(
        abs(pair - (score([garbled], [sentence]) + 100) / 2) > 1e-6,
        "the score of two sentences is the mean of their scores: BLEU adds up the counts of the whole corpus first, "
        "and divides once",
    )
    exchanged = score([other, sentence], [sentence, other])
    require(
        exchanged < 99,
        f"two translations that stand in each other's place get {exchanged:.4g}: an n-gram is looked for in the "
        "reference of its own sentence, and only the counts are added up",
    )
    short = score([sentence[:7], other], [sentence, other])
    require(
        short < 99,
        f"a translation that leaves out the end gets {short:.4g}: all its n-grams are right, and what is missing is "
        "the brevity penalty's to punish",
    )
    longer = [*sentence, "quickly"]
    for name, hypotheses in (
        ("one of two translations is garbled (the mean is geometric, over n = 1, 2, 3, 4)", [garbled, other]),
        ("one of two translations is too short", [sentence[:7], other]),
        (
            "one of two translations leaves out the beginning (a reference has n-grams up to its own end)",
            [sentence[3:], other],
        ),
        ("one of two translations is too long (there is no reward for length)", [longer, other]),
        ("one translation is as much too long as the other is too short (c and r are sums)", [longer, other[:-1]]),
        (
            "one of two translations is a stutter (an n-gram counts at most as often as the reference has it)",
            [["the"] * 3 + sentence[3:], other],
        ),
        ("one of two translations has a capital too many (another token)", [["The", *sentence[1:]], other]),
        ("one of two translations is one token short (a brevity penalty below 1)", [sentence, other[:-1]]),
        ("one of two translations has two words (no 3-gram, and not minus one)", [["the", "new"], other]),
        ("one of two translations has no token (and the other counts)", [[], other]),
        ("one of two translations has a comma too many (a token as any other)", [[*sentence, ","], other]),
        ("one of two translations stutters two words at a time (all n-grams are clipped)", [sentence[:2] * 3, other]),
    ):
        _agree_on_bleu(score, name, hypotheses, [sentence, other])
    brief = ["the", "small", "dog"]
    _agree_on_bleu(
        score,
        "one of two pairs has three words on both sides (no 4-gram, and words all the same)",
        [["the", "old", "dog"], other],
        [brief, other],
    )
    _agree_on_bleu(
        score,
        "one of the pairs stands there twice (and counts twice)",
        [garbled] * 2 + [other],
        [sentence] * 2 + [other],
    )
    blanks = [list("the old dog sees"), list("the  old dog sees")]
    _agree_on_bleu(score, "a token is a character, blanks too (tokens are what they are)", blanks[1:], blanks[:1])
    cut = [["the", "rein", *sentence[2:]]], [["there", "in", *sentence[2:]]]
    _agree_on_bleu(score, "words are cut elsewhere (an n-gram is a tuple of tokens, not their letters)", *cut)


def _bleu_mistakes(hypotheses: Any, references: Any) -> dict[str, Any]:
    """Return what likely mistakes give, as far as no precision is 0."""
    matched, proposed, of_references = np.zeros((3, 4))
    for pair in zip(hypotheses, references, strict=True):
        for n in range(1, 5):
            ours, theirs = (Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)) for tokens in pair)
            matched[n - 1] += (ours & theirs).total()
            proposed[n - 1] += ours.total()
            of_references[n - 1] += theirs.total()
    if not matched.all():
        return {}
    c, r = proposed[0], of_references[0]
    precisions, brevity = matched / proposed, 100 * min(1.0, np.exp(1 - r / c))
    mean = np.exp(np.log(precisions).mean())
    return {
        "is 100 times the product of the four precisions: its fourth root is missing": brevity * precisions.prod(),
        "has n-grams up to n = 3 alone: n = 4 belongs to it": brevity * precisions[:3].prod() ** (1 / 3),
        "counts single words alone: n goes from 1 to 4": brevity * precisions[0],
        "has 1 added to the counts: nothing is smoothed": (
            brevity * ((matched + 1) / (proposed + 1)).prod() ** (1 / 4)
        ),
        "is made of logarithms of base 2 and an exponential of base e": brevity * np.exp(np.log2(precisions).mean()),
        "is the harmonic mean of the precisions, and must be the geometric one": brevity / np.mean(1 / precisions),
        "has the brevity penalty c / r, and it is e^(1 − r / c)": 100 * min(1.0, c / r) * mean,
        "divides by the number of n-grams of the references: a precision is of what is proposed": (
            brevity * (matched / of_references).prod() ** (1 / 4)
        ),
    }


def _agree_on_bleu(score: Callable[..., float], name: str, hypotheses: Any, references: Any) -> None:
    found, right = score(hypotheses, references), _bleu(hypotheses, references)
    require_none_of(f"where {name}, BLEU", found, right, _bleu_mistakes(hypotheses, references))
    require_precision(f"where {name}, BLEU", found, right)
    require_close(f"where {name}, BLEU", found, right)
