"""`Bindings`: plugins as the operator bound them — decisions, times, environment, settings and secrets in one place.

Owns how plugbay.toml, saved settings and the options of a host become what a supervisor is given. Reads the settings
files each time a plugin is bound, so a reload takes over what was changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from plugbay.host.authorization import policy
from plugbay.host.authorization.policy import Decision
from plugbay.host.config import settings, settings_files
from plugbay.host.config.config import Config
from plugbay.host.config.sandbox import PluginSandbox
from plugbay.host.confinement import notes
from plugbay.host.confinement.policy import Confinement, Operator, Places, confine, make_covered, make_own, own_folder
from plugbay.host.confinement.protection import Protection
from plugbay.host.confinement.scratch import Scratch
from plugbay.host.invocations.context import ExportBinding, execution_class
from plugbay.host.invocations.context import Policy as ExportPolicy
from plugbay.host.invocations.export_settings import settings_of
from plugbay.host.journal import Journal
from plugbay.host.supervision.instance import Binding, Project
from plugbay.model.errors import Code, ConfigInvalid, Failure, Problem
from plugbay.model.protected import Protected
from plugbay.model.spec import Export, Lifetime, PluginSpec
from plugbay.process.child import Spawner
from plugbay.process.limits import Rlimits
from plugbay.process.sandbox.policy import SandboxSettings
from plugbay.process.sandbox.users import uid_of

CONCURRENCY = {Lifetime.PER_CALL: 32, Lifetime.RESIDENT: 256}
"""Calls of one plugin at the same time where the operator does not say: a process each, or a message each."""

MAX_SETTINGS = 1 << 20
"""Bytes of a plugin's config, and of its secrets, as JSON."""


@dataclass(frozen=True, slots=True)
class Options:
    """What whoever makes a host decides for all its plugins."""

    grants: frozenset[str] = frozenset()
    grant_all: bool = False
    unconfined: bool = False
    """Nobody is confined, just this once."""
    trusted: frozenset[str] = frozenset()
    """Plugins that may offer what they like, just this once."""

    def trusts(self, plugin_id: str) -> bool:
        """Whether everything that the plugin offers counts as approved."""
        return self.grant_all or plugin_id in self.trusted


