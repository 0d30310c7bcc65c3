import pytest

from cosyvoice_stream.server.outbox import Outbox

pytestmark = pytest.mark.unit


def drain(outbox):
    return list(iter(lambda: outbox.take(0.0), None))


def test_answers_overtake_the_stream_and_each_keeps_its_order():
    outbox = Outbox()
    outbox.stream(1, b"a1")
    outbox.stream(2, "b1")
    outbox.answer("x")
    outbox.answer("y")
    outbox.stream(1, b"a2")
    assert drain(outbox) == ["x", "y", b"a1", "b1", b"a2"]


def test_dropping_removes_one_utterance_and_nothing_else():
    outbox = Outbox()
    sent = []
    for number in (1, 2, 1, 2):
        outbox.stream(number, b"12345", lambda now, number=number: sent.append(number))
    outbox.answer("x")
    outbox.drop(1)
    assert outbox.stream_bytes == 10
    assert drain(outbox) == ["x", b"12345", b"12345"]
    assert sent == [2, 2]


def test_counts_the_bytes_that_wait():
    outbox = Outbox()
    outbox.stream(1, b"123")
    outbox.answer("12345")
    assert (outbox.stream_bytes, outbox.answer_bytes) == (3, 5)
    drain(outbox)
    assert (outbox.stream_bytes, outbox.answer_bytes) == (0, 0)


def test_tells_when_a_message_is_taken():
    outbox = Outbox()
    times = []
    outbox.stream(1, b"1", times.append)
    assert times == []
    outbox.take(7.5)
    assert times == [7.5]
    assert outbox.take(8.0) is None
