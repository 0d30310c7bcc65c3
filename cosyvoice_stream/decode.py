"""Recordings of any common form → mono samples, in bounded time and memory.

The container is recognised by its first bytes, and only the demuxer for that container is tried:
nothing probes a file for play lists, captions or device names, so a file can never make this
process open another file or a URL. Decoding stops as soon as the recording is longer than allowed.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

import av
import numpy as np
import soxr
from numpy.typing import NDArray

from cosyvoice_stream.errors import LimitExceeded, UnsupportedFormat
from cosyvoice_stream.types import Samples

MAX_RATE_HZ: Final = 48_000
"""Recordings at higher rates are converted to this one while they are decoded: nothing above
24 kHz matters for a voice, and it bounds the memory per second."""

_MIN_RATE_HZ: Final = 4_000
_MAX_FILE_RATE_HZ: Final = 384_000
_MAX_CHANNELS: Final = 6
"""Frames of eight planar channels have no end mark in their list of planes, and PyAV (18.1,
``AudioFrame.planes``) reads beyond it, which ends the process."""
_MAX_READ_BYTES: Final = 256_000_000
"""Bytes that are read from one file before it is refused; a minute of audio needs 23 MB even
uncompressed at 192 kHz and 16 bit, the rest is room for a video track beside it."""
_MAX_IDLE_PACKETS: Final = 500
"""Packets in a row that give no audio; some are normal at the start of a stream."""
_HEAD_BYTES: Final = 64 * 1024
_ID3_FOOTER: Final = 0x10

_HOW_TO_FIX: Final = "send WAV, MP3, FLAC, OGG, M4A, MP4 or WebM with one audio track"

_CODECS: Final = frozenset(
    {"aac", "alac", "flac", "mp3", "mp3float", "opus", "libopus", "vorbis", "libvorbis"}
)
"""Decoders that may run, besides those of uncompressed audio (``pcm_…``)."""

_OPTIONS: Final = {
    "protocol_whitelist": "none",
    "enable_drefs": "0",
    "codec_whitelist": ",".join(sorted(_CODECS))
    + ",pcm_s16le,pcm_s24le,pcm_s32le,pcm_u8,pcm_f32le,pcm_f64le,pcm_alaw,pcm_mulaw"
    + ",pcm_s16be,pcm_s24be,pcm_s32be,pcm_f32be,pcm_s8",
}

_FULL_SCALE: Final = {"i2": 2.0**15, "i4": 2.0**31, "i8": 2.0**63, "f4": 1.0, "f8": 1.0}

_ONE_SIDED_DB: Final = 12.0
"""A channel that is this much louder than the mean of all is used alone: a microphone on one side
only, or two sides that cancel each other."""


@dataclass(frozen=True, slots=True)
class DecodedAudio:
    """One recording, complete."""

    samples: Samples
    """Mono."""
    sample_rate: int
    """Of the recording, in hertz, at most `MAX_RATE_HZ`."""
    container: str
    """Such as ``"wav"``, ``"mp3"``, ``"flac"``, ``"ogg"``, ``"mp4"``, ``"webm"``, ``"aac"``."""
    codec: str
    """Such as ``"pcm_s16le"``, ``"opus"``."""

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return len(self.samples) / self.sample_rate


def decode_audio(source: bytes | Path | BinaryIO, *, max_seconds: float) -> DecodedAudio:
    """Decode the first audio track of a recording.

    Blocks on the disk and the processor; call it in a thread.

    Args:
        source: The file's bytes, its path, or an object that reads it from where it stands.
        max_seconds: Longest accepted recording.

    Returns:
        The whole recording as mono samples.

    Raises:
        UnsupportedFormat: This is no audio, or audio in a form that is not read.
        LimitExceeded: It is longer than `max_seconds`, or too large for what it holds.
        OSError: The path cannot be read.
    """
    if isinstance(source, Path):
        with source.open("rb") as file:
            return _decode(file, max_seconds)
    if isinstance(source, bytes | bytearray | memoryview):
        return _decode(io.BytesIO(source), max_seconds)
    return _decode(source, max_seconds)


def _decode(file: BinaryIO, max_seconds: float) -> DecodedAudio:
    reader = _reader(file)
    head = reader.head
    if not head:
        raise UnsupportedFormat("the recording is empty", how_to_fix=_HOW_TO_FIX)
    demuxer = recognise(head)
    if demuxer is None:
        raise UnsupportedFormat(
            "this is not an audio file that can be read", how_to_fix=_HOW_TO_FIX
        )
    try:
        with av.open(
            reader,
            "r",
            format=demuxer,
            options=dict(_OPTIONS),
            metadata_errors="replace",
            io_open=_refuse_to_open,
        ) as container:
            return _decode_track(container, demuxer, max_seconds)
    except (av.FFmpegError, ValueError, EOFError, IndexError) as error:
        if reader.exhausted:
            reader.refuse()
        raise UnsupportedFormat(
            f"the {_container_name(demuxer)} file is damaged or incomplete", how_to_fix=_HOW_TO_FIX
        ) from error


def recognise(head: bytes) -> str | None:
    """Name the FFmpeg demuxer for a file that begins with `head`, or None.

    The signatures are those of RFC 9639 (FLAC), RFC 3533 (Ogg), RFC 8794 (EBML), ISO/IEC 14496-12
    (boxes), ISO/IEC 11172-3 and 13818-7 (frame headers) and the RIFF specification.
    """
    tag_bytes = _id3_bytes(head)
    if tag_bytes and tag_bytes + 12 > len(head):
        return "mp3"  # cover art is longer than what was read
    head = head[tag_bytes:]
    kind: str | None = None
    if head[:4] in (b"RIFF", b"RF64") and head[8:12] == b"WAVE":
        kind = "wav"
    elif head[:4] == b"fLaC":
        kind = "flac"
    elif head[:4] == b"OggS":
        kind = "ogg"
    elif head[:4] == b"\x1aE\xdf\xa3":
        kind = "matroska"
    elif head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
        kind = "mov"
    elif len(head) > 2 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0:
        kind = "aac"
    elif len(head) > 2 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2:
        kind = "mp3"
    return kind


def _id3_bytes(head: bytes) -> int:
    """Length of an ID3v2 tag at the start, 0 without one."""
    if head[:3] != b"ID3" or len(head) < 10:
        return 0
    size = 0
    for byte in head[6:10]:
        size = size << 7 | byte & 0x7F
    return 10 + size + (10 if head[5] & _ID3_FOOTER else 0)


def _container_name(demuxer: str) -> str:
    return {"mov": "MP4", "matroska": "WebM"}.get(demuxer, demuxer.upper())


def _refuse_to_open(url: str, flags: int, options: dict[str, Any]) -> NoReturn:
    """Called when a demuxer wants a second file."""
    raise ValueError("a recording may not open other files")


class _Reader:
    """What the demuxer reads from: counts bytes and shows the start of the file beforehand."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.head = _read_fully(file, _HEAD_BYTES)
        self._unread = self.head
        self._read_bytes = 0
        self.exhausted = False

    def read(self, size: int) -> bytes:
        self._read_bytes += size
        if self._read_bytes > _MAX_READ_BYTES:
            self.exhausted = True
            return b""
        if self._unread:
            data, self._unread = self._unread[:size], self._unread[size:]
            return data
        return self._file.read(size)

    def refuse(self) -> NoReturn:
        raise LimitExceeded(
            "megabytes are read from one recording",
            _MAX_READ_BYTES // 1_000_000,
            how_to_fix="send only the audio, cut to 3–10 s",
        )


