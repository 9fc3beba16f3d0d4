"""The rules of a kaged manifest that its shape cannot say.

Owns the grammar of names, and every rule between fields but those of `knobs`. Each rule reads from the draft on its
own, so one mistake never hides another. Values only: whether a file or a program exists is asked elsewhere, and that
an agent has one compactor at most is seen when plugins are attached to it.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from plugbay.contracts.document import Path
from plugbay.contracts.draft import Draft
from plugbay.contracts.kaged.calls import CONTEXT
from plugbay.contracts.kaged.capabilities import NO_NETWORK, conflicts, parse_capability
from plugbay.contracts.kaged.messages import API_VERSION, HEALTH_CHECK, on_wire
from plugbay.contracts.kaged.sections import Manifest, Tool
from plugbay.contracts.schemas import schema_problem

RESERVED = ("kaged", "system")
"""The first segments of methods that belong to the daemon; a plugin's name is the first segment of its tools."""

HOST_VARIABLES = "KAGED_"
"""Variables that begin so tell a plugin where it runs."""

MAX_NOTIFICATION = 256
"""Characters of a notification's name: the host remembers the topics it has seen."""

SEGMENT = r"[a-z][a-z0-9_-]*"
"""One part of a method. The contract prints no alphabet; these are the characters real names have."""

_TOOL = re.compile(SEGMENT)
_METHOD = re.compile(rf"{SEGMENT}(?:\.{SEGMENT}){{1,3}}")
_NOTIFICATION = re.compile(r"[^\s.*>\x00-\x1f\x7f]+(?:\.[^\s.*>\x00-\x1f\x7f]+)*")
_SEMVER = re.compile(r"(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*)){2}(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")


def check(draft: Draft) -> None:
    """Every rule, on whatever is there."""
    _identity(draft)
    _homepage(draft)
    _process(draft)
    _capabilities(draft)
    _names(draft)
    _tools(draft)
    _roles(draft)
    _schemas(draft)
    _offer(draft)
    _ignored(draft)


def parameters_problem(schema: Any) -> str | None:
    """Why nothing can be checked with a schema of an object; None when it can."""
    kinds = schema.get("type", "object")
    if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
        return f"must describe an object, not {kinds!r}"
    return schema_problem(schema)


def _identity(draft: Draft) -> None:
    name = draft.text("name")
    if name in RESERVED:
        draft.error("reserved_name", ("name",), f"{name!r} is the daemon's own name for methods")
    version = draft.text("version")
    if version and not _SEMVER.fullmatch(version):
        draft.warn("version_not_semver", ("version",), f"{version!r} is no semantic version such as 1.2.3")
    api = draft.value("kaged_api")
    if type(api) is int and api > 0 and api != API_VERSION:
        text = f"needs version {api} of the plugin API, this host speaks {API_VERSION}"
        draft.error("kaged_api_unsupported", ("kaged_api",), text)


def _homepage(draft: Draft) -> None:
    text = draft.text("homepage")
    if text is not None and not _is_url(text):
        draft.error("invalid_value", ("homepage",), f"must be a URL that begins with http:// or https://, got {text!r}")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        usable = parts.port != 0
    except ValueError:
        return False
    return (
        usable and parts.scheme in ("http", "https") and bool(parts.hostname) and text.isprintable() and " " not in text
    )


def _process(draft: Draft) -> None:
    for path, word in draft.texts("command"):
        if path[-1] == 0 and not word.strip():
            draft.error("invalid_value", path, "must name a program")
        if "\0" in word:
            draft.error("invalid_value", path, "must not contain a NUL character")
    for name, value in draft.table("env").items():
        path = ("env", name)
        if not name or "=" in name or "\0" in name or "\0" in str(value):
            draft.error("invalid_value", path, "a name is not empty and has no '='; neither it nor its value has a NUL")
        elif name.startswith(HOST_VARIABLES):
            draft.warn(
                "host_env", path, f"variables that begin with {HOST_VARIABLES} are the host's; this hides its own"
            )


def _capabilities(draft: Draft) -> None:
    entries = draft.texts("capabilities")
    for path, text in entries:
        found = parse_capability(text)
        if isinstance(found, str):
            draft.error("invalid_capability", path, found)
    for problem in conflicts(text for _, text in entries):
        at = next(path for path, text in entries if text == NO_NETWORK)
        draft.error("capability_conflict", at, problem)


