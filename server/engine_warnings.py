"""What an engine will not do of what a client asks for."""

from __future__ import annotations

from cosyvoice_stream.server.wire_settings import UtteranceSettings
from cosyvoice_stream.types import EngineInfo, Feature


def engine_warnings(info: EngineInfo, settings: UtteranceSettings) -> list[str]:
    """What of the settings an engine will not do, in sentences for a person."""
    style = settings.style
    asked: list[tuple[bool, Feature, str]] = [
        (bool(settings.instruct), Feature.INSTRUCT, "instruct is ignored"),
        (bool(style.dialect), Feature.INSTRUCT, "style.dialect is ignored"),
        (bool(style.emotion), Feature.INSTRUCT, "style.emotion is ignored"),
        (bool(style.text), Feature.INSTRUCT, "style.text is ignored"),
        (settings.pitch != 0.0, Feature.PITCH, "pitch is ignored"),
        (settings.strength != 1.0, Feature.STRENGTH, "strength is ignored"),
        (settings.sampling_is_set, Feature.SAMPLING, "sampling options are ignored"),
        ("word" in settings.marks, Feature.WORD_TIMES, "there are no word times"),
        ("viseme" in settings.marks, Feature.VISEMES, "there are no visemes"),
    ]
    return [
        f"{effect}: the engine {info.name!r} has no such feature"
        for wanted, feature, effect in asked
        if wanted and feature not in info.features
    ]
