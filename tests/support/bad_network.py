"""A network between a browser and a server that loses, delays and reorders datagrams."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

JITTER_SEED = 7
Address = tuple[str, int]


@dataclass(frozen=True)
class Weather:
    """What happens to datagrams, each way."""

    lose_every: int = 0
    """The n-th, 2n-th … datagram is lost; 0 loses none."""
    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Added to the delay, evenly spread from 0 to this; datagrams may overtake each other."""


CLEAR = Weather()


class BadNetwork:
    """Forwards between one peer, whoever speaks first, and `target`. Lives on one event loop."""

    def __init__(self, target: Address) -> None:
        self.weather = CLEAR
        self.lost = 0
        self.passed = 0
        self._target = target
        self._peer: Address | None = None
        self._random = random.Random(JITTER_SEED)
        self._counts = {way: itertools.count(1) for way in ("up", "down")}

    async def open(self) -> int:
        """Begin; return the port that stands for the target."""
        loop = asyncio.get_running_loop()
        address = ("127.0.0.1", 0)
        self._front, _ = await loop.create_datagram_endpoint(
            lambda: _Side(self._from_peer), local_addr=address
        )
        self._back, _ = await loop.create_datagram_endpoint(
            lambda: _Side(self._from_target), local_addr=address
        )
        return int(self._front.get_extra_info("sockname")[1])

    def close(self) -> None:
        self._front.close()
        self._back.close()

    def _from_peer(self, data: bytes, address: Address) -> None:
        self._peer = address
        self._pass("up", lambda: self._back.sendto(data, self._target))

    def _from_target(self, data: bytes, address: Address) -> None:
        if (peer := self._peer) is not None:
            self._pass("down", lambda: self._front.sendto(data, peer))

    def _pass(self, way: str, send: Callable[[], None]) -> None:
        weather = self.weather
        if weather.lose_every and next(self._counts[way]) % weather.lose_every == 0:
            self.lost += 1
            return
        self.passed += 1
        wait_s = weather.delay_s + self._random.uniform(0, weather.jitter_s)
        asyncio.get_running_loop().call_later(wait_s, send)


class _Side(asyncio.DatagramProtocol):
    def __init__(self, take: Callable[[bytes, Address], None]) -> None:
        self._take = take

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self._take(data, addr)


def without_candidates(sdp: str) -> str:
    """A description whose sender can be found only by what it sends."""
    return re.sub(r"a=(candidate:.*|end-of-candidates)\r\n", "", sdp)


def host_candidate(sdp: str) -> Address:
    """Address of the first candidate in a description."""
    found = re.search(r"a=candidate:\S+ 1 udp \d+ (\S+) (\d+) typ host", sdp, re.I)
    assert found is not None, sdp
    return found[1], int(found[2])


def through(sdp: str, port: int) -> str:
    """The description with one candidate: `port` on loopback."""
    line = f"a=candidate:1 1 udp 2130706431 127.0.0.1 {port} typ host\r\n"
    return without_candidates(sdp).replace("a=ice-ufrag", line + "a=ice-ufrag", 1)


@contextmanager
def bad_network(target: Address) -> Iterator[tuple[BadNetwork, int]]:
    """Run one in a thread of its own; yield it and its port."""
    network = BadNetwork(target)
    port: Future[int] = Future()
    stop: Future[Callable[[], object]] = Future()

    async def main() -> None:
        ended = asyncio.Event()
        stop.set_result(partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set))
        port.set_result(await network.open())
        await ended.wait()
        network.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="bad network")
    thread.start()
    try:
        yield network, port.result(10)
    finally:
        stop.result(10)()
        thread.join(10)
