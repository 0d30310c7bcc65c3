"""Texts that are known beforehand, such as the menus of a telephone line, spoken at the start."""

from __future__ import annotations

import asyncio
import json
import logging
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosyvoice_stream.errors import ConfigError, EngineBusy, VoiceStreamError
from cosyvoice_stream.server.audio_cache import MAX_CHARS
from cosyvoice_stream.server.limits import Caller, Priority
from cosyvoice_stream.server.speech import SpeechService
from cosyvoice_stream.server.wire_requests import parse_speech
from cosyvoice_stream.server.wire_settings import UtteranceSettings

logger = logging.getLogger(__name__)

_FORM = "write a table [[prompt]] for each text, with `text` and options of POST /v1/speak"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One text and how it is spoken."""

    text: str
    settings: UtteranceSettings


def load_prompts(path: Path, defaults: UtteranceSettings) -> list[Prompt]:
    """Read a file of prompts.

    Args:
        path: A TOML file.
        defaults: The options that a prompt does not name.

    Raises:
        ConfigError: It cannot be read, or a prompt is wrong; the text says which one.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the prompts in {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise ConfigError(f"{path} is not a TOML file", how_to_fix=_FORM) from None
    tables = content.pop("prompt", [])
    if content or not isinstance(tables, list):
        raise ConfigError(f"{path} holds something else than prompts", how_to_fix=_FORM)
    return [_prompt(table, n, path, defaults) for n, table in enumerate(tables, 1)]


def _prompt(table: Any, number: int, path: Path, defaults: UtteranceSettings) -> Prompt:
    try:
        asked = parse_speech(json.dumps(table, default=str).encode())
        settings = defaults.merged(asked.changes())
    except VoiceStreamError as error:
        raise ConfigError(f"prompt {number} in {path}: {error}", how_to_fix=_FORM) from None
    if len(asked.text) > MAX_CHARS:
        raise ConfigError(f"prompt {number} in {path} has more than {MAX_CHARS} characters")
    return Prompt(asked.text, settings)


async def speak_prompts(speech: SpeechService, prompts: Sequence[Prompt]) -> None:
    """Speak each prompt once, in the background, for the cache to keep; log what fails."""
    for number, prompt in enumerate(prompts, 1):
        try:
            await _speak(speech, prompt)
        except VoiceStreamError as error:
            logger.warning("prompt %d cannot be spoken: %s", number, error)
    kept = 0 if speech.cache is None else speech.cache.pinned
    logger.info("%d of %d prompts are kept", kept, len(prompts))


async def _speak(speech: SpeechService, prompt: Prompt) -> None:
    caller = Caller(priority=Priority.BACKGROUND)
    while True:
        try:
            async with speech.speak(
                prompt.text, prompt.settings, caller=caller, pinned=True
            ) as events:
                async for _ in events:
                    pass
        except EngineBusy as busy:
            await asyncio.sleep(busy.retry_after_s)
        else:
            return
