from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from PIL import Image
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.server.browser import PATIENCE, Page, chromium, complaints
from tests.server.canned import Canned, app, serving
from tests.server.live import tone
from transduce.server.page import FILES

GAUGES = {
    "num_requests_running": 3,
    "num_requests_waiting": 2,
    'kv_cache_usage_perc{kind="self"}': 0.25,
    'kv_cache_usage_perc{kind="cross"}': 0.5,
    "encoder_cache_hits_total": 3,
    "encoder_cache_queries_total": 4,
    "generation_tokens_total": 100,
}

VERBOSE = '{"language": "de", "segments": [], "words": [{"word": " Der", "start": 0, "end": 62.5}]}'

GIVEN = (
    ("document.getElementById('images')", "DragEvent('drop'", "dataTransfer"),
    ("document", "ClipboardEvent('paste'", "clipboardData"),
)
"""Where files come from besides the file picker: a target, an event that is to be completed, and its field for them."""

Open = Callable[[Canned], Page]


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def opened(driver: Chrome) -> Iterator[Open]:
    """Opens the page of a server that answers as told; in the end the page's code has not failed."""
    with ExitStack() as stack:

        def open_page(canned: Canned) -> Page:
            return Page(driver, stack.enter_context(serving(app(canned))))

        yield open_page
        assert complaints(driver) == []
        driver.get("about:blank")


def test_a_text_is_answered_by_keyboard_alone(opened: Open, tmp_path: Path) -> None:
    canned = Canned()
    page = opened(canned)
    page.wait("tasks", "Text to text")
    page.picture(tmp_path / "empty.png")
    page("text").send_keys("The whale sings.")
    page.chord()
    page.wait("outcome", "4 tokens in, 3 out")
    assert page.text("answer") == "Der Wal singt."
    assert "token limit reached" in page.text("outcome")
    assert canned.received == [
        {"model": "tiny", "prompt": "The whale sings.", "stream": True, "stream_options": {"include_usage": True}}
    ]
    page.picture(tmp_path / "light.png")


def test_tab_goes_from_task_to_source_to_run_to_answer(opened: Open) -> None:
    page = opened(Canned())
    page.wait("tasks", "Text to text")
    page("text").send_keys("a")
    page.press(Keys.SHIFT + Keys.TAB)
    visited = [page.focus]
    while visited[-1] != "answer":
        page.press(Keys.TAB)
        visited.append(page.focus)
        assert page.style(":focus-visible", "outline-style") == "solid" or visited[-1] in {"text", "answer"}
    assert visited == ["clear", "text", "summary", "run", "answer"]


def test_settings_travel_and_empty_ones_do_not(opened: Open) -> None:
    canned = Canned()
    page = opened(canned)
    page.wait("tasks", "Text to text")
    page("text").send_keys("a", Keys.TAB, Keys.ENTER)
    page.press(Keys.TAB)
    page.press("12", Keys.TAB)
    page.press("0.5", Keys.TAB)
    page.press("Der", Keys.CONTROL + Keys.ENTER)
    page.wait("outcome", "tokens")
    sent = canned.received[0]
    assert (sent["max_tokens"], sent["temperature"], sent["decoder_prompt"]) == (12, 0.5, "Der")


def test_a_stream_shows_as_it_comes_and_escape_leaves_it(opened: Open, tmp_path: Path) -> None:
    canned = Canned(pause=2)
    page = opened(canned)
    page.wait("tasks", "Text to text")
    page("text").send_keys("a")
    page.chord()
    page.wait("answer", "Der Wal")
    assert page.text("run") == "Stop"
    assert page("answer").get_attribute("aria-busy") == "true"
    page.picture(tmp_path / "streaming.png")
    page.press(Keys.ESCAPE)
    page.wait("outcome", "Stopped after")
    assert canned.left.wait(PATIENCE), "the server was not told"
    assert (page.text("run"), page("answer").get_attribute("aria-busy")) == ("Run", "false")


def test_the_run_button_stops_and_keeps_the_focus(opened: Open) -> None:
    canned = Canned(pause=1)
    page = opened(canned)
    page.wait("tasks", "Text to text")
    page("text").send_keys("a", Keys.TAB, Keys.TAB)
    page.press(Keys.ENTER)
    page.wait("answer", "Der")
    page.press(Keys.ENTER)
    page.wait("outcome", "Stopped after")
    assert page.focus == "run"


