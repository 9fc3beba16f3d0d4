"""What the attacks share: system calls by number, and what there is to attack."""

from __future__ import annotations

import ctypes
import errno
import os
import platform

World = dict[str, str]
"""Where the secrets, sockets and processes are that an attack goes for; made by the driver."""

libc = ctypes.CDLL(None, use_errno=True)

X86 = platform.machine() == "x86_64"

NUMBERS = {
    "ptrace": (101, 117),
    "pivot_root": (155, 41),
    "clone": (56, 220),
    "adjtimex": (159, 171),
    "acct": (163, 89),
    "init_module": (175, 105),
    "swapoff": (168, 225),
    "syslog": (103, 116),
    "io_setup": (206, 0),
    "io_destroy": (207, 1),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "perf_event_open": (298, 241),
    "name_to_handle_at": (303, 264),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "pidfd_open": (434, 434),
    "clone3": (435, 435),
    "pidfd_getfd": (438, 438),
    "mount_setattr": (442, 442),
}
"""On x86-64 and on aarch64."""

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000


def check(result: int) -> int:
    """The result of a function of the C library; raises OSError."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """A system call. Raises OSError."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    return check(int(libc.syscall(ctypes.c_long(NUMBERS[name][not X86]), *words)))


def name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error))


def alone(*more: int) -> None:
    """What an attacker does first: become root of namespaces of its own. If it cannot, the attack goes on without.

    Without a sandbox this works for everybody, and keeps an attack that succeeds away from the machine.
    """
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | sum(more)) != 0:
        return
    for file, line in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        write(f"/proc/self/{file}", line)


def mount(source: str, target: str, kind: str, flags: int = 0) -> None:
    check(libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None))


def read(path: str, size: int = 4096) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read(size)


def write(path: str, text: str) -> None:
    with open(path, "r+b", buffering=0) as file:
        file.write(text.encode())


def opened_to_write(path: str) -> None:
    """Opens and writes nothing: where it succeeds, no harm is done."""
    os.close(os.open(path, os.O_WRONLY))


def found(secret: str, text: bytes) -> str | None:
    """Success when the secret is there."""
    return None if secret.encode() in text else "not there"
