"""`kaged-plugin.yaml`: from the text of a manifest to a `PluginSpec`.

Owns the rules between fields, the names, and the grammar of capabilities:

    read:fs:<path>    write:fs:<path>    exec:<binary>:<path>
    net:<host>:<port>    net:<host>:*    net:*    net:[]
    kaged:storage:read    kaged:storage:write

Pure: it takes text; whether a program, path or host exists is checked elsewhere. Each rule reads the draft on its own,
so one mistake never hides another. Unknown keys are ignored with a warning, because the contract is silent about them.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from plugbay.contracts.document import Document, KeyPath
from plugbay.contracts.draft import Draft
from plugbay.contracts.kaged import knobs
from plugbay.contracts.kaged.calls import CONTEXT
from plugbay.contracts.kaged.messages import API_VERSION, HEALTH_CHECK, MAX_NOTIFICATIONS, topic, wire_name
from plugbay.contracts.kaged.sections import Manifest, Tool
from plugbay.contracts.kaged.spec import timeouts
from plugbay.contracts.schemas import schema_problem
from plugbay.contracts.validation import validate
from plugbay.model.errors import Problem
from plugbay.model.spec import (
    Access,
    Export,
    Lifetime,
    PluginSpec,
    RestartPolicy,
    SandboxRequest,
    SettingsSpec,
)

USUAL_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")
"""Taken from the host, so that a program finds its interpreter, its locale and a place for temporary files."""
ENV_FACTS = (
    ("KAGED_PROJECT_ID", "project.id"),
    ("KAGED_PROJECT_ROOT", "project.root"),
    ("KAGED_CONFIG_ROOT", "config.root"),
)
"""Variables that published plugins read to learn where they run."""
PRIMARY_HOOKS = frozenset({"on_session_start", "on_session_idle"})
"""Hooks about a session, which only the primary agent has; the others are fired for every agent."""
UNDECLARED_PROGRAMS = ("mkdir",)
"""Programs that published plugins run without a capability. They can do no more than the plugin itself."""
HEALTH_PATIENCE = 5.0
"""Seconds a plugin has to answer a health check, by the contract."""
RESTART = RestartPolicy(
    first_delay=1.0, factor=2.0, longest_delay=60.0, jitter=0.1, failures=5, window=300.0, healthy_after=60.0
)
"""The contract says that plugins are restarted and in the end disabled, but not when."""


def parse(text: str, root: Path, environ: Mapping[str, str] | None = None) -> tuple[PluginSpec | None, list[Problem]]:
    """The spec of the plugin in `root`, and every problem of its manifest. No spec when any of them is an error.

    kaged gives no variable of the host a meaning, so `environ` is not looked at.
    """
    from plugbay.contracts.yaml_document import parse_yaml  # the only format that needs a YAML parser

    document = parse_yaml(text)
    if isinstance(document, Problem):
        return None, [document]
    if not isinstance(document.value, dict):
        return None, [Problem("invalid_type", "", "the manifest must be one mapping of keys to values", line=1)]
    manifest, problems = validate(Manifest, document)
    problems = sorted([*problems, *_broken_rules(document)], key=lambda problem: problem.line or 0)
    if manifest is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    return _spec(manifest, root), problems


def _broken_rules(document: Document) -> list[Problem]:
    draft = Draft(document)
    check_rules(draft)
    knobs.check(draft)
    return draft.problems


def _spec(manifest: Manifest, root: Path) -> PluginSpec:
    capabilities = _distinct(manifest.capabilities)
    return PluginSpec(
        id=manifest.name,
        version=manifest.version,
        contract="kaged",
        root=root,
        command=tuple(manifest.command),
        name=manifest.name,
        description=manifest.description,
        cwd=root,
        env=tuple(manifest.env.items()),
        env_inherit=USUAL_VARIABLES,
        lifetime=Lifetime.RESIDENT,
        exports=_exports(manifest),
        capabilities=capabilities,
        timeouts=timeouts(manifest.shutdown_timeout_sec),
        patience={"RunHook": float(manifest.hook_timeout_sec), "CheckHealth": HEALTH_PATIENCE},
        eager=True,
        respawn=True,
        restart=RESTART,
        publishes=tuple(topic(manifest.name, name) for name in _distinct(manifest.notifications)),
        publish_rate=MAX_NOTIFICATIONS,
        sandbox=SandboxRequest(fenced=True, tools=UNDECLARED_PROGRAMS),
        access=_access(capabilities),
        settings=_settings(manifest),
        health_interval=float(manifest.health_interval_sec),
        roles=_roles(manifest),
        env_facts=ENV_FACTS,
    )


def _exports(manifest: Manifest) -> tuple[Export, ...]:
    """A tool has its bare name, and its registered one as an alias; a compactor has no name, so it has its plugin's."""
    tools = [
        Export(
            "tool",
            tool.name,
            tool.description,
            # None accepts anything: a schema that cannot be enforced has been warned about.
            None if parameters_problem(tool.parameters_schema) else tool.parameters_schema,
            alias=wire_name(manifest.name, tool.name),
        )
        for tool in manifest.tools
    ]
    methods = [Export("method", name) for name in _distinct(manifest.methods)]
    hooks = [
        Export("hook", name, facts={"advisory": True, "primary_only": name in PRIMARY_HOOKS})
        for name in _distinct(manifest.hooks)
    ]
    compactors = [Export("compactor", manifest.name)] if "compactor" in _roles(manifest) else []
    return (*tools, *methods, *hooks, *compactors)


