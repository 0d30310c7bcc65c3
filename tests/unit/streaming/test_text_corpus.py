"""The corpus is read right, however its sentences arrive."""

import re
import runpy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream.streaming.normalizer import Normalizer
from cosyvoice_stream.streaming.phrases import LONGEST_PHRASE, LONGEST_RUN
from support.text_corpus import sentences, spoken

pytestmark = pytest.mark.unit

SENTENCES = sentences()
RIGHT_RATE = 0.995
ROOT = Path(__file__).parents[3]


def test_the_corpus_is_read_right():
    wrong = [
        f"{sentence.language} {sentence.text} → {words}, not {sentence.spoken}"
        for sentence in SENTENCES
        if not sentence.is_right(words := spoken(sentence.text))
    ]
    assert len(SENTENCES) >= 300
    assert len(wrong) <= (1 - RIGHT_RATE) * len(SENTENCES), "\n".join(wrong)


@pytest.mark.parametrize("language", ["zh", "en", "ja"])
def test_every_kind_is_there(language):
    kinds = {sentence.kind for sentence in SENTENCES if sentence.language == language}
    asked = "decimal number percent money date time unit fraction range phone version ordinal roman"
    assert kinds >= {*asked.split(), "code", "mail", "url", "math"}


def test_no_digit_is_left_to_the_engine():
    assert [s.text for s in SENTENCES if re.search(r"\d", spoken(s.text))] == []


def test_one_character_at_a_time_gives_the_same_words():
    cut = [s.text for s in SENTENCES if spoken(s.text, *range(len(s.text))) != spoken(s.text)]
    assert cut == []


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=4),
    st.sampled_from(["", " ", "\n"]),
    st.lists(st.integers(0, 300), max_size=20),
)
def test_any_fragmentation_gives_the_same_words(chosen, between, cuts):
    text = between.join(sentence.text for sentence in chosen)
    assert spoken(text, *cuts) == spoken(text)


@settings(max_examples=100, deadline=None)
@given(st.text("aB1.5 ,:/-%$@年月个。😀", max_size=600))
def test_no_more_is_held_than_a_phrase_and_what_decides_it(text):
    normalizer = Normalizer()
    given_out = 0
    for index, char in enumerate(text):
        given_out = max([given_out, *(part.ends[-1] for part in normalizer.push(char) if part)])
        assert index + 1 - given_out <= LONGEST_PHRASE + LONGEST_RUN + 32


def test_the_documentation_shows_what_is_tested():
    maker = runpy.run_path(str(ROOT / "docs" / "make_text.py"))
    written = (ROOT / "docs" / "text.md").read_text(encoding="utf-8")
    assert written == maker["text"](), "run python docs/make_text.py"
