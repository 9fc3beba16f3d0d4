"""`manifest.toml`: from the text of a manifest to a `PluginSpec`.

Owns the sections, the rules between their values, the settings, and which files of this common name are manifests of
this contract. Pure: it takes text; whether the plugin's program exists is checked elsewhere. Each rule reads the draft
on its own, so one mistake never hides another. Unknown keys are ignored with a warning, because the contract grows by
adding some. The default of a setting is text in the manifest and is sent as its kind says; paths are sent as they are
written, since the plugin expands `~`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from plugbay.contracts.ainb import capabilities
from plugbay.contracts.ainb.capabilities import admits
from plugbay.contracts.ainb.messages import ABI_VERSION
from plugbay.contracts.ainb.spec import IDLE_SECONDS, TIMEOUTS
from plugbay.contracts.document import Document, KeyPath, parse_toml
from plugbay.contracts.draft import Draft
from plugbay.contracts.validation import suggestion, validate
from plugbay.model.errors import Problem
from plugbay.model.ids import id_problem
from plugbay.model.knobs import broken_rule, value_of
from plugbay.model.spec import Export, Knob, Lifetime, PluginSpec, RestartPolicy, SandboxRequest, SettingsSpec
from plugbay.model.topics import HOST_ONLY

Count = Annotated[int, Field(ge=0, le=(1 << 32) - 1)]
"""Fits 32 bits."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)  # built by the first manifest, not by each start


class Plugin(_Section):
    """Its identity."""

    name: str
    version: str
    abi_version: Count
    description: str = ""


class Provides(_Section):
    """The exports that a host can show, offer and route to."""

    screens: list[str] = []
    commands: list[str] = []
    cli_namespaces: list[str] = []
    snapshots: list[str] = []


class Subscribes(_Section):
    """Topics that the plugin receives without a subscription."""

    snapshots: list[str] = []
    latest_state: list[str] = []
    """Those of `snapshots` that do not keep an idle plugin alive."""


class Lifecycle(_Section):
    """When the plugin is started, and when it is stopped again."""

    spawn: Literal["lazy", "eager"] = "lazy"
    idle_reap_secs: Count = IDLE_SECONDS
    """0: never."""


class Setting(_Section):
    """One value an operator may set; `default` is text whatever the kind is."""

    key: str
    kind: Literal["path", "string", "bool", "enum", "int"]
    label: str
    default: str = ""
    choices: list[str] = []


class Manifest(_Section):
    """The whole file. What a grant looks like depends on the capability, so `capabilities` judges them."""

    plugin: Plugin
    capabilities: dict[str, Any] = {}
    provides: Provides = Provides()
    subscribes: Subscribes = Subscribes()
    lifecycle: Lifecycle = Lifecycle()
    config: list[Setting] = []


INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "USER", "SHELL", "TERM")
"""Taken from the host. The contract's own host hands down all it has, its secrets included."""
ENV_FACTS = (("PATH", "search.path"),)
"""The program itself is run, and `#!/usr/bin/env python3` in it then finds the Python that has plugbay."""
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
    check_rules(draft, root.name)
    capabilities.check(draft)
    check_settings(draft)
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
        respawn=eager or bool(manifest.subscribes.snapshots),  # a delivery starts nothing, so it must run to hear
        restart=RESTART,
        snapshots=_distinct(manifest.subscribes.snapshots),
        latest_state=_distinct(manifest.subscribes.latest_state),
        sandbox=SandboxRequest(fenced=True),
        access=capabilities.access(plugin.name, requested),
        gates=capabilities.access(plugin.name, capabilities.READ_FOLDERS),
        settings=build_settings(manifest.config),
        commands=_distinct(manifest.provides.commands),
    )


def _exports(provides: Provides) -> tuple[Export, ...]:
    screens = [Export("screen", name) for name in _distinct(provides.screens)]
    namespaces = [Export("cli_namespace", name) for name in _distinct(provides.cli_namespaces)]
    return (*screens, *namespaces)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


