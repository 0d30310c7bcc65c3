"""Marks of CosyVoice's prompt template in texts of clients."""

from __future__ import annotations

import pytest

from cosyvoice_stream.server.prompt_text import instruction, split_prompt

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello.", (None, "Hello.")),
        ("You are a helpful assistant.<|endofprompt|>Hello.", (None, "Hello.")),
        ("You are a helpful assistant. Softly.<|endofprompt|>Hello.", ("Softly.", "Hello.")),
        ("Softly.<|endofprompt|>", ("Softly.", "")),
        ("", (None, "")),
    ],
)
def test_split(text: str, expected: tuple[str | None, str]) -> None:
    assert split_prompt(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Softly.", "Softly."),
        ("You are a helpful assistant. Softly.<|endofprompt|>", "Softly."),
        ("You are a helpful assistant.<|endofprompt|>", None),
        (" ", None),
    ],
)
def test_instruction(text: str, expected: str | None) -> None:
    assert instruction(text) == expected
