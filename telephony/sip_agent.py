"""A SIP user agent: takes and places calls, and keeps a registration.

::

    sockets ──► parse ──► transactions ──► here ──► SipCall ──► handler(call), one task a call
    sockets ◄──────────── transactions ◄── here ◄── SipCall

Everything runs on one event loop and nothing waits here; a call's handler is where waiting happens.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

from aiosipua.auth import SipDigestAuth, answer_challenge
from aiosipua.message import SipRequest, SipResponse

from cosyvoice_stream.errors import EngineBusy, InvalidMessage, VoiceStreamError
from cosyvoice_stream.telephony.rtp_leg import RtpLeg, RtpPorts
from cosyvoice_stream.telephony.sip_call import SipCall
from cosyvoice_stream.telephony.sip_config import SipConfig
from cosyvoice_stream.telephony.sip_dialog import Dialog, Here
from cosyvoice_stream.telephony.sip_inbound import Inbound
from cosyvoice_stream.telephony.sip_limits import deadline
from cosyvoice_stream.telephony.sip_messages import (
    Flow,
    make_response,
    parse_message,
    sdp_of,
    uri_flow,
)
from cosyvoice_stream.telephony.sip_outbound import Outbound
from cosyvoice_stream.telephony.sip_registration import Registration
from cosyvoice_stream.telephony.sip_signalling import CallState
from cosyvoice_stream.telephony.sip_sockets import SipSockets, resolve
from cosyvoice_stream.telephony.sip_transactions import (
    ClientTransaction,
    Requested,
    Responded,
    ServerTransaction,
    TimedOut,
    Transactions,
)

logger = logging.getLogger(__name__)

Handler = Callable[[SipCall], Awaitable[None]]
Replied = Callable[[SipResponse | None], None]

_GRACE_S: Final = 5.0
"""A handler may take so long to notice that its call has ended."""


class UserAgent:
    """Use as an asynchronous context manager: it listens inside.

    Args:
        config: How to run.
        handler: Runs for each call that comes in; when it returns, the call is hung up.

    Attributes:
        port: UDP and TCP port, after the start.
        tls_port: TLS port, or None.
        calls: Calls that have not ended.
    """

    def __init__(self, config: SipConfig, handler: Handler) -> None:
        self.config = config
        self.port = config.port
        self.tls_port = config.tls_port
        self.calls: dict[tuple[str, str], SipCall] = {}
        self.registration: Registration | None = None
        self.stopping = False
        self._handler = handler
        self._ports = RtpPorts(*config.rtp_ports)
        self._sockets = SipSockets(
            self._received, config.admits, self._unreachable, client_tls=config.client_tls
        )
        self._transactions = Transactions()
        self._replies: dict[ClientTransaction, Replied] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._watches: dict[SipCall, asyncio.TimerHandle] = {}
        self._group = asyncio.TaskGroup()
        self._tasks: dict[SipCall, asyncio.Task[None]] = {}
        self._drained = asyncio.Event()
        self._hosts: dict[str, str] = {}
        self._inbound = Inbound(self)
        self._outbound = Outbound(self)
        self._proxies: set[str] = set()

    async def __aenter__(self) -> Self:
        """Listen, and register if there is an account."""
        config = self.config
        self._loop = asyncio.get_running_loop()
        try:
            self.port = await self._sockets.open_both(config.host, config.port)
            if config.tls is not None and config.tls_port is not None:
                self.tls_port = await self._sockets.open_tcp(
                    config.host, config.tls_port, config.tls
                )
            await self._group.__aenter__()
            if config.account is not None:
                self.registration = Registration(self, config.account)
                await self.registration.start()
        except BaseException:
            await self._sockets.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Hang every call up, take the registration back and close."""
        self.stopping = True
        for call in list(self.calls.values()):
            call.hang_up("the server stops")
        if self.registration is not None:
            self.registration.stop()
        try:
            async with asyncio.timeout(self.config.goodbye_s):
                while any(client.final is None for client in self._replies):
                    self._drained.clear()
                    await self._drained.wait()
        except TimeoutError:
            pass
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in list(self._tasks.values()):
                task.cancel()
            try:
                await self._group.__aexit__(None, None, None)
            finally:
                await self._sockets.close()

    async def place(self, target: str) -> SipCall:
        """Call somebody; `answered` waits for the outcome.

        Args:
            target: URI, such as ``sip:name@192.0.2.1``; with an account, its registrar finds the
                way.

        Raises:
            ConfigError: The URI names no host that can be found.
            EngineBusy: As many calls run as may, or no RTP port is free.
        """
        if len(self.calls) >= self.config.max_calls or self.stopping:
            raise EngineBusy(1.0, "as many calls run as may")
        account = self.config.account
        hop = uri_flow((account.registrar or account.uri) if account is not None else target)
        if hop is None or uri_flow(target) is None:
            raise InvalidMessage("a call needs a URI such as sip:name@192.0.2.1")
        flow = await self.route(hop)
        here = self.here(flow)
        sender = account.uri if account is not None else f"sip:{here.user}@{here.host}"
        dialog = Dialog.calling(sender, target, flow, here)
        call = SipCall(self, dialog, flow.host)
        self._enter(call)
        try:
            sdp = await call.prepare()
        except BaseException:
            call.end("no port")
            raise
        self._outbound.invite(call, sdp)
        self.watch(call)
        return call

    async def answered(self, call: SipCall) -> None:
        """Wait until a call of ours is answered.

        Raises:
            CallFailed: It was refused, or nobody answered.
        """
        while call.state in (CallState.RINGING, CallState.EARLY):
            call.changed.clear()
            await call.changed.wait()
        call.check_answered()

    async def route(self, flow: Flow) -> Flow:
        """Look a host up; what it sends back is let in."""
        found = await resolve(flow)
        self._proxies.add(found.host)
        return found

    def here(self, flow: Flow) -> Here:
        """Our address as somebody there is told it."""
        port = self.tls_port if flow.transport == "TLS" and self.tls_port else self.port
        account = self.config.account
        user = self.config.user
        if account is not None:
            user = account.uri.partition(":")[2].partition("@")[0] or user
        return Here(user, self.config.advertised_host or self._host_towards(flow.host), port)

    # What calls ask for; see `Signalling`.

    async def open_leg(self) -> RtpLeg:
        """Bind ports for media."""
        return await self._ports.open(self.config.host)

    def respond(self, transaction: ServerTransaction, response: SipResponse) -> None:
        """Answer a request."""
        self._transactions.respond(transaction, response, self._loop.time())
        self._pump()

    def send_request(self, call: SipCall, request: SipRequest, replied: Replied) -> None:
        """Send a request of a call; a challenge of a proxy is answered once."""

        def answered(response: SipResponse | None) -> None:
            credentials = None
            if response is not None and response.status_code in (401, 407):
                credentials = self.credentials(request, response)
            if credentials is None:
                replied(response)
                return
            refer = request.headers.get_first("refer-to")
            headers = credentials | ({"Refer-To": refer} if refer else {})
            again = call.dialog.request(request.method, sdp=sdp_of(request), headers=headers)
            self.send(again, call.dialog.flow, replied)

        self.send(request, call.dialog.flow, answered)

    def send(self, request: SipRequest, flow: Flow, replied: Replied) -> ClientTransaction:
        """Send a request; `replied` gets every response, or None when nobody answers."""
        client = self._transactions.request(request, flow, self._loop.time())
        self._replies[client] = replied
        self._pump()
        return client

    def send_ack(self, call: SipCall, response: SipResponse) -> None:
        """Acknowledge a 2xx, again whenever it comes again."""
        self._transactions.send(*self._outbound.ack(call, response))
        self._pump()

    def cancel_invite(self, call: SipCall) -> None:
        """Give an INVITE of ours up; should it be answered all the same, the call is hung up."""
        client = self._outbound.invites.get(call)
        if client is not None:
            self._transactions.cancel(client, self._loop.time())
            self._pump()

    def ended(self, call: SipCall) -> None:
        """Forget a call."""
        self.calls.pop((call.dialog.call_id, call.dialog.local_tag), None)
        self._outbound.forget(call)
        handle = self._watches.pop(call, None)
        if handle is not None:
            handle.cancel()
        task = self._tasks.get(call)
        if task is not None and not self.stopping:
            self._loop.call_later(_GRACE_S, task.cancel)
        seconds = self._loop.time() - call.began_at
        call.log.info("ended after %.1f s: %s", seconds, call.reason)

    def take_call(self, call: SipCall) -> None:
        """A call comes in: run its handler."""
        self._enter(call)
        self.watch(call)
        self._tasks[call] = self._group.create_task(self._serve(call), name="sip call")

    # Inside.

    def _enter(self, call: SipCall) -> None:
        self.calls[call.dialog.call_id, call.dialog.local_tag] = call
        call.log.info(
            "%s, %d calls", "comes in" if call.is_incoming else "goes out", len(self.calls)
        )

    async def _serve(self, call: SipCall) -> None:
        """Run the handler; whatever becomes of it, the call is over then."""
        try:
            await self._handler(call)
        except VoiceStreamError as error:
            call.log.warning("failed: %s", error)
        except Exception as error:
            call.log.error("failed: %s", type(error).__name__, exc_info=error)
        finally:
            self._tasks.pop(call, None)
            call.hang_up()

    def credentials(self, request: SipRequest, response: SipResponse) -> dict[str, str] | None:
        """Answer a challenge, if we can."""
        account = self.config.account
        if account is None:
            return None
        digest = SipDigestAuth(account.username, account.password)
        made = answer_challenge(digest, response, response.status_code, request.method, request.uri)
        return None if made is None else {made[0]: made[1]}

    def _received(self, data: bytes, flow: Flow) -> None:
        """Take a datagram or a message of a stream."""
        if not self.config.admits(flow.host) and flow.host not in self._proxies:
            return
        try:
            message = parse_message(data)
        except InvalidMessage as error:
            logger.debug("x %s: %s", flow.transport, error)
            return
        self._transactions.receive(message, flow, self._loop.time())
        self._pump()

    def _unreachable(self, flow: Flow) -> None:
        """A connection could not be made."""
        self._transactions.unreachable(flow)
        self._pump()

    def _pump(self) -> None:
        """Hand on what the transactions have to say, and set the timer."""
        while True:
            for message, flow in self._transactions.data_to_send():
                self._sockets.send(bytes(message), flow)
            events = self._transactions.events()
            if not events:
                break
            for event in events:
                self._handle(event)
        if self._timer is not None:
            self._timer.cancel()
        at = self._transactions.next_at
        self._timer = None if at is None else self._loop.call_at(at, self._poll)

    def _poll(self) -> None:
        self._transactions.poll(self._loop.time())
        self._pump()

    def _handle(self, event: Requested | Responded | TimedOut) -> None:
        match event:
            case Requested(transaction, request, flow):
                try:
                    self._inbound.take(transaction, request, flow)
                except Exception:
                    logger.exception("a SIP request could not be handled")
                    if transaction is not None:
                        self.respond(transaction, make_response(request, 500))
            case Responded(transaction, response):
                replied = self._replies.get(transaction)
                final = response.status_code >= 200
                if final and not (transaction.is_invite and response.status_code < 300):
                    self._replies.pop(transaction, None)
                if replied is not None:
                    replied(response)
                self._drained.set()
            case TimedOut(ServerTransaction() as transaction):
                self._inbound.unacknowledged(transaction)
            case TimedOut(ClientTransaction() as transaction):
                replied = self._replies.pop(transaction, None)
                if replied is not None:
                    replied(None)
                self._drained.set()

    def invite_of(self, cancel: SipRequest) -> ServerTransaction | None:
        """The INVITE that a CANCEL means."""
        return self._transactions.invite_of(cancel)

    def acknowledged(self, transaction: ServerTransaction) -> None:
        """The ACK to a 2xx has come."""
        self._transactions.acknowledged(transaction)

    def watch(self, call: SipCall) -> None:
        """Look at a call's limits, and again when the next one may be reached."""
        handle = self._watches.pop(call, None)
        if handle is not None:
            handle.cancel()
        now = self._loop.time()
        at, reason = deadline(call, self.config, now)
        if now >= at:
            call.hang_up(reason)
        else:
            self._watches[call] = self._loop.call_at(at, self.watch, call)

    def _host_towards(self, host: str) -> str:
        """Our address as the route to a host has it; nothing is sent."""
        known = self._hosts.get(host)
        if known is not None:
            return known
        ours = self.config.host
        if ours in ("0.0.0.0", "::"):
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                try:
                    probe.connect((host, 9))
                    ours = str(probe.getsockname()[0])
                except OSError:
                    ours = "127.0.0.1"
        if len(self._hosts) < 1000:
            self._hosts[host] = ours
        return ours
