"""`Gate`: decides which requests and notifications of one plugin are allowed. Pure.

Deny by default: a plugin has the capabilities that it requests and the operator grants. The host and the test host of
the SDK ask the same gate, so both refuse the same requests with the same failure. Decisions that need a service (links
of a file system, addresses of a name, used storage) call the functions at the end of this module with facts.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable
from os.path import normpath
from pathlib import PurePosixPath

from plugbay.model.addresses import covered
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.fetch import read_url
from plugbay.model.operations import (
    AskUser,
    CompleteChat,
    DeleteStored,
    FetchUrl,
    GetSnapshot,
    GetStored,
    InvokeAction,
    ListRoots,
    ListStored,
    Publish,
    PublishSnapshot,
    ReadFile,
    ReadFolder,
    RecallMemory,
    SetStored,
    SubscribeSnapshot,
    WriteLog,
)
from plugbay.model.sizes import MAX_PAYLOAD
from plugbay.model.spec import Access, Export, PluginSpec
from plugbay.model.topics import HOST_ONLY, UI_STATE, covers, matches, subject_problem, topic_problem

MAX_EVENT = 1_040_000
"""Bytes of one event as JSON: with its envelope, the most that a plugin's SDK accepts in one line (1 MiB)."""

MAX_SUBSCRIPTIONS = 256
"""Snapshot subscriptions of one instance."""

MAX_KEY = 512
"""Bytes of a storage key."""
MAX_VALUE = 1 << 20
"""Bytes of one stored value as JSON, so that it fits a response to a plugin."""
MAX_KEYS = 10_000
"""Storage keys of one plugin; a plugin with more needs a database of its own."""
MAX_STORED = 64 << 20
"""Default of the bytes of one plugin's keys and values."""

MAX_LISTED = 1_000
"""Storage keys of one response: at their longest they still fit a plugin's line."""

MAX_PATH = 4_096
"""Bytes of a path, as Linux has it."""

EVENT_BUS = "event_bus"
"""The capability for snapshots of any topic."""

_NEEDS = {RecallMemory: "memory.recall", AskUser: "elicitation", ListRoots: "roots"}
"""The capability of each of these requests."""

_KERNEL_FOLDERS = ("/proc", "/sys", "/dev")
"""Kernel file systems, with the host's own memory among their files; a grant of `/` does not include them."""


# Grants.


def grant(spec: PluginSpec, names: Collection[str] | None) -> tuple[str, ...]:
    """The capabilities of a plugin to which the operator grants `names`; None grants everything requested.

    The requested ones come in their order, then the optional ones. Granting `network` grants every `network=HOST` that
    was requested, and no more than these. If the handshake requests, all of `names` are granted.
    """
    possible = tuple(dict.fromkeys((*spec.capabilities, *spec.optional_capabilities)))
    if names is None:
        return possible
    if spec.requests_at_run_time:
        possible = tuple(dict.fromkeys((*possible, *sorted(names))))
    granted = renounced(spec).union(names)
    return tuple(name for name in possible if name in granted or name.partition("=")[0] in granted)


def requested_capabilities(specs: Iterable[PluginSpec]) -> frozenset[str]:
    """The capabilities that the manifests of these plugins request, by every name that grants them."""
    wanted = [name for spec in specs for name in (*spec.capabilities, *spec.optional_capabilities)]
    return frozenset([*wanted, *(name.partition("=")[0] for name in wanted)])


def renounced(spec: PluginSpec) -> frozenset[str]:
    """Capabilities that renounce access, such as kaged's `net:[]`. They need no grant."""
    return frozenset(item.capability for item in spec.access if item.kind == "no_network")


def access(spec: PluginSpec, granted: Collection[str]) -> tuple[Access, ...]:
    """The access that the granted capabilities allow."""
    return tuple(item for item in spec.access if item.capability in granted)


def refuse_call(spec: PluginSpec, export: Export, granted: Collection[str]) -> Failure | None:
    """Why an export that needs capabilities may not be called; None if they are granted."""
    missing = tuple(name for name in export.capabilities if name in spec.capabilities and name not in granted)
    if not missing:
        return None
    text = f"{export.name} needs {', '.join(missing)}, which is not granted"
    detail = {"hint": how_to_grant(spec, missing)}
    return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY, plugin=spec.id, detail=detail)


def how_to_grant(spec: PluginSpec, names: Iterable[str]) -> str:
    """The hint for an operator how to grant these capabilities."""
    words = [shlex.quote(name) for name in names]  # `net:*` is a pattern to a shell
    flags = " ".join(f"--grant {word}" for word in words)
    lasting = (
        f"with grants = [...] in plugbay.toml; on a server: plugbay grant {shlex.quote(spec.id)} {' '.join(words)}"
    )
    return f"grant it for this run with {flags}, or permanently {lasting}"


