"""Blocking calls that may never return, without keeping the process alive.

`asyncio.to_thread` uses threads that are joined when the loop and the interpreter end. A read from
a terminal, or a write to a pipe that nobody reads, would hold up Ctrl-C until it returns.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def call_in_daemon(function: Callable[..., T], *arguments: object) -> T:
    """Call a blocking function in a daemon thread of its own.

    Cancelling stops the waiting, not the call: its result is dropped.

    Args:
        function: What to call.
        arguments: For it.

    Returns:
        What it returns; what it raises is raised.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def give(result: T) -> None:
        if not answer.done():
            answer.set_result(result)

    def give_error(error: BaseException) -> None:
        if not answer.done():
            answer.set_exception(error)

    def run() -> None:
        # The loop may have ended meanwhile; then nobody waits.
        with suppress(RuntimeError):
            try:
                result = function(*arguments)
            except BaseException as error:
                loop.call_soon_threadsafe(give_error, error)
            else:
                loop.call_soon_threadsafe(give, result)

    threading.Thread(target=run, name="blocking call", daemon=True).start()
    return await answer
