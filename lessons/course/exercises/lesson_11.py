"""Lesson 11: decoding, and BLEU."""

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np

from minitransformer import decoding, ops
from minitransformer.ops import numpy_ops

from ..exercise import Attempt, Wrong, exercise
from ..judging import agree, kind, require, several

EOS = 0  # of the toy vocabularies
SPECIALS = 2  # the package never writes its padding and begin tokens: an adapter puts them in front


class _Prefixes:
    """A translation under way of one sentence: the prefix of each beam."""

    def __init__(self, num_beams: int):
        self.prefixes: list[tuple[int, ...]] = [()] * num_beams
        self.begun = False

    def reorder(self, beams: np.ndarray) -> None:
        self.prefixes = [self.prefixes[beam] for beam in beams[0]]


class _Searchable:
    """A function `next_log_probs(prefix)` as a model that the package can search; its ids are moved by SPECIALS."""

    ops = numpy_ops

    def __init__(self, next_log_probs: Any, eos: int, max_length: int):
        self.next_log_probs, self.eos, self.max_length = next_log_probs, eos, max_length
        self.config: Any = SimpleNamespace(pad_id=0, bos_id=1, eos_id=eos + SPECIALS, max_length=max_length)
        self.vocab_size = len(next_log_probs(()))

    def start_decoding(self, source: np.ndarray, num_beams: int = 1) -> _Prefixes:
        return _Prefixes(num_beams)

    def decode_step(self, ids: np.ndarray, state: _Prefixes) -> np.ndarray:
        if state.begun:
            state.prefixes = [(*p, int(i) - SPECIALS) for p, i in zip(state.prefixes, ids[0], strict=True)]
        state.begun = True
        return np.stack([self._row(prefix) for prefix in state.prefixes])[None]  # (1, K, SPECIALS + V)

    def _row(self, prefix: tuple[int, ...]) -> np.ndarray:
        closed = self.eos in prefix or min(prefix, default=0) < 0  # a place that is closed, or was never filled
        log_probs = np.zeros(self.vocab_size) if closed else self.next_log_probs(prefix)
        rest = np.log1p(-min(np.exp(log_probs).sum(), 1.0))  # what is never written, so that the row sums to 1
        return np.r_[rest, [-np.inf] * (SPECIALS - 1), log_probs]


def _beam_search(next_log_probs, num_beams, eos, max_length, length_penalty=0.0):
    model = _Searchable(next_log_probs, eos, max_length)
    source, options = np.ones((1, 1), dtype=np.int64), {"length_penalty": length_penalty, "max_extra": max_length}
    with np.errstate(divide="ignore"):
        ((best,),) = decoding.beam_search(model, source, num_beams, **options)
    ids = tuple(token - SPECIALS for token in best.ids)
    return (*ids, eos) if best.ended else ids, best.log_prob


class ToyModel:
    """`next_log_probs` as a table; `asked` holds the prefixes that it was asked for.

    Raises TypeError for a prefix that is no tuple, ValueError for one that has ended or is too long.
    """

    def __init__(self, table: dict[tuple[int, ...], np.ndarray]):
        self.table = table
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, prefix: Any) -> np.ndarray:
        if not isinstance(prefix, tuple):
            raise TypeError(f"next_log_probs takes a tuple of ids, and was given one {kind(prefix)}")
        prefix = tuple(int(token) for token in prefix)
        if EOS in prefix:
            raise ValueError(f"the prefix {prefix} has ended, and nothing follows an end")
        if prefix not in self.table:
            raise ValueError(f"the prefix {prefix} is longer than any sentence: max_length is reached")
        self.asked.append(prefix)
        return self.table[prefix].copy()


def toy_model(seed: int, vocab_size: int = 4, max_length: int = 4, sharpness: float = 1.5) -> ToyModel:
    """A random language model: every sentence ends with EOS, at the latest at `max_length`."""
    rng = np.random.default_rng(seed)
    table: dict[tuple[int, ...], np.ndarray] = {}
    for length in range(max_length):
        for prefix in product(range(1, vocab_size), repeat=length):
            logits = sharpness * rng.standard_normal(vocab_size)
            if length == max_length - 1:
                logits[np.arange(vocab_size) != EOS] = -np.inf
            table[prefix] = logits - np.log(np.exp(logits).sum())
    return ToyModel(table)


