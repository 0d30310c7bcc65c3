"""The audio cache through a real server: every protocol, deleted voices, prompts at the start."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server.app import create_app
from cosyvoice_stream.server.settings import Settings
from support.recordings import REFERENCES
from support.served import Served, serving

pytestmark = pytest.mark.integration

RECORDING = (REFERENCES / "flite_slt_female.wav").read_bytes()


async def say(served: Served, *messages: dict) -> bytes:
    """Send messages about the utterance `a` and return its audio."""
    audio = b""
    async with connect(f"ws://127.0.0.1:{served.port}/v1/stream", proxy=None) as socket:
        for message in messages:
            await socket.send(json.dumps({"id": "a"} | message))
        async for frame in socket:
            if isinstance(frame, bytes):
                audio += frame[12:]
            elif json.loads(frame)["type"] in ("utterance.done", "error"):
                break
    return audio


def test_one_cache_for_every_protocol(tmp_path: Path) -> None:
    async def main() -> None:
        engine = FakeEngine()
        async with serving(tmp_path, engine) as served:
            text = {"text": "Hello there", "seed": 5}
            native = await served.post_json("/v1/speak", text)
            sockets = await say(served, {"type": "speak"} | text)
            pieces = await say(
                served,
                {"type": "utterance.start", "seed": 5},
                {"type": "text.delta", "text": "Hello "},
                {"type": "text.delta", "text": "there"},
                {"type": "utterance.end"},
            )
            assert native.body == sockets == pieces
            assert engine.counts.started <= 2  # the pieces may have been taken one by one
            page = (await served.get("/metrics")).body
            assert b'cosyvoice_stream_audio_cache_total{outcome="hit"}' in page

    asyncio.run(main())


def test_a_deleted_voice_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            made = await served.request("POST", "/v1/voices", RECORDING, content_type="audio/wav")
            voice = made.json()["voice"]["id"]
            for _ in range(2):
                text = {"text": "Hello there", "seed": 5, "voice": voice}
                assert (await served.post_json("/v1/speak", text)).status == 200
            cache = served.services.speech.cache
            assert cache is not None
            assert len(cache) == 1
            assert (await served.request("DELETE", f"/v1/voices/{voice}")).status == 204
            assert (len(cache), cache.size_bytes) == (0, 0)
            reply = await served.post_json("/v1/speak", text)
            assert reply.status == 404

    asyncio.run(main())


def test_prompts_are_spoken_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "menu.toml"
    file.write_text('[[prompt]]\ntext = "Press one"\n', encoding="utf-8")

    async def main() -> None:
        engine = FakeEngine()
        async with serving(tmp_path, engine, prompts_file=file) as served:
            cache = served.services.speech.cache
            assert cache is not None
            while not cache.pinned:  # noqa: ASYNC110 - nobody is told when they are there
                await asyncio.sleep(0.001)
            assert (await served.post_json("/v1/speak", {"text": "Press one"})).status == 200
            assert engine.counts.started == 1

    asyncio.run(main())


def test_prompts_without_a_cache_are_refused(tmp_path: Path) -> None:
    settings = Settings(
        _env_file=None, voices_dir=tmp_path, prompts_file=tmp_path / "x.toml", audio_cache_mb=0
    )
    with pytest.raises(ConfigError, match="a place to be kept"):
        create_app(settings, FakeEngine())
