"""`vai-plugin.toml`: from the text of a manifest to a `PluginSpec`.

Owns the rules between tables, and the four kinds of exports with their defaults. Pure: the files beside the manifest
are read by the `Site` that comes in. Unknown keys are errors; those that begin with `x-` are ignored. Where the
contract only shows words and closes no list, another word is a warning. Each rule reads on its own, so one mistake
never hides another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from plugbay.contracts.contract import Site
from plugbay.contracts.document import Document, parse_json, parse_toml
from plugbay.contracts.draft import Draft
from plugbay.contracts.schemas import schema_problem
from plugbay.contracts.vai import permissions, platforms
from plugbay.contracts.vai.messages import PROTOCOL
from plugbay.contracts.vai.sections import Entry, Manifest, Part
from plugbay.contracts.vai.spec import MODES
from plugbay.contracts.validation import suggestion, validate
from plugbay.model.errors import Problem
from plugbay.model.spec import Export, Lifetime, PluginSpec, SandboxRequest, Timeouts

FOREIGN = "x-"
"""The prefix of keys for other programs."""
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")
"""Taken from the host, so that a program finds its interpreter, its locale and a place for temporary files."""
ENV_FACTS = (("PATH", "search.path"),)
"""A package starts a program of its own, and `#!/usr/bin/env python3` in it finds the Python with plugbay."""


def parse(text: str, root: Path, environ: Mapping[str, str], site: Site) -> tuple[PluginSpec | None, list[Problem]]:
    """The spec of the plugin in `root`, and every problem of its manifest. No spec when any of them is an error.

    vai gives no variable of the host a meaning, so `environ` is not looked at.
    """
    document = parse_toml(text)
    if isinstance(document, Problem):
        return None, [document]
    document = Document(_ours(document.value), document.lines)
    manifest, problems = validate(Manifest, document)
    draft, schemas = Draft(document), Schemas(site)
    check_rules(Part(draft, (), document.value), site, schemas)
    problems = sorted([*problems, *draft.problems], key=lambda problem: problem.line or 0)
    if manifest is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    return _spec(manifest, root, site, schemas), problems


def _ours(value: Any) -> Any:
    """The document without the keys of other programs."""
    if isinstance(value, dict):
        return {key: _ours(item) for key, item in value.items() if not key.startswith(FOREIGN)}
    return [_ours(item) for item in value] if isinstance(value, list) else value


def _spec(manifest: Manifest, root: Path, site: Site, schemas: Schemas) -> PluginSpec:
    runtime = manifest.runtime
    unsupported = platforms.mismatch(runtime.os, runtime.arch, site.platform)
    exports = tuple(_export(entry, schemas, unsupported) for entry in manifest.exports)
    words = _distinct(word for export in exports for word in export.capabilities)
    return PluginSpec(
        id=manifest.package_id,
        version=manifest.version,
        contract="vai",
        root=root,
        command=tuple(runtime.entrypoint),
        name=manifest.name,
        description=manifest.description,
        cwd=root,
        env_inherit=INHERITED,
        env_facts=ENV_FACTS,
        lifetime=Lifetime.RESIDENT,
        exports=exports,
        capabilities=words,
        timeouts=_timeouts(exports),
        sandbox=SandboxRequest(),
        access=permissions.access(words),
    )


def _export(entry: Entry, schemas: Schemas, unsupported: str) -> Export:
    usual = USUAL_TIMEOUT_MS[entry.kind] if entry.default_timeout_ms is None else entry.default_timeout_ms
    tool = entry.tool
    return Export(
        kind=entry.kind,
        name=entry.id,
        description=entry.description or entry.display_name,
        input_schema=schemas.get(tool.input_schema) if tool else None,
        output_schema=schemas.get(tool.output_schema) if tool else None,
        capabilities=permissions.capabilities(entry.permissions),
        facts={
            "display_name": entry.display_name,
            "execution_class": entry.execution_class or USUAL_CLASS[entry.kind],
            "timeout_ms": min(usual, LONGEST_MS),
            "max_concurrency": entry.max_concurrency,
            "permissions": entry.permissions.model_dump(),
            "config_schema": schemas.get(entry.config_schema),
            "unsupported": unsupported,
            **build_facts(entry),
        },
    )


def _timeouts(exports: Iterable[Export]) -> Timeouts:
    """The contract has times for calls only, each export its own. `shutdown` has no answer, so none is awaited."""
    longest = max(export.facts["timeout_ms"] for export in exports) / 1000
    return Timeouts(handshake=10.0, call=longest, grace=5.0, farewell=0.0, teardown=5.0, term=2.0)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


API_VERSION = "vai.plugin.v1"
TRANSPORT = "stdio"
LONGEST_MS = 3_600_000
"""An hour: a longer request is reduced to this."""
INTERPRETERS = ("python3", "python", "node", "deno", "bun", "ruby", "java")
"""Programs of the host that may start a package; any other program has to be in it."""
_PART = r"[a-z0-9][a-z0-9._-]{0,63}"
_PACKAGE_ID = re.compile(rf"{_PART}/{_PART}")
_EXPORT_ID = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NUMBER = r"(?:0|[1-9][0-9]*)"
_TAG = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{2}}(?:-{_TAG}(?:\.{_TAG})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?")
_SOURCE = re.compile(
    r"oci://[^/\s@]+/[a-z0-9._/-]+(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@sha256:[0-9a-f]{64})?"
)


def check_rules(whole: Part, site: Site, schemas: Schemas) -> None:
    """Every rule, on whatever is there."""
    _package(whole)
    _source(whole)
    _runtime(whole.part("runtime"), site)
    _exports(whole, schemas)


def _package(whole: Part) -> None:
    api = whole.text("api_version")
    if api is not None and api != API_VERSION:
        whole.error("unsupported_api_version", f"must be {API_VERSION!r}, got {api!r:.60}", "api_version")
    id = whole.text("package_id")
    if id is not None and not _PACKAGE_ID.fullmatch(id):
        text = "must be a publisher, '/' and a name, each of at most 64 lower-case letters, digits, '.', '_' and '-'"
        whole.error("invalid_package_id", f"{text}, got {id!r:.60}", "package_id")
    elif id is not None and not all(id.split(".")):
        # The id is a part of bus topics, whose segments are between dots.
        whole.error("invalid_package_id", f"{id!r} must not have two dots in a row, nor end with one", "package_id")
    version = whole.text("version")
    if version is not None and not _SEMVER.fullmatch(version):
        whole.error("invalid_version", f"{version!r:.60} is not a semantic version such as 1.2.3", "version")


def _source(whole: Part) -> None:
    """Where the package was published. A digest is what counts there, so nothing of it can be an error here."""
    source = whole.text("source")
    if source is None:
        return
    found = _SOURCE.fullmatch(source)
    if found is None:
        text = f"must be like oci://registry/name:1.2.3, got {source!r:.100}"
        whole.warn("invalid_source", text, "source")
        return
    version = whole.text("version")
    # A tag has no '+'.
    if version is not None and found["tag"] not in (None, version.replace("+", "_")):
        text = f"the tag is {found['tag']!r}, the version {version!r:.60}"
        whole.warn("source_mismatch", text, "source")


def _runtime(runtime: Part, site: Site) -> None:
    protocol, transport = runtime.text("protocol"), runtime.text("transport")
    if protocol is not None and protocol != PROTOCOL:
        runtime.error("unsupported_protocol", f"must be {PROTOCOL!r}, got {protocol!r:.60}", "protocol")
    if transport is not None and transport != TRANSPORT:
        runtime.error("unsupported_transport", f"must be {TRANSPORT!r}, got {transport!r:.60}", "transport")
    _entrypoint(runtime, site)
    platforms.check(runtime, site.platform)


def _entrypoint(runtime: Part, site: Site) -> None:
    words = runtime.texts("entrypoint")
    if runtime.value("entrypoint") == []:
        runtime.error("invalid_entrypoint", "has no program", "entrypoint")
    for at, word in words:
        problem = (
            "must not contain a NUL character" if "\0" in word else _program_problem(word, site) if at == 0 else None
        )
        if problem is not None:
            runtime.error("invalid_entrypoint", f"{word!r:.100} {problem}", "entrypoint", at)


def _program_problem(word: str, site: Site) -> str | None:
    if "/" in word:
        return path_problem(word) or site.program_problem(word)
    if word in INTERPRETERS:
        return None
    return f"is neither a program of the package, which begins with './', nor one of {', '.join(INTERPRETERS)}"


def _exports(whole: Part, schemas: Schemas) -> None:
    if whole.value("exports") == []:
        whole.error("no_exports", "a package needs at least one export", "exports")
    seen: set[str] = set()
    for export in whole.parts("exports"):
        _id(export, seen)
        _limits(export)
        permissions.check(export)
        check_export(export)
        schemas.check(export, "config_schema")
        for key in ("input_schema", "output_schema"):
            schemas.check(export.part("tool"), key)


def _id(export: Part, seen: set[str]) -> None:
    id = export.text("id")
    if id is None:
        return
    if not _EXPORT_ID.fullmatch(id):
        text = "must be a lower-case letter followed by at most 63 lower-case letters, digits or '_'"
        export.error("invalid_export_id", f"{text}, got {id!r:.80}", "id")
    elif id in seen:
        export.error(
            "duplicate_export_id", f"{id!r} is the id of an earlier export; ids must differ across kinds", "id"
        )
    seen.add(id)


def _limits(export: Part) -> None:
    export.one_of("execution_class", CLASSES)
    timeout, concurrency = export.value("default_timeout_ms"), export.value("max_concurrency")
    # `type`, because a boolean is an integer in Python.
    if timeout is not None and (type(timeout) is not int or timeout < 1):
        text = f"must be a whole number of milliseconds above 0, got {timeout!r:.60}"
        export.error("invalid_timeout", text, "default_timeout_ms")
    elif timeout is not None and timeout > LONGEST_MS:
        export.warn("timeout_clamped", f"the maximum is {LONGEST_MS:,} ms", "default_timeout_ms")
    if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
        export.error("invalid_concurrency", f"must be 1 or more, got {concurrency!r:.60}", "max_concurrency")
    if export.value("execution_class") == "inline" and export.part("permissions").value("network") == "egress":
        text = "inline is for reviewed code with few permissions; hosts may refuse the network to it"
        export.warn("inline_egress", text, "execution_class")


KINDS = ("harness", "tool", "hook", "compactor")
CLASSES = ("inline", "worker", "isolated")
"""How an export is run, the least isolated first."""
USUAL_CLASS = {"harness": "isolated", "tool": "isolated", "hook": "worker", "compactor": "worker"}
USUAL_TIMEOUT_MS = {"harness": 1_800_000, "tool": 20_000, "hook": 15_000, "compactor": 120_000}
"""The contract wants a timeout and names none; these are the ones it shows."""
EFFECTS = ("read_only", "idempotent_write", "non_idempotent_write", "unknown")
FIDELITIES = ("lossless", "checkpoint", "prompt_replay", "summary_reseed")
SUPPORTS = ("continue", "branch_session", "compact", "tool")
EVENTS = ("run.completed", "run.failed", "run.cancelled", "chain.compacted")
"""The words that the contract shows where it gives no list; and two more ways in which a run may end."""
_SCOPE_FOR = {"compact": "compactions:write", "branch_session": "chains:write"}
"""The required scope of each feature of a harness."""
_FILES = {"input_schema", "output_schema"}
"""Fields that say where something else is, which is read and kept in their place."""


def check_export(export: Part) -> None:
    """Every rule that depends on the kind of one export."""
    kind = export.text("kind")
    if kind is None:
        return
    if kind not in KINDS:
        text = f"must be one of {', '.join(KINDS)}, got {kind!r:.60}{suggestion(kind, KINDS)}"
        export.error("unknown_kind", text, "kind")
        return
    if kind not in export:
        export.error("missing_kind_table", f"a {kind} needs a table [exports.{kind}]")
    for other in KINDS:
        if other in export and other != kind:
            export.error("unexpected_kind_table", f"this export is a {kind}", other)
    _CHECKS[kind](export, export.part(kind))


def build_facts(entry: Entry) -> dict[str, Any]:
    """The facts in the table of the export's kind."""
    own = getattr(entry, entry.kind).model_dump()
    return {name: _duplicates(value) for name, value in own.items() if name not in _FILES}


