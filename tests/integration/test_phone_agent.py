"""Programs that lead calls: over a WebSocket and over HTTP, with a line in memory."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import websockets
from websockets.asyncio.server import ServerConnection, serve

from cosyvoice_stream.errors import ConfigError, PeerGone
from cosyvoice_stream.server.app import create_app
from cosyvoice_stream.server.settings import Settings
from cosyvoice_stream.telephony.agent_socket import AgentSocket
from cosyvoice_stream.telephony.agent_webhook import AgentWebhook
from cosyvoice_stream.telephony.line import CallInfo
from support.phone_line import Caller, caller_says
from support.served import until

pytestmark = pytest.mark.integration

TIMEOUT_S = 30.0


class Program:
    """One conversation, as the program sees it."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket
        self.audio = b""
        self.messages: list[dict[str, Any]] = []

    async def send(self, **message: Any) -> None:
        await self.socket.send(json.dumps(message))

    async def message(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next message of this kind; what comes before is kept."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                frame = await self.socket.recv()
                if isinstance(frame, bytes):
                    self.audio += frame
                    continue
                message: dict[str, Any] = json.loads(frame)
                self.messages.append(message)
                if message["type"] == kind and fields.items() <= message.items():
                    return message


Body = Callable[[Program, Caller], Awaitable[None]]


def talk(body: Body, info: CallInfo | None = None, token: str | None = None) -> Caller:
    """Let a program lead a call until it returns."""

    async def run() -> Caller:
        caller = Caller(info=info)

        async def take(socket: ServerConnection) -> None:
            assert token is None or socket.request is not None
            if token is not None:
                assert socket.request.headers["Authorization"] == f"Bearer {token}"
            try:
                await body(Program(socket), caller)
            except websockets.ConnectionClosed:
                return

        async with serve(take, "127.0.0.1", 0, compression=None) as server:
            port = server.sockets[0].getsockname()[1]
            async with asyncio.timeout(TIMEOUT_S):
                await caller.run(AgentSocket(f"ws://127.0.0.1:{port}", token).run)
        return caller

    return asyncio.run(run())


def test_a_program_speaks_word_by_word_and_hangs_up_behind_the_last() -> None:
    async def body(program: Program, caller: Caller) -> None:
        started = await program.message("call.started")
        assert started["carrier"] == "memory"
        assert started["parameters"] == {"voice": "x"}
        assert (started["encoding"], started["sample_rate"]) == ("pcm_s16le", 16_000)
        await program.send(type="utterance.start", id="a")
        await program.send(type="text.delta", id="a", text="Good ")
        await program.send(type="text.delta", id="a", text="day.")
        await program.send(type="utterance.end", id="a")
        await program.send(type="call.hang_up")
        await program.message("nothing more")

    caller = talk(body, CallInfo("memory", parameters={"voice": "x"}), token="secret")
    assert caller.line.hung_up
    assert len(caller.line.speech) >= 7 * 0.05 * 8000


def test_a_program_hears_the_caller_keys_and_turns() -> None:
    async def body(program: Program, caller: Caller) -> None:
        await program.message("call.started")
        caller.call.press("7")
        assert (await program.message("call.key"))["key"] == "7"
        await caller.speak(caller_says(1.0))
        await caller.speak(np.zeros(8000, np.int16))
        turn = await program.message("call.turn")
        assert 500 < turn["end_ms"] - turn["start_ms"] < 1500
        await program.send(type="call.hang_up")
        assert len(program.audio) > 32_000

    talk(body)


def test_the_caller_interrupts_and_the_program_learns_what_was_heard() -> None:
    async def body(program: Program, caller: Caller) -> None:
        text = "one two three four five six seven eight nine ten eleven twelve thirteen"
        await program.send(type="speak", id="a", text=text)
        await program.message("utterance.started")
        await caller.line.until(lambda line: sum(f.speech for f in line.frames) > 50)
        async with asyncio.TaskGroup() as group:
            group.create_task(caller.speak(caller_says(1.0)))
            stopped = await program.message("utterance.cancelled", reason="speech")
        assert stopped["spoken_text"]
        assert text.startswith(stopped["spoken_text"])
        await program.send(type="call.hang_up")

    talk(body)


def test_a_mistake_is_answered_and_changes_nothing_else() -> None:
    async def body(program: Program, caller: Caller) -> None:
        for wrong in (
            "{",
            "[]",
            '{"kind": 1}',
            '{"type": "voice.begin"}',
            '{"type": "call.transfer"}',
        ):
            await program.socket.send(wrong)
            assert (await program.message("error"))["message"]
        await program.send(type="speak", id="a", text=5)
        await program.message("error")
        await program.send(type="speak", id="b", text="Hello.")
        await program.message("utterance.done", id="b")
        await program.send(type="call.hang_up", now=True)

    talk(body)


def test_a_program_hands_the_caller_over() -> None:
    async def body(program: Program, caller: Caller) -> None:
        await program.send(type="speak", id="a", text="One moment.")
        await program.send(type="call.transfer", to="sip:desk@host")
        await program.message("nothing more")

    assert talk(body).line.transferred == "sip:desk@host"


def test_a_program_that_leaves_ends_the_call() -> None:
    async def body(program: Program, caller: Caller) -> None:
        await program.message("call.started")

    assert talk(body).line.hung_up


def test_a_program_that_is_not_there_is_named() -> None:
    async def run() -> None:
        caller = Caller()
        with pytest.raises(PeerGone, match="cannot be reached"):
            await AgentSocket("ws://127.0.0.1:1").run(caller.call)
        with pytest.raises(PeerGone, match="cannot be reached"):
            await AgentWebhook("http://127.0.0.1:1").run(caller.call)

    asyncio.run(run())


def test_an_address_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no address"):
        create_app(Settings(_env_file=None, voices_dir=tmp_path, phone_agent="ftp://x"))


# Over HTTP

Answer = Callable[[dict[str, Any]], tuple[str, list[bytes]]]


@contextlib.asynccontextmanager
async def webhook(answer: Answer) -> AsyncIterator[str]:
    """Answers each POST with a content type and the pieces of a chunked body."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").lower().split("\r\n")
                length = next(int(x.split(":")[1]) for x in lines if x.startswith("content-length"))
                kind, pieces = answer(json.loads(await reader.readexactly(length)))
                writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n")
                writer.write(f"content-type: {kind}\r\n\r\n".encode())
                for piece in (*pieces, b""):
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await writer.drain()
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/turn"


def test_a_webhook_answers_turn_by_turn() -> None:
    asked: list[dict[str, Any]] = []

    def answer(body: dict[str, Any]) -> tuple[str, list[bytes]]:
        asked.append(body)
        if body["event"] == "started":
            return "text/plain", [b"Hello. ", b"How can I help?"]
        if body["event"] == "key":
            return "application/json", [b'{"text": "You pressed a key."}']
        return "application/json", [b'{"text": "Goodbye.", "hang_up": true}']

    async def run() -> Caller:
        caller = Caller()

        async def talks() -> None:
            await until(lambda: bool(asked))
            await caller.line.until(lambda line: any(f.speech for f in line.frames))
            await caller.call.all_heard()
            caller.call.press("4")
            await until(lambda: "You pressed a key." in caller.said)
            await caller.call.all_heard()
            await caller.speak(caller_says(1.0))
            await caller.speak(np.zeros(8000, np.int16))

        async with (
            webhook(answer) as url,
            asyncio.timeout(TIMEOUT_S),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(talks())
            await caller.run(AgentWebhook(url).run)
        return caller

    caller = asyncio.run(run())
    assert [body["event"] for body in asked] == ["started", "key", "turn"]
    assert len({body["call"] for body in asked}) == 1
    assert asked[1]["key"] == "4"
    assert base64.b64decode(asked[2]["audio"]["data"]).startswith(b"RIFF")
    assert caller.said == ["You pressed a key.", "Goodbye."]
    assert caller.line.hung_up


def test_a_webhook_that_answers_nonsense_leaves_the_call_standing() -> None:
    answers = iter([("application/json", [b"{"]), ("application/json", [b'{"hang_up": true}'])])

    async def run() -> None:
        caller = Caller()
        asked: list[str] = []

        def answer(body: dict[str, Any]) -> tuple[str, list[bytes]]:
            asked.append(body["event"])
            return next(answers)

        async def presses() -> None:
            await until(lambda: bool(asked))
            caller.call.press("1")

        async with (
            webhook(answer) as url,
            asyncio.timeout(TIMEOUT_S),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(presses())
            await caller.run(AgentWebhook(url).run)
        assert asked == ["started", "key"]

    asyncio.run(run())