def all_sentences(next_log_probs, vocab_size: int = 4, max_length: int = 4) -> dict[tuple[int, ...], float]:
    """Every sentence of a toy model with its log-probability."""
    found = {}
    for length in range(max_length):
        for prefix in product(range(1, vocab_size), repeat=length):
            sentence = (*prefix, EOS)
            found[sentence] = sum(float(next_log_probs(sentence[:t])[sentence[t]]) for t in range(len(sentence)))
    return found


@exercise(answer=_beam_search)
def beam_search(attempt: Attempt) -> None:
    for alpha, seed in product((0.0, 1.0), range(12)):
        model = toy_model(seed)
        ids, log_prob = _sentence(attempt(model, 1, EOS, 4, alpha))
        require(ids[-1] == EOS and EOS not in ids[:-1], f"it returns {ids}: a sentence has one end, and that is eos")
        everything = all_sentences(model)
        require(
            ids in everything,
            f"it returns {ids}, which is no sentence: of the tokens 0 to 3, at most four, and nothing before the first",
        )
        truth = everything[ids]
        require(
            abs(log_prob - truth) < 1e-9,
            f"it says that log P{ids} = {log_prob:.4f}; the log-probabilities of its tokens add up to {truth:.4f}",
        )
        greedy = _greedy(model)
        parting = next((t for t, (ours, best) in enumerate(zip(ids, greedy, strict=False)) if ours != best), 0)
        likely = (
            f"after {ids[:parting]} the most probable is the end, it takes the only place, and nothing goes on"
            if greedy[parting] == EOS
            else f"after {ids[:parting]} it takes {ids[parting]}, and {greedy[parting]} is more probable"
        )
        require(
            ids == greedy, f"with one place it must do what greedy search does, find {greedy} and not {ids}: {likely}"
        )
    for alpha, seed in product((0.0, 1.0), range(12)):
        model = toy_model(seed)
        everything = all_sentences(model)
        scores = {ids: log_prob / decoding.penalty(len(ids), alpha) for ids, log_prob in everything.items()}
        best = max(scores, key=scores.__getitem__)
        model.asked.clear()
        ids, _ = _sentence(attempt(model, 200, EOS, 4, alpha))
        asked, prefixes = len(set(model.asked)), len(model.table)
        which = "log P / lp with α = 1" if alpha else "log P"
        if asked < prefixes:
            likely = f"it went on from {asked} prefix{'es' * (asked > 1)} of {prefixes}, and there was room for all"
        elif alpha:
            likely = "log P is divided by ((5 + |Y|) / 6)^α, and |Y| counts eos"
        else:
            likely = "of all complete sentences the best is wanted, whenever it ended"
        require(
            scores.get(ids, -np.inf) >= scores[best] - 1e-12,
            f"the beam is wide enough for every prefix, and yet {ids} is found, with {which} = "
            f"{scores.get(ids, -np.inf):.4f}, and not {best}, with {scores[best]:.4f}: {likely}",
        )
    ids, _ = _sentence(attempt(_late_winner, 200, EOS, 4))
    require(
        ids == (3, 3, EOS),
        f"200 places are enough for every prefix, and yet {ids} is found and not (3, 3, 0): a place that no prefix has "
        "filled yet stays open; only a sentence that ends takes one away",
    )
    ids, _ = _sentence(attempt(_ends_in_three, 200, 3, 4))
    require(ids == (0, 0, 3), f"with eos = 3 it finds {ids}, and not (0, 0, 3): the end is the token that eos says")
    ids, _ = _sentence(attempt(_slow_but_sure, 2, EOS, 4, 1.0))
    require(
        ids == (1, 1, 1, EOS),
        f"with α = 1 it finds {ids}, and not (1, 1, 1, 0): a prefix with the worse score can still win, since lp grows "
        "with every token; stop when no place is left",
    )
    for alpha, seed, width in product((0.0, 1.0), range(12), (2, 3)):
        model = toy_model(seed)
        expected, _ = _narrow_search(model, width, alpha)
        model.asked.clear()
        ids, _ = _sentence(attempt(model, width, EOS, 4, alpha))
        for length in range(4):
            asked = len({prefix for prefix in model.asked if len(prefix) == length})
            require(
                asked <= width,
                f"with {width} places it goes on from {asked} prefixes of length {length}: the best {width} of all "
                "extensions together go on",
            )
        require(
            ids == expected,
            f"with {width} places (α = {alpha:.0f}) it finds {ids}, and not {expected}: of all extensions together the "
            "best are kept, as many as there are places left, and one that ended takes its place with it",
        )
    ids, _ = _sentence(attempt(_closing_place, 2, EOS, 4))
    require(
        ids != (1, 2, EOS),
        "two places, and the second best first token is eos: its place is closed, so from then on there is one, and "
        f"{ids} is beyond its reach",
    )
    for alpha, seed, width in product((0.0, 1.0), range(12), (1, 3)):
        model = toy_model(seed)
        expected, log_prob = _narrow_search(model, width, alpha, 2)
        model.asked.clear()
        where = f"where {'nothing' if expected[-1] != EOS else 'something'} ends within max_length = 2,"
        try:
            ids, found = _sentence(attempt(model, width, EOS, 2, alpha))
        except Wrong as wrong:
            raise Wrong(f"{where} {wrong}") from None
        longest = max(map(len, model.asked))
        require(longest < 2, f"with max_length = 2 it goes on from a prefix that has {longest} tokens already")
        require(
            ids == expected,
            f"{where} it finds {ids}, and not {expected}: prefixes that are cut off count only if nothing ended",
        )
        said = f"{where} it says that log P{ids} = {found:.4f}, and it is {log_prob:.4f}"
        require(abs(found - log_prob) < 1e-9, said)


