"""A plugin process under vai: who it says it is, and what its four kinds of exports are asked and answer."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from plugbay.model.errors import Code, Failure
from plugbay.model.operations import RunHook
from plugbay.sdk import Cancelled, Plugin, RateLimited, ToolError, ToolNotFound, ToolUnavailable
from plugbay.sdk.context import unconnected
from plugbay.sdk.contracts.vai import (
    ConcurrencyLimit,
    HookInvocation,
    Invocation,
    InvocationContext,
    InvocationRequest,
    InvocationScope,
    export_id,
    hook_invocation,
    offers,
    package_id,
    tool_invocation,
)
from plugbay.sdk.services.cancellation import Cancellation
from plugbay.sdk.services.gateway import AwaitableGateway, Gateway
from tests.sdk.processes import PATHS, THOUGHT_QUICK, Vai, gate, open_gate, running, running_vai
from tests.support.requirements import requirement

EVERYTHING = """
plugin = Plugin("acme/devkit", "0.1.0")
kept = []

@plugin.tool()
def returns(value): return value

@plugin.tool()
async def returns_later(value): return value

@plugin.tool()
def greet(name, excited=False): return f"Hello, {name}{'!' if excited else '.'}"

@plugin.tool()
def result(input): return ToolResult(**input)

@plugin.tool(output_schema={"type": "string"})
def promised(): return "a text"

@plugin.tool()
def yields():
    yield "a"
    yield "b"
    yield {"type": "image", "source": {}}
    yield "c"

@plugin.tool(effect="read_only")
async def yields_later():
    yield "a"
    yield ToolResult("the whole", {"n": 1})

@plugin.tool()
def fails(how):
    if how == "tool": raise ToolError("no quota", code="quota")
    if how == "half": raise ToolError("no quota", code="quota", result={"content": [{"type": "text", "text": "half"}]})
    if how == "rate": raise RateLimited(1.5)
    if how == "missing": raise ToolNotFound("nothing behind it")
    if how == "unavailable": raise ToolUnavailable("later", retry_after_ms=50)
    if how == "cancelled": raise Cancelled()
    if how == "yielded": return iter([1])
    if how == "value": return b"no JSON"
    raise KeyError("a bug")

@plugin.tool()
def says(ctx, context):
    print("printed")
    fields = "invocation_id trace_id org_id project_id session_id chain_id run_id deadline_at tool_execution_id".split()
    return {
        **{name: getattr(ctx, name) for name in fields},
        "remaining": ctx.remaining,
        "scratch": str(ctx.scratch),
        "config": dict(ctx.config),
        "secret": ctx.secrets.get("token"),
        "shown": [repr(ctx.secrets), repr(ctx.gateway), str(ctx.config)],
        "context": context,
        "gateway": ctx.gateway is not None and list(ctx.gateway.scopes),
        "nothing": [ctx.delivery_id, ctx.attempt, ctx.compaction, ctx.cancelled],
    }

@plugin.tool()
def asks_host(ctx): return ctx.memory.recall("a", "q")

@plugin.tool()
def progresses(ctx):
    ctx.progress("half", percent=50)
    ctx.progress()
    return "done"

@plugin.tool()
async def progresses_later(ctx):
    ctx.progress("half")
    return "done"

@plugin.tool()
def writes(ctx):
    (ctx.scratch / "report.md").write_text("# report")
    return ToolResult("written", artifacts=["report.md"])

@plugin.tool()
def checkpoints(ctx): ctx.checkpoint(1)

@plugin.tool()
def modules(): return sorted(sys.modules)

@plugin.hook("run.completed", "chain.compacted", export="notify")
def notify(event, ctx):
    kept.append([event["type"], ctx.delivery_id, ctx.attempt])
    if event.get("fail"): raise ToolUnavailable("try again")
    return block("nobody hears this")

@plugin.hook("run.started", export="notify")
async def started(event): kept.append(event["type"])

@plugin.hook("before_message")
def other(event): ...

@plugin.tool()
def heard():
    taken, kept[:] = list(kept), []
    return {"kept": taken}

@plugin.compactor(target_context="coding", supports_pinned_items=True)
def window(messages, ctx):
    c = ctx.compaction
    how = messages[-1]["content"][0]["text"]
    if how == "none": return None
    if how == "text": return "Summary."
    if how == "blocks": return messages[:1] + ["and a text", {"role": "assistant", "content": "said"}]
    if how == "wrong": return 7
    facts = json.dumps([c.id, c.chain_id, c.target, c.max_tokens, c.policy, c.pinned, c.token_estimate])
    return Seed(messages[:1], summary=facts)

@plugin.harness("triage", fidelity="checkpoint", supports=["continue"])
def triage(run, ctx):
    how = run.text
    if how == "nothing": return None
    if how == "dict": return {"summary": {"text": "as it is"}, "checkpoint": {"n": 1}}
    if how == "wrong": return 7
    if how == "large": ctx.checkpoint("x" * 300_000)
    ctx.checkpoint({"step": 1})
    if how == "text": return "Did it."
    if how == "fails": raise ToolUnavailable("the model is away")
    (ctx.scratch / "report.md").write_text("# report")
    return HarnessResult(f"{run.mode} {run.resumed} {run.checkpoint}", artifacts=["report.md"])
