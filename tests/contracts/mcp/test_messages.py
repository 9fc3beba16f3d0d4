"""What a server says it is, and what follows from an offer."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.mcp import messages
from plugbay.contracts.mcp.messages import Server
from tests.support.requirements import requirement


def test_a_server_announces_what_its_offer_has() -> None:
    assert Server("s", "1").capabilities == {"tools": {"listChanged": True}, "logging": {}}
    offer: dict[str, Any] = {"prompts": [{"name": "p"}], "resource_templates": [{"uriTemplate": "a:{b}"}]}
    assert Server("s", "1", offer=offer).capabilities == {
        "tools": {"listChanged": True},
        "logging": {},
        "resources": {"subscribe": True, "listChanged": True},
        "prompts": {"listChanged": True},
    }


def test_a_server_announces_exactly_what_it_is_told_to() -> None:
    assert Server("s", "1", capabilities={"tools": {}}).capabilities == {"tools": {}}


def test_an_offer_has_every_list() -> None:
    tool = {"name": "t"}
    assert Server("s", "1", offer={"tools": [tool]}).offer == {**messages.empty_offer(), "tools": [tool]}


def test_a_title_is_said_where_there_is_one() -> None:
    assert Server("s", "1").info() == {"name": "s", "version": "1"}
    assert Server("s", "1", title="S").info() == {"name": "s", "version": "1", "title": "S"}


@requirement("mcp:wire-client-capabilities")
@pytest.mark.parametrize(
    ("offers", "said"),
    [
        (frozenset(), {}),
        (frozenset({"roots"}), {"roots": {}}),
        (frozenset({"sampling", "elicitation"}), {"sampling": {}, "elicitation": {"form": {}, "url": {}}}),
        (frozenset({"nonsense"}), {}),
    ],
)
def test_a_host_says_that_it_can_be_asked_what_was_granted(offers: frozenset[str], said: dict[str, Any]) -> None:
    assert messages.client_capabilities(offers) == said


@requirement("mcp:wire-meta")
def test_what_is_the_protocols_does_not_travel_on() -> None:
    meta = {"progressToken": 1, messages.VERSION: "x", messages.CLIENT: {}, "traceparent": "00", "com.example/a": [1]}
    assert messages.own_meta(meta) == {"traceparent": "00", "com.example/a": [1]}
