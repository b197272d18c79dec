"""Plausible wrong answers to lesson 16, each with words of the hint it must get."""

# pyright: reportInvalidTypeForm=false
import math

import numpy as np

from course.gpu import tl, torch, triton

# --- Merging --------------------------------------------------------------------------------------------------


def _nothing_rescaled(left, right):
    return np.maximum(left[0], right[0]), left[1] + right[1], left[2] + right[2]


def _left_alone_shrinks(left, right):
    m = np.maximum(left[0], right[0])
    shrink = np.exp(left[0] - np.where(m == -np.inf, 0.0, m))
    return m, left[1] * shrink + right[1], left[2] * shrink[:, None] + right[2]


def _averaged(left, right):
    m = np.maximum(left[0], right[0])
    a, b = np.exp(left[0] - m), np.exp(right[0] - m)
    return m, a * left[1] + b * right[1], (a[:, None] * left[2] + b[:, None] * right[2]) / 2


def _no_maximum(left, right):
    a, b = np.exp(left[0]), np.exp(right[0])
    m = np.maximum(left[0], right[0])
    scale = np.exp(-m)
    return m, (a * left[1] + b * right[1]) * scale, (a[:, None] * left[2] + b[:, None] * right[2]) * scale[:, None]


def _not_a_number(left, right):
    m = np.maximum(left[0], right[0])
    a, b = np.exp(left[0] - m), np.exp(right[0] - m)
    return m, a * left[1] + b * right[1], a[:, None] * left[2] + b[:, None] * right[2]


# --- Blocks ---------------------------------------------------------------------------------------------------


