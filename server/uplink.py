"""The microphone of a listener while the server speaks: bytes in, changes out."""

from __future__ import annotations

from typing import Final

import webrtcvad

from cosyvoice_stream.server.mic_audio import MicDecoder
from cosyvoice_stream.server.wire import VadEvent, VadStart
from cosyvoice_stream.streaming.barge_in import BargeIn
from cosyvoice_stream.streaming.echo_gate import EchoGate
from cosyvoice_stream.streaming.vad import IsSpeech, VoiceActivity

FRAME_MS: Final = 20


class UplinkEar:
    """Decodes a microphone stream and finds speech in it.

    Args:
        message: Its `vad.start`.
        is_speech: The detector; WebRTC's in the wanted mode without it.
    """

    def __init__(self, message: VadStart, is_speech: IsSpeech | None = None) -> None:
        self.message = message
        rate, self._channels = message.input.sample_rate, message.input.channels
        self._decoder = MicDecoder(message.input.encoding, self._channels)
        detector = is_speech or webrtcvad.Vad(message.mode).is_speech
        self._gate = EchoGate(detector, rate, rate * FRAME_MS // 1000)
        self._activity = VoiceActivity(
            self._gate if self._channels == 2 else detector,
            rate,
            frame_ms=FRAME_MS,
            start_ms=message.start_ms,
            stop_ms=message.stop_ms,
        )
        self._barge_in = BargeIn(message.min_speech_ms * rate // 1000)

    def push(self, data: bytes) -> list[VadEvent]:
        """Take a frame; return what changes with it."""
        samples = self._decoder.push(data)
        if self._channels == 2:
            self._gate.listen(samples[1::2])
            samples = samples[::2]
        rate = self._activity.sample_rate
        return [
            VadEvent(state=change.state.value, at_ms=round(change.at_sample * 1000 / rate, 1))
            for change in self._barge_in.push(self._activity.push(samples))
        ]
