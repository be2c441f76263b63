"""From a prompt to a request: ids, lengths, keys and what is refused."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from tests.frontend.fakes import BOS, EOS, FIRST, ROWS, VOCABULARY, ByteTokenizer, FakeProcessor, frontend
from transduce.core.params import BeamSearchParams, SamplingParams
from transduce.core.request import Beams, RuleSpec, Span, Stopping
from transduce.errors import CapacityError, MediaError, RequestError
from transduce.frontend.frontend import Frontend, Job, Params
from transduce.frontend.generation_config import Defaults
from transduce.frontend.readers import LONG


def job(prompt: object, front: Frontend | None = None, **params: Any) -> Job:
    return (front or frontend()).job("r", prompt, SamplingParams(**params))


def key(prompt: object, front: Frontend | None = None) -> bytes:
    return job(prompt, front).request.inputs[0].key


def ids(text: str) -> tuple[int, ...]:
    return tuple(FIRST + byte for byte in text.encode())


def test_a_text_becomes_a_request() -> None:
    made = job({"encoder_prompt": "hi", "decoder_prompt": "so"}, n=1, max_tokens=5, logprobs=2)
    request = made.request
    (source,) = request.inputs
    assert source.items[0].data.tolist() == [*ids("hi"), EOS]
    assert request.prompt == (BOS, *ids("so"))
    assert request.spans == (Span(0, 0, 3),)
    assert request.stopping == Stopping(5, frozenset({EOS}))
    assert (request.request_id, request.width, request.logprobs, request.sampling) == ("r", 1, 2, None)
    assert (made.text, made.ids, made.prompt, made.truncated) == ("hi", (*ids("hi"), EOS), "so", 0)
    assert made.input_tokens == 3 + 3


def test_ids_are_taken_as_they_are() -> None:
    made = job([5, 6])
    assert (made.text, made.ids, made.request.prompt) == (None, (5, 6), (BOS,))


def test_audio_becomes_a_request() -> None:
    made = job({"multi_modal_data": {"audio": b"x"}, "prompt": "so"}, frontend("audio"))
    assert made.request.spans == (Span(0, 0, ROWS),)
    assert (made.text, made.ids, made.prompt) == (None, None, "so")


def test_equal_content_has_equal_keys() -> None:
    assert key("hi") == key([*ids("hi"), EOS]) == key({"prompt": "hi"})
    assert len(key("hi")) == 32
    different = [
        key("hi"),
        key("ho"),
        key({"prompt": "hi", "cache_salt": "mine"}),
        key("hi", frontend(identity="another checkpoint")),
        key(b"hi", frontend("audio")),
    ]
    assert len(set(different)) == len(different)


@pytest.mark.parametrize(
    ("prompt", "keep", "kept", "truncated"),
    [
        ("hello", 3, (*ids("he"), EOS), 3),
        ("hello", 6, (*ids("hello"), EOS), 0),
        ("hello", 1, ids("h"), 5),
        ([5, 6, 7], 2, (5, 6), 1),
    ],
)
def test_truncation_keeps_the_closing_token(prompt: object, keep: int, kept: tuple[int, ...], truncated: int) -> None:
    made = job(prompt, truncate_prompt_tokens=keep)
    assert (made.ids, made.truncated) == (kept, truncated)


def test_new_tokens_are_bounded_by_positions_of_which_the_last_needs_none() -> None:
    assert job("hi").request.stopping.max_tokens == 64
    assert job({"encoder_prompt": "hi", "decoder_prompt": "so"}).request.stopping.max_tokens == 62


def test_without_positions_new_tokens_are_bounded_by_the_pool() -> None:
    front = frontend(max_len=None)
    assert job("hi", front).request.stopping.max_tokens == 97
    assert job("hi", front, n=2).request.stopping.max_tokens == 48
    assert job("x" * 200, front).request.stopping.max_tokens == 1  # the engine refuses it, with the numbers


@pytest.mark.parametrize(
    ("prompt", "error", "match"),
    [
        ("", RequestError, "the prompt '' is empty"),
        ("  \n", RequestError, "is empty"),
        ([], RequestError, r"the prompt \[\] is empty"),
        (
            [5, VOCABULARY],
            RequestError,
            f"the prompt has token id {VOCABULARY}; this model's go from 0 to {VOCABULARY - 1}",
        ),
        ([-1], RequestError, "token id -1"),
        ({"encoder_prompt": "hi", "decoder_prompt": [999]}, RequestError, "the decoder prompt has token id 999"),
        ("x" * 64, CapacityError, "65 tokens and the model takes 64.*truncate_prompt_tokens=64"),
        ({"encoder_prompt": "hi", "decoder_prompt": "x" * 64}, CapacityError, "decoder prompt has 65 tokens"),
        (
            {"encoder_prompt": "hi", "decoder_prompt": "x", "target": [5] * 64},
            CapacityError,
            "the target has 64 tokens and stands behind 2; the model has 64 positions: shorten it to 62",
        ),
    ],
)
def test_a_prompt_that_cannot_be_run_is_refused(prompt: object, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        job(prompt)


@pytest.mark.parametrize(
    ("params", "beams", "said"),
    [
        (SamplingParams(n=65), 1, "n=65"),
        (SamplingParams(n=1, best_of=65), 1, "best_of=65"),
        (BeamSearchParams(beam_width=65), 1, "beam_width=65"),
        (SamplingParams(), 65, "generation_config.json has num_beams=65"),
        (BeamSearchParams(), 65, "generation_config.json has num_beams=65"),
    ],
)
def test_more_answers_than_run_at_once_are_blamed_on_who_asks_for_them(params: Params, beams: int, said: str) -> None:
    asking = frontend(defaults=Defaults(decoder_start_token_id=BOS, num_beams=beams))
    with pytest.raises(CapacityError, match=f"^{said}: at most max_num_seqs=64 hypotheses run at once"):
        asking.job("r", "hi", params)


def test_audio_that_is_none_is_refused() -> None:
    with pytest.raises(MediaError, match="no audio"):
        job({"multi_modal_data": {"audio": None}}, frontend("audio"))


def test_audio_is_not_truncated() -> None:
    with pytest.raises(RequestError, match="truncate_prompt_tokens=3: the encoder takes audio"):
        job(b"x", frontend("audio"), truncate_prompt_tokens=3)


def test_bad_words_are_banned_at_the_start_and_within() -> None:
    made = job("hi", bad_words=["no", [9]])
    assert made.request.rules == (RuleSpec("bad_words", ((ids("no"), ids(" no"), (9,)), (EOS,))),)


@pytest.mark.parametrize(
    "prompt", ["\ud800abc", {"encoder_prompt": "hi", "decoder_prompt": "\udfff"}, {"prompt": "hi \udc80"}]
)
def test_half_a_surrogate_pair_is_no_text(prompt: object) -> None:
    with pytest.raises(RequestError, match=r"\\ud.* holds a lone surrogate"):
        job(prompt)


def test_half_a_surrogate_pair_is_no_word_and_no_option() -> None:
    with pytest.raises(RequestError, match=r"'\\ud800' holds a lone surrogate"):
        job("hi", bad_words=["no", "\ud800"])
    with pytest.raises(RequestError, match=r"'\\ud800' holds a lone surrogate"):
        frontend("audio").job("r", b"x", SamplingParams(), {"prompt": "\ud800"})


def test_options_decide_on_rules_and_on_how_tokens_become_text() -> None:
    front = frontend("audio", Defaults(suppress_tokens=(9,)))
    prompt = {"prompt": "so", "multi_modal_data": {"audio": b"x"}}
    plain = front.job("r", prompt, SamplingParams())
    loud = front.job("r", prompt, SamplingParams(), {"loud": True})
    general = RuleSpec("suppress_tokens", ((9,),))
    assert plain.request.rules == (general,)
    assert loud.request.rules == (general, RuleSpec("loud", (BOS, *ids("so"))))
    assert plain.decode is not None
    assert loud.decode is not None
    assert (plain.decode(ids("hi")), loud.decode(ids("hi"))) == ("hi", "HI")


def test_beams() -> None:
    made = frontend().job("r", "hi", BeamSearchParams(beam_width=4, num_return_sequences=2))
    assert (made.request.width, made.request.beams, made.request.answers) == (4, Beams(answers=2), 2)


def test_beams_of_width_one_are_greedy() -> None:
    made = frontend(defaults=Defaults(num_beams=4)).job("r", "hi", BeamSearchParams(beam_width=1, max_tokens=3))
    assert (made.request.sampling, made.request.stopping.max_tokens) == (None, 3)


def test_without_a_tokenizer_only_ids_are_served() -> None:
    front = frontend(tokenizer=False)
    assert job([5, 6], front).decode is None
    assert job([5, 6, 7], front, truncate_prompt_tokens=2).ids == (5, 6)
    for params in ({"stop": "x"}, {"bad_words": ["x"]}):
        with pytest.raises(RequestError, match="no tokenizer was loaded"):
            job([5, 6], front, **params)


class Slow(FakeProcessor):
    """Reads "slow…" only once it is told to."""

    reads, may = Event(), Event()

    def source_ids(self, text: str) -> list[int]:
        if text.startswith("slow"):
            self.reads.set()
            assert self.may.wait(60)
        return super().source_ids(text)


def test_a_long_text_holds_no_other_up() -> None:
    front = replace(frontend(), processor=Slow(None, ByteTokenizer()), max_source=None)
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(job, "slow" + "w" * LONG, front)
        assert Slow.reads.wait(60)
        short = job("hi", front, bad_words=["x"])
        assert short.decode is not None
        assert short.decode(ids("hi")) == "hi"
        assert not long.done()
        Slow.may.set()
        assert len(long.result().ids or ()) == LONG + 5


def test_what_must_be_too_long_is_refused_unread() -> None:
    Slow.reads.clear()
    front = replace(frontend(), processor=Slow(None, ByteTokenizer()), max_source=9)
    with pytest.raises(CapacityError, match=r"has 2305 characters .* shorten it to 2304"):
        job(f"{'slow':2305}", front)
    assert not Slow.reads.is_set()
    with pytest.raises(CapacityError, match="has 2305 tokens"):
        job(f"{'hi':2304}", front)
    assert job(f"{'hi':2305}", front, truncate_prompt_tokens=4).truncated == 2302
