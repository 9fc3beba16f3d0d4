"""`Store`: installed releases as immutable folders named by digest, and one link per plugin to the current release.

    plugins/<plugin>            -> ../packages/<sha256>/<plugin>     what a host loads: Host.load(store/"plugins")
    packages/<sha256>/<plugin>/    the files of one release, read-only
    packages/<sha256>/plugbay-release.sha256      their hashes, which every start checks (`host.disk.release`)
    state/<plugin>.json            releases for rollback, the pin, the highest version ever installed
    tmp/                           staging, and folders to delete

Every change is one rename. Only the link says which release is current: later releases in the state file were rolled
back or never took effect. `installer` decides which changes are allowed.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from plugbay.host.disk import durable, tree
from plugbay.host.disk.release import LIST, format_list
from plugbay.model.errors import ConfigInvalid, Problem
from plugbay.packages import documents
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.package import SIGNATURE_NAME, all_files, folder_name, hash_files

KEPT_RELEASES = 5
"""Releases kept per plugin, including the current one."""

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]

_RELEASE, _TEMPORARY = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{16}")
"""Names in `packages` and in `tmp`."""


class Release(BaseModel):
    """One installed release."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    digest: Digest
    version: str
    contract: str
    source: str
    """Its origin: a file name, or `oci://…@sha256:…`."""
    key_id: str | None
    """Key of its signature; None: installed unsigned with `--allow-unsigned`."""
    installed_at: str


class Highest(BaseModel):
    """The highest version ever installed; older ones are replays."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    digest: Digest


class State(BaseModel):
    """State of one plugin; kept after uninstalling."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    highest: Highest
    pinned: bool = False
    releases: list[Release] = []
    """In the order they became current."""


class Installed(msgspec.Struct, frozen=True):
    """An installed plugin and its current release."""

    state: State
    position: int
    """Index of the current release in `state.releases`."""
    folder: Path
    """The folder that hosts load: `plugins/<plugin>`."""

    @property
    def id(self) -> str:
        return self.state.id

    @property
    def current(self) -> Release:
        return self.state.releases[self.position]

    @property
    def earlier(self) -> list[Release]:
        """Releases to roll back to, the nearest last."""
        return self.state.releases[: self.position]


