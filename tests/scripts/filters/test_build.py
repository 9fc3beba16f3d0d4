"""What both filters say to every call that matters, asked through an interpreter: on any machine, for all machines."""

from __future__ import annotations

import platform
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.filters.build import AT_LEAST, EQUAL, JUMP, MAX_DISTANCE, MAX_INSTRUCTIONS, Assembler, build
from scripts.filters.rules import EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT, rules
from scripts.filters.syscalls import LAST, MACHINES
from tests.scripts.filters import interpreter as bpf
from tests.scripts.filters.interpreter import ALLOW, KILL, Verdict
from tests.support.tiers import exhaustive

FILTERS = {(machine, network): build(machine, network=network) for machine in MACHINES for network in (True, False)}

ALWAYS = {
    EPERM: """
        ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp unshare setns mount umount2 pivot_root chroot
        open_by_handle_at name_to_handle_at fanotify_init quotactl quotactl_fd bpf perf_event_open userfaultfd
        add_key keyctl request_key mbind get_mempolicy set_mempolicy set_mempolicy_home_node migrate_pages move_pages
        modify_ldt iopl ioperm uselib vhangup init_module finit_module delete_module kexec_load kexec_file_load reboot
        swapon swapoff acct syslog settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname
    """,
    ENOSYS: """
        clone3 open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr statmount listmount
        io_uring_setup io_uring_enter io_uring_register io_setup
    """,
}

ORDINARY = {
    "x86_64": {
        "read": 0, "write": 1, "openat": 257, "close": 3, "mmap": 9, "mprotect": 10, "rt_sigreturn": 15, "pipe2": 293,
        "dup3": 292, "getpid": 39, "connect": 42, "bind": 49, "listen": 50, "accept4": 288, "sendmsg": 46, "fork": 57,
        "vfork": 58, "execve": 59, "wait4": 61, "kill": 62, "getdents64": 217, "futex": 202, "epoll_pwait": 281,
        "inotify_init1": 294, "eventfd2": 290, "getrandom": 318, "memfd_create": 319, "statx": 332, "rseq": 334,
        "uretprobe": 335, "uprobe": 336, "pidfd_send_signal": 424, "pidfd_open": 434, "close_range": 436,
        "openat2": 437, "faccessat2": 439, "epoll_pwait2": 441, "landlock_restrict_self": 446, "futex_waitv": 449,
        "cachestat": 451, "mseal": 462, "arch_prctl": 158, "prlimit64": 302, "seccomp": 317, "exit_group": 231,
        "io_destroy": 207,
    },
    "aarch64": {
        "read": 63, "write": 64, "openat": 56, "close": 57, "mmap": 222, "mprotect": 226, "rt_sigreturn": 139,
        "pipe2": 59, "dup3": 24, "getpid": 172, "connect": 203, "bind": 200, "listen": 201, "accept4": 242,
        "sendmsg": 211, "execve": 221, "wait4": 260, "kill": 129, "getdents64": 61, "futex": 98, "epoll_pwait": 22,
        "inotify_init1": 26, "eventfd2": 19, "getrandom": 278, "memfd_create": 279, "statx": 291, "rseq": 293,
        "pidfd_send_signal": 424, "pidfd_open": 434, "close_range": 436, "openat2": 437, "faccessat2": 439,
        "epoll_pwait2": 441, "landlock_restrict_self": 446, "futex_waitv": 449, "cachestat": 451, "mseal": 462,
        "prlimit64": 261, "seccomp": 277, "exit_group": 94, "io_destroy": 1,
    },
}  # fmt: skip
"""Calls that no rule names, some of them right beside one that is refused."""

SIGCHLD = 17
THREAD = 0x3D0F00
"""The flags with which glibc starts a thread."""
CLOEXEC, NONBLOCK = 0x80000, 0x800
HIGH = 1 << 32

