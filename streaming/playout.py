"""How far an utterance has come: samples generated, sent and played, and the text heard by then."""

from __future__ import annotations

from array import array
from bisect import bisect_right


class SpokenWords:
    """Where in the text, and when, each word of an utterance ends. 16 bytes per word."""

    def __init__(self) -> None:
        self._end_ms = array("d")
        self._char_end = array("Q")

    def __len__(self) -> int:
        return len(self._end_ms)

    def add(self, end_ms: float, char_end: int) -> None:
        """Append the next word.

        Args:
            end_ms: When it has been said, from the start of the utterance; never earlier than the
                word before.
            char_end: Index after its last character in the text.
        """
        self._end_ms.append(max(end_ms, self._end_ms[-1] if self._end_ms else 0.0))
        self._char_end.append(max(char_end, self._char_end[-1] if self._char_end else 0))

    def heard_chars(self, played_ms: float) -> int:
        """Length of the text up to the last word that had ended by `played_ms`."""
        ended = bisect_right(self._end_ms, played_ms)
        return self._char_end[ended - 1] if ended else 0


class Playout:
    """Positions of one utterance in samples of the audio that the listener gets.

    ::

        0 ────────── played ────────── sent ────────── generated
              heard          on its way        in our queue

    Without reports from the listener, `played` is estimated: a player starts with the first frame
    and goes on in real time for as long as it has audio. Where the listener does not say how much
    it gathers before it starts, the estimate is an upper bound.

    Args:
        sample_rate: Of the sent audio, in hertz.
        buffer_ms: What the player gathers before it starts.
    """

    def __init__(self, sample_rate: int, *, buffer_ms: float = 0.0) -> None:
        self.sample_rate = sample_rate
        self._buffer_s = buffer_ms / 1000
        self.generated = 0
        """Samples that were made."""
        self.sent = 0
        """Samples that were handed to the transport."""
        self._reported: int | None = None
        self._estimate = 0.0
        self._estimate_at: float | None = None

    def add_generated(self, samples: int) -> None:
        """Count samples that were made."""
        self.generated += samples

    def set_sent(self, position: int, now: float) -> None:
        """The transport has taken everything before `position`.

        Args:
            position: Index of the sample after the last one sent; smaller ones are ignored.
            now: In seconds, on any clock that never goes back.
        """
        if self._estimate_at is None:
            self._estimate_at = now + self._buffer_s
        self._advance(now)
        self.sent = max(self.sent, position)

    def report(self, position: int) -> None:
        """The listener says that it has played everything before `position`."""
        self._reported = max(0, position)

    def played(self, now: float) -> tuple[int, bool]:
        """How much has been heard.

        Args:
            now: In seconds, on the clock of `set_sent`.

        Returns:
            Samples, never more than were sent, and whether the figure is estimated.
        """
        if self._reported is not None:
            return min(self._reported, self.sent), False
        self._advance(now)
        return round(self._estimate), True

    def lead_ms(self, now: float) -> float:
        """Audio that was made and has not been heard."""
        return self.to_ms(self.generated - self.played(now)[0])

    @property
    def is_reported(self) -> bool:
        """Whether the listener says how far it is."""
        return self._reported is not None

    def played_ms(self, now: float) -> tuple[float, bool]:
        """`played` in milliseconds."""
        samples, estimated = self.played(now)
        return self.to_ms(samples), estimated

    def text_heard(self, text: str, words: SpokenWords, now: float) -> str:
        """The part of `text` that ends with the last word that has been heard."""
        return text[: words.heard_chars(self.played_ms(now)[0])]

    def to_ms(self, samples: int) -> float:
        """Samples in milliseconds."""
        return samples * 1000 / self.sample_rate

    def _advance(self, now: float) -> None:
        """Let the imagined player run until `now`, or until its audio is used up."""
        if self._estimate_at is not None and now > self._estimate_at:
            elapsed = (now - self._estimate_at) * self.sample_rate
            self._estimate = min(self._estimate + elapsed, float(self.sent))
            self._estimate_at = now


class Listener:
    """An imagined player that starts with the first audio: when does the server let it run dry?

    Audio that waits for a listener who does not take it, and silence because no text has come, are
    nobody's fault and not counted.
    """

    def __init__(self) -> None:
        self._lead_s = 0.0
        self._started = False

    def next(self, waited_s: float, text_s: float, audio_s: float) -> float:
        """Take the next piece of audio.

        Args:
            waited_s: Time that the server needed for it since the piece before.
            text_s: Time before that in which there was no text to speak.
            audio_s: Its length.

        Returns:
            Seconds for which the player had nothing to play because of the server.
        """
        dry_s = 0.0
        if self._started:
            self._lead_s = max(0.0, self._lead_s - text_s) - waited_s
            dry_s = max(0.0, -self._lead_s)
        self._started = self._started or audio_s > 0
        self._lead_s = max(0.0, self._lead_s) + audio_s
        return dry_s if audio_s > 0 else 0.0

    def held(self, held_s: float) -> None:
        """The listener's side took so long to take a piece."""
        self._lead_s = max(0.0, self._lead_s - held_s)
