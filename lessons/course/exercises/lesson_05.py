"""Lesson 05: multi-head attention."""

from typing import Any

import numpy as np

from minitransformer import gradcheck, ops
from minitransformer.layers import attention as layers

from ..exercise import Attempt, exercise
from ..judging import agree, gradients_agree, kind, require, several


def _split_heads(x, num_heads):
    return layers.split_heads(x, num_heads)


def _merge_heads(x):
    return layers.merge_heads(x)


def _self_attention(x: Any, w_qkv: Any, w_out: Any, num_heads: int, causal: bool = False) -> Any:
    return _forward(x, w_qkv, w_out, num_heads, causal)[0]


def _forward(x: Any, w_qkv: Any, w_out: Any, num_heads: int, causal: bool) -> Any:
    parts = [layers.split_heads(part, num_heads) for part in np.split(x @ w_qkv, 3, axis=-1)]
    mixed, cache = ops.attention_forward(*parts, causal=causal)
    merged = layers.merge_heads(mixed)
    return merged @ w_out, (merged, cache)


def _self_attention_backward(dout, x, w_qkv, w_out, num_heads, causal=False):
    _, (merged, cache) = _forward(x, w_qkv, w_out, num_heads, causal)
    dmerged, dw_out, _ = ops.linear_backward(dout, ops.linear_forward(merged, w_out, None)[1])
    gradients = ops.attention_backward(layers.split_heads(dmerged, num_heads), cache)
    dprojected = np.concatenate([layers.merge_heads(gradient) for gradient in gradients], axis=-1)
    dx, dw_qkv, _ = ops.linear_backward(dprojected, ops.linear_forward(x, w_qkv, None)[1])
    return dx, dw_qkv, dw_out


