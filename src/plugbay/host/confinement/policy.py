"""Compiles manifest, grants and plugbay.toml into the sandbox `Policy` of a plugin; `process.sandbox` enforces it.

`confine` decides whether a plugin is confined, exempt or refused. `Paths` decides which granted paths are shown: `~` is
the home of the host's user; nothing on the deny list is shown, through links neither; a missing path is left out if it
would be read, created if it is the plugin's own, and a refusal if it would be written. Paths of the host and of other
plugins are never shown, and are covered inside a shown folder. Planning reads the disk and changes nothing.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from plugbay.host.config.sections import PluginSandbox, ProcessLimits, SandboxConfig
from plugbay.model.addresses import PRIVATE, clean_host, denied, pair
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.protected import DATABASE, SETTINGS, Entry, Protected, is_within
from plugbay.model.protected import FOLDER as A_FOLDER
from plugbay.model.spec import STATE_DIR, Access, PluginSpec, SandboxRequest
from plugbay.process.command import host_search_path
from plugbay.process.sandbox.egress.listener import ENVIRONMENT
from plugbay.process.sandbox.policy import Endpoint, Limits, Network, Policy, Reach
from plugbay.process.sandbox.programs import install_command, unwrap
from plugbay.process.sandbox.sources import forbidden, home_folders, normalised
from plugbay.process.sandbox.system import is_system
from plugbay.process.stderr import log_name

FOLDER = "plugins"
"""Below the state directory: the state folders of plugins."""

ONE_RUN = "--no-sandbox"
"""The reason for an exemption of all plugins for one run."""

NOT_ASKED = "its manifest does not ask for it"

TMP = "/tmp"

LOCALHOST, LOOPBACK = "localhost", ("127.0.0.1", "::1")

BRIDGE_FOLDER = Path(__file__).parents[2]
"""The program of a server on the network is part of plugbay. The folder that declares the server is not shown to it."""

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Places(msgspec.Struct, frozen=True):
    """The paths of this machine that matter to one plugin."""

    home: Path = msgspec.field(default_factory=Path.home)
    """Of the user that runs the host."""
    state: Path | None = None
    """The state folder of the plugin; None: the host has no state directory."""
    project: Path | None = None
    """The project folder, if the operator named it."""
    protected: Protected = msgspec.field(default_factory=Protected)
    """Databases, keys, settings and logs of the host, and the folders of other plugins."""
    user: int | None = None
    """The user id of the plugin; None: that of the host."""


class Operator(msgspec.Struct, frozen=True):
    """The operator's settings for the confinement of one plugin."""

    own: PluginSandbox = msgspec.field(default_factory=PluginSandbox)
    common: SandboxConfig = msgspec.field(default_factory=SandboxConfig)
    private: tuple[str, ...] = ()
    """Private addresses with ports that may be reached."""
    one_run: bool = False
    """All plugins are exempt for one run (`--no-sandbox`)."""
    limits: ProcessLimits = msgspec.field(default_factory=ProcessLimits)
    """Limits of each of its processes, confined or not."""
    named: frozenset[str] = frozenset()
    """The capabilities that the operator granted by their names, and not all of them at once."""


class Confinement(msgspec.Struct, frozen=True):
    """How one plugin is confined, or why it is not."""

    policy: Policy | None = None
    reason: str = NOT_ASKED
    """Why there is no policy."""
    downgrade: bool = False
    """It should be confined, but is exempt."""
    refusal: Failure | None = None
    """Why it cannot be confined as requested, so it is not started."""
    notes: tuple[str, ...] = ()
    """Granted paths and hosts that it does not get, and why."""
    own: tuple[Path, ...] = ()
    """Folders of the plugin itself, created before its first start."""
    covered: tuple[Entry, ...] = ()
    """Missing protected paths within a shown folder, created before a start: only an existing path can be covered."""
    has_scratch: bool = False
    """Whether each invocation gets a scratch folder, in a folder that only its instance sees."""

    def __str__(self) -> str:
        if self.refusal is not None:
            return f"refused: {self.refusal.message}"
        return f"unconfined: {self.reason}" if self.policy is None else "confined"

    def to_json(self) -> dict[str, Any]:
        """The public shape, as in `plugbay inspect --json`."""
        shown = None if self.policy is None else self.policy.to_json()
        return {"confined": str(self), "policy": shown, "scratch": self.has_scratch, "notes": list(self.notes)}


def own_folder(state_dir: Path, plugin_id: str) -> Path:
    """The state folder of a plugin."""
    return state_dir / FOLDER / log_name(plugin_id).removesuffix(".log")


