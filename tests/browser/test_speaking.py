"""The page speaks: sound as it is made, figures, words, stop, options, download."""

from __future__ import annotations

import json
import wave

import numpy as np
import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from support.page import DEMO, finished, heard, received, speak, until

pytestmark = pytest.mark.browser

LONG = "A long story about a lighthouse, told slowly. " * 12


def test_speaks_while_it_is_made(page: Page) -> None:
    page.fill("#text", "The morning train was late because of the heavy snow.")
    page.click("#speak")
    heard(page)
    assert page.evaluate(f"{DEMO}.speech.active"), "the first audio came after the end"
    expect(page.locator("#state")).to_have_text("Speaking")
    samples = finished(page)
    assert 2.0 < len(samples) / 24_000 < 6.0
    assert np.sqrt(np.mean(samples**2)) > 0.01
    first, in_server = (float(page.inner_text(id_)) for id_ in ("#m-first", "#m-server"))
    assert 0 < in_server <= first < 3000
    assert 0 < float(page.inner_text("#m-rtf")) < 1
    assert float(page.inner_text("#m-length")) == pytest.approx(len(samples) / 24_000, abs=0.01)
    assert page.inner_text("#m-underruns") == "0"
    assert page.evaluate(f"{DEMO}.speech.report.played") == len(samples)
    expect(page.locator("#state")).to_have_text("Finished")


def test_words_light_up_as_they_are_heard(page: Page) -> None:
    text = "One boat, two boats, and **three** 🙂 boats."
    page.fill("#text", text)
    page.click("#speak")
    lit: list[str] = []
    until(page, "document.querySelector('#caption .now') !== null")
    while page.evaluate(f"{DEMO}.speech.active"):
        word = page.evaluate("document.querySelector('#caption .now')?.textContent ?? ''")
        if word and (not lit or lit[-1] != word):
            lit.append(word)
        page.wait_for_timeout(15)
    assert len(lit) >= 5
    positions = iter(["One", "boat", "two", "boats", "and", "three", "boats"])
    assert all(word in positions for word in lit), f"out of order: {lit}"
    assert page.locator("#caption .now").count() == 0
    assert page.evaluate("document.getElementById('caption').textContent") == text


def test_stops_at_once(page: Page) -> None:
    page.fill("#text", LONG)
    page.click("#speak")
    heard(page)
    # On the clock of the sound, which a busy machine does not stretch.
    silent_after_s = page.evaluate(
        """() => new Promise((resolve) => {
          const { speech } = window.cosyvoiceDemo;
          const { context, node } = speech.player;
          const meter = new AnalyserNode(context, { fftSize: 128 });
          node.connect(meter);
          const block = new Float32Array(128);
          const loud = () => (meter.getFloatTimeDomainData(block), block.some((s) => s !== 0));
          const channel = new MessageChannel(); // timers are too coarse
          let stoppedAt = null;
          let lastLoud = null;
          channel.port1.onmessage = () => {
            const now = context.currentTime;
            if (stoppedAt === null && loud()) {
              document.getElementById("stop").click();
              stoppedAt = now;
            }
            if (stoppedAt !== null && loud()) lastLoud = now;
            if (stoppedAt !== null && now > stoppedAt + 0.5) resolve(lastLoud - stoppedAt);
            else channel.port2.postMessage(0);
          };
          channel.port2.postMessage(0);
        })"""
    )
    assert silent_after_s < 0.05
    expect(page.locator("#state")).to_have_text("Stopped")
    assert page.is_disabled("#stop")
    count = len(received(page))
    page.wait_for_timeout(300)
    assert len(received(page)) == count, "audio came after the stop"
    assert len(speak(page, "Still here.")) > 12_000


def test_a_second_tap_replaces_the_first_utterance(page: Page) -> None:
    page.fill("#text", LONG)
    page.evaluate("() => { for (let i = 0; i < 3; i++) document.getElementById('speak').click(); }")
    heard(page)
    page.fill("#text", "Only this.")
    page.click("#speak")
    samples = finished(page)
    assert len(samples) < 3 * 24_000
    assert page.evaluate(f"{DEMO}.speech.report.played") == len(samples)
    assert page.evaluate("document.getElementById('caption').textContent") == "Only this."


def test_stop_before_the_first_sound(page: Page) -> None:
    page.fill("#text", LONG)
    page.evaluate(
        "() => { for (const id of ['speak', 'stop']) document.getElementById(id).click(); }"
    )
    assert not page.evaluate(f"{DEMO}.speech.active")
    page.wait_for_timeout(500)
    assert len(received(page)) == 0
    expect(page.locator("#state")).to_have_text("Stopped")


def test_options_change_the_speech(page: Page) -> None:
    text = "We walked along the harbour."
    normal = speak(page, text)
    page.click(".options summary")
    page.focus("#speed")
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#speed-row .figure")).to_have_text("1.60 ×")
    page.fill("#seed", "7")
    fast = speak(page, text)
    assert len(fast) < 0.85 * len(normal)
    assert np.array_equal(speak(page, text), fast), "the same seed gives the same samples"
    page.fill("#seed", "1.5")
    page.click("#speak")
    expect(page.locator("#message")).to_contain_text("whole number")
    page.click("#reset")
    assert len(speak(page, text)) > 0.9 * len(normal)


def test_a_download_is_a_wav_of_what_was_heard(page: Page) -> None:
    samples = speak(page, "Keep this.")
    with page.expect_download() as download:
        page.click("#download")
    with wave.open(str(download.value.path())) as file:
        assert (file.getframerate(), file.getnchannels()) == (24_000, 1)
        kept = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert np.array_equal(kept, np.round(samples * 32768))


def test_a_language_it_cannot_speak_is_said(page: Page) -> None:
    page.fill("#text", "你好，世界。")
    page.click("#speak")
    expect(page.locator("#message")).to_contain_text("cannot speak")
    expect(page.locator("#message small")).to_contain_text("cosyvoice")
    page.click("#language")
    expect(page.locator("#message")).to_contain_text("不会说")
    assert len(speak(page, "English goes on.")) > 12_000
    expect(page.locator("#message")).to_be_hidden()


@pytest.mark.parametrize("text", ["🙂 … !!!", "  \n "])
def test_text_without_words_is_said_gently(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.click("#speak")
    expect(page.locator("#message.gentle")).to_be_visible()


def test_a_long_text_with_rare_characters_arrives_whole(page: Page) -> None:
    # Messages of the client hold 16384 units; an emoji of two stands across the first border.
    page.fill("#text", "Go " + "🙂" * 9000 + " on from here.")
    page.click("#speak")
    finished(page)
    marked = page.evaluate(f"{DEMO}.speech.caption.words.map((word) => word.node.textContent)")
    assert marked == ["Go", "on", "from", "here"]


def test_waits_for_a_busy_engine(page: Page) -> None:
    refused: list[str] = []

    def between(browser_side: WebSocketRoute) -> None:
        server = browser_side.connect_to_server()

        def pass_on(message: str | bytes) -> None:
            event = json.loads(message) if isinstance(message, str) else {}
            if event.get("type") == "utterance.start" and len(refused) < 2:
                refused.append(event["id"])
                error = {"type": "error", "id": event["id"], "code": "busy", "message": "no room"}
                browser_side.send(json.dumps({**error, "retry_after_ms": 100}))
            elif event.get("id") not in refused:
                server.send(message)

        browser_side.on_message(pass_on)

    page.route_web_socket("**/v1/stream", between)
    page.reload()
    expect(page.locator("#link")).to_have_attribute("data-state", "ready")
    assert len(speak(page, "At last.")) > 12_000
    assert len(refused) == 2
