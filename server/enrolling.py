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
