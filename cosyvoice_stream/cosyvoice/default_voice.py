"""The voice of a checkpoint that brings no speaker along: cloned from the embedded engine's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import numpy as np

from cosyvoice_stream.lite.engine import LiteEngine
from cosyvoice_stream.types import ReferenceAudio, SynthesisOptions

VOICE_ID: Final = "heart"
NAME: Final = "Heart"
TRANSCRIPT: Final = (
    "It was a bright morning by the river, and the two of us walked slowly along the bank, "
    "talking about nothing in particular."
)
SEED: Final = 1


async def default_reference() -> ReferenceAudio:
    """Record the embedded engine's voice saying `TRANSCRIPT`. Takes about a second."""

    async def text() -> AsyncGenerator[str, None]:
        yield TRANSCRIPT

    engine = LiteEngine(threads=1)
    await engine.start()
    try:
        voice = engine.info.voices[0]
        chunks = engine.synthesize(text(), voice, SynthesisOptions(seed=SEED))
        async with aclosing(chunks):
            pieces = [chunk.samples async for chunk in chunks]
    finally:
        await engine.close()
    rate = engine.info.sample_rate
    return ReferenceAudio(np.concatenate(pieces), rate, rate / 2)
