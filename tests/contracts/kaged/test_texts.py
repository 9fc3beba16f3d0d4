"""The long texts of a hook are strings, and fit one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.kaged.texts import LONGEST_PIECE, TEXTS, as_texts, fitted
from plugbay.wire.strict_json import Unencodable
from tests.support.codecs import CODECS
from tests.support.requirements import requirement
from tests.support.tiers import first_alone

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(params=first_alone(CODECS))
def encode(request: pytest.FixtureRequest) -> Callable[[Any], bytes]:
    return CODECS[request.param]().encode


@requirement("kaged:wire-hook-texts")
@pytest.mark.parametrize("key", TEXTS)
@pytest.mark.parametrize(
    ("value", "text"),
    [("as it is", "as it is"), ([{"role": "user"}], '[{"role":"user"}]'), ({}, "{}"), (5, "5"), ("", ""), ([], "[]")],
)
def test_a_text_that_is_none_becomes_the_json_of_it(
    encode: Callable[[Any], bytes], key: str, value: Any, text: str
) -> None:
    assert as_texts({key: value, "other": value}, encode) == {key: text, "other": value}


def test_null_says_nothing_and_is_left_out(encode: Callable[[Any], bytes]) -> None:
    assert as_texts({"transcript": None, "other": None}, encode) == {"other": None}


def test_a_text_without_a_json_form_is_refused(encode: Callable[[Any], bytes]) -> None:
    with pytest.raises(Unencodable):
        as_texts({"transcript": object()}, encode)


@requirement("kaged:wire-hook-cut")
def test_the_newest_words_are_kept_and_the_cut_is_told(encode: Callable[[Any], bytes]) -> None:
    cut = fitted({"transcript": "old " * 100 + "the end", "strategy": "drop"}, 200, encode)
    assert cut["strategy"] == "drop"
    assert cut["transcript"].startswith("[")
    assert " characters cut] " in cut["transcript"]
    assert cut["transcript"].endswith("the end")
    assert len(encode(cut)) <= 200


def test_a_short_text_is_whole_and_the_long_ones_share_what_it_leaves(encode: Callable[[Any], bytes]) -> None:
    params = {"transcript": "a" * 5000, "messages_remaining": "b" * 6000, "trigger": "token_limit"}
    cut = fitted(params, 2000, encode)
    assert cut["trigger"] == "token_limit"
    kept = [cut[key].count(letter) for key, letter in (("transcript", "a"), ("messages_remaining", "b"))]
    assert min(kept) > 800
    assert len(encode(cut)) <= 2000


def test_long_texts_are_walked_in_pieces_and_lose_no_more_than_they_must(encode: Callable[[Any], bytes]) -> None:
    room = 3 * LONGEST_PIECE
    cut = fitted({"transcript": "\n" * LONGEST_PIECE * 4}, room, encode)
    assert room - 100 < len(encode(cut)) <= room


def test_what_texts_cannot_make_fit_stays_too_large(encode: Callable[[Any], bytes]) -> None:
    params = {"transcript": "a" * 100, "other": "x" * 1000}
    assert len(encode(fitted(params, 500, encode))) > 500


@given(
    st.dictionaries(st.sampled_from(TEXTS), st.text(max_size=400).map(lambda text: text * 5), min_size=1),
    st.integers(600, 4000),
    st.sampled_from(sorted(CODECS)),
)
def test_whatever_the_texts_are_they_fit_and_end_as_they_did(texts: dict[str, str], room: int, name: str) -> None:
    encode = CODECS[name]().encode
    cut = fitted(texts, room, encode)
    assert len(encode(cut)) <= room
    for key, text in texts.items():
        assert cut[key] == text or text.endswith(cut[key].partition(" characters cut] ")[2])
