"""What a phone line is to the bridge, and the sample formats that lines share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cosyvoice_stream.streaming import g711

Pcm: TypeAlias = NDArray[np.int16]
"""Mono audio at the rate of a line, shape (N,)."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How the bridge has to feed a line."""

    sample_rate: int = 8000
    """Of both directions, in hertz, unless `input_rate` says otherwise."""
    frame_ms: int = 20
    """The ptime: one frame is sent for each of it."""
    lead_ms: int = 100
    """How far speech is sent ahead of the listener; at least one frame. 100 ms and the slack of the
    clock make 160 ms at most."""
    idle_lead_ms: int = 60
    """The same for silence: what the first word after it waits for."""
    has_marks: bool = False
    """The far end buffers, and reports each mark when it has played what was before it."""
    can_clear: bool = False
    """The far end can be told to drop what it has not played."""
    input_rate: int | None = None
    """Of the caller's audio, where it differs, in hertz."""

    @property
    def frame_samples(self) -> int:
        """Samples of a frame."""
        return self.sample_rate * self.frame_ms // 1000

    def lead_frames(self, *, speech: bool) -> int:
        """How many frames to be ahead."""
        return max(1, (self.lead_ms if speech else self.idle_lead_ms) // self.frame_ms)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame on its way to the line."""

    samples: Pcm
    """Shape (`LineFormat.frame_samples`,)."""
    slot: int
    """Frames of the call before this one, those that were given up after a stall included: for
    timestamps."""
    speech: bool
    """False for the silence between utterances."""


class Line(Protocol):
    """One leg of a call, as the bridge sees it. Only one method runs at a time.

    Each raises `PeerGone` when the leg is gone. A line whose far end does not take a frame waits;
    the bridge makes up for the time, or gives it up.
    """

    @property
    def format(self) -> LineFormat:
        """How to feed it; does not change during a call."""
        ...

    async def send_frame(self, frame: Frame) -> None:
        """Encode a frame and send it."""
        ...

    async def send_mark(self, name: str) -> None:
        """Ask to be told when all frames before have been played; only with `has_marks`."""
        ...

    async def clear(self) -> None:
        """Drop what has not been played; only with `can_clear`. Pending marks may come back."""
        ...

    async def hang_up(self) -> None:
        """End the leg."""
        ...

    async def transfer(self, target: str) -> None:
        """Hand the caller over to another number or address and end this leg.

        Raises:
            UnsupportedFormat: The line has no way to do that.
        """
        ...


@dataclass(frozen=True, slots=True)
class CallInfo:
    """Facts about a call. None of them is logged but `carrier` and the length of the rest."""

    carrier: str
    """Such as ``"twilio"``."""
    carrier_id: str = ""
    """The carrier's own id of the call."""
    caller: str = ""
    """Number or address of the caller, where the carrier tells it."""
    called: str = ""
    """Number or address that was called."""
    parameters: dict[str, str] = field(default_factory=dict)
    """What the caller's side passed on, such as ``voice``."""


def pcm_to_mulaw(samples: Pcm) -> bytes:
    """16-bit linear to µ-law."""
    return g711.encode_mulaw(samples).tobytes()


def pcm_to_alaw(samples: Pcm) -> bytes:
    """16-bit linear to A-law."""
    return g711.encode_alaw(samples).tobytes()


def pcm_to_s16le(samples: Pcm) -> bytes:
    """16-bit linear to little-endian bytes."""
    return samples.astype("<i2", copy=False).tobytes()


def pcm_to_s16be(samples: Pcm) -> bytes:
    """16-bit linear to network byte order, as RTP has it."""
    return samples.astype(">i2").tobytes()


def mulaw_to_pcm(data: bytes) -> Pcm:
    """µ-law to 16-bit linear."""
    return g711.decode_mulaw(np.frombuffer(data, np.uint8))


def alaw_to_pcm(data: bytes) -> Pcm:
    """A-law to 16-bit linear."""
    return g711.decode_alaw(np.frombuffer(data, np.uint8))


def s16le_to_pcm(data: bytes) -> Pcm:
    """Little-endian bytes to 16-bit linear; a half sample at the end is dropped."""
    return np.frombuffer(data, "<i2", len(data) // 2).astype(np.int16, copy=False)


def s16be_to_pcm(data: bytes) -> Pcm:
    """Network byte order to 16-bit linear; a half sample at the end is dropped."""
    return np.frombuffer(data, ">i2", len(data) // 2).astype(np.int16)


@dataclass(frozen=True, slots=True)
class Payload:
    """How samples are written on a wire."""

    encode: Callable[[Pcm], bytes]
    decode: Callable[[bytes], Pcm]
    bytes_per_sample: int


PAYLOADS: Final[dict[str, Payload]] = {
    "mulaw": Payload(pcm_to_mulaw, mulaw_to_pcm, 1),
    "alaw": Payload(pcm_to_alaw, alaw_to_pcm, 1),
    "s16le": Payload(pcm_to_s16le, s16le_to_pcm, 2),
    "s16be": Payload(pcm_to_s16be, s16be_to_pcm, 2),
}
"""By name: the two laws of G.711, and linear samples in either byte order."""
