"""How a plugin is confined: its manifest, what was granted of it and the operator's own words become one `Policy`.

Owns who is confined, who is let off and how loudly, and what each contract's wishes mean to a sandbox. Plans: looks at
the disk, changes nothing. `make_own` makes a folder that a plan gives to the plugin alone. How a policy is made to
hold is the business of `process.sandbox`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plugbay.host.config.sandbox import PluginSandbox, ProcessLimits, SandboxConfig
from plugbay.host.confinement.paths import RESOLUTION_FAILED, Paths, Unshowable
from plugbay.model.addresses import clean_host
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.protected import FOLDER as A_FOLDER
from plugbay.model.protected import SETTINGS, Entry, Protected
from plugbay.model.spec import STATE_DIR, Access, PluginSpec, SandboxRequest
from plugbay.process.command import host_search_path
from plugbay.process.sandbox.egress.listener import ENVIRONMENT
from plugbay.process.sandbox.policy import Endpoint, Limits, Network, Policy, Reach
from plugbay.process.stderr import log_name

FOLDER = "plugins"
"""Below the state directory: a folder for each plugin that keeps something itself."""

ONE_RUN = "--no-sandbox"
"""The reason of whoever lets everybody off for one run."""

NOT_ASKED = "its manifest does not ask for it"

TMP = "/tmp"

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are on this machine, for one plugin."""

    home: Path = field(default_factory=Path.home)
    """Of whoever runs the host."""
    state: Path | None = None
    """For what the plugin keeps itself; None: the host keeps nothing."""
    project: Path | None = None
    """What the plugins work for, where the operator has named it."""
    protected: Protected = field(default_factory=Protected)
    """What the host keeps: databases, keys, settings and logs of all plugins; and the folders of other plugins."""
    user: int | None = None
    """Who the plugin runs as; None: as whoever runs the host."""


@dataclass(frozen=True, slots=True)
class Operator:
    """What the operator says about the confinement of one plugin."""

    own: PluginSandbox = field(default_factory=PluginSandbox)
    common: SandboxConfig = field(default_factory=SandboxConfig)
    private: tuple[str, ...] = ()
    """Addresses and ports that are not public and may be reached nevertheless."""
    one_run: bool = False
    """Nobody is confined, just this once."""
    limits: ProcessLimits = field(default_factory=ProcessLimits)
    """Of each of its processes, whether it is confined or not."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """How one plugin is confined, or why it is not."""

    policy: Policy | None = None
    reason: str = NOT_ASKED
    """Why there is no policy."""
    downgrade: bool = False
    """It should be confined, and somebody has let it off."""
    refusal: Failure | None = None
    """Why it cannot be confined as asked, and so is not started."""
    notes: tuple[str, ...] = ()
    """What it was granted and does not get, because it is not there."""
    own: tuple[Path, ...] = ()
    """Folders that are the plugin's alone, made before its first start."""
    covered: tuple[Entry, ...] = ()
    """Missing protected paths within a shown folder, made before a start: only an existing path can be covered."""
    rooms: bool = False
    """Whether it gets a folder for each piece of work, in a place that only one child of it sees."""

    def __str__(self) -> str:
        if self.refusal is not None:
            return f"refused: {self.refusal.message}"
        return f"unconfined: {self.reason}" if self.policy is None else "confined"

    def to_json(self) -> dict[str, Any]:
        """The public shape, as in `plugbay inspect --json`."""
        shown = None if self.policy is None else self.policy.to_json()
        return {"confined": str(self), "policy": shown, "scratch": self.rooms, "notes": list(self.notes)}


def own_folder(state_dir: Path, plugin_id: str) -> Path:
    """The folder in which a plugin keeps what it keeps itself."""
    return state_dir / FOLDER / log_name(plugin_id).removesuffix(".log")


