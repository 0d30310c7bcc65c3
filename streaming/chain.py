"""Several stages that read plain text one behind the other, as one stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from cosyvoice_stream.streaming.mapped_text import MappedText


class TextStage(Protocol):
    """Reads a text that comes in fragments and keeps the places of its characters."""

    def push(self, text: MappedText) -> list[MappedText]:
        """Append a fragment and take what no further text can change."""
        ...

    def flush(self) -> list[MappedText]:
        """End the text and take the rest. The next push starts a new text."""
        ...

    def break_here(self) -> list[MappedText]:
        """Take everything so far, as if the text ended here; the text goes on."""
        ...


class Chain:
    """Gives what a stage gives out to the next one.

    Args:
        stages: In order; without any, text passes unchanged.
    """

    def __init__(self, stages: Sequence[TextStage]) -> None:
        self._stages = tuple(stages)

    def push(self, text: MappedText) -> list[MappedText]:
        """Append a fragment and take what no further text can change."""
        texts = [text]
        for stage in self._stages:
            texts = [read for piece in texts for read in stage.push(piece)]
        return texts

    def flush(self) -> list[MappedText]:
        """End the text and take the rest. The next push starts a new text."""
        return self._end(lambda stage: stage.flush())

    def break_here(self) -> list[MappedText]:
        """Take everything so far, as if the text ended here; the text goes on."""
        return self._end(lambda stage: stage.break_here())

    def _end(self, rest: Callable[[TextStage], list[MappedText]]) -> list[MappedText]:
        texts: list[MappedText] = []
        for stage in self._stages:
            texts = [read for piece in texts for read in stage.push(piece)] + rest(stage)
        return texts
