"""Sound on this machine: sounddevice where it is installed, else a player program and a pipe."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.streaming import pcm
from cosyvoice_stream.types import Samples

CURE: Final = "pip install 'cosyvoice-stream[play]', or install ffmpeg, or write a file with -o"


class Player(Protocol):
    """Plays one stream. All methods block and belong to one thread."""

    def write(self, samples: Samples) -> None:
        """Append mono samples; waits while the device's buffer is full."""
        ...

    def finish(self) -> None:
        """Wait until the last sample has been heard."""
        ...

    def stop(self) -> None:
        """Be silent at once."""
        ...


@dataclass(frozen=True)
class Program:
    """A player that reads 16-bit little-endian mono samples from standard input."""

    name: str
    arguments: Callable[[int], list[str]]
    """Command line for a sample rate."""


PROGRAMS: Final = (
    Program(
        "pw-play",
        lambda hz: ["--raw", "--rate", str(hz), "--channels", "1", "--format", "s16", "-"],
    ),
    Program("paplay", lambda hz: ["--raw", f"--rate={hz}", "--channels=1", "--format=s16le"]),
    Program("aplay", lambda hz: ["-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", str(hz), "-"]),
    Program(
        "ffplay",
        lambda hz: [
            *("-nodisp", "-autoexit", "-loglevel", "error", "-fflags", "nobuffer"),
            *("-f", "s16le", "-ar", str(hz), "-ch_layout", "mono", "-i", "-"),
        ],
    ),
    Program(
        "play",
        lambda hz: [
            *("-q", "-t", "raw", "-e", "signed", "-b", "16", "-c", "1"),
            "-r",
            str(hz),
            "-",
        ],
    ),
)


def find_player() -> str | None:
    """Name of what `open_player` would use, or None."""
    if _sounddevice() is not None:
        return "sounddevice"
    return next((p.name for p in PROGRAMS if shutil.which(p.name)), None)


def open_player(sample_rate: int) -> Player:
    """Open the sound output.

    Raises:
        ConfigError: There is none.
    """
    device = _sounddevice()
    if device is not None:
        return _DevicePlayer(device, sample_rate)
    for program in PROGRAMS:
        path = shutil.which(program.name)
        if path is not None:
            return _ProgramPlayer([path, *program.arguments(sample_rate)])
    raise ConfigError("no audio player was found on this machine", how_to_fix=CURE)


def _sounddevice() -> Any | None:
    """The module if it is installed and there is a device to play on."""
    try:
        import sounddevice

        sounddevice.query_devices(kind="output")
    except Exception:  # a missing library, no device, or PortAudio's own errors
        return None
    return sounddevice


class _DevicePlayer:
    def __init__(self, sounddevice: Any, sample_rate: int) -> None:
        self._stream = sounddevice.OutputStream(
            samplerate=sample_rate, channels=1, dtype="float32", latency="low"
        )
        self._stream.start()

    def write(self, samples: Samples) -> None:
        self._stream.write(samples.reshape(-1, 1))

    def finish(self) -> None:
        self._stream.stop()
        self._stream.close()

    def stop(self) -> None:
        self._stream.abort()
        self._stream.close()


class _ProgramPlayer:
    def __init__(self, command: list[str]) -> None:
        self._name = command[0]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=sys.stderr
        )

    def write(self, samples: Samples) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pcm.to_s16le(samples))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended_early() from None

    def finish(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._process.wait() != 0:
            raise self._ended_early()

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def _ended_early(self) -> ConfigError:
        return ConfigError(f"{self._name} stopped playing", how_to_fix=CURE)
