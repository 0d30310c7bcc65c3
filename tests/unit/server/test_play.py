"""Players: real programs that read a pipe, found on a path of the test's own."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.server import play
from cosyvoice_stream.server.play import PROGRAMS, find_player, open_player
from cosyvoice_stream.streaming import pcm

pytestmark = pytest.mark.unit

SAMPLES = np.linspace(-0.5, 0.5, 1000, dtype=np.float32)


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "_sounddevice", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\ncd {folder}\n{text}\n")
    path.chmod(0o755)


def test_machine_without_a_player_says_how_to_get_one() -> None:
    assert find_player() is None
    with pytest.raises(ConfigError, match="no audio player") as refused:
        open_player(24_000)
    assert "cosyvoice-stream[play]" in (refused.value.how_to_fix or "")


@pytest.mark.parametrize("name", [item.name for item in PROGRAMS])
def test_program_gets_the_rate_and_every_sample(tmp_path: Path, name: str) -> None:
    program(tmp_path, name, 'echo "$@" > arguments; cat > heard')
    assert find_player() == name
    player = open_player(22_050)
    player.write(SAMPLES[:300])
    player.write(SAMPLES[300:])
    player.finish()
    assert (tmp_path / "heard").read_bytes() == pcm.to_s16le(SAMPLES)
    assert "22050" in (tmp_path / "arguments").read_text()


def test_first_of_several_players_is_used(tmp_path: Path) -> None:
    for item in PROGRAMS:
        program(tmp_path, item.name, "cat > /dev/null")
    assert find_player() == PROGRAMS[0].name


def test_player_that_ends_early_is_an_error_with_a_cure(tmp_path: Path) -> None:
    program(tmp_path, "aplay", "exit 1")
    player = open_player(24_000)
    player._process.wait()  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="aplay stopped playing") as refused:
        player.write(np.zeros(100_000, np.float32))
    assert refused.value.how_to_fix
    player.stop()


def test_player_that_fails_at_the_end_is_an_error(tmp_path: Path) -> None:
    program(tmp_path, "aplay", "cat > /dev/null; exit 3")
    player = open_player(24_000)
    player.write(SAMPLES)
    with pytest.raises(ConfigError, match="aplay stopped playing"):
        player.finish()


def test_stop_silences_a_player_that_still_plays(tmp_path: Path) -> None:
    program(tmp_path, "aplay", "echo $$ > pid; exec sleep 1000")
    player = open_player(24_000)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        pass
    player.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_sound_device_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    class Stream:
        def __init__(self, **options: object) -> None:
            calls.append(options["samplerate"])

        def __getattr__(self, name: str):
            return lambda *arguments: calls.append((name, *(a.shape for a in arguments)))

    monkeypatch.setattr(play, "_sounddevice", lambda: SimpleNamespace(OutputStream=Stream))
    assert find_player() == "sounddevice"
    player = open_player(24_000)
    player.write(SAMPLES)
    player.finish()
    assert calls == [24_000, ("start",), ("write", (1000, 1)), ("stop",), ("close",)]
    calls.clear()
    open_player(8000).stop()
    assert calls == [8000, ("start",), ("abort",), ("close",)]
