"""Stand-ins for what the frontend stands on: a tokenizer of bytes, a processor, an engine that repeats its source."""

import time
from collections.abc import Mapping, Sequence

import numpy as np

from transduce.config import EngineConfig
from transduce.core.output import Delta, Output, TokenLogprobs
from transduce.core.request import EncoderItem, Request, RuleSpec
from transduce.errors import CapacityError, MediaError
from transduce.frontend.frontend import Frontend
from transduce.frontend.generation_config import Defaults
from transduce.models.base import Decode, KVGroup, Processor, Spec

PAD, EOS, BOS, FIRST = 0, 1, 2, 3
VOCABULARY = FIRST + 256
ROWS = 4


class ByteTokenizer:
    """Ids are bytes, after three special tokens; EOS closes a text."""

    all_special_ids = (PAD, EOS, BOS)
    clean_up_tokenization_spaces = False

    def __call__(
        self, text: str = "", text_target: str = "", add_special_tokens: bool = True, verbose: bool = True
    ) -> dict[str, list[int]]:
        ids = [FIRST + byte for byte in (text or text_target).encode()]
        return {"input_ids": ids + [EOS] * add_special_tokens}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        names = {PAD: b"", EOS: b"</s>", BOS: b"<s>"} if not skip_special_tokens else {}
        return b"".join(names.get(i, bytes([i - FIRST]) if i >= FIRST else b"") for i in ids).decode(errors="replace")


class FakeProcessor(Processor):
    """Bytes for text, or anything but `None` for audio. One option: loud, which has a rule and capital letters."""

    tokenizer: ByteTokenizer | None

    def __init__(self, media: str | None = None, tokenizer: ByteTokenizer | None = None) -> None:
        self.media = media
        self.tokenizer = tokenizer

    def source_ids(self, text: str) -> list[int]:
        assert self.tokenizer is not None
        return self.tokenizer(text)["input_ids"]

    def item(self, source: object) -> EncoderItem:
        if self.media is None:
            ids = np.asarray(source, np.int64)
            return EncoderItem(ids, len(ids), len(ids))
        if source is None:
            raise MediaError("None is no audio")
        return EncoderItem(np.zeros((2, ROWS), np.float32), ROWS, ROWS)

    def rules(self, start: Sequence[int], options: Mapping[str, object]) -> tuple[RuleSpec, ...]:
        return (RuleSpec("loud", tuple(start)),) if options.get("loud") else ()

    def decoding(self, skip_special_tokens: bool, options: Mapping[str, object]) -> Decode | None:
        decode = super().decoding(skip_special_tokens, options)
        return decode if decode is None or not options.get("loud") else lambda ids: decode(ids).upper()

    def decoder_ids(self, prompt: str | Sequence[int] | None, options: Mapping[str, object]) -> tuple[int, ...]:
        if isinstance(prompt, str):
            assert self.tokenizer is not None
            prompt = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        return (BOS, *(prompt or ()))


class EchoEngine:
    """Answers each request with its source's ids, one a step, within its stopping; refuses sources over `largest`."""

    def __init__(self, largest: int = 10_000) -> None:
        self.requests: dict[str, Request] = {}
        self.generated: dict[tuple[str, int], int] = {}
        self.aborted: list[str] = []
        self.largest = largest
        self.steps = 0

    def add(self, request: Request) -> None:
        if request.inputs[0].rows > self.largest:
            raise CapacityError(f"{request.inputs[0].rows} rows are more than {self.largest}")
        self.requests[request.request_id] = request
        self.generated |= {(request.request_id, index): 0 for index in range(request.width)}

    def finish(self, request_id: str, index: int, at: int) -> None:
        assert 0 < at <= self.generated[request_id, index]
        self._end(request_id, index)

    def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)
        for key in [key for key in self.generated if key[0] == request_id]:
            self._end(*key)

    def step(self) -> list[Output]:
        self.steps += 1
        outputs = []
        for request_id, request in list(self.requests.items()):
            indices = [index for owner, index in self.generated if owner == request_id]
            output = Output(request_id, [self._delta(request, index) for index in indices])
            output.first = output.last = output.scheduled = time.time()
            output.finished = request_id not in self.requests
            outputs.append(output)
        return outputs

    def _delta(self, request: Request, index: int) -> Delta:
        at = self.generated[request.request_id, index]
        source = request.inputs[0].items[0].data
        token = int(source[at]) if at < len(source) else EOS
        self.generated[request.request_id, index] += 1
        delta = Delta(index, [token])
        if request.logprobs is not None:
            delta.logprobs = [TokenLogprobs(token, -0.5, ((token, -0.5), (PAD, -1.0))[: request.logprobs])]
        if token in request.stopping.eos | request.stopping.stop:
            delta.finish_reason = "stop"
            delta.stop_token = None if token in request.stopping.eos else token
        elif at + 1 == request.stopping.max_tokens:
            delta.finish_reason = "length"
        if delta.finish_reason is not None:
            self._end(request.request_id, index)
        return delta

    def _end(self, request_id: str, index: int) -> None:
        del self.generated[request_id, index]
        if not any(owner == request_id for owner, _ in self.generated):
            del self.requests[request_id]


def spec(media: str | None = None, max_target: int | None = 64) -> Spec:
    """A model of bytes."""
    return Spec(
        vocab_size=VOCABULARY,
        source_vocab=VOCABULARY if media is None else 0,
        target_vocab=VOCABULARY,
        groups=(KVGroup("self", 1), KVGroup("cross", 1)),
        heads=1,
        kv_heads=1,
        head_dim=4,
        max_source=max_target,
        max_target=max_target,
        fixed_rows=None if media is None else ROWS,
        tasks=frozenset({"generate"} if media is None else {"generate", "transcribe"}),
    )


def frontend(
    media: str | None = None,
    defaults: Defaults | None = None,
    *,
    tokenizer: bool = True,
    max_len: int | None = 64,
    identity: str = "",
    seed: int = 0,
) -> Frontend:
    """A frontend over the fakes."""
    return Frontend(
        processor=FakeProcessor(media, ByteTokenizer() if tokenizer else None),
        spec=spec(media, max_len),
        defaults=defaults or Defaults(decoder_start_token_id=BOS, eos=(EOS,)),
        config=EngineConfig(model="bytes", max_model_len=max_len, seed=seed),
        max_source=max_len,
        identity=identity,
        room=lambda prompt, rows, width: (100 - rows) // width - prompt + 1,
    )
