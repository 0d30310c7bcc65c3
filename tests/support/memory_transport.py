"""A peer in memory: the test puts frames in, and decides when the session may send."""

import asyncio
import json

from cosyvoice_stream.errors import PeerGone
from cosyvoice_stream.server.wire import AudioHeader

PATIENCE_S = 10.0


async def settled(condition=lambda: False, *, turns: int = 5000) -> None:
    """Let the event loop turn until a condition holds, or so many times."""
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0)


class MemoryTransport:
    """Implements `Transport`. Reads everything at once until `stop_reading`."""

    def __init__(self) -> None:
        self.sent: list[str | bytes] = []
        self.closed: tuple[int, str] | None = None
        self.aborted = False
        self._incoming: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self._readable = asyncio.Event()
        self._readable.set()
        self._changed = asyncio.Condition()
        self._unsent = 0

    # The side of the session

    async def receive(self) -> str | bytes:
        frame = await self._incoming.get()
        if frame is None:
            raise PeerGone("the peer left")
        return frame

    async def send(self, frame: str | bytes) -> None:
        self._unsent = len(frame)
        await self._readable.wait()
        if self.aborted:
            raise PeerGone("aborted")
        self._unsent = 0
        async with self._changed:
            self.sent.append(frame)
            self._changed.notify_all()

    async def close(self, code: int, reason: str) -> None:
        self.closed = code, reason
        self._incoming.put_nowait(None)

    def abort(self) -> None:
        self.aborted = True
        self._readable.set()
        self._incoming.put_nowait(None)

    def unsent_bytes(self) -> int:
        return self._unsent

    # The side of the peer

    def put(self, frame: str | bytes | None = None, **message) -> None:
        """Send a frame, or a message; None is the end of the connection."""
        self._incoming.put_nowait(json.dumps(message) if message else frame)

    def leave(self) -> None:
        self._incoming.put_nowait(None)

    def stop_reading(self) -> None:
        self._readable.clear()

    def go_on_reading(self) -> None:
        self._readable.set()

    @property
    def messages(self) -> list[dict]:
        return [json.loads(frame) for frame in self.sent if isinstance(frame, str)]

    @property
    def frames(self) -> list[AudioHeader]:
        return [AudioHeader.unpack(frame) for frame in self.sent if isinstance(frame, bytes)]

    def waiting_messages(self) -> int:
        """Messages that the session has not read."""
        return self._incoming.qsize()

    async def until(self, condition) -> None:
        """Wait until a condition on what was sent holds."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: condition(self))

    async def message(self, kind: str, **fields) -> dict:
        """Wait for a message of this type with these fields."""

        def fits(message: dict) -> bool:
            return message["type"] == kind and fields.items() <= message.items()

        await self.until(lambda peer: any(map(fits, peer.messages)))
        return next(filter(fits, self.messages))
