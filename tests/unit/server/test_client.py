"""Parts of the client that need no connection: texts, messages, questions, recordings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosyvoice_stream.errors import (
    ConfigError,
    InvalidOption,
    LimitExceeded,
    PeerGone,
    ServerError,
    UnsupportedFormat,
)
from cosyvoice_stream.server.client_connect import server_error
from cosyvoice_stream.server.client_messages import control_message, fragments
from cosyvoice_stream.server.client_questions import Questions
from cosyvoice_stream.server.client_recording import check_readable, read_recording
from cosyvoice_stream.server.wire import (
    ErrorMessage,
    SessionUpdated,
    UtteranceSettings,
    VoiceReady,
)
from cosyvoice_stream.streaming.pcm import from_s16le
from cosyvoice_stream.types import FLUSH
from support.recordings import RATE, REFERENCES, speech, tone

pytestmark = pytest.mark.unit

UPDATED = SessionUpdated(settings=UtteranceSettings(), warnings=[])
READY = VoiceReady(voice={"id": "v"}, quality={}, transcript=None, warnings=[])


def test_error_of_the_server_keeps_its_fields() -> None:
    message = ErrorMessage(code="busy", message="full", how_to_fix="wait", retry_after_ms=1500)
    error = server_error(message)
    assert (error.code, str(error), error.how_to_fix, error.retry_after_s) == (
        "busy",
        "full",
        "wait",
        1.5,
    )
    assert server_error(ErrorMessage(code="internal", message="x")).retry_after_s is None


def test_options_become_fields_of_the_message() -> None:
    message = control_message("utterance.start", {"speed": 2, "text_options": {"clean": 1}}, id="a")
    assert message == {"type": "utterance.start", "id": "a", "speed": 2, "text": {"clean": 1}}
    with pytest.raises(InvalidOption):
        control_message("utterance.start", {"speed": float("nan")})


@pytest.mark.parametrize("text", ["ab", ["a", "b"], ("a", FLUSH), iter("ab"), []])
def test_text_that_is_there_comes_piece_by_piece(text: Any) -> None:
    expected = (
        ["ab"] if text == "ab" else list("ab") if not isinstance(text, list | tuple) else [*text]
    )

    async def work() -> list[Any]:
        return [piece async for piece in fragments(text)]

    assert asyncio.run(work()) == expected


def test_text_that_is_left_in_the_middle_is_closed() -> None:
    closed = []

    async def writing() -> AsyncIterator[str]:
        try:
            yield "a"
            yield "b"
        finally:
            closed.append(True)

    async def work() -> None:
        pieces = fragments(writing())
        assert await anext(pieces) == "a"
        await pieces.aclose()
        assert closed == [True]

    asyncio.run(work())


def test_answers_and_errors_find_the_question_that_they_name() -> None:
    async def work() -> None:
        questions = Questions()
        assert not questions.refuse(ServerError("internal", "x"), None)
        first, made = questions.expect()
        second, updated = questions.expect()
        answer = UPDATED.model_copy(update={"request_id": second})
        questions.answer(UPDATED)
        questions.answer(answer)
        assert await updated is answer
        assert questions.are_open
        questions.answer(answer)
        assert not questions.refuse(ServerError("internal", "somebody else's"), None)
        assert not questions.refuse(ServerError("internal", "somebody else's"), "other")
        assert not made.done()
        assert questions.refuse(ServerError("internal", "x"), first)
        with pytest.raises(ServerError):
            await made
        assert not questions.are_open

    asyncio.run(work())


def test_question_that_nobody_waits_for_is_settled_by_its_answer() -> None:
    async def work() -> None:
        questions = Questions()
        request_id, answer = questions.expect()
        asking = asyncio.create_task(_shielded(answer))
        await asyncio.sleep(0)
        asking.cancel()
        settling = asyncio.create_task(questions.settled())
        await asyncio.sleep(0)
        assert not settling.done()
        questions.answer(READY.model_copy(update={"request_id": request_id}))
        await settling
        forgotten, _ = questions.expect()
        questions.forget(forgotten)
        await questions.settled()

    asyncio.run(work())


async def _shielded(answer: asyncio.Future[Any]) -> Any:
    return await asyncio.shield(answer)


def test_lost_connection_answers_every_question() -> None:
    async def work() -> None:
        questions = Questions()
        answers = [questions.expect()[1], questions.expect()[1]]
        questions.fail(PeerGone("gone"))
        for answer in answers:
            with pytest.raises(PeerGone):
                await answer

    asyncio.run(work())


@pytest.mark.parametrize("kind", [Path, str, lambda name: Path(name).read_bytes()])
def test_file_is_read_at_its_own_rate(kind: Any) -> None:
    data, rate = read_recording(kind(REFERENCES / "flite_rms_male.wav"), 60)
    assert rate == RATE
    assert np.abs(from_s16le(data) - speech("flite_rms_male.wav")).max() < 1e-4


def test_rate_beyond_the_protocol_is_lowered_and_keeps_the_sound() -> None:
    data, rate = read_recording((tone(1000, 1, 96_000), 96_000), 60)
    samples = from_s16le(data)
    assert (rate, len(samples)) == (48_000, 48_000)
    assert np.abs(samples - tone(1000, 1, 48_000))[2000:-2000].max() < 0.01


@pytest.mark.parametrize(
    ("recording", "kind"),
    [
        ((np.zeros((2, 100), np.float32), 16_000), UnsupportedFormat),
        ((np.zeros(100, np.float32), 7999), UnsupportedFormat),
        ((np.zeros(16_001, np.float32), 16_000), LimitExceeded),
        (b"no audio", UnsupportedFormat),
    ],
)
def test_recording_that_cannot_be_sent_is_refused(recording: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        read_recording(recording, 1)


def test_readable_file_passes_and_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    check_readable(path)
    for wrong in (tmp_path, tmp_path / "missing", Path("/proc/self/mem")):
        with pytest.raises(ConfigError, match="cannot be read"):
            check_readable(wrong)
