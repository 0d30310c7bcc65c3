"""A menu of a telephone line as its YAML file describes it: steps, prompts, keys, ways on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.telephony.dtmf import SYMBOLS

StepName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Key = Annotated[str, BeforeValidator(str)]
"""YAML reads a digit without quotes as a number."""
Text = str | dict[str, str]
"""What is said: one text, or one for each language tag."""
MAX_STEPS: Final = 1000

_CURE: Final = "docs/telephony.md describes the menu"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Manner(_Part):
    """How prompts are spoken from here on; absent fields stay as they are."""

    voice: str | None = None
    language: str | None = None


class Way(Manner):
    """Where a choice leads."""

    go: StepName


class Clone(_Part):
    """Make a voice of the caller's: consent, record, hear."""

    consent: Text
    """Asked for, and stored with the voice; the caller agrees with a key."""
    agree: str = "1"
    """The key."""
    prompt: Text
    """Said before the tone."""
    sample: Text
    """Said in the new voice."""
    sorry: Text = "That did not work. Please try again."
    """Said when the recording cannot be used."""
    seconds: float = Field(8.0, ge=3, le=30)
    """Longest recording."""
    keep: bool = False
    """Store the voice; otherwise it is gone with the call."""


class Webhook(_Part):
    """Asks an HTTP endpoint what the caller wants; see docs/telephony.md for the exchange."""

    webhook: str
    timeout_s: float = Field(5.0, gt=0, le=60)


class OpenAi(_Part):
    """Asks an OpenAI-compatible endpoint: a transcription, then a tool call."""

    openai: str
    """Base URL, such as ``http://127.0.0.1:11434/v1``."""
    model: str
    transcribe_model: str = "whisper-1"
    key_variable: str | None = None
    """Environment variable that holds the key."""
    timeout_s: float = Field(8.0, gt=0, le=60)


class Step(Manner):
    """One place of the menu: says something, then waits for a choice or goes on."""

    say: Text | None = None
    barge_in: bool = True
    """Whether voice or key of the caller interrupts the prompt."""
    keys: dict[Key, StepName | Way] = {}
    """Ways on, by key."""
    choices: dict[StepName, str] = {}
    """Ways on by voice: name of a step → what a caller may want there, in words. Needs `speech`."""
    wait_s: float = Field(6.0, ge=0, le=120)
    """For a choice, from the end of the prompt on."""
    attempts: int = Field(3, ge=1, le=10)
    """How often the prompt is said before `otherwise`."""
    invalid: Text | None = None
    """Said after a wrong key, or words that were not understood."""
    otherwise: StepName | None = None
    """Where callers go who choose nothing; hangs up without it."""
    go: StepName | None = None
    """Where it goes on, without a choice."""
    clone: Clone | None = None
    transfer: str | None = None
    """Number or address that the caller is handed over to."""
    hang_up: bool = False

    @model_validator(mode="after")
    def _one_way_on(self) -> Step:
        chooses = bool(self.keys or self.choices)
        ways = (chooses, self.go is not None, self.transfer, self.hang_up)
        if sum(map(bool, ways)) > 1:
            raise ValueError("use only one of keys/choices, go, transfer and hang_up")
        wrong = [key for key in self.keys if len(key) != 1 or key not in SYMBOLS]
        if wrong:
            raise ValueError('keys are "0" to "9", "*", "#" and "A" to "D", in quotes')
        if self.say is None and chooses:
            raise ValueError("a choice needs a prompt: say")
        return self

    def ways(self) -> list[str]:
        """Names of the steps that may follow."""
        keyed = [way if isinstance(way, str) else way.go for way in self.keys.values()]
        return [*keyed, *self.choices, *filter(None, (self.go, self.otherwise))]


class Menu(Manner):
    """A whole menu."""

    start: StepName
    speech: Webhook | OpenAi | None = None
    """Who understands what callers say."""
    steps: Annotated[dict[StepName, Step], Field(min_length=1, max_length=MAX_STEPS)]

    @model_validator(mode="after")
    def _all_steps_exist(self) -> Menu:
        for name, step in self.steps.items():
            for way in step.ways():
                if way not in self.steps:
                    raise ValueError(f"step {name!r} leads to {way!r}, which is no step")
            if step.choices and self.speech is None:
                raise ValueError(f"step {name!r} has choices by voice, and there is no speech")
        if self.start not in self.steps:
            raise ValueError(f"the menu starts with {self.start!r}, which is no step")
        return self

    def prompts(self) -> list[tuple[str, Manner]]:
        """All texts, each in the manners in which the menu may say it; for rendering ahead."""
        manners = self._manners()
        found: dict[tuple[str, str | None, str | None], None] = {}
        for step in self.steps.values():
            for text in _texts(step):
                own = manners if step.voice is None and step.language is None else [step]
                for manner in own:
                    said = text_in(text, step.language or manner.language or self.language)
                    voice = step.voice or manner.voice or self.voice
                    found[said, voice, step.language or manner.language or self.language] = None
        return [(text, Manner(voice=voice, language=tag)) for text, voice, tag in found]

    def _manners(self) -> list[Manner]:
        """In which callers may come to a step that names none."""
        ways = [way for step in self.steps.values() for way in step.keys.values()]
        named = [way for way in ways if isinstance(way, Way)]
        changes = [each for each in (*named, *self.steps.values()) if each.voice or each.language]
        return [self, *changes]


def _texts(step: Step) -> list[Text]:
    clone = step.clone
    asked = [] if clone is None else [clone.consent, clone.prompt, clone.sorry]
    return [text for text in (step.say, step.invalid, *asked) if text is not None]


def text_in(text: Text, language: str | None) -> str:
    """The text for a language tag; the first one where there is none for it."""
    if isinstance(text, str):
        return text
    if language in text:
        return text[language]
    main = (language or "").partition("-")[0]
    return text.get(main) or next(iter(text.values()), "")


def load_menu(path: Path) -> Menu:
    """Read a menu.

    Raises:
        ConfigError: It cannot be read, is not YAML, or something in it is wrong; the text says
            where.
    """
    try:
        import yaml
    except ModuleNotFoundError:
        raise ConfigError(
            "menus need the package 'pyyaml'", how_to_fix="pip install 'cosyvoice-stream[phone]'"
        ) from None
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the menu {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{path} is not YAML{where}", how_to_fix=_CURE) from None
    try:
        return Menu.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        reason = str(first["msg"]).removeprefix("Value error, ")
        raise ConfigError(
            f"the menu {path} is wrong{f' at {place}' if place else ''}: {reason}",
            how_to_fix=_CURE,
        ) from None
