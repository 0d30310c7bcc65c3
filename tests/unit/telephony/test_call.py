"""A phone call over a line in memory: pacing, interruptions, ends. Time passes by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import numpy as np
import pytest

from cosyvoice_stream.errors import PeerGone, ServerError
from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.telephony.call import PhoneCall
from cosyvoice_stream.telephony.call_events import KeyPressed, Said, SpeechBegan, TurnEnded
from cosyvoice_stream.telephony.call_options import CallOptions
from cosyvoice_stream.telephony.line import LineFormat
from support.phone_line import Caller, caller_says
from support.virtual_time import run_virtually

pytestmark = pytest.mark.unit


LONG = "one two three four five six seven eight nine ten eleven twelve " * 3
FAR_END_BUFFERS = LineFormat(has_marks=True, can_clear=True)


def test_a_frame_leaves_every_20_ms_and_silence_fills_the_gaps() -> None:
    async def run() -> None:
        caller = Caller()

        async def dialogue(call: PhoneCall) -> None:
            await asyncio.sleep(1.0)
            await (await call.say("hello there")).said()
            await asyncio.sleep(1.0)

        began = asyncio.get_running_loop().time()
        await caller.run(dialogue)
        took = asyncio.get_running_loop().time() - began
        line = caller.line
        assert line.hung_up
        assert [frame.slot for frame in line.frames] == list(range(len(line.frames)))
        assert all(len(frame.samples) == 160 for frame in line.frames)
        assert len(line.frames) * 0.02 == pytest.approx(took, abs=0.12)
        ahead = [i * 0.02 - (at - began) for i, at in enumerate(line.times)]
        assert max(ahead) <= 0.16
        assert line.frames[0].speech is False
        assert any(frame.speech for frame in line.frames)
        assert line.frames[-1].speech is False

    run_virtually(run())


def test_speech_has_no_gap_and_is_what_the_engine_made() -> None:
    async def run() -> None:
        caller = Caller()

        async def dialogue(call: PhoneCall) -> None:
            await (await call.say("seven words are said in one breath")).said()

        await caller.run(dialogue)
        spoken = [i for i, frame in enumerate(caller.line.frames) if frame.speech]
        assert all(after == before + 1 for before, after in pairwise(spoken))
        assert np.abs(caller.line.speech).max() > 5000

    run_virtually(run())


def test_hanging_up_waits_for_the_last_word() -> None:
    async def run() -> None:
        caller = Caller()

        async def dialogue(call: PhoneCall) -> None:
            await call.say("goodbye")

        began = asyncio.get_running_loop().time()
        await caller.run(dialogue)
        spoken_s = len("goodbye") * 0.05
        assert asyncio.get_running_loop().time() - began >= spoken_s
        assert len(caller.line.speech) >= spoken_s * 8000

    run_virtually(run())


def test_hanging_up_waits_for_the_mark_of_a_line_that_buffers() -> None:
    async def run() -> None:
        caller = Caller(form=FAR_END_BUFFERS)
        played_at: list[float] = []

        async def far_end() -> None:
            await caller.line.until(lambda line: line.marks)
            await asyncio.sleep(2.0)
            played_at.append(asyncio.get_running_loop().time())
            caller.call.mark_played(caller.line.marks[0])

        async def dialogue(call: PhoneCall) -> None:
            await call.say("goodbye")

        async with asyncio.TaskGroup() as group:
            group.create_task(far_end())
            await caller.run(dialogue)
        assert asyncio.get_running_loop().time() - played_at[0] < 0.2

    run_virtually(run())


def test_a_mark_that_never_comes_back_does_not_hold_the_line() -> None:
    async def run() -> None:
        caller = Caller(form=FAR_END_BUFFERS)

        async def dialogue(call: PhoneCall) -> None:
            await call.say("goodbye")

        await caller.run(dialogue)
        assert caller.line.hung_up

    run_virtually(run())


def test_a_key_stops_what_is_said() -> None:
    async def run() -> None:
        caller = Caller(form=FAR_END_BUFFERS)
        said: list[Said] = []

        async def dialogue(call: PhoneCall) -> None:
            saying = await call.say(LONG)
            await caller.line.until(lambda line: sum(f.speech for f in line.frames) > 60)
            call.press("5")
            said.append(await saying.said())
            assert await call.next_event() == KeyPressed("5")

        await caller.run(dialogue)
        assert said[0].interrupted == "key"
        assert said[0].text_heard
        assert LONG.startswith(said[0].text_heard)
        assert len(caller.line.cleared_at) == 1

    run_virtually(run())


def test_a_key_leaves_alone_what_it_must_not_stop() -> None:
    async def run() -> None:
        caller = Caller()
        said: list[Said] = []

        async def dialogue(call: PhoneCall) -> None:
            saying = await call.say("this is the law", by_key=False)
            call.press("5")
            said.append(await saying.said())

        await caller.run(dialogue)
        assert said[0].complete

    run_virtually(run())


def test_the_voice_of_the_caller_interrupts_within_200_ms() -> None:
    async def run() -> None:
        caller = Caller()
        said: list[Said] = []
        events: list[object] = []
        stopped_at: list[float] = []

        async def dialogue(call: PhoneCall) -> None:
            saying = await call.say(LONG)
            await asyncio.sleep(1.0)
            async with asyncio.TaskGroup() as group:
                group.create_task(caller.speak(caller_says(2.0)))
                said.append(await saying.said())
                stopped_at.append(asyncio.get_running_loop().time())
                events.append(await call.next_event())
            group_over = np.zeros(8000, np.int16)
            await caller.speak(group_over)
            events.append(await call.next_event())

        await caller.run(dialogue)
        assert said[0].interrupted == "speech"
        assert said[0].text_heard is not None
        assert 0 < len(said[0].text_heard) < len(LONG)
        assert isinstance(events[0], SpeechBegan)
        assert isinstance(events[1], TurnEnded)
        assert 1000 < events[1].turn.end_ms - events[1].turn.start_ms < 3000
        last_speech = max(
            at
            for at, frame in zip(caller.line.times, caller.line.frames, strict=True)
            if frame.speech
        )
        # A frame is heard up to the lead (100 ms and slack) after it was sent.
        assert last_speech - stopped_at[0] <= 0.04

    run_virtually(run())


def test_a_prompt_that_may_not_be_interrupted_is_said_to_its_end() -> None:
    async def run() -> None:
        caller = Caller()
        said: list[Said] = []

        async def dialogue(call: PhoneCall) -> None:
            saying = await call.say("you have to hear all of this", barge_in=False)
            async with asyncio.TaskGroup() as group:
                group.create_task(caller.speak(caller_says(1.5)))
                said.append(await saying.said())

        await caller.run(dialogue)
        assert said[0].complete

    run_virtually(run())


def test_a_caller_who_hangs_up_ends_it_all_at_once() -> None:
    async def run() -> None:
        caller = Caller()

        async def dialogue(call: PhoneCall) -> None:
            saying = await call.say(LONG)
            await caller.line.until(lambda line: any(f.speech for f in line.frames))
            caller.leaves.set()
            await saying.said()

        began = asyncio.get_running_loop().time()
        await caller.run(dialogue)
        assert asyncio.get_running_loop().time() - began < 1.0

    run_virtually(run())


def test_a_leg_that_breaks_ends_the_call() -> None:
    async def run() -> None:
        caller = Caller()

        async def dialogue(call: PhoneCall) -> None:
            await call.say(LONG)
            await caller.line.until(lambda line: any(f.speech for f in line.frames))
            caller.line.gone = True
            await call.all_heard()

        await caller.run(dialogue)

    run_virtually(run())


def test_text_is_spoken_while_it_is_written() -> None:
    async def run() -> None:
        caller = Caller()
        first_at: list[float] = []

        async def words() -> AsyncIterator[str]:
            yield "The first sentence is here. "
            await caller.line.until(lambda line: any(f.speech for f in line.frames))
            first_at.append(asyncio.get_running_loop().time())
            yield "The second one follows."

        async def dialogue(call: PhoneCall) -> None:
            said = await (await call.say(words())).said()
            assert said.complete

        await caller.run(dialogue)
        assert first_at

    run_virtually(run())


def test_a_writer_that_fails_ends_its_utterance_alone() -> None:
    async def run() -> None:
        caller = Caller()
        said: list[Said] = []

        async def broken() -> AsyncIterator[str]:
            yield "It begins. "
            raise ServerError("gone", "the writer is gone")

        async def dialogue(call: PhoneCall) -> None:
            said.append(await (await call.say(broken())).said())
            said.append(await (await call.say("And goes on.")).said())

        await caller.run(dialogue)
        assert isinstance(said[0].error, ServerError)
        assert said[1].complete

    run_virtually(run())


def test_an_utterance_that_fails_says_why_and_the_next_one_is_spoken() -> None:
    async def run() -> None:
        caller = Caller()
        said: list[Said] = []

        async def dialogue(call: PhoneCall) -> None:
            said.append(await (await call.say("Hello.", voice="nobody")).said())
            said.append(await (await call.say("Hello.")).said())

        await caller.run(dialogue)
        assert isinstance(said[0].error, ServerError)
        assert said[0].error.code == "voice_not_found"
        assert said[1].complete

    run_virtually(run())


def test_text_without_a_word_is_over_at_once() -> None:
    async def run() -> None:
        caller = Caller()

        async def dialogue(call: PhoneCall) -> None:
            assert (await (await call.say("…")).said()).complete

        await caller.run(dialogue)

    run_virtually(run())


def test_lead_in_silence_comes_before_the_first_word_only() -> None:
    async def run() -> None:
        starts: dict[int, float] = {}
        for lead_in_ms in (0, 200, 500):
            caller = Caller(options=CallOptions(lead_in_ms=lead_in_ms))

            async def dialogue(call: PhoneCall) -> None:
                await (await call.say("one")).said()

            await caller.run(dialogue)
            loud = np.flatnonzero(np.abs(caller.line.speech) > 500)
            starts[lead_in_ms] = loud[0] / 8
        assert starts[200] - starts[0] == pytest.approx(200, abs=1)
        assert starts[500] - starts[0] == pytest.approx(500, abs=1)

    run_virtually(run())


def test_an_engine_that_is_late_makes_silence_and_then_goes_on() -> None:
    async def run() -> None:
        gate = ChunkGate()
        caller = Caller(engine=FakeEngine(gate=gate))

        async def dialogue(call: PhoneCall) -> None:
            saying = await call.say("one two three four")
            await gate.allow(2)
            await asyncio.sleep(1.0)
            await gate.open()
            assert (await saying.said()).complete

        await caller.run(dialogue)
        spoken = [i for i, frame in enumerate(caller.line.frames) if frame.speech]
        gaps = [after - before for before, after in pairwise(spoken) if after != before + 1]
        assert len(gaps) == 1
        assert [frame.slot for frame in caller.line.frames] == list(range(len(caller.line.frames)))

    run_virtually(run())


def test_the_beep_is_heard_behind_what_was_said() -> None:
    async def run() -> None:
        caller = Caller()

        async def dialogue(call: PhoneCall) -> None:
            await call.say("speak after the tone")
            await call.beep()
            await asyncio.sleep(0.5)

        await caller.run(dialogue)
        beep = caller.line.speech[-2400:].astype(float)
        spectrum = np.abs(np.fft.rfft(beep * np.hanning(len(beep))))
        assert spectrum.argmax() * 8000 / len(beep) == pytest.approx(1000, abs=10)

    run_virtually(run())


def test_a_call_that_lasts_too_long_is_hung_up() -> None:
    async def run() -> None:
        caller = Caller(options=CallOptions(max_call_s=5.0))

        async def dialogue(call: PhoneCall) -> None:
            await call.next_event()

        began = asyncio.get_running_loop().time()
        await caller.run(dialogue)
        assert asyncio.get_running_loop().time() - began == pytest.approx(5.0, abs=0.1)
        assert caller.line.hung_up

    run_virtually(run())


def test_a_dialogue_that_fails_hangs_up() -> None:
    async def run() -> None:
        caller = Caller()

        async def dialogue(call: PhoneCall) -> None:
            raise RuntimeError("a mistake")

        await caller.run(dialogue)
        assert caller.line.hung_up

    run_virtually(run())


def test_what_is_said_after_the_end_is_refused() -> None:
    async def run() -> None:
        caller = Caller()

        async def dialogue(call: PhoneCall) -> None:
            return None

        await caller.run(dialogue)
        with pytest.raises(PeerGone):
            await caller.call.say("Hello?")

    run_virtually(run())
