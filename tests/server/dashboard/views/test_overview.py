"""What the overview says: the worst first, then numbers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from plugbay.model.errors import Code, Failure
from plugbay.model.lifecycle import PENDING
from plugbay.server.dashboard.loader import LifecycleEvent
from plugbay.server.dashboard.views.overview import (
    MAX_LARGEST,
    MAX_PROBLEMS,
    MINUTES,
    charts_of,
    health_of,
    largest_of,
    problems_of,
    table_of,
)
from plugbay.server.domain.resources import Sample, Usage
from plugbay.store.calls import CallMinute
from tests.server.dashboard.views.test_plugins import known

WELL = {"database": "ok", "disk": "ok"}


def pending(name: str) -> object:
    return replace(known(name), refusal=Failure(Code.CAPABILITY_NOT_ALLOWED, "pending: it requests x"))


@pytest.mark.parametrize(
    ("plugins", "broken", "checks", "word", "tone"),
    [
        ((), 0, WELL, "all is well", "good"),
        (("idle",), 0, WELL, "all is well", "good"),
        (("idle",), 2, WELL, "2 folders not loaded", "warn"),
        (("pending",), 2, WELL, "1 plugin waits for your decision", "warn"),
        (("pending", "quarantined", "backoff"), 0, WELL, "2 plugins fail", "bad"),
        (("quarantined",), 0, {**WELL, "disk": "full"}, "server problem", "bad"),
    ],
)
def test_the_worst_problem_is_named(
    plugins: tuple[str, ...], broken: int, checks: dict[str, str], word: str, tone: str
) -> None:
    made = [
        pending(f"p{at}") if state == "pending" else known(f"p{at}", state=state) for at, state in enumerate(plugins)
    ]
    health = health_of(made, broken, checks, [])  # type: ignore[arg-type]
    assert (health.badge.word, health.badge.tone) == (word, tone)
    assert health.calls == "no calls in the last hour"


def test_calls_of_the_hour_are_counted() -> None:
    minutes = [CallMinute(1, 900, 0, 1.0, 2.0), CallMinute(2, 300, 6, 1.0, 2.0)]
    assert health_of([], 0, WELL, minutes).calls == "1,200 calls in the last hour, 6 failed (0.5%)"


def test_a_failing_server_says_what_fails() -> None:
    assert health_of([], 0, {"disk": "full", "host": "ok"}, []).badge.why == "disk: full"


def test_problems_come_with_what_solves_them() -> None:
    waits = known("waits", state=PENDING, capabilities=("tool.execute",))
    waits = replace(
        waits,
        refusal=Failure(Code.CAPABILITY_NOT_ALLOWED, "pending: it requests tool.execute"),
        status=replace(waits.status, missing=("tool.execute",)),
    )
    found = problems_of([known("fine"), waits, known("broken", state="quarantined")])
    broken, pending = found.shown
    assert (broken.row.id, broken.can_start, broken.missing) == ("broken", True, ())
    assert (pending.row.id, pending.can_start) == ("waits", False)
    assert [(each.name, each.risk) for each in pending.missing] == [("tool.execute", "medium")]
    assert found.more == 0


def test_a_plugin_that_failed_last_is_a_problem_although_it_is_idle() -> None:
    crashed = LifecycleEvent("start_failed", 1.0, "no such table")
    plugin = replace(known("p", state="idle"), happened=crashed, trouble="start failed: no such table")
    (problem,) = problems_of([plugin]).shown
    assert (problem.row.state.tone, problem.row.state.why) == ("bad", "start failed: no such table")
    assert health_of([plugin], 0, WELL, []).badge.word == "1 plugin fails"
    assert problems_of([replace(plugin, status=known("p", state="running").status)]).shown == ()


def test_of_many_problems_some_are_shown() -> None:
    found = problems_of([known(f"p{at:03}", state="quarantined") for at in range(MAX_PROBLEMS + 3)])
    assert (len(found.shown), found.more) == (MAX_PROBLEMS, 3)


def test_charts_cover_an_hour_and_have_gaps_without_values() -> None:
    calls = [CallMinute(1000, 4, 1, 2.0, 9.0), CallMinute(940, 9, 9, 1.0, 1.0)]
    samples = [
        Sample(999 * 60.0 + 5, Usage(10 << 20, None)),
        Sample(999 * 60.0 + 15, Usage(12 << 20, 0.5)),
        Sample(100.0, Usage(1, 1.0)),
    ]
    charts = {chart.key: chart for chart in charts_of(1000, calls, samples)}
    assert all(len(chart.labels) == MINUTES for chart in charts.values())
    assert charts["chart-calls"].labels[-1] == "16:40"
    total, failed = charts["chart-calls"].series
    assert (total.values[-1], failed.values[-1], sum(value or 0 for value in total.values)) == (4, 1, 4), (
        "older ones are out"
    )
    assert charts["chart-errors"].series[0].values[-2:] == (None, 25.0)
    assert [each.values[-1] for each in charts["chart-durations"].series] == [2.0, 9.0]
    assert charts["chart-memory"].series[0].values[-3:] == (None, float(12 << 20), None), "the highest of its minute"
    assert charts["chart-cpu"].series[0].values[-2:] == (0.5, None)


def test_the_table_has_what_the_charts_have_newest_first() -> None:
    table = table_of(charts_of(1000, [CallMinute(1000, 4, 1, 2.0, 9.0)], []))
    assert table.columns[:4] == (
        "Calls per minute: calls",
        "Calls per minute: failed",
        "Error rate",
        "Duration of calls: p50",
    )
    assert table.rows[0] == ("16:40", ("4", "1", "25 %", "2.0 ms", "9.0 ms", "none", "none"))
    assert len(table.rows) == MINUTES and table_of(()).rows == ()


def test_the_largest_plugins_are_listed() -> None:
    used = {f"p{at}": Usage(at << 20, None if at else 0.25) for at in range(MAX_LARGEST + 1)}
    found = largest_of(used)
    assert [each.id for each in found] == ["p5", "p4", "p3", "p2", "p1"]
    assert (found[0].memory, found[0].cpu) == ("5 MiB", "none")
    assert largest_of({"p": Usage(0, 0.25)})[0].cpu == "0.25 cores"
