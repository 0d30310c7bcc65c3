"""Our SIP endpoint against messages written byte by byte: what a strange telephone may send."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiosipua.message import SipRequest, SipResponse

from cosyvoice_stream.telephony.dtmf import ToneEvent
from cosyvoice_stream.telephony.rtp import RtpPacket
from cosyvoice_stream.telephony.sip_agent import UserAgent
from cosyvoice_stream.telephony.sip_call import SipCall
from cosyvoice_stream.telephony.sip_config import Account, parse_networks
from cosyvoice_stream.telephony.sip_messages import make_response, tag_of
from cosyvoice_stream.telephony.sip_signalling import CallFailed, CallState
from support.sip_peer import TIMEOUT_S, RawPeer, agent, nobody, raw_peer, symbols, taken, until
from support.sip_text import SDP, invite

pytestmark = pytest.mark.integration

BRANCHES = itertools.count()


class Telephone:
    """One call from a raw socket."""

    def __init__(self, peer: RawPeer, port: int) -> None:
        self.peer = peer
        self.port = port
        self.to_tag = ""
        self.number = 0

    def send(self, method: str, *, cseq: int | None = None, **changes: str) -> None:
        """Send the next request of the call."""
        if cseq is None:
            self.number += 1
            cseq = self.number
        preset = {
            "via": f"SIP/2.0/UDP 127.0.0.1:{self.peer.port};branch=z9hG4bKt{next(BRANCHES)};rport",
            "contact": f"<sip:phone@127.0.0.1:{self.peer.port}>",
            "to_tag": self.to_tag,
            "body": "",
        }
        self.peer.send(invite(cseq=f"{cseq} {method}", **(preset | changes)), self.port)

    def sdp(self, formats: str = "0 101", *attributes: str, port: int = 0) -> str:
        """A description with this socket as the target of audio."""
        text = SDP.format(host="127.0.0.1", port=port or self.peer.port)
        text = text.replace("RTP/AVP 0 101", f"RTP/AVP {formats}")
        return text + "".join(f"a={item}\r\n" for item in attributes)

    async def connect(self, sdp: str | None = None) -> SipResponse:
        """Call, and acknowledge the answer."""
        self.send("INVITE", body=self.sdp() if sdp is None else sdp)
        answer = await self.peer.response(200)
        self.to_tag = tag_of(answer, "to")
        self.send("ACK", cseq=self.number)
        return answer

    async def asks(self, method: str, status: int, **changes: str) -> SipResponse:
        """Send a request and wait for its answer."""
        self.send(method, **changes)
        return await self.peer.response(status)


@asynccontextmanager
async def telephone(made: UserAgent) -> AsyncIterator[Telephone]:
    async with raw_peer() as peer:
        yield Telephone(peer, made.port)


def only_call(made: UserAgent) -> SipCall:
    (call,) = made.calls.values()
    return call


def media_port(answer: SipResponse) -> int:
    found = re.search(r"m=audio (\d+)", answer.text)
    assert found is not None
    return int(found.group(1))


async def rtp(peer: RawPeer) -> RtpPacket:
    async with asyncio.timeout(TIMEOUT_S):
        return RtpPacket.parse(await peer.arrived.get())


@pytest.mark.parametrize(
    ("method", "changes", "status"),
    [
        ("OPTIONS", {}, 200),
        ("REGISTER", {}, 405),
        ("SUBSCRIBE", {}, 405),
        ("BYE", {}, 481),
        ("BYE", {"to_tag": "unknown"}, 481),
        ("INFO", {"to_tag": "unknown"}, 481),
        ("CANCEL", {}, 481),
        ("INVITE", {"more": "Require: 100rel\r\n"}, 420),
        ("INVITE", {"body": "v=0\r\nm=video 9 RTP/AVP 97\r\n"}, 488),
        ("INVITE", {"body": "v=0\r\nm=audio 9 RTP/AVP 18\r\n"}, 488),
        ("INVITE", {"body": "v=0\r\nm=audio 9 RTP/SAVP 0\r\n"}, 488),
        ("INVITE", {"body": "nonsense"}, 400),
        ("INVITE", {"content_type": "text/plain", "body": "hello"}, 400),
    ],
)
def test_what_is_no_call_is_answered_with_the_right_status(
    method: str, changes: dict[str, str], status: int
) -> None:
    async def run() -> None:
        async with agent(nobody) as made, telephone(made) as phone:
            answer = await phone.asks(method, status, **changes)
            assert tag_of(answer, "to")
            assert not made.calls

    asyncio.run(run())


def test_a_lost_answer_is_repeated_and_a_repeated_invite_is_one_call() -> None:
    async def run() -> None:
        async with agent(taken) as made, telephone(made) as phone:
            via = f"SIP/2.0/UDP 127.0.0.1:{phone.peer.port};branch=z9hG4bKsame;rport"
            for _ in range(3):
                phone.send("INVITE", cseq=1, via=via, body=phone.sdp())
            first = await phone.peer.response(200)
            second = await phone.peer.response(200)
            assert bytes(first) == bytes(second)
            assert len(made.calls) == 1

    asyncio.run(run())


def test_an_invite_that_came_two_ways_is_a_loop() -> None:
    async def run() -> None:
        async with agent(nobody) as made, telephone(made) as phone:
            phone.send("INVITE", cseq=1, body=phone.sdp())
            phone.send("INVITE", cseq=1, body=phone.sdp())
            await phone.peer.response(482)
            assert len(made.calls) == 1

    asyncio.run(run())


def test_a_call_without_an_offer_gets_ours_and_answers_in_its_ack() -> None:
    async def run() -> None:
        async with agent(taken, codecs=("g722", "pcma")) as made, telephone(made) as phone:
            phone.send("INVITE")
            answer = await phone.peer.response(200)
            assert "RTP/AVP 9 8 101" in answer.text
            phone.to_tag = tag_of(answer, "to")
            call = only_call(made)
            phone.send("ACK", cseq=1, body=phone.sdp("8 101"))
            await until(call, lambda: call.leg is not None and call.leg.agreed is not None)
            assert call.leg is not None
            assert call.leg.codec.kind.name == "pcma"

    asyncio.run(run())


def test_a_late_answer_that_cannot_be_ends_the_call() -> None:
    async def run() -> None:
        async with agent(taken) as made, telephone(made) as phone:
            phone.send("INVITE")
            phone.to_tag = tag_of(await phone.peer.response(200), "to")
            phone.send("ACK", cseq=1)
            await phone.peer.request("BYE")

    asyncio.run(run())


def test_cancel_ends_what_rings_with_487() -> None:
    async def run() -> None:
        async with agent(nobody) as made, telephone(made) as phone:
            via = f"SIP/2.0/UDP 127.0.0.1:{phone.peer.port};branch=z9hG4bKc;rport"
            phone.send("INVITE", cseq=1, via=via, body=phone.sdp())
            phone.send("CANCEL", cseq=1, via=via)
            answers = set()
            while len(answers) < 2:
                answer = await phone.peer.message()
                assert isinstance(answer, SipResponse)
                if answer.status_code >= 200:
                    cseq = answer.cseq
                    answers.add((answer.status_code, cseq.method if cseq else ""))
            assert answers == {(200, "CANCEL"), (487, "INVITE")}
            assert not made.calls

    asyncio.run(run())


def test_hold_by_reinvite_and_by_the_old_address_of_zeros() -> None:
    async def run() -> None:
        async with agent(taken) as made, telephone(made) as phone:
            first = await phone.connect()
            call = only_call(made)
            held = await phone.asks("INVITE", 200, body=phone.sdp("0 101", "sendonly"))
            phone.send("ACK", cseq=phone.number)
            assert "a=recvonly" in held.text
            assert call.on_hold
            versions = [
                int(text.split()[2]) for text in re.findall(r"o=(.*)", first.text + held.text)
            ]
            assert versions[1] == versions[0] + 1
            zeros = phone.sdp().replace("c=IN IP4 127.0.0.1", "c=IN IP4 0.0.0.0")
            await phone.asks("INVITE", 200, body=zeros)
            phone.send("ACK", cseq=phone.number)
            assert call.on_hold
            resumed = await phone.asks("INVITE", 200, body=phone.sdp())
            phone.send("ACK", cseq=phone.number)
            assert "a=sendrecv" in resumed.text
            assert not call.on_hold

    asyncio.run(run())


def test_an_offer_that_cannot_be_leaves_the_call_as_it_was() -> None:
    async def run() -> None:
        async with agent(taken) as made, telephone(made) as phone:
            await phone.connect()
            await phone.asks("INVITE", 488, body=phone.sdp("18"))
            phone.send("ACK", cseq=phone.number)
            await phone.asks("UPDATE", 488, body=phone.sdp("18"))
            assert only_call(made).state is CallState.TALKING
            changed = await phone.asks("UPDATE", 200, body=phone.sdp("8 101"))
            assert "RTP/AVP 8" in changed.text
            leg = only_call(made).leg
            assert leg is not None
            assert leg.codec.kind.name == "pcma"

    asyncio.run(run())


def test_requests_that_are_older_or_of_another_call_are_refused() -> None:
    async def run() -> None:
        async with agent(taken) as made, telephone(made) as phone:
            await phone.connect()
            await phone.asks("BYE", 481, from_tag="forged")
            phone.send("BYE", cseq=0)
            await phone.peer.response(500)
            await phone.asks("REFER", 405)
            await phone.asks("OPTIONS", 200)
            assert only_call(made).state is CallState.TALKING
            await phone.asks("BYE", 200)
            assert not made.calls

    asyncio.run(run())


@pytest.mark.parametrize(
    ("body", "kind", "symbol"),
    [
        ("Signal=5\r\nDuration=160\r\n", "application/dtmf-relay", "5"),
        ("Signal= *\r\n", "application/dtmf-relay", "*"),
        ("#", "application/dtmf", "#"),
        ("Signal=hello\r\n", "application/dtmf-relay", ""),
    ],
)
def test_keys_come_in_an_info_as_well(body: str, kind: str, symbol: str) -> None:
    async def run() -> None:
        async with agent(taken) as made, telephone(made) as phone:
            await phone.connect()
            await phone.asks("INFO", 200, body=body, content_type=kind)
            assert symbols(only_call(made).leg) == symbol

    asyncio.run(run())


def test_audio_follows_its_source_and_strangers_are_not_heard() -> None:
    async def run() -> None:
        async with (
            agent(taken) as made,
            telephone(made) as phone,
            raw_peer() as media,
            raw_peer("127.0.0.2") as stranger,
        ):
            answer = await phone.connect(phone.sdp(port=9))  # where nobody listens
            port, leg = media_port(answer), only_call(made).leg
            assert leg is not None
            stranger.send(RtpPacket(0, 1, 160, 5, b"\xff" * 160).serialize(), port)
            media.send(b"\x80\x00", port)
            media.send(RtpPacket(96, 1, 160, 7, b"\xff" * 160).serialize(), port)
            event = ToneEvent(3, 1280, end=True).serialize()
            media.send(RtpPacket(101, 1, 160, 7, event, marker=True).serialize(), port)
            for _ in range(6):  # a loop reads one datagram of each socket at a time
                await phone.asks("OPTIONS", 200)
            assert leg.remote == ("127.0.0.1", media.port)
            assert symbols(leg) == "3"
            assert leg.refused == 2
            for slot in range(2):
                leg.send(None, slot)
            first, second = await rtp(media), await rtp(media)
            assert (first.marker, second.marker) == (True, False)
            assert second.sequence == (first.sequence + 1) & 0xFFFF
            assert second.timestamp == (first.timestamp + 160) & 0xFFFF_FFFF
            assert set(first.payload) == {0xFF}
            assert not stranger.arrived.qsize()

    asyncio.run(run())


def test_addresses_off_the_list_and_scanners_get_no_answer() -> None:
    async def run() -> None:
        allow = parse_networks(["127.0.0.1"])
        async with (
            agent(taken, host="0.0.0.0", allow=allow) as made,
            telephone(made) as phone,
            raw_peer("127.0.0.2") as stranger,
        ):
            stranger.send(invite(), made.port)
            phone.send("INVITE", body=phone.sdp(), more="User-Agent: friendly-scanner\r\n")
            phone.peer.send(b"\r\n\r\n", made.port)
            phone.peer.send(b"nonsense", made.port)
            await phone.asks("OPTIONS", 200)
            assert not made.calls
            assert not stranger.arrived.qsize()

    asyncio.run(run())


def test_a_session_timer_that_runs_out_ends_the_call() -> None:
    async def run() -> None:
        timer = "Supported: timer\r\nSession-Expires: 1;refresher=uac\r\n"
        async with agent(taken) as made, telephone(made) as phone:
            phone.send("INVITE", body=phone.sdp(), more=timer)
            answer = await phone.peer.response(200)
            assert answer.headers.get_first("session-expires") == "1;refresher=uac"
            phone.to_tag = tag_of(answer, "to")
            phone.send("ACK", cseq=1)
            await phone.peer.request("BYE")

    asyncio.run(run())


def credentials_are_right(request: SipRequest, method: str) -> bool:
    """Check the digest of RFC 2617 as a server does."""
    header = request.headers.get_first("authorization") or request.headers.get_first(
        "proxy-authorization"
    )
    fields = dict(re.findall(r'(\w+)="?([^",]*)"?', header or ""))

    def digest(text: str) -> str:
        return hashlib.md5(text.encode()).hexdigest()

    one, two = digest("bot:house:secret"), digest(f"{method}:{fields['uri']}")
    middle = f"{fields['nonce']}:{fields['nc']}:{fields['cnonce']}:auth"
    return fields["response"] == digest(f"{one}:{middle}:{two}")


CHALLENGE = 'Digest realm="house", nonce="n{}", qop="auth", algorithm=MD5'


def test_registration_answers_its_challenge_and_is_taken_back_at_the_end() -> None:
    async def run() -> None:
        async with raw_peer() as registrar:
            account = Account(
                "sip:bot@house.example",
                "bot",
                "secret",
                registrar=f"sip:127.0.0.1:{registrar.port}",
            )

            async def grant(expires: str) -> SipRequest:
                request = await registrar.request("REGISTER")
                unauthorized = make_response(request, 403, to_tag="r")
                unauthorized.status_code, unauthorized.reason_phrase = 401, "Unauthorized"
                unauthorized.headers.set_single("WWW-Authenticate", CHALLENGE.format(1))
                registrar.send(bytes(unauthorized), made.port)
                request = await registrar.request("REGISTER")
                assert credentials_are_right(request, "REGISTER")
                assert request.headers.get_first("expires") == expires
                answer = make_response(request, 200, to_tag="r", headers={"Expires": "60"})
                registrar.send(bytes(answer), made.port)
                return request

            async with agent(nobody, account=account) as made:
                request = await grant("300")
                assert request.uri == "sip:house.example"
                contact = request.headers.get_first("contact")
                assert contact == f"<sip:bot@127.0.0.1:{made.port}>"
                registration = made.registration
                assert registration is not None
                while not registration.granted_s:
                    registration.changed.clear()
                    await registration.changed.wait()
                assert (registration.granted_s, registration.failure) == (60, None)
                leaving = asyncio.create_task(grant("0"))
            await leaving

    asyncio.run(run())


def test_a_call_answers_the_challenges_of_its_proxy_twice_and_no_more() -> None:
    async def run() -> None:
        async with raw_peer() as proxy:
            account = Account(
                "sip:bot@house.example",
                "bot",
                "secret",
                registrar=f"sip:127.0.0.1:{proxy.port}",
                register=False,
            )
            async with agent(nobody, account=account) as made:
                call = await made.place("sip:+4930123456@house.example")
                for number in range(3):
                    request = await proxy.request("INVITE")
                    assert request.uri == "sip:+4930123456@house.example"
                    if number:
                        assert credentials_are_right(request, "INVITE")
                    refusal = make_response(request, 403, to_tag="p")
                    refusal.status_code = 407
                    refusal.headers.set_single("Proxy-Authenticate", CHALLENGE.format(number))
                    proxy.send(bytes(refusal), made.port)
                    await proxy.request("ACK")
                with pytest.raises(CallFailed, match="407"):
                    await made.answered(call)

    asyncio.run(run())


def test_an_answer_that_crosses_our_cancel_is_acknowledged_and_hung_up() -> None:
    async def run() -> None:
        async with raw_peer() as callee, agent(nobody) as made:
            call = await made.place(f"sip:a@127.0.0.1:{callee.port}")
            request = await callee.request("INVITE")
            callee.send(bytes(make_response(request, 180, to_tag="c")), made.port)
            await until(call, call.changed.is_set)
            call.hang_up()
            await callee.request("CANCEL")
            sdp = SDP.format(host="127.0.0.1", port=4000)
            contact = f"sip:a@127.0.0.1:{callee.port}"
            answer = make_response(request, 200, to_tag="c", contact=contact, sdp=sdp)
            callee.send(bytes(answer), made.port)
            assert (await callee.request("ACK")).to_addr is not None
            bye = await callee.request("BYE")
            assert tag_of(bye, "to") == "c"
            callee.send(bytes(make_response(bye, 200)), made.port)

    asyncio.run(run())


def test_a_lost_invite_is_sent_again() -> None:
    async def run() -> None:
        async with raw_peer() as callee, agent(nobody) as made:
            call = await made.place(f"sip:a@127.0.0.1:{callee.port}")
            first = await callee.request("INVITE")
            again = await callee.request("INVITE")
            assert bytes(first) == bytes(again)
            callee.send(bytes(make_response(again, 603, to_tag="c")), made.port)
            await callee.request("ACK")
            with pytest.raises(CallFailed, match="603"):
                await made.answered(call)

    asyncio.run(run())
