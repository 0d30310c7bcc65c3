import inspect
import logging
import re
from pathlib import Path

import pytest

from cosyvoice_stream import errors
from cosyvoice_stream.server.error_map import (
    ConsentNotFound,
    DuplicateUtterance,
    ModelNotFound,
    NotInstalled,
    SessionIdle,
    SessionTooLong,
    UnknownCall,
    UnknownUtterance,
    error_json,
    error_kind,
    http_status,
    log_internal,
)

pytestmark = pytest.mark.unit

PAGE = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")
DOCUMENTED = set(re.findall(r"^\| `(\w+)` \|", PAGE.split("## Error codes")[1], re.MULTILINE))

EXAMPLES = [
    (errors.InvalidMessage("m"), "invalid_message", 400, False),
    (errors.InvalidMarkup("m", 1, 2), "invalid_markup", 400, False),
    (errors.InvalidState("m"), "invalid_state", 409, False),
    (errors.InvalidOption("speed", 3, "use 1"), "invalid_option", 400, False),
    (errors.UnsupportedFormat("m"), "unsupported_format", 415, False),
    (errors.LimitExceeded("characters", 5, 6), "limit_exceeded", 413, False),
    (errors.VoiceNotFound("v"), "voice_not_found", 404, False),
    (errors.EnrolmentRejected("too_short", "m", "fix"), "voice_rejected", 422, False),
    (errors.UnsupportedLanguage("zh", "lite", ()), "unsupported_language", 422, False),
    (errors.EngineBusy(1.5), "busy", 429, True),
    (errors.ShuttingDown(), "shutting_down", 503, True),
    (errors.SynthesisFailed("m"), "synthesis_failed", 500, True),
    (errors.EngineDied(), "synthesis_failed", 500, True),
    (DuplicateUtterance("a"), "duplicate_utterance", 409, False),
    (UnknownUtterance("a"), "unknown_utterance", 404, False),
    (ConsentNotFound(), "consent_not_found", 404, False),
    (ModelNotFound(), "model_not_found", 404, False),
    (NotInstalled("WebRTC", "webrtc"), "not_available", 501, False),
    (UnknownCall(), "unknown_call", 404, False),
    (SessionIdle(5), "idle_timeout", 408, True),
    (SessionTooLong(5), "session_too_long", 408, True),
    (ValueError("m"), "internal", 500, True),
    (errors.ConfigError("m"), "internal", 500, True),
    (errors.ModelLoadError("m"), "internal", 500, True),
]


@pytest.mark.parametrize(("error", "code", "status", "retryable"), EXAMPLES)
def test_each_error_has_its_code(error, code, status, retryable):
    kind = error_kind(error)
    assert (kind.code, kind.http_status, kind.retryable) == (code, status, retryable)
    assert http_status(error) == status
    assert code in DOCUMENTED


def test_every_documented_code_is_used():
    # The middleware that checks keys says `unauthorized` itself.
    assert {code for _, code, _, _ in EXAMPLES} | {"unauthorized"} == DOCUMENTED


def test_every_error_a_client_can_cause_is_in_the_table():
    leaves = {
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.VoiceStreamError) and not kind.__subclasses__()
    }
    ours = {leaf.__name__ for leaf in leaves if leaf.__module__ == errors.__name__}
    not_for_clients = {
        "ConfigError",
        "DownloadFailed",
        "ModelLoadError",
        "PeerGone",
        "ServerError",
    }
    known = {type(error).__name__ for error, code, _, _ in EXAMPLES if code != "internal"}
    assert ours <= known | not_for_clients


def test_internal_errors_give_nothing_away():
    told = error_json(ValueError("path /etc/secret and what the user wrote"))
    assert told == {"code": "internal", "message": "something went wrong in the server"}


def test_facts_are_fields():
    assert error_json(errors.EngineBusy(1.25))["retry_after_ms"] == 1250
    rejected = error_json(errors.EnrolmentRejected("too_short", "m", "fix it", {"a": 1}))
    assert (rejected["reason"], rejected["how_to_fix"]) == ("too_short", "fix it")
    assert rejected["quality"] == {"a": 1}
    assert "how_to_fix" not in error_json(errors.InvalidMessage("m"))


def test_the_log_names_the_place_and_not_the_text(caplog):
    secret = " ".join(("what", "the", "user", "wrote"))
    try:
        raise ValueError(secret)
    except ValueError as error:
        with caplog.at_level(logging.ERROR):
            log_internal(logging.getLogger("test"), error)
    assert "ValueError" in caplog.text
    assert "test_error_map.py" in caplog.text
    assert secret not in caplog.text
