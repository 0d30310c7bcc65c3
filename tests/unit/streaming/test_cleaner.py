import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream.streaming.cleaner import PlainText, TextCleaner
from cosyvoice_stream.streaming.mapped_text import MappedText

pytestmark = pytest.mark.unit

ANSWER = """\
<think>The user wants a plan.
I should be brief.</think>

# Set up your **project** 🚀

Here is what to do:

1. **Step 1**: run `make setup` ✅
2. Open [the guide](https://docs.example.com/guide_(v2)?x=1#top), page 4.
   - it is *short*
   - it costs $3.50
- [x] Read `snake_case` names

---

| Name  | Speed    |
|-------|:--------:|
| Lite  | 2 * 3 ms |
| Large | fast 🔥  |

```python
def hidden():
    return "**not spoken**"
```

> Note: see https://www.example.org/a/b?c=d. Then rest.

────────────────
<div class="x">Tom &amp; Jerry<br/>say [breath] <strong>hi</strong></div>
That's it[1]! 🎉🎉 Bye ~~now~~ then.
"""
SPOKEN = """\
Set up your project.

Here is what to do:

1. Step 1: run make setup.
2. Open the guide, page 4.
it is short.
it costs $3.50.
Read snake_case names.

Name, Speed.
Lite, 2 * 3 ms.
Large, fast.

Note: see example.org. Then rest.

Tom & Jerry
say [breath] <strong>hi</strong>

That's it! Bye now then.
"""
CORPUS = [
    ANSWER,
    "**Step 1**: run `make` ✅\n\n| a | b |\n|---|---|\n| c | |\n\n──────\n##Not a heading\n",
    "````\n```\n````\nafter ```inline``` `` a`b `` ~~~\n~~~ x\ncode\n~~~",
    "unclosed **bold and [bracket and `tick and <thing and <b and & http",
    "[![b](i)](u) ![alt](x) [`c`](u)! [1](u) [^2] [^n]: note\n[^1]: note\n[1]: http://x\n[S]: Hi",
    "Great 🙂. Hi 👨‍👩‍👧 there 🇩🇪 1️⃣ one❤️two © 5 ⭐️ #️⃣ *️⃣ x",
    "访问https://example.com/x。这是**重点**内容，*斜体*字。【3†source】好",
    "<ul><li>One</li><li>Two</li></ul>a <table><tr><td>a</td><td>b</td></tr></table><!-- c -->d",
    "│ a │ b │\n├───┼───┤\n│ 1 │ 2 │\n\n* * *\n- - -\n+ item\n  on\n\n## T ##\n===\n\\*no\\*",
    "a&amp;b &nbsp; &#8217; &bogus; AT&T <|endofprompt|> <think>x</thinK>y </think> <https://a.b/c>",
]
ALPHABET = "ab1 \n*_~`[]()!<>/&;|\\#-.,:'+=^hwtp我。x🙂─│\ufe0f\u20e3\u200dé\t"


def clean(text: str, *cuts: int) -> MappedText:
    cleaner = TextCleaner()
    parts: list[MappedText] = []
    edges = [0, *sorted(cuts), len(text)]
    for start, end in zip(edges, edges[1:], strict=False):
        parts += cleaner.push(text[start:end])
    return MappedText.join(parts + cleaner.flush())


def check(source: str, cleaned: MappedText) -> None:
    assert list(cleaned.starts) == sorted(cleaned.starts)
    assert list(cleaned.ends) == sorted(cleaned.ends)
    for char, start, end in zip(cleaned.text, cleaned.starts, cleaned.ends, strict=True):
        assert 0 <= start <= end <= len(source)
        if end - start == 1 and char not in " \n,，.":
            assert source[start:end] == char


def test_a_whole_answer_becomes_prose() -> None:
    cleaned = clean(ANSWER)
    lines = [line.strip() for line in cleaned.text.split("\n") if line.strip()]
    assert lines == [line for line in SPOKEN.split("\n") if line]
    start = cleaned.text.index("project")
    assert cleaned.source_span(start, start + 7) == (
        ANSWER.index("project"),
        ANSWER.index("project") + 7,
    )


@pytest.mark.parametrize("text", CORPUS)
def test_any_fragmentation_gives_the_same_prose(text: str) -> None:
    whole = clean(text)
    check(text, whole)
    assert clean(text, *range(len(text))) == whole
    rng = random.Random(len(text))
    for _ in range(30):
        assert clean(text, *(rng.randrange(len(text)) for _ in range(6))) == whole


