"""The paths that a policy shows to a plugin: which of them are forbidden, and how the others are opened.

A path is resolved once and checked in both spellings, as written and without links. Then each folder on the way is
opened in turn, without following links, so a folder that is swapped for a link in between is noticed. A path is
forbidden if it is on the list, lies within an entry or contains one, whether or not the entry exists: it may exist
tomorrow.
"""

from __future__ import annotations

import os
import posixpath
import pwd
import stat
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from plugbay.process.diagnose import SandboxUnavailable

PLACES = tuple(
    "/etc/shadow /etc/gshadow /etc/shadow- /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/ssh /etc/ssl/private "
    "/etc/krb5.keytab /proc /sys/firmware /sys/kernel /sys/fs/cgroup /sys/fs/bpf /dev /boot "
    "/run/docker.sock /var/run/docker.sock /private/var/run/docker.sock /run/containerd /run/crio /run/podman "
    "/run/dbus /run/systemd /run/user /run/secrets /var/lib/docker /var/lib/containerd /var/lib/kubelet "
    "/var/spool/cron".split()
)
"""Paths of the machine. /proc and /dev as a whole: a plugin has its own of both."""

AT_HOME = tuple(
    ".ssh .aws .azure .gnupg .kube .docker .netrc .pgpass .my.cnf .pypirc .npmrc .yarnrc.yml .git-credentials "
    ".gitconfig .password-store .vault-token .terraform.d .boto .s3cfg .m2/settings.xml .gem/credentials "
    ".cargo/credentials .cargo/credentials.toml .bash_history .zsh_history .python_history .node_repl_history "
    ".config/gcloud .config/gh .config/git .config/hub .config/op .config/rclone .config/containers "
    ".config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge .config/vivaldi "
    ".config/opera .mozilla .librewolf .thunderbird snap/firefox snap/chromium .gnome2/keyrings "
    ".local/share/keyrings .local/share/kwalletd Library/Keychains Library/Cookies".split()
)
"""Credentials and data of browsers, in every home folder. So a home folder as a whole is refused too."""

RUN_AT_HOME = tuple(
    ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout "
    ".inputrc .pam_environment .xprofile .xinitrc .xsession .xsessionrc .tmux.conf .screenrc .vimrc .vim .emacs "
    ".emacs.d .gdbinit .pythonrc .config/autostart .config/systemd .config/environment.d .config/fish .config/nvim "
    ".config/pip .config/direnv .local/bin .local/lib .local/share/applications .local/share/systemd bin "
    "Library/LaunchAgents".split()
)
"""Files in every home folder that run with all rights of the user sooner or later: no plugin may write them."""

ROOT_HOME = "/root"

REMEMBERED = 1024
"""Cached results. They depend on the path alone, every start checks the same twenty paths, and each is compared with
hundreds of entries: without a cache that is half of the preparation."""


def home_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The home folders of the host's user, as written and without links."""
    named = [environ.get("HOME", ""), ROOT_HOME]
    try:
        named.append(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        pass  # a container may run as a user without a name
    written = [normalised(home) for home in named if home.startswith("/")]
    return tuple(dict.fromkeys(folder for home in written for folder in (home, os.path.realpath(home))))


def normalised(path: str) -> str:
    """`path` without `.`, `..`, repeated slashes and a slash at the end."""
    # Exactly one slash in front: POSIX, and so normpath, lets two mean something else.
    return posixpath.normpath("/" + path.lstrip("/"))


@cache
def host_code() -> tuple[str, ...]:
    """The folders with the code of this host: a plugin that writes there becomes the host."""
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    named = [*map(sysconfig.get_path, names), os.path.dirname(sys.executable), str(Path(__file__).parents[2])]
    return tuple(dict.fromkeys(os.path.realpath(folder) for folder in named if os.path.isabs(folder)))


def forbidden(path: str, homes: Iterable[str], *, writing: bool = False) -> str | None:
    """The entry that forbids the absolute `path`, if one does; `homes` are the home folders beside those of /home."""
    return _forbidding(normalised(path), tuple(homes), writing)


@lru_cache(maxsize=REMEMBERED)
def _forbidding(clean: str, homes: tuple[str, ...], writing: bool) -> str | None:
    entries = _entries(clean, homes, writing)
    return next((entry for entry in entries if _within(clean, entry) or _within(entry, clean)), None)


def _entries(path: str, homes: Iterable[str], writing: bool) -> Iterator[str]:
    yield from (*PLACES, *(host_code() if writing else ()))
    parts = path.split("/")
    # The home of /home that the path leads into; of no user in particular when it stops before one.
    user = parts[2] if len(parts) > 2 and parts[1] == "home" else "*"
    for home in (f"/home/{user}", *homes):
        yield from (f"{home.rstrip('/')}/{name}" for name in (*AT_HOME, *(RUN_AT_HOME if writing else ())))


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


OPEN_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to open one name on the way to a source."""


@dataclass(frozen=True, slots=True)
class Source:
    """One folder or file that is made visible; its holder closes `fd`."""

    path: str
    """The name outside and inside."""
    resolved: str
    """The same without links on the way."""
    fd: int
    folder: bool
    writable: bool = False


def open_source(path: str, homes: Iterable[str], *, writable: bool = False, links: bool = False) -> Source:
    """Open a path of a policy. `links`: the last part may be a link too, as parts of a runtime are.

    Raises SandboxUnavailable when it may not be shown, does not exist or is not a plain file or folder.
    """
    written, resolved = normalised(path), _resolved(path, links)
    for spelling in (written, resolved):
        entry = forbidden(spelling, homes, writing=writable)
        if entry is not None:
            what = "visible to" if forbidden(spelling, homes) else "written by"
            raise refused(path, f"must not be {what} a plugin: it is, contains or is inside {entry}")
    try:
        fd = _open(resolved)
    except OSError as error:
        raise refused(path, f"cannot be opened: {error.strerror}") from error
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        os.close(fd)
        what = "was swapped for a symbolic link" if stat.S_ISLNK(mode) else "is neither a folder nor a file"
        raise refused(path, what)
    return Source(written, resolved, fd, stat.S_ISDIR(mode), writable)


def refused(path: str, why: str, hint: str = "") -> SandboxUnavailable:
    return SandboxUnavailable(f"{path} {why}", hint or "correct the plugin's policy", {"path": path})


def _resolved(path: str, links: bool) -> str:
    if not path.startswith("/") or "\0" in path:
        raise refused(repr(path), "is not an absolute path")
    above, last = os.path.split(path.rstrip("/"))
    try:
        if links or last in {"", ".", ".."}:
            return os.path.realpath(path, strict=True)
        # The last part is never followed, not even after a look at it: it may become a link right after the look.
        resolved = os.path.join(os.path.realpath(above, strict=True), last)
        if stat.S_ISLNK(os.lstat(resolved).st_mode):
            raise refused(path, "is a symbolic link, whose target may change", "use the target of the link")
    except OSError as error:
        raise refused(path, f"cannot be shown to the plugin: {error.strerror}") from error
    return resolved


def _open(resolved: str) -> int:
    """Walk down from / one name at a time; a link on the way is an error."""
    *folders, last = resolved.strip("/").split("/")
    here = os.open("/", OPEN_STEP | os.O_DIRECTORY)
    try:
        for name in folders:
            here, above = os.open(name, OPEN_STEP | os.O_DIRECTORY, dir_fd=here), here
            os.close(above)
        return os.open(last or ".", OPEN_STEP, dir_fd=here)
    finally:
        os.close(here)
