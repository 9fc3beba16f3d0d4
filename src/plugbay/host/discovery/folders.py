"""Finds plugins in folders: their contracts, specs and problems.

A broken plugin never hides the others; its problems are reported. Reads files and starts nothing.
"""

from __future__ import annotations

import os
import platform
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from plugbay.contracts.contract import Contract
from plugbay.contracts.mcp import remote
from plugbay.contracts.registry import CONTRACTS, contract_of
from plugbay.contracts.vai.platforms import Platform, named
from plugbay.host.config.references import declare_secrets
from plugbay.host.disk import release
from plugbay.host.disk.open_beneath import open_beneath
from plugbay.model.errors import Problem
from plugbay.model.ids import full_name
from plugbay.model.spec import PluginSpec
from plugbay.process.command import LaunchFailed, host_search_path, resolve

MAX_MANIFEST = 1 << 20
"""Maximum bytes of a manifest; a larger one is not read."""

MULTI_PLUGIN_MANIFESTS = {
    name: parse for contract in CONTRACTS.values() for name, parse in contract.parse_several.items()
}
"""Manifests that may declare several plugins, and their parsers."""

BRIDGE = (sys.executable, "-P", "-m", remote.MODULE)
"""The program that speaks for a server on the network. `-P`: it imports nothing from the folder of a project."""

MAX_FOLDERS = 10_000
"""Maximum entries that are inspected in one folder of plugins."""


class Found(msgspec.Struct, frozen=True):
    """A plugin that was found, or a path without a usable one."""

    root: Path
    contract: str
    spec: PluginSpec | None
    problems: tuple[Problem, ...] = ()
    entry: str = ""
    """Its name in the manifest, if a manifest declares several plugins."""
    plugins_folder: Path | None = None
    """The folder of plugins that contains it; None if the plugin itself was named."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies the place of the plugin, whatever is in it."""
        return os.path.realpath(self.root), self.contract, self.entry

    @property
    def places(self) -> set[Path | None]:
        """The paths that lead to it when a folder is read."""
        return {self.root, self.plugins_folder}

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")


def discover(paths: Iterable[Path], prefer: str = "") -> list[Found]:
    """Every plugin in `paths`; each path is a plugin folder, a manifest in one, or a folder of plugin folders.

    A folder of plugins may also contain a manifest that declares several plugins. A plugin with manifests of several
    contracts is hosted under the preferred one, else under the first in the registry.
    """
    return reject_duplicates(scan(paths, prefer))


def scan(paths: Iterable[Path], prefer: str = "") -> list[Found]:
    """As `discover`, with the plugins that share an id or the name of an export."""
    found = [item for path in paths for item in _discover_one(path, prefer)]
    return list({item.key: item for item in found}.values())


def inspect(path: Path, contract: str | None = None) -> Found:
    """The plugin in exactly this folder, or of exactly this manifest; it is a problem if there is none.

    `contract` selects one of several manifests.
    """
    found = inspect_all(path, contract)
    if len(found) == 1:
        return found[0]
    names = ", ".join(item.entry for item in found)
    text = f"there are {len(found)} plugins in one manifest here: {names}"
    return Found(path, found[0].contract, None, (Problem("several_plugins", "", text),))


def inspect_all(path: Path, contract: str | None = None) -> list[Found]:
    """The plugins in exactly this folder, or of exactly this manifest, which may declare several."""
    try:
        return _plugins_in(path, contract) or [_nothing(path, _no_manifest(path))]
    except OSError as error:
        return [_nothing(path, _unreadable(path, error))]


def contracts_in(path: Path) -> list[str]:
    """The contracts with a manifest in this folder."""
    try:
        return [contract.name for contract, _ in _actual_manifests(path, _manifests_in(path))]
    except OSError:
        return []


def sibling_plugins(root: Path) -> list[Path]:
    """The other plugin folders in the parent folder. Reads only as much as is needed to recognize them."""
    try:
        names = sorted(os.listdir(root.parent))[:MAX_FOLDERS]
    except OSError:
        return []
    folders = [root.parent / name for name in names if not name.startswith(".") and name != root.name]
    return [folder for folder in folders if _is_plugin(folder)]


def _is_plugin(folder: Path) -> bool:
    named = [(contract, name) for contract in CONTRACTS.values() for name in contract.manifest_files]
    try:
        # A manifest that declares several plugins belongs to a project; its folder is no plugin.
        there = [
            (contract, name)
            for contract, name in named
            if name not in MULTI_PLUGIN_MANIFESTS and (folder / name).is_file()
        ]
    except OSError:  # a folder that is closed to this user
        return False
    return any(_is_manifest(folder / name, contract) for contract, name in there)


