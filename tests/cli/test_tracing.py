"""Traces reach a real collector, never delay a call, and warn when they cannot be sent."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from plugbay import Host
from plugbay.cli import tracing
from plugbay.cli.tracing import export_traces
from tests.cli.conftest import environment
from tests.server.test_server import served
from tests.support.commands import plugbay
from tests.support.patience import PATIENCE
from tests.support.plugins import write_plugin
from tests.support.spans import PARENT, SPAN, TRACE, collecting, said
from tests.support.tiers import exhaustive

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"

LOADED = f"""
import sys
import plugbay.cli.mcp.serve, plugbay.cli.serve, plugbay.server.server
from plugbay import Host
from plugbay.cli.tracing import export_traces

with export_traces({{{ENDPOINT!r}: sys.argv[1]}}, print) as tracer:
    Host([], tracer=tracer)
    print(*(name in sys.modules for name in ("opentelemetry.sdk", "plugbay.host.calls.tracing")))
"""
"""The API of OpenTelemetry does not count: FastAPI loads it wherever it is installed."""


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may send traces of their own."""
    for name in (*tracing.ENDPOINTS, *tracing.PROTOCOLS, tracing.EXPORTER, tracing.DISABLED, "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)


def test_a_server_sends_the_spans_of_requests_and_calls_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin(tmp_path / "plugins", "p")
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=sesame")
        with served(tmp_path, "plugins") as server, server.client() as client:
            body = {"export": "t", "input": {"password": "hush"}}
            done = client.post("/api/v1/calls", json=body, headers={"traceparent": PARENT})
            assert done.json()["status"] == "succeeded"
            assert server.end() == 0
        spans = collector.spans()
        call, request = spans["execute_tool t"], spans["POST /api/v1/calls"]
        assert call.trace_id.hex() == TRACE == request.trace_id.hex()
        assert (request.parent_span_id.hex(), call.parent_span_id) == (SPAN, request.span_id)
        assert said(call.attributes)["plugbay.call.id"] == done.json()["call_id"]
        assert collector.resource()["service.name"] == "plugbay" and collector.headers[0]["x-key"] == "sesame"
        assert not any("hush" in str(request) for request in collector.requests)
        assert not any("sesame" in line for line in server.log)


def test_an_mcp_server_sends_the_spans_of_its_calls(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "plugins", "p")
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    call = {"name": "p__t", "arguments": {}, "_meta": {"traceparent": PARENT}}
    lines: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": params},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]
    stdin = b"".join(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n" for line in lines)
    with collecting() as collector:
        env = {**environment(tmp_path), ENDPOINT: collector.url, "OTEL_SERVICE_NAME": "mine"}
        done = plugbay("mcp", "serve", folder, stdin=stdin, env=env)
        assert (done.returncode, b'"id":2' in done.stdout) == (0, True), done.stderr
        span = collector.spans()["execute_tool t"]
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN)
        assert collector.resource()["service.name"] == "mine"


def test_a_collector_that_does_not_answer_delays_no_call_and_the_end_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, warnings = write_plugin(tmp_path), list[str]()
    monkeypatch.setattr(tracing, "FLUSH_SECONDS", 0.05)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    with collecting() as collector:
        collector.open.clear()
        monkeypatch.setenv(ENDPOINT, collector.url)
        with export_traces({ENDPOINT: collector.url}, warnings.append) as tracer:

            async def main() -> None:
                async with Host.load(folder, tracer=tracer) as host:
                    assert await host.call("t", {"a": 1}) == {"a": 1}
                    assert await asyncio.to_thread(collector.asked.wait, PATIENCE)
                    assert await host.call("t", {"a": 2}) == {"a": 2}

            asyncio.run(main())
        assert warnings == ["the last traces are lost: the collector did not accept them within 0.05 seconds"]
        collector.open.set()
        for thread in threading.enumerate():
            if thread.name.startswith(("plugbay-traces", "OtelBatch")):
                thread.join(PATIENCE)


@exhaustive
def test_a_server_that_sends_no_traces_loads_nothing_for_them() -> None:
    words = [sys.executable, "-c", LOADED]
    without, with_one = (
        subprocess.run([*words, url], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
        for url in ("", "http://127.0.0.1:4318")
    )
    assert (without, with_one) == ("False False\n", "True True\n")


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {ENDPOINT: " "},
        {ENDPOINT: "http://127.0.0.1:1", tracing.DISABLED: "true"},
        {ENDPOINT: "http://127.0.0.1:1", tracing.EXPORTER: "none"},
    ],
)
def test_without_variables_no_traces_are_sent_and_nothing_is_printed(variables: dict[str, str]) -> None:
    warnings: list[str] = []
    with export_traces(variables, warnings.append) as tracer:
        assert tracer is None
    assert warnings == []


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({ENDPOINT: "collector:4318"}, f"{ENDPOINT} is not a URL such as http://127.0.0.1:4318"),
        ({ENDPOINT: "http://me:sesame@[nowhere/"}, f"{ENDPOINT} is not a URL such as http://127.0.0.1:4318"),
        ({ENDPOINT: "http://c:99999"}, f"{ENDPOINT} is not a URL such as http://127.0.0.1:4318"),
        (
            {ENDPOINT: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf; a collector uses another port for it, usually 4318",
        ),
        ({tracing.EXPORTER: "console"}, "OTEL_TRACES_EXPORTER must be otlp or none"),
    ],
)
def test_variables_that_cannot_be_followed_are_reported_without_their_values(
    variables: dict[str, str], why: str
) -> None:
    warnings: list[str] = []
    with export_traces(variables, warnings.append) as tracer:
        assert tracer is None
    assert warnings == [f"no traces are sent: {why}"]


def test_a_number_that_is_none_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")
    with export_traces({tracing.EXPORTER: "otlp"}, warnings.append) as tracer:
        assert tracer is None
    (warning,) = warnings
    assert warning.startswith("no traces are sent: an OTEL_ variable cannot be used: ") and "max_queue_size" in warning


def test_a_missing_extra_is_reported_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with export_traces({ENDPOINT: "http://127.0.0.1:4318"}, warnings.append) as tracer:
        assert tracer is None
    needs = "the extra otel is not installed (opentelemetry.sdk.trace); pip install 'plugbay[otel]'"
    assert warnings == [f"no traces are sent: {needs}"]


def test_headers_that_cannot_be_read_are_reported_without_their_values(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization: Bearer sesame")
    with export_traces({tracing.EXPORTER: "otlp"}, pytest.fail) as tracer:
        assert tracer is not None
    (told,) = caplog.messages
    assert told == "OTEL_EXPORTER_OTLP_HEADERS must be URL-encoded name=value,…; an invalid header is left out"
