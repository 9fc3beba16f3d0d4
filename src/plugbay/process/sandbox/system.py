"""What every confined plugin sees of the machine: its programs and libraries, a few files of /etc, no people.

Owns that list. The files that tell about users, hosts and lookups exist only inside, and
say the same on every machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from plugbay.process.sandbox.bwrap import HOSTNAME, Bind
from plugbay.process.sandbox.users import INSIDE

TOP = tuple("/bin /sbin /lib /lib32 /lib64 /libx32".split())
"""Links into /usr on most machines, folders on some."""

_BELOW = ("/usr/", *(f"{top}/" for top in TOP))

FOLDERS = tuple(
    "/etc/ld.so.conf.d /etc/alternatives /etc/ssl/certs /etc/ca-certificates/extracted /etc/pki/tls/certs "
    "/etc/pki/ca-trust/extracted".split()
)
"""Where libraries are, which program a name means, whom TLS trusts."""

COPIED = tuple("/etc/ld.so.cache /etc/ld.so.conf /etc/localtime /etc/ssl/openssl.cnf /etc/mime.types".split())
"""Where libraries are, the time zone, how TLS is spoken, what kind a file is by its name. Small files that hardly ever
change: a plugin gets them as they are when it starts, for a mount of each would take longer than to copy it."""

HOST_NETWORK = ("/etc/resolv.conf", "/etc/hosts")
"""For a plugin that has the machine's own network."""

MASKED = ("/proc/keys", "/proc/key-users", "/proc/kallsyms")
"""Tell of the user's keys, and on some machines where the kernel lies in memory; no namespace is between."""


def is_system(path: str) -> bool:
    """Whether everybody sees this path anyway."""
    return path == "/usr" or path.startswith(_BELOW)


def binds(*, own_network: bool) -> tuple[Bind, ...]:
    """The folders and files of the machine that are there, all read-only."""
    folders = [top for top in TOP if os.path.isdir(top) and not os.path.islink(top)]
    others = [path for path in (*FOLDERS, *(() if own_network else HOST_NETWORK)) if os.path.exists(path)]
    return tuple(Bind(path, path) for path in ("/usr", *folders, *others))


def copied() -> Iterator[tuple[int, str]]:
    """Descriptor and path of each file that is copied, as far as whoever asks may read it."""
    for path in COPIED:
        if os.access(path, os.R_OK) and os.path.isfile(path):
            yield os.open(path, os.O_RDONLY | os.O_CLOEXEC), path


def links() -> tuple[tuple[str, str], ...]:
    """Where the links at the top of the tree lead."""
    return tuple((os.readlink(top), top) for top in TOP if os.path.islink(top))


def masked() -> tuple[str, ...]:
    """The files of /proc that this kernel has and no plugin opens."""
    return tuple(path for path in MASKED if os.path.exists(path))


def files(home: str, *, own_network: bool) -> dict[str, bytes]:
    """Path and content of the files that exist only inside."""
    # A colon or a line end would begin another field or another user.
    safe = "/" if set(home) & set(":\n\r") else home
    made = {
        "/etc/passwd": f"{HOSTNAME}:x:{INSIDE}:{INSIDE}::{safe}:/bin/sh\n",
        "/etc/group": f"{HOSTNAME}:x:{INSIDE}:\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    if own_network:
        made["/etc/hosts"] = f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n"
    return {path: os.fsencode(text) for path, text in made.items()}
