"""One utterance between the loop and the device thread: text in, chunks out, bounded both ways."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from cosyvoice_stream.cosyvoice.lm_runner import Dice, Prefix, Turn
from cosyvoice_stream.cosyvoice.prompt import LmPrompt
from cosyvoice_stream.cosyvoice.sampling import SamplingParams
from cosyvoice_stream.cosyvoice.scheduler import NOTHING, Needs
from cosyvoice_stream.cosyvoice.segment_audio import MAX_BLOCKS, SegmentAudio
from cosyvoice_stream.cosyvoice.token_feed import START, Row, RowKind, TokenFeed
from cosyvoice_stream.cosyvoice.voice_parts import VoiceParts
from cosyvoice_stream.errors import SynthesisFailed, VoiceStreamError
from cosyvoice_stream.models.flow import FlowState
from cosyvoice_stream.streaming.pcm import silence, soft_limit
from cosyvoice_stream.types import PcmChunk, Samples

SAMPLE_RATE: Final = 24_000
MAX_BACKLOG_TOKENS: Final = 250
"""Drawn tokens that may wait for the flow, 10 s of speech."""
LEAD_FOR_TWO_S: Final = 2.0
LEAD_FOR_ALL_S: Final = 5.0
END: Final = "end"
SEED_STRIDE: Final = 1_000_003
MAX_SEED_63: Final = 2**63 - 1


@dataclass(frozen=True)
class Plan:
    """What is fixed when an utterance starts."""

    voice: VoiceParts
    """Cut for the first hop."""
    voice_key: str
    prompt: LmPrompt | None
    """None: speech is converted, and nothing is drawn."""
    flow_steps: int
    sampling: SamplingParams
    seed: int
    speed: float = 1.0
    volume: float = 1.0
    interleave: bool = False
    sentence_pause_ms: int | None = None

    @property
    def prefix_rows(self) -> tuple[Row, ...]:
        """First rows of every segment, whatever its text."""
        if self.prompt is None:
            return ()
        text = self.prompt.text[: self.prompt.head] if self.interleave else self.prompt.text
        return (START, *(Row(RowKind.TEXT, token) for token in text))


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Ids of a segment or of a part of one."""

    ids: tuple[int, ...]
    closes: bool
    ends_sentence: bool


@dataclass(frozen=True, slots=True)
class SpeechPiece:
    """Speech tokens that are to be heard as they are."""

    tokens: tuple[int, ...]
    closes: bool
    """The segment ends with them."""


@dataclass
class Resources:
    """What an utterance holds on the device, from its first step to its end."""

    slot: int | None
    """Of the LM; None where it has no part."""
    prefix: Prefix | None
    state: FlowState
    """Of the voice; only forked."""


