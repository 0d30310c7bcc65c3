"""A server with a FakeEngine on a free port of this process, and a client that collects answers."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import uvicorn
import websockets
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server.limits import Admission
from cosyvoice_stream.server.sessions import Sessions
from cosyvoice_stream.server.speech import SpeechService
from cosyvoice_stream.server.websocket import StreamWebSocketProtocol, websocket_endpoint
from cosyvoice_stream.server.wire import MAX_MESSAGE_BYTES, AudioHeader
from support.static_voices import StaticVoices

PATIENCE_S = 20.0


@dataclass
class Counts:
    """An `Observer` that keeps everything."""

    opened: int = 0
    closed: int = 0
    utterances: list = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    enrolments: list[str] = field(default_factory=list)

    def session_opened(self) -> None:
        self.opened += 1

    def session_closed(self) -> None:
        self.closed += 1

    def utterance_ended(self, utterance) -> None:
        self.utterances.append(utterance)

    def refused(self, reason: str) -> None:
        self.refusals.append(reason)

    def enrolment(self, outcome: str) -> None:
        self.enrolments.append(outcome)


@dataclass
class StreamServer:
    """What a test may look at."""

    url: str
    port: int
    engine: FakeEngine
    admission: Admission
    voices: StaticVoices
    sessions: Sessions
    counts: Counts
    ended: asyncio.Event
    """Set whenever a session has ended."""

    async def all_ended(self) -> None:
        """Wait until no session is live."""
        async with asyncio.timeout(PATIENCE_S):
            while self.sessions.live:
                self.ended.clear()
                await self.ended.wait()

    @contextlib.asynccontextmanager
    async def client(self, query: str = "", **options):
        """A connected client that has been greeted."""
        async with websockets.connect(
            self.url + query, max_size=None, compression=None, **options
        ) as connection:
            client = Client(connection)
            client.ready = await client.message()
            yield client


class Client:
    """Sends dicts, receives dicts and audio frames."""

    def __init__(self, connection: websockets.ClientConnection, *, raw: bool = False) -> None:
        self.connection = connection
        self.raw = raw
        self.ready: dict = {}
        self.frames: list[tuple[AudioHeader, bytes]] = []

    async def send(self, **message) -> None:
        await self.connection.send(json.dumps(message))

    async def receive(self) -> dict | bytes:
        async with asyncio.timeout(PATIENCE_S):
            frame = await self.connection.recv()
        return frame if isinstance(frame, bytes) else json.loads(frame)

    async def message(self, *types: str) -> dict:
        """The next JSON message (of these types); audio before it is kept in `frames`."""
        while True:
            got = await self.receive()
            if isinstance(got, bytes):
                self.frames.append((AudioHeader.unpack(got), got[AudioHeader.SIZE :]))
            elif not types or got["type"] in types:
                return got

    def audio(self, number: int) -> bytes:
        """What has been received of an utterance."""
        return b"".join(audio for header, audio in self.frames if header.number == number)


@contextlib.asynccontextmanager
async def stream_server(
    engine: FakeEngine | None = None, *, max_live: int = 64, **options
) -> AsyncIterator[StreamServer]:
    """Run a server; `options` go to `Sessions`."""
    engine = engine or FakeEngine()
    admission = Admission(max_live)
    voices = StaticVoices(engine)
    counts = Counts()
    sessions = Sessions(SpeechService(engine, voices, admission), voices, counts, **options)
    ended = asyncio.Event()

    async def endpoint(websocket):
        try:
            await websocket_endpoint(websocket)
        finally:
            ended.set()

    app = Starlette(routes=[WebSocketRoute("/v1/stream", endpoint)])
    app.state.sessions = sessions
    config = uvicorn.Config(
        app,
        ws=StreamWebSocketProtocol,
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,
        ws_ping_interval=None,
        ws_ping_timeout=None,
        lifespan="off",
        log_config=None,
    )
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await server.up.wait()
    try:
        yield StreamServer(
            f"ws://127.0.0.1:{port}/v1/stream",
            port,
            engine,
            admission,
            voices,
            sessions,
            counts,
            ended,
        )
    finally:
        server.should_exit = True
        await serving
        listener.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self):
        yield
