"""Structures as grammars over a vocabulary, and what is said of those that it cannot spell."""

import json
import random
import re
from threading import Lock
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

import checkpoints
from tests.models.tokenizers import text_tokenizer
from transduce.core.guided import Guided, Kind
from transduce.core.request import RuleSpec
from transduce.errors import RequestError
from transduce.frontend.generation_config import Defaults
from transduce.frontend.guided import Guidance, Spelled, Structure, structure
from transduce.rules.grammar import Grammar
from transduce.rules.vocabulary import Vocabulary

LETTERS = Vocabulary.of([b"", *(character.encode() for character in 'abcdefghi ,0123456789[]"é')], {}, [0])
"""As T5: text, but no braces, colon or backslash."""

SYLLABLES = Vocabulary.of([b"", b"ba", b"na", b"n"], {}, [0])


def test_the_rule_names_the_vocabulary_the_grammar_and_the_prompt() -> None:
    made = structure(Guided("grammar", 'start: "a"'), LETTERS)
    assert made.rule(3) == RuleSpec("grammar", (LETTERS, 'start: "a"', 3))


FINE: list[tuple[Kind, str]] = [
    ("choice", '["a bad", "é"]'),
    ("regex", r"a\{2\}|b"),
    ("regex", ".*"),
    ("regex", r"\d+"),
    ("json", '{"type": "array", "items": {"enum": [1, "a"]}}'),
    ("json", '{"type": "string", "maxLength": 5}'),
    ("json", "{}"),
    ("grammar", 'start: "a" B // but no "{"\nB: /"{2}[^{]/'),
    ("grammar", r'start: "\"a\u00e9"'),
]


@pytest.mark.parametrize(("kind", "text"), FINE)
def test_what_can_be_spelled_is_taken(kind: Kind, text: str) -> None:
    assert structure(Guided(kind, text), LETTERS).vocabulary is LETTERS


UNSPELLED: list[tuple[Kind, str, str]] = [
    ("choice", '["a{", "b"]', r"guided_choice needs '\{', which"),
    ("regex", r"\{a\}", r"guided_regex needs '\{' '\}', which"),
    ("regex", "ab*{", r"guided_regex"),
    ("regex", "[xyz]a", "guided_regex needs 'x' 'y' 'z'"),
    ("json", '{"type": "object"}', r"guided_json needs ':' '\{' '\}'"),
    ("json", '{"type": "array", "items": {"type": ["object", "integer"]}}', r"guided_json needs ':' '\{' '\}'"),
    ("json", '{"enum": ["ax"]}', "guided_json needs 'x'"),
    ("json", '{"anyOf": [{"const": {"a": 1}}, {"type": "integer"}]}', r"guided_json needs ':' '\{' '\}'"),
    ("json", '{"type": "boolean"}', "guided_json needs 'l' 'r' 's' 't' 'u'"),
    ("grammar", 'start: "a" ("b" | "c<")', "guided_grammar needs '<'"),
    ("grammar", "start: A\nA: /x/", "guided_grammar needs 'x'"),
]


