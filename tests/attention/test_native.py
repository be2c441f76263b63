"""What only `native` has: runs of neighbours that share their keys, block sizes, and a machine without kernels."""

from collections.abc import Iterator

import pytest
import torch

from tests.attention.batches import CPU, Heads, Span, attends, batch, contenders
from transduce import attention
from transduce.attention import backends, named, native, select
from transduce.attention.base import AttentionBackend
from transduce.attention.native import Native
from transduce.errors import ConfigError

NATIVES = {name: backend for name, backend in contenders().items() if backend.caps.name == "native"}
each_native = pytest.mark.parametrize("backend", NATIVES.values(), ids=NATIVES)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)

BEAMS = (
    Span(1, 60, 55, 0),
    Span(1, 7, 40, 1),
    *[Span(1 + i % 2, 30 + i, 55, 2) for i in range(7)],
    Span(1, 37, 54, 2),
    Span(1, 9, 0, 0),
    Span(1, 9, 0, 0),
)


def test_neighbours_with_the_same_keys_are_one_run() -> None:
    pages = batch(named("native"), BEAMS, Heads(1, 1, 16), torch.float32)
    runs, positions, _ = named("native").plan(pages.segments, None)
    used = [[0, 1, 55, 0], [1, 1, 40, 1], [2, 10, 55, 2], [12, 1, 54, 9], [13, 2, 0, 10]]
    assert runs.T.tolist() == used + [[0] * 4] * (len(BEAMS) - len(used))
    assert positions.tolist() == [span.q_pos + i for span in BEAMS for i in range(span.q_len)]


@each_native
@each_dtype
@pytest.mark.parametrize("heads", [Heads(2, 2, 64), Heads(2, 6, 48)], ids=str)
@pytest.mark.parametrize("way", ["plain", "bias", "everything"])
def test_a_run_gives_the_bits_of_its_segments(
    backend: AttentionBackend, dtype: torch.dtype, heads: Heads, way: str
) -> None:
    pages = batch(backend, BEAMS, heads, dtype)
    together = pages.read_only(backend, attends(heads)[way], range(len(BEAMS)))
    for i, rows in enumerate(together):
        assert torch.equal(pages.read_only(backend, attends(heads)[way], [i])[0], rows), BEAMS[i]


@pytest.mark.parametrize(("pages", "word"), [(torch.float32, 1), (torch.bfloat16, 2), (torch.int8, 4)])
def test_blocks_and_heads_of_half_a_word_are_refused(pages: torch.dtype, word: int) -> None:
    backend = named("native")
    assert backend.cache(3, 2, 32, 12, pages, CPU).nbytes == 3 * backend.block_bytes(1, 2, 32, 12, pages)
    assert backend.unfit(32, 12, pages) is None
    for block_size in range(13, 13 + word - 1):
        with pytest.raises(
            ConfigError, match=rf"'native': pages of {pages} need a block_size .*{word}, not {block_size}"
        ):
            backend.block_bytes(1, 2, 32, block_size, pages)
    for head_dim in range(33, 33 + word - 1):
        with pytest.raises(ConfigError, match=rf"pages of {pages} need heads .*{word}, not {head_dim}: leave kv_cache"):
            backend.block_bytes(1, 2, head_dim, 12, pages)


def test_pages_that_no_kernel_reads_are_refused() -> None:
    assert "no pages of torch.int8" in str(named("sdpa").unfit(64, 16, torch.int8))
    assert select("cpu", torch.float32, 64, True, False, False, pages=torch.int8) is named("native")
    with pytest.raises(ConfigError, match=r"sdpa lacks pages of torch\.int8"):
        select("cpu", torch.float32, 64, True, False, False, name="sdpa", pages=torch.int8)


def test_caches_start_on_a_cache_line() -> None:
    for blocks in (1, 3, 1 << 12):
        cache = named("native").cache(blocks, 4, 64, 16, torch.bfloat16, CPU)
        assert cache.data_ptr() % 64 == 0
        assert cache.shape == (blocks, 2, 4, 64, 16)


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(native, "library", lambda: None)
    for found in (attention.backends, attention.named):
        found.cache_clear()
    yield
    for found in (attention.backends, attention.named):
        found.cache_clear()


@pytest.mark.usefixtures("no_kernels")
def test_without_kernels_another_backend_is_chosen() -> None:
    assert "native" not in [backend.caps.name for backend in backends()]
    assert select("cpu", torch.float32, 64, True, False, False).caps.name == "sdpa"
    with pytest.raises(ConfigError, match=r"backend 'native' cannot run: there are no CPU kernels.*C\+\+ compiler"):
        named("native")
    assert Native().missing() is not None


def test_with_kernels_it_is_the_first_choice() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        assert select("cpu", dtype, 64, True, True, True) is named("native")
    assert select("cpu", torch.float16, 64, True, False, False).caps.name == "sdpa"
