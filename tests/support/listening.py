"""What quality tests listen to: sentences through the WebSocket of a real server."""

from __future__ import annotations

import asyncio
import json
import wave
from pathlib import Path

import numpy as np

from cosyvoice_stream.lite.engine import LiteEngine
from cosyvoice_stream.server.client import connect
from cosyvoice_stream.types import Samples
from support.served import serving

REFERENCES = Path(__file__).parents[1] / "data" / "ref_wavs"
SAMPLE_RATE = 24_000


def references() -> list[Path]:
    """The reference recordings that ship with the tests."""
    items = json.loads((REFERENCES / "transcripts.json").read_text("utf-8"))["items"]
    return [REFERENCES / item["file"] for item in items]


def read_wav(path: Path) -> tuple[Samples, int]:
    """Mono samples and their rate."""
    with wave.open(str(path)) as file:
        data = file.readframes(file.getnframes())
        return np.frombuffer(data, "<i2").astype(np.float32) / 32768, file.getframerate()


def spoken(voices_dir: Path, texts: list[str], recording: Path | None = None) -> list[Samples]:
    """Speak texts through a server of its own, in the built-in voice or one made of a recording."""

    async def run() -> list[Samples]:
        async with (
            serving(voices_dir, LiteEngine()) as served,
            connect(f"http://127.0.0.1:{served.port}", seed=1) as session,
        ):
            if recording is not None:
                made = await session.clone(recording)
                await session.update(voice=made.voice["id"])
            return [await (await session.speak(text)).read() for text in texts]

    return asyncio.run(run())
