"""What a scheme costs in accuracy, on trained checkpoints, against the same engine in float32.

    python -m benchmarks.accuracy bart-g2p --words /usr/share/dict/words [--quantization int8] [--keep PATTERN ...]
    python -m benchmarks.accuracy whisper-tiny.en --sounds FOLDER --transcripts core-sounds-en.txt

Text models: how many of float32's tokens are the likeliest ones when the same tokens stand before them, and how many
whole answers are equal. Speech: the word error rate, on Debian's asterisk-core-sounds-en, whose clips lie in FOLDER by
the names in the transcripts. Words are from Debian's wamerican; other inputs are made here.
"""

import argparse
import gzip
import random
from collections.abc import Iterator, Sequence
from itertools import permutations, product
from pathlib import Path
from typing import Any

import jiwer
from transformers.models.whisper.english_normalizer import BasicTextNormalizer

import checkpoints
from transduce import LLM, SamplingParams

RINGS = ("c1ccc({})cc1", "c1ccc2c({})cccc2c1", "C1CCN({})CC1", "c1cc({})ccn1", "O=C({})c1ccccc1", "C1CCC({})CC1")
GROUPS = ("C", "CC", "OC", "C(F)(F)F", "Cl", "C(=O)O", "C(=O)NC", "CCO", "C(C)C", "Cc1ccccc1", "c1ccc(F)cc1", "CCN(C)C")
CHAINS = ("{}", "C{}", "CC(C){}", "O=C(N{})C", "CO{}", "N#CC{}")
ACTIONS = ("view", "edit", "bash", "grep", "create", "glob", "run_tests", "git_commit")
SUBJECTS: tuple[tuple[str, str, str], ...] = (
    ("login.tsx, session.ts", "useSession, LoginForm.submit", "The login form forgets the user's language."),
    ("archive.py, test_archive.py", "copy_invoices, ARCHIVE_ROOT", "The nightly job copies invoices twice."),
    ("config_parser.py", "ConfigParser.read, parse_section", "Parse errors should name the line they are on."),
    ("payment_client.go, retry.go", "Client.Send, maxRetries", "The retry loop sometimes sends an order twice."),
    ("resize.rs, upload.rs", "resize_image, Upload.start", "Images are resized before they are uploaded."),
    ("schema.sql, migrations.py", "add_column, user_accounts", "The migration has to keep the old column."),
    ("search.js, index.html", "renderResults, queryIndex", "Search results load slowly on the first page."),
    ("workflow.yml, Makefile", "build_wheel, run_lint", "CI fails because the wheel is not built."),
)
NOTES = (
    "Let me look at the code first.",
    "Now I will fix this.",
    "All tests pass now.",
    "I will add a test for it.",
    "",
)


