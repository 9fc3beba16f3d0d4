"""Each call as a span: its name, its attributes, its parent, and when OpenTelemetry is loaded."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from plugbay import CallFailed, Host, SyncHost
from plugbay.contracts.mcp.requests import CONTEXT
from plugbay.host.calls.calls import Calls
from plugbay.host.calls.tracing import LONGEST_NAME, LONGEST_PARENT, TracedCalls, parent_in
from plugbay.host.invocations.context import w3c_trace_id
from plugbay.model.operations import GetPrompt, ReadResource
from tests.support.invoking import raw_host_of, records, with_host
from tests.support.loops import Run
from tests.support.mcp_servers import write_server
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import PATIENCE, until
from tests.support.plugins import write_plugin
from tests.support.spans import PARENT, SPAN, TRACE, Spans, facts, id_of, parent_of, trace_of
from tests.support.vai import export, write_vai_plugin

SAYS_META = """
RESOURCES = [{"uri": "x://notes", "name": "notes"}]
PROMPTS = [{"name": "greet"}]

def meta(m):
    return json.dumps(m["params"].get("_meta", {}))
def tools_call(m):
    reply(m, **text(meta(m)))
def resources_read(m):
    reply(m, contents=[{"uri": "x://notes", "text": meta(m)}])
def prompts_get(m):
    reply(m, messages=[{"role": "user", "content": {"type": "text", "text": meta(m)}}])
