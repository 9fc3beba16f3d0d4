"""Attacks on what the host does before anything is confined: folders that are not what was granted, words that look
like options. Nothing of this runs inside: each either keeps a program from being started, or shows in what it can read.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from plugbay.process.command import LaunchFailed, SandboxUnavailable
from plugbay.process.sandbox.policy import Policy

AT_FDCWD, RENAME_EXCHANGE = -100, 2
STARTS = 12
"""Under a racer; each is some 30 exchanges."""

_libc = ctypes.CDLL(None, use_errno=True)

Say = Callable[..., Awaitable[str]]
"""Run a command under a policy, or under none, and return what it writes."""


class World(Protocol):
    root: Path
    package: Path
    canary: str

    def policy(self) -> Policy: ...


class Grants:
    """One method for each attack; `confined` decides whether a policy stands between."""

    def __init__(self, world: World, say: Say, confined: bool) -> None:
        self._world = world
        self._say = say
        self._confined = confined
        self._room = Path(world.root, "room-confined" if confined else "room-free")
        self._room.mkdir()

    async def run(self) -> dict[str, str]:
        attacks = {name: attack for name, attack in vars(Grants).items() if name[0] != "_" and name != "run"}
        return {name: await attack(self) for name, attack in attacks.items()}

    async def linked_folder(self) -> str:
        """A granted folder that is a link."""
        link = self._link("link", self._world.root / "other")
        return await self._read(link / "secret", read=(link,))

    async def link_above_forbidden(self) -> str:
        """A way that leads through a link to where nobody may look."""
        return await self._read(Path("/etc/passwd"), read=(self._link("way", Path("/etc")) / "ssl",), secret="root:")

    async def linked_state(self) -> str:
        """A plugin that leaves a link in place of its state folder."""
        link = self._link("state", self._world.root / "other")
        return await self._read(link / "secret", state=link)

    async def forbidden_by_dots(self) -> str:
        """A forbidden file by a way that begins in a harmless folder."""
        return await self._read(Path("/etc/passwd"), read=(self._room / "../../../etc",), secret="root:")

    async def everything(self) -> str:
        return await self._read(Path("/etc/passwd"), read=(Path("/"),), secret="root:")

    async def replaced_at_restart(self) -> str:
        """A folder within a granted one, which the plugin makes a link before it is started again."""
        inner = self._world.root / "written" / f"inner-{self._confined}"
        inner.mkdir()
        policy = self._world.policy() if self._confined else None
        os.chown(inner, *(os.stat(inner.parent).st_uid,) * 2)
        script = f"rmdir {inner} && ln -s {self._world.root}/other {inner} && echo done"
        assert await self._say("/bin/sh", "-c", script, policy=policy) == "done\n"
        return await self._read(inner / "secret", read=(inner,))

    async def swapped_while_starting(self) -> str:
        """A granted folder that somebody exchanges for a link all the time."""
        granted = self._room / "granted"
        granted.mkdir()
        (granted / "secret").write_text("harmless")
        with _racing(granted, self._link("other", self._world.root / "other")):
            seen = [await self._read(granted / "secret", read=(granted,)) for _ in range(STARTS)]
        return "ok" if "ok" in seen else "never"

    async def words_like_options(self) -> str:
        """Arguments, variables and folders that would open everything if they were taken for options."""
        folder = self._room / "--bind / \n --ro-bind"
        folder.mkdir(parents=True)
        secret = str(self._world.root / "other" / "secret")
        words = ("/bin/cat", secret, "--bind", "/", "/", "--args", "3")
        env = {"--bind": "/ /", "X": "\n--bind\n/\n/", "BWRAP_ARGS": "--bind / /"}
        policy = replace(self._world.policy(), read=(folder,)) if self._confined else None
        said = await self._say(*words[: None if self._confined else 2], policy=policy, env=env, cwd=folder)
        return "ok" if self._world.canary in said else "not there"

    async def _read(self, path: Path, *, secret: str = "", **grants: object) -> str:
        """`ok` when a program that was granted this can read the secret."""
        policy = replace(self._world.policy(), **grants) if self._confined else None  # type: ignore[arg-type]
        try:
            said = await self._say("/bin/cat", str(path), policy=policy)
        except SandboxUnavailable as error:
            assert error.hint
            return "refused"
        except LaunchFailed as error:
            return error.message
        return "ok" if (secret or self._world.canary) in said else "not there"

    def _link(self, name: str, target: Path) -> Path:
        link = self._room / name
        link.symlink_to(target)
        return link


@contextmanager
def _racing(one: Path, other: Path) -> Iterator[None]:
    """Exchange two names as fast as possible."""
    done = threading.Event()
    names = (AT_FDCWD, bytes(one), AT_FDCWD, bytes(other), RENAME_EXCHANGE)

    def race() -> None:
        while not done.wait(0.0005):
            _libc.renameat2(*names)

    thread = threading.Thread(target=race)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
