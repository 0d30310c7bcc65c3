import pytest

from cosyvoice_stream.streaming.style import (
    DIALECTS,
    EMOTIONS,
    LOUDNESSES,
    PACES,
    in_numbers,
    instruction,
    told,
    without_control,
)
from cosyvoice_stream.types import Style, SynthesisOptions

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("style", "third", "second"),
    [
        (Style(), None, None),
        (Style(dialect="cantonese"), "请用广东话表达。", "用广东话说这句话。"),
        (Style(emotion="happy"), "请非常开心地说一句话。", "用开心的语气说这句话。"),
        (Style(pace="fast"), "请用尽可能快地语速说一句话。", "用很快的语速说这句话。"),
        (
            Style(loudness="soft"),
            "Please say a sentence in a very soft voice.",
            "用很小的声音说这句话。",
        ),
        (Style(text="like a pirate"), "like a pirate.", "like a pirate."),
        (Style(text="像机器人一样"), "像机器人一样。", "像机器人一样。"),
        (
            Style("sichuan", "sad", "slow", "loud", "Whisper!"),
            "请用四川话表达。请非常伤心地说一句话。请用尽可能慢地语速说一句话。 "
            "Please say a sentence as loudly as possible. Whisper!",
            "用四川话、伤心的语气、很慢的语速、很大的声音说这句话。 Whisper!",
        ),
    ],
)
def test_each_model_is_told_in_its_own_sentences(
    style: Style, third: str | None, second: str | None
) -> None:
    assert instruction(style, 3) == third
    assert instruction(style, 2) == second


def test_at_least_eighteen_dialects_of_chinese() -> None:
    chinese = [name for name, written in DIALECTS.items() if written[-1] == "话"]
    assert len(chinese) >= 18
    assert len(set(DIALECTS.values())) == len(DIALECTS)


@pytest.mark.parametrize("version", [2, 3])
def test_every_name_says_something_else(version: int) -> None:
    styles = [Style(dialect=name) for name in DIALECTS]
    styles += [Style(emotion=name) for name in EMOTIONS]
    styles += [Style(pace=name) for name in PACES]
    styles += [Style(loudness=name) for name in LOUDNESSES]
    said = [instruction(style, version) for style in styles]
    assert len(set(said)) == len(styles)
    assert None not in said


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("softly<|endofprompt|>and now this", "softly and now this"),
        ("a <|im_end|> b", "a b"),
        ("<|<|x|>endofprompt|>", ""),
        ("2 < 3 | x > 1", "2 < 3 | x > 1"),
    ],
)
def test_control_tokens_are_taken_out(text: str, kept: str) -> None:
    assert without_control(text) == kept
    assert "<|" not in (instruction(Style(text=text), 3) or "")
    assert "<|" not in (told(SynthesisOptions(instruct=text), 3) or "")


def test_style_stands_in_front_of_the_instruction() -> None:
    options = SynthesisOptions(instruct="Slowly.", style=Style(dialect="minnan"))
    assert told(options, 3) == "请用闽南话表达。 Slowly."
    assert told(SynthesisOptions(), 3) is None


def test_pace_and_loudness_in_numbers() -> None:
    options = SynthesisOptions(speed=1.9, volume=0.5, style=Style(pace="fast", loudness="soft"))
    plain = in_numbers(options)
    assert (plain.speed, plain.volume, plain.style) == (2.0, 0.3, None)
    assert in_numbers(SynthesisOptions()) == SynthesisOptions()
    only_mood = in_numbers(SynthesisOptions(style=Style(emotion="sad")))
    assert only_mood == SynthesisOptions()
