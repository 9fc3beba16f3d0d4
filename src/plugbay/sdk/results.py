"""Values that handlers of tools, hooks, compactors and harnesses take and return, and the objects that hosts expect.

    a text                              content of a tool; a compactor's summary of all blocks not pinned; a summary
    an object                           a tool's structured output, with its JSON as the text
    ToolResult, Seed, HarnessResult     the complete result
    block, transform, inject, override  the answers of a hook

Artifacts are files in the scratch folder, referenced as `{path, media_type, size_bytes, sha256}`; a path is relative
and never leaves the folder.
"""

from __future__ import annotations

import os
import stat

from plugbay.model.values import Value
from plugbay.sdk.errors import INTERNAL, HandlerError, ToolError, ToolExecutionFailed, ToolUnavailable
from plugbay.sdk.types.handlers import Pieces
from plugbay.wire.strict_json import Malformed, Unencodable, stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    Content = str | Iterable[str | Mapping[str, Any]]

TOKEN_CHARS = 4
"""Characters per token, roughly; a host counts tokens itself."""

RESULT = "result"
"""The key of a value that is not an object, in structured output."""

KINDS = {"system": "system", "user": "input", "assistant": "response", "tool": "tool_result"}
"""The kind of block for the role of a message."""


# Tools.


class ToolResult(Value):
    """The complete result of a tool: content for the model, an object for programs, and the error flag.

    With `is_error` the tool has run and tells the model its error; raise an exception if it could not run.
    `retryable` is for tools whose effect allows it. `artifacts` are paths of files in `ctx.scratch`, or whole
    references; only hosts of vai take them.
    """

    __slots__ = ("artifacts", "content", "is_error", "retryable", "structured_output")

    def __init__(
        self,
        content: Content = (),
        structured_output: Mapping[str, Any] | None = None,
        *,
        is_error: bool = False,
        retryable: bool = False,
        artifacts: Iterable[Any] = (),
    ) -> None:
        self.content = content
        self.structured_output = structured_output
        self.is_error = is_error
        self.retryable = retryable
        self.artifacts = artifacts

    def __tool_value__(self) -> Any:
        """The same for hosts with plain values and errors."""
        items = content_items(self.content)
        texts = [item.get("text") for item in items if item.get("type") == "text"]
        text = "".join(str(text) for text in texts)
        if self.is_error:
            raise (ToolUnavailable if self.retryable else ToolExecutionFailed)(text)
        if self.structured_output is not None:
            return dict(self.structured_output)
        return text if len(texts) == len(items) else items


def tool_result(value: Any, structured: bool = False, scratch: str | None = None) -> dict[str, Any]:
    """The `result` of a tool that returned `value`; where `structured` output is promised, a text is one, too."""
    result = value if isinstance(value, ToolResult) else _tool_result(value, structured)
    content, output = content_items(result.content), result.structured_output
    if output is not None and not content:
        content = content_items(as_text(output))
    artifacts = _references(result.artifacts, scratch)
    return {
        "content": content,
        **({} if output is None else {"structured_output": output}),
        "is_error": result.is_error,
        "retryable": result.retryable,
        **({"artifacts": artifacts} if artifacts else {}),
    }


def _references(artifacts: Iterable[Any], scratch: str | None) -> list[dict[str, Any]]:
    """Artifacts as references; an artifact is a path in the scratch folder, or a reference already."""
    return [dict(item) if isinstance(item, dict) else make_reference(scratch, item) for item in artifacts]


_CODEC = stdlib_codec()
"""Made once: that takes longer than a call."""


def as_text(output: Mapping[str, Any]) -> str:
    """Structured output as JSON; raises `ToolError` if it has no JSON form."""
    try:
        return _CODEC.encode(output).decode()
    except Unencodable as error:
        raise ToolError(f"the result cannot be sent: {error}", INTERNAL) from None


def _tool_result(value: Any, structured: bool) -> ToolResult:
    """Structured output is an object; other values go under its key `result`."""
    output = value if isinstance(value, dict) else {RESULT: value}
    if value is None or isinstance(value, str):
        return ToolResult(value or (), output if structured else None)
    return ToolResult((), output)


def content_items(content: Content) -> list[dict[str, Any]]:
    """Content as a list of its items; a text is one."""
    pieces = [content] if isinstance(content, str) else content
    return [{"type": "text", "text": piece} if isinstance(piece, str) else dict(piece) for piece in pieces]


