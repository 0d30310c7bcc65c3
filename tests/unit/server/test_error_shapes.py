"""Errors in the shapes of other APIs."""

from __future__ import annotations

from typing import Any

import pytest

from cosyvoice_stream.errors import InvalidOption, LimitExceeded, VoiceNotFound
from cosyvoice_stream.server.error_map import error_json, http_status
from cosyvoice_stream.server.error_shapes import WrongField, shaped

pytestmark = pytest.mark.unit


def shape(path: str, error: Exception) -> tuple[int, dict[str, Any]]:
    return shaped(path, http_status(error), error_json(error), error)


@pytest.mark.parametrize("path", ["/v1/speak", "/v1/voices", "/"])
def test_our_own_paths_keep_our_shape(path: str) -> None:
    error = LimitExceeded("characters", 5, 6)
    assert shape(path, error) == (413, {"error": error_json(error)})


@pytest.mark.parametrize(
    ("path", "error", "status", "param", "kind"),
    [
        ("/v1/audio/speech", WrongField("input", "m"), 400, "input", "invalid_request_error"),
        ("/v1/audio/speech", InvalidOption("seed", 1, "x"), 400, "seed", "invalid_request_error"),
        ("/v1/audio/speech", VoiceNotFound("v"), 400, "voice", "invalid_request_error"),
        ("/v1/audio/voices/v", VoiceNotFound("v"), 404, "voice", "invalid_request_error"),
        ("/v1/audio/speech", LimitExceeded("c", 5), 400, None, "invalid_request_error"),
        ("/v1/models", ValueError("secret"), 500, None, "server_error"),
    ],
)
def test_openai(path: str, error: Exception, status: int, param: str | None, kind: str) -> None:
    found, body = shape(path, error)
    assert found == status
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert (body["error"]["param"], body["error"]["type"]) == (param, kind)
    assert "secret" not in str(body)


def test_openai_has_one_text_for_what_is_wrong_and_what_helps() -> None:
    _, body = shape("/v1/models", WrongField("a", "it is wrong", how_to_fix="mend it"))
    assert body["error"]["message"] == "it is wrong; mend it"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (WrongField("a", "m"), 400),
        (VoiceNotFound("v"), 400),
        (LimitExceeded("c", 5), 400),
        (ValueError("secret"), 500),
    ],
)
def test_fastapi(error: Exception, status: int) -> None:
    found, body = shape("/inference_sft", error)
    assert found == status
    assert set(body) == {"detail"}
    assert isinstance(body["detail"], str)
    assert "secret" not in str(body)


def test_fastapi_lists_missing_fields() -> None:
    status, body = shape("/inference_sft", WrongField("tts_text", "m", missing=True))
    assert status == 422
    assert body["detail"][0]["loc"] == ["body", "tts_text"]
