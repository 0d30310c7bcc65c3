import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.errors import InvalidOption, LimitExceeded
from cosyvoice_stream.streaming.lexicon import (
    MAX_ENTRIES,
    Lexicon,
    LexiconStage,
    compiled,
    read_entry,
)
from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.streaming.speech_marks import Kind, Piece, join_plain

pytestmark = pytest.mark.unit

ENTRIES = {
    "重庆": "chong2 qing4",
    "重庆大学": "chóng qìng dà xué",
    "Xinference": "ex inference",
    "nginx": "engine ex",
    "US": "you ess",
    "New York": "the big apple",
    "C++": "see plus plus",
    "tomato": "[T][AH0][M][EY1][T][OW2]",
    "hmm": "",
}


def read(text: str, *entries: dict[str, str]) -> list[Piece]:
    stage = LexiconStage([Lexicon(each) for each in entries or (ENTRIES,)])
    return join_plain(stage.push(MappedText.of(text)) + stage.flush())


def said(text: str, *entries: dict[str, str]) -> str:
    return "".join(piece.source.text for piece in read(text, *entries))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("去重庆玩", "去[ch][óng][q][ìng]玩"),
        ("重庆大学", "[ch][óng][q][ìng][d][à][x][ué]"),
        ("重庆大", "[ch][óng][q][ìng]大"),
        ("Xinference works", "ex inference works"),
        ("xinference Xinferences Xinference2", "xinference Xinferences Xinference2"),
        ("用Xinference吧", "用ex inference吧"),
        ("Nginx, NGINX and nginx.", "engine ex, engine ex and engine ex."),
        ("The US and us", "The you ess and us"),
        ("BUS US_A", "BUS US_A"),
        ("New York, New Yorker, New Yor", "the big apple, New Yorker, New Yor"),
        ("C++ or C+", "see plus plus or C+"),
        ("a tomato!", "a [T][AH0][M][EY1][T][OW2]!"),
        ("well hmm no", "well  no"),
    ],
)
def test_reads_words_in_their_own_way(text: str, expected: str) -> None:
    assert said(text) == expected


def test_pieces_that_are_marks_are_told_apart() -> None:
    kinds = [(piece.kind, "".join(piece.symbols)) for piece in read("在重庆 tomato")]
    assert kinds == [
        (Kind.TEXT, ""),
        (Kind.PINYIN, "[ch][óng]"),
        (Kind.PINYIN, "[q][ìng]"),
        (Kind.TEXT, ""),
        (Kind.PHONEMES, "[T][AH0][M][EY1][T][OW2]"),
    ]


def test_positions_stay_those_of_the_caller() -> None:
    source = MappedText.of("at Xinference, ok", offset=10)
    stage = LexiconStage([Lexicon(ENTRIES)])
    pieces = stage.push(source) + stage.flush()
    whole = MappedText.join(piece.source for piece in pieces)
    at = whole.text.index("inference")
    assert whole.source_span(at, at + 9) == (13, 23)
    assert whole.source_span(whole.text.index("ok"), len(whole)) == (25, 27)


def test_the_first_lexicon_has_precedence_over_equal_words() -> None:
    session, server = {"US": "the states"}, {"US": "you ess", "US Open": "the tennis"}
    assert said("US", session, server) == "the states"
    assert said("US Open", session, server) == "the tennis"


def test_an_empty_lexicon_holds_nothing() -> None:
    stage = LexiconStage([Lexicon({})])
    assert [piece.source.text for piece in stage.push(MappedText.of("New Y"))] == ["New Y"]


def test_holds_no_more_than_a_word() -> None:
    stage = LexiconStage([Lexicon(ENTRIES)])
    assert [piece.source.text for piece in stage.push(MappedText.of("in New Yo"))] == ["in "]
    assert [piece.source.text for piece in stage.push(MappedText.of("u "))] == ["New You "]
    assert stage.push(MappedText.of("US")) == []
    assert [piece.source.text for piece in stage.break_here()] == ["you ess"]


WORDS = st.sampled_from([*ENTRIES, " ", "New ", "Yor", "重", "庆", "大", "学", "US", "x", ".", "+"])


@given(st.lists(WORDS, max_size=16).map("".join), st.data())
def test_fragments_do_not_change_the_readings(text: str, data: st.DataObject) -> None:
    stage = LexiconStage([Lexicon(ENTRIES)])
    pieces: list[Piece] = []
    at = 0
    while at < len(text):
        end = data.draw(st.integers(at + 1, len(text)))
        pieces += stage.push(MappedText.of(text[at:end], at))
        at = end
    assert join_plain(pieces + stage.flush()) == read(text)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"": "x"}, "without white space around them"),
        ({" a": "x"}, "without white space around them"),
        ({"a" * 65: "x"}, "1 to 64 characters"),
        ({"[a]": "x"}, "a word holds no brackets"),
        ({"a": "x" * 257}, "at most 256 characters"),
        ({"a": "x\ny"}, "one line"),
        ({"a": "[M][AY9]"}, r"no ARPAbet symbol at character 3; did you mean \[AY\]\?"),
        ({"好": "[hao3]"}, r"did you mean \[h\]\[ǎo\]\?"),
    ],
)
def test_refuses_what_cannot_be_used(entries: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as refused:
        Lexicon({"fine": "okay"} | entries)
    assert "2" in str(refused.value)


def test_refuses_too_many_words() -> None:
    with pytest.raises(LimitExceeded, match="words in a lexicon"):
        Lexicon({f"w{n}": "" for n in range(MAX_ENTRIES + 1)})


def test_words_that_only_look_like_syllables_are_words() -> None:
    assert [piece.kind for piece in read_entry("ma ma").pieces] == [Kind.TEXT]
    assert [piece.kind for piece in read_entry("ma5 ma1").pieces] == [Kind.PINYIN] * 2
    assert [piece.kind for piece in read_entry("route 66").pieces] == [Kind.TEXT]


def test_the_same_entries_are_compiled_once() -> None:
    assert compiled({"a": "b"}) is compiled({"a": "b"})
    assert compiled({"a": "b"}) is not compiled({"a": "c"})


def test_time_grows_with_the_text_alone() -> None:
    steps = 0

    class Counting(Lexicon):
        def match(self, text, start, final):  # type: ignore[no-untyped-def]
            nonlocal steps
            steps += 1
            return super().match(text, start, final)

    stage = LexiconStage([Counting(ENTRIES)])
    for _ in range(1000):
        stage.push(MappedText.of("New Yo 重庆 "))
    assert steps <= 1000 * 12
