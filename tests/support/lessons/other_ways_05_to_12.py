"""Right answers to lessons 05 to 12 that look unlike the solutions: loops, einsum, other orders. All must pass."""

import heapq
import math
import pickle
from collections import Counter

import numpy as np

from minitransformer.ops import attention_backward, attention_forward, layernorm_backward


def _split_in_a_loop(x, num_heads):
    B, T, C = x.shape
    D = C // num_heads
    heads = np.empty((B, num_heads, T, D))
    for h in range(num_heads):
        heads[:, h] = x[:, :, h * D : (h + 1) * D]
    return heads


def _attention_in_loops(x, w_qkv, w_out, num_heads, causal=False):
    out, (B, T, C) = np.zeros_like(x), x.shape
    D = C // num_heads
    for b in range(B):
        projected = x[b] @ w_qkv
        for h in range(num_heads):
            query, key, value = (projected[:, n * C + h * D : n * C + (h + 1) * D] for n in range(3))
            scores = query @ key.T / math.sqrt(D)
            if causal:
                scores[np.triu_indices(T, 1)] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            out[b] += weights @ value @ w_out[h * D : (h + 1) * D]
    return out


def _attention_by_einsum(x, w_qkv, w_out, num_heads, causal=False):
    B, T, C = x.shape
    query, key, value = np.moveaxis((x @ w_qkv).reshape(B, T, 3, num_heads, -1), 2, 0)
    scores = np.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(C // num_heads)
    scores = scores + np.where(np.tri(T), 0, -1e30) if causal else scores
    weights = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
    return np.einsum("bhqk,bkhd,hdc->bqc", weights, value, w_out.reshape(num_heads, -1, C))


def _backward_by_einsum(dout, x, w_qkv, w_out, num_heads, causal=False):
    B, T, C = x.shape
    parts = [part.reshape(B, T, num_heads, -1).swapaxes(1, 2) for part in np.split(x @ w_qkv, 3, axis=-1)]
    mixed, cache = attention_forward(*parts, causal=causal)
    dmixed = np.einsum("btc,hdc->bhtd", dout, w_out.reshape(num_heads, -1, C))
    gradients = [np.swapaxes(gradient, 1, 2).reshape(B, T, C) for gradient in attention_backward(dmixed, cache)]
    dx = sum(gradient @ weight.T for gradient, weight in zip(gradients, np.split(w_qkv, 3, axis=1), strict=True))
    dw_qkv = np.concatenate([np.einsum("btc,btd->cd", x, gradient) for gradient in gradients], axis=1)
    return [dx, dw_qkv, np.einsum("bhtd,btc->hdc", mixed, dout).reshape(C, C)]


def _sentence_by_sentence(dout, x, *weights_and_options, **options):
    per_sentence = [
        _backward_by_einsum(d[None], sentence[None], *weights_and_options, **options)
        for d, sentence in zip(dout, x, strict=True)
    ]
    dx, dw_qkv, dw_out = zip(*per_sentence, strict=True)
    return np.concatenate(dx), sum(dw_qkv), sum(dw_out)


def _sines_in_loops(num_positions, d_model):
    table = np.zeros((num_positions, d_model))
    for pos in range(num_positions):
        for i in range(d_model // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            table[pos, 2 * i], table[pos, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return table


def _sines_of_complex_numbers(num_positions, d_model):
    tips = np.exp(1j * np.outer(np.arange(num_positions), np.exp(-np.log(1e4) * np.arange(0, d_model, 2) / d_model)))
    return np.stack([np.imag(tips), np.real(tips)], axis=-1).reshape(num_positions, d_model)


def _one_turn(d_model):
    turn = np.zeros((d_model, d_model))
    for i in range(0, d_model, 2):
        omega = 10000 ** (-i / d_model)
        turn[i, i : i + 2] = math.cos(omega), -math.sin(omega)
        turn[i + 1, i : i + 2] = math.sin(omega), math.cos(omega)
    return turn


def _rows_added(dout, max_length):
    dtable = np.zeros((max_length, dout.shape[2]))
    for sentence in dout:
        dtable[: len(sentence)] += sentence
    return dtable


def _rows_added_at(dout, max_length):
    dtable = np.zeros((max_length, dout.shape[2]))
    np.add.at(dtable, np.tile(np.arange(dout.shape[1]), len(dout)), dout.reshape(-1, dout.shape[2]))
    return dtable


def _norm_by_jacobians(dy, normed, rstd, gamma):
    C = len(gamma)
    jacobians = rstd[:, :, None] * (np.eye(C) - 1 / C - normed[:, :, None] * normed[:, None, :] / C)
    return np.einsum("nc,ncd->nd", dy * gamma, jacobians), np.einsum("nc,nc->c", dy, normed), dy.sum(axis=0)


def _norm_line_by_line(dy, normed, rstd, gamma):
    centred, dnormed = normed / rstd, dy * gamma
    dcentred = dnormed * rstd
    dvariance = -0.5 * rstd**3 * (dnormed * centred).sum(axis=-1, keepdims=True)
    dcentred += 2 / len(gamma) * centred * dvariance
    return dcentred - dcentred.mean(axis=-1, keepdims=True), (dy * normed).sum(axis=0), dy.sum(axis=0)


def _dropout_in_loops(x, rate, uniform):
    y, kept = np.zeros_like(x), np.zeros(x.shape, dtype=bool)
    for place in np.ndindex(x.shape):
        if not uniform[place] < rate:
            y[place], kept[place] = x[place] / (1 - rate), True
    return y, kept


def _off_at_rate_0(x, rate, uniform):
    if rate == 0:
        return x, np.ones(x.shape, dtype=bool)
    return np.where(uniform >= rate, x / (1 - rate), 0.0), uniform >= rate


def _both_branches_in_place(dy, cache, sublayer_backward):
    sublayer_cache, kept, rate, norm_cache = cache
    dsum, dgamma, dbeta = layernorm_backward(dy, norm_cache)
    dx = sublayer_backward(np.where(kept, dsum / (1 - rate), 0.0), sublayer_cache)
    dx += dsum
    return [dx, dgamma, dbeta]


def _cross_by_einsum(dout, cache):
    *weights, attention_cache = cache
    dquery, dkey, dvalue = (gradient.sum(axis=1) for gradient in attention_backward(dout[:, None], attention_cache))
    both = np.concatenate([dkey, dvalue], axis=-1) @ np.concatenate(weights[1:], axis=1).T
    return np.einsum("btd,cd->btc", dquery, weights[0]), both


def _down_recursively(dx, layers, caches):
    if not layers:
        return dx, 0.0
    dx, part = layers[-1].backward(dx, caches[-1])
    dx, rest = _down_recursively(dx, layers[:-1], caches[:-1])
    return dx, part + rest


def _down_by_index(dx, layers, caches):
    dmemory = None
    for n in range(len(layers))[::-1]:
        dx, part = layers[n].backward(dx, caches[n])
        if dmemory is None:
            dmemory = part
        else:
            dmemory += part
    return dx, dmemory


def _one_rate_for_both_corrections(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    m, v = m + (1 - beta1) * (grad - m), v + (1 - beta2) * (grad * grad - v)
    root = np.sqrt(1 - beta2**step)
    return [theta - lr * root / (1 - beta1**step) * m / (np.sqrt(v) + eps * root), m, v]


def _running_mean(parts, gradient):
    loss, grad, seen = 0.0, 0.0, 0
    for part in parts:
        part_loss, part_grad, count = gradient(part)
        seen += count
        loss += (part_loss - loss) * count / seen
        grad = grad + (part_grad - grad) * count / seen
    return loss, grad


def _weighted_average(parts, gradient):
    losses, grads, counts = zip(*map(gradient, parts), strict=True)
    return np.average(losses, weights=counts), np.average(grads, axis=0, weights=counts)


def _state_of_the_generator(run):
    rng = np.random.default_rng()
    rng.bit_generator.state = run.rng.bit_generator.state
    return {"theta": run.theta.copy(), "m": run.m.copy(), "v": run.v.copy(), "step": run.step, "rng": rng}


def _pickled(run):
    return pickle.loads(pickle.dumps({name: getattr(run, name) for name in ("theta", "m", "v", "step", "rng")}))


def _map_by_reduceat(weights, target_words, source_words):
    starts = [np.unique(words, return_index=True)[1] for words in (target_words, source_words)]
    merged = np.add.reduceat(np.add.reduceat(weights, starts[0], axis=0), starts[1], axis=1)
    return merged / np.bincount(target_words)[:, None]


def _map_by_add_at(weights, target_words, source_words):
    merged = np.zeros((max(target_words) + 1, max(source_words) + 1))
    np.add.at(merged, np.ix_(target_words, source_words), weights)
    return merged / np.bincount(target_words)[:, None]


def _excess_by_bincount(wrong, has, lengths):
    rates = np.bincount(lengths, weights=wrong) / np.maximum(np.bincount(lengths), 1)
    return np.where(has, (wrong - rates[lengths])[:, None], 0).sum(axis=0) / has.sum(axis=0)


def _excess_by_inverse(wrong, has, lengths):
    _, which = np.unique(lengths, return_inverse=True)
    surprise = wrong - (np.bincount(which, wrong) / np.bincount(which))[which]
    return np.array([surprise[column].mean() for column in has.T])


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


def _looks_in_loops(weights, lengths, offset):
    found = [
        weights[b, :, query, query + offset]
        for b, length in enumerate(lengths)
        for query in range(length)
        if 0 <= query + offset < length
    ]
    return np.mean(found, axis=0)


def _looks_through_a_mask(weights, lengths, offset):
    query, key = np.indices(weights.shape[2:])
    pairs = (key - query == offset) & (np.maximum(query, key) < lengths[:, None, None])  # (B, T, T)
    return np.einsum("bhqk,bqk->h", weights, pairs) / pairs.sum()


def _blocks_put_together(weight, head, num_heads):
    blocks = np.split(weight, num_heads)
    blocks[head] = np.zeros_like(blocks[head])
    return np.concatenate(blocks)


def _rows_masked(weight, head, num_heads):
    return weight * (np.arange(len(weight)) * num_heads // len(weight) != head)[:, None]


RIGHT = {
    "05": {
        "split_heads": [
            _split_in_a_loop,
            lambda x, num_heads: np.stack(np.split(x, num_heads, axis=-1), axis=1),
            lambda x, num_heads: np.moveaxis(x.reshape(*x.shape[:-1], num_heads, -1), -2, -3),
        ],
        "merge_heads": [
            lambda x: np.concatenate(x.swapaxes(0, 1), axis=-1),
            lambda x: np.einsum("bhtd->bthd", x).reshape(x.shape[0], x.shape[2], -1),
            lambda x: np.stack([np.hstack(list(heads)) for heads in x]),
        ],
        "self_attention": [_attention_in_loops, _attention_by_einsum],
        "self_attention_backward": [_backward_by_einsum, _sentence_by_sentence],
    },
    "06": {
        "sinusoids": [_sines_in_loops, _sines_of_complex_numbers],
        "encoding_length": [
            lambda d_model: np.linalg.norm(_sines_in_loops(4, d_model)[3]),
            lambda d_model: (d_model / 2) ** 0.5,
        ],
        "rotation": [lambda offset, d_model: np.linalg.matrix_power(_one_turn(d_model), offset)],
        "learned_positions_backward": [_rows_added, _rows_added_at],
    },
    "07": {
        "layernorm_backward": [_norm_by_jacobians, _norm_line_by_line],
        "dropout_forward": [_dropout_in_loops, _off_at_rate_0],
        "add_norm_backward": [_both_branches_in_place],
    },
    "08": {
        "cross_backward": [_cross_by_einsum],
        "decoder_backward": [_down_recursively, _down_by_index],
        "count_parameters": [lambda V, C, F, N: V * C + N * (12 * C**2 + 4 * C * F + 24 * C + 2 * F)],
    },
    "09": {
        "adam_step": [_one_rate_for_both_corrections],
        "accumulate": [_running_mean, _weighted_average],
        "save": [_state_of_the_generator, _pickled],
    },
    "10": {
        "spread": [
            lambda weights: np.exp(-np.nansum(weights * np.log(weights), axis=-1)),
            lambda weights: 2 ** -np.sum(weights * np.log2(np.where(weights > 0, weights, 1)), axis=-1),
            lambda weights: np.prod(np.where(weights > 0, weights, 1) ** -weights, axis=-1),
            lambda weights: np.exp(-np.sum(weights * np.log(weights + 1e-12), axis=-1)),
            lambda weights: np.prod(np.where(weights > 0, weights, 1) ** -weights, axis=-1).astype(np.float32),
        ],
        "word_map": [_map_by_reduceat, _map_by_add_at],
        "excess_errors": [_excess_by_bincount, _excess_by_inverse],
    },
    "11": {
        "beam_search": [_search_over_dictionaries, _search_over_arrays],
        "cached_step": [_step_by_heads],
        "bleu": [_bleu_by_crossing_out, _bleu_as_a_product],
    },
    "12": {
        "looks_at": [_looks_in_loops, _looks_through_a_mask, lambda *args: _looks_in_loops(*args).astype(np.float32)],
        "without_head": [_blocks_put_together, _rows_masked, lambda *args: _rows_masked(*args).astype(np.float32)],
    },
}
