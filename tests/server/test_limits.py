"""Bounds on what is sent, before much memory or time goes to it: bodies, files, the length of audio, and lists."""

from typing import Any

import pytest
from pydantic import ValidationError

from tests.server.asgi import Client, call
from tests.server.fakes import MODEL, FakeLLM, app
from tests.server.live import Live, tone
from transduce.core.guided import MOST_CHARACTERS
from transduce.server.protocol.base import MOST_FIELDS, Body
from transduce.server.protocol.chat import MOST_TURNS, ChatRequest
from transduce.server.protocol.completions import CompletionRequest
from transduce.server.protocol.sampling import MOST_ALLOWED, MOST_CHOICES, MOST_SPELLED, MOST_WORDS
from transduce.server.protocol.texts import MOST_PROMPTS
from transduce.server.protocol.tokens import DetokenizeRequest

TRANSCRIPTIONS = "/v1/audio/transcriptions"


def refused(answer: Client, words: str) -> None:
    assert answer.status == 413
    assert answer.json["error"]["type"] == "invalid_request_error"
    assert answer.json["error"]["code"] == "too_large"
    assert words in answer.json["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/nowhere"])
def test_bodies_are_bounded_on_every_route(path: str) -> None:
    llm = FakeLLM()
    refused(call(app(llm, max_body_mb=0.001), "POST", path, {"prompt": "x" * 1_000}), "larger than 1,000 bytes")
    assert not llm.asked


def test_a_body_of_the_largest_size_is_served() -> None:
    assert call(app(max_body_mb=0.001), "POST", "/v1/completions", {"model": MODEL, "prompt": "x" * 900}).status == 200


@pytest.mark.parametrize(("field", "most"), [("prompt", MOST_PROMPTS), ("stop", MOST_WORDS), ("bad_words", MOST_WORDS)])
def test_so_many_and_no_more(field: str, most: int) -> None:
    llm = FakeLLM()
    answer = call(app(llm), "POST", "/v1/completions", {"prompt": "x", field: ["a"] * (most + 1)})
    assert (answer.status, answer.json["error"]["param"]) == (400, field)
    assert f"at most {most:,}" in answer.json["error"]["message"]
    assert not llm.asked
    assert call(app(llm), "POST", "/v1/completions", {"prompt": "x", field: ["a"] * most}).status == 200


@pytest.mark.parametrize(
    ("field", "wrong", "said"),
    [
        ("logit_bias", {str(number): "x" for number in range(MOST_WORDS + 1)}, f"at most {MOST_WORDS:,}"),
        ("stop_token_ids", ["x"] * (MOST_WORDS + 1), f"at most {MOST_WORDS:,}"),
        ("bad_words", [[1] * (MOST_SPELLED + 1)], f"at most {MOST_SPELLED}"),
        ("allowed_token_ids", ["x"] * (MOST_ALLOWED + 1), f"at most {MOST_ALLOWED:,}"),
        ("suppress_tokens", ["x"] * (MOST_ALLOWED + 1), f"at most {MOST_ALLOWED:,}"),
        ("forced_eos_token_id", ["x"] * (MOST_WORDS + 1), f"at most {MOST_WORDS:,}"),
        ("guided_choice", [1] * (MOST_CHOICES + 1), f"at most {MOST_CHOICES:,}"),
        ("guided_json", {"a": [{}] * MOST_CHARACTERS}, f"at most {MOST_CHARACTERS:,}"),
        ("guided_json", " " * MOST_CHARACTERS * 11, f"at most {MOST_CHARACTERS:,}"),
        ("response_format", dict.fromkeys(map(str, range(MOST_FIELDS + 1)), 1), f"at most {MOST_FIELDS}"),
        ("messages", [1] * (MOST_TURNS + 1), f"at most {MOST_TURNS:,}"),
        ("messages", [{"content": [1] * MOST_TURNS}], f"at most {MOST_TURNS:,}"),
    ],
)
def test_too_many_are_counted_and_not_looked_at(field: str, wrong: object, said: str) -> None:
    """Each entry has a fault of its own, to find which takes its time, in which nobody else is served."""
    source: Any = {"prompt": "x"} if field != "messages" else {}
    path = "/v1/completions" if field != "messages" else "/v1/chat/completions"
    answer = call(app(), "POST", path, source | {field: wrong})
    assert (answer.status, answer.json["error"]["param"]) == (400, field)
    assert said in answer.json["error"]["message"]
    assert len(answer.body) < 500


def test_so_many_unknown_fields_are_not_looked_at() -> None:
    answer = call(app(), "POST", "/v1/completions", dict.fromkeys(map(str, range(MOST_FIELDS + 1)), 1))
    assert f"at most {MOST_FIELDS}" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("model", "field"),
    [(CompletionRequest, "stop_token_ids"), (CompletionRequest, "allowed_token_ids"), (ChatRequest, "messages"),
     (CompletionRequest, "guided_choice"), (DetokenizeRequest, "tokens")],
)  # fmt: skip
def test_of_many_faults_one_is_found(model: type[Body], field: str) -> None:
    """Each takes its time, in which nobody else is served."""
    with pytest.raises(ValidationError) as found:
        model.model_validate({"prompt": "x", "messages": [], field: [None] * 9})
    assert sum(fault["loc"][0] == field for fault in found.value.errors()) == 1


def transcribe(clip: bytes, **options: Any) -> tuple[Client, FakeLLM]:
    llm = FakeLLM("audio")
    head = b'--x\r\ncontent-disposition: form-data; name="file"; filename="clip.wav"\r\n\r\n'
    model = b'\r\n--x\r\ncontent-disposition: form-data; name="model"\r\n\r\n' + MODEL.encode() + b"\r\n--x--\r\n"
    headers = {"content-type": "multipart/form-data; boundary=x"}
    return call(app(llm, **options), "POST", TRANSCRIPTIONS, headers=headers, chunks=[head, clip, model]), llm


def test_a_clip() -> None:
    answer, _ = transcribe(tone(440, 0.5), max_body_mb=0.001)  # which bounds what is no form
    assert (answer.status, answer.json["text"]) == (200, "ab")


def test_files_are_bounded() -> None:
    answer, llm = transcribe(bytes(1_100_000), max_file_mb=0.01)
    refused(answer, "--max-file-mb")
    assert not llm.asked


def test_the_length_of_audio_is_bounded() -> None:
    answer, llm = transcribe(tone(440, 2.5), max_audio_seconds=2)
    refused(answer, "the audio is 2.5 s long and this server takes 2 s")
    assert not llm.asked
    assert transcribe(tone(440, 2), max_audio_seconds=2)[0].status == 200


def test_what_is_no_audio_is_still_a_400() -> None:
    answer, _ = transcribe(b"no audio")
    assert (answer.status, answer.json["error"]["code"]) == (400, "unreadable_media")


def test_chunked_bodies_are_bounded_over_http(text: Live) -> None:
    """Without a stated length, and on a connection that goes on to be used."""
    chunks = (b"x" * 100_000 for _ in range(100))
    answer = text.http.post("/v1/completions", content=chunks, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert text.http.post("/v1/completions", json={"prompt": "hello"}).status_code == 200
