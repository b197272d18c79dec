"""ONNX's node tests: what an interchange standard, with a reference of its own, says that these operations give.

Each case is one node with its attributes, its inputs and the outputs of ONNX's reference. A function below says in our
words what a node of one kind asks for; its keywords are the node's attributes. Inputs of 16 bits are computed in
float32 and their outputs compared by the precision of their type. The cases named `…_expanded` are left out: they are
the same inputs and outputs again, for a graph of smaller nodes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.case import node as node_tests
from support.kernels.prove_kernel import DEVICE
from support.kernels.tables import WITHOUT_TRITON, table

from minitransformer.layers.attention import merge_heads, split_heads
from minitransformer.ops import Ops, Pair, attention_mask
from minitransformer.ops.attention import scores_forward

Op = Callable[..., Any]
"""`op("softmax", x)` computes with one of the tables: NumPy arrays in, NumPy's out."""


def attention(
    op: Op, query: Any, key: Any, value: Any, mask: Any = None, past_key: Any = None, past_value: Any = None,
    lengths: Any = None, *, q_num_heads=0, kv_num_heads=0, is_causal=0, left_window_size=-1, right_window_size=-1,
    scale=None, softcap=None, qk_matmul_output_mode=0, softmax_precision=1,
) -> list[Any]:  # fmt: skip
    """ONNX's Attention, computed by ours. It differs in these points:

    - Inputs may be `(B, T, H·D)`, and then the output is too.
    - Past keys and values come before the new ones; both together are outputs.
    - The mask may be shorter than the keys, and boolean or added to the scores. Our bias is added.
    - The first query stands where the past ends, or such that the last one stands at the last of its sentence's
      `lengths` real keys, else at the first key: see `attention_from`.
    """
    merged, window = query.ndim == 3, (left_window_size, right_window_size)
    if merged:
        query = split_heads(query, q_num_heads)
        key, value = split_heads(key, kv_num_heads), split_heads(value, kv_num_heads)
    first = 0
    if past_key is not None:
        first = past_key.shape[2]
        key, value = np.concatenate([past_key, key], axis=2), np.concatenate([past_value, value], axis=2)
    if mask is not None:
        bias = np.where(mask, np.float32(0), np.float32(-np.inf)) if mask.dtype == bool else mask
        shorter = key.shape[2] - bias.shape[-1]
        mask = np.pad(bias, [(0, 0)] * (bias.ndim - 1) + [(0, shorter)], constant_values=-np.inf)
    options: dict[str, Any] = {
        "causal": bool(is_causal),
        "window": None if window == (-1, -1) else tuple(None if size < 0 else size for size in window),
        "scale": scale,
        "softcap": softcap,
    }
    attend = partial(attention_from, op, qk_matmul_output_mode)
    if lengths is None:
        out, scores = attend(first, query, key, value, mask, **options)
    else:
        each = []
        for b, length in enumerate(lengths):
            one, first = slice(b, b + 1), length - query.shape[2]
            bias = mask[one] if mask is not None and mask.ndim == 4 and len(mask) > 1 else mask
            real = np.arange(key.shape[2])[None] < length
            each.append(attend(first, query[one], key[one], value[one], bias, key_mask=real, **options))
        out, scores = map(np.concatenate, zip(*each, strict=True))
    return [merge_heads(out) if merged else out, key, value, scores]


def attention_from(op: Op, mode: int, first: int, query: Any, key: Any, value: Any, bias: Any, **options: Any) -> Any:
    """The output of queries that stand at `first` and after it, and their scores: of four kinds, by `mode`.

    With us the last query stands at the last key. So queries are added behind, and what they get is left out.
    """
    Tq, Tk = query.shape[2], key.shape[2]
    behind = (0, Tk - Tq - first)
    query = np.pad(query, [(0, 0), (0, 0), behind, (0, 0)])
    if bias is not None and bias.ndim > 1 and bias.shape[-2] > 1:
        bias = np.pad(bias, [(0, 0)] * (bias.ndim - 2) + [behind, (0, 0)])
    if mode == 3:
        scores = op("attention_weights", query, key, bias, **options)
    else:
        causal, window, scale, softcap = (options[name] for name in ("causal", "window", "scale", "softcap"))
        mask = attention_mask(query.shape[2], Tk, causal, options.get("key_mask"), window)
        added = (bias, mask) if mode == 2 else (None, None)
        factor = np.float32(1 / np.sqrt(query.shape[3]) if scale is None else scale)
        scores, _ = scores_forward(query, key, *added, factor, softcap if mode else None)
    return op("attention", query, key, value, bias, **options)[:, :, :Tq], scores[:, :, :Tq]


