"""A microphone recording of a session: bare audio in any cut in, samples and progress out."""

from __future__ import annotations

from typing import Final

import webrtcvad

from cosyvoice_stream.server.mic_audio import MicDecoder
from cosyvoice_stream.server.wire import VoiceBegin, VoiceProgress
from cosyvoice_stream.streaming.recorder import Recorder
from cosyvoice_stream.types import Samples

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
        self._decoder = MicDecoder(message.input.encoding)
        detector = webrtcvad.Vad(_VAD_MODE)
        self._recorder = Recorder(message.input.sample_rate, detector.is_speech, max_seconds=max_s)

    @property
    def sample_rate(self) -> int:
        """In hertz."""
        return self.message.input.sample_rate

    def push(self, data: bytes) -> list[VoiceProgress]:
        """Take a frame; bytes of a sample that is cut in two wait for the next one."""
        return [
            VoiceProgress(
                captured_ms=report.captured_ms,
                speech_ms=report.speech_ms,
                level_dbfs=report.level_dbfs,
                hint=report.hint,
            )
            for report in self._recorder.push(self._decoder.push(data))
        ]

    def samples(self) -> Samples:
        """The whole recording."""
        return self._recorder.samples()
