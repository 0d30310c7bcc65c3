"""The optional speech recognition hears what is said in the references of the test set."""

from __future__ import annotations

import json

import pytest

from cosyvoice_stream.asr import WhisperTranscriber
from cosyvoice_stream.errors import ModelLoadError
from cosyvoice_stream.reference import prepare_reference
from cosyvoice_stream.transcripts import MAX_DISAGREEMENT, disagreement
from cosyvoice_stream.types import ReferenceAudio
from support.asr import _model_folder
from support.recordings import RATE, REFERENCES, silence, speech

pytestmark = pytest.mark.quality

ITEMS = json.loads((REFERENCES / "transcripts.json").read_text())["items"]


@pytest.fixture(scope="module")
def transcriber() -> WhisperTranscriber:
    made = WhisperTranscriber(str(_model_folder()))
    made.load()
    return made


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["file"])
def test_right_transcripts_are_within_the_limit_and_wrong_ones_are_not(
    transcriber: WhisperTranscriber, item: dict[str, str]
) -> None:
    reference = prepare_reference(speech(item["file"]), RATE).reference
    heard = transcriber.transcribe(reference)
    assert disagreement(item["transcript"], heard) <= MAX_DISAGREEMENT
    others = [other["transcript"] for other in ITEMS if other["transcript"] != item["transcript"]]
    assert all(disagreement(other, heard) > MAX_DISAGREEMENT for other in others)


def test_silence_says_nothing(transcriber: WhisperTranscriber) -> None:
    assert transcriber.transcribe(ReferenceAudio(silence(4.0), RATE, 8000.0)) == ""


def test_a_folder_without_a_model_is_named() -> None:
    with pytest.raises(ModelLoadError, match="cannot be loaded"):
        WhisperTranscriber("/no/such/folder").load()
