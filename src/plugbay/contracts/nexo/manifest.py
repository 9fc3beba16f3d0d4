"""`nexo-plugin.toml`: from the text of a manifest to a `PluginSpec`.

Owns the rules between fields, each with the contract's name for its violation, the topics a plugin may use, and the
timeouts. Pure: it takes text and the host's environment as values; which programs and files exist is checked elsewhere.
Each rule reads the draft on its own, so one mistake never hides another. Unknown keys inside a known section are
errors, as the contract demands; unknown sections are ignored with a warning, because shipped plugins carry those of
later versions. The contract derives topics from the registered channels alone; later hosts let `capabilities.broker`
add to them, but only within the plugin's own names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from plugbay.contracts.document import Document, KeyPath, parse_toml
from plugbay.contracts.draft import Draft
from plugbay.contracts.nexo import sandbox
from plugbay.contracts.nexo.messages import CONTRACT_VERSION, NEXO_VERSION
from plugbay.contracts.nexo.sections import LATER_SECTIONS, Extends, Manifest, Plugin, Supervisor, is_section
from plugbay.contracts.nexo.spec import TIMEOUTS
from plugbay.contracts.nexo.versions import Requirement, version_problem
from plugbay.contracts.validation import unknown_keys, validate
from plugbay.model.errors import Problem
from plugbay.model.spec import Export, Lifetime, PluginSpec, RestartPolicy, SandboxRequest, Timeouts

OPTIONAL_CAPABILITIES = ("memory.recall", "llm.complete")
"""Services any plugin may ask for without having requested them: the capabilities that a grant opens."""
BROKER = "broker"
"""A capability that every plugin has: its topics follow from its channels."""
LONGEST_BACKOFF = 60.0
LONGEST_PROBATION = 600.0
"""Seconds: respawns are never further apart, and a run this long always forgets earlier crashes."""
NEWEST_MANIFEST = 2
"""The newest `manifest_version` seen; the number says nothing that 1.10 needs to know."""
_KINDS = {
    "tools": "tool",
    "channels": "channel",
    "llm_providers": "llm_provider",
    "memory_backends": "vector_backend",
    "hooks": "hook",
}
"""The kind of export each list of `[plugin.extends]` yields."""


def parse(text: str, root: Path, environ: Mapping[str, str]) -> tuple[PluginSpec | None, list[Problem]]:
    """The spec of the plugin in `root`, and every problem of its manifest. No spec when any of them is an error."""
    document = parse_toml(text)
    if isinstance(document, Problem):
        return None, [document]
    manifest, problems = validate(Manifest, _known(document))
    draft = Draft(document, "plugin")
    version, unusable_version = read_version(environ)
    check_rules(draft, version, environ)
    check_topics(draft)
    sandbox.check(draft, environ)
    problems += _ignored(document, draft)
    timeouts, seconds, unusable = read_timeouts(environ)
    problems = sorted([*problems, *draft.problems], key=lambda problem: problem.line or 0)
    problems += [*unusable_version, *unusable]
    if manifest is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    confined = sandbox.request(manifest.plugin.sandbox, environ)
    return _spec(manifest.plugin, root, version, timeouts, seconds, confined), problems


def _known(document: Document) -> Document:
    """The document without the root keys and the sections of `[plugin]` that are ignored."""
    value = {key: item for key, item in document.value.items() if key in Manifest.model_fields}
    if isinstance(value.get("plugin"), dict):
        value["plugin"] = {key: item for key, item in value["plugin"].items() if not _is_foreign(key, item)}
    return Document(value, document.lines)


def _is_foreign(key: str, value: object) -> bool:
    return key not in Plugin.model_fields and is_section(value)


def _ignored(document: Document, draft: Draft) -> list[Problem]:
    """A warning for everything that is read past."""
    foreign = {key: value for key, value in draft.table().items() if _is_foreign(key, value)}
    for key in foreign:
        if key in LATER_SECTIONS:
            draft.warn("later_section", (key,), "belongs to a later nexo than 1.10 and is ignored")
    problems = unknown_keys(document.value, Manifest.model_fields, (), document)
    problems += unknown_keys(foreign, (*Plugin.model_fields, *LATER_SECTIONS), ("plugin",), document)
    key = "manifest_version"
    number = document.value.get(key)
    if isinstance(number, int) and number > NEWEST_MANIFEST:
        text = f"newer than {NEWEST_MANIFEST}, read as if it were {NEWEST_MANIFEST}"
        problems.append(Problem(f"{key}_unknown", key, text, line=document.line((key,)), severity="warning"))
    return problems


def _spec(
    plugin: Plugin,
    root: Path,
    nexo_version: str,
    timeouts: Timeouts,
    seconds: dict[str, float],
    confined: SandboxRequest | None,
) -> PluginSpec:
    entrypoint, supervisor = plugin.entrypoint, plugin.supervisor
    return PluginSpec(
        id=plugin.id,
        version=plugin.version,
        contract="nexo",
        root=root,
        command=(entrypoint.command, *entrypoint.args),
        name=plugin.name.strip(),
        description=plugin.description.strip(),
        env=tuple(entrypoint.env.items()),
        env_inherit=USUAL_VARIABLES,
        lifetime=Lifetime.RESIDENT,
        exports=_exports(plugin.extends),
        capabilities=_distinct(_gated(plugin.requires.nexo_capabilities)),
        optional_capabilities=OPTIONAL_CAPABILITIES,
        timeouts=timeouts,
        patience=seconds,
        eager=True,
        respawn=supervisor.respawn,
        restart=_restart(supervisor),
        stderr_tail=supervisor.stderr_tail_lines,
        subscribes=subscribes(plugin),
        publishes=publishes(plugin),
        sandbox=confined,
        host_version=nexo_version,
    )


def _exports(extends: Extends) -> tuple[Export, ...]:
    """A tool's description and schema arrive with the answer to `initialize`."""
    return tuple(Export(kind, name) for section, kind in _KINDS.items() for name in getattr(extends, section))


