"""Lets a client that is still sending read why it was refused.

A server that answers and closes while the request body is under way makes the kernel reset the
connection, and most clients then report the reset and not the answer. RFC 9112 section 9.6 asks
servers to go on reading for a while; uvicorn does not.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LINGER_S: Final = 5.0
"""How long a body is read and dropped behind an answer."""


class Linger:
    """ASGI middleware: the answer goes out at once, the connection closes a little later."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of the application below."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(scope, receive)

        async def send_and_linger(message: Message) -> None:
            if message["type"] == "http.response.start" and not body.complete:
                MutableHeaders(scope=message)["Connection"] = "close"
            last = message["type"] == "http.response.body" and not message.get("more_body", False)
            if last and body.under_way:
                await send({**message, "more_body": True})
                await body.drop()
                await send({"type": "http.response.body"})
            else:
                await send(message)

        await self._app(scope, body.receive, send_and_linger)


class _Body:
    """Knows how much of a request's body has been read."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        headers = Headers(scope=scope)
        has_body = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        self.complete = not has_body
        # A client that asked first (RFC 9110 section 10.1.1) sends nothing before the first read.
        self._asked = "expect" not in headers
        self._receive = receive

    @property
    def under_way(self) -> bool:
        """Whether the client is sending."""
        return self._asked and not self.complete

    async def receive(self) -> Message:
        self._asked = True
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self.complete = True
        return message

    async def drop(self) -> None:
        """Read to the end of the body, for a limited time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                while not self.complete:
                    await self.receive()
