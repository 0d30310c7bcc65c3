"""What the commands about voices return and show; the engine is a fake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosyvoice_stream.errors import ConfigError, UnsupportedFormat, VoiceNotFound
from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server import voice_commands
from cosyvoice_stream.server.voice_commands import (
    print_enrolment,
    print_voices,
    run_delete,
    run_enrol,
    run_list,
    run_show,
)
from support.recordings import RATE, REFERENCES, encode, silence

pytestmark = pytest.mark.unit

RECORDING = REFERENCES / "flite_rms_male.wav"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COSYVOICE_STREAM_VOICES_DIR", str(tmp_path / "voices"))
    monkeypatch.setattr(voice_commands, "build_engine", lambda _: FakeEngine())


def enrol(recording: Path, **options: Any) -> dict[str, Any]:
    defaults = {"quiet": True, "check": False, "name": None, "transcript": None, "consent": None}
    return run_enrol(recording, **(defaults | options))


def test_voice_is_made_listed_shown_and_deleted() -> None:
    made = enrol(RECORDING, transcript="The ferry.", consent="Yes.")
    voice_id = made["voice"]["id"]
    assert made["voice"]["name"] == "flite_rms_male"
    assert [voice["id"] for voice in run_list()] == ["beep", "boop", voice_id]
    assert run_show(voice_id)["consent"] == "Yes."
    run_delete(voice_id)
    with pytest.raises(VoiceNotFound):
        run_show(voice_id)
    with pytest.raises(VoiceNotFound):
        run_delete(voice_id)


def test_check_stores_nothing() -> None:
    judged = enrol(RECORDING, check=True)
    assert judged["voice"] is None
    assert judged["quality"]["items"]
    assert len(run_list()) == 2


@pytest.mark.parametrize("check", [True, False])
def test_rejection_is_a_result(tmp_path: Path, check: bool) -> None:
    path = tmp_path / "silent.wav"
    path.write_bytes(encode(silence(5), RATE, "wav", "pcm_s16le"))
    result = enrol(path, check=check)
    assert (result["rejected"], result["reason"]) == (True, "no_speech")
    assert result["how_to_fix"]
    assert len(run_list()) == 2


def test_files_that_are_no_recordings_are_errors(tmp_path: Path) -> None:
    text = tmp_path / "text.wav"
    text.write_text("not audio")
    with pytest.raises(UnsupportedFormat):
        enrol(text)
    for wrong in (tmp_path, tmp_path / "missing.wav"):
        with pytest.raises(ConfigError, match="there is no file"):
            enrol(wrong)


def test_findings_come_with_advice_where_they_are_not_fine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    items = [
        {"item": "length", "verdict": "ok", "value": 4.2, "unit": "s", "advice": "none needed"},
        {"item": "noise", "verdict": "warn", "value": 12, "unit": "dB", "advice": "find a room"},
        {"item": "speech", "verdict": "fail", "value": None, "unit": None, "advice": "speak"},
    ]
    rejected = {"rejected": True, "reason": "no_speech", "message": "m", "how_to_fix": "f"}
    print_enrolment({"quality": {"items": items}} | rejected)
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "✓ length 4.2 s",
        "! noise 12 dB",
        "    find a room",
        "✗ speech",
        "    speak",
    ]
    assert printed.err.splitlines() == ["error: no_speech: m", "fix: f"]


def test_list_shows_kind_and_length(capsys: pytest.CaptureFixture[str]) -> None:
    print_voices(
        [
            {"id": "a", "name": "A", "kind": "builtin", "duration_ms": None},
            {"id": "long-id", "name": "B", "kind": "adapted", "duration_ms": 4210},
        ]
    )
    print_voices([])
    assert capsys.readouterr().out == "a        A (builtin)\nlong-id  B (adapted, 4.2 s)\n"