def test_a_stream_goes_on_after_a_pause(opened: Open) -> None:
    canned = Canned(pause=1)
    page = opened(canned)
    page.wait("tasks", "Text to text")
    page("text").send_keys("a")
    page.chord()
    page.wait("answer", "Der")
    canned.release()
    page.wait("outcome", "tokens in, 3 out")
    assert page.text("answer") == "Der Wal singt."


def test_an_answer_can_be_copied(opened: Open) -> None:
    page = opened(Canned())
    page.wait("tasks", "Text to text")
    page("text").send_keys("a")
    page.chord()
    page.wait("outcome", "tokens")
    page("copy").send_keys(Keys.ENTER)
    page.wait("outcome", "Copied")
    page("text").clear()
    page("text").send_keys(Keys.CONTROL + "v")
    assert page("text").get_attribute("value") == "Der Wal singt."


def test_a_refusal_is_shown_in_words(opened: Open, tmp_path: Path) -> None:
    page = opened(Canned(refusal=(400, "temperature must be at most 2, not 7", {})))
    page.wait("tasks", "Text to text")
    page("text").send_keys("a")
    page.chord()
    page.wait("error", "The server refused this request\ntemperature must be at most 2, not 7")
    assert page("error").get_attribute("role") == "alert"
    page.picture(tmp_path / "error.png")


def test_a_busy_server_says_when_to_come_back(opened: Open) -> None:
    page = opened(Canned(refusal=(429, "128 requests are waiting.", {"Retry-After": "2"})))
    page.wait("tasks", "Text to text")
    page("text").send_keys("a")
    page.chord()
    page.wait("error", "The server is busy\n128 requests are waiting. Try again in 2 s.")


def test_a_model_that_loads_is_waited_for(opened: Open) -> None:
    canned = Canned(loading=True)
    page = opened(canned)
    page.wait("error", "The server is not ready\nThe model is loading.")
    canned.loading = False
    page.wait("tasks", "Text to text")
    assert not page("error").is_displayed()


def test_an_error_within_a_stream_is_shown_below_what_came(opened: Open) -> None:
    page = opened(Canned(broken=True))
    page.wait("tasks", "Text to text")
    page("text").send_keys("a")
    page.chord()
    page.wait("error", "The answer broke off\nThe engine process ended.")
    assert page.text("answer") == "Der Wal singt."


def test_a_key_is_asked_for_once_and_kept(opened: Open, tmp_path: Path) -> None:
    page = opened(Canned(key="sesame"))
    page.wait_shown("key")
    assert page.focus == "key-value"
    page.picture(tmp_path / "key.png")
    page.press("wrong", Keys.ENTER)
    page.wait("key-hint", "did not accept")
    page("key-value").clear()
    page("key-value").send_keys("sesame", Keys.ENTER)
    page.wait("tasks", "Text to text")
    assert not page("key").is_displayed()
    page.driver.refresh()
    page.wait("tasks", "Text to text")
    assert page.script("return localStorage.length") == 0


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "clip.wav"
    path.write_bytes(tone(900, 0.5))
    return path


def test_a_chosen_file_is_transcribed(opened: Open, clip: Path, tmp_path: Path) -> None:
    canned = Canned(tasks=("transcribe", "translate"))
    page = opened(canned)
    page.wait("tasks", "Transcribe")
    assert not page("run").is_enabled()
    page.picture(tmp_path / "audio.png")
    page("file").send_keys(str(clip))
    page.wait("clip", "clip.wav")
    page.picture(tmp_path / "clip.png")
    page.chord()
    page.wait("outcome", "tokens in, 3 out")
    assert page.text("answer") == "Der Wal singt."
    assert canned.received == [
        {"route": "transcriptions", "seconds": 0.5, "name": "clip.wav", "model": "tiny", "stream": "true"}
    ]


def test_arrow_keys_choose_the_task(opened: Open, clip: Path) -> None:
    canned = Canned(tasks=("transcribe", "translate"))
    page = opened(canned)
    page.wait("tasks", "Translate to English")
    page("file").send_keys(str(clip))
    page.driver.find_element(By.CSS_SELECTOR, "#tasks input").send_keys(Keys.ARROW_RIGHT)
    assert page.focus == "translate"
    page.chord()
    page.wait("outcome", "tokens")
    assert canned.received[0]["route"] == "translations"