class _SeekableReader(_Reader):
    """The same for a file that can be rewound."""

    def __init__(self, file: BinaryIO) -> None:
        self._start = file.tell()
        super().__init__(file)
        self._unread = b""
        file.seek(self._start)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_SET:
            offset += self._start
        return self._file.seek(offset, whence) - self._start

    def tell(self) -> int:
        return self._file.tell() - self._start


def _reader(file: BinaryIO) -> _Reader:
    seekable = getattr(file, "seekable", None)
    return _SeekableReader(file) if seekable is not None and seekable() else _Reader(file)


def _read_fully(file: BinaryIO, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (data := file.read(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _decode_track(
    container: av.container.InputContainer, demuxer: str, max_seconds: float
) -> DecodedAudio:
    if not container.streams.audio:
        raise UnsupportedFormat("the file has no audio track", how_to_fix=_HOW_TO_FIX)
    stream = container.streams.audio[0]
    context = stream.codec_context
    codec = context.name if context is not None else "unknown"
    if codec not in _CODECS and not codec.startswith("pcm_"):
        raise UnsupportedFormat("the audio codec is not one that is read", how_to_fix=_HOW_TO_FIX)
    context.thread_count = 1
    mixdown = _Mixdown(max_seconds)
    for frame in _frames(container, stream):
        mixdown.push(frame)
    samples, rate = mixdown.finish()
    name = {"mov": "mp4", "matroska": "webm"}.get(demuxer, demuxer)
    return DecodedAudio(samples, rate, name, codec.removesuffix("float").removeprefix("lib"))


def _frames(container: av.container.InputContainer, stream: Any) -> Iterator[av.AudioFrame]:
    """Decode packet by packet; damaged ones are left out as long as good ones follow."""
    idle = 0
    packets = container.demux(stream)
    for number in itertools.count():
        try:
            packet = next(packets)
            frames = packet.decode()
        except (StopIteration, EOFError):
            return
        except av.FFmpegError:
            frames = []
            if number == 0:
                raise
        idle = 0 if frames else idle + 1
        if idle > _MAX_IDLE_PACKETS:
            raise UnsupportedFormat("the audio track cannot be decoded", how_to_fix=_HOW_TO_FIX)
        yield from frames


class _Mixdown:
    """Frames in any sample format → mono float samples at one rate."""

    def __init__(self, max_seconds: float) -> None:
        self._max_seconds = max_seconds
        self._rate = 0
        self._taken = 0
        self._mono: list[Samples] = []
        self._sides: list[NDArray[np.float32]] = []
        self._converter: soxr.ResampleStream | None = None
        self._converter_from = (0, 0)

    def push(self, frame: av.AudioFrame) -> None:
        """Append one decoded frame.

        Raises:
            LimitExceeded: The recording is longer than allowed.
            UnsupportedFormat: Rate or channel count is out of range.
        """
        rate, channels = frame.sample_rate, frame.layout.nb_channels
        if not (_MIN_RATE_HZ <= rate <= _MAX_FILE_RATE_HZ and 1 <= channels <= _MAX_CHANNELS):
            raise UnsupportedFormat(
                f"{channels} channels at {rate} Hz are not read",
                how_to_fix="record one or two channels at 8 to 48 kHz",
            )
        self._rate = self._rate or min(rate, MAX_RATE_HZ)
        self._append(self._at_rate(_as_float(frame), rate))

    def finish(self) -> tuple[Samples, int]:
        """Return all samples and their rate.

        Raises:
            UnsupportedFormat: There are none, or they are not numbers.
        """
        if self._converter is not None:
            self._append(self._drain())
        if not self._taken:
            raise UnsupportedFormat("the recording holds no audio", how_to_fix=_HOW_TO_FIX)
        samples = self._choose_side()
        if not np.isfinite(samples).all():
            raise UnsupportedFormat(
                "the recording holds values that are not numbers", how_to_fix=_HOW_TO_FIX
            )
        return np.clip(samples, -1.0, 1.0), self._rate

    def _at_rate(self, audio: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
        """Convert audio, shape (N, C), if its rate is not ours."""
        shape = (rate, audio.shape[1])
        if self._converter is not None and shape != self._converter_from:
            self._append(self._drain())
        if rate == self._rate:
            return audio
        if self._converter is None:
            self._converter = soxr.ResampleStream(rate, self._rate, audio.shape[1], "float32")
            self._converter_from = shape
        converted = self._converter.resample_chunk(np.ascontiguousarray(audio))
        return np.asarray(converted, np.float32).reshape(-1, audio.shape[1])

    def _drain(self) -> NDArray[np.float32]:
        assert self._converter is not None
        channels = self._converter_from[1]
        rest = self._converter.resample_chunk(np.zeros((0, channels), np.float32), last=True)
        self._converter = None
        return np.asarray(rest, np.float32).reshape(-1, channels)

    def _append(self, audio: NDArray[np.float32]) -> None:
        """Take audio, shape (N, C), at our rate."""
        self._taken += len(audio)
        if self._taken > self._max_seconds * self._rate:
            raise LimitExceeded(
                "seconds of audio",
                self._max_seconds,
                how_to_fix="send the best 3–10 s of the recording",
            )
        self._mono.append(audio.mean(axis=1, dtype=np.float32))
        if audio.shape[1] == 2:
            self._sides.append(audio)

    def _choose_side(self) -> Samples:
        """Mean of the channels, or one of two where the mean would lose most of it."""
        mono = np.concatenate(self._mono)
        if sum(map(len, self._sides)) != len(mono):
            return mono
        sides = np.concatenate(self._sides)
        power = np.mean(np.square(sides, dtype=np.float64), axis=0)
        loudest, quietest = int(np.argmax(power)), int(np.argmin(power))
        margin = 10 ** (_ONE_SIDED_DB / 10)
        mean_power = float(np.mean(np.square(mono, dtype=np.float64)))
        if power[loudest] > margin * min(float(power[quietest]), mean_power):
            return np.ascontiguousarray(sides[:, loudest])
        return mono


def _as_float(frame: av.AudioFrame) -> NDArray[np.float32]:
    """Samples of a frame as float32 in [-1, 1], shape (N, C)."""
    data = frame.to_ndarray()
    kind = data.dtype.str[1:]
    if kind == "u1":
        audio = (data.astype(np.float32) - 128.0) / np.float32(128.0)
    else:
        with np.errstate(all="ignore"):  # what is not finite is refused at the end
            audio = data.astype(np.float32) * np.float32(1.0 / _FULL_SCALE[kind])
    if frame.format.is_planar:
        return np.asarray(audio.T, np.float32)  # (C, N) -> (N, C)
    return np.asarray(audio.reshape(-1, frame.layout.nb_channels), np.float32)
