"""A SIP call as a line: frames to its RTP, its audio and keys to the call."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import numpy as np

from cosyvoice_stream.errors import InvalidState, PeerGone, UnsupportedFormat
from cosyvoice_stream.streaming import pcm
from cosyvoice_stream.streaming.resample import Resampler
from cosyvoice_stream.telephony.call import PhoneCall
from cosyvoice_stream.telephony.line import Frame, LineFormat
from cosyvoice_stream.telephony.rtp_leg import RtpLeg
from cosyvoice_stream.telephony.sip_call import SipCall
from cosyvoice_stream.telephony.sip_signalling import CallFailed, CallState
from cosyvoice_stream.types import Samples


class _Fit:
    """Samples and frames of one form, for a leg whose codec has become another."""

    def __init__(self, form: LineFormat, leg: RtpLeg) -> None:
        self.codec = leg.codec
        self._frame_ms = form.frame_ms
        self._out = Resampler(form.sample_rate, self.codec.sample_rate)
        self._in = Resampler(self.codec.sample_rate, form.sample_rate)
        self._rest: Samples = np.zeros(0, np.float32)
        self._slot: int | None = None

    def frames(self, samples: Samples, slot: int) -> list[tuple[Samples, int]]:
        """The frames of the codec that are complete, with their slots."""
        if self._slot is None:
            self._slot = slot * self._frame_ms // self.codec.ptime_ms
        self._rest = np.concatenate([self._rest, *self._out.push(samples)])
        size, found = self.codec.frame_samples, []
        while len(self._rest) >= size:
            found.append((self._rest[:size], self._slot))
            self._rest = self._rest[size:]
            self._slot += 1
        return found

    def heard(self, samples: Samples) -> list[Samples]:
        """What came, in the form of the line."""
        return self._in.push(samples)


class SipLine:
    """`Line` over a call that was answered.

    Args:
        call: With media.
        leg: Its media.
    """

    def __init__(self, call: SipCall, leg: RtpLeg) -> None:
        self._call = call
        self._leg = leg
        self._first = leg.codec
        self._fit: _Fit | None = None
        self._format = LineFormat(leg.codec.sample_rate, leg.codec.ptime_ms)

    @property
    def format(self) -> LineFormat:
        """That of the first codec; a later one is converted."""
        return self._format

    async def send_frame(self, frame: Frame) -> None:
        """Send a packet. Raises `PeerGone`."""
        if self._call.state is CallState.ENDED:
            raise PeerGone("the call has ended")
        fit = self._fitting()
        if fit is None:
            self._leg.send(pcm.from_int16(frame.samples) if frame.speech else None, frame.slot)
            return
        for samples, slot in fit.frames(pcm.from_int16(frame.samples), frame.slot):
            self._leg.send(samples, slot)

    async def send_mark(self, name: str) -> None:
        """There are none."""
        raise UnsupportedFormat("RTP has no marks")

    async def clear(self) -> None:
        """What has left cannot be called back."""
        raise UnsupportedFormat("RTP cannot be cleared")

    async def hang_up(self) -> None:
        """Say good-bye."""
        self._call.hang_up()

    async def transfer(self, target: str) -> None:
        """Send the caller elsewhere.

        Raises:
            UnsupportedFormat: The other end will not, or the call is over.
        """
        try:
            await self._call.transfer(target)
        except (CallFailed, InvalidState) as error:
            raise UnsupportedFormat(f"the call cannot be transferred: {error}") from error

    async def listen(self, call: PhoneCall) -> None:
        """Give the call what comes, until the other end has hung up."""
        loop, step_s = asyncio.get_running_loop(), self._format.frame_ms / 1000
        due = loop.time()
        while self._call.state is not CallState.ENDED:
            now = loop.time()
            fit = self._fitting()
            for samples in self._leg.receive(now):
                for piece in [samples] if fit is None else fit.heard(samples):
                    call.hear(pcm.to_int16(piece))
            for key in self._leg.take_keys():
                call.press(key.symbol)
            due = max(due + step_s, now)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._call.over.wait()

    def _fitting(self) -> _Fit | None:
        """How to convert; None while the first codec is in use."""
        codec = self._leg.codec
        if codec is not self._first and (self._fit is None or self._fit.codec is not codec):
            same = (codec.sample_rate, codec.ptime_ms) == (
                self._format.sample_rate,
                self._format.frame_ms,
            )
            if same:
                self._first, self._fit = codec, None
            else:
                self._fit = _Fit(self._format, self._leg)
        elif codec is self._first:
            self._fit = None
        return self._fit
