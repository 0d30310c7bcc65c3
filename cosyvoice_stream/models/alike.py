"""Puts utterances together whose passes have the same shape."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence


def alike(keys: Iterable[Hashable]) -> list[list[int]]:
    """Indices of equal keys, each group and the groups in the order of their first index."""
    groups: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def check_distinct(states: Sequence[object]) -> None:
    """Refuse a batch in which an utterance appears twice.

    Raises:
        ValueError: It does.
    """
    if len({id(state) for state in states}) != len(states):
        raise ValueError("an utterance can be in a batch only once")
