"""Results of a conformance run: findings with their evidence, as text, public JSON and JUnit XML.

The JSON is public: `plugbay conform --json` prints it. `page` renders the same values as HTML.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import msgspec

SENT, GOT = "→", "←"
"""The directions of a message: to the plugin, and from it."""

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped; a plugin's stderr may contain any."""


EXCERPT = 400
"""Bytes of a frame that the words for a finding show."""

LABELS = ("check", "rule", "advice", "clause", "step", "case", "sent", "line", "exit", "stderr", "hint")
"""Labels of the lines with details about a failure, in order."""


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    ADVICE = "advice"
    """No rule is broken, but the plugin does not follow advice, which is not in the contract's text."""
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True):
    """One broken rule, or advice that is not followed: what was wrong, the rule and its clause, and what shows it."""

    what: str
    rule: str = ""
    clause: str = ""
    """Which part of which text the rule is from; empty for advice."""
    check: str = ""
    """The id of the check that found it."""
    title: str = ""
    """The title of the check, after `it …`; empty where the axis has the same."""
    step: str = ""
    case: str = ""
    frame: bytes | None = None
    """The first bytes of the message that broke the rule; None when the message is missing."""
    talk: tuple[tuple[str, bytes], ...] = ()
    """The last messages, (direction, first bytes), the newest last."""
    exit: str = ""
    stderr: tuple[str, ...] = ()
    hint: str = ""
    is_advice: bool = False
    """Whether `rule` is advice, which is not in the contract's text."""

    @property
    def sent(self) -> bytes | None:
        """The last message to the plugin."""
        return next((body for direction, body in reversed(self.talk) if direction == SENT), None)

    def words(self) -> str:
        """One line that says what was wrong, and one with a label for each thing more that is known."""
        return "\n".join([self.what, *(f"{label}: {text}" for label, text in self._labelled() if text)])

    def _labelled(self) -> Iterator[tuple[str, str]]:
        yield "check", f"{self.check.rpartition('.')[2]}, it {self.title}" if self.title else ""
        yield "advice" if self.is_advice else "rule", self.rule
        yield "clause", self.clause
        yield "step", self.step
        yield "case", self.case
        yield "sent", excerpt(self.sent)
        yield "line", excerpt(self.frame)
        yield "exit", self.exit
        for line in self.stderr:
            yield "stderr", line
        yield "hint", self.hint


def excerpt(body: bytes | None, most: int = EXCERPT) -> str:
    """The beginning of a message as one line that can be shown anywhere."""
    if body is None:
        return ""
    shown = body[:most].decode("utf-8", "backslashreplace")
    printable = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in shown)
    return printable + ("…" if len(body) > most else "")


NOT_TRIED = "not tried, because "
"""Prefix of the reason when a rule depends on one that did not pass."""


class AxisResult(msgspec.Struct, frozen=True):
    """One rule, tried. `detail` says what went wrong, or why it was not tried; empty when it passed."""

    id: str
    title: str
    status: Status
    detail: str = ""
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    """The findings behind `detail`."""

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "title": self.title, "status": str(self.status), "detail": self.detail}


OnAxis = Callable[[AxisResult], None]
"""Called with each result as soon as it is known."""


class Report(msgspec.Struct, frozen=True):
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
    def advice(self) -> int:
        return self._count(Status.ADVICE)

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
            "advice": self.advice,
            "skipped": self.skipped,
            "axes": [axis.to_json() for axis in self.axes],
        }

    def to_junit(self) -> str:
        """The same as JUnit XML, which CI systems show."""
        suite = ET.Element("testsuite", self._suite_attributes())
        for axis in self.axes:
            case = ET.SubElement(suite, "testcase", _case_attributes(self.contract, axis))
            detail = _xml_text(axis.detail)
            if axis.status is Status.ADVICE:  # JUnit has no warnings: the case passes, and its output has the advice
                ET.SubElement(case, "system-out").text = detail
            elif axis.status is not Status.PASSED:
                kind = "failure" if axis.status is Status.FAILED else "skipped"
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
