"""The INVITEs of calls that go out, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from aiosipua.message import SipRequest, SipResponse

from cosyvoice_stream.errors import VoiceStreamError
from cosyvoice_stream.telephony.sip_call import SipCall
from cosyvoice_stream.telephony.sip_messages import Flow, cseq_of, tag_of
from cosyvoice_stream.telephony.sip_signalling import CallState
from cosyvoice_stream.telephony.sip_transactions import ClientTransaction

_DIGESTS: Final = 2
"""Challenges that a call answers: the first, and a stale nonce."""


class Caller(Protocol):
    """What this needs of the user agent."""

    def send(
        self, request: SipRequest, flow: Flow, replied: Callable[[SipResponse | None], None]
    ) -> ClientTransaction:
        """Send a request."""
        ...

    def send_ack(self, call: SipCall, response: SipResponse) -> None:
        """Acknowledge a 2xx."""
        ...

    def credentials(self, request: SipRequest, response: SipResponse) -> dict[str, str] | None:
        """Answer a challenge."""
        ...


class Outbound:
    """Calls of ours.

    Args:
        agent: Sends.

    Attributes:
        invites: Transaction of each call's INVITE.
    """

    def __init__(self, agent: Caller) -> None:
        self.invites: dict[SipCall, ClientTransaction] = {}
        self._agent = agent
        self._acks: dict[tuple[str, str, int], tuple[SipRequest, Flow]] = {}

    def forget(self, call: SipCall) -> None:
        """A call has ended."""
        self.invites.pop(call, None)
        for key in [key for key in self._acks if key[0] == call.dialog.call_id]:
            del self._acks[key]

    def ack(self, call: SipCall, response: SipResponse) -> tuple[SipRequest, Flow]:
        """The ACK to a 2xx, the same one whenever that comes again."""
        key = (call.dialog.call_id, tag_of(response, "to"), cseq_of(response))
        ack = self._acks.get(key)
        if ack is None:
            request = call.dialog.request("ACK", cseq=cseq_of(response))
            ack = self._acks[key] = request, call.dialog.flow
        return ack

    def invite(
        self, call: SipCall, sdp: str, headers: dict[str, str] | None = None, tries: int = 0
    ) -> None:
        """Send the INVITE of a call.

        Args:
            call: Which has its media.
            sdp: Its description.
            headers: The answer to a challenge.
            tries: Challenges that were answered before.
        """
        request = call.dialog.request("INVITE", sdp=sdp, headers=headers)

        def replied(response: SipResponse | None) -> None:
            self._invite_replied(call, request, sdp, tries, response)

        self.invites[call] = self._agent.send(request, call.dialog.flow, replied)

    def _invite_replied(
        self,
        call: SipCall,
        request: SipRequest,
        sdp: str,
        tries: int,
        response: SipResponse | None,
    ) -> None:
        if response is None:
            call.fail(408)
        elif response.status_code < 200:
            if call.state is not CallState.ENDED and tag_of(response, "to"):
                call.dialog.answered(response)
                self._or_hang_up(call, lambda: call.early(response))
        elif response.status_code < 300:
            self._accepted(call, response)
        elif (
            response.status_code in (401, 407)
            and tries < _DIGESTS
            and call.state is not CallState.ENDED
            and (credentials := self._agent.credentials(request, response)) is not None
        ):
            call.dialog.remote_tag = ""
            self.invite(call, sdp, credentials, tries + 1)
        else:
            call.fail(response.status_code)

    def _accepted(self, call: SipCall, response: SipResponse) -> None:
        """A 2xx to an INVITE of ours: the first one, a repeated one, or one of another branch."""
        tag = tag_of(response, "to")
        talking = call.state is CallState.TALKING
        if talking and tag == call.dialog.remote_tag:
            self._agent.send_ack(call, response)
            return
        if talking:
            return  # another telephone of the same number; its side gives up without an ACK
        again = (call.dialog.call_id, tag, cseq_of(response)) in self._acks
        call.dialog.answered(response)
        self._agent.send_ack(call, response)
        if call.state is CallState.ENDED:  # it was answered while the CANCEL was under way
            if not again:
                self._agent.send(call.dialog.request("BYE"), call.dialog.flow, lambda _: None)
            return
        call.talk()
        self._or_hang_up(call, lambda: call.read_answer(response))

    def _or_hang_up(self, call: SipCall, step: Callable[[], None]) -> None:
        try:
            step()
        except VoiceStreamError as error:
            call.log.warning("%s", error)
            call.hang_up("no common media")
