"""Xinference's speech endpoint, called by Xinference's own client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xinference_client.client.restful.restful_client import Client

from cosyvoice_stream.fake import FakeEngine
from support.features import feature
from support.media import hear
from support.noting_engine import NotingEngine
from support.served import serving, until

pytestmark = pytest.mark.integration

API = "Xinference"
TEXT = "hello there world"
REFERENCE = Path(__file__).parents[1] / "data" / "ref_wavs" / "flite_slt_female.wav"


def with_client(
    folder: Path,
    body: Callable[[Any], None],
    engine: FakeEngine | None = None,
    key: str | None = None,
    **settings: Any,
) -> None:
    """Run `body` with a client whose model is our engine."""

    async def run() -> None:
        async with serving(folder, engine, **settings) as served:

            def use() -> None:
                client = Client(f"http://127.0.0.1:{served.port}", api_key=key)
                with contextlib.closing(client):
                    model = client.get_model("fake")
                    with contextlib.closing(model):
                        body(model)

            await asyncio.to_thread(use)
            await until(lambda: not served.services.admission.live)
            await until(lambda: not served.services.voices._temporary)

    asyncio.run(run())


@feature(API, "`speech` with a voice; `response_format`, `speed`, `stream`", "supported")
def test_preset_voice(tmp_path: Path) -> None:
    def body(model: Any) -> None:
        assert hear(model.speech(TEXT)).codec.startswith("mp3")
        slow = model.speech(TEXT, voice="中文女", response_format="wav", speed=0.5)
        assert hear(slow).seconds == pytest.approx(len(TEXT) * 0.1)
        pieces = list(model.speech(TEXT, voice="boop", response_format="pcm", stream=True))
        assert len(pieces) > 1
        assert np.abs(np.frombuffer(b"".join(pieces), "<i2")).max() > 3000

    with_client(tmp_path, body)


@feature(API, "`prompt_speech` with `prompt_text` (zero-shot)", "supported")
@feature(API, "`prompt_speech` alone (cross-lingual), with `instruct_text`", "supported")
@feature(API, "`prompt_latent`, unknown `kwargs`", "ignored")
def test_cloning(tmp_path: Path) -> None:
    engine = NotingEngine()

    def body(model: Any) -> None:
        clip = REFERENCE.read_bytes()
        zero_shot = model.speech(
            TEXT, response_format="wav", prompt_speech=clip, prompt_text="Words.", seed=5, more=1
        )
        assert hear(zero_shot).seconds == pytest.approx(len(TEXT) * 0.05)
        model.speech(TEXT, prompt_speech=clip, prompt_latent=b"\x00\x01")
        model.speech(TEXT, prompt_speech=clip, instruct_text="Softly.<|endofprompt|>")

    with_client(tmp_path, body, engine)
    assert engine.transcripts == ["Words.", None, None]
    assert [options.instruct for options in engine.options] == [None, None, "Softly."]
    assert engine.options[0].seed == 5
    assert all(voice.voice_id.startswith("voice-") for voice in engine.voices)


@feature(API, "wrong fields, clips and voices", "refused", "400 in OpenAI's form")
@feature(API, "empty text, 200 kB of text", "refused", "400 in OpenAI's form")
def test_mistakes(tmp_path: Path) -> None:
    def body(model: Any) -> None:
        clip = REFERENCE.read_bytes()
        for wrong in (
            {"voice": "nobody"},
            {"speed": 9.0},
            {"response_format": "ogg"},
            {"prompt_speech": b"no sound"},
            {"prompt_speech": clip, "speed": "fast"},
            {"prompt_speech": clip, "prompt_text": 5},
        ):
            with pytest.raises(RuntimeError, match="400"):
                model.speech(TEXT, **wrong)
        for text in ("", " \n", "a " * 100_000):
            for options in ({}, {"prompt_speech": clip}):
                with pytest.raises(RuntimeError, match="400"):
                    model.speech(text, **options)

    with_client(tmp_path, body)


@feature(API, "`/v1/cluster/auth`, keys", "supported", "the client sends its key where one is set")
def test_keys(tmp_path: Path) -> None:
    def body(model: Any) -> None:
        assert model.speech(TEXT)

    with_client(tmp_path, body, key="right", api_keys="right")
    with pytest.raises(RuntimeError, match="401"):
        with_client(tmp_path, body, key="wrong", api_keys="right")
