"""The shapes of a report."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from plugbay.conformance.reports.report import EXCERPT, GOT, LABELS, SENT, AxisResult, Finding, Report, Status, excerpt

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
        "advice": 0,
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


FOUND = Finding(
    "it stayed",
    rule="it leaves",
    clause="The Text, 4",
    check="rune.leave.at_once",
    step="1 of 2 (send)",
    frame=b'{"a":"\x00\xe2\x80\xae"}',
    talk=((GOT, b"{}"), (SENT, b'{"bye":1}\n'), (GOT, b"...")),
    exit="exit code 3",
    stderr=("a: b", "c"),
    hint="let go",
)


def test_a_finding_is_a_line_and_one_for_each_thing_that_is_known_of_it() -> None:
    assert FOUND.words().splitlines() == [
        "it stayed",
        "rule: it leaves",
        "clause: The Text, 4",
        "step: 1 of 2 (send)",
        'sent: {"bye":1}\\x0a',
        'line: {"a":"\\x00\\x202e"}',
        "exit: exit code 3",
        "stderr: a: b",
        "stderr: c",
        "hint: let go",
    ]
    assert Finding("it sang", check="ainb.one.b", title="is silent").words() == "it sang\ncheck: b, it is silent"
    assert {line.partition(": ")[0] for line in FOUND.words().splitlines()[1:]} <= set(LABELS)


def test_a_message_is_shown_up_to_a_limit() -> None:
    assert excerpt(None) == ""
    assert excerpt(b"x" * EXCERPT) == "x" * EXCERPT
    assert excerpt(b"x" * (EXCERPT + 1)) == "x" * EXCERPT + "…"
    assert excerpt(b"\xff\n") == "\\xff\\x0a"
