"""A server process from its first line to its last: signals, taken ports, broken engines."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server.runner import listen
from cosyvoice_stream.server.settings import Settings
from support.served import serving

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).parents[1] / "support" / "serve_fake.py"


@contextmanager
def process(folder: Path, kind: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """Start a server process; kill it if the test leaves it running."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("COSYVOICE")}
    values = {"PORT": "0", "VOICES_DIR": str(folder / "voices")} | settings
    env |= {f"COSYVOICE_STREAM_{key}": value for key, value in values.items()}
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), kind],
        env=env,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def ready_port(running: subprocess.Popen[str]) -> int:
    """Wait for the greeting; return the port in it."""
    assert running.stdout is not None
    first = running.stdout.readline()
    assert first.startswith("Ready at http://127.0.0.1:"), first or running.communicate()[1]
    greeting = [running.stdout.readline() for _ in range(3)]
    assert greeting[0].startswith("  engine  fake: ")
    assert greeting[1] == "  voices  beep, boop\n"
    assert greeting[2] == "  stop    Ctrl+C\n"
    return int(first.rsplit(":", 1)[1])


@contextmanager
def speaking(port: int, text: str) -> Iterator[http.client.HTTPResponse]:
    """Ask for speech and wait for its first audio."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", "/v1/speak", json.dumps({"text": text}))
        response = connection.getresponse()
        assert response.status == 200
        assert response.read(1)
        yield response
    finally:
        connection.close()


def status_and_code(port: int, method: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, b'{"text": "x"}' if method == "POST" else None)
        response = connection.getresponse()
        body = json.loads(response.read())
        return response.status, body.get("status") or body["error"]["code"]
    finally:
        connection.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_server_stops_at_once_and_with_success(tmp_path: Path, number: int) -> None:
    with process(tmp_path, "ok") as running:
        ready_port(running)
        began = time.monotonic()
        running.send_signal(number)
        output, errors = running.communicate(timeout=10)
        assert time.monotonic() - began < 3
        assert (running.returncode, output) == (0, "stopped\n")
        assert "Traceback" not in errors


def test_running_utterance_is_finished_and_new_ones_are_refused(tmp_path: Path) -> None:
    with process(tmp_path, "slow", DRAIN_S="30") as running:
        port = ready_port(running)
        with speaking(port, "several words that take a while to be spoken") as response:
            running.send_signal(signal.SIGTERM)
            while status_and_code(port, "GET", "/readyz") != (503, "stopping"):
                pass
            assert status_and_code(port, "POST", "/v1/speak") == (503, "shutting_down")
            assert status_and_code(port, "GET", "/healthz") == (200, "ok")
            samples = 1 + len(response.read())
        assert samples == 2 * 1200 * len("several words that take a while to be spoken")
        assert running.wait(timeout=10) == 0


def test_socket_session_finishes_its_utterance_and_is_closed_with_1001(tmp_path: Path) -> None:
    gate = ChunkGate()

    async def run() -> None:
        async with serving(tmp_path, FakeEngine(gate=gate)) as served:
            url = f"ws://127.0.0.1:{served.port}/v1/stream?framing=raw"
            async with connect(url, proxy=None) as peer:
                await gate.allow(1)
                await peer.send('{"type": "speak", "id": "a", "text": "hello world again"}')
                await gate.arrived(2)
                served.server.should_exit = True
                while served.services.readiness.state != "stopping":  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                await peer.send('{"type": "speak", "id": "b", "text": "too late"}')
                await gate.open()
                frames = [frame async for frame in peer]
                assert peer.close_code == 1001
        messages = [json.loads(frame) for frame in frames if isinstance(frame, str)]
        audio_bytes = sum(len(frame) for frame in frames if isinstance(frame, bytes))
        assert audio_bytes == 2 * 1200 * len("hello world again")
        ends = {message["id"]: message for message in messages if "id" in message}
        assert ends["a"]["type"] == "utterance.done"
        assert ends["b"]["code"] == "shutting_down"

    asyncio.run(run())


def test_clients_on_sockets_are_told_finish_what_they_say_and_are_closed(tmp_path: Path) -> None:
    text = "several words that take a while to be spoken"
    with process(tmp_path, "slow", DRAIN_S="30") as running:
        port = ready_port(running)

        async def talk() -> tuple[list[str | bytes], int | None]:
            url = f"ws://127.0.0.1:{port}/v1/stream"
            frames: list[str | bytes] = []
            async with connect(url, proxy=None) as idle, connect(url, proxy=None) as peer:
                await peer.send(json.dumps({"type": "speak", "id": "a", "text": text}))
                async for frame in peer:
                    frames.append(frame)
                    if isinstance(frame, bytes) and running.poll() is None and len(frames) < 5:
                        running.send_signal(signal.SIGTERM)
                        break
                async for frame in peer:
                    frames.append(frame)
                    if isinstance(frame, str) and "shutting_down" in frame and '"id"' not in frame:
                        await peer.send('{"type": "speak", "id": "b", "text": "too late"}')
                        with pytest.raises(InvalidStatus) as refused:
                            await connect(url, proxy=None)
                        assert refused.value.response.status_code == 503
                last = [json.loads(frame) async for frame in idle if isinstance(frame, str)][-1]
                assert (last["code"], idle.close_code) == ("shutting_down", 1001)
                return frames, peer.close_code

        frames, close_code = asyncio.run(talk())
        assert running.wait(timeout=10) == 0
    messages = [json.loads(frame) for frame in frames if isinstance(frame, str)]
    kinds = [(m["type"], m.get("id"), m.get("code")) for m in messages]
    assert kinds.count(("error", None, "shutting_down")) == 1
    assert ("error", "b", "shutting_down") in kinds
    assert kinds[-1] == ("utterance.done", "a", None)
    audio = b"".join(frame[12:] for frame in frames if isinstance(frame, bytes))
    assert len(audio) == 2 * 1200 * len(text)
    assert close_code == 1001


def test_second_signal_cuts_a_socket_session_short(tmp_path: Path) -> None:
    with process(tmp_path, "slow", DRAIN_S="600") as running:
        port = ready_port(running)

        async def talk() -> None:
            url = f"ws://127.0.0.1:{port}/v1/stream"
            async with connect(url, proxy=None) as peer:
                await peer.send(json.dumps({"type": "speak", "id": "a", "text": "word " * 2000}))
                async for frame in peer:
                    if isinstance(frame, bytes):
                        break
                running.send_signal(signal.SIGTERM)
                async for frame in peer:
                    if isinstance(frame, str) and "shutting_down" in frame:
                        break
                began = time.monotonic()
                running.send_signal(signal.SIGTERM)
                await peer.wait_closed()
                assert time.monotonic() - began < 3

        asyncio.run(talk())
        assert running.wait(timeout=5) == 0


def test_second_signal_does_not_wait(tmp_path: Path) -> None:
    with process(tmp_path, "slow", DRAIN_S="600") as running:
        port = ready_port(running)
        with speaking(port, "word " * 2000):
            running.send_signal(signal.SIGINT)
            while status_and_code(port, "GET", "/readyz") != (503, "stopping"):
                pass
            assert running.poll() is None
            running.send_signal(signal.SIGINT)
            assert running.wait(timeout=5) == 0


def test_drain_has_an_end(tmp_path: Path) -> None:
    with process(tmp_path, "slow", DRAIN_S="0.2") as running:
        port = ready_port(running)
        with speaking(port, "word " * 2000):
            running.send_signal(signal.SIGTERM)
            assert running.wait(timeout=8) == 0


def test_broken_engine_ends_the_process_with_a_cure(tmp_path: Path) -> None:
    with process(tmp_path, "broken") as running:
        output, errors = running.communicate(timeout=20)
        assert (running.returncode, output) == (1, "")
        assert errors.endswith("error: the weights are damaged; run pip install again\n")
        assert "Traceback" not in errors


def test_taken_port_is_found_before_anything_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with process(tmp_path, "ok", PORT=str(port)) as running:
            output, errors = running.communicate(timeout=20)
    assert (running.returncode, output) == (1, "")
    assert f"port {port} on 127.0.0.1 is in use" in errors
    assert "--port" in errors


def test_open_server_without_keys_is_warned_about(tmp_path: Path) -> None:
    with process(tmp_path, "ok", HOST="0.0.0.0") as running:
        ready_port(running)
        running.terminate()
        _, errors = running.communicate(timeout=10)
    assert "set COSYVOICE_STREAM_API_KEYS" in errors


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own sizes differ elsewhere")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_accepted_connections_hold_little_unsent_audio(host: str) -> None:
    with listen(Settings(_env_file=None, host=host, port=0, stall_timeout_s=5)) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 256 * 1024
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("no-such-host.invalid", "the host 'no-such-host.invalid' has no address"),
        ("192.0.2.1", "cannot listen on 192.0.2.1:8000"),
    ],
)
def test_address_that_is_not_ours_is_explained(host: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        listen(Settings(_env_file=None, host=host))
    assert "COSYVOICE_STREAM_HOST" in str(caught.value.how_to_fix)
