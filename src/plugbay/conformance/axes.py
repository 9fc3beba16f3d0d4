"""Axes that consist of several checks: the results of a contract whose conformance suite names its axes.

Owns how the verdicts on checks become one verdict on their axis, with findings that say which check it was. A check
belongs to the axis whose id its own begins with: `ainb.framing.byte_by_byte` to `ainb.framing`. Refuses to know how a
check is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from plugbay.conformance.report import AxisResult, Finding, OnAxis, Status


def axis_of(check_id: str) -> str:
    return check_id.rpartition(".")[0]


class Axes:
    """The axes of one run; each is told when all of its checks, and all axes before it, are known."""

    def __init__(self, titles: Mapping[str, str], check_ids: Iterable[str], on_axis: OnAxis | None) -> None:
        self._open = {axis: {id for id in check_ids if axis_of(id) == axis} for axis in titles}
        self._open = {axis: ids for axis, ids in self._open.items() if ids}
        self._titles = titles
        self._on_axis = on_axis
        self._checks: dict[str, list[AxisResult]] = {axis: [] for axis in self._open}
        self.results: list[AxisResult] = []

    def take(self, check: AxisResult) -> None:
        """The verdict on one check."""
        axis = axis_of(check.id)
        self._checks[axis].append(check)
        self._open[axis].discard(check.id)
        for each in list(self._open)[len(self.results) :]:
            if self._open[each]:
                break
            self.results.append(_merged(each, self._titles[each], self._checks[each]))
            if self._on_axis is not None:
                self._on_axis(self.results[-1])


def _merged(axis: str, title: str, checks: list[AxisResult]) -> AxisResult:
    seconds = sum(check.seconds for check in checks)
    failed = [check for check in checks if check.status is Status.FAILED]
    if failed:
        found = tuple(replace(each, title=check.title) for check in failed for each in _findings(check))
        return AxisResult(axis, title, Status.FAILED, "\n".join(each.words() for each in found), seconds, found)
    if any(check.status is Status.PASSED for check in checks):
        return AxisResult(axis, title, Status.PASSED, "", seconds)
    return AxisResult(axis, title, Status.SKIPPED, checks[0].detail, seconds)


def _findings(check: AxisResult) -> tuple[Finding, ...]:
    return check.findings or (Finding(check.detail, check=check.id),)
