"""`python -m bench`: run the comparisons, print ratios and verdicts, write all results as JSON.

A missed goal is only reported: the exit status is 0 unless a measurement failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from bench import (
    adapters_bench,
    ainb_bench,
    bus_bench,
    commands_bench,
    control_bench,
    fleet_bench,
    framing_bench,
    gateways_bench,
    growth_bench,
    idle_bench,
    large_bench,
    link_bench,
    mcp_bench,
    nexo_bench,
    nodes_bench,
    placement_bench,
    report,
    rune_bench,
    sandbox_bench,
    startup_bench,
)
from bench.harness import ROOT, BenchFailed, Comparison, Options, machine_facts

COMPARISONS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (
        link_bench,
        nexo_bench,
        large_bench,
        growth_bench,
        mcp_bench,
        adapters_bench,
        bus_bench,
        nodes_bench,
        placement_bench,
        ainb_bench,
        rune_bench,
        startup_bench,
        commands_bench,
        sandbox_bench,
        fleet_bench,
        control_bench,
        gateways_bench,
        idle_bench,
        framing_bench,
    )
}
LATEST = ROOT / "bench" / "results" / "latest.json"
REPEATS, QUICK_REPEATS = 9, 2


def main() -> int:
    arguments = _arguments()
    options = Options(arguments.repeats, arguments.quick, _progress)
    screen = report.console()
    facts = machine_facts()
    report.show_machine(screen, facts)
    began = time.monotonic()
    done: list[Comparison] = []
    failures: list[str] = []
    for name in arguments.only or COMPARISONS:
        try:
            comparison: Comparison = COMPARISONS[name].run(options)
        except BenchFailed as error:
            failures.append(f"{name}: {error}")
            continue
        finally:
            _progress("")
        done.append(comparison)
        report.show_comparison(screen, comparison)
    report.show_summary(screen, done, failures)
    seconds = round(time.monotonic() - began, 1)
    _write(
        arguments.json,
        {"machine": facts, "seconds": seconds, "quick": options.quick},
        options,
        done,
        failures,
    )
    shown = arguments.json.relative_to(ROOT) if arguments.json.is_relative_to(ROOT) else arguments.json
    screen.print(f"{seconds:g} s; everything is in {shown}")
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure plugbay side by side with the alternatives."
    )
    parser.add_argument("--quick", action="store_true", help="few repeats of short runs; under two minutes")
    parser.add_argument(
        "--only", action="append", choices=COMPARISONS, metavar="NAME", help="one comparison; may be repeated"
    )
    parser.add_argument("--repeats", type=int, metavar="N", help="processes per contender")
    parser.add_argument("--json", type=Path, default=LATEST, metavar="FILE", help="where the results go")
    arguments = parser.parse_args()
    if arguments.repeats is None:
        arguments.repeats = QUICK_REPEATS if arguments.quick else REPEATS
    if arguments.repeats < 1:
        parser.error("--repeats must be at least 1")
    return arguments


def _progress(text: str) -> None:
    """One line of progress that replaces itself; nothing without a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


def _write(path: Path, head: dict[str, Any], options: Options, done: list[Comparison], failures: list[str]) -> None:
    results = {
        **head,
        "repeats": options.repeats,
        "comparisons": [comparison.to_json() for comparison in done],
        "failures": failures,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
