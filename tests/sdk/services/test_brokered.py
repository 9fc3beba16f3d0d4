"""What is asked of a host on behalf of a plugin, and how its answers read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from plugbay.model.operations import FetchUrl, InvokeAction, ReadFile, ReadFolder
from plugbay.sdk.context import Context
from plugbay.sdk.services.brokered import GRACE_SECONDS, FileEntry, Response
from plugbay.sdk.services.host_client import SERVICE_SECONDS
from tests.sdk.test_context import Recorder
from tests.support.requirements import requirement


@requirement("ainb:sdk-actions")
def test_an_action_is_given_its_time_and_a_little_more() -> None:
    line = Recorder(b"done")
    actions = Context(line, "p").actions
    assert actions.invoke("a", {"x": 1}, timeout=0.5) == b"done"
    assert actions.invoke("a") == b"done"
    assert line.said == [
        (InvokeAction("a", b'{"x":1}', 500), 0.5 + GRACE_SECONDS),
        (InvokeAction("a", b"", 30_000), SERVICE_SECONDS + GRACE_SECONDS),
    ]


def test_an_action_in_a_time_that_is_none_is_not_asked_for() -> None:
    line, quoted = Recorder(b"done"), "5"
    with pytest.raises(TypeError, match=r"timeout is a number of seconds, .* not '5'"):
        Context(line, "p").actions.invoke("a", timeout=quoted)  # type: ignore[arg-type]
    assert line.said == []


@requirement("ainb:sdk-files")
def test_a_file_is_asked_for_by_its_whole_path() -> None:
    line = Recorder(b"text")
    files = Context(line, "p").files
    for path in ("/a/b", Path("/a/b"), "/a/./x/../b", "~/notes", "b"):
        assert files.read(path) == b"text"
    wanted = ["/a/b", "/a/b", "/a/b", str(Path.home() / "notes"), f"{os.getcwd()}/b"]
    assert line.said == [(ReadFile(path), SERVICE_SECONDS) for path in wanted]


@requirement("ainb:sdk-files")
def test_a_folder_is_a_list_of_entries() -> None:
    line = Recorder([{"name": "a", "is_dir": True, "size": 0}, {"name": "b", "is_dir": False, "size": 7}])
    assert Context(line, "p").files.list("/x", timeout=2) == [FileEntry("a", True, 0), FileEntry("b", False, 7)]
    assert line.said == [(ReadFolder("/x"), 2)]


@requirement("ainb:sdk-http")
def test_a_response_is_read_as_bytes_text_or_json() -> None:
    line = Recorder({"status": 200, "headers": [["Content-Type", "a"], ["X", "1"], ["x", "2"]], "body": b'{"a":1}'})
    response = Context(line, "p").http.fetch("https://a/")
    assert (response.status, response.ok, response.body, response.text) == (200, True, b'{"a":1}', '{"a":1}')
    assert (response.json(), response.header("x"), response.header("y")) == ({"a": 1}, "1", None)
    assert response.headers == [("Content-Type", "a"), ("X", "1"), ("x", "2")]
    assert (Response(404, [], b"\xff").ok, Response(404, [], b"\xff").text) == (False, "\N{REPLACEMENT CHARACTER}")


@requirement("ainb:sdk-http")
@pytest.mark.parametrize(
    ("arguments", "op"),
    [
        ({}, FetchUrl("https://a/", "GET", None, [])),
        ({"method": "POST", "body": {"x": 1}}, FetchUrl("https://a/", "POST", b'{"x":1}', [])),
        ({"method": "PUT", "body": ""}, FetchUrl("https://a/", "PUT", b"", [])),
        ({"headers": {"a": "b"}}, FetchUrl("https://a/", "GET", None, [("a", "b")])),
        ({"headers": [("a", "b"), ("a", "c")]}, FetchUrl("https://a/", "GET", None, [("a", "b"), ("a", "c")])),
    ],
)
def test_a_request_says_what_it_needs(arguments: dict[str, Any], op: FetchUrl) -> None:
    line = Recorder({"status": 204, "headers": [], "body": b""})
    Context(line, "p").http.fetch("https://a/", **arguments, timeout=3)
    assert line.said == [(op, 3)]
