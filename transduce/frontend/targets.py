"""Scoring given answers: which requests it takes, and what their outputs say.

Owns how sources and targets pair up. Knows no engine: whoever has one runs the Work.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from transduce.core.params import SamplingParams
from transduce.errors import ConfigError, RequestError
from transduce.frontend.dialogue import Work
from transduce.frontend.frontend import Frontend
from transduce.frontend.outputs import RequestOutput, TargetScore

T = TypeVar("T")
S = TypeVar("S")


def paired(sources: Sequence[S], targets: Sequence[T]) -> list[tuple[S, T]]:
    """Each source with its target; where there is one source or one target, it goes with all of the others.

    Raises RequestError for an empty list, and for two of different lengths.
    """
    for name, given in (("sources", sources), ("targets", targets)):
        if not given:
            raise RequestError(f"an empty list of {name}: give at least one")
    if 1 < len(sources) != len(targets) > 1:
        raise RequestError(
            f"{len(sources)} sources and {len(targets)} targets; give as many of both, or one source, or one target"
        )
    many = max(len(sources), len(targets))
    return [(sources[at % len(sources)], targets[at % len(targets)]) for at in range(many)]


def check(frontend: Frontend) -> None:
    """Raise ConfigError for a model whose answers are not scored."""
    if media := frontend.processor.media:
        raise ConfigError(f"{frontend.config.model!r} takes {media}, and score_target takes text; use generate")


def prompt(source: object, target: object) -> Mapping[str, Any]:
    """The prompt that has the target scored, for `params`. source: a prompt in any form without a target."""
    if isinstance(source, Mapping) and "encoder_prompt" in source and "target" not in source:
        return {**source, "target": target}
    return {"encoder_prompt": source, "target": target}


def params(truncate_prompt_tokens: int | None = None) -> SamplingParams:
    """Ask for the log-probabilities of what is there, and for no token more."""
    return SamplingParams(
        temperature=0.0, max_tokens=0, prompt_logprobs=0, truncate_prompt_tokens=truncate_prompt_tokens
    )


def work(source: object, target: object, params: SamplingParams) -> Work:
    """Asks for the score."""
    return Work(prompt(source, target), params)


def score(output: RequestOutput) -> TargetScore:
    """What the output of such a request says."""
    tables = output.prompt_logprobs or ()
    scored = [(id_, table[id_].logprob) for id_, table in zip(output.prompt_token_ids, tables, strict=False) if table]
    return TargetScore([id_ for id_, _ in scored], [logprob for _, logprob in scored], output)
