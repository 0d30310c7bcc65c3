"""Between an event loop and the threads of an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cosyvoice_stream.types import TextStream


def make_wakeup(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> Callable[[], None]:
    """Set an event of a loop from any thread; a closed loop no longer cares."""

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            return

    return wake


async def close_text(text: TextStream) -> None:
    """Close a text stream that can be closed."""
    close = getattr(text, "aclose", None)
    if close is not None:
        await close()
