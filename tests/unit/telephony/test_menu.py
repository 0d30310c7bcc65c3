"""Menus: what their files may say, and how a caller is led through them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.server.voice_service import VoiceService
from cosyvoice_stream.telephony.menu import Menu, load_menu, text_in
from cosyvoice_stream.telephony.menu_dialogue import MAX_STEPS_OF_A_CALL, MenuDialogue
from cosyvoice_stream.telephony.speech_choice import Question
from cosyvoice_stream.voices import VoiceStore
from support.phone_line import Caller, caller_says
from support.virtual_time import run_virtually

pytestmark = pytest.mark.unit

DEMO = Path(__file__).parents[3] / "telephony" / "demo_menu.yaml"
TWO_LANGUAGES = {
    "start": "language",
    "steps": {
        "language": {
            "say": "For English press 1",
            "keys": {"1": {"go": "hours", "language": "en"}, "2": {"go": "hours", "voice": "fake"}},
            "invalid": "What",
            "otherwise": "bye",
            "attempts": 2,
            "wait_s": 2,
        },
        "hours": {"say": {"en": "We are open", "yue": "開門"}, "go": "bye"},
        "bye": {"say": "Goodbye", "hang_up": True},
    },
}


def led(menu: dict[str, object], caller: Caller, tmp_path: Path, chooser=None) -> MenuDialogue:
    voices = VoiceService(caller.engine, VoiceStore(tmp_path))
    return MenuDialogue(Menu.model_validate(menu), voices, chooser)


async def press(caller: Caller, *keys: str, after_s: float = 0.5) -> None:
    for key in keys:
        await asyncio.sleep(after_s)
        caller.call.press(key)


def test_the_menu_that_is_built_in_is_right() -> None:
    menu = load_menu(DEMO)
    assert menu.steps[menu.start].keys
    assert menu.prompts()


def test_a_text_is_taken_in_the_language_of_the_caller() -> None:
    text = {"en": "hello", "yue": "你好"}
    assert text_in(text, "yue") == "你好"
    assert text_in(text, "en-GB") == "hello"
    assert text_in(text, None) == "hello"
    assert text_in("hi", "yue") == "hi"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("start: a\nsteps: {a: {say: x, go: b}}", "leads to 'b', which is no step"),
        ("start: b\nsteps: {a: {say: x}}", "starts with 'b'"),
        ("start: a\nsteps: {a: {say: x, go: a, hang_up: true}}", "only one of"),
        ("start: a\nsteps: {a: {say: x, keys: {12: a}}}", "keys are"),
        ("start: a\nsteps: {a: {keys: {1: a}}}", "needs a prompt"),
        ("start: a\nsteps: {a: {say: x, choices: {a: more}}}", "no speech"),
        ("start: a\nsteps: {a: {tell: x}}", "steps.a.tell"),
        ("start: [", "is not YAML, line 1"),
        ("- 1", "dictionary"),
    ],
)
def test_a_wrong_menu_is_refused_with_the_place(
    tmp_path: Path, content: str, expected: str
) -> None:
    path = tmp_path / "menu.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=expected):
        load_menu(path)


def test_a_menu_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml cannot be read"):
        load_menu(tmp_path / "nothing.yaml")


def test_digits_need_no_quotes(tmp_path: Path) -> None:
    path = tmp_path / "menu.yaml"
    path.write_text("start: a\nsteps: {a: {say: x, keys: {1: a}}}")
    assert load_menu(path).steps["a"].keys == {"1": "a"}


def test_prompts_are_listed_in_every_manner_in_which_they_may_be_said() -> None:
    found = [
        (text, m.voice, m.language) for text, m in Menu.model_validate(TWO_LANGUAGES).prompts()
    ]
    assert ("We are open", None, "en") in found
    assert ("We are open", "fake", None) in found


def test_a_key_leads_on_and_the_call_ends_behind_the_last_word(tmp_path: Path) -> None:
    async def run() -> None:
        caller = Caller()
        async with asyncio.TaskGroup() as group:
            group.create_task(press(caller, "1"))
            await caller.run(led(TWO_LANGUAGES, caller, tmp_path).run)
        assert caller.said == ["For English press 1", "We are open", "Goodbye"]
        assert caller.line.hung_up

    run_virtually(run())


def test_a_wrong_key_is_told_and_the_prompt_said_again(tmp_path: Path) -> None:
    async def run() -> None:
        caller = Caller()
        async with asyncio.TaskGroup() as group:
            group.create_task(press(caller, "9", "1", after_s=1.0))
            await caller.run(led(TWO_LANGUAGES, caller, tmp_path).run)
        assert caller.said[:3] == ["For English press 1", "What", "For English press 1"]
        assert caller.said[-1] == "Goodbye"

    run_virtually(run())


def test_a_caller_who_does_nothing_is_led_to_the_end(tmp_path: Path) -> None:
    async def run() -> None:
        caller = Caller()
        await caller.run(led(TWO_LANGUAGES, caller, tmp_path).run)
        assert caller.said == ["For English press 1"] * 2 + ["Goodbye"]

    run_virtually(run())


def test_a_menu_in_a_circle_ends(tmp_path: Path) -> None:
    async def run() -> None:
        caller = Caller()
        menu = {"start": "a", "steps": {"a": {"go": "b"}, "b": {"go": "a"}}}
        await caller.run(led(menu, caller, tmp_path).run)
        assert caller.line.hung_up

    assert MAX_STEPS_OF_A_CALL < 1000
    run_virtually(run())


def test_a_caller_is_handed_over(tmp_path: Path) -> None:
    async def run() -> None:
        caller = Caller()
        menu = {"start": "a", "steps": {"a": {"say": "One moment", "transfer": "sip:desk@host"}}}
        await caller.run(led(menu, caller, tmp_path).run)
        assert caller.line.transferred == "sip:desk@host"

    run_virtually(run())


def test_a_line_that_cannot_hand_over_goes_on_elsewhere(tmp_path: Path) -> None:
    async def run() -> None:
        caller = Caller()
        menu = {
            "start": "a",
            "steps": {
                "a": {"say": "One moment", "transfer": "nowhere", "otherwise": "sorry"},
                "sorry": {"say": "Sorry", "hang_up": True},
            },
        }
        await caller.run(led(menu, caller, tmp_path).run)
        assert caller.said == ["One moment", "Sorry"]

    run_virtually(run())


def test_a_choice_by_voice_is_understood_by_whoever_the_menu_names(tmp_path: Path) -> None:
    questions: list[Question] = []

    class Understands:
        async def choose(self, question: Question) -> str | None:
            questions.append(question)
            return "hours" if len(questions) > 1 else None

    menu = {
        "start": "ask",
        "speech": {"webhook": "http://127.0.0.1:9"},
        "steps": {
            "ask": {"say": "How can I help", "choices": {"hours": "opening hours"}},
            "hours": {"say": "We are open", "hang_up": True},
        },
    }

    async def run() -> None:
        caller = Caller()

        async def talks() -> None:
            await asyncio.sleep(1.5)
            for _ in range(2):
                await caller.speak(caller_says(1.5))
                await caller.speak(np.zeros(12_000, np.int16))

        async with asyncio.TaskGroup() as group:
            group.create_task(talks())
            await caller.run(led(menu, caller, tmp_path, Understands()).run)
        assert caller.said == ["How can I help", "How can I help", "We are open"]
        assert dict(questions[0].choices) == {"hours": "opening hours"}
        assert len(questions[0].turn.samples) > 16_000

    run_virtually(run())
