"""Questions of a client that the server answers without naming them, one at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeAlias

from cosyvoice_stream.server.wire import SessionUpdated, VoiceReady, VoiceRejected

Reply: TypeAlias = SessionUpdated | VoiceReady | VoiceRejected


class Questions:
    """Brings answers to whoever asked.

    The answer to a question that nobody waits for any more is still awaited, so that it is not
    taken for the answer to the next one.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[tuple[type[Reply], ...], asyncio.Future[Reply]]] = deque()

    @property
    def are_open(self) -> bool:
        """Whether an answer is on its way."""
        return bool(self._waiting)

    async def settled(self) -> None:
        """Wait until every question has been answered."""
        while self._waiting:
            await asyncio.wait([self._waiting[0][1]])

    def expect(self, *kinds: type[Reply]) -> asyncio.Future[Reply]:
        """Note a question whose answer is of one of these kinds; await it shielded."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        # Whoever asked may have been cancelled; the error of such a question is nobody's.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._waiting.append((kinds, answer))
        return answer

    def forget(self, answer: asyncio.Future[Reply]) -> None:
        """The server will not answer this one."""
        self._waiting = deque(item for item in self._waiting if item[1] is not answer)
        answer.cancel()

    def answer(self, message: Reply) -> None:
        """The server has answered."""
        for item in self._waiting:
            if isinstance(message, item[0]):
                self._waiting.remove(item)
                item[1].set_result(message)
                return

    def refuse(self, error: Exception) -> bool:
        """The server has refused the oldest question. False if there is none."""
        if not self._waiting:
            return False
        _, answer = self._waiting.popleft()
        answer.set_exception(error)
        return True

    def fail(self, error: Exception) -> None:
        """There will be no more answers."""
        while self.refuse(error):
            pass