class Bindings:
    """The operator's word about every plugin."""

    def __init__(
        self,
        config: Config,
        options: Options,
        state_dir: Path | None,
        approved: Callable[[str], bool] = lambda plugin_id: True,
        protection: Protection | None = None,
    ) -> None:
        """`approved` says whether what a plugin offers has been approved, where that is needed; `protection` what is
        out of reach for every plugin.
        """
        self._config = config
        self._approved = approved
        self._options = options
        self._state_dir = state_dir
        self.protection = protection or Protection(config, state_dir, log_folder(config))
        self._project = Project(config.project.id, Path(config.project.root).absolute(), shown=config.project.shown)
        self.sandbox = SandboxSettings(config.sandbox.uid_range, require_limits=config.sandbox.require_limits)
        self.scratch = Scratch(state_dir, owner=self._user)
        """Rooms for the work of plugins, each of which is its plugin's user's."""

    def spawner(self, log_dir: Path | None, journal: Journal) -> Spawner:
        """Who starts all children, and confines those that are to be."""
        return Spawner(log_dir, clean_up=True, sandbox=self.sandbox, egress_told=notes.connections(journal))

    def decide(self, plugin_id: str) -> Decision:
        """What may happen with this plugin."""
        decision = replace(self._config.plugin(plugin_id).decision(), approved=self._approved(plugin_id))
        if self._options.grant_all:
            return replace(decision, grant_all=True)
        if self._options.grants:
            return replace(decision, grants=(decision.grants or frozenset()) | self._options.grants)
        return decision

    def bind(self, spec: PluginSpec, *, make: bool = True) -> Binding:
        """Everything a supervisor needs to know; settings that cannot be used are a refusal to start.

        The plugin's own folders are made, unless it is only to be looked at.
        """
        ours = self._config.plugin(spec.id)
        config, secrets, refusal = self._settings(spec)
        granted = policy.effective(spec, self.decide(spec.id))
        project = replace(self._project, config_root=self._own_folder(spec))
        self.protection.refresh()
        confinement = self._confined(spec) if make else self.confinement(spec)
        return Binding(
            spec=replace(
                spec,
                exports=tuple(_apart(export, ours.execution_class) for export in spec.exports),
                timeouts=ours.timeouts.over(spec.timeouts),
                patience=spec.patience if ours.timeouts.call is None else {},
            ),
            granted=granted,
            confinement=confinement,
            protected=self._protected(spec),
            scratch=self.scratch if any(item.kind == "scratch" for item in policy.access(spec, granted)) else None,
            env=tuple(ours.env.items()),
            inherit_env=tuple(ours.inherit_env),
            config=config,
            secrets=secrets,
            project=project,
            pool=ours.pool,
            concurrency=ours.concurrency or CONCURRENCY[spec.lifetime],
            log_level=ours.log_level or self._config.host.log_level,
            limits=ours.limits.over(Rlimits()),
            refusal=refusal or confinement.refusal,
            narrowed={} if confinement.policy is None else self._narrowed(spec),
        )

    def _narrowed(self, spec: PluginSpec) -> dict[frozenset[str], Confinement]:
        """The confinement of each share of the exports; none where all exports ask for the same.

        Only plugins whose exports are invoked have shares: the calls of all others go to one process.
        """
        held = frozenset(item.capability for item in spec.access)
        shares = {held.intersection(export.capabilities) for export in spec.exports if _is_invoked(export)}
        if shares <= {held}:
            return {}
        return {share: self._confined(_asking_for(spec, share)) for share in shares}

    def _confined(self, spec: PluginSpec) -> Confinement:
        """How the plugin is confined, with the folders made that are its own if it may start at all."""
        if policy.admit(spec, self.decide(spec.id)) is not None:
            return self.confinement(spec)
        found = self.confinement(spec)
        try:
            self.make_folders(spec, found)
        except OSError as error:
            text = f"its folder {error.filename} cannot be made: {error.strerror}"
            return Confinement(refusal=Failure(Code.LAUNCH_FAILED, text, plugin=spec.id))
        return found

    def make_folders(self, spec: PluginSpec, confinement: Confinement) -> None:
        """Make what is the plugin's alone, by its confinement or because it is told of it. Raises OSError."""
        told = self._own_folder(spec) if any(fact == "config.root" for _, fact in spec.env_facts) else None
        folders = (*(() if told is None else (told,)), *confinement.own)
        for folder in folders:
            top = next(other for other in folders if folder.is_relative_to(other))
            inner = folder.relative_to(top).parts
            make_own(top, None if confinement.policy is None else self._user(spec.id), inner)
        for covered in confinement.covered:
            make_covered(covered)

    def confinement(self, spec: PluginSpec, *, certainly: bool = False) -> Confinement:
        """How the plugin is confined with what is granted now, or would be if it `certainly` were; nothing is made."""
        granted = policy.effective(spec, self.decide(spec.id))
        project = self._project.root if self._config.project.shown else None
        state, protected = self._own_folder(spec), self._protected(spec)
        places = Places(state=state, project=project, protected=protected, user=self._user(spec.id))
        ours, private = self._config.plugin(spec.id), tuple(self._config.network.allow_private)
        own = ours.sandbox
        if certainly and not own.wanted:
            own = PluginSandbox(on=True)
        operator = Operator(own, self._config.sandbox, private, self._options.unconfined, ours.limits)
        return confine(spec, policy.access(spec, granted), operator, places)

    def _protected(self, spec: PluginSpec) -> Protected:
        """What is out of reach for the plugin; its own folder for state is not, though it lies in the host's."""
        found, state = self.protection.of(spec), self._own_folder(spec)
        return found if state is None else replace(found, own=(*found.own, os.path.realpath(state)))

    def _own_folder(self, spec: PluginSpec) -> Path | None:
        return None if self._state_dir is None else own_folder(self._state_dir, spec.id)

    def _user(self, plugin_id: str) -> int | None:
        """Who the plugin runs as when it is confined; None: as the host does."""
        return uid_of(plugin_id, self.sandbox)

    def _settings(self, spec: PluginSpec) -> tuple[dict[str, Any] | None, dict[str, Any] | None, Failure | None]:
        """Config and secrets as the plugin gets them, None where it has no such thing; and why it may not start so."""
        try:
            config = self.config_of(spec)
            secrets = self.secrets_of(spec)
        except ConfigInvalid as error:
            return None, None, _refused(spec, error.problems)
        known = settings_of(spec)
        problems = settings.check_config(known, config) + settings.check_secrets(known, secrets)
        if not problems:
            problems = [problem for value in (config, secrets) for problem in _size_problem(value)]
        if problems:
            return None, None, _refused(spec, problems)
        return (
            None if known.config_schema is None else config,
            None if known.secrets_schema is None else secrets,
            None,
        )

    def for_export(self, spec: PluginSpec, export: Export) -> ExportBinding | Failure:
        """One export as plugbay.toml binds it, for invocations: its part of the config, the secrets, the policy."""
        _, secrets, refusal = self._settings(spec)
        if refusal is not None:
            return refusal
        ours = self._config.plugin(spec.id)
        seconds = ours.timeouts.call
        return ExportBinding(
            config=self.config_of(spec).get(export.name, {}),
            secrets=secrets or {},
            policy=ExportPolicy(
                timeout_ms=None if seconds is None else round(seconds * 1000), execution_class=ours.execution_class
            ),
            project_id=self._project.id,
        )

    def config_of(self, spec: PluginSpec) -> dict[str, Any]:
        """Defaults, then plugbay.toml, then what was set by command; raises `ConfigInvalid`."""
        saved = {} if self._state_dir is None else settings_files.load_config(self._state_dir, spec.id)
        return {**settings.defaults(settings_of(spec)), **self._config.plugin(spec.id).config, **saved}

    def secrets_of(self, spec: PluginSpec) -> dict[str, Any]:
        """Raises `ConfigInvalid`, also when anybody else could read them."""
        return {} if self._state_dir is None else settings_files.load_secrets(self._state_dir, spec.id)


