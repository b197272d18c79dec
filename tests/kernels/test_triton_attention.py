"""Attention: who sees whom, in any shape and layout, forward and backward."""

import inspect
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracles
from support.kernels.prove_kernel import (
    DEVICE,
    DTYPES,
    NARROW_LATER,
    assert_same_bits,
    check,
    on_device,
    prove_kernel,
    qkv,
    seeds,
    to_numpy,
)
from support.kernels.traffic import Traffic, counted_loads

import kernels
from kernels.attention import attention_naive, attention_online, host, tiles
from kernels.eager.arrays import concatenate
from kernels.tuning import Tile
from minitransformer import ops
from minitransformer.gradcheck import error
from minitransformer.layers.attention import merge_heads, split_heads
from minitransformer.ops import Dropout, Pair, Pattern

BLOCK = tiles.INTERPRETER.rows
lengths = st.integers(1, BLOCK + 5)
"""Up to two blocks, the last of which is not full; blocks with others on either side are those of the bands' edges."""
widths = st.integers(1, BLOCK + 3)

interpreted = pytest.mark.skipif(
    DEVICE == "cuda",
    reason="hide the GPU, CUDA_VISIBLE_DEVICES='': only the interpreter's loads can be counted",
)


def prove_attention(arrays, dtype=torch.float32, **options):
    """A narrow dtype is judged by the formula in that dtype throughout, as in Dao's own tests of attention."""
    prove_kernel("attention", arrays, dtype, peer=attention_naive, **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=8)
@given(
    batch=st.integers(1, 2),
    heads=st.integers(1, 2),
    tq=lengths,
    tk=lengths,
    d=widths,
    dv=widths,
    group=st.sampled_from([1, 1, 3]),
    causal=st.booleans(),
    window=st.sampled_from([None, 0, 1, 5, BLOCK + 2, 100, (3, 1), (None, 2), (BLOCK + 1, None)]),
    scale=st.sampled_from([None, 0.7, 0.0, -0.3]),
    padding=st.sampled_from([None, 0.3, 0.8, 1.0]),
    rate=st.sampled_from([None, 0.5]),
    softcap=st.sampled_from([None, None, 0.7, 50.0]),
    biased=st.sampled_from([None, (1, 1, 1, 1), (0, 1, 1, 1), (0, 0, 1, 1), (1, 0, 0, 1), (1, 1, 1, 0), (0, 0, 0, 0)]),
    sloped=st.sampled_from([None, None, "for all sentences", "for each sentence"]),
    seed=seeds,
)
def test_attention(
    dtype, batch, heads, tq, tk, d, dv, group, causal, window, scale, padding, rate, softcap, biased, sloped, seed
):
    key_mask = None if padding is None else np.random.default_rng(seed).random((batch, tk)) >= padding
    arrays = qkv(seed, batch, heads, tq, tk, d, dv, group)
    if biased is not None:
        shape = (size if has else 1 for size, has in zip((batch, heads * group, tq, tk), biased, strict=True))
        arrays["bias"] = np.random.default_rng(seed).standard_normal(tuple(shape))
    slopes = np.random.default_rng(seed).random((batch, heads * group), np.float32)
    own = {} if sloped is None else {"slopes": slopes if sloped == "for each sentence" else slopes[0]}
    prove_attention(
        arrays,
        dtype,
        **own,
        softcap=softcap,
        causal=causal,
        window=window,
        scale=scale,
        key_mask=key_mask,
        dropout=None if rate is None else Dropout(rate, key=seed << 32 | ~seed & 0xFFFFFFFF, sentence=2, position=1),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=10)
