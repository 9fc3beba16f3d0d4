"""The kaged methods: names, limits, identities, and the greeting: how it is built, and how a host checks the answer.

    → {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"daemon_version":…,"api_version":1,"plugin_name":…,…}}
    ← {"jsonrpc":"2.0","id":1,"result":{"name":…,"version":…,"api_version":1,"methods":[…],…}}
    → {"jsonrpc":"2.0","method":"initialized","params":{}}
    → {"jsonrpc":"2.0","id":2,"method":"<plugin>.<tool>","params":{…,"_context":{…}}}
    ← {"jsonrpc":"2.0","id":1,"method":"kaged.storage.get","params":{"key":…}}

Checks of a greeting run in a fixed order; the first failure wins.
"""

from __future__ import annotations

from plugbay.model.errors import Code, Failure
from plugbay.model.operations import CallMethod, InvokeTool, RunHook
from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

API_VERSION = 1
"""The only version of the plugin API there is."""
DAEMON_VERSION = "0.1.0"
"""The host's version in `initialize`."""
MAX_READ = 4 << 20
"""Bytes of a line that are read. The contract says 4 MB and not which; this is the larger of the two readings."""
MAX_SENT = 4_000_000
"""Bytes of a line that are sent: the smaller reading, so that no peer finds it too long."""
READS = ("jsonrpc", "id", "method", "error")
READS_RAW = ("params", "result")
INITIALIZE, INITIALIZED, SHUTDOWN = "initialize", "initialized", "shutdown"
HEALTH_CHECK, PING = "health.check", "ping"
"""The contract's probe, and the one its only published plugin knows instead."""
HOOK = "kaged.hook."
"""The prefix of a hook's name on the wire."""
NO_ID = 0
"""The id of an answer to a message without a readable id, or with one that is neither a number nor a string."""
STATUS_OK = {"status": "ok"}
MAX_NOTIFICATIONS = 100
"""Notifications of a plugin in a second, by the contract."""
SHUTDOWN_SECONDS = 5
"""`shutdown_timeout_sec` of a manifest that does not set it."""


