"""Similar spelling gives near vectors; the same text gives the same vector for ever."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.services.embedding import DIMENSIONS, MAX_CHARACTERS, HashingEmbedder
from tests.support.loops import Run

EMBEDDER = HashingEmbedder()


def likeness(one: str, other: str) -> float:
    return sum(a * b for a, b in zip(EMBEDDER.vector(one), EMBEDDER.vector(other), strict=True))


@given(st.text())
def test_a_vector_has_unit_length_or_is_zero(text: str) -> None:
    vector = EMBEDDER.vector(text)
    assert len(vector) == DIMENSIONS
    assert math.isclose(math.hypot(*vector), 1.0) or not any(vector)
    assert vector == EMBEDDER.vector(text)


def test_a_stored_vector_stays_comparable_because_the_places_never_change() -> None:
    places = {place: round(value, 6) for place, value in enumerate(EMBEDDER.vector("tea")) if value}
    assert places == {178: 0.57735, 215: 0.57735, 247: 0.57735}


def test_forms_of_a_word_are_nearer_than_other_words() -> None:
    assert likeness("painting the walls", "paint on a wall") > likeness("painting the walls", "green tea") + 0.2
    assert likeness("Café", "cafe") == pytest.approx(1.0)


def test_a_text_without_words_is_near_nothing() -> None:
    assert not any(EMBEDDER.vector("?!"))


def test_only_the_beginning_of_a_long_text_counts() -> None:
    start = "tea " * (MAX_CHARACTERS // 4)
    assert EMBEDDER.vector(start + "coffee") == EMBEDDER.vector(start)
    assert EMBEDDER.vector("coffee " + start) != EMBEDDER.vector(start)


def test_every_text_gets_its_vector_in_order(run: Run) -> None:
    async def main() -> None:
        embedder = HashingEmbedder(16)
        assert await embedder.embed(["a", "b"]) == [embedder.vector("a"), embedder.vector("b")]
        assert len(embedder.vector("a")) == 16

    run(main)


def test_a_vector_without_dimensions_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        HashingEmbedder(0)
