"""OpenAI's Realtime WebSocket as a way to speak, through OpenAI's own Python client."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI, OpenAI
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.types import Feature
from support.features import feature
from support.noting_engine import NotingEngine
from support.served import Served, serving, until

pytestmark = pytest.mark.integration

API = "OpenAI Realtime"
TEXT = "hello there world"
SAMPLES = round(len(TEXT) * 0.05 * 24_000)


def with_server(
    folder: Path,
    body: Callable[[AsyncOpenAI, Served], Awaitable[None]],
    engine: FakeEngine | None = None,
    *,
    key: str = "any",
    **settings: Any,
) -> None:
    async def run() -> None:
        async with serving(folder, engine, **settings) as served:
            url = f"http://127.0.0.1:{served.port}/v1"
            async with AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
                await body(client, served)
            await until(lambda: not served.services.admission.live)
            await until(lambda: not served.services.sessions.live)

    asyncio.run(run())


def with_connection(
    folder: Path,
    body: Callable[[Any, Served], Awaitable[None]],
    engine: FakeEngine | None = None,
    **settings: Any,
) -> None:
    """Run `body` with an open connection behind its greeting."""

    async def connected(client: AsyncOpenAI, served: Served) -> None:
        async with client.realtime.connect(model="gpt-realtime") as connection:
            created = await connection.recv()
            assert created.type == "session.created"
            assert created.session.model == "gpt-realtime"
            assert (await connection.recv()).type == "conversation.created"
            await body(connection, served)

    with_server(folder, connected, engine, **settings)


async def until_done(connection: Any) -> list[Any]:
    """All events up to the end of a response."""
    events = []
    async for event in connection:
        events.append(event)
        if event.type == "response.done":
            return events
    raise AssertionError("the connection ended")


def audio_of(events: list[Any]) -> bytes:
    return b"".join(
        base64.b64decode(event.delta)
        for event in events
        if event.type == "response.output_audio.delta"
    )


async def say(connection: Any, text: str = TEXT, **response: Any) -> list[Any]:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    await connection.conversation.item.create(item=item)
    for kind in ("conversation.item.added", "conversation.item.done"):
        assert (await connection.recv()).type == kind
    await connection.response.create(response=response)
    return await until_done(connection)


async def wrong(connection: Any, event: dict[str, Any]) -> Any:
    """The error that an event gets."""
    await connection.send({"event_id": "mine", **event})
    answer = await connection.recv()
    assert answer.type == "error"
    assert answer.error.event_id == "mine"
    return answer.error


@feature(API, "`conversation.item.create`, `response.create`", "supported", "speaks the text as is")
@feature(API, "`response.output_audio.delta` and the events around it", "supported")
def test_a_message_is_spoken(tmp_path: Path) -> None:
    async def body(connection: Any, served: Served) -> None:
        events = await say(connection)
        assert len(audio_of(events)) == SAMPLES * 2
        assert np.abs(np.frombuffer(audio_of(events), "<i2")).max() > 3000
        order = [event.type for event in events if not event.type.endswith(".delta")]
        assert order == [
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
        ]
        done = events[-1].response
        assert (done.status, done.object) == ("completed", "realtime.response")
        assert done.output[0].content[0].transcript == TEXT
        assert done.usage.input_tokens == len(TEXT)
        assert done.usage.total_tokens == len(TEXT) + done.usage.output_tokens
        assert len({event.event_id for event in events}) == len(events)

    with_connection(tmp_path, body)


@feature(
    API, "`response.output_audio_transcript.delta`", "supported", "word by word before its audio"
)
def test_transcript_keeps_pace_with_the_audio(tmp_path: Path) -> None:
    gate = ChunkGate()

    async def body(connection: Any, served: Served) -> None:
        await gate.allow(1)
        item = {"type": "message", "role": "user"}
        content = [{"type": "input_text", "text": TEXT}]
        await connection.response.create(response={"input": [{**item, "content": content}]})
        heard = ""
        async for event in connection:
            if event.type == "response.output_audio_transcript.delta":
                heard += event.delta
            if event.type == "response.output_audio.delta":
                break
        assert heard == "hello"
        await gate.open()
        events = await until_done(connection)
        heard += "".join(e.delta for e in events if e.type.endswith("transcript.delta"))
        assert heard == TEXT

    with_connection(tmp_path, body, FakeEngine(gate=gate))


def test_transcript_without_word_times_comes_at_once(tmp_path: Path) -> None:
    async def body(connection: Any, served: Served) -> None:
        events = await say(connection)
        deltas = [event.delta for event in events if event.type.endswith("transcript.delta")]
        assert deltas == [TEXT]

    with_connection(tmp_path, body, FakeEngine(features=frozenset({Feature.CLONING})))


@feature(API, "`session.update`: voice, speed, instructions, format", "supported")
@feature(API, "formats audio/pcm, audio/pcmu, audio/pcma", "supported", "24 kHz; 8 kHz")
@feature(API, "tools, turn detection, transcription, other fields of a session", "ignored")
def test_session_update(tmp_path: Path) -> None:
    engine = NotingEngine()

    async def body(connection: Any, served: Served) -> None:
        session = {
            "type": "realtime",
            "instructions": "Softly.",
            "tools": [],
            "audio": {
                "input": {"turn_detection": {"type": "semantic_vad"}},
                "output": {"format": {"type": "audio/pcmu"}, "voice": {"id": "boop"}, "speed": 0.5},
            },
        }
        await connection.session.update(session=session)
        updated = await connection.recv()
        assert updated.type == "session.updated"
        assert updated.session.audio.output.format.type == "audio/pcmu"
        assert updated.session.audio.output.voice == "boop"
        assert updated.session.instructions == "Softly."
        audio = audio_of(await say(connection))
        assert len(audio) == pytest.approx(2 * SAMPLES / 3, abs=10)
        once = {"audio": {"output": {"format": {"type": "audio/pcma"}, "voice": "marin"}}}
        await say(connection, **once, instructions="Loudly.")
        await say(connection)
        spoken = [voice.voice_id for voice in engine.voices]
        assert spoken == ["boop", "beep", "boop"]
        assert [options.instruct for options in engine.options] == ["Softly.", "Loudly.", "Softly."]
        assert engine.options[0].speed == 0.5

    with_connection(tmp_path, body, engine)


@feature(API, "`response.cancel`", "supported", "stops the synthesis; `client_cancelled`")
def test_cancel(tmp_path: Path) -> None:
    gate = ChunkGate()
    engine = FakeEngine(gate=gate)

    async def body(connection: Any, served: Served) -> None:
        await gate.allow(1)
        part = {"type": "input_text", "text": TEXT}
        item = {"type": "message", "role": "user", "content": [part]}
        await connection.response.create(response={"input": [item]})
        async for event in connection:
            if event.type == "response.output_audio.delta":
                break
        busy = await wrong(connection, {"type": "response.create"})
        assert busy.code == "conversation_already_has_active_response"
        await connection.response.cancel()
        done = (await until_done(connection))[-1].response
        assert (done.status, done.status_details.reason) == ("cancelled", "client_cancelled")
        assert done.output[0].content[0].transcript == "hello"
        assert served.services.admission.live == 0
        assert engine.counts.cancelled == 1
        again = await wrong(connection, {"type": "response.cancel"})
        assert again.code == "response_cancel_not_active"
        # Cancelled in the same breath, before anything was made.
        await connection.response.create(response={"input": [item]})
        await connection.response.cancel()
        assert (await until_done(connection))[-1].response.status == "cancelled"
        await gate.open()
        assert (await say(connection))[-1].response.status == "completed"

    with_connection(tmp_path, body, engine)


@feature(API, "`conversation.item.truncate`", "supported", "the transcript is cut at the word")
@feature(API, "`conversation.item.retrieve`, `conversation.item.delete`", "supported")
def test_items(tmp_path: Path) -> None:
    async def body(connection: Any, served: Served) -> None:
        events = await say(connection)
        item_id = events[-1].response.output[0].id
        items = connection.conversation.item
        await items.truncate(item_id=item_id, content_index=0, audio_end_ms=600)
        assert (await connection.recv()).audio_end_ms == 600
        await items.retrieve(item_id=item_id)
        assert (await connection.recv()).item.content[0].transcript == "hello there"
        too_long = {"item_id": item_id, "content_index": 0, "audio_end_ms": 99_999}
        error = await wrong(connection, {"type": "conversation.item.truncate", **too_long})
        assert error.param == "audio_end_ms"
        await items.delete(item_id=item_id)
        assert (await connection.recv()).item_id == item_id
        gone = await wrong(connection, {"type": "conversation.item.retrieve", "item_id": item_id})
        assert gone.param == "item_id"

    with_connection(tmp_path, body)


@feature(API, "`previous_item_id`, `item_reference`, `conversation: none`", "supported")
def test_order_and_references(tmp_path: Path) -> None:
    async def body(connection: Any, served: Served) -> None:
        for name, before in (("a", None), ("b", None), ("c", "root")):
            part = {"type": "input_text", "text": name * 3}
            item = {"id": name, "type": "message", "role": "user", "content": [part]}
            event: dict[str, Any] = {"type": "conversation.item.create", "item": item}
            if before is not None:
                event["previous_item_id"] = before
            await connection.send(event)
            added = await connection.recv()
            assert added.previous_item_id == {"a": None, "b": "a", "c": None}[name]
            await connection.recv()
        asked = {"input": [{"type": "item_reference", "id": "a"}], "conversation": "none"}
        await connection.response.create(response={**asked, "metadata": {"topic": "x"}})
        events = await until_done(connection)
        done = events[-1].response
        assert done.output[0].content[0].transcript == "aaa"
        assert done.conversation_id is None
        assert done.metadata == {"topic": "x"}
        assert not any(event.type.startswith("conversation.") for event in events)
        await connection.response.create()  # the newest that was not spoken
        assert (await until_done(connection))[-1].response.output[0].content[0].transcript == "bbb"

    with_connection(tmp_path, body)


@feature(
    API, "text answers (`output_modalities: [text]`), function calls", "refused", "no LLM here"
)
@feature(API, "`input_audio_buffer.append`", "refused", "said once, then ignored")
@feature(API, "unknown events, wrong types, voices and items", "refused", "`error` events")
@feature(API, "empty text", "refused", "`error` event")
@feature(API, "unknown fields of a response", "ignored")
def test_mistakes(tmp_path: Path) -> None:
    async def body(connection: Any, served: Served) -> None:
        message = {"type": "message", "role": "user"}
        create = "conversation.item.create"
        for event, param in (
            ({"type": "session.explode"}, "type"),
            ({"type": "session.update"}, "session"),
            ({"type": "session.update", "session": {"instructions": 5}}, "session"),
            ({"type": "session.update", "session": {"output_modalities": ["text"]}}, None),
            ({"type": "session.update", "session": {"speed": 9.0}}, "session"),
            ({"type": create, "item": {"type": "function_call"}}, "item"),
            ({"type": create, "item": {**message, "content": "text"}}, "item"),
            ({"type": create, "previous_item_id": "x", "item": message}, "previous_item_id"),
            ({"type": "response.create"}, "response.input"),
            ({"type": "response.create", "response": {"input": []}}, "response.input"),
            ({"type": "response.create", "response": {"modalities": ["text"]}}, None),
            ({"type": "conversation.item.delete", "item_id": "x"}, "item_id"),
            ({"type": "input_audio_buffer.append", "audio": "AAAA"}, "type"),
        ):
            error = await wrong(connection, event)
            assert error.type == "invalid_request_error"
            assert error.message
            assert error.param == (param or "output_modalities")
        await connection.send({"type": "input_audio_buffer.append", "audio": "AAAA"})
        for raw in ("nonsense", "[]", '{"a": 1}', b"\x00\x01"):
            await connection.send_raw(raw)
            assert (await connection.recv()).type == "error"
        part = {"type": "input_text", "text": TEXT}
        item = {**message, "content": [part]}
        await connection.response.create(response={"input": [item], "voice": "nobody"})
        failed = (await until_done(connection))[-1].response
        assert failed.status == "failed"
        assert failed.status_details.error.code == "voice_not_found"
        long = {**message, "content": [{"type": "input_text", "text": "a " * 100_000}]}
        error = await wrong(connection, {"type": "response.create", "response": {"input": [long]}})
        assert "at most 100000 characters" in error.message
        for text in ("", " \n"):
            empty = {**message, "content": [{"type": "input_text", "text": text}]}
            response = {"input": [empty]}
            error = await wrong(connection, {"type": "response.create", "response": response})
            assert (error.param, error.type) == ("response.input", "invalid_request_error")
        done = (await say(connection, later={"deep": 1}))[-1].response
        assert done.status == "completed"
        assert (await say(connection))[-1].response.status == "completed"

    with_connection(tmp_path, body)


@feature(API, "failures while speaking", "supported", "`response.done` with status failed")
def test_failure_is_told_and_the_connection_goes_on(tmp_path: Path) -> None:
    engine = FakeEngine(fail_on={"broken": RuntimeError("secret")})

    async def body(connection: Any, served: Served) -> None:
        failed = (await say(connection, "long words before broken ones"))[-1].response
        assert failed.status == "failed"
        assert failed.status_details.error.type == "server_error"
        assert "secret" not in failed.to_json()
        assert (await say(connection))[-1].response.status == "completed"

    with_connection(tmp_path, body, engine)


@feature(API, "closing the connection", "supported", "stops the synthesis")
def test_leaving_stops_the_work(tmp_path: Path) -> None:
    gate = ChunkGate()
    engine = FakeEngine(gate=gate)

    async def body(client: AsyncOpenAI, served: Served) -> None:
        async with client.realtime.connect(model="m") as connection:
            await gate.allow(1)
            part = {"type": "input_text", "text": TEXT}
            item: Any = {"type": "message", "role": "user", "content": [part]}
            await connection.response.create(response={"input": [item]})
            async for event in connection:
                if event.type == "response.output_audio.delta":
                    break
        await until(lambda: not served.services.sessions.live)
        assert served.services.admission.live == 0
        assert engine.counts.cancelled == 1

    with_server(tmp_path, body, engine)


@feature(API, "`Authorization: Bearer`; a key among the subprotocols", "supported", "browsers")
def test_keys(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        with pytest.raises(InvalidStatus) as caught:
            async with client.realtime.connect(model="m"):
                pass
        assert caught.value.response.status_code == 401
        refusal = json.loads(caught.value.response.body or b"")
        assert refusal["error"]["code"] == "invalid_api_key"
        async with client.with_options(api_key="right").realtime.connect(model="m") as connection:
            assert (await connection.recv()).type == "session.created"
        url = f"ws://127.0.0.1:{served.port}/v1/realtime?model=m"
        offered: Any = ["realtime", "openai-insecure-api-key.right"]
        async with connect(url, subprotocols=offered) as browser:
            assert browser.subprotocol == "realtime"
            assert json.loads(await browser.recv())["type"] == "session.created"

    with_server(tmp_path, body, key="wrong", api_keys="right")


@feature(API, "beta names of events and fields", "supported", "`OpenAI-Beta: realtime=v1`")
def test_beta(tmp_path: Path) -> None:
    async def body(_: AsyncOpenAI, served: Served) -> None:
        url = f"ws://127.0.0.1:{served.port}/v1/realtime?model=m"
        async with connect(url, additional_headers={"OpenAI-Beta": "realtime=v1"}) as peer:
            for event in (
                {
                    "type": "session.update",
                    "session": {"voice": "boop", "output_audio_format": "g711_ulaw"},
                },
                {
                    "type": "conversation.item.create",
                    "item": {"type": "message", "content": [{"type": "text", "text": TEXT}]},
                },
                {"type": "response.create", "response": {"modalities": ["audio", "text"]}},
            ):
                await peer.send(json.dumps(event))
            kinds, audio = [], b""
            while not kinds or kinds[-1] != "response.done":
                event = json.loads(await peer.recv())
                kinds.append(event["type"])
                if event["type"] == "response.audio.delta":
                    audio += base64.b64decode(event["delta"])
            assert len(audio) == pytest.approx(SAMPLES / 3, abs=10)
            assert kinds.count("conversation.item.created") == 2
            assert "response.audio_transcript.done" in kinds
            assert "conversation.item.added" not in kinds
            assert not any("output_audio" in kind for kind in kinds)

    with_server(tmp_path, body)


@feature(API, "synchronous client", "supported")
@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager")
def test_synchronous_client(tmp_path: Path) -> None:
    async def body(_: AsyncOpenAI, served: Served) -> None:
        def use() -> int:
            url = f"http://127.0.0.1:{served.port}/v1"
            with (
                OpenAI(base_url=url, api_key="k") as client,
                client.realtime.connect(model="m") as connection,
            ):
                part: Any = {"type": "input_text", "text": TEXT}
                item: Any = {"type": "message", "role": "user", "content": [part]}
                connection.response.create(response={"input": [item]})
                got = 0
                for event in connection:
                    if event.type == "response.output_audio.delta":
                        got += len(base64.b64decode(event.delta))
                    if event.type == "response.done":
                        break
                return got

        assert await asyncio.to_thread(use) == SAMPLES * 2

    with_server(tmp_path, body)


def test_too_many_connections_and_idle_ones(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        async with client.realtime.connect(model="m") as connection:
            with pytest.raises(InvalidStatus) as caught:
                async with client.realtime.connect(model="m"):
                    pass
            assert caught.value.response.status_code == 429
            seen = [event.type async for event in served_events(connection)]
            assert seen[-1] == "error"

    with_server(tmp_path, body, max_sessions=1, idle_timeout_s=0.2)


async def served_events(connection: Any) -> AsyncIterator[Any]:
    """Events until the server closes."""
    while True:
        try:
            yield await connection.recv()
        except ConnectionClosed:
            return


def test_a_server_that_stops_finishes_the_response(tmp_path: Path) -> None:
    gate = ChunkGate()

    async def body(connection: Any, served: Served) -> None:
        await gate.allow(1)
        part = {"type": "input_text", "text": TEXT}
        item = {"type": "message", "role": "user", "content": [part]}
        await connection.response.create(response={"input": [item]})
        await gate.arrived(2)
        served.server.should_exit = True
        await until(lambda: served.services.readiness.state == "stopping")
        await gate.open()
        seen = [event async for event in served_events(connection)]
        assert seen[-1].type == "response.done"
        assert seen[-1].response.status == "completed"

    with_connection(tmp_path, body, FakeEngine(gate=gate))


def test_a_peer_that_does_not_read_is_dropped(tmp_path: Path) -> None:
    engine = FakeEngine(ms_per_char=20_000)

    async def body(_: AsyncOpenAI, served: Served) -> None:
        url = f"ws://127.0.0.1:{served.port}/v1/realtime?model=m"
        async with connect(url, max_queue=1, close_timeout=0) as peer:
            part = {"type": "input_text", "text": "endless " * 10}
            ask = {"input": [{"type": "message", "content": [part]}]}
            await peer.send(json.dumps({"type": "response.create", "response": ask}))
            await until(lambda: served.services.admission.live == 1)
            await until(lambda: not served.services.admission.live)
            assert engine.counts.live == 0

    with_server(tmp_path, body, engine, stall_timeout_s=0.3)