"""

EVERYTHING = "import json\n" + EVERYTHING


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vai]:
    """One process for many tests."""
    with running_vai(tmp_path_factory.mktemp("everything"), EVERYTHING) as plugin:
        plugin.greet()
        yield plugin


def tool(plugin: Vai, name: str, input: Any = None, **body: Any) -> Any:
    return plugin.ask("tool.invoke", name, context={}, input=input or {}, **body)


def text(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def succeeded(**result: Any) -> dict[str, Any]:
    return {"status": "succeeded", "result": result}


# Who it is.


@requirement("vai:sdk-identity", "vai:sdk-detect")
@pytest.mark.parametrize(("id", "said"), [("acme/devkit", "acme/devkit"), ("example.weather", "local/example.weather")])
def test_a_plugin_says_hello_with_its_package_and_version(tmp_path: Path, id: str, said: str) -> None:
    with running_vai(tmp_path, f"plugin = Plugin({id!r}, '0.1.0')") as plugin:
        hello = {"type": "hello", "role": "plugin", "plugin": {"package_id": said, "version": "0.1.0"}}
        assert plugin.greet() == hello


@requirement("vai:sdk-detect")
def test_a_host_may_write_other_headers_and_its_hello_in_pieces(tmp_path: Path) -> None:
    with running_vai(tmp_path, "plugin = Plugin('a/p')") as plugin:
        hello = json.dumps({"protocol": "vai.rpc.v1", "type": "hello", "role": "host"})
        for byte in f"content-type: application/json\r\nCONTENT-length: {len(hello)}\r\n\r\n{hello}".encode():
            plugin.write(bytes([byte]))
        assert plugin.read()["plugin"]["package_id"] == "a/p"


@requirement("vai:sdk-refusals")
def test_what_cannot_be_served_is_refused_without_a_handler(everything: Vai) -> None:
    assert everything.ask("tool.run", "returns")["code"] == "protocol.unknown_op"
    assert everything.ask("tool.invoke", "nobody", input={})["code"] == "protocol.unknown_export"
    assert everything.ask("hook.handle", "returns", event={})["code"] == "protocol.unknown_export"
    assert everything.ask("hook.handle", "other", event={})["code"] == "protocol.unknown_export"
    everything.send(type="request", id="r", op="tool.invoke")
    assert everything.answer("r") == {"code": "protocol.invalid_frame", "message": "missing body"}


@requirement("vai:sdk-names")
def test_two_exports_of_one_name_are_told_before_anything_is_served(tmp_path: Path) -> None:
    source = "plugin = Plugin('p')\nplugin.tool('x y')(lambda: 1)\nplugin.harness('x_y')(print)"
    with running_vai(tmp_path, source) as plugin:
        plugin.send(type="hello", role="host")
        assert plugin.status() == 1
        assert "a harness and a tool of p are both called 'x_y' under vai" in plugin.errors()


@requirement("vai:sdk-framing")
def test_a_broken_frame_ends_the_plugin_with_a_reason_on_stderr(tmp_path: Path) -> None:
    with running_vai(tmp_path, EVERYTHING) as plugin:
        plugin.greet()
        plugin.write(b"Content-Length: 9\n\n")
        assert plugin.status() == 1
        assert "the host broke the contract" in plugin.errors()


# Tools.


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("a text", {"content": text("a text")}),
        ({"n": 1}, {"content": text('{"n":1}'), "structured_output": {"n": 1}}),
        ([1, 2], {"content": text('{"result":[1,2]}'), "structured_output": {"result": [1, 2]}}),
        (True, {"content": text('{"result":true}'), "structured_output": {"result": True}}),
        (None, {"content": []}),
    ],
)
@pytest.mark.parametrize("name", ["returns", "returns_later"])
@requirement("vai:sdk-tool-result")
def test_what_a_tool_returns_is_its_result(everything: Vai, name: str, value: Any, result: dict[str, Any]) -> None:
    assert tool(everything, name, {"value": value}) == succeeded(**result, is_error=False, retryable=False)


@requirement("vai:sdk-tool-result")
def test_a_tool_may_say_everything_itself(everything: Vai) -> None:
    said = {"content": ["a", {"type": "image"}], "structured_output": {"n": 1}, "is_error": True, "retryable": True}
    assert tool(everything, "result", said) == succeeded(**{**said, "content": [*text("a"), {"type": "image"}]})


@requirement("vai:sdk-tool-result")
def test_a_tool_with_an_output_schema_always_has_structured_output(everything: Vai) -> None:
    answer = tool(everything, "promised")["result"]
    assert (answer["content"], answer["structured_output"]) == (text("a text"), {"result": "a text"})


@requirement("vai:sdk-tool-input")
def test_the_input_becomes_arguments_and_a_wrong_one_is_a_failure_of_the_work(everything: Vai) -> None:
    assert tool(everything, "greet", {"name": "Ada"})["result"]["content"] == text("Hello, Ada.")
    error = {"code": "invalid_input", "message": "name: is required"}
    assert tool(everything, "greet") == {"status": "failed", "error": error}


@requirement("vai:sdk-streaming")
@pytest.mark.parametrize(
    ("name", "deltas", "result"),
    [
        (
            "yields",
            [*text("a", "b"), {"type": "image", "source": {}}, *text("c")],
            {"content": [*text("ab"), {"type": "image", "source": {}}, *text("c")]},
        ),
        ("yields_later", text("a"), {"content": text("the whole"), "structured_output": {"n": 1}}),
    ],
)
def test_what_a_tool_yields_is_told_as_it_comes_and_the_answer_is_whole(
    everything: Vai, name: str, deltas: list[Any], result: dict[str, Any]
) -> None:
    id = everything.request("tool.invoke", name, input={})
    for delta in deltas:
        assert everything.said_about(id) == {"type": "output_delta", "content": [delta]}
    assert everything.answer(id) == succeeded(**result, is_error=False, retryable=False)


@pytest.mark.parametrize(
    ("how", "status", "error"),
    [
        ("tool", "failed", {"code": "quota", "message": "no quota"}),
        ("missing", "failed", {"code": "tool_not_found", "message": "nothing behind it"}),
        ("rate", "retryable_failure", {"code": "rate_limited", "message": "rate limited", "retry_after_ms": 1500}),
        ("unavailable", "retryable_failure", {"code": "tool_unavailable", "message": "later", "retry_after_ms": 50}),
        ("cancelled", "cancelled", {"code": "cancelled", "message": "cancelled"}),
        ("bug", "failed", {"code": "internal", "message": "KeyError: 'a bug'"}),
    ],
)
@requirement("vai:sdk-failures")
def test_what_a_tool_raises_is_how_the_work_ended(
    everything: Vai, how: str, status: str, error: dict[str, Any]
) -> None:
    assert tool(everything, "fails", {"how": how}) == {"status": status, "error": error}


@requirement("vai:sdk-failures")
def test_what_cannot_be_sent_is_a_failure_with_the_reason(everything: Vai) -> None:
    for how in ("value", "yielded"):
        answer = tool(everything, "fails", {"how": how})
        assert (answer["status"], answer["error"]["code"]) == ("failed", "internal")


@requirement("vai:sdk-failures")
def test_a_service_that_other_hosts_have_is_a_failure_with_that_reason(everything: Vai) -> None:
    assert (
        "this host speaks vai and does not offer ctx.memory; hosts of nexo do"
        in tool(everything, "asks_host")["error"]["message"]
    )


# What a call knows.

CONTEXT = {
    "invocation_id": "inv_1",
    "trace_id": "tr_1",
    "org_id": "org_1",
    "project_id": "proj_1",
    "session_id": "sess_1",
    "chain_id": "ch_1",
    "run_id": None,
    "deadline_at": "2126-03-12T20:00:00.250Z",
    "scratch_dir": "/sandbox/scratch/inv_1",
    "gateway": {"base_url": "https://example.org", "delegation_token": "vai_dlg_x", "scopes": ["chains:read"]},
}


@requirement("vai:sdk-context", "vai:sdk-secrets", "vai:sdk-print")
def test_a_call_knows_its_context_and_its_own_settings_and_secrets(everything: Vai) -> None:
    body = {"context": CONTEXT, "config": {"n": 1}, "secrets": {"token": "hunter2"}, "tool_execution_id": "toolx_1"}
    said = everything.ask("tool.invoke", "says", **body, input={})["result"]["structured_output"]
    fields = {name: value for name, value in CONTEXT.items() if name not in ("gateway", "scratch_dir")}
    assert {name: said[name] for name in fields} == fields
    assert (said["tool_execution_id"], said["scratch"]) == ("toolx_1", "/sandbox/scratch/inv_1")
    assert said["remaining"] > 1_000_000
    assert (said["config"], said["secret"], said["gateway"]) == ({"n": 1}, "hunter2", ["chains:read"])
    assert said["shown"] == [
        "Secrets({'token': '***'})",
        "Gateway('https://example.org', scopes=('chains:read',))",
        "Config({'n': 1})",
    ]
    assert said["context"] == {name: value for name, value in CONTEXT.items() if name != "gateway"}
    assert said["nothing"] == [None, None, None, False]


@requirement("vai:sdk-secrets")
def test_settings_and_secrets_end_with_the_call(everything: Vai) -> None:
    everything.ask("tool.invoke", "says", context=CONTEXT, secrets={"token": "hunter2"}, config={"n": 1}, input={})
    said = tool(everything, "says")["result"]["structured_output"]
    assert (said["secret"], said["config"], said["gateway"], said["scratch"]) == (None, {}, False, "None")
    assert (said["remaining"], said["deadline_at"]) == (None, None)


@pytest.mark.parametrize("deadline", ["soon", "2126-03-12", "2126-03-12T20:00:00", 7])
def test_a_deadline_that_is_no_time_is_none(everything: Vai, deadline: Any) -> None:
    answer = everything.ask("tool.invoke", "says", context={"deadline_at": deadline}, input={})
    assert answer["result"]["structured_output"]["remaining"] is None


@requirement("vai:sdk-progress")
def test_progress_is_told_before_the_answer(everything: Vai) -> None:
    id = everything.request("tool.invoke", "progresses", input={})
    assert everything.said_about(id) == {"type": "progress", "message": "half", "percent": 50}
    assert everything.said_about(id) == {"type": "progress", "message": ""}
    assert everything.answer(id)["status"] == "succeeded"
    id = everything.request("tool.invoke", "progresses_later", input={})
    assert everything.said_about(id) == {"type": "progress", "message": "half"}
    assert everything.answer(id)["status"] == "succeeded"


def test_only_a_harness_has_checkpoints(everything: Vai) -> None:
    assert "only a harness has checkpoints" in tool(everything, "checkpoints")["error"]["message"]


@requirement("vai:sdk-artifacts")
def test_a_tool_hands_out_files_of_its_scratch_folder(everything: Vai, tmp_path: Path) -> None:
    answer = everything.ask("tool.invoke", "writes", context={"scratch_dir": str(tmp_path)}, input={})
    assert answer["result"]["content"] == text("written")
    assert answer["result"]["artifacts"] == [
        {
            "path": "report.md",
            "media_type": "text/markdown",
            "size_bytes": 8,
            "sha256": sha256(b"# report").hexdigest(),
        }
    ]
    assert "artifacts" not in tool(everything, "promised")["result"]


@requirement("vai:sdk-failures")
def test_a_tool_that_fails_may_leave_a_result_for_the_model(everything: Vai) -> None:
    answer = tool(everything, "fails", {"how": "half"})
    assert (answer["status"], answer["error"]["code"]) == ("failed", "quota")
    assert answer["result"] == {"content": text("half")}


# Hooks.


def deliver(plugin: Vai, kind: Any, attempt: int = 1, **more: Any) -> Any:
    event = {"type": kind, "subject": {"kind": "run", "id": "run_1"}, **more}
    return plugin.ask("hook.handle", "notify", context={}, delivery_id="del_1", attempt=attempt, event=event)


@requirement("vai:sdk-hook")
def test_hooks_of_one_name_are_one_export_and_each_event_has_its_handler(everything: Vai) -> None:
    for kind in ("run.completed", "run.started", "chain.compacted"):
        assert deliver(everything, kind, 2) == {"status": "ack"}
    heard = tool(everything, "heard")["result"]["structured_output"]["kept"]
    assert heard == [["run.completed", "del_1", 2], "run.started", ["chain.compacted", "del_1", 2]]


@requirement("vai:sdk-hook")
def test_a_hook_that_fails_says_whether_to_deliver_again(everything: Vai) -> None:
    assert deliver(everything, "run.completed", fail=True)["status"] == "retryable_failure"
    for kind in ("run.paused", None):
        answer = deliver(everything, kind)
        assert (answer["status"], answer["error"]["code"]) == ("failed", "hook.unknown_event")


@requirement("vai:sdk-hook-exception")
def test_a_hook_that_raises_is_delivered_again_unless_the_exception_says_otherwise() -> None:
    op = RunHook("h", {"type": "run.completed"})
    plugin = Plugin("p", version="1.0.0")
    plugin.hook("run.completed")(print)
    task = hook_invocation(scope(), plugin.hooks, op)
    assert isinstance(task, HookInvocation)
    for error, retryable in (
        (ValueError("a line broke"), True),
        (KeyError("channel"), True),
        (ToolUnavailable("later"), True),
        (ToolError("closed", code="slack.closed"), False),
        (ToolNotFound("no channel"), False),
        (Cancelled("stopped"), False),
    ):
        assert task.failure(error).retryable is retryable, error
    failure = task.failure(ValueError("a line broke"))
    assert (failure.message, failure.detail["plugin_code"]) == ("ValueError: a line broke", "internal")


# Compactors.

SYSTEM = {"kind": "system", "content": text("You are a coding agent.")}

PINNED = {"kind": "input", "content": text("Never touch main.")}


def blocks(how: str) -> list[dict[str, Any]]:
    return [SYSTEM, {"kind": "response", "content": text("…")}, {"kind": "input", "content": text(how)}]


def compact(plugin: Vai, projection: dict[str, Any], policy: dict[str, Any] | None = None, **context: Any) -> Any:
    return plugin.ask(
        "compactor.compact",
        "window",
        context=context,
        compaction_id="cmp_1",
        source={"chain_id": "ch_1", "projection": {**projection, "token_estimate": 182000}},
        target={"max_input_tokens": 32000, "target_model": "gpt-5.4"},
        policy=policy or {},
    )


def inline(how: str) -> dict[str, Any]:
    return {"transport": "inline", "blocks": blocks(how), "pinned_items": [PINNED]}


def artifact(scratch: Path, how: str, **wrong: Any) -> dict[str, Any]:
    data = json.dumps({"blocks": blocks(how), "pinned_items": [PINNED]}).encode()
    (scratch / "projection.json").write_bytes(data)
    ref = {"path": "projection.json", "size_bytes": len(data), "sha256": sha256(data).hexdigest(), **wrong}
    return {"transport": "artifact", "artifact": ref}


@requirement("vai:sdk-compactor")
def test_a_compactor_may_return_blocks_texts_and_messages(everything: Vai) -> None:
    result = compact(everything, inline("blocks"))["result"]
    assert result["seed_blocks"] == [
        SYSTEM,
        {"kind": "input", "content": text("and a text")},
        {"kind": "response", "content": text("said")},
    ]
    assert result["diagnostics"]["input_tokens_estimate"] == 182000
    assert 30 < result["diagnostics"]["output_tokens_estimate"] < 70


@requirement("vai:sdk-compactor")
def test_a_text_stands_for_all_but_the_system_and_what_is_pinned(everything: Vai) -> None:
    summary = {"kind": "input", "content": text("Summary.")}
    result = compact(everything, inline("text"), {"retain_system": True})["result"]
    assert (result["seed_blocks"], result["summary"]) == ([SYSTEM, PINNED, summary], {"text": "Summary."})
    result = compact(everything, inline("text"), {"retain_system": False})["result"]
    assert result["seed_blocks"] == [PINNED, summary]


@requirement("vai:sdk-compactor")
def test_a_compactor_that_declines_or_returns_something_else_has_failed(everything: Vai) -> None:
    answer = compact(everything, inline("none"))
    assert (answer["status"], answer["error"]["code"]) == ("failed", "compactor.declined")
    assert "a compactor returns blocks" in compact(everything, inline("wrong"))["error"]["message"]


@requirement("vai:sdk-projection")
def test_a_conversation_reads_the_same_however_it_came(everything: Vai, tmp_path: Path) -> None:
    direct = compact(everything, inline("facts"), {"retain_system": True})
    stored = compact(everything, artifact(tmp_path, "facts"), {"retain_system": True}, scratch_dir=str(tmp_path))
    assert direct == stored
    assert json.loads(direct["result"]["summary"]["text"]) == [
        "cmp_1",
        "ch_1",
        {"max_input_tokens": 32000, "target_model": "gpt-5.4"},
        32000,
        {"retain_system": True},
        [PINNED],
        182000,
    ]


@pytest.mark.parametrize("wrong", [{"size_bytes": 1}, {"sha256": "0" * 64}, {"path": "../secret"}, {"path": "gone"}])
@requirement("vai:sdk-projection")
def test_a_file_that_is_not_what_its_reference_says_is_not_read(
    everything: Vai, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    answer = compact(everything, artifact(tmp_path, "text", **wrong), scratch_dir=str(tmp_path))
    assert (answer["status"], answer["error"]["code"]) == ("failed", "artifact_invalid")


# Harnesses.


def run(plugin: Vai, how: str, scratch: Path | None = None, **more: Any) -> Any:
    return plugin.request(
        "harness.run",
        "triage",
        context={"scratch_dir": None if scratch is None else str(scratch)},
        target={"session_id": "sess_1", "chain_id": "ch_1", "execution_id": "exec_1"},
        trigger={"type": "user_request", "input": text(how)},
        policy={"max_depth": 4},
        **{"mode": "start", **more},
    )


KEPT = {"kind": "checkpoint", "data": {"step": 1}}


@requirement("vai:sdk-harness", "vai:sdk-checkpoint")
def test_a_harness_returns_a_text_an_object_or_nothing_and_keeps_checkpoints(everything: Vai) -> None:
    id = run(everything, "text")
    assert everything.said_about(id) == {"type": "checkpoint", "checkpoint": KEPT}
    assert everything.answer(id) == succeeded(checkpoint=KEPT, summary={"text": "Did it."}, artifacts=[])
    assert everything.answer(run(everything, "nothing")) == succeeded(summary={"text": ""}, artifacts=[])
    other = {"kind": "checkpoint", "data": {"n": 1}}
    assert everything.answer(run(everything, "dict")) == succeeded(
        checkpoint=other, summary={"text": "as it is"}, artifacts=[]
    )
    assert "a harness returns a text" in everything.answer(run(everything, "wrong"))["error"]["message"]


@requirement("vai:sdk-harness", "vai:sdk-artifacts")
def test_a_harness_goes_on_from_its_checkpoint_and_leaves_files(everything: Vai, tmp_path: Path) -> None:
    id = run(everything, "files", tmp_path, mode="resume", checkpoint={"kind": "checkpoint", "data": {"cursor": 12}})
    everything.said_about(id)
    result = everything.answer(id)["result"]
    assert result["summary"] == {"text": "resume True {'cursor': 12}"}
    assert result["artifacts"] == [
        {
            "path": "report.md",
            "media_type": "text/markdown",
            "size_bytes": 8,
            "sha256": sha256(b"# report").hexdigest(),
        }
    ]


@requirement("vai:sdk-checkpoint")
def test_a_harness_that_fails_leaves_its_last_checkpoint(everything: Vai) -> None:
    id = run(everything, "fails")
    everything.said_about(id)
    answer = everything.answer(id)
    assert (answer["status"], answer["result"]) == ("retryable_failure", {"checkpoint": KEPT})
    answer = everything.answer(run(everything, "large"))
    assert (answer["status"], "result" in answer) == ("failed", False)
    assert "exceeds the limit of 262,144" in answer["error"]["message"]


# Cancelling.

CANCELLED = """
plugin = Plugin("a/p", "1.0")
now = "2020-01-01T00:00:00Z"

