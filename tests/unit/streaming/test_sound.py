import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream.streaming.limiter import Limiter, true_peak
from cosyvoice_stream.streaming.loudness import Loudness
from cosyvoice_stream.streaming.pcm import level_dbfs
from cosyvoice_stream.streaming.sound import Sound, SoundOptions
from cosyvoice_stream.streaming.trimmer import Trimmer
from cosyvoice_stream.types import PcmChunk, Viseme, VisemeMark, WordMark
from support.recordings import RATE, at_level, silence, speech

pytestmark = pytest.mark.unit

VOICE = speech()[RATE // 2 : RATE * 5 // 2]
CUTS = st.lists(st.integers(1, 5000), max_size=12)


def cut(samples, sizes):
    pieces, start = [], 0
    for size in sizes:
        pieces.append(samples[start : start + size])
        start += size
    return [*pieces, samples[start:]]


def through(stage, samples, sizes=()):
    return np.concatenate([stage.push(piece) for piece in cut(samples, sizes)] + [stage.flush()])


def clauses(*levels_dbfs):
    """The same words at different levels, with pauses between them."""
    parts = [np.concatenate([at_level(VOICE, level), silence(0.3)]) for level in levels_dbfs]
    return np.concatenate(parts)


def test_clauses_of_different_level_come_out_within_three_db_of_each_other():
    levels = (-20, -26, -18, -24)
    made = through(Loudness(-22, RATE), clauses(*levels))
    size = len(VOICE) + len(silence(0.3))
    heard = [level_dbfs(made[i * size : i * size + len(VOICE)]) for i in range(len(levels))]
    # The first 0.3 s of a clause are on the way to the level.
    assert max(heard) - min(heard) < 3.0
    assert abs(np.mean(heard) - -22) < 1.5


def test_silence_is_not_blown_up():
    made = through(Loudness(-20, RATE), silence(1.0) + np.float32(1e-4))
    assert np.abs(made).max() < 2e-4


@settings(max_examples=20, deadline=None)
@given(CUTS)
def test_any_cutting_gives_the_same_samples(sizes):
    sound = np.concatenate([silence(0.2), clauses(-20, -8), silence(0.4)])[: RATE * 3]
    for make in (
        lambda: Loudness(-14, RATE),
        lambda: Limiter(RATE),
        lambda: Trimmer(RATE, lead_in_ms=50, head_ms=20, tail_ms=100),
    ):
        np.testing.assert_array_equal(through(make(), sound, sizes), through(make(), sound))


def test_no_true_peak_is_above_the_ceiling_and_the_length_stays():
    rng = np.random.default_rng(0)
    times = np.arange(RATE) / RATE
    loud = (1.4 * np.sin(2 * np.pi * 3999.0 * times + 0.7)).astype(np.float32)
    noise = (rng.standard_normal(RATE) * 0.5).astype(np.float32)
    for signal in (loud, noise, np.concatenate([silence(0.1), loud, silence(0.1)])):
        made = through(Limiter(RATE), signal)
        assert len(made) == len(signal)
        assert true_peak(made) <= 10 ** (-0.9 / 20)


def test_what_is_below_the_ceiling_passes_bit_by_bit():
    quiet = at_level(VOICE, -26)
    np.testing.assert_array_equal(through(Limiter(RATE), quiet), quiet)


def test_true_peak_sees_what_lies_between_the_samples():
    times = np.arange(400)
    between = np.sin(np.pi / 2 * times + np.pi / 4).astype(np.float32)  # samples at 0.707
    assert np.abs(between).max() < 0.708
    assert true_peak(between) > 0.98


def test_limiting_makes_no_steps():
    burst = np.concatenate([at_level(VOICE, -26), at_level(VOICE, -3) * 2])
    made, gain = through(Limiter(RATE), burst), None
    loud = np.abs(burst) > 0.01
    gain = made[loud] / burst[loud]
    assert np.abs(np.diff(gain)).max() < 0.1


@pytest.mark.parametrize("head_ms", [0, 20, 300])
@pytest.mark.parametrize("tail_ms", [0, 100, 300])
def test_silence_at_the_ends_is_cut_to_the_setting_and_inside_stays(head_ms, tail_ms):
    tone = np.full(RATE // 10, 0.5, np.float32)
    signal = np.concatenate([silence(0.25), tone, silence(0.5), tone, silence(0.25)])
    trimmer = Trimmer(RATE, head_ms=head_ms, tail_ms=tail_ms)
    made = through(trimmer, signal, [160] * 60)
    head, tail = min(head_ms, 250), min(tail_ms, 250)
    assert len(made) * 1000 / RATE == head + 100 + 500 + 100 + tail
    assert trimmer.shift == -(250 - head) * RATE // 1000


def test_only_silence_leaves_nothing():
    assert len(through(Trimmer(RATE, head_ms=10, tail_ms=10), silence(1.0))) == 0


def chunk_of(samples, start, *, final=False, words=(), visemes=()):
    return PcmChunk(samples, start, words, visemes, final)


def test_marks_move_with_the_sound_and_the_lead_in_is_no_word():
    tone = np.full(RATE // 10, 0.5, np.float32)
    first = chunk_of(silence(0.1), 0, words=(WordMark("a", 0, 1, 1600, 3200),))
    second = chunk_of(tone, 1600, visemes=(VisemeMark(Viseme.AA, 0.7, 1600, 3200),))
    last = chunk_of(silence(0.5), 3200, final=True)
    sound = Sound(SoundOptions(lead_in_ms=200, head_ms=0, tail_ms=50), RATE)
    assert sound.push(first) is None
    made = sound.push(second)
    assert made is not None
    assert [(w.start_sample, w.end_sample) for w in made.words] == [(3200, 4800)]
    assert [(v.start_sample, v.end_sample) for v in made.visemes] == [(3200, 4800)]
    assert made.start_sample == 0
    assert not np.any(made.samples[:3200])
    end = sound.push(last)
    assert end is not None
    assert end.final
    assert end.start_sample + len(end.samples) == 3200 + 1600 + 800


def test_by_default_chunks_pass_as_they_are():
    chunk = chunk_of(VOICE, 0, final=True)
    assert Sound(SoundOptions(), RATE).push(chunk) is chunk


def test_loudness_limits_too_and_keeps_the_length():
    sound = Sound(SoundOptions(loudness_dbfs=-6), RATE)
    pieces = cut(clauses(-20, -26), [3000] * 20)
    out, start = [], 0
    for i, piece in enumerate(pieces):
        made = sound.push(chunk_of(piece, start, final=i == len(pieces) - 1))
        start += len(piece)
        if made is not None:
            assert made.start_sample == sum(map(len, out))
            out.append(made.samples)
    assert sum(map(len, out)) == start
    assert true_peak(np.concatenate(out)) <= 10 ** (-0.9 / 20)
