"""Lesson 05: multi-head attention."""

from typing import Any

import numpy as np

from minitransformer import ops
from minitransformer.gradcheck import error
from minitransformer.layers import attention as layers

from ..checks import (
    require,
    require_array,
    require_arrays,
    require_close,
    require_gradients,
    require_none_of,
    type_name,
)
from ..exercise import Attempt, exercise


def _split_heads(x, num_heads):
    return layers.split_heads(x, num_heads)


def _merge_heads(x):
    return layers.merge_heads(x)


def _self_attention(x: Any, w_qkv: Any, w_out: Any, num_heads: int, causal: bool = False) -> Any:
    return _forward(x, w_qkv, w_out, num_heads, causal)[0]


def _forward(x: Any, w_qkv: Any, w_out: Any, num_heads: int, causal: bool, scale: float | None = None) -> Any:
    parts = [layers.split_heads(part, num_heads) for part in np.split(x @ w_qkv, 3, axis=-1)]
    mixed, cache = ops.attention_forward(*parts, causal=causal, scale=scale)
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
    for B, T, H, D in ((2, 5, 3, 4), (1, 3, 4, 2), (2, 1, 2, 6)):
        # Each number encodes its place: 1000 · sentence + 100 · position + 10 · head + column.
        sentence, position, head, column = np.meshgrid(*map(np.arange, (B, T, H, D)), indexing="ij")
        x = np.asfortranarray((1000.0 * sentence + 100 * position + 10 * head + column).reshape(B, T, H * D))
        heads = require_array(attempt(x, H))
        swapped = ": sentence, head, position, and the columns of the head, in this order"
        if heads.shape == (B, T, H, D) != (B, H, T, D):
            swapped = ": the positions stand before the heads"
        require(
            heads.shape == (B, H, T, D),
            f"x of shape {x.shape} with {H} heads has become {heads.shape} and must become {(B, H, T, D)}{swapped}",
        )
        require(
            np.array_equal(np.sort(heads, axis=None), np.sort(x, axis=None)),
            "there are other numbers in it than in x: they only change their places",
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
        of_heads = heads // 10 % 10
        require(
            np.array_equal(of_heads, np.broadcast_to(of_heads[:, :, :1, :1], heads.shape)),
            "columns are mixed: head h must get the columns h·D to (h+1)·D, next to each other, not every H-th one",
        )
        require(
            np.array_equal(of_heads, np.broadcast_to(np.arange(H)[:, None, None], heads.shape)),
            f"the heads are in another order: the first has the columns of head {of_heads[0, 0, 0, 0]:.0f}",
        )
        require_close("the result", heads, layers.split_heads(x, H))


@exercise(answer=_merge_heads)
def merge_heads(attempt: Attempt) -> None:
    for B, H, T, D in ((2, 3, 5, 4), (1, 4, 3, 2), (2, 2, 1, 6)):
        sentence, head, position, column = np.meshgrid(*map(np.arange, (B, H, T, D)), indexing="ij")
        heads = np.asfortranarray(1000.0 * sentence + 100 * position + 10 * head + column)
        merged = require_array(attempt(heads))
        require(
            merged.shape == (B, T, H * D),
            f"heads of shape {heads.shape} have become {merged.shape} and must become {(B, T, H * D)}",
        )
        require(
            np.array_equal(np.sort(merged, axis=None), np.sort(heads, axis=None)),
            "there are other numbers in it than in the heads: they only change their places",
        )
        require(
            np.array_equal(merged // 100 % 10, np.broadcast_to(np.arange(T)[:, None], merged.shape)),
            "positions are mixed: row t must hold what the heads found at position t; "
            "a reshape joins neighbours, so the heads must first be made the columns' neighbours",
        )
        of_heads = merged // 10 % 10
        require(
            not np.array_equal(of_heads, np.broadcast_to(np.repeat(np.arange(H)[::-1], D), merged.shape)),
            "the heads are in the reverse order: all columns of head 0 come first",
        )
        require(
            np.array_equal(of_heads, np.broadcast_to(np.repeat(np.arange(H), D), merged.shape)),
            "the heads are interleaved: all columns of head 0 come first, then all of head 1",
        )
        require_close("the result", merged, layers.merge_heads(heads))
        require_gradients(
            lambda x, H=H: (layers.split_heads(x, H), None), lambda dy, _: attempt(dy), {"x": np.ones((B, T, H * D))}
        )


@exercise(answer=_self_attention)
def self_attention(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    x, w_qkv, w_out = rng.standard_normal((2, 5, 8)), rng.standard_normal((8, 24)), rng.standard_normal((8, 8))
    out = _judge_sentences(attempt, x, w_qkv, w_out)
    _judge_heads(attempt, x, w_qkv, w_out, out)
    for name, scale in (("√C", 1 / np.sqrt(8)), ("D itself", 1 / 2), ("nothing", 1.0)):
        require(
            error(out, _forward(x, w_qkv, w_out, 4, False, scale)[0]) > 1e-9,
            f"the scores are divided by {name}, and must be by √D: the dot product of a head sums over D columns",
        )
    for heads in (1, 2, 4):
        mean = {"1 / num_heads: the heads stand side by side, and are not averaged": 1 / heads}
        require_close(
            f"with num_heads = {heads} the output",
            attempt(x, w_qkv, w_out, heads),
            _self_attention(x, w_qkv, w_out, heads),
            factors=mean,
        )
    causal = attempt(x, w_qkv, w_out, 4, True)
    require(error(causal, out) > 1e-9, "with causal=True the output is the same as without: is causal passed on?")
    moved = np.abs(attempt(_louder_at_the_end(x), w_qkv, w_out, 4, True) - causal)[:, :-1]
    require(
        moved.max() < 1e-9,
        "with causal=True the last position moves the outputs before it: a query sees the keys up to its own position, "
        "and the others are masked before the softmax",
    )
    require_close("with causal=True the output", causal, _self_attention(x, w_qkv, w_out, 4, True))
    narrow = rng.standard_normal((3, 4, 6)), rng.standard_normal((6, 18)), rng.standard_normal((6, 6)), 3
    found = attempt(*narrow)
    require(
        np.shape(found) == (3, 4, 6) and np.allclose(found, _self_attention(*narrow)),
        "with B = 2, T = 5 and C = 8 it is right, with B = 3, T = 4 and C = 6 it is wrong: is a number written where "
        "one of them belongs?",
    )
    loud = w_qkv.copy()
    loud[:, :2] *= 1e4  # head 0's queries
    large = attempt(x, loud, w_out, 4)
    require(
        np.isfinite(large).all(),
        "where one head's scores are in the thousands the output is NaN: the softmax subtracts each row's own largest "
        "score before the exponential (lesson 01)",
    )
    require_close("with large scores the output", large, _self_attention(x, loud, w_out, 4))
    attempt(x, w_qkv, w_out, num_heads=4, causal=True)  # as the lesson calls it


def _louder_at_the_end(x: np.ndarray) -> np.ndarray:
    return x + (np.arange(x.shape[1]) == x.shape[1] - 1)[:, None]


def _judge_sentences(attempt: Attempt, x: Any, w_qkv: Any, w_out: Any) -> np.ndarray:
    """Check shapes, the last product, and which positions reach which; return the output with four heads."""
    out = attempt(x, w_qkv, w_out, 4)
    require(isinstance(out, np.ndarray), f"it must return one array, not {type_name(out)}: the cache is not asked for")
    require(
        require_array(out).shape == x.shape,
        f"x of shape {x.shape} has become {out.shape}: each position keeps its width",
    )
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
    alone = [attempt(sentence[None], w_qkv, w_out, 4) for sentence in x]
    require(
        alone[0].shape == x[:1].shape,
        f"a batch of one sentence, of shape {x[:1].shape}, has become {alone[0].shape}: an axis of length 1 stays",
    )
    require(
        np.allclose(np.concatenate(alone), out),
        "a sentence's output depends on the other sentences of the batch: attention must stay within a sentence",
    )
    require(
        np.abs(attempt(_louder_at_the_end(x), w_qkv, w_out, 4) - out)[:, :-1].max() > 1e-9,
        "with causal=False the last position does not move any output before it: is causal always on?",
    )
    order = [3, 1, 4, 0, 2]
    require(
        np.allclose(attempt(x[:, order], w_qkv, w_out, 4), out[:, order]),
        "with the positions in another order the outputs are not the same in that order: "
        "do split and merge mix positions?",
    )
    return out


def _judge_heads(attempt: Attempt, x: Any, w_qkv: Any, w_out: Any, out: np.ndarray) -> None:
    """Raise `Wrong` if the columns of w_qkv are assigned wrongly; `out` is the output with four heads."""
    by_head = w_qkv.reshape(8, 4, 3, 2).swapaxes(1, 2).reshape(8, 24)
    require(
        error(out, _self_attention(x, by_head, w_out, 4)) > 1e-9,
        "the columns of w_qkv are taken head by head, query, key and value of the first, then of the next: the first C "
        "make the queries of all heads, the next C the keys, the last C the values",
    )
    silent = w_qkv.copy()
    silent[:, 16:] = 0
    require(
        not attempt(x, silent, w_out, 4).any(),
        "with the last third of w_qkv at 0 all values are 0, and so must the output be: "
        "are queries, keys and values taken in this order?",
    )
    interleaved = np.arange(8).reshape(2, 4).T.ravel()  # the columns 0, 4, 1, 5, …: every fourth belongs to a head
    thirds = np.concatenate([interleaved, 8 + interleaved, 16 + interleaved])
    require(
        error(out, _self_attention(x, w_qkv[:, thirds], w_out[interleaved], 4)) > 1e-9,
        "every H-th column goes to a head: head h has the columns h·D to (h+1)·D of each third, next to each other",
    )
    first = w_out * (np.arange(8) < 2)[:, None]  # only head 0 contributes to the output
    other = w_qkv.copy()
    other[:, [2, 3, 10, 11, 18, 19]] += 1  # head 1's columns
    require(
        np.allclose(attempt(x, other, first, 4), attempt(x, w_qkv, first, 4)),
        "head 1's columns of w_qkv change what head 0 brings to the output: heads are independent, each with its own "
        "columns of w_qkv and its own rows of w_out",
    )
    for number, name in enumerate(("queries", "keys", "values")):
        other = w_qkv.copy()
        other[:, 8 * number + 6 : 8 * number + 8] += 1  # the last head's columns
        require(
            error(attempt(x, other, w_out, 4), out) > 1e-9,
            f"the last head's columns for its {name} change nothing: every head has {name} of its own",
        )
    require(
        error(attempt(x, w_qkv, w_out, 2), out) > 1e-9, "with 2 heads the output is that with 4: is num_heads used?"
    )
    exchanged = w_qkv[:, [*range(8, 16), *range(8), *range(16, 24)]]
    require(
        error(out, _self_attention(x, exchanged, w_out, 4)) > 1e-9,
        "the output is that of keys made by the first third of w_qkv and queries by the second: "
        "the order is queries, keys, values",
    )


def _backward_mistakes(dout: Any, x: Any, w_qkv: Any, w_out: Any, right: Any) -> tuple[dict[str, Any], ...]:
    """Return what likely mistakes give for dx, dw_qkv and dw_out with three heads."""
    _, (merged, cache) = _forward(x, w_qkv, w_out, 3, False)

    def rows(array: Any) -> Any:
        return array.reshape(-1, array.shape[-1])

    def projected(dmerged: Any) -> Any:
        gradients = ops.attention_backward(layers.split_heads(dmerged, 3), cache)
        return np.concatenate([layers.merge_heads(gradient) for gradient in gradients], axis=-1)

    thirds, weights = np.split(projected(dout @ w_out.T), 3, axis=-1), np.split(w_qkv, 3, axis=-1)
    dx, (queries, keys, values) = right[0], np.split(right[1], 3, axis=-1)
    dprojected = np.concatenate(thirds, axis=-1)
    return (
        {
            "has dout added: the residual connection lies around this function, not in it": dx + dout,
            "goes back through w_qkv reshaped: y = x @ W goes back as dy @ Wᵀ, and only .T turns W round": (
                dprojected @ w_qkv.reshape(w_qkv.shape[::-1])
            ),
            **{
                f"is what the {name} alone send: queries, keys and values, made of x, all send": third @ weight.T
                for name, third, weight in zip(("queries", "keys", "values"), thirds, weights, strict=True)
            },
        },
        {
            "is made with the merged heads: what w_qkv multiplied is x": rows(merged).T @ rows(dprojected),
            "is what dout itself sends back through attention: w_out comes first on the way back": (
                rows(x).T @ rows(projected(dout))
            ),
            "has the keys' and the values' thirds exchanged": np.concatenate([queries, values, keys], axis=-1),
        },
        {"is made with x: what w_out multiplied are the merged heads": rows(x).T @ rows(dout)},
    )


@exercise(answer=_self_attention_backward)
def self_attention_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    x, w_qkv, w_out = rng.standard_normal((2, 3, 6)), rng.standard_normal((6, 18)), rng.standard_normal((6, 6))
    dout = rng.standard_normal(x.shape)
    names = ("dx", "dw_qkv", "dw_out")

    def gradients_of(*arguments: Any, **options: Any) -> list[np.ndarray]:
        return require_arrays(attempt(*arguments, **options), *names)

    gradients = gradients_of(dout, x, w_qkv, w_out, 3)
    require(
        [gradient.shape for gradient in gradients[1:]] != [w_out.shape, w_qkv.shape],
        "the gradients of the two weights are returned in the other order: dx, dw_qkv, dw_out",
    )
    for name, gradient, of in zip(names, gradients, (x, w_qkv, w_out), strict=True):
        over = "" if name == "dx" else ": a weight is used at every position of every sentence, and those add up"
        require(
            gradient.shape == of.shape,
            f"{name} has shape {gradient.shape}, and a gradient has its array's, {of.shape}{over}",
        )
    doubled = gradients_of(*(np.concatenate([rows, rows]) for rows in (dout, x)), w_qkv, w_out, 3)
    for name, once, more in list(zip(names, gradients, doubled, strict=True))[1:]:
        require(
            np.allclose(more, 2 * once),
            f"with every sentence given twice, {name} must double: sentences add up, they are not averaged",
        )
    expected = _self_attention_backward(dout, x, w_qkv, w_out, 3)
    for name, mine, right, mistakes in zip(
        names, gradients, expected, _backward_mistakes(dout, x, w_qkv, w_out, expected), strict=True
    ):
        require_none_of(name, mine, right, mistakes)
    transposed = _self_attention_backward(dout, x, w_qkv, w_out.T, 3)[1]
    require(
        error(gradients[1], transposed) > 1e-9,
        "dw_qkv is what w_outᵀ in place of w_out would give: back through y = x @ W goes dy @ Wᵀ",
    )
    require(
        error(gradients[1][:, :6], expected[1][:, 6:12]) > 1e-9,
        "the queries' third of dw_qkv is what the keys' third should be: are dquery and dkey swapped?",
    )
    require(
        error(gradients[2], _self_attention_backward(dout, x, w_qkv, w_out, 2)[2]) > 1e-9,
        "with 3 heads of width 2 dw_out is that of 2 heads of width 3: is num_heads used, and not the width?",
    )
    for heads, causal in ((3, False), (3, True), (2, False)):
        case = f"with num_heads = {heads}, causal={causal} "
        gradients = gradients_of(dout, x, w_qkv, w_out, heads, causal)
        expected = _self_attention_backward(dout, x, w_qkv, w_out, heads, causal)
        opposite = _self_attention_backward(dout, x, w_qkv, w_out, heads, not causal)
        same = [name for name, mine, other in zip(names, gradients, opposite, strict=True) if error(mine, other) < 1e-9]
        require(
            not causal or not same,
            f"causal=True changes nothing in {', '.join(same)}: the forward that is computed again must be given it "
            "too, wherever it is used",
        )
        require(causal or not same, "with causal=False the gradients are those of causal attention: is it always on?")
        require_close(f"{case}dw_out", gradients[2], expected[2])
        for number, name in enumerate(("queries'", "keys'", "values'")):
            third = slice(6 * number, 6 * number + 6)
            require_close(f"{case}the {name} third of dw_qkv", gradients[1][:, third], expected[1][:, third])
        require_close(f"{case}dx, to which x's queries, keys and values all send,", gradients[0], expected[0])
    gradients_of(dout, x, w_qkv, w_out, num_heads=3, causal=True)  # as the lesson calls it
    for name, mine, right in zip(
        names, gradients_of(dout, x, w_qkv, w_out, 3), _self_attention_backward(dout, x, w_qkv, w_out, 3), strict=True
    ):
        require(
            np.allclose(mine, right),
            f"with causal=False given it is right, and where causal is not given {name} is that of causal attention: "
            "the contract's default is False",
        )
    x, w_qkv, w_out = rng.standard_normal((3, 4, 10)), rng.standard_normal((10, 30)), rng.standard_normal((10, 10))
    arguments = rng.standard_normal(x.shape), x, w_qkv, w_out, 2
    for name, mine, right in zip(names, gradients_of(*arguments), _self_attention_backward(*arguments), strict=True):
        require(
            mine.shape == right.shape and np.allclose(mine, right),
            f"with B = 2, T = 3 and C = 6 it is right, with B = 3, T = 4 and C = 10 {name} is wrong: is a number "
            "written where one of them belongs?",
        )
