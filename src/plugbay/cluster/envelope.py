"""The messages between gateways and nodes, version 1: calls, frames of answers, beats, control messages, questions,
live events.

A message is one line of JSON (the head), then the body as bytes: the operation of a call, the value of a frame. A head
is decoded strictly: unknown fields, wrong types and other versions are `Malformed`. Operations are written by the slots
of their classes, so a new operation needs no line here. Pure.

Gateways and nodes of two releases in turn work together. So each says in its announcements (`Beat`, `Roll`) which
versions it takes, and these two only get new fields, which earlier releases ignore. A change of any other message is a
new version of all of them, which is sent only to those that take it.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from plugbay.model import operations
from plugbay.model.errors import CODES, ORIGINS, Failure
from plugbay.model.values import Value
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed, gate, refuse_wide_numbers

VERSION: Final = 1
"""Of the messages that this release sends."""
TAKES: Final = (VERSION,)
"""Of the messages that it reads."""

MAX_HEAD = 64 << 10
"""Bytes of a head. A failure with the end of stderr is the largest part of one, or the paths of its files."""

Word = Annotated[str, msgspec.Meta(max_length=200)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
"""The name of a cell or a node: one word of a subject."""
Token = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8,64}$")]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Bytes."""
Labels = Annotated[dict[Word, Word], msgspec.Meta(max_length=32)]

UP: Final = "up"
DRAINING: Final = "draining"
CANCEL: Final = "cancel"
STILL: Final = "still"
DRAIN: Final = "drain"
UNDRAIN: Final = "undrain"
LOGS: Final = "logs"
ACCEPTED: Final = "accepted"
PROGRESS: Final = "progress"
DONE: Final = "done"
REFUSED: Final = "refused"


