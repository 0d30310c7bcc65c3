import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.errors import InvalidMarkup
from cosyvoice_stream.streaming import phonetics
from cosyvoice_stream.streaming import ssml_values as values
from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.streaming.ssml import (
    MAX_DEPTH,
    Bookmark,
    Item,
    Manner,
    Pause,
    SsmlReader,
    check_ssml,
)
from cosyvoice_stream.streaming.ssml_words import phonemes_of, say_as

pytestmark = pytest.mark.unit


def joined(items: list[Item]) -> list[Item]:
    """Join neighbouring texts."""
    out: list[Item] = []
    for item in items:
        if isinstance(item, MappedText) and out and isinstance(out[-1], MappedText):
            out[-1] = out[-1] + item
        else:
            out.append(item)
    return out


def read(text: str, *, strong_marks: bool = False) -> tuple[list[Item], SsmlReader]:
    reader = SsmlReader(strong_marks=strong_marks)
    return joined(reader.push(text) + reader.flush()), reader


def shown(text: str, *, strong_marks: bool = False) -> list[object]:
    """Texts as strings, everything else as it is."""
    items, reader = read(f"<speak>{text}</speak>", strong_marks=strong_marks)
    assert reader.error is None, reader.error
    assert reader.take_problems() == []
    return [item.text if isinstance(item, MappedText) else item for item in items]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Tom &amp; Jerry &#x4f60;", ["Tom & Jerry 你"]),
        ("a<!-- not this --> b<?pi x?>", ["a b"]),
        ("<![CDATA[1 < 2]]>", ["1 < 2"]),
        ("a<break time='500ms'/>b", ["a", Pause(500), "b"]),
        ("a<break time='1.5s'/>b", ["a", Pause(1500), "b"]),
        ("a<break/>b", ["a", Pause(400), "b"]),
        ("a<break strength='none'/>b", ["ab"]),
        ("a <mark name='here'/>b", ["a ", Bookmark("here"), "b"]),
        ("<p>One</p><p>Two!</p>", ["One.\n\nTwo!\n\n"]),
        ("<s>你好</s><s>Yes</s>", ["你好。\nYes.\n"]),
        ("<sub alias='World Wide Web'>WWW</sub>!", ["World Wide Web!"]),
        ("<w>so</w> <token>it</token>", ["so it"]),
        ("<metadata>not this</metadata>a", ["a"]),
        ("<laughter>ha</laughter>", ["<laughter>ha</laughter>"]),
        ("<lang xml:lang='de'>ja</lang> no", [Manner(language="de"), "ja", Manner(), " no"]),
        ("<voice name='boop'>a</voice>", [Manner(voice="boop"), "a"]),
        (
            "<prosody rate='fast' pitch='+2st' volume='+6dB'>a</prosody>",
            [Manner(1.35, 2.0, pytest.approx(1.995, abs=1e-3)), "a"],
        ),
        (
            "<prosody rate='50%'>a <prosody rate='1.5' pitch='-1st'>b</prosody></prosody>",
            [Manner(0.5), "a ", Manner(0.75, -1.0), "b"],
        ),
        ("a <emphasis>b</emphasis> c", ["a ", Manner(0.92, 0, 1.12), "b", Manner(), " c"]),
        ("a <emphasis level='none'>b</emphasis>", ["a b"]),
        ("<say-as interpret-as='characters'>abc-1</say-as>", ["A B C, 1"]),
        ("<say-as interpret-as='cardinal'>12</say-as>", ["12"]),
        ("<phoneme ph='təˈmeɪtoʊ'>tomato</phoneme>", ["[T][AH0][M][EY1][T][OW0]"]),
        ("<phoneme alphabet='x-pinyin' ph='chong2 qing4'>重庆</phoneme>", ["[ch][óng][q][ìng]"]),
    ],
)
def test_reads_each_element(text: str, expected: list[object]) -> None:
    assert shown(text) == expected


def test_emphasis_may_be_a_mark() -> None:
    text = "a <emphasis level='strong'>b</emphasis>"
    assert shown(text, strong_marks=True) == ["a <strong>b</strong>"]