# call, arguments, verdict with network, verdict without
BY_ARGUMENT: list[tuple[str, tuple[int, ...], Verdict, Verdict]] = [
    ("clone", (SIGCHLD,), ALLOW, ALLOW),
    ("clone", (THREAD,), ALLOW, ALLOW),
    ("clone", (0x4111,), ALLOW, ALLOW),  # vfork, as posix_spawn does it
    ("clone", (SIGCHLD | HIGH,), ALLOW, ALLOW),
    ("clone", (SIGCHLD, 0x1000_0000), ALLOW, ALLOW),  # the stack is no flag
    *[("clone", (SIGCHLD | bit,), EPERM, EPERM) for bit in (0x20000, *(1 << shift for shift in range(25, 31)))],
    ("clone", (THREAD | 0x1000_0000 | HIGH,), EPERM, EPERM),
    ("chmod", (0o4755, 0o755), ALLOW, ALLOW),
    ("chmod", (0, 0o4755), EPERM, EPERM),
    ("fchmod", (0, 0o2755), ALLOW, ALLOW),  # folders pass this bit on, and copying one sets it
    ("fchmod", (0, 0o7777 | HIGH), EPERM, EPERM),
    *[(call, (0, 0o4755, 0o1777), ALLOW, ALLOW) for call in ("fchmodat", "fchmodat2")],
    *[(call, (0, 0, 0o4000), EPERM, EPERM) for call in ("fchmodat", "fchmodat2")],
    ("ioctl", (0, 0x5413), ALLOW, ALLOW),
    ("ioctl", (0, 0x5401), ALLOW, ALLOW),
    ("ioctl", (0x5412, 0), ALLOW, ALLOW),
    ("ioctl", (0, 0x5412), EPERM, EPERM),
    ("ioctl", (0, 0x5412 | HIGH), EPERM, EPERM),
    ("ioctl", (0, 0x541C), EPERM, EPERM),
    ("ioctl", (0, 0x541C | 0xDEAD << 32), EPERM, EPERM),
    ("ioctl", (0, 0x5423), EPERM, EPERM),
    ("personality", (0,), ALLOW, ALLOW),
    ("personality", (0xFFFF_FFFF,), ALLOW, ALLOW),
    ("personality", (-1,), ALLOW, ALLOW),
    ("personality", (8,), EPERM, EPERM),
    ("personality", (0x40000,), EPERM, EPERM),
    ("personality", (0x40000 | HIGH,), EPERM, EPERM),
    ("prctl", (1, 9), ALLOW, ALLOW),
    ("prctl", (15,), ALLOW, ALLOW),
    ("prctl", (38, 1), ALLOW, ALLOW),
    ("prctl", (22, 2), ALLOW, ALLOW),
    ("prctl", (35,), EPERM, EPERM),
    ("prctl", (35 | HIGH,), EPERM, EPERM),
    ("prctl", (59,), EPERM, EPERM),
    ("prctl", (62,), EPERM, EPERM),
    *[("fcntl", (0, command), ALLOW, ALLOW) for command in (0, 1, 2, 3, 4, 6, 1030, 1032, 1033)],
    ("fcntl", (0, 1031, 1 << 20), EPERM, EPERM),
    ("fcntl", (0, 1031 | HIGH, 1 << 20), EPERM, EPERM),
    ("socket", (1, 1), ALLOW, EAFNOSUPPORT),
    ("socket", (1, 2 | CLOEXEC), ALLOW, EAFNOSUPPORT),
    ("socket", (1, 3), ALLOW, EAFNOSUPPORT),
    ("socket", (1, 5, 1), ALLOW, EAFNOSUPPORT),
    ("socket", (1 | HIGH, 1), ALLOW, EAFNOSUPPORT),
    ("socket", (2, 1), ALLOW, ALLOW),
    ("socket", (2, 1 | CLOEXEC | NONBLOCK, 6), ALLOW, ALLOW),
    ("socket", (10, 2 | CLOEXEC, 17), ALLOW, ALLOW),
    ("socket", (10, 1, 262), ALLOW, ALLOW),
    ("socket", (0, 1), EAFNOSUPPORT, EAFNOSUPPORT),
    *[("socket", (family, 3), EAFNOSUPPORT, EAFNOSUPPORT) for family in (3, 4, 15, 16, 17, 29, 31, 38, 40, 44, 45)],
    ("socket", (16 | HIGH, 3), EAFNOSUPPORT, EAFNOSUPPORT),
    ("socket", (-1, 1), EAFNOSUPPORT, EAFNOSUPPORT),
    *[("socket", (family, kind), EPROTONOSUPPORT, EPROTONOSUPPORT) for family in (2, 10) for kind in (3, 4, 5, 6, 10)],
    ("socket", (2, 3, 1), EPROTONOSUPPORT, EPROTONOSUPPORT),
    ("socket", (10, 3 | CLOEXEC, 58), EPROTONOSUPPORT, EPROTONOSUPPORT),
    ("socket", (2, 5, 132), EPROTONOSUPPORT, EPROTONOSUPPORT),
    ("socket", (2, 6, 33), EPROTONOSUPPORT, EPROTONOSUPPORT),
    ("socket", (2, 10, 0x300), EPROTONOSUPPORT, EPROTONOSUPPORT),
    ("socket", (2, 1, 132), EPROTONOSUPPORT, EPROTONOSUPPORT),
    ("socket", (10, 1, 132), EPROTONOSUPPORT, EPROTONOSUPPORT),
    ("socket", (2, 1, 256), EPROTONOSUPPORT, EPROTONOSUPPORT),
    ("socket", (2, 2, 1), EPROTONOSUPPORT, EPROTONOSUPPORT),
    ("socket", (2, 2, 115 | HIGH), EPROTONOSUPPORT, EPROTONOSUPPORT),
    ("socketpair", (1, 1), ALLOW, ALLOW),
    ("socketpair", (1, 1 | CLOEXEC | NONBLOCK), ALLOW, ALLOW),
    ("socketpair", (1, 5 | CLOEXEC), ALLOW, ALLOW),
    ("socketpair", (1, 2), ALLOW, EPERM),
    ("socketpair", (1, 2 | CLOEXEC | NONBLOCK), ALLOW, EPERM),
    ("socketpair", (1, 3), ALLOW, EPERM),
    ("socketpair", (1 | HIGH, 2 | HIGH), ALLOW, EPERM),
    ("socketpair", (2, 1), EAFNOSUPPORT, EAFNOSUPPORT),
    ("socketpair", (16, 3), EAFNOSUPPORT, EAFNOSUPPORT),
    ("socketpair", (30, 1), EAFNOSUPPORT, EAFNOSUPPORT),
]

