"""The store: every release as an immutable folder named by its digest, and for each plugin one link to the current one.

    plugins/<plugin>            -> ../packages/<sha256>/<plugin>     what a host loads: Host.load(store/"plugins")
    packages/<sha256>/<plugin>/    the files of one release, read-only
    state/<plugin>.json            which releases there are to go back to, the pin, the highest version ever seen
    tmp/                           what is not there yet, or no longer

Owns the layout and that each change is one rename. The link alone says which release is current: what the state lists
beyond it was rolled back, or never took effect. What may be changed is `installer`'s to decide.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from plugbay.model.errors import ConfigInvalid, Problem
from plugbay.packages import documents, durable, folder
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.package import folder_name

KEPT_RELEASES = 5
"""Of each plugin, the current one included: enough to go back over a bad week, and no more disk than that."""

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class Release(BaseModel):
    """One installed version."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    digest: Digest
    version: str
    contract: str
    source: str
    """Where it came from: a file's name, or `oci://…@sha256:…`."""
    key_id: str | None
    """Whose signature it has; None: unsigned, and let in on the operator's word."""
    installed_at: str


class Highest(BaseModel):
    """The newest version a store has ever had; an older one is a replay."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    digest: Digest


class State(BaseModel):
    """What is remembered about one plugin, also after it was uninstalled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    highest: Highest
    pinned: bool = False
    releases: list[Release] = []
    """In the order they became current."""


@dataclass(frozen=True, slots=True)
class Installed:
    """One plugin and where the link leads."""

    state: State
    position: int
    """Of the current release in `state.releases`."""
    folder: Path
    """What a host loads: `plugins/<plugin>`."""

    @property
    def id(self) -> str:
        return self.state.id

    @property
    def current(self) -> Release:
        return self.state.releases[self.position]

    @property
    def earlier(self) -> list[Release]:
        """What can be gone back to, the nearest last."""
        return self.state.releases[: self.position]


