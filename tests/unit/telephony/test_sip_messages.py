"""SIP messages: what is read, what is refused, how answers are built."""

from __future__ import annotations

import pytest
from aiosipua.message import SipRequest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.errors import InvalidMessage
from cosyvoice_stream.telephony.sip_messages import (
    Flow,
    make_ack,
    make_cancel,
    make_request,
    make_response,
    own_via,
    parse_message,
    reply_flow,
    sdp_of,
    stamp_via,
    uri_flow,
)
from support.sip_text import invite

pytestmark = pytest.mark.unit

SOURCE = Flow("UDP", "198.51.100.9", 40_000)


def request(**changes: str) -> SipRequest:
    message = parse_message(invite(**changes))
    assert isinstance(message, SipRequest)
    return message


def test_an_invite_is_read() -> None:
    message = request()
    assert (message.method, message.call_id) == ("INVITE", "call-1@198.51.100.9")
    assert (sdp_of(message) or "").startswith("v=0")


def test_compact_names_and_folded_lines_are_understood() -> None:
    text = (
        "OPTIONS sip:bot@192.0.2.1 SIP/2.0\r\nv: SIP/2.0/UDP 198.51.100.9;branch=z9hG4bK1\r\n"
        "f: <sip:a@b>\r\n ;tag=1\r\nt: <sip:c@d>\r\ni: x\r\nCSeq: 1 OPTIONS\r\n\r\n"
    )
    message = parse_message(text.encode())
    assert (message.call_id, message.from_addr and message.from_addr.tag) == ("x", "1")


@given(st.binary(max_size=300) | st.integers(0, len(invite())).map(lambda end: invite()[:end]))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        message = parse_message(data)
    except InvalidMessage:
        return
    assert message.cseq is not None
    assert message.call_id


@pytest.mark.parametrize("name", ["Via", "From", "To", "Call-ID", "CSeq"])
def test_a_header_that_every_message_needs_is_missed(name: str) -> None:
    lines = [line for line in invite().split(b"\r\n") if not line.startswith(name.encode())]
    with pytest.raises(InvalidMessage):
        parse_message(b"\r\n".join(lines))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cseq": "1 BYE", "method": "INVITE"}, "names another method"),
        ({"cseq": "x INVITE"}, "no SIP message"),
        ({"cseq": "-1 INVITE"}, "Via or the CSeq"),
        ({"cseq": "99999999999 INVITE"}, "Via or the CSeq"),
        ({"via": "nonsense"}, "Via or the CSeq"),
    ],
)
def test_impossible_headers_are_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidMessage, match=message):
        parse_message(invite(**changes))


def test_an_oversized_message_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="at most 65535 bytes"):
        parse_message(invite() + bytes(65_536))


def test_refusals_never_quote_the_message() -> None:
    with pytest.raises(InvalidMessage) as refused:
        parse_message(b"INVITE sip:+4930123456@b\r\n\r\n")
    assert "4930123456" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_an_answer_copies_what_it_must_and_says_where_the_request_came_from() -> None:
    asked = request()
    stamp_via(asked, SOURCE)
    answer = parse_message(bytes(make_response(asked, 200, to_tag="t1", contact="sip:us@h")))
    via = answer.headers.get("via")[0]
    assert "received=198.51.100.9" in via
    assert "rport=40000" in via
    assert answer.headers.get_first("from") == asked.headers.get_first("from")
    assert answer.headers.get_first("to") == f"{asked.headers.get_first('to')};tag=t1"
    assert answer.headers.get_first("cseq") == "1 INVITE"
    assert answer.headers.get_first("contact") == "<sip:us@h>"


def test_answers_go_where_the_via_asks() -> None:
    assert reply_flow(request(), SOURCE) == SOURCE
    plain = request(via="SIP/2.0/UDP 10.0.0.1:5066;branch=z9hG4bK1")
    assert reply_flow(plain, SOURCE) == Flow("UDP", "198.51.100.9", 5066)
    stream = Flow("TCP", "198.51.100.9", 41_000)
    assert reply_flow(plain, stream) == stream


def test_ack_and_cancel_are_those_of_their_invite() -> None:
    sent = make_request(
        "INVITE",
        "sip:a@b",
        via=own_via("UDP", "192.0.2.1", 5060),
        sender="<sip:us@h>;tag=1",
        receiver="<sip:a@b>",
        call_id="c",
        cseq=7,
        routes=("<sip:proxy;lr>",),
    )
    refusal = make_response(sent, 486, to_tag="t")
    for made, method in ((make_ack(sent, refusal), "ACK"), (make_cancel(sent), "CANCEL")):
        read = parse_message(bytes(made))
        assert read.headers.get("via") == sent.headers.get("via")
        assert read.headers.get_first("cseq") == f"7 {method}"
        assert read.headers.get("route") == ["<sip:proxy;lr>"]
    assert ";tag=t" in (make_ack(sent, refusal).headers.get_first("to") or "")


def test_nothing_can_be_smuggled_into_a_request() -> None:
    with pytest.raises(ValueError, match="line breaks"):
        make_request(
            "INVITE",
            "sip:a@b SIP/2.0\r\nX: y",
            via=own_via("UDP", "h", 1),
            sender="a",
            receiver="b",
            call_id="c",
            cseq=1,
        )


def test_a_body_of_another_kind_is_refused() -> None:
    other = request(content_type="text/plain")
    with pytest.raises(InvalidMessage, match="application/sdp"):
        sdp_of(other)


@pytest.mark.parametrize(
    ("uri", "flow"),
    [
        ("sip:a@192.0.2.1", Flow("UDP", "192.0.2.1", 5060)),
        ("sip:192.0.2.1:5080;transport=tcp", Flow("TCP", "192.0.2.1", 5080)),
        ("sips:a@example.org", Flow("TLS", "example.org", 5061)),
        ("sip:a@[2001:db8::1]:5070", Flow("UDP", "2001:db8::1", 5070)),
        ("sip:a@h;transport=sctp", None),
        ("sip:a@h:99999", None),
        ("", None),
    ],
)
def test_a_uri_tells_where_to_send(uri: str, flow: Flow | None) -> None:
    assert uri_flow(uri) == flow