FOREIGN = {"x86_64": 0x4000_0003, "aarch64": 0x4000_0028}
"""AUDIT_ARCH_I386 and AUDIT_ARCH_ARM: what a process of the machine reaches with 32-bit calls."""

in_every_filter = pytest.mark.parametrize(
    ("machine", "network"),
    [pytest.param(*key, marks=() if key[0] == platform.machine() else exhaustive) for key in FILTERS],
)
filters = st.sampled_from(list(FILTERS))
numbers = st.integers(0, 0xFFFF_FFFF)
words = st.integers(0, 0xFFFF_FFFF_FFFF_FFFF)
arguments_of = st.lists(words, min_size=6, max_size=6)


def ask(machine: str, network: bool, call: str | int, arguments: tuple[int, ...] = ()) -> Verdict:
    number = MACHINES[machine].numbers[call] if isinstance(call, str) else call
    return bpf.ask(FILTERS[machine, network], number, arguments, machine=MACHINES[machine].audit)


@in_every_filter
@pytest.mark.parametrize(
    ("call", "error"), [(call, error) for error, calls in ALWAYS.items() for call in calls.split()]
)
def test_a_dangerous_call_is_refused_whatever_its_arguments(machine: str, network: bool, call: str, error: int) -> None:
    if call in MACHINES[machine].numbers:
        assert ask(machine, network, call) == error
        assert ask(machine, network, call, (2**64 - 1,) * 6) == error
    else:
        assert machine == "aarch64" and call in "modify_ldt iopl ioperm uselib".split()


@in_every_filter
def test_an_ordinary_call_is_allowed(machine: str, network: bool) -> None:
    calls = ORDINARY[machine]
    assert {call: ask(machine, network, number) for call, number in calls.items()} == dict.fromkeys(calls, ALLOW)


@in_every_filter
@pytest.mark.parametrize(("call", "arguments", "online", "offline"), BY_ARGUMENT)
def test_some_calls_are_decided_by_their_arguments(
    machine: str, network: bool, call: str, arguments: tuple[int, ...], online: Verdict, offline: Verdict
) -> None:
    if call in MACHINES[machine].numbers:
        assert ask(machine, network, call, arguments) == (online if network else offline)
    else:
        assert (machine, call) == ("aarch64", "chmod")


def test_the_tables_here_speak_of_every_call_the_rules_name() -> None:
    here = {*" ".join(ALWAYS.values()).split(), *(call for call, *_ in BY_ARGUMENT)}
    assert here == {name for rule in rules(network=False) for name in rule.calls.split()}


