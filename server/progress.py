"""A line on the terminal while something takes long; nothing in a pipe."""

from __future__ import annotations

import itertools
import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, TextIO

FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
CLEAR_LINE: Final = "\r\x1b[K"
PERIOD_S: Final = 0.1
DELAY_S: Final = 0.3
"""What is faster than this shows no line."""


class Progress:
    """Shows what is going on until it is left; use it as a context manager.

    Args:
        label: What takes long, such as "loading the engine".
        quiet: Show nothing.
        stream: Where to; standard error by default. Nothing is written unless it is a terminal.
    """

    def __init__(self, label: str, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._label = label
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self._shown = self._stream is not None and self._stream.isatty() and not quiet
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._on_screen = False
        self._thread: threading.Thread | None = None

    def update(self, label: str) -> None:
        """Change the line."""
        self._label = label

    def note(self, text: str) -> None:
        """Print a line that stays; nothing when quiet."""
        if self._quiet or self._stream is None:
            return
        with self._lock:
            self._clear()
            self._write(f"{text}\n")

    def __enter__(self) -> Self:
        if self._shown:
            self._thread = threading.Thread(
                target=self._spin, name="cosyvoice-progress", daemon=True
            )
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._clear()

    def _spin(self) -> None:
        if self._stop.wait(DELAY_S):
            return
        for frame in itertools.cycle(FRAMES):
            with self._lock:
                self._write(f"{CLEAR_LINE}{frame} {self._label}")
                self._on_screen = True
            if self._stop.wait(PERIOD_S):
                return

    def _clear(self) -> None:
        if self._on_screen:
            self._write(CLEAR_LINE)
            self._on_screen = False

    def _write(self, text: str) -> None:
        # A terminal that has been closed is no reason to stop.
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
