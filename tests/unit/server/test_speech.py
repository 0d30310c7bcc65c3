import asyncio
import io
import wave
from dataclasses import replace

import numpy as np
import pytest

from cosyvoice_stream.errors import (
    EngineBusy,
    InvalidOption,
    SynthesisFailed,
    UnsupportedFormat,
    UnsupportedLanguage,
    VoiceNotFound,
)
from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server.limits import Admission
from cosyvoice_stream.server.speech import (
    AudioOut,
    Done,
    MarksOut,
    SpeechService,
    Started,
    engine_warnings,
)
from cosyvoice_stream.server.wire_settings import ENCODINGS, UtteranceSettings
from cosyvoice_stream.types import FLUSH
from support.static_voices import StaticVoices

pytestmark = pytest.mark.unit

PLAIN_WIDTHS = {"pcm_s16le": 2, "pcm_f32le": 4, "wav": 2, "mulaw": 1, "alaw": 1}


class Clock:
    now = 50.0

    def __call__(self):
        return self.now


class Text:
    """A text stream that notes its end; steps are fragments or things to do."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.closed = False

    def __aiter__(self):
        return self

    async def __anext__(self):
        while self.steps:
            step = self.steps.pop(0)
            if callable(step):
                step()
            else:
                return step
        raise StopAsyncIteration

    async def aclose(self):
        self.closed = True


def service(engine=None, *, max_live=4, clock=None):
    engine = engine or FakeEngine()
    return SpeechService(engine, StaticVoices(engine), Admission(max_live), clock=clock or Clock())


def settings(**changes):
    return UtteranceSettings().merged(changes)


def speak(service_, *fragments, **changes):
    async def collect():
        async with service_.speak(Text(*fragments), settings(**changes)) as speech:
            return [event async for event in speech]

    return asyncio.run(collect())


def test_tells_everything_that_a_player_needs_first():
    started, *_, done = speak(service(), "Hello", seed=7, output={"sample_rate": 8000})
    assert started == Started(
        voice="beep",
        seed=7,
        encoding="pcm_s16le",
        sample_rate=8000,
        channels=1,
        bytes_per_sample=2,
        byte_order="little",
        mime=started.mime,
        warnings=(),
    )
    assert isinstance(done, Done)
    assert (done.audio_ms, done.characters) == (250.0, 5)


def test_a_seed_is_drawn_where_none_is_given():
    seeds = {speak(service(), "x")[0].seed for _ in range(4)}
    assert len(seeds) > 1


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_is_numbered_and_ends_with_one_last_piece(encoding):
    events = speak(service(), "Hello wonderful world", output={"encoding": encoding})
    audio = [event for event in events if isinstance(event, AudioOut)]
    assert [piece.last for piece in audio] == [False] * (len(audio) - 1) + [True]
    for before, after in zip(audio, audio[1:], strict=False):
        assert before.first_sample <= before.end_sample <= after.first_sample
    assert all(piece.data for piece in audio[:-1])
    if encoding in PLAIN_WIDTHS:
        for before, after in zip(audio, audio[1:], strict=False):
            assert before.end_sample == after.first_sample
        size = sum(len(piece.data) for piece in audio) - (44 if encoding == "wav" else 0)
        assert size == audio[-1].end_sample * PLAIN_WIDTHS[encoding]
        assert audio[-1].end_sample == 21 * 50 * 24


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("text", ["", "  ", "。", "……", "🙂🙂"])
def test_nothing_to_say_gives_no_audio_in_any_encoding(encoding, text):
    started, *audio, done = speak(service(), text, output={"encoding": encoding})
    assert isinstance(started, Started)
    assert done == Done(0.0, None, None, len(text))
    if encoding == "wav":
        (header,) = audio
        assert (header.first_sample, header.end_sample, header.last) == (0, 0, True)
        with wave.open(io.BytesIO(header.data)) as file:
            assert (file.getnframes(), file.getframerate()) == (0, 24_000)
    else:
        assert audio == []


def test_fragments_change_nothing():
    text = "Hello *big* world, it's 7 o'clock."
    whole = speak(service(), text, seed=1)
    cut = speak(service(), *text, seed=1)

    def heard(events):
        return b"".join(event.data for event in events if isinstance(event, AudioOut))

    def words(events):
        return [word for event in events if isinstance(event, MarksOut) for word in event.words]

    assert heard(whole) == heard(cut)
    assert words(whole) == words(cut)


def test_marks_point_into_the_text_of_the_client_and_are_in_milliseconds():
    text = "Hello *big* world."
    events = speak(service(), text[:9], FLUSH, text[9:], speed=2.0)
    words = [word for event in events if isinstance(event, MarksOut) for word in event.words]
    assert [text[word.char_start : word.char_end] for word in words][0] == "Hello"
    assert [text[word.char_start : word.char_end] for word in words][-1] == "world"
    assert (words[0].start_ms, words[0].end_ms) == (0.0, 125.0)
    visemes = [v for event in events if isinstance(event, MarksOut) for v in event.visemes]
    assert visemes[0].viseme == "aa"


def test_markup_is_spoken_when_cleaning_is_off():
    clean = speak(service(), "# Title", text={"clean": True})
    words = [w.text for e in clean if isinstance(e, MarksOut) for w in e.words]
    assert words == ["Title"]


def test_first_audio_counts_from_the_text_that_completed_the_first_clause():
    clock = Clock()

    def wait(seconds):
        return lambda: setattr(clock, "now", clock.now + seconds)

    class Slow(FakeEngine):
        """Speaks only when all text is there."""

        async def _synthesize(self, text, voice, options):
            words = "".join([piece async for piece in text])
            clock.now += 0.25
            async for chunk in super()._synthesize(Text(words), voice, options):
                yield chunk

    text = ("This is the first", " clause, and then ", "another one.")
    steps = (wait(5.0), text[0], wait(1.0), text[1], wait(0.5), text[2], wait(0.125))
    done = speak(service(Slow(), clock=clock), *steps)[-1]
    assert done.first_audio_ms == pytest.approx((0.5 + 0.125 + 0.25) * 1000)


def test_rtf_counts_the_engine_and_not_the_wait_for_text():
    clock = Clock()

    class Slow(FakeEngine):
        async def _pass_gate(self):
            clock.now += 0.025

    text = (lambda: setattr(clock, "now", clock.now + 9.0), "one two", FLUSH)
    done = speak(service(Slow(), clock=clock), *text)[-1]
    chunks = 5  # 350 ms in four chunks, and an empty one at the end
    assert done.rtf == pytest.approx(chunks * 0.025 / 0.35, abs=1e-3)


def test_rtf_is_what_the_engine_has_measured_where_it_does():
    class Measured(FakeEngine):
        async def _synthesize(self, text, voice, options):
            async for chunk in super()._synthesize(text, voice, options):
                yield replace(chunk, compute_s=0.01)

    done = speak(service(Measured()), "one two")[-1]
    assert done.rtf == pytest.approx(4 * 0.01 / 0.35, abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"voice": "nobody"}, VoiceNotFound), ({}, EngineBusy)],
)
def test_refusals_leave_nothing_behind(changes, error):
    async def test():
        service_ = service(max_live=1)
        slot = service_.admission.admit() if error is EngineBusy else None
        text = Text("x")
        speech = service_.speak(text, settings(**changes))
        with pytest.raises(error):
            await anext(speech)
        await speech.aclose()
        assert text.closed
        assert service_.admission.live == (slot is not None)
        assert service_.engine.counts.started == 0

    asyncio.run(test())


def test_a_format_that_is_not_available():
    service_ = service()
    bad = UtteranceSettings.model_validate({"output": {"encoding": "gsm"}})

    async def test():
        with pytest.raises(UnsupportedFormat):
            await anext(service_.speak(Text("x"), bad))

    asyncio.run(test())
    assert service_.admission.live == 0


@pytest.mark.parametrize(
    ("engine", "error"),
    [
        (FakeEngine(fail_on={"boom": ValueError()}), SynthesisFailed),
        (FakeEngine(refuse={"en": lambda word: word == "boom"}), UnsupportedLanguage),
    ],
)
def test_failures_of_the_engine_free_everything(engine, error):
    service_ = service(engine)
    with pytest.raises(error):
        speak(service_, "well well boom")
    assert (service_.admission.live, engine.counts.live) == (0, 0)


def test_samples_that_are_not_finite_are_refused():
    class Broken(FakeEngine):
        async def _synthesize(self, text, voice, options):
            async for chunk in super()._synthesize(text, voice, options):
                chunk.samples[-1:] = np.inf
                yield chunk

    with pytest.raises(SynthesisFailed, match="not finite"):
        speak(service(Broken()), "x")


@pytest.mark.parametrize("encoding", ["pcm_s16le", "opus"])
@pytest.mark.parametrize("events", [0, 1, 3])
def test_closing_at_any_time_frees_everything(encoding, events):
    async def test():
        service_ = service()
        text = Text("many words " * 100)
        speech = service_.speak(text, settings(output={"encoding": encoding}))
        for _ in range(events):
            await anext(speech)
        await speech.aclose()
        await speech.aclose()
        assert text.closed
        assert (service_.admission.live, service_.engine.counts.live) == (0, 0)
        with pytest.raises(StopAsyncIteration):
            await anext(speech)

    asyncio.run(test())


def test_cancelling_the_task_that_listens_frees_everything():
    async def test():
        gate = ChunkGate()
        service_ = service(FakeEngine(gate=gate))
        text = Text("words")

        async def listen():
            async with service_.speak(text, settings()) as speech:
                async for _ in speech:
                    pass

        listening = asyncio.create_task(listen())
        await gate.arrived(1)
        assert service_.admission.live == 1
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
        assert text.closed
        assert (service_.admission.live, service_.engine.counts.live) == (0, 0)

    asyncio.run(test())


def test_a_slot_can_be_given_up_before_the_engine_has_stopped():
    async def test():
        service_ = service(max_live=1)
        speech = service_.speak(Text("words"), settings())
        speech.give_up_slot()
        await anext(speech)
        speech.give_up_slot()
        assert service_.admission.live == 0
        with service_.admission.admit():
            await speech.aclose()
            assert service_.admission.live == 1

    asyncio.run(test())


def test_metrics_hold_what_was_spoken():
    async def test():
        async with service().speak(Text("Hello"), settings()) as speech:
            before = speech.metrics("cancelled")
            async for _ in speech:
                pass
            return before, speech.metrics("done", queue_wait_ms=3.0)

    before, after = asyncio.run(test())
    assert (before.outcome, before.audio_ms, before.first_audio_ms) == ("cancelled", 0.0, None)
    assert (after.outcome, after.audio_ms, after.characters) == ("done", 250.0, 5)
    assert after.queue_wait_ms == 3.0


def test_warns_of_what_the_engine_will_not_do():
    plain = FakeEngine(features=frozenset()).info
    asked = settings(instruct="calm", pitch=2, strength=0.5, marks=["word", "viseme"])
    warnings = engine_warnings(plain, asked)
    assert [warning.split(":")[0] for warning in warnings] == [
        "instruct is ignored",
        "pitch is ignored",
        "strength is ignored",
        "there are no word times",
        "there are no visemes",
    ]
    assert "calm" not in " ".join(warnings)
    assert engine_warnings(plain, UtteranceSettings()) == []
    assert engine_warnings(FakeEngine().info, settings(pitch=2)) == []


class Observed:
    def __init__(self):
        self.stages, self.underruns = [], []

    def stage(self, name, seconds):
        self.stages.append((name, seconds))

    def underrun(self, seconds):
        self.underruns.append(seconds)


def test_each_stage_is_measured():
    engine, observed = FakeEngine(), Observed()
    made = SpeechService(engine, StaticVoices(engine), Admission(4), observer=observed)
    speak(made, "Hello world", output={"encoding": "opus", "sample_rate": 48_000})
    assert {name for name, _ in observed.stages} == {"queue", "open", "engine", "sound", "encode"}
    assert all(seconds >= 0 for _, seconds in observed.stages)


def test_a_stall_of_the_engine_is_an_underrun_and_waiting_for_text_is_none():
    async def main():
        clock, gate, observed = Clock(), ChunkGate(), Observed()
        engine = FakeEngine(gate=gate)
        made = SpeechService(
            engine, StaticVoices(engine), Admission(4), observer=observed, clock=clock
        )

        def think():
            clock.now += 30

        async with made.speak(Text("aaaa bbbb ", FLUSH, think, "cccc"), settings()) as speech:
            await gate.allow(2)  # 200 ms of audio
            heard = []
            while len(heard) < 2:
                event = await anext(speech)
                heard += [event] if isinstance(event, AudioOut) else []
            following = asyncio.ensure_future(anext(speech))
            await gate.arrived(3)
            clock.now += 1.2
            await gate.open()
            await following
            assert observed.underruns == [pytest.approx(1.0)]
            async for _ in speech:
                pass
        assert len(observed.underruns) == 1

    asyncio.run(main())


def test_the_sound_of_an_utterance_is_shaped_and_its_marks_move():
    plain = speak(service(), "Hello world", marks=["word"])
    shaped = speak(service(), "Hello world", marks=["word"], sound={"lead_in_ms": 250})

    def audio(events):
        return b"".join(event.data for event in events if isinstance(event, AudioOut))

    def starts(events):
        marks = [event for event in events if isinstance(event, MarksOut)]
        return [word.start_ms for mark in marks for word in mark.words]

    assert audio(shaped) == bytes(2 * 6000) + audio(plain)
    assert starts(shaped) == [start + 250 for start in starts(plain)]
    assert shaped[-1].audio_ms == plain[-1].audio_ms + 250


def test_a_loudness_is_kept_with_any_encoding_and_nothing_is_lost():
    for encoding in ("pcm_s16le", "opus"):
        output = {"encoding": encoding, "sample_rate": 48_000}
        _, *audio, done = speak(
            service(), "Hello world", output=output, sound={"loudness_dbfs": -20}
        )
        audio = [event for event in audio if isinstance(event, AudioOut)]
        assert audio[-1].last
        assert done.audio_ms == 550.0


@pytest.mark.parametrize(
    "sound", [{"loudness_dbfs": 3}, {"lead_in_ms": -1}, {"head_ms": 5001}, {"tail_ms": -5}]
)
def test_a_sound_out_of_range_is_refused(sound):
    with pytest.raises(InvalidOption):
        settings(sound=sound)


@pytest.mark.parametrize("output", [{}, {"sample_rate": 8000}, {"encoding": "opus"}])
@pytest.mark.parametrize("speed", [1.0, 2.0])
def test_the_mouth_comes_before_its_sound_at_any_rate_and_speed(output, speed):
    events = speak(service(), "Hello world", marks=["mouth"], output=output, speed=speed)
    known_ms, rate, values = 0.0, events[0].sample_rate, []
    for event in events:
        if isinstance(event, MarksOut) and event.mouth is not None:
            assert event.mouth.start_ms == len(values) * event.mouth.step_ms
            values += event.mouth.values
            known_ms = len(values) * event.mouth.step_ms
        elif isinstance(event, AudioOut):
            assert event.end_sample * 1000 / rate <= known_ms
    assert values[4] > 0.3
    assert values[-1] == 0.0
    if speed == 1.0:
        assert values[14] == 0.0  # 260 to 280 ms, between the two words
    assert events[-1].audio_ms / 20 <= len(values) <= events[-1].audio_ms / 20 + 3
