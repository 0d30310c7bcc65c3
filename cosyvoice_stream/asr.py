"""Speech recognition for reference recordings: what is said in a few seconds of clean speech."""

from __future__ import annotations

import threading
from typing import Any, Final, Protocol

import soxr

from cosyvoice_stream.errors import ModelLoadError
from cosyvoice_stream.types import ReferenceAudio

_WHISPER_HZ: Final = 16_000
_LEAST_LOG_PROBABILITY: Final = -1.0
"""Of a segment, on average: what is less sure is a guess."""
_NO_SPEECH: Final = 0.6
"""Probability from which a segment is taken for none."""


class Transcriber(Protocol):
    """Recognises speech. Methods block and may be called from any thread."""

    def load(self) -> None:
        """Load the model.

        Raises:
            ModelLoadError: It cannot be loaded.
        """
        ...

    def transcribe(self, reference: ReferenceAudio) -> str:
        """Return what is said; "" where that is not sure."""
        ...


def transcriber_of(model: str | None) -> Transcriber | None:
    """The transcriber that a setting names; loads nothing."""
    return None if model is None else WhisperTranscriber(model)


class WhisperTranscriber:
    """Implements `Transcriber` with faster-whisper on the CPU, one recording at a time.

    Args:
        model: Folder of a converted model, or the name of one that faster-whisper can fetch, such
            as ``"base"``.
        threads: Of the processor.
    """

    def __init__(self, model: str, threads: int = 2) -> None:
        self._name = model
        self._threads = threads
        self._model: Any = None
        self._busy = threading.Lock()

    def load(self) -> None:
        """See `Transcriber.load`."""
        with self._busy:
            if self._model is not None:
                return
            try:
                from faster_whisper import WhisperModel
            except ImportError:
                raise ModelLoadError(
                    "speech recognition needs faster-whisper",
                    how_to_fix="pip install 'cosyvoice-stream[asr]', or leave ASR_MODEL out",
                ) from None
            try:
                self._model = WhisperModel(
                    self._name, device="cpu", compute_type="int8", cpu_threads=self._threads
                )
            except Exception as error:  # the library raises what its own libraries raise
                raise ModelLoadError(
                    f"the speech recognition model {self._name!r} cannot be loaded",
                    how_to_fix="name a folder with a converted Whisper model, or one such as base",
                ) from error

    def transcribe(self, reference: ReferenceAudio) -> str:
        """See `Transcriber.transcribe`. Takes about a tenth of the recording's length."""
        self.load()
        audio = soxr.resample(reference.samples, reference.sample_rate, _WHISPER_HZ)
        with self._busy:
            segments, _ = self._model.transcribe(
                audio, beam_size=5, condition_on_previous_text=False
            )
            sure = [
                segment.text.strip()
                for segment in segments
                if segment.avg_logprob > _LEAST_LOG_PROBABILITY
                and segment.no_speech_prob < _NO_SPEECH
            ]
        return " ".join(sure).strip()
