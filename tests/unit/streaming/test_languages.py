import pytest

from cosyvoice_stream.streaming.languages import script_language, script_weights, speaks_any

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Hello there.", None),
        ("Nach 10 hoch 6 Schritten wächst die Höhe um 22,1 %.", None),
        ("", None),
        ("3.14", None),
        ("🙂", None),
        ("你好", "zh"),
        ("型号A1、4B和TZ-705，见API文档v2.4.1，发布于9:30。", "zh"),
        ("呃，让我再查一下，sorry 哈！", "zh"),
        ("OK 的", "zh"),
        ("I said 你好 to every one of them", None),
        ("東京へ行きました。", "ja"),
        ("カラオケ", "ja"),
        ("안녕하세요", "ko"),
        ("Привет, мир", "ru"),
        ("Привіт, як ти?", "uk"),
        ("Љубав", "sr"),
        ("Καλημέρα", "el"),
        ("the angle α is small", None),
        ("مرحبا", "ar"),
        ("سلام چطوری", "fa"),
        ("שלום", "he"),
        ("नमस्ते", "hi"),
        ("สวัสดี", "th"),
        ("வணக்கம்", "ta"),
        ("გამარჯობა", "ka"),
        ("Բարեւ", "hy"),
    ],
)
def test_script_tells_the_language(text: str, language: str | None) -> None:
    assert script_language(text) == language


def test_counts_words_and_syllables() -> None:
    assert script_weights("two words 三个字 и ещё") == {"Latn": 2, "Hani": 3, "Cyrl": 2}


@pytest.mark.parametrize(
    "text",
    ["", "   ", "。", "……", "!!!", "🙂🙂", "——", "ーー", "1️⃣", "🇩🇪", "\n\t", "**", "$%&", "_"],
)
def test_nothing_to_say(text: str) -> None:
    assert not speaks_any(text)


@pytest.mark.parametrize(
    "text", ["嗯。", "A", "7", "OK 的", "No!", "1️⃣ one", "½", "é", "स्ते", "々木"]
)
def test_something_to_say(text: str) -> None:
    assert speaks_any(text)
