"""What happens in a call, as whoever leads it sees it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from cosyvoice_stream.telephony.turns import Turn

MAX_EVENTS: Final = 256
"""Events that nobody has taken; the oldest are dropped."""

Interruption: TypeAlias = Literal["speech", "key", "asked"]


@dataclass(frozen=True, slots=True)
class KeyPressed:
    """The caller has pressed a key."""

    symbol: str

    def __repr__(self) -> str:
        return "KeyPressed(…)"  # what callers type stays out of logs


@dataclass(frozen=True, slots=True)
class SpeechBegan:
    """The caller speaks; what was being said has been stopped, if it may be interrupted."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The caller has said something."""

    turn: Turn


CallEvent: TypeAlias = KeyPressed | SpeechBegan | TurnEnded


@dataclass(frozen=True, slots=True)
class Said:
    """How an utterance of a call ended."""

    text_heard: str | None
    """As much of the text as the caller has heard; None is all of it."""
    interrupted: Interruption | None = None
    """By what it was stopped; None where it was not."""
    error: Exception | None = None
    """Why it could not be said to its end."""

    @property
    def complete(self) -> bool:
        """Whether the caller has heard all of it."""
        return self.interrupted is None and self.error is None


class Saying:
    """One utterance of a call, made by `PhoneCall.say`."""

    def __init__(self, name: str, *, by_key: bool) -> None:
        self.name = name
        self.by_key = by_key
        """Whether a key interrupts it."""
        self.done = False
        """The session has handed all of it over."""
        self.last_heard = False
        self.why: Interruption = "asked"
        self._said: asyncio.Future[Said] = asyncio.get_running_loop().create_future()

    async def said(self) -> Said:
        """Wait until it has been heard, or has ended otherwise."""
        return await asyncio.shield(self._said)

    @property
    def ended(self) -> bool:
        """Whether `said` has an answer."""
        return self._said.done()

    def finish(self, said: Said) -> None:
        """It has ended; a second time does nothing."""
        if not self._said.done():
            self._said.set_result(said)


class EventQueue:
    """Events in the order in which they came, for one reader."""

    def __init__(self) -> None:
        self._events: deque[CallEvent] = deque(maxlen=MAX_EVENTS)
        self._came = asyncio.Event()

    def put(self, event: CallEvent) -> None:
        """Append one."""
        self._events.append(event)
        self._came.set()

    async def get(self) -> CallEvent:
        """Wait for the next one."""
        while not self._events:
            self._came.clear()
            await self._came.wait()
        return self._events.popleft()

    def forget(self) -> None:
        """Drop what nobody has taken."""
        self._events.clear()
