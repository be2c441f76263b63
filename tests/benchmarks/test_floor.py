import pytest
import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from benchmarks.columns import Work
from benchmarks.floor import PRECISIONS, Limits, Shape, measure
from benchmarks.models import CONFIGS

INT8 = PRECISIONS["int8"]
SLOW_MEMORY = Limits(bandwidth=1.0, rate=1e30)
SLOW_CORES = Limits(bandwidth=1e30, rate=1.0)
SHAPE = Shape(encoder=1000, cross=100, decoder=2000, encoder_kv=4, decoder_kv=6)


def matrices(model: torch.nn.Module, part: str) -> int:
    """Numbers in the linear layers of a part."""
    layers = [m for name, m in model.named_modules() if name.startswith(part) and isinstance(m, torch.nn.Linear)]
    return sum(layer.weight.numel() for layer in layers)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_the_shape_counts_the_weights_of_the_real_model(name: str) -> None:
    with torch.device("meta"):
        model = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(**CONFIGS[name]))
    prefix = "model." if name == "bart-base" else ""
    shape, head = Shape.of(CONFIGS[name]), CONFIGS[name]["d_model"] * CONFIGS[name]["vocab_size"]
    assert shape.encoder == matrices(model, f"{prefix}encoder")
    assert shape.decoder + shape.cross == matrices(model, f"{prefix}decoder") + head


def test_a_decode_step_reads_weights_once_and_every_position() -> None:
    work = [Work([0] * 9, 1), Work([0] * 19, 1)]
    assert SHAPE.decode(work, INT8, SLOW_MEMORY, width=2) == 2000 + (9 + 1 + 19 + 1) * 6 * 2
    assert SHAPE.decode(work, INT8, SLOW_MEMORY, width=1) == 2 * 2000 + (9 + 1 + 19 + 1) * 6 * 2


def test_beams_share_what_is_read_of_the_source() -> None:
    work = [Work([0] * 9, 2, beams=4)]
    assert SHAPE.decode(work, INT8, SLOW_MEMORY, width=4) == 2 * 2000 + (4 * (1 + 2) + 2 * 9) * 6 * 2
    assert SHAPE.decode(work, INT8, SLOW_CORES, width=4) == 2 * 8 * 2000 + 2 * (4 * (1 + 2) + 8 * 9) * 6


def test_operations_count_where_they_take_longer() -> None:
    work = [Work([0] * 10, 1)]
    assert SHAPE.decode(work, INT8, SLOW_CORES, width=1) == 2 * 2000 + 2 * (10 + 1) * 6
    assert SHAPE.encode(work, INT8, SLOW_CORES) == 2 * 10 * 1100 + 2 * 10 * 10 * 4


def test_a_machine_can_be_measured() -> None:
    limits = measure(1 << 16, "float32")
    assert limits.bandwidth > 0
    assert limits.rate > 0
