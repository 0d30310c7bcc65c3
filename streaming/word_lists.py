"""Tables of words, written as text."""

from __future__ import annotations


def word_list(words: str) -> tuple[str, ...]:
    """Split a table of words at white space."""
    return tuple(words.split())


def word_set(words: str) -> frozenset[str]:
    """Split a table of words at white space, for look-ups."""
    return frozenset(words.split())
