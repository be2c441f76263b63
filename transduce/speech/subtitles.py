"""Segments as text: plain, a line each, SRT, WebVTT, TSV, and the JSON of OpenAI's API.

Owns the formats, and how words are laid out on lines and in cues, as openai/whisper lays them. Knows neither where
segments come from nor where the text goes. A segment that says nothing is in the JSON alone. Cues that overlap stay so.
Where channels are heard by themselves, what one says is labelled with its number.
"""

import html
import json
import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from heapq import merge
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, TypeVar

from transduce.core.checks import integer, require
from transduce.speech.segments import Segment, Word

T = TypeVar("T")

PAUSE = 3000
"""Milliseconds from the start of a word to that of the next, beyond which a cue does not go on."""

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ARROW = re.compile("--+>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How much a cue of SRT or WebVTT holds. Without limits, a segment is a cue of one line.

    max_line_width: characters of a line; a longer word has a line of its own. max_line_count: lines of a cue, beside
    max_line_width; cues then go on from segment to segment, up to a PAUSE. Where it is left out, a segment stays one
    cue of as many lines as it takes. max_words_per_line: words of a cue, which has one line; without max_line_width.

    A segment without word times is cut where it has spaces, and within what is longer than a line. Its time is shared
    out by characters, so cues that begin or end within it are approximate.

    Characters are code points: a wide one counts as one, as guidelines for Japanese and Chinese count them, and so does
    a combining mark. Lines keep the order of reading; from right to left is the player's work.

    Raises RequestError for a limit below 1, and for limits that would not work together.
    """

    max_line_width: int | None = None
    max_line_count: int | None = None
    max_words_per_line: int | None = None

    def __post_init__(self) -> None:
        for name, limit in asdict(self).items():
            if limit is not None:
                integer(name, limit, 1)
        count, words = self.max_line_count, self.max_words_per_line
        wide = self.max_line_width is not None
        require(wide or count is None, "max_line_count", count, "give max_line_width too, which ends a line")
        require(not wide or words is None, "max_words_per_line", words, "give either this or max_line_width")


@dataclass(frozen=True, slots=True)
class Timed:
    """Text from `start` to `end`, in milliseconds: a word, or a cue of one or more lines. channel: as a Segment's."""

    start: int
    end: int
    text: str
    channel: int | None = None


UNLIMITED = Layout()


def text(segments: Sequence[Segment]) -> str:
    """All that was said, as one text without leading and trailing space; a line each time another channel speaks."""
    turns = groupby((segment for segment in segments if segment.text), attrgetter("channel"))
    return "\n".join(_labelled(channel, "".join(each.text for each in said).strip()) for channel, said in turns)


def txt(segments: Sequence[Segment]) -> str:
    """A line for each segment."""
    return "".join(f"{line}\n" for segment in segments if (line := _line(segment)))


def srt(segments: Sequence[Segment], layout: Layout = UNLIMITED) -> str:
    """SubRip. It has no escapes: an arrow in the text, "-->", becomes "->"."""
    return "".join(
        f"{number}\n{_clock(cue.start, ',')} --> {_clock(cue.end, ',')}\n"
        f"{_labelled(cue.channel, _ARROW.sub('->', cue.text))}\n\n"
        for number, cue in enumerate(cues(segments, layout), start=1)
    )


def vtt(segments: Sequence[Segment], layout: Layout = UNLIMITED) -> str:
    """WebVTT, always with hours. `&`, `<` and `>` are escaped, so that all text shows as it is. Channels are voices."""
    return "WEBVTT\n\n" + "".join(
        f"{_clock(cue.start, '.')} --> {_clock(cue.end, '.')}\n"
        f"{_voice(cue.channel)}{html.escape(cue.text, quote=False)}\n\n"
        for cue in cues(segments, layout)
    )


def tsv(segments: Sequence[Segment]) -> str:
    """A table of start and end, in milliseconds, and text, parted by tabs. The first line names them."""
    return "start\tend\ttext\n" + "".join(
        f"{_milliseconds(segment.start)}\t{_milliseconds(segment.end)}\t{line}\n"
        for segment in segments
        if (line := _line(segment))
    )


def verbose_json(
    segments: Sequence[Segment],
    *,
    task: str,
    language: str,
    duration: float,
    granularities: Collection[str] = ("segment",),
) -> str:
    """`verbose` on one line."""
    answer = verbose(segments, task=task, language=language, duration=duration, granularities=granularities)
    return json.dumps(answer, ensure_ascii=False, allow_nan=False)


def verbose(
    segments: Sequence[Segment], *, task: str, language: str | None, duration: float, granularities: Collection[str]
) -> dict[str, Any]:
    """OpenAI's verbose_json as an object; times are in seconds, `duration` that of the audio. NaN is None.

    granularities: which of "segment" and "word" to list. Words are without surrounding space, and of segments that have
    word times; beside OpenAI's fields they have their `probability`.
    """
    answer: dict[str, Any] = {"task": task, "language": language, "duration": duration, "text": text(segments)}
    if "segment" in granularities:
        answer["segments"] = [_fields(segment) for segment in segments]
    if "word" in granularities:
        words = ((segment, word) for segment in segments for word in segment.words or ())
        answer["words"] = [{**_fields(word), "word": word.word.strip(), **_channel(said)} for said, word in words]
    return answer


def cues(segments: Sequence[Segment], layout: Layout = UNLIMITED) -> Iterator[Timed]:
    """Segments as cues within the limits of `layout`, in their order. What would show nothing is left out, and channels
    share no cue.
    """
    channels = dict.fromkeys(segment.channel for segment in segments)
    of_each = [_cues([each for each in segments if each.channel == channel], layout, channel) for channel in channels]
    yield from merge(*of_each, key=attrgetter("start")) if len(of_each) > 1 else chain(*of_each)


def _cues(segments: Sequence[Segment], layout: Layout, channel: int | None) -> Iterator[Timed]:
    for passage in _passages(segments, layout):
        for lines in _batched(_wrapped(passage, layout.max_line_width), layout.max_line_count):
            shown = "\n".join(filter(None, map(_joined, lines)))
            if shown:
                start, end = lines[0][0].start, lines[-1][-1].end
                # Without duration it would be invalid, and never seen.
                yield Timed(start, max(end, start + 1), shown, channel)


def _passages(segments: Sequence[Segment], layout: Layout) -> Iterator[Sequence[Timed]]:
    """Runs of words that no cue crosses the ends of."""
    of_segments = [_words(segment, layout.max_line_width) for segment in segments]
    if layout.max_line_count is not None:
        yield from _between_pauses(chain.from_iterable(of_segments))
    else:
        for words in of_segments:
            yield from _batched(words, layout.max_words_per_line)


def _words(segment: Segment, width: int | None) -> list[Timed]:
    """The segment's words or, if it has none, pieces of its text of at most `width` characters."""
    if segment.words:
        return [_timed(word.start, word.end, word.word) for word in segment.words]

    said = segment.text.rstrip()
    length = len(said) or 1

    def at(character: int) -> float:
        part = character / length
        return segment.start * (1 - part) + segment.end * part

    pieces = re.finditer(rf"\s*\S{{1,{min(width or length, length)}}}", said)
    return [_timed(at(piece.start()), at(piece.end()), piece[0]) for piece in pieces]


def _timed(start: float, end: float, said: str) -> Timed:
    return Timed(_milliseconds(start), _milliseconds(end), _plain(said))


def _between_pauses(words: Iterator[Timed]) -> Iterator[list[Timed]]:
    passage: list[Timed] = []
    for word in words:
        if passage and word.start - passage[-1].start > PAUSE:
            yield passage
            passage = []
        passage.append(word)
    yield passage


def _wrapped(words: Sequence[Timed], width: int | None) -> Sequence[Sequence[Timed]]:
    """Lines of as many words as fit into `width` characters, one at least. Words without a space between them part only
    where they are longer than a line together.
    """
    if width is None:
        return _batched(words, None)
    lines: list[list[Timed]] = []
    for run in _runs(words):
        for part in [run] if len(_joined(run)) <= width else [[word] for word in run]:
            if lines and len(_joined([*lines[-1], *part])) <= width:
                lines[-1].extend(part)
            else:
                lines.append(part)
    return lines


def _runs(words: Sequence[Timed]) -> list[list[Timed]]:
    """Words with what follows each without a space, such as "ill" and "-disposed"."""
    runs: list[list[Timed]] = []
    for word in words:
        if runs and word.text[:1].strip():
            runs[-1].append(word)
        else:
            runs.append([word])
    return runs


def _joined(words: Sequence[Timed]) -> str:
    return "".join(word.text for word in words).strip()


def _batched(items: Sequence[T], size: int | None) -> list[Sequence[T]]:
    """Items by `size`, the last ones perhaps fewer; all together where it is None."""
    size = size or max(len(items), 1)
    return [items[first : first + size] for first in range(0, len(items), size)]


def _line(segment: Segment) -> str:
    said = _plain(segment.text).strip()
    return said and _labelled(segment.channel, said)


def _labelled(channel: int | None, said: str) -> str:
    return said if channel is None else f"[{channel}] {said}"


def _voice(channel: int | None) -> str:
    return "" if channel is None else f"<v Channel {channel}>"


def _channel(segment: Segment) -> dict[str, int]:
    return {} if segment.channel is None else {"channel": segment.channel}


def _plain(said: str) -> str:
    """Within one line, whatever it holds: an empty line would end a cue, a tab a column."""
    return _CONTROLS.sub(" ", said)


def _fields(record: Segment | Word) -> dict[str, Any]:
    """Without a segment's words, which the API lists by themselves; asdict would copy all tokens, slowly."""
    values = {field.name: getattr(record, field.name) for field in fields(record) if field.name != "words"}
    if values.get("channel", 0) is None:
        del values["channel"]
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _clock(milliseconds: int, point: str) -> str:
    """HH:MM:SS,mmm, with more digits for hours from 100 on."""
    assert milliseconds >= 0, milliseconds
    seconds, milliseconds = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{point}{milliseconds:03d}"
