"""Frontend: from a prompt and parameters to a Request, for one loaded model.

Owns the checks on the decoder's lengths and ids, and the key under which an encoder input is shared. Knows no
scheduling and what becomes of a request: that is the collector's.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from threading import Lock
from typing import Any

from transduce.config import EngineConfig
from transduce.core.capacity import Room
from transduce.core.checks import shown
from transduce.core.guided import Guided
from transduce.core.params import BeamSearchParams, GenerationParams, SamplingParams
from transduce.core.request import EncoderInput, EncoderItem, Request, RuleSpec, Scored
from transduce.errors import CapacityError, RequestError, TransduceError
from transduce.frontend.checks import check_count, check_length, check_texts, check_vocabulary, check_width
from transduce.frontend.generation_config import Defaults
from transduce.frontend.guided import Guidance
from transduce.frontend.prompts import Ids, Media, Parts, parse
from transduce.frontend.readers import LONG, Readers
from transduce.frontend.rules import overridden
from transduce.frontend.sampling import Resolver
from transduce.frontend.sources import Source, Sources, listed
from transduce.models.base import Decode, Processor, Spec

logger = logging.getLogger(__name__)

Params = SamplingParams | BeamSearchParams


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A request and what its results are made with.

    text, ids: the encoder's input where it was text or ids. prompt: the decoder's, where given as text.
    truncated: source tokens that were cut. decode: token ids to text; None without a tokenizer. cleaned: whether the
    tokenizer rewrites spaces as it decodes. stop_strings: what ends the text.
    """

    request: Request
    params: GenerationParams
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