def _restart(supervisor: Supervisor) -> RestartPolicy:
    """The plugin's own numbers when the host brings it back by itself; the host's own otherwise."""
    if not supervisor.respawn:
        return RestartPolicy()
    first = supervisor.backoff_ms / 1000
    return RestartPolicy(
        first_delay=first,
        factor=2.0,
        longest_delay=LONGEST_BACKOFF,
        jitter=0.0,
        failures=supervisor.max_attempts,
        window=math.inf,
        healthy_after=min(first * supervisor.max_attempts * 2, LONGEST_PROBATION),
    )


def _gated(names: Iterable[str]) -> Iterable[str]:
    """The capabilities that a grant opens; a request for any other would wait for a grant that changes nothing."""
    return (name.strip() for name in names if name.strip() in OPTIONAL_CAPABILITIES)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


EXTENDS_SECTIONS = ("channels", "llm_providers", "memory_backends", "hooks", "tools")
"""The registries a plugin may add to, in the order they are looked at."""
HOOK_POINTS = ("before_message", "after_message", "before_tool_call", "after_tool_call")
"""The moments at which every nexo host fires hooks; a hook of any other name is called if the application fires it."""
USUAL_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")
"""Taken from the host, so that a program finds its interpreter, its locale and a place for temporary files."""
RESERVED_ENV = "NEXO_"
"""Variables that begin so configure the host."""
MAX_NAME = 32
"""Characters of an id, by the contract."""
MAX_LATER_NAME = 64
"""Characters of a plugin's id and of a tool's name in later hosts, and so in shipped plugins."""
MAX_STDERR_TAIL = 512
"""Lines of stderr kept for a crash report; every running plugin costs that much memory."""
BACKOFF_MS = (100, 300_000)
"""The pause before the first respawn: long enough not to spin, short enough to be called a respawn."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SKILL = re.compile(r"[a-z0-9-]{1,64}")


def check_rules(draft: Draft, nexo_version: str, environ: Mapping[str, str]) -> None:
    """Every rule, on whatever is there."""
    _identity(draft)
    _versions(draft, nexo_version)
    _requires(draft, environ)
    _unknown_capabilities(draft)
    _entrypoint(draft)
    _channels(draft)
    _extends(draft)
    _tools(draft)
    _capabilities(draft)
    _paths(draft)
    _gates(draft)
    _supervisor(draft)


def name_problem(name: str, longest: int = MAX_NAME) -> str | None:
    """Why `name` is not an id; None when it is one."""
    if not _NAME.fullmatch(name):
        return f"{name!r} must be a lower-case letter followed by lower-case letters, digits or '_'"
    if len(name) > longest:
        return f"{name!r} is longer than {longest} characters"
    return None


def _identity(draft: Draft) -> None:
    id = draft.text("id")
    if id is not None:
        _long_name(draft, "id_invalid", ("id",), id)
    for field in ("name", "description"):
        text = draft.text(field)
        if text is not None and not text.strip():
            draft.error(f"{field}_empty", (field,), "must not be blank")


def _long_name(draft: Draft, code: str, path: KeyPath, name: str) -> bool:
    """Whether `name` is an id, or the longer kind of id that only later hosts know."""
    problem = name_problem(name, MAX_LATER_NAME)
    if problem:
        draft.error(code, path, problem)
    elif len(name) > MAX_NAME:
        text = f"has {len(name)} characters; hosts of contract 1.10 refuse more than {MAX_NAME}"
        draft.warn("name_beyond_contract", path, text)
    return problem is None


def _versions(draft: Draft, nexo_version: str) -> None:
    version = draft.text("version")
    problem = version_problem(version) if version is not None else None
    if problem:
        draft.error("version_invalid", ("version",), problem)
    _contract_version(draft)
    required = draft.text("min_nexo_version")
    if required is None:
        return
    try:
        fits = Requirement(required).admits(nexo_version)
    except ValueError as error:
        draft.error("version_invalid", ("min_nexo_version",), str(error))
        return
    if not fits:
        text = f"needs nexo {required}, this host is nexo {nexo_version}; {VERSION}=… presents another version"
        draft.error("min_nexo_version_mismatch", ("min_nexo_version",), text)


def _contract_version(draft: Draft) -> None:
    """The version of the contract that the plugin targets; a plugin of another major version is refused."""
    targeted = draft.text("contract_version")
    if targeted is None:
        return
    problem = version_problem(targeted)
    if problem:
        draft.error("version_invalid", ("contract_version",), problem)
    elif not Requirement(f"^{CONTRACT_VERSION.partition('.')[0]}").admits(targeted):
        text = f"targets contract {targeted}, this host has {CONTRACT_VERSION}"
        draft.error("contract_version_mismatch", ("contract_version",), text)
    elif not Requirement(f"<={CONTRACT_VERSION}").admits(targeted):
        text = f"targets contract {targeted}; this host has {CONTRACT_VERSION}, without the additions since"
        draft.warn("contract_version_newer", ("contract_version",), text)


def _requires(draft: Draft, environ: Mapping[str, str]) -> None:
    """A variable of the host is the operator's to give: naming one here gets a plugin nothing but a hint."""
    given = draft.table("entrypoint", "env").keys()
    for path, name in draft.texts("requires", "env"):
        if name not in given and name not in USUAL_VARIABLES:
            how = f"inherit_env = [{name!r}]" if name in environ else f"env = {{ {name} = … }}"
            draft.warn("required_env", path, f"needs the variable {name}; give it with {how} in plugbay.toml")


