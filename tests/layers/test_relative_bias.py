"""The distance table against T5's own bias, at every pair of positions."""

import pytest
import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from transduce.layers.relative_bias import distance_table

LENGTH = 160


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 12), (6, 100), (32, 33)])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_it_is_t5s_bias(buckets: int, max_distance: int, bidirectional: bool) -> None:
    config = T5Config(
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=max_distance,
        num_heads=3,
        d_model=12,
        d_kv=4,
        is_decoder=not bidirectional,
    )
    with torch.no_grad():
        attention = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        expected = attention.compute_bias(LENGTH, LENGTH)[0]
    table = distance_table(attention.relative_attention_bias.weight.detach(), max_distance, bidirectional)
    reach = table.shape[1] // 2
    distance = torch.arange(LENGTH)[None] - torch.arange(LENGTH)[:, None]
    assert torch.equal(table[:, distance.clamp(-reach, reach) + reach], expected)
    assert table.is_contiguous()
