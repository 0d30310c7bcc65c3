"""Numbers, signs and codes become words, in the language of their sentence."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream.streaming.normalizer import Normalizer

pytestmark = pytest.mark.unit

READ = [
    ("水温是36.8度，刚好。", "水温是三十六点八度，刚好。"),
    (
        "型号A1、4B和TZ-705，见API文档v2.4.1，发布于9:30。",
        "型号A一、四B和TZ 七零五，见API文档二点四点一，发布于九点三十分。",
    ),
    ("呃，让我再查一下，sorry 哈！", "呃，让我再查一下，sorry 哈！"),
    ("花儿开了，一会儿见。", "花儿开了，一会儿见。"),
    ("买2个，第2名，200元，2月2日。", "买两个，第二名，两百元，二月二日。"),
    ("邮箱abc@example.com", "邮箱abc艾特example点com"),
    ("佢買咗2個蘋果，電話係12345678。", "佢買咗兩個蘋果，電話係一二三四五六七八。"),
    ("It costs $3.50 at 9:30 a.m.", "It costs three dollars and fifty cents at nine thirty AM."),
    ("Dr. Smith lives on Elm Dr. now.", "Doctor Smith lives on Elm Drive now."),
    ("Henry VIII wrote Chapter IV.", "Henry the eighth wrote Chapter four."),
    ("気温は36.8度です。", "気温は三十六点八度です。"),
    (
        "Nach 10 hoch 6 Schritten wächst die Höhe um 22,1 %.",
        "Nach zehn hoch sechs Schritten wächst die Höhe um zweiundzwanzig Komma eins Prozent.",
    ),
]


def read(text, *cuts, language=None):
    normalizer = Normalizer(language)
    places = [0, *sorted(cuts), len(text)]
    parts = []
    for start, end in zip(places, places[1:], strict=False):
        parts += normalizer.push(text[start:end])
    return parts + normalizer.flush()


def words(text, *cuts, language=None):
    return "".join(part.text for part in read(text, *cuts, language=language))


@pytest.mark.parametrize(("text", "spoken"), READ)
def test_reads(text, spoken):
    assert words(text) == spoken


@pytest.mark.parametrize(("text", "spoken"), READ)
def test_any_fragmentation_gives_the_same_words(text, spoken):
    assert words(text, *range(len(text))) == spoken
    rng = random.Random(len(text))
    for _ in range(30):
        assert words(text, *(rng.randrange(len(text)) for _ in range(4))) == spoken


@settings(max_examples=200, deadline=None)
@given(
    st.text("aB1.5 ,:/-%$¥€@#&+*=<>[]()'我年月2个。，です5kmAMIV²～①", max_size=80),
    st.lists(st.integers(0, 80), max_size=10),
)
def test_any_fragmentation_of_any_text_gives_the_same_words(text, cuts):
    whole = read(text)
    cut = read(text, *(min(cut, len(text)) for cut in cuts))
    assert "".join(part.text for part in cut) == "".join(part.text for part in whole)
    assert [*_spans(cut)] == [*_spans(whole)]


def _spans(parts):
    for part in parts:
        yield from zip(part.text, part.starts, part.ends, strict=True)


def test_every_word_points_at_what_was_sent():
    text = "付了¥9.99，3月5日见。"
    found = {
        text[start:end]
        for part in read(text)
        for start, end in zip(part.starts, part.ends, strict=True)
    }
    assert "¥9.99" in found
    assert "付" in found


def test_a_language_can_be_told():
    assert words("5", language="en") == "five"
    assert words("5", language="zh-CN") == "五"
    assert words("5", language="de-AT") == "fünf"
    assert words("9:30", language="zh-HK") == "九點三十分"


def test_what_has_no_words_is_named_and_stays():
    normalizer = Normalizer()
    said = normalizer.push("Η τιμή είναι 25 ευρώ και 30.") + normalizer.flush()
    assert "25" in "".join(part.text for part in said)
    assert normalizer.take_unread() == [("el", 13, 15)]
    assert normalizer.take_unread() == []


def test_holds_only_what_the_next_characters_decide():
    normalizer = Normalizer("zh")
    assert "".join(p.text for p in normalizer.push("水温是36")) == "水温是"
    assert normalizer.holds
    assert normalizer.push(".") == []
    assert "".join(p.text for p in normalizer.push("8度，")) == "三十六点八度，"
    assert not normalizer.holds
    normalizer.push("共5")
    assert "".join(p.text for p in normalizer.break_here()) == "五"


@pytest.mark.parametrize(
    "text", ["[AY0][N]", "[breath]", "<strong>2</strong>", "<|en|>", "[h][ào]"]
)
def test_marks_for_the_engine_stay(text):
    assert words(text, language="en").replace("two", "2") == text


@pytest.mark.parametrize(
    "unit",
    [
        "1",
        "1 ",
        "1-",
        "1.",
        "1,",
        "1:",
        "a.",
        "$1 ",
        "x@",
        "http://a.",
        "IV ",
        "(1",
        "[a",
        "<a",
        "+",
    ],
)
def test_time_is_linear(unit):
    def seconds(chars):
        text = unit * (chars // len(unit))
        runs = []
        for _ in range(3):
            start = time.process_time()
            words(text)
            runs.append(time.process_time() - start)
        return min(runs)  # collecting garbage of other tests may fall into a run

    assert seconds(30_000) < 10 * 3 * max(seconds(3_000), 0.002)
    assert seconds(3_000) < 0.6


def test_a_sentence_has_one_language():
    said = words("The plan has 3 steps, 和 4 parts, 的 5. 第6步。")
    assert said == "The plan has three steps, 和 four parts, 的 five. 第六步。"
