"""What no policy shows a plugin, whoever granted it: paths that give the machine or its user away.

Owns the list and how a path is held against it. Textual and neutral: it knows no contract, and whoever asks must ask
twice, with the path as it was written and as it is after following links. A path is refused when it is on the list,
lies within something on it, or contains something on it, whether or not that exists: it may exist tomorrow.
"""

from __future__ import annotations

import os
import posixpath
import pwd
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path

PLACES = tuple(
    "/etc/shadow /etc/gshadow /etc/shadow- /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/ssh /etc/ssl/private "
    "/etc/krb5.keytab /proc /sys/firmware /sys/kernel /sys/fs/cgroup /sys/fs/bpf /dev /boot "
    "/run/docker.sock /var/run/docker.sock /private/var/run/docker.sock /run/containerd /run/crio /run/podman "
    "/run/dbus /run/systemd /run/user /run/secrets /var/lib/docker /var/lib/containerd /var/lib/kubelet "
    "/var/spool/cron".split()
)
"""The machine's own. /proc and /dev as a whole: a plugin has its own of both."""

AT_HOME = tuple(
    ".ssh .aws .azure .gnupg .kube .docker .netrc .pgpass .my.cnf .pypirc .npmrc .yarnrc.yml .git-credentials "
    ".gitconfig .password-store .vault-token .terraform.d .boto .s3cfg .m2/settings.xml .gem/credentials "
    ".cargo/credentials .cargo/credentials.toml .bash_history .zsh_history .python_history .node_repl_history "
    ".config/gcloud .config/gh .config/git .config/hub .config/op .config/rclone .config/containers "
    ".config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge .config/vivaldi "
    ".config/opera .mozilla .librewolf .thunderbird snap/firefox snap/chromium .gnome2/keyrings "
    ".local/share/keyrings .local/share/kwalletd Library/Keychains Library/Cookies".split()
)
"""Credentials and what browsers keep, in every home folder. So a home folder as a whole is refused too."""

RUN_AT_HOME = tuple(
    ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout "
    ".inputrc .pam_environment .xprofile .xinitrc .xsession .xsessionrc .tmux.conf .screenrc .vimrc .vim .emacs "
    ".emacs.d .gdbinit .pythonrc .config/autostart .config/systemd .config/environment.d .config/fish .config/nvim "
    ".config/pip .config/direnv .local/bin .local/lib .local/share/applications .local/share/systemd bin "
    "Library/LaunchAgents".split()
)
"""What runs with all rights of the user sooner or later, in every home folder: not to be written, or whoever may would
only have to wait."""

ROOT_HOME = "/root"

REMEMBERED = 1024
"""Answers that are kept. They depend on letters alone, every start asks the same twenty questions, and each is held
against hundreds of entries: without this it would be half of the preparation."""


def home_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The home folders of whoever runs the host, as written and as they are after following links."""
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
    """Where the code of this very host is: whoever writes there is the host."""
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
