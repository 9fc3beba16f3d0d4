"""`Bindings`: combines plugbay.toml, saved settings and the options of a host into the `Binding` of each plugin.

Reads the settings files each time a plugin is bound, so that a reload takes over changes. The binding of an export,
which every invocation needs, is kept until one of the files has changed.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from plugbay.contracts.mcp import remote
from plugbay.host.authorization import policy
from plugbay.host.authorization.policy import Decision
from plugbay.host.config import settings
from plugbay.host.config.config import CONCURRENCY, Config
from plugbay.host.config.sections import PluginSandbox
from plugbay.host.confinement.policy import (
    Confinement,
    Operator,
    Places,
    confine,
    make_cover_target,
    make_own_folder,
    opened_addresses,
    own_folder,
)
from plugbay.host.confinement.protection import Protection
from plugbay.host.supervision.binding import Binding, Project
from plugbay.model.errors import Code, ConfigInvalid, Failure, Problem
from plugbay.model.gate import access
from plugbay.model.protected import Protected
from plugbay.model.spec import Export, PluginSpec, SettingsSpec
from plugbay.process.limits import Rlimits
from plugbay.process.sandbox.policy import SandboxSettings
from plugbay.process.sandbox.users import uid_of

if TYPE_CHECKING:
    from plugbay.host.confinement.scratch import Scratch
    from plugbay.host.journal import Journal
    from plugbay.host.request import ExportBinding
    from plugbay.process.child import Spawner

MAX_SETTINGS = 1 << 20
"""Bytes of a plugin's config, and of its secrets, as JSON."""


class Options(msgspec.Struct, frozen=True):
    """Options of a host for all its plugins."""

    grants: frozenset[str] = frozenset()
    grant_all: bool = False
    unconfined: bool = False
    """Exempt all plugins from confinement for this run."""
    trusted: frozenset[str] = frozenset()
    """Plugins whose run-time exports count as approved for this run."""
    requested: frozenset[str] = frozenset()
    """The capabilities that the manifests of all plugins request. A grant of one of them is for these plugins."""

    def trusts(self, plugin_id: str) -> bool:
        """Whether all run-time exports of the plugin count as approved."""
        return self.grant_all or plugin_id in self.trusted


class _Kept(msgspec.Struct, frozen=True):
    """The binding of an export, and the versions of the files that it was made from."""

    spec: PluginSpec
    versions: settings.Versions
    binding: ExportBinding