def confine(spec: PluginSpec, granted: Iterable[Access], operator: Operator, places: Places) -> Confinement:
    """The confinement of the plugin with these grants: confined, exempt, or refused."""
    own, common, request = operator.own, operator.common, spec.sandbox
    asked = request is not None or common.require or own.wanted
    off = own.off or (ONE_RUN if operator.one_run and asked else None)
    if off is not None:
        return Confinement(reason=off, downgrade=asked, refusal=_exemption_refusal(spec, operator))
    if not asked:
        return Confinement()
    try:
        return _plan(spec, request or SandboxRequest(), tuple(granted), operator, places)
    except PathRefused as error:
        detail = {"rule": error.rule, "hint": error.hint}
        return Confinement(refusal=_refusal(spec, f"it cannot be confined as requested: {error}", detail))


def _exemption_refusal(spec: PluginSpec, operator: Operator) -> Failure | None:
    """Why the plugin must not be exempt; None if it may."""
    if spec.sandbox is not None and spec.sandbox.insists:
        hint = "remove the variable that requires it, or the exception"
        return _refusal(spec, "the environment of this host requires a sandbox for it", {"hint": hint})
    if operator.common.require and operator.own.off is None:
        hint = f'add an exception to plugbay.toml: [plugins."{spec.id}".sandbox] off = "the reason why"'
        return _refusal(spec, "this host runs no plugin unconfined ([sandbox] require = true)", {"hint": hint})
    return None


def _plan(
    spec: PluginSpec, request: SandboxRequest, granted: tuple[Access, ...], operator: Operator, places: Places
) -> Confinement:
    protected = places.protected
    # A grant without a target is for every program.
    fenced = request.fenced and not any(item.kind == "run" and not item.target for item in granted)
    paths = Paths(places.home, request.never, protected, spec.root, places.user, fenced=fenced)
    state = _state(spec, request, paths, places)
    paths.add_read((*request.read, *_targets(granted, "read_path"), *operator.common.read, *operator.own.read))
    written = [path for path in request.write if not path.startswith(STATE_DIR)]
    paths.add_write((*written, *_targets(granted, "write_path"), *operator.own.write))
    paths.add_run((*_targets(granted, "run"), *operator.own.run), host_search_path(os.environ))
    for named in _targets(granted, "own_path"):
        paths.add_own(places.home / named.removeprefix("~/"))
    policy = Policy(
        package=BRIDGE_FOLDER if spec.url else spec.root,
        read=tuple(paths.read),
        write=tuple(path for path in paths.write if state is None or not path.is_relative_to(state)),
        run=tuple(paths.run),
        tools=_find_tools(request.tools) if fenced else (),
        fenced=fenced,
        state=state,
        network=replace(_network(spec, granted, request, operator, paths), closed=_closed(spec, granted)),
        limits=operator.own.limits.over(operator.limits.over(operator.common.limits.over(Limits()))),
        hidden=protected.paths,
        own=protected.own,
        user=request.user,
    )
    refusal = _runner_refusal(spec, policy)
    if refusal is not None:
        return Confinement(refusal=refusal)
    has_scratch = any(item.kind == "scratch" for item in granted)
    covered = _missing_cover_targets(protected, (spec.root, *policy.read, *policy.write), policy.write)
    return Confinement(
        policy, "", notes=tuple(paths.notes), own=tuple(paths.own), covered=covered, has_scratch=has_scratch
    )


def _runner_refusal(spec: PluginSpec, policy: Policy) -> Failure | None:
    """Why a command with a runner of packages cannot run confined; without this it would fail after a long wait."""
    command = unwrap(spec.command, host_search_path(os.environ), spec.cwd or spec.root)
    runner, package = command.runner, command.package
    off = f'or run it unconfined: [plugins."{spec.id}".sandbox] off = "the reason why"'
    if runner and not package and policy.fenced:
        text = f"{runner} starts its program with a shell, and its sandbox shows no shell"
        return _refusal(
            spec, text, {"hint": f"declare the installed program {command.missing or command.program}, {off}"}
        )
    has_network = policy.network.reach is not Reach.NONE
    if not package or (has_network and (policy.state is not None or policy.write)):
        return None
    lacks = "no place to write" if has_network else "no network"
    hint = f"install it in a folder ({install_command(runner, package)}) and declare the installed program, {off}"
    return _refusal(spec, f"{runner} downloads {package} when it starts, and its sandbox has {lacks}", {"hint": hint})


