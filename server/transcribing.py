"""The transcript of a reference recording: given by the caller, heard by the server, or missing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from cosyvoice_stream.server.voice_info import EnrolRequest

if TYPE_CHECKING:
    from cosyvoice_stream.asr import Transcriber
    from cosyvoice_stream.reference import PreparedReference


def settle_transcript(
    prepared: PreparedReference,
    request: EnrolRequest,
    transcriber: Transcriber | None,
    kind: Literal["adapted", "cloned"],
) -> tuple[PreparedReference, EnrolRequest]:
    """Choose the transcript, and say so in the report. Blocks; call it in a thread.

    Args:
        prepared: The part of the recording that is used.
        request: May hold a transcript.
        transcriber: Hears what is said, if there is one.
        kind: Of the voice: an adapted one needs no transcript, and nobody listens for it.
    """
    from cosyvoice_stream.transcripts import settle

    if kind == "adapted":
        return prepared, request
    heard = None if transcriber is None else transcriber.transcribe(prepared.reference)
    transcript, item = settle(request.transcript, heard)
    if item is not None:
        quality = replace(prepared.quality, items=(*prepared.quality.items, item))
        prepared = replace(prepared, quality=quality, warnings=quality.warnings)
    return prepared, replace(request, transcript=transcript)
