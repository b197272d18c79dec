"""Plausible wrong answers to lesson 16 (see `answers`)."""

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


def _in_place(left, right):
    """Right, and the left state is the sum from then on."""
    m, l, acc = left
    new_m = np.maximum(m, right[0])
    shift = np.where(new_m == -np.inf, 0.0, new_m)
    a, b = np.exp(m - shift), np.exp(right[0] - shift)
    l *= a
    l += b * right[1]
    acc *= a[:, None]
    acc += b[:, None] * right[2]
    m[:] = new_m
    return m, l, acc


def _one_case_for_all(left, right):
    if np.isneginf(left[0]).all():
        return right
    if np.isneginf(right[0]).all():
        return left
    return _not_a_number(left, right)


def _one_maximum(left, right):
    m = np.full_like(left[0], max(left[0].max(), right[0].max()))
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


@triton.jit
def _flash_kernel(
    query_ptr, key_ptr, value_ptr, out_ptr, lse_ptr, stop_ptr, Tq, Tk, scale, FLAW: tl.constexpr,
    CAUSAL: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Flash attention, with one thing wrong with it."""
    block, head = tl.program_id(0), 0 if FLAW == "one head" else tl.program_id(1)
    channel = tl.arange(0, D)[None, :]
    queries = block * QUERIES + tl.arange(0, QUERIES)
    own = (queries < Tq)[:, None]
    rows = ((head * Tq + queries) * D)[:, None] + channel
    query = tl.load(query_ptr + rows, own, other=0.0)
    if FLAW == "the scale of D = 16":
        scale = 0.36067376022224085
    m = tl.full((QUERIES,), 0.0 if FLAW in ("no maximum", "m begins at 0") else -3.4e38, tl.float32)
    l = tl.full((QUERIES,), 0.0, tl.float32)
    acc = tl.full((QUERIES, D), 0.0, tl.float32)
    stop = tl.load(stop_ptr + block)
    if FLAW == "stop_ptr ignored":
        stop = tl.cdiv(Tk, KEYS)
    if FLAW == "one block":
        stop = tl.minimum(stop, 1)
    step = QUERIES if FLAW == "steps of QUERIES" else KEYS
    keys = tl.arange(0, KEYS)
    columns = ((head * Tk + keys) * D)[:, None] + channel
    for _ in range(stop):
        there = (keys < Tk)[:, None]
        key = tl.load(key_ptr + columns, there | (FLAW == "keys without a mask"), other=0.0)
        value = tl.load(value_ptr + columns, there, other=None if FLAW == "no other" else 0.0)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee")
        if FLAW != "not scaled":
            scores *= scale
        if FLAW != "zeros beyond the keys":
            scores = tl.where(tl.trans(there), scores, float("-inf"))
        if CAUSAL and FLAW != "no mask":
            position = queries if FLAW == "aligned top left" else queries + (Tk - Tq)
            if FLAW == "not its own key":
                position -= 1
            scores = tl.where(keys[None, :] <= position[:, None], scores, float("-inf"))
        new_m = m if FLAW == "no maximum" else tl.maximum(m, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_m[:, None])
        if FLAW != "not rescaled":
            rescale = tl.exp2(m - new_m)
            l *= rescale
            acc *= rescale[:, None]
        l += tl.sum(weights, axis=1)
        if FLAW != "in float32":
            weights = weights.to(value.dtype)
        acc += tl.dot(weights, value, input_precision="ieee")
        if FLAW == "divided in each block":
            acc /= l[:, None]
        m = new_m
        keys += step
        key_ptr += step * D
        value_ptr += step * D
    nothing = l == 0
    if FLAW != "0/0":
        l = tl.where(nothing, 1.0, l)
    out = acc if FLAW in ("not divided", "divided in each block") else acc / l[:, None]
    lse = m + (tl.log(l) if FLAW == "natural logarithm" else tl.log2(l))
    if FLAW != "lse of nothing":
        lse = tl.where(nothing, float("inf"), lse)
    tl.store(out_ptr + rows, out.to(out_ptr.dtype.element_ty), own)
    tl.store(lse_ptr + head * Tq + queries, lse, (FLAW == "lse has no mask") | (queries < Tq))


def _flash(flaw=""):
    """Flash attention with one thing wrong with it."""

    def flash_forward(query, key, value, causal=False, tile=(16, 16)):
        if flaw == "the tile is ignored":
            tile = 16, 16
        if flaw == "in place":
            query /= 1.0001
        (H, Tq, D), Tk, (QUERIES, KEYS) = query.shape, key.shape[1], tile
        blocks, shift = triton.cdiv(Tq, QUERIES), Tk - Tq
        last = [min((n + 1) * QUERIES, Tq) + shift if causal else Tk for n in range(blocks)]
        stops = torch.tensor([max(-(-stop // KEYS), 0) for stop in last], dtype=torch.int32)
        out = torch.empty(query.shape, dtype=torch.float32 if flaw == "out in float32" else query.dtype)
        lse = torch.empty((H, Tq), dtype=query.dtype if flaw == "lse in the dtype of out" else torch.float32)
        heads = range(H) if flaw == "a launch for each head" else [slice(None)]
        for head in heads:
            arrays = (array[head] for array in (query, key, value, out, lse))
            _flash_kernel[(blocks, H if head == slice(None) else 1)](
                *arrays, stops, Tq, Tk, math.log2(math.e) / math.sqrt(D),
                FLAW=flaw, CAUSAL=causal, D=D, QUERIES=QUERIES, KEYS=KEYS,
            )  # fmt: skip
        return out, lse

    return flash_forward


def _no_flash_kernel(query, key, value, causal=False, tile=(16, 16)):
    """Right, all scores at once."""
    (_, Tq, D), Tk = query.shape, key.shape[1]
    scores = query.float() @ key.float().mT * (math.log2(math.e) / math.sqrt(D))
    if causal:
        future = torch.arange(Tk)[None] > torch.arange(Tq)[:, None] + (Tk - Tq)
        scores = scores.masked_fill(future, float("-inf"))
    lse = torch.logsumexp(scores * math.log(2), dim=-1) / math.log(2)
    lse = torch.where(lse == float("-inf"), float("inf"), lse)
    return (torch.exp2(scores - lse[..., None]) @ value.float()).to(query.dtype), lse


# --- Backward -------------------------------------------------------------------------------------------------


def _backward(
    local_softmax=False, local_delta=False, scaled=True, scores_scaled=True, delta=True, D=None, quotient=False,
):  # fmt: skip
    """The gradients of a block, with one thing wrong with them."""

    def backward_block(dout, out, lse, query, key, value):
        scale = 1 / math.sqrt(D or query.shape[1])
        weights = np.exp((scale if scores_scaled else 1) * query @ key.T - lse[:, None])
        if quotient:
            weights = np.exp(scale * query @ key.T) / np.exp(lse)[:, None]
        if local_softmax:
            weights = weights / weights.sum(axis=1, keepdims=True)
        dweights = dout @ value.T
        row = (weights * dweights).sum(axis=1) if local_delta else (dout * out).sum(axis=1)
        dscores = weights * (dweights - row[:, None] if delta else dweights)
        if not scaled:
            scale = 1
        return scale * dscores @ key, scale * dscores.T @ query, weights.T @ dout

    return backward_block


def _thrown_away(query, key, value, causal=False, tile=(16, 16)):
    _flash()(query, key, value, causal, tile)
    return _no_flash_kernel(query, key, value, causal, tile)


WRONG = {
    "merge": {
        "nothing is rescaled": (_nothing_rescaled, "what the left one summed up (l and acc) must shrink"),
        "only the left shrinks": (_left_alone_shrinks, "what the right one summed up (l and acc) must shrink"),
        "averaged": (_averaged, "nothing averaged"),
        "overflow": (_no_maximum, "e^(1000) overflows"),
        "nothing and nothing": (_not_a_number, "give NaN: −inf − (−inf)"),
        "in place": (_in_place, "it writes into its argument left[1]"),
        "one case for all queries": (_one_case_for_all, "each row is a case of its own"),
        "one maximum for all queries": (_one_maximum, "row by row"),
        "one array": (lambda left, right: left[0], "must return 3 arrays"),
    },
    "causal_blocks": {
        "stops a key early": (_blocks(last_of=-1), "it stops before block"),
        "visits them all": (_blocks(all_of_them=True), "work for nothing"),
        "whole for the last query": (_blocks(whole_by_last=True), "see its own future"),
        "always masked": (_blocks(never_whole=True), "slower than it need be"),
        "aligned top left": (_blocks(offset=False), "query i stands at position Tk − Tq + i"),
        "floats": (lambda *args: tuple(map(float, _blocks()(*args))), "they are to be ints"),
        "the last block is whole": (_blocks(ragged=False), "and there are 5 blocks of keys"),
        "the wrong way round": (lambda *args: _blocks()(*args)[::-1], "(whole, stop), and whole blocks are among"),
        "one number": (lambda block, tile, Tq, Tk: block + 1, "must return two numbers"),
    },
    "flash_forward": {
        "not divided by l": (_flash("not divided"), "Is acc divided by l in the end?"),
        "natural logarithm": (_flash("natural logarithm"), "must be log2(16) = 4"),
        "not scaled": (_flash("not scaled"), "query · key / √D"),
        "the query is scaled in place": (_flash("in place"), "it writes into its argument query"),
        "no kernel": (_no_flash_kernel, "no kernel was launched"),
        "the scale of D = 16": (_flash("the scale of D = 16"), "a number written where D belongs"),
        "weights in float32": (_flash("in float32"), "in float16 it raises"),
        "out in float32": (_flash("out in float32"), "out is torch.float32 and must be torch.float16"),
        "lse in float16": (_flash("lse in the dtype of out"), "lse is torch.float16 and must be torch.float32"),
        "one block": (_flash("one block"), "all of the blocks that stop_ptr tells it"),
        "divided in each block": (_flash("divided in each block"), "only in the end is acc divided by l"),
        "not rescaled": (_flash("not rescaled"), "must shrink by 2^(old m − new m)"),
        "no maximum": (_flash("no maximum"), "2^288 is beyond float32"),
        "m begins at 0": (_flash("m begins at 0"), "Does m begin at LOWEST"),
        "lanes beyond the keys": (_flash("zeros beyond the keys"), "must have a score of −inf"),
        "lanes without a value": (_flash("no other"), "hold anything"),
        "one head": (_flash("one head"), "head h begins at h · T · D"),
        "lse has no mask": (_flash("lse has no mask"), "each tl.store wants a mask"),
        "keys without a mask": (_flash("keys without a mask"), "each tl.load wants a mask"),
        "a launch for each head": (_flash("a launch for each head"), "kernels were launched 2 times"),
        "no mask": (_flash("no mask"), "which must not see them"),
        "not its own key": (_flash("not its own key"), "up to the query's own"),
        "aligned top left": (_flash("aligned top left"), "causal with 8 queries and 24 keys"),
        "0/0": (_flash("0/0"), "is nan and must be 0 (0/0"),
        "lse of nothing": (_flash("lse of nothing"), "must be +inf, and lse at (0, 0) is -3.4e+38"),
        "steps of QUERIES": (_flash("steps of QUERIES"), "which lengths are QUERIES"),
        "stop_ptr is ignored": (_flash("stop_ptr ignored"), "stop before block tl.load(stop_ptr"),
        "the tile is ignored": (_flash("the tile is ignored"), "is `tile` what"),
        "the kernel's result is thrown away": (_thrown_away, "out is not an array that it wrote"),
        "lse by PyTorch": (lambda *a: (_flash()(*a)[0], _no_flash_kernel(*a)[1]), "lse is not an array that it wrote"),
    },
    "backward_block": {
        "not scaled": (_backward(scaled=False), "times the true gradient everywhere"),
        "scores not scaled": (_backward(scores_scaled=False), "weights add up to 1"),
        "no delta": (_backward(delta=False), "moves no weight"),
        "softmax of the block": (_backward(local_softmax=True), "a softmax over the block alone"),
        "delta of the block": (_backward(local_delta=True), "What is dout · out?"),
        "the scale of D = 4": (_backward(D=4), "is a number written where D belongs"),
        "a quotient of exponentials": (_backward(quotient=True), "beyond float64"),
        "one array": (lambda dout, *_: dout, "must return 3 arrays"),
    },
}