RESERVED = "host"
"""Whom snapshots come from that the host publishes itself."""
LEFTOVERS = {
    "plugin": ("ainb_min_version", "author", "license"),
    "provides": ("statusline", "preferred_min_size"),
}
"""Keys of older contracts that manifests still carry; nothing is done with them, and nothing is said."""
_NUMBER = r"(?:0|[1-9][0-9]*)"
_TAG = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{2}}(?:-{_TAG}(?:\.{_TAG})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?")
_LISTS = (
    ("provides", "screens"),
    ("provides", "commands"),
    ("provides", "cli_namespaces"),
    ("provides", "snapshots"),
    ("subscribes", "snapshots"),
    ("subscribes", "latest_state"),
)


def check_rules(draft: Draft, folder: str) -> None:
    """Every rule, on whatever is there. `folder` is the name of the folder the plugin lies in."""
    _name(draft, folder)
    _versions(draft)
    _names(draft)
    _namespaces(draft)
    _latest_state(draft)
    _bus(draft)
    _ignored(draft)


def _name(draft: Draft, folder: str) -> None:
    name, path = draft.text("plugin", "name"), ("plugin", "name")
    if name is None:
        return
    # The name is joined to a folder to find the program.
    problem = id_problem(name) or ("must not begin with a dot" if name.startswith(".") else None)
    if problem:
        draft.error("invalid_name", path, f"{problem}, got {name!r:.60}")
    elif name == RESERVED:
        draft.error("reserved_name", path, f"{name!r} is reserved for the host")
    elif name != folder:
        text = f"{name!r} is in the folder {folder!r}; the plugin, its folder and its program must have the same name"
        draft.error("name_mismatch", path, text)


def _versions(draft: Draft) -> None:
    version = draft.text("plugin", "version")
    if version is not None and not _SEMVER.fullmatch(version):
        text = f"{version!r:.60} is not a semantic version such as 1.2.3"
        draft.error("version_not_semver", ("plugin", "version"), text)
    abi = draft.value("plugin", "abi_version")
    if type(abi) is int and abi >= 0 and abi != ABI_VERSION:
        hint = f"it needs a newer host, or a build for ABI {ABI_VERSION}" if abi > ABI_VERSION else "it must be rebuilt"
        text = f"the plugin needs ABI {abi}, this host has ABI {ABI_VERSION}; {hint}"
        draft.error("abi_unsupported", ("plugin", "abi_version"), text)


def _names(draft: Draft) -> None:
    for where in _LISTS:
        seen: set[str] = set()
        for path, name in draft.texts(*where):
            if not name.strip() or not name.isprintable():
                draft.error("invalid_name", path, f"{name!r:.60} is empty")
            elif name in seen:
                draft.warn("duplicate", path, f"{name!r} appears twice")
            seen.add(name)


def _namespaces(draft: Draft) -> None:
    for path, name in draft.texts("provides", "cli_namespaces"):
        if name.startswith("-") or len(name.split()) > 1 or name != name.strip():
            draft.error("invalid_name", path, f"{name!r} must be one word of a command line that is not an option")


def _latest_state(draft: Draft) -> None:
    subscribed = {topic for _, topic in draft.texts("subscribes", "snapshots")}
    for path, topic in draft.texts("subscribes", "latest_state"):
        if topic not in subscribed:
            draft.error("latest_state_stray", path, f"{topic!r} is not in subscribes.snapshots")


def _bus(draft: Draft) -> None:
    """The contract puts all snapshots behind one capability, and some under which only the host publishes."""
    grants = draft.table("capabilities")
    for section, loss in (("provides", "published"), ("subscribes", "delivered")):
        for path, topic in draft.texts(section, "snapshots"):
            if not admits(grants, topic):
                draft.warn(
                    "needs_event_bus", path, f"{topic!r} is never {loss}: capabilities.event_bus does not cover it"
                )
            elif section == "provides" and topic.startswith(HOST_ONLY):
                draft.warn("host_only_topic", path, f"{topic!r} is never published: only the host may publish it")


def _ignored(draft: Draft) -> None:
    draft.warn_of_unknown((), draft.table(), tuple(Manifest.model_fields))
    for section, model in (("plugin", Plugin), ("provides", Provides), ("lifecycle", Lifecycle)):
        known = (*model.model_fields, *LEFTOVERS.get(section, ()))
        draft.warn_of_unknown((section,), draft.table(section), known)
    for key in draft.table("subscribes"):
        if key not in Subscribes.model_fields:
            near = suggestion(key, Subscribes.model_fields)
            text = f"not part of the contract, ignored here; newer ainb hosts refuse the manifest for it{near}"
            draft.warn("unknown_key", ("subscribes", key), text)


_TYPES = {
    "path": ("path", "string"),
    "string": ("text", "string"),
    "bool": ("boolean", "boolean"),
    "enum": ("enum", "string"),
    "int": ("int_range", "integer"),
}
"""The type of knob, and the type of JSON, that each kind is."""


def check_settings(draft: Draft) -> None:
    """Every rule about settings, on whatever is there."""
    seen: set[str] = set()
    for path, raw in draft.tables("config"):
        draft.warn_of_unknown(path, raw, tuple(Setting.model_fields))
        setting = _setting(raw)
        if setting is None:
            continue
        _key(draft, (*path, "key"), setting.key, seen)
        _sense(draft, path, setting)


def build_settings(entries: Iterable[Setting]) -> SettingsSpec:
    """The settings of a manifest without problems; empty when there are none."""
    known = list(entries)
    if not known:
        return SettingsSpec()
    properties = {setting.key: _schema(setting) for setting in known}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return SettingsSpec(config_schema=schema, knobs=tuple(_knob(setting) for setting in known))


def _setting(raw: dict[str, Any]) -> Setting | None:
    """None when its shape is wrong, which is reported with the shape of everything else."""
    try:
        return Setting.model_validate(raw, strict=True)
    except ValidationError:
        return None


def _key(draft: Draft, path: KeyPath, key: str, seen: set[str]) -> None:
    if not key.strip() or not key.isprintable():
        draft.error("invalid_name", path, f"{key!r:.60} is empty")
    elif key in seen:
        draft.error("duplicate_setting", path, f"{key!r} is the key of two settings")
    seen.add(key)


def _sense(draft: Draft, path: KeyPath, setting: Setting) -> None:
    if setting.kind == "enum" and not setting.choices:
        draft.error("missing_field", (*path, "choices"), "a setting of kind enum needs values")
        return
    if setting.kind != "enum" and setting.choices:
        draft.warn("choices_ignored", (*path, "choices"), f"a setting of kind {setting.kind} has none, ignored")
    knob = _knob(setting)
    broken = None if knob.default is None else broken_rule(knob, knob.default)
    if broken is not None:
        draft.error("setting_default", (*path, "default"), f"{broken[1]}, got {setting.default!r:.60}")


def _knob(setting: Setting) -> Knob:
    facts = {"values": list(dict.fromkeys(setting.choices))} if setting.kind == "enum" else {}
    knob = Knob(setting.key, _TYPES[setting.kind][0], setting.label, setting.key, facts=facts)
    # No default is the empty text, which is a value of free text and of nothing else.
    has_default = setting.default or setting.kind == "string"
    return replace(knob, default=value_of(knob, setting.default)) if has_default else knob


def _schema(setting: Setting) -> dict[str, Any]:
    """The default stands in the knob."""
    schema: dict[str, Any] = {"type": _TYPES[setting.kind][1], "description": setting.label}
    return {**schema, "enum": list(dict.fromkeys(setting.choices))} if setting.kind == "enum" else schema
