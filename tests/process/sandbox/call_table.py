"""System calls to try for real: what the filter answers, and that without it the kernel answers something else.

Their arguments are such that nothing happens even where everything is allowed: bad addresses, unknown commands.
"""

from __future__ import annotations

import os
import platform
from typing import NamedTuple

from scripts.filters.rules import EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT
from scripts.filters.syscalls import LAST, MACHINES

NUMBERS = MACHINES[platform.machine()].numbers

BAD = 1
"""An address at which there is nothing; 0 has a meaning of its own for some calls."""
NONSENSE = 0xFFFF_FFFF
HIGH = 1 << 32
SIGCHLD = 17
CLOEXEC = 0x80000


class Call(NamedTuple):
    """One call and what it must end with under the filter."""

    name: str
    words: tuple[int | str, ...]
    error: int
    control: bool = True
    """Whether to make it without the filter, too. Not where it would do harm, or where kernels differ."""
    root: bool = False
    """Whether without the filter only root gets another answer."""

    @property
    def number(self) -> int:
        return int(self.name) if self.name.isdigit() else NUMBERS[self.name]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.words))})"


REFUSED = [
    Call("ptrace", (1, "pid"), EPERM),
    Call("process_vm_readv", ("pid", 0, 0, 0, 0, 0), EPERM),
    Call("process_vm_writev", ("pid", 0, 0, 0, 0, 0), EPERM),
    Call("pidfd_getfd", (-1, 0, 0), EPERM),
    Call("kcmp", ("pid", "pid", 99, 0, 0), EPERM),
    Call("unshare", (0,), EPERM),
    Call("unshare", (0x1000_0000,), EPERM),
    Call("setns", (-1, 0), EPERM),
    Call("clone", (SIGCHLD | 0x1000_0000, 0, 0, 0, 0), EPERM),
    Call("clone", (SIGCHLD | 0x1000_0000 | HIGH, 0, 0, 0, 0), EPERM),
    *[Call("clone", (SIGCHLD | flag, 0, 0, 0, 0), EPERM, root=True)
      for flag in (0x20000, 0x200_0000, 0x400_0000, 0x800_0000, 0x2000_0000, 0x4000_0000)],
    Call("clone3", (0, 0), ENOSYS),
    Call("mount", (0, 0, 0, 0, 0), EPERM),
    Call("umount2", (BAD, 0), EPERM, root=True),
    Call("pivot_root", (BAD, BAD), EPERM, root=True),
    Call("chroot", (BAD,), EPERM),
    Call("open_tree", (-1, BAD, 0), ENOSYS),
    Call("move_mount", (-1, BAD, -1, BAD, NONSENSE), ENOSYS),
    Call("fsopen", (BAD, 0), ENOSYS),
    Call("fsconfig", (-1, 99, 0, 0, 0), ENOSYS),
    Call("fsmount", (-1, 0, 0), ENOSYS),
    Call("fspick", (-1, BAD, 0), ENOSYS),
    Call("mount_setattr", (-1, BAD, 0, 0, 0), ENOSYS),
    Call("statmount", (BAD, BAD, 0, 0), ENOSYS),
    Call("listmount", (BAD, BAD, 0, 0), ENOSYS),
    Call("open_by_handle_at", (-1, BAD, 0), EPERM, root=True),
    Call("name_to_handle_at", (-1, BAD, BAD, BAD, NONSENSE), EPERM),
    Call("fchmod", (-1, 0o4755), EPERM),
    Call("fchmodat", (-1, BAD, 0o4755), EPERM),
    Call("fchmodat", (-1, BAD, 0o4755 | HIGH), EPERM),
    Call("fchmodat2", (-1, BAD, 0o4755, 0), EPERM),
    Call("fanotify_init", (NONSENSE, 0), EPERM, root=True),
    Call("quotactl", (NONSENSE, 0, 0, 0), EPERM),
    Call("fcntl", (-1, 1031, 4096), EPERM),
    Call("fcntl", (-1, 1031 | HIGH, 4096), EPERM),
    Call("quotactl_fd", (-1, NONSENSE, 0, 0), EPERM),
    Call("io_uring_setup", (1, BAD), ENOSYS),
    Call("io_uring_enter", (-1, 0, 0, NONSENSE, 0, 0), ENOSYS),
    Call("io_uring_register", (-1, 0, 0, 0), ENOSYS),
    Call("io_setup", (1, BAD), ENOSYS),
    Call("bpf", (9999, 0, 0), EPERM, root=True),
    Call("perf_event_open", (BAD, 0, 0, 0, 0), EPERM),
    Call("userfaultfd", (0xFFFF,), EPERM, root=True),
    Call("add_key", (BAD, 0, 0, 0, 0), EPERM),
    Call("keyctl", (9999,), EPERM),
    Call("request_key", (BAD, 0, 0, 0), EPERM),
    Call("mbind", (0, 0, 99, 0, 0, NONSENSE), EPERM),
    Call("get_mempolicy", (0, 0, 0, 0, 0), EPERM),
    Call("set_mempolicy", (0, 0, 0), EPERM),
    Call("set_mempolicy_home_node", (0, 0, NONSENSE, 1), EPERM),
    Call("migrate_pages", ("pid", 0, 0, 0), EPERM),
    Call("move_pages", (0, 0, 0, 0, 0, 0xFF), EPERM),
    Call("personality", (0x40000,), EPERM),
    Call("personality", (0x40000 | HIGH,), EPERM),
    Call("prctl", (35, 99, 0, 0, 1), EPERM),
    Call("prctl", (59, 0, 0, 0, 0), EPERM),
    Call("prctl", (62, 99, 0, 0, 0), EPERM),
    Call("ioctl", ("terminal", 0x5412, "buffer"), EPERM, root=True),
    Call("ioctl", ("terminal", 0x5412 | HIGH, "buffer"), EPERM, root=True),
    Call("ioctl", ("terminal", 0x541C, "buffer"), EPERM),
    Call("ioctl", ("terminal", 0x5423, "buffer"), EPERM),
    Call("vhangup", (), EPERM, control=False),
    Call("init_module", (0, 0, 0), EPERM, root=True),
    Call("finit_module", (-1, 0, 0), EPERM, root=True),
    Call("delete_module", (BAD, 0), EPERM, root=True),
    Call("kexec_load", (0, NONSENSE, 0, NONSENSE), EPERM, root=True),
    Call("kexec_file_load", (-1, -1, 0, 0, NONSENSE), EPERM, root=True),
    Call("reboot", (0, 0, 0, 0), EPERM, root=True),
    Call("swapon", (BAD, 0), EPERM, root=True),
    Call("swapoff", (BAD,), EPERM, root=True),
    Call("acct", (BAD,), EPERM, root=True),
    Call("syslog", (99, 0, 0), EPERM, root=True),
    Call("settimeofday", (BAD, 0), EPERM),
    Call("clock_settime", (9999, BAD), EPERM),
    Call("clock_adjtime", (9999, "buffer"), EPERM),
    Call("adjtimex", (BAD,), EPERM),
    Call("sethostname", (BAD, -1), EPERM, root=True),
    Call("setdomainname", (BAD, -1), EPERM, root=True),
    Call("socket", (16, 3, 0), EAFNOSUPPORT),
    Call("socket", (16 | HIGH, 3 | CLOEXEC, 0), EAFNOSUPPORT),
    Call("socket", (17, 3, 0), EAFNOSUPPORT, root=True),
    Call("socket", (38, 5, 0), EAFNOSUPPORT, control=False),
    Call("socket", (40, 1, 0), EAFNOSUPPORT, control=False),
    Call("socket", (2, 3, 1), EPROTONOSUPPORT, root=True),
    Call("socket", (2, 10, 0x300), EPROTONOSUPPORT, root=True),
    Call("socket", (2, 1, 132), EPROTONOSUPPORT, control=False),
    Call("socketpair", (16, 3, 0, "buffer"), EAFNOSUPPORT),
    Call("socketpair", (2, 1, 0, "buffer"), EAFNOSUPPORT),
    Call(str(LAST + 1), (), ENOSYS, control=False),
    Call(str(LAST + 99), (), ENOSYS, control=False),
]  # fmt: skip

