"""The texts that CosyVoice's own scripts send, with the marks of its prompt template taken out.

Scripts for CosyVoice 3 put a greeting, an instruction and an end mark before a text; others do not.
Engines here set the marks themselves.
"""

from __future__ import annotations

from typing import Final

END_MARK: Final = "<|endofprompt|>"
_GREETING: Final = "You are a helpful assistant."


def split_prompt(text: str) -> tuple[str | None, str]:
    """Split a text at the end mark.

    Returns:
        The instruction before the mark, None without one, and what follows the mark.
    """
    before, mark, after = text.rpartition(END_MARK)
    if not mark:
        return None, text
    return instruction(before), after


def instruction(text: str) -> str | None:
    """Return an instruction without greeting and end mark, None if nothing is left."""
    return text.replace(END_MARK, " ").strip().removeprefix(_GREETING).strip() or None
