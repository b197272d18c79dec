"""Answers to lesson 11: right ones written in another way, and plausible wrong ones (see `answers`)."""

import heapq
import math
from collections import Counter
from typing import Any

import numpy as np

from course.lesson_11 import solutions


def _ends_are_extra(next_log_probs, num_beams, eos, max_length, length_penalty=0.0):
    beam: list[Any] = [((), 0.0)]
    complete: list[Any] = []
    for _ in range(max_length):
        grown = [((*p, v), s + row[v]) for p, s in beam for row in [next_log_probs(p)] for v in range(len(row))]
        complete += [e for e in grown if e[0][-1] == eos]
        beam = sorted((e for e in grown if e[0][-1] != eos), key=lambda e: -e[1])[:num_beams]
    return max(complete, key=lambda found: found[1] / ((5 + len(found[0])) / 6) ** length_penalty)


class _Remembering:
    """Attention with a cache of its own, which takes no notice of the one that it is given."""

    def __call__(self, query, key, value, keys, values):
        if not keys.shape[1]:
            self.keys, self.values = keys, values
        mixed, self.keys, self.values = solutions.cached_step(query, key, value, self.keys, self.values)
        return mixed, self.keys, self.values


def _grams(tokens, n):
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def _bleu_of_bags(hypotheses, references):
    precisions = []
    for n in range(1, 5):
        ours, theirs = (sum((_grams(tokens, n) for tokens in corpus), Counter()) for corpus in (hypotheses, references))
        if not (ours & theirs):
            return 0.0
        precisions.append((ours & theirs).total() / ours.total())
    length, wanted = sum(map(len, hypotheses)), sum(map(len, references))
    return 100 * min(1.0, np.exp(1 - wanted / length)) * np.prod(precisions) ** 0.25


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
    "bleu": [_bleu_as_a_product],
}


def _each_pair_once(hypotheses, references):
    pairs = {(tuple(h), tuple(r)) for h, r in zip(hypotheses, references, strict=True)}
    return _bleu_as_a_product(*zip(*pairs, strict=True))


