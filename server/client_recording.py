"""What a client sends as a recording: 16-bit samples at a rate that the protocol carries."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from cosyvoice_stream.errors import ConfigError, LimitExceeded, UnsupportedFormat
from cosyvoice_stream.streaming.pcm import to_s16le
from cosyvoice_stream.streaming.resample import Resampler
from cosyvoice_stream.types import Samples

MIN_RATE_HZ: Final = 8000
MAX_RATE_HZ: Final = 48_000


def check_readable(path: Path) -> None:
    """Look whether a file that a user named can be read.

    Raises:
        ConfigError: It cannot.
    """
    try:
        with path.open("rb", buffering=0) as file:
            file.read(1)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}",
            how_to_fix="check the path and the permissions of the recording",
        ) from error


def read_recording(
    recording: Path | str | bytes | tuple[Samples, int], max_s: float
) -> tuple[bytes, int]:
    """Read, and where needed lower the rate of, a recording. Blocks.

    Args:
        recording: A file, the bytes of one, or mono samples of shape (N,) with their rate in hertz.
        max_s: Longest recording that the server takes, in seconds.

    Returns:
        pcm_s16le and its rate in hertz, at most `MAX_RATE_HZ`.

    Raises:
        UnsupportedFormat: It cannot be decoded, or is not mono samples at 8 kHz or more.
        LimitExceeded: It is too long.
    """
    if isinstance(recording, tuple):
        samples, rate = np.asarray(recording[0], np.float32), recording[1]
    else:
        from cosyvoice_stream.decode import decode_audio

        source = recording if isinstance(recording, bytes) else Path(recording)
        decoded = decode_audio(source, max_seconds=max_s)
        samples, rate = decoded.samples, decoded.sample_rate
    if samples.ndim != 1 or rate < MIN_RATE_HZ:
        raise UnsupportedFormat(
            f"a recording of shape {samples.shape} at {rate} Hz cannot be sent",
            how_to_fix=f"give mono samples, shape (N,), at {MIN_RATE_HZ} Hz or more",
        )
    if len(samples) > max_s * rate:
        raise LimitExceeded("seconds of recording", max_s, len(samples) / rate)
    if rate > MAX_RATE_HZ:
        resampler = Resampler(rate, MAX_RATE_HZ)
        pieces = [*resampler.push(samples), *resampler.flush()]
        samples, rate = np.concatenate([*pieces, np.zeros(0, np.float32)]), MAX_RATE_HZ
    return to_s16le(samples[: int(max_s * rate)]), rate