def _unknown_capabilities(draft: Draft) -> None:
    for path, name in draft.texts("requires", "nexo_capabilities"):
        if name.strip() not in ("", BROKER, *OPTIONAL_CAPABILITIES):
            text = f"{name!r} is not a capability here and is ignored; there are {', '.join(OPTIONAL_CAPABILITIES)}"
            draft.warn("unknown_capability", path, text)


def _entrypoint(draft: Draft) -> None:
    command = draft.value("entrypoint", "command")
    if command is None or (isinstance(command, str) and not command.strip()):
        text = "there is no program to start (without one, nexo takes the plugin for a part of its daemon)"
        draft.error("no_entrypoint", ("entrypoint", "command"), text)
    words = [(("entrypoint", "command"), command), *draft.texts("entrypoint", "args")]
    for path, word in words:
        if isinstance(word, str) and "\0" in word:
            draft.error("invalid_value", path, "must not contain a NUL character")
    for name, value in draft.table("entrypoint", "env").items():
        _variable(draft, name, value)


def _variable(draft: Draft, name: str, value: object) -> None:
    path = ("entrypoint", "env", name)
    if name.startswith(RESERVED_ENV):
        draft.error("reserved_env", path, f"names that begin with {RESERVED_ENV} belong to the host")
    elif not name or "=" in name or "\0" in name or "\0" in str(value):
        draft.error("invalid_value", path, "a name is not empty and has no '='; neither it nor its value has a NUL")