MISTAKES = r"""
[beam_search]
goes on after the end
    [extension for extension in best if extension[0][-1] != eos] → best | has ended, and nothing follows an end
the end is cut off
    return max( → ids, log_prob = max( | ** length_penalty) → ** length_penalty)\n    return ids[:-1], log_prob
    a sentence has one end, and that is eos
adds probabilities | + log_probs[v] → + np.exp(log_probs[v]) | the log-probabilities of its tokens add up to
a place stays open | places -= len(best) - len(beam) → pass | its place is closed
an empty place closes | places -= len(best) - len(beam) → places = len(beam) | stays open; only a sentence
the first that ends wins | if not beam: → if not beam or complete: | it went on from 1 prefix
the cut-off compete | complete or beam → complete + beam | count only if nothing ended
nothing ended | complete or beam → complete | where nothing ends within max_length
the best of each prefix | -extension[1])[:places] → -extension[1]) | it goes on from
the end is token 0 | = eos → = 0 | the token that eos says
stops when overtaken
    for _ in range → score = lambda found: found[1] / ((5 + len(found[0])) / 6) ** length_penalty\n    for _ in range
    if not beam: → if not beam or (complete and max(map(score, beam)) < max(map(score, complete))): | can still win
ids in a list
    return max( → ids, log_prob = max( | ** length_penalty) → ** length_penalty)\n    return list(ids), log_prob
    the ids must be a tuple
asks with a list | next_log_probs(prefix) → next_log_probs(list(prefix)) | takes a tuple of ids
ids alone
    return max( → ids, log_prob = max( | ** length_penalty) → ** length_penalty)\n    return list(ids)
    must return two things
α is always 0.6
    ((5 + len(found[0])) / 6) ** length_penalty → ((5 + len(found[0])) / 6) ** (0.6 if length_penalty else 0)
    with α = 1 a sentence of 9 tokens wins against one of 3 while its log P is at most 1.399
0.6, whatever α | ** length_penalty → ** 0.6 | the best with a length penalty, and α = 0 asks for none
0.6 where none is given | length_penalty=0.0 → length_penalty=0.6 | without a length_penalty
α at most 1 | ** length_penalty → ** min(length_penalty, 1) | with α = 2 a sentence
6 for 5 | (5 + → (6 + | is at most 1.3587 times
without the end | (5 + → (4 + | is at most 1.4498 times
the score for log P
    return max( → ids, log_prob = max(
    ** length_penalty) → ** length_penalty)\n    return ids, log_prob / ((5 + len(ids)) / 6) ** length_penalty
    this is the score
asks from the beginning
    next_log_probs(prefix) → [next_log_probs(prefix[:t]) for t in range(len(prefix) + 1)][-1]
    it calls next_log_probs 10 times for 4 prefixes
writes into the row | (prefix) → (prefix)\n            log_probs += 1e-12 | it writes into what next_log_probs returned
those that end ranked by the score
    -extension[1] → -extension[1] / (((5 + len(extension[0])) / 6) ** length_penalty if extension[0][-1] == eos else 1)
    those with the highest log P are kept
ids that are no whole numbers
    return max( → ids, log_prob = max(
    ** length_penalty) → ** length_penalty)\n    return tuple(map(float, ids)), log_prob | the ids must be whole numbers
asks with floats | next_log_probs(prefix) → next_log_probs(tuple(map(float, prefix))) | a tuple of whole numbers
keeps what it found
    def beam_search → KEPT = []\n\n\ndef beam_search
    return max(complete or beam → KEPT.extend(complete or beam)\n    return max(KEPT | is made once, for all calls
the last that ends | returns (complete or beam)[-1] | is wanted, whenever it ended
the end is an extra | is _ends_are_extra | it takes 0, and 2 is more probable
[cached_step]
all alike | np.exp(scores - scores.max(axis=-1, keepdims=True)) → np.ones_like(scores) | is the plain mean of the values
divided by D | np.sqrt(query.shape[-1]) → query.shape[-1] | divides the scores by 6, and
the key as query | query[:, :, None] → key[:, :, None] | step by step
the newest first
    [keys, key[:, None]] → [key[:, None], keys] | [values, value[:, None]] → [value[:, None], values]
    after position 1, which is put last
an empty cache
    keys = np → new_keys = np | values = np → new_values = np | keys, values\n → new_keys, new_values\n
    with no earlier positions in the cache it raises
the newest alone | (keys @ → (keys[:, -1:] @ | @ values → @ values[:, -1:] | are never mixed in
the own key comes too late
    keys = np → new_keys = np | values = np → new_values = np | keys, values\n → new_keys, new_values\n
    scores = (keys → if not keys.shape[1]:\n        keys, values = new_keys, new_values\n    scores = (keys
    a position attends to itself too
one softmax for all heads | max(axis=-1, keepdims=True) → max() | axis=-1, keepdims=True → | the first position's output
no largest score | scores - scores.max(axis=-1, keepdims=True) → scores | each head's own largest
a width of 6 | np.sqrt(query.shape[-1]) → np.sqrt(6) | with three heads of width 4
lists | returns [list(array) for array in answer] | mixed must be an array, not list
exponents at most 50
    scores - scores.max(axis=-1, keepdims=True) → np.minimum(scores, 50)
    where all scores are near +1,732
a window | weights /= → weights[:, :-64] = 0\n    weights /= | with 70 earlier positions
caches in lists | keys, values\n → list(keys), list(values)\n | keys must be an array, not list
the cache does not grow | returns value, key[:, None], value[:, None] | one position more than before
a cache of its own | is _Remembering() | it is 2.1502 and should be 1.1502
[bleu]
the product | np.exp(np.mean(np.log(matched / proposed))) → np.prod(matched / proposed) | its fourth root is missing
c / r | np.exp(1 - reference_length / length) → length / reference_length | has the brevity penalty c / r
not clipped | (ours & theirs).total() → sum(count for gram, count in ours.items() if gram in theirs) | a stutter
no brevity penalty | 100 * brevity_penalty → 100 | leaves out the end
length rewarded | min(1.0, np.exp(1 - reference_length / length)) → np.exp(1 - reference_length / length) | too long
a fraction | return 100 → return 1 | given in percent
an arithmetic mean | returns 100 * brevity_penalty * np.mean(matched / proposed) | geometric
lengths sentence by sentence
    brevity_penalty = →
        length = sum(min(len(h), len(r)) for h, r in zip(hypotheses, references, strict=True))\n    brevity_penalty =
    c and r are sums
without capitals | tuple(tokens[i : i + n]) → tuple(token.lower() for token in tokens[i : i + n]) | another token
0 / 0 | if not matched.all() → if 0 in matched / proposed | which holds no 4-gram
less than no 3-gram | ours.total() → len(hypothesis) - n + 1 | not minus one
letters | tuple(tokens[i : i + n]) → "".join(tokens[i : i + n]) | not their letters
words alone clipped
    (ours & theirs).total() → sum(min(c, theirs[g]) if n == 1 else c * (g in theirs) for g, c in ours.items())
    all n-grams are clipped
each pair once | is _each_pair_once | and counts twice
short pairs left out
    matched[n - 1] += (ours & theirs).total() → matched[n - 1] += (ours & theirs).total() * (len(reference) > 3)
    proposed[n - 1] += ours.total() → proposed[n - 1] += ours.total() * (len(reference) > 3)
    words all the same
rounded | returns round(100 * brevity_penalty * np.exp(np.mean(np.log(matched / proposed))), 2) | is something rounded
one token forgiven | = min( → = 1.0 if length >= reference_length - 1 else min( | is one token short
log 0
    if not matched.all():\n        return 0.0 → import math
    np.log(matched / proposed) → [math.log(m / p) for m, p in zip(matched, proposed, strict=True)] | whose score is 0
the reference's end is not seen | range(len(tokens) - n + 1) → range(len(hypothesis) - n + 1) | leaves out the beginning
a mean of sentences
    returns float(np.mean([solution([a], [b]) for a, b in zip(hypotheses, references, strict=True)]))
    the mean of their scores
all references in one bag | is _bleu_of_bags | the reference of its own sentence
words alone
    returns solution(*([list(filter(str.isalnum, tokens)) for tokens in corpus] for corpus in (hypotheses, references)))
    a comma too many
cut at blanks
    returns solution(*([" ".join(tokens).split() for tokens in corpus] for corpus in (hypotheses, references)))
    a token is a character
"""
