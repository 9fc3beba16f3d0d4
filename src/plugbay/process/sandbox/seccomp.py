"""The system call filter that a confined process runs under: `program` hands out the shipped one.

Owns the choice of the file and the check of its hash. `filter_build` builds filters, bubblewrap loads them. A machine
without a filter confines nothing: the start fails.
"""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path

from plugbay.process.failures import SandboxUnavailable
from plugbay.process.sandbox.filters import HASHES

FOLDER = Path(__file__).with_name("filters")


def file_name(machine: str, *, network: bool) -> str:
    """What the filter of a machine is called in the folder."""
    return f"{machine}.bpf" if network else f"{machine}-offline.bpf"


@cache
def program(machine: str | None = None, *, network: bool, folder: Path = FOLDER) -> bytes:
    """The filter for this machine, or the one named as `uname -m` does; stricter for a plugin without network.

    What was whole once is kept: whoever changes the file later changes nothing, and no start reads it again.
    Raises SandboxUnavailable when there is none for the machine, or when it is not the one this version was made with.
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
