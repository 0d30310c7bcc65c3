"""Questions of a client, and the answers that name them."""

from __future__ import annotations

import asyncio
import itertools
from typing import TypeAlias

from cosyvoice_stream.server.wire import SessionUpdated, VoiceReady, VoiceRejected

Reply: TypeAlias = SessionUpdated | VoiceReady | VoiceRejected


class Questions:
    """Brings answers to whoever asked.

    The answer to a question that nobody waits for any more is still awaited, so that the rest of
    an exchange of several messages is over before the next one begins.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Reply]] = {}

    @property
    def are_open(self) -> bool:
        """Whether an answer is on its way."""
        return bool(self._waiting)

    async def settled(self) -> None:
        """Wait until every question has been answered."""
        while self._waiting:
            await asyncio.wait([next(iter(self._waiting.values()))])

    def expect(self) -> tuple[str, asyncio.Future[Reply]]:
        """Note a question: its `request_id`, and its answer, to be awaited shielded."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        # Whoever asked may have been cancelled; the error of such a question is nobody's.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        request_id = f"r{next(self._numbers)}"
        self._waiting[request_id] = answer
        return request_id, answer

    def forget(self, request_id: str) -> None:
        """The server will not answer this one."""
        if (answer := self._waiting.pop(request_id, None)) is not None:
            answer.cancel()

    def answer(self, message: Reply) -> None:
        """The server has answered."""
        if (answer := self._waiting.pop(message.request_id or "", None)) is not None:
            answer.set_result(message)

    def refuse(self, error: Exception, request_id: str | None) -> bool:
        """The server has refused a message. False if it was none of these questions."""
        answer = self._waiting.pop(request_id or "", None)
        if answer is not None:
            answer.set_exception(error)
        return answer is not None

    def fail(self, error: Exception) -> None:
        """There will be no more answers."""
        for request_id in tuple(self._waiting):
            self.refuse(error, request_id)
