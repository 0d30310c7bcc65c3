"""Listeners for load measurements: speak, note when sound arrives, play in real time."""

from __future__ import annotations

import asyncio
import json
import random
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

HEADER = struct.Struct("<BBHII")
SILENCE = 10 ** (-50 / 20)
"""Samples below -50 dBFS do not count as first audio."""
MAX_LEAD_S = 2.0
"""A real-time listener stops reading while it holds this much unplayed audio."""

TEXTS = (
    "Good morning, how can I help?",
    "Yes, of course.",
    "One moment please.",
    "The train to the airport leaves from platform four in ten minutes.",
    "I have booked a table for two at seven in the evening, near the window.",
    "Your order has been shipped and should arrive on Thursday.",
    "Could you spell your last name for me?",
    "The weather tomorrow will be sunny in the morning, with light rain after lunch.",
    "Thank you for waiting, I found the answer to your question.",
    "Turn left at the next corner, then walk straight on until you see the bridge.",
    "I am sorry, I did not quite catch that.",
    "There are three messages in your inbox, and one of them is marked as urgent.",
    "The museum opens at nine and closes at five, except on Mondays.",
    "All right, let us begin.",
    "Please hold the line while I connect you to a colleague who can change the booking for you.",
    "That sounds like a good plan.",
    "The battery is nearly empty, so you may want to plug it in before you leave the house.",
    "Would you prefer tea or coffee?",
    "Her flight was delayed by an hour, but she will still make the connection in Vienna.",
    "The library lends books, films and musical instruments to everyone who lives in the city.",
)


@dataclass
class Heard:
    """What one listener observed of one utterance."""

    first_audio_ms: float
    """From the request's last byte to the first frame with a sample above `SILENCE`."""
    underrun_ms: float
    """Time for which a player that starts on the first frame would have been out of data."""
    audio_s: float


@dataclass
class Load:
    """Everything that a group of listeners observed."""

    heard: list[Heard] = field(default_factory=list)
    refused: int = 0
    live: int = 0
    live_integral_s: float = 0.0
    """Sum over time of the number of utterances between request and end of play-out."""


async def listen(socket: ClientConnection, number: int, text: str, real_time: bool) -> Heard | str:
    """Speak `text` and receive it.

    Args:
        socket: Connection on which `session.ready` was read.
        number: Makes the utterance id unique on the connection.
        text: What to say.
        real_time: Read no further ahead than `MAX_LEAD_S` and return when the last sample has been
            played; otherwise read as fast as possible.

    Returns:
        What was heard, or the error code of a refusal.
    """
    utterance = f"u{number}"
    await socket.send(json.dumps({"type": "speak", "id": utterance, "text": text}))
    asked = time.monotonic()
    first = 0.0
    rate = 24_000
    play_end = 0.0
    underrun_s = 0.0
    samples = 0
    async for message in socket:
        now = time.monotonic()
        if isinstance(message, str):
            event = json.loads(message)
            if event.get("id") != utterance:
                continue
            if event["type"] == "utterance.started":
                rate = event["sample_rate"]
            elif event["type"] == "error":
                return str(event["code"])
            elif event["type"] == "utterance.done":
                break
            continue
        pcm = np.frombuffer(message, "<i2", offset=HEADER.size)
        if not len(pcm):
            continue
        if not first:
            if np.abs(pcm).max() < SILENCE * 32768:
                continue
            first = play_end = now
        if now > play_end:
            underrun_s += now - play_end
            play_end = now
        play_end += len(pcm) / rate
        samples += len(pcm)
        if real_time and play_end - now > MAX_LEAD_S:
            await asyncio.sleep(play_end - now - MAX_LEAD_S)
    if real_time:
        await asyncio.sleep(max(0.0, play_end - time.monotonic()))
    return Heard((first - asked) * 1e3, underrun_s * 1e3, samples / rate)


async def _listener(url: str, load: Load, seconds: float, real_time: bool, seed: int) -> None:
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    async with connect(url, max_size=None, compression=None) as socket:
        await socket.recv()
        number = 0
        # Poisson arrivals: exponential gaps, the first one spread over a typical utterance.
        await asyncio.sleep(rng.expovariate(1 / 2.0) if real_time else 0)
        while time.monotonic() < end:
            number += 1
            began = time.monotonic()
            load.live += 1
            result = await listen(socket, number, rng.choice(TEXTS), real_time)
            load.live -= 1
            load.live_integral_s += time.monotonic() - began
            if isinstance(result, Heard):
                load.heard.append(result)
            else:
                load.refused += 1
            await asyncio.sleep(rng.expovariate(1 / (0.3 if real_time else 0.05)))


async def run_listeners(url: str, streams: int, seconds: float, seed: int) -> Load:
    """Run `streams` listeners at once; a single one does not wait for its audio to be played."""
    load = Load()
    async with asyncio.TaskGroup() as group:
        for index in range(streams):
            group.create_task(_listener(url, load, seconds, streams > 1, seed * 1000 + index))
    return load


def percentile(values: Sequence[float], q: float) -> float:
    """Percentile by linear interpolation; NaN without values."""
    return float(np.percentile(values, q)) if values else float("nan")
