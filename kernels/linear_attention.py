"""Linear attention in chunks: `φ(q) Σ_j φ(k_j)ᵀ v_j / (φ(q) · Σ_j φ(k_j) + eps)`, `φ(x) = elu(x) + 1`.

The numbers that each step moves to and from memory for one head of T queries, D = Dv:

    naive       the formula with all weights (`linear_attention_naive`): 5 · T² for them, and time that grows as T²
    recurrent   a state `(D, Dv)` for each position, one after the other: T · D² if it is kept, and T steps in a row
    chunks      a state for each CHUNK positions: 4 · T/CHUNK · D², and nothing is T × T. All chunks are summed at
                once; then their sums are added up, which is the only walk through the sequence; then each chunk's
                queries meet the state before it, and the keys of their own chunk as in attention

The backward is the same from the other end: the states' gradients are sums over later chunks. A program that owns keys
sums over all query heads that share them, so there are no atomics, and each run gives the same bits.

Source: Katharopoulos et al. 2020, eq. 5 to 9; chunks as in Hua et al. 2022, §3.2.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .attention import tiles
from .attention.blocks import Heads, load_numbers, load_rows, store_rows
from .checks import check_gradient, kernel
from .eager import linear_attention as eager
from .launch import on, row_block
from .rows import rounded_product
from .tuning import KIBIBYTE, capability

CHUNKS = {"tf32": 32, "ieee": 16}
"""Positions of a chunk by the precision of products: as many as registers hold. In the kernels that own keys they hold
16 with heads wider than 64."""
HOPPERS_CHUNK = 128
"""Positions of a chunk in tf32 with heads of up to 64 on Hopper, in the kernels that own queries: a quarter of the
states. On an H200 the forward of 64 heads and 4,096 positions takes 0.27 ms, and 0.56 with chunks of 32."""
WIDEST = {"tf32": 128, "ieee": 64}
"""The widest head by the precision of products: in full float32 ("ieee") states must fit into registers."""
WIDE_HEADS_MEMORY = 136 * KIBIBYTE
"""Shared memory that heads wider than 64 need: an A100 and its successors have it, an RTX or a T4 does not."""
ELEMENTS = 256
"""Numbers of a state that one program adds up: few enough for one warp, whose threads may share a number."""
CHANGING = ["T", "H", "num_chunks", "group"]
"""Arguments that change from batch to batch: Triton must not compile another kernel for each."""


@triton.jit
def place(num_chunks, H):
    """Return this program's chunk and its head, numbered among all `B · H`, and as sentence b and its head h."""
    head = tl.program_id(0) // num_chunks
    return tl.program_id(0) % num_chunks, head.to(tl.int64), (head // H).to(tl.int64), (head % H).to(tl.int64)


@triton.jit
def rounded(x, PRECISION: tl.constexpr):
    """Return x as products take it: rounded to the 10 bits of tf32's mantissa, because a Hopper cuts off the others.

    This is Veltkamp's splitting (Dekker 1971), with `2¹³ + 1`: NaN stays NaN, and numbers beyond 4e34 become NaN.
    """
    if PRECISION == "tf32":
        far = rounded_product(x, 8193.0)  # rounded, so that no compiler fuses it with the difference
        x = far - (far - x)
    return x


@triton.jit
def features(x, present, D: tl.constexpr, BLOCK_D: tl.constexpr, PRECISION: tl.constexpr):
    """Return φ of rows `(M, D)`, rounded; zeros for rows that are not present and beyond the width, since φ(0) is 1."""
    x = x.to(tl.float32)
    within = present[:, None] & (tl.arange(0, BLOCK_D) < D)[None, :]
    positive = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return rounded(tl.where(within, positive + tl.exp(tl.minimum(x, 0.0)), 0.0), PRECISION)


@triton.jit
def slope(x):
    """Return φ'(x): 1 above 0, and exp(x) below."""
    return tl.exp(tl.minimum(x.to(tl.float32), 0.0))


@triton.jit
def real(key_mask, b, rows, T):
    """Return True for each key that exists and is no padding."""
    present = rows < T
    if key_mask is not None:
        present &= tl.load(key_mask + b * T + rows, present, other=False)
    return present


@triton.jit
def state_of(states, totals, slot, D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr):
    """Load a state `(D, Dv)` and its total `(D,)`; zeros beyond the widths."""
    row, column = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    within = (row < D)[:, None] & (column < DV)[None, :]
    state = tl.load(states + slot * D * DV + row[:, None] * DV + column[None, :], within, other=0.0)
    return state, tl.load(totals + slot * D + row, row < D, other=0.0)


@triton.jit
def keep_state(
    states, totals, slot, state, total, D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr
):
    """Write a state and its total."""
    row, column = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    within = (row < D)[:, None] & (column < DV)[None, :]
    tl.store(states + slot * D * DV + row[:, None] * DV + column[None, :], state, within)
    tl.store(totals + slot * D + row, total, row < D)


@triton.jit(do_not_specialize=CHANGING)
def chunk_states_kernel(
    key, value, states, totals, key_mask, T, H, num_chunks,
    D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    CHUNK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write `Σ φ(k)ᵀ v` and `Σ φ(k)` of each chunk."""
    chunk, head, b, h = place(num_chunks, H)
    rows = chunk * CHUNK + tl.arange(0, CHUNK)
    keys = real(key_mask, b, rows, T)
    k = features(load_rows(key, b, h, 0, rows, rows < T, D, BLOCK_D), keys, D, BLOCK_D, PRECISION)  # (N, D)
    v = load_rows(value, b, h, 0, rows, rows < T, DV, BLOCK_DV).to(tl.float32)  # (N, Dv)
    state = tl.dot(tl.trans(k), v, input_precision=PRECISION)
    keep_state(states, totals, head * num_chunks + chunk, state, tl.sum(k, axis=0), D, DV, BLOCK_D, BLOCK_DV)


@triton.jit(do_not_specialize=["num_chunks"])
def add_up_kernel(sums, num_chunks, width, CAUSAL: tl.constexpr, REVERSE: tl.constexpr, BLOCK: tl.constexpr):
    """Replace each chunk's sum by that of all chunks before it, with REVERSE after it; not CAUSAL, the first by all."""
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    start = sums + tl.program_id(0).to(tl.int64) * num_chunks * width + column
    running = tl.zeros((BLOCK,), tl.float32)
    for n in range(num_chunks):
        chunk = num_chunks - 1 - n if REVERSE else n
        added = tl.load(start + chunk.to(tl.int64) * width, column < width, other=0.0)
        if CAUSAL:
            tl.store(start + chunk.to(tl.int64) * width, running, column < width)
        running += added
    if not CAUSAL:
        tl.store(start, running, column < width)


@triton.jit(do_not_specialize=CHANGING)
def linear_attention_forward_kernel(
    query, key, value, out, denominator_ptr, states, totals, key_mask, T, H, group, num_chunks, eps,
    D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    CAUSAL: tl.constexpr, CHUNK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write a chunk of out, and for the backward its denominators `(B, H, T)`."""
    chunk, head, b, h = place(num_chunks, H)
    rows = chunk * CHUNK + tl.arange(0, CHUNK)
    present = rows < T
    q = features(load_rows(query, b, h, 0, rows, present, D, BLOCK_D), present, D, BLOCK_D, PRECISION)  # (M, D)
    shared = head // group * num_chunks
    state, total = state_of(states, totals, shared + chunk if CAUSAL else shared, D, DV, BLOCK_D, BLOCK_DV)
    numerator = tl.dot(q, rounded(state, PRECISION), input_precision=PRECISION)  # (M, Dv)
    denominator = tl.sum(rounded_product(q, total[None, :]), axis=1)  # (M,)
    if CAUSAL:
        keys = real(key_mask, b, rows, T)
        k = features(load_rows(key, b, h // group, 0, rows, present, D, BLOCK_D), keys, D, BLOCK_D, PRECISION)
        v = load_rows(value, b, h // group, 0, rows, present, DV, BLOCK_DV).to(tl.float32)
        weights = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # (M, N)
        weights = tl.where(rows[:, None] >= rows[None, :], weights, 0.0)
        numerator += tl.dot(rounded(weights, PRECISION), v, input_precision=PRECISION)
        denominator += tl.sum(weights, axis=1)
    denominator += eps
    store_rows(out, b, h, rows, present, numerator / denominator[:, None], DV, BLOCK_DV)
    tl.store(denominator_ptr + head * T + rows, denominator, present)


@triton.jit
def sums_gradient(dout, out, denominator_ptr, b, h, head, rows, T, DV: tl.constexpr, BLOCK_DV: tl.constexpr):
    """Return the gradients of numerators `(M, Dv)` and of denominators `(M,)`: `out = numerator / denominator`."""
    present = rows < T
    denominator = load_numbers(denominator_ptr + head * T + rows, present, 1.0)
    dnumerator = load_rows(dout, b, h, 0, rows, present, DV, BLOCK_DV).to(tl.float32) / denominator[:, None]
    out_block = load_rows(out, b, h, 0, rows, present, DV, BLOCK_DV).to(tl.float32)
    return dnumerator, -tl.sum(rounded_product(dnumerator, out_block), axis=1)


@triton.jit(do_not_specialize=CHANGING)
def linear_attention_dquery_kernel(
    query, key, value, out, dout, dquery, denominator_ptr, states, totals, key_mask, T, H, group, num_chunks,
    D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    CAUSAL: tl.constexpr, CHUNK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write a chunk of dquery."""
    chunk, head, b, h = place(num_chunks, H)
    rows = chunk * CHUNK + tl.arange(0, CHUNK)
    present = rows < T
    dnumerator, ddenominator = sums_gradient(dout, out, denominator_ptr, b, h, head, rows, T, DV, BLOCK_DV)
    shared = head // group * num_chunks
    state, total = state_of(states, totals, shared + chunk if CAUSAL else shared, D, DV, BLOCK_D, BLOCK_DV)
    dnumerator = rounded(dnumerator, PRECISION)
    dq = tl.dot(dnumerator, tl.trans(rounded(state, PRECISION)), input_precision=PRECISION)
    dq += ddenominator[:, None] * total[None, :]
    if CAUSAL:
        keys = real(key_mask, b, rows, T)
        k = features(load_rows(key, b, h // group, 0, rows, present, D, BLOCK_D), keys, D, BLOCK_D, PRECISION)
        v = load_rows(value, b, h // group, 0, rows, present, DV, BLOCK_DV).to(tl.float32)
        dweights = tl.dot(dnumerator, tl.trans(v), input_precision=PRECISION) + ddenominator[:, None]  # (M, N)
        dweights = tl.where(rows[:, None] >= rows[None, :], dweights, 0.0)
        dq += tl.dot(rounded(dweights, PRECISION), k, input_precision=PRECISION)
    dq *= slope(load_rows(query, b, h, 0, rows, present, D, BLOCK_D))
    store_rows(dquery, b, h, rows, present, dq, D, BLOCK_D)


@triton.jit(do_not_specialize=CHANGING)
def chunk_dstates_kernel(
    query, out, dout, denominator_ptr, dstates, dtotals, T, H, group, num_chunks,
    D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    CHUNK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradient of each state from the queries of its chunk, summed over all heads that share it."""
    chunk, shared, b, h = place(num_chunks, H)
    rows = chunk * CHUNK + tl.arange(0, CHUNK)
    dstate = tl.zeros((BLOCK_D, BLOCK_DV), tl.float32)
    dtotal = tl.zeros((BLOCK_D,), tl.float32)
    for member in range(group):
        head = shared * group + member
        query_block = load_rows(query, b, h * group + member, 0, rows, rows < T, D, BLOCK_D)
        q = features(query_block, rows < T, D, BLOCK_D, PRECISION)
        dnumerator, ddenominator = sums_gradient(
            dout, out, denominator_ptr, b, h * group + member, head, rows, T, DV, BLOCK_DV
        )
        dstate += tl.dot(tl.trans(q), rounded(dnumerator, PRECISION), input_precision=PRECISION)
        dtotal += tl.sum(rounded_product(q, ddenominator[:, None]), axis=0)
    keep_state(dstates, dtotals, shared * num_chunks + chunk, dstate, dtotal, D, DV, BLOCK_D, BLOCK_DV)


@triton.jit(do_not_specialize=CHANGING)
def linear_attention_dkey_dvalue_kernel(
    query, key, value, out, dout, dkey, dvalue, denominator_ptr, dstates, dtotals, key_mask, T, H, group, num_chunks,
    D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    CAUSAL: tl.constexpr, CHUNK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write a chunk of dkey and dvalue."""
    chunk, shared, b, h = place(num_chunks, H)
    rows = chunk * CHUNK + tl.arange(0, CHUNK)
    present = rows < T
    key_block = load_rows(key, b, h, 0, rows, present, D, BLOCK_D)
    keys = real(key_mask, b, rows, T)
    k = features(key_block, keys, D, BLOCK_D, PRECISION)  # (N, D)
    v = load_rows(value, b, h, 0, rows, present, DV, BLOCK_DV).to(tl.float32)  # (N, Dv)
    slot = shared * num_chunks
    dstate, dtotal = state_of(dstates, dtotals, slot + chunk if CAUSAL else slot, D, DV, BLOCK_D, BLOCK_DV)
    dstate = rounded(dstate, PRECISION)
    dk = tl.dot(v, tl.trans(dstate), input_precision=PRECISION) + dtotal[None, :]  # state = kᵀ v
    dv = tl.dot(k, dstate, input_precision=PRECISION)
    if CAUSAL:
        for member in range(group):
            head = shared * group + member
            query_block = load_rows(query, b, h * group + member, 0, rows, present, D, BLOCK_D)
            q = features(query_block, present, D, BLOCK_D, PRECISION)
            dnumerator, ddenominator = sums_gradient(
                dout, out, denominator_ptr, b, h * group + member, head, rows, T, DV, BLOCK_DV
            )
            dnumerator = rounded(dnumerator, PRECISION)
            past = rows[None, :] >= rows[:, None]  # (N, M): the query is at the key's place or after it
            weights = tl.where(past, tl.dot(k, tl.trans(q), input_precision=PRECISION), 0.0)
            dweights = tl.dot(v, tl.trans(dnumerator), input_precision=PRECISION) + ddenominator[None, :]
            dk += tl.dot(rounded(tl.where(past, dweights, 0.0), PRECISION), q, input_precision=PRECISION)
            dv += tl.dot(rounded(weights, PRECISION), dnumerator, input_precision=PRECISION)
    dk = tl.where(keys[:, None], dk * slope(key_block), 0.0)
    store_rows(dkey, b, h, rows, present, dk, D, BLOCK_D)
    store_rows(dvalue, b, h, rows, present, tl.where(keys[:, None], dv, 0.0), DV, BLOCK_DV)


class Problem(NamedTuple):
    """Shapes, and the arguments of all kernels."""

    B: int
    H: int
    Hk: int
    T: int
    arguments: dict[str, Any]
    """What is compiled in: widths, their blocks, and the positions of a chunk."""
    causal: bool
    key_mask: Tensor | None

    def of_keys(self) -> "Problem":
        """Return the problem with the chunks of the kernels that own keys."""
        wide = max(self.arguments["D"], self.arguments["DV"]) > 64
        return self._replace(arguments=self.arguments | {"CHUNK": 16 if wide else CHUNKS[self.arguments["PRECISION"]]})

    def launch(self, kernel: Any, heads: int, *arguments: Any, **options: Any) -> None:
        """Launch one program for each chunk of `heads` heads of each sentence."""
        num_chunks = triton.cdiv(self.T, self.arguments["CHUNK"])
        if "group" in kernel.arg_names:
            options["group"] = self.H // self.Hk
        if "CAUSAL" in kernel.arg_names:
            options["CAUSAL"] = self.causal
        if "key_mask" in kernel.arg_names:
            options["key_mask"] = self.key_mask
        kernel[(self.B * heads * num_chunks,)](
            *arguments, T=self.T, H=heads, num_chunks=num_chunks, num_warps=8, **self.arguments, **options
        )

    def add_up(self, reverse: bool, *sums: Tensor) -> None:
        """Replace each chunk's sum by that of the chunks before it, with `reverse` after it; if not causal, of all."""
        for each in sums:
            width = each[0, 0].numel()
            block = row_block(width, ELEMENTS)
            add_up_kernel[(self.B * self.Hk, triton.cdiv(width, block))](
                each, each.shape[1], width, CAUSAL=self.causal, REVERSE=reverse, BLOCK=block, num_warps=1
            )

    def states(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Allocate a state and a total of each chunk, `(B · Hk, chunks, D, Dv)` and `(B · Hk, chunks, D)`."""
        shape = self.B * self.Hk, triton.cdiv(self.T, self.arguments["CHUNK"]), self.arguments["D"]
        states = torch.empty((*shape, self.arguments["DV"]), dtype=torch.float32, device=like.device)
        return states, torch.empty(shape, dtype=torch.float32, device=like.device)


@kernel
def linear_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    feature_map: str = "elu",
    eps: float = 1e-6,
) -> tuple[Tensor, tuple]:
    """`φ(q) Σ_j φ(k_j)ᵀ v_j / (φ(q) · Σ_j φ(k_j) + eps)` with `φ(x) = elu(x) + 1`: `(B, H, T, Dv)`.

    query `(B, H, T, D)`, key `(B, Hk, T, D)`, value `(B, Hk, T, Dv)`; the options are those of
    `minitransformer.ops.linear_attention_forward`. Sums are float32. Heads that are wider than `WIDEST`, or for which
    the GPU has no room, take PyTorch's arithmetic. Raises `TypeError` for float64 and `ValueError` for shapes that do
    not fit.
    """
    B, H, T, D = query.shape
    Hk, DV = value.shape[1], value.shape[3]
    blocks = {"BLOCK_D": max(16, row_block(D, 1 << 30)), "BLOCK_DV": max(16, row_block(DV, 1 << 30))}
    precision, gpu = _precision(query), capability(query.device)
    if max(D, DV) > (WIDEST[precision] if gpu.shared_memory >= WIDE_HEADS_MEMORY else 64):
        options = {"causal": causal, "key_mask": key_mask, "feature_map": feature_map, "eps": eps}
        return eager.linear_attention_forward(query, key, value, **options)
    long = precision == "tf32" and max(D, DV) <= 64 and gpu.arch == 90
    chunk = HOPPERS_CHUNK if long else CHUNKS[precision]
    arguments = {"D": D, "DV": DV, "PRECISION": precision, "CHUNK": chunk, **blocks}
    mask = None if key_mask is None else key_mask.contiguous()
    problem = Problem(B, H, Hk, T, arguments, causal, mask)
    out = torch.empty((B, T, H, DV), dtype=query.dtype, device=query.device).transpose(1, 2)
    denominator = torch.empty((B, H, T), dtype=torch.float32, device=query.device)
    states, totals = problem.states(query)
    if out.numel():
        q, k, v = map(_heads, (query, key, value))
        with on(query):
            problem.launch(chunk_states_kernel, Hk, k, v, states, totals)
            problem.add_up(False, states, totals)
            problem.launch(
                linear_attention_forward_kernel, H, q, k, v, _heads(out), denominator, states, totals, eps=eps
            )
    return out, (query, key, value, out, denominator, states, totals, problem)


@kernel
def linear_attention_backward(dout: Tensor, cache: tuple) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients `(dquery, dkey, dvalue)`."""
    if not isinstance(cache[-1], Problem):
        return eager.linear_attention_backward(dout, cache)
    query, key, value, out, denominator, states, totals, problem = cache
    check_gradient("dout", dout, out.shape, out.dtype, out.device)
    gradients = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (query, key, value)]
    if not out.numel():
        return gradients[0].zero_(), gradients[1].zero_(), gradients[2].zero_()
    q, k, v, y, dy, dq, dk, dv = map(_heads, (query, key, value, out, dout, *gradients))
    of_keys = problem.of_keys()
    dstates, dtotals = of_keys.states(query)
    with on(query):
        problem.launch(linear_attention_dquery_kernel, problem.H, q, k, v, y, dy, dq, denominator, states, totals)
        of_keys.launch(chunk_dstates_kernel, problem.Hk, q, y, dy, denominator, dstates, dtotals)
        of_keys.add_up(True, dstates, dtotals)
        of_keys.launch(
            linear_attention_dkey_dvalue_kernel, problem.Hk, q, k, v, y, dy, dk, dv, denominator, dstates, dtotals
        )
    dquery, dkey, dvalue = gradients
    return dquery, dkey, dvalue


def linear_attention_naive(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    feature_map: str = "elu",
    eps: float = 1e-6,
) -> Tensor:
    """Compute the formula in PyTorch's operations, with all weights at once: the first step."""
    group = query.shape[1] // key.shape[1]
    q, k = (torch.nn.functional.elu(x) + 1 for x in (query, key))
    if key_mask is not None:
        k = k * key_mask[:, None, :, None]
    weights = q @ k.repeat_interleave(group, 1).mT  # (B, H, T, T)
    if causal:
        weights = weights.tril()
    return weights @ value.repeat_interleave(group, 1) / (weights.sum(-1, keepdim=True) + eps)


def _precision(x: Tensor) -> str:
    """Return the precision of products: half precision is computed in tf32, on NVIDIA's GPUs since the A100."""
    return tiles.usable("ieee" if x.dtype == torch.float32 else "tf32", capability(x.device), torch.float32)


def _heads(x: Tensor) -> Heads:
    x = x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()
    return Heads(x, *x.stride()[:3])
