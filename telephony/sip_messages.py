"""SIP messages of RFC 3261: checked when they are read, complete when they are built.

Syntax, headers and digests are those of aiosipua; what a user agent does with them is ours.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from aiosipua.headers import (
    Via,
    parse_uri,
    parse_via,
    stringify_uri,
    stringify_via,
)
from aiosipua.message import REQUIRED_REQUEST_HEADERS, SipMessage, SipRequest, SipResponse

from cosyvoice_stream.errors import InvalidMessage
from cosyvoice_stream.version import __version__

Transport = Literal["UDP", "TCP", "TLS"]
Message = SipRequest | SipResponse

MAX_MESSAGE_BYTES: Final = 65_535
ALLOW: Final = "INVITE, ACK, BYE, CANCEL, OPTIONS, UPDATE, INFO, NOTIFY"
USER_AGENT: Final = f"cosyvoice-stream/{__version__}"
SDP_TYPE: Final = "application/sdp"
COOKIE: Final = "z9hG4bK"
"""Branches begin with it since RFC 3261."""

REASONS: Final = {
    100: "Trying",
    180: "Ringing",
    183: "Session Progress",
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    415: "Unsupported Media Type",
    420: "Bad Extension",
    480: "Temporarily Unavailable",
    481: "Call/Transaction Does Not Exist",
    482: "Loop Detected",
    486: "Busy Here",
    487: "Request Terminated",
    488: "Not Acceptable Here",
    491: "Request Pending",
    500: "Server Internal Error",
    503: "Service Unavailable",
    603: "Decline",
}


@dataclass(frozen=True, slots=True)
class Flow:
    """From where a message came, or where one goes."""

    transport: Transport
    host: str
    port: int

    @property
    def reliable(self) -> bool:
        """Whether the transport itself repeats what is lost."""
        return self.transport != "UDP"

    def __str__(self) -> str:
        return f"{self.transport} {host_port(self.host, self.port)}"


def host_port(host: str, port: int) -> str:
    """An address as SIP writes it, IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def parse_message(data: bytes) -> Message:
    """Read one message with everything that the layers above rely on.

    Raises:
        InvalidMessage: It is no SIP message, or a header that every message needs is missing or
            wrong. The text holds nothing of the message.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise InvalidMessage(f"a SIP message has at most {MAX_MESSAGE_BYTES} bytes")
    try:
        message = SipMessage.parse(data)
        vias = message.via
        cseq = message.cseq
        sender, receiver = message.from_addr, message.to_addr
    except (ValueError, IndexError):
        raise InvalidMessage("this is no SIP message") from None
    for name in REQUIRED_REQUEST_HEADERS:
        if not message.headers.get_first(name):
            raise InvalidMessage(f"a SIP message needs the header {name}")
    written = message.headers.get("via")[0].upper().startswith("SIP/2.0/")
    if not written or not vias[0].host or cseq is None or not 0 <= cseq.seq < 1 << 31:
        raise InvalidMessage("the Via or the CSeq of a SIP message is wrong")
    if sender is None or receiver is None:
        raise InvalidMessage("the From or the To of a SIP message is wrong")
    if isinstance(message, SipRequest):
        if cseq.method != message.method or not message.uri:
            raise InvalidMessage("the CSeq of a SIP request names another method")
    elif not 100 <= message.status_code <= 699:
        raise InvalidMessage("the status of a SIP response is outside 100 to 699")
    return message


def top_via(message: Message) -> Via:
    """The first Via of a message that `parse_message` or this module made."""
    return parse_via(message.headers.get("via")[0])


def stamp_via(request: SipRequest, flow: Flow) -> None:
    """Write into the first Via where the request really came from (RFC 3581)."""
    first, *others = request.headers.get("via")
    via = parse_via(first)
    via.params["received"] = flow.host
    if "rport" in via.params:
        via.params["rport"] = str(flow.port)
    request.headers.set_single("Via", stringify_via(via))
    for other in others:
        request.headers.append("Via", other)


def reply_flow(request: SipRequest, flow: Flow) -> Flow:
    """Where the answer to a request goes: back, to the port that its Via asks for."""
    via = top_via(request)
    if flow.reliable or "rport" in via.params:
        return flow
    return Flow(flow.transport, flow.host, via.port or 5060)


def tag_of(message: Message, side: Literal["from", "to"]) -> str:
    """The tag of one end; empty where it has none yet."""
    address = message.from_addr if side == "from" else message.to_addr
    return (address.tag if address is not None else None) or ""


def call_id_of(message: Message) -> str:
    """The Call-ID."""
    return message.call_id or ""


def cseq_of(message: Message) -> int:
    """The number in the CSeq."""
    cseq = message.cseq
    assert cseq is not None
    return cseq.seq


def method_of(message: Message) -> str:
    """The method in the CSeq: what a response answers."""
    cseq = message.cseq
    assert cseq is not None
    return cseq.method


def sdp_of(message: Message) -> str | None:
    """The session description that a message carries.

    Raises:
        InvalidMessage: Its body is something else.
    """
    if not message.body:
        return None
    kind = (message.content_type or "").partition(";")[0].strip().lower()
    if kind != SDP_TYPE:
        raise InvalidMessage(f"a body here has the type {SDP_TYPE}")
    return message.text


def header_tokens(message: Message, name: str) -> list[str]:
    """The words of a list header, in lower case."""
    return [token.strip().lower() for token in message.headers.get(name)]


def make_response(
    request: SipRequest,
    status: int,
    *,
    to_tag: str = "",
    contact: str = "",
    sdp: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> SipResponse:
    """Answer a request.

    Args:
        request: What is answered.
        status: One of `REASONS`.
        to_tag: Our tag, for everything but 100.
        contact: URI for later requests of the dialog.
        sdp: Session description to carry.
        headers: More of them.
    """
    response = SipResponse(status_code=status, reason_phrase=REASONS[status])
    for via in request.headers.get("via"):
        response.headers.append("Via", via)
    for name in ("From", "To", "Call-ID", "CSeq"):
        response.headers.set_single(name, request.headers.get_first(name) or "")
    if to_tag and not tag_of(request, "to"):
        response.headers.set_single("To", f"{request.headers.get_first('to')};tag={to_tag}")
    if status < 300:
        for route in request.headers.get("record-route"):
            response.headers.append("Record-Route", route)
    _complete(response, contact, sdp, headers)
    return response


def make_request(
    method: str,
    uri: str,
    *,
    via: Via,
    sender: str,
    receiver: str,
    call_id: str,
    cseq: int,
    contact: str = "",
    routes: tuple[str, ...] = (),
    sdp: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> SipRequest:
    """Build a request.

    Args:
        method: Such as ``INVITE``.
        uri: What is asked for.
        via: Our address; `own_via` makes one.
        sender: Whole From.
        receiver: Whole To.
        call_id: Of the dialog.
        cseq: Number within it.
        contact: URI for requests of the other end.
        routes: Proxies on the way.
        sdp: Session description to carry.
        headers: More of them.

    Raises:
        ValueError: A value holds a line break.
    """
    if "\r" in uri or "\n" in uri or " " in uri:
        raise ValueError("a URI holds neither spaces nor line breaks")
    request = SipRequest(method=method, uri=uri)
    for name, value in (
        ("Via", stringify_via(via)),
        ("Max-Forwards", "70"),
        ("From", sender),
        ("To", receiver),
        ("Call-ID", call_id),
        ("CSeq", f"{cseq} {method}"),
    ):
        request.headers.set_single(name, value)
    for route in routes:
        request.headers.append("Route", route)
    _complete(request, contact, sdp, headers)
    return request


def _complete(
    message: Message, contact: str, sdp: str | None, headers: Mapping[str, str] | None
) -> None:
    if contact:
        message.headers.set_single("Contact", f"<{contact}>")
    message.headers.set_single("User-Agent", USER_AGENT)
    for name, value in (headers or {}).items():
        message.headers.set_single(name, value)
    if sdp is not None:
        message.headers.set_single("Content-Type", SDP_TYPE)
        message.text = sdp


def own_via(transport: Transport, host: str, port: int) -> Via:
    """A Via with a branch that no other transaction has."""
    params: dict[str, str | None] = {"branch": COOKIE + secrets.token_hex(10), "rport": None}
    return Via(transport=transport, host=host, port=port, params=params)


def make_ack(invite: SipRequest, response: SipResponse) -> SipRequest:
    """Acknowledge a refusal, in the transaction of its INVITE (RFC 3261, section 17.1.1.3)."""
    ack = SipRequest(method="ACK", uri=invite.uri)
    _copy(invite, ack, ("Via", "From", "Call-ID", "Max-Forwards"))
    ack.headers.set_single("To", response.headers.get_first("to") or "")
    ack.headers.set_single("CSeq", f"{cseq_of(invite)} ACK")
    return ack


def make_cancel(invite: SipRequest) -> SipRequest:
    """Give up an INVITE that has no final answer (RFC 3261, section 9.1)."""
    cancel = SipRequest(method="CANCEL", uri=invite.uri)
    _copy(invite, cancel, ("Via", "From", "To", "Call-ID", "Max-Forwards"))
    cancel.headers.set_single("CSeq", f"{cseq_of(invite)} CANCEL")
    return cancel


def _copy(source: SipRequest, target: SipRequest, names: tuple[str, ...]) -> None:
    for name in names:
        target.headers.set_single(name, source.headers.get_first(name) or "")
    for route in source.headers.get("route"):
        target.headers.append("Route", route)


def contact_uri(message: Message) -> str:
    """The URI of the first Contact; empty where there is none."""
    contacts = message.contact
    return stringify_uri(contacts[0].uri) if contacts else ""


def uri_flow(uri: str, default: Transport = "UDP") -> Flow | None:
    """Where a URI points to; None where it names nothing that can be sent to.

    Args:
        uri: Such as ``sip:name@192.0.2.1:5080;transport=tcp``.
        default: Transport where the URI names none.
    """
    parsed = parse_uri(uri)
    transport = (parsed.params.get("transport") or default).upper()
    if parsed.scheme == "sips":
        transport = "TLS"
    if not parsed.host or transport not in ("UDP", "TCP", "TLS"):
        return None
    found: Transport = "UDP" if transport == "UDP" else "TCP" if transport == "TCP" else "TLS"
    port = parsed.port or (5061 if found == "TLS" else 5060)
    return Flow(found, parsed.host.strip("[]"), port) if 0 < port < 65_536 else None
