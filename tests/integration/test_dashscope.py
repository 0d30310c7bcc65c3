"""DashScope's socket and voice enrolment, called by DashScope's own Python client."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dashscope
import pytest
from dashscope.audio.tts_v2 import (
    AudioFormat,
    ResultCallback,
    SpeechSynthesizer,
    VoiceEnrollmentService,
)
from dashscope.audio.tts_v2.enrollment import VoiceEnrollmentException
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from support.features import feature
from support.media import hear
from support.served import Served, serving

pytestmark = [
    pytest.mark.integration,
    # Their client leaves a socket that the server has closed to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

API = "DashScope CosyVoice"
VOICES = "DashScope voice enrolment"
TEXT = "hello there world. Next one."
SECONDS = 1.3
"""What the fake engine makes of it."""
REFERENCE = Path(__file__).parents[1] / "data" / "ref_wavs" / "flite_slt_female.wav"


def with_server(
    folder: Path, body: Callable[[Served], Any], engine: FakeEngine | None = None, **settings: Any
) -> None:
    async def run() -> None:
        async with serving(folder, engine, **settings) as served:
            await body(served)
            services = served.services
            while services.admission.live or services.sessions.live:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    asyncio.run(run())


class Heard(ResultCallback):  # type: ignore[misc]
    """Keeps what a callback is told."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.order: list[str] = []
        self.audio = b""
        self.ends: list[str] = []
        self.got_audio = threading.Event()

    def on_event(self, message: str) -> None:
        self.events.append(json.loads(message))
        self.order.append(self.events[-1]["payload"]["output"]["type"])

    def on_data(self, data: bytes) -> None:
        self.order.append("audio")
        self.audio += data
        self.got_audio.set()

    def on_complete(self) -> None:
        self.ends.append("complete")

    def on_error(self, message: str) -> None:
        self.ends.append(json.loads(message)["header"]["error_code"])


def synthesizer(served: Served, **options: Any) -> SpeechSynthesizer:
    dashscope.api_key = options.pop("key", "none-is-set")
    options = {"voice": "longxiaochun_v2", **options}
    url = f"ws://127.0.0.1:{served.port}/api-ws/v1/inference"
    return SpeechSynthesizer(model="cosyvoice-v3-flash", url=url, **options)


PCM = AudioFormat.PCM_24000HZ_MONO_16BIT