def covers_topic(access: Iterable[Access], topic: str) -> bool:
    """Whether snapshots of this topic may be read and published."""
    return any(item.kind == "topic" and covers(item.target, topic) for item in access)


def may_spawn(access: Iterable[Access]) -> bool:
    """Whether the plugin may have processes started."""
    return any(item.kind == "run" for item in access)


def refuse_capability(capability: str, text: str) -> Failure:
    """A refusal that names the missing capability."""
    return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY, detail={"capability": capability})


# Requests and notifications.


class Gate:
    """The decisions about one plugin with these grants."""

    def __init__(self, spec: PluginSpec, granted: Collection[str]) -> None:
        self._spec = spec
        self._granted = granted
        self.access = access(spec, granted)
        self._own_state = f"{UI_STATE}/{spec.id}"

    def refuse(self, op: object) -> Failure | None:
        """Why a request or notification is refused; None if it is allowed."""
        match op:
            case RecallMemory() | AskUser() | ListRoots():
                return self._refuse_ungranted(_NEEDS[type(op)])
            case CompleteChat():
                sampling = "sampling" in self._spec.optional_capabilities
                return self._refuse_ungranted("sampling" if sampling else "llm.complete")
            case Publish():
                return self._refuse_event(op)
            case GetStored() | SetStored() | DeleteStored() | ListStored():
                return self._refuse_stored(op)
            case GetSnapshot() | SubscribeSnapshot() | PublishSnapshot():
                return self._refuse_snapshot(op)
            case ReadFile() | ReadFolder():
                problem = path_problem(op.path)
                return None if problem is None else invalid(problem)
            case FetchUrl():
                url = read_url(op)
                return invalid(url) if isinstance(url, str) else refuse_network(self.access, url.host, url.port)
            case InvokeAction() | WriteLog():
                return None
        text = f"this host does not offer {type(op).__name__} to plugins"
        return Failure(Code.NOT_FOUND, text, detail={"absent": True})

    def _refuse_ungranted(self, capability: str) -> Failure | None:
        if capability in self._granted:
            return None
        hint = f"grant it with --grant {capability}, or with grants = [{capability!r}] in plugbay.toml"
        return refuse_capability(capability, f"{capability} is not granted to {self._spec.id}; {hint}")

    def _refuse_event(self, op: Publish) -> Failure | None:
        problem = subject_problem(op.topic)
        if problem is not None:
            return invalid(f"cannot publish to {op.topic!r}: {problem}")
        if not any(matches(pattern, op.topic) for pattern in self._spec.publishes):
            allowed = ", ".join(self._spec.publishes) or "nothing"
            text = f"{op.topic!r} is outside this plugin's topics ({allowed})"
            return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY)
        if isinstance(op.event, dict):
            return None
        return invalid(f"not an event: an event is an object, not {type(op.event).__name__}")

    def _refuse_stored(self, op: GetStored | SetStored | DeleteStored | ListStored) -> Failure | None:
        kind = "storage_write" if isinstance(op, SetStored | DeleteStored) else "storage_read"
        if not any(item.kind == kind for item in self.access):
            text = f"{kind.replace('_', ' ')} access was not requested and granted"
            return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY)
        problem = prefix_problem(op.prefix) if isinstance(op, ListStored) else key_problem(op.key)
        return None if problem is None else invalid(problem)

    def _refuse_snapshot(self, op: GetSnapshot | SubscribeSnapshot | PublishSnapshot) -> Failure | None:
        problem = None if isinstance(op, GetSnapshot) else topic_problem(op.topic)
        if problem is not None:
            return invalid(problem)
        if not covers_topic(self.access, op.topic):
            text = f"{EVENT_BUS} is not granted to {self._spec.id} for the topic {op.topic[:100]!r}"
            return refuse_capability(EVENT_BUS, text)
        if not isinstance(op, PublishSnapshot):
            return None
        if op.topic.startswith(HOST_ONLY):
            return refuse_capability(EVENT_BUS, f"only the host publishes under {op.topic}")
        key = self.snapshot_key(op.topic)
        if key.startswith(f"{UI_STATE}/") and key != self._own_state:
            return self.refuse_ui_state(op.topic)
        return refuse_snapshot_size(len(op.data))

    def snapshot_key(self, topic: str) -> str:
        """The key under which a topic is stored: each plugin has its own for the state of its screens."""
        return self._own_state if topic == UI_STATE else topic

    def refuse_ui_state(self, topic: str) -> Failure:
        """The refusal of a snapshot of screens that are not the plugin's, or no longer."""
        return refuse_capability(EVENT_BUS, f"{topic} belongs to another plugin, or to a process that is gone")

    def refuse_path(self, path: str, home: str, reason: str = "") -> Failure:
        """The refusal of a path outside the granted folders; a `reason` says why no grant opens it.

        Names the capability whose folder has this path, a requested one first. Does not resolve links: the access was
        refused.
        """
        capability = capability_for_path((*self._spec.access, *self._spec.gates), path, home)
        return refuse_capability(capability, reason or f"{path} is outside the grants of {self._spec.id}")

    def read_roots(self) -> list[str]:
        """The readable folders and files, `~` not expanded."""
        return [item.target for item in self.access if item.kind == "read_path"]


