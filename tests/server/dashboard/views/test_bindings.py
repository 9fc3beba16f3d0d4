"""Settings of bindings as values: what differs, and what two operators changed."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.host.invocations.context import Permissions
from plugbay.server.dashboard.views.bindings import (
    Change,
    binding_row,
    changes_between,
    config_form,
    defaults_of,
    flatten,
    merge,
    permission_changes,
    permission_facts,
    settings_of,
    shared_traffic,
    unflatten,
)
from plugbay.server.domain.bindings import Verdict
from plugbay.store.bindings import BindingRow

BASE: dict[str, Any] = {
    "package_version": "1.0.0",
    "config": {"units": "metric", "days": 3},
    "secrets": {"token": "secret://tea/token"},
    "policy": {},
    "status": "active",
    "traffic_percent": 10,
}


def row(id: str = "bind_1", **fields: Any) -> BindingRow:
    values = {**BASE, "package_row": "pkg_1", "package_id": "acme/p", "export_id": "t", "export_kind": "tool"}
    scope = {"org_id": "tea", "project_id": None, "revision": 1, "created_at": 0.0, "updated_at": 0.0}
    return BindingRow(id=id, **{**values, **scope, **fields})


def test_settings_are_the_same_after_they_were_flat() -> None:
    whole = {**BASE, "config": {"a.b": {"c": 1}}}
    assert flatten(whole)["config.a.b"] == {"c": 1} and unflatten(flatten(whole)) == whole
    assert settings_of(row()) == BASE


def test_a_difference_has_both_values_and_never_a_pasted_secret() -> None:
    after = {
        **BASE,
        "config": {"units": "imperial", "days": True},
        "secrets": {"token": "hunter2"},
        "policy": {"timeout_ms": 5},
        "traffic_percent": 50,
    }
    assert changes_between(BASE, after) == (
        Change("config.units", "metric", "imperial"),
        Change("config.days", "3", "true"),
        Change("secrets.token", "secret://tea/token", "(not a reference)"),
        Change("traffic", "10 %", "50 %"),
        Change("policy.timeout_ms", None, "5"),
    )
    assert changes_between(BASE, {**BASE, "config": {"days": 3}})[0] == Change("config.units", "metric", None)
    assert changes_between({"config": {"x": 1}}, {"config": {"x": True}}), "1 is not true"


def test_changes_of_different_values_are_both_kept() -> None:
    yours, now = {**BASE, "traffic_percent": 50}, {**BASE, "config": {"units": "imperial", "days": 3}}
    merged = merge(BASE, yours, now)
    assert merged.settings == {**now, "traffic_percent": 50}
    assert merged.theirs == (Change("config.units", "metric", "imperial"),) and merged.both == ()


def test_a_value_that_both_changed_is_shown_with_both() -> None:
    yours = {**BASE, "config": {"units": "imperial"}}
    now = {**BASE, "config": {"units": "kelvin", "days": 9}, "status": "disabled"}
    merged = merge(BASE, yours, now)
    assert merged.both == (Change("config.units", "kelvin", "imperial"), Change("config.days", "9", None))
    assert merged.settings["config"] == {"units": "imperial"} and merged.settings["status"] == "disabled"


def test_the_same_change_of_both_is_no_conflict() -> None:
    changed = {**BASE, "traffic_percent": 50}
    assert merge(BASE, changed, changed).both == () and merge(BASE, changed, changed).settings == changed
    assert merge(BASE, BASE, changed).settings == changed, "an opened page changes nothing"


SCHEMA = {
    "type": "object",
    "required": ["city"],
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}, "on": {"type": "boolean"}},
}


@pytest.mark.parametrize(
    ("config", "is_form"),
    [
        ({"city": "Lima", "days": 3}, True),
        ({"city": "Lima", "on": False}, True),
        ({"days": 3}, True),
        ({"city": "a\r\nb"}, False),
        ({"city": "Lima", "more": 1}, False),
        ({"city": 7}, False),
        ({"city": "Lima", "days": "three"}, False),
    ],
)
def test_a_config_is_a_form_only_if_the_form_sends_it_back(config: dict[str, Any], is_form: bool) -> None:
    form = config_form(SCHEMA, config)
    assert form.can_be_fields is is_form and (form.fields is not None) is is_form
    assert config_form(SCHEMA, config, as_text=True).fields is None


def test_a_schema_proposes_its_defaults_and_none_has_no_settings() -> None:
    assert defaults_of(SCHEMA) == {"days": 3} and defaults_of(None) == {} and defaults_of({"properties": 7}) == {}
    assert config_form(None, {}).fields == () and config_form(True, {}).fields is None


def test_others_of_the_same_export_and_scope_share_the_traffic() -> None:
    others = (row(), row("bind_2", traffic_percent=30), row("bind_3", project_id="p"), row("bind_4", export_id="u"))
    shared = shared_traffic(row(), others)
    assert shared.others == (("bind_2", "1.0.0", 30),) and shared.free == 70
    assert shared_traffic(row(), (row("bind_2", traffic_percent=200),)).free == 0


def test_a_list_and_facts_name_what_counts() -> None:
    assert [cell.text for cell in binding_row(row())] == ["t", "acme/p", "tea", "active", "10 %", ""]
    verdict = Verdict((), (), Permissions(network="egress"), {"timeout_ms": 5, "max_depth": None})
    facts = dict(permission_facts(verdict))
    assert (facts["network"], facts["secret slots"], facts["timeout ms"]) == ("egress", "none", "5")
    assert "max depth" not in facts


def test_a_change_names_what_the_plugin_gets_more_or_less() -> None:
    before = Verdict((), (), Permissions(network="none"), {"timeout_ms": 5})
    after = Verdict((), (), Permissions(network="egress", secret_slots=("key",)), {})
    assert permission_changes(before, after) == (
        Change("network", "none", "egress"),
        Change("secret slots", "none", "key"),
        Change("timeout ms", "5", None),
    )
    assert permission_changes(before, before) == ()