@settings(max_examples=150, deadline=None)
@given(st.text(ALPHABET, max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_any_fragmentation_of_any_text_gives_the_same_prose(text: str, cuts: list[int]) -> None:
    whole = clean(text)
    check(text, whole)
    assert clean(text, *(min(cut, len(text)) for cut in cuts)) == whole
    assert clean(text, *range(len(text))) == whole


PIECES = [
    *("**", "*", "_", "`", "```", "\n", "\n\n", "# ", "- ", "1. ", "> ", "| ", "|---|", "---"),
    *("[", "]", "](", ")", "![", "[1]", "[ ] ", "http://a.b/c", "www.x.y", "https", "<b>", "</b>"),
    *("<br>", "<think>", "</think>", "<a href='x'>", "<", "&amp;", "&", "🙂", "👨‍👩‍👧", "1️⃣", "😀 "),
    *("word", "Big. ", " ", "5", "好", "，", ".", "!", "\\*", "<!--", "-->", "<td>", "</td>", "~~"),
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=20))
def test_any_mix_of_markup_is_independent_of_fragments(pieces: list[str]) -> None:
    text = "".join(pieces)
    whole = clean(text)
    check(text, whole)
    assert clean(text, *range(len(text))) == whole
    cleaner = TextCleaner()
    parts = [part for piece in pieces for part in cleaner.push(piece)]
    assert MappedText.join(parts + cleaner.flush()) == whole


@given(st.text("aZ éñ我的。，.,?!'\"()0129\n:;%$€—…", max_size=200))
def test_text_without_markup_passes_unchanged(text: str) -> None:
    # A number with a full stop may start a list item, which gets its missing full stop.
    cleaned = clean("x" + text.replace("\n", "\nx"))
    assert cleaned == MappedText.of("x" + text.replace("\n", "\nx"))


@pytest.mark.parametrize(
    "text",
    [
        *("2 * 3", "2*3", "2 ** 3", "x**2", "snake_case", "_", "[breath]", "[laughter]", "C#"),
        *("<strong>so</strong>", "<laughter>ha</laughter>", "[h][ào]", "[M][AY0][N]", "a < b"),
        *("a<b and c>d", "x < y > z", "5 > 3", "#1", "#tag", "AT&T", "R&D; more", "a | b", "5* b"),
        *("List<String>", "-5 degrees", "~5", "a_b_c", "100%", "^_^", "f(x)", "a \\ b", "©", "→"),
        *("36.8", "v2.4.1", "9:30", "3.", "http", "https:", "me@example.org", "don't", "[note]"),
        *("型号A1、4B和TZ-705，见API文档v2.4.1，发布于9:30。", "呃，让我再查一下，sorry 哈！"),
        *("Nach 10 hoch 6 Schritten wächst die Höhe um 22,1 %.", "", "   ", "。", "……", "——"),
        *("1. First\n", "  indented\n   more", "Two.  Spaces", "a\r\nb", "क्‍ष", "می‌خواهم"),
    ],
)
def test_keeps(text: str) -> None:
    if text == "1. First\n":
        assert clean(text).text == "1. First.\n"
    else:
        assert clean(text) == MappedText.of(text)


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("**Bold** text", "Bold text"),
        ("***both***", "both"),
        ("a *b* c _d_ e __f__", "a b c d e f"),
        ("这是**重点**内容", "这是重点内容"),
        ("**unclosed", "unclosed"),
        ("~~gone~~", "gone"),
        ("run `x_*y*` now", "run x_*y* now"),
        ("```py\ncode\n```\nafter", "after"),
        ("before:\n```\ncode", "before:\n"),
        ("# Title", "Title"),
        ("# Title\nText", "Title.\nText"),
        ("## Why? ##\nText", "Why? \nText"),
        ("# 标题\n正文", "标题。\n正文"),
        ("- one\n- two\n", "one.\ntwo.\n"),
        ("* one\n  goes on\n* two!\n", "one\n  goes on.\ntwo!\n"),
        ("• one\n▪ two", "one.\ntwo"),
        ("- [ ] open\n- [x] done", "open.\ndone"),
        ("> quoted\n> more", "quoted\nmore"),
        ("a\n\n---\n\nb", "a\n\n\nb"),
        ("[text](http://u.v/w) end", "text end"),
        ("[a [b] c](d(e)f) end", "a [b] c end"),
        ("see ![a cat](cat.png)", "see a cat"),
        ("see https://www.example.com/a/b?c=d.", "see example.com."),
        ("(http://localhost:8000/docs)", "(localhost:8000)"),
        ("www.example.com, too", "example.com, too"),
        ("<https://example.com/a> ok", "example.com ok"),
        ("访问https://example.com/x。", "访问example.com。"),
        ("a<br>b", "a\nb"),
        ('<a href="x">link</a> <span>x</span>', "link x"),
        ("<script>bad()</script>ok", "ok"),
        ("a <!-- no --> b", "a b"),
        ("Tom &amp; Jerry&#8217;s &lt;b&gt;", "Tom & Jerry’s <b>"),
        ("| a | b |\n|---|:-:|\n| c |  |\n", "a, b.\nc.\n"),
        ("| 名 | 值 |\n|--|--|\n| 甲 | 乙 |\n", "名，值。\n甲，乙。\n"),
        ("│ a │ b │\n├───┼───┤\n│ 1 │ 2 │", "a, b.\n1, 2"),
        ("━━━━━━\nDone", "Done"),
        ("+----+----+\n| a | b |\n+----+----+\n", "a, b.\n"),
        ("Good 🙂 day", "Good day"),
        ("Good 🙂.", "Good."),
        ("a🙂b", "a b"),
        ("好🙂的", "好的"),
        ("👨‍👩‍👧 fam 🇩🇪 flag 1️⃣ key 👍🏽 skin ❤️ heart", "fam flag key skin heart"),
        ("🙂🙂", ""),
        ("✅ Done", "Done"),
        ("<think>secret\n- x</think>\n\nHello", "Hello"),
        ("<think>never closed", ""),
        ("end of thought</think>\nHi", "end of thought\nHi"),
        ("<THINKING>x</Thinking> Hi", "Hi"),
        ("a fact[1], another [2, 3]. More[^n]!", "a fact, another. More!"),
        ("【4†source】ok", "ok"),
        ("Hi <|endofprompt|> there", "Hi there"),
        (r"\*not bold\* and \_x\_", "*not bold* and _x_"),
        ("soft\u00adhyphen zero\u200bwidth", "softhyphen zerowidth"),
        ("[1]: http://x.y\nok", "ok"),
        ("[^1]: The note.", "The note."),
        ("1. **a**\n2. b\n", "1. a.\n2. b.\n"),
    ],
)
def test_speaks(text: str, spoken: str) -> None:
    assert clean(text).text == spoken
    assert clean(text, *range(len(text))).text == spoken


