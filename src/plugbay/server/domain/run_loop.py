"""`RunLoop`: the turns of one run: ask the model, run its tools, append both to the chain, repeat.

A tool call enters the chain together with its result or not at all. Each call is recorded before the tool starts and
has exactly one result, in the order of the calls. A failure is a result with the content and the message of the plugin,
redacted by the host; if the plugin did not answer, with a safe message. `RunFeeds` streams progress to subscribers and
stores nothing; a slow subscriber is cut off and never blocks the run. `runs` starts and ends runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Self

import msgspec

from plugbay.host.request import CallRequest
from plugbay.host.services.llm.chat import Assembly, ChatReply, ChatRequest, Usage
from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.model.errors import CallFailed, Code, Failure, Origin, Outcome
from plugbay.server.domain.background import retry_until_stored
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.sessions import MAX_BLOCK_BYTES, Block, Chains, decode_block, text_block, text_of
from plugbay.server.domain.workers import Workers, error_code
from plugbay.store import chains as chain_rows
from plugbay.store import runs as rows
from plugbay.store.database import Database
from plugbay.store.runs import Run, ToolExecution

MOST_TURNS, MOST_TOOL_CALLS, MOST_TOKENS, LONGEST_MS = 128, 1024, 1 << 20, 3_600_000
"""Maximum values of the limits in a request."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a run."""

    max_turns: int = 16
    """Model replies."""
    max_tool_calls: int = 64
    max_tokens: int = 4096
    """Of one reply."""
    timeout_ms: int = 600_000


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool with the name the model uses."""

    name: str
    binding_id: str
    package_id: str
    export_id: str
    description: str
    input_schema: Any
    effect_class: str


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The resolved request, stored with the run."""

    provider: str
    model: str
    tools: tuple[OfferedTool, ...] = ()
    limits: Limits = Limits()
    temperature: float = 0.7
    scopes: tuple[str, ...] | None = None
    """Scopes of the caller; None: all."""

    def to_json(self) -> dict[str, Any]:
        kept: dict[str, Any] = msgspec.to_builtins(self)
        return kept

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> RunRequest:
        return msgspec.convert(kept, cls)


# From blocks to a model and back.

Message = dict[str, Any]

_CHAT_ROLES = {"input": "user", "response": "assistant"}


def chat_request(request: RunRequest, blocks: list[Block]) -> ChatRequest:
    """The model request for these blocks."""
    tools = [tool_function(tool.name, tool.description, tool.input_schema) for tool in request.tools]
    return ChatRequest(
        request.model,
        chat_messages(blocks),
        max_tokens=request.limits.max_tokens,
        temperature=request.temperature,
        system_prompt=system_prompt(blocks),
        tools=tools,
    )


def system_prompt(blocks: Iterable[Mapping[str, Any]]) -> str | None:
    """The text of the system blocks."""
    texts = [content_text(block.get("content", ())) for block in blocks if block["kind"] == "system"]
    return "\n\n".join(filter(None, texts)) or None


def chat_messages(blocks: Iterable[Mapping[str, Any]]) -> list[Message]:
    """The other blocks as chat messages. Tool calls belong to the response before them, if there is one."""
    found: list[Message] = []
    for block in blocks:
        kind = block["kind"]
        if kind in _CHAT_ROLES:
            found.append(_text_message(_CHAT_ROLES[kind], block))
        elif kind == "tool_call":
            _add_tool_call(found, block)
        elif kind == "tool_result":
            found.append({"role": "tool", "tool_call_id": block["tool_call_id"], "content": _result_text(block)})
    return found


def _text_message(role: str, block: Mapping[str, Any]) -> Message:
    content = block.get("content", ())
    message: Message = {"role": role, "content": content_text(content)}
    images = [image for item in content if (image := _image_attachment(item)) is not None]
    return {**message, "attachments": images} if images else message


def _add_tool_call(found: list[Message], block: Mapping[str, Any]) -> None:
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": None})
    call = {"id": block["tool_call_id"], "name": block["name"], "arguments": block.get("input", {})}
    found[-1].setdefault("tool_calls", []).append(call)


def _result_text(block: Mapping[str, Any]) -> str:
    """The text of a tool result, or else its structured output."""
    text = content_text(block.get("content", ()))
    structured = block.get("structured_output")
    return text if text or structured is None else msgspec.json.encode(structured).decode()


def content_text(content: Sequence[Mapping[str, Any]] | tuple[()]) -> str:
    """The text of some content, with placeholders for other media."""
    return "\n".join(word for item in content if (word := _item_text(item)))


