"""Operations into parameters and back: above all the two that are not simply their parameters."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.ainb.messages import HOST_NOTIFICATIONS, HOST_REQUESTS, PLUGIN_NOTIFICATIONS, PLUGIN_REQUESTS
from plugbay.contracts.ainb.requests import read, written
from plugbay.model.errors import Failure
from plugbay.model.operations import FetchUrl, InvokeAction, Render, WriteLog
from plugbay.wire.strict_json import stdlib_codec

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
    assert read(METHODS[name], params) == op


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
    problem = read(METHODS[name], params)
    assert isinstance(problem, str)
    assert words in problem


@pytest.mark.parametrize(("name", "params", "op"), READ, ids=str)
def test_what_is_written_is_read_as_the_same(name: str, params: Any, op: Any) -> None:
    codec = stdlib_codec()
    body = written(METHODS[name], op, codec)
    assert isinstance(body, bytes)
    assert read(METHODS[name], codec.decode(body)) == op


def test_a_picture_of_an_impossible_size_is_not_asked_for() -> None:
    failure = written(METHODS["plugin/render"], Render("s", 70_000, 24), stdlib_codec())
    assert isinstance(failure, Failure)
    assert "viewport" in failure.message
