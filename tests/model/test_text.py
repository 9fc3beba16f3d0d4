"""Hostile bytes become harmless text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.model.text import printable


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain \xc3\xa9 \xe2\x82\xac\ttab", "plain é €\ttab"),
        (b"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        (b"\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        (b"bell\x07 nul\x00 del\x7f", "bell\\x07 nul\\x00 del\\x7f"),
        (b"over\rwrite", "over\\x0dwrite"),
        (b"\xc2\x9b31m", "\\x9b31m"),
        (b"\xff\xfe \xc3", "\\xff\\xfe \\xc3"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
        (
            "right\u202eleft \u2066iso\u2069 \u2028sep".encode(),
            "right\\u202eleft \\u2066iso\\u2069 \\u2028sep",
        ),
    ],
)
def test_what_could_harm_a_terminal_or_a_log_is_escaped(raw: bytes, text: str) -> None:
    assert printable(raw) == text


@given(st.binary(max_size=300))
def test_whatever_comes_in_no_control_character_but_the_tab_comes_out(data: bytes) -> None:
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in printable(data).replace("\t", ""))