@given(
    tq=st.integers(1, 3 * BLOCK),
    tk=st.integers(1, 3 * BLOCK),
    causal=st.booleans(),
    window=st.sampled_from([None, 2, (0, 3)]),
    block=st.sampled_from([None, 1, 7, BLOCK, 40]),
    summary=st.integers(0, 1),
    stride=st.sampled_from([None, 1, 5, BLOCK + 3, 40]),
    tokens=st.lists(st.integers(0, 60), max_size=2),
    padding=st.booleans(),
    seed=seeds,
)
def test_patterns(dtype, tq, tk, causal, window, block, summary, stride, tokens, padding, seed):
    key_mask = np.random.default_rng(seed).random((1, tk)) >= 0.3 if padding else None
    pattern = Pattern(causal, window, block, summary if block else 0, stride, tuple(tokens))
    prove_attention(qkv(seed, tq=tq, tk=tk), dtype, pattern=pattern, key_mask=key_mask)


SLOPES = np.array([[0.5, -0.25], [1.5, 0.0]], np.float32)
"""For two sentences and two heads. A slope may be 0, and a negative one draws attention to what is far."""


@pytest.mark.parametrize("dtype", NARROW_LATER, ids=str)
@pytest.mark.parametrize(
    ("options", "bias"),
    [
        ({}, None),
        ({"causal": True}, None),
        ({"causal": True, "softcap": 2.0, "scale": -0.7}, None),
        ({"window": (BLOCK + 2, 3), "dropout": Dropout(0.3, key=9)}, (1, 2, 21, 40)),
        ({"pattern": Pattern(True, 3, 20, 1, 33, (30,)), "key_mask": np.arange(80).reshape(2, 40) % 7 != 3}, (40,)),
    ],
    ids=str,
)
def test_slopes(dtype, options, bias):
    """ALiBi with every option, in blocks that need a mask and in others: two heads of queries for one of keys."""
    arrays = qkv(batch=2, tq=21, tk=40, group=2)
    if bias is not None:
        arrays["bias"] = np.random.default_rng(0).standard_normal(bias)
    for slopes in (SLOPES,) if options else (SLOPES, SLOPES[0]):
        prove_attention(arrays, dtype, slopes=slopes, **options)


def test_slopes_equal_the_formula():
    """In float64, by PyTorch's autograd, of four heads of queries for two of keys; slopes lie anywhere in memory."""
    query, key, value = (x.double().requires_grad_() for x in on_device(qkv(batch=2, heads=2, tq=20, tk=35, group=2)))
    slopes = torch.tensor([[0.5, 0.25, 0.0, 0.1], [1.5, -0.25, 0.03, 0.7]], device=DEVICE).t().contiguous().t()
    near = torch.arange(35, device=DEVICE) - torch.arange(15, 35, device=DEVICE)[:, None]  # (Tq, Tk)
    scores = query @ key.repeat_interleave(2, 1).mT / 2 - slopes.double()[:, :, None, None] * near.abs()
    expected = scores.masked_fill(near > 0, -torch.inf).softmax(-1) @ value.repeat_interleave(2, 1)
    narrow = [x.detach().float() for x in (query, key, value)]
    out, cache = kernels.attention_forward(*narrow, causal=True, slopes=slopes)
    check("output", out, to_numpy(expected), 1e-6)
    wanted = torch.autograd.grad(expected, (query, key, value), expected.detach())
    for found, reference in zip(kernels.attention_backward(expected.detach().float(), cache), wanted, strict=True):
        check("gradient", found, to_numpy(reference), 2e-6)


@pytest.mark.parametrize(
    ("slopes", "error", "message"),
    [
        (torch.ones(4, dtype=torch.float64), TypeError, r"^slopes is torch.float64, expected torch.float32$"),
        (torch.ones(2), ValueError, r"^slopes has shape \(2,\), expected \(4,\) or \(2, 4\)$"),
        (torch.ones(1, 4), ValueError, r"^slopes has shape \(1, 4\), expected \(4,\) or \(2, 4\)$"),
        (torch.ones(4, device="meta"), ValueError, r"^query is on \w+(:0)? and slopes on meta, expected one device$"),
        (torch.ones(4).requires_grad_(), ValueError, r"^slopes requires a gradient, which autograd would lose here"),
        ([0.5] * 4, TypeError, r"^slopes must be a torch.Tensor, got list$"),
    ],
    ids=str,
)
def test_slopes_that_are_refused(slopes, error, message):
    if isinstance(slopes, torch.Tensor) and slopes.device.type == "cpu":
        slopes = slopes.to(DEVICE)
    with pytest.raises(error, match=message):
        kernels.attention_forward(*on_device(qkv(batch=2, heads=4)), slopes=slopes)


