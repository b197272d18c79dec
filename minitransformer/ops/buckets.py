"""The buckets of distances that share one entry of T5's table of biases."""

import math

import numpy as np


def bucket_of(distance: int, buckets: int, max_distance: int, causal: bool) -> int:
    """The bucket of a key at this distance after its query; before it the distance is negative.

    In an encoder half of the buckets are for later keys; in a decoder (`causal`) none is. The first half of one side's
    buckets holds one distance each; in the second they grow with the logarithm, up to `max_distance`, and the last
    holds all beyond. Source: Raffel et al. 2020, §2.1.
    """
    first = 0
    if causal:
        away = max(-distance, 0)
    else:
        buckets //= 2
        first, away = (buckets if distance > 0 else 0), abs(distance)
    exact = buckets // 2
    if away < exact:
        return first + away
    # In float32, as where T5 was trained: at some edges of buckets float64 rounds to the other side.
    share = np.log(np.float32(away) / np.float32(exact)) / np.float32(math.log(max_distance / exact))
    return first + min(exact + int(share * np.float32(buckets - exact)), buckets - 1)
