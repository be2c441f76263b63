"""Bits at the widths of real models, where matrix products choose their kernels by the number of rows."""

import json

import numpy as np
import pytest

from tests.engine.support import Answer, run
from transduce.config import EngineConfig
from transduce.core.request import EncoderInput, EncoderItem, Request, Span, Stopping
from transduce.engine import Engine, load

BART_BASE = {
    "model_type": "bart",
    "vocab_size": 50265,
    "d_model": 768,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
    "max_position_embeddings": 1024,
}
LENGTHS = (1, 3, 17, 64, 65, 130, 300)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("bart-base")
    (folder / "config.json").write_text(json.dumps(BART_BASE))
    config = EngineConfig(model=str(folder), dtype=request.param, load_format="dummy", kv_cache_bytes=64 << 20)
    return load(config).engine


def asked(name: str, length: int, seed: int) -> Request:
    ids = np.random.default_rng(seed).integers(4, 50000, length)
    source = EncoderInput(f"{name} {seed}".encode(), (EncoderItem(ids, length, length),))
    return Request(name, (2,), (source,), (Span(0, 0, length),), Stopping(4), logprobs=2)


def test_the_same_bits_alone_and_among_others(engine: Engine) -> None:
    mine = [asked(str(length), length, seed=length) for length in LENGTHS]
    alone: dict[tuple[str, int], Answer] = {}
    for each in mine:
        alone |= run(engine, [each])
    for others in (1, 30, 90):
        rng = np.random.default_rng(others)
        company = [asked(f"{others}-{i}", int(rng.integers(1, 80)), seed=1000 + i) for i in range(others)]
        engine.scheduler.cache.evict(10**9)  # or the encoder cache would answer for the encoder
        together = run(engine, [*company, *mine])
        assert {key: together[key] for key in alone} == alone
