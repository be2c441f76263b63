"""How many blocks the pool gets, and what is said about it."""

import pytest

from tests.runtime.test_layout import SPEC
from transduce.config import GIB, EngineConfig
from transduce.core.capacity import Budgets
from transduce.device.base import Memory
from transduce.errors import ConfigError
from transduce.runtime.memory import Demand, demand, holds, pool_blocks

CONFIG = EngineConfig(model="m", max_num_seqs=10, max_model_len=100)
BUDGETS = Budgets(max_num_seqs=10, max_num_batched_tokens=10, max_encode_tokens=10, self_slabs=4)
FREE = Memory(total=8 * GIB, free=4 * GIB, peak=GIB)


def test_demand_is_a_request_at_its_longest() -> None:
    assert demand(SPEC, CONFIG, BUDGETS) == Demand(self_blocks=7 * 4, cross_blocks=7)


def test_the_user_decides() -> None:
    config = EngineConfig(model="m", kv_cache_bytes=1000)
    assert pool_blocks(config, Demand(2, 2), 100, FREE, 0) == 10


def test_no_more_than_can_be_used() -> None:
    """Ten of the longest requests, as many encoder inputs again, and block 0."""
    assert pool_blocks(CONFIG, Demand(28, 7), 100, FREE, 0) == 10 * (28 + 7 + 7) + 1


def test_at_most_half_of_what_activations_leave_free() -> None:
    blocks = pool_blocks(CONFIG, Demand(28, 7), 64 << 20, FREE, activations=2 * GIB)
    assert blocks == GIB // (64 << 20)


@pytest.mark.parametrize("config", [EngineConfig(model="m", kv_cache_bytes=150), CONFIG], ids=["given", "free"])
def test_a_pool_too_small_for_anything_is_refused(config: EngineConfig) -> None:
    with pytest.raises(ConfigError, match="TRANSDUCE_CPU_KVCACHE_SPACE"):
        pool_blocks(config, Demand(28, 7), 100, Memory(1000, 300, 0), 0)


def test_more_than_the_machine_has_is_refused() -> None:
    config = EngineConfig(model="m", kv_cache_bytes=9 * GIB)
    with pytest.raises(ConfigError, match=r"9\.0 GiB on a machine of 8\.0 GiB"):
        pool_blocks(config, Demand(2, 2), 100, FREE, 0)


def test_the_log_says_what_it_holds() -> None:
    said = str(holds(421, Demand(28, 7), BUDGETS))
    assert "420 blocks hold 1680 tokens of self KV, or 6720 rows of cross KV" in said
    assert "12.0 requests" in said
