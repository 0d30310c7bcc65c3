"""Bare audio of a client's microphone, in any cut, as samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cosyvoice_stream.server.recording_state import SAMPLE_BYTES
from cosyvoice_stream.streaming.g711 import decode_alaw, decode_mulaw
from cosyvoice_stream.streaming.pcm import from_s16le
from cosyvoice_stream.types import Samples

_Octets: TypeAlias = NDArray[np.uint8]
_Linear: TypeAlias = NDArray[np.int16]


class MicDecoder:
    """Decodes a stream; bytes of a sample that is cut in two wait for the next frame.

    Args:
        encoding: One of `SAMPLE_BYTES`.
        channels: Interleaved ones; samples of one moment are kept together.
    """

    def __init__(self, encoding: str, channels: int = 1) -> None:
        self._decode = _DECODERS[encoding]
        self._moment_bytes = SAMPLE_BYTES[encoding] * channels
        self._rest = b""

    def push(self, data: bytes) -> Samples:
        """Take a frame; return what it completes, shape (N,), channels interleaved."""
        data = self._rest + data
        whole = len(data) - len(data) % self._moment_bytes
        self._rest = data[whole:]
        return self._decode(data[:whole])


def _from_f32le(data: bytes) -> Samples:
    # A client may send any bits; what is not a number is silence.
    samples: Samples = np.frombuffer(data, "<f4").astype(np.float32)
    np.nan_to_num(samples, copy=False, nan=0.0, posinf=1.0, neginf=-1.0)
    return samples.clip(-1.0, 1.0)


def _from_g711(decode: Callable[[_Octets], _Linear]) -> Callable[[bytes], Samples]:
    def decoded(data: bytes) -> Samples:
        linear = decode(np.frombuffer(data, np.uint8))
        return linear.astype(np.float32) / np.float32(32768)

    return decoded


_DECODERS: Final[dict[str, Callable[[bytes], Samples]]] = {
    "pcm_s16le": from_s16le,
    "pcm_f32le": _from_f32le,
    "mulaw": _from_g711(decode_mulaw),
    "alaw": _from_g711(decode_alaw),
}