def _missing_cover_targets(protected: Protected, shown: Iterable[Path], written: Iterable[Path]) -> tuple[Entry, ...]:
    """Protected paths to create so that they can be covered: folders inside shown folders, settings files only inside
    writable ones, where the plugin could create them itself."""
    around = {A_FOLDER: _prefixes(shown), SETTINGS: _prefixes(written)}
    inside = [entry for entry in protected.entries if entry.path.startswith(around.get(entry.kind, ()))]
    return tuple(entry for entry in inside if not os.path.lexists(entry.path))


def _prefixes(folders: Iterable[Path]) -> tuple[str, ...]:
    return tuple(f"{os.path.realpath(path).rstrip('/')}/" for path in folders)


def _state(spec: PluginSpec, request: SandboxRequest, paths: Paths, places: Places) -> Path | None:
    """The state folder, if the manifest asks for it or gets its path. Also shows the project folder."""
    facts = [fact for _, fact in spec.env_facts]
    if "project.root" in facts and places.project is not None:
        paths.add_optional_read(places.project)
    inside = [path.removeprefix(STATE_DIR) for path in request.write if path.startswith(STATE_DIR)]
    if inside and places.state is None:
        text = f"it needs {STATE_DIR}, but this host has no state folder"
        raise PathRefused(RESOLUTION_FAILED, text, "set state_dir in [host] of plugbay.toml")
    if places.state is None or not (inside or "config.root" in facts):
        return None
    for rest in ("", *inside):
        paths.add_own(Path(f"{places.state}{rest}"))
    return places.state


def _network(
    spec: PluginSpec, granted: tuple[Access, ...], request: SandboxRequest, operator: Operator, paths: Paths
) -> Network:
    """The union of the grants, what the operator allows, and the servers that the declaration names."""
    asked = [item for item in granted if item.kind == "network"]
    more = operator.own.reach()
    if request.host_network or more.reach is Reach.HOST:
        return Network(Reach.HOST)
    private = opened_addresses(spec, granted, operator)
    if more.reach is Reach.ANY or any(not item.target for item in asked):
        return Network(Reach.ANY, private=private)
    doors = dict.fromkeys(_declared_endpoints(spec))
    for item in asked:
        host = clean_host(item.target)
        if host is None:
            paths.notes.append(f"it may reach {item.target}, which is neither a host name nor an address")
        else:
            doors[Endpoint(host, item.port)] = None
    doors |= dict.fromkeys(more.endpoints)
    return Network(Reach.LISTED, tuple(doors), private) if doors else Network()


def opened_addresses(spec: PluginSpec, granted: Iterable[Access], operator: Operator) -> tuple[str, ...]:
    """Each private or loopback `address:port` that the operator has opened: for all plugins, or for this one by naming
    it. The sandbox and the host's own requests for a plugin follow the same list.
    """
    asked = [item for item in granted if item.kind == "network"]
    named = [item for item in asked if item.capability in operator.named and item.target in item.capability]
    explicit = [Endpoint(item.target, item.port) for item in named]
    endpoints = (*_declared_endpoints(spec), *operator.own.reach().endpoints, *explicit)
    return (*operator.private, *_private_pairs(endpoints))


def _declared_endpoints(spec: PluginSpec) -> list[Endpoint]:
    return [Endpoint(host, port) for host, port in spec.connects]


def _private_pairs(endpoints: Iterable[Endpoint]) -> list[str]:
    """Each address and port in a private network or on loopback that the operator has named himself."""
    found = [
        (address, endpoint.port)
        for endpoint in endpoints
        for address in (LOOPBACK if endpoint.host == LOCALHOST else (endpoint.host,))
    ]
    return [pair(address, port) for address, port in found if port is not None and denied(address) in PRIVATE]


def _closed(spec: PluginSpec, granted: tuple[Access, ...]) -> tuple[tuple[Endpoint | None, str], ...]:
    """Requested but not granted network access, for messages."""
    asked = [item for item in spec.access if item.kind == "network" and item not in granted]
    everything = [(None, item.capability) for item in asked if not item.target]
    hosts = [(clean_host(item.target), item) for item in asked if item.target]
    return (*((Endpoint(host, item.port), item.capability) for host, item in hosts if host is not None), *everything)


def _find_tools(names: Iterable[str]) -> tuple[Path, ...]:
    found = (shutil.which(name, path=host_search_path(os.environ)) for name in names)
    return tuple(Path(path) for path in found if path is not None)


def _targets(granted: Iterable[Access], kind: str) -> list[str]:
    return [item.target for item in granted if item.kind == kind]


def _refusal(spec: PluginSpec, text: str, detail: dict[str, Any]) -> Failure:
    return Failure(Code.SANDBOX_UNAVAILABLE, text, origin=Origin.POLICY, plugin=spec.id, detail=detail)


