"""Speak an LLM's answer while it is being written, and stop when the user cuts in.

python llm_pipe.py [URL]; replace `answer` by the token stream of your LLM.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

from cosyvoice_stream import connect

ANSWER = "The ferry leaves at **half past eight**. It takes an hour, so bring a book! " * 3


async def answer(question: str) -> AsyncIterator[str]:
    """Plays the LLM: a token every 20 ms."""
    for token in ANSWER.split(" "):
        await asyncio.sleep(0.02)
        yield token + " "


async def main(url: str = "http://127.0.0.1:8000") -> None:
    async with connect(url, voice="heart") as session:
        utterance = await session.speak(answer("When does the ferry leave?"))
        heard_ms = 0.0
        async for chunk in utterance:  # the first chunk comes long before the last token
            print(f"{chunk.start_ms:7.0f} ms: {len(chunk.samples)} samples for the loudspeaker")
            heard_ms = chunk.start_ms + 1000 * len(chunk.samples) / chunk.sample_rate
            if heard_ms > 2000:  # here the user begins to speak
                break
        await utterance.played(2000)
        stopped = await utterance.cancel()  # no audio of this utterance comes after this
        print("The user has heard:", stopped.spoken_text)
        again = await session.speak("Sure, go ahead.")
        print(f"{len(await again.read())} samples of the next utterance")


asyncio.run(main(*sys.argv[1:]))
