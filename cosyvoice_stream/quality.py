"""Is this recording good enough to make a voice from, and if not, what should the speaker do?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from cosyvoice_stream.measurements import Measurements

Verdict: TypeAlias = Literal["ok", "warn", "fail"]
Policy: TypeAlias = Literal["strict", "warn"]
"""Under ``warn`` only a `fail` refuses a recording; under ``strict`` also what is doubtful about
the sound (`STRICT_ITEMS`)."""

MIN_DURATION_S: Final = 3.0
"""Engines ask for 3 s of reference; CosyVoice's own guidance is 3–10 s."""
MIN_SPEECH_S: Final = 2.0
"""Two seconds hold about ten syllables; below that pitch and spectrum are guesses."""
GOOD_SPEECH_S: Final = 2.5
"""The clips of the test set that are known to adapt well have 2.9 s or more."""
MAX_USED_S: Final = 10.0
"""More does not make a voice better and makes every first audio of a cloning engine later."""
SILENT_DBFS: Final = -65.0
"""Nothing above this is somebody speaking; a muted microphone is at -80 or below."""
QUIET_FAIL_DBFS: Final = -42.0
"""Speech this low shares its bits with the noise of a built-in sound card."""
QUIET_WARN_DBFS: Final = -34.0
CLIPPED_FAIL: Final = 0.01
"""Speech driven 10 dB over full scale has 2–3 % of its samples cut off, 6 dB over 0.2 %."""
CLIPPED_WARN: Final = 0.0005
SNR_FAIL_DB: Final = 6.0
"""At 5 dB the speech detector accepts every frame, so pauses cannot be found any more."""
SNR_WARN_DB: Final = 15.0
SNR_CAP_DB: Final = 80.0
"""Reported at most: recordings with digital silence have no noise to measure."""
STEADY_SPREAD_DB: Final = 5.5
"""White and pink noise have a level spread of 1–5 dB, speech at 0 dB SNR 6, clean speech 30–55."""
MUSIC_FAIL: Final = 0.22
"""Tonal ratio: speech of the test set 0.01–0.07, chords 0.5, a plucked melody 0.34, a tone 0.96."""
MUSIC_WARN: Final = 0.12
"""Chords with drums have 0.14; with such a ratio and an SNR below `MUSIC_SNR_DB` it is a `fail`."""
MUSIC_SNR_DB: Final = 12.0
NARROW_HZ: Final = 5_000.0
"""A telephone ends at 4 kHz; consonants need 5 kHz and more."""
DRY_DECAY_DB: Final = 11.0
"""Fall of the level within 100 ms; see `Measurements.decay_db`. Speech 15 dB above white noise
still has 13."""
SPEAKERS_GAP_ST: Final = 2.5
"""Semitones; one speaker of the test set has 1.4 at most, two of different pitch 2.9 to 9.4."""
LONG_PAUSE_S: Final = 1.5
"""Longer than a breath or a comma: the speaker stopped."""

STRICT_ITEMS: Final = frozenset(
    {
        *("speech", "level", "clipping", "music", "noise", "reverberation", "speakers"),
        *("attempts", "bandwidth", "ending"),
    }
)


