"""DashScope's socket and voice enrolment, called by the 2.x client of DashScope's own package."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from dashscope.v2 import Client
from dashscope.v2.errors import APIStatusError, DashScopeError
from dashscope.v2.resources.audio import SynthesisSession
from dashscope.v2.transport.ws_connection import WsConnection
from websocket import WebSocketBadStatusException

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from support.features import feature
from support.media import hear
from support.served import Served, serving

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:dashscope 2.0 .* is a preview:FutureWarning"),
]

API = "DashScope 2.x client"
TEXT = "hello there world. Next one."
PCM_BYTES = 62_400
"""What the fake engine makes of it, 24 kHz."""
PCM = {"voice": "longxiaochun", "format": "pcm", "sample_rate": 24_000}
REFERENCE = Path(__file__).parents[1] / "data" / "ref_wavs" / "flite_slt_female.wav"


class Caller:
    """Their client and the address of the socket, which it takes with each call."""

    def __init__(self, served: Served, key: str) -> None:
        self.client = Client(api_key=key, base_url=f"http://127.0.0.1:{served.port}/api/v1")
        self.ws_url = f"ws://127.0.0.1:{served.port}/api-ws/v1/inference"

    def synthesize(self, text: str = TEXT, **options: Any) -> bytes:
        return self.client.audio.tts.synthesize(text, ws_url=self.ws_url, **{**PCM, **options})

    def session(self, **options: Any) -> SynthesisSession:
        return self.client.audio.tts.connect(ws_url=self.ws_url, **{**PCM, **options})


def with_caller(
    folder: Path,
    body: Callable[[Caller], None],
    engine: FakeEngine | None = None,
    gate: ChunkGate | None = None,
    key: str = "none-is-set",
    **settings: Any,
) -> None:
    """Run `body` in a thread, then wait until the server is idle; one chunk may pass a `gate`."""

    async def run() -> None:
        if gate is not None:
            await gate.allow(1)
        async with serving(folder, engine, **settings) as served:
            caller = Caller(served, key)
            await asyncio.to_thread(body, caller)
            caller.client.close()
            services = served.services
            while services.admission.live or services.sessions.live:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    asyncio.run(run())


@feature(API, "`audio.tts.synthesize`, `stream`", "supported", "`ws_url` is given with each call")
@feature(API, "`format`, `sample_rate`", "supported", "mp3, wav, pcm, opus at one bit rate each")
def test_whole_texts(tmp_path: Path) -> None:
    def body(caller: Caller) -> None:
        assert len(caller.synthesize()) == PCM_BYTES
        for form, codec, rate in (
            ("mp3", "mp3", 22_050),
            ("wav", "pcm_s16le", 16_000),
            ("opus", "opus", 48_000),
        ):
            heard = hear(caller.synthesize(format=form, sample_rate=min(rate, 24_000)))
            assert heard.codec.removesuffix("float") == codec
            assert heard.sample_rate == rate
        pieces = caller.client.audio.tts.stream(TEXT, ws_url=caller.ws_url, **PCM)
        assert sum(len(piece) for piece in pieces) == PCM_BYTES

    with_caller(tmp_path, body)


@feature(API, "`send_text`, `flush`, `stop`, `events`", "supported", "events before each audio")
@feature(API, "`word_timestamp_enabled` in `parameters`", "supported")
def test_text_in_pieces(tmp_path: Path) -> None:
    def body(caller: Caller) -> None:
        wanted = {"word_timestamp_enabled": True, "unknown": 1}
        with caller.session(parameters=wanted) as session:
            for piece in ("hello ", "there ", "world. "):
                session.send_text(piece)
            session.flush()
            events = session.events()
            seen: list[dict[str, Any] | bytes] = []
            while not any(isinstance(each, bytes) for each in seen):
                seen.append(next(events))  # audio before the text is complete
            session.send_text("Next one.")
            session.stop()
            seen.extend(events)
        assert sum(len(each) for each in seen if isinstance(each, bytes)) == PCM_BYTES
        for before, after in zip(seen, seen[1:], strict=False):
            if isinstance(after, bytes):
                assert isinstance(before, dict)
                assert before["payload"]["output"]["type"] == "sentence-synthesis"
        last = session.last_response
        assert last is not None
        assert last["header"]["event"] == "task-finished"
        words = last["payload"]["output"]["sentence"]["words"]
        assert [word["text"] for word in words] == ["Next", "one"]
        assert session.usage == {"characters": len(TEXT)}
        assert session.first_package_delay is not None

    with_caller(tmp_path, body)


@feature(API, "`cancel`", "supported", "stops the synthesis")
@feature(API, "closing a session that speaks", "supported", "stops the synthesis")
@pytest.mark.parametrize("cancelled", [True, False])
def test_interruption(tmp_path: Path, cancelled: bool) -> None:
    def body(caller: Caller) -> None:
        with caller.session() as session:
            session.send_text(TEXT)
            session.flush()
            pieces = session.audio_chunks()
            assert next(pieces)
            if cancelled:
                session.cancel()
                list(pieces)
                assert session.last_response is not None
                assert session.last_response["header"]["event"] == "task-finished"

    gate = ChunkGate()
    engine = FakeEngine(gate=gate)
    with_caller(tmp_path, body, engine, gate)
    assert engine.counts.cancelled == 1


@feature(API, "tasks one after the other on a shared `WsConnection`", "supported")
def test_shared_connection(tmp_path: Path) -> None:
    def body(caller: Caller) -> None:
        with closing(WsConnection(url=caller.ws_url, api_key="any", timeout=10)) as connection:
            for _ in range(2):
                with caller.client.audio.tts.connect(connection=connection, **PCM) as session:
                    session.send_text(TEXT)
                    session.stop()
                    assert sum(map(len, session.audio_chunks())) == PCM_BYTES

    with_caller(tmp_path, body)


@feature(API, "`volume`, `rate`, `pitch`, `language_hints`, `enable_ssml`", "supported")
def test_options(tmp_path: Path) -> None:
    def body(caller: Caller) -> None:
        fast = caller.synthesize(
            "hello there world.", rate=2.0, pitch=1.5, volume=100, language_hints=["en"]
        )
        assert len(fast) == pytest.approx(40_800 / 2, abs=100)
        marked = '<speak>hello<break time="500ms"/>there</speak>'
        assert len(caller.synthesize(marked, enable_ssml=True)) >= 0.95 * 48_000

    with_caller(tmp_path, body)


@feature(API, "wrong voice, values and types; 200 kB of text", "refused", "`DashScopeError`")
@feature(API, "empty text", "supported", "no audio")
def test_mistakes(tmp_path: Path) -> None:
    def body(caller: Caller) -> None:
        for options, text in (
            ({"voice": "nobody"}, TEXT),
            ({"voice": 5}, TEXT),
            ({"rate": 9.0}, TEXT),
            ({"volume": "loud"}, TEXT),
            ({"sample_rate": 12_345}, TEXT),
            ({"format": "gif"}, TEXT),
            ({}, "a " * 100_000),
        ):
            with pytest.raises(DashScopeError, match="InvalidParameter"):
                caller.synthesize(text, **options)
        assert caller.synthesize(" ") == b""

    with_caller(tmp_path, body)


@feature(API, "`api_key`", "supported", "where keys are set; a wrong one fails the handshake")
def test_keys(tmp_path: Path) -> None:
    def body(caller: Caller) -> None:
        assert len(caller.synthesize()) == PCM_BYTES
        with pytest.raises(WebSocketBadStatusException, match="401"):
            caller.synthesize(api_key="wrong")
        with pytest.raises(APIStatusError, match="key"):
            caller.client.audio.voices.list(api_key="wrong")

    with_caller(tmp_path, body, key="right", api_keys="right")


@feature(API, "`audio.voices`: create, list, get, delete", "partly", "recordings as `data:` URLs")
@feature(API, "`audio.voices.update`, `audio.voice_design`", "refused", "400")
def test_a_clone_comes_speaks_and_goes(tmp_path: Path) -> None:
    def body(caller: Caller) -> None:
        voices = caller.client.audio.voices
        url = f"data:audio/wav;base64,{base64.b64encode(REFERENCE.read_bytes()).decode()}"
        made = voices.create(target_model="cosyvoice-v3", prefix="slt", url=url)
        assert made.voice_id
        assert caller.synthesize(voice=made.voice_id)
        (listed,) = voices.list(prefix="slt").model_dump(mode="json")["voices"]
        assert listed["voice_id"] == made.voice_id
        assert voices.get(made.voice_id).voice_id == made.voice_id
        with pytest.raises(APIStatusError, match="cannot be changed"):
            voices.update(made.voice_id, url=url)
        voices.delete(made.voice_id)
        with pytest.raises(APIStatusError) as gone:
            voices.get(made.voice_id)
        assert gone.value.status_code == 404
        with pytest.raises(APIStatusError) as refused:
            voices.create(target_model="m", prefix="slt", url="https://example.com/a.wav")
        assert refused.value.status_code == 400
        with pytest.raises(APIStatusError):
            caller.client.audio.voice_design.list()
        assert voices.list().model_dump(mode="json")["voices"] == []

    with_caller(tmp_path, body)


@feature(API, "`audio.tts.http`", "refused", "404: the socket streams, and no files are kept here")
def test_speech_over_http(tmp_path: Path) -> None:
    def body(caller: Caller) -> None:
        with pytest.raises(APIStatusError) as refused:
            caller.client.audio.tts.http.synthesize(TEXT, model="cosyvoice-v3", voice="longanyang")
        assert refused.value.status_code == 404

    with_caller(tmp_path, body)
