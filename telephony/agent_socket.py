"""A program of the user's leads a call over a WebSocket, in the words of docs/protocol.md.

::

    caller ──► call.started, audio, call.key, call.turn, all messages of the session ──► program
    caller ◄── speak, text.delta, utterance.cancel …, call.hang_up, call.transfer    ◄── program

The program is the peer of the call's session; the call passes messages on and adds its own.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import suppress
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from cosyvoice_stream.errors import InvalidMessage, PeerGone, UnsupportedFormat
from cosyvoice_stream.telephony.call import PhoneCall
from cosyvoice_stream.telephony.call_events import KeyPressed, TurnEnded
from cosyvoice_stream.telephony.line import Pcm, pcm_to_s16le
from cosyvoice_stream.telephony.turns import RATE_HZ

_OPEN_S: Final = 5.0
_CLOSE_S: Final = 2.0
_MAX_MESSAGE_BYTES: Final = 1 << 20
_MAX_WAITING_BYTES: Final = 512 * 1024
"""For a program that does not read: 16 s of the caller. Then it is dropped."""
_REFUSED: Final = frozenset({"voice.begin", "voice.commit", "voice.cancel", "vad.stop"})
"""Messages of a session that a call has for itself."""


class _Outgoing:
    """What waits for the program."""

    def __init__(self) -> None:
        self._frames: deque[str | bytes] = deque()
        self._bytes = 0
        self._came = asyncio.Event()
        self.overrun = False

    def put(self, frame: str | bytes) -> None:
        """Append; what is too much for a program that does not read marks it as lost."""
        self._bytes += len(frame)
        self.overrun = self.overrun or self._bytes > _MAX_WAITING_BYTES
        if not self.overrun:
            self._frames.append(frame)
        self._came.set()

    async def get(self) -> str | bytes:
        """Wait for the next one. Raises `PeerGone` for a program that does not read."""
        while not self._frames or self.overrun:
            if self.overrun:
                raise PeerGone("the program does not read")
            self._came.clear()
            await self._came.wait()
        frame = self._frames.popleft()
        self._bytes -= len(frame)
        return frame


class AgentSocket:
    """Leads calls; `run` is a `Dialogue`.

    Args:
        url: ``ws://`` or ``wss://``.
        token: Sent as a bearer token.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def run(self, call: PhoneCall) -> None:
        """Lead a call until the program ends it, or leaves.

        Raises:
            PeerGone: The program cannot be reached.
        """
        try:
            socket = await connect(
                self._url,
                additional_headers=self._headers,
                compression=None,
                max_size=_MAX_MESSAGE_BYTES,
                open_timeout=_OPEN_S,
                close_timeout=_CLOSE_S,
            )
        except (OSError, TimeoutError, WebSocketException, ValueError) as error:
            raise PeerGone(
                f"the program that leads calls cannot be reached ({type(error).__name__})"
            ) from error
        try:
            await self._lead(call, socket)
        finally:
            await socket.close()

    async def _lead(self, call: PhoneCall, socket: ClientConnection) -> None:
        out = _Outgoing()
        info = call.info
        _tell(
            out,
            "call.started",
            carrier=info.carrier,
            caller=info.caller,
            called=info.called,
            parameters=info.parameters,
            encoding="pcm_s16le",
            sample_rate=RATE_HZ,
        )

        async def tap(message: str) -> None:
            out.put(message)

        def ear(samples: Pcm) -> None:
            out.put(pcm_to_s16le(samples))

        call.tap = tap
        with call.hearing(ear):
            try:
                tasks = [
                    asyncio.create_task(_send(socket, out), name="agent: send"),
                    asyncio.create_task(_report(call, out), name="agent: events"),
                    asyncio.create_task(_obey(call, socket, out), name="agent: obey"),
                ]
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                call.tap = None
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def _send(socket: ClientConnection, out: _Outgoing) -> None:
    with suppress(ConnectionClosed):
        while True:
            await socket.send(await out.get())


async def _report(call: PhoneCall, out: _Outgoing) -> None:
    """Tell the program what the caller does."""
    while True:
        event = await call.next_event()
        if isinstance(event, KeyPressed):
            _tell(out, "call.key", key=event.symbol)
        elif isinstance(event, TurnEnded):
            _tell(out, "call.turn", start_ms=event.turn.start_ms, end_ms=event.turn.end_ms)


async def _obey(call: PhoneCall, socket: ClientConnection, out: _Outgoing) -> None:
    """Do what the program says until it hangs up, or leaves."""
    with suppress(ConnectionClosed):
        async for frame in socket:
            try:
                message = _read(frame)
                if message["type"] == "call.hang_up":
                    if message.get("now") is True:
                        call.stop_speaking()
                    return
                if message["type"] == "call.transfer":
                    await _transfer(call, message)
                    return
                call.relay(message)
            except (InvalidMessage, UnsupportedFormat) as error:
                _tell(out, "error", code="invalid_message", message=str(error))


def _read(frame: str | bytes) -> dict[str, Any]:
    try:
        message = json.loads(frame) if isinstance(frame, str) else None
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise InvalidMessage("a message to a call is a JSON object with a type")
    if message["type"] in _REFUSED:
        raise InvalidMessage(f"a call takes no {message['type']}")
    return message


async def _transfer(call: PhoneCall, message: dict[str, Any]) -> None:
    target = message.get("to")
    if not isinstance(target, str) or not target:
        raise InvalidMessage("call.transfer needs the field 'to'")
    await call.all_heard()
    await call.line.transfer(target)


def _tell(out: _Outgoing, kind: str, **fields: Any) -> None:
    out.put(json.dumps({"type": kind, **fields}))
