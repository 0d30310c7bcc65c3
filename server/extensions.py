"""Parts of the server that stand above it, found by name because it imports none of them.

A package of this distribution offers ``make_extension(services)``; what that returns is started
with the engine and stopped before it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Final, Protocol, cast

from starlette.routing import BaseRoute

from cosyvoice_stream.server.services import Services

_MODULES: Final = ("cosyvoice_stream.telephony.extension",)


class Extension(Protocol):
    """What the application runs without knowing it."""

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """Its HTTP and WebSocket endpoints."""
        ...

    async def start(self) -> None:
        """Begin; the server is not ready before. Raises `ConfigError`."""
        ...

    async def stop(self) -> None:
        """End everything. Safe to call without `start`, and twice."""
        ...


def load_extensions(services: Services) -> list[Extension]:
    """Make all extensions.

    Raises:
        ConfigError: The settings of one are wrong, or what it needs is not installed.
    """
    return [
        cast(Extension, importlib.import_module(name).make_extension(services)) for name in _MODULES
    ]
