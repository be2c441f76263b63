"""The engine: a scheduler and a runner over one loaded model. Token ids in, token ids out.

Owns loading and the step loop. Knows no text, no media and no transport.
"""

import gc
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from transduce import attention, rules
from transduce.attention.base import AttentionBackend
from transduce.config import EngineConfig, Limits, resolve, threads_spin
from transduce.core.blocks import BlockPool
from transduce.core.capacity import Budgets, Room, room
from transduce.core.output import Output
from transduce.core.request import Request
from transduce.core.scheduler import Scheduler
from transduce.core.speculation import Speculation
from transduce.device.base import Device
from transduce.device.cpu import CPU
from transduce.errors import CheckpointError, ConfigError, EngineError
from transduce.layers.build import DECODER_TILE, Builder, Context
from transduce.models.base import Family, Model, Spec, find
from transduce.quant.base import Scheme
from transduce.runtime import quantization
from transduce.runtime.checkpoint import Checkpoint, open_checkpoint
from transduce.runtime.graphs import Graphs
from transduce.runtime.layout import KVLayout
from transduce.runtime.loader import open_weights
from transduce.runtime.memory import Holds, demand, holds, pool_blocks
from transduce.runtime.profile import activation_bytes
from transduce.runtime.rule_states import RuleStates
from transduce.runtime.runner import Runner

log = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
PAGE_DTYPES = {**DTYPES, "int8": torch.int8}


class Engine:
    """add requests, step until nothing is unfinished; each step's outputs say what changed.

    room: most new tokens per hypothesis that the whole pool holds, for so many prompt tokens and encoder rows.
    """

    def __init__(self, scheduler: Scheduler, runner: Runner, room: Room) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.room = room

    @property
    def unfinished(self) -> bool:
        """Whether any request is waiting or running."""
        return self.scheduler.unfinished

    def add(self, request: Request) -> None:
        """Queue a request. Raises CapacityError when it could never run, RequestError for rules that cannot be."""
        self.runner.rules.check(request.rules)
        self.scheduler.add(request)

    def step(self) -> list[Output]:
        """Run one step. A step that fails ends its requests with an error; the engine goes on with the others.

        What interrupts a step (KeyboardInterrupt) ends its requests as well, and is raised.
        """
        began = time.time()
        return _timed(self._step(), self.scheduler.admitted, began)

    def _step(self) -> list[Output]:
        plan = self.scheduler.plan()
        if plan.empty:
            assert not self.unfinished, "nothing can run, but requests wait"
            return []
        try:
            result = self.runner.run(plan)
        except Exception as error:
            log.exception("a step failed")
            return self.scheduler.fail(str(EngineError(f"the step failed: {type(error).__name__}: {error}")))
        except BaseException:
            self.scheduler.fail("the step was interrupted")
            raise
        return self.scheduler.commit(result)

    def finish(self, request_id: str, index: int, at: int) -> None:
        """A stop string matched: hypothesis `index` ends after `at` new tokens."""
        self.scheduler.finish(request_id, index, at)

    def abort(self, request_id: str) -> None:
        """Forget a request and free all it holds."""
        self.scheduler.abort(request_id)


def _timed(outputs: list[Output], admitted: Sequence[str], began: float) -> list[Output]:
    """The outputs with their times, and one for each request let in that has no other yet."""
    by_id = {output.request_id: output for output in outputs}
    for request_id in admitted:
        by_id.setdefault(request_id, Output(request_id)).scheduled = began
    now = time.time()
    for output in by_id.values():
        output.first = output.last = now
    return list(by_id.values())


