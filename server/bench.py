"""First audio and real-time factor of an engine in this process, at several numbers of streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.types import SynthesisOptions

AUDIBLE: Final = 10 ** (-50 / 20)
TEXTS: Final = (
    "Yes, of course.",
    "Your order has been shipped and should arrive on Thursday.",
    "Turn left at the next corner, then walk straight on until you see the bridge.",
    "Thank you for waiting, I found the answer to your question in the second chapter of the book.",
)


@dataclass(frozen=True)
class Row:
    """Figures of one number of streams that start at the same moment."""

    streams: int
    utterances: int
    first_audio_p50_ms: float
    first_audio_p95_ms: float
    rtf: float
    """Wall-clock seconds per second of audio of all streams together."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


async def measure(
    engine: Engine, streams: list[int], rounds: int, on_row: Callable[[Row], None]
) -> list[Row]:
    """Speak every text `rounds` times in each of several parallel streams.

    Args:
        engine: Started.
        streams: Numbers of streams to try.
        rounds: Repetitions.
        on_row: Called with each row as soon as it is known.
    """
    rows = []
    await _speak(engine, TEXTS[0], 0)
    for count in streams:
        first: list[float] = []
        audio_s = 0.0
        began = time.monotonic()
        for turn in range(rounds):
            for index, text in enumerate(TEXTS):
                heard = await asyncio.gather(
                    *(_speak(engine, text, 100 * turn + index) for _ in range(count))
                )
                first += [ms for ms, _ in heard]
                audio_s += sum(seconds for _, seconds in heard)
        elapsed = time.monotonic() - began
        row = Row(
            count,
            len(first),
            round(float(np.percentile(first, 50)), 1),
            round(float(np.percentile(first, 95)), 1),
            round(elapsed / audio_s, 4),
        )
        rows.append(row)
        on_row(row)
    return rows


async def _speak(engine: Engine, text: str, seed: int) -> tuple[float, float]:
    """Milliseconds to the first audible sample, and seconds of audio."""

    async def stream() -> AsyncIterator[str]:
        yield text

    began = time.monotonic()
    first = 0.0
    samples = 0
    options = SynthesisOptions(seed=seed)
    async for chunk in engine.synthesize(stream(), engine.info.voices[0], options):
        if not first and np.abs(chunk.samples).max(initial=0.0) > AUDIBLE:
            first = time.monotonic() - began
        samples += len(chunk.samples)
    return first * 1e3, samples / engine.info.sample_rate
