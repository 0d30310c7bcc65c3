import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.streaming.clauses import Clause, ClauseSplitter
from cosyvoice_stream.streaming.languages import speaks_any

pytestmark = pytest.mark.unit

CORPUS = [
    "水温是36.8度，刚好。",
    "型号A1、4B和TZ-705，见API文档v2.4.1，发布于9:30。",
    "Nach 10 hoch 6 Schritten wächst die Höhe um 22,1 %. Am 3. Mai regnet es. Danach nicht.",
    "呃，让我再查一下，sorry 哈！",
    "Dr. Smith paid $3.50 at 9 a.m. in the U.S.A. for No. 5, e.g. a book. The end.",
    'He said "Stop. Do not go." and left. "Why?" she asked. (She knew. Why ask?) He left.',
    "“你好。我是小明。”他说。「走吧。」　他走了……真的？！好！！！不行",
    "First line\nSecond line\n\nA paragraph that\ngoes on. Fine.\r\n\r\nYes.\n \n",
    "1. Install it.\n2. Run it: see https://example.com/a?b=c&d=1.5 or mail me@x.org.\n- bullet",
    "Wait... what? Wait... What? That is 10 - 20 % more — in fact — than 5–6 years; ok.",
    "我今天去了北京的一个很大的公园看到了很多的花还有很多人在那里跳舞唱歌我觉得非常开心",
    "昨日は友達と一緒に東京へ行って美味しいラーメンを食べてから映画を見ました。",
    "Open (never closed. And on it goes. So it is. «Oui», dit-il. „Ja.“ Gut. Plan B. The rest.",
    "word " * 100,
    "He had 1,234.56 €, 3, 4 and 5. [breath] Hi <break time='1. s'/> you :( there .NET. ",
]
ALPHABET = "aB1 .,;:!?-—…\n\"()“”<[]我了。，？「」3é@/'🙂"


def split(text: str, *cuts: int, **options: float) -> list[Clause]:
    splitter = ClauseSplitter(**options)  # type: ignore[arg-type]
    clauses: list[Clause] = []
    edges = [0, *sorted(cuts), len(text)]
    for start, end in zip(edges, edges[1:], strict=False):
        clauses += splitter.push(text[start:end])
    return clauses + splitter.flush()


def texts(text: str, *cuts: int) -> list[str]:
    return [clause.text for clause in split(text, *cuts)]


def check(text: str, clauses: list[Clause]) -> None:
    said = 0
    for clause in clauses:
        assert text[clause.char_start : clause.char_end] == clause.text
        assert clause.text == clause.text.strip()
        assert not speaks_any(text[said : clause.char_start])
        said = clause.char_end
    assert not speaks_any(text[said:])


@pytest.mark.parametrize("text", CORPUS)
def test_any_fragmentation_gives_the_same_clauses(text: str) -> None:
    whole = split(text)
    check(text, whole)
    assert split(text, *range(len(text))) == whole
    rng = random.Random(len(text))
    for _ in range(20):
        assert split(text, *(rng.randrange(len(text)) for _ in range(4))) == whole


@settings(max_examples=150, deadline=None)
@given(st.text(ALPHABET, max_size=150), st.lists(st.integers(0, 150), max_size=12))
def test_any_fragmentation_of_any_text_gives_the_same_clauses(text: str, cuts: list[int]) -> None:
    small = {"first_min_chars": 8, "first_split_chars": 10, "first_max_chars": 14, "max_chars": 20}
    for options in ({}, small):
        whole = split(text, **options)
        check(text, whole)
        assert split(text, *(min(cut, len(text)) for cut in cuts), **options) == whole
        assert split(text, *range(len(text)), **options) == whole


@pytest.mark.parametrize("text", ["", "   ", "。", "……", "!!!", "🙂🙂", "——", "...", "“”", "**"])
def test_nothing_to_say_gives_no_clause(text: str) -> None:
    assert split(text) == []


@pytest.mark.parametrize("text", ["嗯。", "好", "Yes.", "No!", "A", "7", "OK 的"])
def test_short_text_is_one_clause(text: str) -> None:
    assert split(text) == [Clause(text, 0, len(text), True, text != "嗯。")]


