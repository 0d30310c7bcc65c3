"""What ElevenLabs' clients ask for, as our settings: formats of audio, voices, voice settings."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from cosyvoice_stream.errors import UnsupportedFormat
from cosyvoice_stream.server.error_shapes import WrongField
from cosyvoice_stream.server.wire_settings import UtteranceSettings
from cosyvoice_stream.types import MAX_SEED, SPEED_RANGE

DEFAULT_FORMAT: Final = "mp3_44100_128"

PREMADE: Final = frozenset(
    voice.lower()
    for voice in (
        "21m00Tcm4TlvDq8ikWAM",
        "9BWtsMINqrJLrRacOk9x",
        "CwhRBWXzGAHq8TQ4Fs17",
        "EXAVITQu4vr4xnSDxMaL",
        "FGY2WhTYpPnrIDTdsKH5",
        "IKne3meq5aSn9XLyUdCD",
        "JBFqnCBsd6RMkjVDRZzb",
        "N2lVS1w4EtoT3dr4eOWO",
        "SAz9YHcvj6GT2YYXdXww",
        "TX3LPaxmHKxFdv7VOQHJ",
        "XB0fDUnXU5powFXDhCwa",
        "Xb7hH8MSUJpSbSDYk0k2",
        "XrExE9yKIg1WjnnlVkGX",
        "bIHbv24MWmeRgasZH58o",
        "cgSgspJ2msm6clMCkdW9",
        "cjVigY5qzO86Huf0OWal",
        "iP95p4xoKVk53GoZ742B",
        "nPczCjzI2devNBz1zQrb",
        "onwK4e9ZLuTAKqWW03F9",
        "pFZP5JQG7iQjIQuC4Bku",
        "pNInz6obpgDQGcFmaJgB",
        "pqHfZKP75CvOlQylNhV4",
    )
)
"""Ids of the voices that every account there has and that samples of code name."""

_ENCODING: Final = {
    "mp3": "mp3",
    "pcm": "pcm_s16le",
    "wav": "wav",
    "ulaw": "mulaw",
    "alaw": "alaw",
    "opus": "opus",
}
_FORMAT: Final = re.compile(r"(mp3|pcm|wav|ulaw|alaw|opus)_(\d{4,5})(?:_\d{1,3})?")


class VoiceSettings(BaseModel):
    """What changes the sound of a voice; the fields that are not here have no effect."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, hide_input_in_errors=True)

    speed: Annotated[float, Field(ge=0.25, le=4.0)] | None = None
    """Limited to what the engines can, 0.5 to 2."""


def output_changes(name: str) -> dict[str, Any]:
    """Return the `output` options for a format.

    Raises:
        WrongField: It is not available.
    """
    found = _FORMAT.fullmatch(name)
    output = {"encoding": _ENCODING[found[1]], "sample_rate": int(found[2])} if found else None
    try:
        if output is not None:
            UtteranceSettings().merged({"output": output})
            return output
    except UnsupportedFormat:
        pass
    raise WrongField(
        "output_format",
        "this output_format is not available",
        how_to_fix=f"use {DEFAULT_FORMAT}, pcm_24000, wav_24000, ulaw_8000 or opus_48000_64",
    )


def speech_changes(
    *,
    voice: str | None,
    output_format: str | None,
    language: str | None,
    seed: int | None,
    normalization: str | None,
    voice_settings: VoiceSettings | None,
) -> dict[str, Any]:
    """Return the options of an utterance, as `UtteranceSettings.merged` takes them.

    Raises:
        WrongField: The format is not available.
    """
    return {
        "voice": voice,
        "language": language or None,
        "seed": None if seed is None else seed % (MAX_SEED + 1),
        "speed": limited_speed(voice_settings.speed if voice_settings else None),
        "text": {"normalize": normalization != "off"},
        "output": output_changes(output_format or DEFAULT_FORMAT),
        "marks": ["word"],
    }


def limited_speed(asked: float | None) -> float:
    """The nearest speed that engines can speak at."""
    slowest, fastest = SPEED_RANGE
    return min(max(asked or 1.0, slowest), fastest)
