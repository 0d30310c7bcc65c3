"""Runs one application on one socket until it is told to stop.

The socket is ours and not uvicorn's, so that a taken port is found before a model is loaded, and so
that the kernel's part in back-pressure is bounded: what a client does not read waits in the
engine, not in a send buffer of megabytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.server.app import create_app
from cosyvoice_stream.server.environment import PREFIX
from cosyvoice_stream.server.observability import configure_logging
from cosyvoice_stream.server.services import Services
from cosyvoice_stream.server.settings import Settings
from cosyvoice_stream.server.websocket import StreamWebSocketProtocol
from cosyvoice_stream.server.wire import MAX_MESSAGE_BYTES

logger = logging.getLogger(__name__)

_SWITCH_S: Final = 0.0005
"""How long a thread of an engine may keep the interpreter while the event loop wants it. Python's
default is a quarter of the time between two packets of a call, and each packet of each call gives
the interpreter away in its encoder."""
_SEND_BUFFER_BYTES: Final = 128 * 1024
"""SO_SNDBUF; Linux doubles it. 256 KiB are 1.3 s of the widest audio (48 kHz float)."""
_KEEPALIVE_IDLE_S: Final = 60
_KEEPALIVE_INTERVAL_S: Final = 15
_KEEPALIVE_PROBES: Final = 4
_GOODBYE_S: Final = 1
"""For the closing handshakes of sessions after the drain."""
_CANCEL_S: Final = 1
"""For requests that are still open after that; then they are cancelled."""
_DRAIN_LOOK_S: Final = 0.02
"""Between two looks for a second signal while draining."""


def serve(
    settings: Settings,
    *,
    engine: Engine | None = None,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Run the server in this process until SIGTERM or SIGINT.

    Args:
        settings: How to run.
        engine: The engine to use instead of the one that the settings name.
        announce: Gets the lines for a person when the server is ready; by default they go to
            standard output on a terminal, else to the log.

    Raises:
        ConfigError: The address cannot be listened on, or the engine does not exist.
        ModelLoadError: The engine did not start.
    """
    configure_logging(settings.log_level, settings.log_format)
    sys.setswitchinterval(_SWITCH_S)
    if not settings.is_loopback and not settings.api_keys:
        logger.warning(
            "anybody who reaches %s can use this server: set %sAPI_KEYS", settings.host, PREFIX
        )
    with contextlib.closing(listen(settings)) as listener:
        app = create_app(settings, engine)
        server = StreamServer(
            uvicorn_config(app, settings),
            app.state.services,
            listener.getsockname()[1],
            announce or _say,
        )
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(server.serve(sockets=[listener]))
    if app.state.services.readiness.failure is not None:
        raise app.state.services.readiness.failure


def uvicorn_config(app: object, settings: Settings) -> uvicorn.Config:
    """Return how uvicorn has to run our application.

    Pings are off because a player that reads in real time answers late while it is healthy; dead
    peers are found by TCP. Compression is off because audio does not compress and waits.
    """
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=AbortableHttpProtocol,
        ws=StreamWebSocketProtocol,
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,
        ws_ping_interval=None,
        ws_ping_timeout=None,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_CANCEL_S,
    )


def listen(settings: Settings) -> socket.socket:
    """Bind the listening socket.

    Raises:
        ConfigError: The address is in use, not ours, or not permitted.
    """
    host, port = settings.host.strip("[]"), settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror:
        raise ConfigError(
            f"the host {settings.host!r} has no address",
            how_to_fix=f"set {PREFIX}HOST to 127.0.0.1, 0.0.0.0 or an address of this machine",
        ) from None
    # `localhost` has an IPv6 and an IPv4 address; clients that know only one know IPv4.
    family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        _tune(listener, settings.stall_timeout_s)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _explain(error, settings) from None
    listener.setblocking(False)
    return listener


