"""The asyncio client: cancels, servers that vanish or refuse, recordings, voices."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_socket

from cosyvoice_stream.errors import (
    ConfigError,
    EnrolmentRejected,
    LimitExceeded,
    PeerGone,
    ServerError,
    UnsupportedFormat,
)
from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server import client_connect
from cosyvoice_stream.server.client import Session, connect
from support.recordings import RATE, REFERENCES, silence, speech
from support.served import Served, serving

pytestmark = pytest.mark.integration

CHAR_SAMPLES = 1200
RECORDING = REFERENCES / "flite_rms_male.wav"


def run(
    folder: Path,
    work: Callable[[Session, Served], Awaitable[None]],
    engine: FakeEngine | None = None,
    **settings: Any,
) -> None:
    async def whole() -> None:
        async with (
            asyncio.timeout(30),
            serving(folder, engine, **settings) as served,
            connect(f"http://127.0.0.1:{served.port}") as session,
        ):
            await work(session, served)

    asyncio.run(whole())


def gated() -> tuple[ChunkGate, FakeEngine]:
    gate = ChunkGate()
    return gate, FakeEngine(gate=gate)


def test_cancel_before_the_first_audio(tmp_path: Path) -> None:
    gate, engine = gated()

    async def work(session: Session, _: Served) -> None:
        utterance = await session.speak("never heard")
        await gate.arrived(1)
        stopped = await utterance.cancel()
        assert (stopped.sent_ms, stopped.spoken_text) == (0, "")
        assert [chunk async for chunk in utterance] == []
        await gate.open()
        assert len(await (await session.speak("next")).read()) == CHAR_SAMPLES * 4

    run(tmp_path, work, engine)


def test_cancel_in_the_middle(tmp_path: Path) -> None:
    gate, engine = gated()

    async def work(session: Session, _: Served) -> None:
        utterance = await session.speak("some words that go on for a while")
        await gate.allow(3)
        first = await anext(utterance)
        await utterance.played(first.start_ms + 50)
        stopped = await utterance.cancel()
        assert stopped.sent_ms >= 100
        assert (stopped.played_ms, stopped.played_estimated) == (50, False)
        assert [chunk async for chunk in utterance] == []
        assert utterance.stopped is stopped
        await gate.open()
        assert len(await (await session.speak("next")).read()) == CHAR_SAMPLES * 4

    run(tmp_path, work, engine)


def test_cancel_wakes_a_reader_that_waits(tmp_path: Path) -> None:
    gate, engine = gated()

    async def work(session: Session, _: Served) -> None:
        utterance = await session.speak("never heard")
        reading = asyncio.create_task(utterance.read())
        await gate.arrived(1)
        await utterance.cancel()
        assert len(await reading) == 0

    run(tmp_path, work, engine)


def test_cancel_after_the_end_tells_the_final_positions(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        utterance = await session.speak("hello")
        await utterance.read()
        stopped = await utterance.cancel()
        assert stopped.sent_ms == 250

    run(tmp_path, work)


def test_cancel_of_unread_but_complete_audio_drops_it(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        utterance = await session.speak("hello")
        await (await session.speak("later")).read()
        await utterance.cancel()
        assert [chunk async for chunk in utterance] == []

    run(tmp_path, work)


def test_cancel_twice_gives_the_same_answer(tmp_path: Path) -> None:
    gate, engine = gated()

    async def work(session: Session, _: Served) -> None:
        utterance = await session.speak("never heard")
        await gate.arrived(1)
        both = await asyncio.gather(utterance.cancel(), utterance.cancel())
        assert both[0] == both[1] == await utterance.cancel()
        await gate.open()
        assert len(await (await session.speak("next")).read()) == CHAR_SAMPLES * 4

    run(tmp_path, work, engine)


def test_cancel_of_one_leaves_the_others(tmp_path: Path) -> None:
    gate, engine = gated()

    async def work(session: Session, _: Served) -> None:
        first, second, third = [await session.speak(word) for word in ("one", "second", "three")]
        await gate.arrived(1)
        await second.cancel()
        await gate.open()
        assert len(await first.read()) == CHAR_SAMPLES * 3
        assert len(await third.read()) == CHAR_SAMPLES * 5

    run(tmp_path, work, engine)


def test_cancel_closes_text_that_is_still_being_written(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        closed = asyncio.Event()

        async def writing() -> AsyncIterator[str]:
            try:
                yield "some words "
                await asyncio.Event().wait()
            finally:
                closed.set()

        utterance = await session.speak(writing())
        await anext(utterance)
        await utterance.cancel()
        await closed.wait()

    run(tmp_path, work)


def test_cancel_of_a_failed_utterance_raises_its_error(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        utterance = await session.speak("x", voice="nobody")
        with pytest.raises(ServerError):
            await utterance.read()
        with pytest.raises(ServerError) as failed:
            await utterance.cancel()
        assert failed.value.code == "voice_not_found"

    run(tmp_path, work)


def test_server_that_stops_ends_what_is_open(tmp_path: Path) -> None:
    gate, engine = gated()

    async def work(session: Session, served: Served) -> None:
        utterance = await session.speak("some words that go on for a while")
        await gate.allow(1)
        await anext(utterance)
        served.server.should_exit = True
        with pytest.raises((PeerGone, ServerError), match="1001|about to stop"):
            await utterance.read()
        await session._reader
        with pytest.raises(PeerGone, match="1001"):
            await session.speak("too late")

    run(tmp_path, work, engine, drain_s=0)


@asynccontextmanager
async def scripted(
    handle: Callable[[ServerConnection], Awaitable[None]],
) -> AsyncIterator[str]:
    """A WebSocket server that does what a test wants; gives its address."""
    async with serve_socket(handle, "127.0.0.1", 0, subprotocols=["cosyvoice-stream.v1"]) as server:  # type: ignore[list-item]
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
def greeting(tmp_path: Path) -> str:
    """What a real server says first."""
    said = []

    async def work() -> None:
        async with serving(tmp_path) as served, connect(f"127.0.0.1:{served.port}") as session:
            said.append(session.ready.to_json())

    asyncio.run(work())
    return said[0]


def test_connection_that_breaks_ends_reading_cancelling_and_asking(greeting: str) -> None:
    async def work() -> None:
        async def handle(peer: ServerConnection) -> None:
            await peer.send(greeting)
            while "utterance.cancel" not in str(await peer.recv()):
                pass
            peer.transport.abort()

        async with scripted(handle) as url, connect(url) as session:
            utterance, other = await session.speak("x"), await session.speak("y")
            reading = asyncio.create_task(other.read())
            asking = asyncio.create_task(session.update(speed=1.0))
            await asyncio.sleep(0)
            with pytest.raises(PeerGone, match="1006") as gone:
                await utterance.cancel()
            assert gone.value.how_to_fix
            for waiting in (reading, asking):
                with pytest.raises(PeerGone):
                    await waiting
            with pytest.raises(PeerGone):
                await session.speak("y")
            with pytest.raises(PeerGone):
                await session.clone((speech(), RATE))

    asyncio.run(work())


@pytest.mark.parametrize(
    "frame", [b"\x01\x00", b"\x07" + bytes(11), "not JSON", '{"type": "marks"}']
)
def test_server_that_talks_nonsense_ends_the_session(greeting: str, frame: str | bytes) -> None:
    async def work() -> None:
        async def handle(peer: ServerConnection) -> None:
            await peer.send(greeting)
            await peer.recv()
            await peer.send(frame)
            await peer.wait_closed()

        async with scripted(handle) as url, connect(url) as session:
            with pytest.raises(Exception, match="frame|message"):
                await (await session.speak("x")).read()

    asyncio.run(work())


def test_unknown_message_types_are_ignored(greeting: str) -> None:
    async def work() -> None:
        async def handle(peer: ServerConnection) -> None:
            await peer.send(greeting)
            await peer.send('{"type": "from.the.future", "x": 1}')
            async for message in peer:
                if "session.update" in str(message):
                    asked = json.loads(message)["request_id"]
                    answer = {"type": "error", "code": "internal", "message": "oh"}
                    await peer.send(json.dumps({**answer, "request_id": asked}))

        async with scripted(handle) as url, connect(url) as session:
            with pytest.raises(ServerError, match="oh"):
                await session.update(speed=1.0)

    asyncio.run(work())


@pytest.mark.parametrize("first", ["not JSON", '{"type": "marks"}', b"\x01", None])
def test_server_of_another_kind_is_refused_with_a_cure(
    first: str | bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_connect, "OPEN_TIMEOUT_S", 0.2)

    async def work() -> None:
        async def handle(peer: ServerConnection) -> None:
            if first is not None:
                await peer.send(first)
            await peer.wait_closed()

        async with scripted(handle) as url:
            before = asyncio.all_tasks()
            with pytest.raises(PeerGone, match="not a server of ours") as refused:
                async with connect(url):
                    pass
            assert "cosyvoice-stream serve" in (refused.value.how_to_fix or "")
            assert not [t for t in asyncio.all_tasks() - before if "client" in t.get_name()]

    asyncio.run(work())


def test_address_where_nothing_listens_is_refused_with_a_cure() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"

        async def work() -> None:
            async with connect(url):
                pass

        with pytest.raises(PeerGone, match=f"no server answers at {url}") as refused:
            asyncio.run(work())
    assert "cosyvoice-stream serve" in (refused.value.how_to_fix or "")


def test_address_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="'ftp://x' is not the address of a server"):
        connect("ftp://x")


def test_keys_are_sent_and_missed(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, api_keys="secret") as served:
            url = f"http://127.0.0.1:{served.port}"
            async with connect(url, api_key="secret") as session:
                assert len(await (await session.speak("hello")).read()) == CHAR_SAMPLES * 5
                assert [voice["id"] for voice in await session.voices()] == ["beep", "boop"]
            for key in (None, "wrong"):
                with pytest.raises(ServerError) as refused:
                    async with connect(url, api_key=key):
                        pass
                assert refused.value.code == "unauthorized"
                assert "secret" not in str(refused.value)

    asyncio.run(work())


@pytest.mark.parametrize(
    "make",
    [
        lambda: RECORDING,
        lambda: str(RECORDING),
        lambda: RECORDING.read_bytes(),
        lambda: (speech(), RATE),
        lambda: (np.repeat(speech(), 6), 6 * RATE),
        lambda: (speech().astype(np.float64), RATE),
    ],
    ids=["path", "str", "bytes", "samples", "96 kHz", "float64"],
)
def test_recording_in_every_form_becomes_a_voice(tmp_path: Path, make: Callable[[], Any]) -> None:
    async def work(session: Session, served: Served) -> None:
        made = await session.clone(make(), name="Mine", transcript="The morning ferry.")
        assert made.voice["name"] == "Mine"
        assert made.transcript == "The morning ferry."
        assert made.quality["items"]
        utterance = await session.speak("hello", voice=made.voice["id"])
        assert len(await utterance.read()) == CHAR_SAMPLES * 5
        assert utterance.started is not None
        assert utterance.started.voice == made.voice["id"]
        assert len(await session.voices()) == (2 if not made.voice["persistent"] else 3)

    run(tmp_path, work)


def test_stored_voice_outlives_its_session(tmp_path: Path) -> None:
    async def work(session: Session, served: Served) -> None:
        made = await session.clone(RECORDING, name="Mine", persist=True)
        async with connect(f"127.0.0.1:{served.port}") as other:
            assert made.voice["id"] in [voice["id"] for voice in await other.voices()]

    run(tmp_path, work)


def test_rejected_recording_says_why_and_the_session_goes_on(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        with pytest.raises(EnrolmentRejected) as rejected:
            await session.clone((silence(4), RATE))
        assert rejected.value.reason == "no_speech"
        assert rejected.value.how_to_fix
        assert rejected.value.quality is not None
        assert (await session.clone(RECORDING)).voice["id"]

    run(tmp_path, work)


@pytest.mark.parametrize(
    ("recording", "kind"),
    [
        (b"no audio at all", UnsupportedFormat),
        ((np.zeros((2, 16_000), np.float32), 16_000), UnsupportedFormat),
        ((np.zeros(16_000, np.float32), 4000), UnsupportedFormat),
        ((np.zeros(8000 * 70, np.float32), 8000), LimitExceeded),
    ],
    ids=["noise", "stereo", "4 kHz", "too long"],
)
def test_recording_that_cannot_be_sent_is_refused_here(
    tmp_path: Path, recording: Any, kind: type[Exception]
) -> None:
    async def work(session: Session, _: Served) -> None:
        with pytest.raises(kind):
            await session.clone(recording)
        assert (await session.clone(RECORDING)).voice["id"]

    run(tmp_path, work)


def test_cancelled_question_does_not_take_the_answer_of_the_next(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        for _turn in range(3):
            cloning = asyncio.create_task(session.clone((speech(), RATE)))
            updating = asyncio.create_task(session.update(speed=1.5))
            while not session._questions.are_open:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            cloning.cancel()
            updating.cancel()
            await asyncio.gather(cloning, updating, return_exceptions=True)
            assert (await session.update(speed=0.5)).settings.speed == 0.5
        assert (await session.clone(RECORDING)).voice["id"]

    run(tmp_path, work)


def test_speech_goes_on_while_a_recording_is_sent(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        utterance = await session.speak("hello there")
        made, samples = await asyncio.gather(session.clone(RECORDING), utterance.read())
        assert made.voice["id"]
        assert len(samples) == CHAR_SAMPLES * 11

    run(tmp_path, work)
