"""Other processes. Without a sandbox the target is a process of the same user, or the attacker is root."""

from __future__ import annotations

import ctypes
import os
import signal

from .tools import CLONE_NEWUTS, World, alone, call, check, libc


def _pidfd(world: World) -> int:
    return call("pidfd_open", int(world["pid"]), 0)


def signal_process(world: World) -> None:
    """Signal 0 asks whether one may; what one may with it, one may with SIGKILL."""
    os.kill(int(world["pid"]), 0)


def signal_host(world: World) -> None:
    """The host that started this."""
    os.kill(int(world["host"]), 0)


def signal_group_of_host(world: World) -> None:
    os.killpg(int(world["group"]), 0)


def stop_by_handle(world: World) -> None:
    """A handle of another process."""
    os.close(_pidfd(world))


def trace(world: World) -> None:
    """PTRACE_SEIZE: steer another process."""
    call("ptrace", 0x4206, int(world["pid"]), 0, 0)


def trace_own_child(world: World) -> None:
    """The same with a child of one's own; before Linux 4.8 a way past the filter."""
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        call("ptrace", 0x4206, child, 0, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def read_memory(world: World) -> None:
    """process_vm_readv"""
    _vector("process_vm_readv", int(world["pid"]))


def read_memory_of_parent(world: World) -> None:
    """The same, of a process that is there inside too."""
    _vector("process_vm_readv", os.getppid())


def write_memory_of_parent(world: World) -> None:
    """process_vm_writev"""
    _vector("process_vm_writev", os.getppid())


def _vector(name: str, pid: int) -> None:
    """Move no byte: the right to is checked all the same."""
    place = ctypes.create_string_buffer(16)
    call(name, pid, place, 1, place, 1, 0)


def take_descriptor(world: World) -> None:
    """pidfd_getfd, from a process that can be seen everywhere: the parent."""
    call("pidfd_getfd", call("pidfd_open", os.getppid(), 0), 1, 0)


def compare(world: World) -> None:
    """kcmp: how the objects of two processes lie in the kernel."""
    call("kcmp", os.getpid(), os.getppid(), 0, 1, 1)


def lower_priority_of_others(world: World) -> None:
    os.setpriority(os.PRIO_PROCESS, int(world["pid"]), 10)


def enter_namespace(world: World) -> None:
    """The network of another process."""
    check(libc.setns(os.open(f"/proc/{world['pid']}/ns/net", os.O_RDONLY), 0))


def enter_own_namespace(world: World) -> None:
    """setns at all: to where one is already, which needs rights in a user namespace of one's own."""
    alone(CLONE_NEWUTS)
    check(libc.setns(os.open("/proc/self/ns/uts", os.O_RDONLY), 0))