class Bindings:
    """The operator's decisions and settings for every plugin."""

    def __init__(
        self,
        config: Config,
        options: Options,
        state_dir: Path | None,
        approved: Callable[[str], bool] = lambda plugin_id: True,
        protection: Protection | None = None,
    ) -> None:
        """`approved`: whether the run-time exports of a plugin are approved; `protection`: protected paths."""
        self._config = config
        self._approved = approved
        self._options = options
        self._state_dir = state_dir
        self.protection = protection or Protection(config, state_dir, log_folder(config))
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._project = Project(config.project.id, Path(config.project.root).absolute(), shown=config.project.shown)
        self.sandbox = SandboxSettings(config.sandbox.uid_range, require_limits=config.sandbox.require_limits)

    @functools.cached_property
    def scratch(self) -> Scratch:
        """Scratch folders of invocations, owned by the users of their plugins."""
        from plugbay.host.confinement.scratch import Scratch  # needs an event loop, which `plugbay inspect` has not

        return Scratch(self._state_dir, owner=self._user)

    def configure(self, config: Config) -> None:
        """Use another configuration for every binding from now on."""
        self._config = config
        self._kept.clear()

    def add_requested(self, capabilities: frozenset[str]) -> None:
        """Count the requests of another plugin's manifest."""
        self._options = replace(self._options, requested=self._options.requested | capabilities)

    def spawner(self, log_dir: Path | None, journal: Journal) -> Spawner:
        """The spawner of all processes, confined or not."""
        from plugbay.host.confinement import notes
        from plugbay.process.child import Spawner

        return Spawner(log_dir, clean_up=True, sandbox=self.sandbox, on_egress=notes.egress_listener(journal))

    def decide(self, plugin_id: str) -> Decision:
        """The operator's decision about this plugin."""
        decision = replace(self._config.plugin(plugin_id).decision(), approved=self._approved(plugin_id))
        if self._options.grant_all:
            return replace(decision, grant_all=True)
        if self._options.grants:
            own = decision.grants or frozenset()
            return replace(decision, grants=own | self._options.grants, for_others=self._options.requested - own)
        return decision

    def bind(self, spec: PluginSpec, *, make: bool = True) -> Binding:
        """The binding of a plugin, for its supervisor. Unusable settings become a refusal to start.

        Creates the plugin's own folders, unless `make` is False.
        """
        ours = self._config.plugin(spec.id)
        config, secrets, refusal = self._settings(spec)
        granted = policy.effective(spec, self.decide(spec.id))
        project = replace(self._project, config_root=self._own_folder(spec))
        self.protection.refresh()
        confinement = self._prepare_confinement(spec) if make else self.confinement(spec)
        return Binding(
            spec=replace(
                spec,
                exports=tuple(_with_isolation(export, ours.execution_class) for export in spec.exports),
                timeouts=ours.timeouts.over(spec.timeouts),
                patience=ours.timeouts.over_patience(spec.patience),
            ),
            granted=granted,
            confinement=confinement,
            protected=self._protected(spec),
            opened=opened_addresses(spec, access(spec, granted), self._operator(spec)),
            scratch=self.scratch if any(item.kind == "scratch" for item in access(spec, granted)) else None,
            env=(*ours.env.items(), *self._login_variables(spec)),
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
        """The confinement of each share of the exports; empty if all exports have the same.

        Only plugins with execution classes have shares: the calls of all others go to one process.
        """
        held = frozenset(item.capability for item in spec.access)
        shares = {held.intersection(export.capabilities) for export in spec.exports if _is_invoked(export)}
        if shares <= {held}:
            return {}
        return {share: self._prepare_confinement(_limit_access(spec, share)) for share in shares}

    def _prepare_confinement(self, spec: PluginSpec) -> Confinement:
        """The confinement of the plugin; creates its own folders if it may start."""
        if policy.admit(spec, self.decide(spec.id)) is not None:
            return self.confinement(spec)
        found = self.confinement(spec)
        try:
            self.make_folders(spec, found)
        except OSError as error:
            text = f"its folder {error.filename} cannot be created: {error.strerror}"
            return Confinement(refusal=Failure(Code.LAUNCH_FAILED, text, plugin=spec.id))
        return found

    def make_folders(self, spec: PluginSpec, confinement: Confinement) -> None:
        """Create the plugin's own folders, and missing paths to cover. Raises OSError."""
        config_root = self._own_folder(spec) if any(fact == "config.root" for _, fact in spec.env_facts) else None
        folders = (*(() if config_root is None else (config_root,)), *confinement.own)
        for folder in folders:
            top = next(other for other in folders if folder.is_relative_to(other))
            inner = folder.relative_to(top).parts
            make_own_folder(top, None if confinement.policy is None else self._user(spec.id), inner)
        for covered in confinement.covered:
            make_cover_target(covered)

    def confinement(self, spec: PluginSpec, *, certainly: bool = False) -> Confinement:
        """The confinement of the plugin with the current grants, or as if `certainly` confined. Creates nothing."""
        granted = policy.effective(spec, self.decide(spec.id))
        project = self._project.root if self._config.project.shown else None
        state, protected = self._own_folder(spec), self._protected(spec)
        places = Places(state=state, project=project, protected=protected, user=self._user(spec.id))
        operator = self._operator(spec)
        if certainly and not operator.own.wanted:
            operator = replace(operator, own=PluginSandbox(on=True))
        with_login = replace(spec, connects=(*spec.connects, *self._login_endpoints(spec)))
        return confine(with_login, access(spec, granted), operator, places)

    def _operator(self, spec: PluginSpec) -> Operator:
        """The operator's settings for the confinement of the plugin."""
        ours, private = self._config.plugin(spec.id), tuple(self._config.network.allow_private)
        named = self.decide(spec.id).grants or frozenset()
        return Operator(ours.sandbox, self._config.sandbox, private, self._options.unconfined, ours.limits, named)

    def _load_login(self, spec: PluginSpec) -> dict[str, Any]:
        """The OAuth login of a server on the network; raises `ConfigInvalid`."""
        return settings.load_login(self._state_dir, spec.id) if spec.url and self._state_dir is not None else {}

    def _login(self, spec: PluginSpec) -> dict[str, Any]:
        """The same, empty if its file is unusable: `_settings` refuses the start then."""
        try:
            return self._load_login(spec)
        except ConfigInvalid:
            return {}

    def _login_variables(self, spec: PluginSpec) -> tuple[tuple[str, str], ...]:
        login = self._login(spec)
        return ((remote.LOGIN_VARIABLE, json.dumps(login)),) if login else ()

    def _login_endpoints(self, spec: PluginSpec) -> tuple[tuple[str, int], ...]:
        """Where tokens are refreshed. Only `plugbay mcp login` writes that: a confined plugin cannot change it."""
        url = remote.read_url(str(self._login(spec).get("token_endpoint", "")))
        return () if isinstance(url, str) else ((url.host, url.port),)

    def _protected(self, spec: PluginSpec) -> Protected:
        """The paths that the plugin must not reach; not its own state folder, although that lies in the host's."""
        found, state = self.protection.of(spec), self._own_folder(spec)
        return found if state is None else dataclasses.replace(found, own=(*found.own, os.path.realpath(state)))

    def _own_folder(self, spec: PluginSpec) -> Path | None:
        return None if self._state_dir is None else own_folder(self._state_dir, spec.id)

    def _user(self, plugin_id: str) -> int | None:
        """The user id of the plugin if it is confined; None: that of the host."""
        return uid_of(plugin_id, self.sandbox)

    def _settings(self, spec: PluginSpec) -> tuple[dict[str, Any] | None, dict[str, Any] | None, Failure | None]:
        """Config and secrets for the plugin, None if it declares none; and a refusal if they are invalid."""
        try:
            config = self.config_of(spec)
            secrets = self.secrets_of(spec)
            self._load_login(spec)
        except ConfigInvalid as error:
            return None, None, _refused(spec, error.problems)
        known = _settings_of(spec)
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
        """The binding of one export for invocations: its part of the config, the secrets, the policy."""
        versions = () if self._state_dir is None else settings.file_versions(self._state_dir, spec.id)
        kept = self._kept.get((spec.id, export.name))
        if kept is not None and kept.spec is spec and kept.versions == versions:
            return kept.binding
        binding = self._bind_export(spec, export)
        if not isinstance(binding, Failure) and settings.is_settled(versions, time.time_ns()):
            self._kept[spec.id, export.name] = _Kept(spec, versions, binding)
        return binding

    def _bind_export(self, spec: PluginSpec, export: Export) -> ExportBinding | Failure:
        from plugbay.host.request import ExportBinding, Policy

        _, secrets, refusal = self._settings(spec)
        if refusal is not None:
            return refusal
        ours = self._config.plugin(spec.id)
        seconds = ours.timeouts.call
        return ExportBinding(
            config=self.config_of(spec).get(export.name, {}),
            secrets=secrets or {},
            policy=Policy(
                timeout_ms=None if seconds is None else round(seconds * 1000), execution_class=ours.execution_class
            ),
            project_id=self._project.id,
        )

    def config_of(self, spec: PluginSpec) -> dict[str, Any]:
        """Defaults, then plugbay.toml, then saved settings; raises `ConfigInvalid`."""
        saved = {} if self._state_dir is None else settings.load_config(self._state_dir, spec.id)
        return {**settings.defaults(_settings_of(spec)), **self._config.plugin(spec.id).config, **saved}

    def secrets_of(self, spec: PluginSpec) -> dict[str, Any]:
        """The saved secrets; raises `ConfigInvalid`, also if other users could read them."""
        return {} if self._state_dir is None else settings.load_secrets(self._state_dir, spec.id)


def log_folder(config: Config) -> Path | None:
    """The log folder in plugbay.toml, if it has one."""
    return None if config.host.log_dir is None else Path(config.host.log_dir)


def _settings_of(spec: PluginSpec) -> SettingsSpec:
    """`settings_of`, loaded for the first plugin that is bound: `plugbay inspect` binds none."""
    from plugbay.host.invocations.context import settings_of

    return settings_of(spec)


def _is_invoked(export: Export) -> bool:
    return "execution_class" in export.facts


def _limit_access(spec: PluginSpec, share: frozenset[str]) -> PluginSpec:
    """The plugin with only the access of this share."""
    return replace(spec, access=tuple(item for item in spec.access if item.capability in share))


def _with_isolation(export: Export, least: str | None) -> Export:
    """The export with at least the isolation that the operator sets."""
    declared = export.facts.get("execution_class")
    if declared is None or least is None:
        return export
    from plugbay.host.invocations.context import execution_class

    return replace(export, facts={**export.facts, "execution_class": execution_class(declared, least)})


def _size_problem(value: dict[str, Any]) -> list[Problem]:
    """Settings are part of the greeting, which must fit into one message."""
    size = len(msgspec.json.encode(value))
    if size <= MAX_SETTINGS:
        return []
    return [Problem("too_large", "", f"the settings have {size:,} bytes; at most {MAX_SETTINGS:,}")]


def _refused(spec: PluginSpec, problems: Iterable[Problem]) -> Failure:
    found = list(problems)
    text = f"its settings cannot be used: {'; '.join(map(str, found[:3]))}"
    hint = f"plugbay config show {spec.id} lists the settings; plugbay config set and secret change them"
    detail = {"problems": [problem.to_json() for problem in found], "hint": hint}
    return Failure(Code.LAUNCH_FAILED, text, plugin=spec.id, detail=detail)
