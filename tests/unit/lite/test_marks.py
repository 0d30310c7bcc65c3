"""Marks of CosyVoice in the embedded engine: phonemes are spoken, sounds left out."""

from __future__ import annotations

import pytest

from cosyvoice_stream.errors import UnsupportedLanguage
from cosyvoice_stream.lite.acoustic import AcousticModel
from cosyvoice_stream.lite.engine import check_language
from cosyvoice_stream.lite.marks import from_arpabet, without_marks
from cosyvoice_stream.lite.phonemes import VISEME_OF
from cosyvoice_stream.streaming.speech_marks import ARPABET

pytestmark = pytest.mark.unit


def phonemes_of(model: AcousticModel, text: str) -> str:
    return " ".join(run.phonemes for run in model.phonemes(text, normalize=True))


@pytest.mark.parametrize(
    ("marks", "phonemes"),
    [
        ("[M][AY0][N][UW1][T]", "mInˈut"),
        ("[HH][AH0][L][OW1]", "həlˈO"),
        ("[B][ER1][D]", "bˈɜɹd"),
        ("[S][IH2][S][T][ER0]", "sˌɪstəɹ"),
        ("[D][AA][G]", "dˈɑɡ"),
    ],
)
def test_arpabet_is_written_in_the_models_phonemes(marks: str, phonemes: str) -> None:
    assert from_arpabet([f"[{name}" for name in marks.split("[")[1:]]) == phonemes


def test_the_model_knows_every_arpabet_symbol(model: AcousticModel) -> None:
    known = set(model._phonemizer.vocabulary)
    for symbol in ARPABET:
        written = from_arpabet([symbol])
        assert set(written) <= known, symbol
        assert set(written) & set(VISEME_OF), symbol


def test_a_word_in_arpabet_is_said_as_it_stands(model: AcousticModel) -> None:
    assert phonemes_of(model, "A [M][AY0][N][UW1][T] detail.") == "ɐ mInˈut dətˈAl."
    plain = phonemes_of(model, "A minute detail.")
    assert "mˈɪnət" in plain


def test_a_mark_changes_the_word_before_it_as_the_word_would(model: AcousticModel) -> None:
    assert phonemes_of(model, "the [AE1][P][AH0][L]").startswith("ði ")
    assert phonemes_of(model, "the [P][AE1][P]").startswith("ðə ")


def test_words_are_the_callers(model: AcousticModel) -> None:
    text = "Say [T][AH0][M][EY1][T][OW2], or pre[F][IH1][K][S], twice."
    (run,) = model.phonemes(text, normalize=True)
    expected = ["Say", "[T][AH0][M][EY1][T][OW2]", "or", "pre", "[F][IH1][K][S]", "twice"]
    assert [word.text for word in run.words] == expected
    assert all(text[word.start : word.end] == word.text for word in run.words)


def test_numbers_beside_marks_are_read(model: AcousticModel) -> None:
    text = "At 7:30 pm [T][AY1][M] 2024."
    (run,) = model.phonemes(text, normalize=True)
    assert [word.text for word in run.words] == ["At", "7:30 pm", "[T][AY1][M]", "2024"]
    assert "tˈIm" in run.phonemes


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("Well[laughter], no.", "Well, no."),
        ("[breath] Yes.", "Yes."),
        ("It is <strong>very</strong> cold.", "It is very cold."),
        ("<laughter>Stop it</laughter>!", "Stop it!"),
    ],
)
def test_sounds_are_left_out(model: AcousticModel, marked: str, plain: str) -> None:
    assert phonemes_of(model, marked) == phonemes_of(model, plain)


@pytest.mark.parametrize("text", ["[laughter]", "[sigh][breath]"])
def test_sounds_alone_say_nothing(model: AcousticModel, text: str) -> None:
    assert model.phonemes(text, normalize=True) == []


def test_what_only_looks_like_a_mark_is_read(model: AcousticModel) -> None:
    (run,) = model.phonemes("Option [B], see [1].", normalize=True)
    assert [word.text for word in run.words] == ["Option", "B", "see", "1"]


def test_pinyin_is_chinese() -> None:
    with pytest.raises(UnsupportedLanguage) as refused:
        check_language("her [h][ào]")
    assert refused.value.language == "zh"
    check_language("option [a], array[i][j], [M][AY1]")


def test_many_marks_keep_their_own_phonemes() -> None:
    text = " ".join(f"[{vowel}1]" for vowel in ("AA", "IY", "UW") * 20)
    unmarked, phonemes = without_marks(text)
    assert len(phonemes) == 60
    assert [phonemes[word] for word in unmarked.text.split()] == ["ˈɑ", "ˈi", "ˈu"] * 20