def main() -> None:
    """Print one line for float32 in other clothes and one for the scheme."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=checkpoints.NAMES)
    parser.add_argument("--quantization", default="int8")
    parser.add_argument(
        "--keep", nargs="*", help="layers left in the model's dtype; by default those that the model's family names"
    )
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--kv-cache-dtype", default="auto", help="what keys and values are kept as beside it")
    parser.add_argument("--words", type=Path, default=Path("/usr/share/dict/words"))
    parser.add_argument("--sounds", type=Path)
    parser.add_argument("--transcripts", type=Path)
    parser.add_argument("--inputs", type=int, default=300)
    args = parser.parse_args()
    (speech if args.model.startswith("whisper") else text)(args)


def engine(args: argparse.Namespace, dtype: str, **options: Any) -> LLM:
    """The checkpoint in this process."""
    return LLM(checkpoints.path(args.model), dtype=dtype, kv_cache_bytes=1 << 28, **options)


def variants(args: argparse.Namespace) -> Iterator[tuple[str, LLM]]:
    """What is compared with float32: other dtypes, and the scheme in each dtype."""
    for dtype in args.dtypes:
        if dtype != "float32":
            yield dtype, engine(args, dtype)
        options: dict[str, Any] = {"quantization": args.quantization, "quantization_keep": args.keep}
        options["kv_cache_dtype"] = args.kv_cache_dtype
        yield f"{args.quantization}, {dtype}", engine(args, dtype, **options)


def text(args: argparse.Namespace) -> None:
    """Agreement of tokens and of answers."""
    sources, reference = inputs(args), engine(args, "float32")
    expected = answers(reference, sources)
    print(f"{args.model}: {len(sources)} inputs, {sum(map(len, expected))} tokens, keep {args.keep}")
    for name, llm in variants(args):
        forced = [token for tokens in forced_answers(llm, sources, expected) for token in tokens]
        tokens = agreement(forced, [token for row in expected for token in row])
        whole = agreement(answers(llm, sources), expected)
        print(f"  {name:20} tokens {tokens:7.2%}, whole answers {whole:7.2%}", flush=True)


def answers(llm: LLM, sources: Sequence[str]) -> list[list[int]]:
    """Greedy tokens."""
    outputs = llm.generate(list(sources), SamplingParams(temperature=0.0, max_tokens=40), use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


def forced_answers(llm: LLM, sources: Sequence[str], expected: Sequence[Sequence[int]]) -> list[list[int]]:
    """At each place of the expected answer the token that `llm` finds likeliest after what stands before it."""
    prompts = [
        {"encoder_prompt": source, "decoder_prompt": {"prompt_token_ids": [start(llm), *tokens[:place]]}}
        for source, tokens in zip(sources, expected, strict=True)
        for place in range(len(tokens))
    ]
    outputs = llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=1), use_tqdm=False)
    each = iter(output.outputs[0].token_ids[0] for output in outputs)
    return [[next(each) for _ in tokens] for tokens in expected]


def start(llm: LLM) -> int:
    """The decoder's first token."""
    first = llm.frontend.defaults.decoder_start_token_id
    assert first is not None
    return first


def agreement(given: Sequence[object], expected: Sequence[object]) -> float:
    """The share of equal ones."""
    return sum(a == b for a, b in zip(given, expected, strict=True)) / len(expected)


def inputs(args: argparse.Namespace) -> list[str]:
    """As many as are asked for, of the kind that the model was trained on, always the same ones."""
    if args.model == "bart-g2p":
        words = args.words.read_text(encoding="utf-8").split()
        every = sorted({word for word in words if word.isalpha() and word.isascii() and word.islower()})
    elif args.model == "annalog-marian":
        every = [chain.format(ring.format(group)) for chain, ring, group in product(CHAINS, RINGS, GROUPS)]
    else:
        every = [activity(*each) for each in product(permutations(ACTIONS, 2), SUBJECTS, NOTES)]
    return random.Random(0).sample(every, min(args.inputs, len(every)))


def activity(actions: tuple[str, ...], subject: tuple[str, str, str], note: str) -> str:
    """What an agent did, in the form that the titler learned."""
    files, symbols, matter = subject
    context = f"actions: {', '.join(actions)} | files: {files} | symbols: {symbols} | notes: {note} {matter}"
    return f"summarize agent step: {context}"


def speech(args: argparse.Namespace) -> None:
    """Word error rates."""
    said = transcripts(args)
    truth = [normal(words) for words in said.values()]
    print(f"{args.model}: {len(said)} clips, {sum(len(words.split()) for words in truth)} words, keep {args.keep}")
    for name, llm in [("float32", engine(args, "float32")), *variants(args)]:
        heard = llm.transcribe([str(clip) for clip in said], language="en", use_tqdm=False)
        wrong = jiwer.process_words(truth, [normal(each.text) for each in heard])
        print(f"  {name:20} word error rate {wrong.wer:7.2%}", flush=True)


def transcripts(args: argparse.Namespace) -> dict[Path, str]:
    """What is said in clips of three words or more; those of sounds have brackets."""
    opened = gzip.open if args.transcripts.suffix == ".gz" else open
    with opened(args.transcripts, "rt", encoding="utf-8") as file:
        pairs = [line.strip().split(": ", 1) for line in file if ": " in line and "[" not in line]
    named = {args.sounds / f"{name}.wav": words for name, words in pairs if len(words.split()) >= 3}
    there = sorted(clip for clip in named if clip.is_file())
    return {clip: named[clip] for clip in random.Random(0).sample(there, min(args.inputs, len(there)))}


def normal(words: str) -> str:
    """Lower case without punctuation."""
    return str(BasicTextNormalizer()(words)).strip()


if __name__ == "__main__":
    main()