def _duplicates(value: Any) -> Any:
    """A list without repeats; anything else as it is."""
    return list(dict.fromkeys(value)) if isinstance(value, list) else value


def _harness(export: Part, own: Part) -> None:
    own.one_of("fidelity", FIDELITIES)
    mode = own.text("mode")
    if mode is not None and mode not in MODES:
        own.warn("unknown_mode", f"the contract does not have the mode {mode!r:.60}", "mode")
    scopes = {scope for _, scope in export.part("permissions").texts("gateway_api_scopes")}
    for at, name in own.texts("supports"):
        needed = _SCOPE_FOR.get(name)
        if name not in SUPPORTS:
            own.warn("unknown_support", f"{name!r:.60} is not in the contract{suggestion(name, SUPPORTS)}", *_at(at))
        elif needed and needed not in scopes:
            own.warn("supports_without_scope", f"{name!r} cannot work without the scope {needed}", *_at(at))


def _at(place: int) -> tuple[str, int]:
    return "supports", place


def _tool(export: Part, own: Part) -> None:
    own.one_of("effect_class", EFFECTS)


def _hook(export: Part, own: Part) -> None:
    if own.value("subscribes_to") == []:
        own.error("no_subscriptions", "a hook without events is never called", "subscribes_to")
    seen: set[str] = set()
    for at, name in own.texts("subscribes_to"):
        if name in seen:
            own.warn("duplicate", f"{name!r:.60} appears twice", "subscribes_to", at)
        elif name not in EVENTS:
            own.warn("unknown_event", f"{name!r:.60} is not an event{suggestion(name, EVENTS)}", "subscribes_to", at)
        seen.add(name)


