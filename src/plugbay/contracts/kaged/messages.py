"""The kaged methods: their names, their limits, and what the two ends say about themselves.

    → {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"daemon_version":…,"api_version":1,"plugin_name":…,…}}
    ← {"jsonrpc":"2.0","id":1,"result":{"name":…,"version":…,"api_version":1,"methods":[…],…}}
    → {"jsonrpc":"2.0","method":"initialized","params":{}}
    → {"jsonrpc":"2.0","id":2,"method":"<plugin>.<tool>","params":{…,"_context":{…}}}
    ← {"jsonrpc":"2.0","id":1,"method":"kaged.storage.get","params":{"key":…}}

Knows no states: what may be said when is `machine.py`'s. How a call is written and read is `calls.py`'s.
"""

from __future__ import annotations

from plugbay.model.operations import CallMethod, InvokeTool, RunHook
from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

API_VERSION = 1
"""The only version of the plugin API there is."""

DAEMON_VERSION = "0.1.0"
"""What the host says it is in `initialize`."""

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
"""What the name of a hook follows on the wire."""

NO_ID = 0
"""The id of an answer to what had none that could be read, or one that is no number."""

STATUS_OK = {"status": "ok"}


class Identity(Value):
    """What a plugin answers to `initialize`, and which operations it has handlers for. Tools by their bare names."""

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


def on_wire(plugin: str, tool: str) -> str:
    """The method of a tool: no two plugins have one of the same name."""
    return f"{plugin}.{tool}"


def topic(plugin: str, notification: str) -> str:
    """Where a plugin's notification is published."""
    return f"plugin.{plugin}.{notification}"


def identity_reply(identity: Identity) -> dict[str, Any]:
    """The result of `initialize`: exactly these keys; tools are methods like any other."""
    tools = [on_wire(identity.name, tool) for tool in identity.tools]
    return {
        "name": identity.name,
        "version": identity.version,
        "api_version": identity.api_version,
        "methods": list(dict.fromkeys((*identity.methods, *tools))),
        "notifications": list(identity.notifications),
        "capabilities_used": list(identity.capabilities_used),
    }
