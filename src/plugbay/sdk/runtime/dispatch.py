"""What a host asks, as something to do: which of the author's functions, with what, and what its result means.

Owns the conventions of the author's API: what a hook, a channel, a model or a vector store returns, and what that is as
an answer. Knows no threads, no wire and no contract's numbers.
"""

from __future__ import annotations

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
from plugbay.sdk.errors import MethodMissing, failure_of
from plugbay.sdk.events import Event, covers
from plugbay.sdk.runtime.executor import REST
from plugbay.sdk.services.cancellation import Cancellation
from plugbay.sdk.types.handlers import Handler, Pieces, gathered

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
        """What makes one answer of what was returned, or of pieces of it."""

        def add(self, piece: Any) -> None: ...
        def whole(self, value: Any) -> Any: ...
        def end(self) -> Any: ...

    class Offers(Protocol):
        """What an author declared."""

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


class Task:
    """One thing to do for the host."""

    __slots__ = (
        "arguments",
        "concurrent",
        "handler",
        "keywords",
        "label",
        "lane",
        "number",
        "said",
        "shape",
        "stop",
        "then",
        "weight",
    )

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
        """Of the call that it answers; None for what nobody waits for."""
        self.label = label
        """What the host told us about, for whoever reads the log."""
        self.concurrent = concurrent
        self.lane = lane
        self.weight = weight
        """Where handlers take turns: whether this one does not, in which lane it waits, and how many bytes with it."""
        self.arguments = arguments
        self.keywords = keywords or {}
        self.shape = shape
        self.said = said
        """What the host says about the call: who it is for."""
        self.then = then
        """What else belongs to the answer; both are objects then, and this one's keys count."""
        self.stop = stop or Cancellation(local_deadline(handler))
        """Whether nobody wants it any more."""

    def call(self, context: MakeContext, send: Send) -> Any:
        """Call the author's function, unless nobody wants it any more; `context` makes its `ctx`, if it wants one."""
        self.stop.check()
        if self.handler.takes_ctx:
            return self.handler.function(*self.arguments, **self.keywords, ctx=context(self.said, self.stop))
        return self.handler.function(*self.arguments, **self.keywords)

    def settle(self, value: Any, send: Send) -> Any:
        """The answer that a returned value stands for; parts of it may be sent before."""
        return value if self.shape is None else self.shape(value)

    async def settle_later(self, value: Any, send: Send) -> Any:
        """The same for what an async function returned, or what a plain one returned to be awaited."""
        return self.settle(await value if hasattr(value, "__await__") else value, send)

    def failure(self, error: BaseException) -> Failure:
        """The answer that something raised stands for."""
        return failure_of(self.stop.meant(error))

    def cancel(self, why: str) -> None:
        """Nobody wants it any more; what does not look goes on."""
        self.stop.cancel(why)

    def over(self) -> None:
        """It is about to be answered, however it ended."""
        self.stop.end()


def local_deadline(handler: Handler) -> float | None:
    """When a handler should be done whose author says how long it may take, where the host does not say."""
    terms = getattr(handler, "terms", None)
    return None if terms is None or terms.timeout is None else monotonic() + terms.timeout


class Streamed(Task):
    """Something whose answer may come in pieces, and go out in pieces."""

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
    """A model's turn."""

    __slots__ = ("stream",)

    def __init__(self, handler: Handler, op: Chat) -> None:
        super().__init__(handler, op.request, op.model)
        self.stream = op.stream

    def collector(self, send: Send) -> Answer:
        return Answer(send if self.stream else None)

    def comes_in_pieces(self, value: Any) -> bool:
        return hasattr(value, "__iter__") and not isinstance(value, str | dict)


class ToolTask(Streamed):
    """A tool, of which hosts want the whole answer at once."""

    __slots__ = ()

    handler: Tool

    def settle(self, value: Any, send: Send) -> Any:
        return gathered(value, self.handler.written)

    def collector(self, send: Send) -> Pieces:
        return Pieces(self.handler.written)


class Dispatcher:
    """An author's declarations, by what a host may ask."""

    __slots__ = ("_offers", "_tools")

    def __init__(self, offers: Offers, tools: Mapping[str, Tool]) -> None:
        self._offers = offers
        self._tools = tools
        """By the name under which the contract offers them."""

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
        """What to do about a request."""
        try:
            return _PLANS[type(op)](self, op)
        except MethodMissing as error:
            return error.failure()

    def tasks_for(self, op: Operation) -> list[Task]:
        """What to do about what we are told: for an event, something for each handler whose pattern covers it."""
        if not isinstance(op, DeliverEvent):
            return []
        event = Event(op.topic, op.payload)
        return [
            Task(handler, event, label=op.topic)
            for pattern, handler in self._offers.events
            if pattern is None or covers(pattern, op.topic)
        ]

    def _tool(self, op: InvokeTool) -> Task | Failure:
        return _call(self._tools.get(op.tool), "tool", op.tool, op)

    def _method(self, op: CallMethod) -> Task | Failure:
        return _call(self._offers.methods.get(op.method), "method", op.method, op)

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


def _call(tool: Tool | None, what: str, name: str, op: InvokeTool | CallMethod) -> Task | Failure:
    if tool is None:
        return Failure(Code.TOOL_NOT_EXPOSED, f"there is no {what} {name!r}", origin=Origin.PLUGIN)
    keywords = tool.arguments(op.input, op.context)
    return keywords if isinstance(keywords, Failure) else ToolTask(tool, keywords=keywords, said=op.context)


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
    """What a hook returned, as an object; nothing lets things be."""
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
        raise TypeError(f"upsert and delete return how many records they touched, not {_kind(value)}")
    return {"count": value}


def _matches(value: Any) -> dict[str, list[Any]]:
    return {"matches": list(value)}


def _kind(value: Any) -> str:
    return type(value).__name__


class Answer:
    """An answer that grows piece by piece. With `send`, pieces go out as they come and the end repeats no text."""

    __slots__ = ("_calls", "_finish", "_send", "_texts", "_usage")

    def __init__(self, send: Callable[[dict[str, Any]], None] | None) -> None:
        self._send = send
        self._texts: list[str] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {"prompt_tokens": 0, "completion_tokens": 0}
        self._finish: dict[str, Any] | None = None

    def add(self, piece: Any) -> None:
        """One piece more; a `str` or a chunk object."""
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
        """The answer of a handler that returned everything at once."""
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
    """The arguments of a tool call: the JSON they are, or the text that no JSON could be made of."""
    from plugbay.wire.strict_json import Malformed, stdlib_codec

    try:
        return stdlib_codec().decode(text.encode()) if text else {}
    except (Malformed, UnicodeEncodeError):
        return text
