"""`manifest.toml`: from the text of a manifest to a `PluginSpec`.

Owns the order in which a manifest is judged, what its sections mean to a host, and which files of that common name are
manifests of this contract at all. Pure: it takes text; whether the plugin's program exists is asked elsewhere. Keys it
does not know are ignored with a warning, because the contract grows by adding some.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from plugbay.contracts.ainb import capabilities, rules, settings
from plugbay.contracts.ainb.sections import Manifest, Provides
from plugbay.contracts.document import Document, parse_toml
from plugbay.contracts.draft import Draft
from plugbay.contracts.validation import validate
from plugbay.model.errors import Problem
from plugbay.model.spec import Export, Lifetime, PluginSpec, RestartPolicy, SandboxRequest, Timeouts

FILE_NAME = "manifest.toml"

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "USER", "SHELL", "TERM")
"""Taken from the host. The contract's own host hands down all it has, its secrets included."""

ENV_FACTS = (("PATH", "search.path"),)
"""The program itself is run, and `#!/usr/bin/env python3` in it then finds the Python that has plugbay."""

TIMEOUTS = Timeouts(handshake=15.0, call=30.0, farewell=3.0, teardown=2.0, term=2.0)
"""Seconds. The contract has one number, 5 to leave, which is the third and the fourth together."""

RENDER_PATIENCE = 2.0
"""Seconds a screen has to be drawn before its plugin counts as stuck."""

RESTART = RestartPolicy(
    first_delay=1.0,
    factor=4.0,
    longest_delay=16.0,
    jitter=0.0,
    failures=2,
    window=60.0,
    healthy_after=60.0,
    refusal_is_final=False,
)
"""Pauses of 1, 4 and 16 seconds; the third failure within a minute, one more than two, is the last, and a refused
greeting is a failure like any other."""

_PLUGIN_TABLE = re.compile(r"^[ \t]*\[[ \t]*plugin[ \t]*\]", re.MULTILINE)


def not_ours(text: str) -> str | None:
    """Why a file called `manifest.toml` is some other program's; None for a plugin's manifest, however broken."""
    document = parse_toml(text)
    if isinstance(document, Problem):
        ours = _PLUGIN_TABLE.search(text) is not None
    else:
        plugin = document.value.get("plugin")
        ours = isinstance(plugin, dict) and not plugin.keys().isdisjoint({"name", "abi_version"})
    return None if ours else "it has no [plugin] table with a name and an abi_version"


def declared_name(text: str) -> str | None:
    """The plugin's name, which is its folder's too; None when the manifest gives it none."""
    document = parse_toml(text)
    plugin = None if isinstance(document, Problem) else document.value.get("plugin")
    name = plugin.get("name") if isinstance(plugin, dict) else None
    return name if isinstance(name, str) else None


def parse(text: str, root: Path, environ: Mapping[str, str] | None = None) -> tuple[PluginSpec | None, list[Problem]]:
    """The spec of the plugin in `root`, and every problem of its manifest. No spec when any of them is an error.

    No variable of the host says anything about a plugin, so `environ` is not looked at.
    """
    document = parse_toml(text)
    if isinstance(document, Problem):
        return None, [document]
    manifest, problems = validate(Manifest, document)
    problems = sorted([*problems, *_broken_rules(document, root)], key=lambda problem: problem.line or 0)
    if manifest is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    return _spec(manifest, root), problems


def _broken_rules(document: Document, root: Path) -> list[Problem]:
    draft = Draft(document)
    rules.check(draft, root.name)
    capabilities.check(draft)
    settings.check(draft)
    return draft.problems


def _spec(manifest: Manifest, root: Path) -> PluginSpec:
    plugin, lifecycle = manifest.plugin, manifest.lifecycle
    requested = capabilities.requested(manifest.capabilities)
    eager = lifecycle.spawn == "eager"
    return PluginSpec(
        id=plugin.name,
        version=plugin.version,
        contract="ainb",
        root=root,
        command=(str(root / plugin.name),),
        name=plugin.name,
        description=plugin.description,
        cwd=root,
        env_inherit=INHERITED,
        env_facts=ENV_FACTS,
        lifetime=Lifetime.RESIDENT,
        exports=_exports(manifest.provides),
        capabilities=requested,
        timeouts=TIMEOUTS,
        patience={"Render": RENDER_PATIENCE},
        eager=eager,
        idle_seconds=float(lifecycle.idle_reap_secs) or None,
        exit_is_failure=True,
        respawn=eager,
        restart=RESTART,
        snapshots=_distinct(manifest.subscribes.snapshots),
        latest_state=_distinct(manifest.subscribes.latest_state),
        sandbox=SandboxRequest(),
        access=capabilities.access(plugin.name, requested),
        settings=settings.settings(manifest.config),
        commands=_distinct(manifest.provides.commands),
    )


def _exports(provides: Provides) -> tuple[Export, ...]:
    screens = [Export("screen", name) for name in _distinct(provides.screens)]
    namespaces = [Export("cli_namespace", name) for name in _distinct(provides.cli_namespaces)]
    return (*screens, *namespaces)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
