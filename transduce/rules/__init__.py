"""Logits rules by name: finding the class a RuleSpec means and making the rule.

Every concrete LogitsRule in this folder is found by its `name`; a family's own rules are handed in. Knows no
request and no sequence: who obeys which rule, and its state, is the runner's.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules
from typing import Any

import torch

from transduce.core.request import RuleSpec
from transduce.errors import RequestError
from transduce.rules.base import LogitsRule

Rule = LogitsRule[Any]


def build(spec: RuleSpec, vocab_size: int, device: torch.device, extra: Iterable[type[Rule]] = ()) -> Rule:
    """The rule that `spec` names, for scores [rows, vocab_size] on `device`; `extra`: a family's own rules.

    Raises RequestError for an unknown name and for arguments that cannot work.
    """
    known = {**_general(), **{rule.name: rule for rule in extra}}
    if spec.name not in known:
        raise RequestError(f"there is no logits rule {spec.name!r}; the rules are {', '.join(sorted(known))}")
    return known[spec.name](vocab_size, device, *spec.args)


@cache
def _general() -> Mapping[str, type[Rule]]:
    return {rule.name: rule for rule in _concrete_rules()}


def _concrete_rules() -> Iterator[type[Rule]]:
    for module in iter_modules(__path__, f"{__name__}."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, LogitsRule) and not isabstract(value):
                yield value
