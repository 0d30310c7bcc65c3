"""HTTP routes without sockets: reading bodies, flags, and what an unexpected error gives away."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence

import pytest
from starlette.requests import Request
from starlette.types import Message

from cosyvoice_stream.errors import InvalidMessage, LimitExceeded, PeerGone
from cosyvoice_stream.server import http, json_body

pytestmark = pytest.mark.unit


def request(messages: Sequence[Message], content_length: int | None = None) -> Request:
    """A request whose body arrives as `messages`, and then not at all."""
    waiting = iter(messages)

    async def receive() -> Message:
        message = next(waiting, None)
        if message is None:
            await asyncio.get_running_loop().create_future()
        assert message is not None
        return message

    headers = []
    if content_length is not None:
        headers.append((b"content-length", str(content_length).encode()))
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)


def piece(body: bytes, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def read(asked: Request, limit_bytes: int = 10) -> bytes:
    return asyncio.run(json_body.read_body(asked, limit_bytes, stall_timeout_s=0.05))


def test_body_in_pieces_is_joined() -> None:
    assert read(request([piece(b"01234", True), piece(b"56789", False)])) == b"0123456789"


def test_body_is_refused_by_its_stated_length() -> None:
    with pytest.raises(LimitExceeded, match="at most 10 bytes of JSON are allowed, got 11"):
        read(request([], content_length=11))


def test_body_is_refused_at_the_first_byte_too_many() -> None:
    with pytest.raises(LimitExceeded, match="at most 10 bytes"):
        read(request([piece(b"01234567890", True)]))


def test_body_that_does_not_come_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="did not arrive completely"):
        read(request([piece(b"0", True)]))


def test_client_that_leaves_is_gone() -> None:
    with pytest.raises(PeerGone):
        read(request([piece(b"0", True), {"type": "http.disconnect"}]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), ("1", True), (" Yes", True), ("off", False), ("0", False), ("", False)],
)
def test_flag_in_words(text: str, expected: bool) -> None:
    assert http._flag({"persist": text}, "persist", default=not expected) is expected


def test_absent_flag_is_the_default() -> None:
    assert http._flag({}, "persist", default=True) is True


def test_flag_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="the field 'persist' is wrong"):
        http._flag({"persist": "perhaps"}, "persist", default=True)


def test_unexpected_error_gives_nothing_away(caplog: pytest.LogCaptureFixture) -> None:
    written = "what the " + "user wrote"  # a trace quotes source lines, not values

    async def answer() -> bytes:
        try:
            raise ValueError(written)
        except ValueError as error:
            response = await http.answer_unexpected(request([]), error)
        assert response.status_code == 500
        return bytes(response.body)

    with caplog.at_level(logging.ERROR):
        body = asyncio.run(answer())
    assert json.loads(body)["error"]["code"] == "internal"
    assert "unexpected ValueError" in caplog.text
    assert b"user wrote" not in body
    assert "user wrote" not in caplog.text
