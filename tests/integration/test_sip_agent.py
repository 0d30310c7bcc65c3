"""Calls between two of our SIP user agents, over real sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from cosyvoice_stream.errors import ConfigError, EngineBusy, InvalidMessage, InvalidState
from cosyvoice_stream.telephony.sdp import Direction
from cosyvoice_stream.telephony.sip_agent import UserAgent
from cosyvoice_stream.telephony.sip_call import SipCall
from cosyvoice_stream.telephony.sip_config import server_tls
from cosyvoice_stream.telephony.sip_signalling import CallFailed, CallState
from cosyvoice_stream.telephony.sip_sockets import SipSockets
from support.sip_peer import agent, loudest_hz, nobody, stream, symbols, taken, tone, until

pytestmark = pytest.mark.integration


class Answering:
    """A handler that answers and keeps the call for the test to look at."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[SipCall] = asyncio.Queue()

    async def __call__(self, call: SipCall) -> None:
        call.ring()
        await call.answer()
        self.calls.put_nowait(call)
        await call.over.wait()


async def connected(
    caller: UserAgent, callee: UserAgent, answering: Answering, transport: str = ""
) -> tuple[SipCall, SipCall]:
    """Place a call and wait until both ends have it."""
    port = callee.tls_port if transport == "tls" else callee.port
    suffix = f";transport={transport}" if transport else ""
    call = await caller.place(f"sip:bot@127.0.0.1:{port}{suffix}")
    await caller.answered(call)
    return call, await answering.calls.get()


@pytest.mark.parametrize("codec", ["pcma", "pcmu", "g722", "opus", "l16-16k"])
def test_both_ends_hear_each_other(codec: str) -> None:
    async def run() -> None:
        answering = Answering()
        async with agent() as caller, agent(answering, codecs=(codec,)) as callee:
            ours, theirs = await connected(caller, callee, answering)
            assert ours.leg is not None
            assert theirs.leg is not None
            heard = await asyncio.gather(stream(ours.leg, 40, 440.0), stream(theirs.leg, 40, 660.0))
            rate = theirs.leg.codec.sample_rate
            for samples, hz in zip(heard, (660.0, 440.0), strict=True):
                assert len(samples) / rate == pytest.approx(0.8, abs=0.06)
                assert loudest_hz(samples, rate) == pytest.approx(hz, abs=5)
            assert theirs.leg.reception is not None
            assert (theirs.leg.reception.received, theirs.leg.reception.lost) == (40, 0)
            ours.hang_up()
            await until(theirs, theirs.over.is_set)
            assert theirs.reason == "hung up by the other end"
        assert not caller.calls
        assert not callee.calls

    asyncio.run(run())


def test_keys_go_both_ways_and_each_arrives_once() -> None:
    async def run() -> None:
        answering = Answering()
        async with agent() as caller, agent(answering) as callee:
            ours, theirs = await connected(caller, callee, answering)
            assert ours.leg is not None
            assert theirs.leg is not None
            ours.leg.press("12#")
            theirs.leg.press("9*")
            await asyncio.gather(stream(ours.leg, 50), stream(theirs.leg, 50))
            assert symbols(theirs.leg) == "12#"
            assert symbols(ours.leg) == "9*"
            assert symbols(theirs.leg) == ""

    asyncio.run(run())


def test_the_callee_can_hang_up() -> None:
    async def run() -> None:
        async def brief(call: SipCall) -> None:
            await call.answer()

        async with agent() as caller, agent(brief) as callee:
            call = await caller.place(f"sip:bot@127.0.0.1:{callee.port}")
            await until(call, call.over.is_set)
            assert call.reason == "hung up by the other end"

    asyncio.run(run())


def test_a_refused_call_says_with_what() -> None:
    async def run() -> None:
        async def busy(call: SipCall) -> None:
            call.refuse(486)

        async with agent() as caller, agent(busy) as callee:
            call = await caller.place(f"sip:bot@127.0.0.1:{callee.port}")
            with pytest.raises(CallFailed, match="answered 486") as failed:
                await caller.answered(call)
            assert failed.value.status == 486
            assert call.reason == "refused with 486"

    asyncio.run(run())


