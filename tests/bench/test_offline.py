"""transduce bench latency and throughput, on tiny checkpoints."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.conftest import Run
from tests.bench.support import clip
from tests.bench.test_serve import rows
from tests.folders import text_folder, whisper_folder
from transduce import LLM, cli
from transduce.bench.datasets import Text
from transduce.bench.offline import throughput
from transduce.errors import ConfigError

GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 16}
FLAGS = ("--dtype", "float32", "--max-num-seqs", "4")


@pytest.fixture(scope="module", autouse=True)
def small_cache() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSDUCE_CPU_KVCACHE_SPACE", "0.001")
        yield


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(text_folder(tmp_path_factory.mktemp("bart"), GENERATION))


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(whisper_folder(tmp_path_factory.mktemp("whisper"), seed=0))


@pytest.mark.parametrize("more", [(), ("--skip-tokenizer-init",)])
def test_throughput_counts_exactly(more: tuple[str, ...], run: Run, bart: str, tmp_path: Path) -> None:
    flags = ("--num-prompts", "6", "--input-len", "9", "--output-len", "5", "--json", str(tmp_path / "out.json"))
    code, said, err = run("throughput", bart, *flags, *FLAGS, *more)
    assert (code, err) == (0, "")
    table = rows(said)
    assert (table["completed requests"], table["output tokens"]) == (["6"], ["30"])
    assert table["prompt tokens"] == [str(6 * (9 + 1))]  # with the decoder's start
    document = json.loads((tmp_path / "out.json").read_text())
    assert (document["model"], document["figures"]["all at once"]["output_tokens"]) == (bart, 30)


def test_throughput_of_audio(run: Run, whisper: str, tmp_path: Path) -> None:
    clip(tmp_path / "a.wav", 0.5)
    flags = ("--dataset-name", "audio", "--dataset-path", str(tmp_path), "--num-prompts", "3")
    code, said, err = run("throughput", whisper, *flags, *FLAGS)
    assert (code, err) == (0, "")
    table = rows(said)
    assert table["completed requests"] == ["3"]
    assert int(table["prompt tokens"][0]) > 3 * 50  # with the rows that the encoder makes, as servers count
    assert "audio seconds/s" in table
    assert "E2E p99 (ms)" in rows(
        run("latency", whisper, *flags[:4], "--batch-size", "2", "--num-iters", "1", *FLAGS)[1]
    )


@pytest.mark.parametrize("command", ["throughput", "latency"])
def test_the_wrong_data_for_a_model(command: str, run: Run, bart: str, whisper: str, tmp_path: Path) -> None:
    code, _, err = run(command, whisper, *FLAGS)
    assert (code, "takes audio; give --dataset-name audio and a --dataset-path" in err) == (cli.WRONG, True)
    code, _, err = run(command, bart, "--dataset-name", "audio", "--dataset-path", str(tmp_path), *FLAGS)
    assert (code, "takes text; give --dataset-name random or jsonl" in err) == (cli.WRONG, True)


@pytest.mark.parametrize(
    "flags", [("--batch-size", "0"), ("--num-iters", "0"), ("--num-iters-warmup", "-1"), ("--seed", "-1")]
)
def test_numbers_that_are_refused(flags: tuple[str, str], run: Run) -> None:
    code, _, err = run("latency", "a-model", *flags)
    assert (code, f"'{flags[0]}'" in err) == (cli.WRONG, True)


def test_latency_is_of_batches(run: Run, bart: str, tmp_path: Path) -> None:
    flags = (
        "--batch-size",
        "3",
        "--num-iters",
        "4",
        "--num-iters-warmup",
        "1",
        "--input-len",
        "9",
        "--output-len",
        "5",
    )
    code, said, err = run("latency", bart, *flags, "--json", str(tmp_path / "out.json"), *FLAGS)
    assert (code, err) == (0, "")
    assert [*rows(said)] == ["", "E2E mean (ms)", "E2E median (ms)", "E2E p99 (ms)"]
    found = json.loads((tmp_path / "out.json").read_text())["figures"]["batch of 3"]
    assert (found["completed"], found["output_tokens"]) == (4, 4 * 3 * 5)


def test_prompts_that_fail_are_counted(run: Run, bart: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('"hello"\n{"prompt": "a cab", "max_tokens": 2}\n{"prompt": [99]}\n')
    code, said, err = run("throughput", bart, "--dataset-name", "jsonl", "--dataset-path", str(file), *FLAGS)
    assert (code, rows(said)["completed requests"]) == (cli.FAILED, ["2"])
    assert err.startswith("transduce: all at once: 1 of 3 requests failed: ")
    assert "99" in err


def test_fields_that_no_prompt_has(bart: str) -> None:
    llm = LLM(bart, dtype="float32")
    with pytest.raises(ConfigError, match="decoder_prompt: a prompt for LLM has no such field"):
        throughput(llm, [Text("a", {"decoder_prompt": "b"})])
