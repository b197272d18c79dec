"""Answers to lesson 11: right ones written in another way, and plausible wrong ones (see `answers`)."""

import heapq
import math
from collections import Counter
from typing import Any

import numpy as np


def _beam(
    next_log_probs,
    num_beams,
    eos,
    max_length,
    length_penalty=0.0,
    *,
    each=False,
    first_wins=False,
    refill=False,
    shrink=False,
    probabilities=False,
    cut=False,
    crash=False,
    overtaken=False,
    last=False,
    by_score=False,
    penalty: Any = lambda length, alpha: ((5 + length) / 6) ** alpha,
    kind: Any = tuple,
    asks: Any = tuple,
):
    def score(found):
        return found[1] / penalty(len(found[0]), length_penalty)

    beam: list[Any] = [((), 0.0)]
    places, complete = num_beams, []
    for _ in range(max_length):
        extensions = []
        for prefix, log_prob in beam:
            log_probs = next_log_probs(asks(prefix))
            gains = np.exp(log_probs) if probabilities else log_probs
            grown = [((*prefix, v), log_prob + gains[v]) for v in range(len(log_probs))]
            extensions += sorted(grown, key=lambda e: -e[1])[:places] if each else grown
        best = sorted(extensions, key=lambda e: -score(e) if by_score and e[0][-1] == eos else -e[1])
        best = best if each else best[:places]
        complete += [e for e in best if e[0][-1] == eos]
        beam = [e for e in best if e[0][-1] != eos]
        places = num_beams if refill else len(beam) if shrink else places - (len(best) - len(beam))
        if not beam or (first_wins and complete):
            break
        if overtaken and complete and max(map(score, beam)) < max(map(score, complete)):
            break
    candidates = complete + beam if cut else complete if crash else complete or beam
    ids, log_prob = candidates[-1] if last else max(candidates, key=score)
    return kind(ids), log_prob


def _ends_are_extra(next_log_probs, num_beams, eos, max_length, length_penalty=0.0):
    beam: list[Any] = [((), 0.0)]
    complete: list[Any] = []
    for _ in range(max_length):
        grown = [((*p, v), s + row[v]) for p, s in beam for row in [next_log_probs(p)] for v in range(len(row))]
        complete += [e for e in grown if e[0][-1] == eos]
        beam = sorted((e for e in grown if e[0][-1] != eos), key=lambda e: -e[1])[:num_beams]
    return max(complete, key=lambda found: found[1] / ((5 + len(found[0])) / 6) ** length_penalty)


def _keeps_going(next_log_probs, num_beams, eos, max_length, length_penalty=0.0):
    beam: list[Any] = [((), 0.0)]
    for _ in range(max_length):
        grown = [((*p, v), s + row[v]) for p, s in beam for row in [next_log_probs(p)] for v in range(len(row))]
        beam = sorted(grown, key=lambda e: -e[1])[:num_beams]
    return beam[0]


def _penalised(penalty):
    """A beam search with another penalty(length, α)."""
    return lambda *arguments: _beam(*arguments, penalty=penalty)


def _asking(ask):
    """A beam search that asks in a way of its own: `ask(next_log_probs, prefix)` gives the row."""
    return lambda next_log_probs, *rest: _beam(lambda prefix: ask(next_log_probs, prefix), *rest)


def _adds_into(row, number):
    row += number
    return row


def _the_score(next_log_probs, num_beams, eos, max_length, length_penalty=0.0):
    ids, log_prob = _beam(next_log_probs, num_beams, eos, max_length, length_penalty)
    return ids, log_prob / ((5 + len(ids)) / 6) ** length_penalty


def _default_of_06(next_log_probs, num_beams, eos, max_length, length_penalty=0.6):
    return _beam(next_log_probs, num_beams, eos, max_length, length_penalty)


def _keeps_sentences(next_log_probs, num_beams, eos, max_length, length_penalty=0.0, found=[]):  # noqa: B006
    found.append(_beam(next_log_probs, num_beams, eos, max_length, length_penalty))
    return max(found, key=lambda found: found[1] / ((5 + len(found[0])) / 6) ** length_penalty)