def _item_text(item: Mapping[str, Any]) -> str:
    if item.get("type") == "text":
        return str(item.get("text", ""))
    return "" if _image_attachment(item) is not None else f"[{item.get('type')}]"


def _image_attachment(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """An image for a provider; None for other media and for assets only we can read."""
    source = item.get("source")
    if item.get("type") != "image" or not isinstance(source, Mapping):
        return None
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return {"kind": "image", "url": source["url"]}
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        return {"kind": "image", "mime_type": source.get("media_type"), "base64": source["data"]}
    return None


def tool_function(name: str, description: str, schema: Any) -> dict[str, Any]:
    """A tool as a function definition for a model."""
    return {"name": name, "description": description, "parameters": schema or {"type": "object"}}


def reply_blocks(text: str | None, calls: Iterable[Mapping[str, Any]]) -> list[Block]:
    """A model's reply as blocks: its text, then its tool calls."""
    response = [text_block("response", text)] if text else []
    asked = [
        {
            "kind": "tool_call",
            "content": [],
            "tool_call_id": call["id"],
            "name": call["name"],
            "input": call["arguments"],
        }
        for call in calls
    ]
    return [*response, *asked]


# Tools.

MAX_PARALLEL_TOOLS = 8
"""Tools of one turn that run in parallel."""

MAX_MESSAGE = 2_000
"""Characters of a plugin's error message that a model is shown."""

ANSWERED = frozenset({Code.PLUGIN_ERROR, Code.NOT_FOUND, Code.UNAVAILABLE, Code.CANCELLED})
"""Codes of failures that a plugin itself reports with a status."""

PROTOCOL = "protocol."
"""Codes of a plugin that refuses a frame: its message is for the operator."""

UNKNOWN_OUTCOME = "unknown"
"""The outcome of an execution whose effects are unknown."""


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call of the model. The id is ours: models reuse their ids in each reply."""

    id: str
    name: str
    arguments: Any


class ToolOutcome(msgspec.Struct, frozen=True):
    """The result of a tool call."""

    result: dict[str, Any]
    status: str = Outcome.SUCCEEDED
    error_code: str | None = None
    execution_outcome: str = "known"
    attempts: int = 0

    @property
    def is_unknown(self) -> bool:
        return self.execution_outcome == UNKNOWN_OUTCOME


class RunTools:
    """Runs the tools of one run."""

    def __init__(self, services: RunServices, run: Run, request: RunRequest) -> None:
        self._services = services
        self._database = services.database
        self._run = run
        self._tools = {tool.name: tool for tool in request.tools}
        self._scopes = None if request.scopes is None else frozenset(request.scopes)

    async def call(self, turn: int, calls: Sequence[ToolCall], seconds: float) -> tuple[list[Block], bool]:
        """Run these calls; returns their results as blocks, in order, and whether any outcome is unknown."""
        executions = [self._execution(turn, position, call) for position, call in enumerate(calls)]
        await retry_until_stored(lambda: self._begin(executions))
        slots = asyncio.Semaphore(MAX_PARALLEL_TOOLS)

        async def one(execution: ToolExecution, call: ToolCall) -> ToolOutcome:
            async with slots:
                outcome = await self._execute(execution, call, seconds)
            await retry_until_stored(lambda: self._end(execution, outcome))
            return outcome

        # Wait for all of them, even if one raises.
        ended = await asyncio.gather(*map(one, executions, calls), return_exceptions=True)
        outcomes = [_raise_or_return(each) for each in ended]
        blocks = [
            _result_block(call, execution, outcome)
            for call, execution, outcome in zip(calls, executions, outcomes, strict=True)
        ]
        return blocks, any(outcome.is_unknown for outcome in outcomes)

    async def _begin(self, executions: Sequence[ToolExecution]) -> None:
        async with self._database.transaction(fenced=True) as tx:
            await rows.begin_tools(tx, *executions)

    def _execution(self, turn: int, position: int, call: ToolCall) -> ToolExecution:
        tool = self._tools.get(call.name)
        return ToolExecution(
            id=self._services.ids("toolx_"),
            run_id=self._run.id,
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
            started_at=self._services.clock.now(),
            ended_at=None,
        )

    async def _execute(self, execution: ToolExecution, call: ToolCall, seconds: float) -> ToolOutcome:
        run, feeds, tool = self._run, self._services.feeds, self._tools.get(call.name)
        if tool is None:
            return _refused_call("tool.not_found", f"There is no tool called {call.name}.")
        if not isinstance(call.arguments, Mapping):
            return _refused_call("tool.invalid_input", "The arguments are not a JSON object.")
        feeds.publish(run, "tool.started", tool_execution_id=execution.id, tool_call_id=call.id, name=call.name)
        request = CallRequest(
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
            scopes=self._scopes,
            on_progress=lambda event: feeds.publish(run, "tool.progress", tool_execution_id=execution.id, event=event),
        )
        try:
            result = await self._services.workers.do(request)
        except GatewayError as refused:
            return _refused_call(refused.code, f"The tool {call.name} is not available.")
        if result.failure is not None:
            return _failed_call(call.name, result.failure, result.status, len(result.invocations))
        value = result.value()
        if len(msgspec.json.encode(value)) > MAX_BLOCK_BYTES:
            return _refused_call(
                "tool.output_too_large", f"The output of {call.name} is too large.", len(result.invocations)
            )
        return ToolOutcome(value, attempts=len(result.invocations))

    async def _end(self, execution: ToolExecution, outcome: ToolOutcome) -> None:
        now = self._services.clock.now()
        async with self._database.transaction(fenced=True) as tx:
            await rows.end_tool(
                tx,
                execution.id,
                status=outcome.status,
                execution_outcome=outcome.execution_outcome,
                error_code=outcome.error_code,
                attempts=outcome.attempts,
                result=msgspec.json.encode(outcome.result),
                ended_at=now,
            )
            data = {
                "tool_execution_id": execution.id,
                "tool_call_id": execution.tool_call_id,
                "name": execution.name,
                "status": outcome.status,
                "error_code": outcome.error_code,
                "attempts": outcome.attempts,
            }
            await rows.note(tx, self._run.id, "tool.finished", data, now)
        self._services.feeds.publish(self._run, "tool.finished", **data)


def _raise_or_return(ended: ToolOutcome | BaseException) -> ToolOutcome:
    if isinstance(ended, BaseException):
        raise ended
    return ended


def _refused_call(code: str, text: str, attempts: int = 0) -> ToolOutcome:
    return ToolOutcome(_error_result(text), Outcome.FAILED, code, attempts=attempts)


def _failed_call(name: str, failure: Failure, status: str, attempts: int) -> ToolOutcome:
    """The content that the plugin answered with, then why it failed. Input errors of the host help the model."""
    code = error_code(failure)
    text = failure.message if failure.code == Code.INVALID_INPUT else _failure_text(name, failure, code)
    left = failure.detail.get("result")
    content, structured = ([], None) if not isinstance(left, Mapping) else _left_output(left)
    result = {**_error_result(text, content), "structured_output": structured}
    outcome = failure.detail.get("execution_outcome", "known")
    return ToolOutcome(result, status, code, UNKNOWN_OUTCOME if outcome == UNKNOWN_OUTCOME else "known", attempts)


def _failure_text(name: str, failure: Failure, code: str) -> str:
    """The plugin's own message if it answered; messages of crashes and broken answers may quote its stderr."""
    if failure.origin != Origin.PLUGIN or failure.code not in ANSWERED or code.startswith(PROTOCOL):
        return f"The tool {name} failed: {code}."
    said = failure.message
    return f"The tool {name} failed: {said if len(said) <= MAX_MESSAGE else said[:MAX_MESSAGE] + '…'} ({code})"


def _left_output(left: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any] | None]:
    """The usable content and structured output of the result of a failure. Nothing has checked it."""
    content = left.get("content")
    items = [item for item in content if _is_content(item)] if isinstance(content, list) else []
    structured = left.get("structured_output")
    if not isinstance(structured, dict):
        return items, None
    return items or [{"type": "text", "text": msgspec.json.encode(structured).decode()}], structured


