"""A headless Chromium, and the few gestures that the page's tests make."""

from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

from selenium.common.exceptions import TimeoutException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--force-color-profile=srgb",
    "--window-size=1280,940",
)
PATIENCE = 30  # seconds until a wait has failed; never a delay


@contextmanager
def chromium() -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = _program("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in FLAGS:
        options.add_argument(flag)
    driver = Chrome(options, Service(_program("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def _program(name: str) -> str:
    path = which(name)
    assert path, f"{name} is not installed: apt-get install chromium chromium-driver"
    return path


def complaints(driver: Chrome) -> list[str]:
    """What the console has held against the page's code since last asked: errors, breaches of its own policy."""
    lines = [str(entry["message"]) for entry in driver.get_log("browser")]  # type: ignore[no-untyped-call]
    return [line for line in lines if "Uncaught" in line or "Security Policy" in line]


class Page:
    """The page in a browser, spoken of by its elements' ids."""

    def __init__(self, driver: Chrome, address: str) -> None:
        self.driver = driver
        self.emulate()
        driver.get(address)

    def __call__(self, identity: str) -> WebElement:
        return self.driver.find_element(By.ID, identity)

    def text(self, identity: str) -> str:
        return self(identity).text

    def until(self, holds: Callable[[], object], message: str) -> None:
        try:
            WebDriverWait(self.driver, PATIENCE, 0.05).until(lambda _: holds())
        except TimeoutException:
            raise AssertionError(f"{message}:\n{self.driver.find_element(By.TAG_NAME, 'body').text}") from None

    def wait(self, identity: str, text: str) -> None:
        """Until the element shows this text, among other."""
        self.until(lambda: text in self.text(identity), f"#{identity} never showed {text!r}")

    def wait_enabled(self, identity: str) -> None:
        self.until(lambda: self(identity).is_enabled(), f"#{identity} stays off")

    def wait_shown(self, identity: str) -> None:
        self.until(lambda: self(identity).is_displayed(), f"#{identity} hides")

    def press(self, *keys: str) -> None:
        """Keys to whatever has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def chord(self) -> None:
        self.press(Keys.CONTROL + Keys.ENTER)

    @property
    def focus(self) -> str:
        """The focused element: its id, or its name and value, or its tag."""
        element = self.driver.switch_to.active_element
        value = element.get_attribute("id") or element.get_attribute("value") or element.tag_name
        assert value
        return value

    def emulate(self, scheme: str = "light", width: int = 0) -> None:
        """A colour scheme; the screen of a phone where a width is given."""
        screen = {"width": width, "height": 740 if width else 0, "deviceScaleFactor": 2 if width else 0}
        self._cdp("Emulation.setDeviceMetricsOverride", {**screen, "mobile": bool(width)})
        self._cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def style(self, selector: str, name: str) -> str:
        return self.driver.find_element(By.CSS_SELECTOR, selector).value_of_css_property(name)

    def script(self, code: str, *arguments: object) -> Any:
        return self.driver.execute_script(code, *arguments)

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        shot = self._cdp("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(b64decode(shot["data"]))

    def _cdp(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.driver.execute_cdp_cmd(command, arguments)
        return answer
