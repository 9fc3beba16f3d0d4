"""Deny by default, row by row: requested ∩ granted and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from plugbay.host.authorization.policy import (
    Decision,
    admit,
    authorize,
    effective,
    is_pending,
    missing,
)
from plugbay.model.errors import Code, Origin
from plugbay.model.spec import Access, Export, PluginSpec
from tests.support.requirements import requirement


def spec(*capabilities: str) -> PluginSpec:
    return PluginSpec("p", "1", "rune", Path("/p"), ("x",), capabilities=capabilities)


MODEST = replace(spec("net:[]"), access=(Access("no_network", capability="net:[]"),))
"""Says that it does without the network, and asks for nothing."""

TOOL = Export("tool", "t")
NEEDY = Export("tool", "t", capabilities=("a",))


@pytest.mark.parametrize(
    ("plugin", "export", "decision", "code"),
    [
        (spec(), TOOL, Decision(), None),
        (MODEST, TOOL, Decision(), None),
        (replace(MODEST, capabilities=("net:[]", "a")), TOOL, Decision(), Code.CAPABILITY_NOT_ALLOWED),
        (spec("a"), TOOL, Decision(), Code.CAPABILITY_NOT_ALLOWED),
        (spec("a"), TOOL, Decision(grants=frozenset()), None),
        (spec("a"), TOOL, Decision(grants=frozenset({"a"})), None),
        (spec("a"), TOOL, Decision(grant_all=True), None),
        (spec("a"), NEEDY, Decision(grants=frozenset()), Code.CAPABILITY_NOT_ALLOWED),
        (spec("a"), NEEDY, Decision(grants=frozenset({"a"})), None),
        (spec(), NEEDY, Decision(grants=frozenset()), None),
        (spec(), TOOL, Decision(enabled=False), Code.UNAVAILABLE),
        (spec("a"), TOOL, Decision(enabled=False, grant_all=True), Code.UNAVAILABLE),
    ],
    ids=[
        "asks for nothing",
        "renounces something",
        "renounces something and asks for something else",
        "asks, nobody has decided",
        "the operator decided to grant nothing",
        "granted",
        "all granted",
        "the tool needs what was refused",
        "the tool needs what was granted",
        "the plugin declares no capabilities at all",
        "disabled",
        "disabled beats granted",
    ],
)
def test_whether_a_call_may_happen(plugin: PluginSpec, export: Export, decision: Decision, code: str | None) -> None:
    failure = authorize(plugin, export, decision)
    assert (failure.code if failure else None) == code
    if failure:
        assert failure.origin == Origin.POLICY
        assert failure.plugin == "p"
        assert failure.detail["hint"]


def test_what_a_plugin_does_without_is_not_asked_for_and_needs_no_grant() -> None:
    plugin = replace(MODEST, capabilities=("net:[]", "a"))
    failure = authorize(plugin, TOOL, Decision())
    assert failure is not None
    assert failure.message == "pending: it requests a, which is not granted yet"
    assert effective(plugin, Decision(grants=frozenset())) == ("net:[]",)


def test_a_pending_plugin_fails_with_a_hint_how_to_grant() -> None:
    failure = authorize(spec("a", "b"), TOOL, Decision())
    assert failure is not None
    assert failure.detail["hint"].startswith("grant it for this run with --grant a --grant b")


names = st.lists(st.sampled_from("abcdef"), unique=True)


@given(names, names, st.booleans())
def test_effective_is_never_more_than_requested_nor_more_than_granted(
    requested: list[str], granted: list[str], everything: bool
) -> None:
    have = effective(spec(*requested), Decision(grants=frozenset(granted), grant_all=everything))
    assert set(have) <= set(requested)
    assert everything or set(have) <= set(granted)
    assert list(have) == [name for name in requested if name in have]


def test_a_capability_that_is_requested_and_optional_is_one_capability() -> None:
    spec = PluginSpec("p", "1", "nexo", Path("/"), ("x",), capabilities=("a",), optional_capabilities=("a", "b"))
    assert effective(spec, Decision(grant_all=True)) == ("a", "b")
    assert effective(spec, Decision(grants=frozenset({"b"}))) == ("b",)


def test_what_is_only_optional_keeps_no_plugin_pending() -> None:
    spec = PluginSpec("p", "1", "nexo", Path("/"), ("x",), optional_capabilities=("b",))
    assert admit(spec, Decision()) is None


def test_a_grant_covers_the_narrower_requests_of_its_name_and_never_a_wider_one() -> None:
    wanted = ("network=a.example", "network=b.example", "event_bus")
    spec = PluginSpec("p", "1", "ainb", Path("/"), ("x",), capabilities=wanted)
    assert effective(spec, Decision(grants=frozenset({"network"}))) == wanted[:2]
    assert effective(spec, Decision(grants=frozenset({"network=b.example"}))) == wanted[1:2]
    assert effective(spec, Decision(grants=frozenset({"event_bus=topic"}))) == ()


@requirement("mcp:host-approval")
def test_unapproved_exports_do_not_run_unless_everything_is_granted_for_this_run() -> None:
    refusal = admit(spec(), Decision(approved=False))
    assert refusal is not None
    assert (refusal.code, refusal.origin) == (Code.CAPABILITY_NOT_ALLOWED, Origin.POLICY)
    assert "plugbay mcp approve p" in refusal.detail["hint"]
    assert admit(spec(), Decision(approved=False, grant_all=True)) is None
    assert admit(spec(), Decision(approved=True)) is None


@requirement("rune:capability:allow-list")
def test_a_plugin_whose_handshake_requests_has_its_own_grants_and_none_of_others() -> None:
    plugin = replace(spec("a"), requests_at_run_time=True)
    granted = frozenset({"a", "net", "memory.recall"})
    assert effective(plugin, Decision(grants=granted)) == ("a", "memory.recall", "net")
    assert effective(plugin, Decision(grants=granted, for_others=frozenset({"a", "memory.recall"}))) == ("a", "net")
    assert effective(plugin, Decision(grant_all=True)) == ("a",)


@pytest.mark.parametrize(
    ("plugin", "decision", "pending", "wanted"),
    [
        (spec(), Decision(), False, ()),
        (spec("a"), Decision(), True, ("a",)),
        (spec("a"), Decision(grants=frozenset()), False, ()),
        (spec("a"), Decision(grant_all=True), False, ()),
        (spec(), Decision(approved=False), True, ()),
        (spec("a"), Decision(enabled=False), False, ("a",)),
    ],
    ids=["asks for nothing", "undecided", "decided", "all granted", "not approved", "disabled"],
)
def test_a_plugin_is_pending_while_it_waits_for_the_operator(
    plugin: PluginSpec, decision: Decision, pending: bool, wanted: tuple[str, ...]
) -> None:
    assert is_pending(plugin, decision) is pending
    assert missing(plugin, decision) == wanted
