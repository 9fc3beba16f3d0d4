"""Metrics of a gateway, as Prometheus reads them."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from plugbay.host.config.config import parse
from plugbay.host.host import Host
from plugbay.server.api.metrics import render_metrics
from tests.store.test_calls import record
from tests.support.gateways import gateway_at
from tests.support.loops import Run
from tests.support.plugins import write_plugin


def test_calls_durations_states_and_confinement_are_measured(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, host=Host.load(tmp_path / "plugins")) as gateway:
            gateway.calls.finished(record(1))
            gateway.meters.count("deliveries", outcome="ack")
            gateway.host.journal.note("p", "noise", "not JSON", times=3)
            families = {each.name: each for each in text_string_to_metric_families(render_metrics(gateway).decode())}
            calls = families["plugbay_calls"].samples[0]
            assert (calls.labels["plugin"], calls.labels["status"], calls.value) == ("p", "succeeded", 1)
            buckets = {s.labels.get("le"): s.value for s in families["plugbay_call_seconds"].samples}
            assert buckets["0.001"] == 0 and buckets["0.0025"] == 1 and buckets["+Inf"] == 1
            assert families["plugbay_plugin_state"].samples[0].labels == {"plugin": "p", "state": "idle"}
            assert families["plugbay_plugin_confined"].samples[0].value == 0
            assert families["plugbay_plugin_events"].samples[0].labels == {"plugin": "p", "kind": "noise"}
            assert families["plugbay_plugin_events"].samples[0].value == 3
            assert families["plugbay_deliveries"].samples[0].value == 1
            assert {s.labels["task"] for s in families["plugbay_task_crashes"].samples} >= {"calls"}

    run(main)


def test_an_empty_gateway_has_metrics_too(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            assert b"plugbay_call_records_lost_total 0.0" in render_metrics(gateway)

    run(main)


def test_the_state_of_the_broker_is_measured(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        host = Host([], parse('[broker]\nurl = "nats://127.0.0.1:1"\ntopics = ["a"]'))
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway:
            families = {each.name: each for each in text_string_to_metric_families(render_metrics(gateway).decode())}
            assert families["plugbay_broker_joined"].samples[0].value == 0
            counts = {sample.labels["what"]: sample.value for sample in families["plugbay_broker_events"].samples}
            assert counts == {"sent": 0, "received": 0, "dropped": 0, "refused": 0}

    run(main)