def confine(spec: PluginSpec, granted: Iterable[Access], operator: Operator, places: Places) -> Confinement:
    """How the plugin is confined with these grants, let off, or refused because neither is possible."""
    own, common, request = operator.own, operator.common, spec.sandbox
    asked = request is not None or common.require or own.wanted
    off = own.off or (ONE_RUN if operator.one_run and asked else None)
    if off is not None:
        return Confinement(reason=off, downgrade=asked, refusal=_insisting(spec, operator))
    if not asked:
        return Confinement()
    try:
        return _planned(spec, request or SandboxRequest(), tuple(granted), operator, places)
    except Unshowable as error:
        detail = {"rule": error.rule, "hint": error.hint}
        return Confinement(refusal=_refusal(spec, f"it cannot be confined as asked: {error}", detail))


def _insisting(spec: PluginSpec, operator: Operator) -> Failure | None:
    """Why the plugin may not be let off: not at all, or not for one run."""
    if spec.sandbox is not None and spec.sandbox.insists:
        hint = "take away the variable that requires it, or the exception"
        return _refusal(spec, "the environment of this host requires a sandbox for it", {"hint": hint})
    if operator.common.require and operator.own.off is None:
        hint = f'write the exception down in plugbay.toml: [plugins."{spec.id}".sandbox] off = "the reason why"'
        return _refusal(spec, "this host runs nothing unconfined ([sandbox] require = true)", {"hint": hint})
    return None


def _planned(
    spec: PluginSpec, request: SandboxRequest, granted: tuple[Access, ...], operator: Operator, places: Places
) -> Confinement:
    protected = places.protected
    paths = Paths(places.home, request.never, protected, spec.root, places.user)
    state = _state(spec, request, paths, places)
    paths.may_read((*request.read, *_targets(granted, "read_path"), *operator.common.read, *operator.own.read))
    written = [path for path in request.write if not path.startswith(STATE_DIR)]
    paths.may_write((*written, *_targets(granted, "write_path"), *operator.own.write))
    paths.may_run((*_targets(granted, "run"), *operator.own.run), host_search_path(os.environ))
    for named in _targets(granted, "own_path"):
        paths.has(places.home / named.removeprefix("~/"))
    policy = Policy(
        package=spec.root,
        read=tuple(paths.read),
        write=tuple(path for path in paths.write if state is None or not path.is_relative_to(state)),
        run=tuple(paths.run),
        state=state,
        network=replace(_network(granted, request, operator, paths), closed=_closed(spec, granted)),
        limits=operator.own.limits.over(operator.limits.over(operator.common.limits.over(Limits()))),
        hidden=protected.paths,
        own=protected.own,
    )
    rooms = any(item.kind == "scratch" for item in granted)
    covered = _covered(protected, (spec.root, *policy.read, *policy.write), policy.write)
    return Confinement(policy, "", notes=tuple(paths.notes), own=tuple(paths.own), covered=covered, rooms=rooms)


def _covered(protected: Protected, shown: Iterable[Path], written: Iterable[Path]) -> tuple[Entry, ...]:
    """Folders in all that is shown; settings only where the plugin could write its own."""
    around = {A_FOLDER: _prefixes(shown), SETTINGS: _prefixes(written)}
    inside = [entry for entry in protected.entries if entry.path.startswith(around.get(entry.kind, ()))]
    return tuple(entry for entry in inside if not os.path.lexists(entry.path))


def _prefixes(folders: Iterable[Path]) -> tuple[str, ...]:
    return tuple(f"{os.path.realpath(path).rstrip('/')}/" for path in folders)


def _state(spec: PluginSpec, request: SandboxRequest, paths: Paths, places: Places) -> Path | None:
    """The plugin's own folder, for who asks for it or is told of it; and what it sees of the project."""
    facts = [fact for _, fact in spec.env_facts]
    if "project.root" in facts and places.project is not None:
        paths.may_see(places.project)
    inside = [path.removeprefix(STATE_DIR) for path in request.write if path.startswith(STATE_DIR)]
    if inside and places.state is None:
        text = f"it wants to keep something in {STATE_DIR}, and this host has no folder for that"
        raise Unshowable(RESOLUTION_FAILED, text, "name a state_dir in [host] of plugbay.toml")
    if places.state is None or not (inside or "config.root" in facts):
        return None
    for rest in ("", *inside):
        paths.has(Path(f"{places.state}{rest}"))
    return places.state