def _channels(draft: Draft) -> None:
    for path, channel in draft.tables("channels", "register"):
        kind = channel.get("kind")
        problem = name_problem(kind) if isinstance(kind, str) else None
        if problem:
            draft.error("channel_kind_invalid", (*path, "kind"), problem)


def _extends(draft: Draft) -> None:
    claims: dict[str, list[KeyPath]] = {}
    for section in EXTENDS_SECTIONS:
        seen: set[str] = set()
        for path, name in draft.texts("extends", section):
            if name in seen:
                draft.error("extends_duplicate", path, f"{name!r} appears twice")
            elif _extension(draft, path, name):
                claims.setdefault(name, []).append(path)
            seen.add(name)
    for name, paths in claims.items():
        if len(paths) > 1:
            sections = " and ".join(str(path[1]) for path in paths)
            text = f"{name!r} is in {sections}; an id belongs to one list"
            draft.error("extends_cross_list_conflict", paths[-1], text)
    _hooks(draft)


def _extension(draft: Draft, path: KeyPath, name: str) -> bool:
    """Whether `name` is an id that may stand in the list at `path`."""
    if path[1] == "tools":
        _namespace(draft, path, name)
        return _long_name(draft, "extends_id_invalid", path, name)
    problem = name_problem(name)
    if problem:
        draft.error("extends_id_invalid", path, problem)
    return problem is None


def _hooks(draft: Draft) -> None:
    for path, name in draft.texts("extends", "hooks"):
        if name not in HOOK_POINTS and name_problem(name) is None:
            text = (
                f"not a hook point of nexo ({', '.join(HOOK_POINTS)}): called only when the application fires {name!r}"
            )
            draft.warn("unknown_hook_point", path, text)


def _namespace(draft: Draft, path: KeyPath, name: str) -> bool:
    """Whether a tool is named after its plugin; True when the plugin has no usable name itself."""
    id = draft.text("id")
    if id is None or name_problem(id, MAX_LATER_NAME) or name.startswith((f"{id}_", f"ext_{id}_")):
        return True
    text = f"{name!r} must begin with '{id}_' or 'ext_{id}_'"
    if name == id:
        # A shipped plugin does this. The name begins with the plugin's id, so it cannot collide.
        draft.warn("tool_namespace_violation", path, f"{text}; other hosts refuse it")
        return True
    draft.error("tool_namespace_violation", path, text)
    return False


def _tools(draft: Draft) -> None:
    exposed = {name for _, name in draft.texts("tools", "expose")}
    offered = {name for _, name in draft.texts("extends", "tools")}
    for path, name in draft.texts("tools", "expose"):
        if name not in offered and _namespace(draft, path, name):
            draft.warn("tool_not_offered", path, "a process offers only the tools listed in [plugin.extends] tools")
    for path, name in draft.texts("tools", "deferred"):
        if name not in exposed:
            draft.error("deferred_not_in_expose", path, f"{name!r} is not in tools.expose")
    if draft.tables("tools", "outbound"):
        text = "belongs to a later nexo than 1.10, these tools are not offered; list them in [plugin.extends] tools"
        draft.warn("tool_not_offered", ("tools", "outbound"), text)


