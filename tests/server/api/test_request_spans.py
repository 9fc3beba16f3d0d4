"""Spans of requests: in the trace of the request, parents of its calls, and named in the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from plugbay import Host
from plugbay.server.api.request_spans import RequestSpans
from plugbay.server.domain.gateway import Gateway
from tests.support.gateways import client_of, gateway_at, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.plugins import write_plugin
from tests.support.spans import PARENT, SPAN, TRACE, Spans, facts, id_of, parent_of, trace_of

CALLS, INVOCATIONS = "/api/v1/calls", "/v1/plugin-invocations"


def test_a_call_stands_under_its_request_and_the_request_in_the_trace_it_names(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    spans = Spans()
    host = Host.load(write_plugin(tmp_path), tracer=spans.tracer)

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway, client_of(gateway) as client:
            body = {"export": "t", "input": {"secret": "sesame"}}
            done = await client.post(CALLS, json=body, headers={"traceparent": PARENT, "tracestate": "a=1"})
            assert done.json()["status"] == "succeeded", done.text
            call, request = spans.all()
            assert (call.name, request.name, request.kind) == ("execute_tool t", f"POST {CALLS}", SpanKind.SERVER)
            assert (parent_of(call), parent_of(request)) == (id_of(request), SPAN)
            assert trace_of(call) == TRACE == trace_of(request)
            assert call.context.trace_state.to_header() == "a=1"
            assert facts(request) == {
                "http.request.method": "POST",
                "url.scheme": "http",
                "http.route": CALLS,
                "http.response.status_code": 200,
            }
            assert "sesame" not in call.to_json() + request.to_json()

    run(main)


def test_an_invocation_its_record_and_the_answer_have_the_trace_of_the_request(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    spans = Spans()

    async def main() -> None:
        host = Host([], tracer=spans.tracer)
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway, client_of(gateway) as client:
            binding_id = await bound(gateway, tmp_path)
            for headers in ({"traceparent": PARENT}, {}, {"traceparent": PARENT, "idempotency-key": "slow way"}):
                body: dict[str, Any] = {"binding_id": binding_id, "input": {}}
                done = await client.post(INVOCATIONS, json=body, headers=headers)
                record = done.json()["invocation"]
                call, request = spans.all()[-2:]
                assert (call.name, request.name) == ("execute_tool t", f"POST {INVOCATIONS}")
                assert parent_of(call) == id_of(request) and record["trace_id"] == f"tr_{trace_of(request)}"
                assert facts(call)["plugbay.invocation.ids"] == (record["invocation_id"],)
                assert done.headers["traceparent"][3:52] == f"{trace_of(request)}-{id_of(request)}"
                assert (trace_of(request) == TRACE) is ("traceparent" in headers)

    run(main)


async def bound(gateway: Gateway, folder: Path) -> str:
    await make_org(gateway)
    return (await bind(gateway, await Publisher(folder, folder).bring(gateway))).id


@pytest.mark.parametrize(
    "headers",
    [
        [("traceparent", "00-zz-zz-01")],
        [("traceparent", f"ff-{TRACE}-{SPAN}-01")],
        [("traceparent", PARENT), ("traceparent", PARENT)],
        [("traceparent", "0" * 600)],
        [("tracestate", "a=1")],
    ],
)
def test_a_request_without_a_good_parent_begins_a_trace(
    sqlite_url: str, tmp_path: Path, run: Run, headers: list[tuple[str, str]]
) -> None:
    spans = Spans()
    host = Host.load(write_plugin(tmp_path), tracer=spans.tracer)

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway, client_of(gateway) as client:
            done = await client.post(CALLS, json={"export": "t"}, headers=headers)
            assert done.status_code == 200, done.text
            call, request = spans.all()
            assert request.parent is None and parent_of(call) == id_of(request) and trace_of(request) != TRACE

    run(main)


def test_a_request_that_only_reads_has_no_span_and_a_refused_one_has(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    spans = Spans()

    async def main() -> None:
        host = Host([], tracer=spans.tracer)
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway, client_of(gateway) as client:
            await client.get("/v1/orgs", headers={"traceparent": PARENT})
            assert spans.all() == ()
            await client.post("/v1/nowhere/sesame")
            assert (spans.only().name, facts(spans.only())["http.response.status_code"]) == ("POST none", 404)
            assert spans.only().status.status_code is StatusCode.UNSET and "sesame" not in spans.only().to_json()

    run(main)


def test_fastapi_exports_no_spans_even_if_the_process_has_a_provider(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = Spans()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", spans.provider)

    async def main() -> None:
        plain = FastAPI()
        transport = httpx2.ASGITransport(app=plain)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            await client.get("/sesame")
        seen = len(spans.all())
        assert seen > 0
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await client.post("/v1/orgs", json={"name": "sesame"})
        assert len(spans.all()) == seen

    run(main)


def test_a_bug_is_an_error() -> None:
    spans = Spans()
    span = RequestSpans(spans.tracer).begin({"type": "http", "method": "POST", "headers": [], "path": "/"})
    assert span is not None and trace.get_current_span().is_recording()
    span.end("POST", "/", 500)
    assert not trace.get_current_span().is_recording()
    assert spans.only().status.status_code is StatusCode.ERROR and facts(spans.only())["error.type"] == "500"


def test_a_tracer_that_keeps_nothing_leaves_the_headers_as_they_are() -> None:
    headers = [(b"traceparent", b"nonsense")]
    scope = {"type": "http", "method": "POST", "headers": headers, "path": "/"}
    span = RequestSpans(trace.NoOpTracer()).begin(scope)
    assert span is not None and span.traceparent is None and scope["headers"] == headers
    span.end("POST", "/", 200)
