"""Plans: computed once for each export, and again when the export or the operator's decision has changed."""

from __future__ import annotations

from pathlib import Path

from plugbay.host.authorization.policy import Decision
from plugbay.host.catalog import plans
from plugbay.host.catalog.catalog import Catalog, Entry
from plugbay.host.catalog.plans import Plans
from plugbay.model.errors import Code, Failure
from plugbay.model.spec import Export, PluginSpec


def spec(*exports: Export) -> PluginSpec:
    return PluginSpec("p", "1", "rune", Path(), ("/bin/true",), capabilities=("network",), exports=exports)


def entry_of(catalog: Catalog, name: str = "t") -> Entry:
    entry = catalog.resolve(name)
    assert not isinstance(entry, Failure)
    return entry


def test_a_plan_is_made_once() -> None:
    entry = entry_of(Catalog([spec(Export("tool", "t"))]))
    made = Plans({"p": Decision(grant_all=True)})
    plan = made.get(entry)
    assert plan.refusal is None and plan.granted == ("network",) and made.get(entry) is plan


def test_another_decision_takes_effect_with_the_next_call() -> None:
    entry = entry_of(Catalog([spec(Export("tool", "t"))]))
    decisions = {"p": Decision(grants=frozenset({"network"}))}
    made = Plans(decisions)
    assert made.get(entry).refusal is None
    decisions["p"] = Decision(enabled=False)
    refusal = made.get(entry).refusal
    assert refusal is not None and refusal.code == Code.UNAVAILABLE


def test_an_export_that_was_replaced_has_a_plan_of_its_own() -> None:
    catalog = Catalog([spec(Export("tool", "t"))])
    made = Plans({"p": Decision(grants=frozenset())})
    assert made.get(entry_of(catalog)).refusal is None
    catalog.replace(spec(Export("tool", "t", capabilities=("network",))), {})
    refusal = made.get(entry_of(catalog)).refusal
    assert refusal is not None and refusal.code == Code.CAPABILITY_NOT_ALLOWED


def test_an_invocation_may_run_with_fewer_permissions_than_its_manifest_requests() -> None:
    plain, recorded = (Export("tool", "t", capabilities=("network",), facts=facts) for facts in ({}, CLASS))
    decisions = {"p": Decision(grants=frozenset())}
    assert Plans(decisions).get(entry_of(Catalog([spec(plain)]))).refusal is not None
    plan = Plans(decisions).get(entry_of(Catalog([spec(recorded)])))
    assert plan.refusal is None and plan.granted == ()


CLASS = {"execution_class": "worker"}


def test_plans_of_replaced_exports_do_not_pile_up() -> None:
    catalog = Catalog([spec(Export("tool", "t"))])
    made = Plans({"p": Decision(grants=frozenset())})
    for number in range(plans.MAX_PLANS + 10):
        if number % 100 == 0:
            catalog.replace(spec(*(Export("tool", f"t{number}_{at}") for at in range(100))), {})
        made.get(entry_of(catalog, f"p/t{number // 100 * 100}_{number % 100}"))
    assert len(made._plans) <= plans.MAX_PLANS
