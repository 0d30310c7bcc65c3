"""One SIP call: its states, its offers and answers, and its media.

::

    incoming   RINGING ──progress()──► EARLY ──answer()──► TALKING ──hang_up(), BYE──► ENDED
    outgoing   RINGING ──183 + SDP───► EARLY ──2xx───────► TALKING
"""

from __future__ import annotations

import asyncio
import logging
import secrets

from aiosipua.message import SipRequest, SipResponse

from cosyvoice_stream.errors import InvalidMessage, InvalidState
from cosyvoice_stream.telephony.dtmf import key_of_info
from cosyvoice_stream.telephony.rtp_leg import RtpLeg
from cosyvoice_stream.telephony.sdp import Description, Direction
from cosyvoice_stream.telephony.sdp_answer import (
    Agreed,
    Local,
    make_answer,
    make_offer,
    read_answer,
)
from cosyvoice_stream.telephony.sip_dialog import Dialog
from cosyvoice_stream.telephony.sip_messages import ALLOW, make_response, sdp_of
from cosyvoice_stream.telephony.sip_signalling import (
    CallFailed,
    CallLog,
    CallState,
    Signalling,
    session_interval,
)
from cosyvoice_stream.telephony.sip_transactions import ServerTransaction

logger = logging.getLogger(__name__)


