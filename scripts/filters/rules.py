"""The rules of the system call filter: which call is refused, with which arguments, with which error, and why.

Calls without a rule are allowed; calls that are newer than these rules do not exist (`syscalls.LAST`). Namespaces and
missing capabilities forbid most of these calls a second time; the filter keeps a plugin away from the parts of the
kernel in which most holes were found.

The error decides whether programs continue. After ENOSYS libraries use an older call: without `clone3` glibc starts
threads with `clone`, without io_uring libuv uses epoll. EPERM is the answer of containers, which programs know.
A filter sees registers, never memory, so it can check no path, no address and no struct.
"""

from __future__ import annotations

from dataclasses import dataclass

EPERM, ENOSYS, EPROTONOSUPPORT, EAFNOSUPPORT = 1, 38, 93, 97
"""The numbers of Linux; the machine that builds a filter may have others."""

CLONE_NEW = 0x7E02_0000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. Not NEWTIME, 0x80: in `clone` the low byte is the
signal a child ends with."""

TIOCSTI = 0x5412
TIOCLINUX = 0x541C
TIOCSETD = 0x5423

AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10

SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET = 1, 2, 5
SOCK_TYPE = 0xF
"""The rest of the argument is SOCK_CLOEXEC and SOCK_NONBLOCK."""

IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_MPTCP = 0, 6, 17, 262

S_ISUID = 0o4000

F_SETPIPE_SZ = 1031

PR_SET_MM = 35
PR_SET_SYSCALL_USER_DISPATCH = 59
PR_SCHED_CORE = 62

PER_LINUX = 0
PER_QUERY = 0xFFFF_FFFF
"""Only returns the current value."""

ALL_BITS = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Check:
    """Whether `argument & mask` is one of the values, or with `outside` none of them.

    Only the lower 32 bits are checked. Every argument checked here is an int for the kernel, which drops the upper
    half: a filter that compared all 64 bits could be passed with a number the kernel then reads as the forbidden one
    (CVE-2019-10063).
    """

    argument: int
    values: tuple[int, ...]
    mask: int = ALL_BITS
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call, counted from 0; its methods make checks of it."""

    position: int
    mask: int = ALL_BITS

    def among(self, *values: int) -> Check:
        return Check(self.position, values, self.mask)

    def outside(self, *values: int) -> Check:
        return Check(self.position, values, self.mask, outside=True)

    def has_any(self, bits: int) -> Check:
        return Check(self.position, (0,), bits, outside=True)


@dataclass(frozen=True, slots=True)
class Rule:
    """These calls fail with this error if all checks hold."""

    calls: str
    """Names separated by spaces; a name that a machine does not have is skipped."""
    error: int
    reason: str
    checks: tuple[Check, ...] = ()


FAMILY, KIND, PROTOCOL = Argument(0), Argument(1, SOCK_TYPE), Argument(2)
"""The arguments of `socket` and `socketpair`."""

INTERNET = FAMILY.among(AF_INET, AF_INET6)

