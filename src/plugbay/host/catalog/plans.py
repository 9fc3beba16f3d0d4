"""`Plans`: everything about the calls of an export that does not change between two calls.

A plan is made at the first call of an export and made again when its entry in the catalogue or the operator's decision
has changed: both are values that are replaced, so their identity tells.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from plugbay.host.authorization import policy
from plugbay.host.authorization.policy import Decision
from plugbay.host.catalog.catalog import Entry
from plugbay.model.errors import Failure

MAX_PLANS = 10_000
"""Plans kept; beyond that they are made anew, because entries that were replaced would pile up."""


class Plan(msgspec.Struct, frozen=True, eq=False):
    """The plan of one export under one decision."""

    entry: Entry
    decision: Decision
    refusal: Failure | None
    """Why its calls are not allowed. An invocation may run with fewer permissions than its manifest requests."""
    granted: tuple[str, ...]
    """The effective capabilities of the plugin."""


class Plans:
    """The plans of one host."""

    def __init__(self, decisions: Mapping[str, Decision]) -> None:
        self._decisions = decisions
        self._plans: dict[int, Plan] = {}
        """By the identity of the entry, which each plan keeps alive."""

    def get(self, entry: Entry) -> Plan:
        """The plan of an export as it is known and decided now."""
        decision = self._decisions[entry.spec.id]
        plan = self._plans.get(id(entry))
        if plan is None or plan.decision is not decision:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            plan = self._plans[id(entry)] = make_plan(entry, decision)
        return plan


def make_plan(entry: Entry, decision: Decision) -> Plan:
    spec = entry.spec
    refusal = policy.admit(spec, decision) if entry.by_invocation else policy.authorize(spec, entry.export, decision)
    return Plan(entry, decision, refusal, policy.effective(spec, decision))
