"""`RunLoop`: one run from its first turn to its last word.

Owns the turns: ask the model, have its tools answer, put both into the chain in one step, ask again. A call comes into
the chain together with its result or not at all. How a run is started, stopped and closed is `runs`' business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from plugbay.host.services.llm.chat import Assembly, ChatReply, ChatRequest, Usage
from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.model.errors import CallFailed
from plugbay.server.domain import prompts
from plugbay.server.domain.blocks import Block, opened, text_of
from plugbay.server.domain.chains import Chains
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.durable import durably
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.run_feed import Feeds
from plugbay.server.domain.run_requests import RunRequest
from plugbay.server.domain.tools import Call, Toolbox
from plugbay.store import chains as chain_rows
from plugbay.store import runs as rows
from plugbay.store.database import Database
from plugbay.store.runs import Run

END_TURN, MAX_TURNS, MAX_TOOL_CALLS, MAX_TOKENS = "end_turn", "max_turns", "max_tool_calls", "max_tokens"

MARGIN = 1.0
"""Seconds that a model has longer than its run: when both take too long, it is the run that is said to."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends, and what of its last turn stays."""

    status: str
    stop_reason: str
    error: dict[str, Any] | None = None
    blocks: list[Block] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    turns: int = 0

    @property
    def said(self) -> str:
        """The last words of the model."""
        return text_of(self.blocks)


class EndedElsewhere(Exception):
    """The run has an end that is not ours: another gateway had the database while we could not reach it."""


def failed(code: str, message: str) -> Ending:
    return Ending("failed", "error", {"code": code, "message": message})


@dataclass(frozen=True, slots=True)
class Gear:
    """What runs are driven with."""

    database: Database
    llm: Callable[[], LlmRegistry]
    chains: Chains
    toolbox: Toolbox
    feeds: Feeds
    clock: Clock
    ids: Ids = new_id


class RunLoop:
    """The turns of one run."""

    def __init__(self, gear: Gear, run: Run) -> None:
        self._gear = gear
        self._run = run
        self._request = RunRequest.from_json(run.request)
        self._ends = asyncio.get_running_loop().time() + self._request.limits.timeout_ms / 1000
        self._blocks: list[Block] = []
        self._tool_count = 0

    async def drive(self) -> Ending:
        """All turns. Raises nothing but what cancels it."""
        try:
            async with asyncio.timeout_at(self._ends):
                return await self._turns()
        except TimeoutError:
            return Ending("timed_out", "timeout", {"code": "run.timeout", "message": "the run took too long"})
        except EndedElsewhere:
            return failed("run.ended", "somebody else has put an end to it")
        except CallFailed as error:
            return failed(f"model.{error.failure.code}", error.failure.message)

    async def _turns(self) -> Ending:
        async with self._gear.database.reading() as tx:
            self._blocks = [opened(block) for block in await chain_rows.blocks(tx, self._run.chain_id)]
        turn = 0
        while True:
            turn += 1
            reply = await self._ask()
            calls = [Call(self._gear.ids("call_"), call["name"], call["arguments"]) for call in reply.tool_calls]
            stop = self._stops(reply, turn, len(calls))
            if stop is not None:
                blocks = prompts.replied(reply.text, ())
                return Ending("completed", stop, blocks=blocks, usage=reply.usage, turns=1)
            unknown = await self._use_tools(turn, reply, calls)
            if unknown:
                return failed("run.tool_outcome_unknown", "nobody knows what a tool did before it was lost")

    def _stops(self, reply: ChatReply, turn: int, calls: int) -> str | None:
        """Why there is no turn after this one; None: there is, once the tools have answered."""
        limits = self._request.limits
        if calls == 0:
            return MAX_TOKENS if reply.finish_reason == "length" else END_TURN
        if turn >= limits.max_turns:
            return MAX_TURNS
        return MAX_TOOL_CALLS if self._tool_count + calls > limits.max_tool_calls else None

    # The model.

    async def _ask(self) -> ChatReply:
        """One reply; whoever watches sees it come."""
        assembly = Assembly()
        request = self.chat_request()
        longer = self._left() + MARGIN
        async with aclosing(self._gear.llm().stream(self._request.provider, request, longer)) as chunks:
            async for chunk in chunks:
                failure = assembly.add(chunk)
                if failure is not None:
                    raise CallFailed(failure)
                if chunk["type"] == "text_delta":
                    self._gear.feeds.tell(self._run.id, "response.delta", delta=chunk["delta"])
        return assembly.finish()

    def chat_request(self) -> ChatRequest:
        """What the model is asked now."""
        return chat_request(self._request, self._blocks)

    def _left(self) -> float:
        return max(0.0, self._ends - asyncio.get_running_loop().time())

    # The tools.

    async def _use_tools(self, turn: int, reply: ChatReply, calls: list[Call]) -> bool:
        """Have the tools answer, and put the turn into the chain; whether of one nobody knows what it did."""
        results, unknown = await self._gear.toolbox.answers(self._run, self._request, turn, calls, self._left())
        asked = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]
        blocks = [*prompts.replied(reply.text, asked), *results]
        await durably(lambda: self._append(turn, reply.usage, blocks, len(calls)))
        self._blocks += blocks
        self._tool_count += len(calls)
        self._gear.feeds.tell(self._run.id, "blocks.appended", blocks=blocks)
        return unknown

    async def _append(self, turn: int, usage: Usage, blocks: list[Block], tools: int) -> None:
        run, now = self._run, self._gear.clock.now()
        async with self._gear.database.transaction() as tx:
            chain = await chain_rows.find(tx, run.chain_id, lock=True)
            now_known = await rows.find(tx, run.id, lock=True)
            assert chain is not None and now_known is not None
            if now_known.status not in rows.UNFINISHED:
                raise EndedElsewhere(run.id)
            await self._gear.chains.append(tx, chain, blocks, run.id)
            await rows.add_usage(tx, run.id, usage.prompt_tokens, usage.completion_tokens, turns=1, tools=tools)
            await rows.note(tx, run.id, "turn.completed", {"turn": turn, "usage": usage.to_json(), "tools": tools}, now)


def chat_request(request: RunRequest, blocks: list[Block]) -> ChatRequest:
    """What a model is asked about these blocks."""
    tools = [prompts.function(tool.name, tool.description, tool.input_schema) for tool in request.tools]
    return ChatRequest(
        request.model,
        prompts.messages(blocks),
        max_tokens=request.limits.max_tokens,
        temperature=request.temperature,
        system_prompt=prompts.system_prompt(blocks),
        tools=tools,
    )
