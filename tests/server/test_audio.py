"""/v1/audio/transcriptions and /translations by the official client: what the offline API hears, in OpenAI's forms."""

import json
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError

from tests.server.asgi import call
from tests.server.fakes import FakeLLM, app
from tests.server.live import MODEL, Live, tone
from transduce import SamplingParams, Transcription

PATH = "/v1/audio/transcriptions"
DEPRECATED = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
"""The client says so of OpenAI's models."""

CLIPS = [tone(200), tone(900, 0.4), tone(3000)]


def heard(served: Live, clip: bytes, language: str | None = None, **asked: Any) -> Transcription:
    return served.offline.transcribe(clip, language, **asked)


def file(clip: bytes) -> tuple[str, bytes]:
    return "clip.wav", clip


def test_what_is_said(speech: Live) -> None:
    texts = []
    for clip in CLIPS:
        made = speech.openai.audio.transcriptions.create(model=MODEL, file=file(clip))
        expected = heard(speech, clip)
        assert made.text == expected.text
        texts.append(made.text)
    assert len(set(texts)) > 1


def test_usage_says_what_was_heard_and_what_was_written(speech: Live) -> None:
    made = speech.openai.audio.transcriptions.create(model=MODEL, file=file(CLIPS[0]), language="de")
    output = heard(speech, CLIPS[0], "de").output
    assert made.to_dict()["usage"] == {
        "type": "tokens",
        "input_tokens": 50 + len(output.prompt_token_ids),
        "input_token_details": {"audio_tokens": 50, "text_tokens": len(output.prompt_token_ids)},
        "output_tokens": len(output.outputs[0].token_ids),
        "total_tokens": 50 + len(output.prompt_token_ids) + len(output.outputs[0].token_ids),
    }


@pytest.mark.parametrize("language", ["de", "German"])
def test_language_and_prompt_reach_the_model(language: str, speech: Live) -> None:
    made = speech.openai.audio.transcriptions.create(model=MODEL, file=file(CLIPS[0]), language=language, prompt="ab")
    assert made.text == heard(speech, CLIPS[0], "de", prompt="ab").text
    assert made.text != heard(speech, CLIPS[0], "fr").text


@DEPRECATED
def test_translation(speech: Live) -> None:
    made = speech.openai.audio.translations.create(model=MODEL, file=file(CLIPS[0]), extra_body={"language": "fr"})
    assert made.text == heard(speech, CLIPS[0], "fr", task="translate").text


@pytest.mark.parametrize(
    "asked",
    [
        {"temperature": 0.8, "seed": 3},
        {"temperature": 0.8, "top_k": 4, "top_p": 0.9, "min_p": 0.01, "seed": 5},
        {"repetition_penalty": 1.8},
        {"presence_penalty": 1.0, "frequency_penalty": 0.5},
    ],
    ids="-".join,
)
def test_parameters_are_the_offline_ones(asked: dict[str, Any], speech: Live) -> None:
    made = speech.openai.audio.transcriptions.create(model=MODEL, file=file(CLIPS[0]), language="fr", extra_body=asked)
    assert made.text == heard(speech, CLIPS[0], "fr", sampling_params=SamplingParams(**asked)).text


def test_as_text(speech: Live) -> None:
    made = speech.http.post(PATH, data={"response_format": "text", "language": "fr"}, files={"file": CLIPS[1]})
    assert made.headers["content-type"] == "text/plain; charset=utf-8"
    assert made.text == heard(speech, CLIPS[1], "fr").text + "\n"


