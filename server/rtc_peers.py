"""All WebRTC peers of one application: how they connect, when they are gone, how they end.

A peer belongs to one task. Whatever ends it (the peer, the session, the network, the server), that
task closes the connection, and nothing else holds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import aiortc.sdp
from aiortc import (
    RTCBundlePolicy,
    RTCConfiguration,
    RTCPeerConnection,
    RTCSessionDescription,
)

from cosyvoice_stream.errors import EngineBusy, InvalidMessage, ShuttingDown, VoiceStreamError
from cosyvoice_stream.server.error_map import UnknownCall, log_internal
from cosyvoice_stream.server.rtc_ice import (
    IceServer,
    Reach,
    aiortc_servers,
    apply_reach,
    parse_ice_server,
    with_credentials,
)
from cosyvoice_stream.server.rtc_peer import Peer
from cosyvoice_stream.server.rtc_track import CallAudio, CallTrack, OpusPackets
from cosyvoice_stream.server.settings import Settings

logger = logging.getLogger(__name__)

MAX_SDP_BYTES: Final = 64 * 1024
_RETRY_S: Final = 5.0
_LOOK_S: Final = 1.0
"""Between two looks at whether packets still come."""


class Peers:
    """Makes peers and knows the live ones.

    Args:
        settings: How they are reached, how many there may be, when they are gone.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        first, last = settings.webrtc_ports or (0, 0)
        host = settings.host.strip("[]")
        self._reach = Reach(_bound_address(host), (first, last), settings.webrtc_public_address)
        self._ice = [
            parse_ice_server(text.get_secret_value()) for text in settings.webrtc_ice_servers
        ]
        self._peers: dict[str, Peer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    @property
    def live(self) -> int:
        """Peers that are not freed."""
        return len(self._tasks)

    def ice_servers(self) -> list[IceServer]:
        """What clients are told, with fresh credentials."""
        secret = self._settings.webrtc_turn_secret
        return with_credentials(self._ice, None if secret is None else secret.get_secret_value())

    def find(self, peer_id: str) -> Peer:
        """Find a live peer.

        Raises:
            UnknownCall: There is none of this id.
        """
        found = self._peers.get(peer_id)
        if found is None:
            raise UnknownCall
        return found

    def find_session(self, session_id: str) -> Peer:
        """Find the peer that a session talks to.

        Raises:
            UnknownCall: There is none, or it talks over a WebSocket.
        """
        for peer in self._peers.values():
            if peer.session_id == session_id and peer.audio is not None:
                return peer
        raise UnknownCall

    async def stats(self) -> list[dict[str, Any]]:
        """Of every live peer."""
        return [await peer.stats() for peer in tuple(self._peers.values())]

    async def answer(
        self,
        sdp: str,
        serve: Callable[[Peer], Awaitable[None]],
        *,
        speaks: bool,
        channel: bool,
        source: CallTrack | None = None,
    ) -> tuple[Peer, str]:
        """Take an offer, and serve the peer in a task of its own once it is connected.

        Args:
            sdp: The offer.
            serve: Ends when the peer is not needed any more; cancelled when it is gone.
            speaks: Whether it is sent audio.
            channel: Whether it has to open a data channel.
            source: The track that it hears, instead of one of its own.

        Returns:
            The peer, and the answer.

        Raises:
            EngineBusy: There are too many peers, or no UDP port is free.
            InvalidMessage: The offer cannot be read, or lacks something.
            ShuttingDown: The server is about to stop.
        """
        own_voice = speaks and source is None
        self._check_room()
        _check_offer(sdp, speaks=speaks, channel=channel)
        servers = [] if self._settings.webrtc_public_address else self.ice_servers()
        configuration = RTCConfiguration(
            aiortc_servers(servers), bundlePolicy=RTCBundlePolicy.MAX_BUNDLE
        )
        peer = Peer(
            RTCPeerConnection(configuration),
            audio=CallAudio() if own_voice else None,
            packets=self._packets() if own_voice else None,
            source=source,
        )
        task = asyncio.create_task(self._own(peer, serve, channel), name="call")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            answer = await self._negotiate(peer, sdp)
        except BaseException:
            peer.over.set()
            raise
        self._peers[peer.id] = peer
        return peer, answer

    async def close(self) -> None:
        """End all peers."""
        self._closing = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _check_room(self) -> None:
        if self._closing:
            raise ShuttingDown
        if self.live >= self._settings.max_calls:
            raise EngineBusy(_RETRY_S, "all calls are taken")

    def _packets(self) -> OpusPackets:
        return OpusPackets(self._settings.call_bit_rate, self._settings.call_loss_percent)

    async def _negotiate(self, peer: Peer, sdp: str) -> str:
        connection = peer.connection
        try:
            await connection.setRemoteDescription(RTCSessionDescription(sdp, "offer"))
            for transceiver in connection.getTransceivers():
                if transceiver.kind == "video":
                    transceiver.direction = "inactive"
            answer = await connection.createAnswer()
        except Exception as error:
            raise InvalidMessage(
                "the offer cannot be taken", how_to_fix="offer Opus, rtcp-mux, DTLS and BUNDLE"
            ) from error
        for transport in peer.transports():
            apply_reach(self._reach, transport.transport.iceGatherer._connection)
        await connection.setLocalDescription(answer)
        return connection.localDescription.sdp

    async def _own(
        self, peer: Peer, serve: Callable[[Peer], Awaitable[None]], channel: bool
    ) -> None:
        """Live as long as the peer, and free it."""
        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(self._work(peer, serve, channel), name="call work")
                ends = group.create_task(peer.over.wait(), name="call over")
                gone = group.create_task(self._until_gone(peer), name="call watch")
                await asyncio.wait((work, ends, gone), return_when=asyncio.FIRST_COMPLETED)
                for task in (work, ends, gone):
                    task.cancel()
        except* VoiceStreamError as failures:
            logger.info("a call ended: %s", failures.exceptions[0])
        except* Exception as failures:
            for failure in failures.exceptions:
                log_internal(logger, failure)
        finally:
            self._peers.pop(peer.id, None)
            await peer.close()

    async def _work(
        self, peer: Peer, serve: Callable[[Peer], Awaitable[None]], channel: bool
    ) -> None:
        try:
            async with asyncio.timeout(self._settings.call_connect_s):
                await peer.connected.wait()
                if channel:
                    await peer.channel
        except TimeoutError:
            logger.info("a peer did not connect in time")
            return
        await serve(peer)

    async def _until_gone(self, peer: Peer) -> None:
        """Return when nothing has come from the peer for too long.

        ICE would notice as well, after 30 s; this also sees a peer whose network stack goes on
        answering for a page that hangs.
        """
        await peer.connected.wait()
        count, since = -1, time.monotonic()
        while time.monotonic() - since < self._settings.call_gone_s:
            await asyncio.sleep(_LOOK_S)
            if (received := peer.received_packets()) != count:
                count, since = received, time.monotonic()
        logger.info("a peer is gone")


def _check_offer(sdp: str, *, speaks: bool, channel: bool) -> None:
    """Raise `InvalidMessage` for an offer that lacks what the call needs."""
    try:
        offer = aiortc.sdp.SessionDescription.parse(sdp)
    except Exception as error:
        # aiortc checks with assertions, lookups and conversions alike.
        raise InvalidMessage(
            "the offer is not a session description",
            how_to_fix="send the sdp of RTCPeerConnection.createOffer()",
        ) from error
    directions = [media.direction or "sendrecv" for media in offer.media if media.kind == "audio"]
    wanted = "recvonly" if speaks else "sendonly"
    if not any(direction in (wanted, "sendrecv") for direction in directions):
        raise InvalidMessage(
            f"the offer has no audio that is {wanted} or sendrecv",
            how_to_fix=f'call addTransceiver("audio", {{direction: "{wanted}"}}) first',
        )
    if channel and not any(media.kind == "application" for media in offer.media):
        raise InvalidMessage(
            "the offer has no data channel",
            how_to_fix="createDataChannel() before createOffer(); to listen only, use /whep",
        )


def _bound_address(host: str) -> str | None:
    """The one address to bind, or None for all."""
    if host == "localhost":
        return "127.0.0.1"
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        return None if address.is_unspecified else str(address)
    return None
