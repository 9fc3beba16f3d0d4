"""Dispatch: from an operation of the host to a task, which is a handler with its arguments and the form of its result.

Owns the conventions of the author's API: the results of hooks, channels, models and vector backends, and the answer
that this becomes. A model may return a text, a whole result, or pieces of either (`Answer`). Independent of threads and
contracts.
"""

from __future__ import annotations

from _thread import allocate_lock
from time import monotonic, time

from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.operations import (
    CallMethod,
    Chat,
    DeleteVectors,
    DeliverEvent,
    InvokeTool,
    RunHook,
    SearchVectors,
    SendOutbound,
    StartChannel,
    StopChannel,
    UpsertVectors,
)
from plugbay.model.topics import matches
from plugbay.sdk.errors import MethodMissing, failure_of
from plugbay.sdk.events import Event
from plugbay.sdk.services.cancellation import Cancellation
from plugbay.sdk.types.handlers import PLAIN, Handler, Pieces, join_pieces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol

    from plugbay.model.events import CallId
    from plugbay.model.operations import Operation
    from plugbay.sdk.context import Context
    from plugbay.sdk.types.handlers import Tool

    Send = Callable[[Any], None]
    MakeContext = Callable[[Mapping[str, Any] | None, Cancellation], Context]

    class Collector(Protocol):
        """Builds one answer from a returned value, or from its pieces."""

        def add(self, piece: Any) -> None: ...
        def whole(self, value: Any) -> Any: ...
        def end(self) -> Any: ...

    class Offers(Protocol):
        """The declarations that contracts share."""

        @property
        def methods(self) -> Mapping[str, Tool]: ...
        @property
        def events(self) -> Sequence[tuple[str | None, Handler]]: ...
        @property
        def hooks(self) -> Mapping[str, Handler]: ...
        @property
        def channels(self) -> Mapping[str, object]: ...
        @property
        def llm_providers(self) -> Mapping[str, Handler]: ...
        @property
        def vector_backends(self) -> Mapping[str, object]: ...


KEYS, MOUSE, REST = range(3)
"""The lanes of the serial queue, by priority."""


class Task:
    """One handler to run for the host, with its arguments."""

    __slots__ = (
        "_stop",
        "arguments",
        "concurrent",
        "handler",
        "keywords",
        "label",
        "lane",
        "number",
        "said",
        "shape",
        "then",
        "weight",
    )

    quiet = False
    """Whether no part of the answer is ever sent before the rest."""

    def __init__(
        self,
        handler: Handler,
        *arguments: Any,
        shape: Callable[[Any], Any] | None = None,
        keywords: dict[str, Any] | None = None,
        said: Mapping[str, Any] | None = None,
        then: Task | None = None,
        label: str = "",
        concurrent: bool = False,
        lane: int = REST,
        weight: int = 0,
        stop: Cancellation | None = None,
    ) -> None:
        self.handler = handler
        self.number: CallId | None = None
        """The id of the call that it answers; None for a notification."""
        self.label = label
        """The subject of a notification, for the log."""
        self.concurrent = concurrent
        self.lane = lane
        self.weight = weight
        """For the serial queue: `concurrent` bypasses it; the lane; the bytes held while waiting."""
        self.arguments = arguments
        self.keywords = keywords or {}
        self.shape = shape
        self.said = said
        """The call's context as the host sent it."""
        self.then = then
        """A second task of the same answer; its keys override those of the first."""
        deadline = None if stop is not None else local_deadline(handler)
        self._stop = stop if deadline is None else Cancellation(deadline)

    @property
    def stop(self) -> Cancellation:
        """The cancellation of the call. Few calls need one, so it is made when it is asked for, by any thread."""
        if self._stop is None:
            with _MAKING:
                if self._stop is None:
                    self._stop = Cancellation()
        return self._stop

    def call(self, context: MakeContext, send: Send) -> Any:
        """Call the handler unless the call is cancelled; `context` makes its `ctx` if it takes one."""
        self.check()
        if self.handler.takes_ctx:
            return self.handler.function(*self.arguments, **self.keywords, ctx=context(self.said, self.stop))
        return self.handler.function(*self.arguments, **self.keywords)

    def check(self) -> None:
        """Raise `Cancelled` if the call is cancelled."""
        if self._stop is not None:
            self._stop.check()

    def settle(self, value: Any, send: Send) -> Any:
        """Turn the returned value into the answer; parts of it may be sent first."""
        return value if self.shape is None else self.shape(value)

    async def settle_later(self, value: Any, send: Send) -> Any:
        """The same for an awaitable or an async iterator."""
        return self.settle(await value if hasattr(value, "__await__") else value, send)

    def failure(self, error: BaseException) -> Failure:
        """Turn an exception into the answer."""
        return failure_of(error if self._stop is None else self._stop.meant(error))

    def cancel(self, why: str) -> None:
        """Cancel it; a plain handler that never checks keeps running."""
        self.stop.cancel(why)

    def over(self) -> None:
        """Called just before the answer is sent."""
        if self._stop is not None:
            self._stop.end()


