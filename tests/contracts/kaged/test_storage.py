"""Requests for storage: how they are asked, read and answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugbay.contracts.kaged import storage
from plugbay.contracts.kaged.storage import MAX_KEY, MAX_KEYS, READ, WRITE
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import DeleteStored, GetStored, ListStored, SetStored
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec


ASKED = [
    (GetStored("k"), "kaged.storage.get", {"key": "k"}),
    (SetStored("k", {"a": [1]}), "kaged.storage.set", {"key": "k", "value": {"a": [1]}}),
    (SetStored("k", None), "kaged.storage.set", {"key": "k", "value": None}),
    (DeleteStored("k"), "kaged.storage.delete", {"key": "k"}),
    (ListStored("a%", 7), "kaged.storage.list", {"prefix": "a%", "limit": 7}),
    (ListStored(), "kaged.storage.list", {"prefix": "", "limit": 1000}),
]


@requirement("kaged:wire-storage")
@pytest.mark.parametrize(("op", "name", "params"), ASKED, ids=str)
def test_a_request_is_read_as_it_was_asked(codec: Codec, op: Any, name: str, params: Any) -> None:
    asked = storage.write_request(op, codec)
    assert not isinstance(asked, Failure)
    assert (asked[0], codec.decode(asked[1])) == (name, params)
    assert storage.read_request(name, params) == op


def test_a_value_without_a_json_form_is_not_asked_for(codec: Codec) -> None:
    refusal = storage.write_request(SetStored("k", object()), codec)
    assert isinstance(refusal, Failure)
    assert refusal.code == Code.INVALID_INPUT


@requirement("kaged:wire-storage-params")
@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("get", None, "params"),
        ("get", [], "params"),
        ("get", {}, "key"),
        ("get", {"key": ""}, "key"),
        ("get", {"key": 5}, "key"),
        ("get", {"key": "é" * (MAX_KEY // 2) + "x"}, "key"),
        ("delete", {"key": None}, "key"),
        ("set", {"key": "k"}, "value"),
        ("set", {"key": "", "value": 1}, "key"),
        ("list", {"prefix": 1}, "prefix"),
        ("list", {"prefix": "x" * (MAX_KEY + 1)}, "prefix"),
        ("list", {"limit": 0}, "limit"),
        ("list", {"limit": True}, "limit"),
        ("list", {"limit": "10"}, "limit"),
    ],
)
def test_wrong_parameters_are_named(name: str, params: Any, words: str) -> None:
    problem = storage.read_request(f"kaged.storage.{name}", params)
    assert isinstance(problem, str)
    assert words in problem


def test_the_longest_key_is_taken_and_a_list_never_has_too_many() -> None:
    assert storage.read_request("kaged.storage.get", {"key": "é" * (MAX_KEY // 2)}) == GetStored("é" * (MAX_KEY // 2))
    assert storage.read_request("kaged.storage.list", {"limit": 10**9}) == ListStored("", MAX_KEYS)
    assert storage.read_request("kaged.storage.clear", {}) is None


@requirement("kaged:wire-storage-grants")
def test_reading_and_writing_are_two_grants() -> None:
    needs = {GetStored: READ, ListStored: READ, SetStored: WRITE, DeleteStored: WRITE}
    assert needs == storage.NEEDS
    assert (READ, WRITE) == ("kaged:storage:read", "kaged:storage:write")


@requirement("kaged:wire-storage")
@pytest.mark.parametrize(
    ("op", "value", "result"),
    [
        (GetStored, {"found": True, "value": 5}, {"value": 5, "found": True}),
        (GetStored, {"found": False, "value": None}, {"value": None, "found": False}),
        (SetStored, None, {"ok": True}),
        (DeleteStored, True, {"deleted": True}),
        (ListStored, ["a", "b"], {"keys": ["a", "b"]}),
    ],
)
def test_what_the_host_answers_is_what_the_plugin_gets(op: type, value: Any, result: Any) -> None:
    assert storage.build_result(op, value) == result
    assert storage.read_result(op, result) == (value, "")


@pytest.mark.parametrize("op", [GetStored, DeleteStored, ListStored])
@pytest.mark.parametrize("answer", [None, {}, [], {"found": 1, "deleted": "yes", "keys": [1]}])
def test_an_answer_of_the_wrong_shape_is_told(op: type, answer: Any) -> None:
    assert "must hold" in storage.read_result(op, answer)[1]
