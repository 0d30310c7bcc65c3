"""Between an event loop and the threads of an engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, Protocol, TypeVar

from cosyvoice_stream.types import Flush, PcmChunk, TextStream

MAX_CUT_CHARS: Final = 2000
"""The loop gets its turn after so much text; cutting it takes 2 ms."""
Part = TypeVar("Part")


def make_wakeup(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> Callable[[], None]:
    """Set an event of a loop from any thread; a closed loop no longer cares."""

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            return

    return wake


async def close_stream(stream: object) -> None:
    """Close what an utterance is made from, where it can be closed."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


class Giver(Protocol):
    """Has chunks for the loop, made on another thread."""

    def take(self) -> PcmChunk | None:
        """The next chunk, or None if there is none yet."""
        ...


async def take_chunks(
    giver: Giver, wake: Callable[[], None], arrived: asyncio.Event, taken: asyncio.Event
) -> AsyncGenerator[PcmChunk, None]:
    """Take chunks as they are made, up to the final one.

    Args:
        giver: Of one utterance.
        wake: Called when a chunk has been taken: there is room for another.
        arrived: Set by the other thread when there is something to take.
        taken: Set here whenever chunks are taken.
    """
    while True:
        arrived.clear()
        taken.set()
        while (chunk := giver.take()) is not None:
            wake()
            yield chunk
            if chunk.final:
                return
        await arrived.wait()


class Cutter(Protocol[Part]):
    """Cuts a text that arrives in fragments."""

    def push(self, text: str, /) -> list[Part]:
        """Append text; return what it completes."""
        ...

    def break_here(self) -> list[Part]:
        """End a part with what has arrived."""
        ...

    def flush(self) -> list[Part]:
        """No more text."""
        ...


async def cut_text(
    text: TextStream, cutter: Cutter[Part], feed: Callable[[list[Part]], Awaitable[None]]
) -> None:
    """Read a text stream to its end and feed the parts that it falls into."""
    async for piece in text:
        if isinstance(piece, Flush):
            await feed(cutter.break_here())
            continue
        for start in range(0, len(piece), MAX_CUT_CHARS):
            await feed(cutter.push(piece[start : start + MAX_CUT_CHARS]))
            if start + MAX_CUT_CHARS < len(piece):
                await asyncio.sleep(0)
    await feed(cutter.flush())
