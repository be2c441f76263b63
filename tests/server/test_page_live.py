"""The page before real servers and engines, of tiny random models."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.server.browser import Page, chromium, complaints
from tests.server.live import MODEL, Live, tone

ANSWER = "return document.getElementById('answer').textContent"


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    with chromium() as driver:
        yield driver


def test_text(driver: Chrome, text: Live) -> None:
    page = Page(driver, str(text.http.base_url))
    page.wait("tasks", "Text to text")
    page("text").send_keys("abc dc", Keys.CONTROL + Keys.ENTER)
    page.wait("outcome", "first after")
    answer = text.http.post("/v1/completions", json={"model": MODEL, "prompt": "abc dc"}).json()
    assert page.script(ANSWER) == answer["choices"][0]["text"] != ""
    counts = "{prompt_tokens} tokens in, {completion_tokens} out".format(**answer["usage"])
    assert counts in page.text("outcome")
    hits = page.driver.find_elements(By.CSS_SELECTOR, "#gauges > div")[-1]
    page.until(lambda: "\n0 %" not in hits.text, "the gauge does not show that the second source was known")
    assert complaints(driver) == []


def test_speech(driver: Chrome, speech: Live, tmp_path: Path) -> None:
    clip = tmp_path / "clip.wav"
    clip.write_bytes(tone(900))
    page = Page(driver, str(speech.http.base_url))
    page.wait("tasks", "Transcribe\nTranslate to English")
    assert "Text to text" not in page.text("tasks")
    page("file").send_keys(str(clip))
    page.wait("clip", "clip.wav")
    page.press(Keys.ENTER)
    page.wait("outcome", "first after")
    with speech.openai.audio.transcriptions.create(model=MODEL, file=clip, stream=True) as events:
        *_, done = events
    assert done.type == "transcript.text.done"
    assert page.script(ANSWER) == done.text != ""
    assert complaints(driver) == []
