"""A phone line in memory: keeps what it is sent, with the time, and lets the test be the caller."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np

from cosyvoice_stream.errors import PeerGone, UnsupportedFormat
from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server.client_messages import Text
from cosyvoice_stream.server.limits import Admission
from cosyvoice_stream.server.sessions import Sessions
from cosyvoice_stream.server.speech import SpeechService
from cosyvoice_stream.streaming import pcm
from cosyvoice_stream.streaming.resample import Resampler
from cosyvoice_stream.telephony.call import Dialogue, PhoneCall
from cosyvoice_stream.telephony.call_events import Saying
from cosyvoice_stream.telephony.call_options import CallOptions
from cosyvoice_stream.telephony.line import CallInfo, Frame, LineFormat, Pcm
from support.recordings import RATE, speech
from support.static_voices import StaticVoices
from support.stream_server import Counts


def caller_says(seconds: float) -> Pcm:
    """Speech of a person, at the rate of a telephone."""
    pieces = Resampler(RATE, 8000).push(speech())
    return pcm.to_int16(np.concatenate(pieces))[: round(seconds * 8000)]


class MemoryLine:
    """Implements `Line`."""

    def __init__(self, form: LineFormat | None = None) -> None:
        self.format = form or LineFormat()
        self.frames: list[Frame] = []
        self.times: list[float] = []
        self.marks: list[str] = []
        self.cleared_at: list[float] = []
        self.hung_up = False
        self.gone = False
        self.transferred: str | None = None
        self.changed = asyncio.Event()

    async def send_frame(self, frame: Frame) -> None:
        if self.gone:
            raise PeerGone("the leg is gone")
        self.frames.append(replace(frame, samples=frame.samples.copy()))
        self.times.append(asyncio.get_running_loop().time())
        self.changed.set()

    async def send_mark(self, name: str) -> None:
        self.marks.append(name)
        self.changed.set()

    async def clear(self) -> None:
        self.cleared_at.append(asyncio.get_running_loop().time())

    async def hang_up(self) -> None:
        self.hung_up = True

    async def transfer(self, target: str) -> None:
        if target == "nowhere":
            raise UnsupportedFormat("this line cannot transfer")
        self.transferred = target

    async def until(self, condition) -> None:
        """Wait for what the call sends."""
        async with asyncio.timeout(120):
            while not condition(self):
                self.changed.clear()
                await self.changed.wait()

    @property
    def speech(self) -> Pcm:
        """All speech that was sent."""
        spoken = [frame.samples for frame in self.frames if frame.speech]
        return np.concatenate([*spoken, np.zeros(0, np.int16)])


class Caller:
    """A call with its line, led by a dialogue of the test."""

    def __init__(
        self,
        *,
        form: LineFormat | None = None,
        engine: FakeEngine | None = None,
        options: CallOptions | None = None,
        info: CallInfo | None = None,
    ) -> None:
        self.line = MemoryLine(form)
        self.counts = Counts()
        self.engine = engine or FakeEngine()
        self.admission = Admission(64)
        voices = StaticVoices(self.engine)
        speech = SpeechService(self.engine, voices, self.admission)
        self.sessions = Sessions(speech, voices, self.counts)
        self.call = PhoneCall(
            self.line, info or CallInfo("memory"), self.sessions, options or CallOptions()
        )
        self.leaves = asyncio.Event()
        self.said: list[str] = []
        """The whole texts that were to be said, in order."""
        self._say = self.call.say
        self.call.say = self._note  # type: ignore[method-assign]

    async def _note(self, text: Text, **options: Any) -> Saying:
        if isinstance(text, str):
            self.said.append(text)
        return await self._say(text, **options)

    async def run(self, dialogue: Dialogue) -> None:
        """Run the call until the dialogue returns or the caller leaves."""
        await self.call.run(dialogue, self._listen)
        assert self.sessions.live == 0
        assert self.admission.live == 0
        assert self.engine.counts.live == 0

    async def speak(self, samples: Pcm) -> None:
        """Say something, in real time."""
        form = self.line.format
        rate = form.input_rate or form.sample_rate
        step = rate * form.frame_ms // 1000
        for start in range(0, len(samples), step):
            self.call.hear(samples[start : start + step])
            await asyncio.sleep(form.frame_ms / 1000)

    async def _listen(self, _: PhoneCall) -> None:
        await self.leaves.wait()
