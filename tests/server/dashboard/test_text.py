"""Values as a person reads them."""

from __future__ import annotations

import pytest

from plugbay.server.dashboard import text


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("plain, with ümläuts and 日本", "plain, with ümläuts and 日本"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("carriage\r", "carriage\\x0d"),
        ("gpj.\u202eexe", "gpj.\\u202eexe"),
        ("\u2066isolated\u2069", "\\u2066isolated\\u2069"),
        ("zero\u200bwidth \u00ad\u2060", "zero\\u200bwidth \\u00ad\\u2060"),
        ("family \U0001f468\u200d\U0001f469", "family \U0001f468\u200d\U0001f469"),
        ("\U000e0041\U000e0042", "\\U000e0041\\U000e0042"),
        ("half \ud800", "half \\ud800"),
        ("", ""),
    ],
)
def test_what_is_invisible_or_turns_text_around_is_shown(said: str, shown: str) -> None:
    assert text.visible(said) == shown


def test_a_text_that_is_too_long_is_cut_with_a_note() -> None:
    assert text.visible("x" * 10, 10) == "x" * 10
    assert text.visible("x" * 1_234_567, 10) == "xxxxxxxxxx… (1,234,557 more characters)"
    assert len(text.visible("x" * (10 << 20))) < text.MAX_TEXT + 100


def test_values_are_shown_as_json_and_cut_too() -> None:
    assert text.as_json({"a": ["ü"]}, spread=False) == '{"a":["ü"]}'
    assert text.as_json({"a": 1}) == '{\n  "a": 1\n}'
    assert text.as_json("x" * 100, most=10) == '"xxxxxxxxx… (92 more characters)'
    assert text.as_json({"at": object}).startswith("{"), "a value that JSON lacks is still shown"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-10, "now"),
        (4, "now"),
        (5, "5 s ago"),
        (59.9, "59 s ago"),
        (60, "1 min ago"),
        (3_599, "59 min ago"),
        (3_600, "1 h ago"),
        (86_400, "1 day ago"),
        (200_000, "2 days ago"),
    ],
)
def test_how_long_ago(seconds: float, words: str) -> None:
    assert text.ago(1_000_000.0, 1_000_000.0 + seconds) == words


def test_moments_are_written_and_read() -> None:
    assert text.utc(1_770_000_000.9) == "2026-02-02T02:40:00Z"
    assert text.moment("2026-02-02T02:40:00Z") == 1_770_000_000.0
    assert text.moment("[1234] greeting") is None
    assert text.time_of_day("2026-02-02T02:40:00.123Z") == "02:40:00"
    assert text.time_of_day("Traceback") == "Traceback"


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(0.04, "0.0 ms"), (9.94, "9.9 ms"), (10.4, "10 ms"), (1_500, "1.50 s"), (125_000, "2 min 5 s")],
)
def test_durations(milliseconds: float, words: str) -> None:
    assert text.duration(milliseconds) == words


def test_sizes_and_counts() -> None:
    assert [text.size(number) for number in (0, 1000, 1 << 10, 256 << 20, 3 << 30)] == [
        "0 bytes",
        "1,000 bytes",
        "1 KiB",
        "256 MiB",
        "3 GiB",
    ]
    assert (text.count(1, "plugin"), text.count(2_000, "plugin")) == ("1 plugin", "2,000 plugins")


def test_memory_and_minutes_are_short() -> None:
    assert [text.megabytes(number) for number in (0, 3 << 19, 999 << 20, 1 << 30)] == [
        "0 MiB",
        "1.5 MiB",
        "999 MiB",
        "1 GiB",
    ]
    assert text.minute_of_day(61) == "01:01"


def test_a_message_becomes_a_sentence() -> None:
    assert [text.sentence(words) for words in ("it is so", "it is so.", "")] == ["It is so.", "It is so.", "."]