def _names(draft: Draft) -> None:
    for path, name in draft.texts("methods"):
        problem = _method_problem(name)
        if problem:
            draft.error("invalid_method", path, problem)
        elif name == HEALTH_CHECK:
            draft.warn("protocol_method", path, f"{name!r} belongs to the protocol, every plugin has it")
    for path, name in draft.texts("notifications"):
        if len(name) > MAX_NOTIFICATION or not _NOTIFICATION.fullmatch(name):
            text = f"{name!r} must be segments without spaces, '*' and '>', and dots between them"
            draft.error("invalid_notification", path, f"{text}, of {MAX_NOTIFICATION} characters at most")
    for field in ("capabilities", "methods", "notifications", "hooks", "roles"):
        _twice(draft, field)


def _method_problem(name: str) -> str | None:
    if not _METHOD.fullmatch(name):
        return (
            f"{name!r} must have 2 to 4 segments with dots between them, "
            "each a lower-case letter followed by lower-case letters, digits, '_' or '-'"
        )
    first = name.partition(".")[0]
    return f"{name!r} is reserved: methods that begin with '{first}.' are the daemon's" if first in RESERVED else None


def _twice(draft: Draft, field: str) -> None:
    seen: set[str] = set()
    for path, name in draft.texts(field):
        if name in seen:
            draft.warn("duplicate", path, f"{name!r} is there twice")
        seen.add(name)


def _tools(draft: Draft) -> None:
    seen: set[str] = set()
    for path, tool in draft.tables("tools"):
        draft.warn_of_unknown(path, tool, tuple(Tool.model_fields))
        name = tool.get("name")
        if isinstance(name, str):
            _tool_name(draft, (*path, "name"), name, seen)
        schema = tool.get("parameters_schema")
        if isinstance(schema, dict):
            _parameters(draft, (*path, "parameters_schema"), schema)


def _tool_name(draft: Draft, path: Path, name: str, seen: set[str]) -> None:
    plugin = draft.text("name") or ""
    if name and not _TOOL.fullmatch(name):
        text = f"{name!r} must be a lower-case letter followed by lower-case letters, digits, '_' or '-'"
        draft.error("invalid_tool_name", path, text)
    elif name in seen:
        draft.error("duplicate_tool", path, f"{name!r} is the name of two tools")
    elif on_wire(plugin, name) == HEALTH_CHECK:
        draft.error("reserved_name", path, f"on the wire it would be {HEALTH_CHECK!r}, which is the protocol's own")
    seen.add(name)


def _parameters(draft: Draft, path: Path, schema: dict[str, Any]) -> None:
    properties = schema.get("properties")
    if isinstance(properties, dict) and CONTEXT in properties:
        text = f"{CONTEXT!r} is what the host adds to every call, no tool can have a parameter of that name"
        draft.error("reserved_parameter", (*path, "properties", CONTEXT), text)
    problem = parameters_problem(schema)
    if problem:
        draft.warn("invalid_schema", path, f"cannot be enforced, so inputs go unchecked: {problem}")


def _roles(draft: Draft) -> None:
    hooks = [name for _, name in draft.texts("hooks")]
    for path, role in draft.texts("roles"):
        if role == "compactor" and "pre_compact" not in hooks:
            draft.error("compactor_without_hook", path, "a compactor needs 'pre_compact' in hooks")


def _schemas(draft: Draft) -> None:
    for field in ("config_schema", "system_config_schema"):
        schema = draft.value(field)
        problem = parameters_problem(schema) if isinstance(schema, dict) else None
        if problem:
            draft.error("invalid_schema", (field,), f"cannot be used: {problem}")
    secrets = draft.table("system_config_schema", "properties")
    for name in draft.table("config_schema", "properties"):
        if name in secrets:
            text = f"{name!r} is a field of config_schema too; a setting is a secret or it is not"
            draft.error("schemas_overlap", ("system_config_schema", "properties", name), text)


def _offer(draft: Draft) -> None:
    offers = [draft.value(field) for field in ("methods", "hooks", "tools")]
    if all(offer is None or offer == [] for offer in offers):
        draft.error(
            "nothing_offered", ("methods",), "methods, hooks and tools are all empty; a plugin has one at least"
        )


def _ignored(draft: Draft) -> None:
    draft.warn_of_unknown((), draft.table(), tuple(Manifest.model_fields))
