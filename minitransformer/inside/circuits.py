"""The circuits of attention heads: what a head looks for and what it moves, as matrices, and heads that act together.

qk_circuit(model, layer=1, head=3)    # (C, C): score of two vectors of the stream, x_query @ it @ x_key
ov_circuit(model, layer=1, head=3)    # (C, C): what the head adds to the stream from a vector that it looks at
ov_circuit(model, 0, 2) @ ov_circuit(model, 1, 3)     # the path through two heads, which act as one
composition_scores(model, "key", later=1, earlier=0)  # (H, H)
induction_scores(model, repeated_tokens(vocab_size, length=20, rows=8))    # (L, H)

Vectors are rows, as everywhere here. Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

from typing import Any, Literal

import numpy as np

from ..layers import LinearSelfAttention, Norm, Rotary, SelfAttention
from .attribution import gain_of, matrix_of
from .recording import record, stack_of


def qk_circuit(model: Any, layer: int, head: int, *, distance: int = 0, stack: str | None = None) -> np.ndarray:
    """Return the QK circuit of a self-attention head, `W_Q W_Kᵀ` times the scale of scores, `(C, C)`.

    `x_query @ W_QK @ x_key` is the score of two vectors of the residual stream, before the softmax and a softcap, but
    for what does not depend on both: the maps' biases, and biases by distance (T5, ALiBi). A pre-norm block normalises
    first: its norm's gain and its subtraction of the mean are in the matrix, and each vector still has to be divided by
    its own deviation. So it is with norms of queries and keys (Qwen 3). With rotary positions the rotation for a key
    `distance` tokens before the query stands between both. Head h of a group reads the keys of h // (H/Hk).

    Raises `ValueError` for a layer or head that there is not, and for linear attention, which has no scores.
    """
    attention, reads = _attention(model, layer, head, stack)
    if isinstance(attention, LinearSelfAttention):
        raise ValueError("linear attention has no scores, and so no QK circuit: φ is not linear")
    query, key, _ = _maps(attention, head)  # (C, D) each
    for norm in attention.head_norms[:1]:
        query = _normed(query, norm)
    for norm in attention.head_norms[1:]:
        key = _normed(key, norm)
    if attention.rotary is not None:
        query = query @ _rotation(attention.rotary, query.shape[1], distance)
    scale = query.shape[1] ** -0.5 if attention.scale is None else attention.scale
    return scale * (reads @ query) @ (reads @ key).T


def ov_circuit(model: Any, layer: int, head: int, *, stack: str | None = None) -> np.ndarray:
    """Return the OV circuit of a self-attention head, `W_V W_O`, `(C, C)`.

    `x @ W_OV` is what the head adds to the residual stream where it attends to the vector x alone, but for biases. As
    in `qk_circuit` the gain and the subtraction of the norm before it are in the matrix, and in a sandwich those of the
    norm behind it; both still divide. Raises `ValueError` for a layer or head that there is not.
    """
    attention, reads = _attention(model, layer, head, stack)
    _, _, value = _maps(attention, head)  # (C, Dv)
    width = value.shape[1]
    output = matrix_of(attention.output)[head * width : (head + 1) * width]  # (Dv, C)
    norm: Any = stack_of(model, stack).layers[layer].self_attention_norm
    return reads @ value @ (_normed(output, norm.of_output) if hasattr(norm, "of_output") else output)


def composition_scores(
    model: Any,
    way: Literal["query", "key", "value"],
    later: int,
    earlier: int,
    *,
    distance: int = 0,
    stack: str | None = None,
) -> np.ndarray:
    """Return how much each head of a later layer reads what each head of an earlier one has written, `(H, H)`.

    way  "query": `‖W_OV′ W_QK‖ / (‖W_OV′‖ ‖W_QK‖)`, what the later head looks for
         "key": `‖W_QK W_OV′ᵀ‖ / (‖W_QK‖ ‖W_OV′‖)`, where it finds it
         "value": `‖W_OV′ W_OV‖ / (‖W_OV′‖ ‖W_OV‖)`, what it moves

    with Frobenius norms, W of the later head and W′ of the earlier one: between 0 and 1, for random matrices about
    1/√C. Rows are later heads. Raises as `qk_circuit`, and `ValueError` for another way, and unless `earlier` is before
    `later`. Source: Elhage et al. 2021, "Composition of attention heads".
    """
    if way not in ("query", "key", "value"):
        raise ValueError(f"way is {way!r}, expected 'query', 'key' or 'value'")
    if not 0 <= earlier < later:
        raise ValueError(f"earlier is {earlier} and later is {later}: a head reads what earlier layers have written")
    heads = range(stack_of(model, stack).layers[0].self_attention.num_heads)
    writes = [ov_circuit(model, earlier, head, stack=stack) for head in heads]
    scores = np.zeros((len(heads), len(heads)))
    for head in heads:
        if way == "value":
            reads = ov_circuit(model, later, head, stack=stack)
        else:
            reads = qk_circuit(model, later, head, distance=distance, stack=stack)
            reads = reads.T if way == "key" else reads
        for other, written in enumerate(writes):
            sizes = np.linalg.norm(written) * np.linalg.norm(reads)
            scores[head, other] = np.linalg.norm(written @ reads) / sizes
    return scores


def _attention(model: Any, layer: int, head: int, stack: str | None) -> tuple[SelfAttention, np.ndarray]:
    """Return a layer's self-attention, and the matrix `(C, C)` by which it reads the stream, but for a scale."""
    blocks = stack_of(model, stack).layers
    if not 0 <= layer < len(blocks):
        raise ValueError(f"layer is {layer}, expected 0 to {len(blocks) - 1}")
    attention, norm = blocks[layer].self_attention, blocks[layer].self_attention_norm
    if not 0 <= head < attention.num_heads:
        raise ValueError(f"head is {head}, expected 0 to {attention.num_heads - 1}")
    same = np.eye(attention.query_key_value.weight.shape[0])
    return attention, _normed(same, norm) if norm.pre_norm else same