def _blocks(offset=True, first_of=0, last_of=0, whole_by_last=False, never_whole=False, all_of_them=False,
    ragged=True,
):  # fmt: skip
    """Which blocks to visit, with one thing wrong with it."""

    def causal_blocks(block, tile, Tq, Tk):
        QUERIES, KEYS = tile
        shift = Tk - Tq if offset else 0
        first = block * QUERIES + shift + first_of
        last = min((block + 1) * QUERIES, Tq if ragged else math.inf) - 1 + shift + last_of
        stop = -(-max(last + 1, 0) // KEYS)
        stop = min(stop, -(-Tk // KEYS)) if ragged else stop
        whole = min(max((last if whole_by_last else first) + 1, 0) // KEYS, stop)
        return 0 if never_whole else whole, -(-Tk // KEYS) if all_of_them else stop

    return causal_blocks


# --- Forward --------------------------------------------------------------------------------------------------


def _flash(
    scaled=True, divided=True, rescaled=True, beyond=float("-inf"), heads=True, offset=True, base=2.0, masked=True,
    nothing=0.0, lse_of_nothing=float("inf"),
):  # fmt: skip
    """Flash attention with one thing wrong with it: in PyTorch's operations, as a judge looks at results alone."""

    def flash_forward(query, key, value, causal=False, tile=(16, 16)):
        (H, Tq, D), Tk = query.shape, key.shape[1]
        padded = -(-Tk // tile[1]) * tile[1]
        position = torch.arange(Tq)[:, None] + (Tk - Tq if offset else 0)
        out, lse = torch.zeros_like(query), torch.zeros(H, Tq)
        for head in range(H):
            h = head if heads else 0
            m, l, acc = torch.full((Tq,), -3e38), torch.zeros(Tq), torch.zeros(Tq, D)
            for start in range(0, padded, tile[1]):
                keys = torch.arange(start, start + tile[1])
                k, v = (torch.nn.functional.pad(x[h], (0, 0, 0, padded - Tk))[keys] for x in (key, value))
                scores = query[h] @ k.T * math.log2(math.e) / (math.sqrt(D) if scaled else 1)
                scores = scores.masked_fill((keys >= Tk)[None], beyond)
                if causal and masked:
                    scores = scores.masked_fill(keys[None] > position, float("-inf"))
                new_m = torch.maximum(m, scores.max(dim=1).values)
                weights = torch.exp2(scores - new_m[:, None])
                rescale = torch.exp2(m - new_m) if rescaled or start == 0 else torch.ones(Tq)
                l = l * rescale + weights.sum(1)
                acc = acc * rescale[:, None] + weights @ v
                m = new_m
            empty = l == 0
            safe = l.masked_fill(empty, 1.0)
            out[head] = (acc / safe[:, None] if divided else acc).masked_fill(empty[:, None], nothing)
            lse[head] = ((m + torch.log2(safe)) / math.log2(base)).masked_fill(empty, lse_of_nothing)
        return out, lse

    return flash_forward


@triton.jit
def _copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, i < n))


def _unmasked_lse(query, key, value, causal=False, tile=(16, 16)):
    out, lse = _flash()(query, key, value, causal, tile)
    stored = torch.empty_like(lse)
    _copy_kernel[(triton.cdiv(lse.numel(), tile[0]),)](lse, stored, lse.numel(), BLOCK=tile[0])
    return out, stored


# --- Backward -------------------------------------------------------------------------------------------------


def _backward(local_softmax=False, local_delta=False, scaled=True, scores_scaled=True, delta=True):
    """The gradients of a block, with one thing wrong with them."""

    def backward_block(dout, out, lse, query, key, value):
        scale = 1 / math.sqrt(query.shape[1])
        weights = np.exp((scale if scores_scaled else 1) * query @ key.T - lse[:, None])
        if local_softmax:
            weights = weights / weights.sum(axis=1, keepdims=True)
        dweights = dout @ value.T
        row = (weights * dweights).sum(axis=1) if local_delta else (dout * out).sum(axis=1)
        dscores = weights * (dweights - row[:, None] if delta else dweights)
        if not scaled:
            scale = 1
        return scale * dscores @ key, scale * dscores.T @ query, weights.T @ dout

    return backward_block


WRONG = {
    "merge": {
        "nothing is rescaled": (_nothing_rescaled, "what the left one summed up (l and acc) must shrink"),
        "only the left shrinks": (_left_alone_shrinks, "what the right one summed up (l and acc) must shrink"),
        "averaged": (_averaged, "nothing averaged"),
        "overflow": (_no_maximum, "e^(1000) overflows"),
        "nothing and nothing": (_not_a_number, "give NaN: −inf − (−inf)"),
        "one array": (lambda left, right: left[0], "must return 3 arrays"),
    },
    "causal_blocks": {
        "stops a key early": (_blocks(last_of=-1), "it stops before block"),
        "visits them all": (_blocks(all_of_them=True), "work for nothing"),
        "whole for the last query": (_blocks(whole_by_last=True), "see its own future"),
        "always masked": (_blocks(never_whole=True), "slower than it need be"),
        "aligned top left": (_blocks(offset=False), "query i stands at position Tk − Tq + i"),
        "the last block is whole": (_blocks(ragged=False), "and there are 5 blocks of keys"),
        "the wrong way round": (lambda *args: _blocks()(*args)[::-1], "(whole, stop), and whole blocks are among"),
        "one number": (lambda block, tile, Tq, Tk: block + 1, "must return two numbers"),
    },
    "flash_forward": {
        "not divided by l": (_flash(divided=False), "Is acc divided by l in the end?"),
        "natural logarithm": (_flash(base=math.e), "must be log2(16) = 4"),
        "not scaled": (_flash(scaled=False), "query · key / √D"),
        "not rescaled": (_flash(rescaled=False), "must shrink by 2^(old m − new m)"),
        "lanes beyond the keys": (_flash(beyond=0.0), "must have a score of −inf"),
        "lse has no mask": (_unmasked_lse, "the store of lse wants a mask"),
        "one head": (_flash(heads=False), "head h begins at h · T · D"),
        "no mask": (_flash(masked=False), "which must not see them"),
        "aligned top left": (_flash(offset=False), "causal with 20 queries and 40 keys"),
        "0/0": (_flash(nothing=float("nan")), "the first 20 queries see nothing"),
        "lse of nothing": (_flash(lse_of_nothing=0.0), "make it +inf"),
    },
    "backward_block": {
        "not scaled": (_backward(scaled=False), "times the true gradient everywhere"),
        "scores not scaled": (_backward(scores_scaled=False), "weights add up to 1"),
        "no delta": (_backward(delta=False), "moves no weight"),
        "softmax of the block": (_backward(local_softmax=True), "a softmax over the block alone"),
        "delta of the block": (_backward(local_delta=True), "What is dout · out?"),
        "one array": (lambda dout, *_: dout, "must return 3 arrays"),
    },
}