class Store:
    """One folder of packages."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.plugins = self.root / "plugins"
        self._packages = self.root / "packages"
        self._states = self.root / "state"
        self._tmp = self.root / "tmp"

    # What there is.

    def state(self, plugin_id: str) -> State | None:
        """What is remembered about a plugin; raises `ConfigInvalid` for a file of no use."""
        return self._read(self._states / f"{folder_name(plugin_id)}.json")

    def find(self, plugin_id: str) -> Installed | None:
        """The plugin, if it is installed."""
        state = self.state(plugin_id)
        return self._installed(state) if state else None

    def installed(self) -> list[Installed]:
        """Every plugin, by id."""
        states = [self._read(path) for path in self._states.glob("[!.]*.json")]
        found = [self._installed(state) for state in states if state]
        return sorted((item for item in found if item), key=lambda item: item.id)

    def _installed(self, state: State) -> Installed | None:
        link = self.plugins / folder_name(state.id)
        digest = self._linked(link)
        position = next((i for i, release in enumerate(state.releases) if release.digest == digest), None)
        return None if position is None else Installed(state, position, link)

    def _linked(self, link: Path) -> str | None:
        """The digest of the release that a link leads to."""
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
            raise ConfigInvalid(str(path), [Problem("invalid_value", "id", f"{found.id!r} belongs into another file")])
        return found

    def package_folder(self, digest: str, plugin_id: str) -> Path:
        """Where the files of a release are, or will be."""
        return self._packages / digest.removeprefix("sha256:") / folder_name(plugin_id)

    # Changes. All but `staging` want the lock.

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time changes a store; the lock goes with its process, however that ends."""
        for place in (self.root, self.plugins, self._packages, self._states, self._tmp):
            place.mkdir(parents=True, exist_ok=True)
        with _flocked(self.root, wait=True):
            yield

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A folder of one's own that nobody else can look into; gone afterwards, also when the process dies."""
        own = self._tmp / secrets.token_hex(8)
        with ExitStack() as held:
            with self.locked():
                own.mkdir(0o700)
                held.enter_context(_flocked(own, wait=True))
            held.callback(_remove, own)
            yield own

    def publish(self, staged: Path, digest: str, plugin_id: str) -> None:
        """Give an unpacked release its place, complete; one that is there already must be the same."""
        target = self.package_folder(digest, plugin_id)
        if target.is_dir():
            _require_same(staged, target, plugin_id)
            return
        parcel = staged.parent / target.parent.name
        parcel.mkdir(0o755)
        parcel.chmod(0o755)
        staged.rename(parcel / target.name)
        _seal(parcel / target.name)
        durable.sync_tree(parcel)
        durable.move(parcel, target.parent)

    def record(self, state: State) -> None:
        """Replace what is remembered about a plugin."""
        path = self._states / f"{folder_name(state.id)}.json"
        durable.write_file(path, documents.pretty(state.model_dump()))

    def switch(self, plugin_id: str, digest: str) -> None:
        """Make a release the current one: the moment at which it is installed."""
        release = self.package_folder(digest, plugin_id)
        if not release.is_dir():
            text = f"the files of this release of {plugin_id} are gone from {release}"
            raise PackageRefused(Reason.MISSING_FILE, text, hint="install it from its package again")
        durable.point(self.plugins / release.name, os.path.relpath(release, self.plugins), self._tmp)

    def unlink(self, plugin_id: str) -> None:
        """Take a plugin away from the hosts: the moment at which it is uninstalled."""
        (self.plugins / folder_name(plugin_id)).unlink(missing_ok=True)
        durable.sync_folder(self.plugins)

    def sweep(self) -> None:
        """Remove what nothing leads to any more, and what processes that died have left.

        The change itself is done by then, so this never fails: what it has to leave, the next one removes.
        """
        with suppress(OSError, ConfigInvalid):
            releases = [release for item in self.installed() for release in item.state.releases]
            needed = {release.digest.removeprefix("sha256:") for release in releases}
            for package in self._packages.iterdir():
                if package.name not in needed:
                    # Out of the way in one step first: a release is there completely or not at all.
                    durable.move(package, self._tmp / secrets.token_hex(8))
        self.sweep_leftovers()

    def sweep_leftovers(self) -> None:
        """Remove what processes that died have left. Never fails, like `sweep`."""
        with suppress(OSError):
            for leftover in self._tmp.iterdir():
                _remove_if_abandoned(leftover)


def _seal(root: Path) -> None:
    """Make a release read-only for everybody, and readable whatever the umask: nobody changes by accident what was
    verified, and Python leaves no bytecode in it.
    """
    for place, _, files in os.walk(root, topdown=False):
        for name in files:
            path = Path(place, name)
            path.chmod(0o555 if path.stat().st_mode & 0o100 else 0o444)
        os.chmod(place, 0o555)


def _remove(root: Path) -> None:
    """A folder and everything in it, also what is read-only. What cannot be removed stays, for the next sweep."""
    for place, _, _ in os.walk(root):
        with suppress(OSError):
            os.chmod(place, 0o700)
    shutil.rmtree(root, ignore_errors=True)


def _require_same(staged: Path, target: Path, plugin_id: str) -> None:
    """What plugins run by root leave in their own folders (bytecode, logs) is none of our business; their files are."""
    expected, found = (folder.hashes(folder.all_files(root)) for root in (staged, target))
    changed = [name for name in expected if found.get(name) != expected[name]]
    if changed:
        text = f"{changed[0]!r} of this release was changed in the store, {target}"
        hint = f"remove it with plugbay uninstall {plugin_id}, then install it again"
        raise PackageRefused(Reason.TAMPERED, text, hint=hint, file=changed[0])


@contextmanager
def _flocked(path: Path, *, wait: bool) -> Iterator[None]:
    """Raises BlockingIOError when it would have to wait and must not."""
    at = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(at, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(at)


def _remove_if_abandoned(path: Path) -> None:
    """A staging folder belongs to the process that holds its lock."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        with _flocked(path, wait=False):
            _remove(path)
    except (BlockingIOError, FileNotFoundError):
        pass
