"""Real-time streaming speech: engines, and the public names of the package.

Engines and values live here; ``streaming`` holds pure stages, ``server`` sessions and transports,
``telephony`` phone lines. Names are resolved on first use, so that importing the package loads no
model, no server and no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cosyvoice_stream.version import __version__

if TYPE_CHECKING:
    from cosyvoice_stream.engine import Engine
    from cosyvoice_stream.errors import VoiceStreamError
    from cosyvoice_stream.lite.engine import LiteEngine
    from cosyvoice_stream.server.client import connect
    from cosyvoice_stream.types import PcmChunk, ReferenceAudio, SynthesisOptions, Voice

_HOME = {
    "Engine": "cosyvoice_stream.engine",
    "LiteEngine": "cosyvoice_stream.lite.engine",
    "PcmChunk": "cosyvoice_stream.types",
    "ReferenceAudio": "cosyvoice_stream.types",
    "SynthesisOptions": "cosyvoice_stream.types",
    "Voice": "cosyvoice_stream.types",
    "VoiceStreamError": "cosyvoice_stream.errors",
    "connect": "cosyvoice_stream.server.client",
}

__all__ = [
    "Engine",
    "LiteEngine",
    "PcmChunk",
    "ReferenceAudio",
    "SynthesisOptions",
    "Voice",
    "VoiceStreamError",
    "__version__",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
