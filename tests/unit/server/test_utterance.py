import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.server.utterance import PendingText, State, Utterance
from cosyvoice_stream.server.wire_settings import UtteranceSettings
from cosyvoice_stream.types import FLUSH, Flush

pytestmark = pytest.mark.unit


@given(st.lists(st.one_of(st.text(max_size=20), st.just(FLUSH)), max_size=200), st.integers(1, 30))
def test_pending_text_keeps_order_flushes_and_count(pieces, at_most):
    pending = PendingText()
    expected: list[str | Flush] = []
    for piece in pieces:
        if isinstance(piece, Flush):
            pending.flush()
            if not (expected and expected[-1] is FLUSH):
                expected.append(FLUSH)
        elif piece:
            pending.push(piece)
            expected.append(piece)
    assert pending.chars == sum(len(piece) for piece in expected if piece is not FLUSH)
    taken = list(iter(lambda: pending.take(at_most), None))
    assert all(piece is FLUSH or 0 < len(piece) <= at_most for piece in taken)

    def runs(parts):
        text = "".join("\0" if part is FLUSH else part.replace("\0", "") for part in parts)
        return text.split("\0")

    assert runs(taken) == runs(expected)
    assert pending.chars == 0
    assert not pending


def test_many_tiny_fragments_are_joined():
    pending = PendingText()
    for _ in range(10_000):
        pending.push("词")
    assert len(pending._ready) + len(pending._tail) < 400
    assert pending.take(20_000) is not None


def test_an_utterance_forgets_text_that_it_will_not_speak():
    utterance = Utterance("a", 1, UtteranceSettings())
    utterance.add_text("some words")
    utterance.end(State.CANCELLED)
    assert utterance.pending.take(100) is None
    assert not utterance.is_live
    assert utterance.text_chars == 10


@pytest.mark.parametrize(
    ("state", "live", "spoken", "complete"),
    [
        (State.OPEN, True, True, False),
        (State.CLOSED, True, True, True),
        (State.GENERATED, True, False, True),
        (State.DONE, False, False, True),
        (State.CANCELLED, False, False, True),
        (State.FAILED, False, False, True),
    ],
)
def test_states(state, live, spoken, complete):
    utterance = Utterance("a", 1, UtteranceSettings())
    utterance.state = state
    assert (utterance.is_live, utterance.is_spoken) == (live, spoken)
    assert utterance.text_is_complete == complete
