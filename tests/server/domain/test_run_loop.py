"""The turns of a run: what the model is asked, and what stops it."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.server.domain.run_loop import chat_request, failed
from plugbay.server.domain.run_requests import Limits, Offered, RunRequest, Wanted
from plugbay.server.domain.workers import Job
from tests.support.conversing import ScriptedWorkers, calls, conversing, result_of, says
from tests.support.loops import Run
from tests.support.openai_server import delta, events, streamed

TOOL = Offered(
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
        {"kind": "system", "content": [{"type": "text", "text": "be kind"}]},
        {"kind": "input", "content": [{"type": "text", "text": "hello"}]},
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
            with talk.conversations.runs.feeds.watch("run_mine") as feed:
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


def test_usage_of_all_turns_is_added_up(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def tool(job: Job) -> Any:
            return result_of("42")

        workers.bind("tool", "t", tool)
        async with conversing(sqlite_url, calls(("t", {})), says("ok"), workers=workers) as talk:
            done = await talk.answered("go", wanted=Wanted(tools=["t"]))
            assert (done.input_tokens, done.output_tokens, done.turn_count, done.tool_count) == (20, 10, 2, 1)

    run(story)


def test_a_failure_is_an_ending() -> None:
    ending = failed("run.internal", "a bug")
    assert (ending.status, ending.stop_reason, ending.error, ending.said) == (
        "failed",
        "error",
        {"code": "run.internal", "message": "a bug"},
        "",
    )
