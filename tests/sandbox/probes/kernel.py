"""What the kernel shows and takes through files: /proc, /sys, /dev."""

from __future__ import annotations

import os

from .tools import World, found, opened_to_write, read


def see_processes(world: World) -> str | None:
    """A process of the machine, by its number."""
    return None if os.path.exists(f"/proc/{world['pid']}/stat") else "not there"


def count_processes(world: World) -> str | None:
    """How much runs on this machine: more than the first process, the program and this attack."""
    seen = [name for name in os.listdir("/proc") if name.isdigit()]
    return None if len(seen) > 3 else " ".join(sorted(seen, key=int)[:2])


def read_environment(world: World) -> str | None:
    """What another process has in its environment."""
    return found(world["canary"], read(f"/proc/{world['pid']}/environ"))


def read_every_environment(world: World) -> str | None:
    """The same, of every process that can be seen."""
    seen = b""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            seen += read(f"/proc/{name}/environ", 65536)
        except OSError:
            continue
    return found(world["canary"], seen)


def read_arguments(world: World) -> str | None:
    """With which words another process was started."""
    return found(world["canary"], read(f"/proc/{world['pid']}/cmdline"))


def read_memory(world: World) -> None:
    os.close(os.open(f"/proc/{world['pid']}/mem", os.O_RDONLY))


def leave_by_root(world: World) -> None:
    """The file tree as another process sees it."""
    os.listdir(f"/proc/{world['pid']}/root/")


def leave_by_descriptor(world: World) -> None:
    """What another process has open."""
    os.listdir(f"/proc/{world['pid']}/fd")


def take_over_first_process(world: World) -> None:
    """The memory of the process on which one's end depends: inside process 1, which dies with the host; or the host."""
    os.close(os.open(f"/proc/{world['first']}/mem", os.O_RDWR))


def read_first_process(world: World) -> None:
    """Its environment, which is not the plugin's."""
    read(f"/proc/{world['first']}/environ")


def leave_by_first_process(world: World) -> None:
    """Its descriptors."""
    os.listdir(f"/proc/{world['first']}/fd")


def write_core_pattern(world: World) -> None:
    """The program that the kernel starts, as root and outside, when something crashes."""
    opened_to_write("/proc/sys/kernel/core_pattern")


def write_own_network_switch(world: World) -> None:
    """A switch of the network namespace, which is the plugin's own."""
    opened_to_write("/proc/sys/net/ipv4/ip_forward")


def read_kernel_log(world: World) -> None:
    os.close(os.open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK))


def read_kernel_timers(world: World) -> None:
    """Who waits for what, in the whole machine."""
    read("/proc/timer_list")


def read_kernel_symbols(world: World) -> None:
    """Where the kernel lies in memory; some machines tell everybody."""
    read("/proc/kallsyms")


def read_kernel_memory(world: World) -> None:
    """The machine's memory as a file. Not every kernel has it: then its devices show as much."""
    os.close(os.open("/proc/kcore" if os.path.exists("/proc/kcore") else "/dev/kmsg", os.O_RDONLY))


def press_keys(world: World) -> None:
    """Restart the machine by its emergency key. Not every kernel has it: then its settings of memory."""
    path = "/proc/sysrq-trigger"
    opened_to_write(path if os.path.exists(path) else "/proc/sys/vm/drop_caches")


def use_devices(world: World) -> str | None:
    """Devices other than the harmless ones."""
    harmless = "core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero".split()
    return None if set(os.listdir("/dev")) - set(harmless) else "none"


def open_console(world: World) -> None:
    os.close(os.open("/dev/console", os.O_WRONLY | os.O_NOCTTY))


def write_control_group(world: World) -> None:
    """A control group of one's own, without limits."""
    folder = f"/sys/fs/cgroup/pids/{world['mark']}" if os.path.isdir("/sys/fs/cgroup/pids") else "/sys/fs/cgroup/x"
    os.mkdir(folder)
    os.rmdir(folder)


def read_key_list(world: World) -> str | None:
    """Names of the keys that the host's user keeps in the kernel."""
    return found(world["key"], read("/proc/keys", 65536))