def _discover_one(path: Path, prefer: str) -> list[Found]:
    try:
        plugins = _plugins_in(path, prefer=prefer)
        if plugins and (path.is_file() or not all(item.entry for item in plugins)):
            return plugins
        names = sorted(os.listdir(path))
    except OSError as error:
        return [_nothing(path, _unreadable(path, error))]
    for name in names[:MAX_FOLDERS]:
        plugins += [] if name.startswith(".") else _discover_in(path / name, prefer)
    return [replace(item, plugins_folder=path) for item in plugins]


def _discover_in(path: Path, prefer: str) -> list[Found]:
    try:
        return _plugins_in(path, prefer=prefer) if path.is_dir() or path.is_symlink() else []
    except OSError as error:
        return [_nothing(path, _unreadable(path, error))]


def _plugins_in(path: Path, wanted: str | None = None, prefer: str = "") -> list[Found]:
    """The plugins whose manifest is in `path`, or is `path`; may be empty. Raises OSError."""
    if path.is_file():
        named = contract_of(path.name)
        return _read(path.parent, named, path.name) if named else []
    meant = _actual_manifests(path, _manifests_in(path))
    chosen = [(contract, name) for contract, name in meant if wanted in (None, contract.name)]
    chosen.sort(key=lambda pair: pair[0].name != prefer)
    found = next(filter(None, (_read(path, contract, name) for contract, name in chosen)), [])
    others = [name for contract, name in meant if found and contract.name != found[0].contract]
    if not found or not others or wanted is not None:
        return found
    text = f"used as {found[0].contract}; for another contract name its manifest: {', '.join(others)}"
    warning = Problem("several_manifests", "", text, severity="warning")
    return [replace(item, problems=(*item.problems, warning)) for item in found]


def _actual_manifests(path: Path, present: list[tuple[Contract, str]]) -> list[tuple[Contract, str]]:
    """The files that are manifests, one per contract: other programs use some of the file names too."""
    one = list({contract.name: (contract, name) for contract, name in reversed(present)}.values())[::-1]
    return [(contract, name) for contract, name in one if len(one) == 1 or _is_manifest(path / name, contract)]


def _is_manifest(path: Path, contract: Contract) -> bool:
    if contract.not_ours is None:
        return True
    text = _manifest_text(path)
    return isinstance(text, str) and contract.not_ours(text) is None


def _manifests_in(path: Path) -> list[tuple[Contract, str]]:
    """Every file in `path` with the name of a manifest. Raises OSError."""
    names = set(os.listdir(path)) if stat.S_ISDIR(path.stat().st_mode) else set()
    return [(contract, name) for contract in CONTRACTS.values() for name in contract.manifest_files if name in names]


def _read(root: Path, contract: Contract, name: str) -> list[Found]:
    """The plugins of this manifest; empty if the file belongs to another program."""
    text = _manifest_text(root / name)
    if isinstance(text, Problem):
        return [Found(root, contract.name, None, (text,))]
    if contract.not_ours is not None and contract.not_ours(text) is not None:
        return []
    if not release.is_listed(root.resolve(), name, text.encode()):
        # A start checks the files, and could not know that another manifest was there for a while.
        changed = Problem("changed", "", f"{name} was changed after the package was installed; {release.HINT}")
        return [Found(root, contract.name, None, (changed,))]
    if name in MULTI_PLUGIN_MANIFESTS:
        return [
            check_found(root, contract, *each)
            for each in MULTI_PLUGIN_MANIFESTS[name](text, root.resolve(), os.environ)
        ]
    return [
        check_found(root, contract, "", *contract.parse_manifest(text, root.resolve(), os.environ, PluginFiles(root)))
    ]


def check_found(
    root: Path, contract: Contract, entry: str, spec: PluginSpec | None, problems: Iterable[Problem]
) -> Found:
    """A plugin from its manifest, with the problems of its program on this machine."""
    every = list(problems)
    if spec is not None and spec.url:
        spec = replace(spec, command=BRIDGE)
    if spec is not None:
        spec, more = declare_secrets(spec)
        every += more
        every += _program_problems(spec) if contract.program_inside else _command_problems(spec)
    if any(problem.severity == "error" for problem in every):
        spec = None
    return Found(root, contract.name, spec, tuple(every), entry)


def _manifest_text(path: Path) -> str | Problem:
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            return Problem("unreadable", "", f"{path.name} is not a regular file")
        if info.st_size > MAX_MANIFEST:
            return Problem("too_large", "", f"{path.name} has {info.st_size:,} bytes; at most {MAX_MANIFEST:,}")
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        return Problem("parse_error", "", f"{path.name} is not UTF-8: {error.reason} at byte {error.start}")
    except OSError as error:
        return _unreadable(path, error)


