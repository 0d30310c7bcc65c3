"""Calls over WebRTC: first audio beside a WebSocket, CPU for each call, jitter of what is sent.

    python benchmarks/webrtc.py [--calls 1,8,16] [--seconds 20] [--rounds 30] [--json out.json]

Starts the server with the embedded engine in a process of its own and calls it from this one over
loopback. First audio runs from the last byte of the request to the first sample above -50 dBFS at
the client; connections are open before. A call of a load speaks all the time, or not at all. Jitter
is how far the time between two packets of a call is from 20 ms: as the server sees them leave since
the call began, of the worst call; and as this process sees the packets of all calls come, once all
are set up. The limit is set to the second, which has the delays of this process in it as well.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import av
import numpy as np
import psutil
from aiortc import RTCSessionDescription
from websockets.asyncio.client import connect

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from cosyvoice_stream.server.wire import AudioHeader
from support.call_peer import CallPeer
from support.server_process import free_port, server_process

TEXT = "Good morning, and thank you for calling. How can I help you today?"
LEVEL = 10 ** (-50 / 20)
WARM_UP_ROUNDS = 3
FRAME_S = 0.02
LIMIT_CALLS = 8
LIMIT_JITTER_MS = 5.0
"""What packets may be off at `LIMIT_CALLS` calls, 99th percentile."""


class PacketPeer(CallPeer):
    """Keeps arrivals; decodes packets itself where `listen` is on, and nothing otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.listen = False
        self.heard_at: float | None = None
        self._decoder: Any = None

    def ask(self) -> float:
        """Ask for the text; return when."""
        self._decoder = av.CodecContext.create("libopus", "r")
        self.heard_at, self.listen = None, True
        began = time.perf_counter()
        self.send(type="speak", id="u", text=TEXT)
        return began

    def hear(self, payload: bytes) -> None:
        for frame in self._decoder.decode(av.Packet(payload)):
            samples = frame.to_ndarray().astype(np.float32)
            samples = samples / 32768 if frame.format.name.startswith("s16") else samples
            if self.heard_at is None and np.abs(samples).max() > LEVEL:
                self.heard_at = time.perf_counter()
                self.listen = False

    def _watch_packets(self) -> None:
        async def watched(packet: Any, arrival_time_ms: int) -> None:
            self.packets.append((packet.timestamp, time.monotonic()))
            if self.listen:
                self.hear(packet.payload)
            self._changed.set()

        self.connection.getReceivers()[0]._handle_rtp_packet = watched  # type: ignore[method-assign]


def ask_json(url: str, value: Any = None) -> Any:
    body = None if value is None else json.dumps(value).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@asynccontextmanager
async def call(url: str):
    peer = PacketPeer()
    try:
        offer = {"type": "offer", "sdp": await peer.offer()}
        answer = await asyncio.to_thread(ask_json, f"{url}/v1/webrtc/offer", offer)
        description = RTCSessionDescription(answer["sdp"], "answer")
        await peer.connection.setRemoteDescription(description)
        await peer.message("session.ready")
        yield peer
    finally:
        await peer.close()


async def first_over_call(peer: PacketPeer) -> float:
    began = peer.ask()
    await peer.until(lambda: peer.heard_at is not None)
    assert peer.heard_at is not None
    peer.send(type="utterance.cancel")
    await peer.message("utterance.cancelled", "utterance.done")
    return peer.heard_at - began


async def first_over_socket(socket: Any) -> float:
    began = time.perf_counter()
    await socket.send(json.dumps({"type": "speak", "id": "u", "text": TEXT}))
    heard_at = None
    while True:
        frame = await socket.recv()
        if isinstance(frame, bytes):
            samples = np.frombuffer(frame[AudioHeader.SIZE :], "<i2").astype(np.float32) / 32768
            if heard_at is None and samples.size and np.abs(samples).max() > LEVEL:
                heard_at = time.perf_counter()
                await socket.send(json.dumps({"type": "utterance.cancel"}))
        elif json.loads(frame)["type"] in ("utterance.done", "utterance.cancelled"):
            assert heard_at is not None
            return heard_at - began


