"""The numbers are the kernel's numbers."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from scripts.filters.syscalls import LAST, MACHINES

HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}
"""Where Debian and others keep them. aarch64 uses the generic table, which is installed on every machine."""

ON_THIS_MACHINE = [machine for machine in MACHINES if machine in {"aarch64", platform.machine()}]


def numbers_in(text: str) -> dict[str, int]:
    """What a header defines; `__NR3264_` is how the generic table spells calls with a 32-bit twin."""
    return {name: int(number) for name, number in re.findall(r"#define\s+__NR(?:3264)?_(\w+)\s+(\d+)\s", text)}


def header(machine: str) -> dict[str, int]:
    path = next((path for path in map(Path, HEADERS[machine]) if path.exists()), None)
    assert path is not None, "the kernel's headers are missing; install linux-libc-dev"
    return numbers_in(path.read_text())


@pytest.mark.parametrize("machine", ON_THIS_MACHINE)
def test_every_number_is_that_of_the_kernels_headers(machine: str) -> None:
    known = header(machine)
    youngest = max(number for name, number in known.items() if name != "syscalls")
    assert youngest >= 435, "too old to know clone3"
    ours = MACHINES[machine].numbers
    assert {name: number for name, number in ours.items() if number <= youngest} == {
        name: known.get(name) for name, number in ours.items() if number <= youngest
    }
    assert not [name for name, number in ours.items() if number > youngest and name in known]


@pytest.mark.parametrize("machine", ON_THIS_MACHINE)
def test_the_gap_is_one_in_the_kernels_headers_too(machine: str) -> None:
    # The generic table numbers the calls of 32-bit machines from 403 on.
    taken = {number for name, number in header(machine).items() if "64" not in name or number < 403}
    assert not taken & set(MACHINES[machine].unassigned)
    assert MACHINES[machine].unassigned.stop in taken


def test_a_number_that_the_headers_contradict_is_seen() -> None:
    assert numbers_in("#define __NR_ptrace 117\n#define __NR3264_mmap\t222\n#define __NR_mmap __NR3264_mmap\n") == {
        "ptrace": 117,
        "mmap": 222,
    }


def test_calls_from_424_on_have_one_number_everywhere() -> None:
    late = [{name: n for name, n in machine.numbers.items() if n >= 424} for machine in MACHINES.values()]
    assert late[0] == late[1] and len(late[0]) > 10


@pytest.mark.parametrize("machine", MACHINES)
def test_no_number_is_named_twice_or_beyond_the_last(machine: str) -> None:
    numbers = MACHINES[machine].numbers.values()
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) <= LAST
    assert not set(numbers) & set(MACHINES[machine].unassigned)


def test_a_call_a_machine_does_not_have_is_left_out() -> None:
    assert list(MACHINES["x86_64"].numbers_of("iopl ptrace")) == [172, 101]
    assert list(MACHINES["aarch64"].numbers_of("iopl ptrace")) == [117]
