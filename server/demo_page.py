"""Serves the files of the package ``web_demo``: ``/``, ``/docs``, the others by name."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_MIME: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
"""By suffix; the system's own table differs between machines. Other files are not served."""

_PAGES: Final = {"index.html": "/", "docs.html": "/docs"}

_HEADERS: Final = {
    # Downloads are blobs. `ws:` stands beside 'self' because Safari before 15.4 does not count
    # sockets to it.
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "worker-src 'self'",
            "style-src 'self'",
            "img-src 'self' data: blob:",
            "media-src 'self' data: blob:",
            "connect-src 'self' blob: ws: wss:",
            "manifest-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'self'",
        )
    ),
    "Permissions-Policy": "microphone=(self)",
    # Small files on a near server: asking each time costs a 304 and never shows an old page.
    "Cache-Control": "no-cache",
}


def demo_routes() -> list[Route]:
    """Read the page's files once and return a route for each."""
    routes = []
    for file in resources.files("cosyvoice_stream.web_demo").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in _MIME and file.is_file():
            path = _PAGES.get(file.name, f"/{file.name}")
            routes.append(_route(path, file.read_bytes(), _MIME[suffix]))
    return routes


def _route(path: str, content: bytes, mime: str) -> Route:
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = {**_HEADERS, "ETag": etag}

    async def demo_file(request: Request) -> Response:
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=mime)

    return Route(path, demo_file, include_in_schema=False)
