"""The offline API end to end, on tiny checkpoints as transformers saves them, beside transformers' generate()."""

import json
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import pytest
from torch import Tensor
from transformers import BartForConditionalGeneration, GenerationConfig

import transduce
from tests.folders import text_folder, whisper_folder
from tests.offline import load, tokens
from transduce import LLM, BeamSearchParams, CapacityError, ConfigError, EngineError, RequestError, SamplingParams
from transduce.core.output import Output
from transduce.core.request import Request

SOURCES = ("a cab", "hello", "transducers transduce", "x", "the end")
GENERATION: dict[str, Any] = {
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "max_length": 24,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "forced": {"forced_bos_token_id": 0, "forced_eos_token_id": 2, "max_length": 9},
    "penalised": {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2, "min_length": 20},
    "suppressed": {"suppress_tokens": [7, 12], "begin_suppress_tokens": [20, 21], "bad_words_ids": [[8], [10, 11]]},
    "new": {"encoder_no_repeat_ngram_size": 1, "no_repeat_ngram_size": 2},
    "short": {"max_new_tokens": 6, "min_new_tokens": 4},
    "eos of several": {"eos_token_id": [2, 30, 31, 32, 33, 34]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_folder(tmp_path_factory.mktemp("bart"), GENERATION)


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return load(folder)


@pytest.mark.parametrize("name", SETTINGS)
def test_answers_are_those_of_generate(name: str, tmp_path: Path) -> None:
    llm = load(text_folder(tmp_path, GENERATION | SETTINGS[name]))
    oracle = BartForConditionalGeneration.from_pretrained(tmp_path).eval()
    tokenizer = llm.get_tokenizer()
    expected = [oracle.generate(**tokenizer(source, return_tensors="pt"))[0, 1:].tolist() for source in SOURCES]
    assert tokens(llm.generate(list(SOURCES))) == expected
    assert len({tuple(answer) for answer in expected}) > 1


def test_requests_of_one_batch_have_rules_of_their_own_over_the_checkpoints(tmp_path: Path) -> None:
    checkpoint = GENERATION | {"forced_bos_token_id": 0, "no_repeat_ngram_size": 2}
    llm = load(text_folder(tmp_path, checkpoint))
    oracle = BartForConditionalGeneration.from_pretrained(tmp_path).eval()
    own: list[dict[str, Any]] = [
        {"forced_bos_token_id": 7},
        {"forced_bos_token_id": None, "encoder_no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": None},
        {"suppress_tokens": [44], "begin_suppress_tokens": [41], "forced_eos_token_id": 2},
        {},
    ]
    off: dict[str, Any] = {"forced_bos_token_id": -1, "no_repeat_ngram_size": 0}
    params = [SamplingParams(**{k: off[k] if v is None else v for k, v in each.items()}) for each in own]
    expected = []
    for source, each in zip(SOURCES, own, strict=True):
        oracle.generation_config = GenerationConfig(**checkpoint | each)
        expected.append(oracle.generate(**llm.get_tokenizer()(source, return_tensors="pt"))[0, 1:].tolist())
    assert tokens(llm.generate(list(SOURCES), params)) == expected


def allowed(place: int, ids: Tensor) -> list[int]:
    return [2, *(token for token in range(4, 40) if (token + place + len(ids) + int(ids[-1])) % 3)]


@pytest.mark.parametrize("beams", [1, 3])
def test_a_function_says_which_tokens_may_follow(beams: int, folder: Path, llm: LLM) -> None:
    oracle = BartForConditionalGeneration.from_pretrained(folder).eval()
    outputs = llm.generate(list(SOURCES), BeamSearchParams(beam_width=beams, prefix_allowed_tokens_fn=allowed))
    encoded = [llm.get_tokenizer()(source, return_tensors="pt") for source in SOURCES]
    expected = [
        oracle.generate(
            **source, num_beams=beams, prefix_allowed_tokens_fn=lambda _, ids, place=place: allowed(place, ids)
        )
        for place, source in enumerate(encoded)
    ]
    assert tokens(outputs) == [answer[0, 1:].tolist() for answer in expected]


def test_a_function_that_fails_is_told_and_leaves_the_engine_clean(llm: LLM) -> None:
    with pytest.raises(EngineError, match=r"the answer of prefix_allowed_tokens_fn is empty; give at least one"):
        llm.generate("hello", SamplingParams(prefix_allowed_tokens_fn=lambda place, ids: []))
    assert tokens(llm.generate("hello"))[0]


def test_sources_without_tokens_are_ignored_where_these_may_not_be_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = whisper_folder(tmp_path, seed=0) / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"encoder_no_repeat_ngram_size": 2}))
    with caplog.at_level("WARNING", "transduce"):
        load(tmp_path)
    assert "encoder_no_repeat_ngram_size=2 is ignored: the encoder reads no tokens" in caplog.messages


