"""Each kind of value: what is read as one, what is written as one, and what is refused both ways."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.ainb.fields import WANTED, Field, base64, read, written
from plugbay.model.errors import Code, Failure
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec


KEY = {"code": {"type": "f", "n": 5}}
MOUSE = {"kind": {"type": "moved"}, "col": 0, "row": 65535}
ENTRY = {"name": "a", "is_dir": False, "size": 3}

READ: list[tuple[str, Any, Any]] = [
    ("text", "", ""),
    ("text", "é", "é"),
    ("texts", ["a", ""], ("a", "")),
    ("level", "warn", "warn"),
    ("count", 0, 0),
    ("count", 2**64 - 1, 2**64 - 1),
    ("u16", 65535, 65535),
    ("i32", -(2**31), -(2**31)),
    ("bytes", "", b""),
    ("bytes", "aGk=", b"hi"),
    ("bytes", "+/8=", b"\xfb\xff"),
    ("bytes", [], b""),
    ("bytes", [0, 255], b"\x00\xff"),
    ("bytes?", None, None),
    ("bytes?", "aGk=", b"hi"),
    ("pairs", [["a", "b"], ["a", "c"]], [["a", "b"], ["a", "c"]]),
    ("viewport", {"width": 80, "height": 0, "depth": 3}, {"width": 80, "height": 0}),
    ("entries", [{**ENTRY, "mode": 7}], [ENTRY]),
    ("key", KEY, {**KEY, "mods": 0, "kind": "press"}),
    ("key", {**KEY, "mods": 15, "kind": "release", "x": 1}, {**KEY, "mods": 15, "kind": "release"}),
    ("mouse", MOUSE, {**MOUSE, "mods": 0}),
    ("any", {"a": [None]}, {"a": [None]}),
]

WRONG: dict[str, list[Any]] = {
    "text": [None, 5],
    "texts": ["ab", ["a", 5], None],
    "level": ["fatal", "WARN", ["warn"]],
    "count": [-1, 1.0, True, "1", None, 2**64],
    "u16": [-1, 65536, 80.0, False],
    "i32": [2**31, -(2**31) - 1, 0.0, None],
    "bytes": ["aGk", "aGk==", "aG k=", "aGk=\n", "_-8=", "=", "aGk=aGk=", "é", None, 5, {}],
    "bytes?": ["?", [256], [-1], [1.0], [True], ["a"], [None]],
    "pairs": [{"a": "b"}, [["a"]], [["a", "b", "c"]], [["a", 5]], ["ab"], None],
    "viewport": [{}, {"width": 1}, {"width": 1, "height": 65536}, [80, 24], None],
    "entries": [{}, [5], [{}], [{**ENTRY, "is_dir": 0}], [{**ENTRY, "size": -1}]],
    "key": [{}, "esc", {"code": "esc"}, {"code": {}}, {**KEY, "mods": 256}, {**KEY, "kind": 1}],
    "mouse": [{}, {**MOUSE, "col": -1}, {**MOUSE, "row": 1.0}, {**MOUSE, "kind": "moved"}],
}
REFUSED = [(kind, value) for kind, values in WRONG.items() for value in values]


@requirement("ainb:wire-base64", "ainb:wire-legacy-bytes", "ainb:wire-unknown-fields")
@pytest.mark.parametrize(("kind", "value", "meaning"), READ, ids=str)
def test_what_fits_a_kind_is_read(kind: str, value: Any, meaning: Any) -> None:
    assert read([Field("f", kind, "here")], {"f": value, "unknown": 1}) == {"here": meaning}


@requirement("ainb:wire-base64")
@pytest.mark.parametrize(("kind", "value"), REFUSED, ids=str)
def test_what_does_not_fit_a_kind_is_refused_in_words_when_it_is_read(kind: str, value: Any) -> None:
    assert read([Field("f", kind)], {"f": value}) == f"f must be {WANTED[kind]}"


@pytest.mark.parametrize(("kind", "value"), [*REFUSED, ("bytes", [1]), ("bytes?", "aGk=")], ids=str)
def test_what_does_not_fit_a_kind_is_not_written_either(codec: Codec, kind: str, value: Any) -> None:
    failure = written([Field("f", kind)], {"f": value}, codec)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.message) == (Code.INVALID_INPUT, f"f must be {WANTED[kind]}")


@pytest.mark.parametrize(("kind", "value", "meaning"), READ, ids=str)
def test_what_was_read_is_written_so_that_it_reads_the_same(codec: Codec, kind: str, value: Any, meaning: Any) -> None:
    body = written([Field("f", kind, "here")], {"here": meaning}, codec)
    assert isinstance(body, bytes)
    assert read([Field("f", kind, "here")], json.loads(body)) == {"here": meaning}


@requirement("ainb:wire-base64")
@pytest.mark.parametrize("text", ["aGk=", "plain", bytearray(b"x"), 5])
def test_only_bytes_are_written_as_bytes(codec: Codec, text: Any) -> None:
    for kind in ("bytes", "bytes?"):
        assert isinstance(written([Field("f", kind)], {"f": text}, codec), Failure)
    assert isinstance(written([Field("f", "bytes")], {"f": None}, codec), Failure)
    assert written([Field("f", "bytes?"), Field("g", "bytes")], {"f": None, "g": b"hi"}, codec) == (
        b'{"f":null,"g":"aGk="}'
    )


def test_a_value_without_a_json_form_is_refused_in_words(codec: Codec) -> None:
    failure = written([Field("f", "any")], {"f": {"a": object()}}, codec)
    assert isinstance(failure, Failure)
    assert "f cannot be sent as JSON: at /a: object has no JSON form" in failure.message


def test_what_is_missing_has_its_default_or_is_refused(codec: Codec) -> None:
    fields = [Field("a", "text"), Field("b", "count", default=0), Field("c", "any", default=None)]
    assert read(fields, {"a": "x"}) == {"a": "x", "b": 0, "c": None}
    assert read(fields, {"b": 1}) == "a is missing"
    assert read(fields, {"a": "x", "b": None}) == f"b must be {WANTED['count']}"
    assert written(fields, {"a": "x"}, codec) == b'{"a":"x","b":0,"c":null}'


@requirement("ainb:wire-params-object")
@pytest.mark.parametrize("value", [None, [], "x", 5, True])
def test_what_is_no_object_has_no_fields(value: Any) -> None:
    assert read([], value) == "params must be an object"
    assert read([], value, "it") == "it must be an object"


@requirement("ainb:wire-base64")
@given(st.binary())
def test_any_bytes_survive_as_base64_and_as_an_array(data: bytes) -> None:
    for form in (base64(data), list(data)):
        assert read([Field("f", "bytes")], {"f": form}) == {"f": data}
