"""The system call filter of a confined process: `program` returns the shipped one, checked by its hash.

scripts/filters builds the filters, bubblewrap loads them. On a machine without a filter a confined start fails.
"""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path

from plugbay.process.diagnose import SandboxUnavailable
from plugbay.process.sandbox.filters import HASHES

FOLDER = Path(__file__).with_name("filters")


def file_name(machine: str, *, network: bool) -> str:
    """The name of a filter's file."""
    return f"{machine}.bpf" if network else f"{machine}-offline.bpf"


@cache
def program(machine: str | None = None, *, network: bool, folder: Path = FOLDER) -> bytes:
    """The filter for this machine, or the one named as `uname -m` does; stricter for a plugin without network.

    A checked filter is cached: a later change of the file has no effect. Raises SandboxUnavailable if there is none for
    the machine, or if its hash is not the one of this version.
    """
    machine = platform.machine() if machine is None else machine
    name = file_name(machine, network=network)
    if name not in HASHES:
        raise SandboxUnavailable(
            f"there is no system call filter for the machine {machine!r}",
            "plugins can be confined on x86_64 and aarch64",
            {"machine": machine},
        )
    try:
        code = (folder / name).read_bytes()
    except OSError as error:
        raise SandboxUnavailable(*_broken(name, f"cannot be read: {error.strerror}")) from error
    if hashlib.sha256(code).hexdigest() != HASHES[name]:
        raise SandboxUnavailable(*_broken(name, "is not the one that was shipped"))
    return code


def _broken(name: str, what: str) -> tuple[str, str, dict[str, str]]:
    return f"the system call filter {name} {what}", "install plugbay again", {"filter": name}
