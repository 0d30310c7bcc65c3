"""How errors look to clients of other APIs: the same facts, in the shape and status of the path.

Errors leave the server in three places: the exception handlers, the refusals of the middleware, and
denied WebSocket handshakes. All of them ask here, so that an adapter has no error handling of its
own.
"""

from __future__ import annotations

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
    """

    def __init__(self, field: str, message: str, *, how_to_fix: str | None = None) -> None:
        super().__init__(message, how_to_fix=how_to_fix)
        self.field = field


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """What one API does with errors."""

    prefixes: tuple[str, ...]
    """Of the paths that belong to it."""
    body: Callable[[int, Fields, BaseException | None], dict[str, Any]]
    """From the status, our fields and the exception, where there is one."""
    status: Callable[[str, int, str], int]
    """From the path, our status and our code."""


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
    for shape in _SHAPES:
        if path.startswith(shape.prefixes):
            status = shape.status(path, status, fields["code"])
            return status, shape.body(status, fields, error)
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


def _openai_status(path: str, status: int, code: str) -> int:
    """What is wrong with a request is a 400 there; 404 is for things that a path names."""
    if code == "voice_not_found" and path == "/v1/audio/speech":
        return 400
    return 400 if status in (413, 415, 422) else status


_SHAPES: Final = (
    ErrorShape(("/v1/audio/", "/v1/models", "/v1/realtime"), openai_error, _openai_status),
)
