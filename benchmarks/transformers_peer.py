"""transformers' `generate` on static batches, padded, with a KV cache and SDPA."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from benchmarks.batches import by_count
from benchmarks.columns import Work, wanted
from benchmarks.models import Config


def source_length(work: Work) -> int:
    """What users can sort by: output lengths are not known before."""
    return len(work.source)


def output_length(work: Work) -> int:
    """What nobody can sort by who does not know the answers: what is left of a lead then is not the padding's."""
    return work.length


class Transformers:
    """dtype: a name in torch. order: what requests are sorted by before they are batched."""

    def __init__(self, config: Config, dtype: str, order: Callable[[Work], int] = source_length) -> None:
        model_config = AutoConfig.for_model(**config)
        self._model = AutoModelForSeq2SeqLM.from_config(model_config, dtype=getattr(torch, dtype)).eval()
        self._pad = config["pad_token_id"]
        self._order = order

    def axes(self, work: list[Work]) -> dict[str, tuple[Any, ...]]:
        sizes = tuple(size for size in (32, 16, 64) if size < len(work))
        return {"batch": sizes or (len(work),)}

    def run(self, work: list[Work], batch: int) -> float:
        for each in by_count(sorted(work, key=self._order), batch):
            self._generate(each)
        return wanted(work)

    @torch.inference_mode()
    def _generate(self, batch: list[Work]) -> None:
        longest, width = max(w.length for w in batch), max(len(w.source) for w in batch)
        ids = torch.full((len(batch), width), self._pad)
        for row, each in zip(ids, batch, strict=True):
            row[: len(each.source)] = torch.tensor(each.source)
        self._model.generate(
            input_ids=ids,
            attention_mask=(ids != self._pad).long(),
            max_new_tokens=longest,
            min_new_tokens=longest,
            do_sample=False,
            num_beams=batch[0].beams,
        )
