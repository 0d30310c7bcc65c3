"""A voice service of fixed answers, for tests that are not about voices."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.errors import VoiceNotFound
from cosyvoice_stream.types import Samples, Voice


@dataclass
class StaticVoices:
    """Knows the voices of an engine and whatever is enrolled.

    Set `gate` to hold enrolments back, `rejection` to refuse them.
    """

    engine: Engine
    made: dict[str, Voice] = field(default_factory=dict)
    requests: list[object] = field(default_factory=list)
    samples: list[Samples] = field(default_factory=list)
    gate: asyncio.Event | None = None
    rejection: Exception | None = None

    async def resolve(self, voice_id: str | None) -> Voice:
        known = {voice.voice_id: voice for voice in self.engine.info.voices} | self.made
        if voice_id is None:
            return self.engine.info.voices[0]
        if voice_id not in known:
            raise VoiceNotFound(voice_id)
        return known[voice_id]

    async def enrol_samples(self, samples, rate, request):
        self.requests.append(request)
        self.samples.append(samples)
        if self.gate is not None:
            await self.gate.wait()
        if self.rejection is not None:
            raise self.rejection
        voice_id = f"made-{len(self.requests)}"
        self.made[voice_id] = Voice(voice_id, request.name or voice_id, "fake-1")
        return SimpleNamespace(
            voice=SimpleNamespace(to_json=lambda: {"id": voice_id, "name": request.name}),
            quality={"speech_ms": 3000},
            transcript=request.transcript,
            warnings=["a warning"],
        )

    def forget_temporary(self, voice_id: str) -> None:
        self.made.pop(voice_id, None)
