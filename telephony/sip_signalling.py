"""What the parts of a SIP user agent know of each other: the states of a call, and who sends."""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

from aiosipua.message import SipRequest, SipResponse

from cosyvoice_stream.errors import TransportError
from cosyvoice_stream.telephony.rtp_leg import RtpLeg
from cosyvoice_stream.telephony.sip_config import SipConfig
from cosyvoice_stream.telephony.sip_dialog import Here
from cosyvoice_stream.telephony.sip_messages import Flow
from cosyvoice_stream.telephony.sip_transactions import ServerTransaction

if TYPE_CHECKING:
    from cosyvoice_stream.telephony.sip_call import SipCall


class CallState(Enum):
    """Where a call stands."""

    RINGING = auto()
    EARLY = auto()
    """Media flows before the call is answered."""
    TALKING = auto()
    ENDED = auto()


class CallFailed(TransportError):
    """A call, or a change of one, was refused or not answered.

    Args:
        status: SIP status, 408 where nothing came.
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"the other end answered {status}")
        self.status = status


class CallLog(logging.LoggerAdapter[logging.Logger]):
    """Names the call; numbers and addresses of callers stay out."""

    def process(
        self, message: str, kwargs: MutableMapping[str, Any]
    ) -> tuple[str, MutableMapping[str, Any]]:
        """Put the call's random name in front."""
        assert self.extra is not None
        return f"[call {self.extra['call']}] {message}", kwargs


class Signalling(Protocol):
    """What calls, and requests of the other end, need of the user agent."""

    config: SipConfig
    calls: dict[tuple[str, str], SipCall]
    stopping: bool

    def here(self, flow: Flow) -> Here:
        """Our address as somebody there is told it."""
        ...

    def take_call(self, call: SipCall) -> None:
        """A call comes in."""
        ...

    def invite_of(self, cancel: SipRequest) -> ServerTransaction | None:
        """The INVITE that a CANCEL means."""
        ...

    def acknowledged(self, transaction: ServerTransaction) -> None:
        """The ACK to a 2xx has come."""
        ...

    async def open_leg(self) -> RtpLeg:
        """Bind ports."""
        ...

    def respond(self, transaction: ServerTransaction, response: SipResponse) -> None:
        """Answer a request."""
        ...

    def send_ack(self, call: SipCall, response: SipResponse) -> None:
        """Acknowledge a 2xx."""
        ...

    def send_request(
        self, call: SipCall, request: SipRequest, replied: Callable[[SipResponse | None], None]
    ) -> None:
        """Send a request; `replied` gets provisional and final responses, or None."""
        ...

    def cancel_invite(self, call: SipCall) -> None:
        """Give up an INVITE of ours."""
        ...

    def watch(self, call: SipCall) -> None:
        """The limits of a call are others from here on."""
        ...

    def ended(self, call: SipCall) -> None:
        """Forget a call."""
        ...


def session_interval(request: SipRequest) -> int | None:
    """Seconds after which a session without a refresh is over; None where nobody asks for it.

    Only where the other end can refresh: we accept its timer, we do not run one.
    """
    value = (request.headers.get_first("session-expires") or "").lower()
    supported = [token.strip().lower() for token in request.headers.get("supported")]
    number = value.partition(";")[0].strip()
    if "timer" not in supported or not number.isdecimal() or "refresher=uas" in value:
        return None
    return min(int(number[:9]), 86_400)
