"""Limits of each key, through real sockets: utterances, sessions, voices; and fast refusals."""

import asyncio
import json
from pathlib import Path

import pytest
import websockets

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from support.recordings import REFERENCES
from support.served import Served, serving

pytestmark = pytest.mark.integration

RECORDING = (REFERENCES / "flite_slt_female.wav").read_bytes()
KEYS = {"api_keys": "one,two"}


async def speaking(served: Served, key: str):
    """A session that has begun to speak and is held at the gate."""
    socket = await websockets.connect(f"ws://127.0.0.1:{served.port}/v1/stream?api_key={key}")
    await socket.recv()
    await socket.send(json.dumps({"type": "speak", "id": "a", "text": "Hello there"}))
    return socket, json.loads(await socket.recv())


def test_a_key_that_has_its_share_is_refused_and_the_other_is_not(tmp_path: Path) -> None:
    async def main() -> None:
        gate = ChunkGate()
        engine = FakeEngine(gate=gate)
        async with serving(tmp_path, engine, max_live_per_key=1, queue_wait_s=0, **KEYS) as served:
            first, begun = await speaking(served, "one")
            assert begun["type"] == "utterance.started"
            second, refused = await speaking(served, "one")
            assert (refused["code"], refused["id"]) == ("busy", "a")
            assert refused["retry_after_ms"] > 0
            third, begun = await speaking(served, "two")
            assert begun["type"] == "utterance.started"
            reply = await served.post_json("/v1/speak", {"text": "x"}, x_api_key="one")
            assert (reply.status, reply.error["code"]) == (429, "busy")
            assert int(reply.headers["retry-after"]) >= 1
            await gate.open()
            for socket in (first, second, third):
                await socket.close()

    asyncio.run(main())


def test_sessions_of_a_key_are_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, max_sessions_per_key=1, **KEYS) as served:
            url = f"ws://127.0.0.1:{served.port}/v1/stream?api_key="
            async with websockets.connect(url + "one"), websockets.connect(url + "two"):
                with pytest.raises(websockets.InvalidStatus) as refused:
                    await websockets.connect(url + "one")
                body = json.loads(refused.value.response.body)
                assert (refused.value.response.status_code, body["error"]["code"]) == (429, "busy")
            async with websockets.connect(url + "two"):
                pass

    asyncio.run(main())


def test_voices_of_a_key_are_bounded_and_deleting_one_makes_room(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, max_voices_per_key=1, **KEYS) as served:

            async def enrol(key: str):
                return await served.request(
                    "POST", "/v1/voices", RECORDING, x_api_key=key, content_type="audio/wav"
                )

            made, beyond, other = [await enrol(key) for key in ("one", "one", "two")]
            assert [made.status, beyond.status, other.status] == [201, 413, 201]
            assert beyond.error["code"] == "limit_exceeded"
            voice_id = made.json()["voice"]["id"]
            assert (
                await served.request("DELETE", f"/v1/voices/{voice_id}", x_api_key="one")
            ).status == 204
            both = await asyncio.gather(enrol("one"), enrol("one"))
            assert sorted(reply.status for reply in both) == [201, 413]
            listing = (await served.get("/v1/voices", x_api_key="two")).body.decode()
            assert "owner" not in listing

    asyncio.run(main())


def test_a_crowd_beyond_capacity_hears_so_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        gate = ChunkGate()
        async with serving(
            tmp_path, FakeEngine(gate=gate), max_live_utterances=2, queue_wait_s=0
        ) as served:
            held = [await speaking(served, "") for _ in range(2)]
            for _ in range(20):
                socket, refused = await speaking(served, "")
                assert refused["code"] == "busy"
                await socket.close()
            await gate.open()
            for socket, _ in held:
                await socket.close()

    asyncio.run(main())
