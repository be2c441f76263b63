"""The engine: a scheduler and a runner over one loaded model. Token ids in, token ids out.

Owns loading and the step loop. Knows no text, no media and no transport.
"""

import gc
import logging
from dataclasses import dataclass
from typing import Any

import torch

from transduce import attention, quant, rules
from transduce.config import EngineConfig, Limits, resolve
from transduce.core.blocks import BlockPool
from transduce.core.capacity import Budgets, room
from transduce.core.request import Output, Request
from transduce.core.scheduler import Scheduler
from transduce.device.base import Device
from transduce.device.cpu import CPU
from transduce.errors import CheckpointError, EngineError
from transduce.layers.build import DECODER_TILE, Builder, Context
from transduce.models.base import Family, Model, Spec, find
from transduce.runtime import quantization
from transduce.runtime.checkpoint import Checkpoint, open_checkpoint
from transduce.runtime.graphs import Graphs
from transduce.runtime.layout import KVLayout
from transduce.runtime.loader import open_weights
from transduce.runtime.memory import demand, describe, pool_blocks
from transduce.runtime.profile import activation_bytes
from transduce.runtime.rule_states import RuleStates
from transduce.runtime.runner import Runner

log = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Engine:
    """add requests, step until nothing is unfinished; each step's outputs say what changed."""

    def __init__(self, scheduler: Scheduler, runner: Runner, budgets: Budgets, blocks: int) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self._budgets = budgets
        self._capacity = blocks - 1

    @property
    def unfinished(self) -> bool:
        """Whether any request is waiting or running."""
        return self.scheduler.unfinished

    def room(self, prompt: int, rows: int, width: int = 1) -> int:
        """Most new tokens per hypothesis that the whole pool holds for so many prompt tokens and encoder rows."""
        return room(self._budgets, self._capacity, prompt, rows, width)

    def add(self, request: Request) -> None:
        """Queue a request. Raises CapacityError when it could never run, RequestError for rules that cannot be."""
        self.runner.rules.check(request.rules)
        self.scheduler.add(request)

    def step(self) -> list[Output]:
        """Run one step. A step that fails ends its requests with an error; the engine goes on with the others.

        What interrupts a step (KeyboardInterrupt) ends its requests as well, and is raised.
        """
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


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A loaded model: its engine, and what a frontend needs to make requests for it. `config` is resolved."""

    engine: Engine
    config: EngineConfig
    checkpoint: Checkpoint
    family: Family
    family_config: Any
    spec: Spec
    dtype: torch.dtype


def load(config: EngineConfig, device: Device | None = None) -> Loaded:
    """Load `config.model` and size its memory. Raises ConfigError or CheckpointError with the way out."""
    device = device or CPU()
    # Imported modules are hundreds of thousands of objects that live as long as the process. Looking through them time
    # and again for garbage took a tenth of a decoder's step. Frozen before the model is: that one may go.
    gc.freeze()
    checkpoint = open_checkpoint(config)
    family = find(checkpoint.model_type)
    _check_architecture(checkpoint, family)
    family_config = family.config(checkpoint.config)
    spec = family.spec(family_config)
    stored = quantization.resolve(config, checkpoint, family.keep)
    scheme, keep = quant.named(stored.quantization), quantization.chosen(config, stored)
    config = resolve(stored, Limits(spec.max_source, spec.max_target))
    dtype = _dtype(config, device)
    backend = attention.select(
        device.kind, dtype, spec.head_dim, spec.bias, False, False, name=config.attention_backend
    )
    layout = KVLayout(spec, backend, config.block_size, dtype)
    context = Context(backend, scheme, dtype, device.torch_device, layout.slot, keep)
    model = _build(checkpoint, family, family_config, context)
    budgets = _budgets(config, layout)
    blocks = _size_pool(config, spec, budgets, layout, model, device, dtype)
    least = context.scheme.call_rows(dtype, device.torch_device, DECODER_TILE)
    graphs = Graphs(model.forward, layout.all_slabs, backend, device, least)
    states = RuleStates(lambda rule: rules.build(rule, spec.vocab_size, device.torch_device, family.rules))
    runner = Runner(model, layout, graphs, states, device, dtype)
    engine = Engine(Scheduler(budgets, BlockPool(blocks)), runner, budgets, blocks)
    return Loaded(engine, config, checkpoint, family, family_config, spec, dtype)


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
    log.info("dtype %s%s", str(dtype).removeprefix("torch."), " (auto)" if config.dtype == "auto" else "")
    return dtype


def _build(checkpoint: Checkpoint, family: Family, family_config: Any, context: Context) -> Model:
    weights = open_weights(checkpoint, family.rename)
    with torch.inference_mode():
        model = family.build(family_config, Builder(weights, context))
    weights.finish()
    context.keep.finish()
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
) -> int:
    """Allocate the pool; returns its blocks."""
    activations = 0 if config.kv_cache_bytes is not None else activation_bytes(model, config, device, dtype)
    each = demand(spec, config, budgets)
    blocks = pool_blocks(config, each, layout.block_bytes, device.memory(), activations)
    log.info(describe(blocks, each, budgets))
    layout.allocate(blocks, device.torch_device)
    return blocks
