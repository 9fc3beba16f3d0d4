"""The rules of `nexo-plugin.toml` that its shape cannot say, each with the name the contract gives its violation.

Owns the sense of every section but `sandbox`, and but the patterns of topics. Each rule reads from the draft on its
own, so one mistake never hides another. Values only: whether a file or a program exists is asked elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from plugbay.contracts.document import Path
from plugbay.contracts.draft import Draft
from plugbay.contracts.nexo.versions import Requirement, version_problem

EXTENDS_SECTIONS = ("channels", "llm_providers", "memory_backends", "hooks", "tools")
"""The registries a plugin may add to, in the order they are looked at."""

HOOK_POINTS = ("before_message", "after_message", "before_tool_call", "after_tool_call")
"""The moments a host fires hooks at; a hook by any other name waits for ever."""

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


def check(draft: Draft, nexo_version: str, environ: Mapping[str, str]) -> None:
    """Every rule, on whatever is there."""
    _identity(draft)
    _versions(draft, nexo_version)
    _requires(draft, environ)
    _entrypoint(draft)
    _channels(draft)
    _extends(draft)
    _tools(draft)
    _capabilities(draft)
    _paths(draft)
    _gates(draft)
    _supervisor(draft)


def name_problem(name: str, longest: int = MAX_NAME) -> str | None:
    """Why `name` is no id; None when it is one."""
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


def _long_name(draft: Draft, code: str, path: Path, name: str) -> bool:
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
    required = draft.text("min_nexo_version")
    if required is None:
        return
    try:
        fits = Requirement(required).admits(nexo_version)
    except ValueError as error:
        draft.error("version_invalid", ("min_nexo_version",), str(error))
        return
    if not fits:
        text = f"needs nexo {required}, this host is nexo {nexo_version}"
        draft.error("min_nexo_version_mismatch", ("min_nexo_version",), text)


def _requires(draft: Draft, environ: Mapping[str, str]) -> None:
    """A variable of the host is the operator's to give: naming one here gets a plugin nothing but a hint."""
    given = draft.table("entrypoint", "env").keys()
    for path, name in draft.texts("requires", "env"):
        if name not in given and name not in USUAL_VARIABLES:
            how = f"inherit_env = [{name!r}]" if name in environ else f"env = {{ {name} = … }}"
            draft.warn("required_env", path, f"needs the variable {name}; give it with {how} in plugbay.toml")


def _entrypoint(draft: Draft) -> None:
    command = draft.value("entrypoint", "command")
    if command is None or (isinstance(command, str) and not command.strip()):
        text = "nothing to start: name the plugin's program (without one, nexo takes it for a part of its own daemon)"
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
        draft.error("reserved_env", path, f"names that begin with {RESERVED_ENV} are the host's own")
    elif not name or "=" in name or "\0" in name or "\0" in str(value):
        draft.error("invalid_value", path, "a name is not empty and has no '='; neither it nor its value has a NUL")


def _channels(draft: Draft) -> None:
    for path, channel in draft.tables("channels", "register"):
        kind = channel.get("kind")
        problem = name_problem(kind) if isinstance(kind, str) else None
        if problem:
            draft.error("channel_kind_invalid", (*path, "kind"), problem)


def _extends(draft: Draft) -> None:
    claims: dict[str, list[Path]] = {}
    for section in EXTENDS_SECTIONS:
        seen: set[str] = set()
        for path, name in draft.texts("extends", section):
            if name in seen:
                draft.error("extends_duplicate", path, f"{name!r} is there twice")
            elif _extension(draft, path, name):
                claims.setdefault(name, []).append(path)
            seen.add(name)
    for name, paths in claims.items():
        if len(paths) > 1:
            sections = " and ".join(str(path[1]) for path in paths)
            text = f"{name!r} is in {sections}; an id belongs to one list"
            draft.error("extends_cross_list_conflict", paths[-1], text)
    _hooks(draft)


def _extension(draft: Draft, path: Path, name: str) -> bool:
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
            draft.warn("unknown_hook_point", path, f"never fires; the hook points are {', '.join(HOOK_POINTS)}")


def _namespace(draft: Draft, path: Path, name: str) -> bool:
    """Whether a tool is named after its plugin; True when the plugin has no usable name itself."""
    id = draft.text("id")
    if id is None or name_problem(id, MAX_LATER_NAME) or name.startswith((f"{id}_", f"ext_{id}_")):
        return True
    text = f"{name!r} must begin with '{id}_' or 'ext_{id}_'"
    if name == id:
        # A shipped plugin does this. The name is the plugin's own, so it takes nobody else's.
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
            draft.error("path_traversal", path, "must not lead out of the plugin's folder with '..'")


def _gates(draft: Draft) -> None:
    seen: set[str] = set()
    for path, gate in draft.tables("capability_gates", "gate"):
        name = gate.get("env_var")
        if isinstance(name, str) and name in seen:
            draft.error("duplicate_gate_env_var", (*path, "env_var"), f"{name} already gates something else")
        seen.add(str(name))


def _supervisor(draft: Draft) -> None:
    tail = draft.number("supervisor", "stderr_tail_lines", default=0)
    if tail > MAX_STDERR_TAIL:
        text = f"at most {MAX_STDERR_TAIL} lines are kept, got {tail}"
        draft.error("supervisor_stderr_tail_exceeds_cap", ("supervisor", "stderr_tail_lines"), text)
    if draft.value("supervisor", "respawn") is not True:
        return
    if draft.number("supervisor", "max_attempts", default=1) == 0:
        text = "a plugin that respawns needs at least one attempt; say respawn = false instead"
        draft.error("supervisor_max_attempts_zero", ("supervisor", "max_attempts"), text)
    floor, cap = BACKOFF_MS
    backoff = draft.number("supervisor", "backoff_ms", default=floor)
    path = ("supervisor", "backoff_ms")
    if backoff < floor:
        draft.error("supervisor_backoff_ms_below_floor", path, f"must be at least {floor}, got {backoff}")
    if backoff > cap:
        draft.error("supervisor_backoff_ms_exceeds_cap", path, f"must be at most {cap}, got {backoff}")
