"""What a session has to send, in the order in which it leaves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message that has its place between the frames of its utterance."""

    number: int
    """Of the utterance."""
    payload: str | bytes
    on_sent: Callable[[float], None] | None
    """Called with the time when the transport takes it."""
    shape: Callable[[bytes], bytes] | None = None
    """Makes of an audio frame what leaves, at the last moment; the length stays."""


class Outbox:
    """Two queues: answers, which leave at once, and the stream, which keeps its order.

    ::

        answers   error · session.updated · utterance.cancelled · voice.*      ─┐
        stream    started · marks · frame · frame · … · done (per utterance)   ─┴─►

    Both are bounded by their users: the stream by the speaker, who waits while `stream_bytes` is
    over the limit, the answers by the reader, who does not read while `answer_bytes` are many.
    """

    def __init__(self) -> None:
        self._answers: deque[str | bytes] = deque()
        self._stream: deque[Parcel] = deque()
        self.stream_bytes = 0
        self.answer_bytes = 0

    def answer(self, payload: str | bytes) -> None:
        """Queue a message that overtakes the stream."""
        self._answers.append(payload)
        self.answer_bytes += len(payload)

    def stream(
        self,
        number: int,
        payload: str | bytes,
        on_sent: Callable[[float], None] | None = None,
        shape: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """Queue a message of an utterance behind everything of the stream; see `Parcel`."""
        self._stream.append(Parcel(number, payload, on_sent, shape))
        self.stream_bytes += len(payload)

    def drop(self, number: int) -> bytes:
        """Remove what an utterance has in the stream; return its next audio frame, or nothing."""
        kept, frames = [], []
        for parcel in self._stream:
            if parcel.number != number:
                kept.append(parcel)
            elif isinstance(parcel.payload, bytes):
                frames.append(parcel.payload)
        self._stream = deque(kept)
        self.stream_bytes = sum(len(parcel.payload) for parcel in kept)
        return frames[0] if frames else b""

    def take(self, now: float) -> str | bytes | None:
        """Remove and return the next message, or None; the caller hands it to the transport."""
        if self._answers:
            answer = self._answers.popleft()
            self.answer_bytes -= len(answer)
            return answer
        if not self._stream:
            return None
        parcel = self._stream.popleft()
        self.stream_bytes -= len(parcel.payload)
        payload = parcel.payload
        if parcel.shape is not None and isinstance(payload, bytes):
            payload = parcel.shape(payload)
        if parcel.on_sent is not None:
            parcel.on_sent(now)
        return payload