@pytest.mark.parametrize(
    ("tile", "tq"),
    [(Tile(16, 32, 4, 1), 70), (Tile(32, 16, 4, 1), 37), (Tile(64, 32, 4, 1), 70), (Tile(16, 32, 4, 1, True), 37)],
    ids=str,
)
def test_tiles_of_any_shape(monkeypatch, tile, tq):
    monkeypatch.setattr(tiles, "candidates", lambda *_: (tile,))
    key_mask = np.arange(70)[None] % 7 != 3
    options = {"key_mask": key_mask, "dropout": Dropout(0.3, key=9), "softcap": 2.0}
    bias = {"bias": np.random.default_rng(0).standard_normal((1, 1, tq, 70))}
    prove_attention(qkv(tq=tq, tk=70), causal=True, window=25, key_mask=key_mask, dropout=options["dropout"])
    options |= {"slopes": SLOPES[0, :1], "pattern": Pattern(True, 3, 48, 1, 33, (40,))}
    prove_attention(qkv(tq=tq, tk=70) | bias, **options)


@pytest.mark.parametrize("options", [{"causal": True}, {"pattern": Pattern(True, 3, 20, 1, 33, (40,))}], ids=str)
def test_no_schedule_changes_a_bit(monkeypatch, options):
    """The GPU and the tile decide whether a product is ahead of the softmax, what is computed before a loop, and
    whether keys and values are loaded by descriptors."""
    tensors = on_device(qkv(tq=37, tk=70))
    options = options | {"dropout": Dropout(0.3, key=9), "key_mask": torch.arange(70, device=DEVICE)[None] % 7 != 3}
    found = []
    for lead, descriptors in ((0, False), (1, False), (0, True), (1, True)):
        ahead = {"forward": {"LEAD": lead, "HOISTED": bool(lead)}}
        tile = Tile(16, 16, 4, 1, descriptors)
        monkeypatch.setattr(tiles, "candidates", lambda *_: [tile])  # noqa: B023
        monkeypatch.setattr(tiles, "schedule", lambda name, *_: ahead.get(name, {"HOISTED": bool(lead)}))  # noqa: B023
        out, cache = kernels.attention_forward(*tensors, **options)
        found.append((out, *kernels.attention_backward(torch.ones_like(out), cache)))
    for other in found[1:]:
        assert_same_bits(found[0], other)


def test_without_a_descriptor_blocks_are_loaded_as_ever(monkeypatch):
    """The hardware has none for an axis along which all numbers are the same."""
    monkeypatch.setattr(tiles, "candidates", lambda *_: [Tile(16, 16, 4, 1, True)])
    arrays = qkv(heads=3)
    shared = on_device(arrays | {"key": arrays["key"][:, :1], "value": arrays["value"][:, :1]})
    expanded = [shared[0], *(x.expand(-1, 3, -1, -1) for x in shared[1:])]
    assert host._described(expanded[1], 16, 16) is None
    assert_same_bits([kernels.attention_forward(*shared)[0]], [kernels.attention_forward(*expanded)[0]])


@pytest.mark.parametrize(
    ("parts", "tq"),
    [(2, 21), (7, 1), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((2, 1), (3, 1), (3, 21), (7, 21)))],
)
def test_keys_that_programs_share(monkeypatch, parts, tq):
    """Some queries see nothing in a part of the keys, and those of a sentence without keys nothing at all."""
    monkeypatch.setattr(host, "parts_of", lambda *_: parts)
    key_mask = np.random.default_rng(0).random((2, 70)) < [[0.5], [0.0]]
    arrays = qkv(batch=2, tq=tq, tk=70, d=20, dv=8, group=2)
    prove_attention(arrays)
    prove_attention(arrays, torch.float16, causal=True, key_mask=key_mask)
    bias = {"bias": np.random.default_rng(0).standard_normal((1, 1, tq, 70))}
    prove_attention(arrays | bias, window=25, dropout=Dropout(0.3, key=9), softcap=2.0)


