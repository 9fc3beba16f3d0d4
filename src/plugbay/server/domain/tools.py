"""`Toolbox`: what the model of a run asks of tools, from its calls to the results that answer them.

Owns that each call is written down before anything is asked, has one result however it ends, and that the results come
in the order of the calls, all together. A result that cannot be had is one too: the model is told in a few safe words.
Refuses to know chains and models; whether a tool is asked again is the host's decision, by its effect class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from plugbay.model.errors import Code, Failure, Outcome
from plugbay.server.domain.blocks import MAX_BYTES, Block
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.dispatcher import error_code
from plugbay.server.domain.durable import durably
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.run_feed import Feeds
from plugbay.server.domain.run_requests import Offered, RunRequest
from plugbay.server.domain.workers import Job, Workers, WorkRefused
from plugbay.store import runs as rows
from plugbay.store.database import Database
from plugbay.store.runs import Run, ToolExecution

AT_ONCE = 8
"""Tools of one turn that work at the same time."""

UNKNOWN = "unknown"
"""How an execution ended of which nobody can say what it did."""


@dataclass(frozen=True, slots=True)
class Call:
    """What the model asks for. The id is ours: models number their calls anew in each reply."""

    id: str
    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call."""

    result: dict[str, Any]
    status: str = Outcome.SUCCEEDED
    error_code: str | None = None
    execution_outcome: str = "known"
    attempts: int = 0

    @property
    def is_unknown(self) -> bool:
        return self.execution_outcome == UNKNOWN


class Toolbox:
    """The tools of all runs."""

    def __init__(self, database: Database, workers: Workers, feeds: Feeds, clock: Clock, ids: Ids = new_id) -> None:
        self._database = database
        self._workers = workers
        self._feeds = feeds
        self._clock = clock
        self._ids = ids

    async def answers(
        self, run: Run, request: RunRequest, turn: int, calls: Sequence[Call], seconds: float
    ) -> tuple[list[Block], bool]:
        """The results of these calls as blocks, in their order; and whether of one nobody knows what it did."""
        tools = {tool.name: tool for tool in request.tools}
        executions = [self._execution(run, turn, at, call, tools.get(call.name)) for at, call in enumerate(calls)]
        await durably(lambda: self._begin(executions))
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(execution: ToolExecution, call: Call) -> Answer:
            async with turns:
                answer = await self._answer(run, request, execution, call, tools.get(call.name), seconds)
            await durably(lambda: self._write(run, execution, answer))
            return answer

        # All of them come to an end, also when one of them meets a bug of ours.
        ended = await asyncio.gather(*map(one, executions, calls), return_exceptions=True)
        answers = [_sure(each) for each in ended]
        blocks = [
            _block(call, execution, answer) for call, execution, answer in zip(calls, executions, answers, strict=True)
        ]
        return blocks, any(answer.is_unknown for answer in answers)

    async def _begin(self, executions: Sequence[ToolExecution]) -> None:
        async with self._database.transaction() as tx:
            await rows.begin_tools(tx, *executions)

    def _execution(self, run: Run, turn: int, position: int, call: Call, tool: Offered | None) -> ToolExecution:
        return ToolExecution(
            id=self._ids("toolx_"),
            run_id=run.id,
            turn=turn,
            position=position,
            tool_call_id=call.id,
            name=call.name,
            binding_id=None if tool is None else tool.binding_id,
            status=None,
            execution_outcome=None,
            error_code=None,
            attempts=0,
            input=msgspec.json.encode(call.arguments),
            result=None,
            started_at=self._clock.now(),
            ended_at=None,
        )

    async def _answer(
        self, run: Run, request: RunRequest, execution: ToolExecution, call: Call, tool: Offered | None, seconds: float
    ) -> Answer:
        if tool is None:
            return _refused("tool.not_found", f"There is no tool called {call.name}.")
        if not isinstance(call.arguments, Mapping):
            return _refused("tool.invalid_input", "The arguments are no JSON object.")
        self._feeds.tell(run.id, "tool.started", tool_execution_id=execution.id, tool_call_id=call.id, name=call.name)
        job = Job(
            binding_id=tool.binding_id,
            kind="tool",
            input=call.arguments,
            org_id=run.org_id,
            project_id=run.project_id,
            execution_id=execution.id,
            trace_id=run.trace_id,
            session_id=run.session_id,
            chain_id=run.chain_id,
            run_id=run.id,
            timeout=seconds,
            scopes=None if request.scopes is None else frozenset(request.scopes),
            on_progress=lambda event: self._feeds.tell(
                run.id, "tool.progress", tool_execution_id=execution.id, event=event
            ),
        )
        try:
            result = await self._workers.do(job)
        except WorkRefused as refused:
            return _refused(refused.code, f"The tool {call.name} is not available.")
        if result.failure is not None:
            return _failed(call.name, result.failure, result.status, len(result.records))
        value = result.value()
        if len(msgspec.json.encode(value)) > MAX_BYTES:
            return _refused("tool.output_too_large", f"What {call.name} gave back is too large.", len(result.records))
        return Answer(value, attempts=len(result.records))

    async def _write(self, run: Run, execution: ToolExecution, answer: Answer) -> None:
        now = self._clock.now()
        async with self._database.transaction() as tx:
            await rows.end_tool(
                tx,
                execution.id,
                status=answer.status,
                execution_outcome=answer.execution_outcome,
                error_code=answer.error_code,
                attempts=answer.attempts,
                result=msgspec.json.encode(answer.result),
                ended_at=now,
            )
            data = {
                "tool_execution_id": execution.id,
                "tool_call_id": execution.tool_call_id,
                "name": execution.name,
                "status": answer.status,
                "error_code": answer.error_code,
                "attempts": answer.attempts,
            }
            await rows.note(tx, run.id, "tool.finished", data, now)
        self._feeds.tell(run.id, "tool.finished", **data)


def _sure(ended: Answer | BaseException) -> Answer:
    if isinstance(ended, BaseException):
        raise ended
    return ended


def _refused(code: str, text: str, attempts: int = 0) -> Answer:
    return Answer(_error(text), Outcome.FAILED, code, attempts=attempts)


def _failed(name: str, failure: Failure, status: str, attempts: int) -> Answer:
    """A failure in words that are safe: a plugin may say anything. What the host says of an input helps the model."""
    code = error_code(failure)
    text = failure.message if failure.code == Code.INVALID_INPUT else f"The tool {name} failed: {code}."
    outcome = failure.detail.get("execution_outcome", "known")
    return Answer(_error(text), status, code, UNKNOWN if outcome == UNKNOWN else "known", attempts)


def _error(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "structured_output": None, "is_error": True}


def _block(call: Call, execution: ToolExecution, answer: Answer) -> Block:
    return {
        "kind": "tool_result",
        "content": answer.result.get("content", []),
        "tool_call_id": call.id,
        "tool_execution_id": execution.id,
        "is_error": bool(answer.result.get("is_error")),
        "structured_output": answer.result.get("structured_output"),
    }
