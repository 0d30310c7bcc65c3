"""How calls are led, whoever leads them."""

from __future__ import annotations

from dataclasses import dataclass

from cosyvoice_stream.server.settings import Settings


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Options of a call."""

    lead_in_ms: int = 0
    """Silence before the first word: a line may lose what comes in its first moments."""
    min_speech_ms: int = 200
    """Speech of the caller that interrupts."""
    turn_end_ms: int = 600
    """Silence that ends a turn of the caller."""
    max_call_s: float = 3600.0
    """A longer call is hung up."""


def call_options(settings: Settings) -> CallOptions:
    """How calls are led."""
    return CallOptions(
        lead_in_ms=settings.phone_lead_in_ms,
        min_speech_ms=settings.phone_min_speech_ms,
        turn_end_ms=settings.phone_turn_end_ms,
        max_call_s=settings.phone_max_call_s,
    )
