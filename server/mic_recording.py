"""A microphone recording of a session: bare audio in any cut in, samples and progress out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import webrtcvad
from numpy.typing import NDArray

from cosyvoice_stream.server.recording_state import SAMPLE_BYTES
from cosyvoice_stream.server.wire import VoiceBegin, VoiceProgress
from cosyvoice_stream.streaming.g711 import decode_alaw, decode_mulaw
from cosyvoice_stream.streaming.pcm import from_s16le
from cosyvoice_stream.streaming.recorder import Recorder
from cosyvoice_stream.types import Samples

_Octets: TypeAlias = NDArray[np.uint8]
_Linear: TypeAlias = NDArray[np.int16]

_VAD_MODE: Final = 2
"""Of 0 (everything is speech) to 3; room noise is not, quiet speech is."""


class MicRecording:
    """Decodes and collects a recording.

    Args:
        message: Its `voice.begin`.
        max_s: Longest recording, in seconds.
    """

    def __init__(self, message: VoiceBegin, max_s: float) -> None:
        self.message = message
        self._decode = _DECODERS[message.input.encoding]
        self._sample_bytes = SAMPLE_BYTES[message.input.encoding]
        self._rest = b""
        detector = webrtcvad.Vad(_VAD_MODE)
        self._recorder = Recorder(message.input.sample_rate, detector.is_speech, max_seconds=max_s)

    @property
    def sample_rate(self) -> int:
        """In hertz."""
        return self.message.input.sample_rate

    def push(self, data: bytes) -> list[VoiceProgress]:
        """Take a frame; bytes of a sample that is cut in two wait for the next one."""
        data = self._rest + data
        whole = len(data) - len(data) % self._sample_bytes
        self._rest = data[whole:]
        samples = self._decode(data[:whole])
        return [
            VoiceProgress(
                captured_ms=report.captured_ms,
                speech_ms=report.speech_ms,
                level_dbfs=report.level_dbfs,
                hint=report.hint,
            )
            for report in self._recorder.push(samples)
        ]

    def samples(self) -> Samples:
        """The whole recording."""
        return self._recorder.samples()


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