def _closing_place(prefix) -> np.ndarray:
    """A toy model in which two prefixes go on after a sentence has ended only if its place stays open."""
    probabilities = {(): [0.2, 0.55, 0.15, 0.1], (1,): [0.0, 0.1, 0.4, 0.5], (1, 3): [0.25] * 4, (1, 2): [1, 0, 0, 0]}
    return _row(probabilities.get(tuple(int(token) for token in prefix), [1, 0, 0, 0]))


def _late_winner(prefix) -> np.ndarray:
    """A toy model whose best sentence begins with the worst of the nine prefixes of two tokens."""
    prefix = tuple(int(token) for token in prefix)
    if prefix == (3, 3) or len(prefix) == 3:
        return _row([1, 0, 0, 0])
    return _row([[0.01, 0.34, 0.33, 0.32], [0.01, 0.34, 0.33, 0.32], [0.25] * 4][len(prefix)])


def _ends_in_three(prefix) -> np.ndarray:
    """The same with its tokens 0 and 3 exchanged."""
    return _late_winner([{0: 3, 3: 0}.get(int(token), token) for token in prefix])[[3, 1, 2, 0]]


def _slow_but_sure(prefix) -> np.ndarray:
    """A toy model whose short sentence leads in log P and, until the long one is complete, in the score with α = 1."""
    sure = [0.01, 0.97, 0.01, 0.01]
    return _row([[0.5, 0.45, 0.03, 0.02], sure, sure, [1, 0, 0, 0]][len(prefix)])


def _row(probabilities: Any) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities, dtype=float))


def _narrow_search(next_log_probs, places: int, alpha: float, longest: int = 4) -> tuple[tuple[int, ...], float]:
    """What a beam of so many places finds, over dictionaries: ids and their log P."""
    beam: dict[tuple[int, ...], float] = {(): 0.0}
    ended: dict[tuple[int, ...], float] = {}
    for _ in range(longest):
        grown = {(*p, v): s + row[v] for p, s in beam.items() for row in [next_log_probs(p)] for v in range(len(row))}
        best = dict(sorted(grown.items(), key=lambda item: -item[1])[:places])
        ended |= {p: s for p, s in best.items() if p[-1] == EOS}
        beam = {p: s for p, s in best.items() if p[-1] != EOS}
        places -= len(best) - len(beam)
    return max((ended or beam).items(), key=lambda found: found[1] / decoding.penalty(len(found[0]), alpha))


