"""transduce ocr: pages in their order, those that fail, files of results and what a second run does."""

import json
from collections.abc import Iterator
from pathlib import Path
from weakref import ref

import pytest

from tests import test_vision_encoder_decoder as readers
from tests.cli.conftest import FLAGS, Run
from tests.media.test_image import filled, pdf, tiff
from tests.offline import load
from transduce import LLM, RequestError, SamplingParams, cli
from transduce.frontend import documents
from transduce.frontend.documents import Page
from transduce.media import image
from transduce.media.image import Picture, pages

PROMPT, TOKENS = "<s_task>", 9
SHORT = ("--prompt", PROMPT, "--max-tokens", str(TOKENS), *FLAGS)


@pytest.fixture(scope="module")
def donut(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(readers.folder("Donut", tmp_path_factory.mktemp("donut")))


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """A folder: a TIFF of two pages, an image, and a PDF of three pages whose second one is too large."""
    folder = tmp_path / "scans"
    (folder / "old").mkdir(parents=True)
    (folder / "old" / "two.tif").write_bytes(tiff(readers.picture(30, 20), readers.picture(31, 40)))
    readers.picture(50, 32).save(folder / "one.png")
    (folder / "paper.pdf").write_bytes(
        pdf(filled(b"1 0 0"), filled(b"0 1 0", 14_000, 14_000), filled(b"0 0 1", 36, 72))
    )
    (folder / "notes.txt").write_text("no image")
    return folder


def alone(llm: LLM, picture: object) -> tuple[str, object]:
    """What generate() makes of a page."""
    asked = {"prompt": PROMPT, "multi_modal_data": {"image": picture}}
    (output,) = llm.generate(asked, SamplingParams(max_tokens=TOKENS))
    answer = output.outputs[0]
    return answer.text, llm.frontend.processor.parsed(output.prompt_token_ids, answer.token_ids, None, None)


def test_pages_are_read_in_order_and_one_fails_alone(run: Run, donut: str, scans: Path) -> None:
    code, out, err = run("ocr", donut, str(scans), "none.gif", "--json", "--dpi", "50", *SHORT)
    records = [json.loads(line) for line in out.splitlines()]
    named = [("old/two.tif", 1), ("old/two.tif", 2), ("one.png", 1), *(("paper.pdf", number) for number in (1, 2, 3))]
    places = [(str(scans / name), number) for name, number in named]
    assert [(each["file"], each["page"]) for each in records] == [*places, ("none.gif", 1)]
    assert (code, [bool(each["error"]) for each in records]) == (cli.FAILED, [False] * 4 + [True, False, True])
    assert err.splitlines() == [
        f"transduce: '{scans}/paper.pdf': page 2: {records[4]['error']}",
        f"transduce: 'none.gif': {records[6]['error']}",
    ]
    assert "pixels" in records[4]["error"]
    drawn = [*pages(scans / "old" / "two.tif"), *pages(scans / "one.png"), *pages(scans / "paper.pdf", dpi=50)]
    llm = load(Path(donut))
    read = [(each["text"], each["parsed"]) for each in records]
    assert read == [alone(llm, page) if isinstance(page, Picture) else ("", None) for page in drawn] + [("", None)]
    assert len({text for text, _ in read}) >= 4


def test_files_are_written_and_a_second_run_goes_on(run: Run, donut: str, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("ocr", donut, str(scans), "none.gif", "--output-dir", str(out), *SHORT)
    code, said, err = run(*command)
    assert (code, said) == (cli.FAILED, f"{out}: 2 read, 2 failed\n")
    assert len(err.splitlines()) == 2
    names = {str(path.relative_to(out)) for path in out.rglob("*.*") if path.name != ".transduce.jsonl"}
    assert names == {f"{name}.{form}" for name in ("old/two", "one", "paper") for form in ("txt", "json")}
    records = json.loads((out / "paper.json").read_text())
    assert [(each["page"], bool(each["error"])) for each in records] == [(1, False), (2, True), (3, False)]
    texts = (out / "paper.txt").read_bytes().decode().removesuffix("\n").split("\n\f")
    assert texts == [each["text"] for each in records]

    (scans / "paper.pdf").write_bytes(pdf(filled(b"1 0 0")))
    assert run(*command[:3], *command[4:]) == (0, f"{out}: 1 read, 0 failed, 2 from an earlier run\n", "")
    assert len(json.loads((out / "paper.json").read_text())) == 1


def test_few_pages_are_held_at_once(donut: str, scans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a document is: pictures go when the model's input is made of them."""
    seen, held, ends = list[ref[object]](), list[int](), dict[int, int]()

    def done(place: int, found: list[Page]) -> None:
        ends[place] = len(found)

    def watched(document: image.Image, **options: int) -> Iterator[object]:
        for page in pages(document, **options):
            seen.append(ref(page))
            held.append(sum(each() is not None for each in seen))
            yield page

    monkeypatch.setattr(documents, "pages", watched)
    llm = load(Path(donut), max_num_seqs=3)
    long = tiff(*(readers.picture(20 + width, 20) for width in range(12)))
    found = llm.read([long, long], PROMPT, sampling_params=SamplingParams(max_tokens=TOKENS), done=done)
    assert [page.number for page in found[0]] == [*range(1, 13)]
    assert (found[0], ends) == (found[1], {0: 12, 1: 12})
    assert (len(held), max(held)) == (24, 2)  # the last one, and the one before that generators are about to drop


def test_text_that_is_made_of_markup_is_what_is_shown() -> None:
    read = cli.ocr.Read("a.pdf", [Page(1, "raw", "# Repaired"), Page(2, "fields", {"a": "b"}), Page(3, "", error="no")])
    assert read.rendered("txt") == "# Repaired\n\ffields\n\f\n"
    assert [*read.errors()] == ["page 3: no"]


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--format", "txt"), "give --output-dir too"),
        (("--output-dir", "out", "--format", "txt,srt"), "--format 'srt': give some of txt,json"),
        (("--dpi", "0"), "--dpi 0: give at least 1"),
        (("empty",), "'empty': there are no images and PDFs in this folder"),
    ],
)
def test_refusals(
    flags: tuple[str, ...], complaint: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    code, out, err = run("ocr", "./nowhere", "scan.png", *flags)
    assert (code, out) == (cli.WRONG, "")
    assert complaint in err


def test_models_that_see_nothing(run: Run, donut: str, bart: str) -> None:
    code, _, err = run("ocr", bart, "scan.png")
    assert (code, "takes text; use transduce generate" in err) == (cli.WRONG, True)
    assert "takes image; use transduce ocr" in run("generate", donut, "a text")[2]
    with pytest.raises(RequestError, match="this model takes text, and documents are images"):
        load(Path(bart)).read("scan.png")
