"""Who is served next: deadlines, shared steps, nobody starved."""

from __future__ import annotations

import pytest

from cosyvoice_stream.cosyvoice.scheduler import NOTHING, Kind, Needs, Policy, Scheduler

pytestmark = pytest.mark.unit

DECODE = Needs(decode=True)
SOUND = Needs(sound=(25, False, 10))


def playing(scheduler: Scheduler[str], key: str, now: float, lead: float) -> None:
    scheduler.add(key, now)
    scheduler.produced(key, now, lead)


def test_nothing_to_do() -> None:
    scheduler: Scheduler[str] = Scheduler()
    assert scheduler.next(0.0) is None
    scheduler.add("a", 0.0)
    assert scheduler.next(0.0) is None


def test_a_newcomer_goes_before_one_with_lead() -> None:
    scheduler: Scheduler[str] = Scheduler()
    playing(scheduler, "old", 0.0, 5.0)
    scheduler.set_needs("old", SOUND)
    scheduler.add("new", 0.1)
    scheduler.set_needs("new", DECODE)
    step = scheduler.next(0.1)
    assert step is not None
    assert (step.kind, step.keys) == (Kind.DECODE, ("new",))


def test_one_that_is_about_to_run_dry_goes_before_a_newcomer() -> None:
    scheduler: Scheduler[str] = Scheduler(Policy(first_audio_s=0.2))
    playing(scheduler, "dry", 0.0, 1.0)
    scheduler.set_needs("dry", SOUND)
    scheduler.add("new", 0.95)
    scheduler.set_needs("new", DECODE)
    step = scheduler.next(0.95)
    assert step is not None
    assert step.keys == ("dry",)


def test_decoding_is_shared_but_not_with_those_who_have_time() -> None:
    scheduler: Scheduler[str] = Scheduler(Policy(comfort_s=2.0))
    playing(scheduler, "ahead", 0.0, 9.0)
    playing(scheduler, "near", 0.0, 1.0)
    scheduler.add("new", 0.0)
    for key in ("ahead", "near", "new"):
        scheduler.set_needs(key, DECODE)
    step = scheduler.next(0.0)
    assert step is not None
    assert step.keys == ("new", "near")
    for key in ("near", "new"):
        scheduler.set_needs(key, NOTHING)
    step = scheduler.next(0.0)
    assert step is not None
    assert step.keys == ("ahead",)


def test_sounding_is_shared_by_equal_shapes_only() -> None:
    scheduler: Scheduler[str] = Scheduler()
    for key, count in (("a", 25), ("b", 50), ("c", 25)):
        scheduler.add(key, 0.0)
        scheduler.set_needs(key, Needs(decode=True, sound=(count, False, 10)))
    step = scheduler.next(0.0)
    assert step is not None
    assert (step.kind, step.keys) == (Kind.SOUND, ("a", "c"))


def test_batches_are_bounded() -> None:
    scheduler: Scheduler[int] = Scheduler(Policy(decode_batch=3, prepare_batch=2))
    for key in range(9):
        scheduler.add(key, 0.0)
        scheduler.set_needs(key, DECODE)
    step = scheduler.next(0.0)
    assert step is not None
    assert step.keys == (0, 1, 2)
    for key in range(9):
        scheduler.set_needs(key, Needs(prepare=True))
    step = scheduler.next(0.0)
    assert step is not None
    assert (step.kind, step.keys) == (Kind.PREPARE, (0, 1))


def test_a_listener_that_ran_dry_starts_anew() -> None:
    scheduler: Scheduler[str] = Scheduler()
    playing(scheduler, "a", 0.0, 1.0)
    assert scheduler.lead_s("a", 0.25) == pytest.approx(0.75)
    assert scheduler.lead_s("a", 3.0) == 0.0
    scheduler.produced("a", 3.0, 0.5)
    assert scheduler.lead_s("a", 3.0) == pytest.approx(0.5)


def test_background_waits_for_listeners_but_not_for_ever() -> None:
    scheduler: Scheduler[str] = Scheduler(Policy(patience_s=30.0, comfort_s=0.0, decode_batch=1))
    scheduler.add("batch", 0.0, background=True)
    scheduler.set_needs("batch", DECODE)
    served = []
    for turn in range(400):
        now = turn * 0.1
        scheduler.add(str(turn), now)
        scheduler.set_needs(str(turn), DECODE)
        step = scheduler.next(now)
        assert step is not None
        served.append(step.keys[0])
        if step.keys[0] == "batch":
            break
        scheduler.remove(step.keys[0])
    assert served[-1] == "batch"
    assert len(served) == pytest.approx(300, abs=5)


def test_unknown_utterances_are_ignored() -> None:
    scheduler: Scheduler[str] = Scheduler()
    scheduler.set_needs("x", DECODE)
    scheduler.produced("x", 0.0, 1.0)
    scheduler.remove("x")
    assert len(scheduler) == 0
    assert scheduler.lead_s("x", 0.0) == 0.0
