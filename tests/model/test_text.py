"""Hostile bytes become harmless text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.model.text import error_excerpt, printable
from tests.support.requirements import requirement


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


STACK = [f"    at step{number} (file.js:{number}:1)" for number in range(12)]


@requirement("host:crash-excerpt")
@pytest.mark.parametrize(
    ("lines", "first"),
    [
        (["loader:1143", "  throw err;", "", "Error: Cannot find module './tea'", *STACK, "}", "Node.js v20.1.0"], 3),
        (["ready", "TypeError [ERR_INVALID_ARG]: no", *STACK], 1),
        (["panic: no tea", "", "goroutine 1 [running]:", *STACK], 0),
        (["thread 'main' panicked at src/main.rs:2:5:", "no tea", *STACK], 0),
        (["old", *["Traceback", *STACK, "ValueError: first"], *["log line"] * 9], 14),
    ],
)
def test_an_excerpt_begins_with_the_line_that_names_the_error(lines: list[str], first: int) -> None:
    assert error_excerpt(lines, 5) == lines[first : first + 5]


@requirement("host:crash-excerpt")
def test_an_excerpt_has_the_last_lines_where_they_name_the_error_or_none_does() -> None:
    lines = ["ValueError: an earlier one", *STACK, "ValueError: no tea"]
    assert error_excerpt(lines, 5) == lines[-5:]
    assert error_excerpt(STACK, 5) == STACK[-5:]
    assert error_excerpt(["one", "two"], 5) == ["one", "two"]
    assert error_excerpt([], 5) == []
