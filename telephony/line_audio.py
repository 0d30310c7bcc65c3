"""What a phone line hears: the frames of a session in real time, and silence between them.

::

    session ──put──► two frames ──LineClock──► line.send_frame      one every ptime, all the call
                                      │
                        heard(number, sample, last)                 what the caller has heard by now

Speech is sent `lead_ms` ahead of the caller, silence `idle_lead_ms`: where an utterance has no
frame, the difference passes before silence takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cosyvoice_stream.errors import PeerGone
from cosyvoice_stream.server.wire import AudioHeader
from cosyvoice_stream.telephony.line import Frame, Line, Pcm
from cosyvoice_stream.telephony.line_clock import MAX_BURST_FRAMES, LineClock

Heard = Callable[[int, int, bool], None]
"""Takes the number of an utterance, the sample before which all was heard, and whether it was its
last."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A frame of speech that is on its way to the caller."""

    index: int
    """Among the frames of the call, as `LineClock.sent` counts them."""
    number: int
    end_sample: int
    last: bool


class LineAudio:
    """Feeds one line between the start of `run` and its end.

    Args:
        line: Where the frames go.
        heard: Told what the caller hears, frame by frame.

    Attributes:
        clock: Of the call.
        underruns: Times that an utterance had no frame when one was due.
    """

    def __init__(self, line: Line, heard: Heard) -> None:
        self.clock = LineClock(line.format.frame_ms)
        self.underruns = 0
        self._line = line
        self._format = line.format
        self._heard = heard
        self._silence = np.zeros(self._format.frame_samples, np.int16)
        self._waiting: deque[bytes] = deque()
        self._sent: deque[_Sent] = deque()
        self._came = asyncio.Event()
        self._taken = asyncio.Event()
        self._sending = asyncio.Lock()
        self._speaking = False
        self._closed = False

    @property
    def waiting_bytes(self) -> int:
        """Of frames that were not sent."""
        return sum(map(len, self._waiting))

    async def put(self, frame: bytes) -> None:
        """Take a frame of a session, with its header; wait while others are before it.

        Raises:
            PeerGone: The call is over.
        """
        while len(self._waiting) >= MAX_BURST_FRAMES and not self._closed:
            self._taken.clear()
            await self._taken.wait()
        if self._closed:
            raise PeerGone("the call is over")
        self._waiting.append(frame)
        self._came.set()

    async def run(self) -> None:
        """Send a frame for every ptime of the call.

        Raises:
            PeerGone: The leg is gone.
        """
        loop, clock = asyncio.get_running_loop(), self.clock
        try:
            while True:
                for _ in range(MAX_BURST_FRAMES):
                    if not clock.due(loop.time(), self._lead_frames()):
                        break
                    await self._send_next()
                self._report(loop.time())
                await self._until(clock.next_at(loop.time(), self._lead_frames()))
        finally:
            self.close()

    async def clear(self) -> None:
        """Drop what the caller has not heard, where the line can; elsewhere it is a short rest.

        Raises:
            PeerGone: The leg is gone.
        """
        if not self._format.can_clear:
            return
        async with self._sending:
            now = asyncio.get_running_loop().time()
            self._report(now)
            self._waiting.clear()
            self._taken.set()
            self._sent.clear()
            self._speaking = False
            await self._line.clear()
            self.clock.cleared(now)

    async def send_mark(self, name: str) -> None:
        """Ask for a mark behind the frames so far; only where the line has them."""
        async with self._sending:
            await self._line.send_mark(name)

    def close(self) -> None:
        """Nothing more is sent."""
        self._closed = True
        self._taken.set()
        self._came.set()

    async def _send_next(self) -> None:
        async with self._sending:
            header, samples = self._next()
            slot = self.clock.add_sent()
            if header is not None:
                end = header.sample + len(samples)
                self._sent.append(_Sent(self.clock.sent - 1, header.number, end, header.last))
            await self._line.send_frame(self._frame(samples, slot, speech=header is not None))

    def _lead_frames(self) -> int:
        return self._format.lead_frames(speech=bool(self._waiting))

    def _next(self) -> tuple[AudioHeader | None, Pcm]:
        """The samples of the next frame; at the end of an utterance they may be fewer."""
        if not self._waiting:
            self.underruns += self._speaking
            self._speaking = False
            return None, self._silence
        data = self._waiting.popleft()
        self._taken.set()
        header = AudioHeader.unpack(data)
        self._speaking = not header.last
        return header, np.frombuffer(data, "<i2", offset=AudioHeader.SIZE).astype(np.int16)

    def _frame(self, samples: Pcm, slot: int, *, speech: bool) -> Frame:
        whole = self._format.frame_samples
        if len(samples) != whole:
            samples = np.concatenate([samples, self._silence])[:whole]
        return Frame(samples, slot, speech)

    def _report(self, now: float) -> None:
        heard = self.clock.heard(now)
        while self._sent and self._sent[0].index < heard:
            sent = self._sent.popleft()
            self._heard(sent.number, sent.end_sample, sent.last)

    async def _until(self, deadline: float) -> None:
        """Wait for a time, or for speech: that may go out sooner than silence."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._came.wait()
        self._came.clear()
