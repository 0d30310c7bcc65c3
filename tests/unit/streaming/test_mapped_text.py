import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.streaming.mapped_text import MappedText

pytestmark = pytest.mark.unit


def test_maps_a_text_onto_itself() -> None:
    mapped = MappedText.of("héy", 4)
    assert (mapped.text, mapped.starts, mapped.ends) == ("héy", (4, 5, 6), (5, 6, 7))
    assert str(mapped) == "héy"
    assert len(mapped) == 3


def test_rejects_a_map_of_another_length() -> None:
    with pytest.raises(ValueError, match="one entry for each character"):
        MappedText("ab", (0,), (1,))


def test_replacing_keeps_the_source_span() -> None:
    price = MappedText.of("costs $5 today")
    spoken = price.replace(6, 8, "five dollars")
    assert spoken.text == "costs five dollars today"
    assert spoken.source_span(6, 18) == (6, 8)
    assert spoken.source_span(11, 18) == (6, 8)
    assert spoken.source_span(19, 24) == (9, 14)


def test_inserting_stands_for_nothing() -> None:
    stopped = MappedText.of("Title", 2).replace(5, 5, ".")
    assert stopped.source_span(5, 6) == (7, 7)
    assert stopped.replace(0, 0, "-").source_span(0, 1) == (2, 2)


def test_empty_ranges_have_a_place() -> None:
    assert MappedText.of("").source_span(0, 0) == (0, 0)
    assert MappedText.of("ab", 3).source_span(0, 0) == (3, 3)
    assert MappedText.of("ab", 3).source_span(1, 1) == (4, 4)
    with pytest.raises(IndexError):
        MappedText.of("ab").source_span(1, 3)


def test_slices_have_no_step() -> None:
    assert MappedText.of("abc")[-1] == MappedText.of("c", 2)
    with pytest.raises(ValueError, match="step"):
        MappedText.of("abc")[::2]


@given(st.text(), st.integers(0, 30), st.integers(0, 30), st.integers(0, 5))
def test_parts_join_to_the_whole(text: str, first: int, second: int, offset: int) -> None:
    whole = MappedText.of(text, offset)
    first, second = sorted((first, second))
    parts = [whole[:first], whole[first:second], whole[second:]]
    assert MappedText.join(parts) == whole
    assert parts[0] + parts[1] + parts[2] == whole
