"""T5's buckets of distances, one by one, against `transformers`."""

import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

from minitransformer.ops.buckets import bucket_of


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "most"), [(32, 128), (18, 128), (36, 32), (54, 64), (8, 20), (64, 1000)])
def test_every_distance_has_the_same_bucket(buckets: int, most: int, causal: bool) -> None:
    distances = range(-1100, 1101)
    wanted = T5Attention._relative_position_bucket(torch.tensor(distances), not causal, buckets, most)
    assert [bucket_of(distance, buckets, most, causal) for distance in distances] == wanted.tolist()
