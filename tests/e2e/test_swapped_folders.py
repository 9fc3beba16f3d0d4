"""Folders that another process swaps while a plugin starts: it runs from the folder that was checked, or not at all."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plugbay.host.disk import release
from plugbay.process.child import Spawner
from plugbay.process.command import Launch, LaunchFailed
from plugbay.process.sandbox.policy import Policy
from tests.process.helpers import open_spawner, read_until
from tests.support.loops import Run
from tests.support.patience import PATIENCE
from tests.support.tiers import first_alone

GOOD, EVIL, SECRET = "good", "evil", "secret"

RACER = """
import ctypes, os, sys
exchange = ctypes.CDLL(None).renameat2
one, other = map(os.fsencode, sys.argv[1:])
print("racing", flush=True)
while True:
    assert exchange(-100, one, -100, other, 2) == 0  # RENAME_EXCHANGE: there is no moment without a folder
"""

PROGRAM = '#!/bin/sh\ncat word\necho x >>"$1/kept" 2>/dev/null\n'


class Yard:
    """A plugin's folder, its state, and folders that an attacker would like to see in their places."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.chmod(0o755)
        self.package = self._folder("package", GOOD)
        self.other = self._folder("other", EVIL)
        self.secret = self._folder("secret", SECRET)
        self.state = root / "state"
        names = ("run", "word")
        hashes = {name: hashlib.sha256((self.package / name).read_bytes()).hexdigest() for name in names}
        (root / release.LIST).write_bytes(release.format_list(hashes))

    def _folder(self, name: str, word: str) -> Path:
        folder = self.root / name
        folder.mkdir(mode=0o755)
        (folder / "word").write_text(word)
        (folder / "run").write_text(PROGRAM)
        (folder / "run").chmod(0o755)
        return folder

    def link(self, name: str) -> Path:
        """A link to the secret folder."""
        link = self.root / name
        link.symlink_to(self.secret)
        return link

    def launch(self, *, checked: bool) -> Launch:
        policy = Policy(self.package, state=self.state)
        verify = functools.partial(release.verify, self.package) if checked else None
        argv = (str(self.package / "run"), str(self.state))
        return Launch(argv, self.package, {"PATH": "/usr/bin:/bin"}, label="yard", policy=policy, verify=verify)


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


@contextmanager
def racing(one: Path, other: Path) -> Iterator[None]:
    """The two names change places, as fast as a process can do it."""
    argv = [sys.executable, "-c", RACER, str(one), str(other)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as racer:
        try:
            assert racer.stdout is not None and racer.stdout.readline() == b"racing\n"
            yield
        finally:
            racer.kill()


async def run_once(spawner: Spawner, launch: Launch) -> str:
    """What the program said; empty: it was not started, or found nothing where it looked."""
    try:
        child = await spawner.spawn(launch, PATIENCE)
    except LaunchFailed:
        return ""
    stdout, stdin = child.take_pipes()
    os.close(stdin)
    said = await read_until(stdout, b"\0never\0")
    os.close(stdout)
    await child.wait(PATIENCE)
    child.close()
    return said.decode()


@pytest.mark.parametrize("rounds", first_alone([15, 300]))
def test_a_folder_that_is_swapped_for_a_link_is_never_followed(run: Run, yard: Yard, rounds: int) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            with racing(yard.package, yard.link("link")):
                said = {await run_once(spawner, yard.launch(checked=False)) for _ in range(rounds)}
        assert said <= {GOOD, ""}

    run(main)


@pytest.mark.parametrize("rounds", first_alone([15, 300]))
def test_a_state_folder_that_is_swapped_for_a_link_is_never_followed(run: Run, yard: Yard, rounds: int) -> None:
    yard.secret.chmod(0o777)

    async def main() -> None:
        async with open_spawner() as spawner:
            assert await run_once(spawner, yard.launch(checked=False)) == GOOD  # makes the folder
            with racing(yard.state, yard.link("link")):
                for _ in range(rounds):
                    assert await run_once(spawner, yard.launch(checked=False)) in (GOOD, "")
        assert sorted(os.listdir(yard.secret)) == ["run", "word"]

    run(main)


@pytest.mark.parametrize("rounds", first_alone([15, 300]))
def test_a_release_that_is_swapped_for_another_folder_runs_as_it_was_checked_or_not_at_all(
    run: Run, yard: Yard, rounds: int
) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            with racing(yard.package, yard.other):
                said = {await run_once(spawner, yard.launch(checked=True)) for _ in range(rounds)}
        assert said <= {GOOD, ""}
        assert rounds < 300 or GOOD in said, "the race was never won, so nothing was tried"

    run(main)


def test_without_the_check_the_other_folder_runs(run: Run, yard: Yard) -> None:
    """The positive control."""

    async def main() -> None:
        async with open_spawner() as spawner:
            with racing(yard.package, yard.other):
                while await run_once(spawner, yard.launch(checked=False)) != EVIL:
                    continue

    run(main)


def test_a_folder_that_is_swapped_after_the_check_is_not_the_plugins(run: Run, yard: Yard) -> None:
    """The same race with the swap at the worst moment: the files were checked, and nothing is mounted yet."""
    places: list[str | None] = []

    def check_and_swap(place: str | None) -> None:
        release.verify(yard.package, place)
        places.append(place)
        yard.package.rename(yard.root / "aside")
        yard.other.rename(yard.package)

    async def main() -> None:
        async with open_spawner() as spawner:
            launch = yard.launch(checked=False)
            object.__setattr__(launch, "verify", check_and_swap)
            assert await run_once(spawner, launch) == GOOD
            assert [str(place).startswith("/proc/self/fd/") for place in places] == [True]
            assert (yard.package / "word").read_text() == EVIL

    run(main)
