"""A real server in the event loop of a test, and a client that sends exactly what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server.app import create_app
from cosyvoice_stream.server.runner import StreamServer, listen, uvicorn_config
from cosyvoice_stream.server.services import Services
from cosyvoice_stream.server.settings import Settings

TIMEOUT_S = 20.0
"""For a whole exchange; only a hanging test gets near it."""


@dataclass
class Reply:
    """One HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    complete: bool = True
    """False when the connection ended before the body did."""

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json()["error"]
        return error


@dataclass
class Served:
    """A running server."""

    services: Services
    server: StreamServer
    port: int
    announced: list[str] = field(default_factory=list)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | AsyncIterable[bytes] = b"",
        **headers: str,
    ) -> Reply:
        """Send one request on a connection of its own; underscores in header names are dashes.

        An iterable body is sent in chunked encoding, and no further than the server reads.
        """
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await self.connect()
            with contextlib.closing(writer):
                fields = {"host": f"127.0.0.1:{self.port}", "connection": "close"}
                fields |= {name.replace("_", "-"): value for name, value in headers.items()}
                if isinstance(body, bytes):
                    fields.setdefault("content-length", str(len(body)))
                else:
                    fields["transfer-encoding"] = "chunked"
                head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
                writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())
                sending = asyncio.create_task(_send(writer, body))
                try:
                    return await read_reply(reader, method)
                finally:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.request("GET", path, **headers)

    async def post_json(self, path: str, value: Any, **headers: str) -> Reply:
        body = json.dumps(value).encode()
        return await self.request("POST", path, body, content_type="application/json", **headers)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what the server's own tasks bring about.

    Raises:
        TimeoutError: They do not.
    """
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)


async def _send(writer: asyncio.StreamWriter, body: bytes | AsyncIterable[bytes]) -> None:
    with contextlib.suppress(ConnectionError):
        if isinstance(body, bytes):
            writer.write(body)
            await writer.drain()
            return
        async for chunk in body:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


async def read_head(reader: asyncio.StreamReader) -> Reply:
    """Read a status line and the headers."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.split(":", 1) for line in lines[1:] if line)
    return Reply(int(lines[0].split()[1]), {name.lower(): value.strip() for name, value in pairs})


async def read_chunk(reader: asyncio.StreamReader) -> bytes:
    """Read one piece of a chunked body; empty at its end."""
    size = int(await reader.readline(), 16)
    data = await reader.readexactly(size + 2)
    return data[:-2]


async def read_reply(reader: asyncio.StreamReader, method: str = "GET") -> Reply:
    """Read one whole response."""
    reply = await read_head(reader)
    if method == "HEAD" or reply.status in (204, 304):
        return reply
    try:
        if reply.headers.get("transfer-encoding") == "chunked":
            while chunk := await read_chunk(reader):
                reply.body += chunk
        else:
            reply.body = await reader.readexactly(int(reply.headers["content-length"]))
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):
        reply.complete = False
    return reply


class QuietServer(StreamServer):
    """Leaves the signals of the test process alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(
    voices_dir: Path,
    engine: Engine | None = None,
    *,
    warm: bool = True,
    patience_s: float = 2 * TIMEOUT_S,
    **settings: Any,
) -> AsyncIterator[Served]:
    """Serve an application on a free port; with `warm`, wait until it is ready.

    Raises:
        TimeoutError: The body hangs.
    """
    chosen = Settings(_env_file=None, port=0, voices_dir=voices_dir, **settings)
    app = create_app(chosen, engine or FakeEngine())
    services: Services = app.state.services
    with contextlib.closing(listen(chosen)) as listener:
        port = listener.getsockname()[1]
        announced: list[str] = []
        server = QuietServer(uvicorn_config(app, chosen), services, port, announced.append)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            if warm:
                await services.readiness.settled()
            async with asyncio.timeout(TIMEOUT_S):
                while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                    await asyncio.sleep(0.001)
            async with asyncio.timeout(patience_s):
                yield Served(services, server, port, announced)
        finally:
            server.should_exit = True
            await running