class SipCall:
    """A call, made by `UserAgent`. Used on the event loop only.

    Args:
        agent: Sends.
        dialog: Its identity.
        source: Address of the other end's signalling.
        invite: The other end's INVITE, or None for a call of ours.
        offer: Its session description.

    Attributes:
        state: Where the call stands.
        reason: Why it has ended; one or two words.
        leg: Its media, from EARLY or TALKING on.
        changed: Set whenever state or media changes; whoever waits for it clears it.
        over: Set when the call has ended.
        last_invite: The latest INVITE of the other end, whose ACK may be awaited.
        asking: Whether a re-INVITE of ours waits for its answer.
    """

    def __init__(
        self,
        agent: Signalling,
        dialog: Dialog,
        source: str,
        *,
        invite: ServerTransaction | None = None,
        offer: Description | None = None,
    ) -> None:
        self.dialog = dialog
        self.source = source
        self.invite = invite
        self.last_invite = invite
        self.offer = offer
        self.state = CallState.RINGING
        self.reason = ""
        self.leg: RtpLeg | None = None
        self.changed = asyncio.Event()
        self.over = asyncio.Event()
        self.log = CallLog(logger, {"call": secrets.token_hex(4)})
        self._agent = agent
        self._session_id = secrets.randbits(48)
        self._version = 0
        self._held_by_us = False
        self._last_sdp: str | None = None
        self._awaits_answer = False
        self.asking = False
        self.began_at = asyncio.get_running_loop().time()
        self.talking_at = self.began_at
        self.expires_at: float | None = None
        self.status = 0
        """Final status of an INVITE of ours that was refused."""

    @property
    def is_incoming(self) -> bool:
        """Whether the other end called."""
        return self.invite is not None

    @property
    def on_hold(self) -> bool:
        """Whether the other end wants to hear nothing."""
        return self.leg is not None and self.leg.agreed is not None and self.leg.agreed.held

    def ring(self) -> None:
        """Tell the caller that it rings."""
        self._require(CallState.RINGING)
        self._reply(180)

    async def progress(self) -> RtpLeg:
        """Open media before the call is answered: announcements that cost the caller nothing.

        Raises:
            InvalidState: The call is further, or its INVITE had no session description.
        """
        self._require(CallState.RINGING)
        if self.offer is None:
            raise InvalidState("the call has no offer to answer early")
        leg = await self._open()
        self._require(CallState.RINGING)
        self._reply(183, self._answer(self.offer))
        self._become(CallState.EARLY)
        return leg

    async def answer(self) -> RtpLeg:
        """Take the call.

        Raises:
            InvalidState: It has ended or was answered before.
            EngineBusy: No RTP port is free.
        """
        self._require(CallState.RINGING, CallState.EARLY)
        leg = await self._open()
        self._require(CallState.RINGING, CallState.EARLY)
        if self.state is CallState.EARLY:
            sdp = self._last_sdp
        elif self.offer is not None:
            sdp = self._answer(self.offer)
        else:
            sdp = self._make_offer()
            self._awaits_answer = True
        self._reply(200, sdp)
        self._become(CallState.TALKING)
        return leg

    def refuse(self, status: int = 486) -> None:
        """Turn the call down."""
        self._require(CallState.RINGING, CallState.EARLY)
        self._reply(status)
        self.end("refused")

    def hang_up(self, reason: str = "hung up here") -> None:
        """End the call, whatever its state; a second time does nothing."""
        if self.state is CallState.ENDED:
            return
        if self.state is CallState.TALKING:
            self._agent.send_request(self, self.dialog.request("BYE"), lambda _: None)
        elif self.is_incoming:
            self._reply(480)
        else:
            self._agent.cancel_invite(self)
        self.end(reason)

    async def hold(self, held: bool = True) -> None:
        """Ask the other end to send nothing, or to go on.

        Raises:
            CallFailed: It refused; the call goes on as before.
            InvalidState: The call is not answered.
        """
        before, self._held_by_us = self._held_by_us, held
        try:
            await self.renegotiate()
        except CallFailed:
            self._held_by_us = before
            raise

    async def renegotiate(self) -> None:
        """Send our description again, with a re-INVITE; see `hold`."""
        self._require(CallState.TALKING)
        if self.asking:
            raise InvalidState("another change of the call is under way")
        self.asking = True
        try:
            response = await self._ask(self.dialog.request("INVITE", sdp=self._make_offer()))
        finally:
            self.asking = False
        self._agent.send_ack(self, response)
        self.read_answer(response)

    async def transfer(self, target: str) -> None:
        """Send the other end elsewhere (a blind transfer); it hangs up when that has worked.

        Args:
            target: URI to call.

        Raises:
            CallFailed: It will not.
            InvalidState: The call is not answered.
        """
        self._require(CallState.TALKING)
        await self._ask(self.dialog.request("REFER", headers={"Refer-To": f"<{target}>"}))

    # What the user agent tells the call.

    def cancelled(self) -> None:
        """The other end has given its call up before it was answered."""
        if self.state in (CallState.RINGING, CallState.EARLY):
            self._reply(487)
            self.end("cancelled")

    def end(self, reason: str) -> None:
        """The call is over; media and ports are freed."""
        if self.state is CallState.ENDED:
            return
        self.reason = reason
        if self.leg is not None:
            self.leg.close()
        self._become(CallState.ENDED)
        self.over.set()
        self._agent.ended(self)

    async def prepare(self) -> str:
        """Open media for a call of ours and describe it."""
        await self._open()
        return self._make_offer()

    def read_answer(self, message: SipRequest | SipResponse) -> None:
        """Take the description that answers ours; none leaves things as they are.

        Raises:
            InvalidMessage: It cannot be read.
            UnsupportedFormat: It chooses what was not offered.
        """
        text = sdp_of(message)
        if text is not None:
            self._agree(read_answer(Description.parse(text), self._local()))

    def early(self, response: SipResponse) -> None:
        """A call of ours rings; media may flow already."""
        if response.body and self.state is CallState.RINGING:
            self.read_answer(response)
            self._become(CallState.EARLY)
        self.changed.set()

    def fail(self, status: int) -> None:
        """A call of ours was refused, or not answered."""
        self.status = status
        self.end(f"refused with {status}")

    def check_answered(self) -> None:
        """Raise unless a call of ours is answered.

        Raises:
            CallFailed: It is not.
        """
        if self.state is not CallState.TALKING:
            raise CallFailed(self.status or 487)

    def talk(self) -> None:
        """A call of ours was answered."""
        self._become(CallState.TALKING)

    def acknowledged(self, ack: SipRequest) -> None:
        """The other end has our answer; with a late offer of ours, its answer comes here.

        Raises:
            InvalidMessage: There is none, or it cannot be read.
            UnsupportedFormat: It chooses what was not offered.
        """
        if self._awaits_answer:
            self._awaits_answer = False
            if not ack.body:
                raise InvalidMessage("the ACK has no session description")
            self.read_answer(ack)

    def changed_by_peer(self, offer: Description | None) -> str:
        """Answer a re-INVITE or an UPDATE.

        Args:
            offer: None asks for ours.

        Returns:
            The session description to answer with.

        Raises:
            UnsupportedFormat: The offer cannot be; the call goes on as before.
        """
        if offer is None:
            self._awaits_answer = True
            return self._make_offer()
        return self._answer(offer)

    def take_info(self, request: SipRequest) -> None:
        """Take the key that an INFO carries."""
        key = key_of_info(request.text)
        if key is not None and self.leg is not None:
            self.leg.add_key(key)
            self.changed.set()

    def _require(self, *states: CallState) -> None:
        if self.state not in states:
            raise InvalidState(f"the call is {self.state.name.lower()}")

    def _become(self, state: CallState) -> None:
        self.state = state
        if state is CallState.TALKING:
            self.talking_at = asyncio.get_running_loop().time()
            self._agent.watch(self)
        self.changed.set()

    async def _open(self) -> RtpLeg:
        if self.leg is None:
            leg = await self._agent.open_leg()
            if self.state is CallState.ENDED:
                leg.close()
                raise InvalidState("the call is ended")
            self.leg = leg
        return self.leg

    def _local(self) -> Local:
        assert self.leg is not None
        config = self._agent.config
        return Local(
            self.dialog.here.host,
            self.leg.port,
            config.codecs,
            Direction.SENDONLY if self._held_by_us else Direction.SENDRECV,
            config.ptime_ms,
            self._session_id,
            self._version,
        )

    def _make_offer(self) -> str:
        return self._describe(make_offer(self._local()))

    def _answer(self, offer: Description) -> str:
        answer, agreed = make_answer(offer, self._local())
        self._agree(agreed)
        return self._describe(answer)

    def _describe(self, description: Description) -> str:
        """The text, under a higher version whenever it differs from the last one."""
        text = description.serialize()
        if self._last_sdp is not None and text != self._last_sdp:
            self._version += 1
            text = Description(
                description.host, description.media, self._session_id, self._version
            ).serialize()
        self._last_sdp = text
        return text

    def _agree(self, agreed: Agreed) -> None:
        assert self.leg is not None
        self.leg.agree(agreed, (self.source,))
        self.changed.set()

    def _reply(self, status: int, sdp: str | None = None) -> None:
        assert self.invite is not None
        headers = {}
        if status == 200:
            headers = {"Allow": ALLOW, **self.session_headers(self.invite.request)}
        response = make_response(
            self.invite.request,
            status,
            to_tag=self.dialog.local_tag,
            contact=self.dialog.contact if status < 300 else "",
            sdp=sdp,
            headers=headers,
        )
        self._agent.respond(self.invite, response)

    def session_headers(self, request: SipRequest) -> dict[str, str]:
        """Accept the session timer of a request: the other end refreshes (RFC 4028)."""
        interval = session_interval(request)
        if interval is None:
            return {}
        self.expires_at = asyncio.get_running_loop().time() + interval
        return {"Session-Expires": f"{interval};refresher=uac", "Require": "timer"}

    async def _ask(self, request: SipRequest) -> SipResponse:
        """Send a request within the call and wait for its success."""
        answered: asyncio.Future[SipResponse | None] = asyncio.get_running_loop().create_future()

        def replied(response: SipResponse | None) -> None:
            final = response is None or response.status_code >= 200
            if final and not answered.done():
                answered.set_result(response)

        self._agent.send_request(self, request, replied)
        response = await answered
        if response is None or response.status_code >= 300:
            raise CallFailed(408 if response is None else response.status_code)
        return response