@pytest.mark.parametrize(("kind", "text", "said"), UNSPELLED)
def test_characters_that_no_token_has_are_named(kind: Kind, text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        structure(Guided(kind, text), LETTERS)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("choice", '["bana", "baa"]', "guided_choice has 'baa', which this model's tokens cannot spell"),
        ("regex", "b", "guided_regex 'b' has no answer that this model's tokens can spell"),
    ],
)
def test_texts_that_tokens_do_not_add_up_to_are_named(kind: Kind, text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        structure(Guided(kind, text), SYLLABLES)
    assert "bana" in structure(Guided("choice", '["bana", "n"]'), SYLLABLES).lark


BYTES = Vocabulary.of([*(bytes([byte]) for byte in range(256)), b""], {}, [256])


def written(kind: Kind, text: str, count: int = 40) -> set[str]:
    """Answers, drawn."""
    lark = structure(Guided(kind, text), BYTES).lark
    rule, drawn, texts = Grammar(257, torch.device("cpu"), BYTES, lark, 0), random.Random(0), set()
    for _ in range(count):
        state = rule.state()
        tokens: list[int] = []
        while 256 not in tokens:
            scores = torch.zeros(1, 257)
            rule.apply([0], scores, [state])
            tokens.append(drawn.choice(scores.isfinite().nonzero()[:, 1].tolist()))
            state = rule.advance(state, tokens[-1])
        texts.add(BYTES.text(tokens))
    return texts


def test_choices_hold_any_character() -> None:
    choices = ['a\x01\n\t"\\/', "é\u2028😀", "'x'", "\x7f", "a b", "//", "${x}", "\\u0041", "%json {}"]
    assert written("choice", json.dumps(choices), 200) == {*choices}


REGEXES = ["a/b", r"a\/b", "[/]", "é{1,3}", "(?i)abc", "a|b|cd", "^abc$", "(?P<x>a)b", "a\nb", "x\nstart: /y/"]


@pytest.mark.parametrize("pattern", [*REGEXES, r"\x41", "a{2,3}?b", "a#b", "(?x)a b", r"[^a-z\n]{3}", r"a\.b\-\d", '"'])
def test_regexes_mean_what_they_do_in_python(pattern: str) -> None:
    texts = written("regex", pattern)
    assert [text for text in texts if not re.fullmatch(pattern, text)] == []


def test_keys_and_values_hold_any_character() -> None:
    key, value = 'a"b\n', "é\u2028\\"
    schema = {"type": "object", "properties": {key: {"const": value}}, "required": [key], "additionalProperties": False}
    assert [json.loads(text) for text in written("json", json.dumps(schema), 3)] == [{key: value}] * 3


WRONG: list[tuple[Kind, str, str]] = [
    ("regex", "a\\", "a backslash with nothing to escape"),
    ("regex", "(", r"guided_regex '\(' cannot be used: invalid regex .*unclosed group$"),
    ("json", '{"type": "x"}', "cannot be used: failed to compile JSON schema: Invalid type: x$"),
    ("json", '{"type": "object", "not": {}}', "Unimplemented keys"),
    ("json", '{"enum": 5}', "guided_json .* cannot be used"),
    ("grammar", "start: foo", r'cannot be used: at 1\(8\): unknown name: "foo"$'),
]


@pytest.mark.parametrize(("kind", "text", "said"), WRONG)
def test_what_is_wrong_is_said(kind: Kind, text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        structure(Guided(kind, text), LETTERS)


def guidance(tokenizer: Any, **fields: Any) -> Guidance:
    return Guidance(tokenizer, 9, Defaults(**{"eos": (1,)} | fields), Lock())


def test_a_vocabulary_is_read_once() -> None:
    made = guidance(text_tokenizer())
    first, second = (made.structure(Guided("choice", text)) for text in ('["the cat"]', '["sat"]'))
    assert first.vocabulary is second.vocabulary


def test_choices_are_spelled_as_the_tokenizer_does() -> None:
    tokenizer = text_tokenizer()
    made = guidance(tokenizer).structure(Guided("choice", '["the cat", "sat"]'))
    assert isinstance(made, Spelled)
    ids = [tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in ("the cat", "sat")]
    assert made.rule(3) == RuleSpec("choices", (tuple(ids), (1,), 3))


def test_choices_that_the_tokenizer_changes_are_spelled_in_any_tokens() -> None:
    """T5 makes one space of two."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoints.path("flan-t5-small-titler"))
    made = Guidance(tokenizer, len(tokenizer), Defaults(eos=(1,)), Lock())
    assert isinstance(made.structure(Guided("choice", '["sat", "the cat"]')), Spelled)
    assert isinstance(made.structure(Guided("choice", '["sat", "the  cat"]')), Structure)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (guidance(None), "no tokenizer was loaded"),
        (guidance(text_tokenizer(), eos=()), "no EOS token"),
    ],
)
def test_checkpoints_that_cannot_are_told(made: Guidance, said: str) -> None:
    with pytest.raises(RequestError, match=f"guided_regex: .*{said}"):
        made.structure(Guided("regex", "a"))


def test_an_answer_that_is_made_to_begin_with_text_has_no_structure() -> None:
    with pytest.raises(RequestError, match=r"guided_regex: .* begin with token 3, .* forced_bos_token_id=-1 does"):
        guidance(text_tokenizer()).structure(Guided("regex", "a"), forced_bos=3)
