import pytest

from cosyvoice_stream.errors import EngineBusy
from cosyvoice_stream.server.limits import Admission

pytestmark = pytest.mark.unit


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_admits_up_to_the_limit_and_refuses_the_rest():
    admission = Admission(2, clock=Clock())
    slots = [admission.admit(), admission.admit()]
    with pytest.raises(EngineBusy):
        admission.admit()
    assert (admission.live, admission.admitted, admission.refused) == (2, 2, 1)
    slots[0].release()
    with admission.admit():
        assert admission.live == 2
    assert admission.live == 1


def test_a_slot_is_released_once():
    admission = Admission(2, clock=Clock())
    first, second = admission.admit(), admission.admit()
    first.release()
    first.release()
    assert admission.live == 1
    second.release()
    assert admission.live == 0


def test_a_slot_is_released_when_the_work_fails():
    admission = Admission(1, clock=Clock())
    with pytest.raises(ZeroDivisionError), admission.admit():
        raise ZeroDivisionError
    assert admission.live == 0


def test_the_hint_follows_from_recent_durations():
    clock = Clock()
    admission = Admission(4, clock=clock)
    for duration in (2.0, 6.0):
        slot = admission.admit()
        clock.now += duration
        slot.release()
    held = [admission.admit() for _ in range(4)]
    with pytest.raises(EngineBusy) as caught:
        admission.admit()
    assert caught.value.retry_after_s == pytest.approx(4.0 / 4)
    clock.now += 40.0  # live ones take longer than recent ones did
    assert admission.retry_after_s() == pytest.approx(20.0 / 4)
    assert len(held) == admission.live


def test_the_hint_stays_in_its_range():
    clock = Clock()
    admission = Admission(1000, clock=clock)
    assert admission.retry_after_s() == 0.1
    slow = Admission(1, clock=clock)
    slow.admit()
    clock.now += 1e6
    assert slow.retry_after_s() == 30.0


def test_no_capacity_is_a_mistake_of_ours():
    with pytest.raises(ValueError, match="max_live"):
        Admission(0)
