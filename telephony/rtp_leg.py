"""The media of one call: two UDP ports, one stream of samples each way, keys beside them.

::

    send(samples)  ──► codec ──► packet ──► the other end          one every ptime, silence included
    receive(now)   ◄── codec ◄── jitter buffer ◄── source check ◄──
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from collections import deque
from collections.abc import Iterable
from typing import Final

import numpy as np

from cosyvoice_stream.errors import EngineBusy, InvalidMessage
from cosyvoice_stream.telephony.concealment import Concealer
from cosyvoice_stream.telephony.dtmf import Key, KeyReceiver, KeySender
from cosyvoice_stream.telephony.jitter import Frame, JitterBuffer
from cosyvoice_stream.telephony.rtcp import INTERVAL_S, Reception, goodbye, sender_report
from cosyvoice_stream.telephony.rtp import RtpPacket, add_sequence, add_ticks, is_rtcp
from cosyvoice_stream.telephony.rtp_codecs import PacketCodec, make_codec
from cosyvoice_stream.telephony.sdp_answer import Agreed
from cosyvoice_stream.types import Samples

MAX_KEYS: Final = 64
"""Keys that wait to be taken; the oldest are dropped."""


class RtpPorts:
    """Hands pairs of ports out: an even one for RTP, the next for RTCP.

    Args:
        first: Lowest port.
        last: Highest port.
    """

    def __init__(self, first: int, last: int) -> None:
        self._free = list(range(first + first % 2, last, 2))
        random.shuffle(self._free)

    async def open(self, host: str) -> RtpLeg:
        """Bind a pair.

        Args:
            host: Our address.

        Raises:
            EngineBusy: No pair is free.
        """
        loop = asyncio.get_running_loop()
        for _ in range(len(self._free)):
            port = self._free.pop()
            leg = RtpLeg(port, self)
            try:
                media, _ = await loop.create_datagram_endpoint(
                    lambda leg=leg: _Receiver(leg),  # type: ignore[misc]
                    local_addr=(host, port),
                )
            except OSError:
                self._free.insert(0, port)
                continue
            try:
                control, _ = await loop.create_datagram_endpoint(
                    lambda leg=leg: _Control(leg),  # type: ignore[misc]
                    local_addr=(host, port + 1),
                )
            except OSError:
                media.close()
                self._free.insert(0, port)
                continue
            leg.bound(media, control)
            return leg
        raise EngineBusy(1.0, "no RTP port is free")

    def give_back(self, port: int) -> None:
        """The pair is closed; it comes last, so that stragglers of the old call find nobody."""
        self._free.insert(0, port)


class _Receiver(asyncio.DatagramProtocol):
    def __init__(self, leg: RtpLeg) -> None:
        self._leg = leg

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self._leg.take(data, (address[0], address[1]), asyncio.get_running_loop().time())


class _Control(asyncio.DatagramProtocol):
    """RTCP of the other end is not read: nothing here would change with it."""

    def __init__(self, leg: RtpLeg) -> None:
        self._leg = leg

    def connection_lost(self, error: Exception | None) -> None:
        self._leg.unbound()


class RtpLeg:
    """One call's media, from `RtpPorts.open` to `close`. Used on the event loop only.

    Attributes:
        port: Of our RTP.
        agreed: What holds at present; None before `agree`.
        agreed_at: Since when it holds, on the loop's clock.
        heard_at: When the last packet came, on the loop's clock.
        sent: Packets that went out.
        refused: Datagrams that were no RTP or came from elsewhere.
    """

    def __init__(self, port: int, ports: RtpPorts) -> None:
        self.port = port
        self.agreed: Agreed | None = None
        self.agreed_at = 0.0
        self.heard_at: float | None = None
        self.sent = 0
        self.refused = 0
        self.reception: Reception | None = None
        self._ports = ports
        self._media: asyncio.DatagramTransport | None = None
        self._control: asyncio.DatagramTransport | None = None
        self._ssrc = secrets.randbits(32)
        self._sequence = secrets.randbits(16)
        self._base = secrets.randbits(32)
        self._cname = secrets.token_hex(8)
        self._sent_bytes = 0
        self._talking = False
        self._report_at = 0.0
        self._sources: frozenset[str] = frozenset()
        self._latched: tuple[str, int] | None = None
        self._keys: deque[Key] = deque(maxlen=MAX_KEYS)

    def bound(self, media: asyncio.DatagramTransport, control: asyncio.DatagramTransport) -> None:
        """The sockets stand."""
        self._media, self._control = media, control

    def agree(self, agreed: Agreed, sources: Iterable[str] = ()) -> None:
        """Go on with what was negotiated, at the start of a call and at each change.

        Args:
            agreed: Codec, remote address, direction.
            sources: Addresses, besides the one that was agreed on, from which packets may come:
                that of the signalling, where the other end does not know its own.
        """
        before, self.agreed = self.agreed, agreed
        self.agreed_at = asyncio.get_running_loop().time()
        self._sources = frozenset({agreed.host, *sources} - {""})
        if before is None or (before.host, before.port) != (agreed.host, agreed.port):
            self._latched = None
        same = before is not None and (
            (before.codec, before.payload_type, before.ptime_ms, before.dtmf_clock_hz)
            == (agreed.codec, agreed.payload_type, agreed.ptime_ms, agreed.dtmf_clock_hz)
        )
        if same:
            return
        self._codec = make_codec(agreed.codec, agreed.ptime_ms)
        self._jitter = JitterBuffer(agreed.codec.clock_hz, self._codec.ticks_of)
        self._concealer = Concealer(self._codec.sample_rate)
        self._pressed = KeyReceiver(agreed.dtmf_clock_hz)
        self._presses = KeySender(agreed.dtmf_clock_hz, agreed.ptime_ms)
        self._silence = np.zeros(self._codec.frame_samples, np.float32)
        self._talking = False
        self.reception = None

    @property
    def codec(self) -> PacketCodec:
        """What was agreed on; only after `agree`."""
        return self._codec

    @property
    def remote(self) -> tuple[str, int] | None:
        """Where packets go: where they come from, before that what the description says."""
        if self._latched is not None:
            return self._latched
        agreed = self.agreed
        return (agreed.host, agreed.port) if agreed is not None and agreed.host else None

    @property
    def jitter(self) -> JitterBuffer:
        """What orders the packets; only after `agree`."""
        return self._jitter

    def press(self, symbols: str) -> None:
        """Send keys, instead of audio while they last.

        Raises:
            InvalidMessage: There is no such key, or the other end takes none.
            LimitExceeded: Too many wait.
        """
        if self.agreed is None or self.agreed.dtmf_payload_type is None:
            raise InvalidMessage("the other end takes no telephone events")
        self._presses.press(symbols)

    def send(self, samples: Samples | None, slot: int) -> None:
        """Send one frame; nothing goes out while the other end holds the call.

        Args:
            samples: `codec.frame_samples` of them; None is silence.
            slot: Frames of the call before this one, those that were left out included.
        """
        agreed = self.agreed
        if agreed is None:
            return
        timestamp = add_ticks(self._base, slot * self._codec.frame_ticks)
        if not agreed.direction.sends or self.remote is None:
            self._talking = False
            return
        payload = self._codec.encode(self._silence if samples is None else samples)
        event = self._presses.next(timestamp)
        if event is not None and agreed.dtmf_payload_type is not None:
            self._emit(agreed.dtmf_payload_type, event.payload, event.timestamp, event.marker)
            self._talking = False
        elif payload:
            self._emit(agreed.payload_type, payload, timestamp, not self._talking)
            self._talking = True
        self._report(timestamp)

    def receive(self, now: float) -> list[Samples]:
        """Take what is due of the other end's audio, at `codec.sample_rate`, gaps filled.

        Args:
            now: On the loop's clock.
        """
        if self.agreed is None:
            return []
        self._keys.extend(self._pressed.poll(now))
        return [samples for frame in self._jitter.due(now) if len(samples := self._decode(frame))]

    def take_keys(self) -> list[Key]:
        """Take the keys that were pressed."""
        keys = list(self._keys)
        self._keys.clear()
        return keys

    def add_key(self, key: Key) -> None:
        """A key came another way, in a SIP INFO."""
        self._keys.append(key)

    def take(self, data: bytes, source: tuple[str, int], now: float) -> None:
        """Take a datagram."""
        agreed = self.agreed
        if agreed is None or is_rtcp(data) or not self._is_from_peer(source):
            self.refused += not is_rtcp(data)
            return
        try:
            packet = RtpPacket.parse(data)
            audio = packet.payload_type == agreed.payload_type
            if audio:
                self._count(packet, source, now)
                self._jitter.push(packet, now)
            elif packet.payload_type == agreed.dtmf_payload_type:
                self._count(packet, source, now, timed=False)
                self._keys.extend(self._pressed.push(packet, now))
        except InvalidMessage:
            self.refused += 1

    def close(self) -> None:
        """End the stream and free the ports; safe to call twice."""
        if self._media is None or self._control is None:
            return
        if self.sent:
            self._send_control(goodbye(self._ssrc, self._cname))
        self._media.close()
        self._control.close()
        self._media = self._control = None

    def unbound(self) -> None:
        """Both sockets are closed."""
        self._ports.give_back(self.port)

    def _is_from_peer(self, source: tuple[str, int]) -> bool:
        if self._latched is not None:
            return source == self._latched
        return source[0] in self._sources

    def _count(
        self, packet: RtpPacket, source: tuple[str, int], now: float, *, timed: bool = True
    ) -> None:
        assert self.agreed is not None
        if self.reception is None or self.reception.ssrc != packet.ssrc:
            self.reception = Reception(packet.ssrc, self.agreed.codec.clock_hz)
            self._jitter.reset()
            self._pressed.reset()
        self._latched = source
        self.heard_at = now
        self.reception.add(packet, now, timed=timed)

    def _decode(self, frame: Frame) -> Samples:
        if frame.payload is not None:
            with contextlib.suppress(InvalidMessage):
                return self._concealer.hear(self._codec.decode(frame.payload))
        return self._concealer.conceal(self._codec.samples_of(frame.ticks))

    def _emit(self, payload_type: int, payload: bytes, timestamp: int, marker: bool) -> None:
        if self._media is None or self.remote is None:
            return
        packet = RtpPacket(payload_type, self._sequence, timestamp, self._ssrc, payload, marker)
        self._media.sendto(packet.serialize(), self.remote)
        self._sequence = add_sequence(self._sequence)
        self.sent += 1
        self._sent_bytes += len(payload)

    def _report(self, timestamp: int) -> None:
        now = time.monotonic()
        if now < self._report_at:
            return
        self._report_at = now + INTERVAL_S * random.uniform(0.5, 1.5)
        self._send_control(
            sender_report(
                self._ssrc,
                unix_s=time.time(),
                timestamp=timestamp,
                packets=self.sent,
                payload_bytes=self._sent_bytes,
                cname=self._cname,
                block=self.reception.report() if self.reception is not None else None,
            )
        )

    def _send_control(self, data: bytes) -> None:
        if self._control is None or self.remote is None or self.agreed is None:
            return
        host, port = self.remote
        known = self._latched is None or port == self.agreed.port
        target = self.agreed.rtcp_port if known else port + 1
        self._control.sendto(data, (host, min(target, 65_535)))
