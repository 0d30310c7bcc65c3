"""The OpenAI adapter, called by OpenAI's own Node client."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from support.features import feature
from support.media import hear
from support.node_client import installed, run_node
from support.served import Served, serving, until

pytestmark = pytest.mark.integration

API = "OpenAI Node client"
SECONDS = len("hello there world") * 0.05
Run = Callable[[str], Awaitable[Any]]


def with_node(
    folder: Path,
    body: Callable[[Run, Served], Awaitable[None]],
    engine: FakeEngine | None = None,
    key: str = "any",
    **settings: Any,
) -> None:
    """Run `body` with a call that does one of the script's jobs."""
    node = installed()

    async def run() -> None:
        async with serving(folder, engine, **settings) as served:

            async def job(name: str) -> Any:
                url = f"http://127.0.0.1:{served.port}"
                return await run_node(node, "openai_client.mjs", url, name, KEY=key)

            await body(job, served)
            await until(lambda: not served.services.admission.live)

    asyncio.run(run())


@feature(API, "`audio.speech.create` in all formats", "supported")
def test_formats(tmp_path: Path) -> None:
    async def body(job: Run, served: Served) -> None:
        found = await job("formats")
        pcm = np.frombuffer(base64.b64decode(found.pop("pcm")["data"]), "<i2")
        assert len(pcm) == pytest.approx(SECONDS * 24_000, abs=20)
        assert np.abs(pcm).max() > 3000
        assert len(found) == 5
        for form, answer in found.items():
            assert answer["type"].startswith("audio/")
            heard = hear(base64.b64decode(answer["data"]))
            assert heard.seconds == pytest.approx(SECONDS, abs=0.09), form

    with_node(tmp_path, body)


@feature(API, "cancelling the body", "supported", "cancels the synthesis")
def test_cutting_the_connection(tmp_path: Path) -> None:
    gate = ChunkGate()
    engine = FakeEngine(gate=gate)

    async def body(job: Run, served: Served) -> None:
        await gate.allow(1)
        assert (await job("cut"))["bytes"] == 4800
        await until(lambda: not served.services.admission.live)
        assert engine.counts.cancelled == 1

    with_node(tmp_path, body, engine)


@feature(API, "typed errors: `BadRequestError`, `AuthenticationError`", "supported")
def test_mistakes(tmp_path: Path) -> None:
    async def body(job: Run, served: Served) -> None:
        caught = await job("mistakes")
        assert [error["kind"] for error in caught] == ["BadRequestError"] * 4
        assert [error["param"] for error in caught] == ["voice", "speed", "input", None]
        assert {error["type"] for error in caught} == {"invalid_request_error"}

    with_node(tmp_path, body)


def test_keys(tmp_path: Path) -> None:
    async def body(job: Run, served: Served) -> None:
        error = await job("key")
        assert error == {"kind": "AuthenticationError", "code": "invalid_api_key"}

    with_node(tmp_path, body, key="wrong", api_keys="right")


@feature(API, "`models.list`", "supported")
def test_models(tmp_path: Path) -> None:
    async def body(job: Run, served: Served) -> None:
        assert (await job("models"))[:2] == ["fake", "tts-1"]

    with_node(tmp_path, body)


@feature(
    API,
    "Realtime over `OpenAIRealtimeWS`",
    "supported",
    "it always uses `wss:`, so a proxy has to offer TLS",
)
def test_realtime(tmp_path: Path) -> None:
    async def body(job: Run, served: Served) -> None:
        seen = await job("realtime")
        assert seen["bytes"] == round(SECONDS * 24_000) * 2
        assert seen["kinds"][-1] == "response.done"

    with_node(tmp_path, body)
