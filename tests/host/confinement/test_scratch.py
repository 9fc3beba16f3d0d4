"""Rooms of one host, and what is left of others."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from plugbay.host.confinement.scratch import FOLDER, Scratch
from plugbay.model.errors import Code, Failure
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement

CRASHES = """
import asyncio, os, sys
from pathlib import Path
from plugbay.host.confinement.scratch import Scratch

async def main():
    scratch = Scratch(Path(sys.argv[1]))
    room = await scratch.open(await scratch.lodge("acme/p"), "inv_1")
    (room / "half").write_text("work")
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


async def a_room(scratch: Scratch, plugin: str = "acme/p") -> Path:
    lodging = await scratch.lodge(plugin)
    assert isinstance(lodging, Path)
    room = await scratch.open(lodging, "inv_1")
    assert isinstance(room, Path)
    return room


@requirement("vai:host-scratch")
def test_a_room_is_private_empty_and_named_after_its_invocation(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        scratch = Scratch(tmp_path)
        room = await a_room(scratch)
        assert room.name == "inv_1" and room.is_relative_to(tmp_path)
        assert stat.S_IMODE(room.stat().st_mode) == 0o700 and list(room.iterdir()) == []
        assert stat.S_IMODE(room.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(scratch.home().stat().st_mode) == 0o700
        (room / "file").write_text("x")
        assert await scratch.remove(room) and not room.exists()
        assert await scratch.close() and list((tmp_path / FOLDER).iterdir()) == []

    run(main)


def test_a_lodging_and_its_rooms_are_their_plugins_users(run: Run, tmp_path: Path) -> None:
    users = {"acme/p": 2_000_000_001, "acme/q": 2_000_000_002}

    async def main() -> None:
        scratch = Scratch(tmp_path, owner=users.get)
        rooms = [await a_room(scratch, plugin) for plugin in (*users, "acme/p", "acme/host")]
        owners = [*users.values(), 2_000_000_001, os.geteuid()]
        assert [room.stat().st_uid for room in rooms] == [room.parent.stat().st_uid for room in rooms] == owners
        assert len({room.parent for room in rooms}) == len(rooms)
        assert {stat.S_IMODE(room.parent.stat().st_mode) for room in rooms} == {0o700}
        assert scratch.home().stat().st_uid == os.geteuid()
        await scratch.close()

    run(main)


def test_a_lodging_goes_with_its_child_but_not_before_the_last_of_its_rooms(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        scratch = Scratch(tmp_path)
        rooms = [await a_room(scratch), await a_room(scratch)]
        empty = await scratch.lodge("acme/p")
        assert isinstance(empty, Path)
        for lodging in (rooms[0].parent, empty):
            scratch.vacated(lodging)
        await until(lambda: not empty.exists())
        assert rooms[0].exists()
        for room in rooms:
            assert await scratch.remove(room)
        assert not rooms[0].parent.exists() and rooms[1].parent.exists()
        await scratch.close()

    run(main)


def test_what_a_child_puts_beside_its_rooms_counts_and_goes_with_the_last_of_them(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        scratch = Scratch(tmp_path, quota=100_000)
        room = await a_room(scratch)
        lodging = room.parent
        assert await scratch.overfull(room) is None
        (lodging / "beside").write_bytes(os.urandom(200_000))
        assert "100,000" in str(await scratch.overfull(room))
        await scratch.remove(room)
        assert list(lodging.iterdir()) == []
        await scratch.close()

    run(main)


def test_a_room_that_is_made_while_the_last_one_goes_stays(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        scratch = Scratch(tmp_path)
        room = await a_room(scratch)
        for number in range(2, 100):
            (room.parent / "beside").write_bytes(b"")
            _, after = await asyncio.gather(scratch.remove(room), scratch.open(room.parent, f"inv_{number}"))
            assert isinstance(after, Path) and after.is_dir() and not room.exists()
            room = after
        await scratch.remove(room)
        assert list(room.parent.iterdir()) == []
        await scratch.close()

    run(main)


@requirement("vai:host-scratch-swept")
def test_rooms_of_a_host_that_was_killed_are_swept_and_those_of_one_that_lives_are_not(
    run: Run, tmp_path: Path
) -> None:
    killed = subprocess.run([sys.executable, "-c", CRASHES, str(tmp_path)], check=False)
    assert killed.returncode == -9
    left = list((tmp_path / FOLDER).glob("*/rooms/*/inv_1/half"))
    assert len(left) == 1

    async def main() -> None:
        living, fresh = Scratch(tmp_path), Scratch(tmp_path)
        room = await a_room(living)
        assert await fresh.sweep() == 1
        assert room.exists() and not left[0].exists()
        assert await fresh.sweep() == 0
        await living.close()

    run(main)


def test_a_room_that_nobody_waits_for_any_more_is_not_left(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        scratch = Scratch(tmp_path)
        lodging = await scratch.lodge("acme/p")
        assert isinstance(lodging, Path)
        opening = asyncio.ensure_future(scratch.open(lodging, "inv_1"))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert list(lodging.iterdir()) == []
        await scratch.close()

    run(main)


def test_without_a_state_directory_rooms_are_in_a_private_place(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def main() -> None:
        scratch = Scratch()
        room = await a_room(scratch)
        assert room.parents[3] == tmp_path / f"plugbay-scratch-{os.getuid()}"
        await scratch.close()

    run(main)


def test_a_place_that_somebody_else_prepared_is_not_used(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    trap = tmp_path / f"plugbay-scratch-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir()
    trap.symlink_to(tmp_path / "elsewhere")

    async def main() -> None:
        scratch = Scratch()
        room = await a_room(scratch)
        assert not room.is_relative_to(trap)
        assert list((tmp_path / "elsewhere").iterdir()) == []
        await scratch.close()

    run(main)


def test_where_no_room_can_be_made_there_is_a_failure(run: Run, tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file in the way")

    async def main() -> None:
        scratch = Scratch(tmp_path)
        failure = await scratch.lodge("acme/p")
        assert isinstance(failure, Failure) and failure.code == Code.UNAVAILABLE
        assert await scratch.sweep() == 0 and await scratch.close()

    run(main)


@requirement("vai:host-scratch-quota")
def test_a_room_that_is_too_full_is_seen(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        scratch = Scratch(tmp_path, quota=100_000)
        room = await a_room(scratch)
        assert await scratch.overfull(room) is None
        (room / "data").write_bytes(os.urandom(200_000))
        assert "100,000" in await scratch.overfilled(room)
        await scratch.close()

    run(main)
