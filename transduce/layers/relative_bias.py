"""T5's relative position bias, as a table over distances that attention kernels index. Knows no kernel."""

import math

import torch
from torch import Tensor


def distance_table(buckets: Tensor, max_distance: int, bidirectional: bool) -> Tensor:
    """Bias per bucket [buckets, heads] to bias per clamped distance key − query [heads, 2R+1], see `Attend.bias`.

    Half the buckets (bidirectional: of each direction's half) hold one distance each, the others ranges that grow
    logarithmically up to `max_distance`; further keys share the last. Unidirectional: keys ahead share bucket 0.
    """
    distances = torch.arange(-max_distance, max_distance + 1)
    return buckets[_bucket(distances, len(buckets), max_distance, bidirectional)].T.contiguous()


def _bucket(distance: Tensor, buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """Bucket of each distance key − query."""
    if not bidirectional:
        return _magnitude_bucket((-distance).clamp(min=0), buckets, max_distance)
    half = buckets // 2
    return _magnitude_bucket(distance.abs(), half, max_distance) + half * (distance > 0)


def _magnitude_bucket(distance: Tensor, buckets: int, max_distance: int) -> Tensor:
    exact = buckets // 2
    # float32, as trained: a distance on the edge of a range falls where float32 rounds it to.
    share = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = exact + (share * (buckets - exact)).long()
    return torch.where(distance < exact, distance, far.clamp(max=buckets - 1))
