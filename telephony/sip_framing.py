"""SIP messages in a byte stream, told apart by their Content-Length (RFC 3261, section 18.3)."""

from __future__ import annotations

import re
from typing import Final

from cosyvoice_stream.errors import InvalidMessage
from cosyvoice_stream.telephony.sip_messages import MAX_MESSAGE_BYTES

PING: Final = b"\r\n\r\n"
PONG: Final = b"\r\n"
"""Keep-alives of RFC 5626, section 4.4.1."""
_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"^(?:content-length|l)[ \t]*:[ \t]*(\d{1,6})[ \t]*\r?$", re.I | re.M)


class StreamFramer:
    """Bytes in, whole messages out."""

    def __init__(self) -> None:
        self._held = bytearray()
        self.pings = 0
        """Keep-alives that wait for their answer; whoever answers sets it back to 0."""

    def push(self, data: bytes) -> list[bytes]:
        """Append bytes and take the messages that they complete.

        Raises:
            InvalidMessage: A message is too long or does not say how long it is; the stream cannot
                go on.
        """
        self._held += data
        messages: list[bytes] = []
        while True:
            self._drop_keep_alives()
            end = self._held.find(_END)
            if end < 0:
                self._check(len(self._held))
                return messages
            head = bytes(self._held[: end + len(_END)])
            found = _LENGTH.search(head)
            if found is None:
                raise InvalidMessage("a SIP message in a stream needs a Content-Length")
            size = len(head) + int(found.group(1))
            self._check(size)
            if len(self._held) < size:
                return messages
            messages.append(bytes(self._held[:size]))
            del self._held[:size]

    def _drop_keep_alives(self) -> None:
        while self._held.startswith(PING):
            del self._held[: len(PING)]
            self.pings += 1
        if self._held.startswith(PONG) and len(self._held) > len(PONG) and self._held[2:3] != b"\r":
            del self._held[: len(PONG)]

    @staticmethod
    def _check(size: int) -> None:
        if size > MAX_MESSAGE_BYTES:
            raise InvalidMessage(f"a SIP message has at most {MAX_MESSAGE_BYTES} bytes")
