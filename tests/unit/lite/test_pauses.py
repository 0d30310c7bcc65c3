import pytest

from cosyvoice_stream.lite.acoustic import SAMPLE_RATE
from cosyvoice_stream.lite.utterance import pause_between
from cosyvoice_stream.streaming.clauses import Clause

pytestmark = pytest.mark.unit

INSIDE = Clause("one,", 0, 4, False, False)
SENTENCE = Clause("One.", 0, 4, True, False)
PARAGRAPH = Clause("One.", 0, 4, True, True)
NEXT = Clause("Two.", 6, 10, True, True, True)


def pause(clause, speed, asked_ms=None):
    return pause_between(clause, INSIDE, speed, asked_ms)


def test_a_paragraph_is_known_by_its_end_or_by_the_next_one():
    assert pause_between(SENTENCE, NEXT, 1.0) == pause(PARAGRAPH, 1.0) > pause(SENTENCE, 1.0)


def test_pauses_follow_the_tempo_unless_one_is_asked_for():
    assert pause(SENTENCE, 2.0) * 2 == pause(SENTENCE, 1.0)
    for speed in (0.5, 1.0, 2.0):
        assert pause(SENTENCE, speed, 700) == 0.7 * SAMPLE_RATE
        assert pause(PARAGRAPH, speed, 0) == 0
        assert pause(INSIDE, speed, 700) == pause(INSIDE, speed)
