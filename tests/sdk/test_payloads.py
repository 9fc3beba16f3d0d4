"""Bytes and the values they stand for."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.sdk.payloads import as_bytes, decoded, from_json, from_msgpack, to_json, to_msgpack, written_msgpack


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (b"\xff", b"\xff"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        ("é", b"\xc3\xa9"),
        (None, b""),
        ({"a": [1, None]}, b'{"a":[1,null]}'),
        (0, b"0"),
        (False, b"false"),
    ],
)
def test_anything_can_be_given(value: Any, data: bytes) -> None:
    assert as_bytes(value) == data


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), {"a": object()}])
def test_what_has_no_form_as_bytes_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON"):
        as_bytes(value)


@pytest.mark.parametrize("value", [{"a": [1, "é", None]}, {}])
def test_an_object_is_read_whichever_way_it_was_written(value: Any) -> None:
    assert decoded(to_json(value)) == decoded(to_msgpack(value)) == value
    assert decoded(b"\n " + to_json(value)) == value


@pytest.mark.parametrize("read", [from_json, from_msgpack, decoded])
@pytest.mark.parametrize("data", [b"", b"\xc1", b'{"a":'])
def test_what_cannot_be_read_is_a_value_error(read: Any, data: bytes) -> None:
    with pytest.raises(ValueError):
        read(data)


def test_what_is_written_already_is_spliced_in() -> None:
    inner = to_msgpack({"a": [1]})
    assert from_msgpack(to_msgpack({"items": [written_msgpack(inner)]})) == {"items": [{"a": [1]}]}
