"""A transport that outlives its connection."""

import asyncio

import pytest

from cosyvoice_stream.errors import InvalidState, PeerGone
from cosyvoice_stream.server.resume import ResumableTransport
from cosyvoice_stream.server.transport import PeerLost
from support.memory_transport import PATIENCE_S, settled

pytestmark = pytest.mark.unit


class Link:
    """A connection that the test can break, close, or stop."""

    def __init__(self):
        self.got, self.aborted, self.closed = [], False, None
        self._incoming = asyncio.Queue()
        self._open = asyncio.Event()
        self._open.set()
        self.broken = False

    def put(self, frame):
        self._incoming.put_nowait(frame)

    def cut(self):
        self.broken = True
        self._open.set()
        self.put(PeerLost("cut"))

    def leave(self):
        self.broken = True
        self.put(PeerGone("left"))

    def stop(self):
        self._open.clear()

    async def receive(self):
        frame = await self._incoming.get()
        if isinstance(frame, Exception):
            raise frame
        return frame

    async def send(self, frame):
        await asyncio.sleep(0)
        await self._open.wait()
        if self.broken:
            raise PeerGone("cut")
        self.got.append(frame)

    async def close(self, code, reason):
        self.closed = code

    def abort(self):
        self.aborted = True
        self.cut()

    def unsent_bytes(self):
        return 7


def run(test):
    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))


async def away(transport, link):
    """Cut the link and wait until the transport knows."""
    reading = asyncio.ensure_future(transport.receive())
    await asyncio.sleep(0)
    link.cut()
    await transport.lost(link)
    return reading


def test_the_rest_is_sent_over_the_next_link_in_order_and_none_twice():
    async def test():
        first, second = Link(), Link()
        transport = ResumableTransport(first, 60)
        for frame in ("a", b"b", "c"):
            await transport.send(frame)
        reading = await away(transport, first)
        await transport.send("d")
        await transport.resume(second, 2, lambda: "hello")
        await transport.send("e")
        assert first.got == ["a", b"b", "c"]
        assert second.got == ["hello", "c", "d", "e"]
        second.put("from the client")
        assert await reading == "from the client"
        assert transport.received == 1

    run(test)


def test_who_lacks_nothing_gets_only_what_comes():
    async def test():
        first, second = Link(), Link()
        transport = ResumableTransport(first, 60)
        await transport.send("a")
        reading = await away(transport, first)
        await transport.resume(second, 1, lambda: "hello")
        assert second.got == ["hello"]
        reading.cancel()

    run(test)


@pytest.mark.parametrize("received", [0, 5, 99])
def test_who_lacks_what_is_not_kept_or_claims_too_much_is_refused(received):
    async def test():
        transport = ResumableTransport(Link(), 60, kept_bytes=20)
        for _ in range(4):
            await transport.send("0123456789")
        with pytest.raises(InvalidState):
            await transport.resume(Link(), received, lambda: "hello")

    run(test)


def test_what_is_kept_and_what_is_made_while_away_are_bounded():
    async def test():
        first, second = Link(), Link()
        transport = ResumableTransport(first, 60, kept_bytes=1000)
        for _ in range(100):
            await transport.send(bytes(100))
        assert transport._bytes <= 1000
        reading = await away(transport, first)
        sent = 0

        async def fill():
            nonlocal sent
            while True:
                await transport.send(bytes(50_000))
                sent += 1

        filling = asyncio.ensure_future(fill())
        await settled(turns=200)
        assert sent == 5  # 256 KiB beside what is kept
        before = sent
        await transport.resume(second, 100, lambda: "hello")
        await settled(lambda: sent > before)
        assert sent > before
        filling.cancel()
        reading.cancel()
        await asyncio.gather(filling, reading, return_exceptions=True)
        assert transport._bytes <= 1000 + 50_000

    run(test)


def test_who_stays_away_too_long_has_left():
    async def test():
        first = Link()
        transport = ResumableTransport(first, 0.01)
        reading = await away(transport, first)
        with pytest.raises(PeerGone):
            await reading
        assert transport.is_over
        with pytest.raises(PeerGone):
            await transport.send("a")
        with pytest.raises(InvalidState):
            await transport.resume(Link(), 0, lambda: "hello")

    run(test)


def test_who_says_good_bye_is_not_waited_for_even_if_a_send_failed_before():
    async def test():
        first = Link()
        transport = ResumableTransport(first, 60)
        reading = asyncio.ensure_future(transport.receive())
        await asyncio.sleep(0)
        first.broken = True
        await transport.send("a")
        assert not transport.is_over
        first.leave()
        with pytest.raises(PeerGone):
            await reading
        assert transport.is_over

    run(test)


def test_a_link_that_seems_to_live_is_dropped_for_the_next_one():
    async def test():
        first, second = Link(), Link()
        transport = ResumableTransport(first, 60)
        await transport.send("a")
        first.stop()
        reading = asyncio.ensure_future(transport.receive())
        sending = asyncio.ensure_future(transport.send("b"))
        await settled(turns=10)
        assert not sending.done()
        await transport.resume(second, 1, lambda: "hello")
        await sending
        assert first.aborted
        assert second.got == ["hello", "b"]
        second.put("x")
        assert await reading == "x"

    run(test)


def test_two_that_come_back_at_once_leave_one_link():
    async def test():
        first, second, third = Link(), Link(), Link()
        transport = ResumableTransport(first, 60)
        await transport.send("a")
        second.stop()
        both = [
            asyncio.ensure_future(transport.resume(link, 0, lambda: "hello"))
            for link in (second, third)
        ]
        await settled(turns=20)
        second._open.set()
        await asyncio.gather(*both, return_exceptions=True)
        await transport.send("b")
        assert second.aborted
        assert third.got == ["hello", "a", "b"]

    run(test)


def test_close_and_abort_are_final():
    async def test():
        link = Link()
        transport = ResumableTransport(link, 60)
        assert transport.unsent_bytes() == 7
        await transport.close(1001, "bye")
        assert (link.closed, transport.is_over, transport.unsent_bytes()) == (1001, True, 0)
        other = Link()
        transport = ResumableTransport(other, 60)
        transport.abort()
        assert (other.aborted, transport.is_over) == (True, True)
        with pytest.raises(PeerGone):
            await transport.close(1001, "bye")

    run(test)
