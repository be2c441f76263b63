"""/tokenize and /detokenize: the checkpoint's own tokenizer, in vLLM's form."""

from typing import Any

import pytest

from tests.server.asgi import call
from tests.server.fakes import FakeLLM, app
from tests.server.live import MODEL, Live


def test_tokens_are_the_tokenizer_s(text: Live) -> None:
    tokenizer = text.offline.get_tokenizer()
    ids = tokenizer("a cab")["input_ids"]
    made = text.http.post("/tokenize", json={"model": MODEL, "prompt": "a cab"}).json()
    assert made == {"count": len(ids), "max_model_len": 64, "tokens": ids, "token_strs": None}
    bare = {"prompt": "a cab", "add_special_tokens": False, "return_token_strs": True}
    made = text.http.post("/tokenize", json=bare).json()
    assert made["tokens"] == ids[:-1]
    assert made["token_strs"] == tokenizer.convert_ids_to_tokens(ids[:-1])


def test_text_comes_back(text: Live) -> None:
    ids = text.http.post("/tokenize", json={"prompt": "a cab"}).json()["tokens"]
    assert text.http.post("/detokenize", json={"tokens": ids}).json() == {"prompt": "a cab</s>"}
    assert text.http.post("/detokenize", json={"tokens": []}).json() == {"prompt": ""}


def test_empty_text_has_no_tokens_of_its_own(text: Live) -> None:
    made = text.http.post("/tokenize", json={"prompt": "", "add_special_tokens": False}).json()
    assert (made["count"], made["tokens"]) == (0, [])


def test_a_model_of_speech_has_a_tokenizer_too(speech: Live) -> None:
    ids = speech.http.post("/tokenize", json={"prompt": "é", "add_special_tokens": False}).json()["tokens"]
    assert speech.http.post("/detokenize", json={"tokens": ids}).json() == {"prompt": "é"}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/detokenize", {"tokens": [50]}, 400),
        ("/detokenize", {"tokens": [-1]}, 400),
        ("/detokenize", {"tokens": [10**300]}, 400),
        ("/detokenize", {"tokens": ["x"]}, 400),
        ("/detokenize", {}, 400),
        ("/tokenize", {}, 400),
        ("/tokenize", {"prompt": ["x"]}, 400),
        ("/tokenize", {"prompt": "x", "messages": []}, 400),
        ("/tokenize", {"prompt": "x", "model": "gpt"}, 404),
    ],
)
def test_what_is_refused(path: str, body: dict[str, Any], status: int, text: Live) -> None:
    response = text.http.post(path, json=body)
    assert response.status_code == status, response.text
    assert response.json()["error"]["message"]


def test_lone_surrogates_are_refused(text: Live) -> None:
    response = text.http.post(
        "/tokenize", content=b'{"prompt": "a\\ud800"}', headers={"content-type": "application/json"}
    )
    assert response.status_code == 400
    assert "lone surrogate" in response.json()["error"]["message"]


def test_without_a_tokenizer_there_are_no_such_routes() -> None:
    class Bare(FakeLLM):
        def get_tokenizer(self) -> None:
            return None

    for path, body in (("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [1]})):
        refused = call(app(Bare()), "POST", path, body)
        assert refused.status == 404
        assert "--skip-tokenizer-init" in refused.json["error"]["message"]
