"""`render_metrics`: all metrics of a gateway, as text for Prometheus. Loaded by the first request for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from plugbay.host.ports import BrokerStatus
from plugbay.host.status import PluginStatus
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.meters import BOUNDS, Labels, Meters

PREFIX = "plugbay_"


HELP = {
    "calls": "Finished calls of the host's plugins.",
    "call_seconds": "Duration of finished calls.",
    "http_requests": "Answered requests.",
    "http_request_seconds": "Duration of answered requests.",
    "invocations": "Finished invocations.",
    "queue_refusals": "Calls and invocations refused because they would queue for too long.",
    "deliveries": "Attempts to deliver an event to a hook.",
    "records_removed": "Records removed after their retention time.",
    "record_removals_failed": "Failed attempts to remove old records; they are retried.",
}


class _Gateway(Collector):
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[Metric]:
        yield from _meters(self._gateway.meters)
        yield from _plugins(self._gateway.host.plugins())
        yield from _tasks(self._gateway)
        yield from _broker(self._gateway.host.broker)
        yield from _cluster(self._gateway)


def render_metrics(gateway: Gateway) -> bytes:
    """All metrics as text."""
    registry = CollectorRegistry()
    registry.register(_Gateway(gateway))
    return generate_latest(registry)


def _meters(meters: Meters) -> Iterator[Metric]:
    for name, series in meters.counters.items():
        names = _names(series)
        counter = CounterMetricFamily(PREFIX + name, HELP.get(name, name), labels=names)
        for labels, value in series.items():
            counter.add_metric(_values(names, labels), value)
        yield counter
    for name, spreads in meters.histograms.items():
        names = _names(spreads)
        histogram = HistogramMetricFamily(PREFIX + name, HELP.get(name, name), labels=names)
        for labels, spread in spreads.items():
            total, buckets = 0, []
            for bound, count in zip([*map(str, BOUNDS), "+Inf"], spread.counts, strict=True):
                total += count
                buckets.append((bound, float(total)))
            histogram.add_metric(_values(names, labels), buckets, spread.total)
        yield histogram


def _names(series: Iterable[Labels]) -> list[str]:
    return sorted({name for labels in series for name, _ in labels})


def _values(names: list[str], labels: Labels) -> list[str]:
    known = dict(labels)
    return [known.get(name, "") for name in names]


def _plugins(statuses: list[PluginStatus]) -> Iterator[Metric]:
    state = GaugeMetricFamily(PREFIX + "plugin_state", "1 for the state a plugin is in.", labels=["plugin", "state"])
    starts = CounterMetricFamily(PREFIX + "plugin_starts", "Processes started for a plugin.", labels=["plugin"])
    confined = GaugeMetricFamily(
        PREFIX + "plugin_confined",
        "1: fully confined; 0: not, or only in part.",
        labels=["plugin", "sandbox", "limits"],
    )
    events = CounterMetricFamily(
        PREFIX + "plugin_events", "Events of a plugin that failed no call, by kind.", labels=["plugin", "kind"]
    )
    busy = GaugeMetricFamily(PREFIX + "plugin_busy", "Running calls of a plugin.", labels=["plugin"])
    for status in statuses:
        plugin = status.spec.id
        state.add_metric([plugin, str(status.state)], 1)
        starts.add_metric([plugin], status.generation)
        busy.add_metric([plugin], status.busy)
        whole = status.confinement.policy is not None and status.limits != "degraded"
        sandbox = "confined" if status.confinement.policy is not None else "unconfined"
        confined.add_metric([plugin, sandbox, status.limits], int(whole))
        for kind, count in status.counters.items():
            events.add_metric([plugin, kind], count)
    yield from (state, starts, confined, events, busy)


def _tasks(gateway: Gateway) -> Iterator[Metric]:
    crashes = CounterMetricFamily(PREFIX + "task_crashes", "Crashes of background work.", labels=["task"])
    for name in gateway.tasks.names:
        crashes.add_metric([name], gateway.tasks.crashes[name])
    lost = CounterMetricFamily(PREFIX + "call_records_lost", "Call records that were dropped.")
    lost.add_metric([], gateway.calls.lost)
    yield from (crashes, lost)


def _cluster(gateway: Gateway) -> Iterator[Metric]:
    if gateway.membership is not None:
        renewals = CounterMetricFamily(PREFIX + "lease_renewals", "Renewals of the lease of this gateway.")
        renewals.add_metric([], gateway.membership.renewals)
        yield renewals
    if gateway.nodes is None:
        return
    nodes = GaugeMetricFamily(PREFIX + "nodes", "Nodes that this gateway has heard, by state.", labels=["state"])
    states = Counter(node.state for node in gateway.cluster.nodes())
    for state in sorted({"up", "draining", "gone", *states}):
        nodes.add_metric([state], states[state])
    calls = CounterMetricFamily(
        PREFIX + "remote_calls", "Calls given to nodes, by what became of them.", labels=["outcome"]
    )
    for outcome, times in gateway.nodes.cluster.tally.outcomes.items():
        calls.add_metric([outcome], times)
    missed = CounterMetricFamily(PREFIX + "beats_missed", "Beats of nodes that did not come in time.")
    missed.add_metric([], gateway.nodes.cluster.roster.missed)
    yield from (nodes, calls, missed)


def _broker(status: BrokerStatus | None) -> Iterator[Metric]:
    if status is None:
        return
    joined = GaugeMetricFamily(PREFIX + "broker_joined", "1: this host is joined with others through the broker.")
    joined.add_metric([], int(status.joined))
    events = CounterMetricFamily(PREFIX + "broker_events", "Events between hosts, by outcome.", labels=["what"])
    for what in ("sent", "received", "dropped", "refused"):
        events.add_metric([what], getattr(status, what))
    yield from (joined, events)
