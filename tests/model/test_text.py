"""Hostile bytes become harmless text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.model.text import printable


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", "plain"),
        ("übung ✓".encode(), "übung ✓"),
        (b"\x1b[31mred", "\\x1b[31mred"),
        (b"a\x00b\rc\x07", "a\\x00b\\rc\\x07"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("\u202eevil".encode(), "\\u202eevil"),
        (b"a\tb", "a\tb"),
    ],
)
def test_only_printable_characters_come_through(data: bytes, text: str) -> None:
    assert printable(data) == text


@given(st.binary(max_size=300))
def test_whatever_comes_in_nothing_but_tabs_and_printable_characters_come_out(data: bytes) -> None:
    assert printable(data).replace("\t", "").isprintable()
