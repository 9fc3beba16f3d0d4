"""Which paths of this machine a confined plugin is shown, from what was granted to what is really there.

Owns what becomes of a path: `~` is the home of whoever runs the host; nothing on the deny list is shown, however it is
spelled and wherever its links lead; what is not there is left out where it would be read, made where it is the plugin's
own, and a refusal where it would be written. What is the host's own or another plugin's is never shown itself, and is
covered where something around it is. Looks at the disk and changes nothing on it.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from plugbay.model.protected import DATABASE, Protected, is_within
from plugbay.process.sandbox.forbidden import forbidden, home_folders, normalised
from plugbay.process.sandbox.system import is_system

HITS_DENYLIST = "ResolvedPathHitsDenylist"
RESOLUTION_FAILED = "PathResolutionFailed"
"""What nexo calls it when a path may not be shown, and when there is none to show."""


class Unshowable(Exception):
    """A path that the operator or the manifest names cannot be shown, so the plugin cannot be started as asked."""

    def __init__(self, rule: str, message: str, hint: str) -> None:
        self.rule = rule
        self.hint = hint
        super().__init__(message)


@dataclass(slots=True)
class Paths:
    """What is shown to one plugin, gathered step by step."""

    home: Path
    """What `~` stands for."""
    never: tuple[str, ...] = ()
    """What is not shown to this plugin, beside what is shown to nobody."""
    protected: Protected = field(default_factory=Protected)
    """What is the host's own or another plugin's. Nothing in it is granted; around it, it is covered."""
    package: Path | None = None
    """The plugin's own program, which it does not write."""
    user: int | None = None
    """Who the plugin runs as; None: as whoever runs the host."""
    homes: tuple[str, ...] = field(default_factory=lambda: home_folders(os.environ))
    read: dict[Path, None] = field(default_factory=dict)
    write: dict[Path, None] = field(default_factory=dict)
    run: dict[Path, None] = field(default_factory=dict)
    own: dict[Path, None] = field(default_factory=dict)
    """Folders that are the plugin's alone, to be made when they are not there."""
    notes: list[str] = field(default_factory=list)

    def may_read(self, named: Iterable[str]) -> None:
        for path in map(self._absolute, named):
            if self._is_there(path, "read") and self._is_open(path):
                self.read[self._allowed(path)] = None

    def may_write(self, named: Iterable[str]) -> None:
        for path in map(self._absolute, named):
            self._allowed(path, writing=True)
            if not os.path.exists(path):
                hint = "make it, owned by whoever the plugin runs as, or do not grant it"
                raise Unshowable(RESOLUTION_FAILED, f"it may write {path}, and there is no such path", hint)
            self.write[path] = None
            # What a shelf holds stays as it is, also where all around it may be written.
            self.read |= {Path(shelf): None for shelf in self._shelves_in(path)}

    def may_run(self, named: Iterable[str], search_path: str) -> None:
        """A path, or the name of a program that the host would find; programs of the system can be run anyway."""
        for name in filter(None, named):
            found = name if "/" in name else shutil.which(name, path=search_path)
            path = self._absolute(found or name)
            if found is None or not self._is_there(path, "run"):
                self.notes += [f"it may run {name}, and there is no such program"] if found is None else []
            elif not is_system(str(path)):
                self.run[self._allowed(path)] = None

    def may_see(self, path: Path) -> None:
        """What nobody was granted but the host tells of: left out where it may not be shown."""
        try:
            self.may_read([str(path)])
        except Unshowable as error:
            self.notes.append(str(error))

    def has(self, folder: Path) -> None:
        """A folder of the plugin's own, in a place that the host or the contract chose."""
        if self._is_package(folder):
            self.notes.append(f"it may write {folder}, and does not, for that is its program")
            return
        self.write[folder] = None
        self.own[folder] = None

    def _is_there(self, path: Path, verb: str) -> bool:
        if os.path.exists(path):
            return True
        self.notes.append(f"it may {verb} {path}, and there is no such path")
        return False

    def _is_open(self, path: Path) -> bool:
        """Whether a user of its own can read it at all: what it cannot enter must not cover what it can."""
        if self.user is None:
            return True
        seen = os.stat(path)
        needed = 0o5 if stat.S_ISDIR(seen.st_mode) else 0o4
        mode = seen.st_mode >> 6 if seen.st_uid == self.user else seen.st_mode
        if mode & needed == needed:
            return True
        self.notes.append(f"it may read {path}, and its user {self.user} cannot: chmod o+rX it, or setfacl")
        return False

    def _absolute(self, named: str) -> Path:
        """By the letters: `..` is refused by whoever reads manifests and configs."""
        whole = self.home / named[2:] if named.startswith("~/") else self.home if named == "~" else Path(named)
        return Path(os.path.normpath(whole.absolute()))

    def _allowed(self, path: Path, *, writing: bool = False) -> Path:
        """The path, unless it or what its links lead to must not be shown."""
        real = os.path.realpath(path)
        self._check_protected(path, real, writing)
        what = "shown to"
        entry = self._forbidden(str(path)) or self._forbidden(real)
        if entry is None and writing:
            what = "written by"
            program = f"{self.package}, its program" if self._is_package(path) else None
            entry = program or self._forbidden(str(path), writing) or self._forbidden(real, writing)
        if entry is None:
            return path
        where = f"{path}" if real == str(path) else f"{path}, which is {real},"
        text = f"{where} must not be {what} a plugin: it is, contains or lies within {entry}"
        raise Unshowable(HITS_DENYLIST, text, "name what the plugin really needs, and no folder that holds credentials")

    def _check_protected(self, path: Path, real: str, writing: bool) -> None:
        """Raise for what is the host's own or another plugin's, and for what gives it away when it is written."""
        where = f"{path}" if real == str(path) else f"{path}, which is {real},"
        entry = self.protected.around(normalised(str(path))) or self.protected.around(real)
        if entry is not None:
            inside = f"it is {entry.what}" if entry.path == real else f"it lies in {entry.path}, {entry.what}"
            hint = "no grant opens that: take the grant away, or keep what the plugin needs in another place"
            raise Unshowable(HITS_DENYLIST, f"{where} must not be shown to a plugin: {inside}", hint)
        if not writing:
            return
        shelf = next((shelf for shelf in self.protected.shelves if is_within(real, shelf)), None)
        if shelf is not None:
            why = f"the host looks for plugins in {shelf}, and whoever writes there can add one"
            hint = "keep what the plugin writes in a folder without plugins, and grant that"
            raise Unshowable(HITS_DENYLIST, f"{where} must not be written by a plugin: {why}", hint)
        database = next((entry for entry in self.protected.below(real) if entry.kind == DATABASE), None)
        if database is not None:
            why = f"{database.path} lies in it, {database.what}, and whoever writes beside a database can change it"
            hint = "grant a folder without the database, or move the database below the state_dir of [host]"
            raise Unshowable(HITS_DENYLIST, f"{where} must not be written by a plugin: {why}", hint)

    def _shelves_in(self, path: Path) -> list[str]:
        real, known = os.path.realpath(path), self.protected
        return [shelf for shelf in known.shelves if is_within(shelf, real) and known.around(shelf) is None]

    def _is_package(self, path: Path) -> bool:
        return self.package is not None and os.path.realpath(path) == os.path.realpath(self.package)

    def _forbidden(self, path: str, writing: bool = False) -> str | None:
        shown = Path(normalised(path))
        inner = [entry for entry in self.never if shown.is_relative_to(entry) or Path(entry).is_relative_to(shown)]
        return forbidden(path, self.homes, writing=writing) or next(iter(inner), None)