@plugin.tool()
def polls(ctx):
    ctx.progress("running")
    while not ctx.cancelled:
        ctx.progress()
        open("gate").read()
    ctx.check_cancelled()

@plugin.tool()
def sleeps(ctx):
    ctx.progress("running")
    ctx.sleep(3600)

@plugin.tool()
async def awaits(ctx):
    import asyncio
    ctx.progress("running")
    try:
        await asyncio.sleep(3600)
    finally:
        ctx.progress("cleaning up")

@plugin.tool()
async def awaits_on(ctx):
    import asyncio
    ctx.progress("running")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return "done anyway"

@plugin.tool()
def yields(ctx):
    ctx.progress("running")
    while True:
        ctx.sleep(0)
        yield "x"

@plugin.tool()
def ignores(ctx):
    ctx.progress("running")
    open("gate").read()
    return "done anyway"

@plugin.tool(max_concurrency=1)
def once(ctx):
    ctx.progress("running")
    open("gate").read()

@plugin.tool()
async def stray():
    import asyncio
    raise asyncio.CancelledError

@plugin.harness()
def steps(run, ctx):
    ctx.checkpoint({"step": 1})
    ctx.sleep(3600)

@plugin.tool()
def echo(input): return "here"

@plugin.on_shutdown
def bye(): print("bye")
"""


def deadline(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def begun(plugin: Vai, name: str) -> Any:
    id = plugin.request("tool.invoke", name, context={}, input={})
    assert plugin.said_about(id)["message"] == "running"
    return id


STOPPED = {"status": "cancelled", "error": {"code": "cancelled", "message": "the host cancelled it"}}


@pytest.mark.parametrize("name", ["sleeps", "awaits"])
@pytest.mark.parametrize("thought", ["", THOUGHT_QUICK], ids=["unknown", "thought quick"])
@requirement("vai:sdk-cancel")
def test_a_cancel_reaches_the_handler_which_answers_with_it(tmp_path: Path, name: str, thought: str) -> None:
    with running_vai(tmp_path, f"{CANCELLED}\n{thought}") as plugin:
        plugin.greet()
        id = begun(plugin, name)
        plugin.cancel(id)
        plugin.cancel(id)
        if name == "awaits":
            assert plugin.said_about(id)["message"] == "cleaning up"
        assert plugin.answer(id) == STOPPED
        plugin.cancel(id)
        assert tool(plugin, "echo")["status"] == "succeeded"


@requirement("vai:sdk-cancel")
def test_a_handler_may_look_whether_it_is_cancelled(tmp_path: Path) -> None:
    hold = gate(tmp_path)
    with running_vai(tmp_path, CANCELLED) as plugin:
        plugin.greet()
        id = begun(plugin, "polls")
        plugin.said_about(id)
        plugin.cancel(id)
        assert tool(plugin, "echo")["status"] == "succeeded"
        open_gate(hold)
        assert plugin.answer(id) == STOPPED


@requirement("vai:sdk-cancel")
def test_a_tool_that_yields_is_stopped_between_two_pieces(tmp_path: Path) -> None:
    with running_vai(tmp_path, CANCELLED) as plugin:
        plugin.greet()
        id = begun(plugin, "yields")
        plugin.said_about(id)
        plugin.cancel(id)
        while (frame := plugin.read())["type"] == "event":
            pass
        assert frame["body"] == STOPPED


@pytest.mark.parametrize("name", ["ignores", "awaits_on"])
@requirement("vai:sdk-cancel-late")
def test_work_that_was_done_all_the_same_is_a_success(tmp_path: Path, name: str) -> None:
    hold = gate(tmp_path)
    with running_vai(tmp_path, CANCELLED) as plugin:
        plugin.greet()
        id = begun(plugin, name)
        plugin.cancel(id)
        if name == "ignores":
            open_gate(hold)
        assert plugin.answer(id)["result"]["content"] == text("done anyway")


@pytest.mark.parametrize("name", ["sleeps", "awaits"])
@requirement("vai:sdk-deadline")
def test_a_call_ends_at_its_deadline_without_a_word_from_the_host(tmp_path: Path, name: str) -> None:
    with running_vai(tmp_path, CANCELLED) as plugin:
        plugin.greet()
        plugin.request("tool.invoke", name, context={"deadline_at": deadline(0.2)}, input={})
        while (frame := plugin.read())["type"] == "event":  # none, if the machine was too slow to begin
            pass
        error = {"code": "deadline_exceeded", "message": "the deadline has passed"}
        assert frame["body"] == {"status": "cancelled", "error": error}


@requirement("vai:sdk-deadline")
def test_what_is_too_late_already_is_not_begun(tmp_path: Path) -> None:
    hold = gate(tmp_path)
    small = "import plugbay.sdk.runtime.executor as w; w.Workers.__init__.__defaults__ = (1, 9)"
    with running_vai(tmp_path, f"{CANCELLED}\n{small}") as plugin:
        plugin.greet()
        first = begun(plugin, "ignores")
        second = plugin.request("tool.invoke", "sleeps", context={}, input={})
        plugin.cancel(second)
        assert plugin.process.stdin is not None
        third = plugin.request("tool.invoke", "nobody", input={})
        assert plugin.answer(third)["code"] == "protocol.unknown_export"  # so the cancel was heard
        open_gate(hold)
        assert plugin.answer(first)["status"] == "succeeded"
        assert plugin.answer(second) == STOPPED


def test_an_unrequested_cancellation_is_a_bug(tmp_path: Path) -> None:
    with running_vai(tmp_path, CANCELLED) as plugin:
        plugin.greet()
        assert tool(plugin, "stray")["error"] == {"code": "internal", "message": "CancelledError"}


@requirement("vai:sdk-cancel", "vai:sdk-checkpoint")
def test_a_harness_that_is_cancelled_leaves_its_last_checkpoint(tmp_path: Path) -> None:
    with running_vai(tmp_path, CANCELLED) as plugin:
        plugin.greet()
        asked = {"mode": "start", "target": {}, "trigger": {}, "policy": {}}
        id = plugin.request("harness.run", "steps", context={}, **asked)
        assert plugin.said_about(id)["type"] == "checkpoint"
        plugin.cancel(id)
        assert plugin.answer(id) == {**STOPPED, "result": {"checkpoint": KEPT}}


# Much at once.


@requirement("vai:sdk-overload")
def test_one_call_more_than_an_export_takes_is_refused_and_others_go_on(tmp_path: Path) -> None:
    hold = gate(tmp_path)
    with running_vai(tmp_path, CANCELLED) as plugin:
        plugin.greet()
        id = begun(plugin, "once")
        refused = tool(plugin, "once")
        assert refused == {"code": "protocol.overloaded", "message": "once already runs its maximum number of calls"}
        assert tool(plugin, "echo")["status"] == "succeeded"
        open_gate(hold)
        assert plugin.answer(id)["status"] == "succeeded"
        plugin.cancel(begun(plugin, "once"))


@requirement("vai:sdk-overload")
def test_more_than_a_plugin_can_do_is_refused(tmp_path: Path) -> None:
    gate(tmp_path)
    small = "import plugbay.sdk.runtime.executor as w; w.Workers.__init__.__defaults__ = (1, 0)"
    with running_vai(tmp_path, f"{CANCELLED}\n{small}") as plugin:
        plugin.greet()
        begun(plugin, "ignores")
        answer = tool(plugin, "echo")
        assert (answer["code"], answer["retry_after_ms"]) == ("protocol.overloaded", 1000)


def test_a_concurrency_limit_is_released() -> None:
    few, many = ConcurrencyLimit(1), ConcurrencyLimit(None)
    assert (few.try_acquire(), few.try_acquire()) == (True, False)
    few.release()
    assert few.try_acquire()
    assert all(many.try_acquire() for _ in range(99))


def test_a_wrong_input_takes_no_place(tmp_path: Path) -> None:
    source = "plugin = Plugin('p')\n@plugin.tool(max_concurrency=1)\ndef f(n): return n"
    with running_vai(tmp_path, source) as plugin:
        plugin.greet()
        for _ in range(3):
            assert tool(plugin, "f")["error"]["code"] == "invalid_input"
        assert tool(plugin, "f", {"n": "x"})["status"] == "succeeded"


# Leaving.


@requirement("vai:sdk-leaving")
def test_a_shutdown_has_no_answer_and_the_plugin_leaves_after_its_farewell(tmp_path: Path) -> None:
    with running_vai(tmp_path, CANCELLED) as plugin:
        plugin.greet()
        plugin.send(type="shutdown")
        assert plugin.status() == 0
        assert plugin.process.stdout is not None
        assert (plugin.process.stdout.read(), plugin.errors()) == (b"", "bye\n")


@pytest.mark.parametrize("way", ["shutdown", "end of input", "signal"])
@requirement("vai:sdk-leaving")
def test_what_is_being_done_is_cancelled_when_it_does_not_finish_and_still_answered(tmp_path: Path, way: str) -> None:
    with running_vai(tmp_path, CANCELLED) as plugin:
        plugin.greet()
        id = begun(plugin, "sleeps")
        match way:
            case "shutdown":
                plugin.send(type="shutdown")
            case "end of input":
                plugin.close()
            case "signal":
                plugin.process.send_signal(signal.SIGTERM)
        error = {"code": "cancelled", "message": "the plugin is shutting down"}
        assert plugin.answer(id) == {"status": "cancelled", "error": error}
        assert plugin.status() == 0


# What it costs.


LIGHT = """
plugin = Plugin("acme/devkit")

