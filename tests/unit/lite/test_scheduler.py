"""Order of steps."""

from __future__ import annotations

import pytest

from cosyvoice_stream.lite.scheduler import Scheduler

pytestmark = pytest.mark.unit


def ready(*keys: str, background: tuple[str, ...] = ()) -> Scheduler[str]:
    scheduler: Scheduler[str] = Scheduler()
    for key in keys:
        scheduler.add(key, background=key in background)
        scheduler.set_ready(key, True)
    return scheduler


def test_nothing_to_do() -> None:
    scheduler: Scheduler[str] = Scheduler()
    assert scheduler.take() is None
    scheduler.add("a")
    assert scheduler.take() is None, "not ready"


def test_first_come_first_served_before_first_audio() -> None:
    scheduler = ready("a", "b", "c")
    assert [scheduler.take() for _ in range(4)] == ["a", "b", "c", None]


def test_a_newcomer_goes_before_anothers_fifth_clause() -> None:
    scheduler = ready("old")
    for step in range(4):
        assert scheduler.take() == "old"
        scheduler.done("old", float(step), 0.5, ready=True)
    scheduler.add("new")
    scheduler.set_ready("new", True)
    assert scheduler.take() == "new"


def test_whoever_runs_dry_first_is_next() -> None:
    scheduler = ready("rich", "poor")
    for key, seconds in (("rich", 3.0), ("poor", 0.5)):
        assert scheduler.take() == key
        scheduler.done(key, 10.0, seconds, ready=True)
    assert scheduler.take() == "poor"
    scheduler.done("poor", 10.1, 4.0, ready=True)
    assert scheduler.take() == "rich"


def test_one_step_of_an_utterance_at_a_time() -> None:
    scheduler = ready("a")
    assert scheduler.take() == "a"
    assert scheduler.take() is None
    scheduler.done("a", 0.0, 0.0, ready=True)
    assert scheduler.take() == "a"


def test_background_work_waits_for_everybody() -> None:
    scheduler = ready("enrolment", "speech", background=("enrolment",))
    assert scheduler.take() == "speech"
    assert scheduler.take() == "enrolment"


def test_what_left_is_forgotten() -> None:
    scheduler = ready("a", "b")
    assert scheduler.take() == "a"
    scheduler.remove("a")
    scheduler.done("a", 0.0, 1.0, ready=True)
    scheduler.set_ready("a", True)
    scheduler.remove("never seen")
    assert list(scheduler) == ["b"]
    assert scheduler.take() == "b"
