"""Shortens pauses between the speech LM and the flow, as CosyVoice 3 is played."""

from __future__ import annotations

from typing import Final

SILENT_TOKENS: Final = {
    2: frozenset[int](),
    3: frozenset({1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323}),
}
"""Tokens that sound like silence or breath, by version."""
LONGEST_RUN: Final = 5


class SilenceFilter:
    """Passes at most five silent tokens in a row.

    Args:
        version: Number of the model family.
    """

    def __init__(self, version: int) -> None:
        self._silent = SILENT_TOKENS[version]
        self._run = 0

    def passes(self, token: int) -> bool:
        """Whether the next token is to be heard."""
        self._run = self._run + 1 if token in self._silent else 0
        return self._run <= LONGEST_RUN
