import asyncio

import pytest

from cosyvoice_stream.errors import EngineBusy
from cosyvoice_stream.server.limits import Admission, Caller, Priority

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


BACKGROUND = Caller(priority=Priority.BACKGROUND)


def waiting(admission, caller=Caller()):  # noqa: B008 - immutable
    return asyncio.ensure_future(admission.enter(caller))


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


def test_who_finds_no_place_waits_for_one():
    async def main():
        admission = Admission(1, max_wait_s=5)
        first = await admission.enter()
        second = waiting(admission)
        await turns()
        assert (admission.live, admission.waiting, second.done()) == (1, 1, False)
        first.release()
        slot = await second
        assert (admission.live, admission.waiting) == (1, 0)
        slot.release()
        assert admission.live == 0

    asyncio.run(main())


def test_a_wait_that_would_be_too_long_is_refused_at_once_with_a_hint():
    async def main():
        admission = Admission(1, max_wait_s=2.5)
        slot = await admission.enter()
        queue = [waiting(admission), waiting(admission)]
        await turns()
        with pytest.raises(EngineBusy) as refused:
            await asyncio.wait_for(admission.enter(), 0.05)
        assert refused.value.retry_after_s == pytest.approx(3.0)
        slot.release()
        (await queue[0]).release()
        (await queue[1]).release()
        assert (admission.live, admission.refused) == (0, 1)

    asyncio.run(main())


def test_a_full_queue_is_refused_at_once():
    async def main():
        admission = Admission(1, max_wait_s=50, max_waiting=1)
        slot = await admission.enter()
        queued = waiting(admission)
        await turns()
        with pytest.raises(EngineBusy):
            await admission.enter()
        slot.release()
        (await queued).release()

    asyncio.run(main())


def test_a_guess_that_was_too_good_ends_in_a_refusal():
    async def main():
        clock = Clock()
        admission = Admission(1, max_wait_s=0.02, clock=clock)
        for _ in range(40):
            admission.admit().release()  # utterances of no length: the wait looks short
        clock.now += 1e-9
        admission._durations_s.append(1e-3)
        slot = admission.admit()
        with pytest.raises(EngineBusy):
            await admission.enter()
        assert (admission.waiting, admission.refused) == (0, 1)
        slot.release()

    asyncio.run(main())


def test_listeners_go_before_background_and_each_in_order():
    async def main():
        admission = Admission(1, max_wait_s=50)
        slot = await admission.enter()
        order = []

        async def take(name, caller):
            with await admission.enter(caller):
                order.append(name)

        jobs = [
            asyncio.ensure_future(take(name, caller))
            for name, caller in (("b1", BACKGROUND), ("i1", Caller()), ("b2", BACKGROUND),
                                 ("i2", Caller()))
        ]  # fmt: skip
        await turns()
        slot.release()
        await asyncio.gather(*jobs)
        assert order == ["i1", "i2", "b1", "b2"]

    asyncio.run(main())


def test_background_leaves_a_place_for_listeners():
    admission = Admission(8)
    slots = [admission.admit(BACKGROUND) for _ in range(7)]
    with pytest.raises(EngineBusy):
        admission.admit(BACKGROUND)
    slots.append(admission.admit())
    with pytest.raises(EngineBusy):
        admission.admit()
    for slot in slots:
        slot.release()
    assert admission.live == 0


def test_a_single_place_serves_background_too():
    Admission(1).admit(BACKGROUND).release()


def test_one_key_cannot_take_every_place():
    async def main():
        admission = Admission(3, max_per_key=1, max_wait_s=50)
        slot = await admission.enter(Caller("a"))
        second = waiting(admission, Caller("a"))
        await turns()
        other = await admission.enter(Caller("b"))
        nobody = [await admission.enter()]
        assert not second.done()
        with pytest.raises(EngineBusy, match="of this key"):
            admission.admit(Caller("b"))
        other.release()
        await turns()
        assert not second.done()
        slot.release()
        (await second).release()
        nobody[0].release()
        assert admission.live == 0
        assert not admission._per_key

    asyncio.run(main())


def test_cancelled_while_waiting_or_just_called_loses_no_place():
    async def main():
        admission = Admission(1, max_wait_s=50)
        slot = await admission.enter()
        waiter, called = waiting(admission), waiting(admission)
        await turns()
        waiter.cancel()
        await turns()
        assert admission.waiting == 1
        slot.release()  # `called` has its slot now, and is cancelled before it knows
        called.cancel()
        await asyncio.gather(waiter, called, return_exceptions=True)
        assert (admission.live, admission.waiting) == (0, 0)
        (await admission.enter()).release()

    asyncio.run(main())
