import pytest

from cosyvoice_stream.lite.acoustic import SAMPLE_RATE
from cosyvoice_stream.lite.utterance import pause_after
from cosyvoice_stream.streaming.clauses import Clause

pytestmark = pytest.mark.unit

INSIDE = Clause("one,", 0, 4, False, False)
SENTENCE = Clause("One.", 0, 4, True, False)
PARAGRAPH = Clause("One.", 0, 4, True, True)


def test_pauses_follow_the_tempo_unless_one_is_asked_for():
    assert pause_after(SENTENCE, 2.0) * 2 == pause_after(SENTENCE, 1.0)
    for speed in (0.5, 1.0, 2.0):
        assert pause_after(SENTENCE, speed, 700) == 0.7 * SAMPLE_RATE
        assert pause_after(PARAGRAPH, speed, 0) == 0
        assert pause_after(INSIDE, speed, 700) == pause_after(INSIDE, speed)