@dataclass(frozen=True, slots=True)
class QualityItem:
    """One question about the recording and its answer."""

    item: str
    """Stable name, such as ``"noise"``."""
    value: float
    unit: str
    verdict: Verdict
    reason: str | None = None
    """Stable name of the defect, such as ``"noisy"``; None where the verdict is ok."""
    message: str | None = None
    """What is wrong, one sentence; None where the verdict is ok."""
    advice: str | None = None
    """What the speaker can do about it; None where the verdict is ok."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "item": self.item,
            "value": round(self.value, 4) if math.isfinite(self.value) else None,
            "unit": self.unit,
            "verdict": self.verdict,
            "reason": self.reason,
            "message": self.message,
            "advice": self.advice,
        }


@dataclass(frozen=True, slots=True)
class QualityReport:
    """All answers, in the order in which they decide."""

    items: tuple[QualityItem, ...]
    used_start_s: float = 0.0
    """Where the used part of the recording begins."""
    used_s: float = 0.0
    """Length of the used part; 0 if none was chosen."""

    @property
    def verdict(self) -> Verdict:
        """The worst of the items."""
        verdicts = {item.verdict for item in self.items}
        return "fail" if "fail" in verdicts else "warn" if "warn" in verdicts else "ok"

    def refusal(self, policy: Policy) -> QualityItem | None:
        """Return the first item for which the policy refuses the recording, or None."""
        failed = [item for item in self.items if item.verdict == "fail"]
        if policy == "strict":
            failed += [
                item for item in self.items if item.verdict == "warn" and item.item in STRICT_ITEMS
            ]
        return failed[0] if failed else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for the speaker about everything that is not ok."""
        return tuple(
            f"{item.message}: {item.advice}" for item in self.items if item.verdict != "ok"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "verdict": self.verdict,
            "used_start_s": round(self.used_start_s, 3),
            "used_s": round(self.used_s, 3),
            "items": [item.to_json() for item in self.items],
        }


def judge_duration(duration_s: float) -> QualityItem:
    """Judge the length of a recording, which decides whether anything else is worth measuring."""
    if duration_s < MIN_DURATION_S:
        return QualityItem(
            "duration", duration_s, "s", "fail", "too_short",
            f"the recording is {duration_s:.1f} s long",
            f"record {MIN_DURATION_S:.0f} to {MAX_USED_S:.0f} s of continuous speech",
        )  # fmt: skip
    if duration_s > MAX_USED_S:
        return QualityItem(
            "duration", duration_s, "s", "warn", "too_long",
            f"the recording is {duration_s:.1f} s long",
            f"the best {MAX_USED_S:.0f} s were taken; send those you prefer instead",
        )  # fmt: skip
    return QualityItem("duration", duration_s, "s", "ok")


def judge(measured: Measurements) -> tuple[QualityItem, ...]:
    """Judge everything that was measured; defects that explain others come first."""
    judges: tuple[Callable[[Measurements], QualityItem], ...] = (
        lambda m: judge_duration(m.duration_s),
        _judge_level,
        _judge_clipping,
        _judge_music,
        _judge_speech,
        _judge_noise,
        _judge_reverberation,
        _judge_speakers,
        _judge_attempts,
        _judge_pauses,
        _judge_bandwidth,
        _judge_ending,
    )
    return tuple(one(measured) for one in judges)


def _judge_level(m: Measurements) -> QualityItem:
    item, value, unit = "level", m.level_dbfs, "dBFS"
    if value < SILENT_DBFS:
        return QualityItem(
            item, value, unit, "fail", "no_speech", "the recording is silent",
            "check that the right microphone is chosen and not muted",
        )  # fmt: skip
    if value < QUIET_WARN_DBFS:
        return QualityItem(
            item, value, unit, "fail" if value < QUIET_FAIL_DBFS else "warn", "too_quiet",
            f"the speech is quiet ({value:.0f} dBFS)",
            "speak closer to the microphone, or turn its level up",
        )  # fmt: skip
    return QualityItem(item, value, unit, "ok")


def _judge_clipping(m: Measurements) -> QualityItem:
    item, value, unit = "clipping", m.clipped_ratio, "ratio"
    if value < CLIPPED_WARN:
        return QualityItem(item, value, unit, "ok")
    return QualityItem(
        item, value, unit, "fail" if value >= CLIPPED_FAIL else "warn", "clipped",
        f"{value:.1%} of the recording is cut off at full level",
        "turn the microphone's level down, or move away from it",
    )  # fmt: skip


def _judge_music(m: Measurements) -> QualityItem:
    item, value, unit = "music", m.tonal_ratio, "ratio"
    if value < MUSIC_WARN:
        return QualityItem(item, value, unit, "ok")
    fail = value >= MUSIC_FAIL or m.snr_db < MUSIC_SNR_DB
    return QualityItem(
        item, value, unit, "fail" if fail else "warn", "music",
        "the recording holds music or a steady tone",
        "record speech alone, without music behind it",
    )  # fmt: skip


