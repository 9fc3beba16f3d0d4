"""Parts of the kernel that a plugin has no business with."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import socket
import struct

from .tools import CLONE_NEWNET, CLONE_NEWUTS, X86, World, alone, call, check, found, libc


def ring(world: World) -> None:
    """io_uring, which does calls that no filter sees."""
    call("io_uring_setup", 1, ctypes.create_string_buffer(120))


def asynchronous_files(world: World) -> None:
    """io_setup: a slot of those that the whole machine shares."""
    context = ctypes.create_string_buffer(8)
    call("io_setup", 1, context)
    call("io_destroy", *struct.unpack("Q", context))


def netlink(world: World) -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()


def netlink_pair(world: World) -> str | None:
    """A family by the other call; no kernel makes such a pair, so only which error comes tells that it was asked."""
    try:
        socket.socketpair(socket.AF_NETLINK, socket.SOCK_RAW)
    except OSError as error:
        return None if error.errno == errno.EOPNOTSUPP else errno.errorcode[error.errno or 0]
    return None


def packets(world: World) -> None:
    """All that goes over the wire; the network may be one's own."""
    alone(CLONE_NEWNET)
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()


def packets_old_style(world: World) -> None:
    """The same, by a name that the kernel turns into it."""
    alone(CLONE_NEWNET)
    socket.socket(socket.AF_INET, 10, 0).close()


def raw_socket(world: World) -> None:
    alone(CLONE_NEWNET)
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


def virtual_machine_socket(world: World) -> None:
    """The machine that this one runs in."""
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()


def odd_families(world: World) -> str | None:
    """AF_ALG and the rest: does any family beside the usual answer for itself?"""
    usual = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_VSOCK)
    for family in sorted(set(range(1, 46)) - set(usual)):
        try:
            socket.socket(family, socket.SOCK_SEQPACKET).close()
        except OSError as error:
            if error.errno == errno.EAFNOSUPPORT:
                continue
        return None
    return "EAFNOSUPPORT"


def keys(world: World) -> None:
    """KEYCTL_GET_KEYRING_ID of the session: keys of whoever started the host."""
    call("keyctl", 0, -3, 1)


def new_key(world: World) -> None:
    call("add_key", b"user\0", b"escape\0", b"x", 1, -2)


def requested_key(world: World) -> str | None:
    """request_key starts a helper outside, as root, for a key that is not there."""
    try:
        call("request_key", b"user\0", b"no such key of plugbay\0", None, 0)
    except OSError as error:
        if error.errno != errno.ENOKEY:  # it was looked for
            raise
    return None


def kernel_program(world: World) -> None:
    """bpf: make a map."""
    call("bpf", 0, ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 4, 1).ljust(128, b"\0")), 128)


def page_faults(world: World) -> None:
    """userfaultfd, for user pages only: what everybody may."""
    call("userfaultfd", 1)


def measurements(world: World) -> None:
    """perf_event_open: a software clock of this very process."""
    event = struct.pack("IIQ", 1, 128, 0).ljust(24, b"\0") + struct.pack("QQ", 0, 0) + struct.pack("Q", 0x61)
    call("perf_event_open", ctypes.create_string_buffer(event.ljust(128, b"\0")), 0, -1, -1, 0)


def file_handles(world: World) -> None:
    """name_to_handle_at: numbers of files, with which they can be opened past every folder on the way."""
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0).ljust(136, b"\0"))
    call("name_to_handle_at", -100, b"/\0", handle, ctypes.create_string_buffer(8), 0)


def grow_pipe(world: World) -> None:
    """A larger pipe: the kernel counts the memory of pipes for each user."""
    fcntl.fcntl(os.pipe()[0], fcntl.F_SETPIPE_SZ, 131072)


def watch_everything(world: World) -> None:
    """fanotify: reports of all that is done with files."""
    check(libc.fanotify_init(0x200, 0))


def clock(world: World) -> None:
    """The time of everybody: the length of a tick is set to what it is."""
    state = ctypes.create_string_buffer(208)
    call("adjtimex", state)
    struct.pack_into("I", state, 0, 0x4000)
    call("adjtimex", state)


def machine_name(world: World) -> str | None:
    alone(CLONE_NEWUTS)
    socket.sethostname("stolen")
    return found("stolen", os.uname().nodename.encode())


def other_personality(world: World) -> None:
    """Addresses without randomness."""
    check(libc.personality(0x0040000))


if X86:

    def old_calls(world: World) -> str | None:
        """Calls by the numbers of 32-bit programs, which a filter for this machine reads wrongly."""
        code = bytes.fromhex("b814000000 cd80 c3".replace(" ", ""))  # mov eax, 20 (getpid); int 0x80; ret
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        result = int(function())
        return None if result == os.getpid() else str(result)


def kernel_log(world: World) -> None:
    """The last words of the kernel: how long they are."""
    call("syslog", 10, None, 0)


def memory_placement(world: World) -> None:
    """set_mempolicy to what it is."""
    check(libc.syscall(ctypes.c_long(238 if X86 else 237), 0, None, 0))
