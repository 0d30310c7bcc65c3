"""Reads the caller's text stream into pieces for the speech LM, not too far ahead of speech."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from cosyvoice_stream.cosyvoice.segments import SegmentCutter, SegmentText
from cosyvoice_stream.cosyvoice.tokenizer import TextTokenizer
from cosyvoice_stream.cosyvoice.utterance import TextPiece, Utterance
from cosyvoice_stream.handover import cut_text
from cosyvoice_stream.types import TextStream

MAX_WAITING_PIECES: Final = 8


async def read_text(
    text: TextStream,
    utterance: Utterance,
    tokenizer: TextTokenizer,
    wake: Callable[[Utterance], None],
    taken: asyncio.Event,
) -> None:
    """Cut a text stream into pieces and feed them, until it ends.

    Args:
        text: The caller's.
        utterance: Is fed, and told when the text ends, also when reading fails.
        tokenizer: Of the checkpoint.
        wake: Called after each piece.
        taken: Set whenever chunks have been taken.
    """
    cutter = SegmentCutter(by_clause=utterance.plan.interleave)

    async def feed(parts: list[SegmentText]) -> None:
        for part in parts:
            while utterance.waiting_pieces >= MAX_WAITING_PIECES:
                taken.clear()
                await taken.wait()
            ids = tuple(tokenizer.text(part.text))
            if ids or part.closes:
                utterance.feed(TextPiece(ids, part.closes, part.ends_sentence))
                wake(utterance)

    try:
        await cut_text(text, cutter, feed)
    finally:
        utterance.finish()
        wake(utterance)
