import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.streaming import pinyin
from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.streaming.speech_marks import (
    ARPABET,
    PINYIN,
    SOUNDS,
    Kind,
    Piece,
    SpeechMarks,
    join_plain,
    parse,
)

pytestmark = pytest.mark.unit

TOKENS = json.loads(
    (Path(__file__).parents[2] / "data/cosyvoice/special_tokens.json").read_text("utf-8")
)


def said(pieces: Sequence[Piece]) -> list[str]:
    return [
        piece.source.text if piece.kind is Kind.TEXT else f"{piece.kind}:{''.join(piece.symbols)}"
        for piece in pieces
    ]


def test_the_lists_are_those_of_the_tokenizers() -> None:
    ours = SOUNDS | ARPABET | PINYIN
    assert {t for t in TOKENS["cosyvoice3"] if not t.startswith("<|")} == ours
    assert {t for t in TOKENS["cosyvoice2"] if not t.startswith("<|")} == SOUNDS
    assert len(ours) == len(SOUNDS) + len(ARPABET) + len(PINYIN)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Well[laughter], no.", ["Well", "sound:[laughter]", ", no."]),
        ("[Breath] yes", ["sound:[breath]", " yes"]),
        ("他<strong>真</strong>的", ["他", "sound:<strong>", "真", "sound:</strong>", "的"]),
        ("<laughter>ha</laughter>", ["sound:<laughter>", "ha", "sound:</laughter>"]),
        ("[M][AY0][N][UW1][T] left", ["phonemes:[M][AY0][N][UW1][T]", " left"]),
        ("对报道[j][ǐ]予好评", ["对报道", "pinyin:[j][ǐ]", "予好评"]),
        ("[h][a\u0300o]", ["pinyin:[h][ào]"]),
        ("[ch][óng][q][ìng]", ["pinyin:[ch][óng]", "pinyin:[q][ìng]"]),
        ("[h][uā][r]", ["pinyin:[h][uā][r]"]),
        ("[ér]子", ["pinyin:[ér]", "子"]),
        ("[M][AY0][h][ǎo]", ["phonemes:[M][AY0]", "pinyin:[h][ǎo]"]),
        ("[sigh][M][AY0]", ["sound:[sigh]", "phonemes:[M][AY0]"]),
        ("Option [B], see [a] and [1][2].", ["Option [B], see [a] and [1][2]."]),
        ("x = a[i][j] + m[N][M]", ["x = a[i][j] + m[N][M]"]),
        ("[i][j]", ["[i][j]"]),
        ("a < b > c </p> [not closed", ["a < b > c </p> [not closed"]),
        ("<|endofprompt|>", ["<|endofprompt|>"]),
        ("[TODO] [link text] [](x) [[M]]", ["[TODO] [link text] [](x) [[M]]"]),
    ],
)
def test_finds_marks(text: str, expected: list[str]) -> None:
    parsed = parse(text)
    assert said(parsed.pieces) == expected
    assert parsed.problems == ()


@pytest.mark.parametrize(
    ("text", "start", "end", "message", "suggestion"),
    [
        ("a [M][AY9][N]", 5, 10, "this is no ARPAbet symbol", "[AY]"),
        ("[M1][AY0]", 0, 4, "this is no ARPAbet symbol", "[M]"),
        ("[M][ay0]", 3, 8, "ARPAbet is written in capitals", "[AY0]"),
        ("[ay0]", 0, 5, "ARPAbet is written in capitals", "[AY0]"),
        ("[M][AY0][QQ]", 8, 12, "this is no ARPAbet symbol", None),
        ("爱[hào]", 1, 6, "a syllable is written as initial and final", "[h][ào]"),
        ("[zhong4]", 0, 8, "a syllable is written as initial and final", "[zh][òng]"),
        ("[h][ao4]", 3, 8, "a syllable is written as initial and final", "[ào]"),
        ("[h][h][ào]", 0, 3, "no final follows the pinyin initial [h]", None),
        ("[h][q3]", 3, 7, "this is no pinyin initial or final", None),
        ("so [laughs] yes", 3, 11, "this is no sound", "[laughter]"),
        ("[vocalised-noise]", 0, 17, "this is no sound", "[vocalized-noise]"),
        ("<strong>a", 0, 8, "<strong> has no </strong> behind it", None),
        ("a</laughter>", 1, 12, "</laughter> has no <laughter> in front of it", None),
    ],
)
def test_names_what_is_nearly_a_mark(
    text: str, start: int, end: int, message: str, suggestion: str | None
) -> None:
    parsed = parse(text)
    assert len(parsed.problems) == 1
    problem = parsed.problems[0]
    assert (problem.char_start, problem.char_end) == (start, end)
    assert (problem.message, problem.suggestion) == (message, suggestion)
    assert "".join(piece.source.text for piece in parsed.pieces) == text
    assert not any(piece.kind in (Kind.PHONEMES, Kind.PINYIN) for piece in parsed.pieces)


def test_a_problem_says_where_and_what_instead() -> None:
    (problem,) = parse("so [laughs] yes").problems
    assert str(problem) == "this is no sound at character 3; did you mean [laughter]?"
    (unclosed,) = parse("<strong>a").problems
    assert str(unclosed) == "<strong> has no </strong> behind it at character 0"