def log_folder(config: Config) -> Path | None:
    """Where plugbay.toml has logs kept, if it says so."""
    return None if config.host.log_dir is None else Path(config.host.log_dir)


def _is_invoked(export: Export) -> bool:
    return "execution_class" in export.facts


def _asking_for(spec: PluginSpec, share: frozenset[str]) -> PluginSpec:
    """The plugin as if it asked for no more of what the operating system knows than this."""
    return replace(spec, access=tuple(item for item in spec.access if item.capability in share))


def _apart(export: Export, least: str | None) -> Export:
    """The export with the isolation that the operator wants at least, if it has a word for that."""
    declared = export.facts.get("execution_class")
    if declared is None or least is None:
        return export
    return replace(export, facts={**export.facts, "execution_class": execution_class(declared, least)})


def _size_problem(value: dict[str, Any]) -> list[Problem]:
    """Settings travel in the greeting, and a greeting has the size of one message."""
    size = len(msgspec.json.encode(value))
    if size <= MAX_SETTINGS:
        return []
    return [Problem("too_large", "", f"the settings have {size:,} bytes; at most {MAX_SETTINGS:,}")]


def _refused(spec: PluginSpec, problems: Iterable[Problem]) -> Failure:
    found = list(problems)
    text = f"its settings cannot be used: {'; '.join(map(str, found[:3]))}"
    hint = f"plugbay config show {spec.id} lists what it takes, plugbay config set and secret give it"
    detail = {"problems": [problem.to_json() for problem in found], "hint": hint}
    return Failure(Code.LAUNCH_FAILED, text, plugin=spec.id, detail=detail)
