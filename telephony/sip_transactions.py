"""SIP transactions of RFC 3261, section 17, without sockets: what is repeated, and until when.

::

    receive(message) ──►              ──► events()        for the user agent
    request(), respond() ──►  timers  ──► data_to_send()  for the transport
    poll(now) ──►                         next_at         when to poll again

Lost messages are repeated and repeated ones are answered here, so that the layer above sees every
request and every response once.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from aiosipua.message import SipRequest, SipResponse

from cosyvoice_stream.telephony.sip_messages import (
    COOKIE,
    Flow,
    Message,
    call_id_of,
    cseq_of,
    make_ack,
    make_cancel,
    method_of,
    reply_flow,
    stamp_via,
    tag_of,
    top_via,
)

T1_S: Final = 0.5
"""Estimate of the round trip."""
T2_S: Final = 4.0
"""Longest wait between two repetitions."""
T4_S: Final = 5.0
"""How long a message may stay in the network."""
TIMEOUT_S: Final = 64 * T1_S
MAX_TRANSACTIONS: Final = 10_000
"""Requests beyond are not answered; whoever sends so many is no telephone."""


class Stage(Enum):
    """Where a transaction stands."""

    TRYING = auto()
    PROCEEDING = auto()
    ACCEPTED = auto()
    """An INVITE with a final answer below 300."""
    COMPLETED = auto()
    CONFIRMED = auto()
    ENDED = auto()


@dataclass(eq=False, slots=True)
class _Transaction:
    request: SipRequest
    flow: Flow
    key: tuple[str, ...]
    stage: Stage = Stage.TRYING
    resend_at: float | None = None
    interval_s: float = T1_S
    end_at: float | None = None

    @property
    def is_invite(self) -> bool:
        """Whether it may last as long as somebody lets it ring."""
        return self.request.method == "INVITE"


@dataclass(eq=False, slots=True)
class ServerTransaction(_Transaction):
    """A request of the other end."""

    response: SipResponse | None = None
    reply_to: Flow | None = None


@dataclass(eq=False, slots=True)
class ClientTransaction(_Transaction):
    """A request of ours."""

    final: SipResponse | None = None
    cancelled: bool = False
    """`cancel` was called."""
    ack: SipRequest | None = None
    """What a refusal was acknowledged with."""


@dataclass(frozen=True, slots=True)
class Requested:
    """The other end asks for something; ACK and CANCEL come here as well."""

    transaction: ServerTransaction | None
    """None for an ACK, which is not answered."""
    request: SipRequest
    flow: Flow


@dataclass(frozen=True, slots=True)
class Responded:
    """An answer; a repeated 2xx to an INVITE comes again, because its ACK was lost."""

    transaction: ClientTransaction
    response: SipResponse


@dataclass(frozen=True, slots=True)
class TimedOut:
    """No answer came, or no ACK."""

    transaction: ServerTransaction | ClientTransaction


Event = Requested | Responded | TimedOut


def _server_key(request: SipRequest, method: str) -> tuple[str, ...]:
    via = top_via(request)
    branch = via.branch or ""
    if not branch.startswith(COOKIE):  # from before RFC 3261, section 17.2.3
        branch = f"{call_id_of(request)} {cseq_of(request)} {tag_of(request, 'from')}"
    return branch, f"{via.host}:{via.port}", method


def _client_key(message: Message) -> tuple[str, ...]:
    return top_via(message).branch or "", method_of(message)


@dataclass(slots=True)
class Transactions:
    """All transactions of one user agent."""

    _servers: dict[tuple[str, ...], ServerTransaction] = field(default_factory=dict)
    _clients: dict[tuple[str, ...], ClientTransaction] = field(default_factory=dict)
    _events: list[Event] = field(default_factory=list)
    _out: list[tuple[Message, Flow]] = field(default_factory=list)
    _timers: list[tuple[float, int, _Transaction]] = field(default_factory=list)
    _order: itertools.count[int] = field(default_factory=itertools.count)

    def __len__(self) -> int:
        return len(self._servers) + len(self._clients)

    @property
    def next_at(self) -> float | None:
        """When `poll` has something to do."""
        return self._timers[0][0] if self._timers else None

    def events(self) -> list[Event]:
        """Take what happened."""
        events, self._events = self._events, []
        return events

    def data_to_send(self) -> list[tuple[Message, Flow]]:
        """Take what has to be sent, in order."""
        out, self._out = self._out, []
        return out

    def receive(self, message: Message, flow: Flow, now: float) -> None:
        """Take a message that `parse_message` has read."""
        if isinstance(message, SipResponse):
            self._receive_response(message, now)
        elif message.method == "ACK":
            self._receive_ack(message, flow, now)
        else:
            self._receive_request(message, flow, now)

    def request(self, request: SipRequest, flow: Flow, now: float) -> ClientTransaction:
        """Send a request and repeat it until it is answered."""
        client = ClientTransaction(request, flow, _client_key(request))
        self._clients[client.key] = client
        self._out.append((request, flow))
        client.end_at = now + TIMEOUT_S
        client.resend_at = None if flow.reliable else now + T1_S
        self._arm(client)
        return client

    def send(self, request: SipRequest, flow: Flow) -> None:
        """Send a request without an answer: the ACK to a 2xx."""
        self._out.append((request, flow))

    def respond(self, server: ServerTransaction, response: SipResponse, now: float) -> None:
        """Answer a request; a later final answer to an INVITE replaces provisional ones."""
        if server.stage in (Stage.ACCEPTED, Stage.COMPLETED, Stage.CONFIRMED, Stage.ENDED):
            return
        server.response = response
        self._reply(server)
        if response.status_code < 200:
            server.stage = Stage.PROCEEDING
            return
        server.end_at = now + TIMEOUT_S
        accepted = server.is_invite and response.status_code < 300
        server.stage = Stage.ACCEPTED if accepted else Stage.COMPLETED
        if accepted or (server.is_invite and not server.flow.reliable):
            server.interval_s = T1_S
            server.resend_at = now + T1_S
        self._arm(server)

    def acknowledged(self, server: ServerTransaction) -> None:
        """The ACK to a 2xx has come."""
        if server.stage is Stage.ACCEPTED:
            server.stage = Stage.CONFIRMED
            server.resend_at = None

    def cancel(self, client: ClientTransaction, now: float) -> None:
        """Give an INVITE up, as soon as the other end is known to have it."""
        if client.cancelled or client.final is not None:
            return
        client.cancelled = True
        if client.stage is Stage.PROCEEDING:
            self._send_cancel(client, now)

    def unreachable(self, flow: Flow) -> None:
        """Nothing can be sent there: what waits for an answer from there gets none."""
        for client in list(self._clients.values()):
            if client.flow == flow and client.final is None:
                self._expire(client)

    def poll(self, now: float) -> None:
        """Repeat and give up what is due."""
        while self._timers and self._timers[0][0] <= now:
            _, _, transaction = heapq.heappop(self._timers)
            if transaction.stage is Stage.ENDED:
                continue
            if transaction.end_at is not None and transaction.end_at <= now:
                self._expire(transaction)
            elif transaction.resend_at is not None and transaction.resend_at <= now:
                self._repeat(transaction, now)
                self._arm(transaction)

    def _receive_request(self, request: SipRequest, flow: Flow, now: float) -> None:
        key = _server_key(request, request.method)
        known = self._servers.get(key)
        if known is not None:
            if known.response is not None:
                self._reply(known)
            return
        if len(self) >= MAX_TRANSACTIONS:
            return
        reply_to = reply_flow(request, flow)
        stamp_via(request, flow)
        server = ServerTransaction(request, flow, key, reply_to=reply_to)
        self._servers[key] = server
        self._events.append(Requested(server, request, flow))

    def invite_of(self, cancel: SipRequest) -> ServerTransaction | None:
        """The INVITE that a CANCEL means, while it has no final answer."""
        server = self._servers.get(_server_key(cancel, "INVITE"))
        return server if server is not None and server.stage.value < Stage.ACCEPTED.value else None

    def _receive_ack(self, ack: SipRequest, flow: Flow, now: float) -> None:
        server = self._servers.get(_server_key(ack, "INVITE"))
        if server is None or server.stage in (Stage.ACCEPTED, Stage.CONFIRMED):
            self._events.append(Requested(None, ack, flow))
        elif server.stage is Stage.COMPLETED:
            server.stage = Stage.CONFIRMED
            server.resend_at = None
            server.end_at = now if server.flow.reliable else now + T4_S
            self._arm(server)

    def _receive_response(self, response: SipResponse, now: float) -> None:
        client = self._clients.get(_client_key(response))
        if client is None:
            return
        if client.final is not None:
            self._answer_again(client, response)
            return
        client.resend_at = None if client.is_invite else client.resend_at
        if response.status_code < 200:
            if client.is_invite:
                client.end_at = None
                if client.stage is Stage.TRYING and client.cancelled:
                    self._send_cancel(client, now)
            else:
                client.interval_s = T2_S
            client.stage = Stage.PROCEEDING
            self._events.append(Responded(client, response))
            return
        client.final = response
        client.resend_at = None
        client.stage = Stage.COMPLETED
        if client.is_invite and response.status_code < 300:
            client.stage = Stage.ACCEPTED
        elif client.is_invite:
            client.ack = make_ack(client.request, response)
            self._out.append((client.ack, client.flow))
        waits = client.is_invite or not client.flow.reliable
        client.end_at = now + ((TIMEOUT_S if client.is_invite else T4_S) if waits else 0.0)
        self._arm(client)
        self._events.append(Responded(client, response))

    def _answer_again(self, client: ClientTransaction, response: SipResponse) -> None:
        if client.ack is not None and response.status_code >= 300:
            self._out.append((client.ack, client.flow))
        elif client.stage is Stage.ACCEPTED and 200 <= response.status_code < 300:
            self._events.append(Responded(client, response))

    def _send_cancel(self, client: ClientTransaction, now: float) -> None:
        self.request(make_cancel(client.request), client.flow, now)
        client.end_at = now + TIMEOUT_S  # no 487 ever: give up (section 9.1)
        self._arm(client)

    def _reply(self, server: ServerTransaction) -> None:
        assert server.response is not None
        self._out.append((server.response, server.reply_to or server.flow))

    def _repeat(self, transaction: _Transaction, now: float) -> None:
        if isinstance(transaction, ServerTransaction):
            self._reply(transaction)
            longest = T2_S
        else:
            self._out.append((transaction.request, transaction.flow))
            longest = TIMEOUT_S if transaction.is_invite else T2_S
        transaction.interval_s = min(2 * transaction.interval_s, longest)
        transaction.resend_at = now + transaction.interval_s

    def _expire(self, transaction: _Transaction) -> None:
        stage, transaction.stage = transaction.stage, Stage.ENDED
        transaction.resend_at = None
        if isinstance(transaction, ServerTransaction):
            self._servers.pop(transaction.key, None)
            if transaction.is_invite and stage is Stage.ACCEPTED:
                self._events.append(TimedOut(transaction))
        elif isinstance(transaction, ClientTransaction):
            self._clients.pop(transaction.key, None)
            if transaction.final is None:
                self._events.append(TimedOut(transaction))

    def _arm(self, transaction: _Transaction) -> None:
        for at in (transaction.resend_at, transaction.end_at):
            if at is not None:
                heapq.heappush(self._timers, (at, next(self._order), transaction))
