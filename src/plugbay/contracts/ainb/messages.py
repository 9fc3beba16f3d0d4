"""The ainb methods: names, operations, the kinds of their fields, requests, results and the greeting.

    → {"jsonrpc":"2.0","id":1,"method":"plugin/init","params":{"manifest_path":…,"granted_capabilities":[…],…}}
    ← {"jsonrpc":"2.0","id":1,"method":"host/snapshot/subscribe","params":{"topic":…}}
    → {"jsonrpc":"2.0","id":1,"result":{}}
    ← {"jsonrpc":"2.0","id":1,"result":{"name":…,"version":…,"abi_version":2,"manifest":{…}}}
    → {"jsonrpc":"2.0","id":2,"method":"plugin/render","params":{"viewport":{…},"generation":0,"screen_id":…}}
    → {"jsonrpc":"2.0","method":"plugin/handle_key","params":{"screen_id":…,"key":{…},"generation":1}}

Requests and notifications are two tables. Values that we send are checked against the same kinds as values we read.
Bytes are base64 on the wire; the array of numbers that old peers write is read as well. Unknown fields are ignored. A
picture is passed on undecoded.

Real plugins answer the greeting with `{name, version}`, the contract asks for the manifest and the ABI version: either
is accepted, and only another ABI is refused. A wrong name or version is a warning, because one program may be installed
under several names.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64

from plugbay.contracts.ainb import errors
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.operations import (
    DeliverSnapshot,
    DispatchCli,
    FetchUrl,
    GetSnapshot,
    InvokeAction,
    PerformAction,
    PressKey,
    PublishSnapshot,
    ReadFile,
    ReadFolder,
    Render,
    Shutdown,
    SubscribeSnapshot,
    UseMouse,
    WriteLog,
)
from plugbay.model.values import Value
from plugbay.wire.content_length import STRICT_HEADERS
from plugbay.wire.strict_json import ABSENT, Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from plugbay.model.operations import Operation
    from plugbay.wire.strict_json import Codec


LEVELS = ("trace", "debug", "info", "warn", "error")
"""Of a line in the log, the least important first."""


class Field(Value):
    """One field of an object: its name, its kind, what it is called here, and what it is when it is not there."""

    __slots__ = ("attribute", "default", "kind", "name")

    def __init__(self, name: str, kind: str, attribute: str = "", default: Any = ABSENT) -> None:
        self.name = name
        self.kind = kind
        self.attribute = attribute or name
        self.default = default


def read_field(fields: Iterable[Field], given: Any, what: str = "params") -> dict[str, Any] | str:
    """The values of an object by the names they have here, or what is wrong with it."""
    if not isinstance(given, dict):
        return f"{what} must be an object"
    values: dict[str, Any] = {}
    for field in fields:
        value = given.get(field.name, field.default)
        if value is ABSENT:
            return f"{field.name} is missing"
        if value is not field.default:
            try:
                value = _READERS[field.kind](value)
            except ValueError:
                return f"{field.name} must be {WANTED[field.kind]}"
        values[field.attribute] = value
    return values


def write_field(fields: Iterable[Field], values: Mapping[str, Any], codec: Codec) -> bytes | Failure:
    """An object with these values, or which of them it cannot have. What has a default may be missing."""
    parts: list[bytes] = []
    for field in fields:
        value = values.get(field.attribute, field.default)
        try:
            encoded = _encoded(_WRITERS[field.kind](value), codec)
        except Unencodable as error:
            return Failure(Code.INVALID_INPUT, f"{field.name} cannot be sent as JSON: {error}")
        except ValueError:
            return Failure(Code.INVALID_INPUT, f"{field.name} must be {WANTED[field.kind]}")
        parts.append(b'"%b":%b' % (field.name.encode(), encoded))
    return b"{%b}" % b",".join(parts)


def base64(data: bytes) -> str:
    """Bytes as they stand in JSON."""
    return b2a_base64(data, newline=False).decode("ascii")


def _encoded(value: Any, codec: Codec) -> bytes:
    """JSON. Base64 has nothing to escape, so megabytes of it are spliced in and not looked through again."""
    return b'"%b"' % b2a_base64(value, newline=False) if type(value) is bytes else codec.encode(value)


# Each reader takes a value that came from JSON or is about to be written, and raises ValueError when it does not fit.


def _check(fits: bool) -> None:
    if not fits:
        raise ValueError


def _read_text(value: Any) -> Any:
    _check(isinstance(value, str))
    return value


def _read_texts(value: Any) -> tuple[str, ...]:
    _check(isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value))
    return tuple(value)


def _level(value: Any) -> Any:
    _check(isinstance(value, str) and value in LEVELS)
    return value


def _integer(value: Any, least: int, most: int) -> Any:
    _check(type(value) is int and least <= value <= most)
    return value


def _count(value: Any) -> Any:
    return _integer(value, 0, 2**64 - 1)


def _small(value: Any) -> Any:
    return _integer(value, 0, 2**16 - 1)


def _flag(value: Any) -> Any:
    _check(isinstance(value, bool))
    return value


def _bytes(value: Any) -> bytes:
    if isinstance(value, list):
        _check(set(map(type, value)) <= {int})
        return bytes(value)
    return a2b_base64(_read_text(value), strict_mode=True)


def _plain_bytes(value: Any) -> Any:
    """Bytes that are to be written; a text is none, even where it could be read as base64."""
    _check(type(value) is bytes)
    return value


def _object(value: Any) -> Any:
    _check(isinstance(value, dict))
    return value


def _pairs(value: Any) -> list[list[str]]:
    _check(isinstance(value, (list, tuple)))
    pairs = [list(_read_texts(pair)) for pair in value]
    _check(all(len(pair) == 2 for pair in pairs))
    return pairs


def _viewport(value: Any) -> dict[str, int]:
    return {side: _small(_object(value).get(side)) for side in ("width", "height")}


def _entries(value: Any) -> list[dict[str, Any]]:
    _check(isinstance(value, list))
    return [
        {"name": _read_text(entry.get("name")), "is_dir": _flag(entry.get("is_dir")), "size": _count(entry.get("size"))}
        for entry in map(_object, value)
    ]


def _key(value: Any) -> dict[str, Any]:
    """A key whose code has a type; which types there are, a plugin knows best."""
    code, kind = _object(_object(value).get("code")), value.get("kind", "press")
    _check(isinstance(code.get("type"), str) and isinstance(kind, str))
    return {"code": code, "mods": _integer(value.get("mods", 0), 0, 255), "kind": kind}


def _mouse(value: Any) -> dict[str, Any]:
    kind = _object(_object(value).get("kind"))
    _check(isinstance(kind.get("type"), str))
    place = {axis: _small(value.get(axis)) for axis in ("col", "row")}
    return {"kind": kind, **place, "mods": _integer(value.get("mods", 0), 0, 255)}


_READERS: dict[str, Callable[[Any], Any]] = {
    "text": _read_text,
    "texts": _read_texts,
    "level": _level,
    "count": _count,
    "u16": _small,
    "i32": lambda value: _integer(value, -(2**31), 2**31 - 1),
    "bytes": _bytes,
    "bytes?": lambda value: None if value is None else _bytes(value),
    "pairs": _pairs,
    "viewport": _viewport,
    "entries": _entries,
    "key": _key,
    "mouse": _mouse,
    "any": lambda value: value,
}
_WRITERS: dict[str, Callable[[Any], Any]] = {
    **_READERS,
    "bytes": _plain_bytes,
    "bytes?": lambda value: None if value is None else _plain_bytes(value),
}
WANTED = {
    "text": "a string",
    "texts": "an array of strings",
    "level": f"one of {', '.join(LEVELS)}",
    "count": "an integer from 0",
    "u16": "an integer from 0 to 65535",
    "i32": "an integer of 32 bits",
    "bytes": "bytes, as base64",
    "bytes?": "bytes, as base64, or null",
    "pairs": "an array of pairs of strings",
    "viewport": "an object with width and height, integers from 0 to 65535",
    "entries": "an array of objects with name, is_dir and size",
    "key": "a key event",
    "mouse": "a mouse event",
    "any": "a JSON value",
}


ABI_VERSION = 2
"""The only version of the contract that is spoken here."""
READS = ("jsonrpc", "id", "method", "error")
READS_RAW = ("params", "result")

MAX_BODY = STRICT_HEADERS.max_body
"""Bytes of a frame's body. A larger one ends the conversation, so none is sent."""
MAX_EVENTS = 4_096
"""Snapshots that wait for such a plugin; the oldest give way, so one that was stuck hears of the latest first."""
MAX_QUEUED = 64 << 20
"""Bytes of snapshots that wait for a plugin that does not read: a publish of thirty chunks of the usual 2 MiB."""
HOST_KIND = "plugbay"
"""The host's name in `plugin/init`."""
INIT, SHUTDOWN = "plugin/init", "plugin/shutdown"
CAPABILITIES = (
    "read_sessions",
    "write_plugin_data",
    "event_bus",
    "network",
    "spawn_subprocess",
    "read_claude_logs",
    "read_codex_logs",
    "read_paths",
    "event_stream_subscribe",
    "spawn_managed_subprocess",
    "unix_socket_dial",
    "secrets:read",
    "workspace:write",
)
"""Every capability there is, in the order in which `plugin/init` lists those that are granted."""


