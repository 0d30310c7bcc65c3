"""Recordings that arrive over HTTP: streamed to a temporary file, counted while they arrive.

Starlette's own form parser limits the text parts of a form but not its files, so the form is
parsed here. Nothing of a recording is held in memory beyond one write buffer, and an upload that
is too large is refused at the first byte beyond the limit, or at once if its length is stated.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.requests import Request

from cosyvoice_stream.errors import InvalidMessage, LimitExceeded, PeerGone
from cosyvoice_stream.server.error_shapes import WrongField

_WRITE_BYTES: Final = 256 * 1024
"""Gathered before one write in a worker thread: few thread switches, little memory."""
_PARSE_BYTES: Final = 64 * 1024
"""Parsed between two turns of the event loop; no content took more than 0.2 ms for this much
(python-multipart 0.0.34, one core of a 2-core cloud machine)."""
_FORM_BYTES: Final = 256 * 1024
"""For everything in a form but the recording: its text fields and the lines between parts."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A complete recording and the text fields that came with it."""

    path: Path
    """Temporary file, deleted when the upload's context ends."""
    size_bytes: int
    """0 where no recording came and none had to."""
    fields: Mapping[str, str]


@asynccontextmanager
async def receive_upload(
    request: Request,
    *,
    limit_bytes: int,
    stall_timeout_s: float,
    known: frozenset[str] | None,
    file_fields: Collection[str] = ("file",),
    required: bool = True,
) -> AsyncIterator[Upload]:
    """Receive the recording of one request.

    Args:
        request: A multipart form with a part for the recording, or the bare recording as the body.
        limit_bytes: Largest recording.
        stall_timeout_s: Longest wait for the next bytes.
        known: Names of the text fields that are allowed, in the form or in the query; None takes
            all of the form and none of the query.
        file_fields: Names that the part with the recording may have.
        required: Whether there has to be a recording.

    Raises:
        LimitExceeded: The recording is too large.
        InvalidMessage: The form is broken, has unknown fields, or no recording arrives.
        PeerGone: The client went away.
    """
    kind, options = parse_options_header(request.headers.get("content-type"))
    form = kind == b"multipart/form-data"
    _check_length(request, limit_bytes + (_FORM_BYTES if form else 0), limit_bytes)
    fields = {} if known is None else dict(request.query_params)
    with tempfile.NamedTemporaryFile(prefix="cosyvoice-stream-", suffix=".upload") as file:
        sink = _FileSink(file.file, limit_bytes)
        try:
            chunks = _body(request, stall_timeout_s)
            if form:
                boundary = options.get(b"boundary", b"")
                fields |= await _receive_form(chunks, boundary, sink, file_fields)
            else:
                async for chunk in chunks:
                    await sink.write(chunk)
            await sink.finish()
        finally:
            await sink.settle()
        _check_fields(fields, known)
        if required and not sink.size_bytes:
            field = next(iter(file_fields))
            raise WrongField(
                field,
                "the request holds no recording",
                how_to_fix=f"send it as the form field `{field}`, or as the body",
            )
        yield Upload(Path(file.name), sink.size_bytes, fields)


def _too_large(limit_bytes: int, actual_bytes: int | None = None) -> LimitExceeded:
    return LimitExceeded(
        "megabytes of recording",
        limit_bytes / 1e6,
        None if actual_bytes is None else actual_bytes / 1e6,
        how_to_fix="3 to 10 seconds of speech are enough",
    )


def _check_length(request: Request, allowed_bytes: int, limit_bytes: int) -> None:
    """Refuse by the stated length, before a byte of the body is read."""
    stated = request.headers.get("content-length")
    if stated is not None and stated.isdecimal() and int(stated) > allowed_bytes:
        raise _too_large(limit_bytes, int(stated))


def _check_fields(fields: Mapping[str, str], known: frozenset[str] | None) -> None:
    if known is None:
        return
    unknown = sorted(set(fields) - known)
    if unknown:
        raise InvalidMessage(
            f"unknown field {unknown[0][:40]!r}",
            how_to_fix=f"known fields: {', '.join(sorted(known))}",
        )


