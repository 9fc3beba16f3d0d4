"""Every rule of bindings, each with its code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plugbay.model.spec import Export
from plugbay.server.domain.binding_rules import Surroundings, always, floor, judge, references
from plugbay.server.domain.policy import Policy
from plugbay.server.domain.references import SecretRef
from plugbay.server.domain.rollout import Share
from plugbay.store.bindings import BindingRow
from tests.store.test_bindings import ROW
from tests.store.test_packages import ROW as PACKAGE
from tests.support.requirements import requirement

SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
ASKED = {"network": "egress", "filesystem": "none", "gateway_api_scopes": ["runs:read"], "secret_slots": ["key"]}
EXPORT = Export(
    "tool",
    "t",
    facts={
        "execution_class": "isolated",
        "timeout_ms": 20_000,
        "permissions": ASKED,
        "config_schema": SCHEMA,
        "unsupported": "",
    },
)
AROUND = Surroundings(PACKAGE, EXPORT)


def codes(row: BindingRow, around: Surroundings = AROUND) -> list[str]:
    return [finding.code for finding in judge(row, around).errors]


def facts(**changed: Any) -> Surroundings:
    return replace(AROUND, export=replace(EXPORT, facts={**EXPORT.facts, **changed}))


@requirement("vai:control-binding-valid")
def test_a_binding_that_breaks_no_rule_is_valid_and_says_what_it_may() -> None:
    verdict = judge(ROW, AROUND)
    assert verdict.valid and verdict.warnings == ()
    assert verdict.permissions.to_json() == ASKED


@requirement("vai:control-binding-valid")
@pytest.mark.parametrize(
    ("row", "around", "code"),
    [
        (ROW, Surroundings(None, None), "binding.package_not_found"),
        (ROW, Surroundings(PACKAGE, None), "binding.unknown_export"),
        (ROW, replace(AROUND, package=replace(PACKAGE, status="quarantined")), "binding.package_quarantined"),
        (ROW, facts(unsupported="it is for plan9"), "binding.unsupported_platform"),
        (replace(ROW, config={"a": "x"}), AROUND, "binding.invalid_config"),
        (ROW, facts(config_schema=None), "binding.invalid_config"),
        (replace(ROW, secrets={}), AROUND, "binding.unbound_slot"),
        (ROW, replace(AROUND, missing=frozenset({"key"})), "binding.secret_not_found"),
        (replace(ROW, secrets={**ROW.secrets, "other": "secret://org_1/x"}), AROUND, "binding.undeclared_slot"),
        (replace(ROW, secrets={"key": "secret://org_2/key"}), AROUND, "binding.secret_scope_denied"),
        (replace(ROW, policy={"gateway_api_scopes": ["runs:write"]}), AROUND, "binding.policy_widens"),
        (ROW, replace(AROUND, others=(Share("bind_2", 1),)), "binding.rollout_exceeded"),
    ],
)
def test_each_rule_has_a_code(row: BindingRow, around: Surroundings, code: str) -> None:
    assert codes(row, around) == [code]


@requirement("vai:control-no-raw-secrets")
def test_a_pasted_secret_is_refused_whatever_the_status_and_not_quoted() -> None:
    pasted = replace(ROW, secrets={"key": "sk-live-0123456789abcdef"}, status="draft")
    (finding,) = always(pasted, AROUND)
    assert (finding.code, finding.path) == ("binding.raw_secret", "secrets.key")
    assert "sk-live" not in finding.message


def test_a_draft_may_be_unfinished_but_never_somebody_elses() -> None:
    unfinished = replace(ROW, config={}, secrets={})
    assert always(unfinished, AROUND) == [] and codes(unfinished) == ["binding.invalid_config", "binding.unbound_slot"]


def test_a_binding_of_a_project_uses_secrets_of_its_project_too() -> None:
    own = replace(ROW, project_id="proj_1", secrets={"key": "secret://proj_1/key"})
    assert codes(own) == [] and references(own) == {"key": SecretRef("proj_1", "key")}
    assert references(replace(ROW, secrets={"key": "pasted"})) == {}


def test_where_a_config_is_wrong_is_told_all_at_once() -> None:
    errors = judge(replace(ROW, config={"b": 1, "a": "x"}), AROUND).errors
    assert sorted(error.path for error in errors) == ["config", "config.a"]


@pytest.mark.parametrize(
    ("around", "code"),
    [
        (replace(AROUND, org_policy=Policy(gateway_api_scopes=frozenset())), "binding.scope_not_granted"),
        (replace(AROUND, package=replace(PACKAGE, signature_status="missing")), None),
        (facts(execution_class="inline"), "binding.class_raised"),
        (facts(timeout_ms=3_600_000), "binding.timeout_clamped"),
    ],
)
def test_what_a_binding_does_not_get_is_a_warning(around: Surroundings, code: str | None) -> None:
    verdict = judge(ROW, around)
    assert verdict.valid and [finding.code for finding in verdict.warnings] == ([] if code is None else [code])


def test_without_the_network_its_scopes_go_too() -> None:
    verdict = judge(ROW, replace(AROUND, org_policy=Policy(network="none")))
    assert {finding.code for finding in verdict.warnings} == {
        "binding.scope_not_granted",
        "binding.network_not_granted",
    }
    assert verdict.permissions.gateway_api_scopes == ()


@requirement("vai:control-trust-floor")
def test_how_much_apart_a_package_runs_depends_on_whose_it_is() -> None:
    assert floor(PACKAGE) == "worker" and floor(replace(PACKAGE, signature_status="untrusted")) == "isolated"
    assert floor(replace(PACKAGE, package_id="plugbay/thread-weave")) == "inline"
    assert floor(replace(PACKAGE, package_id="plugbay/x", signature_status="missing")) == "isolated"
