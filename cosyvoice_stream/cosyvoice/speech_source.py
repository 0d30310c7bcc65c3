"""Reads the speech that another voice is to say: sample stream → speech tokens, in bounded windows.

The speech tokenizer looks at a whole recording at once. Speech that is still being spoken is read
in windows at fixed places, of which only the middle is kept, so that the tokens do not depend on
how the samples arrive::

    |-- LEFT_TOKENS --|-- STEP_TOKENS --|- RIGHT_TOKENS -|
       heard before        kept           heard after

Segments end in a pause where there is one, so that the flow begins anew where nobody hears it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cosyvoice_stream.cosyvoice.utterance import SpeechPiece, Utterance
from cosyvoice_stream.streaming.pcm import level_dbfs
from cosyvoice_stream.types import CONVERSION_HZ, Samples

TOKEN_SAMPLES: Final = CONVERSION_HZ // 25
STEP_TOKENS: Final = 10
LEFT_TOKENS: Final = 100
RIGHT_TOKENS: Final = 8
SHORTEST_TOKENS: Final = 300
"""Of a segment, 12 s, before a pause ends it."""
LONGEST_TOKENS: Final = 500
"""Of a segment, 20 s: here it ends without a pause."""
LONGEST_WHOLE_TOKENS: Final = 750
"""Of a recording that is there as a whole: 30 s, which the tokenizer was trained on."""
PAUSE_DB: Final = 30.0
"""A pause is so far below the loudest step of its segment."""
MAX_WAITING_PIECES: Final = 8

Tokenize = Callable[[Samples], NDArray[np.int32]]


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of speech that the tokenizer reads at once."""

    samples: Samples
    """(N,) at 16 kHz."""
    first: int
    """Tokens in front that are not kept."""
    count: int
    """Tokens that are kept."""
    closes: bool
    """A segment ends here."""


class WindowCutter:
    """Cuts a sample stream into windows; where they lie does not depend on its fragments."""

    def __init__(self) -> None:
        self._held: Samples = np.zeros(0, np.float32)
        self._left = 0
        """Tokens of `_held` that have been read."""
        self._segment = 0
        self._loudest = -120.0

    def push(self, samples: Samples) -> list[Window]:
        """Append samples, shape (N,) at 16 kHz; return the windows that they complete."""
        self._held = np.concatenate([self._held, np.asarray(samples, np.float32)])
        out = []
        while len(self._held) >= (self._left + STEP_TOKENS + RIGHT_TOKENS) * TOKEN_SAMPLES:
            out.append(self._next())
        return out

    def flush(self) -> Window | None:
        """No more samples: the rest as one window that closes the segment; None if there is none.

        What is left of a token is filled up with silence.
        """
        rest = -(-len(self._held) // TOKEN_SAMPLES) - self._left
        if rest <= 0 and not self._segment:
            return None
        pad = (self._left + rest) * TOKEN_SAMPLES - len(self._held)
        samples = np.pad(self._held, (0, pad))
        return Window(samples, self._left, rest, closes=True)

    def _next(self) -> Window:
        start, end = self._left * TOKEN_SAMPLES, (self._left + STEP_TOKENS) * TOKEN_SAMPLES
        level = level_dbfs(self._held[start:end])
        self._loudest = max(self._loudest, level)
        self._segment += STEP_TOKENS
        closes = self._segment >= LONGEST_TOKENS or (
            self._segment >= SHORTEST_TOKENS and level < self._loudest - PAUSE_DB
        )
        window = Window(
            self._held[: end + RIGHT_TOKENS * TOKEN_SAMPLES], self._left, STEP_TOKENS, closes
        )
        if closes:
            self._segment, self._loudest = 0, -120.0
        kept = min(self._left + STEP_TOKENS, LEFT_TOKENS)
        self._held = self._held[end - kept * TOKEN_SAMPLES :]
        self._left = kept
        return window


def whole_windows(samples: Samples) -> list[Window]:
    """Cut speech that is there as a whole: nothing but segments, each read at once.

    Up to 30 s are one segment, exactly what CosyVoice's own conversion reads; longer speech is cut
    where it is quietest.
    """
    out = []
    while len(samples) > LONGEST_WHOLE_TOKENS * TOKEN_SAMPLES:
        steps = samples[: LONGEST_TOKENS * TOKEN_SAMPLES].reshape(-1, STEP_TOKENS * TOKEN_SAMPLES)
        levels = np.square(steps, dtype=np.float64).sum(axis=1)
        first = SHORTEST_TOKENS // STEP_TOKENS
        count = STEP_TOKENS * (first + 1 + int(np.argmin(levels[first:])))
        out.append(Window(samples[: count * TOKEN_SAMPLES], 0, count, closes=True))
        samples = samples[count * TOKEN_SAMPLES :]
    count = -(-len(samples) // TOKEN_SAMPLES)
    if count:
        padded = np.pad(samples, (0, count * TOKEN_SAMPLES - len(samples)))
        out.append(Window(padded, 0, count, closes=True))
    return out


async def read_speech(
    speech: AsyncIterator[Samples] | Samples,
    utterance: Utterance,
    tokenize: Tokenize,
    wake: Callable[[Utterance], None],
    taken: asyncio.Event,
) -> None:
    """Read a sample stream into speech tokens and feed them, until it ends.

    Args:
        speech: Mono samples at 16 kHz: all of them, or in fragments of any length as they come.
        utterance: Is fed, and told when the speech ends, also when reading fails.
        tokenize: Speech tokens of at most 30 s; called in a thread.
        wake: Called after each piece.
        taken: Set whenever chunks have been taken.
    """
    cutter = WindowCutter()

    async def feed(window: Window) -> None:
        while utterance.waiting_pieces >= MAX_WAITING_PIECES:
            taken.clear()
            await taken.wait()
        tokens = await asyncio.to_thread(_tokens, window, tokenize)
        utterance.feed(SpeechPiece(tokens, window.closes))
        wake(utterance)

    try:
        if isinstance(speech, np.ndarray):
            for window in whole_windows(speech):
                await feed(window)
        else:
            async for samples in speech:
                for window in cutter.push(samples):
                    await feed(window)
            if (last := cutter.flush()) is not None:
                await feed(last)
    finally:
        utterance.finish()
        wake(utterance)


def _tokens(window: Window, tokenize: Tokenize) -> tuple[int, ...]:
    """Tokens of a window that are kept; a tokenizer that gives fewer repeats its last one."""
    if not window.count:
        return ()
    tokens = tokenize(window.samples)[window.first : window.first + window.count].tolist()
    if tokens:
        tokens += tokens[-1:] * (window.count - len(tokens))
    return tuple(tokens)
