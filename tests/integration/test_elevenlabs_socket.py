"""ElevenLabs' sockets: their own client for one text, a bare WebSocket for contexts."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from elevenlabs import ElevenLabs, VoiceSettings
from elevenlabs.core import ApiError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from support.features import feature
from support.media import hear
from support.served import Served, serving

pytestmark = [
    pytest.mark.integration,
    # Their client reads the code of a close in the old way.
    pytest.mark.filterwarnings("ignore:ConnectionClosed:DeprecationWarning"),
]

SINGLE = "ElevenLabs stream-input"
MULTI = "ElevenLabs multi-stream-input"
WORDS = ("hello ", "there ", "world.")
BYTES = 40_800
"""What the fake engine makes of the words, as pcm_24000."""


def with_server(
    folder: Path,
    body: Callable[[Served], Awaitable[None]],
    engine: FakeEngine | None = None,
    **settings: Any,
) -> None:
    async def run() -> None:
        async with serving(folder, engine, **settings) as served:
            await body(served)
            await all_free(served)

    asyncio.run(run())


async def all_free(served: Served) -> None:
    services = served.services
    while services.admission.live or services.sessions.live:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


@asynccontextmanager
async def socket(
    served: Served,
    path: str = "multi-stream-input",
    query: str = "",
    voice: str = "beep",
    **options: Any,
) -> AsyncIterator[ClientConnection]:
    url = f"ws://127.0.0.1:{served.port}/v1/text-to-speech/{voice}/{path}?output_format=pcm_24000"
    async with connect(url + query, **options) as connection:
        yield connection


async def say(connection: ClientConnection, **message: Any) -> None:
    await connection.send(json.dumps(message))


async def until_final(connection: ClientConnection) -> list[dict[str, Any]]:
    heard = []
    async for frame in connection:
        heard.append(json.loads(frame))
        if heard[-1].get("isFinal"):
            break
    return heard


def audio_of(frames: list[dict[str, Any]]) -> bytes:
    return b"".join(base64.b64decode(frame.get("audio") or "") for frame in frames)


def text_of(frames: list[dict[str, Any]]) -> str:
    timed = [frame.get("alignment") or {"chars": []} for frame in frames]
    return "".join(char for alignment in timed for char in alignment["chars"])


def call_sdk(
    served: Served, form: Any, *, voice: str = "beep", key: str = "any", words: Any = WORDS
) -> bytes:
    with httpx.Client() as connections:
        url = f"127.0.0.1:{served.port}"
        client = ElevenLabs(base_url=f"http://{url}", api_key=key, httpx_client=connections)
        client.text_to_speech._ws_base_url = f"ws://{url}"
        pieces = client.text_to_speech.convert_realtime(
            voice, text=iter(words), output_format=form, voice_settings=VoiceSettings(speed=1.0)
        )
        return b"".join(pieces)


@feature(SINGLE, "`convert_realtime` of their client", "supported", "its address is fixed to wss")
def test_their_client(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        assert len(await asyncio.to_thread(call_sdk, served, "pcm_24000")) == BYTES
        heard = hear(await asyncio.to_thread(call_sdk, served, "mp3_44100_128"))
        assert (heard.codec.removesuffix("float"), heard.sample_rate) == ("mp3", 44_100)
        assert await asyncio.to_thread(call_sdk, served, "pcm_24000", words=(" ",)) == b""

    with_server(tmp_path, body)


@feature(SINGLE, "errors of their client", "supported", "`ApiError` with our message")
def test_mistakes_reach_their_client(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        for options, said in (
            ({"voice": "nobody"}, "voice_not_found"),
            ({"voice": "voice-aaaaaaaaaaaaaaaa"}, "voice_not_found"),
        ):
            with pytest.raises(ApiError) as caught:
                await asyncio.to_thread(call_sdk, served, "pcm_24000", **options)
            assert caught.value.status_code == 1008
            assert said in str(caught.value.body)
        with pytest.raises(ApiError) as caught:
            await asyncio.to_thread(call_sdk, served, "ogg_1")
        assert caught.value.status_code == 1008

    with_server(tmp_path, body)


@feature(SINGLE, "`flush`, `isFinal`, close 1000", "supported")
@feature(SINGLE, "`alignment`, `normalizedAlignment`", "supported", "of the text as it was sent")
@feature(SINGLE, "`generation_config`, `try_trigger_generation`, `auto_mode`", "ignored", "clauses")
@feature(SINGLE, "`inactivity_timeout` 1–180, `seed`, `language_code`", "supported")
def test_text_in_pieces(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        query = "&auto_mode=true&sync_alignment=true&seed=1&language_code=en&unknown=1"
        async with socket(served, "stream-input", query) as connection:
            config = {"chunk_length_schedule": [50]}
            await say(connection, text=" ", voice_settings=None, generation_config=config, later=1)
            await say(connection, text=WORDS[0], flush=True)
            first = json.loads(await connection.recv())  # before the rest of the text
            for word in WORDS[1:]:
                await say(connection, text=word, try_trigger_generation=True)
            await say(connection, text="")
            frames = [first, *await until_final(connection)]
            assert len(audio_of(frames)) == BYTES
            assert text_of(frames) == "".join(WORDS)
            assert all(frame["alignment"] == frame["normalizedAlignment"] for frame in frames[:-1])
            await connection.wait_closed()
            assert connection.close_code == 1000

    with_server(tmp_path, body)


@feature(SINGLE, "wrong types, 200 kB of text", "refused", "an error, then close 1008")
def test_mistakes_close_the_socket(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        for wrong in ('{"text": 5}', "{", b"\x00", json.dumps({"text": "a " * 100_000})):
            async with socket(served, "stream-input") as connection:
                await connection.send(wrong)
                said = json.loads(await connection.recv())
                assert (said["code"], bool(said["message"])) == (1008, True)
                await connection.wait_closed()
                assert connection.close_code == 1008
        async with socket(served, "stream-input", "&inactivity_timeout=999") as connection:
            assert "inactivity_timeout" in json.loads(await connection.recv())["message"]

    with_server(tmp_path, body)


def test_silence_ends_the_connection(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        async with socket(served, "stream-input", "&inactivity_timeout=1") as connection:
            said = json.loads(await connection.recv())
            assert said["error"] == "input_timeout_exceeded"
            await connection.wait_closed()
            assert connection.close_code == 1008

    with_server(tmp_path, body)


@feature(SINGLE, "cut connection", "supported", "cancels the synthesis")
@pytest.mark.parametrize("path", ["stream-input", "multi-stream-input"])
def test_cut_connection_frees_the_work(tmp_path: Path, path: str) -> None:
    gate = ChunkGate()
    engine = FakeEngine(gate=gate)

    async def body(served: Served) -> None:
        await gate.allow(1)
        async with socket(served, path) as connection:
            await say(connection, text="hello there world. ", context_id="a", flush=True)
            await connection.recv()
            assert served.services.admission.live == 1
            connection.transport.abort()
        await all_free(served)
        assert engine.counts.cancelled == 1

    with_server(tmp_path, body, engine)


@feature(MULTI, "contexts, `flush`, `close_context`, re-used ids", "supported")
def test_turns(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        async with socket(served) as connection:
            for _ in range(2):
                await say(connection, text=" ", context_id="a", voice_settings={})
                for word in WORDS:
                    await say(connection, text=word, context_id="a")
                    await say(connection, text="")
                await say(connection, text="", context_id="a", flush=True)
                await say(connection, context_id="a", close_context=True)
                frames = await until_final(connection)
                assert {frame["contextId"] for frame in frames} == {"a"}
                assert {frame["context_id"] for frame in frames} == {"a"}
                assert len(audio_of(frames)) == BYTES
                assert text_of(frames) == "".join(WORDS)

    with_server(tmp_path, body)


@feature(MULTI, "contexts at the same time", "partly", "spoken one after the other, in turns")
def test_contexts_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        async with socket(served) as connection:
            await say(connection, text="hello there ", context_id="a")  # and no more
            await say(connection, text="world.", context_id="b", flush=True)
            await say(connection, context_id="b", close_context=True)
            frames = await until_final(connection)
            assert frames[-1]["contextId"] == "b"
            assert text_of([f for f in frames if f["contextId"] == "b"]) == "world."
            await say(connection, close_socket=True)
            assert (await until_final(connection))[-1]["contextId"] == "a"
            await connection.wait_closed()
            assert connection.close_code == 1000

    with_server(tmp_path, body)


@feature(MULTI, "`close_context` without `flush`", "supported", "interrupts at once")
def test_interruption(tmp_path: Path) -> None:
    gate = ChunkGate()
    engine = FakeEngine(gate=gate)

    async def body(served: Served) -> None:
        await gate.allow(1)
        async with socket(served) as connection:
            await say(connection, text="hello there world. ", context_id="a")
            assert audio_of([json.loads(await connection.recv())])
            await say(connection, context_id="a", close_context=True)
            (final,) = await until_final(connection)
            assert (final["contextId"], final["audio"]) == ("a", None)
            await gate.open()
            await say(connection, text="again.", context_id="b", flush=True)
            await say(connection, context_id="b", close_context=True)
            frames = await until_final(connection)
            assert {frame["contextId"] for frame in frames} == {"b"}
        assert engine.counts.cancelled == 1

    with_server(tmp_path, body, engine)


@feature(MULTI, "errors of one context", "supported", "`error`, then `isFinal`; the others go on")
def test_failure_of_a_context(tmp_path: Path) -> None:
    engine = FakeEngine(fail_on={"broken": RuntimeError("secret")})

    async def body(served: Served) -> None:
        async with socket(served) as connection:
            await say(connection, text="broken ", context_id="a", flush=True)
            said, _ = await until_final(connection)
            assert (said["contextId"], said["error"]) == ("a", "synthesis_failed")
            assert "secret" not in str(said)
            await say(connection, text="well. ", context_id="b", flush=True)
            await say(connection, context_id="b", close_context=True)
            assert audio_of(await until_final(connection))

    with_server(tmp_path, body, engine)


@feature(MULTI, "a wrong voice, wrong types, no JSON", "refused", "an error, then close 1008")
@feature(MULTI, "200 kB of text", "refused", "an error of the context")
@feature(MULTI, "unknown fields, a context without text", "supported", "`isFinal`, no audio")
def test_mistakes_in_contexts(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        for wrong in ('{"text": 5, "context_id": "a"}', '{"context_id": 5}', "{", b"\x00"):
            async with socket(served) as connection:
                await connection.send(wrong)
                said = json.loads(await connection.recv())
                assert (said["code"], bool(said["message"])) == (1008, True)
                await connection.wait_closed()
                assert connection.close_code == 1008
        async with socket(served, voice="nobody") as connection:
            assert "voice_not_found" in str(json.loads(await connection.recv()))
            await connection.wait_closed()
            assert connection.close_code == 1008
        async with socket(served, query="&unknown=1") as connection:
            await say(connection, text="a " * 100_000, context_id="long")
            said, final = await until_final(connection)
            assert (said["contextId"], said["error"]) == ("long", "limit_exceeded")
            assert final["contextId"] == "long"
            await say(connection, text=" ", context_id="a", later={"deep": 1})
            await say(connection, text="", context_id="a", flush=True)
            await say(connection, context_id="a", close_context=True)
            frames = await until_final(connection)
            assert (frames[-1]["contextId"], audio_of(frames)) == ("a", b"")

    with_server(tmp_path, body)


@feature(MULTI, "`xi-api-key` as a header or in the query", "supported", "not in the first message")
def test_keys(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        for headers in ({}, {"xi-api-key": "wrong"}):
            with pytest.raises(InvalidStatus) as caught:
                async with socket(served, additional_headers=headers):
                    pass
            assert caught.value.response.status_code == 401
            detail = json.loads(caught.value.response.body)["detail"]
            assert detail["status"] == "invalid_api_key"
        async with socket(served, additional_headers={"xi-api-key": "right"}):
            pass
        async with socket(served, query="&single_use_token=right"):
            pass

    with_server(tmp_path, body, api_keys="right")


def test_no_room(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        async with socket(served) as first:
            await say(first, text="x ", context_id="a", flush=True)
            await first.recv()
            with pytest.raises(InvalidStatus) as caught:
                async with socket(served):
                    pass
            assert caught.value.response.status_code == 429

    with_server(tmp_path, body, max_sessions=1)