class Store:
    """One store on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.plugins = self.root / "plugins"
        self._packages = self.root / "packages"
        self._states = self.root / "state"
        self._tmp = self.root / "tmp"

    # Reading.

    def state(self, plugin_id: str) -> State | None:
        """State of a plugin; raises `ConfigInvalid` for an invalid file."""
        return self._read(self._states / f"{folder_name(plugin_id)}.json")

    def find(self, plugin_id: str) -> Installed | None:
        """The plugin, if it is installed."""
        state = self.state(plugin_id)
        return self._installed(state) if state else None

    def installed(self) -> list[Installed]:
        """All installed plugins, by id."""
        states = [self._read(path) for path in self._states.glob("[!.]*.json")]
        found = [self._installed(state) for state in states if state]
        return sorted((item for item in found if item), key=lambda item: item.id)

    def _installed(self, state: State) -> Installed | None:
        link = self.plugins / folder_name(state.id)
        digest = self._linked(link)
        position = next((i for i, release in enumerate(state.releases) if release.digest == digest), None)
        return None if position is None else Installed(state, position, link)

    def _linked(self, link: Path) -> str | None:
        """The digest that a link points to."""
        try:
            return f"sha256:{Path(os.readlink(link)).parent.name}"
        except OSError:
            return None

    def _read(self, path: Path) -> State | None:
        try:
            found = documents.read(State, path.read_bytes())
        except FileNotFoundError:
            return None
        if isinstance(found, list):
            raise ConfigInvalid(str(path), found)
        if path.stem != folder_name(found.id):
            raise ConfigInvalid(str(path), [Problem("invalid_value", "id", f"{found.id!r} belongs in another file")])
        return found

    def package_folder(self, digest: str, plugin_id: str) -> Path:
        """The folder of a release."""
        return self._packages / digest.removeprefix("sha256:") / folder_name(plugin_id)

    @property
    def exists(self) -> bool:
        """Whether these folders are a store. Changes delete everything else in two of them, so a folder with any other
        name there is no store.
        """
        try:
            packages, leftovers = os.listdir(self._packages), os.listdir(self._tmp)
        except OSError:
            return False
        named = all(map(_RELEASE.fullmatch, packages)) and all(map(_TEMPORARY.fullmatch, leftovers))
        return named and self.plugins.is_dir() and self._states.is_dir()

    # Changes. All except `create` and `staging` need the lock.

    def create(self) -> None:
        """Make the folders; idempotent."""
        for place in (self.root, self.plugins, self._packages, self._states, self._tmp):
            place.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the store against other processes; the kernel releases the lock when the process ends."""
        self.create()
        with _lock(self.root, wait=True):
            yield

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A private temporary folder. A folder whose process died is removed by the next sweep."""
        own = self._tmp / secrets.token_hex(8)
        with ExitStack() as held:
            with self.locked():
                own.mkdir(0o700)
                held.enter_context(_lock(own, wait=True))
            held.callback(tree.remove, own)
            yield own

    def publish(self, staged: Path, digest: str, plugin_id: str) -> None:
        """Move an unpacked release into place; if it exists already, it must be identical."""
        target = self.package_folder(digest, plugin_id)
        if target.is_dir():
            _require_same(staged, target, plugin_id)
            return
        parcel = staged.parent / target.parent.name
        parcel.mkdir(0o755)
        parcel.chmod(0o755)
        staged.rename(parcel / target.name)
        _seal(parcel / target.name)
        listed = parcel / LIST
        listed.write_bytes(format_list(hash_files(all_files(parcel / target.name))))
        listed.chmod(0o444)
        durable.sync_tree(parcel)
        (target.parent / LIST).unlink(missing_ok=True)  # of a release whose folder was removed
        durable.move(parcel, target.parent)

    def replace_signature(self, digest: str, plugin_id: str, data: bytes) -> None:
        """Give a release another signature file. Its own files stay as they are."""
        folder = self.package_folder(digest, plugin_id)
        folder.chmod(0o755)
        try:
            (folder / SIGNATURE_NAME).unlink(missing_ok=True)
            durable.write_file(folder / SIGNATURE_NAME, data)
            (folder / SIGNATURE_NAME).chmod(0o444)
        finally:
            folder.chmod(0o555)

    def discard(self, digest: str) -> None:
        """Remove a release, in one step; does nothing when it is not there."""
        with suppress(FileNotFoundError):
            durable.move(self._packages / digest.removeprefix("sha256:"), self._tmp / secrets.token_hex(8))
        self.sweep_leftovers()

    def record(self, state: State) -> None:
        """Replace the state of a plugin."""
        path = self._states / f"{folder_name(state.id)}.json"
        durable.write_file(path, documents.pretty(state.model_dump()))

    def switch(self, plugin_id: str, digest: str) -> None:
        """Make a release current. This is the moment of installation."""
        release = self.package_folder(digest, plugin_id)
        if not release.is_dir():
            text = f"the files of this release of {plugin_id} are missing from {release}"
            raise PackageRefused(Reason.MISSING_FILE, text, hint="install it from its package again")
        durable.point(self.plugins / release.name, os.path.relpath(release, self.plugins), self._tmp)

    def unlink(self, plugin_id: str) -> None:
        """Remove the link of a plugin. This is the moment of removal."""
        (self.plugins / folder_name(plugin_id)).unlink(missing_ok=True)
        durable.sync_folder(self.plugins)

    def sweep(self) -> None:
        """Remove unused releases and leftovers of dead processes.

        Never fails, because the change itself is done: the next sweep removes the rest.
        """
        with suppress(OSError, ConfigInvalid):
            releases = [release for item in self.installed() for release in item.state.releases]
            needed = {release.digest.removeprefix("sha256:") for release in releases}
            for package in self._packages.iterdir():
                if package.name not in needed:
                    # Moved in one step, so that a release is never half deleted.
                    durable.move(package, self._tmp / secrets.token_hex(8))
        self.sweep_leftovers()

    def sweep_leftovers(self) -> None:
        """Remove leftovers of dead processes. Never fails."""
        with suppress(OSError):
            for leftover in self._tmp.iterdir():
                _remove_if_abandoned(leftover)


def store_of(plugins: Path) -> Store | None:
    """The store whose installed plugins are in this folder; None for any other folder."""
    place = plugins.resolve()
    store = Store(place.parent)
    return store if store.plugins == place and store.exists else None


def _seal(root: Path) -> None:
    """Make a release read-only, and readable whatever the umask. This prevents accidental changes, and bytecode written
    by Python.
    """
    for place, _, files in os.walk(root, topdown=False):
        for name in files:
            path = Path(place, name)
            path.chmod(0o555 if path.stat().st_mode & 0o100 else 0o444)
        os.chmod(place, 0o555)


def _require_same(staged: Path, target: Path, plugin_id: str) -> None:
    """Compare only the files of the package: a plugin run by root may leave bytecode or logs in its folder."""
    expected, found = (hash_files(all_files(root)) for root in (staged, target))
    changed = [name for name in expected if found.get(name) != expected[name]]
    if changed:
        text = f"{changed[0]!r} of this release was changed in the store, {target}"
        hint = f"remove it with plugbay uninstall {plugin_id}, then install it again"
        raise PackageRefused(Reason.TAMPERED, text, hint=hint, file=changed[0])


@contextmanager
def _lock(path: Path, *, wait: bool) -> Iterator[None]:
    """Raises BlockingIOError if the lock is taken and `wait` is False."""
    at = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(at, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(at)


def _remove_if_abandoned(path: Path) -> None:
    """Remove a staging folder unless a process holds its lock."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        with _lock(path, wait=False):
            tree.remove(path)  # the rest, if any, stays for the next sweep
    except (BlockingIOError, FileNotFoundError):
        pass
