"""What a step's activations take beside weights and pages: one encoder pass of the largest size, measured.

Bounded by the encode budget or the largest single item, never by max_num_seqs of the largest inputs.
"""

import numpy as np
import torch

from transduce.config import EngineConfig
from transduce.core.plan import EncodeJob
from transduce.core.request import EncoderItem
from transduce.device.base import Device
from transduce.models.base import Model, Spec
from transduce.runtime.inputs import encoder_batch


@torch.inference_mode()
def activation_bytes(model: Model, config: EngineConfig, device: Device, dtype: torch.dtype) -> int:
    """By how much the process's peak memory rises over one largest encoder pass and one slice of logits."""
    before = device.memory().peak
    jobs = [EncodeJob(item, 0, ()) for item in _largest(model.spec, config.max_encode_tokens)]
    encoded = model.encode(encoder_batch(jobs, device, dtype))
    width = model.spec.hidden or encoded.shape[1]
    model.heads["lm"](encoded.new_zeros(min(config.max_num_seqs, len(encoded)), width))
    return max(0, device.memory().peak - before)


def _largest(spec: Spec, budget: int) -> list[EncoderItem]:
    """As many of the largest items as the budget holds, at least one."""
    longest = spec.fixed_rows or spec.max_source or budget
    rows = longest if spec.feature_shape else min(longest, budget)
    count = max(1, budget // rows)
    if spec.feature_shape:
        beside = np.zeros(spec.beside, dtype=np.int64)
        return [EncoderItem(np.zeros(spec.feature_shape, dtype=np.float32), rows, rows, beside)] * count
    return [EncoderItem(np.zeros(rows, dtype=np.int64), rows, rows)] * count
