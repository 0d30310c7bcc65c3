"""The client over WebRTC in a browser: speech is recognised, a call ends, refusals are told."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Page

from support.asr import transcribe, word_errors
from support.page import until

pytestmark = pytest.mark.browser

RATE_HZ = 48_000
WORD_ERRORS = 0.05
TEXT = (
    "The weather will be sunny in the afternoon. Please call the office early in the morning. "
    "The train to the city leaves from the last platform."
)
OPEN = """async () => {
  const { openCall } = await import("/call.js");
  const element = new Audio();
  const session = await openCall("/v1/webrtc/offer", { element });
  const context = new AudioContext({ sampleRate: 48000 });
  const tap = context.createScriptProcessor(4096, 1, 1);
  const test = (window.callTest = { session, element, context, tap, pieces: [], closed: false });
  session.on("close", () => (test.closed = true));
  tap.onaudioprocess = ({ inputBuffer }) => test.pieces.push(inputBuffer.getChannelData(0).slice());
  context.createMediaStreamSource(session.call.stream).connect(tap);
  tap.connect(context.destination);
}"""
SPEAK = """async (text) => {
  const { session } = callTest;
  const utterance = session.speak(text, { marks: ["word"] });
  const out = { words: [], positions: [], audio: 0 };
  utterance.on("marks", ({ words }) => out.words.push(...words));
  utterance.on("position", (position) => out.positions.push(position));
  utterance.on("audio", () => (out.audio += 1));
  const done = await utterance.ended;
  callTest.last = out.positions.at(-1);
  return { ...out, type: done.type, audioMs: done.audio_ms };
}"""
SAMPLES = """() => {
  const bytes = new Uint8Array(callTest.pieces.length * 4096 * 2);
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const piece of callTest.pieces)
    for (const value of piece) {
      view.setInt16(at, Math.max(-1, Math.min(1, value)) * 32767, true);
      at += 2;
    }
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192)
    text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}"""
CUT = """async () => {
  const { session } = callTest;
  const long = session.speak("A long story about a lighthouse. ".repeat(50));
  await new Promise((resolve) => long.on("position", resolve));
  const cancelled = (await long.cancel()).type;
  const open = session.open;
  const another = session.speak("Never heard. ".repeat(20));
  session.close();
  const lost = await another.ended.catch((error) => error.code);
  const late = await session.speak("Too late.").ended.catch((error) => error.code);
  return { cancelled, open, lost, late, after: session.open };
}"""


@pytest.fixture
def call(page: Page) -> Iterator[Page]:
    """A page that has called the server and keeps what it hears."""
    page.evaluate(OPEN)
    yield page
    page.evaluate("() => { callTest.session.close(); callTest.context.close(); }")


def heard(page: Page) -> NDArray[np.float32]:
    """All samples since the call began, at `RATE_HZ`."""
    return np.frombuffer(base64.b64decode(page.evaluate(SAMPLES)), "<i2") / np.float32(32768)


def test_a_call_is_understood_and_knows_where_it_is(call: Page) -> None:
    told = call.evaluate(SPEAK, TEXT)
    assert told["type"] == "utterance.done"
    assert told["audio"] == 0, "the sound of a call is its track"
    assert [word["text"] for word in told["words"]][:3] == ["The", "weather", "will"]
    assert told["positions"][0]["sample"] == 0
    until(call, f"callTest.session.call.heardS(callTest.last) >= {told['audioMs'] / 1000}")
    text = transcribe(heard(call), RATE_HZ)
    errors, words = word_errors(TEXT, text)
    assert errors <= WORD_ERRORS * words, text
    assert call.evaluate("!callTest.element.paused")
    statistics = call.evaluate("callTest.session.call.statistics()")
    assert statistics["kind"] == "audio"
    assert statistics["packetsReceived"] > 0


def test_a_call_is_cut_off_and_ends(call: Page) -> None:
    assert call.evaluate(CUT) == {
        "cancelled": "utterance.cancelled",
        "open": True,
        "lost": "connection_lost",
        "late": "connection_lost",
        "after": False,
    }
    assert call.evaluate("callTest.closed")


def test_an_address_that_takes_no_calls_is_an_error(page: Page) -> None:
    name = page.evaluate(
        """async () => {
          const { openCall } = await import("/call.js");
          return openCall("/v1/nothing", {}).catch((error) => error.name);
        }"""
    )
    assert name == "ServerError"
