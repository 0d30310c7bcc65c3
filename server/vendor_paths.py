"""Tells clients of ElevenLabs apart, whose paths are partly those of other APIs.

Everything of theirs is served below ``/elevenlabs``, so that routes, errors and keys go by the path
alone. Clients that only know another address get there by this middleware, which comes first.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

ELEVENLABS: Final = "/elevenlabs"

_THEIRS: Final = ("/v1/text-to-speech/", "/v1/user", "/v1/voices/add", "/v2/voices")
"""Paths that nobody else has."""
_SHARED: Final = ("/v1/voices", "/v1/models")
"""Ours, and OpenAI's."""


class VendorPaths:
    """Moves the requests of ElevenLabs' clients to ``/elevenlabs``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the application below."""
        if scope["type"] in ("http", "websocket") and _is_theirs(scope):
            scope = {**scope, "path": ELEVENLABS + scope["path"]}
        await self._app(scope, receive, send)


def _is_theirs(scope: Scope) -> bool:
    path: str = scope["path"]
    if path.startswith(_THEIRS):
        return True
    if not path.startswith(_SHARED):
        return False
    headers = Headers(scope=scope)
    return "xi-api-key" in headers or headers.get("x-fern-sdk-name") == "elevenlabs"
