import numpy as np
import pytest
import webrtcvad
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.streaming.barge_in import BargeIn, Uplink
from cosyvoice_stream.streaming.echo_gate import EchoGate
from cosyvoice_stream.streaming.vad import VadFrame, VoiceActivity
from support.recordings import RATE, at_level, silence, speech

pytestmark = pytest.mark.unit

FRAME = 160


def frames(pattern, start_frames=2, stop_frames=3):
    """`S` is speech; activity as VoiceActivity gives it."""
    rows = iter(pattern)
    activity = VoiceActivity(
        lambda *_: next(rows) == "S", 16_000, frame_ms=10,
        start_ms=10 * start_frames, stop_ms=10 * stop_frames,
    )  # fmt: skip
    return activity.push(np.zeros(FRAME * len(pattern), np.float32))


def changes(pattern, min_frames):
    barge_in = BargeIn(min_frames * FRAME)
    return [(c.state.value, c.at_sample // FRAME) for c in barge_in.push(frames(pattern))]


def test_speech_is_suspected_then_certain_then_over():
    assert changes(".SSSSSS......", 4) == [("maybe_speech", 1), ("speech", 1), ("silence", 7)]


def test_a_cough_is_only_suspected():
    assert changes("..SSS........", 6) == [("maybe_speech", 2), ("silence", 5)]


def test_a_click_is_nothing():
    assert changes("..S..S..S....", 2) == []


def test_pauses_inside_do_not_count_as_speech():
    assert changes("SS..SS..S....", 5) == [("maybe_speech", 0), ("speech", 0), ("silence", 9)]
    assert changes("SS..SS.......", 5) == [("maybe_speech", 0), ("silence", 6)]


def test_long_enough_at_once_is_no_suspicion():
    assert changes("SSSS.....", 2) == [("speech", 0), ("silence", 4)]


@given(st.text(alphabet=".S", max_size=60), st.integers(1, 8))
def test_changes_alternate_and_any_cutting_gives_the_same(pattern, min_frames):
    whole = changes(pattern, min_frames)
    barge_in = BargeIn(min_frames * FRAME)
    cut = [c for frame in frames(pattern) for c in barge_in.push([frame])]
    assert [(c.state.value, c.at_sample // FRAME) for c in cut] == whole
    states = ["silence"] + [state for state, _ in whole]
    assert all(before != after for before, after in zip(states, states[1:], strict=False))


def test_a_frame_of_speech_outside_any_run_begins_one():
    barge_in = BargeIn(1)
    assert barge_in.push([VadFrame(0, FRAME, True, False)]) == []
    assert barge_in.state is Uplink.SILENCE


def found(microphone, reference):
    """Seconds of detected speech behind the gate."""
    frame = RATE // 50
    gate = EchoGate(webrtcvad.Vad(2).is_speech, RATE, frame)
    activity = VoiceActivity(gate, RATE)
    gate.listen(reference)
    return sum(f.active for f in activity.push(microphone)) * frame / RATE


def test_echo_is_no_speech_and_a_speaker_over_it_is():
    reference = np.concatenate([at_level(speech("flite_rms_male.wav"), -20), silence(0.5)])
    delayed = np.concatenate([silence(0.06), reference])[: len(reference)]
    echo = delayed * np.float32(0.1)
    assert found(echo, np.zeros_like(reference)) > 1.0
    assert found(echo, reference) < 0.1
    speaker = at_level(speech("flite_slt_female.wav"), -20)[: len(echo) - RATE]
    over = echo.copy()
    over[RATE : RATE + len(speaker)] += speaker
    assert found(over, reference) > 0.5


def test_without_a_sound_from_the_loudspeaker_the_gate_is_open():
    voice = at_level(speech(), -40)
    closed = found(voice, np.zeros_like(voice))
    activity = VoiceActivity(webrtcvad.Vad(2).is_speech, RATE)
    assert closed == pytest.approx(sum(f.active for f in activity.push(voice)) * 0.02)
