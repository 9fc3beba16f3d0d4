"""Signs, words and text that cannot misbehave."""

from __future__ import annotations

from pathlib import Path

from plugbay.contracts.mcp.spec import UNKNOWN_VERSION
from plugbay.model.lifecycle import State
from plugbay.model.spec import PluginSpec
from plugbay.tui.looks import INVALID, SIGNS, clipped, kind, safe, words


def test_every_state_has_its_sign() -> None:
    assert set(SIGNS) == {*State, INVALID}


def test_signs_take_one_column() -> None:
    assert {clipped(look.symbol, 1).cell_len for look in SIGNS.values()} == {1}


def test_a_state_is_said_in_words() -> None:
    assert words(State.SHUTTING_DOWN) == "shutting down"


def test_a_version_that_nobody_knows_is_left_out() -> None:
    spec = PluginSpec("p", "1.\n0", "rune", Path(), ("true",))
    assert (kind(spec), kind(spec, ", version ")) == ("rune 1.\\x0a0", "rune, version 1.\\x0a0")
    assert kind(PluginSpec("p", UNKNOWN_VERSION, "mcp", Path(), ("true",))) == "mcp"


def test_text_is_one_harmless_line() -> None:
    assert safe("a\x1b[2J\nb\tc") == "a\\x1b[2J\\x0ab c"
    assert safe(Exception("日本")) == "日本"


def test_text_is_clipped_by_columns() -> None:
    assert clipped("abc", 5).plain == "abc  "
    assert clipped("abcdef", 4).plain == "abc…"
    assert clipped("日本語", 4).cell_len == 4