EVERYWHERE = (
    # Other processes
    Rule("ptrace", EPERM, "reads and steers another process; before Linux 4.8 also past the filter"),
    Rule("process_vm_readv process_vm_writev", EPERM, "the memory of another process"),
    Rule("pidfd_getfd", EPERM, "the open files of another process"),
    Rule("kcmp", EPERM, "tells how objects of the kernel lie in its memory"),
    # Namespaces: inside a new user namespace a process has every capability, and most kernel holes need just that
    Rule("unshare setns", EPERM, "another namespace"),
    Rule("clone", EPERM, "another namespace; threads and processes pass", (Argument(0).has_any(CLONE_NEW),)),
    Rule("clone3", ENOSYS, "its flags lie in memory, where a filter cannot look; glibc goes on with clone"),
    # The file tree
    Rule("mount umount2 pivot_root chroot", EPERM, "changes what is visible"),
    Rule("open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr", ENOSYS, "the same by newer calls"),
    Rule("statmount listmount", ENOSYS, "the table of mounts, by calls too new to be trusted; programs read /proc"),
    Rule("open_by_handle_at name_to_handle_at", EPERM, "opens files by number, past every folder on the way"),
    Rule(
        "chmod fchmod",
        EPERM,
        "a program that runs as its owner, for an accomplice outside: without root that is the host's own user; "
        "a file that is made with the bit loses it when the first byte is written",
        (Argument(1).has_any(S_ISUID),),
    ),
    Rule("fchmodat fchmodat2", EPERM, "the same by another name", (Argument(2).has_any(S_ISUID),)),
    Rule("fanotify_init", EPERM, "watches whole mounts; inotify stays"),
    Rule("quotactl quotactl_fd", EPERM, "disk quotas of the machine"),
    Rule(
        "fcntl",
        EPERM,
        "a larger pipe: the kernel counts the memory of pipes for each user, and without root that is the host's own; "
        "programs know the error from the kernel's limit",
        (Argument(1).among(F_SETPIPE_SZ),),
    ),
    # Large and fragile parts of the kernel
    Rule("io_uring_setup io_uring_enter io_uring_register", ENOSYS, "makes calls that no filter sees"),
    Rule("io_setup", ENOSYS, "one process can take every slot of the machine (fs.aio-max-nr); programs go on without"),
    Rule("bpf", EPERM, "programs inside the kernel"),
    Rule("perf_event_open", EPERM, "measures other processes; long list of holes"),
    Rule("userfaultfd", EPERM, "stops the kernel in the middle of a copy, which makes races certain"),
    Rule("add_key keyctl request_key", EPERM, "keys of the kernel; request_key starts a helper outside, as root"),
    Rule(
        "mbind get_mempolicy set_mempolicy set_mempolicy_home_node migrate_pages move_pages",
        EPERM,
        "placement of memory; libraries that ask take the default, as in containers",
    ),
    Rule("modify_ldt iopl ioperm", EPERM, "segments and ports of the processor; for emulators"),
    Rule("uselib", EPERM, "libraries in a format of 1991; most kernels are built without"),
    Rule(
        "personality",
        EPERM,
        "other systems' behaviour, no address randomisation",
        (Argument(0).outside(PER_LINUX, PER_QUERY),),
    ),
    Rule(
        "prctl",
        EPERM,
        "a false name for the process (SET_MM), calls turned into signals (for emulators), processor cores to itself",
        (Argument(0).among(PR_SET_MM, PR_SET_SYSCALL_USER_DISPATCH, PR_SCHED_CORE),),
    ),
    # Terminals
    Rule(
        "ioctl",
        EPERM,
        "types into a terminal (TIOCSTI), pastes on a console (TIOCLINUX), loads a line discipline (TIOCSETD)",
        (Argument(1).among(TIOCSTI, TIOCLINUX, TIOCSETD),),
    ),
    Rule("vhangup", EPERM, "takes a terminal from all other processes"),
    # The machine
    Rule("init_module finit_module delete_module", EPERM, "kernel modules"),
    Rule("kexec_load kexec_file_load reboot", EPERM, "another kernel, or none"),
    Rule("swapon swapoff acct", EPERM, "swap space and the log of processes"),
    Rule("syslog", EPERM, "the kernel's log, with addresses in it"),
    Rule("settimeofday clock_settime clock_adjtime adjtimex", EPERM, "the clock of the machine"),
    Rule("sethostname setdomainname", EPERM, "the name of the machine"),
)

SOCKETS = (
    Rule(
        "socket",
        EAFNOSUPPORT,
        "families that plugins do not need, each a kernel module: netlink, packet, vsock, alg, bluetooth; "
        "getaddrinfo goes on without netlink, listing interfaces does not",
        (FAMILY.outside(AF_UNIX, AF_INET, AF_INET6),),
    ),
    Rule(
        "socket",
        EPROTONOSUPPORT,
        "raw sockets, DCCP; AF_INET with SOCK_PACKET, which the kernel turns into the family packet",
        (INTERNET, KIND.outside(SOCK_STREAM, SOCK_DGRAM)),
    ),
    Rule(
        "socket",
        EPROTONOSUPPORT,
        "SCTP, L2TP, SMC and other modules; multipath TCP stays, for Go listens with it",
        (INTERNET, PROTOCOL.outside(IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_MPTCP)),
    ),
    Rule(
        "socketpair",
        EAFNOSUPPORT,
        "a pair of any other family loads its module, then fails",
        (FAMILY.outside(AF_UNIX),),
    ),
)

OFFLINE = (
    Rule(
        "socket",
        EAFNOSUPPORT,
        "a named socket in a visible folder is a way out, and a filter cannot see which one is meant; "
        "costs Python's forkserver and Manager, which listen on one: spawn stays",
        (FAMILY.among(AF_UNIX),),
    ),
    Rule(
        "socketpair",
        EPERM,
        "a datagram end (SOCK_RAW is another name for one) can be connected again, to any named socket; "
        "stream pairs cannot, and asyncio, multiprocessing and node need them",
        (KIND.outside(SOCK_STREAM, SOCK_SEQPACKET),),
    ),
)


def rules(*, network: bool) -> tuple[Rule, ...]:
    """The rules for a plugin with or without network. The first rule of a call that applies decides."""
    return (*EVERYWHERE, *SOCKETS) if network else (*EVERYWHERE, *SOCKETS, *OFFLINE)
