from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server.text_stages import MAX_WARNINGS, TextStages, TextWarning
from cosyvoice_stream.streaming.lexicon import Lexicon
from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.types import Feature

pytestmark = pytest.mark.unit

PLAIN = FakeEngine().info
ABLE = replace(PLAIN, features=PLAIN.features | {Feature.SOUNDS, Feature.ARPABET, Feature.PINYIN})
LEXICON = Lexicon({"重庆": "chong2 qing4", "Xinference": "ex inference"})


def read(text: str, info=ABLE, *, clean: bool = True) -> tuple[MappedText, list[TextWarning]]:
    stages = TextStages(info, clean=clean, lexicons=(LEXICON,))
    parts = stages.push(text) + stages.flush()
    return MappedText.join(parts), stages.take_warnings()


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("**Xinference** in 重庆!", "ex inference in [ch][óng][q][ìng]!"),
        ("[Laughter] `Xinference`", "[laughter] ex inference"),
        ("X重庆", "X [ch][óng][q][ìng]"),
        ("她的爱[h][a\u0300o]", "她的爱[h][ào]"),
        ("[1] [B] a[i][j] **[M][AY1]**", "[B] a[i][j] [M][AY1]"),
        ("Hi <|endofprompt|> there", "Hi there"),
    ],
)
def test_cleans_then_finds_marks_then_reads_words(text: str, spoken: str) -> None:
    got, warnings = read(text)
    assert got.text == spoken
    assert warnings == []


def test_places_are_those_of_the_client() -> None:
    text = "**Go** to *重庆* [laughter] now"
    spoken, _ = read(text)

    def source(words: str) -> str:
        at = spoken.text.index(words)
        start, end = spoken.source_span(at, at + len(words))
        return text[start:end]

    assert source("[ch][óng][q][ìng]") == "重庆"
    assert source("[laughter]") == "[laughter]"
    assert source("now") == "now"


def test_says_what_is_nearly_a_mark_and_where() -> None:
    spoken, warnings = read("**So** [laughs] <strong>yes")
    assert spoken.text == "So [laughs] <strong>yes"
    assert warnings == [
        TextWarning("this is no sound", 7, 15, "[laughter]"),
        TextWarning("<strong> has no </strong> behind it", 16, 24),
    ]


def test_says_once_what_the_engine_lacks() -> None:
    _, warnings = read("ha [laughter] ha [sigh] [M][AY1] [N][AY1]", PLAIN)
    assert warnings == [
        TextWarning("sounds are left out: the engine 'fake' has no such feature", 3, 13),
        TextWarning(
            "phonemes in brackets may be misread: the engine 'fake' has no such feature", 24, 32
        ),
    ]


def test_warnings_are_bounded() -> None:
    _, warnings = read("[laughs] " * 200)
    assert len(warnings) == MAX_WARNINGS


PARTS = ["Xinfer", "ence", "重", "庆", " ", "**", "[laugh", "ter]", "[M]", "[AY1]", "a", ".", "`"]


@given(st.lists(st.sampled_from(PARTS), max_size=14).map("".join), st.data())
def test_fragments_do_not_change_what_is_spoken(text: str, data: st.DataObject) -> None:
    stages = TextStages(ABLE, clean=True, lexicons=(LEXICON,))
    parts: list[MappedText] = []
    at = 0
    while at < len(text):
        end = data.draw(st.integers(at + 1, len(text)))
        parts += stages.push(text[at:end])
        at = end
    whole, warnings = read(text)
    assert MappedText.join(parts + stages.flush()) == whole
    assert stages.take_warnings() == warnings


def test_an_engine_without_pinyin_gets_characters_that_sound_alike() -> None:
    chinese = replace(PLAIN, languages=("zh", "en"))
    assert read("去重庆，对报道[j][ǐ]予好评", chinese)[0].text == "去虫庆，对报道己予好评"
    assert read("去重庆", replace(ABLE, languages=("zh",)))[0].text == "去[ch][óng][q][ìng]"
    assert read("去重庆", PLAIN)[0].text == "去[ch][óng][q][ìng]"
    spoken, _ = read("去重庆", chinese)
    assert spoken.source_span(1, 3) == (1, 3)


def test_traditional_characters_are_simplified_where_that_is_asked_for() -> None:
    text = "**會議**3點[laughter]開始，重庆"
    for simplify, expected in (
        (True, "会议三点[laughter]开始，[ch][óng][q][ìng]"),
        (False, "會議三點[laughter]開始，[ch][óng][q][ìng]"),
    ):
        stages = TextStages(ABLE, clean=True, normalize=True, simplify=simplify, lexicons=[LEXICON])
        spoken = MappedText.join(stages.push(text) + stages.flush())
        assert spoken.text == expected
        at = expected.index("始")
        assert text[slice(*spoken.source_span(at, at + 1))] == "始"
