from __future__ import annotations

import json
import time

import numpy as np
import pytest
import soxr

from cosyvoice_stream.attempts import restarts
from cosyvoice_stream.decode import decode_audio
from cosyvoice_stream.errors import EnrolmentRejected, LimitExceeded, UnsupportedFormat
from cosyvoice_stream.measurements import analyse, frame_levels
from cosyvoice_stream.quality import STRICT_ITEMS, QualityItem
from cosyvoice_stream.reference import (
    PEAK_LIMIT,
    TAIL_S,
    TARGET_DBFS,
    PreparedReference,
    choose_window,
    prepare_reference,
)
from cosyvoice_stream.streaming.endpointing import Segment
from cosyvoice_stream.types import Samples
from support.recordings import (
    RATE,
    REFERENCE_NAMES,
    at_level,
    chords,
    encode,
    in_a_room,
    silence,
    speech,
    tone,
    white_noise,
    with_noise,
)

pytestmark = pytest.mark.unit

OUT = 24_000
AWB, KED, RMS = "flite_awb_scottish_male.wav", "festival_ked_male.wav", "flite_rms_male.wav"


def item(prepared: PreparedReference, name: str) -> QualityItem:
    (found,) = [each for each in prepared.quality.items if each.item == name]
    return found


def rejection(samples: Samples, rate: int = RATE, policy: str = "warn") -> EnrolmentRejected:
    with pytest.raises(EnrolmentRejected) as refused:
        prepare_reference(samples, rate, policy)  # type: ignore[arg-type]
    return refused.value


def defects(prepared: PreparedReference) -> set[str | None]:
    return {each.reason for each in prepared.quality.items if each.verdict != "ok"}


@pytest.mark.parametrize("name", REFERENCE_NAMES)
def test_good_recordings_are_accepted_under_any_policy(name: str) -> None:
    prepared = prepare_reference(speech(name), RATE, "strict")
    reference = prepared.reference
    assert prepared.quality.verdict == "ok"
    assert prepared.warnings == ()
    assert reference.sample_rate == OUT
    assert reference.samples.dtype == np.float32
    assert 3.0 <= len(reference.samples) / OUT <= len(speech(name)) / RATE + TAIL_S
    assert 7_000 <= reference.bandwidth_hz <= 8_000
    assert np.abs(reference.samples).max() <= PEAK_LIMIT + 1e-3


@pytest.mark.parametrize("name", REFERENCE_NAMES)
@pytest.mark.parametrize("dbfs", [-33.0, -23.0])
def test_the_level_of_the_recording_does_not_matter(name: str, dbfs: float) -> None:
    levelled = prepare_reference(at_level(speech(name), dbfs), RATE).reference.samples
    again = analyse(levelled, OUT).measured
    at_limit = np.abs(levelled).max() > PEAK_LIMIT - 1e-3
    assert at_limit or again.level_dbfs == pytest.approx(TARGET_DBFS, abs=0.5)


@pytest.mark.parametrize("name", REFERENCE_NAMES)
def test_a_reference_ends_in_silence(name: str) -> None:
    levels = frame_levels(prepare_reference(speech(name), RATE).reference.samples)
    quiet = levels < np.percentile(levels, 95) - 25
    assert quiet[-round(TAIL_S * 50) + 1 :].all()


