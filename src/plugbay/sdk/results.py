"""What tools, compactors and harnesses give back, each as the object that a host of vai expects.

    a text                              content of a tool; everything that nobody pinned, of a compactor; a summary
    an object                           a tool's structured output, with its JSON as the text
    ToolResult, Seed, HarnessResult     all of it, as the author says

Owns those shapes. Knows no threads and no wire.
"""

from __future__ import annotations

from plugbay.model.values import Value
from plugbay.sdk.errors import INTERNAL, HandlerError, ToolError, ToolExecutionFailed, ToolUnavailable
from plugbay.sdk.services.artifacts import refer_to
from plugbay.sdk.types.handlers import Pieces
from plugbay.wire.strict_json import Unencodable, stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from plugbay.sdk.work import Compaction

    Content = str | Iterable[str | Mapping[str, Any]]

TOKEN_CHARS = 4
"""Characters of a token, roughly: a host counts for itself, and an author who wants to know looks here."""

RESULT = "result"
"""Where a value that is no object stands in structured output, which is one."""

KINDS = {"system": "system", "user": "input", "assistant": "response", "tool": "tool_result"}
"""The kind of block that a message is, by whose it is."""


# Tools.


class ToolResult(Value):
    """Everything a tool can say: content for the model, an object for programs, and whether it went wrong.

    With `is_error` the tool has run, and tells the model what went wrong; raise to say that it could not run.
    `retryable` is for tools whose effect allows it.
    """

    __slots__ = ("content", "is_error", "retryable", "structured_output")

    def __init__(
        self,
        content: Content = (),
        structured_output: Mapping[str, Any] | None = None,
        *,
        is_error: bool = False,
        retryable: bool = False,
    ) -> None:
        self.content = content
        self.structured_output = structured_output
        self.is_error = is_error
        self.retryable = retryable

    def __tool_value__(self) -> Any:
        """The same for hosts that know values and errors."""
        items = items_of(self.content)
        texts = [item.get("text") for item in items if item.get("type") == "text"]
        text = "".join(str(text) for text in texts)
        if self.is_error:
            raise (ToolUnavailable if self.retryable else ToolExecutionFailed)(text)
        if self.structured_output is not None:
            return dict(self.structured_output)
        return text if len(texts) == len(items) else items


def tool_result(value: Any, structured: bool = False) -> dict[str, Any]:
    """The `result` of a tool that returned `value`; where `structured` output is promised, a text is one, too."""
    result = value if isinstance(value, ToolResult) else _tool_result(value, structured)
    content, output = items_of(result.content), result.structured_output
    if output is not None and not content:
        content = items_of(as_text(output))
    return {
        "content": content,
        **({} if output is None else {"structured_output": output}),
        "is_error": result.is_error,
        "retryable": result.retryable,
    }


def as_text(output: Mapping[str, Any]) -> str:
    """Structured output as JSON; raises `ToolError` where it has no such form."""
    try:
        return stdlib_codec().encode(output).decode()
    except Unencodable as error:
        raise ToolError(f"the result cannot be sent: {error}", INTERNAL) from None


def _tool_result(value: Any, structured: bool) -> ToolResult:
    """Structured output is an object; what is none is in one, as its `result`."""
    output = value if isinstance(value, dict) else {RESULT: value}
    if value is None or isinstance(value, str):
        return ToolResult(value or (), output if structured else None)
    return ToolResult((), output)


def items_of(content: Content) -> list[dict[str, Any]]:
    """Content as a list of its items; a text is one."""
    pieces = [content] if isinstance(content, str) else content
    return [{"type": "text", "text": piece} if isinstance(piece, str) else dict(piece) for piece in pieces]


class Deltas(Pieces):
    """What a tool yields, told to the host piece by piece; in the end it has the whole."""

    __slots__ = ("_check", "_send", "_structured")

    def __init__(
        self,
        send: Callable[[Any], None],
        check: Callable[[], None],
        write: Callable[[Any], Any] = lambda value: value,
        structured: bool = False,
    ) -> None:
        super().__init__(write)
        self._send = send
        self._check = check
        self._structured = structured

    def add(self, piece: Any) -> None:
        self._check()
        if not isinstance(piece, str | dict | ToolResult):
            raise TypeError(f"a tool yields a str, an item of content or a ToolResult, not {type(piece).__name__}")
        super().add(piece)
        if not isinstance(piece, ToolResult):
            self._send({"type": "output_delta", "content": items_of([piece])})

    def whole(self, value: Any) -> dict[str, Any]:
        return tool_result(value if isinstance(value, ToolResult) else self._write(value), self._structured)

    def end(self) -> dict[str, Any]:
        if self._whole is not None:
            return self.whole(self._whole)
        parts = merged(self._pieces) or [""]
        text = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else None
        return tool_result(ToolResult(parts) if text is None else text, self._structured)


