"""Which structure parameters ask for, and what is wrong with it by itself."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from transduce import BeamSearchParams, RequestError, SamplingParams
from transduce.core.guided import MOST_CHARACTERS, Guided


class Named(BaseModel):
    name: str


ASKED: list[tuple[dict[str, Any], Guided]] = [
    ({"guided_regex": "a+"}, Guided("regex", "a+")),
    ({"guided_grammar": 'start: "a"'}, Guided("grammar", 'start: "a"')),
    ({"guided_choice": ("a", "é")}, Guided("choice", json.dumps(["a", "é"], ensure_ascii=False))),
    ({"guided_json": {"type": "null"}}, Guided("json", '{"type": "null"}')),
    ({"guided_json": '{"type":"null"}'}, Guided("json", '{"type": "null"}')),
    ({"guided_json": Named}, Guided("json", json.dumps(Named.model_json_schema()))),
]


@pytest.mark.parametrize(
    ("fields", "expected"), ASKED, ids=lambda value: next(iter(value), "") if isinstance(value, dict) else ""
)
def test_each_way_to_name_a_structure(fields: dict[str, Any], expected: Guided) -> None:
    assert SamplingParams(**fields).guided == expected
    assert BeamSearchParams(**fields).guided == expected


def test_none_is_the_default() -> None:
    assert SamplingParams().guided is None


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"guided_regex": ""}, "guided_regex='': give a text that is not empty"),
    ({"guided_regex": 5}, "guided_regex=5"),
    ({"guided_grammar": ["x"]}, "guided_grammar="),
    ({"guided_choice": []}, "guided_choice=.*at least one"),
    ({"guided_choice": "ab"}, "guided_choice='ab': give a list of texts"),
    ({"guided_choice": ["a", ""]}, "none empty"),
    ({"guided_choice": ["a", 5]}, "guided_choice="),
    ({"guided_json": "{"}, "guided_json is no JSON"),
    ({"guided_json": {"enum": [{1, 2}]}}, "guided_json is no JSON"),
    ({"guided_json": int}, "guided_json is no JSON"),
    ({"guided_json": "[" * 30_000}, "guided_json is no JSON"),
    ({"guided_json": "[]"}, "give a JSON schema, an object"),
    ({"guided_json": True}, "give a JSON schema, an object"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_regex and guided_choice"),
    ({"guided_regex": "a" * (MOST_CHARACTERS + 1)}, f"guided_regex has {MOST_CHARACTERS + 1} characters"),
    ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos=True"),
    ({"guided_regex": "a", "forced_eos_token_id": 2}, r"forced_eos_token_id=\[2\]"),
    ({"guided_regex": "a", "skip_special_tokens": False}, "skip_special_tokens=False"),
]


@pytest.mark.parametrize(("fields", "said"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_no_structure_is_refused(fields: dict[str, Any], said: str) -> None:
    for kind in (SamplingParams, BeamSearchParams):
        with pytest.raises(RequestError, match=said):
            kind(**fields)