def _tune(listener: socket.socket, stall_timeout_s: float) -> None:
    """Set what accepted sockets inherit; options that a platform lacks are left out."""
    if sys.platform != "win32":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
        # RFC 5482: unacknowledged for so long means gone. Twice our own limit, so that a client
        # that does not read is closed by the session, with a reason, and not by the kernel.
        ("TCP_USER_TIMEOUT", int(2000 * stall_timeout_s)),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                listener.setsockopt(socket.IPPROTO_TCP, option, value)


def _explain(error: OSError, settings: Settings) -> ConfigError:
    where = f"{settings.host}:{settings.port}"
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"port {settings.port} on {settings.host} is in use",
            how_to_fix=f"stop the other program, or set {PREFIX}PORT (or --port) to another one",
        )
    if error.errno == errno.EACCES:
        return ConfigError(f"{where} needs more rights", how_to_fix="use a port from 1024 to 65535")
    return ConfigError(
        f"cannot listen on {where}: {error.strerror}",
        how_to_fix=f"set {PREFIX}HOST to an address of this machine",
    )


class AbortableHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, with a way to drop a connection that does not drain.

    The scope's extensions get ``cosyvoice_stream.abort``, as for a WebSocket. A plain close waits
    for the write buffer, which a client that stopped reading never empties.
    """

    def on_message_begin(self) -> None:
        """Start the scope of one request."""
        super().on_message_begin()
        self.scope["extensions"] = {"cosyvoice_stream.connection": {"abort": self.transport.abort}}


class StreamServer(uvicorn.Server):
    """uvicorn's server with our way to start and stop.

    It says when it is ready; ends when the engine does not start; on the first signal takes no
    more work and lets running utterances finish; on the second drops them.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        services: Services,
        port: int,
        announce: Callable[[str], None],
    ) -> None:
        super().__init__(config)
        self._services = services
        self._port = port
        self._announce = announce
        self._announcing: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; the announcement follows when the engine is warm."""
        await super().startup(sockets)
        self._announcing = asyncio.create_task(self._announce_when_ready(), name="announce")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, then close every connection and the application.

        The socket stays open while draining, so that newcomers and probes get an answer.
        """
        if self._announcing is not None:
            self._announcing.cancel()
            await asyncio.gather(self._announcing, return_exceptions=True)
        await self._drain()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note a signal: the first asks to stop, the second insists."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT; a stop on request is a success, so nothing is raised again."""
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def _announce_when_ready(self) -> None:
        try:
            await self._services.readiness.settled()
        except Exception:
            # `serve` raises it again, once everything is closed.
            self.should_exit = True
            return
        self._announce(await greeting(self._services, self._port))

    async def _drain(self) -> None:
        """Finish what runs, refuse what comes; sessions say good-bye with 1001."""
        services, limit_s = self._services, self._services.settings.drain_s
        services.readiness.stop()
        if services.admission.live:
            logger.info(
                "stopping: %d utterances get up to %g s to finish", services.admission.live, limit_s
            )
        sessions = asyncio.create_task(services.sessions.drain(limit_s), name="drain sessions")
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit_s + _GOODBYE_S):
                    # The second signal arrives outside the loop and can set no event.
                    while services.admission.live or not sessions.done():
                        if self.force_exit:
                            break
                        await asyncio.sleep(_DRAIN_LOOK_S)
        finally:
            sessions.cancel()
            await asyncio.gather(sessions, return_exceptions=True)


async def greeting(services: Services, port: int) -> str:
    """Return what a person wants to know when the server is ready: four lines."""
    host = services.settings.host.strip("[]")
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    info = services.engine.info
    own = len(await services.voices.list()) - len(info.voices)
    voices = ", ".join(voice.voice_id for voice in info.voices)
    if own > 0:
        voices += f", and {own} of your own"
    return "\n".join(
        (
            f"Ready at http://{f'[{shown}]' if ':' in shown else shown}:{port}",
            f"  engine  {info.name}: {info.description}",
            f"  voices  {voices}",
            "  stop    Ctrl+C",
        )
    )


def _say(lines: str) -> None:
    if sys.stdout.isatty():
        print(lines, flush=True)  # noqa: T201 - the greeting of an interactive server
    else:
        for line in lines.splitlines():
            logger.info("%s", line.strip())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop where it is installed (not on Windows)."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
