"""A checkpoint with small random networks, and what tests need to speak through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from cosyvoice_stream.cosyvoice.config import EngineConfig
from cosyvoice_stream.cosyvoice.engine import CosyVoiceEngine
from cosyvoice_stream.cosyvoice.random_checkpoint import write_random_checkpoint
from cosyvoice_stream.types import (
    Flush,
    PcmChunk,
    ReferenceAudio,
    Samples,
    SynthesisOptions,
    Voice,
)

RATE = 24_000


@cache
def mini_folder(version: int) -> Path:
    """A folder that lives as long as the process; tests must not write into it."""
    return write_random_checkpoint(Path(mkdtemp(prefix="mini-checkpoint-")), version)


def reference(seconds: float = 4.0, seed: int = 0) -> ReferenceAudio:
    """Noise whose spectrum differs by seed."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(round(seconds * RATE)).astype(np.float32)
    smooth = np.convolve(noise, rng.uniform(-1, 1, 9).astype(np.float32), "same")
    return ReferenceAudio((0.1 * smooth).astype(np.float32), RATE, RATE / 2)


async def stream(*pieces: str | Flush) -> AsyncIterator[str | Flush]:
    """A text stream of these pieces."""
    for piece in pieces:
        yield piece


@dataclass
class Spoken:
    """What an utterance gave."""

    chunks: list[PcmChunk]

    @property
    def samples(self) -> Samples:
        return np.concatenate([chunk.samples for chunk in self.chunks])


async def speak(
    engine: CosyVoiceEngine, text: str | Iterable[str | Flush], voice: Voice, **options: Any
) -> Spoken:
    """Speak to the end."""
    pieces = (text,) if isinstance(text, str) else tuple(text)
    options.setdefault("seed", 5)
    chunks = engine.synthesize(stream(*pieces), voice, SynthesisOptions(**options))
    async with aclosing(chunks):
        return Spoken([chunk async for chunk in chunks])


def with_engine(
    version: int, test: Callable[[CosyVoiceEngine], Awaitable[None]], **config: Any
) -> None:
    """Run a test with a started engine."""

    async def main() -> None:
        engine = CosyVoiceEngine(mini_folder(version), EngineConfig(**config))
        await engine.start()
        try:
            await test(engine)
            loaded = engine._loaded
            assert loaded is not None
            assert len(loaded.device) == 0
            assert loaded.worker._lm.free_slots == engine._config.slots
            assert engine._live == 0
            assert engine._reserved_bytes == 0
        finally:
            await engine.close()

    asyncio.run(main())
