"""Speak a text stream into a file, a pipe or the loudspeaker, with or without a running server."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

import numpy as np

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.errors import ConfigError, UnsupportedFormat
from cosyvoice_stream.server.encoders import (
    WAV_HEADER_BYTES,
    Encoder,
    make_encoder,
    wav_header,
)
from cosyvoice_stream.server.play import Player, open_player
from cosyvoice_stream.server.wire_settings import TextSettings
from cosyvoice_stream.types import Samples, SynthesisOptions, Voice

if TYPE_CHECKING:
    from cosyvoice_stream.server.client import Session

AUDIBLE: Final = 10 ** (-50 / 20)
READ_BYTES: Final = 4096
SUFFIXES: Final = {
    ".wav": "wav",
    ".mp3": "mp3",
    ".flac": "flac",
    ".ogg": "opus",
    ".opus": "opus",
    ".aac": "aac",
    ".pcm": "pcm_s16le",
    ".raw": "pcm_s16le",
    ".ulaw": "mulaw",
    ".alaw": "alaw",
}


@dataclass
class Summary:
    """What happened, for the line at the end."""

    first_audio_ms: float | None = None
    audio_s: float = 0.0
    elapsed_s: float = 0.0

    def line(self) -> str:
        """One sentence."""
        if not self.audio_s:
            return "nothing to say"
        first = (
            ""
            if self.first_audio_ms is None
            else f", first audio after {self.first_audio_ms:.0f} ms"
        )
        rtf = self.elapsed_s / self.audio_s
        return f"{self.audio_s:.2f} s of audio{first}, real-time factor {rtf:.3f}"


class Output(Protocol):
    """Where audio goes. Blocking; called from a thread."""

    def write(self, samples: Samples) -> None:
        """Append samples at the engine's rate."""
        ...

    def finish(self) -> None:
        """Complete it."""
        ...

    def abandon(self) -> None:
        """Leave it valid, but at once."""
        ...


class FileOutput:
    """Encodes into a file or standard output.

    A WAV file gets its true length at the end, also when it is abandoned; a pipe keeps the
    streaming length.

    Args:
        target: The file.
        encoder: Makes the bytes.
        seekable: Whether the header can be corrected.
    """

    def __init__(self, target: BinaryIO, encoder: Encoder, *, seekable: bool) -> None:
        self._target = target
        self._encoder = encoder
        self._correct = seekable and encoder.encoding == "wav"
        self._written = 0

    def write(self, samples: Samples) -> None:
        """See `Output.write`."""
        self._put(self._encoder.push(samples))

    def finish(self) -> None:
        """See `Output.finish`."""
        self._put(self._encoder.flush())
        self._complete()

    def abandon(self) -> None:
        """See `Output.abandon`."""
        self._encoder.close()
        with contextlib.suppress(OSError):
            self._complete()

    def _put(self, pieces: list[bytes]) -> None:
        for data in pieces:
            self._target.write(data)
            self._written += len(data)
        self._target.flush()

    def _complete(self) -> None:
        if self._correct and self._written >= WAV_HEADER_BYTES:
            self._target.seek(0)
            data_bytes = self._written - WAV_HEADER_BYTES
            self._target.write(wav_header(self._encoder.sample_rate, data_bytes))
        self._target.flush()