def _judge_speech(m: Measurements) -> QualityItem:
    item, value, unit = "speech", m.speech_s, "s"
    if m.level_spread_db < STEADY_SPREAD_DB or value < 0.5:
        return QualityItem(
            item, value, unit, "fail", "no_speech", "no speech was found in the recording",
            f"say one or two sentences, {MIN_DURATION_S:.0f} to {MAX_USED_S:.0f} s in total",
        )  # fmt: skip
    if value < GOOD_SPEECH_S:
        return QualityItem(
            item, value, unit, "fail" if value < MIN_SPEECH_S else "warn", "too_short",
            f"the recording holds {value:.1f} s of speech",
            f"speak for {MIN_DURATION_S:.0f} to {MAX_USED_S:.0f} s without long pauses",
        )  # fmt: skip
    return QualityItem(item, value, unit, "ok")


def _judge_noise(m: Measurements) -> QualityItem:
    item, value, unit = "noise", min(m.snr_db, SNR_CAP_DB), "dB"
    if value >= SNR_WARN_DB:
        return QualityItem(item, value, unit, "ok")
    return QualityItem(
        item, value, unit, "fail" if value < SNR_FAIL_DB else "warn", "noisy",
        f"the speech is only {value:.0f} dB above the noise",
        "record in a quiet room, closer to the microphone",
    )  # fmt: skip


def _judge_reverberation(m: Measurements) -> QualityItem:
    item, value, unit = "reverberation", m.decay_db, "dB"
    if value >= DRY_DECAY_DB or m.snr_db < SNR_WARN_DB:
        return QualityItem(item, value, unit, "ok")
    return QualityItem(
        item, value, unit, "warn", "reverberant",
        f"the sound of the room hangs on: the level falls by {value:.0f} dB in 100 ms",
        "record closer to the microphone, in a room with curtains, carpets or furniture",
    )  # fmt: skip


def _judge_speakers(m: Measurements) -> QualityItem:
    item, value, unit = "speakers", m.pitch_gap_st, "semitones"
    if value < SPEAKERS_GAP_ST:
        return QualityItem(item, value, unit, "ok")
    return QualityItem(
        item, value, unit, "warn", "several_speakers",
        "the recording may hold more than one voice",
        "record one speaker alone, in an even tone",
    )  # fmt: skip


def _judge_attempts(m: Measurements) -> QualityItem:
    item, value, unit = "attempts", float(m.attempts), "count"
    if m.attempts == 1:
        return QualityItem(item, value, unit, "ok")
    return QualityItem(
        item, value, unit, "warn", "several_attempts",
        f"the same words begin {m.attempts} times",
        "one attempt was taken; send a recording of one clean attempt",
    )  # fmt: skip


def _judge_pauses(m: Measurements) -> QualityItem:
    item, value, unit = "pauses", m.longest_pause_s, "s"
    if value <= LONG_PAUSE_S:
        return QualityItem(item, value, unit, "ok")
    return QualityItem(
        item, value, unit, "warn", "long_pauses",
        f"the speaker is silent for {value:.1f} s in between",
        "speak on without long pauses",
    )  # fmt: skip


def _judge_bandwidth(m: Measurements) -> QualityItem:
    item, value, unit = "bandwidth", m.bandwidth_hz, "Hz"
    if value >= NARROW_HZ:
        return QualityItem(item, value, unit, "ok")
    return QualityItem(
        item, value, unit, "warn", "narrow_band",
        f"the sound ends at {value / 1000:.1f} kHz, as on a telephone",
        "the voice will sound dull; record with a microphone instead of a phone line",
    )  # fmt: skip


def _judge_ending(m: Measurements) -> QualityItem:
    cut = int(m.starts_abruptly) + int(m.ends_abruptly)
    if not cut:
        return QualityItem("ending", 0.0, "count", "ok")
    return QualityItem(
        "ending", float(cut), "count", "warn", "cut_off",
        "the recording begins or ends inside a word",
        "leave half a second of silence before and after",
    )  # fmt: skip
