"""What the report of every failure must have: the rule, where the contract says so, and the frame that broke it."""

from __future__ import annotations

from functools import cache

from plugbay.conformance.engine.scenario import Scenario, load_all
from plugbay.conformance.reports.report import AxisResult, Finding, Report, Status
from plugbay.contracts.registry import CONTRACTS

WITHOUT_A_FRAME = (
    "nothing came within",
    "its output ended",
    "it was still running",
    "it exited",
    "it ended with",
    "on stderr",
    "it cannot be started",
)
"""Failures without a frame: one that did not come, or an exit, a process, stderr."""


@cache
def scenarios_of(contract: str) -> dict[str, Scenario]:
    return {scenario.id: scenario for scenario in load_all(contract)}


def unmet_status(check_id: str) -> Status:
    """The status of an axis in which only this check found something."""
    scenario = scenarios_of(check_id.split(".")[0])[check_id]
    return Status.ADVICE if scenario.level == "advice" else Status.FAILED


def unmet(report: Report) -> list[str]:
    """The axes that failed, and those with advice."""
    return [axis.id for axis in report.axes if axis.status in (Status.FAILED, Status.ADVICE)]


def assert_complete(axis: AxisResult) -> None:
    """A failed axis says which checks failed, and of each all there is to say."""
    assert axis.findings
    for found in axis.findings:
        assert_whole(found)
        assert found.words() in axis.detail


def assert_whole(found: Finding) -> None:
    """A finding names its check, the rule and, unless it is advice, the clause; it has the talk and the frame."""
    contract = found.check.split(".")[0]
    scenario = scenarios_of(contract)[found.check]
    assert found.rule == scenario.clause
    if scenario.level == "advice":
        assert (found.is_advice, found.clause) == (True, "")
        assert f"\nadvice: {found.rule}\n" in found.words() + "\n"
    else:
        assert found.clause == f"{CONTRACTS[contract].title}, {scenario.section}"
        assert f"\nrule: {found.rule}\nclause: {found.clause}\n" in found.words()
    no_frame = any(words in found.what for words in WITHOUT_A_FRAME) or _is_about_no_answer(found)
    assert (found.frame is None) is no_frame, found.words()
    assert found.talk or no_frame, found.words()


def _is_about_no_answer(found: Finding) -> bool:
    """Several answers were expected, and the list of those that came is empty."""
    return found.what.startswith("$: expected one response to each of") and found.what.endswith("got []")
