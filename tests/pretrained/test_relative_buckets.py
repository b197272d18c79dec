"""T5's buckets of distances and ALiBi's lines, one by one, against `transformers`."""

from typing import Any

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from minitransformer.gradcheck import error
from minitransformer.layers import BiasConfig, FlatParameters, RelativeBias
from minitransformer.ops import numpy_ops
from minitransformer.ops.rope import bucket_of


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "most"), [(32, 128), (18, 128), (36, 32), (54, 64), (8, 20), (64, 1000)])
def test_every_distance_has_the_same_bucket(buckets: int, most: int, causal: bool) -> None:
    distances = range(-1100, 1101)
    wanted = T5Attention._relative_position_bucket(torch.tensor(distances), not causal, buckets, most)
    assert [bucket_of(distance, buckets, most, causal) for distance in distances] == wanted.tolist()


@pytest.mark.parametrize("kind", ["t5", "alibi"])
def test_threads_that_share_a_bias_do_not_meet(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one makes a larger table, another reads, or makes one of its own."""
    config = BiasConfig(kind)  # type: ignore[arg-type]

    def layer() -> RelativeBias:
        made = RelativeBias(numpy_ops, config, 2, True, "float64")
        FlatParameters(dict(made.named_parameters()), numpy_ops, "float64").initialize(0)
        made.forward(2, 2)
        return made

    alone, shared = layer(), layer()
    expected = {keys: alone.forward(3, keys)[0] for keys in (4, 30, 200)}
    builder = "_buckets" if kind == "t5" else "_lines"
    build, waiting = getattr(shared, builder), [30, 4]

    def interrupted(distances: range) -> Any:
        while waiting:
            keys = waiting.pop()
            assert error(shared.forward(3, keys)[0], expected[keys]) == 0
        return build(distances)

    monkeypatch.setattr(shared, builder, interrupted)
    assert error(shared.forward(3, 200)[0], expected[200]) == 0


@pytest.mark.parametrize("num_heads", [1, 4, 16])
def test_every_head_has_the_same_line(num_heads: int) -> None:
    """Theirs is of a key's position, ours of its distance: before the query a row differs by one number.

    Their slopes are float32.
    """
    bias, _ = RelativeBias(numpy_ops, BiasConfig("alibi"), num_heads, True, "float64").forward(3, 7)
    theirs = build_alibi_tensor(torch.ones(1, 7), num_heads, torch.float64).reshape(num_heads, 1, 7).numpy()
    for query, position in enumerate((4, 5, 6)):
        ours = bias[0, :, query, : position + 1]  # (H, keys)
        assert error(ours, theirs[:, 0, : position + 1] - theirs[:, 0, position, None]) <= 1e-6