@in_every_filter
def test_every_number_that_no_rule_names_is_allowed_up_to_the_last(machine: str, network: bool) -> None:
    named = set(MACHINES[machine].numbers.values())
    gap = MACHINES[machine].unassigned
    others = [number for number in range(LAST + 1) if number not in named and number not in gap]
    assert [number for number in others if ask(machine, network, number) != ALLOW] == []
    assert [number for number in gap if ask(machine, network, number) != ENOSYS] == []


@given(filters, st.integers(LAST + 1, 0xFFFF_FFFF), arguments_of)
def test_a_number_beyond_the_last_does_not_exist(which: tuple[str, bool], number: int, arguments: list[int]) -> None:
    assert ask(*which, number, tuple(arguments)) == ENOSYS


@given(st.booleans(), st.integers(0, 1023), arguments_of)
def test_no_number_of_the_x32_variant_exists(network: bool, number: int, arguments: list[int]) -> None:
    assert ask("x86_64", network, 0x4000_0000 | number, tuple(arguments)) == ENOSYS


@pytest.mark.parametrize("number", [*range(512, 548), 0x4000_0000 | 59, 0x4000_0000 | 520, 0xFFFF_FFFF])
def test_the_x32_numbers_with_a_history_do_not_exist(number: int) -> None:
    assert ask("x86_64", True, number) == ENOSYS


@given(filters, numbers, arguments_of, st.sampled_from([*FOREIGN.values(), 0, 62, 0xC000_003F]) | numbers)
def test_a_call_in_the_way_of_another_machine_kills(
    which: tuple[str, bool], number: int, arguments: list[int], machine: int
) -> None:
    verdict = bpf.ask(FILTERS[which], number, arguments, machine=machine)
    assert (verdict == KILL) == (machine != MACHINES[which[0]].audit)


@in_every_filter
def test_the_32_bit_way_of_the_same_processor_kills(machine: str, network: bool) -> None:
    assert bpf.ask(FILTERS[machine, network], 1, machine=FOREIGN[machine]) == KILL
    assert bpf.ask(FILTERS[machine, network], 1, machine=MACHINES[machine].audit) == ALLOW


@given(filters, st.data(), arguments_of, st.lists(st.integers(0, 0xFFFF_FFFF), min_size=6, max_size=6))
def test_the_upper_half_of_an_argument_changes_nothing(
    which: tuple[str, bool], data: st.DataObject, arguments: list[int], upper: list[int]
) -> None:
    number = data.draw(st.sampled_from(sorted(MACHINES[which[0]].numbers.values())) | st.integers(0, LAST))
    low = tuple(argument & 0xFFFF_FFFF for argument in arguments)
    mixed = tuple(half << 32 | argument for half, argument in zip(upper, low, strict=True))
    assert ask(*which, number, low) == ask(*which, number, mixed)


@given(st.sampled_from(list(MACHINES)), st.data(), arguments_of)
def test_without_network_nothing_is_allowed_that_is_refused_with_it(
    machine: str, data: st.DataObject, arguments: list[int]
) -> None:
    number = data.draw(st.sampled_from(sorted(MACHINES[machine].numbers.values())) | numbers)
    online = ask(machine, True, number, tuple(arguments))
    assert online == ALLOW or ask(machine, False, number, tuple(arguments)) == online


@given(filters, st.integers(0, 0x7F), st.integers(0, 0xFFFF_FFFF))
def test_clone_is_refused_exactly_when_a_namespace_is_asked_for(
    which: tuple[str, bool], signal: int, flags: int
) -> None:
    verdict = ask(*which, "clone", (flags & ~0xFF | signal,))
    assert verdict == (EPERM if flags & 0x7E02_0000 else ALLOW)


@given(st.sampled_from(list(MACHINES)), st.integers(0, 50) | words, words)
def test_without_network_the_only_pairs_are_connected_for_good(machine: str, family: int, kind: int) -> None:
    allowed = ask(machine, False, "socketpair", (family, kind)) == ALLOW
    assert allowed == (family & 0xFFFF_FFFF == 1 and kind & 0xF in (1, 5))


@in_every_filter
def test_a_call_without_conditions_is_decided_by_its_number_alone(machine: str, network: bool) -> None:
    """So the kernel can remember it as always allowed. Data without arguments shows whether one was looked at."""
    program = bpf.instructions(FILTERS[machine, network])
    judged = set(MACHINES[machine].numbers_of(" ".join(call for call, *_ in BY_ARGUMENT)))
    for number in range(LAST + 2):
        data = struct.pack("<IIQ", number, MACHINES[machine].audit, 0)
        if number in judged:
            with pytest.raises(struct.error):
                bpf.run(program, data)
        else:
            bpf.run(program, data)