def test_spans_are_places_in_the_text_with_tags() -> None:
    number = "<say-as interpret-as='digits'>12</say-as>"
    text = f"<speak>你 &amp; <sub alias='ex'>X</sub> 😀 {number}!</speak>"
    (spoken,), _ = read(text)
    assert isinstance(spoken, MappedText)

    def source(words: str) -> str:
        at = spoken.text.index(words)
        start, end = spoken.source_span(at, at + len(words))
        return text[start:end]

    assert source("你") == "你"
    assert source("&") == "&amp;"
    assert source("ex") == "X"
    assert source("😀") == "😀"
    assert source("1 2") == "12"
    assert source("!") == "!"


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("<foo>a</foo>", "not known", "<foo>"),
        ("<mstts:express-as style='sad'>a</mstts:express-as>", "not known", "<mstts"),
        ("<break time='soon'/>", "not understood", "<break"),
        ("<break time='11s'/>", "at most 10000 ms", "<break"),
        ("<prosody rate='warp'>a</prosody>", "not understood", "<prosody"),
        ("<prosody contour='(0%,+1st)'>a</prosody>", "not understood", "<prosody"),
        ("<emphasis level='huge'>a</emphasis>", "level", "<emphasis"),
        ("<mark/>", "a mark needs a name", "<mark"),
        ("<voice gender='male'>a</voice>", "by its name", "<voice"),
        ("<sub>a</sub>", "no alias", "<sub"),
        ("<say-as interpret-as='poem'>a</say-as>", "interpretation", "<say-as"),
        ("<phoneme alphabet='ipa' ph='ʘ'>a</phoneme>", "phonemes", "<phoneme"),
        ("<phoneme alphabet='klingon' ph='a'>a</phoneme>", "phonemes", "<phoneme"),
    ],
)
def test_passes_over_what_it_does_not_know_and_says_so(text: str, message: str, place: str) -> None:
    whole = f"<speak>x {text}</speak>"
    items, reader = read(whole)
    (problem,) = reader.take_problems()
    assert message in problem.message
    assert whole.startswith(place, problem.char_start)
    assert reader.error is None
    spoken = "".join(item.text for item in items if isinstance(item, MappedText))
    assert spoken == ("x a" if "a<" in text else "x ")


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("<speak>a\n你<b></speak>", "mismatched tag", 2, 7),
        ("<speak>a & b</speak>", "not well-formed", 1, 11),
        ("<speak>a", "no element found", 1, 9),
        ("<speak>&nbsp;</speak>", "undefined entity", 1, 8),
        ("<speak>a</speak>b", "junk after document element", 1, 17),
        ("hello", "does not begin with <speak>", 1, 1),
        ("<p>a</p>", "the outermost element is not <speak>", 1, 1),
        ("<!DOCTYPE speak>\n<speak/>", "document types and entities", 1, 16),
        ('<!DOCTYPE x [<!ENTITY a "b">]><speak>&a;</speak>', "document types", 1, 13),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><speak/>', "document types", 1, 40),
        ("<a>" * 40, "the outermost element", 1, 1),
        ("<speak>" * (MAX_DEPTH + 1), f"more than {MAX_DEPTH} deep", 1, 7 * MAX_DEPTH + 1),
        ("<speak>\n<b" + " " * 5000, "a tag is longer than 4096 bytes", 2, 1),
    ],
)
def test_says_where_it_is_not_well_formed(text: str, message: str, line: int, column: int) -> None:
    _, reader = read(text)
    error = reader.error
    assert error is not None
    assert message in str(error)
    assert (error.line, error.column) == (line, column)
    assert str(error).startswith(f"line {line}, column {column}: ")
    with pytest.raises(InvalidMarkup):
        check_ssml(text)


def test_entity_bombs_do_not_grow() -> None:
    bomb = '<!DOCTYPE l [<!ENTITY a "ha">' + "".join(
        f'<!ENTITY {chr(98 + n)} "{("&" + chr(97 + n) + ";") * 10}">' for n in range(9)
    )
    items, reader = read(f"{bomb}]><speak>&j;</speak>")
    assert items == []
    assert reader.error is not None


def test_what_stands_before_a_mistake_is_spoken() -> None:
    items, reader = read("<speak>Fine so far. <b></speak>")
    assert "".join(item.text for item in items if isinstance(item, MappedText)) == "Fine so far. "
    assert reader.error is not None
    assert reader.push("more") == []


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
def test_nothing_is_no_mistake(text: str) -> None:
    items, reader = read(text)
    assert (items, reader.error) == ([], None)


