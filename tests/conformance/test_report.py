"""The shapes of a report."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from plugbay.conformance.report import AxisResult, Report, Status

REPORT = Report(
    "rune",
    (
        AxisResult("rune.a.b", "does it", Status.PASSED, seconds=0.25),
        AxisResult("rune.a.c", "does <that>", Status.FAILED, "it did not\nrule: do it\nstderr: \x1b[31m\x00 ž", 1.0),
        AxisResult("rune.a.d", "does more", Status.SKIPPED, "not tried"),
    ),
)


def test_the_json_is_exactly_the_public_shape() -> None:
    assert REPORT.to_json() == {
        "contract": "rune",
        "passed": 1,
        "failed": 1,
        "skipped": 1,
        "axes": [
            {"id": "rune.a.b", "title": "does it", "status": "passed", "detail": ""},
            {
                "id": "rune.a.c",
                "title": "does <that>",
                "status": "failed",
                "detail": "it did not\nrule: do it\nstderr: \x1b[31m\x00 ž",
            },
            {"id": "rune.a.d", "title": "does more", "status": "skipped", "detail": "not tried"},
        ],
    }


def test_the_junit_can_be_parsed_whatever_a_plugin_wrote() -> None:
    root = ET.fromstring(REPORT.to_junit().encode())
    suite = root.find("testsuite")
    assert suite is not None
    assert suite.attrib == {
        "name": "plugbay conform rune",
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
        "time": "1.250",
    }
    passed, failed, skipped = suite.findall("testcase")
    assert passed.attrib == {"classname": "plugbay.rune", "name": "rune.a.b: does it", "time": "0.250"}
    assert list(passed) == []
    failure = failed.find("failure")
    assert failure is not None
    assert failure.get("message") == "it did not"
    assert failure.text == "it did not\nrule: do it\nstderr: \ufffd[31m\ufffd ž"
    assert skipped.find("skipped") is not None


def test_an_axis_is_found_by_its_id() -> None:
    assert REPORT.axis("rune.a.d").status is Status.SKIPPED
    with pytest.raises(KeyError):
        REPORT.axis("rune.a.z")
