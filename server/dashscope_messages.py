"""What DashScope's clients send on the socket of CosyVoice, and our settings for it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from cosyvoice_stream.server.wire_settings import OPUS_RATES, UtteranceSettings

_ENCODING: Final = {"mp3": "mp3", "wav": "wav", "pcm": "pcm_s16le", "opus": "opus"}
_RATE_HZ: Final = 22_050
_OPUS_RATE_HZ: Final = 24_000
_MAX_ID_CHARS: Final = 128
_UNITY: Final = 50
"""Their volume of 0 to 100, where nothing is changed."""
_PREMADE: Final = ("long", "loong")
"""How the names of the voices begin that the service has built in."""


class _FromClient(BaseModel):
    model_config = ConfigDict(
        extra="ignore", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class HotFix(_FromClient):
    """Readings of words, for one task."""

    pronunciation: list[dict[str, str]] = []
    replace: list[dict[str, str]] = []

    def lexicon(self) -> dict[str, str]:
        """Return word → reading."""
        entries = (*self.replace, *self.pronunciation)
        return {word: reading for entry in entries for word, reading in entry.items()}


class Parameters(_FromClient):
    """Parameters of a task; what is not here has no effect."""

    voice: Annotated[str, Field(max_length=128)] | None = None
    format: Literal["mp3", "wav", "pcm", "opus", "default"] = "mp3"
    sample_rate: int = 0
    """In hertz; 0 is the default."""
    volume: Annotated[int, Field(ge=0, le=100)] = _UNITY
    rate: Annotated[float, Field(ge=0.5, le=2.0)] = 1.0
    pitch: Annotated[float, Field(ge=0.5, le=2.0)] = 1.0
    """A factor."""
    seed: Annotated[int, Field(ge=0, le=65_535)] | None = None
    text_type: str | None = None
    enable_ssml: bool = False
    word_timestamp_enabled: bool = False
    instruction: Annotated[str, Field(max_length=2000)] | None = None
    language_hints: list[str] | None = None
    """Only the first one counts."""
    hot_fix: HotFix | None = None

    @field_validator("format", mode="before")
    @classmethod
    def _any_case(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    def options(self, aliases: Mapping[str, str]) -> dict[str, Any]:
        """Return the options of an utterance.

        Args:
            aliases: Other names of voices, in small letters.

        Raises:
            InvalidOption: A value is out of range.
            UnsupportedFormat: The format does not have this sample rate.
        """
        encoding = _ENCODING.get(self.format, "mp3")
        asked = (self.voice or "").strip().lower()
        voice = aliases.get(asked, None if _is_premade(asked) else self.voice)
        default = _RATE_HZ if encoding != "opus" or _RATE_HZ in OPUS_RATES else _OPUS_RATE_HZ
        options: dict[str, Any] = {
            "voice": voice,
            "speed": self.rate,
            "pitch": round(12 * math.log2(self.pitch), 3),
            "volume": self.volume / _UNITY,
            "seed": self.seed or None,
            "language": self.language_hints[0] if self.language_hints else None,
            "instruct": self.instruction or None,
            "output": {"encoding": encoding, "sample_rate": self.sample_rate or default},
            "marks": ["word"],
            "lexicon": self.hot_fix.lexicon() if self.hot_fix else {},
        }
        UtteranceSettings().merged(options)
        return options

    def is_ssml(self, text: str) -> bool:
        """Tell whether a text that begins so is SSML; clients allow it for all texts."""
        allowed = self.enable_ssml or (self.text_type or "").upper() == "SSML"
        return allowed and text.lstrip().startswith(("<speak", "<?xml"))


class Input(_FromClient):
    """Text, and what is to be done with it."""

    text: str | None = None
    flush: bool | None = None
    directive: str | None = None


class Payload(_FromClient):
    """What a command is about."""

    input: Input = Input()
    parameters: Parameters = Parameters()


class Header(_FromClient):
    """Which command, and of which task."""

    action: Literal["run-task", "continue-task", "finish-task"]
    task_id: Annotated[str, Field(min_length=1, max_length=_MAX_ID_CHARS)]
    streaming: str | None = None


class Command(_FromClient):
    """One text frame."""

    header: Header
    payload: Payload = Payload()


def task_of(frame: str | bytes) -> str:
    """Return the id of the task that a frame names, as far as it can be read; else nothing."""
    try:
        task_id = json.loads(frame)["header"]["task_id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return task_id[:_MAX_ID_CHARS] if isinstance(task_id, str) else ""


def _is_premade(voice: str) -> bool:
    return not voice or voice.startswith(_PREMADE)
