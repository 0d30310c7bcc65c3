"""Leads a call through a menu: prompt, choice, next step."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from cosyvoice_stream.errors import UnsupportedFormat, VoiceStreamError
from cosyvoice_stream.server.voice_service import EnrolRequest, VoiceService
from cosyvoice_stream.streaming import pcm
from cosyvoice_stream.telephony.call import PhoneCall
from cosyvoice_stream.telephony.call_events import KeyPressed, Said, TurnEnded
from cosyvoice_stream.telephony.menu import Clone, Manner, Menu, Step, Text, Way, text_in
from cosyvoice_stream.telephony.recording import record
from cosyvoice_stream.telephony.speech_choice import Chooser, Question
from cosyvoice_stream.telephony.turns import RATE_HZ

logger = logging.getLogger(__name__)

MAX_STEPS_OF_A_CALL: Final = 500
"""A menu that goes in circles by itself ends there."""


class MenuDialogue:
    """One caller's way through a menu; `run` is a `Dialogue`.

    Args:
        menu: What it offers.
        voices: Makes voices of callers.
        chooser: Understands callers; None where nothing is chosen by voice.
    """

    def __init__(
        self,
        menu: Menu,
        voices: VoiceService,
        chooser: Chooser | None = None,
    ) -> None:
        self._menu = menu
        self._voices = voices
        self._chooser = chooser
        self._voice = menu.voice
        self._language = menu.language
        self._own_voice: str | None = None

    async def run(self, call: PhoneCall) -> None:
        """Lead the call until the menu ends it."""
        name: str | None = self._menu.start
        try:
            for _ in range(MAX_STEPS_OF_A_CALL):
                if name is None:
                    return
                name = await self._take_step(call, name)
        finally:
            if self._own_voice is not None:
                self._voices.forget_temporary(self._own_voice)

    async def _take_step(self, call: PhoneCall, name: str) -> str | None:
        """Do what a step says; return the next one, or None at the end."""
        step = self._menu.steps[name]
        self._adopt(step)
        if step.keys or step.choices:
            return await self._offer(call, name, step)
        if step.say is not None and not await self._say(call, step.say, step.barge_in):
            return None
        if step.clone is not None:
            await self._clone(call, step.clone)
        if step.transfer is not None:
            await call.all_heard()
            try:
                await call.line.transfer(step.transfer)
            except UnsupportedFormat as error:
                call.log.warning("a transfer failed: %s", error)
                return step.otherwise
            return None
        return step.go

    async def _offer(self, call: PhoneCall, name: str, step: Step) -> str | None:
        """Say the prompt until the caller has chosen; return the step that was chosen."""
        assert step.say is not None
        for _ in range(step.attempts):
            call.forget_events()
            saying = await call.say(
                text_in(step.say, self._language), barge_in=step.barge_in, **self._manner()
            )
            heard = asyncio.create_task(saying.said(), name="menu prompt")
            try:
                chosen, understood = await self._choice(call, name, step, heard)
            finally:
                heard.cancel()
            if chosen is not None:
                call.stop_speaking()
                return chosen
            if not understood and step.invalid is not None:
                await self._say(call, step.invalid, step.barge_in)
        return step.otherwise

    async def _choice(
        self, call: PhoneCall, name: str, step: Step, heard: asyncio.Task[Said]
    ) -> tuple[str | None, bool]:
        """Wait for a key or a turn: the way on, and whether it was understood."""
        waiting = asyncio.create_task(call.next_event(), name="menu event")
        try:
            await asyncio.wait((waiting, heard), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                await asyncio.wait((waiting,), timeout=step.wait_s)
            while waiting.done():
                event = waiting.result()
                if isinstance(event, KeyPressed):
                    way = step.keys.get(event.symbol)
                    return (None, False) if way is None else (self._follow(way), True)
                if isinstance(event, TurnEnded) and step.choices and self._chooser is not None:
                    question = Question(name, self._language, step.choices, event.turn)
                    chosen = await self._chooser.choose(question)
                    return chosen, chosen is not None
                waiting = asyncio.create_task(call.next_event(), name="menu event")
                await asyncio.wait((waiting, heard), return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done():
                    await asyncio.wait((waiting,), timeout=step.wait_s)
            return None, True
        finally:
            waiting.cancel()

    def _follow(self, way: str | Way) -> str:
        if isinstance(way, str):
            return way
        self._adopt(way)
        return way.go

    def _adopt(self, manner: Manner) -> None:
        self._voice = manner.voice or self._voice
        self._language = manner.language or self._language

    def _manner(self) -> dict[str, Any]:
        options = {"voice": self._voice, "language": self._language}
        return {name: value for name, value in options.items() if value is not None}

    async def _say(self, call: PhoneCall, text: Text, barge_in: bool = True) -> bool:
        """Say something to its end; return whether that worked, or was interrupted."""
        saying = await call.say(
            text_in(text, self._language), barge_in=barge_in, by_key=barge_in, **self._manner()
        )
        said = await saying.said()
        if said.error is not None:
            call.log.warning("a prompt could not be said: %s", said.error)
        return said.error is None

    async def _clone(self, call: PhoneCall, clone: Clone) -> None:
        """Ask for consent, record, and speak in the caller's voice from here on."""
        consent = text_in(clone.consent, self._language)
        if not await self._say(call, consent):
            return
        event = await call.next_event(8.0)
        while event is not None and not isinstance(event, KeyPressed):
            event = await call.next_event(8.0)
        if event is None or event.symbol != clone.agree:
            return
        await self._say(call, clone.prompt)
        samples = await record(call, clone.seconds)
        request = EnrolRequest(name="a caller", consent=consent, persist=clone.keep)
        try:
            made = await self._voices.enrol_samples(pcm.from_int16(samples), RATE_HZ, request)
        except VoiceStreamError as error:
            call.log.info("a caller's recording was refused: %s", error)
            await self._say(call, clone.sorry)
            return
        self._voice = made.voice.to_json()["id"]
        if not clone.keep:
            self._own_voice = self._voice
        await self._say(call, clone.sample)
