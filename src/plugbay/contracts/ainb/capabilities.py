"""`[capabilities]`: what a plugin asks to touch, from ainb's grants to neutral `Access` values.

A grant is `true`, or a list of the only things it is asked for; `false` and `[]` ask for nothing. What is asked for
becomes strings that an operator grants: `event_bus` for `true`, `network=api.openai.com` for each entry of a list.
Owns the valid values of each capability. An unknown one is never granted, so asking for it is ignored with
a warning. Textual: whether a path or a host exists is asked elsewhere, and whether the operator grants anything is not
asked at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from plugbay.contracts.ainb.messages import CAPABILITIES
from plugbay.contracts.document import KeyPath
from plugbay.contracts.draft import Draft
from plugbay.model.addresses import clean_host
from plugbay.model.spec import Access
from plugbay.model.topics import covers

READ_FOLDERS = {
    # The contract names the first of these in one place and the second in another.
    "read_sessions": ("~/.agents-in-a-box/sessions", "~/.claude/agents-in-a-box/sessions"),
    "read_claude_logs": ("~/.claude/projects",),
    "read_codex_logs": ("~/.codex/sessions",),
}
"""The paths that `true` lets a plugin read, below the home of the host's user."""

DATA_FOLDER = "~/.agents-in-a-box/plugins/"
"""The plugin's own folder for data is here, under its name."""

_NARROWED_BY = {"event_bus": "topic", "spawn_subprocess": "run"}
"""Capabilities whose entries are targets of access as they stand, and the kind of it."""

_ONLY_LISTS = {
    "read_paths": "path",
    "spawn_managed_subprocess": "program",
    "unix_socket_dial": "socket",
}
"""Capabilities that `true` grants nothing of, and what their lists name."""

_ONLY_TRUE = (*READ_FOLDERS, "write_plugin_data", "workspace:write")
"""Capabilities for which a list has no defined meaning; treating it as `true` would grant more than was requested."""

_HOST = re.compile(r"(?:\[(?P<ipv6>[^\[\]]*:[^\[\]]*)\]|(?P<name>[^\[\]:]+))(?::(?P<port>[1-9][0-9]{0,4}))?")
_MAX_PORT = 65_535


def check(draft: Draft) -> None:
    """Every rule about grants, on whatever is there."""
    grants = draft.table("capabilities")
    draft.warn_of_unknown(("capabilities",), grants, CAPABILITIES)
    for name, grant in grants.items():
        if name in CAPABILITIES:
            _check_grant(draft, name, grant)


def requested(grants: Mapping[str, Any]) -> tuple[str, ...]:
    """The requested capabilities without problems, in the contract's order and each once."""
    asked: dict[str, None] = {}
    for name in CAPABILITIES:
        grant = grants.get(name, False)
        entries = [f"{name}={entry}" for entry in grant] if isinstance(grant, list) else [name] if grant else []
        asked |= dict.fromkeys(entries)
    return tuple(asked)


def access(plugin: str, capabilities: Iterable[str]) -> tuple[Access, ...]:
    """The access that these capabilities of `plugin` allow, in their order. Some need no guard in the host."""
    return tuple(replace(item, capability=text) for text in capabilities for item in _allowed(plugin, text))


def admits(grants: Mapping[str, Any], topic: str) -> bool:
    """Whether `event_bus` is asked for in a way that covers `topic`."""
    grant = grants.get("event_bus", False)
    targets = grant if isinstance(grant, list) else [""] if grant else []
    return any(isinstance(target, str) and covers(target, topic) for target in targets)


def _allowed(plugin: str, capability: str) -> list[Access]:
    name, narrowed, entry = capability.partition("=")
    if name == "network":
        target = _host(entry) if narrowed else Access("network")
        return [target] if target else []
    if name in _NARROWED_BY:
        return [Access(_NARROWED_BY[name], entry)]
    if name == "read_paths" and narrowed:
        return [Access("read_path", entry)]
    if name == "write_plugin_data" and not narrowed:
        return [Access("own_path", DATA_FOLDER + plugin)]
    return [] if narrowed else [Access("read_path", folder) for folder in READ_FOLDERS.get(name, ())]


def _check_grant(draft: Draft, name: str, grant: Any) -> None:
    path = ("capabilities", name)
    if not isinstance(grant, bool | list):
        draft.error("invalid_grant", path, f"must be true, false or a list of strings, got {grant!r:.60}")
    elif grant is True and name in _ONLY_LISTS:
        text = f"true has no meaning here; list every {_ONLY_LISTS[name]}"
        draft.warn("grant_without_effect", path, text)
    elif isinstance(grant, list):
        if grant and name in _ONLY_TRUE:
            draft.warn("grant_without_effect", path, "a list has no meaning here; write true")
        for at, entry in enumerate(grant):
            _check_entry(draft, (*path, at), name, entry)


def _check_entry(draft: Draft, path: KeyPath, name: str, entry: Any) -> None:
    problem = _entry_problem(name, entry)
    if problem is not None:
        draft.error("invalid_grant", path, problem)
    elif name == "event_bus" and "*" in entry[:-1]:
        draft.warn("grant_without_effect", path, f"{entry!r} has a '*' before its end, which stands for itself")


def _entry_problem(name: str, entry: Any) -> str | None:
    if not isinstance(entry, str):
        return f"must be a string, got {entry!r:.60}"
    # An empty target would be access to everything of its kind.
    if not entry.strip() or not entry.isprintable():
        return f"{entry!r:.60} is empty"
    if name == "network":
        return _host_problem(entry)
    if name == "read_paths":
        return _path_problem(entry)
    return None


def _path_problem(path: str) -> str | None:
    if path != "~" and not path.startswith(("/", "~/")):
        return f"{path!r} must be an absolute path, or begin with '~/'"
    return f"{path!r} must not contain '..'" if ".." in path.split("/") else None


def _host_problem(entry: str) -> str | None:
    if "*" in entry:
        return f"{entry!r} has a wildcard; name each host exactly, or write true for every host"
    if _host(entry) is None:
        return f"{entry!r} must be the name or the address of a host; ':' and a port may follow"
    return None


def _host(entry: str) -> Access | None:
    """Which host, and which port if not all of them; None when that cannot be told."""
    found = _HOST.fullmatch(entry)
    if found is None:
        return None
    host, port = clean_host(found["ipv6"] or found["name"]), found["port"]
    if host is None or int(port or 0) > _MAX_PORT:
        return None
    return Access("network", host, int(port) if port else None)