PARTS = st.sampled_from(
    ["<p>", "</p>", "<s>", "</s>", "<break time='1s'/>", "<mark name='m'/>", "&amp;", "&bad;", "你"]
    + ["<prosody rate='fast'>", "</prosody>", "word ", "\r\n", "😀", "<sub alias='x'>", "</sub>"]
    + ["<foo a='b'>", "</foo>", "<say-as interpret-as='digits'>", "</say-as>", "12", "<!-- c -->"]
)


@given(st.lists(PARTS, max_size=14).map("".join), st.booleans(), st.data())
def test_fragments_do_not_change_what_is_read(inner: str, whole: bool, data: st.DataObject) -> None:
    text = f"<speak>{inner}" + "</speak>" * whole
    reader = SsmlReader()
    items: list[Item] = []
    at = 0
    while at < len(text):
        end = data.draw(st.integers(at + 1, len(text)))
        items += reader.push(text[at:end])
        at = end
    items = joined(items + reader.flush())
    expected, other = read(text)
    assert items == expected
    assert str(reader.error) == str(other.error)
    assert reader.take_problems() == other.take_problems()


@pytest.mark.parametrize(
    ("read_value", "text", "value"),
    [
        (values.rate, "slow", 0.75),
        (values.rate, "120%", 1.2),
        (values.rate, "-20%", 0.8),
        (values.rate, "0", None),
        (values.rate, "-100%", None),
        (values.pitch, "high", 3.0),
        (values.pitch, "-1.5st", -1.5),
        (values.pitch, "+100%", 12.0),
        (values.pitch, "200Hz", None),
        (values.volume, "silent", 0.0),
        (values.volume, "50", 0.5),
        (values.volume, "-6dB", 0.501),
        (values.volume, "x", None),
    ],
)
def test_attribute_values(read_value, text: str, value: float | None) -> None:  # type: ignore[no-untyped-def]
    assert read_value(text) == (value if value is None else pytest.approx(value, abs=1e-3))


@pytest.mark.parametrize(
    ("text", "kind", "form", "language", "said"),
    [
        ("ABC", "spell-out", "", None, "A B C"),
        ("3007", "digits", "", None, "3 0 0 7"),
        ("重要", "characters", "", "zh", "重 要"),
        ("+49 30 1234", "telephone", "", None, "plus 4 9, 3 0, 1 2 3 4"),
        ("21", "ordinal", "", "en", "21st"),
        ("112", "ordinal", "", None, "112th"),
        ("3", "ordinal", "", "zh-CN", "第3"),
        ("x", "ordinal", "", None, "x"),
        ("3/12/2026", "date", "dmy", None, "2026-12-03"),
        ("12-3", "date", "mdy", None, "12-3"),
        ("today", "date", "", None, "today"),
        ("9:30", "time", "hms12", None, "9:30"),
        ("x", "song", "", None, None),
    ],
)
def test_say_as(text: str, kind: str, form: str, language: str | None, said: str | None) -> None:
    assert say_as(text, {"interpret-as": kind, "format": form}, language) == said


@pytest.mark.parametrize(
    ("alphabet", "phonemes", "marks"),
    [
        ("ipa", "ˈtʃiːz", "[CH][IY1][Z]"),
        ("ipa", "həˈloʊ", "[HH][AH0][L][OW1]"),
        ("ipa", "bɜːd", "[B][ER1][D]"),
        ("ipa", "ˈbʌtn\u0329", "[B][AH1][T][AH0][N]"),
        ("ipa", "ˌɪntəˈnæʃənəl", "[IH2][N][T][AH0][N][AE1][SH][AH0][N][AH0][L]"),
        (None, "dʒɑb", "[JH][AA1][B]"),
        ("x-sampa", 't@"meItoU', "[T][AH0][M][EY1][T][OW0]"),
        ("x-sampa", "tSi:z", "[CH][IY1][Z]"),
        ("x-cmu-arpabet", "T AH0 m EY1", "[T][AH0][M][EY1]"),
        ("pinyin", "hǎo", "[h][ǎo]"),
        ("ipa", "yː", None),
        ("ipa", "", None),
        ("arpabet", "QQ", None),
        ("pinyin", "hello", None),
    ],
)
def test_phonemes(alphabet: str | None, phonemes: str, marks: str | None) -> None:
    assert phonemes_of(alphabet, phonemes) == marks


def test_every_ipa_sound_is_a_symbol_of_arpabet() -> None:
    for sound in phonetics._IPA:
        assert phonetics.ipa_to_arpabet(sound), sound
