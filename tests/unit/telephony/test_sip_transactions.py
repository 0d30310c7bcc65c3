"""SIP transactions in virtual time: repeated until answered, answered once, given up in the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aiosipua.message import SipRequest, SipResponse

from cosyvoice_stream.telephony import sip_transactions
from cosyvoice_stream.telephony.sip_messages import (
    Flow,
    Message,
    make_request,
    make_response,
    own_via,
    parse_message,
)
from cosyvoice_stream.telephony.sip_transactions import (
    ClientTransaction,
    Requested,
    Responded,
    ServerTransaction,
    TimedOut,
    Transactions,
)
from support.sip_text import invite

pytestmark = pytest.mark.unit

UDP = Flow("UDP", "198.51.100.9", 5060)
TCP = Flow("TCP", "198.51.100.9", 40_000)


def ours(method: str = "INVITE") -> SipRequest:
    return make_request(
        method,
        "sip:a@198.51.100.9",
        via=own_via("UDP", "192.0.2.1", 5060),
        sender="<sip:us@192.0.2.1>;tag=1",
        receiver="<sip:a@198.51.100.9>",
        call_id="c",
        cseq=1,
    )


def theirs(**changes: str) -> SipRequest:
    message = parse_message(invite(**changes))
    assert isinstance(message, SipRequest)
    return message


def names(layer: Transactions) -> list[str]:
    """What is to be sent, as methods and statuses."""
    return [
        str(message.status_code) if isinstance(message, SipResponse) else message.method
        for message, _ in layer.data_to_send()
    ]


def run(layer: Transactions, until: float) -> Iterator[tuple[float, list[str]]]:
    """Poll whenever something is due; give the times at which something is sent."""
    while layer.next_at is not None and layer.next_at <= until:
        now = layer.next_at
        layer.poll(now)
        sent = names(layer)
        if sent:
            yield now, sent


def arrived(layer: Transactions, request: SipRequest, flow: Flow = UDP) -> ServerTransaction:
    layer.receive(request, flow, 0.0)
    (event,) = layer.events()
    assert isinstance(event, Requested)
    assert event.transaction is not None
    return event.transaction


def reply(layer: Transactions, client: ClientTransaction, status: int, now: float) -> list[Message]:
    layer.receive(make_response(client.request, status, to_tag="t"), client.flow, now)
    return [message for message, _ in layer.data_to_send()]


def test_an_invite_is_repeated_at_doubling_intervals_and_given_up_after_32_s() -> None:
    layer = Transactions()
    client = layer.request(ours(), UDP, 0.0)
    assert names(layer) == ["INVITE"]
    assert [at for at, _ in run(layer, 100)] == [0.5, 1.5, 3.5, 7.5, 15.5, 31.5]
    assert layer.events() == [TimedOut(client)]
    assert len(layer) == 0


def test_other_requests_are_repeated_every_4_s_at_most() -> None:
    layer = Transactions()
    client = layer.request(ours("BYE"), UDP, 0.0)
    times = [at for at, _ in run(layer, 100)]
    assert times == [0.5, 1.5, 3.5, 7.5, 11.5, 15.5, 19.5, 23.5, 27.5, 31.5]
    assert layer.events() == [TimedOut(client)]


def test_over_tcp_nothing_is_repeated() -> None:
    layer = Transactions()
    layer.request(ours(), TCP, 0.0)
    names(layer)
    assert list(run(layer, 100)) == []


def test_a_provisional_answer_stops_the_repetition_and_the_timeout() -> None:
    layer = Transactions()
    client = layer.request(ours(), UDP, 0.0)
    names(layer)
    reply(layer, client, 180, 0.1)
    assert list(run(layer, 300)) == []
    assert [type(event) for event in layer.events()] == [Responded]


def test_a_refusal_is_acknowledged_once_for_each_time_it_comes_and_reported_once() -> None:
    layer = Transactions()
    client = layer.request(ours(), UDP, 0.0)
    names(layer)
    for _ in range(3):
        (ack,) = reply(layer, client, 486, 0.2)
        assert isinstance(ack, SipRequest)
        assert ack.method == "ACK"
        assert ack.headers.get("via") == client.request.headers.get("via")
    assert len(layer.events()) == 1
    list(run(layer, 100))
    assert len(layer) == 0


def test_a_success_comes_again_for_its_ack_to_be_repeated() -> None:
    layer = Transactions()
    client = layer.request(ours(), UDP, 0.0)
    names(layer)
    assert reply(layer, client, 200, 0.2) == reply(layer, client, 200, 0.7) == []
    assert [type(event) for event in layer.events()] == [Responded, Responded]


def test_a_cancel_waits_for_the_first_answer() -> None:
    layer = Transactions()
    client = layer.request(ours(), UDP, 0.0)
    names(layer)
    layer.cancel(client, 0.1)
    assert names(layer) == []
    layer.receive(make_response(client.request, 100), UDP, 0.2)
    assert names(layer) == ["CANCEL"]
    layer.cancel(client, 0.3)
    assert names(layer) == []
    (ack,) = reply(layer, client, 487, 0.4)
    assert isinstance(ack, SipRequest)


def test_a_repeated_request_is_seen_once_and_answered_again() -> None:
    layer = Transactions()
    server = arrived(layer, theirs())
    layer.receive(theirs(), UDP, 0.1)
    assert (layer.events(), names(layer)) == ([], [])
    layer.respond(server, make_response(server.request, 180, to_tag="t"), 0.2)
    layer.receive(theirs(), UDP, 0.3)
    assert names(layer) == ["180", "180"]


def test_a_refusal_is_repeated_until_its_ack() -> None:
    layer = Transactions()
    server = arrived(layer, theirs())
    layer.respond(server, make_response(server.request, 486, to_tag="t"), 0.0)
    assert names(layer) == ["486"]
    assert [at for at, _ in run(layer, 4)] == [0.5, 1.5, 3.5]
    layer.receive(theirs(cseq="1 ACK", body=""), UDP, 4.0)
    assert list(run(layer, 100)) == []
    assert (layer.events(), len(layer)) == ([], 0)


@pytest.mark.parametrize("flow", [UDP, TCP], ids=["UDP", "TCP"])
def test_a_success_is_repeated_until_its_ack_over_any_transport(flow: Flow) -> None:
    layer = Transactions()
    server = arrived(layer, theirs(), flow)
    layer.respond(server, make_response(server.request, 200, to_tag="t"), 0.0)
    assert names(layer) == ["200"]
    assert [at for at, _ in run(layer, 8)] == [0.5, 1.5, 3.5, 7.5]
    other_branch = "SIP/2.0/UDP 198.51.100.9:5060;branch=z9hG4bK2"
    layer.receive(theirs(cseq="1 ACK", body="", via=other_branch), flow, 8.0)
    (event,) = layer.events()
    assert isinstance(event, Requested)
    assert event.transaction is None
    layer.acknowledged(server)
    assert list(run(layer, 100)) == []
    assert (layer.events(), len(layer)) == ([], 0)


def test_a_success_without_an_ack_is_reported() -> None:
    layer = Transactions()
    server = arrived(layer, theirs())
    layer.respond(server, make_response(server.request, 200, to_tag="t"), 0.0)
    list(run(layer, 100))
    assert layer.events() == [TimedOut(server)]


def test_a_cancel_finds_its_invite_while_it_is_open() -> None:
    layer = Transactions()
    server = arrived(layer, theirs())
    cancel = theirs(cseq="1 CANCEL", body="")
    assert layer.invite_of(cancel) is server
    layer.respond(server, make_response(server.request, 200, to_tag="t"), 0.0)
    assert layer.invite_of(cancel) is None


def test_only_the_first_final_answer_counts() -> None:
    layer = Transactions()
    server = arrived(layer, theirs())
    layer.respond(server, make_response(server.request, 486, to_tag="t"), 0.0)
    layer.respond(server, make_response(server.request, 200, to_tag="t"), 0.1)
    assert names(layer) == ["486"]


def test_telephones_from_before_rfc_3261_are_told_apart_by_other_headers() -> None:
    layer = Transactions()
    old = "SIP/2.0/UDP 198.51.100.9:5060"
    arrived(layer, theirs(via=old))
    layer.receive(theirs(via=old), UDP, 0.1)
    assert layer.events() == []
    arrived(layer, theirs(via=old, call_id="another"))


def test_strangers_answers_are_ignored() -> None:
    layer = Transactions()
    layer.receive(make_response(ours(), 200, to_tag="t"), UDP, 0.0)
    assert (layer.events(), layer.data_to_send(), len(layer)) == ([], [], 0)


def test_a_flood_of_requests_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sip_transactions, "MAX_TRANSACTIONS", 3)
    layer = Transactions()
    for number in range(5):
        layer.receive(theirs(via=f"SIP/2.0/UDP h:1;branch=z9hG4bK{number}"), UDP, 0.0)
    assert len(layer.events()) == len(layer) == 3


def test_what_cannot_be_sent_is_given_up_at_once() -> None:
    layer = Transactions()
    client, other = layer.request(ours(), TCP, 0.0), layer.request(ours(), UDP, 0.0)
    layer.unreachable(TCP)
    assert layer.events() == [TimedOut(client)]
    assert other.final is None
    assert len(layer) == 1