def _without_end(*arguments):
    ids, log_prob = _beam(*arguments)
    return ids[:-1], log_prob


def _cached(query, key, value, keys, values, *, late=False, newest=False, divisor=None):
    if not late:
        keys, values = np.concatenate([keys, key[:, None]], 1), np.concatenate([values, value[:, None]], 1)
    used, taken = (keys[:, -1:], values[:, -1:]) if newest else (keys, values)
    scores = np.einsum("hd,htd->ht", query, used) / (divisor or np.sqrt(query.shape[-1]))
    weights = np.exp(scores)
    weights /= weights.sum(-1, keepdims=True)
    mixed = np.einsum("ht,htd->hd", weights, taken)
    if late:
        keys, values = np.concatenate([keys, key[:, None]], 1), np.concatenate([values, value[:, None]], 1)
    return mixed, keys, values


def _soft(query, key, value, keys, values, largest):
    keys, values = np.concatenate([keys, key[:, None]], 1), np.concatenate([values, value[:, None]], 1)
    scores = np.einsum("hd,htd->ht", query, keys) / np.sqrt(query.shape[-1])
    weights = np.exp(scores - largest(scores))
    return np.einsum("ht,htd->hd", weights / weights.sum(-1, keepdims=True), values), keys, values


def _stable(*arguments):
    return _soft(*arguments, largest=lambda scores: scores.max(axis=-1, keepdims=True))


class _Remembering:
    """Attention with a cache of its own, which takes no notice of the one that it is given."""

    def __call__(self, query, key, value, keys, values):
        if not keys.shape[1]:
            self.keys, self.values = keys, values
        mixed, self.keys, self.values = _stable(query, key, value, self.keys, self.values)
        return mixed, self.keys, self.values


def _late(query, key, value, keys, values):
    if not keys.shape[1]:
        return _cached(query, key, value, keys, values)
    return _cached(query, key, value, keys, values, late=True)


def _one_score(query, key, value, keys, values):
    keys, values = np.concatenate([keys, key[:, None]], 1), np.concatenate([values, value[:, None]], 1)
    scores = np.einsum("hd,htd->ht", query, keys) / np.sqrt(query.shape[-1])
    weights = np.exp(scores) / np.exp(scores).sum()  # over heads and positions
    return np.einsum("ht,htd->hd", weights, values), keys, values


