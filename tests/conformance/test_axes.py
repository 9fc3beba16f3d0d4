"""Checks become axes: one verdict each, in the order of the axes, with the words of whatever failed."""

from __future__ import annotations

from plugbay.conformance.axes import Axes, axis_of
from plugbay.conformance.report import AxisResult, Finding, Status

TITLES = {"ainb.one": "the first", "ainb.two": "the second", "ainb.three": "the third"}


def check(id: str, status: Status, detail: str = "", *findings: Finding) -> AxisResult:
    return AxisResult(id, "does it", status, detail, 0.5, findings)


def test_a_check_belongs_to_the_axis_that_its_id_begins_with() -> None:
    assert axis_of("ainb.framing.byte_by_byte") == "ainb.framing"


def test_an_axis_is_told_when_its_checks_and_the_axes_before_it_are_known() -> None:
    told: list[str] = []
    axes = Axes(TITLES, ["ainb.two.a", "ainb.one.a", "ainb.one.b"], lambda axis: told.append(axis.id))
    axes.take(check("ainb.two.a", Status.PASSED))
    axes.take(check("ainb.one.a", Status.PASSED))
    assert told == []
    axes.take(check("ainb.one.b", Status.SKIPPED, "nothing to see"))
    assert told == ["ainb.one", "ainb.two"]
    assert axes.results == [
        AxisResult("ainb.one", "the first", Status.PASSED, "", 1.0),
        AxisResult("ainb.two", "the second", Status.PASSED, "", 0.5),
    ]


def test_one_check_that_failed_fails_its_axis_and_says_which_it_was() -> None:
    axes = Axes(TITLES, ["ainb.one.a", "ainb.one.b", "ainb.one.c"], None)
    axes.take(check("ainb.one.a", Status.FAILED, "it died", Finding("it died", rule="it must not", check="ainb.one.a")))
    axes.take(check("ainb.one.b", Status.PASSED))
    axes.take(check("ainb.one.c", Status.FAILED, "it sang"))
    (axis,) = axes.results
    assert axis.status is Status.FAILED
    assert axis.detail == "it died\ncheck: a, it does it\nrule: it must not\nit sang\ncheck: c, it does it"
    assert [(found.check, found.title) for found in axis.findings] == [
        ("ainb.one.a", "does it"),
        ("ainb.one.c", "does it"),
    ]


def test_an_axis_of_which_nothing_was_tried_is_skipped_with_the_first_reason() -> None:
    axes = Axes(TITLES, ["ainb.three.a", "ainb.three.b"], None)
    axes.take(check("ainb.three.a", Status.SKIPPED, "it has no screen"))
    axes.take(check("ainb.three.b", Status.SKIPPED, "another reason"))
    assert [(axis.id, axis.status, axis.detail) for axis in axes.results] == [
        ("ainb.three", Status.SKIPPED, "it has no screen")
    ]
