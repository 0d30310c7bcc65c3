"""How errors look to clients of other APIs: the same facts, in the shape and status of the path.

Errors leave the server in three places: the exception handlers, the refusals of the middleware, and
denied WebSocket handshakes. All of them ask here, so that an adapter has no error handling of its
own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cosyvoice_stream import errors

Fields = Mapping[str, Any]
"""`error_json` of an error."""


class WrongField(errors.InvalidMessage):
    """A field of a request is missing or wrong.

    Args:
        field: Its name.
        message: One sentence for a person.
        how_to_fix: What the caller can do.
        missing: It is not there at all.
    """

    def __init__(
        self, field: str, message: str, *, how_to_fix: str | None = None, missing: bool = False
    ) -> None:
        super().__init__(message, how_to_fix=how_to_fix)
        self.field = field
        self.missing = missing


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error on its way out."""

    path: str
    """Of the request."""
    status: int
    """What it is on our own paths."""
    fields: Fields
    error: BaseException | None = None
    """The exception, where there is one."""

    @property
    def code(self) -> str:
        """Of docs/protocol.md."""
        return str(self.fields["code"])


Shape = Callable[[Refusal], tuple[int, dict[str, Any]]]
"""What one API makes of an error: HTTP status and JSON body."""


def shaped(
    path: str, status: int, fields: Fields, error: BaseException | None = None
) -> tuple[int, dict[str, Any]]:
    """Put an error into the shape that clients of a path expect.

    Args:
        path: Of the request.
        status: What the error is on our own paths.
        fields: Its `error_json`.
        error: The exception, where there is one.

    Returns:
        HTTP status and JSON body.
    """
    for prefixes, shape in _SHAPES:
        if path.startswith(prefixes):
            return shape(Refusal(path, status, fields, error))
    return status, {"error": dict(fields)}


def sentence(fields: Fields) -> str:
    """What is wrong and what helps, for APIs that have one text only."""
    how_to_fix = fields.get("how_to_fix")
    return f"{fields['message']}; {how_to_fix}" if how_to_fix else str(fields["message"])


def wrong_field(error: BaseException | None) -> str | None:
    """Name the field that an error is about, where it is about one."""
    if isinstance(error, WrongField):
        return error.field
    if isinstance(error, errors.InvalidOption):
        return error.option
    return "voice" if isinstance(error, errors.VoiceNotFound) else None


def openai_error(status: int, fields: Fields, error: BaseException | None = None) -> dict[str, Any]:
    """Return an error as the OpenAI API has it: ``{"error": {message, type, param, code}}``."""
    kind = "invalid_request_error"
    if status == 429:
        kind = "rate_limit_error"
    elif status >= 500:
        kind = "server_error"
    code = "invalid_api_key" if status == 401 else fields["code"]
    named = {"type": kind, "param": wrong_field(error), "code": code}
    return {"error": {"message": sentence(fields), **named}}


def _openai(refusal: Refusal) -> tuple[int, dict[str, Any]]:
    """What is wrong with a request is a 400 there; 404 is for things that a path names."""
    status = 400 if refusal.status in _UNFIT else refusal.status
    if refusal.code == "voice_not_found" and refusal.path == "/v1/audio/speech":
        status = 400
    return status, openai_error(status, refusal.fields, refusal.error)


def _fastapi(refusal: Refusal) -> tuple[int, dict[str, Any]]:
    """``detail``: a text, or for fields that are missing a list with their places."""
    if isinstance(refusal.error, WrongField) and refusal.error.missing:
        place = ["body", refusal.error.field]
        entry = {"type": "missing", "loc": place, "msg": "Field required", "input": None}
        return 422, {"detail": [entry]}
    unfit = refusal.status in _UNFIT or refusal.code == "voice_not_found"
    return 400 if unfit else refusal.status, {"detail": sentence(refusal.fields)}


def elevenlabs_error(fields: Fields) -> dict[str, str]:
    """Return the status and the message by which ElevenLabs' API tells what is wrong."""
    code = str(fields["code"])
    return {"status": _ELEVENLABS_STATUS.get(code, code), "message": sentence(fields)}


def _elevenlabs(refusal: Refusal) -> tuple[int, dict[str, Any]]:
    """A list of wrong fields with 422, or one status with a message."""
    field = wrong_field(refusal.error)
    if refusal.code in ("invalid_message", "invalid_option") and refusal.status == 400:
        place = ["body", *([field] if field else [])]
        said = {"loc": place, "msg": sentence(refusal.fields), "type": "value_error"}
        return 422, {"detail": [said]}
    status = 400 if refusal.status in (409, *_UNFIT) else refusal.status
    return status, {"detail": elevenlabs_error(refusal.fields)}


def dashscope_code(code: str) -> str:
    """Return DashScope's name for one of our codes."""
    return _DASHSCOPE_CODES.get(code, "InvalidParameter")


def _dashscope(refusal: Refusal) -> tuple[int, dict[str, Any]]:
    """A name, a text and the id of the request."""
    status = 400 if refusal.status in (409, *_UNFIT) else refusal.status
    said = {"code": dashscope_code(refusal.code), "message": sentence(refusal.fields)}
    return status, {**said, "request_id": str(uuid.uuid4())}


_DASHSCOPE_CODES: Final = {
    "unauthorized": "InvalidApiKey",
    "busy": "Throttling.RateQuota",
    "shutting_down": "ServiceUnavailable",
    "internal": "InternalError",
    "synthesis_failed": "InternalError",
}
_ELEVENLABS_STATUS: Final = {
    "unauthorized": "invalid_api_key",
    "busy": "too_many_concurrent_requests",
    "limit_exceeded": "max_character_limit_exceeded",
}

_UNFIT: Final = frozenset({413, 415, 422})
"""Of our statuses: a request that is well-formed and cannot be met, which others call bad."""

_SHAPES: Final[tuple[tuple[tuple[str, ...], Shape], ...]] = (
    (("/v1/audio/", "/v1/models", "/v1/realtime"), _openai),
    (("/inference_",), _fastapi),
    (("/elevenlabs/",), _elevenlabs),
    (("/api/", "/api-ws/"), _dashscope),
)
