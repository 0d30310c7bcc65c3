"""What a session needs of a connection, and the one place that writes to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from cosyvoice_stream.errors import PeerGone


class Transport(Protocol):
    """Moves frames of one peer."""

    async def receive(self) -> str | bytes:
        """Wait for a frame. Raises `PeerGone`."""
        ...

    async def send(self, frame: str | bytes) -> None:
        """Hand a frame over, waiting while the peer does not read. Raises `PeerGone`."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Say good-bye. Raises `PeerGone`."""
        ...

    def abort(self) -> None:
        """Drop the connection at once."""
        ...

    def unsent_bytes(self) -> int:
        """What has been handed over and not yet taken by the network."""
        ...


class TrackAudio(bytes):
    """A piece of the peer's microphone that came on a track of its own, not as a frame."""


class Closed(Exception):
    """This side has closed the connection."""


class PeerStalled(PeerGone):
    """The peer has taken nothing for too long, so it was dropped."""


class PeerLost(PeerGone):
    """The connection broke; the peer did not say good-bye and may come back."""


class Writer:
    """Takes frames one at a time and hands them to the transport.

    Args:
        transport: Where they go.
        take: The next frame, or None.
        stall_timeout_s: A peer that takes nothing for so long is dropped.
    """

    def __init__(
        self,
        transport: Transport,
        take: Callable[[], str | bytes | None],
        stall_timeout_s: float,
    ) -> None:
        self._transport = transport
        self._take = take
        self._stall_timeout_s = stall_timeout_s
        self._filled = asyncio.Event()
        self._taken = asyncio.Event()
        self._stalled = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._farewell: tuple[int, str] | None = None

    @property
    def is_closing(self) -> bool:
        """Whether `close_when_empty` was called."""
        return self._farewell is not None

    def wake(self) -> None:
        """There is something to take."""
        self._filled.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds that frames change by being taken."""
        while not condition():
            self._taken.clear()
            await self._taken.wait()

    def recheck(self) -> None:
        """A condition of `until` may hold for another reason."""
        self._taken.set()

    def close_when_empty(self, code: int, reason: str) -> None:
        """Close the connection behind what waits."""
        self._farewell = code, reason
        self.wake()

    async def run(self) -> None:
        """Write for ever.

        Raises:
            PeerGone: The connection is gone.
            Closed: It was closed by `close_when_empty`.
        """
        loop = asyncio.get_running_loop()
        while True:
            frame = self._take()
            self._taken.set()
            if frame is not None or self._farewell is not None:
                self._arm(loop)
                try:
                    if frame is not None:
                        await self._transport.send(frame)
                    elif self._farewell is not None:
                        await self._transport.close(*self._farewell)
                        raise Closed
                finally:
                    self._disarm()
            else:
                self._filled.clear()
                await self._filled.wait()

    async def watch(self) -> None:
        """Drop the connection when it stalls; runs beside `run`.

        Raises:
            PeerStalled: It has.
        """
        await self._stalled.wait()
        # A plain close waits for the write buffer, which this peer never empties.
        self._transport.abort()
        raise PeerStalled(f"the peer took nothing for {self._stall_timeout_s:g} s")

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        unsent = self._transport.unsent_bytes()

        def check() -> None:
            if self._transport.unsent_bytes() < unsent:
                self._arm(loop)
            else:
                self._stalled.set()

        self._timer = loop.call_later(self._stall_timeout_s, check)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
