"""The page over WebRTC: chosen, heard and understood, stopped, remembered."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from support.asr import transcribe, word_errors
from support.page import DEMO, finished, heard, photograph, speak, until

pytestmark = pytest.mark.browser

WORD_ERRORS = 0.05
TEXT = (
    "The weather will be sunny in the afternoon. Please call the office early in the morning. "
    "The train to the city leaves from the last platform."
)


def choose(page: Page, transport: str) -> None:
    page.select_option("#transport", transport)
    wanted = "true" if transport == "webrtc" else "false"
    until(page, f"{DEMO}.connection.live !== null && !!{DEMO}.connection.live.call === {wanted}")
    expect(page.locator("#link")).to_have_attribute("data-state", "ready")


@pytest.mark.parametrize("transport", ["websocket", "webrtc"])
def test_what_the_page_received_is_understood(page: Page, transport: str) -> None:
    choose(page, transport)
    page.fill("#text", TEXT)
    page.click("#speak")
    heard(page)
    until(page, "document.querySelectorAll('#caption .said').length > 3")
    photograph(page, f"transport-{transport}")
    text = transcribe(finished(page), 24_000)
    errors, words = word_errors(TEXT, text)
    assert errors <= WORD_ERRORS * words, text
    expect(page.locator("#state")).to_have_text("Finished")
    assert page.locator("#caption .said").count() == words


def test_a_call_is_stopped_kept_and_left(page: Page) -> None:
    choose(page, "webrtc")
    page.fill("#text", "A long story about a lighthouse. " * 20)
    page.click("#speak")
    heard(page)
    page.click("#stop")
    assert page.evaluate(f"{DEMO}.connection.element.muted")
    expect(page.locator("#state")).to_have_text("Stopped")
    assert len(speak(page, "Still here.")) > 12_000
    page.reload()
    expect(page.locator("#transport")).to_have_value("webrtc")
    choose(page, "websocket")
    assert len(speak(page, "Back again.")) > 12_000


def test_a_server_without_calls_says_so(page: Page) -> None:
    closed = {"available": False, "ice_servers": []}
    page.route("**/v1/webrtc", lambda route: route.fulfill(json=closed))
    page.reload()
    expect(page.locator("#link")).to_have_attribute("data-state", "ready")
    expect(page.locator("#transport option:disabled")).to_have_text(
        "WebRTC: the server takes no calls"
    )