_MAKING = allocate_lock()
"""Held while the cancellation of a task is made."""


def local_deadline(handler: Handler) -> float | None:
    """The deadline from the export's `timeout=`, where the host sets none."""
    terms = getattr(handler, "terms", None)
    return None if terms is None or terms.timeout is None else monotonic() + terms.timeout


class Streamed(Task):
    """A task whose handler may yield pieces, which may be sent as they come."""

    __slots__ = ()

    def collector(self, send: Send) -> Collector:
        raise NotImplementedError

    def comes_in_pieces(self, value: Any) -> bool:
        return hasattr(value, "__next__")

    def settle(self, value: Any, send: Send) -> Any:
        collector = self.collector(send)
        if not self.comes_in_pieces(value):
            return collector.whole(value)
        for piece in value:
            collector.add(piece)
        return collector.end()

    async def settle_later(self, value: Any, send: Send) -> Any:
        if hasattr(value, "__await__"):
            value = await value
        if not hasattr(value, "__aiter__"):
            return self.settle(value, send)
        collector = self.collector(send)
        async for piece in value:
            collector.add(piece)
        return collector.end()


class ChatTask(Streamed):
    """A chat request to a model."""

    __slots__ = ("stream",)

    def __init__(self, handler: Handler, op: Chat) -> None:
        super().__init__(handler, op.request, op.model)
        self.stream = op.stream

    def collector(self, send: Send) -> Answer:
        return Answer(send if self.stream else None)

    def comes_in_pieces(self, value: Any) -> bool:
        return hasattr(value, "__iter__") and not isinstance(value, str | dict)


class ToolCall(Streamed):
    """The task of a tool: made for every call, so it has no defaults to go through."""

    __slots__ = ()

    handler: Tool

    def __init__(
        self,
        tool: Tool,
        keywords: dict[str, Any],
        said: Mapping[str, Any] | None = None,
        stop: Cancellation | None = None,
    ) -> None:
        self.handler = tool
        self.number = None
        self.label = ""
        self.concurrent = False
        self.lane = REST
        self.weight = 0
        self.arguments = ()
        self.keywords = keywords
        self.shape = None
        self.said = said
        self.then = None
        timeout = tool.terms.timeout
        self._stop = stop if timeout is None or stop is not None else Cancellation(monotonic() + timeout)


class ToolTask(ToolCall):
    """A tool call that is answered as a whole."""

    __slots__ = ()

    quiet = True

    def settle(self, value: Any, send: Send) -> Any:
        if type(value) in PLAIN and self.handler.plainly.gives:
            return value
        return join_pieces(value, self.handler.written)

    def collector(self, send: Send) -> Pieces:
        return Pieces(self.handler.written)


