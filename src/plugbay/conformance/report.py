"""What a conformance run found, for people, scripts and CI.

Owns the shapes: the public JSON and the JUnit XML. Refuses to know how an axis was tried.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped; a plugin's stderr may contain any."""


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class AxisResult:
    """One rule, tried. `detail` says what went wrong, or why it was not tried; empty when it passed."""

    id: str
    title: str
    status: Status
    detail: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "title": self.title, "status": str(self.status), "detail": self.detail}


OnAxis = Callable[[AxisResult], None]
"""Told each result as soon as it is known."""


@dataclass(frozen=True, slots=True)
class Report:
    """Every axis of one run, in the order they were tried."""

    contract: str
    axes: tuple[AxisResult, ...]

    @property
    def passed(self) -> int:
        return self._count(Status.PASSED)

    @property
    def failed(self) -> int:
        return self._count(Status.FAILED)

    @property
    def skipped(self) -> int:
        return self._count(Status.SKIPPED)

    def _count(self, status: Status) -> int:
        return sum(axis.status is status for axis in self.axes)

    def axis(self, axis_id: str) -> AxisResult:
        """The result with this id; raises KeyError."""
        for axis in self.axes:
            if axis.id == axis_id:
                return axis
        raise KeyError(axis_id)

    def to_json(self) -> dict[str, Any]:
        """The public shape, as in `plugbay conform --json`."""
        return {
            "contract": self.contract,
            "passed": self.passed,
            "failed": self.failed,
            "skipped": self.skipped,
            "axes": [axis.to_json() for axis in self.axes],
        }

    def to_junit(self) -> str:
        """The same as JUnit XML, which CI systems show."""
        suite = ET.Element("testsuite", self._suite_attributes())
        for axis in self.axes:
            case = ET.SubElement(suite, "testcase", _case_attributes(self.contract, axis))
            if axis.status is not Status.PASSED:
                kind = "failure" if axis.status is Status.FAILED else "skipped"
                detail = _xml_text(axis.detail)
                ET.SubElement(case, kind, message=detail.partition("\n")[0]).text = detail
        root = ET.Element("testsuites")
        root.append(suite)
        ET.indent(root)
        return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"

    def _suite_attributes(self) -> dict[str, str]:
        return {
            "name": f"plugbay conform {self.contract}",
            "tests": str(len(self.axes)),
            "failures": str(self.failed),
            "errors": "0",
            "skipped": str(self.skipped),
            "time": f"{sum(axis.seconds for axis in self.axes):.3f}",
        }


def _case_attributes(contract: str, axis: AxisResult) -> dict[str, str]:
    name = _xml_text(f"{axis.id}: {axis.title}")
    return {"classname": f"plugbay.{contract}", "name": name, "time": f"{axis.seconds:.3f}"}


def _xml_text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