async def first_audio(url: str, rounds: int) -> list[dict[str, Any]]:
    """Both ways in turn, so that they meet the same machine."""
    found: dict[str, list[float]] = {"WebSocket": [], "WebRTC": []}
    stream = url.replace("http", "ws") + "/v1/stream"
    async with call(url) as peer, connect(stream, compression=None) as socket:
        await socket.recv()
        for number in range(rounds + WARM_UP_ROUNDS):
            over_socket = await first_over_socket(socket)
            over_call = await first_over_call(peer)
            if number >= WARM_UP_ROUNDS:
                found["WebSocket"].append(over_socket * 1000)
                found["WebRTC"].append(over_call * 1000)
    return [
        {
            "transport": name,
            "p50_ms": round(statistics.median(times), 1),
            "p95_ms": round(statistics.quantiles(times, n=20)[-1], 1),
        }
        for name, times in found.items()
    ]


async def keep_speaking(peer: PacketPeer) -> None:
    for number in itertools.count():
        peer.send(type="speak", id=f"u{number}", text=TEXT)
        await peer.message("utterance.done")


async def load(url: str, process: psutil.Process, calls: int, speaks: bool, seconds: float):
    """Run calls for a time; say what each of them cost and how even its packets were."""
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(call(url)) for _ in range(calls)]
        async with asyncio.TaskGroup() as group:
            speaking = [group.create_task(keep_speaking(p)) for p in peers if speaks]
            await asyncio.sleep(1)  # the first sentences of all calls begin together
            starts = [len(peer.packets) for peer in peers]
            busy, began = sum(process.cpu_times()[:2]), time.monotonic()
            await asyncio.sleep(seconds)
            busy, took = sum(process.cpu_times()[:2]) - busy, time.monotonic() - began
            stats = (await asyncio.to_thread(ask_json, f"{url}/v1/webrtc/stats"))["calls"]
            for task in speaking:
                task.cancel()
        gaps = [
            abs(after - before - FRAME_S) * 1000
            for peer, start in zip(peers, starts, strict=True)
            for (_, before), (_, after) in itertools.pairwise(peer.packets[start:])
        ]
        sent = [len(p.packets) - start for p, start in zip(peers, starts, strict=True)]
    return {
        "calls": calls,
        "speaking": speaks,
        "cpu_per_call_percent": round(100 * busy / took / calls, 2),
        "sent_jitter_p99_ms": max(stat["send_jitter_p99_ms"] for stat in stats),
        "received_jitter_p99_ms": round(float(np.percentile(gaps, 99)), 2),
        "packets_per_s": round(min(sent) / took, 2),
        "underruns": sum(stat["underruns"] for stat in stats),
    }


def print_table(rows: list[dict[str, Any]]) -> None:
    print("| " + " | ".join(name.replace("_", " ") for name in rows[0]) + " |")
    print("|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", default="1,8,16")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each load, to 60")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    port = free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        server_process(Path(folder), PORT=str(port), LOG_LEVEL="warning") as url,
    ):
        process = listening_process(port)
        first = asyncio.run(first_audio(url, arguments.rounds))
        loads = [
            asyncio.run(load(url, process, int(calls), speaks, min(60.0, arguments.seconds)))
            for calls in arguments.calls.split(",")
            for speaks in (False, True)
        ]
    print_table(first)
    print()
    print_table(loads)
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"first_audio": first, "loads": loads}, indent=1))
    for row in loads:
        if row["calls"] == LIMIT_CALLS and row["received_jitter_p99_ms"] > LIMIT_JITTER_MS:
            sys.exit(f"packets of {LIMIT_CALLS} calls are more than {LIMIT_JITTER_MS:g} ms off")


def listening_process(port: int) -> psutil.Process:
    """The server, among the children of this process."""
    for child in psutil.Process().children(recursive=True):
        if any(c.laddr.port == port for c in child.net_connections("tcp") if c.laddr):
            return child
    raise RuntimeError("the server is not a child of this process")


if __name__ == "__main__":
    main()