BAD = {
    "0.8 s": (speech()[: RATE * 8 // 10], "too_short"),
    "nothing": (speech()[:0], "too_short"),
    "20 ms": (speech()[:320], "too_short"),
    "1.5 s of speech in 6 s": (
        np.concatenate([silence(3), speech()[: RATE * 3 // 2], silence(2)]),
        "too_short",
    ),
    "-45 dBFS": (at_level(speech(), -45), "too_quiet"),
    "clipped": (np.clip(speech() * 8, -1, 1), "clipped"),
    "clipped and then attenuated": (np.clip(speech() * 5, -1, 1) * np.float32(0.3), "clipped"),
    "silence": (silence(5), "no_speech"),
    "faint noise": (white_noise(5, level=1e-4), "no_speech"),
    "white noise": (white_noise(5), "no_speech"),
    "speech in noise": (with_noise(speech(), 3), "noisy"),
    "tone": (tone(440, 5), "music"),
    "low tone": (tone(100, 5), "music"),
    "chords": (chords(8), "music"),
}


@pytest.mark.parametrize(("samples", "reason"), BAD.values(), ids=BAD.keys())
def test_bad_recordings_are_refused_at_once_with_advice(samples: Samples, reason: str) -> None:
    began = time.process_time()
    refused = rejection(samples.astype(np.float32))
    assert time.process_time() - began < 1.0
    assert refused.reason == reason
    assert str(refused)
    assert refused.how_to_fix
    assert refused.quality is not None
    assert refused.quality["verdict"] == "fail"
    assert reason in {each["reason"] for each in refused.quality["items"]}
    json.dumps(refused.quality, allow_nan=False)


def test_45_seconds_are_trimmed_with_a_warning() -> None:
    parts = [speech(), silence(0.5), speech(RMS), silence(0.4), speech(AWB), silence(0.6)]
    long = np.concatenate(parts * 4)[: 45 * RATE]
    prepared = prepare_reference(long, RATE)
    assert "too_long" in defects(prepared)
    assert any("45.0 s" in warning for warning in prepared.warnings)
    assert 6.0 < len(prepared.reference.samples) / OUT <= 10.5
    assert prepared.quality.used_s <= 10.0


def test_a_recording_beyond_the_limit_is_refused_when_it_is_decoded() -> None:
    with pytest.raises(LimitExceeded):
        decode_audio(encode(silence(61), RATE, "flac", "flac"), max_seconds=60)


@pytest.mark.parametrize(
    ("muxer", "encoder", "rate"),
    [("webm", "libopus", 48_000), ("mp4", "aac", 44_100), ("mp3", "libmp3lame", 44_100)],
)
def test_what_browsers_record_is_accepted(muxer: str, encoder: str, rate: int) -> None:
    stereo = np.stack([speech(), speech()])
    decoded = decode_audio(encode(stereo, RATE, muxer, encoder, file_rate=rate), max_seconds=60)
    prepared = prepare_reference(decoded.samples, decoded.sample_rate, "strict")
    assert prepared.quality.verdict == "ok"


def test_a_telephone_recording_is_accepted_with_a_warning() -> None:
    phone = soxr.resample(speech(), RATE, 8_000)
    prepared = prepare_reference(phone, 8_000)
    assert defects(prepared) == {"narrow_band"}
    assert 3_500 <= prepared.reference.bandwidth_hz <= 4_000
    assert rejection(phone, 8_000, "strict").reason == "narrow_band"


def test_noise_is_measured_and_warned_of() -> None:
    for snr_db in (10.0, 20.0, 30.0):
        prepared = prepare_reference(with_noise(speech(), snr_db), RATE)
        noise = item(prepared, "noise")
        assert noise.value == pytest.approx(snr_db, abs=2)
        assert noise.verdict == ("warn" if snr_db < 15 else "ok")
    assert rejection(with_noise(speech(), 10), policy="strict").reason == "noisy"


def test_mains_hum_and_dc_are_removed_and_are_not_music() -> None:
    hum = tone(50, len(speech()) / RATE, level=0.01)[: len(speech())]
    prepared = prepare_reference(speech() + hum + np.float32(0.2), RATE)
    assert "music" not in defects(prepared)
    assert abs(float(prepared.reference.samples.mean())) < 1e-4


def test_a_second_attempt_is_noticed_and_taken() -> None:
    stumbled = speech()[: round(1.7 * RATE)]
    samples = np.concatenate([stumbled, silence(0.8), speech() * np.float32(0.8)])
    prepared = prepare_reference(samples, RATE)
    assert defects(prepared) == {"several_attempts"}
    assert item(prepared, "attempts").value == 2
    assert prepared.quality.used_start_s > 2.3
    assert prepared.quality.used_s == pytest.approx(4.1, abs=0.3)
    assert rejection(samples, policy="strict").reason == "several_attempts"


def test_different_sentences_are_one_attempt() -> None:
    prepared = prepare_reference(np.concatenate([speech(), silence(0.5), speech(RMS)]), RATE)
    assert item(prepared, "attempts").value == 1
    assert prepared.quality.used_s > 8


def test_a_long_pause_is_warned_of_and_left_out() -> None:
    samples = np.concatenate([speech(), silence(4), speech(RMS)])
    prepared = prepare_reference(samples, RATE)
    assert "long_pauses" in defects(prepared)
    assert item(prepared, "pauses").value == pytest.approx(4.3, abs=0.3)
    assert len(prepared.reference.samples) / OUT < 5


def test_a_word_that_is_cut_off_is_left_out() -> None:
    samples = np.concatenate([speech(), silence(0.5), speech(RMS)[: 2 * RATE]])
    prepared = prepare_reference(samples, RATE)
    assert defects(prepared) == {"cut_off", "several_speakers"}
    assert prepared.quality.used_start_s + prepared.quality.used_s < 4.8


def test_a_word_that_is_cut_off_and_needed_is_followed_by_silence() -> None:
    prepared = prepare_reference(speech()[: round(3.2 * RATE)], RATE)
    assert defects(prepared) == {"cut_off"}
    tail = prepared.reference.samples[-round((TAIL_S - 0.02) * OUT) :]
    assert np.abs(tail).max() < 1e-3


def test_speech_without_a_pause_is_cut_at_a_quiet_moment() -> None:
    run_on = np.tile(speech()[RATE // 5 : -RATE // 3], 5)
    analysis = analyse(run_on, RATE)
    first, last = choose_window(analysis)
    assert 5 * OUT < last - first <= 10 * OUT
    loud = np.percentile(analysis.levels_dbfs, 95)
    for edge in (first, last):
        if 0 < edge < len(analysis.samples) - OUT // 10:
            assert analysis.levels_dbfs[edge // 480] < loud - 10


def test_silence_around_the_speech_is_left_out() -> None:
    prepared = prepare_reference(np.concatenate([silence(2), speech(), silence(2)]), RATE)
    assert prepared.quality.used_start_s == pytest.approx(2.0, abs=0.2)
    assert len(prepared.reference.samples) / OUT < 4.8


def test_the_report_is_plain_json_with_a_verdict_per_item() -> None:
    report = prepare_reference(with_noise(speech(), 10), RATE).quality.to_json()
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["verdict"] == "warn"
    names = [each["item"] for each in report["items"]]
    assert names == [
        "duration", "level", "clipping", "music", "speech", "noise", "reverberation",
        "speakers", "attempts", "pauses",
        "bandwidth", "ending",
    ]  # fmt: skip
    assert set(names) >= STRICT_ITEMS
    for each in report["items"]:
        assert (each["verdict"] == "ok") == (each["advice"] is None) == (each["reason"] is None)


@pytest.mark.parametrize(
    ("samples", "rate"),
    [
        (np.full(50_000, np.nan, np.float32), RATE),
        (np.zeros((2, 50_000), np.float32), RATE),
        (speech(), 100),
    ],
)
def test_what_is_not_a_recording_is_an_error(samples: Samples, rate: int) -> None:
    with pytest.raises(UnsupportedFormat):
        prepare_reference(samples, rate)


def test_ten_seconds_cost_less_than_300_ms_of_one_core() -> None:
    ten = np.concatenate([speech(), silence(0.4), speech(RMS), silence(2)])[: 10 * RATE]
    times = []
    for _ in range(3):
        began = time.process_time()
        prepare_reference(ten, RATE)
        times.append(time.process_time() - began)
    assert min(times) < 0.3


def test_the_same_words_at_another_speed_and_pitch_are_the_same() -> None:
    one = speech(AWB)
    other = np.asarray(soxr.resample(with_noise(one, 25), RATE, 17_000), np.float32)
    samples = np.concatenate([one, silence(0.5), other, silence(0.5), speech(KED)])
    phrases = analyse(samples, RATE).phrases
    starts = [phrase.start_sample / OUT for phrase in phrases]
    again = restarts(analyse(samples, RATE).samples, OUT, phrases)
    assert [round(starts[index]) for index in again] == [round(len(one) / RATE + 0.6)]


def test_nothing_restarts_in_nothing() -> None:
    assert restarts(silence(1), RATE, []) == []
    assert (
        restarts(silence(3), RATE, [Segment(0, RATE, RATE), Segment(2 * RATE, 2 * RATE + 9, 9)])
        == []
    )


@pytest.mark.parametrize("name", REFERENCE_NAMES)
@pytest.mark.parametrize("reverberation_s", [1.0, 1.5])
def test_a_large_room_is_heard(name: str, reverberation_s: float) -> None:
    prepared = prepare_reference(in_a_room(speech(name), reverberation_s, -3.0), RATE)
    found = item(prepared, "reverberation")
    assert (found.verdict, found.reason) == ("warn", "reverberant")
    assert any("curtains" in warning for warning in prepared.warnings)


@pytest.mark.parametrize("name", REFERENCE_NAMES)
@pytest.mark.parametrize("snr_db", [30.0, 20.0, 12.0])
def test_neither_a_small_room_nor_noise_is_taken_for_a_large_one(name: str, snr_db: float) -> None:
    near = in_a_room(speech(name), 0.25, 8.0)
    prepared = prepare_reference(with_noise(near, snr_db), RATE)
    assert "reverberant" not in defects(prepared)


TWO = [(RMS, "flite_slt_female.wav"), ("flite_slt_female.wav", KED), (AWB, "flite_kal16_male.wav")]


@pytest.mark.parametrize(("one", "other"), TWO)
def test_two_voices_of_different_pitch_are_heard(one: str, other: str) -> None:
    both = np.concatenate(
        [at_level(speech(one), -20.0), silence(0.5), at_level(speech(other), -20.0)]
    )
    prepared = prepare_reference(both, RATE)
    found = item(prepared, "speakers")
    assert (found.verdict, found.reason) == ("warn", "several_speakers")
    assert rejection(both, RATE, "strict").reason in ("several_speakers", "several_attempts")


@pytest.mark.parametrize("name", REFERENCE_NAMES)
def test_one_voice_is_one(name: str) -> None:
    twice = np.concatenate([speech(name), silence(0.5), speech(name)])
    for samples in (speech(name), twice, with_noise(speech(name), 15.0)):
        assert "several_speakers" not in defects(prepare_reference(samples, RATE))
