"""Transduce: runs encoder-decoder transformers, fast and exactly.

The public names, resolved when first used: `import transduce` loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transduce.config import calm_threads

if TYPE_CHECKING:
    from transduce.async_engine.llm import AsyncLLM as AsyncLLM
    from transduce.config import EngineConfig as EngineConfig
    from transduce.core.params import BeamSearchParams as BeamSearchParams
    from transduce.core.params import SamplingParams as SamplingParams
    from transduce.errors import CapacityError as CapacityError
    from transduce.errors import CheckpointError as CheckpointError
    from transduce.errors import ConfigError as ConfigError
    from transduce.errors import EngineDeadError as EngineDeadError
    from transduce.errors import EngineError as EngineError
    from transduce.errors import MediaError as MediaError
    from transduce.errors import RequestError as RequestError
    from transduce.errors import TransduceError as TransduceError
    from transduce.frontend.outputs import CompletionOutput as CompletionOutput
    from transduce.frontend.outputs import Logprob as Logprob
    from transduce.frontend.outputs import RequestOutput as RequestOutput
    from transduce.frontend.outputs import TargetScore as TargetScore
    from transduce.llm import LLM as LLM
    from transduce.speech.activity import VadOptions as VadOptions
    from transduce.speech.fallback import Fallback as Fallback
    from transduce.speech.transcription import Transcription as Transcription

    __version__: str

_HOMES = {
    "LLM": "llm",
    "AsyncLLM": "async_engine.llm",
    "EngineConfig": "config",
    "BeamSearchParams": "core.params",
    "SamplingParams": "core.params",
    "CompletionOutput": "frontend.outputs",
    "Logprob": "frontend.outputs",
    "RequestOutput": "frontend.outputs",
    "TargetScore": "frontend.outputs",
    "Fallback": "speech.fallback",
    "VadOptions": "speech.activity",
    "Transcription": "speech.transcription",
    "CapacityError": "errors",
    "CheckpointError": "errors",
    "ConfigError": "errors",
    "EngineDeadError": "errors",
    "EngineError": "errors",
    "MediaError": "errors",
    "RequestError": "errors",
    "TransduceError": "errors",
}

calm_threads()

__all__ = [*_HOMES]  # noqa: PLE0604  # strings, which ruff cannot see


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version(__name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*sorted(_HOMES), "__version__"]
