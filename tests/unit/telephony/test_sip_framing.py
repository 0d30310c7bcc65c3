"""SIP in a byte stream: the same messages however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.errors import InvalidMessage
from cosyvoice_stream.telephony.sip_framing import StreamFramer

pytestmark = pytest.mark.unit

OPTIONS = b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 0\r\n\r\n"
INVITE = b"INVITE sip:a SIP/2.0\r\nl : 5\r\nX: y\r\n\r\nv=0\r\n"


@given(st.lists(st.integers(0, 200), max_size=10))
def test_cutting_the_stream_changes_nothing(cuts: list[int]) -> None:
    stream = OPTIONS + b"\r\n\r\n" + INVITE + b"\r\n" + OPTIONS
    framer, messages = StreamFramer(), list[bytes]()
    edges = sorted({0, *(min(cut, len(stream)) for cut in cuts), len(stream)})
    for first, last in zip(edges, edges[1:], strict=False):
        messages += framer.push(stream[first:last])
    assert messages == [OPTIONS, INVITE, OPTIONS]


def test_a_keep_alive_is_counted_and_dropped() -> None:
    framer = StreamFramer()
    assert framer.push(b"\r\n\r\n\r\n\r\n" + OPTIONS) == [OPTIONS]
    assert framer.pings == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"OPTIONS sip:a SIP/2.0\r\nTo: b\r\n\r\n", "needs a Content-Length"),
        (b"OPTIONS sip:a SIP/2.0\r\nContent-Length: -1\r\n\r\n", "needs a Content-Length"),
        (b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 99999\r\n\r\n", "at most 65535 bytes"),
        (b"OPTIONS sip:a SIP/2.0\r\nX: " + b"y" * 70_000, "at most 65535 bytes"),
    ],
    ids=["no length", "negative", "too long", "endless header"],
)
def test_a_stream_that_cannot_go_on_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidMessage, match=message):
        StreamFramer().push(data)