def _program_problems(spec: PluginSpec) -> list[Problem]:
    """Errors if the program is missing in the plugin's folder, which must contain it."""
    try:
        resolve(spec.command, spec.root, "")
    except LaunchFailed as error:
        text = f"{error.message}; the program must be an executable beside the manifest, with the name of the plugin"
        return [Problem("program_unusable", "", text)]
    return []


def _command_problems(spec: PluginSpec) -> list[Problem]:
    """Warnings for a command that cannot start, so that it is noticed before the first call."""
    cwd = spec.cwd or spec.root
    problems = []
    try:
        resolve(spec.command, spec.root, host_search_path(os.environ))
    except LaunchFailed as error:
        hint = f" ({error.hint})" if error.hint else ""
        problems.append(Problem("command_unusable", "command", f"{error.message}{hint}", severity="warning"))
    if not cwd.is_dir():
        text = f"the working directory {cwd} does not exist or is not a folder"
        problems.append(Problem("command_unusable", "dir", text, severity="warning"))
    return problems


def reject_duplicates(found: list[Found]) -> list[Found]:
    """Refuse all plugins that share an id or the full name of an export: a call would be ambiguous."""
    claimed: dict[tuple[str, str], list[Found]] = {}
    for item in found:
        for claim in _claims(item.spec):
            claimed.setdefault(claim, []).append(item)
    return [_refused(item, claimed) for item in found]


def _claims(spec: PluginSpec | None) -> dict[tuple[str, str], str]:
    """The names that must be unique, with words for messages. Ids may have slashes: `a` + `b/c` is `a/b` + `c`."""
    if spec is None:
        return {}
    exports = {("duplicate_export", full_name(spec.id, export.name)): "offered by" for export in spec.exports}
    return {("duplicate_id", spec.id): "the id of"} | exports


def _refused(item: Found, claimed: dict[tuple[str, str], list[Found]]) -> Found:
    for (code, name), words in _claims(item.spec).items():
        others = ", ".join(str(other.root) for other in claimed[code, name] if other is not item)
        if others:
            problem = Problem(code, "plugin_id", f"{name!r} is also {words} {others}; rename one")
            return replace(item, spec=None, problems=(*item.problems, problem))
    return item


def _nothing(path: Path, problem: Problem) -> Found:
    return Found(path, "", None, (problem,))


def _no_manifest(path: Path) -> Problem:
    """Why there is no manifest; names a file that only looks like one. Raises OSError."""
    for contract, name in _manifests_in(path):
        text = _manifest_text(path / name)
        why = contract.not_ours(text) if contract.not_ours and isinstance(text, str) else None
        if why is not None:
            return Problem("not_found", "", f"{path / name} is not a plugin's manifest: {why}")
    known = ", ".join(name for contract in CONTRACTS.values() for name in contract.manifest_files)
    return Problem("not_found", "", f"no plugin manifest in {path}; looked for {known}")


def _unreadable(path: Path, error: OSError) -> Problem:
    code = "not_found" if isinstance(error, FileNotFoundError) else "unreadable"
    return Problem(code, "", f"{path}: {error.strerror or error}")


_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
"""A pipe or a terminal in place of a file must not block the host."""


class PluginFiles:
    """Read access to the folder of one plugin, for manifest parsers. Follows links that stay inside. Never raises."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)

    @property
    def platform(self) -> Platform:
        """The platform of this machine."""
        return named(sys.platform, platform.machine())

    def read(self, path: str, limit: int) -> bytes | Problem:
        """The content of a file, if it has at most `limit` bytes."""
        below = self._below(path)
        if below is None:
            return Problem("path_escape", "", "leads out of the plugin's folder through a link")
        try:
            at = open_beneath(self._root, below, _FLAGS)
        except OSError as error:
            return _missing(error.strerror or str(error))
        try:
            return _content(at, limit)
        finally:
            os.close(at)

    def program_problem(self, path: str) -> str | None:
        """Why a file of the folder cannot be executed, or None."""
        if self._below(path) is None:
            return "leads out of the plugin's folder through a link"
        try:
            resolve((path,), Path(self._root), "")
        except LaunchFailed as error:
            return f"cannot be started: {error.message}"
        return None

    def _below(self, path: str) -> str | None:
        """The path with links resolved, relative to the folder; None if it leads out."""
        real = os.path.realpath(os.path.join(self._root, path))
        inside = os.path.commonpath((self._root, real)) == self._root
        return os.path.relpath(real, self._root) if inside else None


def _content(file: int, limit: int) -> bytes | Problem:
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return _missing("it is not a regular file")
        data = b""
        while len(data) <= limit and (more := os.read(file, limit + 1 - len(data))):
            data += more
    except OSError as error:
        return _missing(error.strerror or str(error))
    return data if len(data) <= limit else Problem("too_large", "", f"has more than {limit:,} bytes")


def _missing(why: str) -> Problem:
    return Problem("file_missing", "", f"cannot be read: {why}")