# Preparing a start.


def make_own_folder(folder: Path, uid: int | None, inner: Sequence[str] = ()) -> None:
    """Create a private folder, owned by `uid` if plugins have users of their own. Raises OSError.

    `inner` names a path within it that is created too. The plugin can write there and may have replaced a folder with a
    link: no link is followed, or its target would be created and handed over.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    change_owner(folder, uid)
    if not inner:
        return
    at = os.open(folder, _FOLDER_FLAGS)
    try:
        for name in inner:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=at)
            at, above = os.open(name, _FOLDER_FLAGS, dir_fd=at), at
            os.close(above)
            _change_owner(at, uid)
    finally:
        os.close(at)


def make_cover_target(entry: Entry) -> None:
    """Create an empty folder or settings file, and its parents, private to the host's user. Raises OSError.

    It lies in a folder that a plugin may be able to write: no link is followed.
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


def change_owner(folder: Path, uid: int | None) -> None:
    """Give a folder of the host's user to the user of a plugin; a folder of any other user is left alone."""
    if uid is None:
        return
    at = os.open(folder, _FOLDER_FLAGS)
    try:
        _change_owner(at, uid)
    finally:
        os.close(at)


def _change_owner(at: int, uid: int | None) -> None:
    if uid is not None and os.fstat(at).st_uid == os.geteuid():
        os.fchown(at, uid, uid)


