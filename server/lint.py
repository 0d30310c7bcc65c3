"""``POST /v1/lint``: what a text may be read wrongly at, before it is spoken."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cosyvoice_stream.server.json_body import check_chars, parse_body, read_text_request
from cosyvoice_stream.server.services import services_of
from cosyvoice_stream.server.text_stages import TextStages
from cosyvoice_stream.streaming.lexicon import Lexicon, compiled
from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.types import EngineInfo

MAX_CHARS: Final = 20_000


class _LintRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    text: str
    clean: bool = True
    lexicon: dict[str, str] = {}


def lint_routes() -> list[Route]:
    """Return the route."""
    return [Route("/v1/lint", lint_text, methods=["POST"])]


async def lint_text(request: Request) -> Response:
    """Look at a text without speaking it."""
    services = services_of(request)
    body = await read_text_request(request, MAX_CHARS, services.settings.stall_timeout_s)
    wanted = parse_body(_LintRequest, body)
    check_chars(wanted.text, MAX_CHARS)
    lexicons = (compiled(wanted.lexicon), services.lexicon.current)
    found = await asyncio.to_thread(
        lint, wanted.text, services.engine.info, lexicons, clean=wanted.clean
    )
    return JSONResponse(found)


def lint(
    text: str, info: EngineInfo, lexicons: tuple[Lexicon, ...], *, clean: bool
) -> dict[str, Any]:
    """Look at a text; may block for half a second at the first call.

    Args:
        text: What is to be spoken.
        info: Of the engine that would speak it.
        lexicons: Words in them are certain.
        clean: Whether markup is dropped.

    Returns:
        Plain JSON data; positions count in `text`.
    """
    from cosyvoice_stream.streaming.polyphones import ambiguities

    stages = TextStages(info, clean=clean, lexicons=lexicons)
    read = stages.push(text) + stages.flush()
    spoken = MappedText.join(item for item in read if isinstance(item, MappedText))
    ambiguous = []
    for each in ambiguities(spoken.text):
        start, end = spoken.source_span(each.char_start, each.char_end)
        ambiguous.append(
            {
                "text": text[start:end],
                "char_start": start,
                "char_end": end,
                "readings": list(each.readings),
            }
        )
    problems = [
        {
            "message": warning.message,
            "char_start": warning.char_start,
            "char_end": warning.char_end,
            "suggestion": warning.suggestion,
        }
        for warning in stages.take_warnings()
    ]
    return {"problems": problems, "ambiguous": ambiguous}