"""
"""An MCP server that answers with the `_meta` it was sent."""


def test_a_call_is_a_span_that_says_whose_export_it_was_and_how_it_ended(run: Run, tmp_path: Path) -> None:
    folder, spans = write_plugin(tmp_path), Spans()

    async def main() -> None:
        async with Host.load(folder, tracer=spans.tracer) as host:
            result = await host.attempt("t", {"secret": "sesame"})
            span = spans.only()
            assert (span.name, span.kind, span.parent) == ("execute_tool t", SpanKind.CLIENT, None)
            assert facts(span) == {
                "plugbay.plugin.id": "p",
                "plugbay.plugin.version": "1",
                "plugbay.contract": "rune",
                "plugbay.export.kind": "tool",
                "plugbay.export.name": "t",
                "network.transport": "pipe",
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "t",
                "plugbay.call.id": result.record.call_id,
                "plugbay.outcome": "succeeded",
            }
            assert span.status.status_code is StatusCode.UNSET
            assert span.start_time is not None and span.end_time is not None
            assert (span.end_time - span.start_time) / 1e6 >= result.record.duration_ms

    run(main)


def test_a_failure_is_told_by_its_code_and_nothing_that_was_said(run: Run, tmp_path: Path) -> None:
    folder, spans = write_plugin(tmp_path, script="echo sesame >&2; exit 3\n"), Spans()

    async def main() -> None:
        async with Host.load(folder, tracer=spans.tracer) as host:
            assert (await host.attempt("t", {"secret": "sesame"})).failure is not None

    run(main)
    span = spans.only()
    assert facts(span)["error.type"] == "crashed" and facts(span)["plugbay.outcome"] == "failed"
    assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, None, ())
    assert "sesame" not in span.to_json()


def test_a_name_that_nobody_has_stands_in_no_span(run: Run, tmp_path: Path) -> None:
    spans = Spans()

    async def main() -> None:
        async with Host.load(write_plugin(tmp_path), tracer=spans.tracer) as host:
            assert (await host.attempt("sesame" * 100)).failure is not None

    run(main)
    assert (spans.only().name, facts(spans.only())["error.type"]) == ("call", "not_found")
    assert "sesame" not in spans.only().to_json()


def test_a_cancelled_call_ends_its_span(run: Run, tmp_path: Path) -> None:
    root, spans = write_nexo_plugin(tmp_path, body="def tool_invoke(m): pass\n", tools=["go"]), Spans()

    async def main() -> None:
        async with Host.load(root, tracer=spans.tracer) as host:
            call = asyncio.ensure_future(host.call("p_go"))
            await until(lambda: host.plugins()[0].busy == 1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    run(main)
    assert facts(spans.only())["plugbay.outcome"] == "cancelled"


def test_the_callers_span_is_the_parent_and_is_current_again_afterwards(run: Run, tmp_path: Path) -> None:
    folder, spans = write_plugin(tmp_path), Spans()

    async def main() -> None:
        async with Host.load(folder, tracer=spans.tracer) as host:
            with spans.tracer.start_as_current_span("mine") as mine:
                await asyncio.gather(host.call("t"), host.call("t"))
                assert trace.get_current_span() is mine

    run(main)
    mine = spans.named("mine")
    assert [parent_of(span) for span in spans.all()] == [id_of(mine), id_of(mine), None]
    assert {trace_of(span) for span in spans.all()} == {trace_of(mine)}


def test_the_parent_is_found_from_another_loop_and_from_another_thread(tmp_path: Path) -> None:
    folder, spans = write_plugin(tmp_path), Spans()
    with SyncHost.load(folder, tracer=spans.tracer) as host:

        def work() -> None:
            with spans.tracer.start_as_current_span("thread"):
                host.call("t")

        async def main() -> None:
            with spans.tracer.start_as_current_span("loop"):
                await host.host.call("t")

        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        asyncio.run(main())
    parents = [parent_of(span) for span in spans.all() if span.name == "execute_tool t"]
    assert parents == [id_of(spans.named("thread")), id_of(spans.named("loop"))]


def test_a_tracer_that_keeps_nothing_changes_nothing(run: Run, tmp_path: Path) -> None:
    root = write_server(tmp_path, body=SAYS_META).parent

    async def main() -> None:
        async with Host.load(root, tracer=trace.NoOpTracer(), grant_all=True, trusted=["srv"]) as host:
            assert "traceparent" not in (await said(host, "echo"))

    run(main)


# MCP servers.


async def said(host: Host, name: str, **options: Any) -> dict[str, Any]:
    """The `_meta` that a tool of the server was sent."""
    answer = await host.call(name, {}, **options)
    meta: dict[str, Any] = json.loads(answer["content"][0]["text"])
    return meta


def test_an_mcp_server_is_told_the_span_of_each_request(run: Run, tmp_path: Path) -> None:
    root, spans = write_server(tmp_path, body=SAYS_META).parent, Spans()

    async def main() -> None:
        async with Host.load(root, tracer=spans.tracer, grant_all=True, trusted=["srv"], eager=False) as host:
            meta = await said(host, "echo", context={CONTEXT: {"mine": 1}})
            span = spans.named("tools/call echo")
            assert meta["traceparent"].startswith(f"00-{trace_of(span)}-{id_of(span)}-0") and meta["mine"] == 1
            assert facts(span)["mcp.method.name"] == "tools/call" and facts(span)["gen_ai.tool.name"] == "echo"

            names = {entry.export.kind: entry.full_name for entry in host.calls.catalog.entries()}
            read = await host.ask(names["resource"], ReadResource("x://notes"), kind="resource")
            span = spans.named("resources/read")
            assert id_of(span) in read.value()["contents"][0]["text"]
            got = await host.ask(names["prompt"], GetPrompt("greet", {}), kind="prompt")
            prompt = next(span for span in spans.all() if span.name.startswith("prompts/get"))
            assert id_of(prompt) in got.value()["messages"][0]["content"]["text"]

    run(main)


def test_a_parent_that_the_caller_names_stays_only_when_it_is_of_another_trace(run: Run, tmp_path: Path) -> None:
    root, spans = write_server(tmp_path, body=SAYS_META).parent, Spans()
    given = {CONTEXT: {"traceparent": PARENT, "tracestate": "a=1"}}

    async def main() -> None:
        async with Host.load(root, tracer=spans.tracer, grant_all=True, trusted=["srv"]) as host:
            meta = await said(host, "echo", context=given)
            assert (meta["traceparent"], meta["tracestate"]) == (PARENT, "a=1")
            with host.calls.with_parent(given[CONTEXT]):
                meta = await said(host, "echo", context=given)
            span = spans.all()[-1]
            assert (trace_of(span), parent_of(span)) == (TRACE, SPAN)
            assert meta["traceparent"] == f"00-{TRACE}-{id_of(span)}-01" and meta["tracestate"] == "a=1"

    run(main)


@pytest.mark.parametrize(
    "parent",
    [
        None,
        7,
        "",
        "00",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"{PARENT}-more",
        f"cc-{TRACE}-{SPAN}-01-" + "x" * LONGEST_PARENT,
    ],
)
def test_what_is_no_trace_context_is_ignored(parent: Any) -> None:
    found = trace.get_current_span(parent_in({"traceparent": parent}))
    assert not found.get_span_context().is_valid
    good = trace.get_current_span(parent_in({"traceparent": PARENT, "tracestate": "x" * (LONGEST_PARENT + 1)}))
    assert good.get_span_context().is_remote and not good.get_span_context().trace_state


def test_names_that_servers_choose_are_cut_and_made_sendable(run: Run, tmp_path: Path) -> None:
    body = 'TOOLS[0]["name"] = "n" * 500\ndef tools_call(m): reply(m, **text("1"))\n'
    root, spans = write_server(tmp_path, body=body).parent, Spans()

    async def main() -> None:
        async with Host.load(root, tracer=spans.tracer, grant_all=True, trusted=["srv"]) as host:
            await host.settled()
            for entry in host.calls.catalog.entries():
                await host.attempt(entry.full_name, {})

    run(main)
    assert all(len(facts(span).get("gen_ai.tool.name", "")) <= LONGEST_NAME for span in spans.all())


# Invocations.


def test_an_invocation_has_the_trace_id_of_its_span(run: Run, tmp_path: Path) -> None:
    body = "def tool(body, m): succeed(m, output(body['context']))"
    root, spans = write_vai_plugin(tmp_path, body, [export()]), Spans()

    async def main(host: Host) -> None:
        told = await host.call("t", {})
        span = spans.only()
        assert told["structured_output"]["trace_id"] == f"tr_{trace_of(span)}" == records(host)[0].trace_id

        result = await host.invoke("t", {}, trace_id=f"tr_{TRACE}")
        span = spans.all()[-1]
        assert result.invocation is not None and result.invocation.trace_id == f"tr_{TRACE}"
        assert trace_of(span) == TRACE and facts(span)["plugbay.invocation.ids"] == (result.invocation.invocation_id,)

        with spans.tracer.start_as_current_span("mine") as mine:
            await host.invoke("t", {}, trace_id=f"tr_{mine.get_span_context().trace_id:032x}")
            assert parent_of(spans.all()[-1]) == f"{mine.get_span_context().span_id:016x}"
            result = await host.invoke("t", {}, trace_id="tr_of_somebody_else")
            assert result.invocation is not None and result.invocation.trace_id == "tr_of_somebody_else"
            assert parent_of(spans.all()[-1]) == f"{mine.get_span_context().span_id:016x}"

    with_host(run, raw_host_of(root, tracer=spans.tracer), main)


def test_work_of_one_trace_has_one_parent_when_nobody_of_it_is_left(run: Run, tmp_path: Path) -> None:
    root, spans = write_vai_plugin(tmp_path, exports=[export()]), Spans()

    async def main(host: Host) -> None:
        for _ in range(2):
            await host.invoke("t", {}, trace_id=f"tr_{TRACE}")

    with_host(run, raw_host_of(root, tracer=spans.tracer), main)
    first, second = spans.all()
    assert (trace_of(first), parent_of(first)) == (trace_of(second), parent_of(second)) and first.parent is not None


def test_a_refused_call_raises_as_ever(run: Run, tmp_path: Path) -> None:
    folder, spans = write_plugin(tmp_path, capabilities=["tool.execute"]), Spans()

    async def main() -> None:
        async with Host.load(folder, tracer=spans.tracer) as host:
            with pytest.raises(CallFailed):
                await host.call("t")

    run(main)
    assert facts(spans.only())["error.type"] == "capability_not_allowed"


def test_only_trace_ids_of_w3c_have_digits() -> None:
    assert w3c_trace_id(f"tr_{TRACE}") == TRACE
    assert [w3c_trace_id(f"tr_{'0' * 32}"), w3c_trace_id("tr_1"), w3c_trace_id(TRACE)] == [None] * 3


CALL = """
import asyncio, sys
from plugbay import Host

