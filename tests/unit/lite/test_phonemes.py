"""Words keep their place in the caller's text, however they are read."""

from __future__ import annotations

import pytest

from cosyvoice_stream.lite.acoustic import AcousticModel
from cosyvoice_stream.lite.phonemes import MAX_PHONEMES, VISEME_OF, align, spell_greek

pytestmark = pytest.mark.unit


def words_of(model: AcousticModel, text: str, *, normalize: bool = True) -> list[str]:
    runs = model.phonemes(text, normalize=normalize)
    return [word.text for run in runs for word in run.words]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello there.", ["Hello", "there"]),
        ("It costs $9.99 today.", ["It", "costs", "$9.99", "today"]),
        ("Don't you think?", ["Don't", "you", "think"]),
        ("“Quoted,” she said.", ["Quoted", "she", "said"]),
        ("A well-known e-mail.", ["A", "well-known", "e-mail"]),
        ("On the 3rd of March 2024", ["On", "the", "3rd", "of", "March", "2024"]),
        ("50% of 1,250 people", ["50%", "of", "1,250", "people"]),
        ("Dr. Smith is here", ["Dr", "Smith", "is", "here"]),
        ("café naïve", ["café", "naïve"]),
        ("yes 🙂 no", ["yes", "no"]),
        ("α is small", ["α", "is", "small"]),
        ("(really)", ["really"]),
        ("A", ["A"]),
        ("7", ["7"]),
    ],
)
def test_words_as_the_caller_wrote_them(model: AcousticModel, text: str, words: list[str]) -> None:
    assert words_of(model, text) == words
    for run in model.phonemes(text, normalize=True):
        for word in run.words:
            assert text[word.start : word.end] == word.text


def test_what_is_read_together_is_one_word(model: AcousticModel) -> None:
    assert words_of(model, "Call at 7:30 pm.") == ["Call", "at", "7:30 pm"]


@pytest.mark.parametrize("text", ["", "   ", "...", "!?", "🙂🙂", "—"])
def test_nothing_to_say(model: AcousticModel, text: str) -> None:
    assert words_of(model, text) == []


def test_every_phoneme_has_an_owner_or_is_a_pause(model: AcousticModel) -> None:
    (run,) = model.phonemes("One, two and three.", normalize=True)
    for phoneme, owner in zip(run.phonemes, run.owners, strict=True):
        assert (owner >= 0) == (phoneme not in " ,.")


def test_long_text_is_cut_into_readable_runs(model: AcousticModel) -> None:
    text = "counting " * 200
    runs = model.phonemes(text, normalize=True)
    assert len(runs) > 1
    assert all(len(run.phonemes) <= MAX_PHONEMES for run in runs)
    assert sum(len(run.words) for run in runs) == 200


def test_a_word_of_ten_thousand_letters_is_read_in_pieces(model: AcousticModel) -> None:
    runs = model.phonemes("x" * 10_000, normalize=True)
    assert all(0 < len(run.phonemes) <= MAX_PHONEMES for run in runs)


def test_normalisation_can_be_switched_off(model: AcousticModel) -> None:
    spoken = ["".join(r.phonemes for r in model.phonemes("5 km", normalize=n)) for n in (1, 0)]
    assert spoken[0] != spoken[1]


def test_alignment_of_rewritten_words() -> None:
    assert align(["at", "7:30", "pm", "now"], ["at", "seven", "thirty", "p", "m", "now"]) == [
        (0, 1),
        *[(1, 3)] * 4,
        (3, 4),
    ]


def test_single_greek_letters_are_named() -> None:
    assert spell_greek("π r").split() == ["pi", "r"]
    assert spell_greek("5 μm") == "5 µm"
    assert spell_greek("λόγος") == "λόγος"


def test_every_vowel_and_consonant_of_the_model_has_a_mouth_shape(model: AcousticModel) -> None:
    text = "Thy joy, sure: the quick brown fox jumps over a lazy dog; choose vision, girl, boat."
    (run,) = model.phonemes(text, normalize=True)
    shapeless = set(run.phonemes) - set(VISEME_OF) - set(" ,.;:ˈˌː")
    assert not shapeless
