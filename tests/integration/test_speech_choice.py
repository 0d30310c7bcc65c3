"""Choices by voice: a webhook, and an OpenAI-compatible endpoint, over real HTTP."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.telephony.menu import OpenAi, Webhook
from cosyvoice_stream.telephony.speech_choice import Question, make_chooser
from cosyvoice_stream.telephony.turns import Turn

pytestmark = pytest.mark.integration

QUESTION = Question(
    "main",
    "en",
    {"hours": "opening hours", "desk": "a person"},
    Turn(np.arange(16_000, dtype=np.int16), 0.0, 1000.0),
)
Answer = Callable[[str, dict[str, str], bytes], tuple[int, bytes]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """An HTTP server that answers one request a connection."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readline()).split()[1].decode()
        head = await read_head_fields(reader)
        body = await reader.readexactly(int(head["content-length"]))
        status, data = answer(path, head, body)
        writer.write(b"HTTP/1.1 %d X\r\nconnection: close\r\n" % status)
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(data), data))
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def read_head_fields(reader: asyncio.StreamReader) -> dict[str, str]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.split(":", 1) for line in lines if line)
    return {name.lower(): value.strip() for name, value in pairs}


def choose(answer: Answer, settings: Callable[[str], Webhook | OpenAi]) -> str | None:
    async def run() -> str | None:
        async with answering(answer) as url, httpx.AsyncClient() as client:
            return await make_chooser(settings(url), client).choose(QUESTION)

    return asyncio.run(run())


def webhook(url: str) -> Webhook:
    return Webhook(webhook=f"{url}/choice", timeout_s=10)


def openai(url: str) -> OpenAi:
    return OpenAi(openai=f"{url}/v1", model="small", key_variable="TEST_KEY", timeout_s=10)


def test_a_webhook_gets_the_words_and_the_choices() -> None:
    asked: list[dict[str, Any]] = []

    def answer(path: str, head: dict[str, str], body: bytes) -> tuple[int, bytes]:
        asked.append(json.loads(body))
        return 200, b'{"choice": "hours"}'

    assert choose(answer, webhook) == "hours"
    assert asked[0]["choices"] == dict(QUESTION.choices)
    assert asked[0]["step"] == "main"
    with wave.open(io.BytesIO(base64.b64decode(asked[0]["audio"]["data"]))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (16_000, 1, 16_000)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b'{"choice": "nothing of these"}'),
        (200, b'{"choice": null}'),
        (200, b'{"choice": ["hours"]}'),
        (200, b"[1]"),
        (200, b"no json"),
        (500, b'{"choice": "hours"}'),
        (200, b'{"choice": "hours", "more": "' + b"x" * (1 << 20) + b'"}'),
    ],
)
def test_an_answer_that_is_none_is_not_understood(status: int, body: bytes) -> None:
    assert choose(lambda *_: (status, body), webhook) is None


def test_nobody_who_answers_is_not_understood() -> None:
    assert choose(lambda *_: (200, b""), lambda _: webhook("http://127.0.0.1:1")) is None


def test_an_openai_endpoint_transcribes_and_calls_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-test")
    asked: dict[str, bytes] = {}

    def answer(path: str, head: dict[str, str], body: bytes) -> tuple[int, bytes]:
        assert head["authorization"] == "Bearer sk-test"
        asked[path] = body
        if path == "/v1/audio/transcriptions":
            return 200, b'{"text": "When do you open?"}'
        arguments = json.dumps({"choice": "hours"})
        call = {"function": {"name": "choose", "arguments": arguments}}
        return 200, json.dumps({"choices": [{"message": {"tool_calls": [call]}}]}).encode()

    assert choose(answer, openai) == "hours"
    assert b"RIFF" in asked["/v1/audio/transcriptions"]
    request = json.loads(asked["/v1/chat/completions"])
    assert request["messages"][1]["content"] == "When do you open?"
    properties = request["tools"][0]["function"]["parameters"]["properties"]
    assert properties["choice"]["enum"] == ["hours", "desk", "none"]


@pytest.mark.parametrize("message", [{}, {"tool_calls": []}, {"tool_calls": [{"function": {}}]}])
def test_a_model_that_calls_no_tool_is_not_understood(
    monkeypatch: pytest.MonkeyPatch, message: dict[str, Any]
) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-test")

    def answer(path: str, head: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if path == "/v1/audio/transcriptions":
            return 200, b'{"text": "Hm."}'
        return 200, json.dumps({"choices": [{"message": message}]}).encode()

    assert choose(answer, openai) is None


def test_silence_asks_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-test")
    asked: list[str] = []

    def answer(path: str, head: dict[str, str], body: bytes) -> tuple[int, bytes]:
        asked.append(path)
        return 200, b'{"text": " "}'

    assert choose(answer, openai) is None
    assert asked == ["/v1/audio/transcriptions"]


def test_a_key_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="TEST_KEY_OF_NOBODY"):
        make_chooser(
            OpenAi(openai="http://127.0.0.1", model="m", key_variable="TEST_KEY_OF_NOBODY"),
            httpx.AsyncClient(),
        )
