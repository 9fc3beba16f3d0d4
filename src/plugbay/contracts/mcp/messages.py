"""The vocabulary of MCP: revisions, methods, reserved keys, limits, lists, log lines, and `Server`.

    → {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":…,"capabilities":{},"clientInfo":{…}}}
    ← {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":…,"capabilities":{…},"serverInfo":{…}}}
    → {"jsonrpc":"2.0","method":"notifications/initialized"}
    → {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":…,"arguments":{…},"_meta":{"progressToken":2}}}

Two eras. In the first a conversation begins with `initialize`, and both ends ask. In the second each request says in
its `_meta` who asks, in which revision and with which capabilities; a server asks by ending a call with
`input_required`.
"""

from __future__ import annotations

from plugbay.model.operations import WriteLog
from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from plugbay.wire.strict_json import Codec

    Offer = Mapping[str, Sequence[Mapping[str, Any]]]
    """Everything a server lists, by the name of the list; the definitions are its own objects."""

HANDSHAKE, MODERN = "handshake", "modern"
ERAS = (HANDSHAKE, MODERN)

REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions of the handshake era, newest first; the first is what a host asks for."""

MODERN_REVISIONS = ("2026-07-28",)

MAX_LINE = 16 << 20
"""Bytes of a message, either way. MCP names no limit; images and files travel inside messages, as base64."""

INITIALIZE, INITIALIZED, PING = "initialize", "notifications/initialized", "ping"
DISCOVER, LISTEN = "server/discover", "subscriptions/listen"
CALL_TOOL, READ_RESOURCE, GET_PROMPT = "tools/call", "resources/read", "prompts/get"
COMPLETE, SET_LEVEL = "completion/complete", "logging/setLevel"
SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"
SAMPLE, ELICIT, ROOTS = "sampling/createMessage", "elicitation/create", "roots/list"
CANCELLED, PROGRESS, MESSAGE = "notifications/cancelled", "notifications/progress", "notifications/message"
UPDATED, ACKNOWLEDGED = "notifications/resources/updated", "notifications/subscriptions/acknowledged"

NOTIFICATION = "notifications/"
"""How every notification begins."""

IDS = (int, float, str, type(None))
"""The types of a request id."""

LIST_CHANGED = {f"notifications/{kind}/list_changed": kind for kind in ("tools", "resources", "prompts")}
"""The notification that a list is out of date → whose."""

ROOTS_CHANGED = "notifications/roots/list_changed"
"""The client has other roots. Only in the handshake era; a modern server asks for them with each call."""

UNREMARKABLE = frozenset({"notifications/elicitation/complete", "notifications/tasks/status"})
"""Notifications that say nothing to us and are no reason to wonder."""

ANSWERS_LATER = frozenset({CALL_TOOL, READ_RESOURCE, GET_PROMPT})
"""The methods that a server of the modern era may answer with `input_required`."""

OURS = "io.modelcontextprotocol/"
"""The beginning of the keys in `_meta` that belong to the protocol."""
VERSION, CLIENT, CAPABILITIES = f"{OURS}protocolVersion", f"{OURS}clientInfo", f"{OURS}clientCapabilities"
SERVER, LOG_LEVEL, SUBSCRIPTION = f"{OURS}serverInfo", f"{OURS}logLevel", f"{OURS}subscriptionId"
TOKEN = "progressToken"

FAILURE = "dev.plugbay/failure"
"""Under this key, in `_meta` or in an error's data, a failure of ours travels whole."""

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""How serious a log line is, the least first."""

_LEVEL_SYNONYMS = {"trace": "debug", "warn": "warning"}
"""Log levels of other contracts → MCP's."""

_LOG_KEYS = frozenset({"logger", "data"})
"""The fields of a log line that hold a logger's name and data that is not text."""

READS = ("id", "method", "error")
READS_RAW = ("params", "result")
"""`jsonrpc` is not among them: it is always written, and nothing depends on it."""


class List(Value):
    """One list of what a server offers: its name in an offer, how it is asked for, and the key of its entries."""

    __slots__ = ("capability", "identity", "key", "method", "name")

    def __init__(self, name: str, method: str, key: str, capability: str, identity: str) -> None:
        self.name = name
        self.method = method
        self.key = key
        self.capability = capability
        """The server's capability that announces it."""
        self.identity = identity
        """The key that identifies an entry of the list."""