class Utterance:
    """The loop feeds pieces and takes chunks; the device thread does everything else.

    Args:
        plan: How to speak.
        max_buffered_s: Work pauses while so much audio waits to be taken.
        arrived: Called on the device thread when there is something to take.
    """

    def __init__(self, plan: Plan, max_buffered_s: float, arrived: Callable[[], None]) -> None:
        self.plan = plan
        self._max_buffered = round(max_buffered_s * SAMPLE_RATE)
        self._arrived = arrived
        # Appends and pops of a deque are atomic; each one is used by one side at each end.
        self._pieces: deque[TextPiece | SpeechPiece] = deque()
        self._chunks: deque[PcmChunk] = deque()
        self._text_ended = False
        self._taken = 0
        self.error: Exception | None = None
        self.held: Resources | None = None
        self._dice = Dice(plan.seed, plan.sampling)
        self._feed: TokenFeed | None = None
        self._closed = True
        """The segment that was begun last has all its text, or all its speech."""
        self._skip = 0
        """Rows of the prefix, which the slot holds already."""
        self._segments: deque[SegmentAudio] = deque()
        self._pauses: deque[bool] = deque()
        """For each of `_segments`, whether a sentence ends with it."""
        self._begun = 0
        self._given = 0
        self._ended = False
        self._spent_s = 0.0

    # -- the loop's side ------------------------------------------------------------------------

    def feed(self, piece: TextPiece | SpeechPiece) -> None:
        """Append text, or speech where that is converted; wake the device afterwards."""
        self._pieces.append(piece)

    def finish(self) -> None:
        """Nothing follows, and what is open ends here; wake the device afterwards."""
        self._text_ended = True

    @property
    def waiting_pieces(self) -> int:
        """Pieces that have not been started."""
        return len(self._pieces)

    def take(self) -> PcmChunk | None:
        """The next chunk, or None if there is none yet; wake the device afterwards.

        Raises:
            VoiceStreamError: The utterance failed and everything before that has been taken.
        """
        if self._chunks:
            chunk = self._chunks.popleft()
            self._taken += len(chunk.samples)
            return chunk
        if isinstance(self.error, VoiceStreamError):
            raise self.error
        if self.error is not None:
            raise SynthesisFailed("the engine failed on this utterance") from self.error
        return None

    # -- the device's side ----------------------------------------------------------------------

    def needs(self, lead_s: float) -> Needs:
        """What could be done next.

        Args:
            lead_s: Seconds of audio that the listener has not heard yet.
        """
        if self._ended or self.error is not None:
            return NOTHING
        if self.held is None:
            return Needs(prepare=True)
        if self._text_ended and not (self._pieces or self._feed or self._segments):
            return Needs(sound=END)
        if self._given - self._taken >= self._max_buffered:
            return NOTHING
        sound = None
        if self._segments and (one := self._segments[0].next_pass(blocks_for(lead_s))):
            sound = (*one, self.plan.flow_steps)
        return Needs(decode=self._can_decode(), sound=sound)

    def _can_decode(self) -> bool:
        if self._backlog() >= MAX_BACKLOG_TOKENS:
            return False
        if not self._closed and (self._pieces or self._text_ended):
            return True
        return bool(self._pieces) if self._feed is None else self._feed.ready

    def _backlog(self) -> int:
        return sum(len(segment.tokens) for segment in self._segments)

    def copy_speech(self, begin: Callable[[], SegmentAudio]) -> None:
        """Move speech that is converted to the flow.

        Args:
            begin: Opens a segment.
        """
        ended = self._text_ended
        while self._pieces and self._backlog() < MAX_BACKLOG_TOKENS:
            piece = self._pieces.popleft()
            assert isinstance(piece, SpeechPiece)
            if self._closed:
                self._segments.append(begin())
                self._pauses.append(False)
                self._begun += 1
            self._segments[-1].tokens.extend(piece.tokens)
            self._segments[-1].complete = self._closed = piece.closes
        if ended and not (self._pieces or self._closed):
            self._segments[-1].complete = self._closed = True

    def needs_segment(self) -> bool:
        """Whether the next turn opens a segment, which `open_segment` must be given first."""
        return self._feed is None and bool(self._pieces)

    def noise_seed(self) -> int:
        """Seed of the next segment's vocoder."""
        return (self.plan.seed * SEED_STRIDE + self._begun) & MAX_SEED_63

    def open_segment(self, audio: SegmentAudio) -> None:
        """Begin to draw the next segment in a slot that holds the prefix."""
        prompt = self.plan.prompt
        assert prompt is not None
        self._feed = TokenFeed(
            prompt.text, prompt.speech, head=prompt.head, streaming=self.plan.interleave
        )
        self._skip = 0 if self.held is None or self.held.prefix is None else self.held.prefix.rows
        self._closed = False
        self._segments.append(audio)
        self._pauses.append(False)
        self._begun += 1

    def turn(self, room: int) -> Turn | None:
        """Rows to feed now; None if text is missing or the slot is full.

        Args:
            room: Rows that the slot still takes.

        Raises:
            SynthesisFailed: Not even the text fits.
        """
        feed, held = self._feed, self.held
        assert feed is not None
        assert held is not None
        assert held.slot is not None
        ended = self._text_ended
        while self._pieces and not self._closed:
            piece = self._pieces.popleft()
            assert isinstance(piece, TextPiece)
            feed.push_text(piece.ids)
            if piece.closes:
                feed.finish_text()
                self._closed = True
                self._pauses[-1] = piece.ends_sentence
        if ended and not (self._pieces or self._closed):
            feed.finish_text()
            self._closed = True
        rows = feed.take()[self._skip :]
        if not rows:
            return None
        self._skip = 0
        if len(rows) > room:
            if len(rows) > 1:
                raise SynthesisFailed(
                    "the text is too long to be spoken in one breath",
                    how_to_fix="part it with punctuation, or shorten the transcript or the style",
                )
            self._end_segment()
            return None
        return Turn(held.slot, rows, feed.allowed, self._dice)

    def accept(self, turn: Turn, *, end: int, fill: int) -> None:
        """Take what a turn drew.

        Args:
            turn: From `turn`, done.
            end: Id that ends speech.
            fill: Id that asks for text.
        """
        feed = self._feed
        assert feed is not None
        is_end, is_fill = turn.token == end, turn.token == fill
        if feed.accept(turn.token, is_end=is_end, is_fill=is_fill):
            self._segments[-1].push(turn.token)
        if feed.done:
            self._end_segment()

    def _end_segment(self) -> None:
        self._segments[-1].complete = self._closed = True
        self._feed = None

    @property
    def sounding(self) -> SegmentAudio | None:
        """The segment whose audio is made next."""
        return self._segments[0] if self._segments else None

    def sound(self, samples: Samples) -> float:
        """Give out what a pass over `sounding` made, or end; returns seconds of audio."""
        if not self._segments:
            self._ended = True
            self._give(silence(0), final=True)
            return 0.0
        made = 0.0
        if len(samples):
            made += self._give(self._shaped(samples))
        if self._segments[0].done:
            self._segments.popleft()
            pause = self.plan.sentence_pause_ms
            more = bool(self._segments or self._feed or self._pieces or not self._text_ended)
            if self._pauses.popleft() and pause and more:
                made += self._give(silence(round(pause / 1000 * SAMPLE_RATE)))
        return made

    def _shaped(self, samples: Samples) -> Samples:
        if not np.isfinite(samples).all():
            raise SynthesisFailed("the model gave samples that are no numbers")
        return samples if self.plan.volume == 1.0 else soft_limit(samples * self.plan.volume)

    def spent(self, seconds: float) -> None:
        """Count computation that the next chunk is to report."""
        self._spent_s += seconds

    def _give(self, samples: Samples, *, final: bool = False) -> float:
        chunk = PcmChunk(samples, self._given, final=final, compute_s=self._spent_s)
        self._spent_s = 0.0
        self._given += len(samples)
        self._chunks.append(chunk)
        self._arrived()
        return len(samples) / SAMPLE_RATE

    def fail(self, error: Exception) -> None:
        """Give up; `take` tells the caller."""
        self.error = error
        self._segments.clear()
        self._feed = None
        self._arrived()


def blocks_for(lead_s: float) -> int:
    """Blocks of one pass: few while the listener waits, more when there is time."""
    if lead_s < LEAD_FOR_TWO_S:
        return 1
    return 2 if lead_s < LEAD_FOR_ALL_S else MAX_BLOCKS
