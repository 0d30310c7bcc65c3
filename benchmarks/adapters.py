"""First audio through each adapter for other services' clients, beside the native protocol.

    python benchmarks/adapters.py [--rounds 40] [--json out.json]

Starts the server with the embedded engine in a process of its own and asks it, one request at a
time, through every interface in turn, so that all of them meet the same machine. Connections are
open before the clock starts; it runs from the first byte of the request to the first audio in it.
Clients are as plain as possible: what is measured is the server, not an SDK.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import grpc
from websockets.asyncio.client import connect
from wyoming.audio import AudioChunk, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.ping import Ping
from wyoming.tts import Synthesize

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from cosyvoice_stream.server.grpc_messages import METHOD, SERVICE, Request, Response
from support.server_process import free_port, server_process

TEXT = "Good morning, and thank you for calling. How can I help you today?"
NATIVE = "native, WebSocket"
WARM_UP_ROUNDS = 3
LIMIT_MS = 15.0
"""What an adapter may add to the native protocol, in the median."""
JSON_TYPE = "application/json"
FORM_TYPE = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Server:
    port: int
    grpc_port: int
    wyoming_port: int

    def ws(self, path: str) -> str:
        return f"ws://127.0.0.1:{self.port}{path}"


Way = Callable[[Server], Awaitable[float]]
"""Asks once; returns the seconds to the first audio."""


async def post(server: Server, path: str, kind: str, body: bytes, skip_bytes: int = 0) -> float:
    """Post a request; the first chunk with more than `skip_bytes` in all is audio."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    with closing(writer):
        head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {kind}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        began = time.perf_counter()
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer.split(b"\r\n")[0]:
            raise RuntimeError(answer.decode("latin-1"))
        got = 0
        while got <= skip_bytes:
            size = int(await reader.readline(), 16)
            await reader.readexactly(size + 2)
            got += size
        first_s = time.perf_counter() - began
        await reader.read()
    return first_s


def openai(**options: str) -> Way:
    asked = {"model": "tts-1", "input": TEXT, "voice": "alloy", **options}
    body = json.dumps(asked).encode()
    wav_header_bytes = 44 if options.get("response_format") == "wav" else 0
    return lambda server: post(server, "/v1/audio/speech", JSON_TYPE, body, wav_header_bytes)


async def native_http(server: Server) -> float:
    return await post(server, "/v1/speak", JSON_TYPE, json.dumps({"text": TEXT}).encode())


async def reference_http(server: Server) -> float:
    form = urlencode({"tts_text": TEXT, "spk_id": ""}).encode()
    return await post(server, "/inference_sft", FORM_TYPE, form)


async def native_socket(server: Server) -> float:
    async with connect(server.ws("/v1/stream"), compression=None) as socket:
        await socket.recv()  # session.ready
        began = time.perf_counter()
        await socket.send(json.dumps({"type": "speak", "id": "u", "text": TEXT}))
        first_s = None
        while True:
            frame = await socket.recv()
            if isinstance(frame, bytes):
                first_s = first_s or time.perf_counter() - began
            elif json.loads(frame)["type"] == "utterance.done":
                assert first_s is not None
                return first_s


async def openai_realtime(server: Server) -> float:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": TEXT}]}
    async with connect(server.ws("/v1/realtime?model=m"), compression=None) as socket:
        await socket.recv()
        await socket.recv()  # session.created, conversation.created
        began = time.perf_counter()
        await socket.send(json.dumps({"type": "response.create", "response": {"input": [item]}}))
        first_s = None
        while True:
            event = json.loads(await socket.recv())
            if event["type"] == "response.output_audio.delta" and base64.b64decode(event["delta"]):
                first_s = first_s or time.perf_counter() - began
            elif event["type"] == "response.done":
                assert first_s is not None
                return first_s


async def elevenlabs(server: Server) -> float:
    path = "/elevenlabs/v1/text-to-speech/21m00Tcm4TlvDq8ikWAM/stream?output_format=pcm_24000"
    return await post(server, path, JSON_TYPE, json.dumps({"text": TEXT}).encode())


