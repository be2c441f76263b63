"""/v1/audio/transcriptions and /translations by the official client: what the offline API hears, in OpenAI's forms."""

import json
from contextlib import nullcontext
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from openai import BadRequestError, NotFoundError

from tests.server.asgi import call
from tests.server.fakes import FakeLLM, app
from tests.server.live import MODEL, Live, tone
from transduce import Fallback, SamplingParams, Transcription, VadOptions
from transduce.speech import subtitles
from transduce.speech.segments import Segment

PATH = "/v1/audio/transcriptions"
DEPRECATED = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
"""The client says so of OpenAI's models."""

CLIPS = [tone(200), tone(900, 0.4), tone(3000)]
LONG = tone(300, 2.3)
DRAWN: dict[str, Any] = {"temperature": 0.8, "seed": 1}
"""More than two windows, each drawn once."""


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


@pytest.mark.parametrize("timed", [False, True])
def test_long_audio_and_clips_in_all_forms(timed: bool, speech: Live) -> None:
    """Of long audio the times are known anyway."""
    clip, params = CLIPS[0] if timed else LONG, SamplingParams(**DRAWN, max_tokens=12)
    said = heard(speech, clip, timestamps=timed, sampling_params=params)
    asked: Any = {"model": MODEL, "file": file(clip), "extra_body": {**DRAWN, "max_completion_tokens": 12}}
    create = speech.openai.audio.transcriptions.create
    assert create(**asked, response_format="srt") == subtitles.srt(said.segments)
    assert create(**asked, response_format="vtt") == subtitles.vtt(said.segments)
    assert create(**asked, response_format="verbose_json").to_dict() == {
        "task": "transcribe",
        "language": said.language,
        "language_probability": pytest.approx(said.language_probability, rel=1e-3),
        "duration": said.duration,
        "text": subtitles.text(said.segments),
        "segments": [shown(segment) for segment in said.segments],
        "usage": {"type": "duration", "seconds": said.duration},
    }
    if not timed:
        assert len({segment.seek for segment in said.segments}) > 1
        made = create(**asked)
        assert made.text == said.text
        rows = made.to_dict()["usage"]["input_token_details"]["audio_tokens"]
        assert rows == said.output.encoder_rows > 50 * 2


def shown(segment: Segment) -> dict[str, Any]:
    listed = {name: value for name, value in asdict(segment).items() if name not in ("words", "channel")}
    near = {name: pytest.approx(listed[name], rel=1e-3) for name in ("avg_logprob", "no_speech_prob")}
    return {**listed, **near, "tokens": list(segment.tokens)}


def test_subtitles_have_their_media_types_and_lines(speech: Live) -> None:
    asked: dict[str, Any] = {**DRAWN, "language": "fr", "max_completion_tokens": 40}
    params = SamplingParams(**DRAWN, max_tokens=40)
    said = heard(speech, CLIPS[0], "fr", timestamps=True, sampling_params=params)
    layout = subtitles.Layout(max_line_width=5, max_line_count=2)
    for form, media, write in (("srt", "application/x-subrip", subtitles.srt), ("vtt", "text/vtt", subtitles.vtt)):
        data = {**asked, "response_format": form, "max_line_width": 5, "max_line_count": 2}
        made = speech.http.post(PATH, data=data, files={"file": CLIPS[0]})
        assert made.headers["content-type"].split(";")[0] == media
        assert made.content.decode() == write(said.segments, layout) != write(said.segments)