class Identity(Value):
    """The answer of a plugin to `initialize`, and the operations with handlers. Tools by their bare names."""

    __slots__ = (
        "api_version",
        "capabilities_used",
        "hooks",
        "methods",
        "name",
        "notifications",
        "serves",
        "tools",
        "version",
    )

    def __init__(
        self,
        name: str,
        version: str,
        api_version: int = API_VERSION,
        methods: tuple[str, ...] = (),
        notifications: tuple[str, ...] = (),
        capabilities_used: tuple[str, ...] = (),
        serves: frozenset[type] = frozenset({InvokeTool, CallMethod, RunHook}),
        tools: tuple[str, ...] = (),
        hooks: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.version = version
        self.api_version = api_version
        self.methods = methods
        self.notifications = notifications
        self.capabilities_used = capabilities_used
        self.serves = serves
        self.tools = tools
        self.hooks = hooks


def wire_name(plugin: str, tool: str) -> str:
    """The method of a tool: no two plugins have one of the same name."""
    return f"{plugin}.{tool}"


def topic(plugin: str, notification: str) -> str:
    """Where a plugin's notification is published."""
    return f"plugin.{plugin}.{notification}"


def build_greeting_result(identity: Identity) -> dict[str, Any]:
    """The result of `initialize`: exactly these keys; tools are methods like any other."""
    tools = [wire_name(identity.name, tool) for tool in identity.tools]
    return {
        "name": identity.name,
        "version": identity.version,
        "api_version": identity.api_version,
        "methods": list(dict.fromkeys((*identity.methods, *tools))),
        "notifications": list(identity.notifications),
        "capabilities_used": list(identity.capabilities_used),
    }


LISTS = ("methods", "notifications", "capabilities_used")


class Promise(Value):
    """The plugin according to its manifest; an empty `version` is not compared."""

    __slots__ = ("api_version", "capabilities", "methods", "name", "notifications", "tools", "version")

    def __init__(
        self,
        name: str,
        version: str,
        api_version: int,
        methods: tuple[str, ...],
        tools: tuple[str, ...],
        notifications: tuple[str, ...],
        capabilities: tuple[str, ...],
    ) -> None:
        self.name = name
        self.version = version
        self.api_version = api_version
        self.methods = methods
        self.tools = tools
        self.notifications = notifications
        self.capabilities = capabilities

    def callable_methods(self) -> list[str]:
        """Every method a host may call: the declared ones, and the tools under their full names."""
        return list(dict.fromkeys((*self.methods, *(wire_name(self.name, tool) for tool in self.tools))))


def build_greeting(
    promise: Promise,
    storage: bool,
    projects: tuple[str, ...],
    daemon_version: str,
    config: dict[str, Any] | None,
    system_config: dict[str, Any] | None,
) -> dict[str, Any]:
    """The parameters of `initialize`; settings are there only when there are some to give."""
    settings = {"config": config, "system_config": system_config}
    return {
        "daemon_version": daemon_version,
        "api_version": promise.api_version,
        "plugin_name": promise.name,
        "storage_available": storage,
        "projects": list(projects),
        **{key: value for key, value in settings.items() if value is not None},
    }


def check_greeting(result: Any, promise: Promise) -> dict[str, Any] | Failure:
    """The identity from the greeting, as `Ready` carries it, or the reason to refuse the plugin."""
    refusal = (
        _check_identity(result, promise)
        or _check_shape(result)
        or _extra_methods(result, promise)
        or _check_capabilities(result, promise)
    )
    if refusal is not None:
        return refusal
    offered = set(result["methods"])
    return {
        "plugin_id": promise.name,
        "server_version": result["version"],
        "exposed_tools": [tool for tool in promise.tools if wire_name(promise.name, tool) in offered],
        "warnings": _warnings(result, promise),
    }


def _check_identity(result: Any, promise: Promise) -> Failure | None:
    if not isinstance(result, dict):
        return _failed("the answer to initialize is not an object")
    name, version = result.get("name"), result.get("api_version")
    if not isinstance(name, str):
        return _failed("the answer to initialize must hold name (a string)")
    if name != promise.name:
        names = {"expected_name": promise.name, "name": name}
        return _failed(f"the plugin calls itself {name!r}, not {promise.name!r}", **names)
    if type(version) is not int:
        return _failed("the answer to initialize must hold api_version (a number)")
    if version != promise.api_version:
        what = f"the plugin speaks version {version} of the plugin API; its manifest says {promise.api_version}"
        versions = {"expected": promise.api_version, "got": version}
        return Failure(Code.PROTOCOL_VERSION_MISMATCH, what, detail=versions)
    return None


def _check_shape(result: dict[str, Any]) -> Failure | None:
    if not isinstance(result.get("version"), str):
        return _failed("the answer to initialize must hold version (a string)")
    for key in LISTS:
        if not _are_texts(result.get(key)):
            return _failed(f"the answer to initialize must hold {key} (an array of strings)")
    return None


def _extra_methods(result: dict[str, Any], promise: Promise) -> Failure | None:
    extra = sorted(set(result["methods"]).difference(promise.callable_methods()))
    if not extra:
        return None
    return _failed(f"offers methods its manifest does not declare: {', '.join(extra)}", undeclared=extra)


def _check_capabilities(result: dict[str, Any], promise: Promise) -> Failure | None:
    extra = [used for used in dict.fromkeys(result["capabilities_used"]) if used not in promise.capabilities]
    if not extra:
        return None
    what = f"uses capabilities its manifest does not declare: {', '.join(extra)}"
    return Failure(Code.CAPABILITY_NOT_DECLARED, what, detail={"undeclared": extra})


def _warnings(result: dict[str, Any], promise: Promise) -> list[str]:
    offered, version = set(result["methods"]), result["version"]
    missing = [name for name in promise.callable_methods() if name not in offered]
    extra = [name for name in dict.fromkeys(result["notifications"]) if name not in promise.notifications]
    drift = [f"says it is version {version}; its manifest says {promise.version}"] * (version != promise.version)
    return [
        *(drift if promise.version else ()),
        *(f"declares {name!r} and does not offer it; calls to it may fail" for name in missing),
        *(f"announces notifications {name!r} its manifest does not declare; they will be dropped" for name in extra),
    ]


def read_greeting(params: Any) -> dict[str, Any]:
    """PLUGIN: what the host said in `initialize`; what is missing or of a wrong kind reads as nothing."""
    said = params if isinstance(params, dict) else {}
    projects, version = said.get("projects"), said.get("api_version")
    return {
        "daemon_version": _text(said.get("daemon_version")),
        "api_version": version if type(version) is int else 0,
        "plugin_name": _text(said.get("plugin_name")),
        "storage_available": said.get("storage_available") is True,
        "projects": [project for project in projects if isinstance(project, str)] if isinstance(projects, list) else [],
        "config": _object(said.get("config")),
        "system_config": _object(said.get("system_config")),
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _failed(what: str, **detail: Any) -> Failure:
    return Failure(Code.HANDSHAKE_FAILED, what, detail=detail)