def test_a_call_can_be_given_up_while_it_rings() -> None:
    async def run() -> None:
        ringing: asyncio.Queue[SipCall] = asyncio.Queue()

        async def rings(call: SipCall) -> None:
            ringing.put_nowait(call)
            await nobody(call)

        async with agent() as caller, agent(rings) as callee:
            call = await caller.place(f"sip:bot@127.0.0.1:{callee.port}")
            theirs = await ringing.get()
            call.hang_up()
            await until(theirs, theirs.over.is_set)
            assert theirs.reason == "cancelled"
            with pytest.raises(CallFailed):
                await caller.answered(call)

    asyncio.run(run())


def test_a_call_that_nobody_answers_is_given_up() -> None:
    async def run() -> None:
        async with agent(ring_s=0.3) as caller, agent(nobody) as callee:
            call = await caller.place(f"sip:bot@127.0.0.1:{callee.port}")
            with pytest.raises(CallFailed):
                await caller.answered(call)
            assert call.reason == "nobody answered"

    asyncio.run(run())


def test_media_may_flow_before_the_call_is_answered() -> None:
    async def run() -> None:
        told = asyncio.Event()

        async def announces(call: SipCall) -> None:
            leg = await call.progress()
            await stream(leg, 25, 500.0)
            told.set()
            await call.answer()
            await call.over.wait()

        async with agent() as caller, agent(announces) as callee:
            call = await caller.place(f"sip:bot@127.0.0.1:{callee.port}")
            await until(call, lambda: call.state is CallState.EARLY)
            assert call.leg is not None
            heard = await stream(call.leg, 25)
            assert loudest_hz(heard, call.leg.codec.sample_rate) == pytest.approx(500, abs=5)
            await told.wait()
            await caller.answered(call)
            assert call.state is CallState.TALKING

    asyncio.run(run())


def test_hold_and_resume() -> None:
    async def run() -> None:
        answering = Answering()
        async with agent() as caller, agent(answering) as callee:
            ours, theirs = await connected(caller, callee, answering)
            assert ours.leg is not None
            assert theirs.leg is not None
            await theirs.hold()
            assert ours.on_hold
            assert ours.leg.agreed is not None
            assert ours.leg.agreed.direction is Direction.RECVONLY
            await stream(ours.leg, 5)
            assert ours.leg.sent == 0
            await theirs.hold(False)
            assert not ours.on_hold
            await ours.hold()
            assert theirs.on_hold
            await ours.hold(False)
            await stream(ours.leg, 5)
            assert ours.leg.sent == 5

    asyncio.run(run())


