"""One real server and one real Chromium for all tests of the page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from support.listening import REFERENCES, read_wav
from support.page import wav_bytes
from support.server_process import server_process

MICROPHONE = REFERENCES / "festival_ked_male.wav"
LEAD_IN_S = 0.6
PAUSE_S = 2.5
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
REFUSED = re.compile(r"the server responded with a status of (4|503)")


def chromium() -> str:
    """Path of the browser; `make test` installs it."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    raise RuntimeError("no Chromium: run tests/support/system-packages.sh")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server with the embedded engine."""
    with server_process(tmp_path_factory.mktemp("server")) as address:
        yield address


# For a module and no longer: Playwright keeps an event loop running in this thread, beside which no
# other test could run its own.
@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser whose microphone is a man who says a sentence and pauses, over and over."""
    samples, rate = read_wav(MICROPHONE)
    quiet = np.random.default_rng(0).normal(0, 1e-4, int((LEAD_IN_S + PAUSE_S) * rate))
    lead_in, pause = np.split(quiet.astype(np.float32), [int(LEAD_IN_S * rate)])
    microphone = tmp_path_factory.mktemp("microphone") / "speech.wav"
    microphone.write_bytes(wav_bytes(np.concatenate([lead_in, samples, pause]), rate))
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=chromium(),
            args=[*ARGUMENTS, f"--use-file-for-fake-audio-capture={microphone}"],
        )
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """A ready page; an error in the console or a request to another host fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    own = (url, url.replace("http", "ws"), "blob:", "data:")

    def on_console(message: ConsoleMessage) -> None:
        # The browser itself logs answers of 400 and more; those are for the page to explain.
        if message.type == "error" and not REFUSED.search(message.text):
            problems.append(message.text)

    def on_request(address: str) -> None:
        if not address.startswith(own):
            problems.append(f"asked {address}")

    opened.on("console", on_console)
    opened.on("request", lambda request: on_request(request.url))
    opened.on("websocket", lambda socket: on_request(socket.url))
    opened.goto(url)
    expect(opened.locator("#link")).to_have_attribute("data-state", "ready")
    yield opened
    for voice in opened.request.get(f"{url}/v1/voices").json()["voices"]:
        if voice["kind"] != "builtin":
            opened.request.delete(f"{url}/v1/voices/{voice['id']}")
    context.close()
    assert not problems