@dataclass(frozen=True, slots=True)
class About:
    """What was chosen for a loaded model: names of its dtype, device and attention backend, and of its pages' dtype.

    kv_tokens, kv_rows: what the KV pool holds, of decoder tokens or of encoder rows alone. most_at_once: of the longest
    requests.
    """

    dtype: str
    device: str
    backend: str
    pages: str
    kv_tokens: int
    kv_rows: int
    most_at_once: float


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A loaded model: its engine, and what a frontend needs to make requests for it. `config` is resolved."""

    engine: Engine
    config: EngineConfig
    checkpoint: Checkpoint
    family: Family
    family_config: Any
    spec: Spec
    about: About


def load(config: EngineConfig, device: Device | None = None) -> Loaded:
    """Load `config.model` and size its memory. Raises ConfigError or CheckpointError with the way out."""
    device = device or CPU()
    # Imported modules are hundreds of thousands of objects that live as long as the process. Looking through them time
    # and again for garbage took a tenth of a decoder's step. Frozen before the model is: that one may go.
    gc.freeze()
    if threads_spin():
        log.info("torch was imported before transduce, so its idle threads spin; set GOMP_SPINCOUNT=10000 to bound it")
    checkpoint = open_checkpoint(config)
    family = find(checkpoint.model_type)
    _check_architecture(checkpoint, family)
    family_config = family.config(checkpoint.config)
    spec = family.spec(family_config)
    stored = quantization.resolve(config, checkpoint, family.keep)
    scheme, keep = quantization.scheme(stored, checkpoint), quantization.chosen(config, stored)
    config = resolve(stored, Limits(spec.max_source, spec.max_target))
    dtype = _dtype(config, device)
    asked = _asked_pages(config, dtype)
    backend = attention.select(
        device.kind, dtype, spec.head_dim, spec.bias, False, False, config.attention_backend, asked
    )
    pages = asked or _best_pages(backend, scheme, spec, config, dtype)
    layout = KVLayout(spec, backend, config.block_size, pages)
    context = Context(backend, scheme, dtype, device.torch_device, layout.slot, keep)
    model = _build(checkpoint, family, family_config, context)
    budgets = _budgets(config, layout)
    blocks, held = _size_pool(config, spec, budgets, layout, model, device, dtype)
    least = context.scheme.call_rows(dtype, device.torch_device, DECODER_TILE)
    graphs = Graphs(model.forward, layout.all_slabs, backend, device, least)
    states = RuleStates(lambda rule: rules.build(rule, spec.vocab_size, device.torch_device, family.rules))
    runner = Runner(model, layout, graphs, states, device, dtype)
    pool = BlockPool(blocks)
    drafts = backend.caps.row_exact if config.speculate is None else config.speculate
    scheduler = Scheduler(budgets, pool, Speculation(spec.vocab_size, graphs.computed) if drafts else None)
    engine = Engine(scheduler, runner, partial(room, budgets, pool.capacity))
    chosen = (_name(dtype), device.kind, backend.caps.name, _name(pages))
    about = About(*chosen, held.tokens, held.rows, held.at_once)
    return Loaded(engine, config, checkpoint, family, family_config, spec, about)


def _check_architecture(checkpoint: Checkpoint, family: Family) -> None:
    named = checkpoint.architectures
    if named and not family.architectures.intersection(named):
        raise CheckpointError(
            f"architectures {list(named)} of {str(checkpoint.folder)!r} are not supported; for this model_type: "
            f"{', '.join(sorted(family.architectures))}"
        )


def _dtype(config: EngineConfig, device: Device) -> torch.dtype:
    dtype = device.best_dtype() if config.dtype == "auto" else DTYPES[config.dtype]
    device.check_dtype(dtype)
    log.info("dtype %s%s", _name(dtype), " (auto)" if config.dtype == "auto" else "")
    return dtype


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _asked_pages(config: EngineConfig, dtype: torch.dtype) -> torch.dtype | None:
    """The dtype of keys and values that the user asked for."""
    pages = PAGE_DTYPES.get(config.kv_cache_dtype)
    if pages not in {None, dtype, torch.int8}:
        name = str(dtype).removeprefix("torch.")
        raise ConfigError(f"kv_cache_dtype={config.kv_cache_dtype!r}: the model runs in {name}; give that, or int8")
    return pages


def _best_pages(
    backend: AttentionBackend, scheme: Scheme, spec: Spec, config: EngineConfig, dtype: torch.dtype
) -> torch.dtype:
    """As small as the weights' scheme allows and the backend can, else the model's."""
    pages = scheme.pages
    return dtype if pages is None or backend.unfit(spec.head_dim, config.block_size, pages) else pages


def _build(checkpoint: Checkpoint, family: Family, family_config: Any, context: Context) -> Model:
    weights = open_weights(checkpoint, family.rename)
    with torch.inference_mode():
        model = family.build(family_config, Builder(weights, context))
    weights.finish()
    context.keep.finish()
    context.scheme.finish()
    return model


def _budgets(config: EngineConfig, layout: KVLayout) -> Budgets:
    return Budgets(
        config.max_num_seqs,
        config.max_num_batched_tokens,
        config.max_encode_tokens,
        config.block_size,
        layout.slabs("self"),
        layout.slabs("cross"),
    )


def _size_pool(
    config: EngineConfig,
    spec: Spec,
    budgets: Budgets,
    layout: KVLayout,
    model: Model,
    device: Device,
    dtype: torch.dtype,
) -> tuple[int, Holds]:
    """Allocate the pool; returns its blocks and what they hold."""
    activations = 0 if config.kv_cache_bytes is not None else activation_bytes(model, config, device, dtype)
    each = demand(spec, config, budgets)
    blocks = pool_blocks(config, each, layout.block_bytes, device.memory(), activations)
    held = holds(blocks, each, budgets)
    log.info(held)
    layout.allocate(blocks, device.torch_device)
    return blocks, held
