"""Calls: a real aiortc peer on loopback talks to a real server."""

from __future__ import annotations

import asyncio
import itertools
import re
import time

import numpy as np
import pytest

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server import webrtc
from cosyvoice_stream.server.rtc_track import FRAME_SAMPLES
from support.call_peer import (
    FRAME,
    RATE_HZ,
    CallPeer,
    Microphone,
    calling,
    is_loud,
    nobody_left,
    somebody,
)
from support.served import serving

pytestmark = pytest.mark.integration

BEEP_HZ = 220.0
WORD = "immediately"
LONG = " ".join([WORD] * 20)


def test_an_utterance_sounds_at_its_pitch_for_its_time_and_its_end_is_told(tmp_path):
    async def main():
        async with serving(tmp_path) as served, calling(served) as peer:
            peer.send(type="speak", id="a", text=WORD, voice="beep")
            started = await peer.message("utterance.started")
            assert (started["encoding"], started["sample_rate"]) == ("pcm_s16le", RATE_HZ)
            done = await peer.message("utterance.done")
            await peer.sound()
            await peer.silence()
            voiced = np.concatenate([f for _, f in peer.decoded if is_loud(f)])
            assert len(voiced) / RATE_HZ * 1000 == pytest.approx(done["audio_ms"], abs=60)
            middle = voiced[5 * FRAME : 20 * FRAME]
            spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
            assert np.argmax(spectrum) * RATE_HZ / len(middle) == pytest.approx(BEEP_HZ, abs=5)
        await nobody_left(served)

    asyncio.run(main())


def test_time_stamps_count_on_by_960_through_speech_gaps_and_speech(tmp_path):
    async def main():
        async with serving(tmp_path) as served, calling(served) as peer:
            peer.send(type="speak", id="a", text=WORD)
            await peer.message("utterance.done")
            gap_from = len(peer.packets)
            await peer.until(lambda: len(peer.packets) > gap_from + 50)
            peer.send(type="speak", id="b", text=WORD)
            await peer.message("utterance.done")
            steps = {(b - a) % 2**32 for (a, _), (b, _) in itertools.pairwise(peer.packets)}
            assert steps == {FRAME}
            (first, first_at), (last, last_at) = peer.packets[5], peer.packets[-1]
            assert (last - first) % 2**32 / RATE_HZ == pytest.approx(last_at - first_at, abs=0.05)

    asyncio.run(main())


def test_a_cancel_is_silence_within_60_ms_and_nothing_follows(tmp_path):
    async def main():
        async with serving(tmp_path) as served, calling(served) as peer:
            peer.send(type="speak", id="a", text=LONG)
            await peer.sound()
            peer.send(type="utterance.cancel")
            cancelled_at = time.monotonic()
            answer = await peer.message("utterance.cancelled")
            assert 0 < answer["sent_ms"] < 3000
            await peer.until(lambda: peer.packets[-1][1] > cancelled_at + 0.5)
            # The jitter buffer gives out frames in the order of packets, some frames later.
            loud = sum(is_loud(frame) for _, frame in peer.decoded)
            first_loud = next(i for i, (_, f) in enumerate(peer.decoded) if is_loud(f))
            offset = (peer.decoded[0][0] - 0) // FRAME
            last_packet = peer.packets[offset + first_loud + loud - 1]
            assert last_packet[1] - cancelled_at < 0.06

    asyncio.run(main())


def test_the_track_position_says_where_an_utterance_is_on_the_clock(tmp_path):
    async def main():
        async with serving(tmp_path) as served, calling(served) as peer:
            peer.send(type="speak", id="a", text=WORD)
            position = await peer.message("track.position")
            assert (position["id"], position["sample"]) == ("a", 0)
            await peer.sound()
            index = next(i for i, (_, f) in enumerate(peer.decoded) if is_loud(f))
            pts = peer.decoded[index][0] - peer.decoded[0][0]
            heard_at = (peer.packets[0][0] + pts) % 2**32
            assert abs(heard_at - position["rtp_timestamp"]) <= FRAME

    asyncio.run(main())


def test_speech_into_the_microphone_track_stops_the_server(tmp_path):
    async def main():
        loud = somebody()
        microphone = Microphone()
        async with serving(tmp_path) as served, calling(served, microphone) as peer:
            peer.send(type="vad.start")
            peer.send(type="speak", id="a", text=LONG)
            await peer.sound()
            microphone.say(loud[: 3 * RATE_HZ])
            assert (await peer.message("vad.event"))["state"] == "maybe_speech"
            assert (await peer.message("utterance.cancelled"))["reason"] == "speech"
            await peer.silence()
        await nobody_left(served)

    asyncio.run(main())