class Dispatcher:
    """Finds the task for each operation of the host."""

    __slots__ = ("_offers", "_tools")

    def __init__(self, offers: Offers, tools: Mapping[str, Tool]) -> None:
        self._offers = offers
        self._tools = tools
        """Tools by their names in the contract."""

    def serves(self) -> frozenset[type]:
        """The operations that have a handler."""
        offers = self._offers
        served = (
            (self._tools, {InvokeTool}),
            (offers.methods, {CallMethod}),
            (offers.events, {DeliverEvent}),
            (offers.hooks, {RunHook}),
            (offers.channels, {StartChannel, StopChannel, SendOutbound}),
            (offers.llm_providers, {Chat}),
            (offers.vector_backends, {UpsertVectors, SearchVectors, DeleteVectors}),
        )
        return frozenset(op for declared, ops in served if declared for op in ops)

    def task_for(self, op: Operation) -> Task | Failure:
        """The task for a request, or a failure."""
        try:
            return _PLANS[type(op)](self, op)
        except MethodMissing as error:
            return error.failure()

    def tasks_for(self, op: Operation) -> list[Task]:
        """The tasks for a notification: for an event, one for each handler whose pattern matches."""
        if not isinstance(op, DeliverEvent):
            return []
        event = Event(op.topic, op.payload)
        return [
            Task(handler, event, label=op.topic)
            for pattern, handler in self._offers.events
            if pattern is None or matches(pattern, op.topic)
        ]

    def _tool(self, op: InvokeTool) -> Task | Failure:
        tool = self._tools.get(op.tool)
        if tool is None:
            return _not_exposed("tool", op.tool)
        keywords = tool.arguments(op.input, op.context)
        return keywords if isinstance(keywords, Failure) else ToolTask(tool, keywords, op.context)

    def _method(self, op: CallMethod) -> Task | Failure:
        method = self._offers.methods.get(op.method)
        if method is None:
            return _not_exposed("method", op.method)
        keywords = method.arguments(op.input, op.context)
        return keywords if isinstance(keywords, Failure) else ToolTask(method, keywords, op.context)

    def _hook(self, op: RunHook) -> Task:
        return Task(_named(self._offers.hooks, "hook", op.hook), op.event, shape=hook_answer, said=op.context)

    def _start(self, op: StartChannel) -> Task:
        return Task(_part(self._offers.channels, "channel", op.kind, "start"), op.instance)

    def _stop(self, op: StopChannel) -> Task:
        return Task(_part(self._offers.channels, "channel", op.kind, "stop"))

    def _send(self, op: SendOutbound) -> Task:
        return Task(_part(self._offers.channels, "channel", op.kind, "send"), op.message, shape=_receipt)

    def _chat(self, op: Chat) -> Task:
        return ChatTask(_named(self._offers.llm_providers, "model provider", op.provider), op)

    def _upsert(self, op: UpsertVectors) -> Task:
        return Task(self._store(op.backend, "upsert"), op.collection, op.records, shape=_count)

    def _search(self, op: SearchVectors) -> Task:
        return Task(self._store(op.backend, "search"), op.collection, op.query, shape=_matches)

    def _delete(self, op: DeleteVectors) -> Task:
        return Task(self._store(op.backend, "delete"), op.collection, op.ids, shape=_count)

    def _store(self, backend: str, method: str) -> Handler:
        return _part(self._offers.vector_backends, "vector backend", backend, method)


_PLANS: dict[type, Callable[[Dispatcher, Any], Task | Failure]] = {
    InvokeTool: Dispatcher._tool,
    CallMethod: Dispatcher._method,
    RunHook: Dispatcher._hook,
    StartChannel: Dispatcher._start,
    StopChannel: Dispatcher._stop,
    SendOutbound: Dispatcher._send,
    Chat: Dispatcher._chat,
    UpsertVectors: Dispatcher._upsert,
    SearchVectors: Dispatcher._search,
    DeleteVectors: Dispatcher._delete,
}


def _not_exposed(what: str, name: str) -> Failure:
    return Failure(Code.TOOL_NOT_EXPOSED, f"there is no {what} {name!r}", origin=Origin.PLUGIN)


def _named(declared: Mapping[str, Any], what: str, name: str) -> Any:
    if name not in declared:
        raise MethodMissing(f"there is no {what} {name!r}")
    return declared[name]


