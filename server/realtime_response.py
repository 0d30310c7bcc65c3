"""One response of the Realtime API: an utterance, and the events around it."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from cosyvoice_stream.errors import PeerGone, VoiceStreamError
from cosyvoice_stream.server.counted_speech import CountedSpeech
from cosyvoice_stream.server.error_map import error_json, http_status, log_internal
from cosyvoice_stream.server.error_shapes import openai_error
from cosyvoice_stream.server.limits import Caller
from cosyvoice_stream.server.openai_speech import OUTPUT_TOKENS_PER_S, VOICES
from cosyvoice_stream.server.realtime_events import FORMATS, SpeechConfig
from cosyvoice_stream.server.realtime_items import Item, new_id
from cosyvoice_stream.server.services import Services
from cosyvoice_stream.server.speech import AudioOut, MarksOut
from cosyvoice_stream.server.voice_names import find_voice
from cosyvoice_stream.server.wire_settings import UtteranceSettings
from cosyvoice_stream.types import SPEED_RANGE, Feature

logger = logging.getLogger(__name__)

SendEvent = Callable[..., Awaitable[None]]
"""Takes the type of an event and its fields."""

_DETAILS: Final[dict[str, Any]] = {
    "completed": None,
    "cancelled": {"type": "cancelled", "reason": "client_cancelled"},
}


@dataclass(frozen=True, slots=True)
class Wish:
    """What a response is asked for."""

    text: str
    config: SpeechConfig
    metadata: dict[str, str] | None
    conversation_id: str | None
    """None where the answer does not become part of the conversation."""


class Response:
    """Speaks one text. Cancelling the task of `run` cancels the response.

    Args:
        services: Of the application.
        caller: Whose limits count.
        wish: What to say, and how.
        add: Makes the answer part of the conversation; returns the id of the item before it.
        send: Sends an event.
    """

    def __init__(
        self,
        services: Services,
        caller: Caller,
        wish: Wish,
        add: Callable[[Item], str | None],
        send: SendEvent,
    ) -> None:
        self.response_id = new_id("resp")
        self._services = services
        self._caller = caller
        self._wish = wish
        self._add = add
        self._send = send
        self._item = Item(new_id("item"), "assistant", "", spoken=True, answer=True)
        self._item.status = "in_progress"
        self._before: str | None = None
        self._place = {
            "response_id": self.response_id,
            "item_id": self._item.item_id,
            "output_index": 0,
            "content_index": 0,
        }

    async def run(self) -> None:
        """Send everything from ``response.created`` to ``response.done``."""
        status, details = "completed", None
        try:
            await self._begin()
            await self._speak()
        except asyncio.CancelledError:
            status = "cancelled"
            details = _DETAILS[status]
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
        except PeerGone:
            raise
        except Exception as error:
            if not isinstance(error, VoiceStreamError):
                log_internal(logger, error)
            fields = error_json(error)
            self._services.metrics.refused(fields["code"])
            shaped = openai_error(http_status(error), fields, error)["error"]
            status, details = "failed", {"type": "failed", "error": shaped}
        await self._end(status, details)

    async def _begin(self) -> None:
        await self._send("response.created", response=self._json("in_progress", None, []))
        item = {**self._item.to_json(), "content": []}
        await self._send(
            "response.output_item.added", response_id=self.response_id, output_index=0, item=item
        )
        if self._wish.conversation_id is not None:
            self._before = self._add(self._item)
            await self._send("conversation.item.added", previous_item_id=self._before, item=item)
        part = {"type": "audio", "transcript": ""}
        await self._send("response.content_part.added", **self._place, part=part)

    async def _speak(self) -> None:
        wish, info = self._wish, self._services.engine.info
        slowest, fastest = SPEED_RANGE
        encoding, rate = FORMATS[wish.config.format]
        timed = Feature.WORD_TIMES in info.features
        settings = UtteranceSettings().merged(
            {
                "voice": await find_voice(self._services, wish.config.voice, VOICES),
                "instruct": wish.config.instructions or None,
                "speed": min(max(wish.config.speed, slowest), fastest),
                "output": {"encoding": encoding, "sample_rate": rate},
                "marks": ["word"] if timed else [],
            }
        )
        async with CountedSpeech(self._services, wish.text, settings, self._caller) as speech:
            if not timed:
                await self._transcribe(len(wish.text))
            async for event in speech:
                if isinstance(event, MarksOut) and event.words:
                    self._item.words += event.words
                    await self._transcribe(event.words[-1].char_end)
                elif isinstance(event, AudioOut) and event.data:
                    data = base64.b64encode(event.data).decode("ascii")
                    await self._send("response.output_audio.delta", **self._place, delta=data)
                    self._item.audio_ms = event.end_sample * 1000 / rate
        await self._transcribe(len(wish.text))

    async def _transcribe(self, end: int) -> None:
        """Send the text up to a character, as far as it was not sent."""
        delta = self._wish.text[len(self._item.text) : end]
        if delta:
            self._item.text += delta
            kind = "response.output_audio_transcript.delta"
            await self._send(kind, **self._place, delta=delta)

    async def _end(self, status: str, details: dict[str, Any] | None) -> None:
        item, place, transcript = self._item, self._place, self._item.text
        item.status = "completed" if status == "completed" else "incomplete"
        await self._send("response.output_audio.done", **place)
        await self._send("response.output_audio_transcript.done", **place, transcript=transcript)
        part = {"type": "audio", "transcript": transcript}
        await self._send("response.content_part.done", **place, part=part)
        done = item.to_json()
        await self._send(
            "response.output_item.done", response_id=self.response_id, output_index=0, item=done
        )
        if self._wish.conversation_id is not None:
            await self._send("conversation.item.done", previous_item_id=self._before, item=done)
        await self._send("response.done", response=self._json(status, details, [done]))

    def _json(
        self, status: str, details: dict[str, Any] | None, output: list[dict[str, Any]]
    ) -> dict[str, Any]:
        config = self._wish.config
        return {
            "id": self.response_id,
            "object": "realtime.response",
            "status": status,
            "status_details": details,
            "output": output,
            "conversation_id": self._wish.conversation_id,
            "output_modalities": ["audio"],
            "max_output_tokens": "inf",
            "audio": {"output": config.to_json()["output"]},
            "metadata": self._wish.metadata,
            "usage": None if status == "in_progress" else self._usage(),
        }

    def _usage(self) -> dict[str, Any]:
        """Count characters and speech tokens: nothing is billed, but clients read it."""
        read = len(self._wish.text)
        spoken = round(self._item.audio_ms * OUTPUT_TOKENS_PER_S / 1000)
        return {
            "total_tokens": read + spoken,
            "input_tokens": read,
            "output_tokens": spoken,
            "input_token_details": {"text_tokens": read, "audio_tokens": 0, "cached_tokens": 0},
            "output_token_details": {"text_tokens": 0, "audio_tokens": spoken},
        }
