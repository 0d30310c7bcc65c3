"""What comes out of the WebSocket is understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.asr import transcribe, word_errors
from support.listening import SAMPLE_RATE, references, spoken

pytestmark = pytest.mark.quality

SENTENCES = [
    "The morning train was late because of the heavy snow.",
    "Please leave your message after the tone.",
    "She sells fresh bread and cheese at the corner of the market.",
    "Our office is open from Monday to Friday.",
    "A narrow path leads through the forest to the old castle.",
    "Could you repeat the last part of your question?",
    "They painted the kitchen walls a pale shade of yellow.",
    "The doctor will see you in a few minutes.",
    "Nobody noticed that the window had been left open.",
    "Turn right at the traffic lights and drive past the church.",
    "His brother plays the violin in a small orchestra.",
    "We are sorry, but this number is no longer in service.",
    "The children built a castle out of wet sand.",
    "I would like to change my booking to next Thursday.",
    "Bright stars filled the sky above the quiet desert.",
    "Remember to switch off the lights before you go.",
    "The library has a large collection of rare books.",
    "Heavy rain is expected along the coast this evening.",
    "My grandmother taught me how to bake an apple cake.",
    "Thank you for calling, have a pleasant day.",
]
MAX_WORD_ERROR_RATE = 0.05
MAX_ADAPTED_WORD_ERROR_RATE = 0.08


def error_rate(texts: list[str], heard: list[str]) -> tuple[float, list[str]]:
    """Word error rate, and the transcripts that differ."""
    counts = [word_errors(text, transcript) for text, transcript in zip(texts, heard, strict=True)]
    wrong = [transcript for transcript, (errors, _) in zip(heard, counts, strict=True) if errors]
    return sum(e for e, _ in counts) / sum(n for _, n in counts), wrong


def test_twenty_sentences_are_understood(tmp_path: Path) -> None:
    heard = [transcribe(samples, SAMPLE_RATE) for samples in spoken(tmp_path, SENTENCES)]
    rate, wrong = error_rate(SENTENCES, heard)
    print(f"word error rate {rate:.1%}; heard otherwise: {wrong}")
    assert rate <= MAX_WORD_ERROR_RATE, wrong


def test_adapted_voices_are_understood(tmp_path: Path) -> None:
    texts, heard = [], []
    for index, recording in enumerate(references()):
        some = SENTENCES[index::5]
        for samples in spoken(tmp_path / str(index), some, recording):
            heard.append(transcribe(samples, SAMPLE_RATE))
        texts += some
    rate, wrong = error_rate(texts, heard)
    print(f"word error rate in adapted voices {rate:.1%}; heard otherwise: {wrong}")
    assert rate <= MAX_ADAPTED_WORD_ERROR_RATE, wrong


def test_numbers_and_short_answers_are_understood(tmp_path: Path) -> None:
    expected = {
        "Yes.": {"yes"},
        "No!": {"no"},
        "Good morning.": {"good morning"},
        "It costs $9.99.": {"it costs 9 99", "it costs nine dollars and ninety nine cents"},
        "Call me at 7:30 pm.": {"call me at 7 30 pm", "call me at seven thirty p m"},
    }
    for text, samples in zip(expected, spoken(tmp_path, list(expected)), strict=True):
        assert len(samples) / SAMPLE_RATE <= (1.5 if text in ("Yes.", "No!") else 4.0)
        transcript = transcribe(samples, SAMPLE_RATE)
        plain = " ".join("".join(c if c.isalnum() else " " for c in transcript.lower()).split())
        assert plain in expected[text], transcript