def test_each_machine_has_its_own_filter_with_and_without_network() -> None:
    assert len(set(FILTERS.values())) == 4


# The assembler.


def run_with(code: bytes, number: int) -> int:
    return bpf.run(bpf.instructions(code), bpf.DATA.pack(number, 0, 0, *[0] * 6))


def test_a_program_begins_with_the_instruction_placed_last() -> None:
    assembler = Assembler()
    no, yes = assembler.verdict(7), assembler.verdict(8)
    assembler.load(0, assembler.branch(EQUAL, 42, yes, no))
    assert bpf.instructions(assembler.code()) == [(0x20, 0, 0, 0), (0x15, 0, 1, 42), (0x06, 0, 0, 8), (0x06, 0, 0, 7)]
    assert [run_with(assembler.code(), number) for number in (41, 42)] == [7, 8]


def test_a_mask_keeps_the_bits_it_names() -> None:
    assembler = Assembler()
    no, yes = assembler.verdict(0), assembler.verdict(1)
    assembler.load(0, assembler.mask(0xF0, assembler.branch(EQUAL, 0x20, yes, no)))
    assert [run_with(assembler.code(), number) for number in (0x20, 0x2F, 0xF20, 0x30)] == [1, 1, 1, 0]


def test_comparisons_are_unsigned() -> None:
    assembler = Assembler()
    no, yes = assembler.verdict(0), assembler.verdict(1)
    assembler.load(0, assembler.branch(AT_LEAST, 0x8000_0000, yes, no))
    assert [run_with(assembler.code(), number) for number in (0, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)] == [
        0,
        0,
        1,
        1,
    ]


def test_where_both_ways_are_one_nothing_is_asked() -> None:
    assembler = Assembler()
    only = assembler.verdict(3)
    assert assembler.branch(EQUAL, 42, only, only) == only
    assert len(bpf.instructions(assembler.code())) == 1


def test_a_step_can_lead_to_a_position_that_is_not_right_behind_it() -> None:
    assembler = Assembler()
    wanted = assembler.verdict(1)
    assembler.verdict(2)
    assembler.load(0, wanted)
    assert run_with(assembler.code(), 0) == 1


@pytest.mark.parametrize("between", [*range(MAX_DISTANCE - 3, MAX_DISTANCE + 4), 2 * MAX_DISTANCE])
def test_a_comparison_reaches_both_its_ways_however_far_they_are(between: int) -> None:
    assembler = Assembler()
    no, yes = assembler.verdict(0), assembler.verdict(1)
    for _ in range(between):
        assembler.verdict(2)
    assembler.load(0, assembler.branch(EQUAL, 42, yes, no))
    assert [run_with(assembler.code(), number) for number in (41, 42)] == [0, 1]


def test_a_near_way_takes_no_extra_jump() -> None:
    assembler = Assembler()
    no, yes = assembler.verdict(0), assembler.verdict(1)
    assembler.load(0, assembler.branch(EQUAL, 42, yes, no))
    assert JUMP not in [step[0] for step in bpf.instructions(assembler.code())]


@given(st.dictionaries(st.integers(0, 0xFFFF_FFFF), st.integers(1, 1000), max_size=700), st.data())
def test_a_chain_of_any_length_gives_the_values_of_a_dictionary(answers: dict[int, int], data: st.DataObject) -> None:
    assembler = Assembler()
    positions = {value: assembler.verdict(value) for value in {0, *answers.values()}}
    position = positions[0]
    for number, value in answers.items():
        position = assembler.branch(EQUAL, number, positions[value], position)
    assembler.load(0, position)
    number = data.draw(st.sampled_from([*answers, 5]) | st.integers(0, 0xFFFF_FFFF))
    assert run_with(assembler.code(), number) == answers.get(number, 0)


def test_a_program_longer_than_the_kernel_takes_is_refused() -> None:
    assembler = Assembler()
    for _ in range(MAX_INSTRUCTIONS):
        assembler.verdict(0)
    assert len(assembler.code()) == 8 * MAX_INSTRUCTIONS
    assembler.verdict(0)
    with pytest.raises(ValueError, match="4097 instructions"):
        assembler.code()
