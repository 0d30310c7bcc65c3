"""WHEP and WHIP as their clients use them: bare HTTP, offers without candidates, PATCH, DELETE."""

from __future__ import annotations

import asyncio
import re

import numpy as np
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription

from support.call_peer import FRAME, CallPeer, Microphone, calling, is_loud, nobody_left, somebody
from support.served import serving, until

pytestmark = pytest.mark.integration

LONG = " ".join(["immediately"] * 20)


class Listener(CallPeer):
    """A peer without a data channel."""

    def __init__(self, microphone: Microphone | None = None) -> None:
        super().__init__(microphone)
        self.reply = None

    def _open_channel(self) -> None:
        pass

    async def join(self, served, path, *, trickle=False):
        sdp = await self.offer()
        candidates = re.findall(r"a=candidate:.*", sdp)
        if trickle:
            sdp = re.sub(r"a=candidate:.*\r\n|a=end-of-candidates\r\n", "", sdp)
        self.reply = await served.request(
            "POST", path, sdp.encode(), content_type="application/sdp"
        )
        assert self.reply.status == 201, self.reply.body
        answer = RTCSessionDescription(self.reply.body.decode(), "answer")
        await self.connection.setRemoteDescription(answer)
        if trickle:
            name = re.search(r"a=ice-ufrag:(\S+)", sdp)[1]
            fragment = "\r\n".join(
                [f"a=ice-ufrag:{name}", "m=audio 9 UDP/TLS/RTP/SAVPF 0", "a=mid:0"]
                + [line.strip() for line in candidates]
                + ["a=end-of-candidates", ""]
            )
            patched = await self.patch(served, fragment)
            assert patched.status == 204

    async def patch(self, served, fragment, **headers):
        return await served.request(
            "PATCH",
            self.reply.headers["location"],
            fragment.encode(),
            content_type="application/trickle-ice-sdpfrag",
            **headers,
        )


@pytest.mark.parametrize("trickle", [False, True])
def test_a_listener_hears_what_the_call_hears_and_says_good_bye(tmp_path, trickle):
    async def main():
        async with serving(tmp_path) as served, calling(served) as peer:
            listener = Listener()
            session = peer.messages[0]["session"]
            await listener.join(served, f"/whep/{session}", trickle=trickle)
            await listener.until(lambda: listener.packets)
            assert "application/trickle-ice-sdpfrag" in listener.reply.headers["accept-patch"]
            assert listener.reply.headers["etag"]
            peer.send(type="speak", id="a", text="immediately")
            await listener.sound()
            await listener.silence()
            stamps = np.diff([stamp for stamp, _ in listener.packets]) % 2**32
            assert set(stamps) == {FRAME}
            gone = await served.request("DELETE", listener.reply.headers["location"])
            assert gone.status == 200
            async with asyncio.timeout(10):
                while served.services.peers.live > 1:  # noqa: ASYNC110 - no event for it
                    await asyncio.sleep(0.01)
            assert (
                await served.request("DELETE", listener.reply.headers["location"])
            ).status == 404
            peer.send(type="speak", id="b", text="immediately")
            await peer.message("utterance.done")
            await listener.close()
        await nobody_left(served)

    asyncio.run(main())


def test_a_listener_goes_with_the_call(tmp_path):
    async def main():
        async with serving(tmp_path) as served:
            listener = Listener()
            async with calling(served) as peer:
                await listener.join(served, f"/whep/{peer.messages[0]['session']}")
                await listener.until(lambda: listener.packets)
            await nobody_left(served)
            await listener.close()

    asyncio.run(main())


def test_a_microphone_of_its_own_stops_the_speech_of_a_call(tmp_path):
    async def main():
        async with serving(tmp_path) as served, calling(served) as peer:
            microphone = Microphone()
            speaker = Listener(microphone)
            await speaker.join(served, f"/whip/{peer.messages[0]['session']}")
            peer.send(type="vad.start")
            peer.send(type="speak", id="a", text=LONG)
            await peer.sound()
            microphone.say(somebody()[: 3 * 48_000])
            assert (await peer.message("utterance.cancelled"))["reason"] == "speech"
            await speaker.close()
        await nobody_left(served)

    asyncio.run(main())


def test_wrong_requests_are_refused_as_the_protocols_say(tmp_path):
    async def main():
        async with serving(tmp_path) as served, calling(served) as peer:
            path = f"/whep/{peer.messages[0]['session']}"
            sdp = {"content_type": "application/sdp"}
            assert (await served.request("POST", path, b"v=0", content_type="text/x")).status == 415
            assert (await served.request("POST", path, b"v=0", **sdp)).status == 400
            assert (await served.request("POST", path, b"\xff", **sdp)).status == 400
            assert (await served.request("POST", "/whep/s-none", b"v=0", **sdp)).status == 404
            assert (await served.get(path)).status == 405
            listener = Listener()
            await listener.join(served, path)
            await listener.until(lambda: listener.packets)
            options = await served.request("OPTIONS", listener.reply.headers["location"])
            assert "PATCH" in options.headers["allow"]
            assert (await listener.patch(served, "a=ice-ufrag:other")).status == 422
            assert (await listener.patch(served, "a=candidate:x")).status == 400
            assert (await listener.patch(served, "a=ice-ufrag:new", if_match="*")).status == 405
            await listener.close()

    asyncio.run(main())


def test_keys_and_other_pages(tmp_path):
    async def main():
        async with serving(
            tmp_path, api_keys=["k"], allowed_origins=["https://a.example"]
        ) as served:
            reply = await served.request(
                "POST", "/whep/s-1", b"v=0", content_type="application/sdp"
            )
            assert reply.status == 401
            preflight = await served.request(
                "OPTIONS",
                "/whep/s-1/p",
                origin="https://a.example",
                access_control_request_method="PATCH",
            )
            assert "PATCH" in preflight.headers["access-control-allow-methods"]
            assert "If-Match" in preflight.headers["access-control-allow-headers"]
            answer = await served.request(
                "DELETE", "/whep/s-1/p", origin="https://a.example", authorization="Bearer k"
            )
            exposed = answer.headers["access-control-expose-headers"]
            assert all(name in exposed for name in ("Location", "Link", "ETag", "Accept-Patch"))

    asyncio.run(main())


def test_video_is_answered_but_not_taken(tmp_path):
    async def main():
        async with serving(tmp_path) as served, calling(served) as peer:
            other = RTCPeerConnection(RTCConfiguration(iceServers=[]))
            other.addTransceiver("audio", direction="recvonly")
            other.addTransceiver("video", direction="recvonly")
            await other.setLocalDescription(await other.createOffer())
            reply = await served.request(
                "POST",
                f"/whep/{peer.messages[0]['session']}",
                other.localDescription.sdp.encode(),
                content_type="application/sdp",
            )
            assert reply.status == 201
            video = reply.body.decode().partition("m=video")[2]
            assert "a=inactive" in video
            await until(lambda: bool(peer.decoded))
            assert not is_loud(peer.decoded[-1][1])
            await other.close()

    asyncio.run(main())
