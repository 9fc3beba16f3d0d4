"""A rule that is not in the contract's text is advice: it fails nothing, cites no clause and hides no other rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.conformance.engine.plugin_runner import Axes, run_conformance
from plugbay.conformance.engine.scenario import ScenarioInvalid, load_all, parse
from plugbay.conformance.reports.report import AxisResult, Finding, Status
from tests.conformance.complete import assert_complete
from tests.conformance.foreign_plugins import load_plugin
from tests.support.requirements import requirement
from tests.support.tiers import one_of_each

CONTRACTS = ("rune", "nexo", "kaged", "ainb", "vai", "mcp")

LIBERTIES = {
    "rune": {
        "leaves_early": ["leave.not_early"],
        "leaves_with_3": ["leave.after_ok"],
        "declares_more": ["handshake.bundle_capabilities"],
    },
    "nexo": {
        "dies_of_long_lines": ["line.oversize"],
        "overtakes_calls": ["shutdown.after_call"],
        "takes_any_name": ["channel.unknown_kind", "llm.unknown_provider"],
        "dies_of_blank_lines": ["line.blank"],
    },
    "kaged": {"dies_of_blank_lines": ["line.blank"], "answers_batches": ["line.array"]},
    "ainb": {
        "refuses_repeated_headers": ["framing.header_spelling"],
        "draws_outside": ["render_determinism.inside"],
        "answers_only_requests": ["graceful_shutdown.notification"],
    },
    "vai": {
        liberty: ["refusals.unknown_op", "refusals.unknown_export"]
        for liberty in ("answers_unknown", "ignores_unknown", "dies_of_unknown")
    },
}
"""What a plugin by hand does that the text allows → the advice about it."""

CASES = [(contract, liberty) for contract, found in LIBERTIES.items() for liberty in found]


@requirement("rune:kit-advice", "nexo:kit-advice", "kaged:kit-advice", "ainb:kit-advice", "vai:kit-advice")
@pytest.mark.parametrize("case", one_of_each(CASES, lambda case: case[0]), ids="-".join)
def test_a_liberty_that_the_text_allows_is_advice(case: tuple[str, str], tmp_path: Path) -> None:
    contract, liberty = case
    checks = [f"{contract}.{check}" for check in LIBERTIES[contract][liberty]]
    report = run_conformance(load_plugin(tmp_path, contract, liberty), only=checks)
    assert report.failed == 0, [axis.detail for axis in report.axes]
    found = {found.check for axis in report.axes for found in axis.findings}
    assert found == set(checks)
    for axis in report.axes:
        if axis.findings:
            assert axis.status is Status.ADVICE
            assert_complete(axis)


@requirement("vai:kit-advice")
def test_advice_about_unknown_ops_makes_no_other_axis_fail_or_skip(tmp_path: Path) -> None:
    report = run_conformance(load_plugin(tmp_path, "vai", "dies_of_unknown"), only=["vai.hello.once", "vai.refusals"])
    assert [(axis.id, axis.status) for axis in report.axes if axis.status is not Status.PASSED] == [
        ("vai.refusals", Status.ADVICE)
    ]


@requirement("nexo:kit-early-publish", "kaged:kit-early-notification")
@pytest.mark.parametrize(("contract", "liberty"), [("nexo", "publishes_early"), ("kaged", "notifies_early")])
def test_a_message_before_the_greeting_breaks_a_rule(contract: str, liberty: str, tmp_path: Path) -> None:
    rule = f"{contract}.initialize.first"
    axis = run_conformance(load_plugin(tmp_path, contract, liberty), only=[rule]).axis(rule)
    assert axis.status is Status.FAILED
    assert axis.findings[0].clause
    assert_complete(axis)


@requirement("nexo:kit-advice")
def test_a_plugin_that_stays_after_shutdown_breaks_a_rule(tmp_path: Path) -> None:
    rule = "nexo.shutdown.answers"
    axis = run_conformance(load_plugin(tmp_path, "nexo", "stays"), only=[rule]).axis(rule)
    assert axis.status is Status.FAILED
    assert "still running 1 s later" in axis.detail


@pytest.mark.parametrize("contract", CONTRACTS)
def test_rules_cite_a_section_and_advice_cites_none(contract: str) -> None:
    for scenario in load_all(contract):
        assert bool(scenario.section) is (scenario.level == "rule"), scenario.id
        assert "beyond the text" not in scenario.section


FILE = '{"id": "rune.a.b", "title": "t", "clause": "c", %s "steps": [{"close_stdin": true}]}'


def test_a_file_is_a_rule_unless_it_says_otherwise() -> None:
    assert parse(FILE % '"section": "s",').level == "rule"
    assert parse(FILE % '"level": "advice",').level == "advice"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("", "a rule needs the section"),
        ('"level": "advice", "section": "s",', "advice is not in the text, so it cites no section"),
        ('"level": "hint", "section": "s",', "level"),
    ],
)
def test_a_level_and_its_section_belong_together(fields: str, words: str) -> None:
    with pytest.raises(ScenarioInvalid, match=words):
        parse(FILE % fields)


def test_no_rule_depends_on_advice(tmp_path: Path) -> None:
    folder = tmp_path / "rune"
    folder.mkdir()
    (folder / "1.json").write_text(FILE % '"level": "advice",')
    (folder / "2.json").write_text(FILE.replace("a.b", "a.c") % '"section": "s", "after": ["rune.a.b"],')
    with pytest.raises(ScenarioInvalid, match="no rule depends on advice"):
        load_all("rune", tmp_path)


def test_an_axis_with_advice_only_does_not_fail_and_a_failed_one_lists_its_advice_too() -> None:
    advice = Finding("it could", rule="do it", check="x.one.a", is_advice=True)
    broken = Finding("it did not", rule="it must", clause="text, 1", check="x.one.b")
    axes = Axes({"x.one": "one", "x.two": "two"}, ["x.one.a", "x.two.a", "x.two.b"], None)
    axes.take(AxisResult("x.one.a", "t", Status.ADVICE, "", 0, (advice,)))
    axes.take(AxisResult("x.two.a", "t", Status.ADVICE, "", 0, (advice,)))
    axes.take(AxisResult("x.two.b", "t", Status.FAILED, "", 0, (broken,)))
    assert [axis.status for axis in axes.results] == [Status.ADVICE, Status.FAILED]
    assert [found.what for found in axes.results[1].findings] == ["it did not", "it could"]
    assert "advice: do it" in axes.results[1].detail
