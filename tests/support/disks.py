"""Disks that fail: files of a process that may not grow any more, and a disk that loses what was written to it."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def failing_disk(pid: int = 0, size: int = 0) -> Iterator[None]:
    """While it lasts, each write of the process beyond `size` bytes of a file fails with EFBIG.

    Unlike a full disk (ENOSPC), this is an input or output error to SQLite: `SQLITE_IOERR_WRITE`.
    """
    target = pid or os.getpid()
    soft, hard = resource.prlimit(target, resource.RLIMIT_FSIZE)
    resource.prlimit(target, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.prlimit(target, resource.RLIMIT_FSIZE, (soft, hard))


FORMAT = (
    'mount -t tmpfs -o size=32m none "$0/below" && truncate -s 256m "$0/below/image" && '
    'mkfs.ext4 -q -O ^has_journal "$0/below/image"'
)
MOUNT = 'mount -o loop "$0/below/image" "$0/disk"'


class LosingDisk:
    """A file system on a device that has less room than it promises, in a mount namespace of its own.

    Once the device is full, writes still succeed, into memory; they are lost, and fsync says so.
    """

    def __init__(self, folder: Path, holder: subprocess.Popen[bytes]) -> None:
        self._folder = folder
        self._filler = Path(f"/proc/{holder.pid}/root{folder}/below/filler")
        self.path = folder / "disk"
        self.inside = Path(f"/proc/{holder.pid}/root{self.path}")
        """The same path, from outside of the namespace."""
        self.around = ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt")
        """Words before a command that uses the disk."""

    @contextmanager
    def full(self) -> Iterator[None]:
        """While it lasts, the device takes no block that it does not have yet."""
        with open(self._filler, "wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 16)):
                    continue
            except OSError:
                pass
        yield
        self._filler.unlink()

    def remount(self) -> None:
        """Forget the memory: from now on the disk has the contents of its device. No process may use it."""
        script = f'umount "$0/disk" && {MOUNT}'
        subprocess.run([*self.around, "sh", "-c", script, str(self._folder)], check=True)


@contextmanager
def losing_disk(folder: Path) -> Iterator[LosingDisk]:
    """Needs root. Everything ends with the process that holds the namespace."""
    for name in ("below", "disk"):
        (folder / name).mkdir()
    script = f"{FORMAT} && {MOUNT} && echo ready && exec sleep infinity"
    command = ["unshare", "--mount", "sh", "-c", script, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
            yield LosingDisk(folder, holder)
        finally:
            holder.kill()
