"""A recording of the caller, made during the call."""

from __future__ import annotations

import asyncio
from typing import Final

import numpy as np

from cosyvoice_stream.telephony.call import PhoneCall
from cosyvoice_stream.telephony.call_events import SpeechBegan, TurnEnded
from cosyvoice_stream.telephony.line import Pcm

_WAIT_S: Final = 5.0
"""For the first word after the tone."""
_ENOUGH_MS: Final = 4000
"""Of speech, after which a pause ends a recording."""


async def record(call: PhoneCall, max_s: float) -> Pcm:
    """Record the caller from a tone on until a pause, a key, or the end of the time.

    Args:
        call: Nothing is being said on it.
        max_s: Longest recording.

    Returns:
        16-bit mono at `RATE_HZ`; empty where nobody spoke.
    """
    await call.beep()
    call.forget_events()
    pieces: list[Pcm] = []
    spoke = False
    loop = asyncio.get_running_loop()
    began = loop.time()
    with call.hearing(pieces.append):
        while True:
            limit = began + (max_s if spoke else min(max_s, _WAIT_S))
            event = await call.next_event(max(0.0, limit - loop.time()))
            if isinstance(event, SpeechBegan):
                spoke = True
            elif not isinstance(event, TurnEnded) or event.turn.length_ms >= _ENOUGH_MS:
                break
    heard = np.concatenate([*pieces, np.zeros(0, np.int16)])
    return heard if spoke else heard[:0]