@dataclass(slots=True, eq=False)
class Frontend:
    """Makes Jobs, in any thread. Every method raises RequestError for what is wrong with one prompt.

    A tokenizer serves one thread at a time: `readers` say whose turn it is, and hold `lock` while the one that decodes
    works. Neither media nor long texts are read under it.

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
    readers: Readers = field(init=False)
    sources: Sources = field(init=False)
    lock: Lock = field(init=False)
    guidance: Guidance = field(init=False)

    def __post_init__(self) -> None:
        self.readers = Readers(self.processor)
        self.lock = self.readers.lock
        self.sources = Sources(self.processor, self.readers, self.spec.source_vocab, self.max_source)
        self.guidance = Guidance(self.processor.tokenizer, self.spec.vocab_size, self.defaults, self.lock)
        self.resolver = Resolver(self.defaults, self.spec.vocab_size, self.config.seed, self._words)

    def job(self, request_id: str, prompt: object, params: Params, options: Mapping[str, object] | None = None) -> Job:
        """The request for a prompt in any of the forms of `prompts`.

        options: the family's own, such as language and task. Raises RequestError, MediaError or CapacityError.
        """
        try:
            job = self._job(request_id, prompt, params, options or {})
            return job if params.guided is None else self._held(job, params.guided, options or {})
        except TransduceError:
            raise
        except Exception as error:
            # Prompts, tokenizers and media libraries run code of their own, which may raise anything.
            logger.exception("request %s: its prompt could not be read", request_id)
            reason = f"{type(error).__name__}: {error}"
            raise RequestError(f"the prompt could not be read ({reason}); the log has the traceback") from error

    def _job(self, request_id: str, prompt: object, params: Params, options: Mapping[str, object]) -> Job:
        parts = parse(prompt, self.processor.media, self.processor.interleaved, self.processor.prompted)
        guided = params.guided and params.guided.text
        check_texts([parts.decoder, parts.target, guided, *(params.bad_words or ()), *options.values()])
        if isinstance(parts.source, Media):
            check_count(self.processor.media or "", len(parts.source.items), self.config)
        source = self.sources.read(parts.source, params.truncate_prompt_tokens)
        return self._assembled(request_id, params, parts, source, options)

    def _assembled(
        self, request_id: str, params: Params, parts: Parts, source: Source, options: Mapping[str, object]
    ) -> Job:
        before, rules, probe = self._start(parts.decoder, options)
        aligning = probe is not None and probe.attention is not None
        assert not aligning or params.max_tokens == 0, "a text that is given is not gone on with"
        if probe is not None and params.prompt_logprobs is not None and not aligning:
            raise RequestError(
                f"prompt_logprobs={params.prompt_logprobs} cannot be had beside no_speech; leave one out"
            )
        start = (*before, *self._target(parts.target))
        target = None if parts.target is None else len(start) - len(before)
        most = self._most(len(start), target, follows=params.max_tokens != 0)
        width = self.resolver.width(params)
        check_width(params, width, self.config.max_num_seqs)
        groups, spans = self.processor.grouped(start, source.items)
        room = max(1, self.room(len(start), sum(each.rows for each in source.items), width)) if most is None else most
        first = probe or (1 if parts.target is None else len(before))
        decoding = self.resolver.resolve(params, len(start), room, most, first, source.ids)
        decode = self.processor.decoding(params.skip_special_tokens, options)
        if decode is None and decoding.stop_strings:
            raise RequestError(f"stop={decoding.stop_strings!r}: no tokenizer was loaded; use stop_token_ids")
        return Job(
            request=Request(
                request_id=request_id,
                prompt=start,
                inputs=tuple(EncoderInput(self._key(items, parts.salt), items) for items in groups),
                spans=spans,
                stopping=decoding.stopping,
                sampling=decoding.sampling,
                width=decoding.width,
                beams=decoding.beams,
                logprobs=0 if probe and decoding.logprobs is None else decoding.logprobs,
                scored=decoding.scored,
                rules=(*decoding.rules, *rules),
            ),
            params=params,
            text=source.text,
            ids=source.ids,
            prompt=parts.decoder if isinstance(parts.decoder, str) else None,
            truncated=source.truncated,
            decode=decode and _one_at_a_time(decode, self.lock),
            cleaned=bool(decode and self.processor.tokenizer.clean_up_tokenization_spaces),
            stop_strings=decoding.stop_strings,
        )

    def _held(self, job: Job, guided: Guided, options: Mapping[str, object]) -> Job:
        """The job, its answer held to a structure: what its tokens spell is then all that is shown."""
        start = job.request.prompt
        for rule in self.processor.rules(start, options):
            raise RequestError(f"guided_{guided.kind} cannot be followed beside {rule.name}; give one of them")
        structure = self.guidance.structure(guided, overridden(self.defaults, job.params).forced_bos)
        request = replace(job.request, rules=(*job.request.rules, structure.rule(len(start))))
        return replace(job, request=request, decode=structure.vocabulary.text, cleaned=False)

    def _start(
        self, prompt: str | Ids | None, options: Mapping[str, object]
    ) -> tuple[Ids, tuple[RuleSpec, ...], Scored | None]:
        """What the decoder starts from, the rules that the options imply from there on, and what they ask about it."""
        if isinstance(prompt, str):
            check_length("decoder prompt", prompt, self.config.max_model_len)
        with self.readers.alone(prompt, options) as processor:
            start = processor.decoder_ids(prompt, options)
            rules, probe = processor.rules(start, options), processor.probe(start, options)
        check_vocabulary("decoder prompt", start, self.spec.target_vocab)
        return start, rules, probe

    def _target(self, target: str | Ids | None) -> Ids:
        if target is None:
            return ()
        if not (target.strip() if isinstance(target, str) else target):
            raise RequestError(f"the target {shown(listed(target))} is empty; give at least one word or token id")
        if isinstance(target, str):
            check_length("target", target, self.config.max_model_len)
            with self.readers.alone(target) as processor:
                target = tuple(processor.target_ids(target))
        check_vocabulary("target", target, self.spec.target_vocab)
        return target

    def _most(self, prompt: int, target: int | None, follows: bool) -> int | None:
        """New tokens that the positions allow, None: any number. A last token needs none: nothing follows it.

        prompt: decoder tokens, of which the last `target` ones are a target, if there is one.
        """
        positions = self.config.max_model_len
        if positions is None:
            return None
        most = positions + 1 - follows
        if prompt > most and target is None:
            raise CapacityError(f"the decoder prompt has {prompt} tokens and the model takes {most}; shorten it")
        if prompt > most and target is not None:
            raise CapacityError(
                f"the target has {target} tokens and stands behind {prompt - target}; the model has {positions} "
                f"positions{'' if follows else ', and the last token needs none'}: "
                f"shorten it to {max(0, most - prompt + target)}"
            )
        return positions - prompt + 1

    def _words(self, word: str) -> Sequence[Ids]:
        """A word as the start of a text, and as one within."""
        tokenizer = self.processor.tokenizer
        if tokenizer is None:
            raise RequestError(f"bad_words has {word!r}: no tokenizer was loaded; give lists of token ids")
        if len(word) > LONG:
            raise RequestError(f"bad_words has a text of {len(word)} characters; give at most {LONG}")
        with self.lock:
            forms = [
                tokenizer(text_target=text, add_special_tokens=False, verbose=False)["input_ids"]
                for text in (word.lstrip(), f" {word.lstrip()}")
            ]
        return list(dict.fromkeys(tuple(ids) for ids in forms if ids))

    def _key(self, items: Sequence[EncoderItem], salt: str) -> bytes:
        kind = self.processor.media or "ids"
        about = (self.identity, kind, salt, *(_shape(item) for item in items))
        digest = blake2b(repr(about).encode(), digest_size=32)
        for item in items:
            digest.update(item.data.tobytes())
            digest.update(item.beside.tobytes())
        return digest.digest()


def checked(params: Any) -> Params:
    """The parameters if they are some. Raises RequestError for anything else."""
    if not isinstance(params, SamplingParams | BeamSearchParams):
        raise RequestError(
            f"sampling_params {shown(params)} of type {type(params).__name__}: "
            "use SamplingParams(...), or a list with one for each prompt"
        )
    return params


def _shape(item: EncoderItem) -> tuple[object, ...]:
    """How many bytes of an item mean what."""
    return item.data.dtype.str, item.data.shape, len(item.beside)


def _one_at_a_time(decode: Decode, lock: Lock) -> Decode:
    def locked(ids: Sequence[int]) -> str:
        with lock:
            return decode(ids)

    return locked
