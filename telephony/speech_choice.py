"""What does the caller want? A webhook, or an OpenAI-compatible endpoint, is given the choices."""

from __future__ import annotations

import base64
import io
import json
import logging
import os
import wave
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import httpx

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.telephony.line import pcm_to_s16le
from cosyvoice_stream.telephony.menu import OpenAi, Webhook
from cosyvoice_stream.telephony.turns import RATE_HZ, Turn

logger = logging.getLogger(__name__)

_MAX_ANSWER_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Question:
    """What a caller said, and what it may mean."""

    step: str
    language: str | None
    choices: Mapping[str, str]
    """Name of a choice → what a caller may want there, in words."""
    turn: Turn


class Chooser(Protocol):
    """Understands callers."""

    async def choose(self, question: Question) -> str | None:
        """The name of a choice, or None: it was not understood, or nobody answered in time."""
        ...


def make_chooser(settings: Webhook | OpenAi, client: httpx.AsyncClient) -> Chooser:
    """Make the one that a menu names.

    Raises:
        ConfigError: The variable that holds its key is not set.
    """
    if isinstance(settings, Webhook):
        return _WebhookChooser(settings, client)
    return _OpenAiChooser(settings, client)


def wav_of(turn: Turn) -> bytes:
    """A turn as a WAV file: 16-bit mono at 16 kHz."""
    target = io.BytesIO()
    with wave.open(target, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(pcm_to_s16le(turn.samples))
    return target.getvalue()


class _WebhookChooser:
    def __init__(self, settings: Webhook, client: httpx.AsyncClient) -> None:
        self._settings = settings
        self._client = client

    async def choose(self, question: Question) -> str | None:
        body = {
            "step": question.step,
            "language": question.language,
            "choices": dict(question.choices),
            "audio": {
                "encoding": "wav",
                "sample_rate": RATE_HZ,
                "data": base64.b64encode(wav_of(question.turn)).decode(),
            },
        }
        answer = await _post(
            self._client, self._settings.webhook, self._settings.timeout_s, json=body
        )
        return _known(answer.get("choice"), question)


class _OpenAiChooser:
    def __init__(self, settings: OpenAi, client: httpx.AsyncClient) -> None:
        self._settings = settings
        self._client = client
        self._headers = {}
        if (name := settings.key_variable) is not None:
            if not os.environ.get(name):
                raise ConfigError(f"the environment variable {name} holds no key for `speech`")
            self._headers = {"Authorization": f"Bearer {os.environ[name]}"}

    async def choose(self, question: Question) -> str | None:
        heard = await self._ask(
            "audio/transcriptions",
            files={"file": ("turn.wav", wav_of(question.turn), "audio/wav")},
            data={"model": self._settings.transcribe_model, "response_format": "json"}
            | ({"language": question.language} if question.language else {}),
        )
        text = heard.get("text")
        if not isinstance(text, str) or not text.strip():
            return None
        answer = await self._ask("chat/completions", json=self._request(text, question))
        try:
            call = answer["choices"][0]["message"]["tool_calls"][0]["function"]
            return _known(json.loads(call["arguments"]).get("choice"), question)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            return None

    def _request(self, text: str, question: Question) -> dict[str, Any]:
        listed = "\n".join(f"{name}: {wish}" for name, wish in question.choices.items())
        return {
            "model": self._settings.model,
            "temperature": 0,
            "messages": [
                {
                    "role": "system",
                    "content": "A caller of a telephone menu says what they want. Pick the "
                    f"choice that fits, or none.\n{listed}\nnone: nothing of this fits",
                },
                {"role": "user", "content": text},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "choose",
                        "description": "Follow the caller's wish.",
                        "parameters": {
                            "type": "object",
                            "properties": {
                                "choice": {
                                    "type": "string",
                                    "enum": [*question.choices, "none"],
                                }
                            },
                            "required": ["choice"],
                        },
                    },
                }
            ],
            "tool_choice": {"type": "function", "function": {"name": "choose"}},
        }

    async def _ask(self, path: str, **body: Any) -> dict[str, Any]:
        return await _post(
            self._client,
            f"{self._settings.openai.rstrip('/')}/{path}",
            self._settings.timeout_s,
            headers=self._headers,
            **body,
        )


def _known(choice: object, question: Question) -> str | None:
    return choice if isinstance(choice, str) and choice in question.choices else None


async def _post(
    client: httpx.AsyncClient, url: str, timeout_s: float, **body: Any
) -> dict[str, Any]:
    """The JSON object that is answered; an empty one where there is none."""
    try:
        async with client.stream("POST", url, timeout=timeout_s, **body) as response:
            response.raise_for_status()
            data = bytearray()
            async for piece in response.aiter_bytes():
                data += piece
                if len(data) > _MAX_ANSWER_BYTES:
                    raise ValueError("the answer is too long")
        answer = json.loads(data)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        # Its text may quote what the caller said.
        logger.warning("nobody understood a caller: %s", type(error).__name__)
        return {}
    return answer if isinstance(answer, dict) else {}