class Identity(Value):
    """The answer of a plugin to `plugin/init`, the operations with handlers, and its command-line namespaces."""

    __slots__ = ("manifest", "name", "namespaces", "serves", "version")

    def __init__(
        self,
        name: str,
        version: str,
        manifest: dict[str, Any] | None = None,
        serves: frozenset[type] = frozenset({Render, DispatchCli}),
        namespaces: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.version = version
        self.manifest = manifest or {}
        self.serves = serves
        self.namespaces = namespaces


class Method(Value):
    """One method: its name, the operation it carries, and the fields of its parameters."""

    __slots__ = ("fields", "name", "op")

    def __init__(self, name: str, op: type, *fields: Field) -> None:
        self.name = name
        self.op = op
        self.fields = fields


_TOPIC = Field("topic", "text")
_SCREEN = Field("screen_id", "text", "screen")
_GENERATION = Field("generation", "count", default=0)
INVOKE_ACTION = Method(
    "host/action/invoke",
    InvokeAction,
    Field("action", "text"),
    Field("payload", "bytes", "data"),
    Field("timeout_ms", "count", default=0),
)
"""Asked of the host by a plugin, and by the host of the plugin that owns the action."""
PLUGIN_REQUESTS = (
    Method(
        "plugin/render",
        Render,
        Field("viewport", "viewport"),
        _GENERATION,
        Field("screen_id", "text", "screen", default=""),
    ),
    Method("plugin/cli_dispatch", DispatchCli, Field("namespace", "text"), Field("argv", "texts")),
    INVOKE_ACTION,
)
"""Requests of the host, besides `plugin/init` and `plugin/shutdown`."""
PLUGIN_NOTIFICATIONS = (
    Method("plugin/handle_event", DeliverSnapshot, _TOPIC, Field("payload", "bytes", "data")),
    Method("plugin/handle_key", PressKey, _SCREEN, Field("key", "key"), _GENERATION),
    Method("plugin/handle_mouse", UseMouse, _SCREEN, Field("mouse", "mouse"), _GENERATION),
    Method(
        "plugin/handle_action",
        PerformAction,
        Field("action_id", "text", "action"),
        Field("payload", "any", default=None),
    ),
)
"""Notifications of the host."""
HOST_REQUESTS = (
    Method("host/snapshot/get", GetSnapshot, _TOPIC),
    Method("host/snapshot/subscribe", SubscribeSnapshot, _TOPIC),
    INVOKE_ACTION,
    Method("host/fs/read_dir", ReadFolder, Field("path", "text")),
    Method("host/fs/read_file", ReadFile, Field("path", "text")),
    Method(
        "host/network/fetch",
        FetchUrl,
        Field("url", "text"),
        Field("method", "text", default=""),
        Field("body", "bytes?", default=None),
        Field("headers", "pairs", default=()),
    ),
)
"""Requests of a plugin. Other methods of real hosts are unknown to this one."""
HOST_NOTIFICATIONS = (
    Method("host/snapshot/publish", PublishSnapshot, _TOPIC, Field("payload", "bytes", "data")),
    Method(
        "host/log", WriteLog, Field("level", "level"), Field("message", "text"), Field("fields", "any", default=None)
    ),
)
"""Notifications of a plugin."""


def granted_names(granted: tuple[str, ...]) -> list[str]:
    """The names of granted capabilities, without their targets; unknown ones come last."""
    names = dict.fromkeys(capability.partition("=")[0] for capability in granted)
    return [*(name for name in CAPABILITIES if name in names), *(name for name in names if name not in CAPABILITIES)]


def build_greeting(
    manifest_path: str, granted: tuple[str, ...], config: dict[str, Any] | None, host_pid: int | None
) -> dict[str, Any]:
    """HOST: the parameters of `plugin/init`."""
    who = {} if host_pid is None else {"host": {"kind": HOST_KIND, "pid": host_pid}}
    return {
        "manifest_path": manifest_path,
        "granted_capabilities": granted_names(granted),
        "abi_version": ABI_VERSION,
        "config": config,
        **who,
    }


def check_greeting(result: Any, name: str, version: str) -> dict[str, Any] | Failure:
    """HOST: what the plugin said about itself, as `Ready` carries it, or why it must go."""
    said = _read_identity(result)
    abi = said.get("abi_version", ABI_VERSION)
    if type(abi) is not int or abi != ABI_VERSION:
        what = f"the plugin speaks ABI version {abi!r:.40}; this host speaks {ABI_VERSION}"
        detail = {"expected": ABI_VERSION, "got": abi if type(abi) is int else None}
        return Failure(Code.PROTOCOL_VERSION_MISMATCH, what, origin=Origin.PLUGIN, detail=detail)
    warnings = [
        *(["answered plugin/init without its identity"] if not said else ()),
        *_check_identity("is called", said.get("name"), name),
        *_check_identity("is version", said.get("version"), version),
    ]
    return {
        "name": _text(said.get("name")) or name,
        "version": _text(said.get("version")) or version,
        "abi_version": ABI_VERSION,
        "warnings": warnings,
    }


def _read_identity(result: Any) -> dict[str, Any]:
    """The identity in an answer, from all known places; the answer itself has priority over its manifest."""
    answer = result if isinstance(result, dict) else {}
    manifest = answer.get("manifest")
    table = manifest if isinstance(manifest, dict) else {}
    plugin = table.get("plugin")
    places = (answer, plugin if isinstance(plugin, dict) else {}, table)
    keys = ("name", "version", "abi_version")
    found = {key: next((place[key] for place in places if place.get(key) is not None), None) for key in keys}
    return {key: value for key, value in found.items() if value is not None}


def _check_identity(what: str, said: Any, declared: str) -> list[str]:
    """A warning, when both sides say something and do not agree."""
    if said is None or not declared or said == declared:
        return []
    return [f"says it {what} {said!r:.100}; its manifest says {declared!r}"]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def build_greeting_result(identity: Identity) -> dict[str, Any]:
    """PLUGIN: the result of `plugin/init`, in both shapes at once."""
    return {
        "name": identity.name,
        "version": identity.version,
        "abi_version": ABI_VERSION,
        "manifest": identity.manifest,
    }


def read_greeting(params: Any) -> dict[str, Any] | tuple[int, str]:
    """PLUGIN: what the host said in `plugin/init`, or the error it gets. What is missing reads as nothing."""
    if not isinstance(params, dict):
        return errors.INVALID_PARAMS, "params must be an object"
    abi = params.get("abi_version", ABI_VERSION)
    if type(abi) is not int or abi != ABI_VERSION:
        return errors.MANIFEST_VALIDATION, f"this plugin speaks ABI version {ABI_VERSION}, not {abi!r:.40}"
    granted = params.get("granted_capabilities")
    return {
        "granted": tuple(name for name in granted if isinstance(name, str)) if isinstance(granted, list) else (),
        "config": params.get("config"),
        "manifest_path": _text(params.get("manifest_path")),
    }


def write_request(method: Method, op: Any, codec: Codec) -> bytes | Failure:
    """The parameters that ask for `op`, or which of them no peer would read."""
    values = {field.attribute: getattr(op, field.attribute, None) for field in method.fields}
    if isinstance(op, Render):
        values["viewport"] = {"width": op.width, "height": op.height}
    return write_field(method.fields, values, codec)


def read_request(method: Method, params: Any) -> Operation | str:
    """The operation that `method` asks for, or what is wrong with its parameters."""
    values = read_field(method.fields, params)
    if isinstance(values, str):
        return values
    make: Callable[..., Operation] = _MADE.get(method.op, method.op)
    return make(**values)


def _render(screen: str, viewport: dict[str, int], generation: int) -> Render:
    """Without a screen, the plugin draws its first."""
    return Render(screen, viewport["width"], viewport["height"], generation)


def _fetch(url: str, method: str, body: bytes | None, headers: list[list[str]]) -> FetchUrl:
    return FetchUrl(url, method or "GET", body, tuple((name, value) for name, value in headers))


_MADE: dict[type, Callable[..., Operation]] = {Render: _render, FetchUrl: _fetch}

NOTHING = b"{}"
"""The result of requests without a value. Never null: peers refuse that."""
UNKNOWN_NAMESPACE = 2
"""The exit code of a command line whose namespace the plugin does not have."""
_SHAPES: dict[type, tuple[Field, ...]] = {
    GetSnapshot: (Field("payload", "bytes?", "data", default=None), Field("version", "count")),
    InvokeAction: (Field("payload", "bytes"),),
    ReadFolder: (Field("entries", "entries"),),
    ReadFile: (Field("bytes", "bytes"),),
    FetchUrl: (Field("status", "u16"), Field("headers", "pairs"), Field("body", "bytes")),
    DispatchCli: (Field("stdout", "bytes"), Field("stderr", "bytes"), Field("exit_code", "i32")),
}
_BARE = frozenset({InvokeAction, ReadFolder, ReadFile})
"""Answers whose one field is all of the value."""
_HEARD = frozenset({SubscribeSnapshot, Shutdown})


def write_result(op: type, value: Any, codec: Codec) -> bytes | Failure:
    """A handler's value for `op` as a result; a `Failure` when it has no form there."""
    if op in _HEARD:
        return NOTHING
    shape = _SHAPES.get(op, ())
    values = {shape[0].attribute: value} if op in _BARE else value
    if not isinstance(values, dict):
        return Failure(Code.INVALID_INPUT, "it must be an object")
    return write_field(shape, values, codec) if shape else _write_picture(values, codec)


def _write_picture(value: dict[str, Any], codec: Codec) -> bytes | Failure:
    try:
        return codec.encode(value)
    except Unencodable as error:
        return Failure(Code.INVALID_INPUT, f"it cannot be sent as JSON: {error}")


def read_result(op: type, result: Any, codec: Codec) -> tuple[Any, str]:
    """The value in the raw result of an answer to `op`, and what is wrong with it."""
    if op is Render:
        return result, ""
    if op in _HEARD:
        return None, ""
    shape = _SHAPES[op]
    values = read_field(shape, codec.load(result), "it")
    if isinstance(values, str):
        return None, values
    if op is DispatchCli:
        return codec.dump({**values, **{name: base64(values[name]) for name in ("stdout", "stderr")}}), ""
    return (values[shape[0].attribute] if op in _BARE else values), ""


def build_unknown_namespace(namespace: str, namespaces: tuple[str, ...]) -> dict[str, Any]:
    """How a plugin answers a command line that is none of its own."""
    what = f"unknown namespace {namespace!r}; this plugin has {', '.join(namespaces) or 'none'}\n"
    return {"stdout": "", "stderr": base64(what.encode()), "exit_code": UNKNOWN_NAMESPACE}
