"""How text, voice and style become the prompt of the speech LM, for each version of the model.

========== ====================================================== =====================
mode       prompt text                                            prompt speech
========== ====================================================== =====================
zero-shot  transcript (3: behind the assistant sentence)          of the recording
cross-     none (3: the assistant sentence)                       none
lingual
instruct   instruction and its end (3: behind the assistant       none
           sentence)
========== ====================================================== =====================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cosyvoice_stream.cosyvoice.tokenizer import TextTokenizer
from cosyvoice_stream.cosyvoice.versions import Version
from cosyvoice_stream.cosyvoice.voice_parts import VoiceParts

ASSISTANT: Final = "You are a helpful assistant."
"""Opens every prompt of CosyVoice 3, as in its training."""


@dataclass(frozen=True)
class LmPrompt:
    """What the speech LM is given before the text of an utterance."""

    text: tuple[int, ...]
    """Text ids."""
    head: int
    """So many of them stand before any speech, see `TokenFeed`."""
    speech: tuple[int, ...]
    """Speech tokens that the utterance continues."""


def lm_prompt(
    tokenizer: TextTokenizer, version: Version, voice: VoiceParts, instruct: str | None
) -> LmPrompt:
    """Build the prompt of an utterance.

    Args:
        tokenizer: Of the checkpoint.
        version: Of the checkpoint.
        voice: Who speaks.
        instruct: Style in words, or None; with one the recording does not lead the LM.
    """
    third = version.number >= 3
    speech: Sequence[int] = ()
    if instruct:
        sentence = instruct.strip()
        head = tokenizer.instruction(f"{ASSISTANT} {sentence}" if third else sentence)
        return LmPrompt(tuple(head), len(head) if third else 0, ())
    head = tokenizer.instruction(ASSISTANT) if third else []
    rest: list[int] = []
    if voice.transcript and len(voice.tokens):
        rest = tokenizer.plain(voice.transcript)
        speech = voice.tokens.tolist()
    return LmPrompt((*head, *rest), len(head), tuple(speech))
