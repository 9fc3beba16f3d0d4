"""How a conformance run looks on a terminal, and the files it leaves: JUnit XML, a page, a badge.

Owns both. What an axis is, and when it passes, is the kit's; what its page looks like, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from plugbay.cli import output
from plugbay.cli.versions import known

if TYPE_CHECKING:
    from plugbay.conformance.reports.report import AxisResult, Report
    from plugbay.model.spec import PluginSpec

MARKS = {
    "passed": (output.OK, output.GOOD_STYLE),
    "failed": (output.BAD, output.BAD_STYLE),
    "skipped": (output.SKIP, output.DIM),
}


class Files(NamedTuple):
    """What is written beside what is shown."""

    junit: Path | None = None
    html: Path | None = None
    badge: Path | None = None

    def write(self, report: Report, spec: PluginSpec, command: Sequence[str], program: Sequence[str] = ()) -> None:
        """Each that is wanted; `command` is what the reader of a page can type, with `program` after its options."""
        if self.junit is not None:
            self.junit.write_text(report.to_junit(), "utf-8")
        if self.html is not None:
            self.html.write_text(_page(report, spec, command, program), "utf-8")
        if self.badge is not None:
            from plugbay.conformance.reports.badge import badge

            self.badge.write_text(badge(report), "utf-8")


def _page(report: Report, spec: PluginSpec, command: Sequence[str], program: Sequence[str]) -> str:
    import time

    from plugbay import __version__
    from plugbay.conformance.reports.page import About, page

    version = known(spec.version) or output.SKIP
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return page(report, About(spec.id, version, tuple(command), tuple(program), day, f"plugbay {__version__}"))


def show_axis(axis: AxisResult) -> None:
    """One axis: a line, and below it what went wrong. Those that were not tried for it are summed up at the end."""
    from plugbay.conformance.reports.report import LABELS, NOT_TRIED

    if axis.detail.startswith(NOT_TRIED):
        return
    page = output.out()
    mark, style = MARKS[axis.status]
    aside = {"failed": f"  {axis.id}", "skipped": f"  {axis.detail}"}.get(axis.status, "")
    page.field(mark, axis.title, (aside, output.DIM), indent=0, width=2, label_style=style)
    before = ""
    for line in axis.detail.splitlines() if axis.status == "failed" else ():
        label, _, rest = line.partition(": ")
        if label in LABELS:
            page.field("" if label == before else label, rest, indent=4)
        else:
            page.line(line, indent=4)
        before = label


def conclude(report: Report) -> None:
    """How many were not tried and why, and the last line, which says it all."""
    from plugbay.conformance.reports.report import NOT_TRIED

    page = output.out()
    mark, dim = MARKS["skipped"]
    for reason, number in Counter(axis.detail for axis in report.axes if axis.detail.startswith(NOT_TRIED)).items():
        page.field(mark, f"{number} more", (f"  {reason}", dim), indent=0, width=2, label_style=dim)
    style = output.BAD_STYLE if report.failed else output.GOOD_STYLE
    verdict = f"{report.failed} failed" if report.failed else "conforms"
    counts = f"{report.passed} passed, {report.failed} failed, {report.skipped} skipped"
    page.blank()
    page.line((f"{report.contract}: {verdict}", style), (f"  {counts}", output.DIM))
