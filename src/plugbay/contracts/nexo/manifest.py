"""`nexo-plugin.toml`: from the text of a manifest to a `PluginSpec`.

Owns the order in which a manifest is judged, and what its sections mean to a host. Pure: it takes text and the host's
environment as values; which programs and files exist on this machine is asked elsewhere. Unknown keys inside a known
section are errors, as the contract demands; whole sections it does not know are ignored with a warning, because
shipped plugins carry those of later versions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from plugbay.contracts.document import Document, parse_toml
from plugbay.contracts.draft import Draft
from plugbay.contracts.nexo import rules, sandbox, topics
from plugbay.contracts.nexo.messages import NEXO_VERSION
from plugbay.contracts.nexo.patience import patience
from plugbay.contracts.nexo.rules import USUAL_VARIABLES
from plugbay.contracts.nexo.sections import LATER_SECTIONS, Extends, Manifest, Plugin, Supervisor, is_section
from plugbay.contracts.validation import unknown_keys, validate
from plugbay.model.errors import Problem
from plugbay.model.spec import Export, Lifetime, PluginSpec, RestartPolicy, SandboxRequest, Timeouts

FILE_NAME = "nexo-plugin.toml"

OPTIONAL_CAPABILITIES = ("memory.recall", "llm.complete")
"""Services any plugin may ask for without having requested them."""

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
    rules.check(draft, NEXO_VERSION, environ)
    topics.check(draft)
    sandbox.check(draft, environ)
    problems += _ignored(document, draft)
    timeouts, seconds, unusable = patience(environ)
    problems = [*sorted([*problems, *draft.problems], key=lambda problem: problem.line or 0), *unusable]
    if manifest is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    confined = sandbox.request(manifest.plugin.sandbox, environ)
    return _spec(manifest.plugin, root, timeouts, seconds, confined), problems


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
            draft.warn("later_section", (key,), "belongs to a later nexo than 1.10, nothing is done with it")
    problems = unknown_keys(document.value, Manifest.model_fields, (), document)
    problems += unknown_keys(foreign, (*Plugin.model_fields, *LATER_SECTIONS), ("plugin",), document)
    key = "manifest_version"
    number = document.value.get(key)
    if isinstance(number, int) and number > NEWEST_MANIFEST:
        text = f"newer than {NEWEST_MANIFEST}, read as if it were {NEWEST_MANIFEST}"
        problems.append(Problem(f"{key}_unknown", key, text, line=document.line((key,)), severity="warning"))
    return problems


def _spec(
    plugin: Plugin, root: Path, timeouts: Timeouts, seconds: dict[str, float], confined: SandboxRequest | None
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
        capabilities=_distinct(name.strip() for name in plugin.requires.nexo_capabilities if name.strip()),
        optional_capabilities=OPTIONAL_CAPABILITIES,
        timeouts=timeouts,
        patience=seconds,
        eager=True,
        respawn=supervisor.respawn,
        restart=_restart(supervisor),
        stderr_tail=supervisor.stderr_tail_lines,
        subscribes=topics.subscribes(plugin),
        publishes=topics.publishes(plugin),
        sandbox=confined,
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


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
