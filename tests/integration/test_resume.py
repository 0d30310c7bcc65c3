"""Sessions that are cut off and resumed, over real sockets."""

import asyncio
import json

import pytest
import websockets

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server.wire import AudioHeader
from support.stream_server import PATIENCE_S, stream_server

pytestmark = pytest.mark.integration

TEXT = "one two three four five six seven eight nine ten"


async def frames_until(socket, condition):
    """Raw frames up to the one for which the condition holds."""
    frames = []
    async with asyncio.timeout(PATIENCE_S):
        while not frames or not condition(frames[-1]):
            frames.append(await socket.recv())
    return frames


def is_done(frame):
    return isinstance(frame, str) and json.loads(frame)["type"] == "utterance.done"


def audio_of(frames):
    return b"".join(frame[AudioHeader.SIZE :] for frame in frames if isinstance(frame, bytes))


async def solo(server):
    async with websockets.connect(server.url) as socket:
        await socket.send(json.dumps({"type": "speak", "id": "a", "text": TEXT, "seed": 1}))
        return audio_of(await frames_until(socket, is_done))


def test_a_session_that_was_cut_goes_on_and_nothing_is_missing_or_doubled():
    async def main():
        gate = ChunkGate()
        async with stream_server(FakeEngine(gate=gate), resume_s=10) as server:
            await gate.open()
            whole = await solo(server)
            await gate.close()
            socket = await websockets.connect(server.url + "?resumable=1")
            ready = json.loads(await socket.recv())
            token = ready["resume"]["token"]
            await socket.send(json.dumps({"type": "speak", "id": "a", "text": TEXT, "seed": 1}))
            await gate.allow(3)
            frames = [await socket.recv() for _ in range(3)]
            socket.transport.abort()
            await gate.allow(2)
            query = f"?resume={token}&received={1 + len(frames)}"
            async with websockets.connect(server.url + query) as again:
                resumed = json.loads(await again.recv())
                assert resumed == {
                    "type": "session.resumed", "session": ready["session"], "received": 1,
                }  # fmt: skip
                await gate.open()
                frames += await frames_until(again, is_done)
                assert audio_of(frames) == whole
                starts = [AudioHeader.unpack(f).sample for f in frames if isinstance(f, bytes)]
                assert starts == sorted(set(starts))
                await again.send(json.dumps({"type": "speak", "id": "b", "text": "more"}))
                await frames_until(again, is_done)
            await server.all_ended()
            assert (server.admission.live, server.counts.opened, server.counts.closed) == (0, 2, 2)

    asyncio.run(main())


def test_without_asking_a_cut_session_ends():
    async def main():
        gate = ChunkGate()
        async with stream_server(FakeEngine(gate=gate), resume_s=10) as server:
            socket = await websockets.connect(server.url)
            assert "resume" not in json.loads(await socket.recv())
            await socket.send(json.dumps({"type": "speak", "id": "a", "text": TEXT}))
            await gate.arrived(1)
            socket.transport.abort()
            await server.all_ended()
            assert server.admission.live == 0

    asyncio.run(main())


def test_a_good_bye_ends_a_session_that_could_be_resumed():
    async def main():
        async with stream_server(resume_s=30) as server:
            socket = await websockets.connect(server.url + "?resumable=1")
            await socket.recv()
            await socket.close()
            await server.all_ended()

    asyncio.run(main())


def test_who_does_not_come_back_is_forgotten():
    async def main():
        async with stream_server(resume_s=0.05) as server:
            socket = await websockets.connect(server.url + "?resumable=1")
            token = json.loads(await socket.recv())["resume"]["token"]
            socket.transport.abort()
            await server.all_ended()
            with pytest.raises(websockets.InvalidStatus) as refused:
                await websockets.connect(server.url + f"?resume={token}&received=1")
            assert refused.value.response.status_code == 409

    asyncio.run(main())


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?resume=guess&received=1", 409),
        ("?resume=guess", 400),
        ("?resume=guess&received=-1", 400),
        ("?resume=guess&received=1e3", 400),
        (f"?resume=guess&received={'9' * 400}", 400),
        ("?resumable=maybe", 400),
    ],
)
def test_a_wrong_wish_is_refused_at_the_handshake(query, status):
    async def main():
        async with stream_server(resume_s=10) as server:
            with pytest.raises(websockets.InvalidStatus) as refused:
                await websockets.connect(server.url + query)
            assert refused.value.response.status_code == status
            assert server.sessions.live == 0

    asyncio.run(main())


def test_an_idle_session_is_closed_and_a_speaking_one_is_not():
    async def main():
        gate = ChunkGate()
        async with stream_server(FakeEngine(gate=gate), idle_timeout_s=0.2) as server:
            busy = await websockets.connect(server.url)
            await busy.send(json.dumps({"type": "speak", "id": "a", "text": "hello"}))
            async with websockets.connect(server.url) as idle:
                await frames_until(idle, lambda frame: "idle_timeout" in frame)
                with pytest.raises(websockets.ConnectionClosedOK):
                    await idle.recv()
            await gate.open()
            await frames_until(busy, is_done)
            await busy.close()

    asyncio.run(main())


def test_a_session_ends_behind_what_it_says_when_its_time_is_up():
    async def main():
        gate = ChunkGate()
        async with (
            stream_server(FakeEngine(gate=gate), max_session_s=0.1) as server,
            websockets.connect(server.url) as socket,
        ):
            await socket.send(json.dumps({"type": "speak", "id": "a", "text": "hello"}))
            await frames_until(socket, lambda frame: "session_too_long" in str(frame))
            await socket.send(json.dumps({"type": "speak", "id": "b", "text": "more"}))
            refused = (await frames_until(socket, lambda f: '"error"' in str(f)))[-1]
            assert json.loads(refused)["code"] == "session_too_long"
            await gate.open()
            await frames_until(socket, is_done)
            with pytest.raises(websockets.ConnectionClosedOK):
                await socket.recv()

    asyncio.run(main())
