"""Texts that stand for something."""

from __future__ import annotations

import datetime
import pathlib
import uuid
from typing import Any

import pytest

from plugbay.sdk.types.formats import formatted
from plugbay.sdk.types.shapes import Names, Problems

ROWS: list[tuple[type, str, str, Any]] = [
    (
        datetime.datetime,
        "date-time",
        "2026-05-17T16:00:00+00:00",
        datetime.datetime(2026, 5, 17, 16, tzinfo=datetime.UTC),
    ),
    (datetime.date, "date", "2026-05-17", datetime.date(2026, 5, 17)),
    (datetime.time, "time", "16:00:00", datetime.time(16)),
    (uuid.UUID, "uuid", "f81d4fae-7dec-41d0-a765-00a0c91e6bf6", uuid.UUID("f81d4fae-7dec-41d0-a765-00a0c91e6bf6")),
    (pathlib.Path, "path", "notes/tea.md", pathlib.Path("notes/tea.md")),
    (pathlib.PurePath, "path", "a", pathlib.PurePath("a")),
]


@pytest.mark.parametrize(("own", "format", "text", "value"), ROWS)
def test_a_text_becomes_what_it_stands_for_and_back(own: type, format: str, text: str, value: Any) -> None:
    shape = formatted(own)
    assert shape is not None
    problems = Problems()
    assert (shape.read(text, None, problems), problems.count) == (value, 0)
    assert shape.write(value) == text
    assert shape.write("as it is") == "as it is"
    assert shape.schema(Names()) == {"type": "string", "format": format}
    assert shape.made(shape.example) is not None


@pytest.mark.parametrize(("own", "format", "text", "value"), ROWS[:4])
def test_another_text_is_refused_with_an_example(own: type, format: str, text: str, value: Any) -> None:
    shape, problems = formatted(own), Problems()
    assert shape is not None
    assert shape.read("someday", ((None, "items"), 2), problems) is None
    assert str(problems) == f"items[2]: must be a {format} such as {shape.example}, not 'someday'"


def test_a_class_of_anybody_elses_has_no_such_form() -> None:
    class Path: ...

    assert formatted(Path) is None
    assert formatted(int) is None
