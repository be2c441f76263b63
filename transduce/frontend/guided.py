"""From the structure that a user names to the rule that holds an answer to it.

Owns how choices are spelled, how each kind is written as a Lark grammar, and the refusal of those that nobody can
follow, or that the tokens of this tokenizer cannot. Knows no request.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from llguidance import regex_to_lark

from transduce.core.checks import shown
from transduce.core.guided import Guided, Kind
from transduce.core.request import RuleSpec
from transduce.errors import RequestError
from transduce.frontend.generation_config import Defaults
from transduce.frontend.spelling import vocabulary
from transduce.rules.choices import Choices
from transduce.rules.grammar import Grammar
from transduce.rules.vocabulary import Vocabulary

JSON_OPTIONS = {"whitespace_pattern": " ?"}
"""One space at most where JSON takes any: a model could go on with spaces, and never end."""

Characters = frozenset[str] | None
"""Those that a vocabulary has; None: all."""


@dataclass(frozen=True, slots=True)
class Structure:
    """A structure that the vocabulary can spell, as a Lark grammar."""

    vocabulary: Vocabulary
    lark: str

    def rule(self, prompt: int) -> RuleSpec:
        """What holds an answer to it, after so many decoder prompt tokens."""
        return RuleSpec(Grammar.name, (self.vocabulary, self.lark, prompt))


@dataclass(frozen=True, slots=True)
class Spelled:
    """Choices as the tokenizer spells them: in any other tokens that add up to them, a model would not be itself."""

    vocabulary: Vocabulary
    choices: tuple[tuple[int, ...], ...]

    def rule(self, prompt: int) -> RuleSpec:
        """As Structure's."""
        return RuleSpec(Choices.name, (self.choices, self.vocabulary.eos, prompt))


