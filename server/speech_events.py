"""What speech gives out, for every transport: a start, then marks and audio, then an end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cosyvoice_stream.server.wire_replies import BookmarkTime, MouthTimes, VisemeTime, WordTime


@dataclass(frozen=True, slots=True)
class Started:
    """Comes first: what follows, and how to play it."""

    voice: str
    seed: int
    encoding: str
    sample_rate: int
    """Of the encoded audio, in hertz; every sample index below counts at this rate."""
    channels: int
    bytes_per_sample: int | None
    """None for compressed audio."""
    byte_order: str | None
    mime: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MarksOut:
    """Times of words and visemes whose audio follows."""

    words: tuple[WordTime, ...]
    visemes: tuple[VisemeTime, ...]
    bookmarks: tuple[BookmarkTime, ...] = ()
    mouth: MouthTimes | None = None


@dataclass(frozen=True, slots=True)
class WarningOut:
    """Something about the text, which is spoken all the same."""

    message: str
    char_start: int | None = None
    """Index of the first character that is meant, in the client's text."""
    char_end: int | None = None
    suggestion: str | None = None


@dataclass(frozen=True, slots=True)
class AudioOut:
    """A piece of encoded audio."""

    data: bytes
    """Empty only in the last one."""
    first_sample: int
    """Position of the piece; for compressed audio the samples that the encoder had been given."""
    end_sample: int
    """Position after the piece."""
    last: bool
    """No audio follows."""


@dataclass(frozen=True, slots=True)
class Done:
    """Comes last."""

    audio_ms: float
    first_audio_ms: float | None
    rtf: float | None
    characters: int


SpeechEvent: TypeAlias = Started | WarningOut | MarksOut | AudioOut | Done
