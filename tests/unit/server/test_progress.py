"""The line on a terminal."""

from __future__ import annotations

import io
import threading

import pytest

from cosyvoice_stream.server import progress
from cosyvoice_stream.server.progress import CLEAR_LINE, Progress

pytestmark = pytest.mark.unit


class Terminal(io.StringIO):
    """Notes when something is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        self.shown.set()
        return written


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY_S", 0.0)
    monkeypatch.setattr(progress, "PERIOD_S", 0.001)


@pytest.mark.usefixtures("at_once")
def test_line_is_shown_changed_and_removed() -> None:
    terminal = Terminal()
    with Progress("loading", stream=terminal) as line:
        assert terminal.shown.wait(5)
        line.update("speaking")
        while "speaking" not in terminal.getvalue():
            pass
    assert terminal.getvalue().startswith(f"{CLEAR_LINE}⠋ loading")
    assert terminal.getvalue().endswith(CLEAR_LINE)


@pytest.mark.usefixtures("at_once")
def test_note_stands_on_a_line_of_its_own() -> None:
    terminal = Terminal()
    with Progress("loading", stream=terminal) as line:
        assert terminal.shown.wait(5)
        line.note("note: quiet recording")
    assert f"{CLEAR_LINE}note: quiet recording\n" in terminal.getvalue()


def test_fast_work_shows_nothing() -> None:
    terminal = Terminal()
    with Progress("loading", stream=terminal):
        pass
    assert terminal.getvalue() == ""


@pytest.mark.usefixtures("at_once")
def test_pipe_gets_notes_only() -> None:
    pipe = io.StringIO()
    with Progress("loading", stream=pipe) as line:
        line.update("speaking")
        line.note("note: quiet recording")
    assert pipe.getvalue() == "note: quiet recording\n"


def test_quiet_shows_nothing() -> None:
    terminal = Terminal()
    with Progress("loading", quiet=True, stream=terminal) as line:
        line.note("note: quiet recording")
    assert terminal.getvalue() == ""


@pytest.mark.usefixtures("at_once")
def test_terminal_that_goes_away_is_no_error() -> None:
    terminal = Terminal()
    with Progress("loading", stream=terminal) as line:
        assert terminal.shown.wait(5)
        terminal.close()
        line.note("unseen")