class Deltas(Pieces):
    """Sends the pieces that a tool yields, and keeps the whole result."""

    __slots__ = ("_check", "_scratch", "_send", "_structured")

    def __init__(
        self,
        send: Callable[[Any], None],
        check: Callable[[], None],
        write: Callable[[Any], Any] = lambda value: value,
        structured: bool = False,
        scratch: str | None = None,
    ) -> None:
        super().__init__(write)
        self._send = send
        self._check = check
        self._structured = structured
        self._scratch = scratch

    def add(self, piece: Any) -> None:
        self._check()
        if not isinstance(piece, str | dict | ToolResult):
            raise TypeError(f"a tool yields a str, an item of content or a ToolResult, not {type(piece).__name__}")
        super().add(piece)
        if not isinstance(piece, ToolResult):
            self._send({"type": "output_delta", "content": content_items([piece])})

    def whole(self, value: Any) -> dict[str, Any]:
        whole = value if isinstance(value, ToolResult) else self._write(value)
        return tool_result(whole, self._structured, self._scratch)

    def end(self) -> dict[str, Any]:
        if self._whole is not None:
            return self.whole(self._whole)
        parts = merge_pieces(self._pieces) or [""]
        text = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else None
        return tool_result(ToolResult(parts) if text is None else text, self._structured)


def merge_pieces(pieces: Sequence[str | Mapping[str, Any]]) -> list[str | Mapping[str, Any]]:
    """Join adjacent texts."""
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
    """The new beginning of a conversation, with a summary and notes."""

    __slots__ = ("blocks", "summary")

    def __init__(self, blocks: Iterable[Any], summary: str = "") -> None:
        self.blocks = blocks
        self.summary = summary


class Declined(HandlerError):
    """A compactor returned nothing, but the host requires a result."""

    kind = "compactor.declined"


def seed_result(value: Any, blocks: Sequence[Any], compaction: Compaction) -> dict[str, Any]:
    """The `result` of a compactor that was given `blocks` and returned `value`."""
    if value is None:
        raise Declined("the compactor leaves this conversation as it is")
    seed = _seed(value, blocks, compaction)
    seed_blocks = [_block(block) for block in seed.blocks]
    length = len(_CODEC.encode(seed_blocks))
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
    """The blocks kept beside a summary: system blocks and pinned ones."""
    system = [block for block in blocks if isinstance(block, dict) and block.get("kind") == "system"]
    kept = system if compaction.policy.get("retain_system", True) else []
    return [*kept, *(item for item in compaction.pinned if isinstance(item, dict) and item not in kept)]


def _block(block: Any) -> dict[str, Any]:
    """A block from a block, a text or a message."""
    if isinstance(block, str):
        block = {"kind": "input", "content": block}
    if not isinstance(block, dict):
        raise TypeError(f"a block is an object or a text, not {type(block).__name__}")
    if "kind" not in block and block.get("role") in KINDS:
        rest = {name: value for name, value in block.items() if name != "role"}
        block = {"kind": KINDS[block["role"]], **rest}
    content = block.get("content")
    return {**block, "content": content_items(content)} if isinstance(content, str) else block


# Harnesses.


class HarnessResult(Value):
    """The result of a harness: a summary, a checkpoint, and artifacts.

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
        **({} if data is None else {"checkpoint": make_checkpoint(fidelity, data)}),
        "summary": result.summary if isinstance(result.summary, dict) else {"text": result.summary},
        "artifacts": _references(result.artifacts, scratch),
    }


def _harness_result(value: Any) -> HarnessResult:
    if isinstance(value, HarnessResult):
        return value
    if value is None or isinstance(value, str):
        return HarnessResult(value or "")
    if not isinstance(value, dict):
        raise TypeError(f"a harness returns a text, a dict, a HarnessResult or None, not {type(value).__name__}")
    return HarnessResult(**value)


def make_checkpoint(fidelity: str, data: Any) -> dict[str, Any]:
    return {"kind": fidelity, "data": data}


RESUME = "resume"


class Compaction(Value):
    """The request to a compactor: target size, pinned items, and the conversation's ids.

    `target` has `max_input_tokens`, `target_model` and `target_context`, `policy` has `retain_system` and
    `retain_open_tasks`; both are as the host sent them.
    """

    __slots__ = ("chain_id", "id", "pinned", "policy", "target", "token_estimate")

    def __init__(
        self,
        id: str,
        chain_id: str | None,
        target: dict[str, Any],
        policy: dict[str, Any],
        pinned: list[Any],
        token_estimate: int | None,
    ) -> None:
        self.id = id
        """The same in every attempt of this compaction."""
        self.chain_id = chain_id
        self.target = target
        self.policy = policy
        self.pinned = pinned
        self.token_estimate = token_estimate

    @property
    def max_tokens(self) -> int | None:
        """The token limit of the result; the host counts."""
        most = self.target.get("max_input_tokens")
        return most if isinstance(most, int) else None


def read_compaction(request: Mapping[str, Any], scratch: str | None) -> tuple[list[Any], Compaction]:
    """The blocks of a conversation and the request; raises `ArtifactInvalid`."""
    source = request["source"]
    projection = source.get("projection")
    said = projection if isinstance(projection, dict) else {}
    content = _file(said, scratch) if said.get("transport") == "artifact" else said
    estimate = said.get("token_estimate")
    compaction = Compaction(
        request["compaction_id"],
        source.get("chain_id"),
        request["target"],
        request["policy"],
        _list(content, "pinned_items"),
        estimate if type(estimate) is int else None,
    )
    return _list(content, "blocks"), compaction


def _file(projection: Mapping[str, Any], scratch: str | None) -> dict[str, Any]:
    ref = projection.get("artifact")
    data = read_artifact(scratch, ref if isinstance(ref, dict) else {})
    try:
        content = _CODEC.decode(data)
    except Malformed as error:
        raise ArtifactInvalid(f"the conversation cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise ArtifactInvalid("the conversation cannot be read: it is not an object")
    return content


def _list(content: Mapping[str, Any], name: str) -> list[Any]:
    items = content.get(name, [])
    return items if isinstance(items, list) else []


class Run(Value):
    """The request to a harness, to start or to resume.

    `target` has `session_id`, `chain_id` and `execution_id`, `trigger` the cause, `policy` its limits, all as the
    host sent them. `checkpoint` is the data that was saved last; None at the start.
    """

    __slots__ = ("checkpoint", "mode", "policy", "target", "trigger")

    def __init__(self, request: Mapping[str, Any]) -> None:
        kept = request.get("checkpoint")
        self.mode: str = request["mode"]
        self.target: dict[str, Any] = request["target"]
        self.trigger: dict[str, Any] = request["trigger"]
        self.policy: dict[str, Any] = request["policy"]
        self.checkpoint: Any = kept.get("data") if isinstance(kept, dict) else None

    @property
    def resumed(self) -> bool:
        """Whether this is a resumed run."""
        return self.mode == RESUME

    @property
    def input(self) -> list[Any]:
        """The trigger's input, as content items."""
        return _list(self.trigger, "input")

    @property
    def text(self) -> str:
        """The texts of the input."""
        return "\n".join(
            item["text"] for item in self.input if isinstance(item, dict) and isinstance(item.get("text"), str)
        )


