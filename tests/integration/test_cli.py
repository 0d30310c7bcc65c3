"""`cosyvoice-stream say` as a process with the embedded engine: files, pipes, signals."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import wave
from pathlib import Path

import numpy as np
import pytest

from cosyvoice_stream.decode import decode_audio
from support.command import TIMEOUT_S, completed, started
from support.recordings import REFERENCES

pytestmark = pytest.mark.integration

RECORDING = REFERENCES / "flite_rms_male.wav"
SUMMARY = re.compile(
    r"(\d+\.\d\d) s of audio, first audio after \d+ ms, real-time factor \d\.\d{3}"
    r"(, written to (?P<path>.*))?\n"
)
LONG_TEXT = "The quick brown fox jumps over the lazy dog again and again. " * 400
"""Minutes of speech."""


def wav_samples(data: bytes) -> np.ndarray:
    """The samples of a WAV file whose header tells the truth."""
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        assert 44 + 2 * file.getnframes() == len(data)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2")


def refusal(result: subprocess.CompletedProcess[bytes]) -> tuple[str, str]:
    """The two lines of a refusal."""
    assert result.returncode == 2, result.stderr
    lines = result.stderr.decode().splitlines()
    assert len(lines) == 2, lines
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("fix: ")
    return lines[0].removeprefix("error: "), lines[1].removeprefix("fix: ")


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("x.wav", "pcm_s16le"),
        ("x.WAV", "pcm_s16le"),
        ("x.mp3", "mp3"),
        ("x.flac", "flac"),
        ("x.opus", "opus"),
        ("x.ogg", "opus"),
        ("x.aac", "aac"),
        ("with space é 你好.wav", "pcm_s16le"),
    ],
)
def test_say_writes_the_format_of_the_suffix(tmp_path: Path, name: str, codec: str) -> None:
    rate = "48000" if codec == "opus" else "24000"
    result = completed(tmp_path, "say", "Good morning.", "-o", name, "--rate", rate)
    assert result.returncode == 0, result.stderr
    assert result.stdout == b""
    summary = SUMMARY.fullmatch(result.stderr.decode())
    assert summary is not None, result.stderr
    assert summary["path"] == name
    decoded = decode_audio(tmp_path / name, max_seconds=60)
    assert decoded.codec == codec
    seconds = len(decoded.samples) / decoded.sample_rate
    assert seconds == pytest.approx(float(summary[1]), abs=0.2)
    assert np.abs(decoded.samples).max() > 0.1


def test_wav_file_states_its_true_length_and_replaces_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "x.wav").write_bytes(b"old" * 1_000_000)
    assert completed(tmp_path, "say", "-q", "Good", "morning.", "-o", "x.wav").stderr == b""
    assert 0.5 < len(wav_samples((tmp_path / "x.wav").read_bytes())) / 24_000 < 3


def test_same_seed_same_file(tmp_path: Path) -> None:
    for name in ("a.wav", "b.wav"):
        completed(tmp_path, "say", "Good morning.", "-o", name, "--seed", "7")
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()


def test_dash_writes_a_wav_of_streaming_length_to_standard_output(tmp_path: Path) -> None:
    result = completed(tmp_path, "say", "Good morning.", "-o", "-")
    assert result.returncode == 0
    assert result.stdout[:4] == b"RIFF"
    decoded = decode_audio(result.stdout, max_seconds=60)
    assert len(decoded.samples) == (len(result.stdout) - 44) // 2
    assert SUMMARY.fullmatch(result.stderr.decode())


@pytest.mark.parametrize("text", ["", " ", "…", "🙂"])
def test_text_with_nothing_to_say_makes_a_valid_empty_file(tmp_path: Path, text: str) -> None:
    result = completed(tmp_path, "say", text, "-o", "x.wav")
    assert (result.returncode, result.stderr) == (0, b"nothing to say, written to x.wav\n")
    assert len(wav_samples((tmp_path / "x.wav").read_bytes())) == 0


def test_unsupported_language_is_refused_and_leaves_files_alone(tmp_path: Path) -> None:
    (tmp_path / "old.wav").write_bytes(b"precious")
    for name in ("old.wav", "new.wav"):
        message, cure = refusal(completed(tmp_path, "say", "你好,世界。", "-o", name))
        assert message == "the engine 'lite' cannot speak language 'zh'"
        assert "cosyvoice" in cure
    assert (tmp_path / "old.wav").read_bytes() == b"precious"
    assert not (tmp_path / "new.wav").exists()


def test_unknown_voice_is_refused_with_the_way_to_find_one(tmp_path: Path) -> None:
    message, cure = refusal(completed(tmp_path, "say", "x", "-o", "x.wav", "--voice", "nobody"))
    assert message == "no voice has the id 'nobody'"
    assert "cosyvoice-stream voices" in cure
    assert not (tmp_path / "x.wav").exists()


def test_recording_as_voice_changes_the_sound(tmp_path: Path) -> None:
    folder = tmp_path / "with space é"
    folder.mkdir()
    (folder / "me you.wav").write_bytes(RECORDING.read_bytes())
    own, heart = (
        completed(tmp_path, "say", "Good morning.", "-o", "-", "--seed", "1", "--voice", voice)
        for voice in (f"{folder.name}/me you.wav", "heart")
    )
    assert (own.returncode, heart.returncode) == (0, 0), own.stderr
    assert own.stdout != heart.stdout
    assert len(own.stdout) > 20_000


def test_recording_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "noise.wav").write_bytes(os.urandom(5000))
    message, _ = refusal(completed(tmp_path, "say", "x", "-o", "x.wav", "--voice", "noise.wav"))
    assert "cannot be read" in message or "audio" in message
    assert not (tmp_path / "x.wav").exists()


def test_full_disk_is_an_error_of_two_lines(tmp_path: Path) -> None:
    result = completed(tmp_path, "say", "Hello.", "-o", "/dev/full", "--format", "wav")
    message, cure = refusal(result)
    assert message == "/dev/full cannot be written: No space left on device"
    assert "-o" in cure


def test_first_audio_leaves_before_the_text_is_complete(tmp_path: Path) -> None:
    with started(tmp_path, "say", "-", "-o", "-") as say:
        assert say.stdin is not None
        assert say.stdout is not None
        say.stdin.write(b"Good morning, this is the first sentence. And")
        say.stdin.flush()
        header = say.stdout.read(44)
        audio = say.stdout.read(20_000)
        say.stdin.write(b" this is the second one.")
        say.stdin.close()
        rest = say.stdout.read()
        assert say.wait(TIMEOUT_S) == 0
    assert header[:4] == b"RIFF"
    assert np.abs(np.frombuffer(audio, "<i2")).max() > 1000
    assert len(rest) > 20_000


def test_text_cut_inside_a_character_is_the_same_text(tmp_path: Path) -> None:
    text = "A naïve café, “quoted” — done. 🙂 Yes.".encode()
    whole = completed(tmp_path, "say", "-", "-o", "-", "--seed", "1", input=text)
    with started(tmp_path, "say", "-", "-o", "-", "--seed", "1") as say:
        assert say.stdin is not None
        for value in text:
            say.stdin.write(bytes([value]))
            say.stdin.flush()
        cut, _ = say.communicate(timeout=TIMEOUT_S)
    assert whole.returncode == say.returncode == 0
    assert len(cut) == pytest.approx(len(whole.stdout), rel=0.2)


def test_input_that_is_not_utf8_is_spoken_around(tmp_path: Path) -> None:
    result = completed(tmp_path, "say", "-", "-o", "x.wav", input=b"Hello \xff\xfe there. \xe4\xb8")
    assert result.returncode == 0, result.stderr
    assert SUMMARY.fullmatch(result.stderr.decode())


def test_reader_of_the_pipe_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    with started(tmp_path, "say", LONG_TEXT, "-o", "-") as say:
        assert say.stdout is not None
        assert say.stderr is not None
        assert say.stdout.read(44)[:4] == b"RIFF"
        say.stdout.close()
        assert say.stderr.read() == b""
        assert say.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_signal_while_speaking_leaves_a_valid_file(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    path = tmp_path / "x.wav"
    with started(tmp_path, "say", "-", "-o", "x.wav") as say:
        assert say.stdin is not None
        say.stdin.write(b"Good morning, this is a sentence. And")
        say.stdin.flush()
        while not path.exists() or path.stat().st_size < 10_000:
            assert say.poll() is None
        say.send_signal(number)
        assert say.wait(5) == status, say.stderr.read()
        assert say.stderr is not None
        assert say.stderr.read() == b""
    assert np.abs(wav_samples(path.read_bytes())).max() > 1000


@pytest.mark.parametrize("output", ["x.wav", "-"])
def test_interruption_while_waiting_for_text_leaves_at_once(tmp_path: Path, output: str) -> None:
    # Loading is over when audio of the first sentence arrives; after it the command only waits.
    with started(tmp_path, "say", "-", "-o", output) as say:
        assert say.stdin is not None
        assert say.stdout is not None
        assert say.stderr is not None
        if output == "-":
            say.stdin.write(b"Yes. No. ")
            say.stdin.flush()
            say.stdout.read(44 + 20_000)
        else:
            while not Path(tmp_path, output).exists():
                assert say.poll() is None
        say.send_signal(signal.SIGINT)
        assert say.wait(5) == 130
        assert say.stderr.read() == b""
    assert not (tmp_path / "x.wav").exists()


def test_interruption_while_nobody_reads_the_pipe_leaves_at_once(tmp_path: Path) -> None:
    with started(tmp_path, "say", LONG_TEXT, "-o", "-") as say:
        assert say.stdout is not None
        assert say.stderr is not None
        assert say.stdout.read(44)[:4] == b"RIFF"
        while len(say.stdout.peek()) == 0:  # type: ignore[attr-defined]
            assert say.poll() is None
        say.send_signal(signal.SIGINT)
        assert say.wait(5) == 130
        assert say.stderr.read() == b""
