"""The turns of a run: model requests, tools, feeds and stop reasons."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plugbay.host.request import CallRequest
from plugbay.model.errors import Code, Failure, Origin
from plugbay.server.domain import background, run_loop
from plugbay.server.domain.principal import OPERATOR
from plugbay.server.domain.run_loop import (
    FEED_DEPTH,
    LAGGED,
    Limits,
    OfferedTool,
    RunFeeds,
    RunRequest,
    chat_messages,
    chat_request,
    failed_ending,
    reply_blocks,
    system_prompt,
    tool_function,
)
from plugbay.server.domain.runs import NewRun, RunOptions
from plugbay.server.domain.secrets import SecretScope
from plugbay.server.domain.sessions import text_block
from plugbay.store import chains as chain_rows
from plugbay.store import runs as rows
from plugbay.store.failures import StoreUnavailable
from tests.support.conversing import (
    CALLER,
    ScriptedWorkers,
    calls,
    conversing,
    gateway_with_model,
    result_of,
    says,
    settled,
)
from tests.support.loops import Run
from tests.support.openai_server import delta, events, streamed
from tests.support.packaged import Publisher, bind
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.vai import LEFT, export

TOOL = OfferedTool(
    name="t",
    binding_id="bind_1",
    package_id="acme/p",
    export_id="t",
    description="does t",
    input_schema={"type": "object"},
    effect_class="read_only",
)


def test_a_model_is_asked_with_its_system_its_tools_and_its_limits() -> None:
    request = RunRequest(provider="p", model="m", tools=(TOOL,), limits=Limits(max_tokens=9), temperature=0.0)
    blocks: list[dict[str, Any]] = [
        text_block("system", "be kind"),
        text_block("input", "hello"),
    ]
    asked = chat_request(request, blocks)
    assert (asked.model, asked.max_tokens, asked.temperature, asked.system_prompt) == ("m", 9, 0.0, "be kind")
    assert asked.messages == [{"role": "user", "content": "hello"}]
    assert asked.tools == [{"name": "t", "description": "does t", "parameters": {"type": "object"}}]


@pytest.mark.parametrize(("finish", "reason"), [("stop", "end_turn"), ("length", "max_tokens"), ("odd", "end_turn")])
def test_how_a_reply_ends_is_why_the_run_stops(run: Run, sqlite_url: str, finish: str, reason: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, says("so", finish)) as talk:
            done = await talk.answered("go")
            assert (done.status, done.stop_reason) == ("completed", reason)

    run(story)


def test_a_reply_without_words_leaves_no_block(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, says("")) as talk:
            done = await talk.answered("go")
            assert done.status == "completed"
            assert [block["kind"] for block in await talk.blocks(done.chain_id)] == ["input"]

    run(story)


def test_pieces_of_a_reply_are_seen_as_they_come(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        reply = streamed([events(delta(content="a"), delta(content="b"), delta("stop"))])
        async with conversing(sqlite_url, reply) as talk:
            with talk.conversations.runs.feeds.subscribe("run_mine") as feed:
                begun = await talk.begun("go", run_id="run_mine")
                pieces = [piece async for piece in feed]
            assert begun.id == "run_mine"
            assert [piece["type"] for piece in pieces] == [
                "run.started",
                "response.delta",
                "response.delta",
                "run.completed",
            ]
            assert "".join(piece.get("delta", "") for piece in pieces) == "ab"

    run(story)


def test_a_run_whose_chain_cannot_be_read_now_waits_for_the_database(
    run: Run, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks, tries = chain_rows.blocks, []

    async def away(*given: Any, **values: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise StoreUnavailable("away")
        return await blocks(*given, **values)

    monkeypatch.setattr(background, "PAUSES", (0.0,))
    monkeypatch.setattr(run_loop, "chain_rows", SimpleNamespace(**{**vars(chain_rows), "blocks": away}))

    async def story() -> None:
        async with conversing(sqlite_url, says("so")) as talk:
            done = await talk.answered("go")
            assert (done.status, done.stop_reason, len(tries)) == ("completed", "end_turn", 3)

    run(story)


def test_usage_of_all_turns_is_added_up(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def tool(work: CallRequest) -> Any:
            return result_of("42")

        workers.bind("tool", "t", tool)
        async with conversing(sqlite_url, calls(("t", {})), says("ok"), workers=workers) as talk:
            done = await talk.answered("go", wanted=RunOptions(tools=["t"]))
            assert (done.input_tokens, done.output_tokens, done.turn_count, done.tool_count) == (20, 10, 2, 1)

    run(story)


def test_a_failure_is_an_ending() -> None:
    ending = failed_ending("run.internal", "a bug")
    assert (ending.status, ending.stop_reason, ending.error, ending.reply) == (
        "failed",
        "error",
        {"code": "run.internal", "message": "a bug"},
        "",
    )


def publish(feeds: RunFeeds, run_id: str, text: str) -> None:
    feeds.show(run_id, {"type": "response.delta", "delta": text})


def test_a_subscriber_gets_all_events_until_the_end(run: Run) -> None:
    async def story() -> None:
        feeds = RunFeeds()
        publish(feeds, "run_1", "before")
        with feeds.subscribe("run_1") as one, feeds.subscribe("run_1") as other:
            publish(feeds, "run_1", "a")
            publish(feeds, "run_2", "another run's")
            feeds.end("run_1")
            publish(feeds, "run_1", "after")
            for feed in (one, other):
                assert [piece async for piece in feed] == [{"type": "response.delta", "delta": "a"}]

    run(story)


def test_a_watcher_that_does_not_keep_up_is_left_behind(run: Run) -> None:
    async def story() -> None:
        feeds = RunFeeds()
        with feeds.subscribe("run_1") as feed:
            for number in range(FEED_DEPTH + 10):
                publish(feeds, "run_1", str(number))
            feeds.end("run_1")
            seen = [piece async for piece in feed]
        assert len(seen) == FEED_DEPTH + 1
        assert seen[-1] == LAGGED

    run(story)


def test_a_closed_feed_gets_no_more_events(run: Run) -> None:
    async def story() -> None:
        feeds = RunFeeds()
        with feeds.subscribe("run_1"):
            pass
        publish(feeds, "run_1", "a")
        with feeds.subscribe("run_1") as feed:
            feeds.end("run_1")
            assert [piece async for piece in feed] == []

    run(story)


def shape(blocks: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(block["kind"], block.get("name") or _text(block)) for block in blocks]


def _text(block: dict[str, Any]) -> str | None:
    return block["content"][0]["text"] if block["content"] else None


@requirement("vai:control-tool-results")
def test_results_are_in_the_order_of_the_calls(run: Run, database_url: str) -> None:
    async def story() -> None:
        workers, fast_is_done = ScriptedWorkers(), asyncio.Event()

        async def slow(work: CallRequest) -> Any:
            await fast_is_done.wait()
            return result_of("slow is done")

        async def fast(work: CallRequest) -> Any:
            fast_is_done.set()
            return result_of("fast is done")

        workers.bind("tool", "slow", slow)
        workers.bind("tool", "fast", fast)
        asked = calls(("slow", {}), ("fast", {}), text="let me see")
        async with conversing(database_url, asked, says("both"), workers=workers) as talk:
            done = await talk.answered("go")
            assert (done.status, done.tool_count, done.turn_count) == ("completed", 2, 2)
            blocks = await talk.blocks(done.chain_id)
            assert shape(blocks) == [
                ("input", "go"),
                ("response", "let me see"),
                ("tool_call", "slow"),
                ("tool_call", "fast"),
                ("tool_result", "slow is done"),
                ("tool_result", "fast is done"),
                ("response", "both"),
            ]
            ids = [block["tool_call_id"] for block in blocks if "tool_call_id" in block]
            assert ids[:2] == ids[2:] and len(set(ids)) == 2
            assert {work.run_id for work in workers.received} == {done.id}
            assert [work.execution_id for work in workers.received] == [
                block["tool_execution_id"] for block in blocks if block["kind"] == "tool_result"
            ]
            roles = [message["role"] for message in talk.server.seen[1].body["messages"]]
            assert roles == ["user", "assistant", "tool", "tool"]

    run(story)


@requirement("vai:control-tool-no-dangling")
def test_no_call_is_in_the_chain_before_its_result(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers, go_on = ScriptedWorkers(), asyncio.Event()

        async def tool(work: CallRequest) -> Any:
            await go_on.wait()
            return result_of("done")

        workers.bind("tool", "t", tool)
        async with conversing(sqlite_url, calls(("t", {})), says("ok"), workers=workers) as talk:
            begun = await talk.begun("go")
            await until(lambda: bool(workers.received))
            assert [block["kind"] for block in await talk.blocks(begun.chain_id)] == ["input"]
            go_on.set()
            await talk.ended(begun)
            assert [block["kind"] for block in await talk.blocks(begun.chain_id)] == [
                "input",
                "tool_call",
                "tool_result",
                "response",
            ]

    run(story)


def test_a_cancelled_batch_leaves_no_call_behind(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def tool(work: CallRequest) -> Any:
            await asyncio.Event().wait()

        workers.bind("tool", "t", tool)
        async with conversing(sqlite_url, calls(("t", {})), workers=workers) as talk:
            begun = await talk.begun("go")
            await until(lambda: bool(workers.received))
            await talk.conversations.runs.cancel(CALLER, begun.id)
            done = await talk.ended(begun)
            assert done.status == "cancelled"
            assert [block["kind"] for block in await talk.blocks(begun.chain_id)] == ["input"]
            async with talk.database.reading() as tx:
                tools = await rows.tools(tx, begun.id)
            assert [(tool.status, tool.execution_outcome) for tool in tools] == [("cancelled", "unknown")]

    run(story)


@requirement("vai:control-tool-failures")
def test_every_failure_is_a_result_that_the_model_sees(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def failing(work: CallRequest) -> Any:
            said = "Jira is down until noon"
            return Failure(Code.PLUGIN_ERROR, said, origin=Origin.PLUGIN, detail={"plugin_code": "jira.down"})

        async def picky(work: CallRequest) -> Any:
            return Failure(Code.INVALID_INPUT, "the input does not fit: city is missing")

        async def erring(work: CallRequest) -> Any:
            return result_of("no such issue", is_error=True)

        for name, does in (("failing", failing), ("picky", picky), ("erring", erring), ("gone", erring)):
            workers.bind("tool", name, does)
        asked = calls(("failing", {}), ("picky", {}), ("erring", {}), ("gone", {}), ("unheard_of", {}))
        async with conversing(sqlite_url, asked, says("I see"), workers=workers) as talk:
            chain = await talk.chain()
            begun = await talk.begun("go", chain)
            workers.inactive.add("bind_gone")  # it was there when the run began
            done = await talk.ended(begun)
            assert done.status == "completed"
            results = [block for block in await talk.blocks(chain.id) if block["kind"] == "tool_result"]
            assert [block["is_error"] for block in results] == [True] * 5
            texts = [_text(block) for block in results]
            assert texts == [
                "The tool failing failed: Jira is down until noon (jira.down)",
                "the input does not fit: city is missing",
                "no such issue",
                "The tool gone is not available.",
                "There is no tool called unheard_of.",
            ]

    run(story)


@requirement("vai:control-tool-failures")
def test_words_that_are_not_the_plugins_own_answer_are_kept_from_the_model(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def crashed(work: CallRequest) -> Any:
            cause = "the plugin ended early (exit code 7): hunter22"
            return Failure(Code.CRASHED, cause, detail={"cause": cause, "stderr_tail": ["hunter22"]})

        async def refused(work: CallRequest) -> Any:
            detail = {"plugin_code": "protocol.internal"}
            return Failure(Code.PLUGIN_ERROR, "at /home/ada/plugin.py", origin=Origin.PLUGIN, detail=detail)

        for name, does in (("crashed", crashed), ("refused", refused)):
            workers.bind("tool", name, does)
        asked = calls(("crashed", {}), ("refused", {}))
        async with conversing(sqlite_url, asked, says("I see"), workers=workers) as talk:
            done = await talk.answered("go")
            results = [block for block in await talk.blocks(done.chain_id) if block["kind"] == "tool_result"]
            assert [_text(block) for block in results] == [
                "The tool crashed failed: crashed.",
                "The tool refused failed: protocol.internal.",
            ]

    run(story)


LEFT_RESULTS: list[tuple[Any, list[str], Any]] = [
    (LEFT, ["3 of 4 rows were written"], {"rows": 3}),
    ({"structured_output": {"rows": 3}}, ['{"rows":3}'], {"rows": 3}),
    ({"content": "no list", "structured_output": [1]}, [], None),
    ({"content": [{"no": "type"}, 7, {"type": "text", "text": "a part"}]}, ["a part"], None),
    ("no object", [], None),
]


@requirement("vai:control-tool-failed-content")
@pytest.mark.parametrize(("left", "texts", "structured"), LEFT_RESULTS)
def test_a_model_sees_the_content_of_a_failure_and_then_its_message(
    run: Run, sqlite_url: str, left: Any, texts: list[str], structured: Any
) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def fails(work: CallRequest) -> Any:
            detail = {"plugin_code": "acme.half", "result": left}
            return Failure(Code.PLUGIN_ERROR, "x" * 5_000, origin=Origin.PLUGIN, detail=detail)

        workers.bind("tool", "t", fails)
        async with conversing(sqlite_url, calls(("t", {})), says("I see"), workers=workers) as talk:
            done = await talk.answered("go")
            assert done.status == "completed"
            block = (await talk.blocks(done.chain_id))[2]
            *said, last = [item["text"] for item in block["content"]]
            assert (said, block["structured_output"], block["is_error"]) == (texts, structured, True)
            assert last.startswith("The tool t failed: xxx") and last.endswith("… (acme.half)") and len(last) < 2_100
            (tool,) = [each for each in talk.server.seen[1].body["messages"] if each["role"] == "tool"]
            assert tool["content"] == "\n".join([*texts, last])

    run(story)


@requirement("vai:control-tool-failed-content", "vai:host-redaction")
def test_a_secret_in_a_failure_of_a_tool_is_kept_from_the_model_and_the_chain(
    run: Run, sqlite_url: str, tmp_path: Path
) -> None:
    body = """
    def tool(body, m):
        key = body["secrets"]["key"]
        left = {"content": [{"type": "text", "text": f"sent {key}"}], "structured_output": {"key": key}}
        end(m, "failed", "acme.half", f"refused {key}", result=left)
    """

    async def story() -> None:
        replies = calls(("t", {})), says("I see")
        async with gateway_with_model(sqlite_url, tmp_path / "data", *replies) as gateway:
            await gateway.secrets.put(OPERATOR, SecretScope("org_1", "proj_1"), "key", "hunter2222")
            exports = [export("t", permissions={"secret_slots": ["key"]})]
            package = await Publisher(tmp_path / "data", tmp_path).bring(gateway, body, exports)
            await bind(gateway, package, secrets={"key": "secret://proj_1/key"})
            session = await gateway.sessions.create(CALLER)
            chain = await gateway.chains.create(CALLER, session.id, defaults={"model": "m"})
            asked = NewRun([text_block("input", "go")])
            begun = await gateway.runs.create(CALLER, chain.id, asked)
            await settled(lambda: gateway.runs.get(CALLER, begun.id), lambda now: now.completed_at is not None)
            block = (await gateway.chains.context(CALLER, chain.id))[1][2]
            texts = [item["text"] for item in block["content"]]
            assert texts == ["sent ***", "The tool t failed: refused *** (acme.half)"]
            assert block["structured_output"] == {"key": "***"}

    run(story)


@requirement("vai:control-tool-unknown-outcome")
def test_a_run_stops_when_the_outcome_of_a_tool_is_unknown(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def lost(work: CallRequest) -> Any:
            return Failure(Code.CRASHED, "it is gone", detail={"execution_outcome": "unknown"})

        workers.bind("tool", "pay", lost, effect_class="non_idempotent_write")
        async with conversing(sqlite_url, calls(("pay", {})), says("never said"), workers=workers) as talk:
            done = await talk.answered("pay")
            assert (done.status, done.stop_reason) == ("failed", "error")
            assert done.error is not None and done.error["code"] == "run.tool_outcome_unknown"
            blocks = await talk.blocks(done.chain_id)
            assert [block["kind"] for block in blocks] == ["input", "tool_call", "tool_result"]
            assert blocks[-1]["is_error"] is True
            assert len(talk.server.seen) == 1

    run(story)


@requirement("vai:control-run-limits")
def test_a_run_stops_at_its_limits_with_nothing_dangling(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def tool(work: CallRequest) -> Any:
            return result_of("more")

        workers.bind("tool", "t", tool)
        endless = calls(("t", {}), ("t", {}), text="again")
        async with conversing(sqlite_url, endless, workers=workers) as talk:
            turns = await talk.answered("go", wanted=RunOptions(limits={"max_turns": 2}))
            assert (turns.status, turns.stop_reason, turns.tool_count) == ("completed", "max_turns", 2)
            tools = await talk.answered("go", wanted=RunOptions(limits={"max_tool_calls": 3}))
            assert (tools.status, tools.stop_reason, tools.tool_count) == ("completed", "max_tool_calls", 2)
            for done in (turns, tools):
                kinds = [block["kind"] for block in await talk.blocks(done.chain_id)]
                assert kinds.count("tool_call") == kinds.count("tool_result") == 2
                assert kinds[-1] == "response"

    run(story)


def test_arguments_that_are_no_object_reach_no_tool(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def tool(work: CallRequest) -> Any:
            return result_of("no")

        workers.bind("tool", "t", tool)
        call = {"index": 0, "id": "c", "function": {"name": "t", "arguments": "[1, 2"}}
        broken = streamed([events(delta(tool_calls=[call]), delta("tool_calls"))])
        async with conversing(sqlite_url, broken, says("sorry"), workers=workers) as talk:
            done = await talk.answered("go")
            assert done.status == "completed"
            assert workers.received == []

    run(story)


def test_a_result_that_is_too_large_is_an_error(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def tool(work: CallRequest) -> Any:
            return result_of("x" * (5 << 20))

        workers.bind("tool", "t", tool)
        async with conversing(sqlite_url, calls(("t", {})), says("too much"), workers=workers) as talk:
            done = await talk.answered("go")
            results = [block for block in await talk.blocks(done.chain_id) if block["kind"] == "tool_result"]
            assert [_text(block) for block in results] == ["The output of t is too large."]

    run(story)


CALL = {"kind": "tool_call", "content": [], "tool_call_id": "c1", "name": "t", "input": {"a": 1}}
ASKED = {"id": "c1", "name": "t", "arguments": {"a": 1}}


def result(content: list[dict[str, Any]], structured: Any = None) -> dict[str, Any]:
    return {"kind": "tool_result", "content": content, "tool_call_id": "c1", "structured_output": structured}


def test_calls_belong_to_the_response_before_them() -> None:
    said = chat_messages(
        [text_block("input", "go"), text_block("response", "so"), CALL, result([{"type": "text", "text": "42"}])]
    )
    assert said == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "so", "tool_calls": [ASKED]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]


def test_a_call_without_words_is_a_message_of_its_own() -> None:
    said = chat_messages([text_block("input", "go"), CALL])
    assert said[1] == {"role": "assistant", "content": None, "tool_calls": [ASKED]}


def test_a_result_without_words_is_its_structured_output() -> None:
    assert chat_messages([result([], {"n": 1})])[0]["content"] == '{"n":1}'
    assert chat_messages([result([])])[0]["content"] == ""


def test_system_blocks_are_the_system_prompt_and_thinking_is_left_out() -> None:
    blocks = [text_block("system", "be kind"), text_block("thinking", "hmm"), text_block("system", "be brief")]
    assert system_prompt(blocks) == "be kind\n\nbe brief"
    assert chat_messages(blocks) == []
    assert system_prompt([]) is None


def test_images_are_attached_and_everything_else_is_named() -> None:
    content = [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        {"type": "image", "source": {"type": "asset", "asset_id": "a"}},
        {"type": "audio", "source": {"type": "url", "url": "https://example.com/a.mp3"}},
    ]
    [message] = chat_messages([{"kind": "input", "content": content}])
    assert message["content"] == "look\n[image]\n[audio]"
    assert message["attachments"] == [
        {"kind": "image", "url": "https://example.com/a.png"},
        {"kind": "image", "mime_type": "image/png", "base64": "aGk="},
    ]


def test_a_reply_becomes_blocks() -> None:
    assert reply_blocks("so", [ASKED]) == [text_block("response", "so"), CALL]
    assert reply_blocks(None, []) == []


def test_a_tool_without_a_schema_takes_any_object() -> None:
    assert tool_function("t", "does t", None) == {
        "name": "t",
        "description": "does t",
        "parameters": {"type": "object"},
    }
