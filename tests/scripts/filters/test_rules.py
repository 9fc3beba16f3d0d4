"""The table says what it means: known calls, the kernel's constants, a reason for everything."""

from __future__ import annotations

import errno
import re
import socket
import stat
from pathlib import Path

import pytest

from scripts.filters import rules as table
from scripts.filters.rules import Argument, Check, Rule, rules
from scripts.filters.syscalls import MACHINES

EVERY_RULE = rules(network=False)
NAMES = [name for rule in EVERY_RULE for name in rule.calls.split()]


def constants(header: str) -> dict[str, int]:
    """The numbers a kernel header defines, decimal or hexadecimal."""
    text = Path("/usr/include", header).read_text()
    return {name: int(value, 0) for name, value in re.findall(r"#define\s+(\w+)\s+(0x[0-9a-fA-F]+|\d+)\b", text)}


def test_every_call_of_the_table_has_a_number_and_every_number_is_used() -> None:
    assert {name for machine in MACHINES.values() for name in machine.numbers} == set(NAMES)


def test_every_rule_has_a_reason() -> None:
    assert [rule.calls for rule in EVERY_RULE if len(rule.reason) < 8] == []


def test_a_call_that_is_always_refused_is_in_one_rule_only() -> None:
    always = [name for rule in EVERY_RULE if not rule.checks for name in rule.calls.split()]
    assert [name for name in always if NAMES.count(name) > 1] == []


def test_a_plugin_without_network_is_refused_more_and_never_less() -> None:
    assert rules(network=False)[: len(rules(network=True))] == rules(network=True)
    assert {name for rule in set(rules(network=False)) - set(rules(network=True)) for name in rule.calls.split()} == {
        "socket",
        "socketpair",
    }


def test_the_flags_of_new_namespaces_are_all_those_of_clone() -> None:
    flags = {name: bit for name, bit in constants("linux/sched.h").items() if name.startswith("CLONE_NEW")}
    in_clone = [bit for name, bit in flags.items() if name != "CLONE_NEWTIME"]
    assert len(in_clone) == 7 and sum(in_clone) == table.CLONE_NEW
    assert flags["CLONE_NEWTIME"] & 0xFF, "a bit of the low byte, which clone takes for a signal"


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("asm-generic/ioctls.h", "TIOCSTI"),
        ("asm-generic/ioctls.h", "TIOCLINUX"),
        ("asm-generic/ioctls.h", "TIOCSETD"),
        ("linux/prctl.h", "PR_SET_MM"),
        ("linux/prctl.h", "PR_SET_SYSCALL_USER_DISPATCH"),
        ("linux/prctl.h", "PR_SCHED_CORE"),
        ("asm-generic/errno-base.h", "EPERM"),
        ("asm-generic/errno.h", "ENOSYS"),
        ("asm-generic/errno.h", "EAFNOSUPPORT"),
        ("asm-generic/errno.h", "EPROTONOSUPPORT"),
    ],
)
def test_a_constant_is_that_of_the_kernels_headers(header: str, name: str) -> None:
    assert getattr(table, name) == constants(header)[name]


@pytest.mark.parametrize(
    "name",
    "AF_UNIX AF_INET AF_INET6 SOCK_STREAM SOCK_DGRAM SOCK_SEQPACKET "
    "IPPROTO_IP IPPROTO_TCP IPPROTO_UDP IPPROTO_MPTCP".split(),
)
def test_a_constant_of_sockets_is_that_of_the_system(name: str) -> None:
    assert getattr(table, name) == getattr(socket, name)


def test_the_bit_that_lends_the_owners_rights_is_that_of_the_system() -> None:
    assert table.S_ISUID == stat.S_ISUID


def test_errors_are_only_those_that_programs_understand() -> None:
    assert {errno.errorcode[rule.error] for rule in EVERY_RULE} == {
        "EPERM",
        "ENOSYS",
        "EAFNOSUPPORT",
        "EPROTONOSUPPORT",
    }


def test_an_argument_is_spoken_of_in_three_ways() -> None:
    assert Argument(1).among(3, 4) == Check(1, (3, 4))
    assert Argument(1, 0xF).outside(3) == Check(1, (3,), mask=0xF, outside=True)
    assert Argument(0).has_any(0x60) == Check(0, (0,), mask=0x60, outside=True)


def test_a_rule_without_checks_always_holds() -> None:
    assert Rule("ptrace", table.EPERM, "reads another process").checks == ()
