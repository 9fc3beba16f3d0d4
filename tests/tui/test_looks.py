"""Signs, words and text that cannot misbehave."""

from __future__ import annotations

from plugbay.model.lifecycle import State
from plugbay.tui.looks import INVALID, SIGNS, clipped, safe, words


def test_every_state_has_its_sign() -> None:
    assert set(SIGNS) == {*State, INVALID}


def test_signs_take_one_column() -> None:
    assert {clipped(look.symbol, 1).cell_len for look in SIGNS.values()} == {1}


def test_a_state_is_said_in_words() -> None:
    assert words(State.SHUTTING_DOWN) == "shutting down"


def test_text_is_one_harmless_line() -> None:
    assert safe("a\x1b[2J\nb\tc") == "a\\x1b[2J\\x0ab c"
    assert safe(Exception("日本")) == "日本"


def test_text_is_clipped_by_columns() -> None:
    assert clipped("abc", 5).plain == "abc  "
    assert clipped("abcdef", 4).plain == "abc…"
    assert clipped("日本語", 4).cell_len == 4
