"""The numbers of the system calls that `rules.py` names, on each machine that has a filter.

A test compares them with the headers of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LAST = 462
"""`mseal`, Linux 6.10: the newest call that the rules take into account. Later ones, and on x86-64 the
numbers of the x32 variant (from 2**30 on, 512 to 547 on old kernels), do not exist for a confined process."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts of a processor that a filter needs."""

    audit: int
    """AUDIT_ARCH_*: the calling convention of a call. A 64-bit process can also use the 32-bit convention of its
    processor, which has other numbers."""
    numbers: Mapping[str, int]
    unassigned: range
    """A gap in the table, kept free so that calls from 424 on have the same number everywhere."""

    def numbers_of(self, names: str) -> Iterator[int]:
        """The numbers of these calls; a call that the machine does not have is skipped."""
        return (self.numbers[name] for name in names.split() if name in self.numbers)


_SAME_EVERYWHERE = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "set_mempolicy_home_node": 450,
    "fchmodat2": 452,
    "statmount": 457,
    "listmount": 458,
}

_X86_64 = {
    "ioctl": 16,
    "socket": 41,
    "socketpair": 53,
    "clone": 56,
    "fcntl": 72,
    "chmod": 90,
    "fchmod": 91,
    "ptrace": 101,
    "syslog": 103,
    "uselib": 134,
    "personality": 135,
    "vhangup": 153,
    "modify_ldt": 154,
    "pivot_root": 155,
    "prctl": 157,
    "adjtimex": 159,
    "chroot": 161,
    "acct": 163,
    "settimeofday": 164,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "sethostname": 170,
    "setdomainname": 171,
    "iopl": 172,
    "ioperm": 173,
    "init_module": 175,
    "delete_module": 176,
    "quotactl": 179,
    "io_setup": 206,
    "clock_settime": 227,
    "mbind": 237,
    "set_mempolicy": 238,
    "get_mempolicy": 239,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "migrate_pages": 256,
    "fchmodat": 268,
    "unshare": 272,
    "move_pages": 279,
    "perf_event_open": 298,
    "fanotify_init": 300,
    "name_to_handle_at": 303,
    "open_by_handle_at": 304,
    "clock_adjtime": 305,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "finit_module": 313,
    "kexec_file_load": 320,
    "bpf": 321,
    "userfaultfd": 323,
}

_AARCH64 = {
    "io_setup": 0,
    "fcntl": 25,
    "ioctl": 29,
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "chroot": 51,
    "fchmod": 52,
    "fchmodat": 53,
    "vhangup": 58,
    "quotactl": 60,
    "acct": 89,
    "personality": 92,
    "unshare": 97,
    "kexec_load": 104,
    "init_module": 105,
    "delete_module": 106,
    "clock_settime": 112,
    "syslog": 116,
    "ptrace": 117,
    "reboot": 142,
    "sethostname": 161,
    "setdomainname": 162,
    "prctl": 167,
    "settimeofday": 170,
    "adjtimex": 171,
    "socket": 198,
    "socketpair": 199,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "clone": 220,
    "swapon": 224,
    "swapoff": 225,
    "mbind": 235,
    "get_mempolicy": 236,
    "set_mempolicy": 237,
    "migrate_pages": 238,
    "move_pages": 239,
    "perf_event_open": 241,
    "fanotify_init": 262,
    "name_to_handle_at": 264,
    "open_by_handle_at": 265,
    "clock_adjtime": 266,
    "setns": 268,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "kcmp": 272,
    "finit_module": 273,
    "bpf": 280,
    "userfaultfd": 282,
    "kexec_file_load": 294,
}

MACHINES = {
    "x86_64": Machine(0xC000_003E, {**_X86_64, **_SAME_EVERYWHERE}, unassigned=range(337, 424)),
    "aarch64": Machine(0xC000_00B7, {**_AARCH64, **_SAME_EVERYWHERE}, unassigned=range(295, 424)),
}
"""By the names of `uname -m`."""
