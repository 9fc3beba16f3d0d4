"""The badge of a report."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from plugbay.conformance.reports.badge import BAD, GOOD, NEUTRAL, badge
from plugbay.conformance.reports.report import AxisResult, Report, Status

SVG = "{http://www.w3.org/2000/svg}"


def report(contract: str, *statuses: Status) -> Report:
    return Report(contract, tuple(AxisResult(f"a.{at}", "t", status) for at, status in enumerate(statuses)))


@pytest.mark.parametrize(
    ("statuses", "words", "colour"),
    [
        ((Status.PASSED, Status.SKIPPED), "conforms", GOOD),
        ((Status.PASSED, Status.FAILED, Status.SKIPPED), "breaks 1 of 2 rules", BAD),
        ((Status.SKIPPED,), "not tried", NEUTRAL),
    ],
)
def test_a_badge_says_the_contract_and_the_verdict(statuses: tuple[Status, ...], words: str, colour: str) -> None:
    root = ET.fromstring(badge(report("rune + nexo", *statuses)))
    assert [text.text for text in root.iter(f"{SVG}text")] == ["rune + nexo", words]
    assert root.findtext(f"{SVG}title") == f"rune + nexo: {words}, by plugbay" == root.get("aria-label")
    assert colour in {rect.get("fill") for rect in root.iter(f"{SVG}rect")}


def test_the_parts_of_a_badge_fill_it() -> None:
    root = ET.fromstring(badge(report("kaged", Status.PASSED)))
    parts = [rect for rect in root.iter(f"{SVG}rect") if rect.get("fill")]
    assert sum(int(rect.get("width", "0")) for rect in parts) == int(root.get("width", "0"))


def test_a_badge_is_a_picture_and_nothing_else() -> None:
    text = badge(report('<script>"&\x00\u202e', Status.PASSED))
    root = ET.fromstring(text)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        "svg",
        "title",
        "clipPath",
        "rect",
        "g",
        "text",
    }
    assert root.findtext(f".//{SVG}text") == '<script>"&\\x00\\u202e'