def _sentence(result: Any) -> tuple[tuple[int, ...], float]:
    require(isinstance(result, tuple | list) and len(result) == 2, "it must return two things, the ids and their log P")
    ids, log_prob = result
    require(np.ndim(ids) == 1 and np.ndim(log_prob) == 0, "it must return the ids of one sentence and one number")
    require(isinstance(ids, tuple), f"the ids must be a tuple, not one {kind(ids)}")
    require(len(ids), "it returns a sentence without a token: at least eos must be there")
    return tuple(int(token) for token in ids), float(log_prob)


def _greedy(next_log_probs) -> tuple[int, ...]:
    ids: tuple[int, ...] = ()
    while EOS not in ids:
        ids = (*ids, int(np.argmax(next_log_probs(ids))))
    return ids


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
        try:
            result = attempt(*arguments)
        except Wrong as wrong:
            raise Wrong(f"with {t or 'no'} earlier position{'s' * (t != 1)} in the cache {wrong}") from None
        mixed, new_keys, new_values = several(result, "mixed", "keys", "values")
        for name, cache, array in (("keys", new_keys, key), ("values", new_values, value)):
            expected = array[:, : t + 1]
            require(
                cache.shape == expected.shape,
                f"after position {t} the cached {name} have shape {cache.shape} and must have {expected.shape}: one "
                "position more than before, on axis 1",
            )
            agree(f"after position {t}, which is put last, the cache of {name}", cache, expected)
        if t == 0:
            agree("the first position's output, which can attend to nothing but itself,", mixed, value[:, 0])
        louder = several(attempt(*arguments[:2], value[:, t] + 1, *arguments[3:]), "mixed", "keys", "values")[0]
        require(
            not np.allclose(louder, mixed),
            f"at position {t} a change of its own value changes nothing: a position attends to itself too, so its key "
            "and value go into the cache before the attention",
        )
        if t:
            earlier = several(attempt(*arguments[:4], values + 1), "mixed", "keys", "values")[0]
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
    agree("step by step, the attention of five positions", np.stack(rows, axis=1), whole)


def _divisor(attempt: Attempt, query, key, other_key, value_width: int) -> float:
    """What the scores are divided by, read from the weights of two positions; NaN where these do not tell."""
    values = np.zeros((2, len(query), value_width))  # the first position's and the second's: one-hot
    values[0, :, 0] = values[1, :, 1] = 1
    mixed = several(attempt(query, key, values[1], other_key[:, None], values[0][:, None]), "mixed", "", "")[0]
    if not (mixed[:, :2] > 0).all():
        return np.nan
    divisors = (query * (key - other_key)).sum(axis=-1) / np.log(mixed[:, 1] / mixed[:, 0])  # one for each head
    return float(divisors[0]) if np.isfinite(divisors).all() and np.allclose(divisors, divisors[0]) else np.nan


def _bleu(hypotheses, references):
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    names: dict[str, str] = {}  # sacrebleu cuts at spaces, and a token may be one
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
        result = attempt(hypotheses, references)
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
        try:
            nothing = score([hypothesis.split()], [sentence])
        except Wrong as wrong:
            raise Wrong(f"for a translation {what} {wrong}; the score is 0 there") from None
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
        ("one of two translations is too long (there is no reward for length)", [longer, other]),
        ("one translation is as much too long as the other is too short (c and r are sums)", [longer, other[:-1]]),
        (
            "one of two translations is a stutter (an n-gram counts at most as often as the reference has it)",
            [["the"] * 3 + sentence[3:], other],
        ),
        ("one of two translations has a capital too many (another token)", [["The", *sentence[1:]], other]),
    ):
        corpora = hypotheses, [sentence, other]
        agree(f"where {name}, BLEU", score(*corpora), _bleu(*corpora))