def test_a_stream_joined_is_the_whole(speech: Live) -> None:
    for clip in CLIPS:
        asked: Any = {"file": file(clip), "language": "en", "extra_body": {"repetition_penalty": 1.8}}
        whole = speech.openai.audio.transcriptions.create(model=MODEL, **asked)
        events = [*speech.openai.audio.transcriptions.create(model=MODEL, **asked, stream=True)]
        *deltas, done = events
        assert {event.type for event in deltas} == {"transcript.text.delta"}
        joined = "".join(event.delta for event in deltas if event.type == "transcript.text.delta")
        assert done.type == "transcript.text.done"
        assert joined == done.text == whole.text
        assert done.to_dict()["usage"] == whole.to_dict()["usage"]
        assert len(deltas) > 1


def test_the_form_of_a_stream(speech: Live) -> None:
    made = speech.http.post(PATH, data={"stream": "true", "language": "en"}, files={"file": CLIPS[0]})
    assert made.headers["content-type"].startswith("text/event-stream")
    *events, last, rest = made.text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    assert all(json.loads(event.removeprefix("data: "))["type"].startswith("transcript.text.") for event in events)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("response_format", "srt"),
        ("response_format", "vtt"),
        ("response_format", "verbose_json"),
        ("timestamp_granularities[]", "word"),
        ("include[]", "logprobs"),
        ("chunking_strategy", "auto"),
        ("temperature", "hot"),
        ("temperature", "nan"),
        ("stream", "perhaps"),
        ("no_such_field", "1"),
    ],
)
def test_a_field_that_cannot_be_followed_is_named(field: str, value: str, speech: Live) -> None:
    refused = speech.http.post(PATH, data={field: value}, files={"file": CLIPS[0]})
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["param"] == field
    assert field in refused.json()["error"]["message"]


def test_empty_fields_are_left_out(speech: Live) -> None:
    fields = {"language": "", "prompt": "", "temperature": "", "response_format": "", "user": "me"}
    made = speech.http.post(PATH, data=fields, files={"file": CLIPS[0]})
    assert made.json()["text"] == heard(speech, CLIPS[0]).text


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"json": {}},
        {"data": {"file": "x"}},
        {"files": {"other": b"x"}},
        {"data": {"file": "x"}, "files": {"other": b"x"}},
        {"content": b"x", "headers": {"content-type": "multipart/form-data"}},
        {"content": b"x", "headers": {"content-type": "multipart/form-data; boundary=b"}},
        {"content": b"--b--\r\n", "headers": {"content-type": "multipart/form-data; boundary=b"}},
    ],
    ids=range(8),
)
def test_a_form_without_a_file_is_refused(content: dict[str, Any], speech: Live) -> None:
    refused = speech.http.post(PATH, **content)
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["message"]


@pytest.mark.parametrize(("clip", "said"), [(b"", "empty"), (b"noise", "cannot read audio")])
def test_bad_clips_are_refused(clip: bytes, said: str, speech: Live) -> None:
    for asked in ({}, {"stream": True}):
        with pytest.raises(BadRequestError, match=said) as refused:
            speech.openai.audio.transcriptions.create(model=MODEL, file=file(clip), extra_body=asked)
        assert refused.value.param == "file"


def test_another_model_or_language_is_not_here(speech: Live) -> None:
    with pytest.raises(NotFoundError, match="no model 'whisper-1'"):
        speech.openai.audio.transcriptions.create(model="whisper-1", file=file(CLIPS[0]))
    with pytest.raises(BadRequestError, match="language 'xx' is unknown") as refused:
        speech.openai.audio.transcriptions.create(model=MODEL, file=file(CLIPS[0]), language="xx")
    assert refused.value.param == "language"


@DEPRECATED
def test_a_model_of_text_says_what_it_takes(text: Live) -> None:
    for audio in (text.openai.audio.transcriptions, text.openai.audio.translations):
        with pytest.raises(NotFoundError, match="takes text, not audio"):
            audio.create(model=MODEL, file=file(CLIPS[0]))


def test_a_model_of_one_language_does_not_translate() -> None:
    refused = call(app(FakeLLM("audio", "en")), "POST", "/v1/audio/translations")
    assert refused.status == 404
    assert "only knows 'en'" in refused.json["error"]["message"]
