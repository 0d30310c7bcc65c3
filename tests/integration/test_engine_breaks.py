"""An engine that breaks down under a server: errors, readiness, and sockets that stay."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.lite.engine import LiteEngine
from cosyvoice_stream.lite.utterance import UtteranceWork
from support.served import Served, serving

pytestmark = pytest.mark.integration


class SlowStart(FakeEngine):
    """Starts again only when it may."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.go = asyncio.Event()

    async def start(self) -> None:
        if self.counts.starts:
            await self.go.wait()
        await super().start()


async def open_session(served: Served) -> ClientConnection:
    socket = await connect(f"ws://127.0.0.1:{served.port}/v1/stream", proxy=None)
    await socket.recv()
    return socket


async def speak(socket: ClientConnection, utterance: str, text: str) -> None:
    await socket.send(json.dumps({"type": "speak", "id": utterance, "text": text, "seed": 1}))


async def end_of(socket: ClientConnection, utterance: str) -> tuple[dict[str, Any], bytes]:
    """The last message of an utterance, and its audio."""
    audio = b""
    while True:
        frame = await socket.recv()
        if isinstance(frame, bytes):
            audio += frame[12:]
            continue
        message = json.loads(frame)
        if message.get("id") == utterance and message["type"] in ("utterance.done", "error"):
            return message, audio


async def until_ready(served: Served) -> None:
    while (await served.get("/readyz")).status != 200:  # noqa: ASYNC110 - as a probe looks
        await asyncio.sleep(0.01)


def test_running_utterances_fail_readiness_drops_and_returns_and_sockets_stay(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        gate = ChunkGate()
        engine = SlowStart(gate=gate, die_on="boom")
        async with serving(tmp_path, engine) as served:
            first, second = await open_session(served), await open_session(served)
            await speak(first, "a", "hello wonderful world")
            await gate.arrived(1)
            await speak(second, "b", "boom")
            for socket, utterance in ((second, "b"), (first, "a")):
                message, _ = await end_of(socket, utterance)
                await gate.open()
                assert message["code"] == "synthesis_failed"
                assert "restarted" in message["how_to_fix"]

            reply = await served.get("/readyz")
            assert (reply.status, reply.json()["status"]) == (503, "restarting")
            assert (await served.get("/healthz")).status == 200
            await speak(first, "c", "too early")
            message, _ = await end_of(first, "c")
            assert message["code"] == "busy"
            assert message["retry_after_ms"] > 0
            refused = await served.post_json("/v1/speak", {"text": "too early"})
            assert (refused.status, refused.error["code"]) == (429, "busy")

            engine.go.set()
            await until_ready(served)
            for socket, utterance in ((first, "d"), (second, "e")):
                await speak(socket, utterance, "hello again")
                message, audio = await end_of(socket, utterance)
                assert message["type"] == "utterance.done"
                assert len(audio) == 2 * 1200 * len("hello again")
                await socket.close()
            assert (
                b"cosyvoice_stream_engine_restarts_total 1.0" in (await served.get("/metrics")).body
            )
        assert engine.counts.live == 0

    asyncio.run(main())


def test_a_stop_while_the_engine_is_down_ends_the_server(tmp_path: Path) -> None:
    async def main() -> None:
        engine = SlowStart(die_on="boom")
        async with serving(tmp_path, engine) as served:
            socket = await open_session(served)
            await speak(socket, "a", "boom")
            await end_of(socket, "a")
            served.server.should_exit = True
            await socket.wait_closed()
            assert socket.close_code == 1001

    asyncio.run(main())


def test_a_thread_of_the_embedded_engine_that_ends_breaks_nothing_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadly = {"steps": -1}
    step = UtteranceWork.step

    def dying_step(work: UtteranceWork) -> float:
        deadly["steps"] -= 1
        if deadly["steps"] == 0:
            raise SystemExit
        return step(work)

    monkeypatch.setattr(UtteranceWork, "step", dying_step)

    async def main() -> None:
        async with serving(tmp_path, LiteEngine(threads=2)) as served:
            sockets = [await open_session(served) for _ in range(3)]
            await speak(sockets[0], "x", "The same words before and after.")
            _, before = await end_of(sockets[0], "x")
            deadly["steps"] = 4
            for number, socket in enumerate(sockets):
                await speak(socket, f"a{number}", "Some longer words for everybody. " * 20)
            for number, socket in enumerate(sockets):
                message, _ = await end_of(socket, f"a{number}")
                assert message["code"] == "synthesis_failed"
            await until_ready(served)
            for socket in sockets:
                await speak(socket, "y", "The same words before and after.")
                message, after = await end_of(socket, "y")
                assert message["type"] == "utterance.done"
                assert after == before
                await socket.close()

    asyncio.run(main())
