"""What a host of vai asks, as something to do: one class for each kind of export.

Owns what each kind is called with and what its result means, and which errors are outcomes of the work. Knows no
threads and no wire.
"""

from __future__ import annotations

from plugbay.model.errors import Code, Failure
from plugbay.sdk.invocation import InvocationContext, Setting
from plugbay.sdk.results import Deltas, checkpoint_of, harness_result, seed_result
from plugbay.sdk.runtime.dispatch import Duty, Streamed
from plugbay.sdk.work import Run, read_compaction
from plugbay.wire.strict_json import stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from plugbay.model.operations import Compact, RunHarness, RunHook
    from plugbay.sdk.runtime.dispatch import MakeContext, Send
    from plugbay.sdk.services.cancellation import Cancellation
    from plugbay.sdk.types.handlers import Compactor, Export, Handler, Harness, Tool
    from plugbay.sdk.work import Compaction

MAX_CHECKPOINT = 256 * 1024
"""Bytes of a checkpoint: what hosts keep. It says where a program is, not what it found."""


class Order:
    """One request: what came along with it, whether it is to stop, and what frees its place among those that run."""

    __slots__ = ("cancellation", "plugin_id", "release", "setting")

    def __init__(
        self, plugin_id: str, setting: Setting, cancellation: Cancellation, release: Callable[[], None]
    ) -> None:
        self.plugin_id = plugin_id
        self.setting = setting
        self.cancellation = cancellation
        self.release = release


class Invocation(Duty):
    """Something to do under a deadline. What is cancelled before its turn is never begun."""

    __slots__ = ("order",)

    def __init__(self, order: Order, handler: Handler, *arguments: Any, keywords: dict[str, Any] | None = None) -> None:
        super().__init__(handler, *arguments, keywords=keywords, stop=order.cancellation)
        self.order = order

    def call(self, context: MakeContext, send: Send) -> Any:
        return super().call(lambda said, stop: self.context(send), send)

    def context(self, send: Send, compaction: Compaction | None = None) -> InvocationContext:
        order = self.order
        return InvocationContext(
            order.plugin_id,
            order.setting,
            order.cancellation,
            send=send,
            keep=self.keep,
            awaitable=self.handler.is_async,
            compaction=compaction,
        )

    def keep(self, data: Any) -> dict[str, Any]:
        raise TypeError("only a harness has checkpoints")

    def failure(self, error: BaseException) -> Failure:
        return _outcome(super().failure(error))

    def over(self) -> None:
        super().over()
        self.order.release()


def _outcome(failure: Failure) -> Failure:
    """How the work ended. To refuse a request is not for handlers, whatever they raise."""
    if failure.code in (Code.TOOL_NOT_EXPOSED, Code.OVERLOADED, Code.FRAME_TOO_LARGE):
        return Failure(
            Code.PLUGIN_ERROR,
            failure.message,
            origin=failure.origin,
            detail=failure.detail,
            retryable=failure.retryable,
            retry_after_ms=failure.retry_after_ms,
        )
    return failure


class ToolInvocation(Invocation, Streamed):
    """A tool. What it yields is told as it comes. `promises`: it has an output schema, for every result to meet."""

    __slots__ = ("promises", "tool")

    def __init__(self, order: Order, tool: Tool, keywords: dict[str, Any]) -> None:
        super().__init__(order, tool, keywords=keywords)
        self.tool = tool
        self.promises = tool.output_schema is not None

    def collector(self, send: Send) -> Deltas:
        return Deltas(send, self.stop.check, self.tool.written, self.promises)


def of_tool(order: Order, tool: Tool, given: Any) -> Invocation | Failure:
    keywords = tool.arguments(given, order.setting.context)
    return keywords if isinstance(keywords, Failure) else ToolInvocation(order, tool, keywords)


class HookInvocation(Invocation):
    """A hook; that it returned is all that a host wants to know."""

    __slots__ = ()

    def settle(self, value: Any, send: Send) -> None:
        return None


def of_hook(order: Order, hooks: Mapping[str, Export], op: RunHook) -> Invocation | Failure:
    """The handler of an event, among those that are one export."""
    kind = op.event.get("type")
    hook = hooks.get(kind) if isinstance(kind, str) else None
    if hook is None:
        what = f"the hook {op.hook} has no handler of {kind!r:.100}; it has {', '.join(hooks)}"
        return Failure(Code.NOT_FOUND, what, detail={"plugin_code": "hook.unknown_event"})
    return HookInvocation(order, hook, op.event)


class CompactorInvocation(Invocation):
    """A compactor. The conversation is read when its turn comes: it may be a large file."""

    __slots__ = ("_blocks", "_compaction", "_request")

    _blocks: list[Any]
    _compaction: Compaction

    def __init__(self, order: Order, compactor: Compactor, op: Compact) -> None:
        super().__init__(order, compactor)
        self._request = op.request

    def call(self, context: MakeContext, send: Send) -> Any:
        self._blocks, self._compaction = read_compaction(self._request, self.order.setting.scratch)
        self.arguments = (list(self._blocks),)
        return super().call(context, send)

    def context(self, send: Send, compaction: Compaction | None = None) -> InvocationContext:
        return super().context(send, self._compaction)

    def settle(self, value: Any, send: Send) -> dict[str, Any]:
        return seed_result(value, self._blocks, self._compaction)


class HarnessInvocation(Invocation):
    """A harness. However it ends, the last place that it could go on from is told."""

    __slots__ = ("_fidelity", "_kept")

    def __init__(self, order: Order, harness: Harness, op: RunHarness) -> None:
        super().__init__(order, harness, Run(op.request))
        self._fidelity = harness.fidelity
        self._kept: Any = None

    def keep(self, data: Any) -> dict[str, Any]:
        checkpoint = checkpoint_of(self._fidelity, data)
        size = len(stdlib_codec().encode(checkpoint))
        if size > MAX_CHECKPOINT:
            raise ValueError(f"a checkpoint of {size:,} bytes is more than the {MAX_CHECKPOINT:,} that hosts keep")
        self._kept = data
        return checkpoint

    def settle(self, value: Any, send: Send) -> dict[str, Any]:
        return harness_result(value, self._fidelity, self._kept, self.order.setting.scratch)

    def failure(self, error: BaseException) -> Failure:
        failure = super().failure(error)
        if self._kept is None:
            return failure
        return failure.with_detail(result={"checkpoint": checkpoint_of(self._fidelity, self._kept)})