@plugin.tool()
def modules(ctx):
    ctx.progress("loaded")
    return sorted(sys.modules)

@plugin.hook("run.completed")
def notify(event): ...

@plugin.compactor
def window(messages): return messages

@plugin.harness()
def triage(run): return "done"
"""


@requirement("vai:sdk-light")
def test_a_plugin_under_vai_loads_what_it_needs_and_nothing_of_other_contracts(tmp_path: Path) -> None:
    with running_vai(tmp_path, LIGHT, prologue=f"{PATHS}from plugbay.sdk import Plugin") as plugin:
        plugin.greet()
        id = plugin.request("tool.invoke", "modules", context=CONTEXT, secrets={"a": "b"}, input={})
        plugin.said_about(id)
        loaded = set(plugin.answer(id)["result"]["structured_output"]["result"])
    assert not loaded & {"asyncio", "threading", "typing", "urllib", "pathlib", "datetime", "hashlib", "json", "re"}
    contracts = {name.split(".")[2] for name in loaded if name.startswith("plugbay.contracts.")}
    assert contracts == {"base", "rpc", "rune", "vai"}
    assert "plugbay.sdk.contracts.vai" in loaded
    assert not {f"plugbay.sdk.{name}" for name in ("ainb", "kaged", "nexo")} & loaded


@requirement("vai:sdk-light")
def test_a_plugin_under_another_contract_loads_nothing_of_vai(tmp_path: Path) -> None:
    with running(tmp_path, LIGHT, prologue=f"{PATHS}from plugbay.sdk import Plugin") as plugin:
        loaded = set(plugin.ask("tool.invoke", tool_name="acme_devkit_modules"))
    assert "plugbay.sdk.contracts.nexo" in loaded
    names = "vai vai_names invocation invocations gateway results work artifacts".split()
    assert not {f"plugbay.sdk.{name}" for name in names} & loaded


# One source.


@requirement("vai:sdk-one-source")
def test_what_only_vai_knows_is_nothing_noisy_under_other_contracts(tmp_path: Path) -> None:
    with running(tmp_path, EVERYTHING) as plugin:

        def ask(name: str, args: Any = None) -> Any:
            return plugin.ask("tool.invoke", tool_name=f"acme_devkit_{name}", args=args)

        assert ask("progresses") == "done"
        assert ask("progresses_later") == "done"
        assert ask("yields_later") == {"n": 1}
        assert ask("yields") == ["a", "b", {"type": "image", "source": {}}, "c"]
        assert ask("result", {"content": ["a", "b"]}) == "ab"
        assert ask("result", {"content": "no", "is_error": True})["message"] == "no"
        said = ask("says")
        assert (said["invocation_id"], said["remaining"], said["gateway"], said["scratch"]) == (
            None,
            None,
            False,
            "None",
        )


def scope(released: list[int] | None = None) -> InvocationScope:
    return InvocationScope(
        "a/p", InvocationRequest({}), Cancellation(), lambda: (released if released is not None else []).append(1)
    )


def invocation(function: Any, given: InvocationScope | None = None) -> Invocation:
    plugin = Plugin("p")
    plugin.tool("x")(function)
    task = tool_invocation(given or scope(), plugin.tools["x"], {})
    assert isinstance(task, Invocation)
    return task


@requirement("vai:sdk-failures")
@pytest.mark.parametrize(
    ("error", "code", "word", "retryable"),
    [
        (RateLimited(1), Code.PLUGIN_ERROR, "rate_limited", True),
        (ToolNotFound("x"), Code.PLUGIN_ERROR, "tool_not_found", False),
        (ToolUnavailable("x"), Code.UNAVAILABLE, "tool_unavailable", True),
        (Cancelled(), Code.CANCELLED, "cancelled", False),
        (ValueError("x"), Code.PLUGIN_ERROR, "internal", False),
        (asyncio.CancelledError(), Code.PLUGIN_ERROR, "internal", False),
    ],
)
def test_no_exception_of_a_handler_refuses_a_request(
    error: BaseException, code: str, word: str, retryable: bool
) -> None:
    failure = invocation(lambda: 1).failure(error)
    assert (failure.code, failure.detail["plugin_code"], failure.retryable) == (code, word, retryable)


@requirement("vai:sdk-cancel")
def test_the_end_of_a_task_that_was_asked_for_is_a_cancellation() -> None:
    task = invocation(lambda: 1)
    task.cancel("enough")
    failure = task.failure(asyncio.CancelledError())
    assert (failure.code, failure.message) == (Code.CANCELLED, "enough")
    assert task.failure(ValueError("x")).code == Code.PLUGIN_ERROR


@requirement("vai:sdk-cancel")
def test_what_was_cancelled_before_its_turn_is_not_begun() -> None:
    begun: list[int] = []
    task = invocation(lambda: begun.append(1))
    task.cancel("enough")
    with pytest.raises(Cancelled, match="enough"):
        task.call(lambda said, stop: unconnected(), print)
    assert begun == []


def test_what_is_over_frees_its_place_and_cannot_be_cancelled() -> None:
    released: list[int] = []
    given = scope(released)
    task = invocation(lambda: 1, given)
    task.over()
    task.cancel("too late")
    assert (released, given.cancellation.why) == ([1], "")


@requirement("vai:sdk-hook")
def test_an_event_that_no_handler_is_for_is_a_failure_for_good() -> None:
    plugin = Plugin("p")
    plugin.hook("run.completed")(print)
    for event in ({"type": "run.started"}, {"type": ["run.completed"]}, {}):
        failure = hook_invocation(scope(), plugin.hooks, RunHook("h", event))
        assert isinstance(failure, Failure)
        assert (failure.detail["plugin_code"], failure.retryable) == ("hook.unknown_event", False)


PACKAGE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}/[a-z0-9][a-z0-9._-]{0,63}")

EXPORT = re.compile(r"[a-z][a-z0-9_]{0,63}")


def function(*_: Any) -> None: ...


@requirement("vai:sdk-names")
@pytest.mark.parametrize(
    ("id", "mapped"),
    [
        ("acme/devkit", "acme/devkit"),
        ("Acme/Dev Kit 2", "acme/dev-kit-2"),
        ("example.weather", "local/example.weather"),
        ("memory", "local/memory"),
        ("a/b/c", "a/b-c"),
        ("_x/.y", "x/y"),
        ("/", "x/x"),
        ("é/" + "y" * 99, "x/" + "y" * 64),
    ],
)
def test_an_id_is_a_publisher_and_a_name(id: str, mapped: str) -> None:
    assert package_id(id) == mapped
    assert PACKAGE.fullmatch(mapped)


@requirement("vai:sdk-names")
@pytest.mark.parametrize(
    ("name", "mapped"),
    [
        ("jira_search", "jira_search"),
        ("Jira Search", "jira_search"),
        ("index.rebuild", "index_rebuild"),
        ("2nd", "x2nd"),
        ("_private", "x_private"),
        ("", "x"),
        ("y" * 99, "y" * 64),
    ],
)
def test_an_export_has_a_name_in_the_alphabet(name: str, mapped: str) -> None:
    assert export_id(name) == mapped
    assert EXPORT.fullmatch(mapped)


@requirement("vai:sdk-names", "vai:sdk-hook")
def test_hooks_of_one_name_are_one_export_and_hooks_of_other_contracts_are_none() -> None:
    plugin = Plugin("p")
    plugin.hook("run.completed", "run.started", export="notify")(function)
    plugin.hook("chain.compacted", export="notify")(print)
    plugin.hook("run.paused")(function)
    plugin.hook("before_message")(function)
    found = offers(plugin)
    assert {id: list(offer.by_event) for id, offer in found.items()} == {
        "notify": ["run.completed", "run.started", "chain.compacted"],
        "function": ["run.paused"],
    }
    assert found["notify"].by_event["chain.compacted"].function is print


@requirement("vai:sdk-names")
def test_every_kind_is_an_export_and_two_of_one_name_are_refused() -> None:
    plugin = Plugin("p")
    plugin.tool("search")(lambda: 1)
    plugin.compactor(function)
    plugin.harness("triage")(function)
    assert {id: offer.kind for id, offer in offers(plugin).items()} == {
        "triage": "harness",
        "search": "tool",
        "function": "compactor",
    }
    plugin.hook("run.completed", export="Search")(function)
    with pytest.raises(ValueError, match="a tool and a hook of p are both called 'search' under vai"):
        offers(plugin)


def context(said: dict[str, Any], *, awaitable: bool = False, sent: list[Any] | None = None) -> InvocationContext:
    def keep(data: Any) -> dict[str, Any]:
        return {"kept": data}

    send = ([] if sent is None else sent).append
    return InvocationContext("a/p", InvocationRequest(said), Cancellation(), send=send, keep=keep, awaitable=awaitable)


@requirement("vai:sdk-context")
@pytest.mark.parametrize("said", [{}, {"context": 7, "config": [], "secrets": "x"}, {"context": {"gateway": "x"}}])
def test_a_call_of_which_nothing_is_said_still_has_a_context(said: dict[str, Any]) -> None:
    ctx = context(said)
    assert (ctx.plugin_id, ctx.invocation_id, ctx.remaining, ctx.scratch, ctx.gateway) == (
        "a/p",
        None,
        None,
        None,
        None,
    )
    assert (dict(ctx.config), dict(ctx.secrets), ctx.cancelled) == ({}, {}, False)


@requirement("vai:sdk-deadline")
def test_a_deadline_is_a_time_of_the_monotonic_clock() -> None:
    past = InvocationRequest({"context": {"deadline_at": "2020-01-01T00:00:00Z"}})
    assert past.deadline is not None
    assert past.deadline < monotonic()
    assert past.remaining() == 0.0
    later = InvocationRequest({"context": {"deadline_at": "2126-01-01T00:00:00.5+02:00"}}).remaining()
    assert later is not None
    assert later > 1e9


@requirement("vai:sdk-gateway")
@pytest.mark.parametrize(
    ("said", "there"),
    [
        ({"base_url": "https://a", "delegation_token": "t", "scopes": ["x"]}, True),
        ({"base_url": "https://a", "delegation_token": "t", "scopes": None}, True),
        ({"base_url": "https://a", "delegation_token": None}, False),
        ({"base_url": None, "delegation_token": "t"}, False),
        ({"base_url": "https://a", "delegation_token": "t\r\nHost: b"}, False),
        ({}, False),
    ],
)
def test_there_is_a_gateway_when_there_is_a_token(said: dict[str, Any], there: bool) -> None:
    for awaitable, kind in ((False, Gateway), (True, AwaitableGateway)):
        gateway = context({"context": {"gateway": said}}, awaitable=awaitable).gateway
        assert type(gateway) is (kind if there else type(None))


@requirement("vai:sdk-secrets")
def test_the_token_is_in_nothing_that_a_handler_sees_as_it_is() -> None:
    request = InvocationRequest(
        {"context": {"org_id": "o", "gateway": {"base_url": "https://a", "delegation_token": "hunter2"}}}
    )
    assert request.context == {"org_id": "o"}
    assert "hunter2" not in repr(request.gateway(awaitable=False))


def test_a_folder_is_a_path() -> None:
    assert context({"context": {"scratch_dir": "/scratch/inv_1"}}).scratch == Path("/scratch/inv_1")


@requirement("vai:sdk-cancel")
def test_a_cancelled_call_knows_it() -> None:
    cancellation = Cancellation()
    ctx = InvocationContext("p", InvocationRequest({}), cancellation, send=print, keep=dict, awaitable=False)
    ctx.check_cancelled()
    ctx.sleep(0)
    cancellation.cancel("why")
    assert ctx.cancelled
    for stop in (ctx.check_cancelled, lambda: ctx.sleep(3600)):
        with pytest.raises(Cancelled, match="why"):
            stop()


@requirement("vai:sdk-progress", "vai:sdk-checkpoint")
def test_events_have_the_shapes_of_the_contract() -> None:
    sent: list[Any] = []
    ctx = context({}, sent=sent)
    ctx.progress("half", percent=50)
    ctx.checkpoint({"step": 1})
    assert sent == [
        {"type": "progress", "message": "half", "percent": 50},
        {"type": "checkpoint", "checkpoint": {"kept": {"step": 1}}},
    ]