def test_a_recording_is_sent_as_the_browser_made_it(opened: Open, tmp_path: Path) -> None:
    canned = Canned(tasks=("transcribe",))
    page = opened(canned)
    page.wait("tasks", "Transcribe")
    page("record").send_keys(Keys.ENTER)
    page.wait("clock", "0:01")
    page.picture(tmp_path / "recording.png")
    assert page.focus == "done"
    page.press(Keys.ENTER)
    page.wait("clip", "recording.")
    page.wait_enabled("run")
    assert page.focus == "run"
    page.wait("outcome", "Live")
    page.press(Keys.ENTER)
    page.wait("outcome", "tokens")
    assert canned.received[-1]["seconds"] > 0.5


def test_what_is_said_is_shown_while_it_is(opened: Open, tmp_path: Path) -> None:
    canned = Canned(tasks=("transcribe",))
    page = opened(canned)
    page.wait("tasks", "Transcribe")
    page("record").send_keys(Keys.ENTER)
    page.wait("answer", "Der Wal sinkt")
    assert page.style("#answer .guess", "color") != page.style("#answer", "color")
    page.picture(tmp_path / "live.png")
    page.press(Keys.ENTER)
    page.wait("outcome", "Live")
    assert page.text("answer") == "Der Wal singt."
    asked, committed = canned.received
    heard = asked["session"]["audio"]["input"]
    assert heard["transcription"] == {"model": "tiny", "language": None, "prompt": None}
    assert committed["type"] == "input_audio_buffer.commit"
    assert committed["samples"] >= heard["format"]["rate"] / 10


@pytest.mark.parametrize(
    ("form", "words", "written", "shown", "name"),
    [
        ("SubRip (srt)", False, Canned.written, Canned.written.strip(), "clip.srt"),
        ("Times of segments", True, VERBOSE, "Language: de\n0:00.00 – 1:02.50  Der", "clip.json"),
    ],
)
def test_a_transcript_with_times_is_shown_and_can_be_kept(
    opened: Open, clip: Path, form: str, words: bool, written: str, shown: str, name: str
) -> None:
    canned = Canned(tasks=("transcribe",), written=written)
    page = opened(canned)
    page.wait("tasks", "Transcribe")
    page("file").send_keys(str(clip))
    page.driver.find_element(By.CSS_SELECTOR, "summary").click()
    page.driver.find_element(By.XPATH, f"//option[.='{form}']").click()
    if words:
        page.driver.find_element(By.NAME, "words").click()
    page.chord()
    page.wait_shown("download")
    assert page.text("answer") == shown
    page.script(
        "addEventListener('click', (event) => {if (event.target.download) window.kept = event.target}, true);"
        "const create = document.createElement;"
        "document.createElement = function (...of) {const made = create.apply(this, of); "
        "if (of[0] === 'a') {made.hidden = true; document.body.append(made)} return made};"
    )
    page("download").click()
    assert page.script("return window.kept.download") == name
    assert canned.received[0]["response_format"] == ("verbose_json" if words else "srt")
    assert "stream" not in canned.received[0]


def test_a_dropped_file_is_taken(opened: Open) -> None:
    page = opened(Canned(tasks=("transcribe",)))
    page.wait("tasks", "Transcribe")
    page.script(
        "const data = new DataTransfer(); data.items.add(new File(['x'], 'dropped.flac'));"
        "document.getElementById('audio').dispatchEvent(new DragEvent('drop', {dataTransfer: data, cancelable: true}))"
    )
    page.wait("clip", "dropped.flac")
    page("clear").click()
    page.wait_shown("record")
    assert not page("run").is_enabled()


def pictures(page: Page) -> int:
    return len(page.driver.find_elements(By.CSS_SELECTOR, "#pictures img"))


