"""The command line beside a server: `say --url`, `serve`, and terminals instead of pipes."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cosyvoice_stream.decode import decode_audio
from cosyvoice_stream.server.progress import CLEAR_LINE
from support.command import (
    TIMEOUT_S,
    command,
    completed,
    environment,
    ready_address,
    server,
    started,
)
from support.recordings import REFERENCES

pytestmark = pytest.mark.integration

RECORDING = REFERENCES / "flite_rms_male.wav"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(tmp_path_factory.mktemp("server"), API_KEYS="secret") as address:
        yield address


def refusal(result: subprocess.CompletedProcess[bytes]) -> tuple[str, str]:
    assert result.returncode == 2, result.stderr
    lines = result.stderr.decode().splitlines()
    assert len(lines) == 2, lines
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("fix: ")
    return lines[0].removeprefix("error: "), lines[1].removeprefix("fix: ")


def remotely(folder: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return completed(folder, "say", *arguments, "--url", url, "--api-key", "secret")


@pytest.mark.parametrize("name", ["x.wav", "x.mp3", "-"])
def test_say_with_a_server_writes_the_same_kinds_of_output(
    tmp_path: Path, url: str, name: str
) -> None:
    result = remotely(tmp_path, url, "Good morning.", "-o", name)
    assert result.returncode == 0, result.stderr
    data = result.stdout if name == "-" else (tmp_path / name).read_bytes()
    decoded = decode_audio(data, max_seconds=60)
    assert 0.5 < len(decoded.samples) / decoded.sample_rate < 3
    assert np.abs(decoded.samples).max() > 0.1
    assert b"real-time factor" in result.stderr


def test_say_with_and_without_a_server_makes_the_same_samples(tmp_path: Path, url: str) -> None:
    options = ("Good morning.", "--seed", "3", "--speed", "1.2", "-o")
    assert completed(tmp_path, "say", *options, "here.wav").returncode == 0
    assert remotely(tmp_path, url, *options, "there.wav").returncode == 0
    assert (tmp_path / "here.wav").read_bytes() == (tmp_path / "there.wav").read_bytes()


def test_say_streams_its_input_to_the_server(tmp_path: Path, url: str) -> None:
    arguments = ("say", "-", "-o", "-", "--url", url, "--api-key", "secret")
    with started(tmp_path, *arguments) as say:
        assert say.stdin is not None
        assert say.stdout is not None
        say.stdin.write(b"Good morning, this is the first sentence. And")
        say.stdin.flush()
        audio = say.stdout.read(44 + 20_000)
        say.stdin.write(b" this is the second.")
        say.stdin.close()
        rest = say.stdout.read()
        assert say.wait(TIMEOUT_S) == 0
    assert audio[:4] == b"RIFF"
    assert len(rest) > 20_000


def test_interruption_while_a_server_speaks(tmp_path: Path, url: str) -> None:
    arguments = ("say", "-", "-o", "-", "--url", url, "--api-key", "secret")
    with started(tmp_path, *arguments) as say:
        assert say.stdin is not None
        assert say.stdout is not None
        assert say.stderr is not None
        say.stdin.write(b"Good morning, this is the first sentence. And")
        say.stdin.flush()
        say.stdout.read(44 + 20_000)
        say.send_signal(signal.SIGINT)
        assert say.wait(5) == 130
        assert say.stderr.read() == b""


def test_recording_is_sent_to_the_server(tmp_path: Path, url: str) -> None:
    made = remotely(tmp_path, url, "Good morning.", "-o", "-", "--voice", str(RECORDING))
    plain = remotely(tmp_path, url, "Good morning.", "-o", "-", "--voice", "heart")
    assert (made.returncode, plain.returncode) == (0, 0), made.stderr
    assert made.stdout != plain.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Hello.", "--voice", "nobody"], "no voice has the id 'nobody'"),
        (["Hello.", "--speed", "9"], "speed"),
        (["你好,世界。"], "cannot speak language 'zh'"),
    ],
)
def test_what_the_server_refuses_is_an_error_of_two_lines(
    tmp_path: Path, url: str, arguments: list[str], message: str
) -> None:
    found, _ = refusal(remotely(tmp_path, url, *arguments, "-o", "x.wav"))
    assert message in found
    assert not (tmp_path / "x.wav").exists()


def test_missing_key_is_an_error_of_two_lines(tmp_path: Path, url: str) -> None:
    _, cure = refusal(completed(tmp_path, "say", "Hello.", "-o", "x.wav", "--url", url))
    assert "key" in cure


def test_no_server_is_an_error_of_two_lines(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        result = completed(tmp_path, "say", "Hello.", "-o", "x.wav", "--url", address)
    message, cure = refusal(result)
    assert message == f"no server answers at {address}"
    assert "cosyvoice-stream serve" in cure


def test_serve_on_a_taken_port_is_an_error_of_two_lines(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        message, cure = refusal(completed(tmp_path, "serve", "--port", port))
    assert port in message
    assert "port" in cure.lower()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_stops_with_success(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, "serve", "--port", "0") as process:
        assert ready_address(process).startswith("http://127.0.0.1:")
        process.send_signal(number)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert b"Traceback" not in errors


def on_terminal(folder: Path, *arguments: str, **options: int) -> tuple[int, str]:
    """Run a command whose standard error is a terminal; return its status and what was shown."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=environment(folder),
        stderr=theirs,
        stdout=subprocess.DEVNULL,
        **{"stdin": subprocess.DEVNULL, **dict.fromkeys(options, theirs)},
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:  # the terminal has no more users
            pass
        finally:
            os.close(ours)
    return process.returncode, shown.decode()


def test_long_work_shows_a_line_on_a_terminal_and_removes_it(tmp_path: Path) -> None:
    status, shown = on_terminal(tmp_path, "say", "Good morning.", "-o", "x.wav")
    assert status == 0
    assert f"{CLEAR_LINE}⠋ loading the engine" in shown
    last_line = shown.rsplit(CLEAR_LINE, 1)[1]
    assert last_line.endswith("written to x.wav\r\n")
    assert "⠋" not in last_line


def test_quiet_shows_nothing_on_a_terminal(tmp_path: Path) -> None:
    assert on_terminal(tmp_path, "say", "-q", "Good morning.", "-o", "x.wav") == (0, "")


def test_say_without_text_at_a_terminal_asks_for_some(tmp_path: Path) -> None:
    status, shown = on_terminal(tmp_path, "say", "-o", "x.wav", stdin=1)
    assert status == 2
    assert shown.splitlines() == [
        "error: there is no text",
        'fix: cosyvoice-stream say "Hello."',
    ]
