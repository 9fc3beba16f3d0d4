"""Files that were not granted."""

from __future__ import annotations

import os
import shutil

from .tools import World, check, found, libc, opened_to_write, read, write


def read_shadow(world: World) -> None:
    """The machine's passwords."""
    read("/etc/shadow")


def read_users(world: World) -> str | None:
    """Who has an account on this machine."""
    return found("root:", read("/etc/passwd"))


def read_outside(world: World) -> str | None:
    """A file beside the granted folders that everybody may read."""
    return found(world["canary"], read(world["secret"]))


def read_by_dots(world: World) -> str | None:
    """The same, out of a granted folder by `..`."""
    return found(world["canary"], read(f"{world['written']}/../other/secret"))


def read_by_link(world: World) -> str | None:
    """The same, through a link planted in a granted folder."""
    link = f"{world['written']}/planted-{os.getpid()}"
    os.symlink(world["secret"], link)
    try:
        return found(world["canary"], read(link))
    finally:
        os.unlink(link)


def read_by_old_link(world: World) -> str | None:
    """The same, through a link that was in the package from the beginning."""
    return found(world["canary"], read(f"{world['package']}/link"))


def read_by_directory(world: World) -> str | None:
    """The same, relative to a descriptor of the top folder."""
    top = os.open("/", os.O_PATH)
    fd = os.open(world["secret"].lstrip("/"), os.O_RDONLY, dir_fd=top)
    return found(world["canary"], os.read(fd, 100))


def read_home(world: World) -> None:
    """What is in the home folder of the host's user."""
    os.listdir(world["home"])


def read_run(world: World) -> None:
    """Sockets and pid files of the machine's services."""
    os.listdir("/run")


def read_system(world: World) -> None:
    """The machine's devices and their settings."""
    os.listdir("/sys/kernel")


def read_neighbour(world: World) -> str | None:
    """The state folder of another plugin."""
    return found(world["canary"], read(f"{world['neighbour']}/diary"))


def list_around(world: World) -> str | None:
    """Names of what lies beside the package."""
    return found("other", " ".join(os.listdir(os.path.dirname(world["package"]))).encode())


def write_outside(world: World) -> None:
    """A file beside the granted folders."""
    write(world["secret"], "")


def make_outside(world: World) -> None:
    """A new file beside the granted folders."""
    path = f"{os.path.dirname(world['secret'])}/new-{os.getpid()}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.unlink(path)


def make_on_the_machine(world: World) -> str | None:
    """A file in /tmp, which the machine then has."""
    path = f"/tmp/{world['mark']}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    return None


def write_package(world: World) -> None:
    """The plugin's own code, to be something else at the next start."""
    opened_to_write(f"{world['package']}/probes/files.py")


def make_bytecode(world: World) -> None:
    """The same, through the folder where Python keeps compiled code."""
    path = f"{world['package']}/probes/__pycache__/planted-{os.getpid()}.pyc"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.unlink(path)


def swap_package(world: World) -> None:
    """The same, by giving the file another name."""
    path = f"{world['package']}/spare"
    os.rename(path, f"{path}-gone")
    os.rename(f"{path}-gone", path)


def chmod_package(world: World) -> None:
    os.chmod(f"{world['package']}/spare", 0o755)


def plant_set_user_program(world: World) -> None:
    """A program that runs as whoever owns it, for an accomplice outside."""
    path = f"{world['written']}/planted-{os.getpid()}"
    shutil.copy("/usr/bin/env", path)
    try:
        os.chmod(path, 0o4755)
    finally:
        os.unlink(path)


def plant_set_user_program_at_once(world: World) -> str | None:
    """The same by making it so; it loses the right with its first byte, in a sandbox or not."""
    path = f"{world['written']}/planted-{os.getpid()}"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o4755)
    os.write(fd, b"#!/bin/sh")
    mode = os.fstat(fd).st_mode
    os.unlink(path)
    return None if mode & 0o4000 else "lost"


def write_read_grant(world: World) -> None:
    """What may only be read."""
    opened_to_write(f"{world['readable']}/note")


def write_program(world: World) -> None:
    """A program of the machine, opened to be written."""
    opened_to_write("/usr/bin/env")


def hard_link_out(world: World) -> None:
    """A second name for a file that may only be read, in a folder that may be written."""
    new = f"{world['written']}/linked-{os.getpid()}"
    os.link(f"{world['readable']}/note", new)
    os.unlink(new)


def hard_link_by_descriptor(world: World) -> None:
    """The same, by an open file."""
    fd = os.open(f"{world['readable']}/note", os.O_RDONLY)
    new = f"{world['written']}/linked-{os.getpid()}"
    check(libc.linkat(-100, f"/proc/self/fd/{fd}".encode(), -100, new.encode(), 0x400))
    os.unlink(new)


def reopen_for_writing(world: World) -> None:
    """An open file of a read-only folder, opened once more by its number."""
    fd = os.open(f"{world['readable']}/note", os.O_RDONLY)
    opened_to_write(f"/proc/self/fd/{fd}")


def fill_root(world: World) -> None:
    """A new folder at the top."""
    os.mkdir(f"/{world['mark']}")
    os.rmdir(f"/{world['mark']}")


def fill_devices(world: World) -> None:
    """A file in /dev, which is memory without a bound."""
    path = f"/dev/{world['mark']}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.unlink(path)
