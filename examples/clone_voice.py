"""Speak in the voice of a recording: python clone_voice.py me.wav "Hello." hello.mp3 [URL].

The recording (WAV, MP3, FLAC, OGG, M4A, WebM) should hold 3 to 10 seconds of one speaker.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cosyvoice_stream import VoiceStreamError, connect


async def in_voice_of(
    recording: Path, text: str, encoding: str, url: str = "http://127.0.0.1:8000"
) -> bytes:
    async with connect(url) as session:
        made = await session.clone(recording)  # persist=True keeps the voice on the server
        for warning in made.warnings:
            print("note:", warning)
        output = {"encoding": encoding}
        utterance = await session.speak(text, voice=made.voice["id"], output=output)
        return b"".join([chunk.data async for chunk in utterance])


recording, text, target, *url = sys.argv[1:]
path = Path(target)
try:
    path.write_bytes(asyncio.run(in_voice_of(Path(recording), text, path.suffix[1:], *url)))
except VoiceStreamError as error:  # no server, a recording that is too short or too noisy, …
    sys.exit(f"{error}\n{error.how_to_fix or ''}")
