"""Solutions of lesson 11."""

from collections import Counter

import numpy as np


def beam_search(next_log_probs, num_beams, eos, max_length, length_penalty=0.0):
    beam, places, complete = [((), 0.0)], num_beams, []
    for _ in range(max_length):
        extensions = []
        for prefix, log_prob in beam:
            log_probs = next_log_probs(prefix)  # (V,)
            extensions += [((*prefix, int(v)), log_prob + log_probs[v]) for v in np.argsort(-log_probs)[:places]]
        best = sorted(extensions, key=lambda extension: -extension[1])[:places]
        complete += [extension for extension in best if extension[0][-1] == eos]
        beam = [extension for extension in best if extension[0][-1] != eos]
        places -= len(best) - len(beam)
        if not beam:
            break
    return max(complete or beam, key=lambda found: found[1] / ((5 + len(found[0])) / 6) ** length_penalty)


def cached_step(query, key, value, keys, values):
    keys = np.concatenate([keys, key[:, None]], axis=1)  # (H, t + 1, D)
    values = np.concatenate([values, value[:, None]], axis=1)  # (H, t + 1, Dv)
    scores = (keys @ query[:, :, None])[:, :, 0] / np.sqrt(query.shape[-1])  # (H, t + 1)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights[:, None] @ values)[:, 0], keys, values


def bleu(hypotheses, references):
    matched, proposed = np.zeros(4), np.zeros(4)
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(1, 5):
            ours, theirs = (
                Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))
                for tokens in (hypothesis, reference)
            )
            matched[n - 1] += (ours & theirs).total()  # each n-gram at most as often as the reference has it
            proposed[n - 1] += ours.total()
    if not matched.all():
        return 0.0
    length, reference_length = (sum(map(len, corpus)) for corpus in (hypotheses, references))
    brevity_penalty = min(1.0, np.exp(1 - reference_length / length))
    return 100 * brevity_penalty * np.exp(np.mean(np.log(matched / proposed)))
