"""`vai-plugin.toml`: from the text of a manifest to a `PluginSpec`.

Owns the order in which a manifest is judged, and what its tables mean to a host. Pure: what lies beside the manifest is
read by the `Site` that comes in. Unknown keys are errors; those that begin with `x-` are anybody's and not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from plugbay.contracts.document import Document, parse_toml
from plugbay.contracts.draft import Draft
from plugbay.contracts.vai import kinds, permissions, platforms, rules
from plugbay.contracts.vai.files import Schemas, Site
from plugbay.contracts.vai.parts import Part
from plugbay.contracts.vai.sections import Entry, Manifest
from plugbay.contracts.validation import validate
from plugbay.model.errors import Problem
from plugbay.model.spec import Export, Lifetime, PluginSpec, SandboxRequest, Timeouts

FILE_NAME = "vai-plugin.toml"

FOREIGN = "x-"
"""Keys that begin so mean something to somebody else."""

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")
"""Taken from the host, so that a program finds its interpreter, its locale and a place for temporary files."""

ENV_FACTS = (("PATH", "search.path"),)
"""What the package starts is a program of its own, and `#!/usr/bin/env python3` in it finds the Python with plugbay."""


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
    rules.check(Part(draft, (), document.value), site, schemas)
    problems = sorted([*problems, *draft.problems], key=lambda problem: problem.line or 0)
    if manifest is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    return _spec(manifest, root, site, schemas), problems


def _ours(value: Any) -> Any:
    """The document without what is somebody else's."""
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
    usual = kinds.USUAL_TIMEOUT_MS[entry.kind] if entry.default_timeout_ms is None else entry.default_timeout_ms
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
            "execution_class": entry.execution_class or kinds.USUAL_CLASS[entry.kind],
            "timeout_ms": min(usual, rules.LONGEST_MS),
            "max_concurrency": entry.max_concurrency,
            "permissions": entry.permissions.model_dump(),
            "config_schema": schemas.get(entry.config_schema),
            "unsupported": unsupported,
            **kinds.facts(entry),
        },
    )


def _timeouts(exports: Iterable[Export]) -> Timeouts:
    """The contract has times for calls only, each export its own. `shutdown` has no answer, so nobody waits for one."""
    longest = max(export.facts["timeout_ms"] for export in exports) / 1000
    return Timeouts(handshake=10.0, call=longest, grace=5.0, farewell=0.0, teardown=5.0, term=2.0)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
