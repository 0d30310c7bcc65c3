"""A transport that outlives its connection: a client that was cut off comes back and loses nothing.

::

    session ──► buffer: … sent ┊ waiting ──► link 1  ✕
                     ▲                   └──► link 2    from the frame that the client lacks

Frames are counted from the first one of the session. A client that comes back says how many it has
got; the rest is sent again, in order, none twice. What it may lack is bounded, and so is the time
for which it may stay away; after that the session ends as if it had left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from cosyvoice_stream.errors import InvalidState, PeerGone
from cosyvoice_stream.server.transport import PeerLost, Transport

KEPT_BYTES: Final = 1024 * 1024
"""Frames that are kept for a client that comes back: 20 s of 24 kHz PCM. A kernel's send buffer,
whose content is lost with the connection, is a quarter of it."""
_AWAY_BYTES: Final = 256 * 1024
"""Beyond that, made while the client is away; then the session waits."""


class ResumableTransport:
    """`Transport` over one link after another.

    Args:
        link: The first connection.
        grace_s: How long a client may stay away.
        kept_bytes: What is kept of the frames that were sent.
    """

    def __init__(self, link: Transport, grace_s: float, *, kept_bytes: int = KEPT_BYTES) -> None:
        self._link: Transport | None = link
        self._latest = link
        """The last connection, whether or not it still lives."""
        self._grace_s = grace_s
        self._kept_bytes = kept_bytes
        self._frames: deque[str | bytes] = deque()
        self._bytes = 0
        self._first = 0
        """Number of the first frame that is kept."""
        self._next = 0
        """Number of the frame that the link gets next."""
        self.received = 0
        """Frames that came from the client."""
        self._over = False
        self._changed = asyncio.Event()
        self._pumping = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_over(self) -> bool:
        """Whether nobody can come back any more."""
        return self._over

    async def resume(self, link: Transport, received: int, greet: Callable[[], str]) -> None:
        """Go on over another connection; a connection that still seems to live is dropped.

        Args:
            link: The connection that the client has come back with.
            received: Frames that it has got so far.
            greet: Makes the frame that comes first and is not counted.

        Raises:
            InvalidState: It lacks frames that are not kept, or the session is over.
            PeerGone: The new connection is gone already.
        """
        self.check(received)
        self._drop_link()
        async with self._pumping:
            self.check(received)
            self._drop_link()
            self._disarm()
            self._next = received
            self._link = self._latest = link
            try:
                await link.send(greet())
            except PeerGone:
                self._detach(link)
                raise
        self._wake()
        await self._pump()

    def check(self, received: int) -> None:
        """Refuse a client that cannot be brought up to date.

        Raises:
            InvalidState: It lacks frames that are not kept, or the session is over.
        """
        if self._over or not self._first <= received <= self._next:
            raise InvalidState(
                "this session cannot be resumed", how_to_fix="connect without `resume`"
            )

    async def lost(self, link: Transport) -> None:
        """Wait until a link is no longer used."""
        while self._link is link and not self._over:
            await self._change()

    # What a session needs

    async def receive(self) -> str | bytes:
        """Wait for a frame, over whichever link."""
        while True:
            link = self._link
            if self._over:
                raise PeerGone("the peer did not come back")
            if link is None:
                await self._change()
                continue
            try:
                frame = await link.receive()
            except PeerLost:
                self._detach(link)
            except PeerGone:
                if self._latest is link:
                    self._end()
                    raise
            else:
                self.received += 1
                return frame

    async def send(self, frame: str | bytes) -> None:
        """Keep a frame and hand it over, now or when the client is back."""
        self._frames.append(frame)
        self._bytes += len(frame)
        await self._pump()
        while self._link is None and self._bytes > self._kept_bytes + _AWAY_BYTES:
            if self._over:
                break
            await self._change()
        if self._over:
            raise PeerGone("the peer did not come back")

    async def close(self, code: int, reason: str) -> None:
        """Say good-bye, to whoever is there."""
        link = self._link
        self._end()
        if link is None:
            raise PeerGone("the peer is away")
        await link.close(code, reason)

    def abort(self) -> None:
        """Drop the connection; nobody can come back."""
        link = self._link
        self._end()
        if link is not None:
            link.abort()

    def unsent_bytes(self) -> int:
        """What the link has not got rid of."""
        return 0 if self._link is None else self._link.unsent_bytes()

    # Inside

    async def _pump(self) -> None:
        """Bring the link up to date."""
        async with self._pumping:
            while self._link is not None and self._next < self._first + len(self._frames):
                link = self._link
                try:
                    await link.send(self._frames[self._next - self._first])
                except PeerGone:
                    self._detach(link)
                    return
                if self._link is link:
                    self._next += 1
                    self._forget()

    def _forget(self) -> None:
        """Drop what is too much, of the frames that were sent."""
        while self._bytes > self._kept_bytes and self._first < self._next:
            self._bytes -= len(self._frames.popleft())
            self._first += 1

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.abort()

    def _detach(self, link: Transport) -> None:
        if self._link is link:
            self._link = None
            self._timer = asyncio.get_running_loop().call_later(self._grace_s, self._end)
            self._wake()

    def _end(self) -> None:
        self._over = True
        self._link = None
        self._disarm()
        self._wake()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _change(self) -> None:
        await self._changed.wait()

    def _wake(self) -> None:
        """Let everybody look again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