def _network(granted: tuple[Access, ...], request: SandboxRequest, operator: Operator, paths: Paths) -> Network:
    """The widest of what was granted and what the operator opens."""
    asked = [item for item in granted if item.kind == "network"]
    more = operator.own.reach()
    if request.host_network or more.reach is Reach.HOST:
        return Network(Reach.HOST)
    if more.reach is Reach.ANY or any(not item.target for item in asked):
        return Network(Reach.ANY, private=operator.private)
    doors: dict[Endpoint, None] = {}
    for item in asked:
        host = clean_host(item.target)
        if host is None:
            paths.notes.append(f"it may reach {item.target}, which is no name and no address of a host")
        else:
            doors[Endpoint(host, item.port)] = None
    doors |= dict.fromkeys(more.doors)
    return Network(Reach.LISTED, tuple(doors), operator.private) if doors else Network()


def _closed(spec: PluginSpec, granted: tuple[Access, ...]) -> tuple[tuple[Endpoint | None, str], ...]:
    """What of the network the plugin asks for and was not granted."""
    asked = [item for item in spec.access if item.kind == "network" and item not in granted]
    everything = [(None, item.capability) for item in asked if not item.target]
    hosts = [(clean_host(item.target), item) for item in asked if item.target]
    return (*((Endpoint(host, item.port), item.capability) for host, item in hosts if host is not None), *everything)


def _targets(granted: Iterable[Access], kind: str) -> list[str]:
    return [item.target for item in granted if item.kind == kind]


def _refusal(spec: PluginSpec, text: str, detail: dict[str, Any]) -> Failure:
    return Failure(Code.SANDBOX_UNAVAILABLE, text, origin=Origin.POLICY, plugin=spec.id, detail=detail)


# What a start needs.


def make_own(folder: Path, uid: int | None, inner: Sequence[str] = ()) -> None:
    """Make a folder for nobody else's eyes; where plugins have users of their own, its user's. Raises OSError.

    `inner` leads, name by name, to one within it that is made too. In there the plugin rules, and may have put a link
    in the place of a folder: none is followed, or whatever it leads to would be made and given away.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    give(folder, uid)
    if not inner:
        return
    at = os.open(folder, _FOLDER_FLAGS)
    try:
        for name in inner:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=at)
            at, above = os.open(name, _FOLDER_FLAGS, dir_fd=at), at
            os.close(above)
            _give(at, uid)
    finally:
        os.close(at)


def make_covered(entry: Entry) -> None:
    """Make an empty folder or settings file, and the folders above it, private to the host's user. Raises OSError.

    It lies in a folder that a plugin sees and may be able to write: no link is followed.
    """
    *folders, last = Path(entry.path).parts[1:]
    at = os.open("/", _FOLDER_FLAGS)
    try:
        for name in folders if entry.kind == SETTINGS else (*folders, last):
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=at)
            at, above = os.open(name, _FOLDER_FLAGS, dir_fd=at), at
            os.close(above)
        if entry.kind == SETTINGS:
            with suppress(FileExistsError):
                os.close(os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=at))
    finally:
        os.close(at)


def give(folder: Path, uid: int | None) -> None:
    """Hand a folder of the host's own to the user of a plugin; one that is somebody's already stays so."""
    if uid is None:
        return
    at = os.open(folder, _FOLDER_FLAGS)
    try:
        _give(at, uid)
    finally:
        os.close(at)


def _give(at: int, uid: int | None) -> None:
    if uid is not None and os.fstat(at).st_uid == os.geteuid():
        os.fchown(at, uid, uid)


def seen_inside(policy: Policy | None, environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """The host's environment as it is true inside: what a plugin inherits must not point to nowhere."""
    if policy is None:
        return dict(environ)
    shown = (*policy.read, *policy.write, *policy.run)
    at_home = policy.state or (home if any(path.is_relative_to(home) for path in shown) else Path(TMP))
    changed = {"HOME": str(at_home), "TMPDIR": TMP}
    return {**environ, **{name: value for name, value in changed.items() if name in environ}}


def proxies(policy: Policy | None) -> tuple[tuple[str, str], ...]:
    """The variables by which ordinary programs find the way out."""
    return tuple(ENVIRONMENT.items()) if policy is not None and policy.network.proxied else ()
