"""What an engine makes by a fault is refused; what it means to make passes untouched."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from cosyvoice_stream.errors import SynthesisFailed
from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.streaming.speech_check import LONGEST_SILENCE_S, SpeechCheck
from cosyvoice_stream.types import PcmChunk, SynthesisOptions, WordMark

pytestmark = pytest.mark.unit

RATE = 24_000


def chunks(*loud_ms: tuple[bool, int], words: tuple[WordMark, ...] = ()) -> list[PcmChunk]:
    """Chunks of sound or silence, the words on the first one."""
    made: list[PcmChunk] = []
    position = 0
    for number, (loud, ms) in enumerate(loud_ms):
        samples = np.full(ms * RATE // 1000, 0.2 if loud else 0.0, np.float32)
        final = number == len(loud_ms) - 1
        made.append(PcmChunk(samples, position, words if not number else (), final=final))
        position += len(samples)
    return made


def passed(check: SpeechCheck, given: list[PcmChunk]) -> list[PcmChunk]:
    return [out for chunk in given for out in check.push(chunk)]


def word(start_ms: int, end_ms: int) -> WordMark:
    return WordMark("word", 0, 4, start_ms * RATE // 1000, end_ms * RATE // 1000)


def test_speech_with_pauses_passes_as_it_is() -> None:
    given = chunks((True, 200), (False, 400), (True, 200), words=(word(0, 200), word(600, 800)))
    out = passed(SpeechCheck(RATE), given)
    assert all(before is after for before, after in zip(given, out, strict=True))


def test_an_utterance_without_speech_passes() -> None:
    (given,) = chunks((False, 0))
    assert SpeechCheck(RATE).push(given) == [given]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_is_refused(value: float) -> None:
    (given,) = chunks((True, 100))
    given.samples[7] = value
    with pytest.raises(SynthesisFailed, match="not finite"):
        SpeechCheck(RATE, may_be_silent=True).push(given)


def test_silence_in_front_waits_for_the_sound() -> None:
    check = SpeechCheck(RATE)
    given = chunks((False, 100), (False, 100), (True, 100), (True, 100))
    assert check.push(given[0]) == check.push(given[1]) == []
    assert check.push(given[2]) == given[:3]
    assert check.push(given[3]) == given[3:]


def test_nothing_but_silence_is_never_given_out() -> None:
    check = SpeechCheck(RATE)
    given = chunks((False, 100), (False, 100), (False, 0))
    assert check.push(given[0]) == check.push(given[1]) == []
    with pytest.raises(SynthesisFailed, match="nothing but silence"):
        check.push(given[2])


def test_silence_where_a_word_should_be_heard_is_refused_before_it_is_given_out() -> None:
    check = SpeechCheck(RATE)
    given = chunks((True, 200), (False, 200), (True, 200), words=(word(0, 150), word(250, 390)))
    assert check.push(given[0]) == given[:1]
    with pytest.raises(SynthesisFailed, match="a word should be heard"):
        check.push(given[1])


def test_silence_at_the_edge_of_a_word_is_a_pause() -> None:
    given = chunks((True, 200), (False, 100), (True, 200), words=(word(0, 230), word(270, 500)))
    assert len(passed(SpeechCheck(RATE), given)) == 3


def test_silence_without_end_is_refused_and_a_pause_that_was_asked_for_is_not() -> None:
    long_ms = round(LONGEST_SILENCE_S * 1000)
    given = chunks((True, 100), (False, long_ms), (False, 100), (True, 100))
    check = SpeechCheck(RATE)
    assert passed(check, given[:2]) == given[:2]
    with pytest.raises(SynthesisFailed, match="does not end"):
        check.push(given[2])
    assert passed(SpeechCheck(RATE, pause_s=0.5), given) == given


def test_a_volume_of_zero_may_be_silent() -> None:
    given = chunks((False, 200), (False, 0), words=(word(0, 200),))
    assert passed(SpeechCheck(RATE, may_be_silent=True), given) == given


def test_what_an_engine_says_passes() -> None:
    async def main() -> None:
        engine = FakeEngine(chunk_ms=30)

        async def text():
            yield "Hello there, wonderful world of tones"

        said = engine.synthesize(text(), engine.info.voices[0], SynthesisOptions(seed=1))
        given = [chunk async for chunk in said]
        assert passed(SpeechCheck(engine.info.sample_rate), given) == given

    asyncio.run(main())
