"""Exceptions of cosyvoice-stream.

The tree::

    VoiceStreamError
    ├── ConfigError                 a setting or a command-line value is wrong
    ├── ProtocolError               the peer sent something we cannot accept
    │   ├── InvalidMessage          not JSON, unknown type, wrong field
    │   ├── InvalidMarkup           SSML that is not well-formed
    │   ├── InvalidState            the right message at the wrong time
    │   ├── InvalidOption           a synthesis option is out of range
    │   ├── UnsupportedFormat       audio that we cannot read or write
    │   └── LimitExceeded           larger or more than the server allows
    ├── VoiceError
    │   ├── VoiceNotFound
    │   └── EnrolmentRejected       the reference recording cannot be used
    ├── EngineError
    │   ├── ModelLoadError
    │   ├── DownloadFailed          a checkpoint could not be fetched or verified
    │   ├── EngineBusy              come back after `retry_after_s`
    │   ├── UnsupportedLanguage     the engine cannot speak this script
    │   └── SynthesisFailed
    │       └── EngineDied          no utterance can be rendered until the engine is restarted
    ├── TransportError
    │   └── PeerGone
    ├── ShuttingDown                the server is about to stop
    └── ServerError                 a server answered a client of ours with an error

Every exception holds its facts in fields and renders them in ``__str__``; callers never parse a
message. No message holds what a user said or wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class VoiceStreamError(Exception):
    """Root of every error that this package raises on purpose."""

    how_to_fix: str | None = None
    """What the caller can do about it, one sentence, or None where nothing helps."""

    def __init__(self, message: str, *, how_to_fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if how_to_fix is not None:
            self.how_to_fix = how_to_fix

    def __str__(self) -> str:
        return self.message


class ConfigError(VoiceStreamError):
    """A setting or a command-line value is wrong."""


class ProtocolError(VoiceStreamError):
    """The peer sent something that cannot be accepted."""


class InvalidMessage(ProtocolError):
    """A message is not JSON, has an unknown type, or a wrong field."""


class InvalidMarkup(ProtocolError):
    """SSML is not well-formed, or holds what is refused.

    Args:
        message: What is wrong, without the user's words.
        line: Where, counted from 1.
        column: In characters, counted from 1.
    """

    how_to_fix = "write it as <speak>…</speak>; & is written &amp; and < is written &lt;"

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column


class InvalidState(ProtocolError):
    """The right message at the wrong time."""


class InvalidOption(ProtocolError):
    """A synthesis option is out of range or of the wrong kind."""

    def __init__(self, option: str, value: Any, allowed: str) -> None:
        super().__init__(f"{option} = {value!r} is not allowed; {allowed}")
        self.option = option
        self.value = value
        self.allowed = allowed


class UnsupportedFormat(ProtocolError):
    """Audio in a form that cannot be read or written."""


class LimitExceeded(ProtocolError):
    """Something is larger, longer or more than the server allows.

    Args:
        what: The limited thing, in the plural or with its unit ("characters in one message").
        limit: The largest allowed value.
        actual: What was sent, or None if reading stopped at the limit.
    """

    def __init__(
        self, what: str, limit: float, actual: float | None = None, *, how_to_fix: str | None = None
    ) -> None:
        got = "" if actual is None else f", got {actual:g}"
        super().__init__(f"at most {limit:g} {what} are allowed{got}", how_to_fix=how_to_fix)
        self.what = what
        self.limit = limit
        self.actual = actual


class VoiceError(VoiceStreamError):
    """Something about a voice."""


class VoiceNotFound(VoiceError):
    """No voice has this id."""

    how_to_fix = "list the voices with GET /v1/voices or `cosyvoice-stream voices`"

    def __init__(self, voice_id: str) -> None:
        super().__init__(f"no voice has the id {voice_id!r}")
        self.voice_id = voice_id


class EnrolmentRejected(VoiceError):
    """The reference recording cannot be used.

    Args:
        reason: Stable machine-readable reason, such as ``"too_short"``.
        message: One sentence for a person.
        how_to_fix: What the speaker can do about it.
        quality: The quality report as plain JSON data, when one was made.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        how_to_fix: str,
        quality: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, how_to_fix=how_to_fix)
        self.reason = reason
        self.quality = quality


class EngineError(VoiceStreamError):
    """Something about an engine."""


class ModelLoadError(EngineError):
    """A model file is missing, damaged, or not what was expected."""


class DownloadFailed(EngineError):
    """A checkpoint could not be fetched, or what arrived is not what the hub announced."""


class EngineBusy(EngineError):
    """No capacity is free.

    Args:
        retry_after_s: When trying again makes sense.
    """

    def __init__(
        self, retry_after_s: float, message: str = "all synthesis slots are taken"
    ) -> None:
        super().__init__(message, how_to_fix=f"try again in {retry_after_s:.1f} s")
        self.retry_after_s = retry_after_s


class UnsupportedLanguage(EngineError):
    """The engine cannot speak the language or script of the text.

    Args:
        language: BCP 47 tag of what was found in the text or asked for, such as ``"zh"``.
        engine: Name of the engine that refused.
        engines: Names of the engines of this project that can speak it; may be empty.
    """

    def __init__(self, language: str, engine: str, engines: Sequence[str]) -> None:
        can = ", ".join(engines) if engines else "no engine of this project"
        super().__init__(
            f"the engine {engine!r} cannot speak language {language!r}",
            how_to_fix=f"engines that can: {can}",
        )
        self.language = language
        self.engine = engine
        self.engines = tuple(engines)


class SynthesisFailed(EngineError):
    """An utterance could not be rendered; the engine goes on."""


class EngineDied(SynthesisFailed):
    """What renders is gone: nothing can be spoken until the engine is closed and started again."""

    how_to_fix = "send the text again in a moment; the engine is being restarted"

    def __init__(self, message: str = "the engine broke down") -> None:
        super().__init__(message)


class TransportError(VoiceStreamError):
    """Something about a connection."""


class PeerGone(TransportError):
    """The peer closed the connection or stopped reading from it."""


class ShuttingDown(VoiceStreamError):
    """The server is about to stop; it finishes what runs and takes nothing more."""

    how_to_fix = "use another server, or try again when this one is back"

    def __init__(self) -> None:
        super().__init__("the server is about to stop")


class ServerError(VoiceStreamError):
    """A server refused something or failed; raised by clients.

    Args:
        code: From the table in docs/protocol.md, such as ``"voice_not_found"``.
        message: One sentence for a person.
        how_to_fix: What the caller can do.
        retry_after_s: When trying again makes sense, or None.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        how_to_fix: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, how_to_fix=how_to_fix)
        self.code = code
        self.retry_after_s = retry_after_s
