import pytest

from cosyvoice_stream.transcripts import MAX_DISAGREEMENT, disagreement, settle

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("given", "heard", "share"),
    [
        ("", "", 0.0),
        ("Hello, World!", "hello world", 0.0),
        ("It costs 25 dollars.", "it costs twenty-five dollars", 0.0),
        ("希望你以后能够做的比我还好。", "希望你以後能夠做得比我還好", 0.0),
        ("abcd", "abce", 0.25),
        ("", "abcd", 1.0),
        ("abcd", "", 1.0),
    ],
)
def test_counts_letters_that_differ(given: str, heard: str, share: float) -> None:
    assert disagreement(given, heard) == pytest.approx(share)
    assert disagreement(heard, given) == pytest.approx(share)


def test_slips_of_a_recognition_are_far_below_the_limit() -> None:
    given = "The morning ferry leaves from the north pier at half past eight."
    heard = "The morning fairy leaves from the North Pier at half past 8."
    assert disagreement(given, heard) < MAX_DISAGREEMENT / 2


def test_one_sentence_for_many_is_far_above_the_limit() -> None:
    heard = "We met in spring. It rained for days. Nobody wanted to leave the house at all."
    assert disagreement("We met in spring.", heard) > 2 * MAX_DISAGREEMENT


@pytest.mark.parametrize(
    ("given", "heard", "used", "reason"),
    [
        ("Please leave.", "please leave", "Please leave.", None),
        ("Please leave.", None, "Please leave.", None),
        ("Please leave.", "", "Please leave.", None),
        (None, "Please leave.", "Please leave.", "transcribed"),
        (None, "", None, "no_transcript"),
        (None, None, None, "no_transcript"),
        ("Something else entirely.", "Please leave.", "Please leave.", "transcript_differs"),
    ],
)
def test_chooses_a_transcript_and_says_why(
    given: str | None, heard: str | None, used: str | None, reason: str | None
) -> None:
    transcript, item = settle(given, heard)
    assert transcript == used
    assert (item.reason if item else None) == reason
    if item is not None and reason is not None:
        assert item.verdict == "warn"
        assert item.message
        assert item.advice
