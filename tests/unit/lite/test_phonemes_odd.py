"""Text that the pronunciation rules fail on or drop."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream.lite.acoustic import AcousticModel
from cosyvoice_stream.lite.phonemes import (
    LENGTH_MARKS,
    MAX_PHONEMES,
    STRESS_MARKS,
    VISEME_OF,
    foreign_letters,
)

pytestmark = pytest.mark.unit

NASTY = [
    *"abXYZ0129.,-/:$£€%#@&+*=()[]'\"’“”…_~^<>|°²½éñØſªⅣ① \u200b\u00a0\u0301\n\t",
    *("Dr.", "No.", "USD", " km", "Jan", "Chapter IV", "1/0", "](", "rock'n'roll", "999999999"),
]


@settings(max_examples=150, deadline=None)
@given(
    text=st.lists(st.sampled_from(NASTY), max_size=40).map("".join) | st.text(max_size=60),
    normalize=st.booleans(),
)
def test_words_lie_in_the_text_in_order(model: AcousticModel, text: str, normalize: bool) -> None:
    runs = model.phonemes(text, normalize=normalize)
    words = [word for run in runs for word in run.words]
    for word in words:
        assert text[word.start : word.end] == word.text
        assert word.start < word.end
    starts = [word.start for word in words]
    assert starts == sorted(starts)
    for run in runs:
        assert 0 < len(run.phonemes) == len(run.owners) <= MAX_PHONEMES
        for phoneme, owner in zip(run.phonemes, run.owners, strict=True):
            assert owner >= 0 or phoneme not in VISEME_OF, "all that is spoken has a word"


@pytest.mark.parametrize("text", ["²", "①", "x ①² y", "1" * 40, "9" * 3_000, "1,234" * 60])
def test_what_the_rules_fail_on_is_spoken(model: AcousticModel, text: str) -> None:
    assert model.phonemes(text, normalize=True)


def test_a_failing_word_does_not_take_its_neighbours_along(
    model: AcousticModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    phonemizer = model._phonemizer
    tokenize = phonemizer._g2p.tokenize

    def failing(text: str) -> object:
        if "zap" in text:
            raise IndexError(text)
        return tokenize(text)

    monkeypatch.setattr(phonemizer._g2p, "tokenize", failing)
    (run,) = model.phonemes("one zap two", normalize=True)
    assert [word.text for word in run.words] == ["one", "zap", "two"], "spelled, not dropped"


def test_signs_that_are_read_as_words_have_a_place(model: AcousticModel) -> None:
    (run,) = model.phonemes("this & that + 5 @ home", normalize=True)
    assert [w.text for w in run.words] == ["this", "&", "that", "+", "5", "@", "home"]


def test_a_link_is_text_and_not_a_pronunciation(model: AcousticModel) -> None:
    (run,) = model.phonemes("see [this](/hɛlO/) now", normalize=True)
    assert [word.text for word in run.words][-1] == "now"
    assert "hɛlO" not in run.phonemes


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("café Nguyễn Łódź Straße ﬁne Ｈｉ 𝐇𝐢 ªº ʰ", ""),
        ("5 Ω, 3 µm, 3 μm and α", ""),
        ("1 ٣ ② ½ & 🙂", ""),
        ("say ᏣᎳᎩ", "ᏣᎳᎩ"),
        ("я и you", "яи"),
    ],
)
def test_letters_that_would_be_dropped(text: str, letters: str) -> None:
    assert foreign_letters(text) == letters


@pytest.mark.parametrize("text", ["Nguyễn", "Łódź", "ễ", "é", "Ｈｉ", "②"])
def test_rare_letters_are_spoken(model: AcousticModel, text: str) -> None:
    (run,) = model.phonemes(text, normalize=True)
    assert [word.text for word in run.words] == [text]


def test_every_sound_of_the_model_has_a_mouth_shape(model: AcousticModel) -> None:
    marks = STRESS_MARKS | LENGTH_MARKS | set(' ;:,.!?—…"()“”↓→↗↘')
    assert set(model._phonemizer.vocabulary) - marks <= set(VISEME_OF)
