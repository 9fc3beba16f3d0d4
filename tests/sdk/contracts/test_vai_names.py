"""A plugin's names under vai, and which of its declarations are exports there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from plugbay.sdk import Plugin
from plugbay.sdk.contracts.vai_names import export_id, offers, package_id
from tests.support.requirements import requirement

PACKAGE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}/[a-z0-9][a-z0-9._-]{0,63}")
EXPORT = re.compile(r"[a-z][a-z0-9_]{0,63}")


def function(*_: Any) -> None: ...


@requirement("vai:sdk-names")
@pytest.mark.parametrize(
    ("id", "mapped"),
    [
        ("acme/devkit", "acme/devkit"),
        ("Acme/Dev Kit 2", "acme/dev-kit-2"),
        ("example.weather", "local/example.weather"),
        ("memory", "local/memory"),
        ("a/b/c", "a/b-c"),
        ("_x/.y", "x/y"),
        ("/", "x/x"),
        ("é/" + "y" * 99, "x/" + "y" * 64),
    ],
)
def test_an_id_is_a_publisher_and_a_name(id: str, mapped: str) -> None:
    assert package_id(id) == mapped
    assert PACKAGE.fullmatch(mapped)


@requirement("vai:sdk-names")
@pytest.mark.parametrize(
    ("name", "mapped"),
    [
        ("jira_search", "jira_search"),
        ("Jira Search", "jira_search"),
        ("index.rebuild", "index_rebuild"),
        ("2nd", "x2nd"),
        ("_private", "x_private"),
        ("", "x"),
        ("y" * 99, "y" * 64),
    ],
)
def test_an_export_has_a_name_in_the_alphabet(name: str, mapped: str) -> None:
    assert export_id(name) == mapped
    assert EXPORT.fullmatch(mapped)


@requirement("vai:sdk-names", "vai:sdk-hook")
def test_hooks_of_one_name_are_one_export_and_hooks_of_other_contracts_are_none() -> None:
    plugin = Plugin("p")
    plugin.hook("run.completed", "run.started", export="notify")(function)
    plugin.hook("chain.compacted", export="notify")(print)
    plugin.hook("run.paused")(function)
    plugin.hook("before_message")(function)
    found = offers(plugin)
    assert {id: list(offer.by_event) for id, offer in found.items()} == {
        "notify": ["run.completed", "run.started", "chain.compacted"],
        "function": ["run.paused"],
    }
    assert found["notify"].by_event["chain.compacted"].function is print


@requirement("vai:sdk-names")
def test_every_kind_is_an_export_and_two_of_one_name_are_refused() -> None:
    plugin = Plugin("p")
    plugin.tool("search")(lambda: 1)
    plugin.compactor(function)
    plugin.harness("triage")(function)
    assert {id: offer.kind for id, offer in offers(plugin).items()} == {
        "triage": "harness",
        "search": "tool",
        "function": "compactor",
    }
    plugin.hook("run.completed", export="Search")(function)
    with pytest.raises(ValueError, match="a tool and a hook of p are both called 'search' under vai"):
        offers(plugin)