@feature(API, "`SpeechSynthesizer.call`", "supported", "any `model`; `long…` is the default voice")
@feature(API, "`format` mp3, wav, pcm, opus; `sample_rate`", "supported", "at one bit rate each")
def test_whole_texts(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        for form, codec, rate in (
            (AudioFormat.DEFAULT, "mp3float", 22_050),
            (AudioFormat.WAV_16000HZ_MONO_16BIT, "pcm_s16le", 16_000),
            (AudioFormat.OGG_OPUS_24KHZ_MONO_32KBPS, "opus", 48_000),
        ):
            audio = await asyncio.to_thread(synthesizer(served, format=form).call, TEXT)
            heard = hear(audio)
            assert heard.codec.removesuffix("float") == codec.removesuffix("float")
            assert heard.sample_rate == rate
            assert heard.seconds == pytest.approx(SECONDS, abs=0.12)
        audio = await asyncio.to_thread(synthesizer(served, format=PCM).call, TEXT)
        assert len(audio) == 62_400

    with_server(tmp_path, body)


@feature(API, "`streaming_call`, `streaming_flush`, `streaming_complete`", "supported")
@feature(API, "`result-generated` events, one before each piece of audio", "supported")
@feature(API, "`word_timestamp_enabled`", "supported", "from the beginning of the task's audio")
def test_text_in_pieces(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        heard = Heard()
        speech = synthesizer(
            served,
            format=PCM,
            callback=heard,
            additional_params={"word_timestamp_enabled": True, "later": 1},
        )

        def call() -> None:
            for piece in ("hello ", "there ", "world. "):
                speech.streaming_call(piece)
            speech.streaming_flush()
            assert heard.got_audio.wait(10)  # before the text is complete
            speech.streaming_call("Next one.")
            speech.streaming_complete()

        await asyncio.to_thread(call)
        assert len(heard.audio) == 62_400
        assert heard.ends == ["complete"]
        assert heard.order[0] == "sentence-begin"
        for before, after in zip(heard.order, heard.order[1:], strict=False):
            assert (after == "audio") == (before == "sentence-synthesis")
        outputs = [event["payload"]["output"] for event in heard.events]
        ends = [output for output in outputs if output["type"] == "sentence-end"]
        assert [end["sentence"]["index"] for end in ends] == [0, 1]
        assert ends[0]["original_text"] == "hello there world."
        words = ends[1]["sentence"]["words"]
        assert [word["text"] for word in words] == ["Next", "one"]
        assert (words[0]["begin_index"], words[0]["end_index"]) == (0, 4)
        assert words[0]["begin_time"] == 900
        last = speech.get_response()
        assert last["header"]["event"] == "task-finished"
        assert last["header"]["attributes"]["request_uuid"]
        assert last["payload"]["usage"]["characters"] == len(TEXT)
        assert last["payload"]["output"]["sentence"]["words"] == words

    with_server(tmp_path, body)


@feature(API, "`streaming_cancel`", "supported", "answered with `task-finished` at once")
def test_cancel(tmp_path: Path) -> None:
    gate = ChunkGate()
    engine = FakeEngine(gate=gate)

    async def body(served: Served) -> None:
        await gate.allow(1)
        heard = Heard()
        speech = synthesizer(served, format=PCM, callback=heard)

        def call() -> None:
            speech.streaming_call(TEXT)
            speech.streaming_flush()
            assert heard.got_audio.wait(10)
            speech.streaming_cancel()

        await asyncio.to_thread(call)
        assert heard.ends == ["complete"]
        assert engine.counts.cancelled == 1

    with_server(tmp_path, body, engine)


@feature(API, "`rate`, `volume`, `pitch`, `seed`, `language_hints`, `instruction`", "supported")
@feature(API, "`hot_fix`", "supported", "as a lexicon of the task")
@feature(API, "`enable_ssml`", "supported", "where the text begins with `<speak`")
@feature(API, "`bit_rate`, `enable_aigc_tag`, `enable_markdown_filter`", "ignored", "")
def test_options(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        speech = synthesizer(
            served,
            format=PCM,
            speech_rate=2.0,
            pitch_rate=1.5,
            volume=100,
            instruction="happy",
            language_hints=["en"],
            hot_fix={"replace": [{"world": "w"}]},
        )
        audio = await asyncio.to_thread(speech.call, "hello there world.")
        assert len(audio) == pytest.approx(0.65 / 2 * 48_000, abs=100)
        ssml = synthesizer(served, format=PCM)
        text = '<speak>hello<break time="500ms"/>there</speak>'
        audio = await asyncio.to_thread(ssml.call, text)
        assert len(audio) >= 0.95 * 48_000

    with_server(tmp_path, body)


@feature(API, "wrong voice, format, values and types; 200 kB of text", "refused", "`task-failed`")
def test_mistakes(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        for options, text in (
            ({"voice": "nobody"}, TEXT),
            ({"speech_rate": 9}, TEXT),
            ({"volume": 1000}, TEXT),
            ({"volume": "loud"}, TEXT),
            ({"additional_params": {"sample_rate": 12_345}}, TEXT),
            ({}, "a " * 100_000),
        ):
            with pytest.raises(Exception, match="InvalidParameter"):
                await asyncio.to_thread(synthesizer(served, **options).call, text)
        assert not await asyncio.to_thread(synthesizer(served).call, " ")

    with_server(tmp_path, body)


def command(action: str, task: str, **payload: Any) -> str:
    header = {"action": action, "task_id": task, "streaming": "duplex"}
    return json.dumps({"header": header, "payload": {"input": {}, **payload}})


@feature(API, "several tasks on a connection; a new one interrupts", "supported")
def test_connection_is_used_again(tmp_path: Path) -> None:
    gate = ChunkGate()

    async def body(served: Served) -> None:
        url = f"ws://127.0.0.1:{served.port}/api-ws/v1/inference/"
        async with connect(url) as socket:
            await gate.allow(1)
            await socket.send(command("run-task", "one", parameters={"format": "pcm"}))
            await socket.send(command("continue-task", "one", input={"text": TEXT}))
            while isinstance(await socket.recv(), str):
                pass
            await gate.open()
            for task in ("two", "three"):
                await socket.send(command("run-task", task, parameters={"format": "pcm"}))
                await socket.send(command("continue-task", task, input={"text": "hi there"}))
                await socket.send(command("finish-task", task))
                seen = []
                while not seen or seen[-1] != "task-finished":
                    frame = await socket.recv()
                    if isinstance(frame, str):
                        header = json.loads(frame)["header"]
                        if header["event"] == "task-started" or seen:
                            assert header["task_id"] == task
                            seen.append(header["event"])
            await socket.send(command("continue-task", "foreign", input={"text": "hi"}))
            failed = json.loads(await socket.recv())["header"]
            assert (failed["event"], failed["task_id"]) == ("task-failed", "foreign")

    with_server(tmp_path, body, FakeEngine(gate=gate))


@feature(API, "cut connection", "supported", "cancels the synthesis")
def test_cut_connection_frees_the_work(tmp_path: Path) -> None:
    gate = ChunkGate()
    engine = FakeEngine(gate=gate)

    async def body(served: Served) -> None:
        await gate.allow(1)
        async with connect(f"ws://127.0.0.1:{served.port}/api-ws/v1/inference") as socket:
            await socket.send(command("run-task", "one", input={"text": TEXT}))
            while isinstance(await socket.recv(), str):
                pass
            socket.transport.abort()
        while served.services.admission.live:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert engine.counts.cancelled == 1

    with_server(tmp_path, body, engine)


@feature(API, "`Authorization: bearer`", "supported", "refused in the handshake")
def test_keys(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        with pytest.raises(InvalidStatus) as caught:
            async with connect(f"ws://127.0.0.1:{served.port}/api-ws/v1/inference"):
                pass
        assert caught.value.response.status_code == 401
        assert json.loads(caught.value.response.body)["code"] == "InvalidApiKey"
        speech = synthesizer(served, key="right", format=PCM)
        assert len(await asyncio.to_thread(speech.call, TEXT)) == 62_400

    with_server(tmp_path, body, api_keys="right")


@feature(VOICES, "`create_voice` from a `data:` URL", "partly", "other URLs are not fetched")
@feature(VOICES, "`list_voice`, `query_voice`, `delete_voice`", "supported")
@feature(VOICES, "`update_voice`, voices from a description", "refused", "400")
def test_a_clone_comes_speaks_and_goes(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        dashscope.api_key = "none-is-set"
        address = f"http://127.0.0.1:{served.port}/api/v1"
        service = VoiceEnrollmentService(base_address=address)

        def call() -> None:
            data = base64.b64encode(REFERENCE.read_bytes()).decode()
            url = f"data:audio/wav;base64,{data}"
            voice = service.create_voice("cosyvoice-v3", "slt", url, language_hints=["en"])
            assert service.get_last_request_id()
            assert synthesizer(served, voice=voice).call(TEXT)
            (listed,) = service.list_voices(prefix="slt")
            assert (listed["voice_id"], listed["status"]) == (voice, "OK")
            assert service.list_voices(prefix="other") == []
            assert service.query_voice(voice)["target_model"] == "fake"
            with pytest.raises(VoiceEnrollmentException, match="cannot be changed"):
                service.update_voice(voice, url)
            service.delete_voice(voice)
            assert service.list_voices() == []
            for wrong in ("https://example.com/a.wav", "data:audio/wav;base64,!", "oss://x"):
                with pytest.raises(VoiceEnrollmentException, match="InvalidParameter"):
                    service.create_voice("cosyvoice-v3", "slt", wrong)
            with pytest.raises(VoiceEnrollmentException, match="404"):
                service.query_voice("voice-aaaaaaaaaaaaaaaa")

        await asyncio.to_thread(call)

    with_server(tmp_path, body)