def _access(capabilities: Iterable[str]) -> tuple[Access, ...]:
    """One for each capability, in the same order."""
    parsed = [(text, parse_capability(text)) for text in capabilities]
    return tuple(replace(access, capability=text) for text, access in parsed if isinstance(access, Access))


def _settings(manifest: Manifest) -> SettingsSpec:
    return SettingsSpec(
        config_schema=manifest.config_schema,
        secrets_schema=manifest.system_config_schema,
        knobs=tuple(knobs.knob(name, entry, manifest.config_schema or {}) for name, entry in manifest.knobs.items()),
    )


def _roles(manifest: Manifest) -> tuple[str, ...]:
    if manifest.roles is None:
        return ("observer",) if manifest.hooks else ()
    return _distinct(manifest.roles)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


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


def check_rules(draft: Draft) -> None:
    """Every rule, on whatever is there."""
    _identity(draft)
    _homepage(draft)
    _process(draft)
    _capabilities(draft)
    _names(draft)
    _tools(draft)
    _check_roles(draft)
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
        draft.warn("version_not_semver", ("version",), f"{version!r} is not a semantic version such as 1.2.3")
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
            draft.error("invalid_value", path, "must contain a program")
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
            draft.warn("protocol_method", path, f"{name!r} belongs to the protocol; every plugin has it")
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
            draft.warn("duplicate", path, f"{name!r} appears twice")
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


def _tool_name(draft: Draft, path: KeyPath, name: str, seen: set[str]) -> None:
    plugin = draft.text("name") or ""
    if name and not _TOOL.fullmatch(name):
        text = f"{name!r} must be a lower-case letter followed by lower-case letters, digits, '_' or '-'"
        draft.error("invalid_tool_name", path, text)
    elif name in seen:
        draft.error("duplicate_tool", path, f"{name!r} is the name of two tools")
    elif wire_name(plugin, name) == HEALTH_CHECK:
        draft.error("reserved_name", path, f"on the wire it would be {HEALTH_CHECK!r}, which belongs to the protocol")
    seen.add(name)


def _parameters(draft: Draft, path: KeyPath, schema: dict[str, Any]) -> None:
    properties = schema.get("properties")
    if isinstance(properties, dict) and CONTEXT in properties:
        text = f"{CONTEXT!r} is added by the host to every call; a tool cannot have a parameter of that name"
        draft.error("reserved_parameter", (*path, "properties", CONTEXT), text)
    problem = parameters_problem(schema)
    if problem:
        draft.warn("invalid_schema", path, f"cannot be enforced, so inputs go unchecked: {problem}")


def _check_roles(draft: Draft) -> None:
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
            text = f"{name!r} is a field of config_schema too; a setting cannot be both"
            draft.error("schemas_overlap", ("system_config_schema", "properties", name), text)


