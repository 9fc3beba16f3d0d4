"""Answers: the shape of each, both ways."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from plugbay.contracts.ainb.results import no_such_namespace, read, written
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    DispatchCli,
    FetchUrl,
    GetSnapshot,
    InvokeAction,
    ReadFile,
    ReadFolder,
    Render,
    Shutdown,
    SubscribeSnapshot,
)
from tests.support.codecs import CODECS
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec


PICTURE = {"buffer": {"width": 0, "height": 0, "cells": []}}
ENTRY = {"name": "a", "is_dir": True, "size": 0}

WRITTEN: list[tuple[type, Any, bytes]] = [
    (Render, PICTURE, b'{"buffer":{"width":0,"height":0,"cells":[]}}'),
    (
        DispatchCli,
        {"stdout": b"hi", "stderr": b"", "exit_code": 2, "more": 1},
        b'{"stdout":"aGk=","stderr":"","exit_code":2}',
    ),
    (InvokeAction, b"hi", b'{"payload":"aGk="}'),
    (GetSnapshot, {"data": None, "version": 0}, b'{"payload":null,"version":0}'),
    (GetSnapshot, {"data": b"hi", "version": 7}, b'{"payload":"aGk=","version":7}'),
    (SubscribeSnapshot, None, b"{}"),
    (SubscribeSnapshot, "whatever", b"{}"),
    (Shutdown, None, b"{}"),
    (ReadFolder, [ENTRY], b'{"entries":[{"name":"a","is_dir":true,"size":0}]}'),
    (ReadFile, b"", b'{"bytes":""}'),
    (
        FetchUrl,
        {"status": 204, "headers": [("a", "b")], "body": b""},
        b'{"status":204,"headers":[["a","b"]],"body":""}',
    ),
]


@requirement("ainb:wire-empty-result", "ainb:wire-base64")
@pytest.mark.parametrize(("op", "value", "body"), WRITTEN, ids=lambda case: getattr(case, "__name__", None))
def test_a_value_is_written_as_the_contract_says(codec: Codec, op: type, value: Any, body: bytes) -> None:
    assert written(op, value, codec) == body


@pytest.mark.parametrize(
    ("op", "value"),
    [
        (Render, None),
        (Render, [PICTURE]),
        (Render, {"buffer": float("nan")}),
        (DispatchCli, b"hi"),
        (DispatchCli, {"stdout": "hi", "stderr": b"", "exit_code": 0}),
        (DispatchCli, {"stdout": b"", "stderr": b"", "exit_code": None}),
        (DispatchCli, {"stdout": b""}),
        (InvokeAction, None),
        (InvokeAction, "text"),
        (GetSnapshot, b"hi"),
        (GetSnapshot, {"data": b"hi"}),
        (ReadFolder, ["a"]),
        (ReadFile, "text"),
        (FetchUrl, {"status": "200", "headers": [], "body": b""}),
    ],
    ids=str,
)
def test_a_value_that_has_no_such_form_is_refused(codec: Codec, op: type, value: Any) -> None:
    failure = written(op, value, codec)
    assert isinstance(failure, Failure)
    assert failure.code == Code.INVALID_INPUT


@pytest.mark.parametrize(("op", "value", "body"), WRITTEN, ids=lambda case: getattr(case, "__name__", None))
def test_what_is_written_reads_as_the_value_it_was(codec: Codec, op: type, value: Any, body: bytes) -> None:
    got, problem = read(op, codec.dump(json.loads(body)), codec)
    assert problem == ""
    if op is Render:
        assert codec.load(got) == value
    elif op is DispatchCli:
        assert codec.load(got) == {"stdout": "aGk=", "stderr": "", "exit_code": 2}
    elif op in (SubscribeSnapshot, Shutdown):
        assert got is None
    else:
        assert json.dumps(got, default=list) == json.dumps(value, default=list)


@pytest.mark.parametrize("raw", [None, 5, [], "x", {"buffer": 5}])
def test_a_picture_is_not_looked_into(codec: Codec, raw: Any) -> None:
    dumped = codec.dump(raw)
    assert read(Render, dumped, codec) == (dumped, "")


@pytest.mark.parametrize(
    ("op", "result", "problem"),
    [
        (DispatchCli, None, "it must be an object"),
        (DispatchCli, {"stdout": "", "stderr": ""}, "exit_code is missing"),
        (InvokeAction, {}, "payload is missing"),
        (GetSnapshot, {"payload": None}, "version is missing"),
        (GetSnapshot, {"payload": "?", "version": 1}, "payload must be bytes, as base64, or null"),
        (ReadFile, {"bytes": None}, "bytes must be bytes, as base64"),
        (ReadFolder, {"entries": {}}, "entries must be an array of objects with name, is_dir and size"),
        (FetchUrl, {"status": 70000, "headers": [], "body": ""}, "status must be an integer from 0 to 65535"),
    ],
    ids=str,
)
def test_an_answer_of_another_shape_is_refused_in_words(codec: Codec, op: type, result: Any, problem: str) -> None:
    assert read(op, codec.dump(result), codec) == (None, problem)


def test_a_snapshot_without_a_payload_is_none(codec: Codec) -> None:
    assert read(GetSnapshot, codec.dump({"version": 0}), codec) == ({"data": None, "version": 0}, "")


def test_a_namespace_nobody_has_is_named_beside_those_there_are() -> None:
    assert no_such_namespace("x", ())["exit_code"] == 2
    text = no_such_namespace("x", ("a", "b"))["stderr"]
    assert isinstance(text, str)
    assert read(InvokeAction, {"payload": text}, CODECS["stdlib"]()) == (
        b"unknown namespace 'x'; this plugin has a, b\n",
        "",
    )