def test_a_voice_is_made_from_the_microphone_track(tmp_path):
    async def main():
        loud = somebody()
        microphone = Microphone()
        async with serving(tmp_path) as served, calling(served, microphone) as peer:
            peer.send(type="voice.begin", name="me")
            microphone.say(loud[: 5 * RATE_HZ])
            while (await peer.message("voice.progress"))["speech_ms"] < 3200:
                pass
            peer.send(type="voice.commit")
            assert (await peer.message("voice.ready", "voice.rejected"))["type"] == "voice.ready"

    asyncio.run(main())


def test_another_form_of_audio_is_refused_and_the_call_goes_on(tmp_path):
    async def main():
        async with serving(tmp_path) as served, calling(served) as peer:
            peer.send(type="speak", id="a", text=WORD, output={"encoding": "opus"})
            error = await peer.message("error")
            assert (error["code"], error["id"]) == ("unsupported_format", "a")
            peer.send(type="speak", id="b", text=WORD)
            await peer.message("utterance.done")

    asyncio.run(main())


@pytest.mark.parametrize("goodbye", ["close", "vanish"])
def test_a_peer_that_leaves_or_vanishes_is_freed(tmp_path, goodbye):
    async def main():
        gate = ChunkGate()
        engine = FakeEngine(gate=gate)
        async with serving(tmp_path, engine, call_gone_s=5) as served:
            peer = CallPeer()
            await peer.connect(served)
            peer.send(type="speak", id="a", text=LONG)
            await gate.allow(3)
            await peer.sound()
            if goodbye == "close":
                await peer.close()
            else:
                silence_sockets(peer)
            await nobody_left(served)
            assert engine.counts.live == 0
            await peer.close()

    asyncio.run(main())


def silence_sockets(peer):
    """Cut the network of a peer: nothing comes and nothing goes, and nobody is told."""
    ice = peer.connection.sctp.transport.transport._connection
    for protocol in ice._protocols:
        protocol.transport.close()


