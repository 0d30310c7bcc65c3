"""SIP messages as other telephones write them."""

from __future__ import annotations

SDP = (
    "v=0\r\no=- 1 1 IN IP4 {host}\r\ns=-\r\nc=IN IP4 {host}\r\nt=0 0\r\n"
    "m=audio {port} RTP/AVP 0 101\r\na=rtpmap:101 telephone-event/8000\r\n"
)


def invite(
    *,
    via: str = "SIP/2.0/UDP 198.51.100.9:5060;branch=z9hG4bK1;rport",
    call_id: str = "call-1@198.51.100.9",
    cseq: str = "1 INVITE",
    to_tag: str = "",
    from_tag: str = "f1",
    content_type: str = "application/sdp",
    body: str = SDP.format(host="198.51.100.9", port=4000),
    contact: str = "<sip:caller@198.51.100.9:5060>",
    more: str = "",
    method: str = "",
) -> bytes:
    """An INVITE, or with another CSeq any other request."""
    tag = f";tag={to_tag}" if to_tag else ""
    method = method or cseq.partition(" ")[2]
    head = (
        f"{method} sip:bot@192.0.2.1 SIP/2.0\r\nVia: {via}\r\nMax-Forwards: 70\r\n"
        f"From: <sip:+4930123456@198.51.100.9>;tag={from_tag}\r\nTo: <sip:bot@192.0.2.1>{tag}\r\n"
        f"Call-ID: {call_id}\r\nCSeq: {cseq}\r\nContact: {contact}\r\n{more}"
    )
    kind = f"Content-Type: {content_type}\r\n" if body else ""
    return f"{head}{kind}Content-Length: {len(body)}\r\n\r\n{body}".encode()