def _compactor(export: Part, own: Part) -> None:
    asked = export.part("permissions")
    if asked.value("filesystem") != "scratch":
        text = 'without filesystem = "scratch" a long conversation cannot be passed in a file'
        export.warn("inline_projection_only", text, "permissions")


_CHECKS = {"harness": _harness, "tool": _tool, "hook": _hook, "compactor": _compactor}


# The files that a manifest names: JSON Schemas, and the program. The `Site` reads them.

MAX_SCHEMA = 256 << 10
"""Bytes of a schema. Reading one of this size takes half a second."""

_DRIVE = re.compile(r"[A-Za-z]:")


def path_problem(path: str) -> str | None:
    """Why a path may lead out of the plugin's folder; None when only a link could."""
    if not path.strip() or not path.isprintable():
        return "has no file"
    if path.startswith("/") or _DRIVE.match(path):
        return "must be relative to the plugin's folder"
    if "\\" in path:
        return "must use '/' between its parts"
    return "must not contain '..'" if ".." in path.split("/") else None


class Schemas:
    """The schemas of one manifest, each read and checked once, however many exports name it."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._known: dict[str, dict[str, Any] | Problem] = {}

    def check(self, part: Part, key: str) -> None:
        """Report why the file that `key` names is not a schema."""
        path = part.text(key)
        found = None if path is None else self._of(path)
        if isinstance(found, Problem):
            part.error(found.code, f"{path!r:.100} {found.message}", key)

    def get(self, path: str | None) -> dict[str, Any] | None:
        """A schema that has no problem; None for no path."""
        found = None if path is None else self._of(path)
        return None if isinstance(found, Problem) else found

    def _of(self, path: str) -> dict[str, Any] | Problem:
        if path not in self._known:
            self._known[path] = self._load(path)
        return self._known[path]

    def _load(self, path: str) -> dict[str, Any] | Problem:
        problem = path_problem(path)
        if problem is not None:
            return Problem("path_escape", "", problem)
        data = self._site.read(path, MAX_SCHEMA)
        return data if isinstance(data, Problem) else _schema(data)


def _schema(data: bytes) -> dict[str, Any] | Problem:
    try:
        document = parse_json(data.decode())
    except UnicodeDecodeError as error:
        return _invalid(f"not UTF-8: {error.reason} at byte {error.start}")
    if isinstance(document, Problem):
        return _invalid(str(document))
    schema = document.value
    if not isinstance(schema, dict):
        return _invalid("a schema must be an object")
    kinds = schema.get("type", "object")
    if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
        return _invalid(f"must describe an object, not {kinds!r:.60}")
    problem = schema_problem(schema)
    return schema if problem is None else _invalid(problem)


def _invalid(why: str) -> Problem:
    return Problem("invalid_schema", "", f"cannot be used: {why}")
