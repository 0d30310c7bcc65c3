"""Recordings that arrive over HTTP become voices; each attempt is counted."""

from __future__ import annotations

from pathlib import Path

from cosyvoice_stream.errors import EnrolmentRejected, VoiceStreamError
from cosyvoice_stream.server.services import Services
from cosyvoice_stream.server.voice_info import Enrolment, EnrolRequest


async def enrol_counted(services: Services, data: bytes | Path, wanted: EnrolRequest) -> Enrolment:
    """Make a voice from a recording; see `VoiceService.enrol_file` for the errors."""
    try:
        made = await services.voices.enrol_file(data, wanted)
    except VoiceStreamError as error:
        rejected = isinstance(error, EnrolmentRejected)
        services.metrics.enrolment("rejected" if rejected else "failed")
        raise
    services.metrics.enrolment("accepted")
    return made


async def enrol_once(
    services: Services, data: bytes | Path, transcript: str | None, owner: str | None
) -> str:
    """Make a voice for one utterance, for APIs that send a recording with each text.

    Whoever speaks with it hands `VoiceService.forget_temporary` to the response.

    Args:
        services: Of the application.
        data: The recording, or where it lies.
        transcript: What is said in it, if that is known.
        owner: `key_name` of the caller's key.

    Returns:
        Its id. See `VoiceService.enrol_file` for the errors.
    """
    wanted = EnrolRequest(transcript=transcript, persist=False, owner=owner)
    return (await enrol_counted(services, data, wanted)).voice.voice_id