async def main():
    async with Host.load(sys.argv[1]{options}) as host:
        assert await host.call("t", {{"a": 1}}) == {{"a": 1}}

{before}
asyncio.run(main())
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "opentelemetry"))
"""
WITH_TRACER = ', tracer=__import__("opentelemetry.trace").trace.get_tracer("app")'


def child(folder: Path, options: str = "", before: str = "") -> subprocess.CompletedProcess[str]:
    """A program of its own that calls a plugin once and says what of OpenTelemetry it has loaded."""
    words = [sys.executable, "-c", CALL.format(options=options, before=before), str(folder)]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_nothing_of_opentelemetry_is_loaded_unless_there_is_a_tracer(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)
    without, with_one = child(folder), child(folder, WITH_TRACER)
    assert (without.returncode, without.stdout) == (0, "\n"), without.stderr
    assert with_one.returncode == 0 and "opentelemetry.trace" in with_one.stdout.split(), with_one.stderr


def test_a_tracer_without_the_extra_is_told_how_to_install_it(tmp_path: Path) -> None:
    done = child(write_plugin(tmp_path), ", tracer=object()", 'sys.modules["opentelemetry"] = None')
    assert done.returncode == 1
    assert "PlugbayError: traces need the extra otel, for opentelemetry" in done.stderr
    assert "pip install 'plugbay[otel]'" in done.stderr


@pytest.mark.parametrize("wrong", [True, "app"])
def test_what_is_no_tracer_is_an_error_of_the_caller(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"tracer must come from opentelemetry\.trace\.get_tracer\(\.\.\.\), not "):
        Host([], tracer=wrong)


def test_only_a_tracer_makes_traced_calls() -> None:
    assert type(Host([]).calls) is Calls
    assert type(Host([], tracer=Spans().tracer).calls) is TracedCalls
