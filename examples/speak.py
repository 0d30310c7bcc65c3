"""Speak a sentence with a running server and save it: python speak.py "Hello." hello.wav [URL]."""

from __future__ import annotations

import asyncio
import sys
import wave

from cosyvoice_stream import connect


async def main(text: str, path: str, url: str = "http://127.0.0.1:8000") -> None:
    async with connect(url) as session:
        utterance = await session.speak(text, marks=["word"])
        with wave.open(path, "wb") as file:
            async for chunk in utterance:  # arrives while the rest is being made
                if chunk.first_sample == 0:
                    file.setparams((1, 2, chunk.sample_rate, 0, "NONE", ""))
                file.writeframes(chunk.data)  # 16-bit samples, the default
                for word in chunk.words:
                    print(f"{word.start_ms:7.0f} ms  {word.text}")
        if utterance.done:
            done = utterance.done
            print(f"{done.audio_ms:.0f} ms of audio, the first after {done.first_audio_ms:.0f} ms")


asyncio.run(main(*sys.argv[1:]))