_IMPLEMENTED_BY = {
    "tools": (("extends", "tools"), ("tools", "expose")),
    "advisors": (("advisors", "register"),),
    "agents": (("agents", "contributes_dir"),),
    "skills": (("skills", "contributes_dir"),),
    "channels": (("channels", "register"), ("extends", "channels")),
}
"""Where each claim in `capabilities.provides` is made good; any one will do. Other claims stand by themselves."""


def _capabilities(draft: Draft) -> None:
    for path, name in draft.texts("capabilities", "provides"):
        places = _IMPLEMENTED_BY.get(name, ())
        if places and not any(draft.value(*place) for place in places):
            text = f"says it provides {name}, but {' and '.join('.'.join(place) for place in places)} is empty"
            draft.error("capability_without_impl", path, text)
    for path, name in draft.texts("capabilities", "skills"):
        if not _SKILL.fullmatch(name):
            draft.error("invalid_slug", path, f"{name!r} must be 1 to 64 lower-case letters, digits or '-'")


def _paths(draft: Draft) -> None:
    for path in (("agents", "contributes_dir"), ("skills", "contributes_dir"), ("config", "schema_path")):
        text = draft.text(*path) or ""
        if text.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", text):
            draft.error("path_absolute_forbidden", path, "must be relative to the plugin's folder")
        elif ".." in re.split(r"[/\\]", text):
            draft.error("path_traversal", path, "must not leave the plugin's folder with '..'")


def _gates(draft: Draft) -> None:
    seen: set[str] = set()
    for path, gate in draft.tables("capability_gates", "gate"):
        name = gate.get("env_var")
        if isinstance(name, str) and name in seen:
            draft.error("duplicate_gate_env_var", (*path, "env_var"), f"{name} already gates another capability")
        seen.add(str(name))


def _supervisor(draft: Draft) -> None:
    tail = draft.number("supervisor", "stderr_tail_lines", default=0)
    if tail > MAX_STDERR_TAIL:
        text = f"at most {MAX_STDERR_TAIL} lines are kept, got {tail}"
        draft.error("supervisor_stderr_tail_exceeds_cap", ("supervisor", "stderr_tail_lines"), text)
    if draft.value("supervisor", "respawn") is not True:
        return
    if draft.number("supervisor", "max_attempts", default=1) == 0:
        text = "a plugin that respawns needs at least one attempt; write respawn = false instead"
        draft.error("supervisor_max_attempts_zero", ("supervisor", "max_attempts"), text)
    floor, cap = BACKOFF_MS
    backoff = draft.number("supervisor", "backoff_ms", default=floor)
    path = ("supervisor", "backoff_ms")
    if backoff < floor:
        draft.error("supervisor_backoff_ms_below_floor", path, f"must be at least {floor}, got {backoff}")
    if backoff > cap:
        draft.error("supervisor_backoff_ms_exceeds_cap", path, f"must be at most {cap}, got {backoff}")


INIT_TIMEOUT = "NEXO_PLUGIN_INIT_TIMEOUT_MS"
PATIENCE: dict[str, dict[str, float]] = {
    "NEXO_PLUGIN_TOOL_TIMEOUT_MS": {"InvokeTool": 60.0},
    "NEXO_PLUGIN_CHANNEL_TIMEOUT_MS": {"StartChannel": 30.0, "StopChannel": 30.0, "SendOutbound": 60.0},
    "NEXO_PLUGIN_LLM_TIMEOUT_MS": {"Chat": 60.0, "Chat.stream": 300.0},
    "NEXO_PLUGIN_HOOK_TIMEOUT_MS": {"RunHook": 5.0},
    "NEXO_PLUGIN_MEMORY_TIMEOUT_MS": {"UpsertVectors": 30.0, "DeleteVectors": 30.0, "SearchVectors": 10.0},
}
"""The variable that overrides, and the seconds of each operation it overrides."""
VERSION = "NEXO_VERSION"
"""The variable with the nexo version that this host presents to plugins, instead of `messages.NEXO_VERSION`."""
_MILLISECONDS = re.compile(r"\+?[0-9]{1,20}")


