"""The files of the machine that a confined plugin sees: the system's, for every plugin, and those of its runtime.

Every plugin sees the same programs, libraries and few files of /etc; the files about users, hosts and lookups exist
only inside and are the same on every machine. A runtime is the plugin's programs (`programs`) and the folders beside
them. Paths of a runtime are checked against the forbidden ones like all others: a home folder is never part of a
runtime.

A fenced plugin sees libraries and data of the system, and of its programs only those that `fence` is given: the
plugin's own and the granted ones. No rule may show a whole folder of programs such as /usr/bin.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from plugbay.model.users import NOBODY
from plugbay.process.sandbox.bwrap import HOSTNAME, Bind
from plugbay.process.sandbox.programs import ALTERNATIVES, LINKS, SCRIPT_BYTES, follow_links, list_programs

TOP = tuple("/bin /sbin /lib /lib32 /lib64 /libx32".split())
"""Links into /usr on most machines, folders on some."""

_BELOW = ("/usr/", *(f"{top}/" for top in TOP))

_JAVA = "/etc/java-*-openjdk"
"""Debian keeps the settings of a Java runtime here; the runtime has links to them, and fails without its `security`."""

FOLDERS = (
    ALTERNATIVES,
    *"/etc/ld.so.conf.d /etc/ssl/certs /etc/ca-certificates/extracted /etc/pki/tls/certs "
    "/etc/pki/ca-trust/extracted".split(),
    *sorted(glob.glob(f"{_JAVA}/security")),
)
"""Alternatives of programs, paths of libraries, trusted certificates, settings of Java."""

ZONE = "/etc/localtime"
"""The time zone. A program reads its name from the target of this link, so a link stays a link."""

LINKED = tuple(path for path in (ZONE,) if os.path.islink(path) and os.path.realpath(path).startswith("/usr/share/"))

_SMALL = "/etc/ld.so.cache /etc/ld.so.conf /etc/localtime /etc/timezone /etc/ssl/openssl.cnf /etc/mime.types".split()
COPIED = (
    *(path for path in _SMALL if path not in LINKED),
    *sorted(glob.glob(f"{_JAVA}/net.properties") + glob.glob(f"{_JAVA}/logging.properties")),
)
"""Paths of libraries, the time zone, settings of TLS, types of files. Small files that hardly ever change: a plugin
gets a copy at its start, because a mount of each would take longer."""

HOST_NETWORK = ("/etc/resolv.conf", "/etc/hosts")
"""For a plugin with the machine's own network."""

RESOLVE_SECONDS = 12
"""For which a plugin waits for an answer: longer than the host waits for one."""

MASKED = ("/proc/keys", "/proc/key-users", "/proc/kallsyms")
"""Reveal the user's keys, and on some machines addresses of the kernel; no namespace hides them."""


def is_system(path: str) -> bool:
    """Whether every plugin sees this path."""
    return path == "/usr" or path.startswith(_BELOW)


def binds(*, own_network: bool) -> tuple[Bind, ...]:
    """The folders and files of the machine that are there, all read-only."""
    folders = [top for top in TOP if os.path.isdir(top) and not os.path.islink(top)]
    return tuple(Bind(path, path) for path in ("/usr", *folders, *_settings(own_network)))


def _settings(own_network: bool) -> list[str]:
    return [path for path in (*FOLDERS, *(() if own_network else HOST_NETWORK)) if os.path.exists(path)]


def copied() -> Iterator[tuple[int, str]]:
    """Descriptor and path of each file that is copied, if the calling user may read it."""
    for path in COPIED:
        if os.access(path, os.R_OK) and os.path.isfile(path):
            yield os.open(path, os.O_RDONLY | os.O_CLOEXEC), path


def links() -> tuple[tuple[str, str], ...]:
    """Where the links at the top of the tree and the link to the time zone lead."""
    return tuple((os.readlink(path), path) for path in (*TOP, *LINKED) if os.path.islink(path))


def masked() -> tuple[str, ...]:
    """The files of /proc that this kernel has and no plugin opens."""
    return tuple(path for path in MASKED if os.path.exists(path))


