"""Plausible wrong answers to lesson 11, each with words of the hint it must get."""

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
    kind: Any = tuple,
    asks: Any = tuple,
):
    def score(found):
        return found[1] / ((5 + len(found[0])) / 6) ** length_penalty

    beam: list[Any] = [((), 0.0)]
    places, complete = num_beams, []
    for _ in range(max_length):
        extensions = []
        for prefix, log_prob in beam:
            log_probs = next_log_probs(asks(prefix))
            gains = np.exp(log_probs) if probabilities else log_probs
            grown = [((*prefix, v), log_prob + gains[v]) for v in range(len(log_probs))]
            extensions += sorted(grown, key=lambda e: -e[1])[:places] if each else grown
        best = sorted(extensions, key=lambda e: -e[1])
        best = best if each else best[:places]
        complete += [e for e in best if e[0][-1] == eos]
        beam = [e for e in best if e[0][-1] != eos]
        places = num_beams if refill else len(beam) if shrink else places - (len(best) - len(beam))
        if not beam or (first_wins and complete):
            break
        if overtaken and complete and max(map(score, beam)) < max(map(score, complete)):
            break
    candidates = complete + beam if cut else complete if crash else complete or beam
    ids, log_prob = max(candidates, key=score)
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


def _bleu(hypotheses, references, *, clipped=True, brevity=True, percent=100, geometric=True, longer=False, each=False):
    matched, proposed = np.zeros(4), np.zeros(4)
    for ours, theirs in zip(hypotheses, references, strict=True):
        for n in range(1, 5):
            h, r = _grams(ours, n), _grams(theirs, n)
            matched[n - 1] += (h & r).total() if clipped else sum(count for gram, count in h.items() if gram in r)
            proposed[n - 1] += h.total()
    if not matched.all():
        return 0.0
    precisions = matched / proposed
    mean = np.exp(np.log(precisions).mean()) if geometric else precisions.mean()
    length, wanted = sum(map(len, hypotheses)), sum(map(len, references))
    if each:
        length = sum(min(len(ours), len(theirs)) for ours, theirs in zip(hypotheses, references, strict=True))
    penalty = np.exp(1 - wanted / length) if longer else min(1.0, np.exp(1 - wanted / length))
    return percent * mean * (penalty if brevity else 1)


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
        "log 0": (_bleu_of_logs, "the score is 0 there"),
    },
}
