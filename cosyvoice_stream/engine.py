"""The one interface of every engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol, runtime_checkable

from cosyvoice_stream.types import (
    EngineInfo,
    PcmChunk,
    ReferenceAudio,
    SpeechStream,
    SynthesisOptions,
    TextStream,
    Voice,
)


@runtime_checkable
class Engine(Protocol):
    """Turns text into speech. All methods are called from one event loop and never block it."""

    @property
    def info(self) -> EngineInfo:
        """Facts about the engine; valid before `start`."""
        ...

    async def start(self) -> None:
        """Load weights, check them, and render one sentence, so that no caller waits for it.

        Raises:
            ModelLoadError: A file is missing, damaged, or its output is not speech.
        """
        ...

    async def enrol(self, reference: ReferenceAudio, transcript: str | None) -> Voice:
        """Make a voice from a checked recording.

        Args:
            reference: Trimmed recording of one speaker.
            transcript: What is said in it, if known; engines may ignore it.

        Returns:
            A voice whose `voice_id` and `name` are empty; the voice store fills them in.

        Raises:
            EnrolmentRejected: The recording has no usable speech.
        """
        ...

    def synthesize(
        self, text: TextStream, voice: Voice, options: SynthesisOptions
    ) -> AsyncGenerator[PcmChunk, None]:
        """Speak a text stream.

        Audio starts as soon as the first clause is complete. An utterance whose text holds nothing
        to say yields one empty final chunk. Closing the returned iterator (``aclose``) cancels: no
        further work is started for the utterance, `text` is closed, and everything it held is freed
        before ``aclose`` returns.

        Args:
            text: Fragments in order; consumed only by this call.
            voice: A built-in voice of this engine or a result of `enrol`.
            options: How to speak.

        Returns:
            An async generator of contiguous chunks; the last one has ``final=True``.

        Raises:
            UnsupportedLanguage: The text is in a script that the engine cannot speak.
            SynthesisFailed: Rendering failed; other utterances are not affected.
            EngineDied: Nothing can be rendered until `close` and `start` were called again; all
                utterances that run end with it.
        """
        ...

    async def close(self) -> None:
        """End what runs, join all threads, free the model. Safe to call twice.

        Utterances that are still being taken end with `SynthesisFailed`. `start` may follow.
        """
        ...


@runtime_checkable
class Converter(Protocol):
    """What an `Engine` with `Feature.CONVERSION` can do besides."""

    def convert(
        self, speech: SpeechStream, voice: Voice, options: SynthesisOptions
    ) -> AsyncGenerator[PcmChunk, None]:
        """Say what somebody else says, when and how he says it, in another voice.

        Args:
            speech: Mono samples at 16 kHz. A stream is consumed only by this call and spoken while
                it comes; speech that is there as a whole is converted more exactly.
            voice: See `Engine.synthesize`.
            options: Of these `seed`, `speed`, `volume` and `flow_steps` count.

        Returns:
            See `Engine.synthesize`, also for the errors and for what closing it does. Speech of no
            samples gives one empty final chunk.
        """
        ...