def files(home: str, user: int, *, own_network: bool) -> dict[str, bytes]:
    """Path and content of the files that exist only inside; `user` is the user number inside."""
    # A colon or a line end would begin another field or another user.
    safe = "/" if set(home) & set(":\n\r") else home
    name, group = ("nobody", "nogroup") if user == NOBODY else (HOSTNAME, HOSTNAME)
    made = {
        "/etc/passwd": f"{name}:x:{user}:{user}::{safe}:/bin/sh\n",
        "/etc/group": f"{group}:x:{user}:\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    if own_network:
        made["/etc/hosts"] = f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n"
        made["/etc/resolv.conf"] = f"nameserver 127.0.0.1\noptions timeout:{RESOLVE_SECONDS} attempts:1\n"
    return {path: os.fsencode(text) for path, text in made.items()}


# Runtimes.

ROOT = Path("/")
PREFIX_PARTS = ("bin", "lib", "lib64", "pyvenv.cfg")
"""The parts of a prefix such as /opt/tool that a program in its `bin` needs; the last marks a virtual environment."""
MODULES = "node_modules"
PLUGBAY = str(Path(__file__).parents[2])
"""The package itself, which plugins that use the SDK import."""


def needed(argv: Sequence[str], env: Mapping[str, str], folder: Path = ROOT) -> tuple[str, ...]:
    """Paths to show read-only so that a command can run in `folder`, without paths of the system and missing ones."""
    search_path = env.get("PATH", os.defpath)
    found = [part for program in list_programs(argv, search_path, folder) for part in _parts(program)]
    # A script may start the host's Python by its name, so its PATH has the folder of that Python.
    if os.path.dirname(sys.executable) in search_path.split(os.pathsep):
        found += _host_python()
    return tuple(path for path in dict.fromkeys(found) if not _is_shown(path) and os.path.exists(path))


def _is_shown(path: str) -> bool:
    """Whether every plugin sees this path already. A second mount inside a read-only folder such as /etc/alternatives
    would fail.
    """
    return is_system(path) or path.startswith(tuple(f"{folder}/" for folder in FOLDERS))


def _parts(program: str) -> list[str]:
    """A program, each place that it is a link to, and the folders beside each."""
    around = list(_around(program))
    if program == sys.executable or os.path.realpath(program) == os.path.realpath(sys.executable):
        return [*_host_python(), *around]  # whole prefixes first: paths within one are not shown twice
    return around


@cache
def host_python() -> tuple[str, ...]:
    """The paths of the host's own Python, without links: shown to plugins that need it, wherever it lies."""
    return tuple(dict.fromkeys(map(os.path.realpath, _host_python())))


@cache
def _host_python() -> tuple[str, ...]:
    """The paths of the running interpreter, which never change."""
    prefixes = dict.fromkeys(map(os.path.abspath, (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)))
    return (*prefixes, *_around(sys.executable), PLUGBAY)


def _around(program: str) -> Iterator[str]:
    for place in follow_links(program):
        if modules := enclosing_modules(place):
            yield modules
        folder = os.path.dirname(place)
        if is_system(place) or os.path.basename(folder) != "bin":
            yield place
            continue
        prefix = os.path.dirname(folder)
        yield from (os.path.join(prefix, name) for name in PREFIX_PARTS)


def enclosing_modules(path: str) -> str:
    """The outermost `node_modules` around a program of npm, which imports from it; empty if there is none."""
    before, inside, _ = os.path.normpath(path).partition(f"/{MODULES}/")
    return f"{before}/{MODULES}" if inside and not is_system(path) else ""


# Fenced plugins.

LIBRARIES = tuple("/usr/lib /usr/lib32 /usr/lib64 /usr/libx32 /usr/local/lib /usr/local/lib64".split())
DATA = ("/usr/share", "/usr/local/share")
HELPERS = "/usr/libexec"
"""Programs that other programs start; each package has a folder there."""
PREFIXES = ("/", "/usr", "/usr/local")
"""Prefixes that many programs share, so the libraries of one program are found by its name."""
LIBRARY_DATA = frozenset("locale ssl os-release".split())
"""Entries of /usr/lib that any program may read."""
_MULTIARCH = re.compile(r"[a-z0-9_]+-linux-[a-z0-9]+")
_FLAT = re.compile(r"(ld-|ld64|libc\.so|libc-)")
"""The loader and the C library: a folder that has one of them has all libraries side by side. A link does not count:
Debian's arm64 has one to the loader in /usr/lib, whose libraries are in a folder of their own.
"""
_HOME = re.compile(r"^home *= *(.+?) *$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fence:
    """The files of the machine for a plugin that sees only some programs."""

    binds: tuple[Bind, ...]
    links: tuple[tuple[str, str], ...]
    """Where each link leads, and its path."""
    needed: tuple[str, ...]
    """Paths outside the system's folders, to open as sources."""

    def shows(self, path: str) -> bool:
        """Whether the binds have this path."""
        return any(path == bind.path or path.startswith(f"{bind.path}/") for bind in self.binds)


def fence(
    commands: Iterable[Sequence[str]], env: Mapping[str, str], folder: Path = ROOT, *, own_network: bool
) -> Fence:
    """The libraries and data of the system, and the programs that these commands run in `folder`."""
    search_path = env.get("PATH", os.defpath)
    programs = dict.fromkeys(path for argv in commands for path in list_programs(argv, search_path, folder))
    shown = dict.fromkeys(_libraries())
    if any(os.path.realpath(program) == os.path.realpath(sys.executable) for program in programs):
        programs[sys.executable] = None
        shown |= dict.fromkeys(_host_libraries())
    elif any(map(_is_copied_python, programs)):
        shown |= dict.fromkeys(_host_libraries())
    for program in programs:
        for at in _places(program):
            shown |= dict.fromkeys((at, *_beside(at)))
    existing = sorted((path for path in shown if os.path.exists(path)), key=lambda path: path.count("/"))
    targets = [(os.readlink(path), path) for path in existing if _is_link(path)]
    others = [path for path in existing if not _is_link(path)]
    system = _outermost([*filter(is_system, others), *_settings(own_network)])
    made = Fence(tuple(Bind(path, path) for path in system), (), tuple(path for path in others if not is_system(path)))
    inside = tuple((target, path) for target, path in targets if not made.shows(path))
    return Fence(made.binds, (*links(), *inside), made.needed)


def _is_link(path: str) -> bool:
    """Whether a path becomes a link inside too; one behind a linked folder is shown as a file or folder there."""
    folder = os.path.dirname(path)
    return os.path.islink(path) and folder == os.path.realpath(folder)


def place(path: str) -> str:
    """A path behind one of the links at the top of the tree, such as /bin, as the path that this link leads to."""
    for top in TOP:
        if path.startswith(f"{top}/") and os.path.islink(top):
            return os.path.join(os.path.realpath(top), path[len(top) + 1 :])
    return os.path.normpath(path)


def _places(program: str) -> Iterator[str]:
    """The path of a program, and the target of each link on the way, as paths inside."""
    path = place(program)
    for _ in range(LINKS):
        yield path
        if not os.path.islink(path):
            return
        path = place(os.path.join(os.path.realpath(os.path.dirname(path)), os.readlink(path)))


def _beside(program: str) -> Iterator[str]:
    """The libraries that belong to a program."""
    if modules := enclosing_modules(program):
        yield modules
    folder = os.path.dirname(program)
    if os.path.basename(folder) not in ("bin", "sbin"):
        return
    prefix = os.path.dirname(folder)
    if prefix in PREFIXES:
        yield from _named_after(os.path.basename(program))
    elif is_system(prefix):
        yield prefix
    else:
        yield from (os.path.join(prefix, name) for name in PREFIX_PARTS if name != "bin")


def _named_after(program: str) -> Iterator[str]:
    """The library folders with the name of a program: /usr/lib/python3.11 of python3, /usr/lib/git-core of git."""
    stem = re.match(r"[a-z]+", program)
    if stem is None:
        return
    for folder in (*LIBRARIES, HELPERS):
        names = os.listdir(folder) if os.path.isdir(folder) and not os.path.islink(folder) else []
        yield from (os.path.join(folder, name) for name in names if re.match(rf"{stem[0]}(?![a-z])", name))


def _libraries() -> Iterator[str]:
    """The loader, shared libraries and data. Folders of single programs among the libraries are left out."""
    tops = [top for top in TOP if top.startswith("/lib") and os.path.isdir(top) and not os.path.islink(top)]
    for folder in (*LIBRARIES, *tops):
        if os.path.islink(folder):
            yield folder
        if os.path.islink(folder) or not os.path.isdir(folder):
            continue
        names = os.listdir(folder)
        if any(_FLAT.match(name) and not os.path.islink(os.path.join(folder, name)) for name in names):
            yield folder
            continue
        for name in names:
            if _MULTIARCH.fullmatch(name) or name in LIBRARY_DATA or ".so" in name:
                yield os.path.join(folder, name)
    yield from DATA


def _host_libraries() -> Iterator[str]:
    """The libraries of the running Python, with plugbay, without the programs beside it."""
    prefixes = dict.fromkeys(map(os.path.abspath, (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)))
    for prefix in prefixes:
        if prefix in PREFIXES:
            yield from _named_after("python")
        elif not is_system(prefix):
            yield from (os.path.join(prefix, name) for name in PREFIX_PARTS if name != "bin")
    yield PLUGBAY


def _is_copied_python(program: str) -> bool:
    """Whether a program is a copy of the host's Python in a virtual environment: it uses the original's libraries.

    Those of another Python are not shown: a plugin writes that file itself.
    """
    try:
        with open(os.path.join(os.path.dirname(os.path.dirname(program)), "pyvenv.cfg"), encoding="utf-8") as file:
            found = _HOME.search(file.read(SCRIPT_BYTES))
    except (OSError, UnicodeDecodeError):
        return False
    return found is not None and os.path.realpath(found[1]) == os.path.realpath(os.path.join(sys.base_prefix, "bin"))


def _outermost(paths: Sequence[str]) -> list[str]:
    """These paths without those that lie within another one."""
    kept: list[str] = []
    for path in paths:
        if not any(path == other or path.startswith(f"{other}/") for other in kept):
            kept.append(path)
    return kept