def read_version(environ: Mapping[str, str]) -> tuple[str, list[Problem]]:
    """The nexo version that this host presents, and a warning when the operator's is none."""
    text = environ.get(VERSION, NEXO_VERSION)
    problem = version_problem(text)
    if problem is None:
        return text, []
    words = f"{problem}, so {NEXO_VERSION} is used"
    return NEXO_VERSION, [Problem("version_invalid", VERSION, words, severity="warning")]


def read_timeouts(environ: Mapping[str, str]) -> tuple[Timeouts, dict[str, float], list[Problem]]:
    """The timeouts, the seconds by operation, and a warning for each variable that says nothing usable."""
    problems: list[Problem] = []
    greeting = _override(environ, INIT_TIMEOUT, problems)
    timeouts = TIMEOUTS if greeting is None else replace(TIMEOUTS, handshake=greeting)
    seconds: dict[str, float] = {}
    for variable, defaults in PATIENCE.items():
        override = _override(environ, variable, problems)
        seconds |= {name: default if override is None else override for name, default in defaults.items()}
    return timeouts, seconds, problems


def _override(environ: Mapping[str, str], variable: str, problems: list[Problem]) -> float | None:
    text = environ.get(variable)
    if text is None:
        return None
    # Unsigned 64 bits, as the contract's own host reads it.
    if _MILLISECONDS.fullmatch(text) and int(text) < 1 << 64:
        return int(text) / 1000
    words = f"{text!r} is not a number of milliseconds, so the default is used"
    problems.append(Problem("invalid_timeout", variable, words, severity="warning"))
    return None


OUTBOUND = "plugin.outbound"
"""Host to plugin."""
INBOUND = "plugin.inbound"
"""Plugin to host."""


def subscribes(plugin: Plugin) -> tuple[str, ...]:
    """The patterns of the topics that the plugin receives."""
    return _patterns(plugin, OUTBOUND, plugin.capabilities.broker.subscribe)


def publishes(plugin: Plugin) -> tuple[str, ...]:
    """The patterns of what the plugin may say."""
    return _patterns(plugin, INBOUND, plugin.capabilities.broker.publish)


def check_topics(draft: Draft) -> None:
    """Warn about patterns that are not honoured, and about channels that no event would ever reach."""
    id = draft.text("id") or ""
    for key, direction in (("subscribe", OUTBOUND), ("publish", INBOUND)):
        for path, pattern in draft.texts("capabilities", "broker", key):
            if not _allowed(pattern, direction, id):
                text = f"not honoured: {pattern!r} is neither within '{direction}' nor within 'plugin.{id}'"
                draft.warn("topic_not_allowed", path, text)
    heard = {str(channel.get("kind")) for _, channel in draft.tables("channels", "register")}
    added = {pattern for _, pattern in draft.texts("capabilities", "broker", "subscribe")}
    for path, kind in draft.texts("extends", "channels"):
        if kind not in heard and f"{OUTBOUND}.{kind}" not in added:
            text = f"gets no events: add [[plugin.channels.register]] with kind = '{kind}'"
            draft.warn("channel_not_registered", path, text)


def _patterns(plugin: Plugin, direction: str, added: Iterable[str]) -> tuple[str, ...]:
    kinds = [entry.kind for entry in plugin.channels.entries]
    derived = [pattern for kind in kinds for pattern in (f"{direction}.{kind}", f"{direction}.{kind}.>")]
    allowed = [pattern for pattern in added if _allowed(pattern, direction, plugin.id)]
    return tuple(dict.fromkeys((*derived, *allowed)))


def _allowed(pattern: str, direction: str, id: str) -> bool:
    """Whether a pattern can match something, and only events of channels or of this plugin."""
    segments = pattern.split(".")
    if not all(segments) or ">" in segments[:-1]:
        return False
    return pattern.startswith((f"{direction}.", f"plugin.{id}."))
