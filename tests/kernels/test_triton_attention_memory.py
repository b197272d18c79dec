"""What attention moves: the figures of the ladder in `kernels.attention`."""

import pytest
import torch
from support.kernels.attention_cases import on_device, qkv
from support.kernels.prove_kernel import DEVICE
from support.kernels.traffic import Traffic, counted_loads

import kernels
from kernels.attention import attention_naive, attention_online, tiles
from minitransformer.ops import Dropout, Pair

BLOCK = tiles.INTERPRETER.rows
interpreted = pytest.mark.skipif(DEVICE == "cuda", reason="only the interpreter's loads can be counted")


def test_naive_passes():
    """The scores and the weights are written five times and read five times."""
    tensors = on_device(qkv(batch=2, heads=3, tq=7, tk=11))
    with Traffic(2 * 3 * 7 * 11) as traffic:
        attention_naive(*tensors, causal=True)
    assert traffic.passes == 10


@pytest.mark.parametrize(("options", "passes"), [({}, 4), ({"causal": True}, 6)], ids=str)
def test_passes_with_a_softmax_in_one(options, passes):
    """A product writes the scores, the softmax reads them and writes weights, which a product reads."""

    def softmax_forward(x):
        return torch.softmax(x, -1), None

    attention = kernels.attention_from(Pair(softmax_forward, kernels.softmax_backward)).forward
    tensors = on_device(qkv(batch=2, heads=3, tq=7, tk=11))
    with Traffic(2 * 3 * 7 * 11) as traffic:
        attention(*tensors, **options)
    assert traffic.passes == passes


def test_nothing_is_as_large_as_the_scores():
    T = 3 * BLOCK
    tensors = on_device(qkv(tq=T, tk=T, d=16, dv=16))
    with Traffic() as traffic:
        attention_online(*tensors, block=BLOCK)
    assert 16 * T <= traffic.largest < T * T
    with Traffic() as traffic:
        out, cache = kernels.attention_forward(*tensors, dropout=Dropout(0.3, key=1))
        kernels.attention_backward(out, cache)
    assert traffic.largest == 16 * T


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
    """What a program owns it loads under one: so twice as long sequences take twice as many such loads, not four."""
    masked = []
    for T in (BLOCK, 2 * BLOCK):
        tensors = on_device(qkv(tq=T, tk=T, d=16, dv=16))
        with counted_loads() as loads:
            out, cache = kernels.attention_forward(*tensors, dropout=dropout)
            kernels.attention_backward(out, cache)
        masked.append(loads.masked)
    assert masked[1] == 2 * masked[0] > 0
