"""Where `say` puts audio: a file, a pipe, the loudspeaker. Blocking; called from threads."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from cosyvoice_stream.errors import ConfigError, UnsupportedFormat
from cosyvoice_stream.server.encoders import (
    WAV_HEADER_BYTES,
    Encoder,
    make_encoder,
    wav_header,
)
from cosyvoice_stream.server.play import Player, open_player
from cosyvoice_stream.types import Samples

STDOUT: Final = "-"
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
ABANDON_TIMEOUT_S: Final = 1.0
"""How long an interrupted output waits for a write that is under way, such as to a full pipe."""


class Output(Protocol):
    """Where audio goes. Blocking; called from a thread."""

    def write(self, samples: Samples) -> None:
        """Append samples at the engine's rate."""
        ...

    def finish(self) -> None:
        """Complete it."""
        ...

    def abandon(self) -> None:
        """Leave it valid, but at once; may be called while another thread writes, and twice."""
        ...


class FileOutput:
    """Encodes into a file or a pipe, without a buffer in between.

    A file is touched only when there is audio for it: until then its old content stays. A WAV file
    gets its true length at the end, also when it is abandoned; a pipe keeps the streaming length.

    Args:
        name: What to call it in messages.
        descriptor: Open for writing; closed by whoever opened it.
        encoder: Makes the bytes.
        is_file: Whether it is a regular file, which can be shortened and corrected.
    """

    def __init__(self, name: str, descriptor: int, encoder: Encoder, *, is_file: bool) -> None:
        self._name = name
        self._descriptor = descriptor
        self._encoder = encoder
        self._is_file = is_file
        self._lock = threading.Lock()
        self._ended = False
        self.written_bytes = 0

    def write(self, samples: Samples) -> None:
        """See `Output.write`."""
        with self._lock:
            if not self._ended:
                self._put(self._encoder.push(samples))

    def finish(self) -> None:
        """See `Output.finish`."""
        with self._lock:
            if not self._ended:
                self._put(self._encoder.flush() or [b""])
                self._ended = True
                self._correct_header()

    def abandon(self) -> None:
        """See `Output.abandon`."""
        if not self._lock.acquire(timeout=ABANDON_TIMEOUT_S):
            return  # a pipe that nobody reads
        try:
            if not self._ended:
                self._ended = True
                self._encoder.close()
                with contextlib.suppress(OSError, ConfigError):
                    self._correct_header()
        finally:
            self._lock.release()

    def _put(self, pieces: list[bytes]) -> None:
        for data in pieces:
            if self._is_file and not self.written_bytes:
                os.ftruncate(self._descriptor, 0)
            self._write_all(data)
            self.written_bytes += len(data)

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # somebody has set the pipe to non-blocking
                select.select([], [self._descriptor], [])
            except BrokenPipeError:
                raise
            except OSError as error:
                raise ConfigError(
                    f"{self._name} cannot be written: {error.strerror}",
                    how_to_fix="make room on the disk, or choose another file with -o",
                ) from error

    def _correct_header(self) -> None:
        if not self._is_file or self.written_bytes < WAV_HEADER_BYTES:
            return
        if self._encoder.encoding == "wav":
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            data_bytes = self.written_bytes - WAV_HEADER_BYTES
            self._write_all(wav_header(self._encoder.sample_rate, data_bytes))


class PlayerOutput:
    """Plays while it is made."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self._ended = False

    def write(self, samples: Samples) -> None:
        """See `Output.write`."""
        self._player.write(samples)

    def finish(self) -> None:
        """See `Output.finish`."""
        self._player.finish()
        self._ended = True

    def abandon(self) -> None:
        """See `Output.abandon`."""
        if not self._ended:
            self._ended = True
            self._player.stop()


@dataclass
class Outputs:
    """Every place that one utterance goes to."""

    places: list[Output] = field(default_factory=list)

    def write(self, samples: Samples) -> None:
        """Append to all."""
        for output in self.places:
            output.write(samples)

    def finish(self) -> None:
        """Complete all; files before the loudspeaker, which takes its time."""
        for output in self.places:
            output.finish()

    def abandon(self) -> None:
        """Leave all; the loudspeaker first, because it is heard."""
        for output in reversed(self.places):
            output.abandon()


def encoding_of(path: str, wanted: str | None) -> str:
    """Encoding of an output file: the wanted one, or the one of its suffix.

    Raises:
        UnsupportedFormat: Unknown suffix.
    """
    if wanted is not None:
        return wanted
    if path == STDOUT:
        return "wav"
    suffix = Path(path).suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    raise UnsupportedFormat(
        f"the suffix {suffix!r} names no audio format" if suffix else f"{path} has no suffix",
        how_to_fix=f"use one of {', '.join(SUFFIXES)}, or --format",
    )


@contextlib.contextmanager
def _opened(path: str) -> Iterator[FileTarget]:
    """Open a file without touching what it holds; remove it again if nothing came of it."""
    if Path(path).is_dir():
        raise ConfigError(f"{path} is a folder", how_to_fix="name a file in it, such as speech.wav")
    existed = os.path.lexists(path)
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}",
            how_to_fix="choose another file with -o",
        ) from error
    try:
        yield FileTarget(descriptor, stat.S_ISREG(os.fstat(descriptor).st_mode))
    except BaseException:
        if not existed and os.fstat(descriptor).st_size == 0:
            with contextlib.suppress(OSError):
                Path(path).unlink()
        raise
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class FileTarget:
    """An open file."""

    descriptor: int
    is_file: bool
    """A regular one."""


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
        stack: Abandons what is not finished, and closes the file.
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
    if path == STDOUT:
        if sys.stdout is None:
            raise ConfigError("standard output is closed", how_to_fix="name a file with -o")
        encoder = make_encoder(encoding_of(path, encoding), engine_rate, sample_rate, 0)
        descriptor = sys.stdout.fileno()
        outputs.places.append(FileOutput("standard output", descriptor, encoder, is_file=False))
    elif path is not None:
        target = stack.enter_context(_opened(path))
        encoder = make_encoder(encoding_of(path, encoding), engine_rate, sample_rate, 0)
        outputs.places.append(FileOutput(path, target.descriptor, encoder, is_file=target.is_file))
    if play:
        outputs.places.append(PlayerOutput(open_player(engine_rate)))
    stack.callback(outputs.abandon)
    return outputs
