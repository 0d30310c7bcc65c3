"""The lexicon of the server over HTTP: ``/v1/lexicon``."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cosyvoice_stream.errors import InvalidMessage
from cosyvoice_stream.server.json_body import parse_body, read_body
from cosyvoice_stream.server.lexicon_files import parse_csv, to_csv
from cosyvoice_stream.server.services import services_of

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
_CSV: Final = "text/csv"


class _Entries(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    entries: dict[str, str]


class _Changes(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    entries: dict[str, str | None]


def lexicon_routes() -> list[Route]:
    """Return the routes."""
    return [
        Route("/v1/lexicon", get_lexicon, methods=["GET"]),
        Route("/v1/lexicon", put_lexicon, methods=["PUT"]),
        Route("/v1/lexicon", patch_lexicon, methods=["PATCH"]),
        Route("/v1/lexicon", delete_lexicon, methods=["DELETE"]),
        Route("/v1/lexicon/{word:path}", delete_word, methods=["DELETE"]),
    ]


async def get_lexicon(request: Request) -> Response:
    """Return all words, as JSON or (``Accept: text/csv``) as CSV."""
    entries = services_of(request).lexicon.current.entries
    if _CSV in request.headers.get("accept", ""):
        return Response(to_csv(entries), media_type=_CSV)
    return JSONResponse({"entries": entries})


async def put_lexicon(request: Request) -> Response:
    """Put another lexicon in place."""
    body = await _body(request)
    entries = _from_csv(body) if _is_csv(request) else parse_body(_Entries, body).entries
    await services_of(request).lexicon.replace(entries)
    return await get_lexicon(request)


async def patch_lexicon(request: Request) -> Response:
    """Add, change and remove words."""
    body = await _body(request)
    changes: dict[str, str | None] = {}
    if _is_csv(request):
        changes |= _from_csv(body)
    else:
        changes |= parse_body(_Changes, body).entries
    await services_of(request).lexicon.update(changes)
    return await get_lexicon(request)


async def delete_lexicon(request: Request) -> Response:
    """Remove all words."""
    await services_of(request).lexicon.replace({})
    return Response(status_code=204)


async def delete_word(request: Request) -> Response:
    """Remove one word, if it is there."""
    await services_of(request).lexicon.update({request.path_params["word"]: None})
    return Response(status_code=204)


async def _body(request: Request) -> bytes:
    stall_timeout_s = services_of(request).settings.stall_timeout_s
    return await read_body(request, MAX_BODY_BYTES, stall_timeout_s)


def _is_csv(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == _CSV


def _from_csv(body: bytes) -> dict[str, str]:
    try:
        return parse_csv(body.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InvalidMessage("the lexicon is not UTF-8") from None