def sandbox_environ(policy: Policy, environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """The host's environment with HOME and TMPDIR that exist inside the sandbox."""
    shown = (*policy.read, *policy.write, *policy.run)
    at_home = policy.state or (home if any(path.is_relative_to(home) for path in shown) else Path(TMP))
    changed = {"HOME": str(at_home), "TMPDIR": TMP}
    return {**environ, **{name: value for name, value in changed.items() if name in environ}}


def proxy_variables(policy: Policy | None) -> tuple[tuple[str, str], ...]:
    """The proxy variables, if the plugin reaches the network through the egress proxy."""
    return tuple(ENVIRONMENT.items()) if policy is not None and policy.network.proxied else ()


HITS_DENYLIST = "ResolvedPathHitsDenylist"
RESOLUTION_FAILED = "PathResolutionFailed"
"""nexo's names for a path that must not be shown, and for one that does not exist."""


class PathRefused(Exception):
    """A path from the manifest or plugbay.toml cannot be shown, so the plugin is not started."""

    def __init__(self, rule: str, message: str, hint: str) -> None:
        self.rule = rule
        self.hint = hint
        super().__init__(message)


class Paths(msgspec.Struct):
    """Collects the paths that one plugin is shown."""

    home: Path
    """What `~` stands for."""
    never: tuple[str, ...] = ()
    """Paths that this plugin never sees, beside the common deny list."""
    protected: Protected = msgspec.field(default_factory=Protected)
    """Paths of the host and of other plugins: never shown, and covered inside a shown folder."""
    package: Path | None = None
    """The plugin's program folder, which it must not write."""
    user: int | None = None
    """The user id of the plugin; None: that of the host."""
    homes: tuple[str, ...] = msgspec.field(default_factory=lambda: home_folders(os.environ))
    fenced: bool = False
    """Whether programs of the system are hidden too, unless they are allowed."""
    read: dict[Path, None] = msgspec.field(default_factory=dict)
    write: dict[Path, None] = msgspec.field(default_factory=dict)
    run: dict[Path, None] = msgspec.field(default_factory=dict)
    own: dict[Path, None] = msgspec.field(default_factory=dict)
    """Folders of the plugin itself, created if missing."""
    notes: list[str] = msgspec.field(default_factory=list)

    def add_read(self, named: Iterable[str]) -> None:
        for path in map(self._absolute, named):
            if self._exists(path, "read") and self._is_readable(path):
                self.read[self._allowed(path)] = None

    def add_write(self, named: Iterable[str]) -> None:
        for path in map(self._absolute, named):
            self._allowed(path, writing=True)
            if not os.path.exists(path):
                hint = "create it, owned by the plugin's user, or remove the grant"
                raise PathRefused(RESOLUTION_FAILED, f"it may write {path}, but that path does not exist", hint)
            self.write[path] = None
            # A folder of plugins stays read-only, even inside a writable folder.
            self.read |= {Path(folder): None for folder in self._plugin_folders_in(path)}

    def add_run(self, named: Iterable[str], search_path: str) -> None:
        """Allow programs, by path or by a name on the search path."""
        for name in filter(None, named):
            found = name if "/" in name else shutil.which(name, path=search_path)
            path = self._absolute(found or name)
            if found is None or not self._exists(path, "run"):
                self.notes += [f"it may run {name}, but there is no such program"] if found is None else []
            elif self.fenced or not is_system(str(path)):
                self.run[self._allowed(path)] = None

    def add_optional_read(self, path: Path) -> None:
        """Show a path that the plugin gets without a grant; leave it out if it must not be shown."""
        try:
            self.add_read([str(path)])
        except PathRefused as error:
            self.notes.append(str(error))

    def add_own(self, folder: Path) -> None:
        """Give the plugin a writable folder of its own, at a path that the host or the contract chose."""
        if self._is_package(folder):
            self.notes.append(f"it may not write {folder}, because its program is there")
            return
        self.write[folder] = None
        self.own[folder] = None

    def _exists(self, path: Path, verb: str) -> bool:
        if os.path.exists(path):
            return True
        self.notes.append(f"it may {verb} {path}, but that path does not exist")
        return False

    def _is_readable(self, path: Path) -> bool:
        """Whether the plugin's own user can read it. A mount that it cannot enter must not hide others."""
        if self.user is None:
            return True
        seen = os.stat(path)
        needed = 0o5 if stat.S_ISDIR(seen.st_mode) else 0o4
        mode = seen.st_mode >> 6 if seen.st_uid == self.user else seen.st_mode
        if mode & needed == needed:
            return True
        self.notes.append(f"it may read {path}, but its user {self.user} cannot: use chmod o+rX, or setfacl")
        return False

    def _absolute(self, named: str) -> Path:
        """The absolute path without resolving links; manifests and configs with `..` were refused before."""
        whole = self.home / named[2:] if named.startswith("~/") else self.home if named == "~" else Path(named)
        return Path(os.path.normpath(whole.absolute()))

    def _allowed(self, path: Path, *, writing: bool = False) -> Path:
        """The path; raises `PathRefused` if it, or the target of its links, must not be shown."""
        real = os.path.realpath(path)
        self._check_protected(path, real, writing)
        what = "visible to"
        entry = self._forbidden(str(path)) or self._forbidden(real)
        if entry is None and writing:
            what = "written by"
            program = f"{self.package}, its program" if self._is_package(path) else None
            entry = program or self._forbidden(str(path), writing) or self._forbidden(real, writing)
        if entry is None:
            return path
        where = f"{path}" if real == str(path) else f"{path}, which is {real},"
        text = f"{where} must not be {what} a plugin: it is, contains or is inside {entry}"
        raise PathRefused(
            HITS_DENYLIST, text, "grant only the paths that the plugin needs, and no folder with credentials"
        )

    def _check_protected(self, path: Path, real: str, writing: bool) -> None:
        """Raise for a path of the host or another plugin, and for a writable folder that would give access to one."""
        where = f"{path}" if real == str(path) else f"{path}, which is {real},"
        entry = self.protected.around(normalised(str(path))) or self.protected.around(real)
        if entry is not None:
            inside = f"it is {entry.what}" if entry.path == real else f"it is in {entry.path}, {entry.what}"
            hint = "no grant allows that: remove the grant, or move the files that the plugin needs"
            raise PathRefused(HITS_DENYLIST, f"{where} must not be visible to a plugin: {inside}", hint)
        if not writing:
            return
        plugins_folder = next((each for each in self.protected.plugin_folders if is_within(real, each)), None)
        if plugins_folder is not None:
            why = f"the host looks for plugins in {plugins_folder}, and a plugin that writes there could add one"
            hint = "grant a folder that contains no plugins"
            raise PathRefused(HITS_DENYLIST, f"{where} must not be written by a plugin: {why}", hint)
        database = next((entry for entry in self.protected.below(real) if entry.kind == DATABASE), None)
        if database is not None:
            why = f"{database.path} is in it ({database.what}), and a writer beside a database can change it"
            hint = "grant a folder without the database, or move the database below the state_dir of [host]"
            raise PathRefused(HITS_DENYLIST, f"{where} must not be written by a plugin: {why}", hint)

    def _plugin_folders_in(self, path: Path) -> list[str]:
        real, known = os.path.realpath(path), self.protected
        return [each for each in known.plugin_folders if is_within(each, real) and known.around(each) is None]

    def _is_package(self, path: Path) -> bool:
        return self.package is not None and os.path.realpath(path) == os.path.realpath(self.package)

    def _forbidden(self, path: str, writing: bool = False) -> str | None:
        shown = Path(normalised(path))
        inner = [entry for entry in self.never if shown.is_relative_to(entry) or Path(entry).is_relative_to(shown)]
        return forbidden(path, self.homes, writing=writing) or next(iter(inner), None)