def test_a_change_needs_an_answered_call_and_one_at_a_time() -> None:
    async def run() -> None:
        answering = Answering()
        async with agent() as caller, agent(answering) as callee:
            ours, theirs = await connected(caller, callee, answering)
            first = asyncio.create_task(ours.hold())
            await asyncio.sleep(0)
            with pytest.raises(InvalidState, match="under way"):
                await ours.hold()
            await first
            with pytest.raises(CallFailed, match="405"):
                await ours.transfer("sip:other@127.0.0.1")
            ours.hang_up()
            with pytest.raises(InvalidState, match="ended"):
                await ours.hold()
            with pytest.raises(InvalidState, match="talking|ended"):
                await theirs.answer()

    asyncio.run(run())


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that nobody else trusts."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
        + ["-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )
    return cert, key


def test_calls_over_tcp() -> None:
    async def run() -> None:
        answering = Answering()
        async with agent() as caller, agent(answering) as callee:
            ours, theirs = await connected(caller, callee, answering, "tcp")
            assert theirs.dialog.flow.transport == "TCP"
            await theirs.hold()
            theirs.hang_up()
            await until(ours, ours.over.is_set)

    asyncio.run(run())


def test_calls_over_tls_with_a_certificate_that_is_checked(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(cert))

    async def run() -> None:
        answering = Answering()
        tls = {"tls": server_tls(cert, key), "tls_port": 0}
        async with (
            agent(client_tls=trusting) as caller,
            agent(answering, **tls) as callee,
            agent() as stranger,
        ):
            ours, theirs = await connected(caller, callee, answering, "tls")
            assert theirs.dialog.flow.transport == "TLS"
            ours.hang_up()
            await until(theirs, theirs.over.is_set)
            untrusting = await stranger.place(f"sips:bot@127.0.0.1:{callee.tls_port}")
            with pytest.raises(CallFailed):
                await stranger.answered(untrusting)
            assert not callee.calls

    asyncio.run(run())


def test_no_more_calls_than_allowed() -> None:
    async def run() -> None:
        async with agent() as caller, agent(taken, max_calls_per_host=1) as callee:
            target = f"sip:bot@127.0.0.1:{callee.port}"
            await caller.answered(await caller.place(target))
            with pytest.raises(CallFailed, match="486"):
                await caller.answered(await caller.place(target))
        async with agent(max_calls=1) as caller, agent(taken) as callee:
            target = f"sip:bot@127.0.0.1:{callee.port}"
            await caller.place(target)
            with pytest.raises(EngineBusy, match="as many calls"):
                await caller.place(target)
        async with agent(rtp_ports=(28_000, 28_001)) as caller, agent(taken) as callee:
            target = f"sip:bot@127.0.0.1:{callee.port}"
            first = await caller.place(target)
            with pytest.raises(EngineBusy, match="no RTP port"):
                await caller.place(target)
            first.hang_up()
            await caller.place(target)

    asyncio.run(run())


def test_a_call_without_audio_and_one_that_lasts_too_long_are_hung_up() -> None:
    async def run() -> None:
        async with agent() as caller, agent(taken, silence_s=0.3) as callee:
            call = await caller.place(f"sip:bot@127.0.0.1:{callee.port}")
            await until(call, call.over.is_set)
        answering = Answering()
        async with agent() as caller, agent(answering, max_call_s=0.3) as callee:
            ours, theirs = await connected(caller, callee, answering)
            assert ours.leg is not None
            await stream(ours.leg, 20)
            await until(theirs, theirs.over.is_set)
            assert theirs.reason == "too long"

    asyncio.run(run())


def test_stopping_hangs_up() -> None:
    async def run() -> None:
        answering = Answering()
        async with agent() as caller:
            async with agent(answering) as callee:
                ours, theirs = await connected(caller, callee, answering)
            assert theirs.reason == "the server stops"
            await until(ours, ours.over.is_set)

    asyncio.run(run())


def test_a_handler_that_fails_ends_its_call_only() -> None:
    async def run() -> None:
        async def fails(call: SipCall) -> None:
            await call.answer()
            raise InvalidMessage("not today")

        async with agent() as caller, agent(fails) as callee:
            for _ in range(2):
                call = await caller.place(f"sip:bot@127.0.0.1:{callee.port}")
                await until(call, call.over.is_set)

    asyncio.run(run())


def test_a_port_that_is_taken_is_named() -> None:
    async def run() -> None:
        async with agent() as first:
            with pytest.raises(ConfigError, match=f"port {first.port}"):
                async with agent(port=first.port):
                    pass

    asyncio.run(run())


def test_a_free_port_is_free_in_both_transports(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken_tcp:
            offered = [taken_tcp.getsockname()[1]]
            open_udp = SipSockets.open_udp

            async def offer(self: SipSockets, host: str, port: int) -> int:
                return await open_udp(self, host, offered.pop() if offered else port)

            monkeypatch.setattr(SipSockets, "open_udp", offer)
            async with agent() as first:
                assert first.port != taken_tcp.getsockname()[1]
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
                    udp.bind(taken_tcp.getsockname())

    asyncio.run(run())


def test_no_number_no_key_and_no_address_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def run() -> None:
        answering = Answering()
        async with agent(user="+4930123456") as caller, agent(answering) as callee:
            call = await caller.place(f"sip:+4940987654@127.0.0.1:{callee.port}")
            await caller.answered(call)
            theirs = await answering.calls.get()
            assert call.leg is not None
            call.leg.press("4711")
            call.leg.send(tone(call.leg, 0), 0)
            await stream(call.leg, 60)
            assert symbols(theirs.leg) == "4711"
            call.hang_up()
            await until(theirs, theirs.over.is_set)

    asyncio.run(run())
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("cosyvoice_stream")]
    assert len(ours) == 4
    for private in ("4930123456", "4940987654", "4711", "sip:"):
        assert not any(private in line for line in (*ours, caplog.text))