REFUSED_ON_X86_64 = [
    Call("chmod", (BAD, 0o4755), EPERM),
    Call("modify_ldt", (0, "buffer", 0), EPERM),
    Call("iopl", (99,), EPERM),
    Call("ioperm", (0, 0, 0), EPERM),
    Call("uselib", (BAD,), EPERM),
    Call(str(0x4000_0000 | 39), (), ENOSYS, control=False),
    Call("520", (), ENOSYS, control=False),
]

REFUSED_OFFLINE = [
    Call("socket", (1, 1, 0), EAFNOSUPPORT),
    Call("socket", (1, 2 | CLOEXEC, 0), EAFNOSUPPORT),
    Call("socketpair", (1, 2, 0, "buffer"), EPERM),
    Call("socketpair", (1, 3 | CLOEXEC, 0, "buffer"), EPERM),
]

ALLOWED = [
    Call("clone", (SIGCHLD, 0, 0, 0, 0), 0),
    Call("personality", (NONSENSE,), 0),
    Call("prctl", (16, "buffer", 0, 0, 0), 0),
    Call("ioctl", ("terminal", 0x5413, "buffer"), 0),
    Call("socket", (2, 1, 0), 0),
    Call("socket", (2, 2 | CLOEXEC, 17), 0),
    Call("socket", (2 | HIGH, 1, 6), 0),
    Call("socketpair", (1, 1 | CLOEXEC, 0, "buffer"), 0),
    Call("socketpair", (1, 5, 0, "buffer"), 0),
]

EVERYWHERE = REFUSED + (REFUSED_ON_X86_64 if platform.machine() == "x86_64" else [])


def tells_apart(call: Call) -> bool:
    """Whether the call can be made without the filter and then ends otherwise."""
    return call.control and (os.geteuid() == 0 or not call.root)
