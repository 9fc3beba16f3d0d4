"""Requests, permissions, time limits and contexts of invocations. Pure values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugbay.host.config import settings
from plugbay.host.invocations import context as contexts
from plugbay.host.invocations.context import Delegation, Permissions, settings_of
from plugbay.host.ports import InvocationRecord
from plugbay.host.request import Policy
from plugbay.model.spec import Export, PluginSpec, SettingsSpec
from tests.support.requirements import requirement

ASKED = {
    "network": "egress",
    "filesystem": "scratch",
    "gateway_api_scopes": ["chains:read", "runs:write"],
    "secret_slots": ["jira_token"],
}
ALL = ("network", "filesystem=scratch", "scope=chains:read", "scope=runs:write", "secret=jira_token")


def export(**facts: Any) -> Export:
    return Export("tool", "t", facts={"execution_class": "worker", "permissions": ASKED, "timeout_ms": 20_000, **facts})


@requirement("vai:host-permissions")
@pytest.mark.parametrize(
    ("granted", "policy", "scopes", "expected"),
    [
        (ALL, Policy(), None, Permissions("egress", "scratch", ("chains:read", "runs:write"), ("jira_token",))),
        ((), Policy(), None, Permissions()),
        (("network", "scope=runs:write"), Policy(), None, Permissions("egress", "none", ("runs:write",))),
        (("scope=runs:write",), Policy(), None, Permissions()),
        (ALL, Policy(network="none"), None, Permissions("none", "scratch", (), ("jira_token",))),
        (
            ALL,
            Policy(gateway_api_scopes=("runs:write", "sessions:read")),
            None,
            Permissions("egress", "scratch", ("runs:write",), ("jira_token",)),
        ),
        (ALL, Policy(), ("chains:read",), Permissions("egress", "scratch", ("chains:read",), ("jira_token",))),
        (
            (*ALL, "filesystem=assets_ro", "scope=sessions:read", "secret=other"),
            Policy(network="egress"),
            None,
            Permissions("egress", "scratch", ("chains:read", "runs:write"), ("jira_token",)),
        ),
    ],
)
def test_what_an_invocation_may_do_is_what_everybody_agrees_on(
    granted: tuple[str, ...], policy: Policy, scopes: tuple[str, ...] | None, expected: Permissions
) -> None:
    assert contexts.effective(export(), granted, policy, scopes) == expected


def test_an_export_that_asks_for_nothing_gets_nothing() -> None:
    bare = Export("tool", "t", facts={"execution_class": "worker"})
    assert contexts.requested(bare) == contexts.effective(bare, ALL, Policy(), None) == Permissions()


@requirement("vai:host-execution-class")
@pytest.mark.parametrize(
    ("declared", "floor", "expected"),
    [
        ("inline", None, "inline"),
        ("inline", "worker", "worker"),
        ("worker", "isolated", "isolated"),
        ("isolated", "inline", "isolated"),
    ],
)
def test_the_more_isolated_class_wins(declared: str, floor: str | None, expected: str) -> None:
    assert contexts.execution_class(declared, floor) == expected


@requirement("vai:host-deadline-min")
@pytest.mark.parametrize(
    ("declared_ms", "policy_ms", "caller", "seconds"),
    [
        (20_000, None, None, 20.0),
        (20_000, 5_000, None, 5.0),
        (20_000, 60_000, None, 20.0),
        (20_000, None, 1.5, 1.5),
        (20_000, 5_000, 60.0, 5.0),
        (9_000_000, None, 9_000.0, 3_600.0),
        (20_000, None, -1.0, 0.0),
    ],
)
def test_the_deadline_is_the_least_of_all_limits(
    declared_ms: int, policy_ms: int | None, caller: float | None, seconds: float
) -> None:
    terms = contexts.terms(export(timeout_ms=declared_ms), (), Policy(timeout_ms=policy_ms), None)
    assert terms.allowed_seconds(caller) == seconds


@pytest.mark.parametrize(
    ("declared_ms", "policy_ms", "seconds"),
    [(20_000, None, 60.0), (20_000, 5_000, 5.0), (3_000_000, None, 3_600.0), (None, None, 3_600.0)],
)
def test_a_time_factor_lengthens_the_time_of_the_manifest_only(
    declared_ms: int | None, policy_ms: int | None, seconds: float
) -> None:
    terms = contexts.terms(export(timeout_ms=declared_ms), (), Policy(timeout_ms=policy_ms), None, time_factor=3.0)
    assert terms.seconds == seconds


@pytest.mark.parametrize(
    ("at", "text"),
    [(0.0, "1970-01-01T00:00:00.000Z"), (1_700_000_000.9996, "2023-11-14T22:13:20.999Z")],
)
def test_moments_are_rfc_3339_in_utc(at: float, text: str) -> None:
    assert contexts.moment(at) == text


@requirement("vai:host-context")
def test_every_key_of_the_context_is_there_null_where_it_does_not_apply() -> None:
    record = InvocationRecord(
        invocation_id="inv_1",
        trace_id="tr_1",
        export_kind="hook",
        export_id="h",
        package_id="acme/p",
        package_version="1.0.0",
        binding_id=None,
        execution_class="worker",
        org_id="org_1",
        project_id=None,
        session_id=None,
        chain_id="ch_1",
        run_id=None,
        execution_id="del_1",
        retry_count=0,
        started_at="2026-03-12T20:00:00.000Z",
        permissions={},
        narrowed=False,
    )
    context = contexts.context_object(record, Permissions(), "2026-03-12T20:00:15.000Z", None, Delegation())
    assert context == {
        "invocation_id": "inv_1",
        "trace_id": "tr_1",
        "org_id": "org_1",
        "project_id": None,
        "session_id": None,
        "chain_id": "ch_1",
        "run_id": None,
        "deadline_at": "2026-03-12T20:00:15.000Z",
        "scratch_dir": None,
        "gateway": {"base_url": None, "delegation_token": None, "scopes": []},
        "permissions": {"network": "none", "filesystem": "none"},
    }


SCHEMA = {"type": "object", "required": ["base_url"], "properties": {"base_url": {"type": "string"}}}


def spec(*exports: Export, **more: Any) -> PluginSpec:
    return PluginSpec("acme/p", "1.0.0", "vai", Path("/"), ("run",), exports=exports, **more)


def named_export(name: str, slots: list[str] | None = None, schema: Any = None) -> Export:
    facts = {"execution_class": "worker", "permissions": {"secret_slots": slots or []}, "config_schema": schema}
    return Export("tool", name, facts=facts)


def test_each_export_has_its_part_of_the_config_under_its_name() -> None:
    known = settings_of(spec(named_export("search", schema=SCHEMA), named_export("other")))
    assert settings.check_config(known, {}) == []
    assert settings.check_config(known, {"search": {"base_url": "https://a.example"}}) == []
    assert settings.check_config(known, {"search": {}})[0].path == "search"
    assert settings.check_config(known, {"other": {}})


def test_all_exports_share_the_secrets_which_have_a_least_length() -> None:
    known = settings_of(spec(named_export("a", ["token"]), named_export("b", ["token", "key"])))
    assert settings.check_secrets(known, {"token": "long enough", "key": "sixsix"}) == []
    assert settings.check_secrets(known, {"token": "five5"})[0].code == "minLength"
    assert settings.check_secrets(known, {"unknown": "long enough"})


def test_a_plugin_without_such_exports_has_what_its_manifest_says() -> None:
    own = SettingsSpec(config_schema=SCHEMA, secrets_schema={"type": "object"})
    assert settings_of(spec(Export("tool", "t"), settings=own)) == own