def _part(declared: Mapping[str, object], what: str, name: str, method: str) -> Handler:
    function = getattr(_named(declared, what, name), method, None)
    if not callable(function):
        raise MethodMissing(f"the {what} {name!r} has no {method}")
    return Handler(function)


def hook_answer(value: Any) -> dict[str, Any]:
    """A hook's result as an object; None changes nothing."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"a hook returns None, a dict or one of block, transform, override; not {_kind(value)}")
    return value


def _receipt(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"message_id": value, "sent_at_unix": int(time())}
    if not isinstance(value, dict):
        raise TypeError(f"send returns the id of the message or the whole receipt, not {_kind(value)}")
    return value


def _count(value: Any) -> dict[str, int]:
    if type(value) is not int:
        raise TypeError(f"upsert and delete return the number of changed records, not {_kind(value)}")
    return {"count": value}


def _matches(value: Any) -> dict[str, list[Any]]:
    return {"matches": list(value)}


def _kind(value: Any) -> str:
    return type(value).__name__


class Answer:
    """A model's answer, built from pieces. With `send`, pieces are sent as they come and the end repeats no text."""

    __slots__ = ("_calls", "_finish", "_send", "_texts", "_usage")

    def __init__(self, send: Callable[[dict[str, Any]], None] | None) -> None:
        self._send = send
        self._texts: list[str] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {"prompt_tokens": 0, "completion_tokens": 0}
        self._finish: dict[str, Any] | None = None

    def add(self, piece: Any) -> None:
        """Add a piece: a `str` or a chunk object."""
        chunk = {"type": "text_delta", "delta": piece} if isinstance(piece, str) else piece
        if not isinstance(chunk, dict) or not isinstance(chunk.get("type"), str):
            raise TypeError(f"a piece of an answer is a str or a chunk with a type, not {type(piece).__name__}")
        if chunk["type"] == "end":
            self._finish = chunk.get("finish_reason")
            return  # the answer itself is the end; a host must not see two
        self._keep(chunk)
        if self._send is not None:
            self._send(chunk)

    def _keep(self, chunk: dict[str, Any]) -> None:
        match chunk["type"]:
            case "usage":
                self._usage = chunk["usage"]
            case "tool_call_start":
                self._calls[chunk["id"]] = {"id": chunk["id"], "name": chunk["name"], "arguments": ""}
            case "tool_call_args_delta":
                self._calls[chunk["id"]]["arguments"] += chunk["delta"]
            case "text_delta" if self._send is None:
                self._texts.append(chunk["delta"])

    def whole(self, value: Any) -> dict[str, Any]:
        """The answer of a handler that returned one value."""
        if isinstance(value, str):
            self.add(value)
            return self.end()
        if not isinstance(value, dict):
            raise TypeError(f"a model answers with a str, a dict or pieces of them, not {type(value).__name__}")
        if self._send is None:
            return value
        content = value.get("content") or {}
        if content.get("type") != "text":
            return value
        self.add(content.get("text") or "")
        return {**value, "content": {"type": "text", "text": ""}}

    def end(self) -> dict[str, Any]:
        """The full result, after the last piece."""
        return {"content": self._content(), "usage": self._usage, "finish_reason": self._finish or self._default()}

    def _default(self) -> dict[str, Any]:
        return {"kind": "tool_use" if self._calls else "stop"}

    def _content(self) -> dict[str, Any]:
        if self._calls and self._send is None:  # there is room for one of the two, and the calls matter more
            calls = [{**call, "arguments": _value(call["arguments"])} for call in self._calls.values()]
            return {"type": "tool_calls", "tool_calls": calls}
        return {"type": "text", "text": "".join(self._texts)}


def _value(text: str) -> Any:
    """The arguments of a tool call, as JSON; as text if they are not JSON."""
    from plugbay.wire.strict_json import Malformed, stdlib_codec

    try:
        return stdlib_codec().decode(text.encode()) if text else {}
    except (Malformed, UnicodeEncodeError):
        return text