class Guidance:
    """Structures for one checkpoint, in any thread: what its tokens spell is read when it is first needed.

    size: width of the logits. lock: held while the tokenizer works.
    """

    def __init__(self, tokenizer: Any, size: int, defaults: Defaults, lock: Lock) -> None:
        self._tokenizer = tokenizer
        self._size = size
        self._defaults = defaults
        self._lock = lock
        self._vocabulary: Vocabulary | None = None

    def structure(self, guided: Guided, forced_bos: int | None = None) -> Structure | Spelled:
        """As `structure` has it, but choices as the tokenizer spells them, where it can. Raises RequestError.

        forced_bos: the token with which answers are made to begin.
        """
        known = self._known(f"guided_{guided.kind}", forced_bos)
        spelled = self._spelled(json.loads(guided.text), known) if guided.kind == "choice" else None
        return spelled or structure(guided, known)

    def _spelled(self, texts: Sequence[str], known: Vocabulary) -> Spelled | None:
        """None where the tokenizer changes a text, or lacks what tokens of the model have."""
        with self._lock:
            choices = tuple(tuple(self._ids(text)) for text in texts)
        exact = all(
            max(ids, default=0) < self._size and known.text(ids) == text
            for ids, text in zip(choices, texts, strict=True)
        )
        return Spelled(known, choices) if exact else None

    def _ids(self, text: str) -> Sequence[int]:
        ids: Sequence[int] = self._tokenizer(text_target=text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def _known(self, name: str, forced_bos: int | None) -> Vocabulary:
        if self._tokenizer is None:
            raise RequestError(f"{name}: no tokenizer was loaded")
        if not self._defaults.eos:
            raise RequestError(f"{name}: the checkpoint has no EOS token, with which an answer could end")
        with self._lock:
            self._vocabulary = self._vocabulary or vocabulary(self._tokenizer, self._size, self._defaults.eos)
        if forced_bos is not None and self._vocabulary.tokens[forced_bos]:
            raise RequestError(
                f"{name}: answers are made to begin with token {forced_bos}, which is text; "
                "forced_bos_token_id=-1 does without it"
            )
        return self._vocabulary


def structure(guided: Guided, vocabulary: Vocabulary) -> Structure:
    """The structure, compiled once for a check. Raises RequestError for one that cannot be followed."""
    name = f"guided_{guided.kind}"
    lark = _LARK[guided.kind](guided.text, vocabulary.characters)
    try:
        begun = _beginnings(vocabulary, lark)
    except RequestError as error:
        reason = str(error) if guided.kind == "grammar" else _PLACE.sub("", str(error))
        raise RequestError(f"{name} {shown(guided.text)} cannot be used: {reason}") from None
    if vocabulary.characters is not None:
        _check_spelling(name, guided, vocabulary, vocabulary.characters, not begun)
    return Structure(vocabulary, lark)


def _beginnings(vocabulary: Vocabulary, lark: str) -> list[int]:
    """Tokens that may begin an answer."""
    size = len(vocabulary.tokens)
    rule = Grammar(size, torch.device("cpu"), vocabulary, lark, prompt=0)
    scores = torch.zeros(1, size)
    rule.apply([0], scores, [rule.state()])
    found: list[int] = scores[0].isfinite().nonzero().flatten().tolist()
    return found


def _choice(text: str, characters: Characters) -> str:
    return "start: " + " | ".join(json.dumps(each) for each in json.loads(text))


def _json(text: str, characters: Characters) -> str:
    return f"start: %json {json.dumps({**json.loads(text), 'x-guidance': JSON_OPTIONS})}"


def _regex(text: str, characters: Characters) -> str:
    """Where characters are missing, only what is free of them: no answer begins what it could not end."""
    if not re.fullmatch(r"(\\[^\n]|[^\\])*", text):
        raise RequestError(f"guided_regex {shown(text)} has a backslash with nothing to escape; double it")
    pattern = f"/{regex_to_lark(text, 'd')}/"
    if characters is None:
        return f"start: {pattern}"
    spelled = "".join(f"\\x{{{ord(character):x}}}" for character in sorted(characters))
    return f"start: ANSWER\nANSWER: {pattern} & /[{spelled}]*/"


def _grammar(text: str, characters: Characters) -> str:
    return text


_LARK: Mapping[Kind, Callable[[str, Characters], str]] = {
    "json": _json,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
}


def _check_spelling(name: str, guided: Guided, vocabulary: Vocabulary, spelled: frozenset[str], dead: bool) -> None:
    """Raise for what a structure needs and the vocabulary lacks. dead: no token may begin an answer."""
    if missing := _needed(guided, dead) - spelled:
        listed = " ".join(sorted(map(repr, missing)))
        raise RequestError(f"{name} needs {listed}, which no token of this model has")
    for choice in json.loads(guided.text) if guided.kind == "choice" and not vocabulary.closed else ():
        if not vocabulary.spells(choice):
            raise RequestError(f"{name} has {shown(choice)}, which this model's tokens cannot spell")
    if dead:
        raise RequestError(f"{name} {shown(guided.text)} has no answer that this model's tokens can spell")


def _needed(guided: Guided, dead: bool) -> set[str]:
    """Characters that a structure names, and that begin its answers. A regex may name some and do without."""
    if guided.kind == "regex" and not dead:
        return set()
    first = _beginnings(_BYTES, _LARK[guided.kind](guided.text, None)) if dead else []
    return {*_NAMED[guided.kind](guided.text), *(chr(byte) for byte in first if byte < 0x80)}


def _of_regex(text: str) -> str:
    """Without what has a meaning of its own."""
    return re.sub(r"\\([^\w\s])|\\.|[\^$.|?*+()\[\]{}]", lambda found: found[1] or "", text)


def _of_grammar(text: str) -> Iterator[str]:
    """Of its quoted texts, but those that stand in a regex or a comment; escapes are left out."""
    for found in re.finditer(r'"((?:\\.|[^"\\\n])*)"|/(?:\\.|[^/\\\n])+/|//[^\n]*', text):
        yield from re.sub(r"\\.", "", found[1] or "")


def _of_schema(node: Any) -> Iterator[str]:
    """What values of the types that a schema names are written with, and the texts that it fixes."""
    if isinstance(node, list):
        for each in node:
            yield from _of_schema(each)
    if isinstance(node, dict):
        types, fixed, names = node.get("type"), node.get("enum"), node.get("properties")
        for name in types if isinstance(types, list) else [types]:
            yield from _WRITTEN.get(str(name), "")
        values = [*(fixed if isinstance(fixed, list) else ()), *(names if isinstance(names, dict) else ())]
        for value in [*values, *([node["const"]] if "const" in node else [])]:
            yield from json.dumps(value, ensure_ascii=False)
        for each in node.values():
            yield from _of_schema(each)


_NAMED: Mapping[Kind, Callable[[str], Iterable[str]]] = {
    "json": lambda text: _of_schema(json.loads(text)),
    "regex": _of_regex,
    "choice": lambda text: "".join(json.loads(text)),
    "grammar": _of_grammar,
}

_PLACE = re.compile(r"^at \d+\(\d+\): ")
"""Line and column, of what is a grammar only here."""

_WRITTEN = {"object": '{}":', "array": "[]", "string": '"', "boolean": "truefalse", "null": "null"}
_BYTES = Vocabulary.of([*(bytes([byte]) for byte in range(256)), b""], {}, [256])
