"""Lingering: an answer is complete at once, the connection ends when the body has been read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from starlette.types import Message, Receive, Scope, Send

from cosyvoice_stream.server.linger import Linger

pytestmark = pytest.mark.unit

ANSWER = b"too large"


def run(
    incoming: Sequence[Message], headers: dict[str, str], *, reads: int = 0
) -> tuple[list[Message], int]:
    """Let an application answer after some reads; return what was sent, and reads in total."""
    waiting = list(incoming)
    sent: list[Message] = []

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(reads):
            await receive()
        await send({"type": "http.response.start", "status": 413, "headers": []})
        await send({"type": "http.response.body", "body": ANSWER})

    scope: Scope = {
        "type": "http",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(Linger(refuse)(scope, receive, send))
    return sent, len(incoming) - len(waiting)


def piece(more: bool) -> Message:
    return {"type": "http.request", "body": b"x", "more_body": more}


BODY = [piece(True), piece(True), piece(False)]


def test_rest_of_the_body_is_read_behind_the_answer() -> None:
    sent, reads = run(BODY, {"content-length": "3"}, reads=1)
    assert reads == 3
    assert sent[1] == {"type": "http.response.body", "body": ANSWER, "more_body": True}
    assert sent[2] == {"type": "http.response.body"}
    assert (b"connection", b"close") in sent[0]["headers"]


def test_chunked_body_counts_as_a_body() -> None:
    assert run(BODY, {"transfer-encoding": "chunked"})[1] == 3


def test_disconnect_ends_it() -> None:
    assert run([piece(True), {"type": "http.disconnect"}], {"content-length": "9"})[1] == 2


@pytest.mark.parametrize("headers", [{}, {"content-length": "0"}])
def test_without_a_body_nothing_is_read(headers: dict[str, str]) -> None:
    sent, reads = run([], headers)
    assert (reads, len(sent)) == (0, 2)
    assert sent[0]["headers"] == []


def test_body_that_was_read_completely_keeps_the_connection() -> None:
    sent, reads = run(BODY, {"content-length": "3"}, reads=3)
    assert (reads, len(sent)) == (3, 2)
    assert sent[0]["headers"] == []


def test_client_that_asked_first_is_not_told_to_send() -> None:
    sent, reads = run(BODY, {"content-length": "3", "expect": "100-continue"})
    assert (reads, len(sent)) == (0, 2)
    assert (b"connection", b"close") in sent[0]["headers"]
