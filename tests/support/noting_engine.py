"""A fake engine that remembers what it was asked for."""

from __future__ import annotations

from typing import Any

from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.types import Feature


class NotingEngine(FakeEngine):
    """Remembers options, voices and transcripts; says that it takes instructions."""

    def __init__(self, **options: Any) -> None:
        super().__init__(features=frozenset({Feature.INSTRUCT, Feature.CLONING}), **options)
        self.options: list[Any] = []
        self.voices: list[Any] = []
        self.transcripts: list[str | None] = []

    def synthesize(self, text: Any, voice: Any, options: Any) -> Any:
        self.options.append(options)
        self.voices.append(voice)
        return super().synthesize(text, voice, options)

    async def enrol(self, reference: Any, transcript: str | None) -> Any:
        self.transcripts.append(transcript)
        return await super().enrol(reference, transcript)