def test_a_full_stop_that_was_added_stands_for_nothing() -> None:
    cleaned = clean("# Title\nText")
    assert cleaned.text[5] == "."
    assert cleaned.source_span(5, 6) == (7, 7)
    assert cleaned.source_span(0, 5) == (2, 7)
    assert cleaned.source_span(7, 11) == (8, 12)


@pytest.mark.parametrize("opener", ["**", "[", "<b", "`", "![", "_", "&am", "【1", "http", "# ["])
def test_nothing_unclosed_holds_the_text_for_ever(opener: str) -> None:
    cleaner = TextCleaner()
    given_out = cleaner.push(f"So {opener}")
    for _ in range(40):
        given_out += cleaner.push(" and more words")
    assert len(MappedText.join(given_out)) > 40 * 15 - 20


def test_prose_is_not_held_back() -> None:
    cleaner = TextCleaner()
    assert [part.text for part in cleaner.push("Hello **wor")] == ["Hello wor"]
    assert [part.text for part in cleaner.push("ld**. ")] == ["ld. "]
    assert cleaner.push("3") == []
    assert [part.text for part in cleaner.push(".")] == ["3."]


def test_break_here_gives_what_is_held_and_goes_on() -> None:
    cleaner = TextCleaner()
    assert [part.text for part in cleaner.push("item 7")] == ["item"]
    assert cleaner.break_here() == [MappedText.of(" 7", 4)]
    assert cleaner.push(" **x") == [MappedText.of(" ", 6) + MappedText.of("x", 9)]
    assert cleaner.flush() == []
    assert cleaner.push("new") == [MappedText.of("new")]


def test_reset_forgets_an_open_block() -> None:
    cleaner = TextCleaner()
    assert cleaner.push("```\ncode\n") == []
    cleaner.reset()
    assert cleaner.push("text.") == [MappedText.of("text.")]


@pytest.mark.parametrize(
    "unit",
    [
        *("# T\n\nSome **b** and [a](http://b.c/d). 🙂\n- x\n", "Plain words. ", "[", "*", "<a "),
        *(" ", "\n", "`", "&a", "- ", ">", "|", "# ", "🙂", "[1]", "h", "(", "~~~\n", "\\", "1. "),
        *(
            "![",
            "](",
            "<!--",
            "<think>",
            "http://a.b/.",
            "_a",
            "─",
            "\ufe0f",
            "[a",
            "<div x=",
            "【1",
        ),
    ],
)
def test_time_is_linear(unit: str) -> None:
    def seconds(chars: int) -> float:
        text = unit * (chars // len(unit))
        start = time.process_time()
        clean(text)
        return time.process_time() - start

    seconds(2_000)
    assert seconds(60_000) < 6 * 4 * max(seconds(10_000), 0.002)


def test_many_tiny_pushes_are_linear() -> None:
    text = ANSWER * 25
    start = time.process_time()
    clean(text, *range(0, len(text), 2))
    assert time.process_time() - start < 3


def test_plain_text_passes_everything() -> None:
    plain = PlainText()
    assert plain.push("**a** 🙂") == [MappedText.of("**a** 🙂")]
    assert plain.push("b") == [MappedText.of("b", 7)]
    assert plain.push("") == plain.break_here() == plain.flush() == []
    assert plain.push("c") == [MappedText.of("c")]


def test_the_table_of_the_manual_is_true() -> None:
    manual = Path(__file__).parents[3] / "docs" / "text.md"
    section = manual.read_text("utf-8").split("## Cleaner\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`+)(.+?)\1 \| `(.+)` \|$", section, re.MULTILINE)
    assert len(rows) > 20
    for _, sent, spoken in rows:
        text = sent.replace(r"\|", "|").replace("⏎", "\n")
        assert clean(text).text == spoken.replace("⏎", "\n")
