"""Values of the overview: health, problems, charts of the last hour, the largest plugins. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from plugbay.host.supervision.resident import TROUBLE
from plugbay.model.lifecycle import PENDING, State
from plugbay.server.dashboard.charts import BARS, NO_VALUE, Chart, Series
from plugbay.server.dashboard.loader import PluginSnapshot
from plugbay.server.dashboard.text import count, megabytes, minute_of_day
from plugbay.server.dashboard.views.plugins import (
    Capability,
    Row,
    capabilities_of,
    hint_of,
    key_of,
    row_of,
    rows_of,
    summary,
)
from plugbay.server.dashboard.views.tones import BAD, GOOD, WARN, Badge
from plugbay.server.domain.resources import Sample, Usage
from plugbay.store.calls import CallMinute

MINUTES = 60
"""Minutes on a chart, with the current one."""

MAX_PROBLEMS = 50
"""Problems on the overview; the list of plugins has all."""

MAX_LARGEST = 5


class Health(msgspec.Struct, frozen=True):
    """The state of the server in one line."""

    badge: Badge
    plugins: str
    calls: str


class Welcome(msgspec.Struct, frozen=True):
    """First steps on a server without plugins."""

    folders: tuple[Path, ...]


class Problem(msgspec.Struct, frozen=True):
    """A plugin that needs the operator."""

    key: str
    row: Row
    hint: str
    can_start: bool
    missing: tuple[Capability, ...]
    """Capabilities it waits for."""
    needs_approval: bool


class Problems(msgspec.Struct, frozen=True):
    """Plugins that need the operator."""

    shown: tuple[Problem, ...]
    more: int


class LargePlugin(msgspec.Struct, frozen=True):
    """A plugin that uses much memory."""

    id: str
    memory: str
    cpu: str


class Table(msgspec.Struct, frozen=True):
    """The values of all charts as text, the newest first."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def health_of(
    plugins: Sequence[PluginSnapshot], broken: int, checks: Mapping[str, str], minutes: Sequence[CallMinute]
) -> Health:
    """The worst problem in words, then numbers."""
    rows = rows_of(plugins)
    failed = [f"{name}: {text}" for name, text in checks.items() if text != "ok"]
    tones = list(map(_tone, plugins))
    if failed:
        badge = Badge("server problem", BAD, "; ".join(failed))
    elif BAD in tones:
        badge = Badge(_needs(tones.count(BAD), "fails", "fail"), BAD)
    elif WARN in tones:
        badge = Badge(_needs(tones.count(WARN), "waits for your decision", "wait for your decision"), WARN)
    elif broken:
        badge = Badge(f"{count(broken, 'folder')} not loaded", WARN)
    else:
        badge = Badge("all is well", GOOD)
    return Health(badge, summary(rows), _calls_in_words(minutes))


def _needs(number: int, one: str, many: str) -> str:
    return f"{count(number, 'plugin')} {one if number == 1 else many}"


def _calls_in_words(minutes: Sequence[CallMinute]) -> str:
    calls, failures = sum(each.calls for each in minutes), sum(each.failures for each in minutes)
    if not calls:
        return "no calls in the last hour"
    return f"{count(calls, 'call')} in the last hour, {failures:,} failed ({failures / calls:.1%})"


def problems_of(plugins: Iterable[PluginSnapshot]) -> Problems:
    """Plugins that failed or wait for a decision, failed ones first."""
    found = [plugin for plugin in plugins if _tone(plugin) in (BAD, WARN)]
    found.sort(key=lambda plugin: (_tone(plugin) != BAD, plugin.status.spec.id))
    return Problems(tuple(map(_problem, found[:MAX_PROBLEMS])), max(0, len(found) - MAX_PROBLEMS))


def _tone(plugin: PluginSnapshot) -> str:
    """The tone of its state; bad for a plugin that failed last and has not come back since."""
    state = row_of(plugin).state
    failed = plugin.happened is not None and plugin.happened.word in TROUBLE and state.word == State.IDLE
    return BAD if failed else state.tone


def _problem(plugin: PluginSnapshot) -> Problem:
    row, status = row_of(plugin), plugin.status
    if _tone(plugin) == BAD and not row.state.why:
        row = replace(row, state=Badge(row.state.word, BAD, plugin.trouble))
    asked = capabilities_of(plugin)
    missing = tuple(each for each in asked.requested if asked.undecided and each.name in status.missing)
    return Problem(
        f"problem-{key_of(row.id)}",
        row,
        hint_of(plugin),
        plugin.refusal is None and status.state == State.QUARANTINED,
        missing,
        row.state.word == PENDING and not missing and status.needs_approval,
    )


def charts_of(minute: int, calls: Iterable[CallMinute], samples: Iterable[Sample]) -> tuple[Chart, ...]:
    """The charts of the hour that ends with this minute."""
    span = range(minute - MINUTES + 1, minute + 1)
    labels = tuple(map(minute_of_day, span))
    found = {each.minute: each for each in calls}
    each = [found.get(at) for at in span]
    used = _by_minute(samples)
    memory = tuple(_highest(sample.total.memory for sample in used.get(at, ())) for at in span)
    cpu = tuple(_highest(sample.total.cpu for sample in used.get(at, ())) for at in span)
    return (
        Chart(
            "chart-calls",
            "Calls per minute",
            "count",
            labels,
            (
                Series("calls", "first", tuple(float(one.calls) if one else 0.0 for one in each)),
                Series("failed", "bad", tuple(float(one.failures) if one else 0.0 for one in each)),
            ),
            BARS,
        ),
        Chart(
            "chart-errors",
            "Error rate",
            "percent",
            labels,
            (Series("failed", "bad", tuple(100 * one.failures / one.calls if one else None for one in each)),),
        ),
        Chart(
            "chart-durations",
            "Duration of calls",
            "time",
            labels,
            (
                Series("p50", "first", tuple(one.p50_ms if one else None for one in each)),
                Series("p99", "second", tuple(one.p99_ms if one else None for one in each)),
            ),
        ),
        Chart("chart-memory", "Memory of plugins", "memory", labels, (Series("memory", "first", memory),)),
        Chart("chart-cpu", "CPU of plugins", "cores", labels, (Series("CPU", "first", cpu),)),
    )


def _by_minute(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    found: dict[int, list[Sample]] = {}
    for sample in samples:
        found.setdefault(int(sample.at // 60), []).append(sample)
    return found


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def table_of(charts: Sequence[Chart]) -> Table:
    """All charts in one table."""
    named = [(chart, series) for chart in charts for series in chart.series]
    columns = tuple(chart.title if len(chart.series) == 1 else f"{chart.title}: {each.name}" for chart, each in named)
    labels = charts[0].labels if charts else ()
    rows = [(label, tuple(chart.text(each.values[at]) for chart, each in named)) for at, label in enumerate(labels)]
    return Table(columns, tuple(reversed(rows)))


def largest_of(plugins: Mapping[str, Usage]) -> tuple[LargePlugin, ...]:
    """The plugins that use most memory."""
    order = sorted(plugins.items(), key=lambda item: (-item[1].memory, item[0]))
    return tuple(
        LargePlugin(plugin, megabytes(usage.memory), NO_VALUE if usage.cpu is None else f"{usage.cpu:.2f} cores")
        for plugin, usage in order[:MAX_LARGEST]
    )