class Package(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A release of a plugin, and where a node gets it."""

    id: Word
    version: Word
    tree: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
    """The hash over all its files, which its signature is for."""
    source: Annotated[str, msgspec.Meta(max_length=600)]
    """A reference with the digest of its manifest in a registry."""


class Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The access that a binding leaves the plugin, and the gateway that it may reach."""

    domains: tuple[str, ...] | None = None
    scratch: bool = True
    gateway_url: Annotated[str, msgspec.Meta(max_length=600)] | None = None


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file behind the operation or the value in a body."""

    path: Annotated[str, msgspec.Meta(max_length=4096)]
    """Below the scratch folder of the call."""
    size: Size


Files = Annotated[tuple[File, ...], msgspec.Meta(max_length=256)]


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A call of a gateway. Its body is the sealed operation."""

    v: Literal[1] = 1
    id: Token
    gateway: Token
    boot: Token
    """Of the node as the gateway heard it last; a node that was started again refuses the call."""
    package: Package
    access: Access
    export: Word
    kind: Word
    execution_class: Word
    org: Word
    budget_ms: Count
    """The time that is left for the call, from its arrival on."""
    stream: bool
    confined: bool
    """Whether the plugin must run in a sandbox."""
    key: Annotated[str, msgspec.Meta(max_length=64)]
    """The public key of the gateway."""
    size: Count = 0
    """Bytes of the body when it comes in parts."""
    settings: bool = False
    """Whether the body begins with a line of the operator's settings for the plugin."""
    begin: bool = False
    """Start the plugin and answer with its greeting: the body has no operation."""
    lease: Word = ""
    """The lease that the node must hold for the plugin; empty: none."""
    epoch: Count = 0
    """Of the lease, as the gateway knows it; 0: the node takes the lease."""
    files: Files = ()
    """Behind the operation: for the scratch folder."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a large body, or the credit for the first `seq` parts."""

    v: Literal[1] = 1
    kind: Literal["data", "credit"]
    call: Token
    sender: Word
    """The name of a node, or the id of a gateway."""
    seq: Count
    size: Count
    """Bytes of the whole body."""
    sha256: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """Of the whole body, with its last part."""


class Frame(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the answer to a call. The body of `progress` and `done` is a value; a large body came before `done`."""

    v: Literal[1] = 1
    call: Token
    node: Name
    seq: Count
    kind: Literal["accepted", "progress", "done", "refused"]
    failure: dict[str, Any] | None = None
    """Of `done`: why there is no value. Of `refused`: why no plugin has received the call."""
    elsewhere: bool = False
    """Of `refused`: whether another node may take the call."""
    files: Files = ()
    """Of `done`, behind the value: the artifacts of the result."""


Versions = Annotated[tuple[Count, ...], msgspec.Meta(max_length=8)]


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """The presence of a node."""

    v: Literal[1] = 1
    node: Name
    boot: Token
    """Random for each start of the node."""
    link: Count
    """Grows with each connection of the node: frames may have been lost in between."""
    state: Literal["up", "draining"]
    release: Word
    labels: Labels
    places: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    busy: Count
    sandbox: bool
    key: Annotated[str, msgspec.Meta(max_length=64)]
    plugins: Annotated[tuple[Word, ...], msgspec.Meta(max_length=64)] = ()
    """Some of the releases that it runs, as `id version`."""
    children: Count = 0
    """Processes of plugins."""
    memory: Size = 0
    """What the node and its plugins use."""
    held: Annotated[dict[Word, Count], msgspec.Meta(max_length=256)] = {}
    """The leases that it holds, with their epochs."""
    takes: Versions = TAKES


class LogRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The part of a log that a gateway wants from a node."""

    plugin: Word
    org: Word | None = None
    """Only the lines of this org."""
    lines: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    """The last so many lines."""
    after: Size | None = None
    """Instead: the lines after this place, as an earlier answer has it."""


class LogPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of an answer to `logs`: lines as time, source, level and text, oldest first."""

    lines: tuple[tuple[Word, Word, Word, str], ...] = ()
    skipped: Count = 0
    """Older lines that do not fit into the answer."""
    end: Size = 0
    """The place after these lines."""


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An order of a gateway to a node."""

    v: Literal[1] = 1
    kind: Literal["cancel", "still", "drain", "undrain", "logs"]
    gateway: Token
    call: Token | None = None
    """Of `cancel` and `still`: a call. Of `logs`: the last word of the subject that the answer goes to."""
    reason: Word = ""
    log: LogRequest | None = None
    """Of `logs`."""


class Roll(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway is there; `ask` has every node beat at once."""

    v: Literal[1] = 1
    gateway: Token
    ask: bool = False
    takes: Versions = TAKES


class LiveEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An event of an invocation or a run, from the gateway that has it; `gap` only reports losses."""

    v: Literal[1] = 1
    gateway: Token
    org: Word
    kind: Literal["invocation", "run", "gap"]
    id: Word
    seq: Annotated[int, msgspec.Meta(ge=0)]
    """Of the events of this gateway about this org."""
    lost: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Events directly before this one that were not sent."""


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A question of a node to any gateway; `Frame`s answer it. The body of `request` is an operation."""

    v: Literal[1] = 1
    id: Token
    node: Name
    boot: Token
    kind: Literal["take", "renew", "release", "request"]
    leases: Annotated[dict[Word, Count], msgspec.Meta(max_length=256)] = {}
    """Names with epochs; the epoch of one that is to be taken is 0."""
    plugin: Word = ""
    """Of `request`: whose request to its host it is."""
    budget_ms: Count = 0


HeadType = TypeVar("HeadType", Call, Part, Frame, Beat, Control, Roll, LiveEvent, Ask)

_ENCODE = msgspec.json.Encoder().encode
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (Call, Part, Frame, Beat, Control, Roll, LiveEvent, Ask)
}


def pack(head: Call | Part | Frame | Beat | Control | Roll | LiveEvent | Ask, body: bytes = b"") -> bytes:
    """A message; JSON has no line break of its own."""
    return b"%b\n%b" % (_ENCODE(head), body)


def unpack(kind: type[HeadType], data: bytes) -> tuple[HeadType, bytes]:
    """Head and body of a message; raises `Malformed`."""
    at = data.find(b"\n", 0, MAX_HEAD)
    if at < 0:
        raise Malformed(f"no line of {MAX_HEAD:,} bytes at most")
    try:
        head: HeadType = _DECODERS[kind].decode(data[:at])
    except (ValueError, RecursionError) as error:
        raise Malformed(str(error)) from None
    return head, data[at + 1 :]


# Logs.

_LOG_PART = msgspec.json.Decoder(LogPart)


def encode_log(part: LogPart) -> bytes:
    """The body of an answer to `logs`."""
    return _ENCODE(part)


def decode_log(body: bytes) -> LogPart:
    """The lines of a node; raises `Malformed`."""
    try:
        return _LOG_PART.decode(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(str(error)) from None


# Operations.

_PLUGIN_OPS = ("InvokeTool", "RunHook", "CallMethod", "Compact", "RunHarness", "Chat", "ReadResource", "GetPrompt")
OPERATIONS: dict[str, type[Value]] = {name: getattr(operations, name) for name in _PLUGIN_OPS}
"""The operations that nodes carry out: those whose slots are JSON, without those of screens and notifications."""

PAYLOADS = frozenset({"input", "event", "message", "request"})
"""Slots with one JSON value, which stays as it is."""

_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NO_KIND = msgspec.Raw(b"null")


def encode_operation(op: Value, codec: MsgspecCodec) -> bytes:
    """The body of a call; raises `Malformed` for an operation that nodes do not carry out."""
    name = type(op).__name__
    if OPERATIONS.get(name) is not type(op):
        raise Malformed(f"{name} is not carried out by nodes")
    return codec.encode({"kind": name, **{slot: getattr(op, slot) for slot in type(op).__slots__}})


def decode_operation(body: bytes, codec: MsgspecCodec) -> Value:
    """The operation in a body; raises `Malformed`."""
    gate(body)
    refuse_wide_numbers(body)
    try:
        raw = _RAW.decode(body)
        kind = OPERATIONS.get(str(codec.load(raw.pop("kind", _NO_KIND))))
    except (ValueError, RecursionError) as error:
        raise Malformed(str(error)) from None
    if kind is None:
        raise Malformed("no operation that nodes carry out")
    if raw.keys() != set(kind.__slots__):
        raise Malformed(f"{kind.__name__} has {', '.join(sorted(kind.__slots__))}, and no other fields")
    harness = kind in (operations.Compact, operations.RunHarness)
    values = {slot: part.copy() if slot in PAYLOADS and not harness else codec.load(part) for slot, part in raw.items()}
    stream = {"stream": values.pop("stream")} if "stream" in values else {}
    return kind(**values, **stream)


# Failures.


def failure_to_json(failure: Failure) -> dict[str, Any]:
    """All of a failure."""
    return {name: getattr(failure, name) for name in Failure.__slots__}


def failure_from_json(data: dict[str, Any]) -> Failure:
    """The failure that a node reports; raises `Malformed`."""
    if set(data) != set(Failure.__slots__) or data["code"] not in CODES or data["origin"] not in ORIGINS:
        raise Malformed("no failure")
    texts, after = (data["message"], data["plugin"]), data["retry_after_ms"]
    right = all(isinstance(text, str) for text in texts) and isinstance(data["detail"], dict)
    if not right or type(data["retryable"]) is not bool or not (after is None or type(after) is int):
        raise Malformed("no failure")
    given = dict(data)
    return Failure(given.pop("code"), given.pop("message"), **given)