class PlayerOutput:
    """Plays while it is made."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def write(self, samples: Samples) -> None:
        """See `Output.write`."""
        self._player.write(samples)

    def finish(self) -> None:
        """See `Output.finish`."""
        self._player.finish()

    def abandon(self) -> None:
        """See `Output.abandon`."""
        self._player.stop()


@dataclass
class Outputs:
    """Every place that one utterance goes to."""

    files: list[Output] = field(default_factory=list)

    def write(self, samples: Samples) -> None:
        """Append to all."""
        for output in self.files:
            output.write(samples)

    def finish(self) -> None:
        """Complete all."""
        for output in self.files:
            output.finish()

    def abandon(self) -> None:
        """Leave all."""
        for output in self.files:
            output.abandon()


def encoding_of(path: str, wanted: str | None) -> str:
    """Encoding of an output file: the wanted one, or the one of its suffix.

    Raises:
        UnsupportedFormat: Unknown suffix.
    """
    if wanted is not None:
        return wanted
    if path == "-":
        return "wav"
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise UnsupportedFormat(
            f"the suffix {suffix!r} names no audio format",
            how_to_fix=f"use one of {', '.join(SUFFIXES)}, or --format",
        )
    return SUFFIXES[suffix]


@contextlib.contextmanager
def _writable(path: str) -> Iterator[BinaryIO]:
    with Path(path).open("wb") as file:
        yield file


def open_outputs(
    stack: contextlib.ExitStack,
    path: str | None,
    *,
    play: bool,
    engine_rate: int,
    encoding: str | None,
    sample_rate: int,
) -> Outputs:
    """Open what the command line asks for.

    Args:
        stack: Closes the file.
        path: A file, ``-`` for standard output, or None.
        play: Also play.
        engine_rate: Rate of the samples, in hertz.
        encoding: Of the file; None takes it from the suffix.
        sample_rate: Of the file, in hertz.

    Raises:
        ConfigError: The file cannot be written, or nothing here plays audio.
        UnsupportedFormat: No such format.
    """
    outputs = Outputs()
    if path is not None:
        encoder = make_encoder(encoding_of(path, encoding), engine_rate, sample_rate, 0)
        if path == "-":
            target: BinaryIO = sys.stdout.buffer
        else:
            try:
                target = stack.enter_context(_writable(path))
            except OSError as error:
                raise ConfigError(
                    f"{path} cannot be written: {error.strerror}",
                    how_to_fix="choose another file with -o",
                ) from error
        seekable = path != "-" and target.seekable()
        outputs.files.append(FileOutput(target, encoder, seekable=seekable))
    if play:
        outputs.files.append(PlayerOutput(open_player(engine_rate)))
    return outputs


async def read_stream(descriptor: int) -> AsyncIterator[str]:
    """Text from a pipe as it arrives, without waiting for a line or the end.

    Args:
        descriptor: File descriptor of UTF-8 text; what is not UTF-8 becomes U+FFFD.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := await asyncio.to_thread(os.read, descriptor, READ_BYTES):
        if text := decoder.decode(data):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


async def one_text(text: str) -> AsyncIterator[str]:
    """A text that is already there, as a stream."""
    yield text


async def speak_locally(
    engine: Engine,
    text: AsyncIterator[str],
    voice: Voice,
    options: SynthesisOptions,
    outputs: Outputs,
    *,
    clean: bool = True,
) -> Summary:
    """Speak with an engine in this process."""
    from cosyvoice_stream.server.text_way import TextWay

    way = TextWay(text, TextSettings(clean=clean), time.monotonic)
    stream = engine.synthesize(way.fragments(), voice, options)
    return await _pump((chunk.samples async for chunk in stream), engine.info.sample_rate, outputs)


async def speak_remotely(
    session: Session, text: AsyncIterator[str], outputs: Outputs, rate: int, **options: Any
) -> Summary:
    """Speak with a server; `options` ask for plain samples at `rate`."""
    utterance = await session.speak(text, **options)
    return await _pump((chunk.samples async for chunk in utterance), rate, outputs)


async def _pump(samples: AsyncIterator[Samples], rate: int, outputs: Outputs) -> Summary:
    """Move audio to its outputs without blocking the loop; leave them valid whatever happens."""
    summary = Summary()
    began = time.monotonic()
    try:
        async for piece in samples:
            if summary.first_audio_ms is None and np.abs(piece).max(initial=0.0) > AUDIBLE:
                summary.first_audio_ms = (time.monotonic() - began) * 1e3
            summary.audio_s += len(piece) / rate
            await asyncio.to_thread(outputs.write, piece)
        summary.elapsed_s = time.monotonic() - began
        await asyncio.to_thread(outputs.finish)
    except BaseException:
        outputs.abandon()
        raise
    return summary
