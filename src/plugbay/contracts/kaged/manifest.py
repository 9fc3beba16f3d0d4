"""`kaged-plugin.yaml`: from the text of a manifest to a `PluginSpec`.

Owns the order in which a manifest is judged, and what its fields mean to a host. Pure: it takes text; which programs
and files exist on this machine is asked elsewhere. The contract does not say what to do with keys it does not know:
they are ignored with a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from plugbay.contracts.document import Document
from plugbay.contracts.draft import Draft
from plugbay.contracts.kaged import knobs, rules
from plugbay.contracts.kaged.capabilities import parse_capability
from plugbay.contracts.kaged.messages import topic
from plugbay.contracts.kaged.sections import Manifest
from plugbay.contracts.validation import validate
from plugbay.contracts.yaml_document import parse_yaml
from plugbay.model.errors import Problem
from plugbay.model.spec import (
    Access,
    Export,
    Lifetime,
    PluginSpec,
    RestartPolicy,
    SandboxRequest,
    SettingsSpec,
    Timeouts,
)

FILE_NAMES = ("kaged-plugin.yaml", "manifest.yaml")
"""What published plugins call the file, and what the contract calls it."""

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

HANDSHAKE, CALL = 10.0, 30.0
"""Seconds to greet, and to answer a tool or a method. The contract names neither."""

ANSWER_SHARE = 0.6
"""Of `shutdown_timeout_sec`, for the answer to `shutdown`."""

HEALTH_PATIENCE = 5.0
"""Seconds a plugin has to answer a health check, by the contract."""

PUBLISH_RATE = 100.0
"""Notifications per second, by the contract."""

RESTART = RestartPolicy(
    first_delay=1.0, factor=2.0, longest_delay=60.0, jitter=0.1, failures=5, window=300.0, healthy_after=60.0
)
"""The contract says that plugins are restarted and in the end disabled, but not when."""


def parse(text: str, root: Path, environ: Mapping[str, str] | None = None) -> tuple[PluginSpec | None, list[Problem]]:
    """The spec of the plugin in `root`, and every problem of its manifest. No spec when any of them is an error.

    kaged gives no variable of the host a meaning, so `environ` is not looked at.
    """
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
    rules.check(draft)
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
        timeouts=_timeouts(manifest.shutdown_timeout_sec),
        patience={"RunHook": float(manifest.hook_timeout_sec), "CheckHealth": HEALTH_PATIENCE},
        eager=True,
        respawn=True,
        restart=RESTART,
        publishes=tuple(topic(manifest.name, name) for name in _distinct(manifest.notifications)),
        publish_rate=PUBLISH_RATE,
        sandbox=SandboxRequest(),
        access=_access(capabilities),
        settings=_settings(manifest),
        health_interval=float(manifest.health_interval_sec),
        roles=_roles(manifest),
        env_facts=ENV_FACTS,
    )


def _exports(manifest: Manifest) -> tuple[Export, ...]:
    """A tool has its bare name; a compactor has none of its own, so it has its plugin's."""
    tools = [
        Export(
            "tool",
            tool.name,
            tool.description,
            # None accepts anything: a schema that cannot be enforced has been warned about.
            None if rules.parameters_problem(tool.parameters_schema) else tool.parameters_schema,
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


def _timeouts(shutdown: int) -> Timeouts:
    """The time to leave is one budget: most of it for the answer, the rest for closed stdin and then for SIGTERM."""
    answer, each = shutdown * ANSWER_SHARE, shutdown * (1 - ANSWER_SHARE) / 2
    return Timeouts(handshake=HANDSHAKE, call=CALL, farewell=answer, teardown=each, term=each)


def _settings(manifest: Manifest) -> SettingsSpec:
    return SettingsSpec(
        config_schema=manifest.config_schema,
        secrets_schema=manifest.system_config_schema,
        knobs=tuple(knobs.knob(name, entry) for name, entry in manifest.knobs.items()),
    )


def _roles(manifest: Manifest) -> tuple[str, ...]:
    if manifest.roles is None:
        return ("observer",) if manifest.hooks else ()
    return _distinct(manifest.roles)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
