"""What both ends of a SIP call know of each other (RFC 3261, section 12)."""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiosipua.headers import parse_address
from aiosipua.message import SipRequest, SipResponse

from cosyvoice_stream.telephony.sip_messages import (
    Flow,
    call_id_of,
    contact_uri,
    cseq_of,
    host_port,
    make_request,
    own_via,
    tag_of,
    uri_flow,
)

_TAG = re.compile(r";\s*tag=[^;>]*", re.I)


@dataclass(frozen=True, slots=True)
class Here:
    """Our address as the other end is told it."""

    user: str
    host: str
    port: int

    def contact(self, flow: Flow) -> str:
        """URI for requests of the other end that come over a flow's transport."""
        secure = ";transport=" + flow.transport.lower() if flow.transport != "UDP" else ""
        return f"sip:{self.user}@{host_port(self.host, self.port)}{secure}"


@dataclass(slots=True)
class Dialog:
    """One call's identity, and where its requests go."""

    call_id: str = field(repr=False)
    local: str = field(repr=False)
    """Our From or To, without a tag."""
    remote: str = field(repr=False)
    """Theirs."""
    local_tag: str
    remote_tag: str
    target: str = field(repr=False)
    """URI of the other end."""
    flow: Flow
    """Where requests are sent."""
    here: Here
    routes: tuple[str, ...] = ()
    local_cseq: int = 0
    remote_cseq: int = -1

    @classmethod
    def called(cls, invite: SipRequest, flow: Flow, here: Here) -> Dialog:
        """The dialog of a call that comes in."""
        target = contact_uri(invite)
        routes = tuple(invite.headers.get("record-route"))
        return cls(
            call_id=call_id_of(invite),
            local=_untagged(invite.headers.get_first("to") or ""),
            remote=_untagged(invite.headers.get_first("from") or ""),
            local_tag=secrets.token_hex(8),
            remote_tag=tag_of(invite, "from"),
            target=target,
            flow=next_hop(target, routes, flow),
            here=here,
            routes=routes,
            remote_cseq=cseq_of(invite),
        )

    @classmethod
    def calling(cls, sender: str, target: str, flow: Flow, here: Here) -> Dialog:
        """The dialog of a call that goes out, without their half."""
        return cls(
            call_id=secrets.token_hex(16),
            local=f"<{sender}>",
            remote=f"<{target}>",
            local_tag=secrets.token_hex(8),
            remote_tag="",
            target=target,
            flow=flow,
            here=here,
        )

    @property
    def contact(self) -> str:
        """Our URI."""
        return self.here.contact(self.flow)

    def answered(self, response: SipResponse) -> None:
        """Learn their half from a response to our INVITE."""
        self.remote_tag = tag_of(response, "to") or self.remote_tag
        self.routes = tuple(reversed(response.headers.get("record-route"))) or self.routes
        self.retarget(contact_uri(response))

    def retarget(self, target: str) -> None:
        """The other end has moved, or says for the first time where it is."""
        if target:
            self.target = target
            self.flow = next_hop(target, self.routes, self.flow)

    def request(
        self,
        method: str,
        *,
        cseq: int | None = None,
        sdp: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> SipRequest:
        """Build the next request.

        Args:
            method: Such as ``BYE``.
            cseq: For an ACK: that of its INVITE.
            sdp: Session description to carry.
            headers: More of them.
        """
        if cseq is None:
            self.local_cseq += 1
            cseq = self.local_cseq
        tag = f";tag={self.remote_tag}" if self.remote_tag else ""
        return make_request(
            method,
            self.target,
            via=own_via(self.flow.transport, self.here.host, self.here.port),
            sender=f"{self.local};tag={self.local_tag}",
            receiver=f"{self.remote}{tag}",
            call_id=self.call_id,
            cseq=cseq,
            contact=self.contact if method in ("INVITE", "UPDATE", "REFER") else "",
            routes=self.routes,
            sdp=sdp,
            headers=headers,
        )

    def accepts(self, request: SipRequest) -> bool:
        """Whether a request belongs to this dialog and is newer than the last one."""
        if tag_of(request, "from") != self.remote_tag:
            return False
        if request.method == "ACK":
            return True
        number = cseq_of(request)
        if number <= self.remote_cseq:
            return False
        self.remote_cseq = number
        return True


def next_hop(target: str, routes: tuple[str, ...], known: Flow) -> Flow:
    """Where requests of a dialog go.

    To the first proxy of the route, else to the target. A name, or a private address of somebody
    who was seen elsewhere, is of no use: then back to where the other end was seen. So it is over a
    connection, which the other end has made or accepted for this.

    Args:
        target: URI of the other end.
        routes: Whole Route headers.
        known: Where it was seen.
    """
    if known.reliable:
        return known
    uri = parse_address(routes[0]).uri if routes else None
    flow = uri_flow(target) if uri is None else Flow("UDP", uri.host.strip("[]"), uri.port or 5060)
    if flow is None or flow.transport != "UDP":
        return known
    try:
        wanted, seen = ipaddress.ip_address(flow.host), ipaddress.ip_address(known.host)
    except ValueError:
        return known
    hidden = wanted.is_private and not seen.is_private
    return known if hidden or wanted.is_unspecified or wanted.is_multicast else flow


def _untagged(header: str) -> str:
    return _TAG.sub("", header)