LISTS = (
    List("tools", "tools/list", "tools", "tools", "name"),
    List("resources", "resources/list", "resources", "resources", "uri"),
    List("resource_templates", "resources/templates/list", "resourceTemplates", "resources", "uriTemplate"),
    List("prompts", "prompts/list", "prompts", "prompts", "name"),
)


def empty_offer() -> dict[str, list[dict[str, Any]]]:
    """An offer of nothing."""
    return {each.name: [] for each in LISTS}


class Server(Value):
    """The identity of a server and its offer.

    `capabilities` is what it announces, in MCP's words; None: what follows from the offer, with lists that may change.
    """

    __slots__ = ("capabilities", "instructions", "name", "offer", "title", "version")

    def __init__(
        self,
        name: str,
        version: str,
        *,
        title: str = "",
        instructions: str = "",
        offer: Offer | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.title = title
        self.instructions = instructions
        self.offer = {**empty_offer(), **(offer or {})}
        self.capabilities = dict(announced(self.offer) if capabilities is None else capabilities)

    def info(self) -> dict[str, str]:
        """`serverInfo`."""
        title = {"title": self.title} if self.title else {}
        return {"name": self.name, "version": self.version, **title}


def announced(offer: Offer) -> dict[str, Any]:
    """The capabilities of a server with this offer: tools always, the rest where there is some of it."""
    capabilities: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}
    if offer["resources"] or offer["resource_templates"]:
        capabilities["resources"] = {"subscribe": True, "listChanged": True}
    if offer["prompts"]:
        capabilities["prompts"] = {"listChanged": True}
    return capabilities


def client_capabilities(offers: frozenset[str], *, modern: bool) -> dict[str, Any]:
    """The capabilities of a host, from the operator's grants."""
    roots = {} if modern else {"listChanged": True}
    granted: dict[str, Any] = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": roots}
    return {name: settings for name, settings in granted.items() if name in offers}


def wants_answer(method: str, id: Any) -> bool:
    """Whether a message with an id is a request: some write every key there is, so a notification may have null."""
    return id is not None or not method.startswith(NOTIFICATION)


def as_object(value: Any) -> dict[str, Any]:
    """The object, or an empty one: for what may be missing, null or nonsense without harm."""
    return value if isinstance(value, dict) else {}


def as_text(value: Any) -> str:
    """The text, or an empty one."""
    return value if isinstance(value, str) else ""


def call_prefix(tool: str, codec: Codec) -> bytes:
    """The members of a `tools/call` up to its arguments."""
    return b'"name":%b,"arguments":' % codec.encode(tool)


def call_prefixes(tools: Iterable[Mapping[str, Any]], codec: Codec) -> dict[str, bytes]:
    """The same of every tool of an offer, by its name."""
    return {tool["name"]: call_prefix(tool["name"], codec) for tool in tools}


def own_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a `_meta` that are not the protocol's: they are passed on."""
    return {key: value for key, value in meta.items() if key != TOKEN and not key.startswith(OURS)}


# Log lines: `notifications/message`.


def read_log(params: dict[str, Any], encode: Callable[[Any], bytes]) -> WriteLog | str:
    """The line in a `notifications/message`, or what is wrong with it. A level that is none is `info`."""
    level, logger, data = params.get("level"), params.get("logger"), params.get("data")
    if "data" not in params:
        return "a log message needs data"
    fields: dict[str, Any] = {}
    if isinstance(logger, str):
        fields["logger"] = logger
    if not isinstance(data, str):
        fields["data"] = data
    known = level if isinstance(level, str) and level in LEVELS else "info"
    return WriteLog(known, _log_text(data, encode), fields or None)


def _log_text(data: Any, encode: Callable[[Any], bytes]) -> str:
    if isinstance(data, str):
        return data
    message = data.get("message") if isinstance(data, dict) else None
    return message if isinstance(message, str) else encode(data).decode()


def write_log(op: WriteLog) -> dict[str, Any]:
    """The parameters of the `notifications/message` that carries a line."""
    level = _LEVEL_SYNONYMS.get(op.level, op.level)
    line = {"level": level if level in LEVELS else "info", "data": op.message}
    fields = op.fields if isinstance(op.fields, dict) else {}
    if _LOG_KEYS.issuperset(fields):
        return {**line, **fields}
    return {**line, "data": {"message": op.message, **fields}}


def is_log_wanted(level: str, lowest: str) -> bool:
    """Whether a line of this level passes the filter `lowest`."""
    return LEVELS.index(level) >= LEVELS.index(lowest)