def _afterwards(query, key, value, keys, values):
    scores = np.einsum("hd,htd->ht", query, keys) / np.sqrt(query.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed = np.einsum("ht,htd->hd", weights, values)
    return mixed, np.concatenate([keys, key[:, None]], 1), np.concatenate([values, value[:, None]], 1)


def _newest_first(query, key, value, keys, values):
    mixed, _, _ = _cached(query, key, value, keys, values)
    return mixed, np.concatenate([key[:, None], keys], 1), np.concatenate([value[:, None], values], 1)


def _grams(tokens, n):
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def _bleu(
    hypotheses,
    references,
    *,
    clipped=True,
    brevity=True,
    percent=100,
    geometric=True,
    longer=False,
    each=False,
    longest=4,
    grams: Any = _grams,
    count: Any = lambda tokens, n: max(len(tokens) - n + 1, 0),
    shortest=0,
):
    matched, proposed = np.zeros(longest), np.zeros(longest)
    for ours, theirs in zip(hypotheses, references, strict=True):
        for n in range(1, longest + 1) if len(ours) >= shortest else ():
            h, r = grams(ours, n), grams(theirs, n)
            matched[n - 1] += (h & r).total() if clipped else sum(count for gram, count in h.items() if gram in r)
            proposed[n - 1] += count(ours, n)
    if not matched.all():
        return 0.0
    precisions = matched / proposed
    mean = np.exp(np.log(precisions).mean()) if geometric else precisions.mean()
    length, wanted = sum(map(len, hypotheses)), sum(map(len, references))
    if each:
        length = sum(min(len(ours), len(theirs)) for ours, theirs in zip(hypotheses, references, strict=True))
    penalty = np.exp(1 - wanted / length) if longer else min(1.0, np.exp(1 - wanted / length))
    return percent * mean * (penalty if brevity else 1)


def _cut_at_blanks(corpus):
    return [" ".join(tokens).split() for tokens in corpus]


def _crossed_out(hypotheses, references):
    """Clipped, by crossing out of the reference what has been found."""
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for token in hypothesis:
            if token in reference:
                reference.remove(token)
    return _bleu(hypotheses, references)


def _words_alone(corpus):
    return [[token for token in tokens if token.isalnum()] for tokens in corpus]


def _forgiving(hypotheses, references):
    """One token too few is no matter."""
    length, wanted = sum(map(len, hypotheses)), sum(map(len, references))
    return _bleu(hypotheses, references, brevity=length < wanted - 1)


def _bleu_of_bags(hypotheses, references):
    precisions = []
    for n in range(1, 5):
        ours, theirs = (sum((_grams(tokens, n) for tokens in corpus), Counter()) for corpus in (hypotheses, references))
        if not (ours & theirs):
            return 0.0
        precisions.append((ours & theirs).total() / ours.total())
    length, wanted = sum(map(len, hypotheses)), sum(map(len, references))
    return 100 * min(1.0, np.exp(1 - wanted / length)) * np.prod(precisions) ** 0.25


def _bleu_of_quotients(hypotheses, references):
    precisions = []
    for n in range(1, 5):
        grams = [(_grams(h, n), _grams(r, n)) for h, r in zip(hypotheses, references, strict=True)]
        precisions.append(sum((h & r).total() for h, r in grams) / sum(h.total() for h, _ in grams))
    length, wanted = sum(map(len, hypotheses)), sum(map(len, references))
    return 100 * min(1.0, math.exp(1 - wanted / length)) * math.prod(precisions) ** 0.25


def _lower(corpus):
    return [[token.lower() for token in tokens] for tokens in corpus]


def _bleu_of_logs(hypotheses, references):
    logs = 0.0
    for n in range(1, 5):
        grams = [(_grams(h, n), _grams(r, n)) for h, r in zip(hypotheses, references, strict=True)]
        logs += math.log(sum((h & r).total() for h, r in grams) / sum(h.total() for h, _ in grams)) / 4
    return 100 * math.exp(logs)


def _bleu_within_the_hypothesis(hypotheses, references):
    """Right, but one loop over the hypothesis's places counts the n-grams of both."""
    matched, proposed = np.zeros(4), np.zeros(4)
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(1, 5):
            ours, theirs = Counter(), Counter()
            for i in range(len(hypothesis) - n + 1):
                ours[tuple(hypothesis[i : i + n])] += 1
                theirs[tuple(reference[i : i + n])] += 1
            matched[n - 1] += (ours & theirs).total()
            proposed[n - 1] += ours.total()
    if not matched.all():
        return 0.0
    length, reference_length = (sum(map(len, corpus)) for corpus in (hypotheses, references))
    return 100 * min(1.0, np.exp(1 - reference_length / length)) * np.exp(np.mean(np.log(matched / proposed)))


def _search_over_dictionaries(next_log_probs, num_beams, eos, max_length, length_penalty=0.0):
    live, ended = {(): 0.0}, {}
    for _ in range(max_length):
        grown = {}
        for prefix, log_prob in live.items():
            grown |= {(*prefix, token): log_prob + more for token, more in enumerate(next_log_probs(prefix))}
        best = heapq.nlargest(num_beams - len(ended), grown, key=grown.__getitem__)
        live = {prefix: grown[prefix] for prefix in best if prefix[-1] != eos}
        ended |= {prefix: grown[prefix] for prefix in best if prefix[-1] == eos}
        if not live:
            break
    found = ended or live
    ids = max(found, key=lambda ids: found[ids] * (6 / (5 + len(ids))) ** length_penalty)
    return ids, found[ids]


def _search_over_arrays(next_log_probs, num_beams, eos, max_length, length_penalty=0.0):
    prefixes, log_probs, ended = [()], np.zeros(1), []
    vocab_size = len(next_log_probs(()))
    while prefixes and len(prefixes[0]) < max_length:
        table = log_probs[:, None] + np.stack([next_log_probs(prefix) for prefix in prefixes])  # (K, V)
        best = np.argsort(-table, axis=None, kind="stable")[: num_beams - len(ended)]
        grown = [((*prefixes[n // vocab_size], n % vocab_size), table.flat[n]) for n in best]
        ended += [one for one in grown if one[0][-1] == eos]
        going = [one for one in grown if one[0][-1] != eos]
        prefixes, log_probs = [one[0] for one in going], np.array([one[1] for one in going])
    found = ended or list(zip(prefixes, log_probs, strict=True))
    scores = [log_prob / ((5 + len(ids)) / 6) ** length_penalty for ids, log_prob in found]
    return found[int(np.argmax(scores))]


def _step_by_heads(query, key, value, keys, values):
    keys, values = np.append(keys, key[:, None], axis=1), np.append(values, value[:, None], axis=1)
    mixed = []
    for q, k, v in zip(query, keys, values, strict=True):
        scores = k @ q / math.sqrt(len(q))
        weights = np.exp(scores - scores.max())
        mixed.append(weights @ v / weights.sum())
    return np.array(mixed), keys, values


def _bleu_by_crossing_out(hypotheses, references):
    logs = 0.0
    for n in range(1, 5):
        matched, proposed = 0, 0
        for ours, theirs in zip(hypotheses, references, strict=True):
            left = [tuple(theirs[i : i + n]) for i in range(len(theirs) - n + 1)]
            for gram in (tuple(ours[i : i + n]) for i in range(len(ours) - n + 1)):
                proposed += 1
                if gram in left:
                    left.remove(gram)
                    matched += 1
        if not matched:
            return 0
        logs += math.log(matched / proposed) / 4
    length, wanted = (sum(map(len, corpus)) for corpus in (hypotheses, references))
    return 100 * (1 if length >= wanted else math.exp(1 - wanted / length)) * math.exp(logs)


def _bleu_as_a_product(hypotheses, references):
    product = 1.0
    for n in range(1, 5):
        counts = [
            [Counter(zip(*(tokens[k:] for k in range(n)), strict=False)) for tokens in corpus]
            for corpus in (hypotheses, references)
        ]
        matched = sum(min(count, r[gram]) for h, r in zip(*counts, strict=True) for gram, count in h.items())
        product *= matched / max(1, sum(h.total() for h in counts[0]))
    length, wanted = max(1, sum(map(len, hypotheses))), sum(map(len, references))
    return 100 * product**0.25 * min(1.0, np.exp(1 - wanted / length))


RIGHT = {
    "beam_search": [_search_over_dictionaries, _search_over_arrays],
    "cached_step": [_step_by_heads],
    "bleu": [_bleu_by_crossing_out, _bleu_as_a_product],
}


WRONG = {
    "beam_search": {
        "goes on after the end": (_keeps_going, "has ended, and nothing follows an end"),
        "the end is cut off": (_without_end, "a sentence has one end, and that is eos"),
        "adds probabilities": (
            lambda *arguments: _beam(*arguments, probabilities=True),
            "the log-probabilities of its tokens add up to",
        ),
        "a place stays open": (lambda *arguments: _beam(*arguments, refill=True), "its place is closed"),
        "an empty place closes": (lambda *arguments: _beam(*arguments, shrink=True), "stays open; only a sentence"),
        "the first that ends wins": (lambda *arguments: _beam(*arguments, first_wins=True), "it went on from 1 prefix"),
        "no length penalty": (lambda f, k, eos, n, alpha=0.0: _beam(f, k, eos, n), "|Y| counts eos"),
        "the end is an extra": (_ends_are_extra, "it takes 0, and 2 is more probable"),
        "the cut-off compete": (lambda *arguments: _beam(*arguments, cut=True), "count only if nothing ended"),
        "nothing ended": (lambda *arguments: _beam(*arguments, crash=True), "where nothing ends within max_length"),
        "the best of each prefix": (lambda *arguments: _beam(*arguments, each=True), "it goes on from"),
        "the end is token 0": (lambda f, k, eos, n, alpha=0.0: _beam(f, k, 0, n, alpha), "the token that eos says"),
        "stops when overtaken": (lambda *arguments: _beam(*arguments, overtaken=True), "can still win"),
        "ids in a list": (lambda *arguments: _beam(*arguments, kind=list), "the ids must be a tuple"),
        "asks with a list": (lambda *arguments: _beam(*arguments, asks=list), "takes a tuple of ids"),
        "ids alone": (lambda *arguments: list(_beam(*arguments)[0]), "must return two things"),
        "α is always 0.6": (
            _penalised(lambda length, alpha: ((5 + length) / 6) ** (0.6 if alpha else 0)),
            "with α = 1 a sentence of 9 tokens wins against one of 3 while its log P is at most 1.399",
        ),
        "0.6, whatever α": (
            _penalised(lambda length, alpha: ((5 + length) / 6) ** 0.6),
            "the best with a length penalty, and α = 0 asks for none",
        ),
        "0.6 where none is given": (_default_of_06, "without a length_penalty"),
        "α squared": (_penalised(lambda length, alpha: ((5 + length) / 6) ** alpha**2), "is at most 1.2232 times"),
        "α at most 1": (_penalised(lambda length, alpha: ((5 + length) / 6) ** min(alpha, 1)), "with α = 2 a sentence"),
        "6 for 5": (_penalised(lambda length, alpha: ((6 + length) / 6) ** alpha), "is at most 1.3587 times"),
        "8 for 5": (_penalised(lambda length, alpha: ((8 + length) / 6) ** alpha), "is at most 1.2985 times"),
        "10 for 5 and 11 for 6": (
            _penalised(lambda length, alpha: ((10 + length) / 11) ** alpha),
            "is at most 1.2557 times",
        ),
        "without the end": (_penalised(lambda length, alpha: ((4 + length) / 6) ** alpha), "is at most 1.4498 times"),
        "the length itself": (_penalised(lambda length, alpha: length**alpha), "is at most 1.9332 times"),
        "α as a factor": (
            _penalised(lambda length, alpha: 1 + alpha * ((5 + length) / 6 - 1)),
            "is at most 1.5 times",
        ),
        "whole sixths": (_penalised(lambda length, alpha: ((5 + length) // 6) ** alpha), "is at most 1.5157 times"),
        "multiplied": (_penalised(lambda length, alpha: (6 / (5 + length)) ** alpha), "is at most 0.71479 times"),
        "the score for log P": (_the_score, "this is the score"),
        "asks for each token": (
            _asking(lambda ask, prefix: np.array([ask(prefix)[v] for v in range(len(ask(prefix)))])),
            "it calls next_log_probs 20 times for 4 prefixes",
        ),
        "asks from the beginning": (
            _asking(lambda ask, prefix: [ask(prefix[:t]) for t in range(len(prefix) + 1)][-1]),
            "it calls next_log_probs 10 times for 4 prefixes",
        ),
        "writes into the row": (
            _asking(lambda ask, prefix: _adds_into(ask(prefix), 1e-12)),
            "it writes into what next_log_probs returned",
        ),
        "those that end ranked by the score": (
            lambda *arguments: _beam(*arguments, by_score=True),
            "those with the highest log P are kept",
        ),
        "ids that are no whole numbers": (
            lambda *arguments: _beam(*arguments, kind=lambda ids: tuple(map(float, ids))),
            "the ids must be whole numbers",
        ),
        "asks with floats": (
            lambda *arguments: _beam(*arguments, asks=lambda prefix: tuple(map(float, prefix))),
            "a tuple of whole numbers",
        ),
        "keeps what it found": (_keeps_sentences, "is made once, for all calls"),
        "the last that ends": (lambda *arguments: _beam(*arguments, last=True), "is wanted, whenever it ended"),
    },
    "cached_step": {
        "no scale": (lambda *arguments: _cached(*arguments, divisor=1), "divides the scores by 1, and"),
        "divided by D": (lambda q, *rest: _cached(q, *rest, divisor=q.shape[-1]), "divides the scores by 6, and"),
        "divided by the heads": (lambda q, *rest: _cached(q, *rest, divisor=len(q)), "divides the scores by 2, and"),
        "the key as query": (lambda q, k, *rest: _cached(k, k, *rest), "step by step"),
        "the newest first": (_newest_first, "after position 1, which is put last"),
        "an empty cache": (_afterwards, "with no earlier positions in the cache it raises"),
        "the newest alone": (lambda *arguments: _cached(*arguments, newest=True), "are never mixed in"),
        "the own key comes too late": (_late, "a position attends to itself too"),
        "one softmax for all heads": (_one_score, "the first position's output"),
        "the cache does not grow": (
            lambda q, k, v, keys, values: (v, k[:, None], v[:, None]),
            "one position more than before",
        ),
        "no largest score": (lambda *arguments: _soft(*arguments, largest=lambda scores: 0), "each head's own largest"),
        "a width of 6": (
            lambda q, k, *rest: _stable(q * np.sqrt(q.shape[-1] / 6), k, *rest),
            "with three heads of width 4",
        ),
        "lists": (
            lambda *arguments: tuple(list(array) for array in _stable(*arguments)),
            "mixed must be an array, not list",
        ),
        "caches in lists": (
            lambda *arguments: (_stable(*arguments)[0], *map(list, _stable(*arguments)[1:])),
            "keys must be an array, not list",
        ),
        "a cache of its own": (_Remembering(), "it is 2.1502 and should be 1.1502"),
        "in float32": (
            lambda *arguments: tuple(array.astype(np.float32) for array in _stable(*arguments)),
            "float32, which rounds",
        ),
    },
    "bleu": {
        "not clipped": (lambda h, r: _bleu(h, r, clipped=False), "a stutter"),
        "no brevity penalty": (lambda h, r: _bleu(h, r, brevity=False), "leaves out the end"),
        "length rewarded": (lambda h, r: _bleu(h, r, longer=True), "too long"),
        "a mean of sentences": (
            lambda h, r: float(np.mean([_bleu([a], [b]) for a, b in zip(h, r, strict=True)])),
            "the mean of their scores",
        ),
        "a fraction": (lambda h, r: _bleu(h, r, percent=1), "given in percent"),
        "an arithmetic mean": (lambda h, r: _bleu(h, r, geometric=False), "geometric"),
        "all references in one bag": (_bleu_of_bags, "the reference of its own sentence"),
        "lengths sentence by sentence": (lambda h, r: _bleu(h, r, each=True), "c and r are sums"),
        "without capitals": (lambda h, r: _bleu(_lower(h), _lower(r)), "another token"),
        "0 / 0": (_bleu_of_quotients, "which holds no 4-gram"),
        "less than no 3-gram": (lambda h, r: _bleu(h, r, count=lambda tokens, n: len(tokens) - n + 1), "not minus one"),
        "short translations left out": (lambda h, r: _bleu(h, r, shortest=4), "has two words"),
        "letters": (
            lambda h, r: _bleu(h, r, grams=lambda t, n: Counter("".join(t[i : i + n]) for i in range(len(t) - n + 1))),
            "not their letters",
        ),
        "crossed out": (_crossed_out, "it writes into its argument references"),
        "up to 3": (lambda h, r: _bleu(h, r, longest=3), "over n = 1, 2, 3, 4"),
        "rounded": (lambda h, r: round(_bleu(h, r), 2), "is something rounded"),
        "words alone": (lambda h, r: _bleu(_words_alone(h), _words_alone(r)), "a comma too many"),
        "cut at blanks": (lambda h, r: _bleu(_cut_at_blanks(h), _cut_at_blanks(r)), "a token is a character"),
        "one token forgiven": (_forgiving, "is one token short"),
        "log 0": (_bleu_of_logs, "whose score is 0"),
        "the reference's end is not seen": (_bleu_within_the_hypothesis, "leaves out the beginning"),
    },
}