def test_the_tiny_checkpoint_says_enough_to_be_a_test(llm: LLM) -> None:
    assert len({token for answer in tokens(llm.generate(list(SOURCES))) for token in answer}) >= 6


def test_text_is_the_tokenizers(llm: LLM) -> None:
    for output in llm.generate(list(SOURCES)):
        (answer,) = output.outputs
        assert answer.text == llm.get_tokenizer().decode(answer.token_ids, skip_special_tokens=True)
        assert answer.text


def test_a_decoder_prompt_is_continued(llm: LLM) -> None:
    (whole,) = tokens(llm.generate("hello"))
    ids = llm.get_tokenizer()("hello")["input_ids"]
    for start in (1, 4):
        pair = {"encoder_prompt": ids, "decoder_prompt": whole[:start]}
        (output,) = llm.generate(pair)
        assert output.prompt_token_ids == [2, *whole[:start]]
        assert output.outputs[0].token_ids == whole[start:]


def test_a_stop_string_ends_an_answer_and_leaves_the_engine_clean(llm: LLM) -> None:
    texts = [output.outputs[0].text for output in llm.generate(list(SOURCES))]
    stops = [text[3:5] for text in texts]
    outputs = llm.generate(list(SOURCES), [SamplingParams(stop=stop) for stop in stops])
    for output, text, stop in zip(outputs, texts, stops, strict=True):
        assert output.outputs[0].text == text[: text.index(stop)]
        assert output.outputs[0].stop_reason == stop
    assert not llm.engine.unfinished


def test_samples_repeat_with_their_seed(llm: LLM) -> None:
    def drawn(seed: int) -> list[list[int]]:
        (output,) = llm.generate("hello", SamplingParams(n=4, temperature=1.0, seed=seed, max_tokens=12))
        return [answer.token_ids for answer in output.outputs]

    assert drawn(1) == drawn(1) != drawn(2)
    assert len({tuple(answer) for answer in drawn(1)}) > 1


def test_the_best_of_several_samples_are_the_likeliest_by_token(llm: LLM) -> None:
    drawn: dict[str, Any] = {"temperature": 1.5, "seed": 3, "max_tokens": 12}
    (four,) = llm.generate("hello", SamplingParams(n=4, logprobs=0, **drawn))
    (two,) = llm.generate("hello", SamplingParams(n=2, best_of=4, **drawn))
    ranked = sorted(four.outputs, key=lambda each: -(each.cumulative_logprob or 0) / len(each.token_ids))
    assert [each.token_ids for each in two.outputs] == [each.token_ids for each in ranked[:2]]
    assert [(each.index, each.logprobs) for each in two.outputs] == [(0, None), (1, None)]
    assert len({tuple(each.token_ids) for each in four.outputs}) > 2


def test_forms_and_params_mix(llm: LLM) -> None:
    ids = llm.get_tokenizer()("hello")["input_ids"]
    prompts: list[Any] = [
        "hello",
        ids,
        {"prompt": "hello"},
        {"encoder_prompt": {"prompt": "hello"}, "decoder_prompt": None},
    ]
    params: list[SamplingParams | BeamSearchParams] = [
        SamplingParams(max_tokens=3),
        BeamSearchParams(beam_width=1, max_tokens=4),
        SamplingParams(max_tokens=5, temperature=0.0),
        SamplingParams(max_tokens=6),
    ]
    answers = tokens(llm.generate(prompts, params))
    assert [len(answer) for answer in answers] == [3, 4, 5, 6]
    assert all(answers[3][: len(answer)] == answer for answer in answers)


