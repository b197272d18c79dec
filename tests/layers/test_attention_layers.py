"""What attention does in a translation: one position at a time, and beams that share a memory."""

import numpy as np
import pytest
from support.prove_layer import placed
from support.spies import Spies

from minitransformer.gradcheck import error
from minitransformer.layers import Attention, AttentionConfig, Cache, Context
from minitransformer.ops import numpy_ops

C = 4
KEY_MASK = np.array([[True, True, False], [False, False, False]])


@pytest.mark.parametrize("window", [None, 2])
def test_one_position_at_a_time_equals_all_at_once(window):
    layer = Attention(numpy_ops, C, AttentionConfig(2, 3, 1, window), causal=True)
    placed(layer)
    x, cache = np.random.default_rng(0).standard_normal((2, 5, C)), Cache(numpy_ops, batch=2, num_beams=1)
    steps = []
    for stop in (1, 2, 4, 5):  # two positions at once may come too
        steps.append(layer.forward(x[:, cache.position : stop], Context(cache=cache))[0])
        cache.position = stop
    assert error(np.concatenate(steps, axis=1), layer.forward(x)[0]) <= 1e-12


def test_beams_fold_into_the_queries_of_cross_attention():
    """Each beam gets what it would get alone, and only the first position asks for the memory."""
    spies = Spies()
    layer = Attention(spies.ops, C, AttentionConfig(2, 3, 1), cross=True)
    placed(layer)
    rng = np.random.default_rng(0)
    x, memory = rng.standard_normal((3, 2, 4, C)), rng.standard_normal((2, 3, C))  # 3 positions of 2 sentences' 4 beams
    alone = [
        layer.forward(x[t, :, [k]].swapaxes(0, 1), Context(None, memory, KEY_MASK))[0] for t, k in np.ndindex(3, 4)
    ]
    cache = Cache(numpy_ops, batch=2, num_beams=4)
    spies.calls.clear()
    for t in range(3):
        context = Context(memory=None if t == 2 else memory, memory_mask=KEY_MASK, cache=cache)
        stepped, _ = layer.forward(x[t].reshape(8, 1, C), context)
        cache.position += 1
        for beam in range(4):
            assert error(stepped.reshape(2, 4, 1, C)[:, beam], alone[4 * t + beam]) <= 1e-12
    assert spies.calls["linear_forward"] == 3 * 2 + 1  # query and output at every position, the memory's keys once