def test_positions_are_those_of_the_source() -> None:
    cleaned = MappedText.of("so [laughs]", offset=4)
    (problem,) = parse(cleaned).problems
    assert (problem.char_start, problem.char_end) == (7, 15)
    piece = parse(MappedText.of("x [sigh]", offset=2)).pieces[1]
    assert piece.source.source_span(0, 6) == (4, 10)


ALPHABET = st.sampled_from(
    ["[", "]", "M", "AY0", "h", "ào", "ǎ", "1", "a", " ", "<", "/", "strong", ">", "laughter", "好"]
    + ["[M][AY0]", "[h][ào]", "[laughs]", "[hao4]", "<strong>", "</strong>", "[breath]", "e\u0301"]
)


@given(st.lists(ALPHABET, max_size=30).map("".join), st.data())
def test_fragments_do_not_change_the_marks(text: str, data: st.DataObject) -> None:
    stage = SpeechMarks()
    pieces: list[Piece] = []
    at = 0
    while at < len(text):
        end = data.draw(st.integers(at + 1, len(text)))
        pieces += stage.push(MappedText.of(text[at:end], at))
        at = end
    pieces += stage.flush()
    whole = parse(text)
    assert join_plain(pieces) == list(whole.pieces)
    assert sorted(map(str, stage.take_problems())) == sorted(map(str, whole.problems))
    assert MappedText.join(piece.source for piece in pieces) == MappedText.of(text)


def test_text_without_brackets_is_never_held() -> None:
    stage = SpeechMarks()
    for char in "Plain, 好 & <b>x</b> text; a < b":
        if char in "</":
            stage.push(MappedText.of(char))
            continue
        assert stage.push(MappedText.of(char))


def test_a_break_gives_what_is_held() -> None:
    stage = SpeechMarks()
    assert said(stage.push(MappedText.of("a [M][AY0]"))) == ["a "]
    assert said(stage.break_here()) == ["phonemes:[M][AY0]"]
    assert said(stage.push(MappedText.of("[h"))) == []
    assert said(stage.flush()) == ["[h"]


def test_a_long_run_is_held_no_longer_than_its_bound() -> None:
    stage = SpeechMarks()
    held = most = 0
    for _ in range(500):
        pieces = stage.push(MappedText.of("[M][AY0]"))
        held += len("[M][AY0]") - sum(len(piece.source) for piece in pieces)
        most = max(most, held)
    assert most <= 48 * 5


@pytest.mark.parametrize(
    ("syllable", "numbered", "accented", "tokens"),
    [
        ("chong2", "chong2", "chóng", "[ch][óng]"),
        ("hǎo", "hao3", "hǎo", "[h][ǎo]"),
        ("lv4", "lv4", "lǜ", "[l][ǜ]"),
        ("lüè", "lve4", "lüè", "[l][vè]"),
        ("nu:3", "nv3", "nǚ", "[n][ǚ]"),
        ("qu4", "qu4", "qù", "[q][ù]"),
        ("ju:2", "jv2", "jǘ", "[j][ú]"),
        ("ma", "ma5", "ma", "[m][a]"),
        ("ma0", "ma5", "ma", "[m][a]"),
        ("er2", "er2", "ér", "[ér]"),
        ("yuan2", "yuan2", "yuán", "[y][uán]"),
        ("liu4", "liu4", "liù", "[l][iù]"),
        ("gui1", "gui1", "guī", "[g][uī]"),
        ("dou1", "dou1", "dōu", "[d][ōu]"),
        ("Zhuang4", "zhuang4", "zhuàng", "[zh][uàng]"),
        ("huar1", "huar1", "huār", "[h][uā][r]"),
    ],
)
def test_pinyin_in_its_three_forms(
    syllable: str, numbered: str, accented: str, tokens: str
) -> None:
    assert pinyin.numbered(syllable) == numbered
    assert pinyin.accented(syllable) == accented
    parts = pinyin.to_tokens(syllable)
    assert parts is not None
    assert "".join(parts) == tokens
    back = pinyin.from_tokens(parts)
    assert back is not None
    assert pinyin.to_tokens(back) == parts


@pytest.mark.parametrize("text", ["", "x", "hello", "hao6", "hǎo3", "hǎǒ", "b", "zhq1", "好"])
def test_what_is_no_syllable(text: str) -> None:
    assert pinyin.to_tokens(text) is None


def test_every_common_syllable_has_tokens() -> None:
    common = (
        "bo1 pei2 mang3 fen4 dun1 teng2 niang2 lüe4 gua1 kuai4 huang2 jiong3 qiong2 xiong1 "
        "zhi1 chuai3 shuang1 ri4 zi4 cun2 sui4 yo1 yuan4 weng1 wo3 ai4 e4 ou3 ang2 en1 er4"
    )
    missing = [each for each in common.split() if pinyin.to_tokens(each) is None]
    assert missing == []
    assert all(re.fullmatch(r"\[.+\]", part) for part in pinyin.to_tokens("lüe4") or ())
