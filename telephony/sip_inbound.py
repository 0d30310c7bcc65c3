"""What the other ends of SIP calls ask for, and how each request is answered."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

from aiosipua.message import SipRequest

from cosyvoice_stream.errors import InvalidMessage, UnsupportedFormat, VoiceStreamError
from cosyvoice_stream.telephony.sdp import Description
from cosyvoice_stream.telephony.sdp_answer import Local, make_answer
from cosyvoice_stream.telephony.sip_call import SipCall
from cosyvoice_stream.telephony.sip_dialog import Dialog
from cosyvoice_stream.telephony.sip_messages import (
    ALLOW,
    SDP_TYPE,
    Flow,
    call_id_of,
    contact_uri,
    cseq_of,
    header_tokens,
    make_response,
    sdp_of,
    tag_of,
)
from cosyvoice_stream.telephony.sip_signalling import CallState, Signalling
from cosyvoice_stream.telephony.sip_transactions import ServerTransaction

_SCANNERS: Final = ("friendly-scanner", "sipvicious", "sipcli", "sip-scan", "sundayddr")
"""User agents of programs that look for open PBXs; their INVITE gets no answer."""
_KNOWN_EXTENSIONS: Final = frozenset({"timer"})
_RETRY_S: Final = "5"


class Inbound:
    """Answers requests.

    Args:
        agent: Whose they are.
    """

    def __init__(self, agent: Signalling) -> None:
        self._agent = agent

    def take(self, transaction: ServerTransaction | None, request: SipRequest, flow: Flow) -> None:
        """Handle a request; None in place of the transaction: it is an ACK."""
        if transaction is None:
            self._ack(request)
        elif request.method == "CANCEL":
            self._cancel(transaction, request)
        elif tag_of(request, "to"):
            self._within_call(transaction, request)
        elif request.method == "INVITE":
            self._invite(transaction, request, flow)
        elif request.method == "OPTIONS":
            self._respond(transaction, 200, {"Accept": SDP_TYPE, "Allow": ALLOW})
        elif request.method in ("BYE", "INFO", "UPDATE", "NOTIFY"):
            self._respond(transaction, 481)
        else:
            self._respond(transaction, 405, {"Allow": ALLOW})

    def unacknowledged(self, transaction: ServerTransaction) -> None:
        """The ACK to our 2xx never came."""
        for call in list(self._agent.calls.values()):
            if call.last_invite is transaction:
                call.hang_up("no ACK")

    def _invite(self, transaction: ServerTransaction, request: SipRequest, flow: Flow) -> None:
        user_agent = (request.headers.get_first("user-agent") or "").lower()
        if any(name in user_agent for name in _SCANNERS):
            return
        refusal = self._refusal(request, flow)
        if refusal is not None:
            self._respond(transaction, *refusal)
            return
        agent = self._agent
        here = agent.here(flow)
        try:
            offer = _offer_of(request)
            if offer is not None:  # whether it can be at all, before anything rings
                make_answer(offer, Local(here.host, 9, agent.config.codecs))
        except VoiceStreamError as error:
            self._respond(transaction, _status_of(error))
            return
        agent.respond(transaction, make_response(request, 100))
        dialog = Dialog.called(request, flow, here)
        agent.take_call(SipCall(agent, dialog, flow.host, invite=transaction, offer=offer))

    def _refusal(self, request: SipRequest, flow: Flow) -> tuple[int, dict[str, str]] | None:
        """Why a call is not taken, whatever it offers."""
        agent, config = self._agent, self._agent.config
        unknown = set(header_tokens(request, "require")) - _KNOWN_EXTENSIONS
        if unknown:
            return 420, {"Unsupported": ", ".join(sorted(unknown))}
        if agent.stopping:
            return 503, {"Retry-After": _RETRY_S}
        calls = agent.calls.values()
        key = call_id_of(request), tag_of(request, "from"), cseq_of(request)
        for call in calls:
            dialog = call.dialog
            if key == (dialog.call_id, dialog.remote_tag, dialog.remote_cseq):
                return 482, {}
        of_host = sum(call.source == flow.host for call in calls)
        most = config.max_calls_per_host
        if len(calls) >= config.max_calls or (most is not None and of_host >= most):
            return 486, {"Retry-After": _RETRY_S}
        return None

    def _cancel(self, transaction: ServerTransaction, request: SipRequest) -> None:
        invite = self._agent.invite_of(request)
        if invite is None:
            self._respond(transaction, 481)
            return
        self._respond(transaction, 200)
        for call in list(self._agent.calls.values()):
            if call.invite is invite:
                call.cancelled()

    def _within_call(self, transaction: ServerTransaction, request: SipRequest) -> None:
        call = self._call_of(request)
        if call is None or tag_of(request, "from") != call.dialog.remote_tag:
            self._respond(transaction, 481)
        elif not call.dialog.accepts(request):
            self._respond(transaction, 500)
        elif request.method == "BYE":
            self._respond(transaction, 200)
            call.end("hung up by the other end")
        elif request.method in ("INVITE", "UPDATE"):
            self._change(call, transaction, request)
        elif request.method == "INFO":
            self._respond(transaction, 200)
            call.take_info(request)
        elif request.method in ("OPTIONS", "NOTIFY"):
            self._respond(transaction, 200, {"Accept": SDP_TYPE, "Allow": ALLOW})
        else:
            self._respond(transaction, 405, {"Allow": ALLOW})

    def _change(self, call: SipCall, transaction: ServerTransaction, request: SipRequest) -> None:
        """Answer a re-INVITE or an UPDATE: hold, another address, another codec, a sign of life."""
        if call.asking:
            self._respond(transaction, 491)
            return
        if call.state is not CallState.TALKING and request.body:
            self._respond(transaction, 491)
            return
        invites = request.method == "INVITE"
        try:
            offer = _offer_of(request)
            refresh = offer is None and not invites
            sdp = None if refresh else call.changed_by_peer(offer)
        except VoiceStreamError as error:
            self._respond(transaction, _status_of(error))
            return
        call.dialog.retarget(contact_uri(request))
        if invites:
            call.last_invite = transaction
        response = make_response(
            request,
            200,
            contact=call.dialog.contact,
            sdp=sdp,
            headers={"Allow": ALLOW, **call.session_headers(request)},
        )
        self._agent.respond(transaction, response)

    def _ack(self, request: SipRequest) -> None:
        call = self._call_of(request)
        if call is None or call.last_invite is None or not call.dialog.accepts(request):
            return
        if cseq_of(call.last_invite.request) != cseq_of(request):
            return
        self._agent.acknowledged(call.last_invite)
        try:
            call.acknowledged(request)
        except VoiceStreamError as error:
            call.log.warning("%s", error)
            call.hang_up("no common media")

    def _call_of(self, request: SipRequest) -> SipCall | None:
        return self._agent.calls.get((call_id_of(request), tag_of(request, "to")))

    def _respond(
        self, transaction: ServerTransaction, status: int, headers: Mapping[str, str] | None = None
    ) -> None:
        response = make_response(
            transaction.request, status, to_tag=secrets.token_hex(8), headers=headers
        )
        self._agent.respond(transaction, response)


def _offer_of(request: SipRequest) -> Description | None:
    text = sdp_of(request)
    return None if text is None else Description.parse(text)


def _status_of(error: VoiceStreamError) -> int:
    """Status of a request whose description cannot be."""
    if isinstance(error, UnsupportedFormat):
        return 488
    return 400 if isinstance(error, InvalidMessage) else 500
