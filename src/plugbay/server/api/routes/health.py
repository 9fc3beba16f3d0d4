"""Liveness, readiness and Prometheus metrics. The first two need no key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import Request, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from pydantic import Field

from plugbay.host.ports import BrokerStatus
from plugbay.host.status import PluginStatus
from plugbay.server.api.caller import TheGateway, needs
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import Answer
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.meters import BOUNDS, Labels, Meters
from plugbay.server.domain.principal import HOST

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

METRICS_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "Text of Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}

PREFIX = "plugbay_"


_HELP = {
    "calls": "Finished calls of the host's plugins.",
    "call_seconds": "Duration of finished calls.",
    "http_requests": "Answered requests.",
    "http_request_seconds": "Duration of answered requests.",
    "invocations": "Finished invocations.",
    "invocation_seconds": "Duration of finished invocations.",
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


def render_metrics(gateway: Gateway) -> bytes:
    """All metrics as text."""
    registry = CollectorRegistry()
    registry.register(_Gateway(gateway))
    return generate_latest(registry)


def _meters(meters: Meters) -> Iterator[Metric]:
    for name, series in meters.counters.items():
        names = _names(series)
        counter = CounterMetricFamily(PREFIX + name, _HELP.get(name, name), labels=names)
        for labels, value in series.items():
            counter.add_metric(_values(names, labels), value)
        yield counter
    for name, spreads in meters.histograms.items():
        names = _names(spreads)
        histogram = HistogramMetricFamily(PREFIX + name, _HELP.get(name, name), labels=names)
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


def _broker(status: BrokerStatus | None) -> Iterator[Metric]:
    if status is None:
        return
    joined = GaugeMetricFamily(PREFIX + "broker_joined", "1: this host is joined with others through the broker.")
    joined.add_metric([], int(status.joined))
    events = CounterMetricFamily(PREFIX + "broker_events", "Events between hosts, by outcome.", labels=["what"])
    for what in ("sent", "received", "dropped", "refused"):
        events.add_metric([what], getattr(status, what))
    yield from (joined, events)


router = Router(tags=["health"])


class Live(Answer):
    status: str


class Ready(Answer):
    ready: bool
    checks: dict[str, str] = Field(description="`ok` for each check, or the problem.")


@router.get("/livez")
async def livez() -> Live:
    """The process answers."""
    return Live(status="alive")


@router.get("/readyz", responses={503: {"model": Ready, "description": "Not yet, or not any more."}})
async def readyz(request: Request, response: Response, gateway: TheGateway) -> Ready:
    """Whether the server is ready, and which checks fail."""
    stopping = request.app.state.closing.is_set()
    checks = {**await gateway.checks(), "server": "stopping" if stopping else "ok"}
    ready = all(text == "ok" for text in checks.values())
    response.status_code = 200 if ready else 503
    return Ready(ready=ready, checks=checks)


@router.get("/metrics", response_class=Response, responses=METRICS_RESPONSE, **needs(HOST))
async def get_metrics(gateway: TheGateway) -> Any:
    """For Prometheus."""
    return Response(render_metrics(gateway), media_type=METRICS_TYPE)
