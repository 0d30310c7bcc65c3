"""Uploads: any cutting gives the same recording; what is too large or broken is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from cosyvoice_stream.errors import InvalidMessage, LimitExceeded, PeerGone
from cosyvoice_stream.server.uploads import receive_upload

pytestmark = pytest.mark.unit

KNOWN = frozenset({"name", "transcript"})
BOUNDARY = b"-frontier"
FORM = f"multipart/form-data; boundary={BOUNDARY.decode()}"


def part(name: str, content: bytes, *, filename: str | None = None) -> bytes:
    where = f'form-data; name="{name}"' + (f'; filename="{filename}"' if filename else "")
    return b"--%b\r\nContent-Disposition: %b\r\n\r\n%b\r\n" % (BOUNDARY, where.encode(), content)


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--%b--\r\n" % BOUNDARY


def upload(
    chunks: Sequence[bytes],
    content_type: str = "audio/wav",
    *,
    query: bytes = b"",
    limit_bytes: int = 1000,
    content_length: int | None = None,
    then: str = "end",
) -> tuple[bytes, dict[str, str]]:
    """Receive an upload made of `chunks`; afterwards the body ends, hangs, or is cut off."""
    messages: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks
    ]
    if then == "end":
        messages.append({"type": "http.request", "body": b"", "more_body": False})
    elif then == "disconnect":
        messages.append({"type": "http.disconnect"})
    headers = [(b"content-type", content_type.encode())]
    if content_length is not None:
        headers.append((b"content-length", str(content_length).encode()))
    waiting = iter(messages)

    async def receive() -> Message:
        message = next(waiting, None)
        if message is None:
            await asyncio.get_running_loop().create_future()
        assert message is not None
        return message

    async def run() -> tuple[bytes, dict[str, str]]:
        scope = {"type": "http", "method": "POST", "query_string": query, "headers": headers}
        async with receive_upload(
            Request(scope, receive), limit_bytes=limit_bytes, stall_timeout_s=0.05, known=KNOWN
        ) as received:
            content = received.path.read_bytes()
            assert len(content) == received.size_bytes
            path = received.path
            fields = dict(received.fields)
        assert not path.exists()
        return content, fields

    return asyncio.run(run())


@given(
    content=st.binary(min_size=1, max_size=300),
    cuts=st.lists(st.integers(min_value=0, max_value=600), max_size=8),
)
def test_any_cutting_of_a_form_gives_the_same(content: bytes, cuts: list[int]) -> None:
    whole = form(
        part("name", "Zoë".encode()),
        part("file", content, filename="a.wav"),
        part("transcript", b"one\r\ntwo"),
    )
    edges = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    chunks = [whole[start:end] for start, end in zip(edges, edges[1:], strict=False)]
    assert upload(chunks, FORM) == (content, {"name": "Zoë", "transcript": "one\r\ntwo"})


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=10))
def test_any_cutting_of_a_bare_body_gives_the_same(chunks: list[bytes]) -> None:
    content = b"".join(chunks)
    if content:
        assert upload(chunks, query=b"name=Zo%C3%AB") == (content, {"name": "Zoë"})


def test_large_recording_goes_through_the_file() -> None:
    content = bytes(range(256)) * 4096
    assert upload([content], limit_bytes=len(content))[0] == content


@pytest.mark.parametrize("content_type", ["audio/wav", FORM])
def test_stated_length_is_refused_before_reading(content_type: str) -> None:
    with pytest.raises(LimitExceeded, match=r"at most 0.001 megabytes.*got 2000"):
        upload([], content_type, content_length=2_000_000_000, then="hang")


@pytest.mark.parametrize("content_type", ["audio/wav", FORM])
def test_unstated_length_is_counted(content_type: str) -> None:
    head = part("file", b"", filename="a.wav")[:-2] if content_type == FORM else b""
    with pytest.raises(LimitExceeded, match="megabytes of recording"):
        upload([head + bytes(900), bytes(101)], content_type, then="hang")


def test_recording_of_exactly_the_limit_is_taken() -> None:
    assert len(upload([form(part("file", bytes(1000)))], FORM)[0]) == 1000


def test_text_of_a_form_is_bounded() -> None:
    chunks = [part("name", bytes(300_000))]
    with pytest.raises(LimitExceeded, match="kilobytes of text"):
        upload(chunks, FORM, then="hang")


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (b"", "audio/wav", "holds no recording"),
        (form(part("name", b"x")), FORM, "holds no recording"),
        (form(part("file", b"")), FORM, "holds no recording"),
        (form(part("file", b"x"), part("file", b"y")), FORM, "more than one recording"),
        (form(part("file", b"x"), part("nmae", b"y")), FORM, "unknown field 'nmae'"),
        (b"garbage", FORM, "multipart form is broken"),
        (part("file", b"x"), FORM, "ends too early"),
        (form(part("file", b"x")), "multipart/form-data", "no boundary"),
        (b"--%b\r\nX: y\r\n\r\nz\r\n--%b--" % (BOUNDARY, BOUNDARY), FORM, "has no name"),
    ],
)
def test_broken_upload_says_what_is_wrong(body: bytes, content_type: str, message: str) -> None:
    with pytest.raises(InvalidMessage, match=message):
        upload([body], content_type)


def test_unknown_query_field_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="unknown field 'voice'"):
        upload([b"x"], query=b"voice=1")


def test_upload_that_stalls_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="no byte of the upload arrived"):
        upload([b"x"], then="hang")


def test_client_that_leaves_is_gone(tmp_path: Path) -> None:
    with pytest.raises(PeerGone):
        upload([b"x"], then="disconnect")
