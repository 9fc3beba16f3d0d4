"""What is served: which exports, under which names, and who is asked for what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.mcp.offers import expand_template
from plugbay.host.catalog.catalog import Catalog, Entry
from plugbay.mcp_server import names
from plugbay.mcp_server.offering import fits, gather
from plugbay.model.spec import Export, PluginSpec
from tests.support.requirements import requirement


def entries(**plugins: list[Export]) -> list[Entry]:
    specs = [PluginSpec(name, "1", "mcp", Path(), ("x",), exports=tuple(each)) for name, each in plugins.items()]
    return Catalog(specs).entries()


def resource(uri: str, name: str = "") -> Export:
    return Export("resource", name or uri, facts={"mcp": {"uri": uri, "name": name or uri}})


def template(uri: str) -> Export:
    return Export("resource", uri, facts={"mcp": {"uriTemplate": uri, "name": uri}})


def prompt(name: str) -> Export:
    return Export("prompt", name, facts={"mcp": {"name": name}})


def test_tools_resources_templates_and_prompts_are_served_and_nothing_else() -> None:
    offering = gather(
        entries(
            p=[Export("tool", "t"), Export("hook", "h"), Export("screen", "s"), resource("a://1"), template("a://{x}")],
            q=[prompt("t"), Export("tool", "old", facts={"unsupported": "made for another system"})],
        ),
        names.full,
    )
    assert list(offering.tools) == ["p__t"]
    assert list(offering.prompts) == ["q__t"]
    assert {key: len(listed) for key, listed in offering.offer.items()} == {
        "tools": 1,
        "resources": 1,
        "resource_templates": 1,
        "prompts": 1,
    }
    assert offering.collisions == []


@pytest.mark.parametrize(
    ("only", "served"),
    [
        ([], ["p__a", "p__b", "pq__a"]),
        (["p"], ["p__a", "p__b"]),
        (["p*"], ["p__a", "p__b", "pq__a"]),
        (["*/a"], ["p__a", "pq__a"]),
        (["p/b", "pq"], ["p__b", "pq__a"]),
        (["nobody"], []),
    ],
)
@requirement("mcp:serve-only")
def test_patterns_choose_plugins_or_exports(only: list[str], served: list[str]) -> None:
    given = entries(p=[Export("tool", "a"), Export("tool", "b")], pq=[Export("tool", "a")])
    assert list(gather(given, names.full, only).tools) == served


@requirement("mcp:serve-names-collide")
def test_the_first_of_a_name_or_an_address_has_it() -> None:
    offering = gather(
        entries(p=[Export("tool", "t"), resource("a://1")], q=[Export("tool", "t"), resource("a://1")]), names.short
    )
    assert offering.tools["t"].spec.id == "p"
    assert [collision.exports for collision in offering.collisions] == [("p/t", "q/t")]
    assert offering.shadowed == ["q/a://1 is left out: p/a://1 has the address a://1 already"]
    assert len(offering.offer["resources"]) == 1


def asked(offering: Any, uri: str) -> list[str]:
    return [entry.spec.id for entry in offering.readers(uri)]


def test_whoever_lists_an_address_is_asked_first_and_everybody_else_later() -> None:
    offering = gather(
        entries(
            one=[resource("memo://1")],
            two=[template("memo://{id}/text"), template("any://{+rest}")],
            three=[template("file:///{path}{?line}")],
            four=[Export("tool", "t")],
        ),
        names.full,
    )
    assert asked(offering, "memo://1") == ["one", "two", "three"]
    assert asked(offering, "memo://2/text") == ["two", "one", "three"]
    assert asked(offering, "any://a/b?c") == ["two", "one", "three"]
    assert asked(offering, "file:///x?line=3") == ["three", "one", "two"]
    assert asked(offering, "memo://2/other") == ["one", "two", "three"]
    assert asked(gather([], names.full), "memo://1") == []


@requirement("mcp:serve-hostile-templates")
def test_a_template_that_says_more_of_an_address_comes_before_one_that_takes_all() -> None:
    offering = gather(
        entries(evil=[template("{+everything}")], good=[template("memo://{id}")], best=[template("memo://{id}/text")]),
        names.full,
    )
    assert asked(offering, "memo://1") == ["good", "evil", "best"]
    assert asked(offering, "memo://1/text") == ["best", "evil", "good"]


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("a://b", "a://b", True),
        ("a://b", "a://bb", False),
        ("a://{x}", "a://", True),
        ("a://{x}", "a://b", True),
        ("a://{x}", "a://b/c", False),
        ("a://{x}", "b://", False),
        ("a://{x}a", "a://a", True),
        ("a{x}a", "a", False),
        ("a://{+x}", "a://b/c?d#e", True),
        ("a://{x}{?y}", "a://b?y=1", True),
        ("a://{x}/{y}", "a://b/c", True),
        ("a://{x}/{y}", "a://b", False),
        ("a://{x}/b/{y}", "a://c/d/e", False),
        ("{x}", "anything", True),
        ("a://{x}.txt", "a://b.txt.txt", True),
        ("a://{not an expression", "a://{not an expression", True),
    ],
)
def test_an_address_looks_like_those_of_a_template(template: str, uri: str, expected: bool) -> None:
    assert fits(template, uri) is expected


words = st.text("abc-.%é", max_size=6)


@given(st.lists(st.sampled_from(["{x}", "{+x}", "{/x}", "{?x}", "{#x}"]), min_size=1, max_size=4), words)
def test_every_address_of_a_template_looks_like_one(expressions: list[str], value: str) -> None:
    template = "a://" + "=!=".join(expressions)
    assert fits(template, expand_template(template, {"x": value}))


@requirement("mcp:serve-hostile-templates")
@pytest.mark.parametrize("piece", ["{x}", "{x}a", "{+x}a"])
def test_no_template_keeps_everybody_waiting(piece: str) -> None:
    template = "a://" + piece * 1_000 + "!"
    assert not fits(template, "a://" + "a" * 100_000)
    assert fits(template, "a://" + "a" * 100_000 + "!")