BROKEN = {
    "no description": (lambda sdp: "hello", "no audio that is recvonly"),
    "broken line": (
        lambda sdp: sdp.replace("m=audio ", "m=audio x"),
        "not a session description",
    ),
    "no data channel": (lambda sdp: sdp[: sdp.index("m=application")], "no data channel"),
    "no listener": (
        lambda sdp: sdp.replace("a=recvonly", "a=sendonly"),
        "no audio that is recvonly",
    ),
    "no known codec": (
        lambda sdp: re.sub(r"opus/48000/2|PCMU/8000|PCMA/8000|G722/8000", "x/1", sdp),
        "cannot be taken",
    ),
    "no credentials": (lambda sdp: re.sub(r"a=ice-pwd:.*\r\n", "", sdp), "cannot be taken"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_wrong_offer_gets_a_clear_error_and_costs_nothing(tmp_path, name):
    damage, expected = BROKEN[name]

    async def main():
        async with serving(tmp_path) as served:
            peer = CallPeer()
            sdp = damage(await peer.offer())
            reply = await served.post_json("/v1/webrtc/offer", {"type": "offer", "sdp": sdp})
            assert (reply.status, reply.error["code"]) == (400, "invalid_message")
            assert expected in reply.error["message"]
            assert reply.error["how_to_fix"]
            await nobody_left(served)
            await peer.close()

    asyncio.run(main())


def test_a_body_that_is_no_offer_is_refused(tmp_path):
    async def main():
        async with serving(tmp_path) as served:
            for body in (b"", b"[]", b'{"type": "answer", "sdp": ""}', b"\xff"):
                reply = await served.request("POST", "/v1/webrtc/offer", body)
                assert (reply.status, reply.error["code"]) == (400, "invalid_message")

    asyncio.run(main())


def test_the_number_of_calls_is_bounded_and_a_place_comes_back(tmp_path):
    async def main():
        async with serving(tmp_path, max_calls=1) as served:
            async with calling(served):
                late = CallPeer()
                offer = {"type": "offer", "sdp": await late.offer()}
                reply = await served.post_json("/v1/webrtc/offer", offer)
                assert (reply.status, reply.error["code"]) == (429, "busy")
                await late.close()
            await nobody_left(served)
            async with calling(served):
                pass

    asyncio.run(main())


def test_a_peer_that_never_connects_is_freed(tmp_path):
    async def main():
        async with serving(tmp_path, call_connect_s=0.5) as served:
            peer = CallPeer()
            offer = {"type": "offer", "sdp": await peer.offer()}
            assert (await served.post_json("/v1/webrtc/offer", offer)).status == 201
            await nobody_left(served)
            await peer.close()

    asyncio.run(main())


def test_keys_count_as_elsewhere(tmp_path):
    async def main():
        async with serving(tmp_path, api_keys=["k"]) as served:
            assert (await served.get("/v1/webrtc")).status == 401
            assert (await served.post_json("/v1/webrtc/offer", {})).status == 401
            async with calling(served, authorization="Bearer k") as peer:
                peer.send(type="speak", id="a", text=WORD)
                await peer.message("utterance.done")

    asyncio.run(main())


def test_ports_addresses_and_ice_servers_come_from_the_settings(tmp_path):
    async def main():
        options = {
            "webrtc_ports": "42000-42003",
            "webrtc_public_address": "203.0.113.7",
            "webrtc_ice_servers": "stun:stun.example:3478,turn:turn.example?transport=udp",
            "webrtc_turn_secret": "shared",
        }
        async with serving(tmp_path, **options) as served:
            info = (await served.get("/v1/webrtc")).json()
            assert info["available"]
            stun, turn = info["ice_servers"]
            assert stun == {"urls": "stun:stun.example:3478"}
            assert turn["urls"] == "turn:turn.example?transport=udp"
            assert turn["username"].endswith(":cosyvoice-stream")
            assert turn["credential"] not in ("", "shared")
            peer = CallPeer()
            offer = {"type": "offer", "sdp": await peer.offer()}
            answer = (await served.post_json("/v1/webrtc/offer", offer)).json()["sdp"]
            shown = re.findall(r"a=candidate:\S+ 1 udp \d+ (\S+) (\d+) typ host", answer)
            assert {address for address, _ in shown} == {"203.0.113.7"}
            assert all(42_000 <= int(port) <= 42_003 for _, port in shown)
            await peer.close()

    asyncio.run(main())


def test_no_free_port_is_a_busy_server(tmp_path):
    async def main():
        async with serving(tmp_path, webrtc_ports="42010-42010") as served:
            async with calling(served):
                late = CallPeer()
                offer = {"type": "offer", "sdp": await late.offer()}
                reply = await served.post_json("/v1/webrtc/offer", offer)
                assert (reply.status, reply.error["code"]) == (429, "busy")
                await late.close()
            await nobody_left(served)

    asyncio.run(main())


def test_statistics_of_a_call(tmp_path):
    async def main():
        async with serving(tmp_path) as served, calling(served) as peer:
            peer.send(type="speak", id="a", text=WORD)
            await peer.message("utterance.done")
            (call,) = (await served.get("/v1/webrtc/stats")).json()["calls"]
            assert call["state"] == "connected"
            assert call["session"].startswith("s-")
            assert call["packets_sent"] >= call["audio_ms"] / 20 >= 11 * 50 / 20
            assert call["underruns"] == 0

    asyncio.run(main())


def test_without_aiortc_the_server_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr(webrtc, "make_peers", lambda settings: None)
    monkeypatch.setattr("cosyvoice_stream.server.app.make_peers", lambda settings: None)

    async def main():
        async with serving(tmp_path) as served:
            assert (await served.get("/v1/webrtc")).json()["available"] is False
            reply = await served.post_json("/v1/webrtc/offer", {"type": "offer", "sdp": ""})
            assert (reply.status, reply.error["code"]) == (501, "not_available")
            assert "cosyvoice-stream[webrtc]" in reply.error["how_to_fix"]

    asyncio.run(main())


def test_the_server_stops_with_a_call_open(tmp_path):
    async def main():
        peer = CallPeer()
        async with serving(tmp_path) as served:
            await peer.connect(served)
            services = served.services
        assert services.peers.live == 0
        assert any(message.get("code") == "shutting_down" for message in peer.messages)
        await peer.close()

    asyncio.run(main())


def test_a_frame_of_the_track_is_20_ms():
    assert FRAME_SAMPLES == FRAME == RATE_HZ * 20 // 1000
