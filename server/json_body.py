"""Small JSON bodies of requests: received within limits, read into pydantic models."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from cosyvoice_stream.errors import InvalidMessage, LimitExceeded, PeerGone
from cosyvoice_stream.server.error_shapes import WrongField
from cosyvoice_stream.server.wire_requests import describe

_BYTES_PER_CHAR: Final = 12
"""Longest JSON form of one character: a surrogate pair of two ``\\uXXXX`` escapes."""
_OPTIONS_BYTES: Final = 16 * 1024
"""For everything in a request but its text."""

_Model = TypeVar("_Model", bound=BaseModel)


async def read_text_request(request: Request, max_chars: int, stall_timeout_s: float) -> bytes:
    """Read the body of a request that holds one text of at most `max_chars`, and options.

    Raises:
        LimitExceeded: It is too large, which a text within the limit cannot make it.
        InvalidMessage: It does not arrive.
        PeerGone: The client went away.
    """
    return await read_body(request, max_chars * _BYTES_PER_CHAR + _OPTIONS_BYTES, stall_timeout_s)


async def read_fields(request: Request, max_chars: int, stall_timeout_s: float) -> dict[str, str]:
    """Read an URL-encoded form that holds one text of at most `max_chars`, and options.

    The last of several fields with one name counts. See `read_body` for the errors.
    """
    body = await read_text_request(request, max_chars, stall_timeout_s)
    return dict(parse_qsl(body.decode("utf-8", errors="replace"), keep_blank_values=True))


async def read_body(request: Request, limit_bytes: int, stall_timeout_s: float) -> bytes:
    """Read a small body completely.

    Raises:
        LimitExceeded: It is too large.
        InvalidMessage: It does not arrive.
        PeerGone: The client went away.
    """
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > limit_bytes:
        raise LimitExceeded("bytes of JSON", limit_bytes, int(stated))
    body = bytearray()
    more = True
    while more:
        try:
            async with asyncio.timeout(stall_timeout_s):
                message = await request.receive()
        except TimeoutError:
            raise InvalidMessage("the request did not arrive completely") from None
        if message["type"] == "http.disconnect":
            raise PeerGone("the client went away during a request")
        body += message.get("body", b"")
        if len(body) > limit_bytes:
            raise LimitExceeded("bytes of JSON", limit_bytes)
        more = message.get("more_body", False)
    return bytes(body)


def parse_body(model: type[_Model], body: bytes | str) -> _Model:
    """Read JSON into a model.

    Raises:
        InvalidMessage: It is no JSON object.
        WrongField: A field is missing or wrong. The text names it and quotes no value.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from None


def parse_values(model: type[_Model], values: dict[str, str]) -> _Model:
    """Read the fields of a form into a model; see `parse_body` for the errors."""
    try:
        return model.model_validate_strings(values)
    except ValidationError as error:
        raise _refusal(error) from None


def check_chars(text: str, limit: int) -> None:
    """Refuse a text that is too long.

    Raises:
        LimitExceeded: It has more than `limit` characters.
    """
    if len(text) > limit:
        raise LimitExceeded("characters of text in one request", limit, len(text))


def _refusal(error: ValidationError) -> InvalidMessage:
    first = error.errors(include_url=False, include_input=False)[0]
    text = describe(error)
    if not first["loc"]:
        return InvalidMessage(text)
    return WrongField(str(first["loc"][0]), text, missing=first["type"] == "missing")
