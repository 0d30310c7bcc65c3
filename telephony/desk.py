"""Takes calls of every kind of line: how many there may be, who leads them, how they end."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cosyvoice_stream.errors import EngineBusy
from cosyvoice_stream.server.error_map import UnknownCall
from cosyvoice_stream.server.services import Services
from cosyvoice_stream.telephony.call import Dialogue, Listen, PhoneCall
from cosyvoice_stream.telephony.call_options import call_options
from cosyvoice_stream.telephony.line import CallInfo, Line

_RETRY_S = 5.0
"""Hint when all lines are taken."""


@dataclass(frozen=True, slots=True)
class LiveCall:
    """A call that runs."""

    call: PhoneCall
    began_at: float

    def to_json(self, call_id: str, now: float) -> dict[str, Any]:
        """What an operator sees; no numbers."""
        return {
            "id": call_id,
            "carrier": self.call.info.carrier,
            "age_s": round(now - self.began_at, 1),
            "sample_rate": self.call.line.format.sample_rate,
        }


class Desk:
    """All calls of one application.

    Args:
        services: Of the application.
        leader: Says who leads a call that comes in.
    """

    def __init__(self, services: Services, leader: Callable[[CallInfo], Dialogue]) -> None:
        self._services = services
        self._leader = leader
        self._options = call_options(services.settings)
        self._most = services.settings.phone_max_calls
        self._live: dict[str, LiveCall] = {}

    @property
    def live(self) -> int:
        """Calls that run."""
        return len(self._live)

    @property
    def calls(self) -> list[PhoneCall]:
        """The same, the oldest first."""
        return [live.call for live in self._live.values()]

    def check_room(self) -> None:
        """Refuse a call before it is answered.

        Raises:
            EngineBusy: The engine is not ready, or all lines are taken.
            ShuttingDown: The server is about to stop.
        """
        self._services.readiness.require()
        self._services.sessions.check_room()
        if len(self._live) >= self._most:
            raise EngineBusy(_RETRY_S, "all telephone lines are taken")

    async def take(
        self,
        line: Line,
        info: CallInfo,
        listen: Listen,
        dialogue: Dialogue | None = None,
        *,
        call_id: str | None = None,
    ) -> None:
        """Lead a call from its first moment to its last.

        Args:
            line: The leg, answered.
            info: About it.
            listen: Feeds the call from the leg.
            dialogue: Leads it; None is whoever leads calls that come in.
            call_id: From `new_call_id`; one is made without it.

        Raises:
            EngineBusy: See `check_room`.
            ShuttingDown: See `check_room`.
        """
        self.check_room()
        call = PhoneCall(line, info, self._services.sessions, self._options)
        call_id = call_id or new_call_id()
        self._live[call_id] = LiveCall(call, asyncio.get_running_loop().time())
        try:
            await call.run(dialogue or self._leader(info), listen)
        finally:
            del self._live[call_id]

    def hang_up(self, call_id: str) -> None:
        """End a call from outside.

        Raises:
            UnknownCall: There is none.
        """
        live = self._live.get(call_id)
        if live is None:
            raise UnknownCall("GET /v1/calls lists those that run")
        live.call.leave()

    def to_json(self) -> list[dict[str, Any]]:
        """The live calls."""
        now = asyncio.get_running_loop().time()
        return [live.to_json(call_id, now) for call_id, live in self._live.items()]


def new_call_id() -> str:
    """A name for a call that nobody guesses."""
    return "call-" + secrets.token_hex(6)
