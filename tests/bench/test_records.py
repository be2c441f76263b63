"""Records: read from bytes and times of their arrival."""

import json
from typing import Any

import pytest

from tests.bench.support import event
from transduce.bench.records import Record, read

STREAM = "text/event-stream"
DONE = b"data: [DONE]\n\n"


def word(text: str = "w") -> bytes:
    return event({"choices": [{"text": text}]})


def usage(prompt: int, output: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output}})


def streamed(*arrivals: tuple[float, bytes], begun: float = 1.0, ended: float = 9.0) -> Record:
    return read(begun, arrivals, ended, 200, STREAM)


def whole(answer: Any, status: int = 200) -> Record:
    content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return read(0.0, [(1.0, content[:3]), (1.5, content[3:])], 2.0, status, "application/json")


def test_a_streamed_completion() -> None:
    record = streamed((3.0, word()), (4.0, word()), (6.0, word()), (8.0, usage(5, 4) + DONE))
    assert record == Record(1.0, 9.0, (3.0, 4.0, 6.0), 5, 4)
    assert (record.ttft, record.e2e, record.tpot, record.itls) == (2.0, 8.0, 2.0, [1.0, 2.0])


def test_events_count_when_they_are_complete() -> None:
    first, second = word(), word()
    record = streamed((2.0, first[:9]), (3.0, first[9:] + second), (4.0, DONE[:8]), (5.0, DONE[8:]))
    assert (record.texts, record.error) == ((3.0, 3.0), None)


def test_pieces_without_text_are_no_first_token() -> None:
    role = event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    said = event({"choices": [{"delta": {"content": "a"}}]})
    end = event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    assert streamed((2.0, role), (3.0, said), (4.0, end), (5.0, DONE)).texts == (3.0,)


def test_lines_may_end_as_windows_has_them_and_comments_are_skipped() -> None:
    content = b": ping\r\n\r\n" + (word() + DONE).replace(b"\n", b"\r\n")
    assert streamed((2.0, content)) == Record(1.0, 9.0, (2.0,))


def test_transcriptions_as_openai_streams_them() -> None:
    delta = event({"type": "transcript.text.delta", "delta": "a"})
    done = {"type": "transcript.text.done", "text": "a", "usage": {"input_tokens": 3, "output_tokens": 2}}
    assert streamed((2.0, delta), (4.0, event(done))) == Record(1.0, 9.0, (2.0,), 3, 2)


def test_an_answer_without_text_or_usage() -> None:
    record = streamed((2.0, DONE))
    assert (record.error, record.ttft, record.tpot, record.itls, record.output_tokens) == (None, None, None, [], None)


def test_one_token_has_no_time_per_token() -> None:
    assert streamed((2.0, word()), (3.0, usage(5, 1) + DONE)).tpot is None


@pytest.mark.parametrize(
    "answer",
    [
        {"choices": [{"text": "a"}], "usage": {"prompt_tokens": 5, "completion_tokens": 4}},
        {"choices": [{"message": {"content": "a"}}], "usage": {"prompt_tokens": 5, "completion_tokens": 4}},
        {"text": "a", "usage": {"type": "tokens", "input_tokens": 5, "output_tokens": 4}},
    ],
)
def test_whole_answers(answer: Any) -> None:
    assert whole(answer) == Record(0.0, 2.0, (), 5, 4)


def test_failures_are_said() -> None:
    assert whole({"error": {"message": "no such model"}}, 404).error == "HTTP 404: no such model"
    assert whole(b"Bad Gateway", 502).error == "HTTP 502: Bad Gateway"
    broken = streamed((2.0, word()), (3.0, event({"error": {"message": "the engine ended"}})), (3.0, DONE))
    assert broken.error == "in the stream: the engine ended"
    assert streamed((2.0, word())).error == "the stream ended before its end was said"
    assert streamed().error == "the stream ended before its end was said"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"choices": [{}]}', b'{"usage": 3}'])
def test_answers_of_another_form(content: bytes) -> None:
    assert "not an answer of OpenAI's form" in str(whole(content).error)
    assert "not an answer of OpenAI's form" in str(streamed((2.0, b"data: " + content + b"\n\n" + DONE)).error)
