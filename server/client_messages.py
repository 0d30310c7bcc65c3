"""What a client says: texts in their many forms, and messages with options."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from typing import Any, TypeAlias

from cosyvoice_stream.errors import InvalidOption
from cosyvoice_stream.types import Flush

Text: TypeAlias = str | Iterable[str | Flush] | AsyncIterable[str | Flush]


async def fragments(text: Text) -> AsyncGenerator[str | Flush, None]:
    """The text piece by piece; an async iterable is closed at the end, however that comes."""
    if isinstance(text, str):
        yield text
    elif isinstance(text, AsyncIterable):
        try:
            async for piece in text:
                yield piece
        finally:
            if (close := getattr(text, "aclose", None)) is not None:
                await close()
    else:
        for piece in text:
            yield piece


def control_message(kind: str, options: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A message with the options of an utterance.

    Raises:
        InvalidOption: A number is not finite, which JSON cannot say.
    """
    wire = dict(options)
    if "text_options" in wire:
        wire["text"] = wire.pop("text_options")
    for name, value in wire.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidOption(name, value, "use a finite number")
    return {"type": kind, **fields, **wire}