@pytest.mark.parametrize(
    "kept",
    [
        *("3.14", "$3.50", "9:30", "v2.4.1", "22,1 %", "1,234.56", "10 000", "36.8度"),
        *("https://example.com/a?b=c.d", "me@example.org", "example.com", "Dr. Smith", "No. 5"),
        *("e.g. this", "i.e. that", "U.S. Army", "9 a.m. sharp", "J. K. Rowling", "Fig. 3", "p. 5"),
        *("St. Louis", "Mr. T", "z.B. das", "3. Mai", "Inc. said", "Jan. 5", "5–6"),
        '"Stop. Do not go." he',
    ],
)
@pytest.mark.parametrize("before", ["Here we have ", "So. It was on ", "我们有"])
def test_never_parts(kept: str, before: str) -> None:
    text = f"{before}{kept} and then there was something else, was it not. It was."
    for cuts in ((), range(len(text))):
        assert any(kept in clause for clause in texts(text, *cuts))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello. How are you? Fine!", ["Hello.", "How are you?", "Fine!"]),
        ("I live in the U.S.A. It is big.", ["I live in the U.S.A.", "It is big."]),
        ("It is 9 a.m. We go.", ["It is 9 a.m.", "We go."]),
        ("No. I go.", ["No.", "I go."]),
        ("I have 3. He has 4.", ["I have 3.", "He has 4."]),
        ("你好。再见！好吗？", ["你好。", "再见！", "好吗？"]),
        ("版本是2.我们走", ["版本是2.", "我们走"]),
        ("1. Install it. 2. Run it.", ["1. Install it.", "2. Run it."]),
        ('"Is it?" "It is."', ['"Is it?"', '"It is."']),
        ("**Done.** Next one.", ["**Done.**", "Next one."]),
        ("One line\nNext line", ["One line", "Next line"]),
        ("a line that\nwas wrapped", ["a line that\nwas wrapped"]),
        ("Wait... What?", ["Wait...", "What?"]),
        ("see page 4.\nit is short", ["see page 4.", "it is short"]),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Thank you for your call, how can I help you today?", "Thank you for your call,"),
        ("Well, I think so.", "Well, I think so."),
        (
            "There are many different kinds of things because people like to have a choice.",
            "There are many different kinds of things",
        ),
        (
            "Seventeen enormous elephants walked slowly down Main Street towards Highbury Fields.",
            "Seventeen enormous elephants walked slowly down Main Street",
        ),
        ("好的，我现在就帮您查一下，请稍等。", "好的，我现在就帮您查一下，"),
        (CORPUS[10], "我今天去了北京的一个很大的公园看到了"),
    ],
)
def test_first_clause_is_short(text: str, first: str) -> None:
    assert texts(text)[0] == first


def test_first_clause_comes_before_the_sentence_is_complete() -> None:
    splitter = ClauseSplitter()
    assert splitter.push("Thank you for your call,") == []
    assert splitter.push(" ") == [Clause("Thank you for your call,", 0, 24, False, False)]


def test_later_sentences_stay_whole() -> None:
    later = "Later sentences, which may be long, stay in one piece; that sounds better."
    assert texts(f"A first sentence that is long enough. {later}")[-1] == later


def test_a_stop_at_the_end_waits_for_the_next_character() -> None:
    splitter = ClauseSplitter()
    assert splitter.push("水温是36") == []
    assert splitter.push(".") == []
    assert [c.text for c in splitter.push("8度，刚好。")] == ["水温是36.8度，", "刚好。"]
    assert splitter.push("It is done.") == []
    assert [c.text for c in splitter.push(" ")] == ["It is done."]


def test_an_unambiguous_stop_does_not_wait() -> None:
    assert [c.text for c in ClauseSplitter().push("你好。")] == ["你好。"]


def test_break_here_gives_everything_and_goes_on() -> None:
    splitter = ClauseSplitter()
    assert splitter.push("Let me see") == []
    assert splitter.break_here() == [Clause("Let me see", 0, 10, False, False)]
    assert splitter.break_here() == []
    assert splitter.push(" if it is.") == []
    assert splitter.break_here() == [Clause("if it is.", 11, 20, True, False)]
    assert splitter.flush() == []


def test_flags() -> None:
    text = "First one. Second one.\n\nThird one, which has to be parted here, ends the text"
    flags = [(c.ends_sentence, c.ends_paragraph) for c in split(text)]
    assert flags == [(True, False), (True, True), (True, True)]
    assert [c.ends_sentence for c in split("Thank you for your call, bye")] == [False, True]


@pytest.mark.parametrize(
    "text", ["你好。\n\n再见！\n我走。\n \n嗯。", "One?\n\nTwo.\nThree.\n\n\nFour."]
)
def test_a_paragraph_begins_behind_a_blank_line(text: str) -> None:
    for cuts in ((), range(len(text))):
        begins = [clause.begins_paragraph for clause in split(text, *cuts)]
        assert begins == [False, True, False, True]


def test_a_new_text_starts_after_flush() -> None:
    splitter = ClauseSplitter()
    splitter.push("One")
    splitter.flush()
    splitter.push("Two")
    assert splitter.flush() == [Clause("Two", 0, 3, True, True)]


@pytest.mark.parametrize("words", ["word " * 3000, "字" * 5000, "x" * 5000, "สวัสดี " * 900])
def test_text_without_punctuation_is_parted(words: str) -> None:
    clauses = split(words)
    check(words, clauses)
    assert len(clauses) > 10
    assert max(len(clause.text) for clause in clauses) <= 241
    if " " in words:
        assert all(set(clause.text.split()) <= set(words.split()) for clause in clauses)


def test_a_long_address_stays_whole() -> None:
    address = "https://example.com/" + "a" * 500
    assert address in texts(f"{address} is long")


@pytest.mark.parametrize(
    "unit",
    [
        "The quick fox, in 1999, ran. ",
        "我去了，很好。",
        "a",
        " ",
        ".",
        '"(',
        "🙂",
        "a\n",
        "我",
        "—",
    ],
)
def test_time_is_linear(unit: str) -> None:
    def seconds(chars: int) -> float:
        text = unit * (chars // len(unit))
        start = time.process_time()
        split(text)
        return time.process_time() - start

    seconds(2_000)
    assert seconds(100_000) < 10 * 3 * max(seconds(10_000), 0.002)


def test_many_tiny_pushes_are_linear() -> None:
    text = "The quick brown fox jumped over it. " * 560
    start = time.process_time()
    split(text, *range(0, len(text), 2))
    assert time.process_time() - start < 3


def test_lengths_must_be_in_order() -> None:
    with pytest.raises(ConfigError, match="first_min_chars <= first_split_chars"):
        ClauseSplitter(first_min_chars=50, first_split_chars=20)
    with pytest.raises(ConfigError, match="growth"):
        ClauseSplitter(growth=0)
