"""Runs `driver.py` as root and as somebody else, each part once for a module."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.machine import AS_ROOT
from tests.support.patience import PATIENCE

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "src"
PYTHON = "/usr/bin/python3"

SOMEBODY = 31_337
"""A user without a name, a home or a right."""

IDENTITIES: dict[str, tuple[str, ...]] = (
    {"root": (), "rootless": ("setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups", "--")}
    if AS_ROOT
    else {"rootless": ()}
)
"""How the host is run: in both ways where root runs the tests, otherwise as the user who does."""

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": str(SOURCES), "CANARY": "of the host"}


def command(identity: str, *arguments: str) -> list[str]:
    return [*IDENTITIES[identity], PYTHON, "-B", str(HERE / "driver.py"), *arguments]


@functools.cache
def report(identity: str, part: str) -> Any:
    """What the driver says of one of its parts."""
    done = subprocess.run(
        command(identity, part), capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE, cwd="/", check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def running(mark: str) -> list[int]:
    """Processes with this text among their arguments, seen from outside."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if mark.encode() in arguments(pid)]


def arguments(pid: int) -> bytes:
    """The command line of a process; empty as soon as it begins to end."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
