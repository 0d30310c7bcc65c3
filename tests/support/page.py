"""The page from outside: waiting, speaking, what it received, photographs, recordings."""

from __future__ import annotations

import io
import time
import wave
from pathlib import Path
from typing import cast

import av
import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Page

DEMO = "window.cosyvoiceDemo"
SCREENSHOTS = Path(__file__).parents[2] / "artifacts" / "screenshots"
WAIT_S = 20.0


def until(page: Page, expression: str, wait_s: float = WAIT_S) -> None:
    """Wait for a JavaScript condition; the page's policy forbids Playwright's own evaluator."""
    end = time.monotonic() + wait_s
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(20)


def heard(page: Page) -> None:
    """Wait for the first sound of the utterance."""
    until(page, f"{DEMO}.speech.firstAudioMs !== null")


def finished(page: Page) -> NDArray[np.float32]:
    """Wait until the last sample has been played; return all samples as the page got them."""
    until(page, f"!{DEMO}.speech.active")
    return received(page)


def speak(page: Page, text: str) -> NDArray[np.float32]:
    """Type, tap, and wait until the last sample has been played."""
    page.fill("#text", text)
    page.click("#speak")
    return finished(page)


def received(page: Page) -> NDArray[np.float32]:
    """Samples of the last utterance as the page got them."""
    values: list[float] = page.evaluate(f"Array.from({DEMO}.speech.received)")
    return np.array(values, np.float32)


def photograph(page: Page, name: str) -> None:
    """Keep a picture of the whole page for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SCREENSHOTS / f"{name}.png"), full_page=True)


def wav_bytes(samples: NDArray[np.float32], rate: int) -> bytes:
    """A 16-bit mono WAV file."""
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return data.getvalue()


def encoded_bytes(samples: NDArray[np.float32], rate: int, container: str, codec: str) -> bytes:
    """The samples in a compressed file, mono at 48 kHz."""
    data = io.BytesIO()
    frame = av.AudioFrame.from_ndarray(
        (samples * 32767).astype(np.int16)[None], format="s16", layout="mono"
    )
    frame.sample_rate = rate
    with av.open(data, "w", format=container) as file:
        stream = cast(av.AudioStream, file.add_stream(codec, rate=48_000, layout="mono"))
        for piece in [frame, None]:
            for packet in stream.encode(piece):
                file.mux(packet)
    return data.getvalue()
