"""HTTP over real sockets: health, voices, speech, the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.errors import ModelLoadError
from cosyvoice_stream.fake import ChunkGate, FakeEngine
from support.served import Served, read_chunk, read_head, serving

pytestmark = pytest.mark.integration

REFERENCE = Path(__file__).parents[1] / "data" / "ref_wavs" / "flite_slt_female.wav"
T = TypeVar("T")


def with_server(
    folder: Path,
    body: Callable[[Served], Awaitable[T]],
    engine: Engine | None = None,
    *,
    warm: bool = True,
    **settings: Any,
) -> T:
    """Run `body` against a server."""

    async def run() -> T:
        async with serving(folder, engine, warm=warm, **settings) as served:
            return await body(served)

    return asyncio.run(run())


class GatedEngine(FakeEngine):
    """Becomes warm when it is told to, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self.warm = asyncio.Event()
        self.closed = False
        self._failure = failure

    async def start(self) -> None:
        await self.warm.wait()
        if self._failure is not None:
            raise self._failure
        await super().start()

    async def close(self) -> None:
        self.closed = True
        await super().close()


def test_health_answers_at_once_and_readiness_when_warm(tmp_path: Path) -> None:
    engine = GatedEngine()

    async def body(served: Served) -> None:
        assert (await served.get("/healthz")).status == 200
        cold = await served.get("/readyz")
        assert (cold.status, cold.json()) == (503, {"status": "starting"})
        refused = await served.post_json("/v1/speak", {"text": "hello"})
        assert refused.status == 429
        assert refused.error["code"] == "busy"
        assert refused.error["retry_after_ms"] > 0
        assert int(refused.headers["retry-after"]) >= 1
        assert b"cosyvoice_stream_engine_ready 0.0" in (await served.get("/metrics")).body
        engine.warm.set()
        await served.services.readiness.settled()
        warm = await served.get("/readyz")
        assert (warm.status, warm.json()) == (200, {"status": "ready"})
        assert b"cosyvoice_stream_engine_ready 1.0" in (await served.get("/metrics")).body

    with_server(tmp_path, body, engine, warm=False)
    assert engine.closed


def test_engine_that_fails_to_start_ends_the_server(tmp_path: Path) -> None:
    engine = GatedEngine(ModelLoadError("the weights are damaged", how_to_fix="install again"))

    async def body(served: Served) -> None:
        engine.warm.set()
        with pytest.raises(ModelLoadError):
            await served.services.readiness.settled()
        while not served.server.should_exit:  # noqa: ASYNC110 - set by the server's own task
            await asyncio.sleep(0)
        assert served.announced == []

    with_server(tmp_path, body, engine, warm=False)
    assert engine.closed


