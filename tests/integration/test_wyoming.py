"""Home Assistant's Wyoming protocol, spoken by its own Python client."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event, Eventable
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server.wyoming_announcement import SERVICE, Announcement
from support.features import feature
from support.served import Served, serving

pytestmark = pytest.mark.integration

API = "Wyoming (Home Assistant)"
TEXT = "hello there world."
BYTES = 40_800
"""What the fake engine makes of it."""


def with_client(
    folder: Path,
    body: Callable[[AsyncTcpClient, Served], Awaitable[None]],
    engine: FakeEngine | None = None,
    **settings: Any,
) -> None:
    async def run() -> None:
        async with serving(folder, engine, wyoming_port=0, **settings) as served:
            app: Any = served.server.config.app
            async with AsyncTcpClient("127.0.0.1", app.state.wyoming.port) as client:
                await body(client, served)
            await all_free(served)

    asyncio.run(run())


async def all_free(served: Served) -> None:
    services = served.services
    while services.admission.live or services.sessions.live:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def until(client: AsyncTcpClient, kind: type[Eventable]) -> list[Event]:
    events: list[Event] = []
    while (event := await client.read_event()) is not None:
        events.append(event)
        if kind.is_type(event.type):
            return events
    raise EOFError(str([event.type for event in events]))


def audio_of(events: list[Event]) -> bytes:
    return b"".join(event.payload or b"" for event in events if AudioChunk.is_type(event.type))


@feature(API, "`describe`, `ping`", "supported", "a voice for each of ours")
def test_describe(tmp_path: Path) -> None:
    async def body(client: AsyncTcpClient, served: Served) -> None:
        await client.write_event(Describe().event())
        (event,) = await until(client, Info)
        (program,) = Info.from_event(event).tts
        assert program.supports_synthesize_streaming
        assert [voice.name for voice in program.voices] == ["beep", "boop"]
        assert program.voices[0].languages == ["en"]
        await client.write_event(Ping("hi").event())
        (event,) = await until(client, Pong)
        assert Pong.from_event(event).text == "hi"

    with_client(tmp_path, body)


@feature(API, "`synthesize`", "supported", "24 kHz, 16 bit, mono; unknown fields ignored")
def test_whole_texts(tmp_path: Path) -> None:
    async def body(client: AsyncTcpClient, served: Served) -> None:
        for voice in (None, SynthesizeVoice(name="boop"), SynthesizeVoice(language="en")):
            event = Synthesize(TEXT, voice=voice).event()
            event.data["later"] = 1
            await client.write_event(event)
            events = await until(client, AudioStop)
            start = AudioStart.from_event(events[0])
            assert (start.rate, start.width, start.channels) == (24_000, 2, 1)
            assert len(audio_of(events)) == BYTES
        await client.write_event(Synthesize("").event())
        assert audio_of(await until(client, AudioStop)) == b""

    with_client(tmp_path, body)


@feature(API, "`synthesize-start`, `-chunk`, `-stop`, `-stopped`", "supported", "as it comes")
def test_text_in_pieces(tmp_path: Path) -> None:
    async def body(client: AsyncTcpClient, served: Served) -> None:
        for _ in range(2):
            await client.write_event(SynthesizeStart(voice=SynthesizeVoice(name="boop")).event())
            await client.write_event(SynthesizeChunk("hello there ").event())
            first = await until(client, AudioChunk)  # before the rest of the text
            await client.write_event(SynthesizeChunk("world.").event())
            await client.write_event(Synthesize(TEXT).event())  # for servers that do not stream
            await client.write_event(SynthesizeStop().event())
            events = first + await until(client, SynthesizeStopped)
            assert len(audio_of(events)) == BYTES

    with_client(tmp_path, body)


@feature(API, "closing the connection", "supported", "cancels the synthesis")
def test_cut_connection_frees_the_work(tmp_path: Path) -> None:
    gate = ChunkGate()
    engine = FakeEngine(gate=gate)

    async def body(client: AsyncTcpClient, served: Served) -> None:
        await gate.allow(1)
        await client.write_event(Synthesize(TEXT).event())
        await until(client, AudioChunk)
        assert served.services.admission.live == 1
        await client.disconnect()
        await all_free(served)
        assert engine.counts.cancelled == 1

    with_client(tmp_path, body, engine)


@feature(API, "wrong voices, wrong types, 200 kB of text, no events", "refused", "`error`")
def test_mistakes(tmp_path: Path) -> None:
    async def body(client: AsyncTcpClient, served: Served) -> None:
        await client.write_event(Event("synthesize", {"text": 5}))
        (event,) = await until(client, Error)
        assert Error.from_event(event).code == "invalid_message"
        start = SynthesizeStart(voice=SynthesizeVoice(name="nobody"))
        for text in ("x", "a " * 100_000):
            await client.write_event(start.event())
            await client.write_event(SynthesizeChunk(text).event())
            await client.write_event(SynthesizeStop().event())
            events = await until(client, SynthesizeStopped)
            assert any(Error.is_type(event.type) for event in events)
        for text in ("", " "):
            await client.write_event(SynthesizeStart().event())
            await client.write_event(SynthesizeChunk(text).event())
            await client.write_event(SynthesizeStop().event())
            assert audio_of(await until(client, SynthesizeStopped)) == b""
        await client.write_event(Synthesize("x", voice=SynthesizeVoice(name="nobody")).event())
        (event,) = await until(client, Error)
        assert Error.from_event(event).code == "voice_not_found"
        assert await client.read_event() is None

    with_client(tmp_path, body)


@pytest.mark.parametrize(
    "data",
    [
        b"hello\n",
        b"[1]\n",
        b'{"type": "ping", "data_length": -1}\n',
        b"x" * 200_000,
        b'{"type":5}\n',
    ],
)
def test_what_is_no_event_ends_the_connection(tmp_path: Path, data: bytes) -> None:
    async def body(_: AsyncTcpClient, served: Served) -> None:
        app: Any = served.server.config.app
        reader, writer = await asyncio.open_connection("127.0.0.1", app.state.wyoming.port)
        writer.write(data)
        assert b'"error"' in await reader.readline()
        writer.close()

    with_client(tmp_path, body)


def test_too_many_connections(tmp_path: Path) -> None:
    async def body(client: AsyncTcpClient, served: Served) -> None:
        await client.write_event(Ping("hi").event())
        await until(client, Pong)
        app: Any = served.server.config.app
        async with AsyncTcpClient("127.0.0.1", app.state.wyoming.port) as second:
            (event,) = await until(second, Error)
            assert Error.from_event(event).code == "busy"

    with_client(tmp_path, body, max_sessions=1)


def test_port_that_is_taken(tmp_path: Path) -> None:
    async def body(_: AsyncTcpClient, served: Served) -> None:
        app: Any = served.server.config.app
        taken = app.state.wyoming.port
        with pytest.raises(ConfigError, match="cannot be listened on"):
            async with serving(tmp_path / "other", wyoming_port=taken):
                pass

    with_client(tmp_path, body)


@feature(API, "discovery by zeroconf", "supported", "`WYOMING_ANNOUNCE`, extra `wyoming`")
def test_announcement(tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncZeroconf(interfaces=["127.0.0.1"]) as listener:
            settings = {"wyoming_port": 0, "wyoming_announce": True}
            async with serving(tmp_path, None, **settings) as served:
                app: Any = served.server.config.app
                announcement = app.state.wyoming.announcement
                name = f"{announcement.name}.{SERVICE}"
                info = await listener.async_get_service_info(SERVICE, name, timeout=10_000)
                assert info is not None
                assert info.port == app.state.wyoming.port
                assert info.parsed_addresses() == ["127.0.0.1"]
            gone = AsyncServiceInfo(SERVICE, name)
            while gone.load_from_cache(listener.zeroconf):  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("host", ["::1", "no-such-host.invalid"])
def test_announcement_that_cannot_be_made(host: str) -> None:
    async def run() -> None:
        announcement = Announcement(host)
        with pytest.raises(ConfigError, match="cannot be announced"):
            await announcement.start(1)
        await announcement.stop()

    asyncio.run(run())


def test_announcement_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf.asyncio", None)
    with pytest.raises(ConfigError, match="not installed"):
        asyncio.run(Announcement("127.0.0.1").start(1))
