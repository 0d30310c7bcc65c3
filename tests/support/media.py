"""What a player would make of audio bytes."""

from __future__ import annotations

import io
import json
import subprocess
from dataclasses import dataclass

import av


@dataclass(frozen=True)
class Heard:
    """A decoded file."""

    codec: str
    sample_rate: int
    seconds: float
    peak: float


def hear(data: bytes) -> Heard:
    """Decode a whole file.

    Raises:
        av.error.InvalidDataError: It is no such file, or damaged.
    """
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.audio[0]
        samples, peak, rate = 0, 0.0, 0
        for frame in container.decode(stream):
            values = frame.to_ndarray()
            rate = frame.sample_rate
            samples += frame.samples
            full_scale = 32768.0 if values.dtype.kind == "i" else 1.0
            peak = max(peak, float(abs(values.astype("f8")).max()) / full_scale)
        return Heard(stream.codec_context.name, rate, samples / rate, peak)


def ffprobe(data: bytes) -> dict[str, str]:
    """What ffprobe says of the only stream of a file; it must see no error in it."""
    command = ["ffprobe", "-v", "error", "-show_streams", "-of", "json", "-"]
    done = subprocess.run(command, input=data, capture_output=True, timeout=20, check=True)
    assert not done.stderr, done.stderr
    (stream,) = json.loads(done.stdout)["streams"]
    return stream
