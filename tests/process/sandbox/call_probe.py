"""A program that makes system calls by number and says how each ended; under a filter, if it is given one.

    python -I -S call_probe.py [FILTER] <calls.json

A call is [number, arguments]; an argument is a number or the name of something only this process has. Each call is made
in a child of its own, so none disturbs the next: what comes back is its error, or 0, or -N when signal N killed it.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import pty
import sys
from pathlib import Path

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
PR_SET_NO_NEW_PRIVS = 38

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long


class Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def load(code: bytes) -> None:
    """Put this process, and all it will start, under a filter, for good."""
    program = Program(len(code) // 8, code)
    if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    if LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_SECCOMP")


def outcome(number: int, arguments: list[int]) -> int:
    """The error of one call."""
    child = os.fork()
    if child == 0:
        result = LIBC.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
        # A call that starts a process returns here twice; the second time with 0, like success.
        os._exit(ctypes.get_errno() if result == -1 else 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def call_as_32_bit(number: int) -> int:
    """Make a call in the way of 32-bit x86 programs, which a 64-bit process can do at any time."""
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # push rbx; mov eax, number; int 0x80; pop rbx; ret
    page.write(b"\x53\xb8" + number.to_bytes(4, "little") + b"\xcd\x80\x5b\xc3")
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    return int(function())


def main() -> None:
    if len(sys.argv) > 1:
        load(Path(sys.argv[1]).read_bytes())
    buffer = ctypes.create_string_buffer(4096)
    own = {"buffer": ctypes.addressof(buffer), "pid": os.getpid(), "terminal": pty.openpty()[1]}
    calls = json.load(sys.stdin)
    if calls == "32 bit":
        json.dump(call_as_32_bit(20) == os.getpid(), sys.stdout)  # 20 is getpid there, and writev here
    else:
        json.dump([outcome(number, [own.get(word, word) for word in words]) for number, words in calls], sys.stdout)


if __name__ == "__main__":
    main()
