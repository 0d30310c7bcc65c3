"""What OpenAI's client and the server say to each other, recorded: one file an exchange.

``PYTHONPATH=tests python -m support.openai_contract`` records all of them again. The server's side
replays a recorded request and has to give the recorded answer; the client's side has to send the
recorded request and to understand the recorded answer. What is drawn at random is replaced by its
name.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import openai
from openai import AsyncOpenAI

from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server.app import create_app
from cosyvoice_stream.server.encoders import wav_header
from cosyvoice_stream.server.settings import Settings

FOLDER = Path(__file__).parent.parent / "protocol" / "openai"
KEY = "a-key"
SENT = ("accept", "authorization", "content-type")
"""Headers of a request that matter; the others tell of the client's machine."""
ANSWERED = (
    "content-type",
    "retry-after",
    "x-encoding",
    "x-sample-rate",
    "x-channels",
    "x-bytes-per-sample",
    "x-byte-order",
    "x-voice",
)
CLIP = wav_header(8000, 1600) + bytes(1600)
_RANDOM = (
    (re.compile(r'"created_at":\s*\d+'), '"created_at":0'),
    (re.compile(r"cons_[a-z2-7]{16}"), "cons_ID"),
)


async def _speech(client: AsyncOpenAI, **changes: Any) -> Any:
    asked: dict[str, Any] = {"model": "gpt-4o-mini-tts", "input": "a", "voice": "alloy"}
    async with client.audio.speech.with_streaming_response.create(**asked | changes) as answer:
        body = await answer.read()
        return {"type": answer.headers["content-type"], "bytes": len(body)}


async def _models(client: AsyncOpenAI) -> Any:
    return [model.id async for model in client.models.list()]


async def _model(client: AsyncOpenAI) -> Any:
    return (await client.models.retrieve("whisper-1")).id


async def _consent(client: AsyncOpenAI) -> Any:
    made = await client.audio.voice_consents.create(
        name="Ada", language="en-GB", recording=("consent.wav", CLIP)
    )
    return made.to_dict()


async def _delete(client: AsyncOpenAI) -> Any:
    return (await client.audio.voices.delete("voice-aaaaaaaaaaaaaaaa")).to_dict()


Call = Callable[[AsyncOpenAI], Awaitable[Any]]
CALLS: dict[str, Call] = {
    "speech_pcm": lambda client: _speech(client, response_format="pcm"),
    "speech_wav_options": lambda client: _speech(
        client,
        response_format="wav",
        instructions="Softly.",
        speed=2.0,
        voice={"id": "boop"},
        extra_body={"seed": 7, "sample_rate": 8000},
    ),
    "speech_events": lambda client: _speech(client, response_format="pcm", stream_format="sse"),
    "speech_unknown_voice": lambda client: _speech(client, voice="nobody"),
    "speech_no_text": lambda client: _speech(client, input=""),
    "speech_wrong_format": lambda client: _speech(client, response_format="ogg"),
    "models": _models,
    "model_unknown": _model,
    "consent": _consent,
    "voice_delete_unknown": _delete,
}


async def outcome(call: Call, client: AsyncOpenAI) -> Any:
    """What a caller sees: the result, or the error."""
    try:
        return await call(client)
    except openai.APIStatusError as error:
        named = {"status": error.status_code, "code": error.code, "param": error.param}
        return {"error": type(error).__name__, **named}


@contextlib.asynccontextmanager
async def application() -> AsyncIterator[httpx2.ASGITransport]:
    """Our application in memory."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(_env_file=None, voices_dir=Path(folder), api_keys=KEY)
        app = create_app(settings, FakeEngine())
        async with app.router.lifespan_context(app):
            await app.state.services.readiness.settled()
            yield httpx2.ASGITransport(app=app)


def client_over(transport: httpx2.AsyncBaseTransport) -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url="http://127.0.0.1/v1",
        api_key=KEY,
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=transport),
    )


def request_json(request: httpx2.Request) -> dict[str, Any]:
    """A request as it is kept; the boundary of a form gets a name."""
    headers = {name: request.headers[name] for name in SENT if name in request.headers}
    body = request.content
    boundary = re.search(r"boundary=(\S+)", headers.get("content-type", ""))
    if boundary is not None:
        body = body.replace(boundary[1].encode(), b"BOUNDARY")
        headers["content-type"] = headers["content-type"].replace(boundary[1], "BOUNDARY")
    target = request.url.raw_path.decode()
    return {"method": request.method, "target": target, "headers": headers, **_kept(body)}


def response_json(response: httpx2.Response) -> dict[str, Any]:
    """A response as it is kept."""
    headers = {name: response.headers[name] for name in ANSWERED if name in response.headers}
    return {"status": response.status_code, "headers": headers, **_kept(response.content)}


def body_of(kept: dict[str, Any]) -> bytes:
    """The body of what was kept."""
    if "base64" in kept:
        return base64.b64decode(kept["base64"])
    return str(kept["text"]).encode()


def _kept(body: bytes) -> dict[str, str]:
    if b"\x00" in body or not _is_text(body):
        return {"base64": base64.b64encode(body).decode()}
    text = body.decode()
    for pattern, name in _RANDOM:
        text = pattern.sub(name, text)
    return {"text": text}


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


class Recorder(httpx2.AsyncBaseTransport):
    """Passes requests on and keeps the last exchange."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner
        self.exchange: dict[str, Any] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        response = await self._inner.handle_async_request(request)
        await response.aread()
        self.exchange = {"request": request_json(request), "response": response_json(response)}
        return httpx2.Response(
            response.status_code, headers=response.headers, content=response.content
        )


async def record() -> None:
    """Record every call again."""
    FOLDER.mkdir(exist_ok=True)
    for name, call in CALLS.items():
        async with application() as transport:
            recorder = Recorder(transport)
            async with client_over(recorder) as client:
                seen = await outcome(call, client)
        kept = {**recorder.exchange, "seen": json.loads(_kept(json.dumps(seen).encode())["text"])}
        text = json.dumps(kept, ensure_ascii=False, indent=1) + "\n"
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(record())
    sys.exit(0)
