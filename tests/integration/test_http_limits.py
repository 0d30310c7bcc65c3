"""What a server on the open network meets: no key, wrong pages, huge and endless uploads."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from cosyvoice_stream.server.observability import TextFormatter
from support.served import Served, read_reply, serving

pytestmark = pytest.mark.integration

KEY = "correct-horse-battery"


@pytest.fixture
def everything_logged() -> Iterator[io.StringIO]:
    """All records of all loggers, at the levels that the most talkative setting has."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(name)s %(message)s"))
    root, ours = logging.getLogger(), logging.getLogger("cosyvoice_stream")
    before = root.level, ours.level
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    ours.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before[0])
    ours.setLevel(before[1])


def test_missing_and_wrong_keys_are_401_everywhere(
    tmp_path: Path, everything_logged: io.StringIO
) -> None:
    async def run() -> None:
        async with serving(tmp_path, api_keys=KEY) as served:
            for method, path in (
                ("GET", "/v1/info"),
                ("GET", "/v1/voices"),
                ("POST", "/v1/voices"),
                ("DELETE", "/v1/voices/x"),
                ("POST", "/v1/speak"),
                ("GET", "/metrics"),
            ):
                for headers in ({}, {"authorization": "Bearer wrong"}, {"x_api_key": KEY[:-1]}):
                    reply = await served.request(method, path, b"{}", **headers)
                    assert reply.status == 401, path
                    assert reply.error["code"] == "unauthorized"
            assert (await served.get("/v1/info", authorization=f"Bearer {KEY}")).status == 200
            assert (await served.get(f"/v1/info?api_key={KEY}")).status == 200
            assert (await served.get("/healthz")).status == 200
            await handshakes(served)

    asyncio.run(run())
    assert "unauthorized" not in everything_logged.getvalue()
    assert "GET info 200" in everything_logged.getvalue()
    for secret in (KEY, KEY[:-1], "Bearer"):
        assert secret not in everything_logged.getvalue()


async def handshakes(served: Served) -> None:
    url = f"ws://127.0.0.1:{served.port}/v1/stream"
    for query in ("", "?api_key=wrong"):
        with pytest.raises(InvalidStatus) as refused:
            await connect(url + query, proxy=None)
        response = refused.value.response
        assert response.status_code == 401
        assert json.loads(response.body)["error"]["code"] == "unauthorized"
    async with connect(f"{url}?api_key={KEY}", proxy=None) as socket:
        assert json.loads(await socket.recv())["type"] == "session.ready"
    async with connect(
        url, proxy=None, additional_headers={"Authorization": f"Bearer {KEY}"}
    ) as socket:
        assert json.loads(await socket.recv())["type"] == "session.ready"


def test_foreign_page_cannot_open_a_socket(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, allowed_origins="https://app.example") as served:
            url = f"ws://127.0.0.1:{served.port}/v1/stream"
            with pytest.raises(InvalidStatus) as refused:
                await connect(url, proxy=None, origin="https://evil.example")
            assert refused.value.response.status_code == 403
            for origin in ("https://app.example", f"http://127.0.0.1:{served.port}", None):
                async with connect(url, proxy=None, origin=origin) as socket:
                    assert json.loads(await socket.recv())["type"] == "session.ready"

    asyncio.run(run())


def test_rebound_host_name_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as served:
            reply = await served.get("/v1/voices", host=f"evil.example:{served.port}")
            assert reply.status == 403

    asyncio.run(run())


def test_two_gigabytes_are_refused_before_they_are_sent(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as served:
            for path, kind in (
                ("/v1/voices", "audio/wav"),
                ("/v1/voices", "multipart/form-data; boundary=b"),
                ("/v1/speak", "application/json"),
            ):
                reader, writer = await served.connect()
                writer.write(
                    f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\n"
                    "content-length: 2000000000\r\n\r\n".encode()
                )
                async with asyncio.timeout(1):
                    reply = await read_reply(reader)
                assert reply.status == 413
                assert reply.error["code"] == "limit_exceeded"
                assert reply.headers["connection"] == "close"
                writer.close()
            assert await answers_quickly(served)

    asyncio.run(run())


def test_client_that_sends_everything_first_still_reads_the_refusal(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, max_upload_mb=1) as served:
            reader, writer = await served.connect()
            writer.write(b"POST /v1/voices HTTP/1.1\r\nhost: localhost\r\n")
            writer.write(b"content-length: 20000000\r\n\r\n")
            for _ in range(20):
                writer.write(bytes(1_000_000))
                await writer.drain()
            reply = await read_reply(reader)
            assert reply.status == 413
            assert await reader.read() == b""
            writer.close()

    asyncio.run(run())


@pytest.mark.parametrize("form", [False, True])
def test_endless_chunked_body_is_cut_off_at_the_limit(tmp_path: Path, form: bool) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        if form:
            yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        while True:
            sent += 64_000
            yield bytes(64_000)
            if sent > 4_000_000:
                await asyncio.sleep(0.01)

    async def run() -> None:
        async with serving(tmp_path, max_upload_mb=1) as served:
            kind = "multipart/form-data; boundary=b" if form else "audio/wav"
            reply = await served.request("POST", "/v1/voices", endless(), content_type=kind)
            assert (reply.status, reply.error["code"]) == (413, "limit_exceeded")
            assert await answers_quickly(served)

    asyncio.run(run())


async def answers_quickly(served: Served) -> bool:
    async with asyncio.timeout(1):
        return (await served.get("/readyz")).status == 200


def test_slow_uploads_block_nobody(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, stall_timeout_s=0.4) as served:
            slow = [await served.connect() for _ in range(20)]
            for _, writer in slow:
                writer.write(
                    b"POST /v1/voices HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nx"
                )
            assert await answers_quickly(served)
            assert (await served.post_json("/v1/speak", {"text": "hello"})).status == 200
            for reader, writer in slow:
                reply = await read_reply(reader)
                assert (reply.status, reply.error["code"]) == (400, "invalid_message")
                writer.close()

    asyncio.run(run())


def zipped() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("voice.wav", bytes(10_000))
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(zipped(), id="zip named .wav"),
        pytest.param(bytes(range(256)) * 400, id="binary noise"),
        pytest.param(b"RIFF\xff\xff\xff\xffWAVEfmt ", id="WAV without audio"),
        pytest.param(b"Hello, this is text.", id="text"),
    ],
)
def test_what_is_no_recording_is_refused_in_words(tmp_path: Path, content: bytes) -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'

    async def run() -> None:
        async with serving(tmp_path) as served:
            reply = await served.request(
                "POST",
                "/v1/voices",
                head + content + b"\r\n--b--\r\n",
                content_type="multipart/form-data; boundary=b",
            )
            assert reply.status in (415, 422)
            assert reply.error["code"] in ("unsupported_format", "voice_rejected")
            assert reply.error["how_to_fix"]
            assert len((await served.get("/v1/voices")).json()["voices"]) == 2

    asyncio.run(run())


def test_formatter_is_the_second_line_of_defence() -> None:
    record = logging.LogRecord("x", logging.ERROR, "", 0, f"/v1/info?api_key={KEY}", None, None)
    assert KEY not in TextFormatter().format(record)