def test_programs_share_keys_where_processors_would_idle(monkeypatch):
    monkeypatch.setattr(kernels.rows, "PROCESSORS_INTERPRETED", 132)
    like = torch.empty(0)
    shares = {(32, 64): 4, (32, 7): 1, (1, 4096): 32, (67, 999): 1, (500, 999): 1, (44, 12): 3}
    assert {sizes: host.parts_of(*sizes, like) for sizes in shares} == shares


@pytest.mark.parametrize(
    "edge",
    [
        pytest.param(lambda place: (5, 3 * BLOCK, {"window": BLOCK + 4 + place}), id="first keys"),
        pytest.param(lambda place: (3 * BLOCK, 5, {"window": BLOCK + 4 + place}), id="first queries"),
        pytest.param(lambda place: (5, 3 * BLOCK - place, {"causal": True}), id="last keys"),
    ],
)
def test_every_place_of_a_bands_edge_in_a_block(edge):
    """One row more or less decides which blocks are visited, and which of them need no mask."""
    for tq, tk, options in map(edge, range(BLOCK)):
        arrays = qkv(tq=tq, tk=tk)
        expected, expected_cache = ops.attention_forward(*arrays.values(), **options)
        out, cache = kernels.attention_forward(*on_device(arrays), **options)
        check(f"output with {options}", out, expected, 1e-5)
        gradients = kernels.attention_backward(out, cache)
        wanted = ops.attention_backward(out.double().cpu().numpy(), expected_cache)
        for gradient, reference in zip(gradients, wanted, strict=True):
            check(f"gradient with {options}", gradient, reference, 1e-5)


@pytest.mark.parametrize(("d", "dv"), [(256, 1), (1, 256), (129, 200)])
def test_wide_heads(d, dv):
    prove_attention(qkv(tq=5, tk=18, d=d, dv=dv), causal=True)


@pytest.mark.parametrize("empty", ["batch", "heads", "tq", "tk"])
@pytest.mark.parametrize("options", [{}, {"causal": True, "window": 1}, {"dropout": Dropout(0.5, key=3)}], ids=str)
def test_empty(empty, options):
    prove_attention(qkv(**{empty: 0}), **options)


