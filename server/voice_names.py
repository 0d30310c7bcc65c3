"""Which of our voices a client of another API means.

In this order: a name that the setting `VOICE_ALIASES` gives to a voice; the id of a voice; a name
that the other service has built in, or none at all, which stand for the default voice; the name of
one of our voices.
"""

from __future__ import annotations

from collections.abc import Collection

from cosyvoice_stream.errors import VoiceNotFound
from cosyvoice_stream.server.services import Services
from cosyvoice_stream.voices import is_voice_id


async def find_voice(services: Services, asked: str, theirs: Collection[str] = ()) -> str | None:
    """Find a voice by what a client calls it.

    Args:
        services: Of the application.
        asked: What the client sent.
        theirs: Lower-case names of the voices that the client's service has built in.

    Returns:
        An id, which may be of a voice that does not exist, or None for the default voice.

    Raises:
        VoiceNotFound: It is neither an id nor a name.
    """
    name = asked.strip().lower()
    alias = services.settings.aliases.get(name)
    if alias is not None:
        return alias
    if is_voice_id(asked) or any(asked == v.voice_id for v in services.engine.info.voices):
        return asked
    if not name or name in theirs:
        return None
    for voice in await services.voices.list():
        if voice.name.strip().lower() == name:
            return voice.voice_id
    raise VoiceNotFound(asked)