@exercise(answer=_split_heads)
def split_heads(attempt: Attempt) -> None:
    B, T, H, D = 2, 5, 3, 4
    # A number says where it stands: 1000 · sentence + 100 · position + 10 · head + column.
    sentence, position, head, column = np.meshgrid(*map(np.arange, (B, T, H, D)), indexing="ij")
    x = (1000.0 * sentence + 100 * position + 10 * head + column).reshape(B, T, H * D)
    heads = attempt(x, H)
    require(isinstance(heads, np.ndarray), f"it must return an array, not {kind(heads)}")
    swapped = ": the positions stand before the heads" if heads.shape == (B, T, H, D) else ""
    require(
        heads.shape == (B, H, T, D),
        f"x of shape {x.shape} with {H} heads has become {heads.shape} and must become {(B, H, T, D)}{swapped}",
    )
    require(
        np.array_equal(heads // 1000, np.broadcast_to(np.arange(B)[:, None, None, None], heads.shape)),
        "numbers have moved from one sentence to another: the batch axis stays where it is",
    )
    require(
        np.array_equal(heads // 100 % 10, np.broadcast_to(np.arange(T)[:, None], heads.shape)),
        "positions are mixed: row t of a head must hold numbers of position t only; "
        "a reshape that cuts across positions does that, so cut the last axis in two first, then swap axes",
    )
    require(
        np.array_equal(heads // 10 % 10, np.broadcast_to(np.arange(H)[:, None, None], heads.shape)),
        "columns are mixed: head h must get the columns h·D to (h+1)·D, next to each other, not every H-th one",
    )
    agree("the result", heads, layers.split_heads(x, H))


@exercise(answer=_merge_heads)
def merge_heads(attempt: Attempt) -> None:
    B, H, T, D = 2, 3, 5, 4
    sentence, head, position, column = np.meshgrid(*map(np.arange, (B, H, T, D)), indexing="ij")
    heads = 1000.0 * sentence + 100 * position + 10 * head + column
    merged = attempt(heads)
    require(isinstance(merged, np.ndarray), f"it must return an array, not {kind(merged)}")
    require(
        merged.shape == (B, T, H * D),
        f"heads of shape {heads.shape} have become {merged.shape} and must become {(B, T, H * D)}",
    )
    require(
        np.array_equal(merged // 100 % 10, np.broadcast_to(np.arange(T)[:, None], merged.shape)),
        "positions are mixed: row t must hold what the heads found at position t; "
        "a reshape joins neighbours, so the heads must first be made the columns' neighbours",
    )
    require(
        np.array_equal(merged // 10 % 10, np.broadcast_to(np.repeat(np.arange(H), D), merged.shape)),
        "the heads are interleaved, or in another order: all columns of head 0 come first, then all of head 1",
    )
    agree("the result", merged, layers.merge_heads(heads))
    gradients_agree(
        lambda x: (layers.split_heads(x, H), None), lambda dy, _: attempt(dy), {"x": np.ones((B, T, H * D))}
    )


@exercise(answer=_self_attention)
def self_attention(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    x, w_qkv, w_out = rng.standard_normal((2, 5, 8)), rng.standard_normal((8, 24)), rng.standard_normal((8, 8))
    out = attempt(x, w_qkv, w_out, 4)
    require(isinstance(out, np.ndarray), f"it must return one array, not {kind(out)}: the cache is not asked for")
    require(out.shape == x.shape, f"x of shape {x.shape} has become {out.shape}: each position keeps its width")
    require(
        np.allclose(attempt(x, w_qkv, 2 * w_out, 4), 2 * out),
        "twice the w_out does not give twice the output: the last step is a product with w_out",
    )
    narrow = w_out * (np.arange(8) == 0)
    require(
        not attempt(x, w_qkv, narrow, 4)[..., 1:].any(),
        "with all columns of w_out but the first at 0 the other columns of the output are not 0: the last product is "
        "@ w_out, not its transpose",
    )
    alone = np.concatenate([attempt(sentence[None], w_qkv, w_out, 4) for sentence in x])
    require(
        np.allclose(alone, out),
        "a sentence's output depends on the other sentences of the batch: attention must stay within a sentence",
    )
    silent = w_qkv.copy()
    silent[:, 16:] = 0
    require(
        not attempt(x, silent, w_out, 4).any(),
        "with the last third of w_qkv at 0 all values are 0, and so must the output be: "
        "are queries, keys and values taken in this order?",
    )
    louder = x.copy()
    louder[:, -1] += 1
    require(
        np.abs(attempt(louder, w_qkv, w_out, 4) - out)[:, :-1].max() > 1e-9,
        "with causal=False the last position does not move any output before it: is causal always on?",
    )
    order = [3, 1, 4, 0, 2]
    require(
        np.allclose(attempt(x[:, order], w_qkv, w_out, 4), out[:, order]),
        "with the positions in another order the outputs are not the same in that order: "
        "do split and merge mix positions?",
    )
    first, mixing = np.zeros((8, 8)), rng.standard_normal((2, 8))
    first[:2] = mixing  # only head 0 speaks
    other = w_qkv.copy()
    other[:, [2, 3, 10, 11, 18, 19]] += 1  # head 1's columns
    require(
        np.allclose(attempt(x, other, first, 4), attempt(x, w_qkv, first, 4)),
        "head 1's columns of w_qkv change what head 0 brings to the output: heads are independent, each with its own "
        "columns of w_qkv and its own rows of w_out",
    )
    future = x.copy()
    future[:, -1] += 1
    moved = np.abs(attempt(future, w_qkv, w_out, 4, True) - attempt(x, w_qkv, w_out, 4, True))[:, :-1]
    require(moved.max() < 1e-9, "with causal=True the last position moves the outputs before it: is causal passed on?")
    exchanged = w_qkv[:, [*range(8, 16), *range(8), *range(16, 24)]]
    require(
        gradcheck.error(out, _self_attention(x, exchanged, w_out, 4)) > 1e-9,
        "the output is that of keys made by the first third of w_qkv and queries by the second: "
        "the order is queries, keys, values",
    )
    for heads in (1, 2, 4):
        agree(
            f"with num_heads = {heads} the output",
            attempt(x, w_qkv, w_out, heads),
            _self_attention(x, w_qkv, w_out, heads),
        )
    agree("with causal=True the output", attempt(x, w_qkv, w_out, 4, True), _self_attention(x, w_qkv, w_out, 4, True))


@exercise(answer=_self_attention_backward)
def self_attention_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    x, w_qkv, w_out = rng.standard_normal((2, 3, 4)), rng.standard_normal((4, 12)), rng.standard_normal((4, 4))
    dout = rng.standard_normal(x.shape)
    names = ("dx", "dw_qkv", "dw_out")
    gradients = several(attempt(dout, x, w_qkv, w_out, 2), *names)
    for name, gradient, array in zip(names, gradients, (x, w_qkv, w_out), strict=True):
        over = "" if name == "dx" else ": a weight is used at every position of every sentence, and those add up"
        require(
            gradient.shape == array.shape,
            f"{name} has shape {gradient.shape}, and a gradient has its array's, {array.shape}{over}",
        )
    twice = [np.concatenate([array, array]) for array in (dout, x)]
    doubled = several(attempt(*twice, w_qkv, w_out, 2), *names)
    for name, once, more in list(zip(names, gradients, doubled, strict=True))[1:]:
        require(
            np.allclose(more, 2 * once),
            f"with every sentence given twice, {name} must double: sentences add up, they are not averaged",
        )

    def loss(x, w_qkv, w_out, causal=False):
        return np.vdot(dout, _self_attention(x, w_qkv, w_out, 2, causal))

    measured = gradcheck.numerical_gradient(lambda w_qkv: loss(x, w_qkv, w_out), w_qkv)
    agree(
        "dw_out", gradients[2], gradcheck.numerical_gradient(lambda w_out: loss(x, w_qkv, w_out), w_out), tolerance=1e-6
    )
    thirds = [gradients[1][:, :4], measured[:, 4:8]]
    require(
        gradcheck.error(*thirds) > 1e-6,
        "the queries' third of dw_qkv is what the keys' third should be: are dquery and dkey swapped?",
    )
    for number, name in enumerate(("queries'", "keys'", "values'")):
        third = slice(4 * number, 4 * number + 4)
        agree(f"the {name} third of dw_qkv", gradients[1][:, third], measured[:, third], tolerance=1e-6)
    expected = gradcheck.numerical_gradient(lambda x: loss(x, w_qkv, w_out), x)
    agree("dx, to which x's queries, keys and values all send,", gradients[0], expected, tolerance=1e-6)
    expected = gradcheck.numerical_gradient(lambda x: loss(x, w_qkv, w_out, True), x)
    causal = several(attempt(dout, x, w_qkv, w_out, 2, True), *names)[0]
    require(
        gradcheck.error(causal, gradients[0]) > 1e-9,
        "causal=True changes nothing: the forward that is computed again must be given it too",
    )
    agree("with causal=True dx", causal, expected, tolerance=1e-6)
