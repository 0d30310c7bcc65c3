"""baresip calls our SIP endpoint: it hears speech, speaks, presses keys and records the call."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from cosyvoice_stream.streaming.resample import Resampler
from cosyvoice_stream.telephony.rtp_leg import RtpLeg
from cosyvoice_stream.telephony.sip_call import SipCall
from cosyvoice_stream.types import Samples
from support.asr import transcribe, word_errors
from support.baresip import baresip
from support.listening import SAMPLE_RATE, spoken
from support.sip_peer import agent, loudest_hz, symbols

pytestmark = pytest.mark.integration

TEXT = (
    "Good morning, and thank you for calling the city library. "
    "We are open every day from nine in the morning until six in the evening."
)


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """The text in the voice of the embedded engine, at 24 kHz."""
    return spoken(tmp_path_factory.mktemp("voices"), [TEXT])[0]


def at_rate(samples: Samples, rate: int) -> Samples:
    """The same at another rate."""
    resampler = Resampler(SAMPLE_RATE, rate)
    return np.concatenate([*resampler.push(samples), *resampler.flush()])


class Announcement:
    """A handler that plays speech once, then silence, and keeps what the caller says and types."""

    def __init__(self, speech: Samples) -> None:
        self.leg: RtpLeg | None = None
        self.heard: list[Samples] = []
        self.pressed: asyncio.Queue[str] = asyncio.Queue()
        self.played = asyncio.Event()
        self._speech = speech

    async def __call__(self, call: SipCall) -> None:
        leg = self.leg = await call.answer()
        size, rate = leg.codec.frame_samples, leg.codec.sample_rate
        samples = np.concatenate([np.zeros(rate // 2, np.float32), at_rate(self._speech, rate)])
        samples = np.pad(samples, (0, -len(samples) % size))
        loop = asyncio.get_running_loop()
        began, slot = loop.time(), 0
        while not call.over.is_set():
            frame = samples[slot * size : (slot + 1) * size]
            leg.send(frame if len(frame) else None, slot)
            self.heard += leg.receive(loop.time())
            for symbol in symbols(leg):
                self.pressed.put_nowait(symbol)
            if slot * size > len(samples) + rate // 2:
                self.played.set()
            slot += 1
            await asyncio.sleep(began + slot * leg.codec.ptime_ms / 1000 - loop.time())


@pytest.mark.parametrize(
    ("codec", "rate", "name"),
    [("g711", 8000, "pcmu"), ("g722", 16_000, "g722"), ("opus", 48_000, "opus")],
    ids=["G.711", "G.722", "Opus"],
)
def test_a_caller_hears_speech_speaks_and_presses_keys(
    tmp_path: Path, speech: Samples, codec: str, rate: int, name: str
) -> None:
    tone = 0.2 * np.sin(2 * np.pi * 300 * np.arange(rate * 60) / rate).astype(np.float32)

    async def run() -> tuple[Samples, int]:
        announcement = Announcement(speech)
        async with agent(announcement) as made, baresip(tmp_path, [codec], tone, rate) as phone:
            await phone.command("dial", f"sip:bot@127.0.0.1:{made.port}")
            await phone.event("CALL_ESTABLISHED")
            for symbol in "1#5":
                await phone.command("sndcode", symbol)
                await phone.command("sndcode", "\x04")
                async with asyncio.timeout(10):
                    assert await announcement.pressed.get() == symbol
            await announcement.played.wait()
            await phone.command("hangup")
            await phone.event("CALL_CLOSED")
        leg = announcement.leg
        assert leg is not None
        assert leg.codec.kind.name == name
        assert leg.reception is not None
        assert leg.reception.lost == 0
        heard = np.concatenate(announcement.heard)
        assert loudest_hz(heard[-leg.codec.sample_rate :], leg.codec.sample_rate) == pytest.approx(
            300, abs=5
        )
        assert announcement.pressed.empty()
        return phone.heard()

    recorded, recorded_hz = asyncio.run(run())
    errors, words = word_errors(TEXT, transcribe(recorded, recorded_hz))
    assert errors / words <= 0.10
