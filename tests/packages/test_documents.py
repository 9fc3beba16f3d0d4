"""Strict documents: all problems are reported."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict

from plugbay.packages import documents


class Thing(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    count: int


def test_a_document_is_read_into_its_model() -> None:
    assert documents.read(Thing, b'{"name": "a", "count": 1}') == Thing(name="a", count=1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff", "UTF-8"),
        (b"{", "not JSON"),
        (b"[" * 10_000, "not usable JSON"),
        (b'{"name": "a", "count": NaN}', "NaN"),
        (b'{"name": "a", "count": true}', "count"),
        (b'{"name": "a", "count": "1"}', "count"),
        (b'{"name": "a", "count": 1, "more": 1}', "more"),
        (b'{"name": "a"}', "count: required"),
        (b"[]", ""),
        (b" " * (documents.MAX_BYTES + 1), "more than"),
    ],
)
def test_a_document_of_no_use_says_why(data: bytes, words: str) -> None:
    found = documents.read(Thing, data)
    assert isinstance(found, list)
    assert words in " ".join(map(str, found))


def test_all_problems_are_reported_together() -> None:
    found = documents.read(Thing, b'{"name": 1, "count": "x"}')
    assert isinstance(found, list)
    assert {problem.path for problem in found} == {"name", "count"}


def test_one_value_has_one_compact_text() -> None:
    assert documents.compact({"b": 1, "a": "é"}) == documents.compact({"a": "é", "b": 1}) == '{"a":"é","b":1}'
    assert documents.pretty({"a": "é"}) == '{\n  "a": "é"\n}\n'.encode()