def test_info_says_what_a_client_may_ask_for(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        info = (await served.get("/v1/info")).json()
        assert info["protocol"] == "cosyvoice-stream.v1"
        assert info["engine"]["name"] == "fake"
        assert info["engine"]["voices"][0] == {"id": "beep", "name": "Beep"}
        assert info["limits"]["max_utterance_chars"] == 777
        assert info["limits"]["max_upload_bytes"] == 50_000_000
        assert "opus" in info["encodings"]
        assert 24_000 in info["sample_rates"]

    with_server(tmp_path, body, max_text_chars=777)


def test_speak_streams_what_the_headers_say(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        reply = await served.post_json("/v1/speak", {"text": "hello world", "voice": "boop"})
        assert reply.status == 200
        assert reply.complete
        assert reply.headers["transfer-encoding"] == "chunked"
        assert reply.headers["x-sample-rate"] == "24000"
        assert reply.headers["x-channels"] == "1"
        assert reply.headers["x-encoding"] == "pcm_s16le"
        assert reply.headers["x-voice"] == "boop"
        assert int(reply.headers["x-seed"]) >= 0
        samples = np.frombuffer(reply.body, "<i2")
        assert len(samples) == 11 * 1200
        assert np.abs(samples).max() > 3000
        assert served.services.admission.live == 0
        scraped = (await served.get("/metrics")).body
        assert b'cosyvoice_stream_utterances_total{outcome="done"} 1.0' in scraped
        assert b"cosyvoice_stream_first_audio_seconds_count 1.0" in scraped

    with_server(tmp_path, body)


def test_first_audio_leaves_before_the_second_is_made(tmp_path: Path) -> None:
    gate = ChunkGate()

    async def body(served: Served) -> None:
        reader, writer = await served.connect()
        await gate.allow(1)
        send_speak(writer, "a very long sentence for this engine")
        head = await read_head(reader)
        assert head.status == 200
        assert len(await read_chunk(reader)) == 4800
        await gate.open()
        while await read_chunk(reader):
            pass
        writer.close()

    with_server(tmp_path, body, FakeEngine(gate=gate))


def send_speak(writer: asyncio.StreamWriter, text: str) -> None:
    payload = json.dumps({"text": text}).encode()
    writer.write(
        b"POST /v1/speak HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b"
        % (len(payload), payload)
    )


def test_text_with_nothing_to_say_is_an_empty_success(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        for text in ("", "   ", "……", "🙂🙂"):
            reply = await served.post_json("/v1/speak", {"text": text})
            assert (reply.status, reply.body, reply.complete) == (200, b"", True)
            assert reply.headers["x-encoding"] == "pcm_s16le"

    with_server(tmp_path, body)


def test_mistakes_get_json_and_hurt_nobody(tmp_path: Path) -> None:
    cases: list[tuple[bytes, int, str]] = [
        (b"not json", 400, "invalid_message"),
        (b"[1]", 400, "invalid_message"),
        (b"{}", 400, "invalid_message"),
        (b'{"text": "a", "voise": "x"}', 400, "invalid_message"),
        (b'{"text": 5}', 400, "invalid_message"),
        (b'{"text": "a", "speed": 9}', 400, "invalid_option"),
        (b'{"text": "a", "voice": "nobody"}', 404, "voice_not_found"),
        (b'{"text": "a", "output": {"encoding": "ogg"}}', 415, "unsupported_format"),
        (b'{"text": "%b"}' % (b"x" * 1001), 413, "limit_exceeded"),
        (b'{"text": "%b"}' % (b"x" * 100_000), 413, "limit_exceeded"),
        (b'{"text": "\xff\xfe"}', 400, "invalid_message"),
        (b'{"text": "forbidden"}', 422, "unsupported_language"),
        (b'{"text": "broken"}', 500, "synthesis_failed"),
    ]
    engine = FakeEngine(
        refuse={"zh": lambda word: word == "forbidden"}, fail_on={"broken": RuntimeError("secret")}
    )

    async def body(served: Served) -> None:
        for payload, status, code in cases:
            reply = await served.request("POST", "/v1/speak", payload)
            assert (reply.status, reply.error["code"]) == (status, code), payload[:60]
            assert reply.headers["content-type"] == "application/json"
            assert b"secret" not in reply.body
        assert (await served.post_json("/v1/speak", {"text": "fine"})).status == 200
        assert served.services.admission.live == 0

    with_server(tmp_path, body, engine, max_text_chars=1000)


def test_failure_after_the_first_audio_cuts_the_body_short(tmp_path: Path) -> None:
    engine = FakeEngine(fail_on={"broken": RuntimeError()})

    async def body(served: Served) -> None:
        reply = await served.post_json("/v1/speak", {"text": "long words before broken ones"})
        assert reply.status == 200
        assert len(reply.body) > 0
        assert not reply.complete
        scraped = (await served.get("/metrics")).body
        assert b'cosyvoice_stream_utterances_total{outcome="failed"} 1.0' in scraped

    with_server(tmp_path, body, engine)


@pytest.mark.parametrize("after_first_audio", [False, True])
def test_disconnect_frees_the_slot(tmp_path: Path, after_first_audio: bool) -> None:
    gate = ChunkGate()
    engine = FakeEngine(gate=gate)

    async def body(served: Served) -> None:
        reader, writer = await served.connect()
        if after_first_audio:
            await gate.allow(1)
        send_speak(writer, "a very long sentence for this engine")
        if after_first_audio:
            await read_head(reader)
            await read_chunk(reader)
        await gate.arrived(2 if after_first_audio else 1)
        assert served.services.admission.live == 1
        writer.transport.abort()
        while served.services.admission.live:  # noqa: ASYNC110 - freed by the server's own task
            await asyncio.sleep(0.001)
        assert engine.counts.live == 0
        await gate.open()
        refusal = await served.post_json("/v1/speak", {"text": "next"})
        assert refusal.status == 200

    with_server(tmp_path, body, engine, max_live_utterances=1)


def test_client_that_does_not_read_is_dropped(tmp_path: Path) -> None:
    engine = FakeEngine(ms_per_char=20_000)

    async def body(served: Served) -> None:
        reader, writer = await served.connect()
        send_speak(writer, "endless " * 10)
        await read_head(reader)
        writer.transport.pause_reading()
        async with asyncio.timeout(10):
            while served.services.admission.live:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert engine.counts.live == 0
        writer.transport.abort()

    with_server(tmp_path, body, engine, stall_timeout_s=0.3)


def test_overload_is_refused_with_a_hint(tmp_path: Path) -> None:
    gate = ChunkGate()

    async def body(served: Served) -> None:
        first = asyncio.create_task(served.post_json("/v1/speak", {"text": "first"}))
        await gate.arrived(1)
        second = await served.post_json("/v1/speak", {"text": "second"})
        assert (second.status, second.error["code"]) == (429, "busy")
        assert second.error["retry_after_ms"] >= 100
        assert second.headers["retry-after"].isdecimal()
        await gate.open()
        assert (await first).status == 200

    with_server(tmp_path, body, FakeEngine(gate=gate), max_live_utterances=1)


def test_unknown_paths_and_methods_get_json(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        for method, path, status in (
            ("GET", "/nothing", 404),
            ("GET", "/../server/app.py", 404),
            ("GET", "/%2e%2e/pyproject.toml", 404),
            ("PUT", "/v1/voices", 405),
            ("GET", "/v1/speak", 405),
        ):
            reply = await served.request(method, path)
            assert reply.status == status, path
            assert reply.error["message"]
        assert (await served.request("HEAD", "/healthz")).status == 200

    with_server(tmp_path, body)


def test_the_page_and_its_files(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        page = await served.get("/")
        assert page.status == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "worker-src 'self';" in policy
        assert "unsafe" not in policy
        again = await served.get("/", if_none_match=page.headers["etag"])
        assert (again.status, again.body) == (304, b"")
        script = await served.get("/client.js")
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        assert (await served.request("HEAD", "/")).status == 200
        assert (await served.get("/__init__.py")).status == 404

    with_server(tmp_path, body)


def test_voices_come_and_go(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        recording = REFERENCE.read_bytes()
        made = await served.request(
            "POST", "/v1/voices?name=Slt&transcript=Hello&consent=yes&persist=true", recording
        )
        assert made.status == 201, made.body
        voice = made.json()["voice"]
        assert voice["name"] == "Slt"
        assert made.json()["quality"]
        listed = (await served.get("/v1/voices")).json()["voices"]
        assert {entry["id"] for entry in listed} == {"beep", "boop", voice["id"]}
        one = await served.get(f"/v1/voices/{voice['id']}")
        assert one.json() == voice
        spoken = await served.post_json("/v1/speak", {"text": "hi", "voice": voice["id"]})
        assert spoken.headers["x-voice"] == voice["id"]
        assert (await served.request("DELETE", f"/v1/voices/{voice['id']}")).status == 204
        for method in ("GET", "DELETE"):
            gone = await served.request(method, f"/v1/voices/{voice['id']}")
            assert (gone.status, gone.error["code"]) == (404, "voice_not_found")
        assert (await served.request("DELETE", "/v1/voices/beep")).status == 403
        scraped = (await served.get("/metrics")).body
        assert b'cosyvoice_stream_enrolments_total{outcome="accepted"} 1.0' in scraped

    with_server(tmp_path, body)
