"""The tables of methods, and the names of granted capabilities."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.ainb import messages
from plugbay.contracts.ainb.messages import (
    CAPABILITIES,
    HOST_NOTIFICATIONS,
    HOST_REQUESTS,
    PLUGIN_NOTIFICATIONS,
    PLUGIN_REQUESTS,
    WANTED,
    Field,
    Identity,
    base64,
    build_greeting,
    build_greeting_result,
    build_unknown_namespace,
    check_greeting,
    granted_names,
    read_field,
    read_greeting,
    read_request,
    read_result,
    write_field,
    write_request,
    write_result,
)
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
    WriteLog,
)
from plugbay.wire.strict_json import stdlib_codec
from tests.support.codecs import CODECS
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec


@requirement("ainb:wire-methods")
def test_the_methods_are_those_of_the_contract() -> None:
    def names(table: tuple[messages.Method, ...]) -> list[str]:
        return [method.name for method in table]

    assert names(messages.PLUGIN_REQUESTS) == ["plugin/render", "plugin/cli_dispatch", "host/action/invoke"]
    assert names(messages.PLUGIN_NOTIFICATIONS) == [
        "plugin/handle_event",
        "plugin/handle_key",
        "plugin/handle_mouse",
        "plugin/handle_action",
    ]
    assert names(messages.HOST_REQUESTS) == [
        "host/snapshot/get",
        "host/snapshot/subscribe",
        "host/action/invoke",
        "host/fs/read_dir",
        "host/fs/read_file",
        "host/network/fetch",
    ]
    assert names(messages.HOST_NOTIFICATIONS) == ["host/snapshot/publish", "host/log"]
    assert (messages.INIT, messages.SHUTDOWN) == ("plugin/init", "plugin/shutdown")


@requirement("ainb:wire-body-cap", "ainb:wire-abi")
def test_the_numbers_are_those_of_the_contract() -> None:
    assert (messages.MAX_BODY, messages.ABI_VERSION) == (16 * 1024 * 1024, 2)


@requirement("ainb:wire-granted-names")
@pytest.mark.parametrize(
    ("granted", "names"),
    [
        ((), []),
        (("network=api.openai.com", "event_bus", "network=other"), ["event_bus", "network"]),
        (("secrets:read=key", "read_paths=~/notes", "read_sessions"), ["read_sessions", "read_paths", "secrets:read"]),
        (("later=x", "event_bus=usage.*"), ["event_bus", "later"]),
        (tuple(reversed(CAPABILITIES)), list(CAPABILITIES)),
    ],
)
def test_granted_capabilities_are_listed_by_name_in_one_order(granted: tuple[str, ...], names: list[str]) -> None:
    assert granted_names(granted) == names


def test_an_identity_without_a_manifest_tells_an_empty_one() -> None:
    assert (Identity("p", "1.0.0").manifest, Identity("p", "1.0.0").namespaces) == ({}, ())


@requirement("ainb:wire-init")
def test_a_host_says_where_the_manifest_is_what_is_granted_and_which_abi_it_speaks() -> None:
    said = build_greeting("/p/manifest.toml", ("network=a", "event_bus"), {"k": 1}, 9)
    assert said == {
        "manifest_path": "/p/manifest.toml",
        "granted_capabilities": ["event_bus", "network"],
        "abi_version": 2,
        "config": {"k": 1},
        "host": {"kind": "plugbay", "pid": 9},
    }
    assert "host" not in build_greeting("", (), None, None)


PLUGIN = {"name": "p", "version": "1.0.0", "abi_version": 2}
ACCEPTED: list[tuple[Any, tuple[str, str], list[str]]] = [
    ({"name": "p", "version": "1.0.0"}, ("p", "1.0.0"), []),
    ({"manifest": {"plugin": PLUGIN}}, ("p", "1.0.0"), []),
    ({"manifest": {"plugin": PLUGIN}, "abi_version": 2}, ("p", "1.0.0"), []),
    ({"manifest": PLUGIN}, ("p", "1.0.0"), []),
    ({**PLUGIN, "manifest": {"plugin": PLUGIN}}, ("p", "1.0.0"), []),
    ({"name": "p"}, ("p", "1.0.0"), []),
    ({"abi_version": 2}, ("p", "1.0.0"), []),
    ({"name": "q", "version": "1.0.0"}, ("q", "1.0.0"), ["says it is called 'q'; its manifest says 'p'"]),
    (
        {"manifest": {"plugin": {**PLUGIN, "version": "2.0.0"}}},
        ("p", "2.0.0"),
        ["says it is version '2.0.0'; its manifest says '1.0.0'"],
    ),
    ({"name": 5, "version": "1.0.0"}, ("p", "1.0.0"), ["says it is called 5; its manifest says 'p'"]),
    ({}, ("p", "1.0.0"), ["answered plugin/init without its identity"]),
    ({"manifest": "text"}, ("p", "1.0.0"), ["answered plugin/init without its identity"]),
    ({"manifest": {"plugin": []}}, ("p", "1.0.0"), ["answered plugin/init without its identity"]),
    (None, ("p", "1.0.0"), ["answered plugin/init without its identity"]),
    ([1], ("p", "1.0.0"), ["answered plugin/init without its identity"]),
]


@requirement("ainb:wire-init-any-shape")
@pytest.mark.parametrize(("result", "who", "warnings"), ACCEPTED, ids=str)
def test_any_shape_is_accepted_and_what_does_not_agree_is_warned_about(
    result: Any, who: tuple[str, str], warnings: list[str]
) -> None:
    name, version = who
    assert check_greeting(result, "p", "1.0.0") == {
        "name": name,
        "version": version,
        "abi_version": 2,
        "warnings": warnings,
    }


def test_what_the_host_does_not_know_is_compared_with_nothing() -> None:
    hello = check_greeting({"name": "q", "version": "9.9.9"}, "", "")
    assert isinstance(hello, dict)
    assert (hello["name"], hello["version"], hello["warnings"]) == ("q", "9.9.9", [])


@requirement("ainb:wire-abi")
@pytest.mark.parametrize("abi", [1, 3, "2", 2.0, True, [2]])
@pytest.mark.parametrize("nested", [False, True])
def test_another_abi_is_refused_wherever_it_is_said(abi: Any, nested: bool) -> None:
    said = {"abi_version": abi}
    failure = check_greeting({"name": "p", "manifest": {"plugin": said}} if nested else said, "p", "1.0.0")
    assert isinstance(failure, Failure)
    assert failure.code == Code.PROTOCOL_VERSION_MISMATCH
    assert failure.detail["expected"] == 2


def test_a_warning_quotes_only_the_beginning_of_a_huge_name() -> None:
    hello = check_greeting({"name": "x" * 100_000}, "p", "")
    assert isinstance(hello, dict)
    (warning,) = hello["warnings"]
    assert len(warning) < 200


@requirement("ainb:wire-init-reply")
def test_a_plugin_answers_in_both_shapes_at_once() -> None:
    identity = Identity("p", "1.0.0", {"plugin": PLUGIN})
    answer = build_greeting_result(identity)
    assert answer == {"name": "p", "version": "1.0.0", "abi_version": 2, "manifest": {"plugin": PLUGIN}}
    hello = check_greeting(answer, "p", "1.0.0")
    assert isinstance(hello, dict)
    assert hello["warnings"] == []


@pytest.mark.parametrize(
    ("params", "hello"),
    [
        ({}, ((), None, "")),
        (
            {"granted_capabilities": ["a", 5, "b"], "config": [1], "manifest_path": "/x", "abi_version": 2},
            (("a", "b"), [1], "/x"),
        ),
        ({"granted_capabilities": "a", "manifest_path": 5}, ((), None, "")),
    ],
)
def test_a_plugin_hears_what_the_host_says_and_what_is_missing_is_nothing(params: Any, hello: Any) -> None:
    said = read_greeting(params)
    assert isinstance(said, dict)
    assert (said["granted"], said["config"], said["manifest_path"]) == hello


@requirement("ainb:wire-abi")
@pytest.mark.parametrize(
    ("params", "code"),
    [({"abi_version": 1}, -32003), ({"abi_version": None}, -32003), (None, -32602), ([], -32602)],
    ids=str,
)
def test_a_plugin_refuses_a_host_it_cannot_talk_to(params: Any, code: int) -> None:
    refusal = read_greeting(params)
    assert isinstance(refusal, tuple)
    assert refusal[0] == code


METHODS = {
    method.name: method for method in (*HOST_NOTIFICATIONS, *HOST_REQUESTS, *PLUGIN_NOTIFICATIONS, *PLUGIN_REQUESTS)
}
READ: list[tuple[str, Any, Any]] = [
    ("plugin/render", {"viewport": {"width": 80, "height": 24}}, Render("", 80, 24, 0)),
    ("plugin/render", {"viewport": {"width": 1, "height": 2}, "generation": 7, "screen_id": "s"}, Render("s", 1, 2, 7)),
    ("host/network/fetch", {"url": "u"}, FetchUrl("u", "GET", None, ())),
    ("host/network/fetch", {"url": "u", "method": "", "body": None, "headers": []}, FetchUrl("u", "GET", None, ())),
    (
        "host/network/fetch",
        {"url": "u", "method": "PUT", "body": "aGk=", "headers": [["a", "b"]]},
        FetchUrl("u", "PUT", b"hi", (("a", "b"),)),
    ),
    ("host/action/invoke", {"action": "a", "payload": ""}, InvokeAction("a", b"", 0)),
    ("host/log", {"level": "info", "message": "m"}, WriteLog("info", "m", None)),
    ("host/log", {"level": "info", "message": "m", "fields": {"a": 1}}, WriteLog("info", "m", {"a": 1})),
]


@pytest.mark.parametrize(("name", "params", "op"), READ, ids=str)
def test_parameters_are_read_with_their_defaults(name: str, params: Any, op: Any) -> None:
    assert read_request(METHODS[name], params) == op


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("plugin/render", {}, "viewport is missing"),
        ("plugin/render", {"viewport": 5}, "viewport must be an object with width and height"),
        ("host/log", {"level": "info"}, "message is missing"),
        ("host/log", None, "params must be an object"),
    ],
)
def test_parameters_that_do_not_fit_are_refused_in_words(name: str, params: Any, words: str) -> None:
    problem = read_request(METHODS[name], params)
    assert isinstance(problem, str)
    assert words in problem


@pytest.mark.parametrize(("name", "params", "op"), READ, ids=str)
def test_what_is_written_is_read_as_the_same(name: str, params: Any, op: Any) -> None:
    codec = stdlib_codec()
    body = write_request(METHODS[name], op, codec)
    assert isinstance(body, bytes)
    assert read_request(METHODS[name], codec.decode(body)) == op


def test_a_picture_of_an_impossible_size_is_not_asked_for() -> None:
    failure = write_request(METHODS["plugin/render"], Render("s", 70_000, 24), stdlib_codec())
    assert isinstance(failure, Failure)
    assert "viewport" in failure.message


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
    assert write_result(op, value, codec) == body


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
    failure = write_result(op, value, codec)
    assert isinstance(failure, Failure)
    assert failure.code == Code.INVALID_INPUT


@pytest.mark.parametrize(("op", "value", "body"), WRITTEN, ids=lambda case: getattr(case, "__name__", None))
def test_what_is_written_reads_as_the_value_it_was(codec: Codec, op: type, value: Any, body: bytes) -> None:
    got, problem = read_result(op, codec.dump(json.loads(body)), codec)
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
    assert read_result(Render, dumped, codec) == (dumped, "")


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
    assert read_result(op, codec.dump(result), codec) == (None, problem)


def test_a_snapshot_without_a_payload_is_none(codec: Codec) -> None:
    assert read_result(GetSnapshot, codec.dump({"version": 0}), codec) == ({"data": None, "version": 0}, "")


def test_a_namespace_nobody_has_is_named_beside_those_there_are() -> None:
    assert build_unknown_namespace("x", ())["exit_code"] == 2
    text = build_unknown_namespace("x", ("a", "b"))["stderr"]
    assert isinstance(text, str)
    assert read_result(InvokeAction, {"payload": text}, CODECS["stdlib"]()) == (
        b"unknown namespace 'x'; this plugin has a, b\n",
        "",
    )


KEY = {"code": {"type": "f", "n": 5}}
MOUSE = {"kind": {"type": "moved"}, "col": 0, "row": 65535}
DIR_ENTRY = {"name": "a", "is_dir": False, "size": 3}
READ_FIELDS: list[tuple[str, Any, Any]] = [
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
    ("entries", [{**DIR_ENTRY, "mode": 7}], [DIR_ENTRY]),
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
    "entries": [{}, [5], [{}], [{**DIR_ENTRY, "is_dir": 0}], [{**DIR_ENTRY, "size": -1}]],
    "key": [{}, "esc", {"code": "esc"}, {"code": {}}, {**KEY, "mods": 256}, {**KEY, "kind": 1}],
    "mouse": [{}, {**MOUSE, "col": -1}, {**MOUSE, "row": 1.0}, {**MOUSE, "kind": "moved"}],
}
REFUSED = [(kind, value) for kind, values in WRONG.items() for value in values]


@requirement("ainb:wire-base64", "ainb:wire-legacy-bytes", "ainb:wire-unknown-fields")
@pytest.mark.parametrize(("kind", "value", "meaning"), READ_FIELDS, ids=str)
def test_what_fits_a_kind_is_read(kind: str, value: Any, meaning: Any) -> None:
    assert read_field([Field("f", kind, "here")], {"f": value, "unknown": 1}) == {"here": meaning}


@requirement("ainb:wire-base64")
@pytest.mark.parametrize(("kind", "value"), REFUSED, ids=str)
def test_what_does_not_fit_a_kind_is_refused_in_words_when_it_is_read(kind: str, value: Any) -> None:
    assert read_field([Field("f", kind)], {"f": value}) == f"f must be {WANTED[kind]}"


@pytest.mark.parametrize(("kind", "value"), [*REFUSED, ("bytes", [1]), ("bytes?", "aGk=")], ids=str)
def test_what_does_not_fit_a_kind_is_not_written_either(codec: Codec, kind: str, value: Any) -> None:
    failure = write_field([Field("f", kind)], {"f": value}, codec)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.message) == (Code.INVALID_INPUT, f"f must be {WANTED[kind]}")


@pytest.mark.parametrize(("kind", "value", "meaning"), READ_FIELDS, ids=str)
def test_what_was_read_is_written_so_that_it_reads_the_same(codec: Codec, kind: str, value: Any, meaning: Any) -> None:
    body = write_field([Field("f", kind, "here")], {"here": meaning}, codec)
    assert isinstance(body, bytes)
    assert read_field([Field("f", kind, "here")], json.loads(body)) == {"here": meaning}


@requirement("ainb:wire-base64")
@pytest.mark.parametrize("text", ["aGk=", "plain", bytearray(b"x"), 5])
def test_only_bytes_are_written_as_bytes(codec: Codec, text: Any) -> None:
    for kind in ("bytes", "bytes?"):
        assert isinstance(write_field([Field("f", kind)], {"f": text}, codec), Failure)
    assert isinstance(write_field([Field("f", "bytes")], {"f": None}, codec), Failure)
    assert write_field([Field("f", "bytes?"), Field("g", "bytes")], {"f": None, "g": b"hi"}, codec) == (
        b'{"f":null,"g":"aGk="}'
    )


def test_a_value_without_a_json_form_is_refused_in_words(codec: Codec) -> None:
    failure = write_field([Field("f", "any")], {"f": {"a": object()}}, codec)
    assert isinstance(failure, Failure)
    assert "f cannot be sent as JSON: at /a: object has no JSON form" in failure.message


def test_what_is_missing_has_its_default_or_is_refused(codec: Codec) -> None:
    fields = [Field("a", "text"), Field("b", "count", default=0), Field("c", "any", default=None)]
    assert read_field(fields, {"a": "x"}) == {"a": "x", "b": 0, "c": None}
    assert read_field(fields, {"b": 1}) == "a is missing"
    assert read_field(fields, {"a": "x", "b": None}) == f"b must be {WANTED['count']}"
    assert write_field(fields, {"a": "x"}, codec) == b'{"a":"x","b":0,"c":null}'


@requirement("ainb:wire-params-object")
@pytest.mark.parametrize("value", [None, [], "x", 5, True])
def test_what_is_no_object_has_no_fields(value: Any) -> None:
    assert read_field([], value) == "params must be an object"
    assert read_field([], value, "it") == "it must be an object"


@requirement("ainb:wire-base64")
@given(st.binary())
def test_any_bytes_survive_as_base64_and_as_an_array(data: bytes) -> None:
    for form in (base64(data), list(data)):
        assert read_field([Field("f", "bytes")], {"f": form}) == {"f": data}