def capability_for_path(known: Iterable[Access], path: str, home: str) -> str:
    """The first capability whose folder holds this path, or else the general one."""
    wanted = PurePosixPath(normpath(path))
    for item in known:
        root = PurePosixPath(home, item.target[2:]) if item.target.startswith("~/") else PurePosixPath(item.target)
        if item.kind == "read_path" and wanted.is_relative_to(root):
            return item.capability.partition("=")[0]
    return "read_paths"


# Decisions on facts of a service.


def refuse_event_size(size: int) -> Failure | None:
    """Why a complete event of so many bytes is refused."""
    if size <= MAX_EVENT:
        return None
    return Failure(Code.FRAME_TOO_LARGE, f"the event has {size:,} bytes; at most {MAX_EVENT:,}")


def refuse_snapshot_size(size: int, limit: int = MAX_PAYLOAD) -> Failure | None:
    """Why a snapshot of so many bytes is refused."""
    if size <= limit:
        return None
    text = f"the snapshot has {size:,} bytes; at most {limit:,} fit one message"
    return Failure(Code.FRAME_TOO_LARGE, text, detail={"limit": "entry"})


def refuse_subscription(topics: Collection[str]) -> Failure | None:
    """Why an instance may not be subscribed to all these topics."""
    if len(topics) <= MAX_SUBSCRIPTIONS:
        return None
    return Failure(Code.OVERLOADED, f"it already subscribes to {MAX_SUBSCRIPTIONS} topics, the limit")


def key_problem(key: str) -> str | None:
    """Why a storage key is invalid; None if it is valid."""
    return _size_problem("the key", key) if key else "the key must not be empty"


def prefix_problem(prefix: str) -> str | None:
    """Why a prefix of storage keys is invalid; None if it is valid."""
    return _size_problem("the prefix", prefix)


def _size_problem(what: str, text: str) -> str | None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return f"{what} is not Unicode text: {error.reason}"
    return None if size <= MAX_KEY else f"{what} has {size} bytes; at most {MAX_KEY} are allowed"


def value_problem(size: int) -> str | None:
    """Why a stored value of so many bytes is invalid; None if it is valid."""
    return None if size <= MAX_VALUE else f"the value has {size:,} bytes; at most {MAX_VALUE:,} are allowed"


def refuse_storage(keys: int, used: int, *, max_keys: int = MAX_KEYS, max_total: int = MAX_STORED) -> Failure | None:
    """Why a plugin may not have so many keys, or so many bytes of keys and values."""
    for what, wanted, limit in (("keys", keys, max_keys), ("bytes", used, max_total)):
        if wanted > limit:
            text = f"the plugin's storage is full: this would make {wanted:,} {what}, and {limit:,} are allowed"
            return Failure(Code.UNAVAILABLE, text, detail={"quota": what, "limit": limit})
    return None


def path_problem(path: str) -> str | None:
    """Why a path is invalid; None if it is valid."""
    if not path.startswith("/") or "\0" in path:
        return f"read {path}: the path must be absolute; ~ is not expanded"
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        return "read : the path is not Unicode text"
    return None if size <= MAX_PATH else f"read {path[:40]}: the path has {size:,} bytes; at most {MAX_PATH:,}"


def is_readable(path: PurePosixPath, roots: Iterable[PurePosixPath]) -> bool:
    """Whether a path without links lies in one of the granted folders."""
    return any(map(path.is_relative_to, roots)) and not any(map(path.is_relative_to, _KERNEL_FOLDERS))


def refuse_network(access: Iterable[Access], host: str, port: int) -> Failure | None:
    """Why a plugin may not connect to this host and port."""
    if covered(access, host, port):
        return None
    return refuse_capability("network", f"the network is not granted for {host}, port {port}")


def refuse_answer(problem: str) -> Failure:
    """The refusal of a user's answer that does not fit the question of the plugin."""
    return invalid(f"the answer does not match the schema of the question:  {problem}")


def invalid(message: str) -> Failure:
    """The failure of a request that no grant makes valid."""
    return Failure(Code.INVALID_INPUT, message)