def merged(pieces: Sequence[str | Mapping[str, Any]]) -> list[str | Mapping[str, Any]]:
    """Texts that follow one another are one."""
    parts: list[str | Mapping[str, Any]] = []
    for piece in pieces:
        last = parts[-1] if parts else None
        if isinstance(piece, str) and isinstance(last, str):
            parts[-1] = last + piece
        else:
            parts.append(piece)
    return parts


# Compactors.


class Seed(Value):
    """What a conversation is to begin with from now on, and what is to be said about it."""

    __slots__ = ("blocks", "summary")

    def __init__(self, blocks: Iterable[Any], summary: str = "") -> None:
        self.blocks = blocks
        self.summary = summary


class Declined(HandlerError):
    """A compactor returned nothing, where somebody has to do it."""

    kind = "compactor.declined"


def seed_result(value: Any, blocks: Sequence[Any], compaction: Compaction) -> dict[str, Any]:
    """The `result` of a compactor that was given `blocks` and returned `value`."""
    if value is None:
        raise Declined("the compactor leaves this conversation as it is")
    seed = _seed(value, blocks, compaction)
    seed_blocks = [_block(block) for block in seed.blocks]
    length = len(stdlib_codec().encode(seed_blocks))
    return {
        "seed_blocks": seed_blocks,
        "summary": {"text": seed.summary},
        "diagnostics": {
            "input_tokens_estimate": compaction.token_estimate,
            "output_tokens_estimate": length // TOKEN_CHARS,
        },
    }


def _seed(value: Any, blocks: Sequence[Any], compaction: Compaction) -> Seed:
    if isinstance(value, Seed):
        return value
    if isinstance(value, str):
        return Seed([*_kept(blocks, compaction), value], value)
    if not isinstance(value, list | tuple):
        raise TypeError(f"a compactor returns blocks, a text, a Seed or None, not {type(value).__name__}")
    return Seed(value)


def _kept(blocks: Sequence[Any], compaction: Compaction) -> list[Any]:
    """What stays beside a text that stands for everything: what the system said, and what is pinned."""
    system = [block for block in blocks if isinstance(block, dict) and block.get("kind") == "system"]
    kept = system if compaction.policy.get("retain_system", True) else []
    return [*kept, *(item for item in compaction.pinned if isinstance(item, dict) and item not in kept)]


def _block(block: Any) -> dict[str, Any]:
    """A block as it is; a text is said to the agent, and a message has its kind by whose it is."""
    if isinstance(block, str):
        block = {"kind": "input", "content": block}
    if not isinstance(block, dict):
        raise TypeError(f"a block is an object or a text, not {type(block).__name__}")
    if "kind" not in block and block.get("role") in KINDS:
        rest = {name: value for name, value in block.items() if name != "role"}
        block = {"kind": KINDS[block["role"]], **rest}
    content = block.get("content")
    return {**block, "content": items_of(content)} if isinstance(content, str) else block


# Harnesses.


class HarnessResult(Value):
    """How a program ended: a summary, where it could go on, and files that are to be kept.

    `checkpoint` is any JSON; without one, the last that `ctx.checkpoint` took counts. `artifacts` are paths of files in
    `ctx.scratch`, or whole references.
    """

    __slots__ = ("artifacts", "checkpoint", "summary")

    def __init__(
        self, summary: str | dict[str, Any] = "", checkpoint: Any = None, artifacts: Iterable[Any] = ()
    ) -> None:
        self.summary = summary
        self.checkpoint = checkpoint
        self.artifacts = artifacts


def harness_result(value: Any, fidelity: str, kept: Any, scratch: str | None) -> dict[str, Any]:
    """The `result` of a harness that returned `value`; `kept` is the data of its last checkpoint."""
    result = _harness_result(value)
    data = kept if result.checkpoint is None else result.checkpoint
    return {
        **({} if data is None else {"checkpoint": checkpoint_of(fidelity, data)}),
        "summary": result.summary if isinstance(result.summary, dict) else {"text": result.summary},
        "artifacts": [dict(item) if isinstance(item, dict) else refer_to(scratch, item) for item in result.artifacts],
    }


def _harness_result(value: Any) -> HarnessResult:
    if isinstance(value, HarnessResult):
        return value
    if value is None or isinstance(value, str):
        return HarnessResult(value or "")
    if not isinstance(value, dict):
        raise TypeError(f"a harness returns a text, a dict, a HarnessResult or None, not {type(value).__name__}")
    return HarnessResult(**value)


def checkpoint_of(fidelity: str, data: Any) -> dict[str, Any]:
    return {"kind": fidelity, "data": data}
