"""Voices in memory, the one used longest ago goes first."""

from __future__ import annotations

from collections import OrderedDict

from cosyvoice_stream.types import Voice


class VoiceCache:
    """Voices up to a number of bytes of tensors.

    Args:
        max_bytes: The budget; a voice that is larger is not kept at all.
    """

    _OVERHEAD_BYTES = 1024

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._voices: OrderedDict[str, Voice] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        """What is held."""
        return self._bytes

    def get(self, voice_id: str) -> Voice | None:
        """Return a voice, or None if it is not held."""
        voice = self._voices.get(voice_id)
        if voice is not None:
            self._voices.move_to_end(voice_id)
        return voice

    def put(self, voice_id: str, voice: Voice) -> None:
        """Hold a voice, and drop those used longest ago until all fit."""
        self.drop(voice_id)
        self._voices[voice_id] = voice
        self._bytes += self._size_bytes(voice)
        while self._bytes > self._max_bytes and self._voices:
            self.drop(next(iter(self._voices)))

    def drop(self, voice_id: str) -> None:
        """Let go of a voice, if it is held."""
        if (voice := self._voices.pop(voice_id, None)) is not None:
            self._bytes -= self._size_bytes(voice)

    def clear(self) -> None:
        """Let go of all."""
        self._voices.clear()
        self._bytes = 0

    def _size_bytes(self, voice: Voice) -> int:
        return self._OVERHEAD_BYTES + sum(array.nbytes for array in voice.tensors.values())
