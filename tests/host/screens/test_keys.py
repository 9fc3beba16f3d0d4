"""Names of keys, there and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.screens.keys import ALT, CTRL, LAST_FUNCTION_KEY, MODIFIERS, NAMES, SHIFT, SUPER, key_name, parse_key
from tests.support.requirements import requirement


def char(ch: str) -> dict[str, Any]:
    return {"type": "char", "ch": ch}


KEYS = [
    ("a", char("a"), 0, "a"),
    ("A", char("A"), SHIFT, "A"),
    ("shift+a", char("A"), SHIFT, "A"),
    ("é", char("é"), 0, "é"),
    ("e\u0301", char("é"), 0, "é"),
    ("ß", char("ß"), 0, "ß"),
    ("shift+ß", char("ß"), SHIFT, "shift+ß"),
    ("漢", char("漢"), 0, "漢"),
    ("1", char("1"), 0, "1"),
    ("space", char(" "), 0, "space"),
    (" ", char(" "), 0, "space"),
    ("+", char("+"), 0, "plus"),
    ("plus", char("+"), 0, "plus"),
    ("ctrl++", char("+"), CTRL, "ctrl+plus"),
    ("ctrl+a", char("a"), CTRL, "ctrl+a"),
    ("Ctrl+A", char("A"), CTRL | SHIFT, "ctrl+A"),
    ("control+alt+x", char("x"), CTRL | ALT, "ctrl+alt+x"),
    ("super+shift+ctrl+alt+up", {"type": "up"}, 15, "shift+ctrl+alt+super+up"),
    ("cmd+l", char("l"), SUPER, "super+l"),
    ("tab", {"type": "tab"}, 0, "tab"),
    ("shift+tab", {"type": "back_tab"}, SHIFT, "back_tab"),
    ("back_tab", {"type": "back_tab"}, SHIFT, "back_tab"),
    ("ctrl+shift+tab", {"type": "back_tab"}, CTRL | SHIFT, "ctrl+back_tab"),
    ("esc", {"type": "esc"}, 0, "esc"),
    ("Escape", {"type": "esc"}, 0, "esc"),
    ("enter", {"type": "enter"}, 0, "enter"),
    ("return", {"type": "enter"}, 0, "enter"),
    ("page_up", {"type": "page_up"}, 0, "page_up"),
    ("PgDn", {"type": "page_down"}, 0, "page_down"),
    ("insert", {"type": "insert"}, 0, "insert"),
    ("f5", {"type": "f", "n": 5}, 0, "f5"),
    ("shift+F12", {"type": "f", "n": 12}, SHIFT, "shift+f12"),
    ("f", char("f"), 0, "f"),
]


@requirement("ainb:host-key-event")
@pytest.mark.parametrize(("text", "code", "mods", "name"), KEYS)
def test_a_name_is_a_key_event_and_a_key_event_has_a_name(
    text: str, code: dict[str, Any], mods: int, name: str
) -> None:
    key = parse_key(text)
    assert key == {"code": code, "mods": mods, "kind": "press"}
    assert key_name(key) == name
    assert parse_key(name) == key


@requirement("ainb:host-key-event")
@pytest.mark.parametrize("name", NAMES)
def test_every_key_without_a_character_has_its_own_word_on_the_wire(name: str) -> None:
    assert parse_key(name)["code"] == {"type": name}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "''"),
        ("ctrl+", "''"),
        ("foo", "'foo'"),
        ("ab", "'ab'"),
        ("a+b", "'a' in 'a+b' is not a modifier"),
        ("+a", "'' in '+a' is not a modifier"),
        ("hyper+a", "'hyper'"),
        ("f0", "'f0'"),
        ("f256", "'f256'"),
        ("f٣", "'f٣'"),
        ("\x1b", r"'\x1b'"),
        ("\ud800", r"'\ud800'"),
        ("👍🏽", "there is no key"),
    ],
)
def test_an_invalid_key_is_refused_with_the_valid_names(text: str, wrong: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_key(text)
    assert wrong in str(caught.value)
    assert "page_up" in str(caught.value) and "ctrl+" in str(caught.value)


@given(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), st.sets(st.sampled_from(sorted(MODIFIERS))))
def test_every_character_can_be_typed_with_every_modifier(typed: str, held: set[str]) -> None:
    key = parse_key("+".join([*held, typed]))
    assert len(key["code"]["ch"]) == 1
    assert parse_key(key_name(key)) == key


@given(st.integers(1, LAST_FUNCTION_KEY))
def test_every_function_key_has_a_number(number: int) -> None:
    assert key_name(parse_key(f"f{number}")) == f"f{number}"


@given(st.text(max_size=8))
def test_any_text_is_a_key_or_a_value_error(text: str) -> None:
    try:
        key = parse_key(text)
    except ValueError:
        return
    assert parse_key(key_name(key)) == key