def test_a_clip_that_cannot_be_believed_is_decoded_again(speech: Live) -> None:
    strict: dict[str, float] = {"logprob_threshold": -0.001, "no_speech_threshold": 1}
    expected = heard(speech, CLIPS[0], "de", fallback=Fallback(**strict)).text  # type: ignore[arg-type]
    asked: Any = {"model": MODEL, "file": file(CLIPS[0]), "language": "de"}
    create = speech.openai.audio.transcriptions.create
    *_, done = create(**asked, extra_body=strict, stream=True)
    assert done.text == create(**asked, extra_body={**strict, "temperature": 0}).text == expected
    *_, once = create(**asked, stream=True)
    assert once.text != expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"fallback": None, "vad_filter": False, "condition_on_previous_text": True, "timestamps": False}),
        ({"temperature": "0", "seed": "3"}, {"fallback": Fallback(), "sampling_params": SamplingParams(seed=3)}),
        ({"temperature": "0.5"}, {"fallback": None, "sampling_params": SamplingParams(temperature=0.5)}),
        ({"compression_ratio_threshold": "3"}, {"fallback": Fallback(compression_ratio_threshold=3)}),
        ({"condition_on_previous_text": "false"}, {"condition_on_previous_text": False}),
        ({"chunking_strategy": "auto"}, {"vad_filter": True}),
        ({"response_format": "vtt"}, {"timestamps": True, "word_timestamps": False}),
        (
            {"prefix": "So", "hotwords": "Ann", "clip_timestamps": "1,2", "suppress_tokens": "-1,7", "best_of": "3"},
            {"prefix": "So", "hotwords": "Ann", "clip_timestamps": "1,2", "suppress_tokens": "-1,7", "best_of": 3},
        ),
        (
            {"clip_timestamps[]": ["1", "2.5"], "suppress_tokens[]": "9"},
            {"clip_timestamps": "1,2.5", "suppress_tokens": "9", "sampling_params": SamplingParams()},
        ),
        ({"beam_size": "3", "patience": "2"}, {"beam_size": 3, "patience": 2, "sampling_params": SamplingParams()}),
        ({"use_beam_search": "true"}, {"beam_size": 5}),
        ({"use_beam_search": "false"}, {"beam_size": 1}),
        ({"channels": "separate"}, {"channels": "separate"}),
        ({"vad_parameters": '{"threshold": 0.4, "min_silence": 1}'}, {"vad_filter": VadOptions(0.4, min_silence=1)}),
        (
            {"vad_parameters[min_silence_duration_ms]": "500", "vad_parameters[max_speech_duration_s]": "9"},
            {"vad_filter": VadOptions(min_silence=0.5, max_speech=9)},
        ),
        (
            {"chunking_strategy": '{"type": "server_vad", "threshold": null, "prefix_padding_ms": 300}'},
            {"vad_filter": VadOptions(speech_pad=0.3)},
        ),
        ({"response_format": "vtt", "timestamp_granularities[]": "word"}, {"word_timestamps": True}),
        ({"response_format": "vtt", "timestamp_granularities": ["segment", "word"]}, {"word_timestamps": True}),
        ({"response_format": "vtt", "timestamp_granularities": ""}, {"word_timestamps": False}),
        ({"chunking_strategy": "null", "vad_parameters": "null", "vad_filter": "true"}, {"vad_filter": True}),
        (
            {"hallucination_silence_threshold": "2"},
            {"hallucination_silence_threshold": 2, "word_timestamps": True, "timestamps": False},
        ),
    ],
    ids=" ".join,
)
def test_what_is_asked_reaches_the_engine(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    llm = FakeLLM("audio")
    llm.frontend.processor.clock = SimpleNamespace(zero=5)
    llm.frontend.lock, llm.frontend.spec.target_vocab = nullcontext(), 9
    request = httpx.Request("POST", "http://a", data=fields, files={"file": CLIPS[0]})
    made = call(app(llm), "POST", PATH, headers=dict(request.headers), chunks=[request.read()])
    assert made.status == 200, made.body
    assert {name: llm.asked[0][name] for name in expected} == expected


def test_a_model_without_timestamps_is_not_asked_for_them() -> None:
    llm = FakeLLM("audio")
    llm.frontend.processor.clock = SimpleNamespace(zero=9)
    llm.frontend.lock, llm.frontend.spec.target_vocab = nullcontext(), 9
    request = httpx.Request("POST", "http://a", data={"response_format": "srt"}, files={"file": CLIPS[0]})
    made = call(app(llm), "POST", PATH, headers=dict(request.headers), chunks=[request.read()])
    assert (made.status, llm.asked[0]["timestamps"]) == (200, False)


def test_beams_and_channels(speech: Live) -> None:
    asked: Any = {"model": MODEL, "file": file(CLIPS[0]), "language": "fr"}
    create = speech.openai.audio.transcriptions.create
    beams = {"beam_size": 3, "patience": 2.0}
    params = SamplingParams(max_tokens=12)
    made = create(**asked, extra_body={**beams, "max_completion_tokens": 12})
    assert made.text == heard(speech, CLIPS[0], "fr", **beams, sampling_params=params).text
    params = SamplingParams(**DRAWN, max_tokens=12)
    expected = heard(speech, CLIPS[0], "fr", channels="separate", sampling_params=params)
    separate = {**DRAWN, "channels": "separate", "max_completion_tokens": 12}
    said = create(**asked, extra_body=separate, response_format="verbose_json").to_dict()
    assert said["text"] == expected.text
    assert {segment["channel"] for segment in said["segments"]} == {1}


def test_a_stream_joined_is_the_whole(speech: Live) -> None:
    drawn = {**DRAWN, "max_completion_tokens": 12}
    for clip, given in [*((clip, dict[str, Any]({"repetition_penalty": 1.8})) for clip in CLIPS), (LONG, drawn)]:
        asked: Any = {"file": file(clip), "language": "en", "extra_body": given}
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
        ("response_format", "tsv"),
        ("timestamp_granularities[]", "word"),
        ("timestamp_granularities[]", "phoneme"),
        ("max_line_width", "40"),
        ("logprob_threshold", "inf"),
        ("include[]", "logprobs"),
        ("chunking_strategy", "server_vad"),
        ("chunking_strategy", '{"type": "vad"}'),
        ("chunking_strategy", '{"type": "server_vad", "padding": 3}'),
        ("vad_parameters", "[3]"),
        ("vad_parameters", '{"threshold": "high"}'),
        ("vad_parameters", '{"threshold": 2}'),
        ("vad_parameters", '{"threshold": true}'),
        ("vad_parameters", '{"min_silence": 1, "min_silence_duration_ms": 1000}'),
        ("vad_parameters", "[" * 10_000),
        ("clip_timestamps", "2,1"),
        ("clip_timestamps", "5,6"),
        ("suppress_tokens", "none"),
        ("suppress_tokens", "99999"),
        ("prefix", "<|fr|>"),
        ("hotwords", "<|fr|>"),
        ("beam_size", "0"),
        ("beam_size", "999"),
        ("best_of", "999"),
        ("patience", "2"),
        ("channels", "left"),
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
    assert len(refused.text) < 1_000


@pytest.mark.parametrize(
    ("fields", "blamed"),
    [
        ({"response_format": "vtt", "stream": "true"}, "response_format"),
        ({"response_format": "srt", "max_line_count": "2"}, "max_line_count"),
        ({"hallucination_silence_threshold": "2", "vad_filter": "true"}, "hallucination_silence_threshold"),
        ({"prefix": "a", "chunking_strategy": "auto"}, "prefix"),
        ({"use_beam_search": "false", "beam_size": "2"}, "use_beam_search"),
        ({"vad_parameters": "{}", "chunking_strategy": "auto"}, "vad_parameters"),
        ({"vad_filter": "false", "vad_parameters": "{}"}, "vad_filter"),
        ({"vad_filter": "false", "chunking_strategy": "auto"}, "vad_filter"),
        ({"vad_parameters": "{}", "vad_parameters[threshold]": "0.4"}, "vad_parameters"),
        ({"suppress_tokens": "7", "suppress_tokens[]": "8"}, "suppress_tokens"),
        (
            {
                "response_format": "vtt",
                "timestamp_granularities": "segment",
                "timestamp_granularities[]": "word",
            },
            "timestamp_granularities[]",
        ),
    ],
)
def test_fields_that_do_not_work_together(fields: dict[str, str], blamed: str, speech: Live) -> None:
    refused = speech.http.post(PATH, data=fields, files={"file": CLIPS[0]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, blamed)


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
