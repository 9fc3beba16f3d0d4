"""Policies narrow, and never widen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.vai.permissions import SCOPES
from plugbay.host.confinement.reach import Reach
from plugbay.host.invocations.context import CLASSES, FILESYSTEMS, LONGEST
from plugbay.model.spec import Export
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.policy import (
    Policy,
    PolicyDocument,
    effective_limits,
    effective_permissions,
    find_widened,
    intersect_policies,
    parse_policy,
    validate_policy,
)
from tests.support.requirements import requirement


def tool(network: str = "egress", scopes: tuple[str, ...] = ("runs:read", "chains:read"), **facts: Any) -> Export:
    asked = {"network": network, "filesystem": "scratch", "gateway_api_scopes": scopes, "secret_slots": ["key"]}
    usual = {"execution_class": "worker", "timeout_ms": 20_000, "permissions": asked}
    return Export("tool", "t", facts={**usual, **facts})


POLICIES = st.builds(
    Policy,
    timeout_ms=st.none() | st.integers(1, 10_000),
    network=st.none() | st.sampled_from(["none", "egress"]),
    egress_domains=st.none() | st.frozensets(st.sampled_from(["a.example", "b.example"])),
    gateway_api_scopes=st.none() | st.frozensets(st.sampled_from(SCOPES)),
    execution_class=st.none() | st.sampled_from(CLASSES),
    max_concurrency=st.none() | st.integers(1, 10),
    filesystem=st.none() | st.sampled_from(FILESYSTEMS),
    secret_slots=st.none() | st.frozensets(st.sampled_from(["key", "other"])),
    max_depth=st.none() | st.integers(0, 9),
    max_child_runs=st.none() | st.integers(0, 99),
    allow_compaction=st.none() | st.booleans(),
)


@requirement("vai:control-policy-narrows")
@given(POLICIES, POLICIES, st.none() | st.frozensets(st.sampled_from(SCOPES)))
def test_whatever_policies_say_nobody_gets_more_than_each_of_them_and_the_manifest_and_the_caller_allow(
    org: Policy, binding: Policy, caller: frozenset[str] | None
) -> None:
    export, together = tool(), intersect_policies(org, binding)
    got = effective_permissions(export, together, caller)
    for alone in (Policy(), org, binding):
        assert set(got.gateway_api_scopes) <= set(effective_permissions(export, alone).gateway_api_scopes)
        assert got.network == "none" or effective_permissions(export, alone).network == "egress"
        files = effective_permissions(export, alone).filesystem
        assert FILESYSTEMS.index(got.filesystem) <= FILESYSTEMS.index(files)
        assert set(got.secret_slots) <= set(effective_permissions(export, alone).secret_slots)
    assert caller is None or set(got.gateway_api_scopes) <= caller
    for name in ("timeout_ms", "max_concurrency", "max_depth", "max_child_runs", "allow_compaction"):
        said = [value for value in (getattr(org, name), getattr(binding, name)) if value is not None]
        assert getattr(together, name) == min(said, default=None)
    for domains in (org.egress_domains, binding.egress_domains):
        assert domains is None or (together.egress_domains is not None and together.egress_domains <= domains)
    classes = [name for name in (org.execution_class, binding.execution_class) if name]
    assert together.execution_class == max(classes, key=CLASSES.index, default=None)


@requirement("vai:control-policy-narrows")
@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"network": "egress"}, "network"),
        ({"egress_domains": ["a.example"]}, "egress_domains"),
        ({"gateway_api_scopes": ["runs:write"]}, "gateway_api_scopes"),
        ({"execution_class": "inline"}, "execution_class"),
        ({"timeout_ms": 20_001}, "timeout_ms"),
        ({"secret_slots": ["key", "more"]}, "secret_slots"),
    ],
)
def test_a_policy_that_asks_for_more_than_the_manifest_is_told_where(said: dict[str, Any], field: str) -> None:
    offline = tool("none", ())
    assert [name for name, _ in find_widened(parse_policy(validate_policy(said)), offline)] == [field]


@requirement("vai:control-policy-narrows")
@pytest.mark.parametrize(
    ("asked", "said", "widens"),
    [
        ("none", "scratch", True),
        ("none", "assets_ro", True),
        ("assets_ro", "scratch", True),
        ("scratch", "assets_ro", False),
        ("scratch", "scratch", False),
        ("scratch", "none", False),
    ],
)
def test_a_policy_gives_no_more_files_than_the_manifest_asks_for(asked: str, said: str, widens: bool) -> None:
    export = tool(permissions={"filesystem": asked})
    policy = parse_policy(validate_policy({"filesystem": said}))
    assert bool(find_widened(policy, export)) is widens
    assert effective_permissions(export, policy).filesystem == (asked if widens else said)
    assert policy.reach().scratch is (said == "scratch")


@requirement("vai:control-policy-limits")
def test_the_limits_of_a_policy_never_exceed_those_of_the_export() -> None:
    policy = parse_policy(validate_policy({"max_child_runs": 50, "max_depth": 2, "allow_compaction": False}))
    assert policy.for_host().limits == {"max_child_runs": 50, "max_depth": 2, "allow_compaction": False}
    capped = policy.for_host({"max_child_runs": 12, "max_depth": 4, "allow_compaction": True}).limits
    assert capped == {"max_child_runs": 12, "max_depth": 2, "allow_compaction": False}
    assert Policy().for_host().limits == {}
    shown = effective_limits(tool(max_concurrency=4), intersect_policies(policy, Policy(timeout_ms=5, max_depth=3)))
    limits = {"max_depth": 2, "max_child_runs": 50, "allow_compaction": False}
    assert shown == {"timeout_ms": 5, "max_concurrency": 4, **limits}


def test_a_policy_that_narrows_everything_widens_nothing() -> None:
    said = {
        "network": "none",
        "gateway_api_scopes": ["runs:read"],
        "execution_class": "isolated",
        "timeout_ms": 1,
        "max_concurrency": 1,
    }
    policy = parse_policy(validate_policy(said))
    assert find_widened(policy, tool()) == [] and effective_permissions(tool(), policy).gateway_api_scopes == ()
    assert policy.for_host().timeout_ms == 1 and policy.for_host().gateway_api_scopes == ("runs:read",)


@pytest.mark.parametrize(
    "said",
    [
        {"netwrok": "none"},
        {"network": "all"},
        {"timeout_ms": 0},
        {"timeout_ms": True},
        {"egress_domains": ["not a host"]},
        {"gateway_api_scopes": ["all:write"]},
        {"max_concurrency": "4"},
        {"filesystem": "home"},
        {"secret_slots": ["Not A Slot"]},
        {"max_child_runs": -1},
        {"allow_compaction": 0},
    ],
)
def test_what_no_policy_says_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(GatewayError) as caught:
        validate_policy(said)
    assert (caught.value.code, caught.value.status) == ("policy.invalid", 422)
    assert caught.value.details["problems"][0]["path"].startswith(next(iter(said)))


def test_hosts_are_compared_in_their_usual_form_and_what_is_unknown_narrows_nothing() -> None:
    assert validate_policy({"egress_domains": ["API.Example"], "network": None}) == {"egress_domains": ["api.example"]}
    assert parse_policy({"of_tomorrow": 1}) == Policy() == intersect_policies()


@requirement("vai:control-policy-narrows")
@pytest.mark.parametrize(
    ("asked", "said", "network", "scopes"),
    [
        ("egress", None, "egress", ("runs:read", "chains:read")),
        ("egress", "egress", "egress", ("runs:read", "chains:read")),
        ("egress", "none", "none", ()),
        ("none", None, "none", ()),
        ("none", "egress", "none", ()),
    ],
)
def test_the_network_is_there_if_manifest_and_policy_agree(
    asked: str, said: str | None, network: str, scopes: tuple[str, ...]
) -> None:
    got = effective_permissions(tool(asked), Policy(network=said))
    assert (got.network, got.gateway_api_scopes) == (network, scopes)


@pytest.mark.parametrize(
    ("slots", "got"), [(None, ("key",)), (frozenset({"other"}), ()), (frozenset({"key"}), ("key",))]
)
def test_a_secret_reaches_only_a_slot_that_the_policy_leaves(
    slots: frozenset[str] | None, got: tuple[str, ...]
) -> None:
    assert effective_permissions(tool(), Policy(secret_slots=slots)).secret_slots == got


@pytest.mark.parametrize(
    ("said", "together"),
    [
        ([None, None], None),
        ([None, "egress"], "egress"),
        (["egress", None], "egress"),
        (["egress", "none"], "none"),
        (["none", "egress"], "none"),
        (["none", None], "none"),
    ],
)
def test_one_policy_without_the_network_is_enough(said: list[str | None], together: str | None) -> None:
    assert intersect_policies(*(Policy(network=network) for network in said)).network == together


def test_of_several_policies_the_one_with_the_least_files_counts() -> None:
    files = ["scratch", None, "none", "assets_ro"]
    assert intersect_policies(*(Policy(filesystem=each) for each in files)).filesystem == "none"
    assert intersect_policies(Policy(filesystem="scratch"), Policy(filesystem="assets_ro")).filesystem == "assets_ro"


@pytest.mark.parametrize(
    ("policy", "reach"),
    [
        (Policy(), Reach(None, True)),
        (Policy(network="none"), Reach((), True)),
        (Policy(network="none", egress_domains=frozenset({"a.example"})), Reach((), True)),
        (
            Policy(network="egress", egress_domains=frozenset({"b.example", "a.example"})),
            Reach(("a.example", "b.example")),
        ),
        (Policy(filesystem="assets_ro"), Reach(None, False)),
    ],
    ids=["all", "no network", "no network, whatever is named", "two hosts", "no scratch directory"],
)
def test_a_policy_leaves_the_sandbox_this(policy: Policy, reach: Reach) -> None:
    assert policy.reach() == reach


def test_a_policy_that_says_the_same_as_the_manifest_widens_nothing() -> None:
    same = Policy(network="egress", execution_class="worker", timeout_ms=20_000, filesystem="scratch")
    assert find_widened(same, tool()) == []
    assert [name for name, _ in find_widened(same, tool(permissions={}))] == ["network", "filesystem"]


def test_a_timeout_is_the_shortest_that_manifest_and_policy_allow() -> None:
    assert effective_limits(tool(), Policy())["timeout_ms"] == 20_000
    assert effective_limits(tool(timeout_ms=None), Policy())["timeout_ms"] == LONGEST


def test_lists_of_a_stored_policy_are_sets() -> None:
    stored = {"egress_domains": ["a.example"], "gateway_api_scopes": ["runs:read"], "secret_slots": ["key"]}
    assert parse_policy(stored) == Policy(
        egress_domains=frozenset({"a.example"}),
        gateway_api_scopes=frozenset({"runs:read"}),
        secret_slots=frozenset({"key"}),
    )


def test_a_problem_in_a_list_is_named_by_its_place() -> None:
    with pytest.raises(GatewayError) as caught:
        validate_policy({"secret_slots": ["key", "Not A Slot"]})
    assert caught.value.details["problems"] == [
        {"path": "secret_slots.1", "problem": "String should match pattern '^[a-z][a-z0-9_]{0,63}$'"}
    ]


def test_a_form_names_each_field_in_a_word_or_two() -> None:
    assert {name: field.title for name, field in PolicyDocument.model_fields.items()} == {
        "timeout_ms": "Timeout",
        "network": "Network",
        "egress_domains": "Hosts",
        "filesystem": "Files",
        "gateway_api_scopes": "API scopes",
        "secret_slots": "Secrets",
        "execution_class": "Isolation",
        "max_concurrency": "At once",
        "max_depth": "Depth",
        "max_child_runs": "Runs",
        "allow_compaction": "Compaction",
    }
