"""Records as outlines: every value is there, short objects take one line, long fields are cut where that is wanted."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.cli.gateway.record_view import show_record


@pytest.mark.parametrize(
    "value, lines",
    [
        (None, ["-"]),
        ({}, ["-"]),
        (False, ["false"]),
        (0, ["0"]),
        (1.5, ["1.5"]),
        ("two\nlines", ["two", "lines"]),
        ([1, "a", True], ["1, a, true"]),
        ({"org_id": "acme", "project_id": None}, ["org_id: acme"]),
        ({"a": {"b": [1, 2]}}, ["a:", "  b: 1, 2"]),
        ({"a": {"b": 1}, "c": "x" * 80}, ["a: b: 1", f"c: {'x' * 80}"]),
        ({"a": {}, "b": {"c": {"d": 1}}}, ["b:", "  c: d: 1"]),
        ([{"id": "t", "kind": "tool", "needs": {"network": "none", "slots": ["k"]}}], None),
        (["x" * 50, "y" * 50], [f"- {'x' * 50}", f"- {'y' * 50}"]),
        ({"text": "two\nlines"}, ["text: two", "  lines"]),
    ],
)
def test_a_value_is_an_outline(value: Any, lines: list[str] | None, capsys: pytest.CaptureFixture[str]) -> None:
    show_record({"name": value})
    printed = capsys.readouterr().out.splitlines()
    shown = [line.removeprefix("name" if at == 0 else "    ").removeprefix("  ") for at, line in enumerate(printed)]
    if lines is None:
        lines = ["- id: t", "  kind: tool", "  needs:", "    network: none", "    slots: k"]
    assert shown == lines


def test_a_long_field_is_cut_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    record = {"id": "x", "many": {f"field_{number}": "y" * 40 for number in range(9)}}
    show_record(record, most=4)
    cut = capsys.readouterr().out
    assert "field_2" in cut and "field_3" not in cut and "… 6 more lines: --json shows all" in cut
    show_record(record)
    assert "field_8" in capsys.readouterr().out
