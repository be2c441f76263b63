"""Words and their times, by hand and beside transformers on a trained model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import AutoTokenizer, WhisperForConditionalGeneration, WhisperProcessor
from transformers.models.whisper.generation_whisper import _dynamic_time_warping, _median_filter
from transformers.models.whisper.tokenization_whisper import _combine_tokens_into_words

import checkpoints
from transduce import LLM, RequestOutput
from transduce.frontend.collector import Collector
from transduce.frontend.dialogue import Work
from transduce.frontend.outputs import Alignment
from transduce.media import audio
from transduce.models.base import Clock, Spoken
from transduce.speech.alignment import onsets
from transduce.speech.segments import Segment
from transduce.speech.words import AFTER, ALIGN, BEFORE, Spelling, Timed, Timing, merged, spelled, timed, timings

MODEL = "whisper-tiny.en"
END = 50256
CLOCK = Clock(rate=16_000, window=480_000, frame=160, step=320, zero=END)
TEXTS = (
    " He said, \"it's 'well' (or so)\" - didn't he?!",
    ' "Twenty-one" naïve [men]... paid $3,50; why. ',
    " 日本語のテキスト、です。 and 日本 too",
    "no space, at first",
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(checkpoints.path(MODEL))


@pytest.mark.parametrize("language", ["english", "chinese"])
@pytest.mark.parametrize("text", TEXTS)
def test_words_are_those_of_transformers(text: str, language: str, tokenizer: Any) -> None:
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    spelling = Spelling(tokenizer.decode, END, {"english": "en", "chinese": "zh"}[language])
    parts = [Timing(part, count, 0, 0, 0) for part, count in spelled(tokens, spelling)]
    words, of_words, _ = _combine_tokens_into_words(tokenizer, list(tokens), language, BEFORE, AFTER)
    assert [(word.text, word.tokens) for word in merged(parts)] == list(zip(words, map(len, of_words), strict=True))
    assert "".join(word.text for word in merged(parts)) == tokenizer.decode(tokens)


SLACK = 0.3
"""Seconds that a word may be off."""

VOCABULARY = (" one", " two", ".", " three", "ee", ",")


def spoken(
    rows: Sequence[int], *segments: tuple[float, float, Sequence[int]], seek: int = 0, until: float = 0.0
) -> Timed:
    """Segments (start, end, tokens), a token beginning at each of `rows` but the last, where the last one ends."""
    weights = np.zeros((1, len(rows), 400), dtype=np.float32)
    for token, (start, end) in enumerate(zip(rows, [*rows[1:], 400], strict=True)):
        weights[0, token, start:end] = 1
    given = [Segment(0, seek, start, end, "", tuple(tokens), 0, 0, 0, 0) for start, end, tokens in segments]
    spelling = Spelling(lambda ids: "".join(VOCABULARY[each] for each in ids), END, "en")
    alignment = Alignment(1, [np.log(0.5)] * (len(rows) - 1), weights)
    dialogue = timed(given, 400 * 320, CLOCK, lambda asked: Work(asked, ALIGN), spelling, until)
    wanted = next(dialogue)
    assert isinstance(wanted, Sequence)
    (work,) = wanted
    assert work.prompt == Spoken(tuple(token for each in segments for token in each[2]), 400)
    answer = RequestOutput("", None, None, None, [], [], True, None, alignment=alignment)  # type: ignore[arg-type]
    with pytest.raises(StopIteration) as end_of:
        dialogue.send([answer])
    timed_: Timed = end_of.value.value
    return timed_


def told(said: Timed) -> list[Any]:
    return [
        (segment.start, segment.end, [(word.word, word.start, word.end) for word in segment.words or ()])
        for segment in said.segments
    ]


def test_segments_get_their_words_and_take_their_times_from_them() -> None:
    said = spoken([0, 20, 40, 50, 70, 85], (3.0, 3.9, [0, 1, 2]), (4.1, 5.3, [3, 4]), seek=300, until=3.0)
    assert told(said) == [
        (3.0, 3.8, [(" one", 3.0, 3.4), (" two.", 3.4, 3.8)]),
        (4.0, 4.7, [(" threeee", 4.0, 4.7)]),
    ]
    assert [word.probability for segment in said.segments for word in segment.words or ()] == [0.5] * 3


@pytest.mark.parametrize(
    ("rows", "segment", "expected"),
    [
        # A pause after a full stop is the next word's, which is cut to twice the median, here of 0.4 s.
        (
            [0, 20, 40, 60, 200, 220],
            (0.0, 4.4, [0, 1, 2, 3, 0]),
            [(" one", 0.0, 0.4), (" two.", 0.4, 0.8), (" three", 3.2, 4.0), (" one", 4.0, 4.4)],
        ),
        # One before the first word is not a part of it.
        (
            [0, 150, 170, 190],
            (0.0, 3.8, [0, 1, 0]),
            [(" one", 2.2, 3.0), (" two", 3.0, 3.4), (" one", 3.4, 3.8)],
        ),
        # Segments are believed rather than words that go far beyond them.
        ([0, 20, 40, 90], (0.0, 1.0, [0, 1, 0]), [(" one", 0.0, 0.4), (" two", 0.4, 0.8), (" one", 0.8, 1.2)]),
    ],
    ids=["full stop", "pause before", "far beyond"],
)
def test_words_are_no_longer_than_can_be(rows: list[int], segment: Any, expected: list[Any]) -> None:
    assert told(spoken(rows, segment))[0][2] == expected


def test_without_text_or_answer_there_are_no_words() -> None:
    segment = Segment(0, 0, 0.0, 1.0, "", (END + 1, END + 2), 0, 0, 0, 0)
    spelling = Spelling(lambda ids: "", END, "en")
    with pytest.raises(StopIteration) as end:
        next(timed([segment], 16_000, CLOCK, lambda asked: Work(asked, ALIGN), spelling))
    assert end.value.value.segments[0].words == ()


def aligned(llm: LLM, samples: Any, asked: Spoken) -> Alignment:
    prompt = {"multi_modal_data": {"audio": (samples, CLOCK.rate)}}
    job = llm.frontend.job("aligned", prompt, ALIGN, {"spoken": asked})
    collector = Collector(job, 0.0)
    llm.engine.add(job.request)
    while llm.engine.unfinished:
        for output in llm.engine.step():
            collector.add(output)
    alignment = collector.result().alignment
    assert alignment is not None
    return alignment


def sample(clip: str) -> npt.NDArray[np.float32]:
    return audio.decode(Path("samples") / f"sense_and_sensibility_01_austen_64kb-{clip}.wav", CLOCK.rate)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(str(checkpoints.path(MODEL)), dtype="float32")


def test_times_of_a_clip_are_those_of_transformers(tokenizer: Any, llm: LLM) -> None:
    """By openai/whisper's algorithm over transformers' attention, and by generate() where the two are one.

    generate() looks at all 30 s, knows neither the rows of its prompt nor that of the end token, and lets the first
    token end where it begins. It tells of each token when it ends.
    """
    path = checkpoints.path(MODEL)
    samples = sample("0870")
    oracle: Any = WhisperForConditionalGeneration.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    heard = WhisperProcessor.from_pretrained(path)(
        samples, sampling_rate=CLOCK.rate, return_tensors="pt"
    ).input_features
    with torch.no_grad():
        made = oracle.generate(heard, return_token_timestamps=True, return_dict_in_generate=True)
        ids = made["sequences"]
        attention = oracle(heard, decoder_input_ids=ids, output_attentions=True).cross_attentions
    tokens, rows = tuple(ids[0, 2:-1].tolist()), len(samples) // CLOCK.step
    part, whole = (aligned(llm, samples, Spoken(tokens, asked)) for asked in (rows, 1500))
    weights = torch.stack([attention[layer][0, head] for layer, head in oracle.generation_config.alignment_heads])
    weights = weights[..., :rows] / weights[..., :rows].sum(-1, keepdim=True)
    spread, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    gains = _median_filter(((weights - mean) / spread)[None], 7)[0].mean(0)[1:-1]
    text, time = _dynamic_time_warping(-gains.double().numpy())
    expected = time[np.flatnonzero(np.diff(text, prepend=-1))] * 0.02
    words = timings(tokens, part, Spelling(tokenizer.decode, END, "en"), 0.02)
    begins = np.cumsum([0, *(word.tokens for word in words)])
    assert [word.start for word in words] == pytest.approx(expected[begins[:-1]], abs=0.021)
    assert [word.end for word in words] == pytest.approx(expected[begins[1:]], abs=0.021)
    ends = onsets(whole.weights[:, 2:-1], 0, len(tokens)) * 0.02
    assert ends == pytest.approx(made["token_timestamps"][0, 2:-1].numpy(), abs=0.021)
    assert len(set(ends)) > len(tokens) // 2


@pytest.mark.parametrize(
    ("clips", "asked", "windows"),
    [
        (("0930",), {}, 1),
        (("0880", "0930"), {"vad_filter": True}, 1),
        (("0870", "0880", "0930") * 2, {}, 2),
    ],
    ids=["clip", "voice activity", "long"],
)
def test_words_of_a_recording(clips: Sequence[str], asked: dict[str, Any], windows: int, llm: LLM) -> None:
    """They are its text, one after the other, each within the clip that it is spoken in."""
    parts = [np.pad(sample(clip), (0, CLOCK.rate)) for clip in clips]
    said = llm.transcribe((np.concatenate(parts), CLOCK.rate), word_timestamps=True, use_tqdm=False, **asked)
    words = [word for segment in said.segments for word in segment.words or ()]
    times = [time for word in words for time in (word.start, word.end)]
    assert times == sorted(times)
    for segment in said.segments:
        assert segment.words
        assert (segment.start, segment.end) == (segment.words[0].start, segment.words[-1].end)
        assert "".join(word.word for word in segment.words) == segment.text
    assert "".join(word.word for word in words).strip() == said.text
    assert len({segment.seek for segment in said.segments}) == windows
    ends = np.cumsum([len(part) for part in parts]) / CLOCK.rate
    for start, end in zip((0, *ends), ends, strict=False):
        own = [word for word in words if start - SLACK <= word.start and word.end <= end + SLACK]
        assert len(own) >= 8, own
        words = words[len(own) :]
    assert not words
