"""A line on the terminal while something takes long; nothing in a pipe."""

from __future__ import annotations

import itertools
import sys
import threading
from types import TracebackType
from typing import Final, Self, TextIO

FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
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
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty() and not quiet
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def update(self, label: str) -> None:
        """Change the line."""
        self._label = label

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
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _spin(self) -> None:
        if self._stop.wait(DELAY_S):
            return
        for frame in itertools.cycle(FRAMES):
            self._stream.write(f"\r\x1b[K{frame} {self._label}")
            self._stream.flush()
            if self._stop.wait(PERIOD_S):
                return
