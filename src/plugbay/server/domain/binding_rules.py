"""Whether a binding can be as it says: every rule, each with a code of its own, all problems at once.

Pure: rows, manifests and policies in, a verdict out. Some rules hold always, because what breaks them must never be
kept: a pasted key, another tenant's secret. The others hold for a binding that is to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from plugbay.contracts.schemas import compile_schema
from plugbay.host.invocations.context import LONGEST, Permissions, execution_class
from plugbay.model.spec import Export
from plugbay.server.domain import policy as policies
from plugbay.server.domain.policy import Policy
from plugbay.server.domain.references import SecretRef, parse
from plugbay.server.domain.rollout import Share, overbooked
from plugbay.store.bindings import BindingRow
from plugbay.store.packages import PackageRow

MAX_ERRORS = 12
"""Of a config that fails its schema; more help nobody."""

FIRST_PARTY = "plugbay"
"""The publisher whose packages come with the gateway."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or that somebody should know."""

    code: str
    path: str
    message: str

    def to_json(self) -> dict[str, str]:
        return {"code": self.code, "path": self.path, "message": self.message}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a binding is judged by."""

    package: PackageRow | None
    export: Export | None
    org_policy: Policy = field(default_factory=Policy)
    missing: frozenset[str] = frozenset()
    """Slots whose secret is not there."""
    others: tuple[Share, ...] = ()
    """Active bindings of the same export at the same scope."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out."""

    errors: tuple[Finding, ...]
    warnings: tuple[Finding, ...] = ()
    permissions: Permissions = field(default_factory=Permissions)

    @property
    def valid(self) -> bool:
        return not self.errors


def always(binding: BindingRow, around: Surroundings) -> list[Finding]:
    """What no binding may break, whatever its status."""
    found = list(_references(binding))
    if around.package is None:
        text = f"there is no {binding.package_id} {binding.package_version} here"
        return [Finding("binding.package_not_found", "package_version", text), *found]
    if around.export is None:
        text = f"{binding.package_id} {binding.package_version} has no export {binding.export_id!r}"
        return [Finding("binding.unknown_export", "export_id", text), *found]
    found += _undeclared(binding, around.export)
    found += [
        Finding("binding.policy_widens", f"policy.{name}", f"a policy can only narrow: {why}")
        for name, why in policies.widened(policies.parsed(binding.policy), around.export)
    ]
    return found


def judge(binding: BindingRow, around: Surroundings) -> Verdict:
    """Everything that is wrong with a binding that is to run, and what it may do then."""
    errors = always(binding, around)
    package, export = around.package, around.export
    if package is None or export is None:
        return Verdict(tuple(errors))
    errors += _unusable(package, export)
    errors += _config_errors(export.facts.get("config_schema"), binding.config)
    errors += _unbound(binding, export, around.missing)
    errors += _overbooked(binding, around.others)
    policy = policies.narrowest(around.org_policy, policies.parsed(binding.policy))
    permissions = policies.effective(export, policy)
    return Verdict(tuple(errors), tuple(_warnings(package, export, policy, permissions)), permissions)


def floor(package: PackageRow) -> str:
    """How much apart at least the work of a package is done: what its publisher is trusted with."""
    if package.signature_status != "verified":
        return "isolated"
    return "inline" if package.package_id.partition("/")[0] == FIRST_PARTY else "worker"


def references(binding: BindingRow) -> dict[str, SecretRef]:
    """The secrets a binding names, by slot, as far as they can be read."""
    found = {slot: parse(text) for slot, text in binding.secrets.items()}
    return {slot: ref for slot, ref in found.items() if ref is not None}


# The rules.


def _references(binding: BindingRow) -> Iterator[Finding]:
    """Values that are no references are not quoted: they may be the secret itself."""
    for slot, text in binding.secrets.items():
        ref, path = parse(text), f"secrets.{slot}"
        if ref is None:
            why = "a slot is bound to a reference, secret://<org or project>/<name>; never paste the secret itself"
            yield Finding("binding.raw_secret", path, why)
        elif ref.scope not in (binding.org_id, binding.project_id):
            why = f"a binding of this scope uses secrets of {binding.project_id or binding.org_id}, not of {ref.scope}"
            yield Finding("binding.secret_scope_denied", path, why)


def _undeclared(binding: BindingRow, export: Export) -> list[Finding]:
    slots = _slots(export)
    text = f"{export.name} has no such slot; it has {', '.join(slots) or 'none'}"
    return [
        Finding("binding.undeclared_slot", f"secrets.{slot}", text) for slot in binding.secrets if slot not in slots
    ]


def _unusable(package: PackageRow, export: Export) -> list[Finding]:
    found = []
    if package.status != "available":
        text = f"{package.package_id} {package.version} is quarantined: its signature is {package.signature_status}"
        found.append(Finding("binding.package_quarantined", "package_version", text))
    unsupported = export.facts.get("unsupported")
    if unsupported:
        found.append(Finding("binding.unsupported_platform", "package_version", unsupported))
    return found


def _config_errors(schema: Any, config: Mapping[str, Any]) -> list[Finding]:
    if schema is None:
        text = "the export has no such setting"
        return [Finding("binding.invalid_config", f"config.{key}", text) for key in islice(config, MAX_ERRORS)]
    validator = compile_schema(schema)
    if validator.is_valid(dict(config)):
        return []
    return [
        Finding("binding.invalid_config", ".".join(["config", *map(str, error.instance_path)]), error.message)
        for error in islice(validator.iter_errors(dict(config)), MAX_ERRORS)
    ]


def _unbound(binding: BindingRow, export: Export, missing: Iterable[str]) -> list[Finding]:
    unbound = [slot for slot in _slots(export) if slot not in binding.secrets]
    found = [Finding("binding.unbound_slot", f"secrets.{slot}", "nothing is bound to this slot") for slot in unbound]
    text = "there is no such secret"
    return found + [Finding("binding.secret_not_found", f"secrets.{slot}", text) for slot in sorted(missing)]


def _overbooked(binding: BindingRow, others: Iterable[Share]) -> list[Finding]:
    more = overbooked([*others, Share(binding.id, binding.traffic_percent)])
    if not more:
        return []
    text = f"with the other active bindings of this export at this scope that is {more} percent too much"
    return [Finding("binding.rollout_exceeded", "rollout.traffic_percent", text)]


def _warnings(package: PackageRow, export: Export, policy: Policy, permissions: Permissions) -> Iterator[Finding]:
    asked = policies.effective(export, Policy())
    lost = [scope for scope in asked.gateway_api_scopes if scope not in permissions.gateway_api_scopes]
    if lost:
        text = f"it asks for {', '.join(lost)} and does not get it"
        yield Finding("binding.scope_not_granted", "policy.gateway_api_scopes", text)
    if asked.network != permissions.network:
        yield Finding("binding.network_not_granted", "policy.network", "it asks for the network and does not get it")
    declared, least = export.facts.get("execution_class") or "isolated", floor(package)
    if execution_class(declared, least) != declared:
        text = f"it wants to run {declared}; its publisher is trusted with {least}"
        yield Finding("binding.class_raised", "policy.execution_class", text)
    if policy.timeout_ms is None and export.facts.get("timeout_ms", 0) >= LONGEST:
        yield Finding("binding.timeout_clamped", "policy.timeout_ms", f"an invocation has {LONGEST} ms at most")


def _slots(export: Export) -> list[str]:
    return list((export.facts.get("permissions") or {}).get("secret_slots", ()))