def _offer(draft: Draft) -> None:
    offers = [draft.value(field) for field in ("methods", "hooks", "tools")]
    if all(offer is None or offer == [] for offer in offers):
        draft.error(
            "nothing_offered", ("methods",), "methods, hooks and tools are all empty; a plugin needs at least one"
        )


def _ignored(draft: Draft) -> None:
    draft.warn_of_unknown((), draft.table(), tuple(Manifest.model_fields))


FORMS = (
    "read:fs:<path>, write:fs:<path>, exec:<binary>:<path>, net:<host>:<port>, net:<host>:*, net:*, net:[], "
    "kaged:storage:read, kaged:storage:write"
)
NO_NETWORK = "net:[]"
"""Says that nothing of the network is wanted, so nothing else of it can stand beside it."""
_FIXED = {
    "net:*": Access("network"),
    NO_NETWORK: Access("no_network"),
    "kaged:storage:read": Access("storage_read"),
    "kaged:storage:write": Access("storage_write"),
}
_PATHS = {"read:fs:": "read_path", "write:fs:": "write_path"}
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.IGNORECASE)
_MAX_HOST = 253
"""Characters of a host's name, by the rules of the domain name system."""
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_MAX_PORT = 65_535


def parse_capability(text: str) -> Access | str:
    """The access that `text` requests; or its problem, in words that name it."""
    if text in _FIXED:
        return _FIXED[text]
    for prefix, kind in _PATHS.items():
        if text.startswith(prefix):
            return _path(kind, text, text.removeprefix(prefix))
    if text.startswith("exec:"):
        return _program(text)
    if text.startswith("net:"):
        return _network(text)
    return f"{text!r} is not a capability; there are {FORMS}"


def conflicts(capabilities: Iterable[str]) -> list[str]:
    """The problem with these strings together."""
    network = [text for text in dict.fromkeys(capabilities) if text.startswith("net:")]
    if NO_NETWORK not in network or len(network) == 1:
        return []
    others = ", ".join(repr(text) for text in network if text != NO_NETWORK)
    return [f"{NO_NETWORK!r} excludes the network, but {others} requests it"]


def _path(kind: str, text: str, path: str) -> Access | str:
    if not path.startswith("/"):
        return f"{text!r} needs an absolute path, got {path!r}"
    if "\0" in path or ".." in path.split("/"):
        return f"{text!r} needs a path without '..' and NUL"
    # Exactly one slash in front: POSIX, and so normpath, lets two mean something else.
    return Access(kind, posixpath.normpath("/" + path.lstrip("/")))


def _program(text: str) -> Access | str:
    """The path is what runs; the name before it is what people call it."""
    binary, _, path = text.removeprefix("exec:").partition(":")
    if not binary.strip():
        return f"{text!r} has no binary: exec:<binary>:<path>"
    if not path:
        return f"{text!r} lacks the path of the binary: exec:<binary>:<path>"
    return _path("run", text, path)


def _network(text: str) -> Access | str:
    # At the last colon: an address of IPv6 has some of its own.
    host, _, port = text.removeprefix("net:").rpartition(":")
    problem = _host_problem(host)
    if problem:
        return f"{text!r} {problem}"
    if port != "*" and not (_PORT.fullmatch(port) and int(port) <= _MAX_PORT):
        return f"{text!r} needs a port from 1 to {_MAX_PORT}, or '*' for all of them, got {port!r}"
    return Access("network", host.strip("[]").lower(), None if port == "*" else int(port))


def _host_problem(host: str) -> str | None:
    if not host:
        return "needs a host and a port: net:<host>:<port>, or net:<host>:* for all ports"
    if host.startswith("[") and host.endswith("]"):
        return None if _is_ipv6(host[1:-1]) else f"has no IPv6 address in its brackets: {host!r}"
    if host.startswith("["):
        return "needs a port after its brackets: net:[<address>]:<port>"
    if ":" in host:
        return f"needs brackets around an IPv6 address: net:[{host}]:<port>"
    if len(host) > _MAX_HOST or not _HOST.fullmatch(host):
        return f"needs the name or the address of one host, got {host!r}"
    return None


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text
