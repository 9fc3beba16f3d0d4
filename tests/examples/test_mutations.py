"""Whatever goes wrong with an example on the wire, the kit names the rule that was broken.

A man in the middle runs the example and gets one thing wrong; each row says which check finds that.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from plugbay.conformance.engine.dialects import load_dialect
from plugbay.conformance.engine.facts import apply_hello
from plugbay.conformance.engine.plugin_runner import fetch_hello, run_conformance, run_in_own_loop
from plugbay.conformance.engine.surface import Surface
from plugbay.conformance.engine.trial import Verdict, try_scenario
from plugbay.conformance.reports.report import Status
from plugbay.host.discovery.folders import contracts_in, inspect
from plugbay.model.spec import PluginSpec
from plugbay.process.child import Spawner
from plugbay.process.command import host_search_path, resolve
from tests.conformance.company import AT_ONCE, together
from tests.conformance.complete import assert_whole, scenarios_of
from tests.support.tiers import exhaustive, first_alone

MEDDLER = Path(__file__).with_name("meddler.py")
FOLDERS = sorted(path for path in (Path(__file__).parents[2] / "examples").iterdir() if path.is_dir())
EXAMPLES = [spec for path in FOLDERS for name in contracts_in(path) if (spec := inspect(path, name).spec) is not None]

CONTRACTS = ("rune", "nexo", "kaged", "ainb", "vai", "mcp")

NO_RULE = ""
"""The contract has no such message, or allows this."""

THE_CALL = "the call"
"""Whichever rule is about calling what the plugin offers."""

RULES: dict[str, dict[str, str]] = {
    "wrong_version": {
        "rune": "handshake.answers",
        "nexo": "initialize.matches_manifest",
        "kaged": "initialize.api_version",
        "ainb": "manifest_round_trip.identity",
        "vai": "hello.identity",
        "mcp": "versions.known",
    },
    "wrong_type": {
        "rune": "handshake.answers",
        "nexo": "initialize.answers",
        "kaged": "initialize.answers",
        "ainb": "method_dispatch.init",
        "vai": "hello.identity",
        "mcp": "handshake.answers",
    },
    "extra_stdout": {
        "rune": "handshake.answers",
        "nexo": "initialize.answers",
        "kaged": "initialize.answers",
        "ainb": "framing.only_frames",
        "vai": "framing.only_frames",
        "mcp": "stdout.only_messages",
    },
    "slow_init": {
        "rune": "handshake.answers",
        "nexo": "initialize.answers",
        "kaged": "initialize.answers",
        "ainb": "method_dispatch.init",
        "vai": "hello.identity",
        "mcp": "handshake.answers",
    },
    "greets_twice": {
        "rune": "handshake.once",
        "nexo": "initialize.once",
        "kaged": "initialize.once",
        "ainb": "method_dispatch.answers",
        "vai": "hello.once",
        "mcp": "handshake.once",
    },
    "missing_tool": {
        "rune": "handshake.exposes_tools",
        "nexo": "initialize.catalogue",
        "kaged": THE_CALL,
        "ainb": "cli_dispatch_capture.help",
        "vai": "outcomes.statuses",
        "mcp": "lists.tools",
    },
    "dies_mid_call": dict.fromkeys(CONTRACTS, THE_CALL),
    "wrong_id": dict.fromkeys(CONTRACTS, THE_CALL),
    "ignores_shutdown": {
        "rune": NO_RULE,
        "nexo": "shutdown.answers",
        "kaged": "shutdown.answers",
        "ainb": "graceful_shutdown.request",
        "vai": "leaving.shutdown",
        "mcp": NO_RULE,
    },
    "ignores_end_of_input": {
        "rune": "leave.before_handshake",
        "nexo": "leave.end_of_input",
        "kaged": "leave.end_of_input",
        "ainb": "graceful_shutdown.end_of_input",
        "vai": "leaving.end_of_input",
        "mcp": "leaving.end_of_input",
    },
    "leaves_with_3": {
        "rune": "leave.after_ok",
        "nexo": "leave.end_of_input",
        "kaged": NO_RULE,
        "ainb": "graceful_shutdown.end_of_input",
        "vai": "leaving.end_of_input",
        "mcp": NO_RULE,
    },
    "leaves_a_process": {
        "rune": "leave.no_orphans",
        "nexo": "shutdown.no_orphans",
        "kaged": "shutdown.no_orphans",
        "ainb": "graceful_shutdown.no_orphans",
        "vai": "leaving.no_orphans",
        "mcp": "leaving.no_orphans",
    },
}
"""What goes wrong → contract → the check that says so."""

WORDS = {"extra_stdout": "not one JSON object", "slow_init": "nothing came within", "dies_mid_call": "exit code 7"}
"""What is said, beside the rule, where that could be mistaken for something else."""

WAITING = ("slow_init", "ignores_shutdown", "ignores_end_of_input")
"""What takes seconds in which nothing is done, so all can wait together."""


def meddled(spec: PluginSpec, mutation: str) -> PluginSpec:
    """The plugin behind somebody who gets this wrong."""
    command = resolve(spec.command, spec.root, host_search_path(os.environ))
    return replace(spec, command=(sys.executable, "-I", "-S", str(MEDDLER), spec.contract, mutation, *command))


def rule_for(mutation: str, spec: PluginSpec) -> str:
    """The check that must find it; empty when the rule does not concern the plugin."""
    kinds = {export.kind for export in spec.exports}
    rule = RULES[mutation][spec.contract]
    if mutation == "missing_tool" and spec.exports and not kinds & {"tool", "cli_namespace"}:
        return NO_RULE
    if rule == THE_CALL:
        rule = _call(spec.contract, kinds)
    return f"{spec.contract}.{rule}" if rule else NO_RULE


def _call(contract: str, kinds: set[str]) -> str:
    if contract == "nexo":
        return "tool.answers" if "tool" in kinds else "llm.chat"
    if contract == "kaged":
        return "tool.answers" if "tool" in kinds else "hook.pre_compact"
    return {"rune": "request.answers", "ainb": "method_dispatch.answers"}.get(contract, "requests.answers")


def tried(spec: PluginSpec, mutation: str, check: str) -> Verdict:
    """How this check ends; alone, because what comes before it in a run would wait as long again."""
    spoken = load_dialect(spec.contract)
    assert spoken is not None

    async def trial() -> Verdict:
        spawner = Spawner()
        try:
            hello = await fetch_hello(spec, spoken, spawner) if spoken.contract.runtime_exports else None
            known, facts = (spec, spoken.facts(spec)) if hello is None else apply_hello(spec, hello)
            surface = Surface(meddled(known, mutation), spoken, facts=facts)
            return await try_scenario(scenarios_of(spec.contract)[check], surface, spawner)
        finally:
            await spawner.close()

    return run_in_own_loop(trial())


@exhaustive
@pytest.mark.parametrize("mutation", first_alone(RULES))
def test_whatever_goes_wrong_with_the_examples_the_kit_names_the_rule(mutation: str) -> None:
    chosen = [(spec, check) for spec in EXAMPLES if (check := rule_for(mutation, spec))]
    assert len(chosen) > len(EXAMPLES) / 2
    at_once = len(chosen) if mutation in WAITING else AT_ONCE
    for (spec, check), verdict in together(lambda each: tried(each[0], mutation, each[1]), chosen, at_once):
        assert verdict.findings, (spec.root.name, verdict)
        for found in verdict.findings:
            assert found.check == check
            assert_whole(found)
            assert WORDS.get(mutation, "") in found.what, (spec.root.name, verdict.detail)


@exhaustive
@pytest.mark.parametrize("contract", first_alone(sorted(CONTRACTS)))
def test_an_example_behind_somebody_who_gets_nothing_wrong_breaks_none_of_these_rules(contract: str) -> None:
    spec = next(spec for spec in EXAMPLES if spec.contract == contract)
    checks = sorted({rule for mutation in RULES if (rule := rule_for(mutation, spec))})
    report = run_conformance(meddled(spec, "nothing"), only=checks)
    assert [axis for axis in report.axes if axis.status is not Status.PASSED] == []


def test_each_thing_that_can_go_wrong_is_tried_under_each_contract() -> None:
    assert {spec.contract for spec in EXAMPLES} == set(CONTRACTS)
    assert all(set(rules) == set(CONTRACTS) for rules in RULES.values())
