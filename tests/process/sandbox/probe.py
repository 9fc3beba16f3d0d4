"""Looks around and says what it sees and can do, as one JSON object. Runs inside a sandbox, and once outside."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from typing import Any


def attempt(act: Callable[[], Any]) -> str:
    """`ok`, or the name of the error."""
    try:
        act()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "?")
    return "ok"


def opens(path: str, flags: int) -> str:
    return attempt(lambda: os.close(os.open(path, flags, 0o600)))


def text(path: str) -> str:
    with open(path) as file:
        return file.read()


def status() -> dict[str, str]:
    lines = text("/proc/self/status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def main(package: str, secret: str, written: str) -> None:
    fields = status()
    mounts = {line.split()[4]: line.split()[5] for line in text("/proc/self/mountinfo").splitlines()}
    print(
        json.dumps(
            {
                "uid": os.getuid(),
                "gid": os.getgid(),
                "groups": os.getgroups(),
                "status": {name: fields[name] for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")},
                "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")),
                "pids": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
                "environment": dict(os.environ),
                "hostname": os.uname().nodename,
                "cwd": os.getcwd(),
                "session": os.getsid(0),
                "write package": opens(f"{package}/new", os.O_WRONLY | os.O_CREAT),
                "write root": opens("/new", os.O_WRONLY | os.O_CREAT),
                "write dev": opens("/dev/new", os.O_WRONLY | os.O_CREAT),
                "write tmp": opens("/tmp/new", os.O_WRONLY | os.O_CREAT),
                "write granted": opens(f"{written}/new", os.O_WRONLY | os.O_CREAT),
                "open core_pattern": opens("/proc/sys/kernel/core_pattern", os.O_WRONLY),
                "read secret": opens(secret, os.O_RDONLY),
                "read shadow": opens("/etc/shadow", os.O_RDONLY),
                "mounts": mounts,
                "passwd": text("/etc/passwd"),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
