"""More rights than were given: namespaces, mounts, capabilities, other users."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import subprocess

from .tools import (
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    World,
    alone,
    call,
    check,
    found,
    libc,
    mount,
    read,
)

MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096


def unshare_user(world: World) -> None:
    """Be root of a user namespace of one's own, from where most holes of the kernel are reached."""
    check(libc.unshare(CLONE_NEWUSER))


def clone_user(world: World) -> None:
    """The same by clone."""
    _cloned(call("clone", CLONE_NEWUSER | 17, 0, 0, 0, 0))


def clone_user_by_struct(world: World) -> None:
    """The same by clone3, whose flags no filter can see."""
    _cloned(
        call("clone3", ctypes.create_string_buffer(struct.pack("QQQQQQQQ", CLONE_NEWUSER, 0, 0, 0, 17, 0, 0, 0)), 64)
    )


def _cloned(child: int) -> None:
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def unshare_network(world: World) -> None:
    alone(CLONE_NEWNET)
    check(libc.unshare(CLONE_NEWNET))


def unshare_others(world: World) -> None:
    alone()
    check(libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWCGROUP | CLONE_NEWPID))


def nested_bubblewrap(world: World) -> str | None:
    """The sandbox's own tool, to make another view of the files."""
    words = ["bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/lib", "/lib"]
    words += ["--proc", "/proc", "/usr/bin/true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.partition(",")[0]


def mount_memory(world: World) -> None:
    """A new file system."""
    alone()
    mount("none", world["written"], "tmpfs")


def mount_processes(world: World) -> None:
    """/proc once more, without what covers parts of it."""
    alone(CLONE_NEWPID)
    child = os.fork()
    if child == 0:
        try:
            mount("none", world["written"], "proc")
        except OSError as error:
            os._exit(error.errno or 255)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, "")


def mount_control_groups(world: World) -> None:
    alone(CLONE_NEWCGROUP)
    mount("none", world["written"], "cgroup2")


def bind_elsewhere(world: World) -> None:
    """What is shown, under another name and without its flags."""
    alone()
    mount(world["readable"], world["written"], "", MS_BIND)


def remount_writable(world: World) -> None:
    """What may be read, to be written."""
    alone()
    mount(world["readable"], world["readable"], "", MS_BIND)
    mount("none", world["readable"], "", MS_BIND | MS_REMOUNT)


def unmount(world: World) -> None:
    """What covers something else."""
    alone()
    libc.mount(b"none", world["written"].encode(), b"tmpfs", ctypes.c_ulong(0), None)
    check(libc.umount2(world["written"].encode(), 2))


def uncover_switches(world: World) -> None:
    """The read-only cover of /proc/sys, taken away; outside there is none, so one is made first."""
    alone()
    libc.mount(b"/proc/sys", b"/proc/sys", None, ctypes.c_ulong(MS_BIND), None)
    check(libc.umount2(b"/proc/sys", 2))


def open_tree(world: World) -> None:
    """A mount by the newer calls: OPEN_TREE_CLONE."""
    alone()
    call("open_tree", -100, world["readable"].encode() + b"\0", 1)


def new_file_system(world: World) -> None:
    alone()
    call("fsopen", b"tmpfs\0", 0)


def writable_by_attribute(world: World) -> None:
    """mount_setattr: take the read-only flag away."""
    alone()
    libc.mount(world["readable"].encode(), world["readable"].encode(), None, ctypes.c_ulong(MS_BIND), None)
    call("mount_setattr", -100, world["readable"].encode() + b"\0", 0, struct.pack("QQQQ", 0, MS_RDONLY, 0, 0), 32)


def pivot(world: World) -> None:
    """Another root folder."""
    alone()
    libc.mount(b"none", b"/", None, ctypes.c_ulong(16384 | 1 << 18), None)
    libc.mount(b"none", world["written"].encode(), b"tmpfs", ctypes.c_ulong(0), None)
    os.chdir(world["written"])
    call("pivot_root", b".\0", b".\0")


def change_root(world: World) -> None:
    alone()
    os.chroot(world["written"])


def capabilities(world: World) -> str | None:
    """Rights of root that are left, or that could come back."""
    alone()
    sets = [line.split()[1] for line in read("/proc/self/status", 65536).split(b"\n") if line.startswith(b"Cap")]
    return None if any(int(each, 16) for each in sets) else "none"


def set_user_program(world: World) -> str | None:
    """A program that runs as its owner, root: as whom does it run?"""
    if os.getuid() == 0:
        os.setresgid(12345, 12345, 12345)
        os.setresuid(12345, 12345, 12345)
    with subprocess.Popen(["/usr/bin/passwd"], stdin=subprocess.PIPE, stdout=-1, stderr=-1) as program:
        for _ in range(500):  # exec closes the pipe that Popen waits for a little before it changes the user
            said = read(f"/proc/{program.pid}/status", 65536)
            users = next(line.split() for line in said.split(b"\n") if line.startswith(b"Uid"))
            if users[2] == b"0":
                break
            os.sched_yield()
        program.kill()
    return None if users[2] == b"0" else f"effective user {users[2].decode()}"


def become_root(world: World) -> None:
    alone()
    os.setresuid(0, 0, 0)


def become_somebody(world: World) -> None:
    """Another plugin's user."""
    os.setresuid(2_000_000_001, 2_000_000_001, 2_000_000_001)


def join_groups(world: World) -> None:
    os.setgroups([0, 6])


def make_device(world: World) -> None:
    """A disk under a name of one's own."""
    path = f"{world['written']}/disk-{os.getpid()}"
    os.mknod(path, 0o060600, os.makedev(254, 0))
    os.unlink(path)


def give_away(world: World) -> None:
    """A file that belongs to root, with its right to be run as root."""
    path = f"{world['written']}/given-{os.getpid()}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o755))
    try:
        os.chown(path, 0, 0)
    finally:
        os.unlink(path)


def raise_limits(world: World) -> str | None:
    """More open files than were given."""
    return _raised(resource.RLIMIT_NOFILE, 4097)


def raise_file_size(world: World) -> str | None:
    return _raised(resource.RLIMIT_FSIZE, 1 << 40)


def dump_core(world: World) -> str | None:
    """Leave one's memory on the disk."""
    return _raised(resource.RLIMIT_CORE, 1)


def _raised(kind: int, value: int) -> str | None:
    """One more than is allowed by default; without limits of ours the machine's own allow it."""
    try:
        resource.setrlimit(kind, (value, max(value, resource.getrlimit(kind)[1])))
    except ValueError as error:
        return str(error)
    return None


def drop_promise(world: World) -> str | None:
    """The promise to get no new rights by running a program; it cannot be taken back, only be missing."""
    return found("NoNewPrivs:\t0", read("/proc/self/status", 65536))


def run_ahead(world: World) -> None:
    """Priority over everything else."""
    os.setpriority(os.PRIO_PROCESS, 0, -10)


def real_time(world: World) -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
