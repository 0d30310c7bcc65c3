"""`enrol`, `voices`, `doctor` and `bench` as processes."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.command import command, completed
from support.recordings import RATE, REFERENCES, encode, silence, speech

pytestmark = pytest.mark.integration

RECORDING = REFERENCES / "flite_rms_male.wav"


def printed(result: subprocess.CompletedProcess[bytes], status: int = 0) -> Any:
    """The JSON on standard output; nothing else may have been printed."""
    assert result.returncode == status, result.stderr
    assert result.stderr == b""
    return json.loads(result.stdout)


def test_voice_from_its_recording_to_its_end(tmp_path: Path) -> None:
    arguments = ("--name", "Größe 你", "--transcript", "The morning ferry.", "--consent", "Yes.")
    made = printed(completed(tmp_path, "enrol", str(RECORDING), *arguments, "--json"))
    voice = made["voice"]
    assert (voice["name"], voice["kind"], voice["persistent"]) == ("Größe 你", "adapted", True)
    assert made["quality"]["items"]
    assert "adapted" in made["how"]

    listed = printed(completed(tmp_path, "voices", "list", "--json"))
    assert [item["id"] for item in listed] == ["heart", voice["id"]]
    shown = printed(completed(tmp_path, "voices", "show", voice["id"]))
    assert (shown["transcript"], shown["consent"]) == ("The morning ferry.", "Yes.")

    spoken = completed(tmp_path, "say", "Hello.", "-o", "-", "--voice", voice["id"], "--seed", "1")
    plain = completed(tmp_path, "say", "Hello.", "-o", "-", "--seed", "1")
    assert (spoken.returncode, plain.returncode) == (0, 0)
    assert spoken.stdout != plain.stdout

    deleted = completed(tmp_path, "voices", "delete", voice["id"])
    assert (deleted.returncode, deleted.stderr) == (0, f"deleted {voice['id']}\n".encode())
    assert completed(tmp_path, "voices").stdout == b"heart  Heart (builtin)\n"


def test_enrolment_is_shown_to_people_and_named_after_the_file(tmp_path: Path) -> None:
    path = tmp_path / "Ann Smith.wav"
    path.write_bytes(RECORDING.read_bytes())
    result = completed(tmp_path, "enrol", path.name)
    assert result.returncode == 0, result.stderr
    text = result.stdout.decode()
    assert "(Ann Smith), adapted to the recording" in text
    voice_id = text.split("voice ")[1].split()[0]
    assert f'try: cosyvoice-stream say "Hello." --voice {voice_id}' in text
    listed = completed(tmp_path, "voices").stdout.decode().splitlines()
    assert [line.split()[0] for line in listed] == ["heart", voice_id]


def test_check_judges_and_stores_nothing(tmp_path: Path) -> None:
    result = completed(tmp_path, "enrol", str(RECORDING), "--check")
    assert result.returncode == 0
    assert result.stdout.decode().splitlines()[-1] == "this recording can be used"
    judged = printed(completed(tmp_path, "enrol", str(RECORDING), "--check", "--json"))
    assert judged["voice"] is None
    assert judged["quality"]["items"]
    assert not (tmp_path / "voices").exists() or not list((tmp_path / "voices").glob("*/*"))


@pytest.mark.parametrize("check", [[], ["--check"]])
def test_rejected_recording_says_why_and_what_to_do(tmp_path: Path, check: list[str]) -> None:
    (tmp_path / "short.wav").write_bytes(encode(speech()[:RATE], RATE, "wav", "pcm_s16le"))
    (tmp_path / "silent.wav").write_bytes(encode(silence(5), RATE, "wav", "pcm_s16le"))
    for name, reason in (("short.wav", "too_short"), ("silent.wav", "no_speech")):
        result = completed(tmp_path, "enrol", name, *check)
        assert result.returncode == 2
        lines = result.stderr.decode().splitlines()
        assert lines[0].startswith(f"error: {reason}: ")
        assert lines[1].startswith("fix: ")
        rejected = printed(completed(tmp_path, "enrol", name, *check, "--json"), 2)
        assert (rejected["rejected"], rejected["reason"]) == (True, reason)
    assert completed(tmp_path, "voices").stdout.count(b"\n") == 1


def test_file_that_is_no_recording_is_an_error_of_two_lines(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("not audio")
    (tmp_path / "folder.wav").mkdir()
    for name in ("text.wav", "folder.wav", "missing.wav", "/proc/self/mem"):
        for check in ([], ["--check"]):
            result = completed(tmp_path, "enrol", name, *check)
            assert result.returncode == 2, (name, result.stderr)
            assert result.stdout == b""
            first, second = result.stderr.decode().splitlines()
            assert first.startswith("error: ")
            assert second.startswith("fix: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "nobody"], "no voice has the id 'nobody'"),
        (["delete", "nobody"], "no voice has the id 'nobody'"),
        (["show", "../../etc/passwd"], "no voice has the id '../../etc/passwd'"),
        (["delete", ".."], "no voice has the id '..'"),
        (["delete", "heart"], "built"),
    ],
)
def test_voice_that_is_not_there_is_an_error_of_two_lines(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = completed(tmp_path, "voices", *arguments)
    assert result.returncode == 2
    first, second = result.stderr.decode().splitlines()
    assert message in first
    assert second.startswith("fix: ")


def test_terminal_that_knows_few_characters_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")
    made = completed(tmp_path, "enrol", str(RECORDING), "--name", "Größe 你", "--json")
    assert json.loads(made.stdout)["voice"]["name"] == "Größe 你"
    assert b"Gr\xf6\xdfe \\u4f60" in completed(tmp_path, "voices").stdout
    assert b"\\u2713 Python" in completed(tmp_path, "doctor").stdout


def test_doctor_prints_json_and_text(tmp_path: Path) -> None:
    result = completed(tmp_path, "doctor", "--json", settings={"PORT": "0"})
    checks = {check["name"]: check for check in json.loads(result.stdout)}
    assert result.returncode == (1 if "fail" in {c["verdict"] for c in checks.values()} else 0)
    assert {"Python", "packages", "engine", "port", "GPU", "clock", "voices folder"} <= set(checks)
    assert "verified weights" in checks["engine"]["finding"]
    assert all(check["cure"] for check in checks.values() if check["verdict"] != "ok")
    text = completed(tmp_path, "doctor").stdout.decode()
    assert [name for name in checks if f" {name}: " not in text] == []


def test_doctor_fails_where_voices_cannot_be_stored(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "voices")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = {"VOICES_DIR": folder, "PORT": str(taken.getsockname()[1])}
        result = completed(tmp_path, "doctor", "--json", settings=settings)
    verdicts = {check["name"]: check["verdict"] for check in json.loads(result.stdout)}
    assert result.returncode == 1
    assert (verdicts["voices folder"], verdicts["port"]) == ("fail", "warn")


def test_bench_prints_json_and_a_table(tmp_path: Path) -> None:
    figures = printed(completed(tmp_path, "bench", "--streams", "1,2", "--rounds", "1", "--json"))
    assert figures["engine"] == "lite"
    assert [row["streams"] for row in figures["rows"]] == [1, 2]
    assert [row["utterances"] for row in figures["rows"]] == [4, 8]
    assert all(
        0 < row["first_audio_p50_ms"] <= row["first_audio_p95_ms"] for row in figures["rows"]
    )
    assert all(0 < row["rtf"] < 1 for row in figures["rows"])
    table = completed(tmp_path, "bench", "--streams", "1", "--rounds", "1").stdout.decode()
    assert table.splitlines()[0].startswith("engine lite, ")
    assert table.splitlines()[1].split() == [
        "streams",
        "utterances",
        "p50",
        "ms",
        "p95",
        "ms",
        "RTF",
    ]
    assert table.splitlines()[2].split()[:2] == ["1", "4"]


def test_reader_of_a_list_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    result = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$@" | true', "bash", *command("voices")],
        capture_output=True,
        cwd=tmp_path,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