def _is_content(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("type"), str)


def _error_result(text: str, content: Sequence[Any] = ()) -> dict[str, Any]:
    return {"content": [*content, {"type": "text", "text": text}], "structured_output": None, "is_error": True}


def _result_block(call: ToolCall, execution: ToolExecution, outcome: ToolOutcome) -> Block:
    return {
        "kind": "tool_result",
        "content": outcome.result.get("content", []),
        "tool_call_id": call.id,
        "tool_execution_id": execution.id,
        "is_error": bool(outcome.result.get("is_error")),
        "structured_output": outcome.result.get("structured_output"),
    }


# Feeds.

FEED_DEPTH = 1024
"""Events a subscriber may lag behind: a long reply while its connection stalls for seconds."""

FeedEvent = dict[str, Any]

STARTED = "run.started"

LAGGED: FeedEvent = {"type": "feed.lagged"}
"""The last event for a slow subscriber; the timeline has the rest."""


class RunFeed:
    """The events of one run for one subscriber, until the run ends. The subscriber closes it."""

    def __init__(self, unsubscribe: Callable[[RunFeed], None]) -> None:
        self._unsubscribe = unsubscribe
        self.org_id: str | None = None
        """The org of its run, if another gateway may drive it."""
        self.is_relayed = False
        """Whether it got events that another gateway has sent."""
        self._started = False
        self._events: asyncio.Queue[FeedEvent | None] = asyncio.Queue(FEED_DEPTH + 2)
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Unsubscribe."""
        self._unsubscribe(self)

    def put(self, event: FeedEvent) -> None:
        if self._over or (event["type"] == STARTED and self._started):
            return
        self._started = self._started or event["type"] == STARTED
        if self._events.qsize() >= FEED_DEPTH:
            self.end(LAGGED)
        else:
            self._events.put_nowait(event)

    def lose(self, number: int | None) -> None:
        """Report events that another gateway had and that did not get here."""
        self.put({"type": "lost", "events": number})

    def end(self, last: FeedEvent | None = None) -> None:
        """End the feed."""
        if self._over:
            return
        self._over = True
        if last is not None:
            self._events.put_nowait(last)
        self._events.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[FeedEvent]:
        while (event := await self._events.get()) is not None:
            yield event


class RunFeeds:
    """Feeds of all runs."""

    def __init__(self) -> None:
        self._subscribers: dict[str, list[RunFeed]] = {}
        self.share: Callable[[Run, FeedEvent], object] = lambda run, event: None
        """Called with each event of a run that is driven here."""

    def subscribe(self, run_id: str) -> RunFeed:
        """Subscribe to a run from now on."""
        feed = RunFeed(lambda feed: self._unsubscribe(run_id, feed))
        self._subscribers.setdefault(run_id, []).append(feed)
        return feed

    def _unsubscribe(self, run_id: str, feed: RunFeed) -> None:
        feeds = self._subscribers.get(run_id, [])
        if feed in feeds:
            feeds.remove(feed)
        if not feeds:
            self._subscribers.pop(run_id, None)

    @property
    def watched(self) -> frozenset[str]:
        """Ids of runs with subscribers."""
        return frozenset(self._subscribers)

    def publish(self, run: Run, type: str, /, **data: Any) -> None:
        """An event of a run that is driven here."""
        event = {"type": type, **data}
        self.show(run.id, event)
        self.share(run, event)

    def show(self, run_id: str, event: FeedEvent, *, is_relayed: bool = False) -> None:
        """Send an event to the subscribers of a run here."""
        for feed in self._subscribers.get(run_id, ()):
            feed.is_relayed = feed.is_relayed or is_relayed
            feed.put(event)

    def lose(self, org_id: str | None, number: int | None) -> None:
        """Report lost events of other gateways about an org, or about any, to subscribers of its runs."""
        for feed in [feed for feeds in self._subscribers.values() for feed in feeds]:
            if feed.org_id is not None and org_id in (None, feed.org_id):
                feed.lose(number)

    def end(self, run_id: str) -> None:
        """End all feeds of a run."""
        for feed in self._subscribers.pop(run_id, ()):
            feed.end()


# Turns.

MODEL_MARGIN = 1.0
"""Seconds that a model call may outlast its run, so that the run is reported as timed out."""


class Ending(msgspec.Struct, frozen=True):
    """The end of a run, with the blocks of its last turn."""

    status: str
    stop_reason: str
    error: dict[str, Any] | None = None
    blocks: list[Block] = msgspec.field(default_factory=list)
    usage: Usage = msgspec.field(default_factory=Usage)
    turns: int = 0

    @property
    def reply(self) -> str:
        """The last text of the model."""
        return text_of(self.blocks)


class EndedElsewhere(Exception):
    """The run was ended by another gateway while we could not reach the database."""


def failed_ending(code: str, message: str) -> Ending:
    return Ending("failed", "error", {"code": code, "message": message})


class RunServices(msgspec.Struct, frozen=True):
    """Services that runs need."""

    database: Database
    llm: Callable[[], LlmRegistry]
    chains: Chains
    workers: Workers
    clock: Clock
    ids: Ids = new_id
    feeds: RunFeeds = msgspec.field(default_factory=RunFeeds)


class RunLoop:
    """The turns of one run."""

    def __init__(self, services: RunServices, run: Run) -> None:
        self._services = services
        self._run = run
        self._request = RunRequest.from_json(run.request)
        self._tools = RunTools(services, run, self._request)
        self._ends = asyncio.get_running_loop().time() + self._request.limits.timeout_ms / 1000
        self._blocks: list[Block] = []
        self._tool_count = 0

    async def drive(self) -> Ending:
        """Run all turns. Raises only cancellation."""
        try:
            async with asyncio.timeout_at(self._ends):
                return await self._turns()
        except TimeoutError:
            return Ending("timed_out", "timeout", {"code": "run.timeout", "message": "the run took too long"})
        except EndedElsewhere:
            return failed_ending("run.ended", "another server has ended the run")
        except CallFailed as error:
            return failed_ending(f"model.{error.failure.code}", error.failure.message)

    async def _turns(self) -> Ending:
        self._blocks = await retry_until_stored(self._read_chain)
        turn = 0
        while True:
            turn += 1
            reply = await self._ask()
            calls = [
                ToolCall(self._services.ids("call_"), call["name"], call["arguments"]) for call in reply.tool_calls
            ]
            stop = self._stop_reason(reply, turn, len(calls))
            if stop is not None:
                blocks = reply_blocks(reply.text, ())
                return Ending("completed", stop, blocks=blocks, usage=reply.usage, turns=1)
            unknown = await self._use_tools(turn, reply, calls)
            if unknown:
                return failed_ending("run.tool_outcome_unknown", "the outcome of a tool call is unknown")

    async def _read_chain(self) -> list[Block]:
        async with self._services.database.reading() as tx:
            return [decode_block(block) for block in await chain_rows.blocks(tx, self._run.chain_id)]

    def _stop_reason(self, reply: ChatReply, turn: int, calls: int) -> str | None:
        """Why the run stops after this reply; None: continue after the tools."""
        limits = self._request.limits
        if calls == 0:
            return "max_tokens" if reply.finish_reason == "length" else "end_turn"
        if turn >= limits.max_turns:
            return "max_turns"
        return "max_tool_calls" if self._tool_count + calls > limits.max_tool_calls else None

    # The model.

    async def _ask(self) -> ChatReply:
        """Ask the model once; subscribers see the reply as it streams."""
        assembly = Assembly()
        request = chat_request(self._request, self._blocks)
        seconds = self._left() + MODEL_MARGIN
        async with aclosing(self._services.llm().stream(self._request.provider, request, seconds)) as chunks:
            async for chunk in chunks:
                failure = assembly.add(chunk)
                if failure is not None:
                    raise CallFailed(failure)
                if chunk["type"] == "text_delta":
                    self._services.feeds.publish(self._run, "response.delta", delta=chunk["delta"])
        return assembly.finish()

    def _left(self) -> float:
        return max(0.0, self._ends - asyncio.get_running_loop().time())

    # The tools.

    async def _use_tools(self, turn: int, reply: ChatReply, calls: list[ToolCall]) -> bool:
        """Run the tools and append the turn to the chain; returns whether any outcome is unknown."""
        results, unknown = await self._tools.call(turn, calls, self._left())
        asked = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]
        blocks = [*reply_blocks(reply.text, asked), *results]
        await retry_until_stored(lambda: self._append(turn, reply.usage, blocks, len(calls)))
        self._blocks += blocks
        self._tool_count += len(calls)
        self._services.feeds.publish(self._run, "blocks.appended", blocks=blocks)
        return unknown

    async def _append(self, turn: int, usage: Usage, blocks: list[Block], tools: int) -> None:
        run, now = self._run, self._services.clock.now()
        async with self._services.database.transaction(fenced=True) as tx:
            chain = await chain_rows.find(tx, run.chain_id, lock=True)
            now_known = await rows.find(tx, run.id, lock=True)
            assert chain is not None and now_known is not None
            if now_known.status not in rows.UNFINISHED:
                raise EndedElsewhere(run.id)
            await self._services.chains.append(tx, chain, blocks, run.id)
            await rows.add_usage(tx, run.id, usage.prompt_tokens, usage.completion_tokens, turns=1, tools=tools)
            await rows.note(tx, run.id, "turn.completed", {"turn": turn, "usage": usage.to_json(), "tools": tools}, now)