def test_images_are_chosen_dropped_and_pasted_beside_text(opened: Open, tmp_path: Path) -> None:
    canned = Canned(modalities=("text", "image"))
    page = opened(canned)
    page.wait("tasks", "Images and text to text")
    assert not page("run").is_enabled()
    file = tmp_path / "one.png"
    Image.new("RGB", (40, 20), "green").save(file)
    page("image-file").send_keys(str(file))
    page.until(lambda: pictures(page) == 1, "no image came")
    for target, event, field in GIVEN:
        page.script(
            "const data = new DataTransfer(); data.items.add(new File(['x'], 'x.gif', {type: 'image/gif'}));"
            f"{target}.dispatchEvent(new {event}, {{{field}: data, bubbles: true, cancelable: true}}))"
        )
    page.until(lambda: pictures(page) == 3, "no image came")
    page("text").send_keys("who?")
    page.picture(tmp_path / "images.png")
    page.chord()
    page.wait("outcome", "4 tokens in, 3 out")
    (message,) = canned.received[0]["messages"]
    *seen, text = message["content"]
    assert (text, page.text("answer")) == ({"type": "text", "text": "who?"}, "Der Wal singt.")
    urls = [part["image_url"]["url"] for part in seen]
    assert urls == [
        f"data:image/png;base64,{b64encode(file.read_bytes()).decode()}",
        *["data:image/gif;base64,eA=="] * 2,
    ]
    page("clear").click()
    assert pictures(page) == 0
    assert not page("run").is_enabled()


def test_gauges_read_the_metrics(opened: Open, tmp_path: Path) -> None:
    canned = Canned(gauges=dict(GAUGES))
    page = opened(canned)
    page.wait("gauges", "25 %")
    values = [item.text.split("\n") for item in page.driver.find_elements(By.CSS_SELECTOR, "#gauges > div")]
    assert values == [
        ["Running", "3"],
        ["Waiting", "2"],
        ["Tokens per second", "0"],
        ["Self KV in use", "25 %"],
        ["Cross KV in use", "50 %"],
        ["Encoder cache hits", "75 %"],
    ]
    canned.growth = 1000
    rate = page.driver.find_elements(By.CSS_SELECTOR, "#gauges > div")[2]
    page.until(lambda: rate.text.split("\n")[1] != "0", "no rate was shown")
    page.picture(tmp_path / "gauges.png")


def test_dark_follows_the_system(opened: Open, tmp_path: Path) -> None:
    page = opened(Canned(gauges=dict(GAUGES)))
    page.wait("tasks", "Text to text")
    page.wait("gauges", "25 %")
    light = page.style("body", "background-color")
    page.emulate("dark")
    assert page.style("body", "background-color") != light
    page("text").send_keys("The whale sings.")
    page.chord()
    page.wait("outcome", "tokens")
    page.picture(tmp_path / "dark.png")


@pytest.mark.parametrize("task", ["generate", "transcribe"])
def test_nothing_is_wider_than_a_phone(opened: Open, tmp_path: Path, task: str) -> None:
    name = "/models/a-folder-of-some-organisation/a-model-of-a-long-name"
    page = opened(Canned(name, tasks=(task,), gauges=dict(GAUGES), refusal=(400, "x" * 200, {})))
    page.emulate(width=360)
    page.wait("gauges", "25 %")
    page.driver.find_element(By.CSS_SELECTOR, "summary").click()
    if task == "generate":
        page("text").send_keys("The whale sings. " * 20)
        page.chord()
        page.wait("error", "refused")
    assert page.script("return document.documentElement.scrollWidth") == 360
    page.picture(tmp_path / "phone.png")


def test_a_prefix_before_its_address_does_not_matter(driver: Chrome) -> None:
    outer = FastAPI()
    outer.mount("/some/prefix", app(Canned()))
    with serving(outer) as address:
        page = Page(driver, f"{address}/some/prefix/")
        page.wait("tasks", "Text to text")
        page.wait("link", "Connected")


def test_a_lost_server_is_told(driver: Chrome) -> None:
    with serving(app(Canned())) as address:
        page = Page(driver, address)
        page.wait("tasks", "Text to text")
        page.wait("link", "Connected")
    page.wait("link", "Unreachable")
    page("text").send_keys("a")
    page.chord()
    page.wait("error", "The server cannot be reached")


def test_every_control_has_a_name(opened: Open) -> None:
    page = opened(Canned(tasks=("generate", "transcribe")))
    page.wait("tasks", "Transcribe")
    controls = page.driver.find_elements(By.CSS_SELECTOR, "button, input, select, textarea, summary, audio")
    shown = [control for control in controls if control.is_displayed() or control.get_attribute("type") == "radio"]
    assert len(shown) == 6
    assert [control.get_attribute("outerHTML") for control in shown if not control.accessible_name] == []


def test_files_are_cached_by_digest_and_held_to_a_policy() -> None:
    with serving(app(Canned())) as address, httpx.Client(base_url=address) as client:
        for path, _, media_type in FILES:
            answer = client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            assert client.head(path).headers["content-length"] == str(len(answer.content))