@pytest.mark.parametrize("rung", [attention_naive, partial(attention_online, block=4)], ids=["naive", "online"])
@pytest.mark.parametrize("window", [None, 0, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_earlier_rungs(rung, causal, window):
    arrays = qkv(batch=3, heads=2, tq=9, tk=11)
    key_mask = np.random.default_rng(0).random((3, 11)) < [[0.0], [0.5], [1.0]]
    expected, _ = ops.attention_forward(*arrays.values(), causal=causal, window=window, key_mask=key_mask)
    out = rung(*on_device(arrays), causal=causal, window=window, key_mask=torch.from_numpy(key_mask).to(DEVICE))
    check("output", out, expected, 1e-5)
    check("output", rung(*on_device(arrays), scale=0.3), ops.attention_forward(*arrays.values(), scale=0.3)[0], 1e-5)


# --- Who sees whom --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:All-NaN slice")
@pytest.mark.parametrize(
    ("tile", "options"),
    [
        (Tile(16, 16, 4, 1), {"causal": True}),
        (Tile(16, 16, 4, 1), {"window": 9}),
        (Tile(64, 32, 4, 2), {"causal": True, "window": 20}),
        (Tile(32, 64, 4, 2), {"causal": True, "window": 20}),
        (Tile(16, 16, 4, 1), {"pattern": Pattern(True, block=16, summary=1)}),
        (Tile(16, 16, 4, 1), {"pattern": Pattern(window=0, global_tokens=(3,))}),
        (Tile(32, 16, 4, 1), {"pattern": Pattern(stride=60, block=32)}),
    ],
    ids=str,
)
def test_blocks_that_are_not_seen_are_not_visited(monkeypatch, tile, options):
    """NaN stands in all of them: a product of theirs, even with a weight of 0, would show.

    A block is the tile's columns, and is visited for all of the tile's rows where one of them sees one of its own.
    """
    monkeypatch.setattr(tiles, "candidates", lambda *_: (tile,))
    step = max(tile.rows, tile.columns)
    T, rows = 4 * step, slice(2 * step, 2 * step + tile.rows)
    seen = oracles.may_attend(T, T, **options)[0, 0]
    seen_keys = seen[rows].any(0).reshape(-1, tile.columns).any(1).repeat(tile.columns)
    seeing_queries = seen[:, rows].any(1).reshape(-1, tile.columns).any(1).repeat(tile.columns)
    assert not seen_keys.all()
    assert not seeing_queries.all()
    query, key, value = on_device(qkv(tq=T, tk=T))
    dout = torch.randn_like(query)
    out, cache = kernels.attention_forward(query, key, value, **options)
    gradients = kernels.attention_backward(dout, cache)

    def poisoned(x, kept):
        return torch.where(torch.from_numpy(kept)[:, None].to(DEVICE), x, torch.nan)

    far_out, far_cache = kernels.attention_forward(
        query, poisoned(key, seen_keys), poisoned(value, seen_keys), **options
    )
    dquery, _, _ = kernels.attention_backward(dout, far_cache)
    assert torch.equal(far_out[:, :, rows], out[:, :, rows])
    assert torch.equal(dquery[:, :, rows], gradients[0][:, :, rows])

    _, far_cache = kernels.attention_forward(poisoned(query, seeing_queries), key, value, **options)
    _, dkey, dvalue = kernels.attention_backward(poisoned(dout, seeing_queries), far_cache)
    assert torch.equal(dkey[:, :, rows], gradients[1][:, :, rows])
    assert torch.equal(dvalue[:, :, rows], gradients[2][:, :, rows])


@pytest.mark.parametrize("tile", [Tile(16, 16, 4, 1), Tile(64, 32, 4, 2)], ids=str)
def test_blocks_of_padding_at_the_end_are_not_visited(monkeypatch, tile):
    monkeypatch.setattr(tiles, "candidates", lambda *_: (tile,))
    step = max(tile.rows, tile.columns)
    T, real = 3 * step, step + 5
    tensors = on_device(qkv(batch=2, tq=T, tk=T))
    key_mask = torch.ones(2, T, dtype=torch.bool, device=DEVICE)
    key_mask[0, real:] = False
    out, cache = kernels.attention_forward(*tensors, key_mask=key_mask)
    gradients = kernels.attention_backward(tensors[0], cache)
    for tensor in tensors[1:]:
        tensor[0, :, 2 * step :] = torch.nan
    far_out, far_cache = kernels.attention_forward(*tensors, key_mask=key_mask)
    assert torch.equal(far_out, out)
    assert_same_bits(kernels.attention_backward(tensors[0], far_cache), gradients)


def test_the_last_real_key_may_be_the_first_of_its_block():
    keys = np.arange(3 * tiles.INTERPRETER.columns)
    prove_attention(qkv(tq=3, tk=keys.size), key_mask=keys[None] <= tiles.INTERPRETER.columns)


@pytest.mark.parametrize("options", [{"causal": True}, {"dropout": Dropout(0.3, key=9)}], ids=str)
def test_nothing_is_read_beyond_the_arrays(monkeypatch, options):
    """NaN stands before and behind each of them, and so behind the last sequence, which does not fill its block."""

    def fenced(x: torch.Tensor) -> torch.Tensor:
        memory = torch.full((x.numel() + 2 * 4096,), torch.nan, dtype=x.dtype, device=DEVICE)
        return memory[4096 : 4096 + x.numel()].view(x.shape).copy_(x)

    query, key, value = on_device(qkv(tq=35, tk=20, d=16, dv=16))
    dout = torch.randn_like(query)
    out, cache = kernels.attention_forward(query, key, value, **options)
    gradients = kernels.attention_backward(dout, cache)
    far_out, (*operands, lse) = kernels.attention_forward(*map(fenced, (query, key, value)), **options)
    assert torch.equal(far_out, out)
    monkeypatch.setattr(torch, "empty_like", lambda like: fenced(torch.zeros(like.shape, device=DEVICE)))
    far_gradients = kernels.attention_backward(fenced(dout), (*operands, fenced(lse)))
    assert_same_bits(far_gradients, gradients)


@pytest.mark.parametrize("large", [1e30, -1e30])
def test_padding_never_leaks(large):
    """Whatever finite numbers stand in padded keys and values, nothing moves and nothing is sent to them."""
    tensors = on_device(qkv(tq=20, tk=20))
    key_mask = torch.arange(20, device=DEVICE)[None] % 3 != 1
    found = []
    for stands in (1.0, large):
        for tensor in tensors[1:]:
            tensor[:, :, ~key_mask[0]] = stands
        out, cache = kernels.attention_forward(*tensors, key_mask=key_mask)
        found.append((out, *kernels.attention_backward(tensors[0], cache)))
    assert_same_bits(*found)
    for gradient in found[1][2:]:
        assert not gradient[:, :, ~key_mask[0]].any()


def test_future_never_leaks():
    query, key, value = on_device(qkv(tq=20, tk=20))
    out, _ = kernels.attention_forward(query, key, value, causal=True)
    key[:, :, 7:] += 1.0
    value[:, :, 7:] += 1.0
    moved, _ = kernels.attention_forward(query, key, value, causal=True)
    assert torch.equal(moved[:, :, :7], out[:, :, :7])
    assert (moved[:, :, 7:] != out[:, :, 7:]).all()


def test_nothing_to_attend_to_gives_zeros_and_no_gradient():
    tensors = on_device(qkv(batch=2, tq=20, tk=18))
    key_mask = torch.tensor([[False], [True]], device=DEVICE).expand(2, 18)
    out, cache = kernels.attention_forward(*tensors, key_mask=key_mask)
    assert not out[0].any()
    for gradient in kernels.attention_backward(torch.ones_like(out), cache):
        assert not gradient[0].any()
        assert gradient[1].any()


def test_a_bias_of_minus_infinity_hides():
    """All keys of a query, whole blocks, or single keys."""
    query, key, value = on_device(qkv(tq=40, tk=40))
    hidden = torch.arange(40, device=DEVICE)[None] < torch.tensor([0, 17, 5, 40] * 10, device=DEVICE)[:, None]
    bias = torch.zeros(40, 40, device=DEVICE).masked_fill(hidden, -torch.inf)
    out, cache = kernels.attention_forward(query, key, value, bias)
    expected, expected_cache = ops.attention_forward(*map(to_numpy, (query, key, value, bias)))
    check("output", out, expected, 1e-5)
    wanted = ops.attention_backward(expected, expected_cache)
    for gradient, reference in zip(kernels.attention_backward(out, cache), wanted, strict=True):
        check("gradient", gradient, reference, 1e-5)


def test_one_query_at_a_time_equals_all_at_once():
    """As a key/value cache does: query t meets the first t + 1 keys; dropout is told which query it is."""
    query, key, value = on_device(qkv(batch=2, tq=20, tk=20))
    whole, _ = kernels.attention_forward(query, key, value, causal=True, dropout=Dropout(0.3, key=1))
    for t in (0, 6, 15, 16, 19):
        seen = slice(0, t + 1)
        dropout = Dropout(0.3, key=1, position=t)
        one, _ = kernels.attention_forward(
            query[:, :, t : t + 1], key[:, :, seen], value[:, :, seen], causal=True, dropout=dropout
        )
        torch.testing.assert_close(one[:, :, 0], whole[:, :, t], atol=1e-6, rtol=1e-6)


# --- Numbers --------------------------------------------------------------------------------------------------


def test_the_log_sum_exp_is_kept_in_base_2():
    arrays = qkv(heads=2, tq=20, tk=35, d=9)
    _, cache = kernels.attention_forward(*on_device(arrays), causal=True)
    scores = arrays["query"] @ arrays["key"].swapaxes(-1, -2) / 3
    scores[..., ~oracles.may_attend(20, 35, causal=True)[0, 0]] = -np.inf
    lse = cache[-1].cpu().numpy() * np.log(2)
    assert error(lse, np.log(np.exp(scores).sum(-1))) <= 1e-6


def test_large_scores_do_not_overflow():
    arrays = qkv(tq=20, tk=20)
    arrays["query"] *= 1e4
    out, cache = kernels.attention_forward(*on_device(arrays))
    check("output", out, ops.attention_forward(*arrays.values())[0], 1e-3)  # scores of 1e4 are rounded to 1e-3
    assert all(torch.isfinite(gradient).all() for gradient in kernels.attention_backward(torch.ones_like(out), cache))


@pytest.mark.parametrize("chosen", [None, "tf32"])
def test_float32_is_multiplied_in_full_precision_unless_tf32_is_chosen(monkeypatch, chosen):
    """The interpreter computes both alike: what is looked at is what the kernels are told, and that they heed it."""
    launches = []
    launch = host._launch
    monkeypatch.setattr(host, "_launch", lambda *a, **options: (launches.append(options), launch(*a, **options)))
    out, cache = kernels.attention_forward(*on_device(qkv()), **({} if chosen is None else {"precision": chosen}))
    kernels.attention_backward(out, cache)
    assert [options["PRECISION"] for options in launches] == [chosen or "ieee"] * 3
    for tuner in host.TUNERS.values():
        source = inspect.getsource(tuner.kernel.fn)
        assert source.count("tl.dot(") == source.count("input_precision=PRECISION") > 0


# --- What it moves: the figures of the ladder in `kernels.attention` ------------------------------------------


def softmax_in_one(x):
    return torch.softmax(x, -1), None


IN_ONE = kernels.attention_from(Pair(softmax_in_one, kernels.softmax_backward)).forward


@pytest.mark.parametrize(
    ("attention", "options", "passes"),
    [
        pytest.param(
            attention_naive, {"causal": True}, 10, id="the scores and the weights written and read five times"
        ),
        pytest.param(
            IN_ONE, {}, 4, id="a product writes scores, the softmax reads them and writes weights, a product reads"
        ),
        pytest.param(IN_ONE, {"causal": True}, 6, id="and a mask reads and writes the scores"),
    ],
)
def test_passes_over_what_is_as_large_as_the_scores(attention, options, passes):
    tensors = on_device(qkv(batch=2, heads=3, tq=7, tk=11))
    with Traffic(2 * 3 * 7 * 11) as traffic:
        attention(*tensors, **options)
    assert traffic.passes == passes


@pytest.mark.parametrize("turned", [False, True], ids=["", "with rotary positions between"])
@pytest.mark.parametrize(("kv_heads", "dv"), [(2, 16), (1, 32)])
def test_the_gradients_of_one_projection_are_parts_of_one_array(turned, kv_heads, dv):
    """As the layer joins them: where queries, keys and values lay side by side, without a copy, with the same bits."""
    B, T, H, D = 2, 5, 2, 16
    heads = (H, kv_heads, kv_heads)
    widths = [H * D, kv_heads * D, kv_heads * dv]
    rows = torch.randn(B, T, sum(widths), device=DEVICE).split(widths, -1)
    query, key, value = (split_heads(part, count) for part, count in zip(rows, heads, strict=True))
    if turned:  # then query and key are those of another array
        query, key = torch.cat([query, key], 1).transpose(1, 2).contiguous().transpose(1, 2).split([H, kv_heads], 1)
    out, cache = kernels.attention_forward(query, key, value)
    found = kernels.attention_backward(out, cache)
    apart = kernels.attention_backward(
        out, kernels.attention_forward(query.clone(), key.contiguous(), value.contiguous())[1]
    )
    assert_same_bits(found, apart)
    both = concatenate(found[:2], axis=1)
    assert both.data_ptr() == found[0].data_ptr()
    assert torch.equal(both, torch.cat(apart[:2], 1))
    merged = [merge_heads(each) for each in found]
    joined = concatenate(merged)
    assert (joined.data_ptr() == found[0].data_ptr()) == (not turned)
    assert joined.is_contiguous()
    assert torch.equal(joined, torch.cat([merge_heads(each) for each in apart], -1))


def test_the_gradients_of_keys_and_values_of_a_memory_are_parts_of_one_array():
    query, memory = torch.randn(2, 2, 3, 16, device=DEVICE), torch.randn(2, 7, 64, device=DEVICE)
    key, value = split_heads(memory[..., :32], 2), split_heads(memory[..., 32:], 2)
    out, cache = kernels.attention_forward(query, key, value)
    _, dkey, dvalue = kernels.attention_backward(out, cache)
    joined = concatenate([merge_heads(dkey), merge_heads(dvalue)])
    assert joined.data_ptr() == dkey.data_ptr()
    assert joined.is_contiguous()
    rest = {"slopes": None, "pattern": Pattern(), "scale": None, "softcap": None, "dropout": None}
    cache = host.attention_cache(out, cache[-1], query, key, value, None, **rest)
    for each in kernels.attention_backward(out, cache)[1:]:  # PyTorch lets an operator's outputs share no memory
        assert each.untyped_storage().nbytes() == each.nbytes


def test_nothing_is_as_large_as_the_scores():
    T = 3 * BLOCK
    tensors = on_device(qkv(tq=T, tk=T, d=16, dv=16))
    with Traffic() as traffic:
        attention_online(*tensors, block=BLOCK)
    assert 16 * T <= traffic.largest < T * T
    for options in ({"dropout": Dropout(0.3, key=1)}, {"slopes": torch.zeros(1, device=DEVICE)}):
        with Traffic() as traffic:
            out, cache = kernels.attention_forward(*tensors, **options)
            kernels.attention_backward(out, cache)
        assert traffic.largest == 16 * T
    torch.testing.assert_close(out, kernels.attention_forward(*tensors)[0], atol=1e-6, rtol=1e-6)  # slopes of 0


@interpreted
def test_the_forward_reads_keys_and_values_once_for_each_block_of_queries():
    T, D = 4 * BLOCK, 16
    tensors = on_device(qkv(tq=T, tk=T, d=D, dv=D))
    with counted_loads() as loads:
        kernels.attention_forward(*tensors)
    assert loads.elements == T * D + T // BLOCK * 2 * T * D


@interpreted
def test_a_window_costs_as_much_for_each_query_however_long_the_sequence():
    costs = []
    for T in (2 * BLOCK, 3 * BLOCK, 4 * BLOCK):
        tensors = on_device(qkv(tq=T, tk=T))
        with counted_loads() as loads:
            out, cache = kernels.attention_forward(*tensors, window=5)
            kernels.attention_backward(out, cache)
        costs.append(loads.elements)
    assert costs[2] - costs[1] == costs[1] - costs[0]


@interpreted
@pytest.mark.parametrize("dropout", [None, Dropout(0.3, key=1)], ids=["", "dropout"])
def test_blocks_that_are_seen_whole_are_loaded_without_masks(dropout):
    """A program loads its own rows under one: so twice as long sequences take twice as many such loads, not four."""
    masked = []
    for T in (BLOCK, 2 * BLOCK):
        tensors = on_device(qkv(tq=T, tk=T, d=16, dv=16))
        with counted_loads() as loads:
            out, cache = kernels.attention_forward(*tensors, dropout=dropout)
            kernels.attention_backward(out, cache)
        masked.append(loads.masked)
    assert masked[1] == 2 * masked[0] > 0