def rotary_embedding(
    op: Op, x: Any, cos: Any, sin: Any, positions: Any = None, *, interleaved=0, num_heads=0, rotary_embedding_dim=0
) -> list[Any]:
    """Each sentence has angles of its own; `positions (B, T)` says which rows of a table `(positions, R/2)`."""
    turned = split_heads(x, num_heads) if x.ndim == 3 else x
    if positions is not None:
        cos, sin = cos[positions], sin[positions]  # (B, T, R/2)
    sentences = zip(turned[:, None], cos, sin, strict=True)
    turned = np.concatenate([op("rope", *sentence, interleaved=bool(interleaved)) for sentence in sentences])
    return [merge_heads(turned) if x.ndim == 3 else turned]


def flattened(function: Callable[..., Any], x: Any, gamma: Any, *beta: Any, axis=-1, epsilon=1e-5) -> Any:
    """The norm is over all axes from `axis` on: with us one."""
    width = np.prod(x.shape[axis:], dtype=int)
    return function(x.reshape(-1, width), gamma.ravel(), *(b.ravel() for b in beta), eps=epsilon).reshape(x.shape)


def layer_normalization(op: Op, *arrays: Any, **options: Any) -> list[Any]:
    """The second and the third output, means and deviations, are for another's backward: ours are in the cache."""
    return [flattened(partial(op, "layernorm"), *arrays, **options), None, None]


def rms_normalization(op: Op, *arrays: Any, **options: Any) -> list[Any]:
    return [flattened(partial(op, "rmsnorm"), *arrays, **options)]


def along(function: Callable[[Any], Any], x: Any, axis: int) -> Any:
    """A function of the last axis, along another one."""
    return np.moveaxis(function(np.moveaxis(x, axis, -1)), -1, axis)


def softmax(op: Op, x: Any, *, axis=-1) -> list[Any]:
    return [along(partial(op, "softmax"), x, axis)]


def log_softmax(op: Op, x: Any, *, axis=-1) -> list[Any]:
    return [along(partial(op, "log_softmax"), x, axis)]


def gelu(op: Op, x: Any, *, approximate="none") -> list[Any]:
    return [op("gelu", x, approximate=approximate)]


def swish(op: Op, x: Any, *, alpha=1.0) -> list[Any]:
    """`x σ(alpha x)`"""
    return [op("silu", alpha * x) / alpha]


def softmax_cross_entropy_loss(
    op: Op, x: Any, targets: Any, weights: Any = None, *, reduction="mean", ignore_index=None
) -> list[Any]:
    """The classes are the second axis. A class may weigh more than another: then targets are probabilities here.

    A row's probabilities are zeros but for its target's weight, so they do not sum to 1. Ours is the mean over the
    rows; ONNX's over the weights of those that count.
    """
    logits, log_probs = np.moveaxis(x, 1, -1), along(partial(op, "log_softmax"), x, 1)
    counted = np.ones(targets.shape, bool) if ignore_index is None else targets != ignore_index
    weighed = counted * np.float32(1)
    if weights is not None:
        weighed = np.where(counted, weights[np.where(counted, targets, 0)], np.float32(0))
        targets = (np.arange(x.shape[1]) == targets[..., None]) * weighed[..., None]  # (..., V)
        ignore_index = None

    def loss(logits, targets):
        return op("cross_entropy", logits, targets, ignore_index=ignore_index)

    if reduction == "none":
        rows = zip(logits.reshape(-1, 1, x.shape[1]), targets.reshape(weighed.size, 1, -1), strict=True)
        each = [loss(row, target if weights is not None else target[0]) for row, target in rows]
        return [np.array(each).reshape(weighed.shape), log_probs]
    total = loss(logits, targets) * (counted.sum() if weights is None else counted.size)
    return [total if reduction == "sum" else total / weighed.sum(), log_probs]


