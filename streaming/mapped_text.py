"""A string that knows which characters of another string each of its characters stands for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import overload


@dataclass(frozen=True, slots=True)
class MappedText:
    """A text made from a source: character i came from ``source[starts[i]:ends[i]]``.

    A character that was put in has an empty span where it was put. Both tuples never decrease.
    """

    text: str
    starts: tuple[int, ...]
    """Index of the first source character of each character."""
    ends: tuple[int, ...]
    """Index after the last source character of each character."""

    def __post_init__(self) -> None:
        if not len(self.text) == len(self.starts) == len(self.ends):
            raise ValueError("text, starts and ends must have one entry for each character")

    @classmethod
    def of(cls, text: str, offset: int = 0) -> MappedText:
        """Map a text onto itself.

        Args:
            text: A piece of the source.
            offset: Index of its first character in the source.
        """
        first, last = offset, offset + len(text)
        return cls(text, tuple(range(first, last)), tuple(range(first + 1, last + 1)))

    @classmethod
    def standing_for(cls, text: str, start: int, end: int) -> MappedText:
        """Map every character of a text onto one span of the source."""
        return cls(text, (start,) * len(text), (end,) * len(text))

    @classmethod
    def join(cls, parts: Iterable[MappedText]) -> MappedText:
        """Concatenate texts in time linear in their length."""
        texts: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        for part in parts:
            texts.append(part.text)
            starts.extend(part.starts)
            ends.extend(part.ends)
        return cls("".join(texts), tuple(starts), tuple(ends))

    def __len__(self) -> int:
        return len(self.text)

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: MappedText) -> MappedText:
        return MappedText(
            self.text + other.text, self.starts + other.starts, self.ends + other.ends
        )

    @overload
    def __getitem__(self, index: slice) -> MappedText: ...
    @overload
    def __getitem__(self, index: int) -> MappedText: ...
    def __getitem__(self, index: slice | int) -> MappedText:
        if isinstance(index, int):
            at = range(len(self.text))[index]
            index = slice(at, at + 1)
        elif index.step not in (None, 1):
            raise ValueError("a slice of mapped text cannot have a step")
        return MappedText(self.text[index], self.starts[index], self.ends[index])

    def replace(self, start: int, end: int, text: str) -> MappedText:
        """Put `text` in place of the characters from `start` to `end`.

        Every new character stands for the whole source span of what it replaces; in an empty range
        it stands for nothing, at that place.
        """
        source_start, source_end = self.source_span(start, end)
        new = MappedText.standing_for(text, source_start, source_end)
        return self[:start] + new + self[end:]

    def source_span(self, start: int, end: int) -> tuple[int, int]:
        """Give the span of the source that the characters from `start` to `end` stand for.

        An empty range has an empty span: after the character before it, or else before the
        character behind it, or (0, 0) in an empty text.

        Raises:
            IndexError: The range is not within the text.
        """
        if not 0 <= start <= end <= len(self.text):
            raise IndexError("range outside of the text")
        if start < end:
            return self.starts[start], self.ends[end - 1]
        if start > 0:
            return self.ends[start - 1], self.ends[start - 1]
        return (self.starts[0], self.starts[0]) if self.starts else (0, 0)
