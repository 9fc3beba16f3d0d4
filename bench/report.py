"""Prints the results: one table of ratios and verdicts per comparison, then the absolute figures in grey.

Absolute times depend on the machine, so they come second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.harness import Comparison, Finding, Spread

PLAIN_WIDTH = 116
"""Columns when nobody watches: a log keeps whole lines."""

STYLES = {"met": "green", "missed": "bold red", "not measured": "yellow", "": ""}


def console() -> Console:
    """Standard output, at its own width on a terminal."""
    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def show_machine(screen: Console, facts: dict[str, Any]) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    screen.print(Text(f"{facts['cpu']}, {facts['cores']} cores, {facts['kernel']}, {facts['python']}", style="dim"))
    screen.print(Text(f"{versions}; commit {facts['commit']}; {facts['date']}", style="dim"))
    screen.print(Text(f"load before the first measurement: {facts['load_at_start']}", style="dim"))


def show_comparison(screen: Console, comparison: Comparison) -> None:
    screen.print()
    screen.print(Text(f"{comparison.name}: {comparison.title}", style="bold"))
    grouped = any(finding.group for finding in comparison.findings)
    if comparison.findings:
        screen.print((_grouped_table if grouped else _findings_table)(comparison.findings))
    if comparison.rounds.entries:
        screen.print(_absolute_table(comparison))
    for note in comparison.notes:
        screen.print(Text(note, style="yellow"))


def show_summary(screen: Console, comparisons: Sequence[Comparison], failures: Sequence[str]) -> None:
    """The last lines: the number of met goals, the missed goals, and failed measurements."""
    findings = [(comparison.name, finding) for comparison in comparisons for finding in comparison.findings]
    held = [(name, finding) for name, finding in findings if finding.verdict in ("met", "missed")]
    met = sum(finding.verdict == "met" for _, finding in held)
    screen.print()
    screen.print(Text(f"{met} of {len(held)} goals met", style="bold"))
    for name, finding in held:
        if finding.verdict == "missed":
            measured = _spread(finding.measured, finding.unit)
            screen.print(Text(f"  missed  {name}: {finding.what}: {measured}, goal {_goal(finding)}", style="red"))
    for failure in failures:
        screen.print(Text(f"  error   {failure}", style="bold red"))


def _findings_table(findings: Sequence[Finding]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("ratio" if all(finding.unit == "x" for finding in findings) else "figure")
    table.add_column("measured", justify="right")
    table.add_column("min..max", justify="right", style="dim")
    table.add_column("goal", justify="right")
    table.add_column("verdict")
    for finding in findings:
        median = _number(finding.measured.median, finding.unit) if finding.measured else "-"
        verdict = Text(finding.verdict, style=STYLES[finding.verdict])
        table.add_row(finding.what, median, _range(finding.measured, finding.unit), _goal(finding), verdict)
    return table


def _grouped_table(findings: Sequence[Finding]) -> Table:
    """Without goals: one row per figure, one column per group."""
    groups = list(dict.fromkeys(finding.group for finding in findings))
    rows = list(dict.fromkeys(finding.what for finding in findings))
    cells = {(finding.what, finding.group): _spread(finding.measured, finding.unit) for finding in findings}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("ratio")
    for group in groups:
        table.add_column(group, justify="right")
    for row in rows:
        table.add_row(row, *(cells.get((row, group), "") for group in groups))
    return table


def _absolute_table(comparison: Comparison) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, style="dim", header_style="dim")
    table.add_column("on this machine, median", style="dim", no_wrap=True)
    for column in comparison.columns:
        table.add_column(column.heading, justify="right", style="dim")
    for entry in comparison.rounds.entries:
        cells = []
        for column in comparison.columns:
            spread = comparison.rounds.spread(entry.key, column.field)
            median = None if spread is None else spread.median * column.scale
            cells.append("" if median is None else f"{median:,.{column.digits}f}")
        table.add_row(entry.label, *cells)
    return table


def _goal(finding: Finding) -> str:
    if finding.at_most is not None:
        return f"≤ {finding.at_most:g}{finding.unit}"
    if finding.at_least is not None:
        return f"≥ {finding.at_least:g}{finding.unit}"
    return ""


def _spread(spread: Spread | None, unit: str) -> str:
    return "-" if spread is None else f"{_number(spread.median, unit)} ({_range(spread, unit)})"


def _range(spread: Spread | None, unit: str) -> str:
    return "" if spread is None else f"{_number(spread.low, '')}..{_number(spread.high, unit)}"


def _number(value: float, unit: str) -> str:
    """Three figures that matter; whole numbers stay whole."""
    if value == int(value) and abs(value) < 1000:
        return f"{int(value)}{unit}"
    digits = max(0, 2 - len(str(int(abs(value)))) + 1)
    return f"{value:,.{digits}f}{unit}"
