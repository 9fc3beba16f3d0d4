"""What a run is asked to do, as it is understood."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.run_requests import (
    Limits,
    RunOptions,
    RunRequest,
    offer_tools,
    resolve_model,
    resolve_request,
    select_tools,
)
from plugbay.server.domain.workers import BoundExport

SEARCH = BoundExport(
    "bind_1", "acme/jira", "search", "tool", "finds", {"type": "object"}, {"effect_class": "read_only"}
)
OTHER = BoundExport("bind_2", "acme/wiki", "search", "tool")
PAY = BoundExport("bind_3", "acme/bank", "pay", "tool")


def understood(wanted: RunOptions, defaults: dict[str, Any] | None = None, *bound: BoundExport) -> RunRequest:
    return resolve_request(wanted, defaults or {}, ["big", "small"], bound, None)


@pytest.mark.parametrize(
    ("name", "providers", "chosen"),
    [
        ("big/m1", ["big", "small"], ("big", "m1")),
        ("big/org/m1", ["big", "small"], ("big", "org/m1")),
        ("m1", ["big"], ("big", "m1")),
        ("org/m1", ["big"], ("big", "org/m1")),
        ("big/m1", ["big"], ("big", "m1")),
    ],
)
def test_a_model_has_its_provider_before_it(name: str, providers: list[str], chosen: tuple[str, str]) -> None:
    assert resolve_model(name, providers) == chosen


@pytest.mark.parametrize(
    ("name", "code"),
    [(None, "run.model_missing"), ("", "run.model_missing"), ("m", "run.model_unknown"), ("x/m", "run.model_unknown")],
)
def test_a_model_that_nobody_has_is_refused(name: str | None, code: str) -> None:
    with pytest.raises(GatewayError) as refused:
        resolve_model(name, ["big", "small"])
    assert (refused.value.code, refused.value.status) == (code, 422)


def test_what_the_request_says_comes_before_what_the_chain_says() -> None:
    defaults = {"model": "big/a", "limits": {"max_turns": 2, "max_tokens": 9}, "temperature": 0.0, "tools": ["pay"]}
    quiet = understood(RunOptions(), defaults, SEARCH, PAY)
    assert (quiet.provider, quiet.model, quiet.temperature) == ("big", "a", 0.0)
    assert quiet.limits == Limits(max_turns=2, max_tokens=9)
    assert [tool.name for tool in quiet.tools] == ["pay"]
    loud = understood(RunOptions("small/b", ["search"], {"max_turns": 5}, 1.0), defaults, SEARCH, PAY)
    assert (loud.provider, loud.model, loud.temperature) == ("small", "b", 1.0)
    assert loud.limits == Limits(max_turns=5, max_tokens=9)
    assert [tool.binding_id for tool in loud.tools] == ["bind_1"]


def test_every_bound_tool_is_offered_unless_some_are_named() -> None:
    assert [tool.name for tool in understood(RunOptions("big/m"), None, SEARCH, PAY).tools] == ["search", "pay"]
    assert understood(RunOptions("big/m", []), None, SEARCH, PAY).tools == ()


def test_tools_of_one_name_are_offered_with_their_packages() -> None:
    names = [tool.name for tool in offer_tools([SEARCH, OTHER, PAY])]
    assert names == ["acme_jira__search", "acme_wiki__search", "pay"]
    long = BoundExport("bind_4", "a" * 64 + "/" + "b" * 64, "search", "tool")
    assert all(len(tool.name) <= 64 for tool in offer_tools([SEARCH, long]))


@pytest.mark.parametrize("name", ["bind_1", "acme/jira/search"])
def test_a_tool_has_several_names(name: str) -> None:
    assert select_tools([name, name], [SEARCH, OTHER]) == [SEARCH]


@pytest.mark.parametrize(("name", "code"), [("search", "run.tool_ambiguous"), ("fly", "run.tool_unknown")])
def test_a_tool_that_cannot_be_told_is_refused(name: str, code: str) -> None:
    with pytest.raises(GatewayError) as refused:
        select_tools([name], [SEARCH, OTHER])
    assert refused.value.code == code


def test_a_request_comes_back_as_it_was_kept() -> None:
    request = resolve_request(RunOptions("big/m"), {}, ["big"], [SEARCH], ["runs:read"])
    assert RunRequest.from_json(request.to_json()) == request