def test_one_prompt_or_a_list_gives_a_list(llm: LLM) -> None:
    params = SamplingParams(max_tokens=3)
    assert tokens(llm.generate("hello", params)) == tokens(llm.generate(["hello"], params))
    assert len(llm.generate([5, 6, 7], params)) == 1
    assert len(llm.generate(("hello", "x"), params)) == 2


def test_a_bad_prompt_among_several_has_its_own_error(llm: LLM) -> None:
    prompts: list[Any] = [
        "hello",
        "",
        "a" * 99,
        [1, 999],
        3.5,
        {"prompt": "x", "multi_modal_data": {"audio": b""}},
        "x",
    ]
    outputs = llm.generate(prompts)
    assert [output.error is None for output in outputs] == [True, False, False, False, False, False, True]
    assert tokens([outputs[0], outputs[-1]]) == tokens(llm.generate(["hello", "x"]))


def test_a_thread_that_calls_while_another_does_is_refused(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals: list[Exception] = []
    step = llm.engine.step

    def call() -> None:
        try:
            llm.generate("x")
        except EngineError as error:
            refusals.append(error)

    def meanwhile() -> list[Output]:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return step()

    monkeypatch.setattr(llm.engine, "step", meanwhile)
    assert llm.generate("hello", SamplingParams(max_tokens=1))[0].error is None
    assert refusals
    assert all("one thread at a time" in str(error) for error in refusals)
    monkeypatch.undo()
    assert llm.generate("x", SamplingParams(max_tokens=1))[0].error is None


def test_a_single_bad_prompt_raises(llm: LLM) -> None:
    with pytest.raises(RequestError, match="is empty"):
        llm.generate("")
    with pytest.raises(CapacityError, match="101 tokens and the model takes 64"):
        llm.generate("a" * 99)
    with pytest.raises(RequestError, match="an empty list"):
        llm.generate([])
    with pytest.raises(RequestError, match="2 sampling_params for 1 prompts"):
        llm.generate("x", [SamplingParams(), SamplingParams()])
    for priority in ([0, 1], ["x"], 3, [True]):
        with pytest.raises(RequestError, match="for 1 prompts; give a list of whole numbers, one for each"):
            llm.generate("x", priority=cast(Any, priority))


def test_prompts_of_lower_priorities_are_begun_first(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, add = list[int](), llm.engine.add

    def noted(request: Request) -> None:
        begun.append(request.inputs[0].rows)
        add(request)

    monkeypatch.setattr(llm.engine, "add", noted)
    prompts = ["a", "bb", "ccc"]
    plain = llm.generate(prompts)
    ranked = llm.generate(prompts, priority=[5, -1, 0])
    assert begun[3:] == [begun[1], begun[2], begun[0]]
    assert [each.outputs for each in ranked] == [each.outputs for each in plain]


@pytest.mark.parametrize("params", [{"temperature": 0}, {}, [{"temperature": 0}], "x", [None], 3])
def test_other_sampling_params_are_refused_with_their_type(params: Any, llm: LLM) -> None:
    given = params[0] if isinstance(params, list) else params
    with pytest.raises(RequestError, match=rf"of type {type(given).__name__}: use SamplingParams\(...\)"):
        llm.generate("x", params)


def test_a_request_that_can_never_fit_is_refused_with_the_numbers(folder: Path) -> None:
    llm = load(folder, kv_cache_bytes=24_000)
    with pytest.raises(CapacityError, match="blocks"):
        llm.generate("hello", SamplingParams(n=16, temperature=1.0, max_tokens=60))
    assert llm.generate("hello", SamplingParams(max_tokens=4))[0].error is None


def test_max_model_len_bounds_both_sides(folder: Path) -> None:
    llm = load(folder, max_model_len=8)
    with pytest.raises(CapacityError, match="takes 8"):
        llm.generate("hello world")
    assert len(tokens(llm.generate("hello", SamplingParams(max_tokens=50, ignore_eos=True)))[0]) == 8


def test_without_a_tokenizer_ids_are_served(folder: Path) -> None:
    bare = load(folder, skip_tokenizer_init=True)
    whole = load(folder)
    ids = whole.get_tokenizer()("hello")["input_ids"]
    (output,) = bare.generate({"prompt_token_ids": ids})
    assert output.outputs[0].token_ids == tokens(whole.generate("hello"))[0]
    assert output.outputs[0].text == ""
    assert bare.get_tokenizer() is None
    with pytest.raises(RequestError, match="no tokenizer was loaded"):
        bare.generate("hello")


def test_an_unknown_engine_argument_is_refused_with_the_closest(folder: Path) -> None:
    with pytest.raises(ConfigError, match="'max_num_seq'; did you mean max_num_seqs"):
        LLM(folder, max_num_seq=3)
    with pytest.raises(ConfigError, match="tensor_parallel_size=2"):
        LLM(folder, tensor_parallel_size=2)


def test_an_engine_argument_of_another_type_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="seed='x': give a whole number >= 0"):
        LLM(folder, seed="x")
    with pytest.raises(ConfigError, match="skip_tokenizer_init='yes': give True or False"):
        LLM(folder, skip_tokenizer_init="yes")
    with pytest.raises(ConfigError, match="model=3: give a folder or a hub id"):
        LLM(3)  # type: ignore[arg-type]


def test_a_tokenizer_may_be_a_path(folder: Path, llm: LLM) -> None:
    params = SamplingParams(max_tokens=3)
    assert tokens(load(folder, tokenizer=folder).generate("hello", params)) == tokens(llm.generate("hello", params))


def test_without_a_seed_a_run_repeats_with_the_engines(folder: Path) -> None:
    def run(seed: int) -> list[list[int]]:
        return tokens(load(folder, seed=seed).generate(["hello"] * 3, SamplingParams(temperature=1.0, max_tokens=9)))

    assert run(1) == run(1) != run(2)
    assert len({tuple(answer) for answer in run(1)}) > 1


def test_a_text_model_transcribes_nothing(llm: LLM) -> None:
    with pytest.raises(ConfigError, match="transcribes no speech"):
        llm.transcribe(b"")


def test_importing_the_package_loads_no_torch() -> None:
    code = "import sys, transduce; transduce.SamplingParams(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names() -> None:
    for name in transduce.__all__:
        assert getattr(transduce, name).__name__ == name
    assert set(dir(transduce)) == {*transduce.__all__, "__version__"}
    assert transduce.__version__ == version("transduce")
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        transduce.Nothing  # noqa: B018  # the access is the test


def test_a_checkpoints_defaults_may_be_left_out(tmp_path: Path) -> None:
    fields = GENERATION | {"forced_eos_token_id": 2, "max_length": 9, "num_beams": 4, "repetition_penalty": 1.5}
    plain = load(text_folder(tmp_path / "plain", {**GENERATION, "max_length": 65}))
    folder = text_folder(tmp_path / "asking", fields)
    free = load(folder, generation_config="none")
    params = SamplingParams(ignore_eos=True)
    assert tokens(free.generate("hello", params)) == tokens(plain.generate("hello", params))
    assert len(tokens(free.generate("hello", params))[0]) == 64
    assert tokens(free.generate("hello")) == tokens(plain.generate("hello"))


def test_an_output_says_when_its_request_began(llm: LLM) -> None:
    (output,) = llm.generate("hello", SamplingParams(max_tokens=3))
    times = output.metrics
    seen: list[Any] = [times.arrival_time, times.first_scheduled_time, times.first_token_time, times.finished_time]
    assert None not in seen
    assert seen == sorted(seen)
