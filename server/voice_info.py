"""What clients say about recordings and are told about voices."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from cosyvoice_stream.errors import LimitExceeded

MAX_NAME_CHARS: Final = 80
MAX_TRANSCRIPT_CHARS: Final = 1_000
MAX_CONSENT_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class EnrolRequest:
    """What a client says about a recording."""

    name: str | None = None
    transcript: str | None = None
    consent: str | None = None
    """The speaker's statement of consent."""
    persist: bool = True
    """Store the voice; otherwise it lives in memory until it is deleted or displaced."""
    owner: str | None = None
    """`key_name` of the key that asks for it, for the limit of each key."""

    def checked(self) -> EnrolRequest:
        """Return the request without control characters and outer spaces in its texts.

        Raises:
            LimitExceeded: A text is too long.
        """
        for what, text, limit in (
            ("characters in the name of a voice", self.name, MAX_NAME_CHARS),
            ("characters in a transcript", self.transcript, MAX_TRANSCRIPT_CHARS),
            ("characters in a consent statement", self.consent, MAX_CONSENT_CHARS),
        ):
            if text is not None and len(text) > limit:
                raise LimitExceeded(what, limit, len(text))
        return replace(
            self,
            name=_clean(self.name),
            transcript=_clean(self.transcript),
            consent=_clean(self.consent),
        )


@dataclass(frozen=True, slots=True)
class VoiceInfo:
    """``VOICE`` of docs/protocol.md."""

    voice_id: str
    name: str
    kind: Literal["builtin", "adapted", "cloned"]
    engine: str
    created_at: str | None = None
    duration_ms: int | None = None
    transcript: str | None = None
    consent: str | None = None
    persistent: bool | None = None
    quality: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "id": self.voice_id,
            "name": self.name,
            "kind": self.kind,
            "engine": self.engine,
            "created_at": self.created_at,
            "duration_ms": self.duration_ms,
            "transcript": self.transcript,
            "consent": self.consent,
            "persistent": self.persistent,
            "quality": self.quality,
        }


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A voice that was made, and what the speaker should know about the recording."""

    voice: VoiceInfo
    quality: dict[str, Any]
    warnings: list[str]
    transcript: str | None


def _clean(text: str | None) -> str | None:
    """Return the text without control characters and outer spaces, None if nothing is left."""
    if text is None:
        return None
    kept = "".join(
        " " if char.isspace() else char
        for char in text
        if char.isspace() or unicodedata.category(char)[0] != "C"
    )
    return kept.strip() or None
