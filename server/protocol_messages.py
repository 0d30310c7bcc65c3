"""What the session protocol says about an utterance, made from what speech and errors say."""

from __future__ import annotations

from typing import Final

from cosyvoice_stream.server.error_map import error_json
from cosyvoice_stream.server.speech_events import Done, Started, WarningOut
from cosyvoice_stream.server.utterance import Utterance
from cosyvoice_stream.server.wire_replies import (
    ErrorMessage,
    UtteranceCancelled,
    UtteranceDone,
    UtteranceStarted,
    UtteranceWarning,
)

NOTHING_CANCELLED: Final = UtteranceCancelled(
    id=None, sent_ms=0, played_ms=0, played_estimated=False, spoken_text=""
)
"""The answer to a cancel of all while nothing is live."""


def started_message(utterance: Utterance, started: Started) -> UtteranceStarted:
    """What follows."""
    return UtteranceStarted(
        id=utterance.id,
        number=utterance.number,
        voice=started.voice,
        seed=started.seed,
        encoding=started.encoding,
        sample_rate=started.sample_rate,
        channels=started.channels,
        bytes_per_sample=started.bytes_per_sample,
        byte_order=started.byte_order,
        mime=started.mime,
        warnings=list(started.warnings),
    )


def warning_message(utterance: Utterance, warning: WarningOut) -> UtteranceWarning:
    """Something about the text."""
    return UtteranceWarning(
        id=utterance.id,
        message=warning.message,
        char_start=warning.char_start,
        char_end=warning.char_end,
        suggestion=warning.suggestion,
    )


def done_message(utterance: Utterance, done: Done) -> UtteranceDone:
    """The figures of a complete utterance."""
    return UtteranceDone(
        id=utterance.id,
        audio_ms=done.audio_ms,
        first_audio_ms=done.first_audio_ms,
        rtf=done.rtf,
        characters=done.characters,
    )


def error_message(
    error: BaseException, utterance_id: str | None, request_id: str | None = None
) -> ErrorMessage:
    """What a client is told of an exception."""
    fields = error_json(error)
    return ErrorMessage(
        id=utterance_id,
        request_id=request_id,
        code=fields["code"],
        message=fields["message"],
        how_to_fix=fields.get("how_to_fix"),
        retry_after_ms=fields.get("retry_after_ms"),
    )
