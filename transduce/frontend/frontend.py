"""Frontend: from a prompt and parameters to a Request, for one loaded model.

Owns encoding, the checks on lengths and ids, and the key under which an encoder input is shared. Knows no scheduling
and what becomes of a request: that is the collector's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from transduce.config import EngineConfig
from transduce.core.params import BeamSearchParams, SamplingParams
from transduce.core.request import EncoderInput, EncoderItem, Request, Span
from transduce.errors import CapacityError, RequestError
from transduce.frontend.generation_config import Defaults
from transduce.frontend.prompts import Ids, Media, parse, shown
from transduce.frontend.sampling import Resolver
from transduce.models.base import Decode, Processor, Spec

Params = SamplingParams | BeamSearchParams

Room = Callable[[int, int, int], int]
"""(decoder prompt tokens, encoder rows, hypotheses) to the most new tokens that the KV pool holds."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A request and what its results are made with.

    text, ids: the encoder's input where it was text or ids. prompt: the decoder's, where given as text.
    truncated: source tokens that were cut. decode: token ids to text; None without a tokenizer. cleaned: whether the
    tokenizer rewrites spaces as it decodes. stop_strings: what ends the text.
    """

    request: Request
    params: SamplingParams
    text: str | None
    ids: Ids | None
    prompt: str | None
    truncated: int
    decode: Decode | None
    cleaned: bool
    stop_strings: tuple[str, ...]

    @property
    def input_tokens(self) -> int:
        """Encoder rows and decoder tokens that the request starts with."""
        return sum(source.rows for source in self.request.inputs) + len(self.request.prompt)


@dataclass(frozen=True, slots=True)
class _Source:
    """What the encoder gets, as text and ids too where it is either; `truncated` ids were cut."""

    item: EncoderItem
    text: str | None = None
    ids: Ids | None = None
    truncated: int = 0


@dataclass(slots=True, eq=False)
class Frontend:
    """Makes Jobs. Every method raises RequestError for what is wrong with one prompt.

    config: resolved. max_source: longest encoder input in tokens, None: no limit. identity: what besides its content
    decides what an input encodes to, such as the checkpoint's revision and the dtype.
    """

    processor: Processor
    spec: Spec
    defaults: Defaults
    config: EngineConfig
    max_source: int | None
    identity: str
    room: Room
    resolver: Resolver = field(init=False)

    def __post_init__(self) -> None:
        self.resolver = Resolver(self.defaults, self.spec.vocab_size, self.config.seed, self._words)

    def job(self, request_id: str, prompt: object, params: Params, options: Mapping[str, object] | None = None) -> Job:
        """The request for a prompt in any of the forms of `prompts`.

        options: the family's own, such as language and task. Raises RequestError, MediaError or CapacityError.
        """
        options = options or {}
        parts = parse(prompt, self.processor.media)
        asked = params.as_sampling() if isinstance(params, BeamSearchParams) else params
        _check_texts([parts.source, parts.decoder, *(asked.bad_words or ()), *options.values()])
        source = self._source(parts.source, asked.truncate_prompt_tokens)
        start = self._start(parts.decoder, options)
        most = self._most(len(start))
        room = max(1, self.room(len(start), source.item.rows, asked.n)) if most is None else most
        decoding = self.resolver.resolve(params, len(start), room, most)
        decode = self.processor.decoding(asked.skip_special_tokens, options)
        if decode is None and decoding.stop_strings:
            raise RequestError(f"stop={decoding.stop_strings!r}: no tokenizer was loaded; use stop_token_ids")
        return Job(
            request=Request(
                request_id=request_id,
                prompt=start,
                inputs=(EncoderInput(self._key(source.item, parts.salt), (source.item,)),),
                spans=(Span(0, 0, source.item.rows),),
                stopping=decoding.stopping,
                sampling=decoding.sampling,
                width=asked.n,
                logprobs=asked.logprobs,
                rules=(*decoding.rules, *self.processor.rules(start, options)),
            ),
            params=asked,
            text=source.text,
            ids=source.ids,
            prompt=parts.decoder if isinstance(parts.decoder, str) else None,
            truncated=source.truncated,
            decode=decode,
            cleaned=bool(decode and self.processor.tokenizer.clean_up_tokenization_spaces),
            stop_strings=decoding.stop_strings,
        )

    def _source(self, source: str | Ids | Media, keep: int | None) -> _Source:
        if isinstance(source, Media):
            if keep is not None:
                raise RequestError(
                    f"truncate_prompt_tokens={keep}: the encoder takes {self.processor.media}; leave it out"
                )
            return _Source(self.processor.item(source.data))
        if not (source.strip() if isinstance(source, str) else source):
            raise RequestError(f"the prompt {shown(source)} is empty; give at least one word or token id")
        ids = tuple(self.processor.source_ids(source)) if isinstance(source, str) else source
        _check_vocabulary("prompt", ids, self.spec.source_vocab)
        kept = ids if keep is None else self._truncated(ids, keep)
        if self.max_source is not None and len(kept) > self.max_source:
            raise CapacityError(
                f"the prompt has {len(kept)} tokens and the model takes {self.max_source}; "
                f"shorten it, or cut it with truncate_prompt_tokens={self.max_source} (--truncate-prompt-tokens)"
            )
        text = source if isinstance(source, str) else None
        return _Source(self.processor.item(kept), text, kept, len(ids) - len(kept))

    def _truncated(self, ids: Ids, keep: int) -> Ids:
        """The first `keep` ids, but with the special tokens that close them, such as EOS."""
        special = set(self.processor.tokenizer.all_special_ids) if self.processor.tokenizer is not None else set()
        closing = 0
        while closing < len(ids) and ids[len(ids) - 1 - closing] in special:
            closing += 1
        if len(ids) <= keep or closing >= keep:
            return ids[:keep]
        return ids[: keep - closing] + ids[len(ids) - closing :]

    def _start(self, prompt: str | Ids | None, options: Mapping[str, object]) -> Ids:
        start = self.processor.decoder_ids(prompt, options)
        _check_vocabulary("decoder prompt", start, self.spec.target_vocab)
        return start

    def _most(self, prompt: int) -> int | None:
        """New tokens that the positions allow, None: any number. The last one needs none: nothing follows it."""
        most = self.config.max_model_len
        if most is not None and prompt > most:
            raise CapacityError(f"the decoder prompt has {prompt} tokens and the model takes {most}; shorten it")
        return None if most is None else most - prompt + 1

    def _words(self, word: str) -> Sequence[Ids]:
        """A word as the start of a text, and as one within."""
        tokenizer = self.processor.tokenizer
        if tokenizer is None:
            raise RequestError(f"bad_words has {word!r}: no tokenizer was loaded; give lists of token ids")
        forms = (
            tokenizer(text_target=text, add_special_tokens=False, verbose=False)["input_ids"]
            for text in (word.lstrip(), f" {word.lstrip()}")
        )
        return list(dict.fromkeys(tuple(ids) for ids in forms if ids))

    def _key(self, item: EncoderItem, salt: str) -> bytes:
        kind = self.processor.media or "ids"
        about = (self.identity, kind, salt, item.data.dtype.str, item.data.shape)
        return blake2b(repr(about).encode() + item.data.tobytes(), digest_size=32).digest()


def _check_texts(values: Iterable[object]) -> None:
    """Raise for a string among them that is no text: half of a surrogate pair, which no tokenizer takes."""
    for value in values:
        try:
            if isinstance(value, str):
                value.encode()
        except UnicodeEncodeError:
            raise RequestError(f"{shown(value)} holds a lone surrogate, which is no character; remove it") from None


def _check_vocabulary(name: str, ids: Ids, size: int) -> None:
    for token in ids:
        if not 0 <= token < size:
            raise RequestError(f"the {name} has token id {token}; this model's go from 0 to {size - 1}")
