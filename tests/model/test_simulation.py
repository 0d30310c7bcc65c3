"""Invariants of the scheduler under load, on a simulated device."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from cosyvoice_stream.cosyvoice.scheduler import Policy, Scheduler
from cosyvoice_stream.cosyvoice.simulation import POLICIES, Arrival, Costs, Played, simulate

pytestmark = pytest.mark.model

COSTS = Costs()


def crowd(count: int, seed: int, *, within_s: float = 2.0) -> list[Arrival]:
    rng = random.Random(seed)
    arrivals = [Arrival(rng.uniform(0, within_s), rng.randint(1, 300)) for _ in range(count)]
    return sorted(arrivals, key=lambda arrival: arrival.at_s)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("policy", POLICIES)
def test_everybody_is_served_to_the_end(policy: str, seed: int) -> None:
    for one in simulate(crowd(20, seed), COSTS, POLICIES[policy](), slots=7):
        assert one.ended_s < math.inf
        assert one.sounded == one.arrival.tokens
        assert one.first_audio_s >= (COSTS.prepare_ms + COSTS.sound_ms) / 1e3


@pytest.mark.parametrize("seed", range(3))
def test_nobody_waits_longer_than_the_work_of_all_who_came(seed: int) -> None:
    arrivals = crowd(40, seed, within_s=0.0)
    played = simulate(arrivals, COSTS, Scheduler())
    # First audio of all takes their preparation, thirteen shared draws and their first passes; what
    # else may go before is the sounding that keeps a listener from running dry.
    once = 40 * COSTS.prepare_ms + 13 * (COSTS.decode_ms + 2) + 40 * (COSTS.sound_ms + 4)
    assert max(one.first_audio_s for one in played) <= 2 * once / 1e3


def first_audio(played: list[Played]) -> list[float]:
    return [one.first_audio_s for one in played]


@pytest.mark.parametrize("seed", range(3))
def test_a_newcomer_is_heard_soon_while_others_speak(seed: int) -> None:
    arrivals = [*crowd(16, seed), Arrival(8.0, 100)]
    ours = simulate(arrivals, COSTS, POLICIES["ours"]())
    fifo = simulate(arrivals, COSTS, POLICIES["fifo"]())
    assert ours[-1].first_audio_s < 0.4
    assert fifo[-1].first_audio_s > 3 * ours[-1].first_audio_s


@pytest.mark.parametrize("seed", range(3))
def test_with_room_nobody_runs_dry(seed: int) -> None:
    played = simulate(crowd(24, seed, within_s=10.0), COSTS, Scheduler())
    assert max(one.underrun_s for one in played) <= 0.1


def test_equal_utterances_are_treated_alike() -> None:
    played = simulate([Arrival(0.0, 200)] * 8, COSTS, Scheduler(Policy(prepare_batch=8)))
    first = first_audio(played)
    assert max(first) - min(first) <= 0.01
    ends = [one.ended_s for one in played]
    assert max(ends) - min(ends) <= 0.5 * statistics.median(ends)


def test_background_work_gives_way() -> None:
    listeners = crowd(10, 1)
    batch = [Arrival(0.0, 300, background=True) for _ in range(6)]
    arrivals = sorted([*listeners, *batch], key=lambda arrival: arrival.at_s)
    mixed = simulate(arrivals, COSTS, Scheduler())
    heard = [one for one in mixed if not one.arrival.background]
    alone = simulate(listeners, COSTS, Scheduler())
    gap = statistics.median(first_audio(heard)) - statistics.median(first_audio(alone))
    assert gap <= 0.05
    assert all(one.ended_s < math.inf for one in mixed)
