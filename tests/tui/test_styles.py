"""Symbols, state texts, and safe text."""

from __future__ import annotations

from pathlib import Path

from plugbay.contracts.mcp.spec import UNKNOWN_VERSION
from plugbay.model.lifecycle import PENDING, State
from plugbay.model.spec import PluginSpec
from plugbay.tui.styles import INVALID, SIGNS, fit, safe, state_text, version_text


def test_every_state_has_its_sign() -> None:
    assert set(SIGNS) == {*State, PENDING, INVALID}


def test_signs_take_one_column() -> None:
    assert {fit(look.symbol, 1).cell_len for look in SIGNS.values()} == {1}


def test_a_state_is_shown_in_words() -> None:
    assert state_text(State.SHUTTING_DOWN) == "shutting down"


def test_an_unknown_version_is_left_out() -> None:
    spec = PluginSpec("p", "1.\n0", "rune", Path(), ("true",))
    assert (version_text(spec), version_text(spec, ", version ")) == ("rune 1.\\x0a0", "rune, version 1.\\x0a0")
    assert version_text(PluginSpec("p", UNKNOWN_VERSION, "mcp", Path(), ("true",))) == "mcp"


def test_text_is_one_harmless_line() -> None:
    assert safe("a\x1b[2J\nb\tc") == "a\\x1b[2J\\x0ab c"
    assert safe(Exception("日本")) == "日本"


def test_text_is_clipped_by_columns() -> None:
    assert fit("abc", 5).plain == "abc  "
    assert fit("abcdef", 4).plain == "abc…"
    assert fit("日本語", 4).cell_len == 4