def _maps(attention: SelfAttention, head: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the maps of a head to its queries, keys and values, `(C, D)`, `(C, D)` and `(C, Dv)`."""
    edges = np.cumsum([attention.query_width, attention.key_width])
    query, key, value = np.split(matrix_of(attention.query_key_value), edges, axis=1)
    shared = head // (attention.num_heads // attention.kv_heads)  # a group of query heads shares keys and values

    def of(matrix: np.ndarray, count: int, number: int) -> np.ndarray:
        return np.split(matrix, count, axis=1)[number]

    return (
        of(query, attention.num_heads, head),
        of(key, attention.kv_heads, shared),
        of(value, attention.kv_heads, shared),
    )


def _normed(matrix: np.ndarray, norm: Norm) -> np.ndarray:
    """Return a matrix whose rows go through a norm, which does not divide and adds no beta."""
    return (matrix if norm.rms else matrix - matrix.mean(-1, keepdims=True)) * gain_of(norm)


def _rotation(rotary: Rotary, width: int, distance: int) -> np.ndarray:
    """Return the matrix `(D, D)` by which a query is turned against a key so many tokens before it."""
    if distance < 0:
        raise ValueError(f"distance is {distance}, expected 0 or more: a key stands before its query")
    ops = rotary.ops
    rows = ops.asarray(np.eye(width)[:, None, None], rotary.dtype)  # (D, 1, 1, D): a batch of one position
    return np.asarray(ops.to_numpy(rotary.forward(ops.activations(rows), distance)[0]), np.float64)[:, 0, 0]


# --- Heads by what they look at ---------------------------------------------------------------------------------


def repeated_tokens(vocab_size: int, length: int, rows: int, seed: int = 0, first: int | None = None) -> np.ndarray:
    """Return rows of `length` different random tokens that come twice, `(rows, 2 · length)`.

    With `first`, a token such as `bos_id` in front of each row. A model can't know the first half; one that looks back
    knows the second. Raises `ValueError` for more different tokens than there are.
    """
    if not 0 < length <= vocab_size:
        raise ValueError(f"length is {length}, expected 1 to {vocab_size}: the tokens of a half are different ones")
    rng = np.random.default_rng(seed)
    half = np.stack([rng.permutation(vocab_size)[:length] for _ in range(rows)])
    start = [] if first is None else [np.full((rows, 1), first)]
    return np.concatenate([*start, half, half], axis=1)


def induction_scores(model: Any, ids: Any) -> np.ndarray:
    """Return each head's induction score, `(L, H)`: its mean attention to the token after the last earlier same one.

    ids `(B, T)`, such as `repeated_tokens` makes: the mean is over all tokens that have an earlier same one. A head
    with a score near 1 looks at what came next the last time. Raises `ValueError` if no token comes twice, and for a
    model that has no softmax attention. Source: Olsson et al. 2022, "In-context learning and induction heads".
    """
    ids = np.asarray(ids)
    same = np.tril(ids[:, :, None] == ids[:, None, :], -1)  # (B, T, T): key s is before query t, and the same token
    texts, queries = np.nonzero(same.any(-1))
    if not len(texts):
        raise ValueError("no token comes twice: there is nothing to look back at")
    last = ids.shape[1] - 1 - same[texts, queries, ::-1].argmax(-1)
    return _mean_attention(model, ids, texts, queries, last + 1)


def previous_token_scores(model: Any, ids: Any) -> np.ndarray:
    """Return each head's mean attention to the token before, `(L, H)`; ids `(B, T)`. Raises as `record` does."""
    texts, queries = np.nonzero(np.ones(np.shape(ids), bool)[:, 1:])
    return _mean_attention(model, ids, texts, queries + 1, queries)


def _mean_attention(model: Any, ids: Any, texts: np.ndarray, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the mean weight of all heads `(L, H)` from queries to keys of some texts, of the last stack."""
    recording = record(model, ids)
    *_, side = recording.streams
    own = [weights for name, weights in recording.maps() if name.startswith(side) and name.endswith("self_attention")]
    if not own:
        raise ValueError(f"a {model.config.kind} model has no attention maps: it has no softmax attention")
    return np.stack([weights[texts, :, queries, keys].mean(0) for weights in own])