async def dashscope(server: Server) -> float:
    def command(action: str, **payload: object) -> str:
        header = {"action": action, "task_id": "one", "streaming": "duplex"}
        return json.dumps({"header": header, "payload": {"input": {}, **payload}})

    run = command(
        "run-task",
        task_group="audio",
        task="tts",
        function="SpeechSynthesizer",
        model="cosyvoice-v3",
        parameters={"voice": "longanyang", "format": "pcm", "sample_rate": 24_000},
    )
    async with connect(server.ws("/api-ws/v1/inference"), compression=None) as socket:
        await socket.send(run)
        await socket.recv()  # task-started
        began = time.perf_counter()
        await socket.send(command("continue-task", input={"text": TEXT}))
        await socket.send(command("finish-task"))
        first_s = None
        while True:
            frame = await socket.recv()
            if isinstance(frame, bytes):
                first_s = first_s or time.perf_counter() - began
            elif json.loads(frame)["header"]["event"] == "task-finished":
                assert first_s is not None
                return first_s


async def reference_grpc(server: Server) -> float:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        await channel.channel_ready()
        ask = channel.unary_stream(
            f"/{SERVICE}/{METHOD}",
            request_serializer=Request.SerializeToString,
            response_deserializer=Response.FromString,
        )
        began = time.perf_counter()
        first_s = None
        async for _ in ask(Request(sft_request={"tts_text": TEXT})):
            first_s = first_s or time.perf_counter() - began
        assert first_s is not None
        return first_s


async def wyoming(server: Server) -> float:
    async with AsyncTcpClient("127.0.0.1", server.wyoming_port) as client:
        await client.write_event(Ping("warm").event())
        await client.read_event()
        began = time.perf_counter()
        await client.write_event(Synthesize(TEXT).event())
        first_s = None
        while event := await client.read_event():
            if AudioChunk.is_type(event.type):
                first_s = first_s or time.perf_counter() - began
            elif AudioStop.is_type(event.type):
                assert first_s is not None
                return first_s
    raise RuntimeError("the server closed the connection")


WAYS: dict[str, Way] = {
    NATIVE: native_socket,
    "native, POST /v1/speak": native_http,
    "OpenAI speech, pcm": openai(response_format="pcm"),
    "OpenAI speech, wav": openai(response_format="wav"),
    "OpenAI speech, mp3": openai(response_format="mp3"),
    "OpenAI speech, opus": openai(response_format="opus"),
    "OpenAI speech, pcm as events": openai(response_format="pcm", stream_format="sse"),
    "OpenAI Realtime": openai_realtime,
    "ElevenLabs HTTP": elevenlabs,
    "DashScope": dashscope,
    "Wyoming (Home Assistant)": wyoming,
    "CosyVoice FastAPI server": reference_http,
    "CosyVoice gRPC server": reference_grpc,
}


async def measure(server: Server, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each way, all ways once per round."""
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(rounds + WARM_UP_ROUNDS):
        for name, way in WAYS.items():
            first_ms = await way(server) * 1000
            if number >= WARM_UP_ROUNDS:
                found[name].append(first_ms)
    return found


def rows(found: dict[str, list[float]]) -> list[dict[str, str | float]]:
    base = statistics.median(found[NATIVE])
    return [
        {
            "interface": name,
            "p50_ms": round(statistics.median(times), 1),
            "p95_ms": round(statistics.quantiles(times, n=20)[-1], 1),
            "added_ms": round(statistics.median(times) - base, 1),
        }
        for name, times in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    ports = {"GRPC_PORT": str(free_port()), "WYOMING_PORT": str(free_port())}
    with (
        tempfile.TemporaryDirectory() as folder,
        server_process(Path(folder), **ports, LOG_LEVEL="warning") as url,
    ):
        server = Server(int(url.rpartition(":")[2]), *map(int, ports.values()))
        table = rows(asyncio.run(measure(server, arguments.rounds)))
    print("| interface | first audio, p50 ms | p95 ms | more than native, ms |")
    print("|---|---|---|---|")
    for row in table:
        print("| {interface} | {p50_ms} | {p95_ms} | {added_ms:+} |".format(**row))
    slow = [row["interface"] for row in table if float(row["added_ms"]) > LIMIT_MS]
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(table, indent=1))
    if slow:
        sys.exit(f"more than {LIMIT_MS:g} ms above the native protocol: {', '.join(slow)}")


if __name__ == "__main__":
    main()
