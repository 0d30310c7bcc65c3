"""One table from exceptions to what the outside sees of them."""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from cosyvoice_stream import errors


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """How one kind of error looks from outside."""

    code: str
    """Of docs/protocol.md."""
    http_status: int
    close_code: int
    """Of the WebSocket, where the error ends the connection (most do not)."""
    retryable: bool
    """Whether the same request may succeed later."""


INTERNAL: Final = ErrorKind("internal", HTTPStatus.INTERNAL_SERVER_ERROR, 1011, True)

# The first entry that fits counts, so subclasses stand before their bases.
_TABLE: Final[tuple[tuple[type[Exception], ErrorKind], ...]] = (
    (errors.InvalidMessage, ErrorKind("invalid_message", 400, 1008, False)),
    (errors.InvalidMarkup, ErrorKind("invalid_markup", 400, 1008, False)),
    (errors.InvalidState, ErrorKind("invalid_state", 409, 1008, False)),
    (errors.InvalidOption, ErrorKind("invalid_option", 400, 1008, False)),
    (errors.UnsupportedFormat, ErrorKind("unsupported_format", 415, 1008, False)),
    (errors.LimitExceeded, ErrorKind("limit_exceeded", 413, 1009, False)),
    (errors.VoiceNotFound, ErrorKind("voice_not_found", 404, 1008, False)),
    (errors.EnrolmentRejected, ErrorKind("voice_rejected", 422, 1008, False)),
    (errors.UnsupportedLanguage, ErrorKind("unsupported_language", 422, 1008, False)),
    (errors.EngineBusy, ErrorKind("busy", 429, 1013, True)),
    (errors.ShuttingDown, ErrorKind("shutting_down", 503, 1001, True)),
    (errors.SynthesisFailed, ErrorKind("synthesis_failed", 500, 1011, True)),
)


class DuplicateUtterance(errors.ProtocolError):
    """The id of a new utterance is in use."""

    how_to_fix = "choose another id, or wait for the end of the utterance"

    def __init__(self, utterance_id: str) -> None:
        super().__init__(f"the utterance {utterance_id!r} is live")


class UnknownUtterance(errors.ProtocolError):
    """No live utterance has this id."""

    def __init__(self, utterance_id: str) -> None:
        super().__init__(f"no live utterance has the id {utterance_id!r}")


class ConsentNotFound(errors.VoiceError):
    """A client names a recorded consent that does not exist, or is not its own."""

    how_to_fix = "list the consents with GET /v1/audio/voice_consents"

    def __init__(self) -> None:
        super().__init__("there is no such consent")


class ModelNotFound(errors.VoiceStreamError):
    """A client asks for a model, and no model has this name."""

    how_to_fix = "list the models with GET /v1/models"

    def __init__(self) -> None:
        super().__init__("there is no such model")


class SessionIdle(errors.VoiceStreamError):
    """Nothing has happened in a session for too long."""

    how_to_fix = "connect again when there is something to say"

    def __init__(self, idle_s: float) -> None:
        super().__init__(f"nothing was said or asked for {idle_s:g} s")


class SessionTooLong(errors.VoiceStreamError):
    """A session has lasted as long as the server allows."""

    how_to_fix = "connect again"

    def __init__(self, max_s: float) -> None:
        super().__init__(f"a session lasts at most {max_s:g} s")


class NotInstalled(errors.VoiceStreamError):
    """A part of the server needs a package that is not there.

    Args:
        what: Which part.
        extra: The extra of this package that brings it.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"this server has no {what}",
            how_to_fix=f"install it there: pip install 'cosyvoice-stream[{extra}]'",
        )


class UnknownCall(errors.VoiceStreamError):
    """There is no call of this id."""

    def __init__(
        self, how_to_fix: str = "begin a new one with POST /v1/webrtc/offer, /whep or /whip"
    ) -> None:
        super().__init__("there is no such call", how_to_fix=how_to_fix)


_OURS: Final[tuple[tuple[type[Exception], ErrorKind], ...]] = (
    (DuplicateUtterance, ErrorKind("duplicate_utterance", 409, 1008, False)),
    (UnknownUtterance, ErrorKind("unknown_utterance", 404, 1008, False)),
    (ConsentNotFound, ErrorKind("consent_not_found", 404, 1008, False)),
    (ModelNotFound, ErrorKind("model_not_found", 404, 1008, False)),
    (NotInstalled, ErrorKind("not_available", 501, 1008, False)),
    (UnknownCall, ErrorKind("unknown_call", 404, 1008, False)),
    (SessionIdle, ErrorKind("idle_timeout", 408, 1000, True)),
    (SessionTooLong, ErrorKind("session_too_long", 408, 1000, True)),
)


def error_kind(error: BaseException) -> ErrorKind:
    """Look up an exception; what is not in the table is our own fault."""
    for kind_of_error, kind in (*_OURS, *_TABLE):
        if isinstance(error, kind_of_error):
            return kind
    return INTERNAL


def http_status(error: BaseException) -> int:
    """The HTTP status of an exception."""
    return error_kind(error).http_status


def error_json(error: BaseException) -> dict[str, Any]:
    """What a client is told, on HTTP inside ``{"error": …}``.

    Returns:
        `code` and `message`, and where they apply `how_to_fix`, `retry_after_ms`, `reason` and
        `quality`. An internal error gives no details away.
    """
    kind = error_kind(error)
    if kind is INTERNAL or not isinstance(error, errors.VoiceStreamError):
        return {"code": kind.code, "message": "something went wrong in the server"}
    fields: dict[str, Any] = {"code": kind.code, "message": str(error)}
    if error.how_to_fix is not None:
        fields["how_to_fix"] = error.how_to_fix
    if isinstance(error, errors.EngineBusy):
        fields["retry_after_ms"] = round(error.retry_after_s * 1000)
    if isinstance(error, errors.EnrolmentRejected):
        fields["reason"] = error.reason
        fields["quality"] = error.quality
    return fields


def log_internal(log: logging.Logger | logging.LoggerAdapter[Any], error: BaseException) -> None:
    """Log an error that is our fault: kind and place, without its text.

    The text of a foreign exception may quote what a user wrote.
    """
    places = "".join(traceback.format_tb(error.__traceback__))
    log.error("unexpected %s\n%s", type(error).__name__, places.rstrip())