async def _body(request: Request, stall_timeout_s: float) -> AsyncIterator[bytes]:
    """Yield the body in pieces of at most `_PARSE_BYTES`."""
    while True:
        try:
            async with asyncio.timeout(stall_timeout_s):
                message = await request.receive()
        except TimeoutError:
            raise InvalidMessage(
                f"no byte of the upload arrived for {stall_timeout_s:g} s"
            ) from None
        if message["type"] == "http.disconnect":
            raise PeerGone("the client went away during an upload")
        body = message.get("body", b"")
        for start in range(0, len(body), _PARSE_BYTES):
            yield body[start : start + _PARSE_BYTES]
            await asyncio.sleep(0)
        if not message.get("more_body", False):
            return


class _FileSink:
    """Bounded file of one recording; disk writes happen in worker threads, one at a time."""

    def __init__(self, file: IO[bytes], limit_bytes: int) -> None:
        self.size_bytes = 0
        self._file = file
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._writing: asyncio.Future[object] | None = None

    def gather(self, data: bytes) -> None:
        """Take bytes without waiting.

        Raises:
            LimitExceeded: They make the recording too large.
        """
        self.size_bytes += len(data)
        if self.size_bytes > self._limit_bytes:
            raise _too_large(self._limit_bytes)
        self._buffer += data

    async def drain(self) -> None:
        """Write what was gathered once it is enough for a write."""
        if len(self._buffer) >= _WRITE_BYTES:
            await self._write_buffer()

    async def write(self, data: bytes) -> None:
        self.gather(data)
        await self.drain()

    async def finish(self) -> None:
        """Write the rest, so that others can read the file."""
        await self._write_buffer()
        await self._run(self._file.flush)

    async def settle(self) -> None:
        """Wait for a write that a cancelled caller left behind; the file may be closed then."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait([self._writing])

    async def _write_buffer(self) -> None:
        data, self._buffer = bytes(self._buffer), bytearray()
        await self._run(self._file.write, data)

    async def _run(self, function: object, *args: object) -> None:
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(None, function, *args)  # type: ignore[arg-type]
        await asyncio.shield(self._writing)


class _FormReader:
    """Callbacks of the multipart parser: text parts to `fields`, the recording to the sink."""

    def __init__(self, sink: _FileSink, file_fields: Collection[str]) -> None:
        self.fields: dict[str, str] = {}
        self.ended = False
        self._sink = sink
        self._file_fields = file_fields
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._disposition = b""
        self._name: str | None = None
        self._text = bytearray()
        self._has_file = False

    def on_part_begin(self) -> None:
        self._disposition = b""
        self._name = None
        self._text.clear()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def on_header_end(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = bytes(self._header_value)
        self._header_name.clear()
        self._header_value.clear()

    def on_headers_finished(self) -> None:
        name = parse_options_header(self._disposition)[1].get(b"name")
        if name is None:
            raise InvalidMessage("a part of the form has no name")
        self._name = name.decode("utf-8", errors="replace")
        if self._name in self._file_fields:
            if self._has_file:
                raise InvalidMessage("the form holds more than one recording")
            self._has_file = True

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._name in self._file_fields:
            self._sink.gather(data[start:end])
        else:
            self._text += data[start:end]

    def on_part_end(self) -> None:
        if self._name is not None and self._name not in self._file_fields:
            self.fields[self._name] = self._text.decode("utf-8", errors="replace")

    def on_end(self) -> None:
        self.ended = True


async def _receive_form(
    chunks: AsyncIterator[bytes],
    boundary: bytes,
    sink: _FileSink,
    file_fields: Collection[str],
) -> dict[str, str]:
    """Parse a form; return its text fields."""
    if not boundary:
        raise InvalidMessage("the form has no boundary")
    reader = _FormReader(sink, file_fields)
    total_bytes = 0
    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": reader.on_part_begin,
                "on_header_field": reader.on_header_field,
                "on_header_value": reader.on_header_value,
                "on_header_end": reader.on_header_end,
                "on_headers_finished": reader.on_headers_finished,
                "on_part_data": reader.on_part_data,
                "on_part_end": reader.on_part_end,
                "on_end": reader.on_end,
            },
        )
        async for chunk in chunks:
            total_bytes += len(chunk)
            parser.write(chunk)
            if total_bytes - sink.size_bytes > _FORM_BYTES:
                raise LimitExceeded("kilobytes of text in a form", _FORM_BYTES // 1024)
            await sink.drain()
        parser.finalize()
    except FormParserError:
        raise InvalidMessage("the multipart form is broken") from None
    if not reader.ended:
        raise InvalidMessage("the multipart form ends too early")
    return reader.fields