TRANSLATIONS = {
    "Attention": attention,
    "RMSNormalization": rms_normalization,
    "LayerNormalization": layer_normalization,
    "RotaryEmbedding": rotary_embedding,
    "Gelu": gelu,
    "Swish": swish,
    "Softmax": softmax,
    "LogSoftmax": log_softmax,
    "SoftmaxCrossEntropyLoss": softmax_cross_entropy_loss,
}


def cases() -> dict[str, Any]:
    """Every case of these operations, by its name."""
    for operation in TRANSLATIONS:
        name = "softmax_cross_entropy_loss" if "Loss" in operation else operation.lower()
        import_module(f"{node_tests.__name__}.{name}")
    return {case.name: case for case in node_tests._NodeTestCases if "_expanded" not in case.name}


CASES = cases()
NOT_OURS = {
    "test_attention_local_window_with_past": "its last queries stand behind the last key; with us the last is at it",
}
"""Cases that our signatures can't express, and why."""
MOST_ROWS = 3000
WITHIN = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""A few roundings of each type."""


def test_no_case_is_missing():
    assert NOT_OURS.keys() <= CASES.keys()
    counts = Counter(case.model.graph.node[0].op_type for case in CASES.values())
    assert counts == {
        "Attention": 93, "SoftmaxCrossEntropyLoss": 34, "RMSNormalization": 19, "LayerNormalization": 19,
        "RotaryEmbedding": 8, "Softmax": 7, "LogSoftmax": 7, "Gelu": 4, "Swish": 1,
    }  # fmt: skip


def quick_or_slow() -> Iterator[Any]:
    """On PyTorch too, a case of a thousand rows one by one takes long, and shows what shorter ones show."""
    names = [name for name in CASES if name not in NOT_OURS]
    for name, backend in product(names, ("textbook", "numpy", "torch", "triton")):
        is_slow = backend == "triton" or (backend == "torch" and "d4d5_none" in name)
        marks = [pytest.mark.slow] * is_slow + [WITHOUT_TRITON] * (backend == "triton")
        yield pytest.param(name, backend, marks=marks)


@pytest.mark.parametrize(("name", "backend"), list(quick_or_slow()))
def test_a_node(name, backend):
    (node,), ((inputs, outputs),) = CASES[name].model.graph.node, CASES[name].data_sets
    if backend == "triton" and DEVICE == "cpu" and node.op_type.endswith("Loss") and inputs[1].size > MOST_ROWS:
        pytest.skip(
            f"{inputs[1].size:,} rows take a GPU: one by one in the interpreter they show no more than {MOST_ROWS:,}"
        )
    dtype = inputs[0].dtype
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    options = {key: each.decode() if isinstance(each, bytes) else each for key, each in attributes.items()}
    given = iter(array.astype(np.float32) if array.dtype == dtype else array for array in inputs)
    arrays = [next(given) if name else None for name in node.input]
    found = TRANSLATIONS[node.op_type](partial(run, table(backend, "float32")), *arrays, **options)
    wanted = dict(zip(filter(None, node.output), outputs, strict=True))
    assert len(found) >= len(node.output)
    for output, actual in zip(node.output, found, strict=False):
        if output and actual is not None:
            expected = wanted[output].astype(np.float32)
            np.testing.assert_allclose(actual, expected, rtol=WITHIN[str(dtype)], atol=WITHIN[str(dtype)])


def run(ops: Ops, name: str, *arrays: Any, **options: Any) -> np.ndarray:
    """An op of a table, between NumPy's arrays."""

    def given(x: Any) -> Any:
        return ops.asarray(x) if isinstance(x, np.ndarray) else x

    entry = getattr(ops, name)
    function = entry.forward if isinstance(entry, Pair) else entry
    out = function(*map(given, arrays), **{key: given(option) for key, option in options.items()})
    return ops.to_numpy(out[0] if isinstance(entry, Pair) else out)
