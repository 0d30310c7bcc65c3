"""The page in a real Chromium against the real server with the real engine."""

from __future__ import annotations

import io
import shutil
import time
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from support.listening import REFERENCES, read_wav
from support.server_process import server_process

pytestmark = pytest.mark.browser

SCREENSHOTS = Path(__file__).parents[2] / "artifacts" / "screenshots"
WAIT_S = 20.0
MICROPHONE = REFERENCES / "flite_rms_male.wav"
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
REFUSED = "the server responded with a status of 4"
DEMO = "window.cosyvoiceDemo"


def chromium() -> str:
    """Path of the browser; `make test` installs it."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    raise RuntimeError("no Chromium: run tests/support/system-packages.sh")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_process(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    # The fake microphone plays the file in a loop; silence after it makes a natural pause.
    samples, rate = read_wav(MICROPHONE)
    padded = np.concatenate([samples, np.zeros(rate // 2, np.float32)])
    microphone = tmp_path_factory.mktemp("microphone") / "speech.wav"
    microphone.write_bytes(wav_bytes(padded, rate))
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
    # The browser itself logs every answer of 400 and more; those are for the page to explain.
    opened.on(
        "console",
        lambda m: problems.append(m.text) if m.type == "error" and REFUSED not in m.text else None,
    )
    opened.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((url, "blob:", "data:"))
            else problems.append(f"asked {request.url}")
        ),
    )
    opened.goto(url)
    expect(opened.locator("#link")).to_have_attribute("data-state", "ready")
    yield opened
    context.close()
    assert not problems


def wav_bytes(samples: np.ndarray, rate: int) -> bytes:
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return data.getvalue()


def until(page: Page, expression: str) -> None:
    """Wait for a JavaScript condition; the page's policy forbids Playwright's own evaluator."""
    end = time.monotonic() + WAIT_S
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(20)


def received(page: Page) -> np.ndarray:
    """Samples of the last utterance as the page got them."""
    values: list[float] = page.evaluate(f"Array.from({DEMO}.speech.received)")
    return np.array(values, np.float32)


def photograph(page: Page, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SCREENSHOTS / f"{name}.png"), full_page=True)


def speak(page: Page, text: str) -> np.ndarray:
    """Type, tap, and wait until the last sample has been played."""
    page.fill("#text", text)
    page.click("#speak")
    until(page, f"{DEMO}.speech.active")
    until(page, f"!{DEMO}.speech.active")
    return received(page)


def test_speaks_while_it_is_made(page: Page) -> None:
    photograph(page, "idle")
    page.fill("#text", "The morning train was late because of the heavy snow.")
    page.click("#speak")
    until(page, "document.getElementById('m-first').textContent !== '–'")
    assert page.evaluate(f"{DEMO}.speech.active"), "the first audio came after the end"
    photograph(page, "speaking")
    until(page, f"!{DEMO}.speech.active")
    samples = received(page)
    assert 2.0 < len(samples) / 24_000 < 6.0
    assert np.sqrt(np.mean(samples**2)) > 0.01
    assert 0 < float(page.inner_text("#m-first")) < 3000
    assert 0 < float(page.inner_text("#m-rtf")) < 1
    assert page.inner_text("#m-underruns") == "0"
    assert page.inner_text("#caption") == page.input_value("#text")


def test_words_light_up_as_they_are_heard(page: Page) -> None:
    page.fill("#text", "One boat, two boats, and **three** 🙂 boats.")
    page.click("#speak")
    lit: list[str] = []
    until(page, "document.querySelector('#caption .now') !== null")
    while page.evaluate(f"{DEMO}.speech.active"):
        word = page.evaluate("document.querySelector('#caption .now')?.textContent ?? ''")
        if word and (not lit or lit[-1] != word):
            lit.append(word)
        page.wait_for_timeout(15)
    expected = ["One", "boat", "two", "boats", "and", "three", "boats"]
    assert len(lit) >= 5
    positions = iter(expected)
    assert all(word in positions for word in lit), f"out of order: {lit}"
    assert page.locator("#caption .now").count() == 0


def test_stops_at_once(page: Page) -> None:
    page.fill("#text", "A long story about a lighthouse. " * 20)
    page.click("#speak")
    until(page, "document.getElementById('m-first').textContent !== '–'")
    page.click("#stop")
    assert not page.evaluate(f"{DEMO}.speech.active")
    count = len(received(page))
    page.wait_for_timeout(300)
    assert len(received(page)) == count, "audio came after the stop"
    assert len(speak(page, "Still here.")) > 12_000


def test_clones_from_the_microphone(page: Page) -> None:
    page.click("#record")
    expect(page.locator("#message")).to_contain_text("confirm")
    page.check("#consent")
    page.click("#record")
    until(page, "parseFloat(document.getElementById('ring-text').textContent) >= 3")
    photograph(page, "recording")
    page.click("#record")
    expect(page.locator("#hear")).to_be_visible()
    photograph(page, "report")
    assert page.locator("#report-items li").count() >= 6
    assert page.locator("#voices input:checked").get_attribute("value") != "heart"
    page.fill("#text", "Could you spell your last name for me?")
    page.click("#hear")
    until(page, f"{DEMO}.speech.active")
    until(page, f"!{DEMO}.speech.active")
    adapted = received(page)
    page.check("#voices input[value=heart]")
    plain = speak(page, "Could you spell your last name for me?")
    assert pitch(adapted) < 0.75 * pitch(plain), "a man's voice is deeper than the built-in one"
    page.locator("#voices button").first.click()
    expect(page.locator("#voices li")).to_have_count(1)


def pitch(samples: np.ndarray) -> float:
    from cosyvoice_stream.lite.pitch import track_pitch

    return float(np.median(track_pitch(samples, 24_000)))


def mp3_bytes(samples: np.ndarray, rate: int) -> bytes:
    data = io.BytesIO()
    with av.open(data, "w", format="mp3") as container:
        stream = container.add_stream("libmp3lame", rate=rate, layout="mono")
        integers = (samples * 32767).astype(np.int16)
        frame = av.AudioFrame.from_ndarray(integers[None], format="s16p", layout="mono")
        frame.sample_rate = rate
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)
    return data.getvalue()


@pytest.mark.parametrize("kind", ["wav", "mp3"])
def test_clones_from_a_file(page: Page, kind: str) -> None:
    samples, rate = read_wav(REFERENCES / "festival_ked_male.wav")
    data = wav_bytes(samples, rate) if kind == "wav" else mp3_bytes(samples, rate)
    page.check("#consent")
    page.set_input_files("#file", {"name": f"Ked.{kind}", "mimeType": "", "buffer": data})
    expect(page.locator("#hear")).to_be_visible()
    expect(page.locator("#voices .name", has_text="Ked")).to_be_visible()
    page.locator("#voices button").first.click()
    expect(page.locator("#voices li")).to_have_count(1)


def test_a_bad_recording_comes_with_advice(page: Page) -> None:
    page.check("#consent")
    short = wav_bytes(np.zeros(8000, np.float32), 16_000)
    page.set_input_files("#file", {"name": "short.wav", "mimeType": "", "buffer": short})
    expect(page.locator("#report-title")).to_have_text("This recording cannot be used")
    expect(page.locator("#report-items .fail .advice").first).not_to_be_empty()
    expect(page.locator("#hear")).to_be_hidden()
    text = {"name": "notes.wav", "mimeType": "", "buffer": b"no audio at all"}
    page.set_input_files("#file", text)
    expect(page.locator("#message")).to_be_visible()


def test_a_language_it_cannot_speak_is_said(page: Page) -> None:
    page.fill("#text", "你好，世界。")
    page.click("#speak")
    expect(page.locator("#message")).to_contain_text("cannot speak")
    expect(page.locator("#message small")).to_contain_text("cosyvoice")
    photograph(page, "error")
    page.click("#language")
    expect(page.locator("#message")).to_contain_text("不会说")
    assert len(speak(page, "English goes on.")) > 12_000


def test_text_without_words_is_said_gently(page: Page) -> None:
    page.fill("#text", "🙂 … !!!")
    page.click("#speak")
    expect(page.locator("#message.gentle")).to_be_visible()


def test_the_keyboard_is_enough(page: Page) -> None:
    page.focus("#text")
    page.keyboard.press("Control+A")
    page.keyboard.type(
        "Typed and spoken without a mouse, at some length, so that it can be stopped."
    )
    page.keyboard.press("Control+Enter")
    until(page, f"{DEMO}.speech.report.played > 0")
    page.keyboard.press("Escape")
    assert not page.evaluate(f"{DEMO}.speech.active")
    names = []
    page.focus("#text")
    for _ in range(14):
        page.keyboard.press("Tab")
        names.append(page.evaluate("document.activeElement.id || document.activeElement.name"))
    for wanted in ("speak", "voice", "consent", "record", "file"):
        assert wanted in names, f"Tab does not reach {wanted}: {names}"


def test_every_control_has_a_name(page: Page) -> None:
    nameless: list[str] = page.evaluate(
        """[...document.querySelectorAll("button, input, textarea, summary, canvas")]
           .filter(n => !n.textContent.trim() && !n.getAttribute("aria-label")
                        && !(n.labels && [...n.labels].some(l => l.textContent.trim())))
           .map(n => n.outerHTML)"""
    )
    assert nameless == []


def test_chinese_and_dark_are_remembered(page: Page) -> None:
    page.click("#language")
    page.click("#theme")
    expect(page.locator("#speak")).to_have_text("朗读")
    theme = page.evaluate("document.documentElement.dataset.theme")
    photograph(page, f"zh-{theme}")
    page.reload()
    expect(page.locator("#speak")).to_have_text("朗读")
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    assert page.evaluate("document.documentElement.dataset.theme") == theme


@pytest.mark.parametrize("width", [360, 768])
def test_nothing_hangs_over_on_a_small_screen(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 740})
    page.click(".options summary")
    photograph(page, f"width-{width}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_options_change_the_speech(page: Page) -> None:
    text = "We walked along the harbour."
    normal = speak(page, text)
    page.click(".options summary")
    set_range(page, "speed", 1.6)
    page.fill("#seed", "7")
    fast = speak(page, text)
    assert len(fast) < 0.85 * len(normal)
    assert np.array_equal(speak(page, text), fast), "the same seed gives the same samples"


def set_range(page: Page, name: str, value: float) -> None:
    page.evaluate(
        """([id, value]) => { const n = document.getElementById(id); n.value = value;
           n.dispatchEvent(new Event("input")); }""",
        [name, value],
    )


def test_a_download_is_a_wav_of_what_was_heard(page: Page) -> None:
    samples = speak(page, "Keep this.")
    with page.expect_download() as download:
        page.click("#download")
    with wave.open(str(download.value.path())) as file:
        assert (file.getframerate(), file.getnchannels()) == (24_000, 1)
        assert file.getnframes() == len(samples)


def test_the_page_comes_back_after_the_server_did(browser: Browser, tmp_path: Path) -> None:
    context: Any = browser.new_context()
    opened = context.new_page()
    with server_process(tmp_path) as first:
        port = first.rpartition(":")[2]
        opened.goto(first)
        expect(opened.locator("#link")).to_have_attribute("data-state", "ready")
    expect(opened.locator("#link")).to_have_attribute("data-state", "lost")
    with server_process(tmp_path, PORT=port):
        expect(opened.locator("#link")).to_have_attribute("data-state", "ready", timeout=20_000)
        assert len(speak(opened, "Back again.")) > 12_000
    context.close()