CHUNK = 1 << 20
"""Bytes read at once."""


class ArtifactInvalid(HandlerError):
    """A file does not match its reference, or is outside of the scratch folder."""

    kind = "artifact_invalid"


def read_artifact(scratch: str | None, ref: Mapping[str, Any]) -> bytes:
    """The bytes of a reference; raises `ArtifactInvalid` if size or hash differ."""
    path, size = ref.get("path"), ref.get("size_bytes")
    if scratch is None or not isinstance(path, str):
        raise ArtifactInvalid("the reference does not name a file of this call")
    with _opened(scratch, path) as file:
        if os.fstat(file.fileno()).st_size != size:
            raise ArtifactInvalid(f"{path} does not have the {size} bytes that its reference says")
        data: bytes = file.read()
    if _sha256(data).hexdigest() != ref.get("sha256"):
        raise ArtifactInvalid(f"{path} does not have the sha256 that its reference says")
    return data


def make_reference(scratch: str | None, path: str | os.PathLike[str]) -> dict[str, Any]:
    """A reference to a file in the folder, given by its path in there or by its whole path."""
    if scratch is None:
        raise ArtifactInvalid("this call has no scratch folder, so there can be no artifacts")
    inside = os.path.relpath(os.path.join(scratch, path), scratch)
    digest, size = _sha256(), 0
    with _opened(scratch, inside) as file:
        while data := file.read(CHUNK):
            digest.update(data)
            size += len(data)
    return {"path": inside, "media_type": _media_type(inside), "size_bytes": size, "sha256": digest.hexdigest()}


def _opened(scratch: str, path: str) -> Any:
    """Open a plain file inside the folder; links are refused."""
    root = os.path.realpath(scratch)
    whole = os.path.join(root, path)
    if os.path.isabs(path) or os.path.realpath(whole) != whole:
        raise ArtifactInvalid(f"{path} leads out of the scratch folder, or is not in its simplest form")
    try:
        descriptor = os.open(whole, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ArtifactInvalid(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArtifactInvalid(f"{path} is not a regular file")
    return os.fdopen(descriptor, "rb")


def _sha256(data: bytes = b"") -> Any:
    from hashlib import sha256

    return sha256(data)


def _media_type(path: str) -> str:
    from mimetypes import guess_type

    return guess_type(path)[0] or "application/octet-stream"


def block(reason: str, *, do_not_reply_again: bool = False) -> dict[str, Any]:
    """Stop the operation. Some hosts read `abort`, some `decision`: both are sent."""
    answer: dict[str, Any] = {"abort": True, "reason": reason, "decision": "block"}
    return {**answer, "do_not_reply_again": True} if do_not_reply_again else answer


def transform(body: str, *, reason: str | None = None) -> dict[str, Any]:
    """Continue with another message body."""
    answer: dict[str, Any] = {"abort": False, "decision": "transform", "transformed_body": body}
    return answer if reason is None else {**answer, "reason": reason}


def inject(text: str) -> dict[str, Any]:
    """Inject a text for the agent; a session hook may return the text alone."""
    return {"inject": text}


def override(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Continue with these keys of the event changed."""
    return {"abort": False, "decision": "allow", "override": dict(changes)}
