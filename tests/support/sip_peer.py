"""Other ends of SIP calls for tests: user agents of ours, and a socket that obeys the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from aiosipua.message import SipRequest, SipResponse

from cosyvoice_stream.telephony.rtp_leg import RtpLeg
from cosyvoice_stream.telephony.sip_agent import UserAgent
from cosyvoice_stream.telephony.sip_call import SipCall
from cosyvoice_stream.telephony.sip_config import SipConfig
from cosyvoice_stream.telephony.sip_messages import Message, parse_message
from cosyvoice_stream.types import Samples

TIMEOUT_S = 20.0
"""Only a hanging test gets near it."""


async def nobody(call: SipCall) -> None:
    """Let it ring until the caller gives up."""
    call.ring()
    await call.over.wait()


async def taken(call: SipCall) -> None:
    """Answer and stay."""
    await call.answer()
    await call.over.wait()


@asynccontextmanager
async def agent(
    handler: Callable[[SipCall], Awaitable[None]] = nobody, **config: Any
) -> AsyncIterator[UserAgent]:
    """A user agent on loopback, on a free port."""
    preset = {"port": 0, "rtp_ports": (20_000, 29_999), "goodbye_s": 0.2}
    async with UserAgent(SipConfig(**(preset | config)), handler) as made:
        yield made


async def until(call: SipCall, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds that the call's changes bring about."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            call.changed.clear()
            await call.changed.wait()


def tone(leg: RtpLeg, slot: int, hz: float = 440.0) -> Samples:
    """One frame of a tone."""
    count = leg.codec.frame_samples
    places = slot * count + np.arange(count)
    return (0.3 * np.sin(2 * np.pi * hz * places / leg.codec.sample_rate)).astype(np.float32)


async def stream(leg: RtpLeg, frames: int, hz: float = 440.0, first: int = 0) -> Samples:
    """Send a tone in real time and return what came meanwhile, and 0.1 s longer."""
    loop = asyncio.get_running_loop()
    began, heard = loop.time(), list[Samples]()
    step = leg.codec.ptime_ms / 1000
    for slot in range(frames + round(0.1 / step)):
        await asyncio.sleep(began + slot * step - loop.time())
        if slot < frames:
            leg.send(tone(leg, slot, hz), first + slot)
        heard += leg.receive(loop.time())
    return np.concatenate(heard) if heard else np.zeros(0, np.float32)


def symbols(leg: RtpLeg | None) -> str:
    """The keys that have arrived."""
    assert leg is not None
    return "".join(key.symbol for key in leg.take_keys())


def loudest_hz(samples: Samples, sample_rate: int) -> float:
    """Frequency of the strongest tone."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * sample_rate / len(samples))


class RawPeer(asyncio.DatagramProtocol):
    """A UDP socket that collects messages."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.host, self.port = transport.get_extra_info("sockname")[:2]

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.arrived.put_nowait(data)

    def send(self, data: bytes, port: int, host: str = "127.0.0.1") -> None:
        """Send to a port on loopback."""
        assert self.transport is not None
        self.transport.sendto(data, (host, port))

    async def message(self) -> Message:
        """Wait for the next SIP message."""
        async with asyncio.timeout(TIMEOUT_S):
            return parse_message(await self.arrived.get())

    async def response(self, status: int) -> SipResponse:
        """Wait for a response, passing over provisional ones."""
        while True:
            message = await self.message()
            assert isinstance(message, SipResponse), message
            if message.status_code == status:
                return message
            assert message.status_code < 200, message.status_code

    async def request(self, method: str) -> SipRequest:
        """Wait for a request."""
        message = await self.message()
        assert isinstance(message, SipRequest), message
        assert message.method == method
        return message


@asynccontextmanager
async def raw_peer(host: str = "127.0.0.1") -> AsyncIterator[RawPeer]:
    """A raw UDP socket."""
    transport, peer = await asyncio.get_running_loop().create_datagram_endpoint(
        RawPeer, local_addr=(host, 0)
    )
    try:
        yield peer
    finally:
        transport.close()
