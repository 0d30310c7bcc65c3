"""The endpoints of CosyVoice's own FastAPI server, called the way its own client does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from support.features import feature
from support.noting_engine import NotingEngine
from support.served import Served, serving, until

pytestmark = pytest.mark.integration

API = "CosyVoice FastAPI server"
TEXT = "hello there world"
REFERENCE = Path(__file__).parents[1] / "data" / "ref_wavs" / "flite_slt_female.wav"
GREETING = "You are a helpful assistant.<|endofprompt|>"

Call = Callable[..., Awaitable[requests.Response]]


def with_client(
    folder: Path,
    body: Callable[[Call, Served], Awaitable[None]],
    engine: FakeEngine | None = None,
    **settings: Any,
) -> None:
    """Run `body` with the call of the published client: a form, sent with GET unless told."""

    async def run() -> None:
        async with serving(folder, engine, **settings) as served:

            async def call(
                mode: str, *, method: str = "GET", clip: bytes | None = None, **fields: str
            ) -> requests.Response:
                files = None if clip is None else [("prompt_wav", ("p.wav", clip, "audio/wav"))]
                url = f"http://127.0.0.1:{served.port}/inference_{mode}"
                return await asyncio.to_thread(
                    requests.request, method, url, data=fields, files=files, timeout=20
                )

            await body(call, served)
            await until(lambda: not served.services.admission.live)

    asyncio.run(run())


def seconds(answer: requests.Response, rate: int = 24_000) -> float:
    assert answer.status_code == 200, answer.text
    samples = np.frombuffer(answer.content, "<i2")
    assert np.abs(samples).max() > 3000
    return len(samples) / rate


@feature(API, "`inference_sft`; GET and POST, form fields", "supported")
@feature(API, "names of the SFT speakers (中文女, …)", "supported", "the default voice or an alias")
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_sft(tmp_path: Path, method: str) -> None:
    engine = NotingEngine()

    async def body(call: Call, served: Served) -> None:
        for speaker in ("boop", "中文女", "英文男", ""):
            answer = await call("sft", method=method, tts_text=TEXT, spk_id=speaker)
            assert seconds(answer) == pytest.approx(len(TEXT) * 0.05)
        spoken = [voice.voice_id for voice in engine.voices]
        assert spoken == ["boop", "beep", "boop", "beep"]

    with_client(tmp_path, body, engine, voice_aliases="英文男=boop")


@feature(API, "raw 16-bit samples at the model's rate", "supported")
@pytest.mark.parametrize("rate", [22_050, 24_000])
def test_rate_is_that_of_the_model(tmp_path: Path, rate: int) -> None:
    async def body(call: Call, served: Served) -> None:
        answer = await call("sft", tts_text=TEXT, spk_id="beep")
        assert seconds(answer, rate) == pytest.approx(len(TEXT) * 0.05, abs=0.01)

    with_client(tmp_path, body, FakeEngine(sample_rate=rate))


@feature(API, "`inference_zero_shot`", "supported", "the voice ends with the answer")
@feature(API, "CosyVoice 3's prompt (`…<|endofprompt|>`) in texts", "supported", "or without it")
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("greeting", ["", GREETING])
def test_zero_shot(tmp_path: Path, method: str, greeting: str) -> None:
    engine = NotingEngine()

    async def body(call: Call, served: Served) -> None:
        answer = await call(
            "zero_shot",
            method=method,
            tts_text=TEXT,
            prompt_text=f"{greeting}Words of the clip.",
            clip=REFERENCE.read_bytes(),
        )
        assert seconds(answer) == pytest.approx(len(TEXT) * 0.05)
        assert engine.transcripts == ["Words of the clip."]
        assert engine.voices[0].voice_id.startswith("voice-")
        assert len(await served.services.voices.list()) == 2
        await until(lambda: not served.services.voices._temporary)

    with_client(tmp_path, body, engine)


@feature(API, "`inference_cross_lingual`", "supported")
@feature(
    API, "`inference_instruct`, `inference_instruct2`", "supported", "on engines that take them"
)
def test_other_modes(tmp_path: Path) -> None:
    engine = NotingEngine()

    async def body(call: Call, served: Served) -> None:
        clip = REFERENCE.read_bytes()
        seconds(await call("cross_lingual", tts_text=GREETING + TEXT, clip=clip))
        seconds(await call("instruct", tts_text=TEXT, spk_id="boop", instruct_text="Softly."))
        style = "You are a helpful assistant. Loudly.<|endofprompt|>"
        seconds(await call("instruct2", tts_text=TEXT, instruct_text=style, clip=clip))
        assert engine.transcripts == [None, None]
        assert [options.instruct for options in engine.options] == [None, "Softly.", "Loudly."]
        assert engine.voices[1].voice_id == "boop"

    with_client(tmp_path, body, engine)


@feature(API, "missing fields", "refused", "422 with FastAPI's list in `detail`")
def test_missing_fields(tmp_path: Path) -> None:
    async def body(call: Call, served: Served) -> None:
        clip = REFERENCE.read_bytes()
        cases: list[tuple[str, dict[str, Any], str]] = [
            ("sft", {}, "tts_text"),
            ("sft", {"tts_text": "a"}, "spk_id"),
            ("zero_shot", {"tts_text": "a", "prompt_text": "b"}, "prompt_wav"),
            ("zero_shot", {"tts_text": "a", "clip": clip}, "prompt_text"),
            ("cross_lingual", {"clip": clip}, "tts_text"),
            ("instruct", {"tts_text": "a", "spk_id": "beep"}, "instruct_text"),
            ("instruct2", {"instruct_text": "a", "clip": clip}, "tts_text"),
        ]
        for mode, fields, field in cases:
            answer = await call(mode, **fields)
            assert answer.status_code == 422, (mode, answer.text)
            (entry,) = answer.json()["detail"]
            assert (entry["type"], entry["loc"]) == ("missing", ["body", field])

    with_client(tmp_path, body)


@feature(API, "unknown speakers, broken clips, empty and 200 kB texts", "refused", "400, `detail`")
@feature(API, "unknown fields, fields of the query", "ignored")
def test_mistakes(tmp_path: Path) -> None:
    async def body(call: Call, served: Served) -> None:
        for mode, fields in (
            ("sft", {"tts_text": TEXT, "spk_id": "nobody"}),
            ("sft", {"tts_text": "  ", "spk_id": "beep"}),
            ("sft", {"tts_text": "word " * 40_000, "spk_id": "beep"}),
            ("cross_lingual", {"tts_text": TEXT, "clip": b"no sound"}),
            ("cross_lingual", {"tts_text": "word " * 40_000, "clip": REFERENCE.read_bytes()}),
        ):
            answer = await call(mode, **fields)
            assert answer.status_code == 400, (mode, answer.text)
            assert isinstance(answer.json()["detail"], str)
        seconds(await call("sft", tts_text=TEXT, spk_id="beep", stream="true", speed="x"))
        by_query = await served.get(f"/inference_sft?tts_text={TEXT.split()[0]}&spk_id=beep")
        assert by_query.status == 422
        assert (await served.request("DELETE", "/inference_sft")).status == 405
        await until(lambda: not served.services.voices._temporary)

    with_client(tmp_path, body)


@feature(
    API, "a key as `Authorization: Bearer`", "supported", "where keys are set; theirs has none"
)
def test_keys(tmp_path: Path) -> None:
    async def body(call: Call, served: Served) -> None:
        answer = await call("sft", tts_text=TEXT, spk_id="beep")
        assert answer.status_code == 401
        assert "key" in answer.json()["detail"]
        form = b"tts_text=hello&spk_id=beep"
        kind = "application/x-www-form-urlencoded"
        headers = {"authorization": "Bearer right", "content_type": kind}
        assert (await served.request("POST", "/inference_sft", form, **headers)).status == 200

    with_client(tmp_path, body, api_keys="right")


@feature(API, "closing the connection", "supported", "cancels the synthesis; the voice is dropped")
def test_closing_the_connection_cancels(tmp_path: Path) -> None:
    gate = ChunkGate()
    engine = FakeEngine(gate=gate)

    async def body(call: Call, served: Served) -> None:
        def begin() -> None:
            url = f"http://127.0.0.1:{served.port}/inference_cross_lingual"
            files = {"prompt_wav": REFERENCE.read_bytes()}
            with (
                requests.Session() as session,
                session.get(url, data={"tts_text": TEXT}, files=files, stream=True) as answer,
            ):
                assert len(next(answer.iter_content(4800))) == 4800

        await gate.allow(1)
        await asyncio.to_thread(begin)
        await until(lambda: not served.services.admission.live)
        assert engine.counts.cancelled == 1
        await until(lambda: not served.services.voices._temporary)

    with_client(tmp_path, body, engine)
