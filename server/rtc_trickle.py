"""Candidates that come after the offer, as an SDP fragment (RFC 8840)."""

from __future__ import annotations

import re

import aiortc.sdp
from aiortc import RTCPeerConnection

from cosyvoice_stream.errors import InvalidMessage


async def add_candidates(connection: RTCPeerConnection, fragment: str) -> bool:
    """Add the candidates of a fragment.

    Args:
        connection: That has taken the offer.
        fragment: ``application/trickle-ice-sdpfrag``.

    Returns:
        False where the fragment belongs to another ICE session than the offer.

    Raises:
        InvalidMessage: A candidate cannot be read.
    """
    offer = aiortc.sdp.SessionDescription.parse(connection.remoteDescription.sdp)
    names = {media.ice.usernameFragment for media in offer.media if media.ice is not None}
    mid = offer.media[0].rtp.muxId
    for line in re.split(r"\r?\n", fragment):
        kind, _, value = line.removeprefix("a=").partition(":")
        if kind == "ice-ufrag" and value.strip() not in names:
            return False
        if kind == "mid":
            mid = value.strip()
        elif kind == "candidate":
            try:
                candidate = aiortc.sdp.candidate_from_sdp(value)
            except Exception as error:
                raise InvalidMessage("a candidate cannot be read") from error
            candidate.sdpMid = mid
            await connection.addIceCandidate(candidate)
        elif kind == "end-of-candidates":
            await connection.addIceCandidate(None)
    return True
