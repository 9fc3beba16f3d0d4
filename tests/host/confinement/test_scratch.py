"""Scratch folders of one host, and the removal of those of others."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from pathlib import Path

import pytest

from plugbay.host.confinement.scratch import FOLDER, Scratch
from plugbay.model.errors import Code, Failure
from tests.support.commands import python
from tests.support.descriptors import no_free_descriptors
from tests.support.loops import Run
from tests.support.machine import needs_root
from tests.support.patience import until
from tests.support.requirements import requirement

CRASHES = """
import asyncio, os, sys
from pathlib import Path
from plugbay.host.confinement.scratch import Scratch

async def main():
    scratch = Scratch(Path(sys.argv[1]))
    folder = await scratch.open(await scratch.make_instance_folder("acme/p"), "inv_1")
    (folder / "half").write_text("work")
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


async def open_scratch_folder(scratch: Scratch, plugin: str = "acme/p") -> Path:
    instance_folder = await scratch.make_instance_folder(plugin)
    assert isinstance(instance_folder, Path)
    folder = await scratch.open(instance_folder, "inv_1")
    assert isinstance(folder, Path)
    return folder


@requirement("vai:host-scratch")
def test_a_scratch_folder_is_private_empty_and_named_after_its_invocation(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        scratch = Scratch(tmp_path)
        folder = await open_scratch_folder(scratch)
        assert folder.name == "inv_1" and folder.is_relative_to(tmp_path)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and list(folder.iterdir()) == []
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(scratch.home().stat().st_mode) == 0o700
        (folder / "file").write_text("x")
        assert await scratch.remove(folder) and not folder.exists()
        assert await scratch.close() and list((tmp_path / FOLDER).iterdir()) == []

    run(main)


@needs_root
def test_an_instance_folder_and_its_scratch_folders_belong_to_the_plugins_user(run: Run, tmp_path: Path) -> None:
    users = {"acme/p": 2_000_000_001, "acme/q": 2_000_000_002}

    async def main() -> None:
        scratch = Scratch(tmp_path, owner=users.get)
        folders = [await open_scratch_folder(scratch, plugin) for plugin in (*users, "acme/p", "acme/host")]
        owners = [*users.values(), 2_000_000_001, os.geteuid()]
        assert (
            [folder.stat().st_uid for folder in folders]
            == [folder.parent.stat().st_uid for folder in folders]
            == owners
        )
        assert len({folder.parent for folder in folders}) == len(folders)
        assert {stat.S_IMODE(folder.parent.stat().st_mode) for folder in folders} == {0o700}
        assert scratch.home().stat().st_uid == os.geteuid()
        await scratch.close()

    run(main)


def test_an_instance_folder_goes_with_its_process_but_not_before_its_last_scratch_folder(
    run: Run, tmp_path: Path
) -> None:
    async def main() -> None:
        scratch = Scratch(tmp_path)
        folders = [await open_scratch_folder(scratch), await open_scratch_folder(scratch)]
        empty = await scratch.make_instance_folder("acme/p")
        assert isinstance(empty, Path)
        for instance_folder in (folders[0].parent, empty):
            scratch.release(instance_folder)
        await until(lambda: not empty.exists())
        assert folders[0].exists()
        for folder in folders:
            assert await scratch.remove(folder)
        assert not folders[0].parent.exists() and folders[1].parent.exists()
        await scratch.close()

    run(main)


def test_other_files_in_an_instance_folder_count_and_go_with_the_last_scratch_folder(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        scratch = Scratch(tmp_path, quota=100_000)
        folder = await open_scratch_folder(scratch)
        instance_folder = folder.parent
        assert await scratch.quota_problem(folder) is None
        (instance_folder / "beside").write_bytes(os.urandom(200_000))
        assert "100,000" in str(await scratch.quota_problem(folder))
        await scratch.remove(folder)
        assert list(instance_folder.iterdir()) == []
        await scratch.close()

    run(main)


def test_a_scratch_folder_made_while_the_last_one_goes_stays(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        scratch = Scratch(tmp_path)
        folder = await open_scratch_folder(scratch)
        for number in range(2, 100):
            (folder.parent / "beside").write_bytes(b"")
            _, after = await asyncio.gather(scratch.remove(folder), scratch.open(folder.parent, f"inv_{number}"))
            assert isinstance(after, Path) and after.is_dir() and not folder.exists()
            folder = after
        await scratch.remove(folder)
        assert list(folder.parent.iterdir()) == []
        await scratch.close()

    run(main)


@requirement("vai:host-scratch-swept")
def test_folders_of_a_killed_host_are_swept_and_those_of_a_running_one_are_not(run: Run, tmp_path: Path) -> None:
    killed = python(CRASHES, tmp_path)
    assert killed.returncode == -9
    left = list((tmp_path / FOLDER).glob("*/rooms/*/inv_1/half"))
    assert len(left) == 1

    async def main() -> None:
        living, fresh = Scratch(tmp_path), Scratch(tmp_path)
        folder = await open_scratch_folder(living)
        assert await fresh.sweep() == 1
        assert folder.exists() and not left[0].exists()
        assert await fresh.sweep() == 0
        await living.close()

    run(main)


def test_a_cancelled_open_leaves_no_scratch_folder(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        scratch = Scratch(tmp_path)
        instance_folder = await scratch.make_instance_folder("acme/p")
        assert isinstance(instance_folder, Path)
        opening = asyncio.ensure_future(scratch.open(instance_folder, "inv_1"))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert list(instance_folder.iterdir()) == []
        await scratch.close()

    run(main)


def test_without_a_state_directory_scratch_folders_are_in_a_private_place(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def main() -> None:
        scratch = Scratch()
        folder = await open_scratch_folder(scratch)
        assert folder.parents[3] == tmp_path / f"plugbay-scratch-{os.getuid()}"
        await scratch.close()

    run(main)


def test_a_folder_that_another_user_prepared_is_not_used(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    trap = tmp_path / f"plugbay-scratch-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir()
    trap.symlink_to(tmp_path / "elsewhere")

    async def main() -> None:
        scratch = Scratch()
        folder = await open_scratch_folder(scratch)
        assert not folder.is_relative_to(trap)
        assert list((tmp_path / "elsewhere").iterdir()) == []
        await scratch.close()

    run(main)


def test_a_scratch_folder_that_cannot_be_made_is_a_failure(run: Run, tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file in the way")

    async def main() -> None:
        scratch = Scratch(tmp_path)
        failure = await scratch.make_instance_folder("acme/p")
        assert isinstance(failure, Failure) and failure.code == Code.UNAVAILABLE
        assert await scratch.sweep() == 0 and await scratch.close()

    run(main)


@requirement("vai:host-scratch-quota")
def test_a_scratch_folder_over_its_quota_is_noticed(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        scratch = Scratch(tmp_path, quota=100_000)
        folder = await open_scratch_folder(scratch)
        assert await scratch.quota_problem(folder) is None
        (folder / "data").write_bytes(os.urandom(200_000))
        assert "100,000" in await scratch.wait_over_quota(folder)
        await scratch.close()

    run(main)


@requirement("host:shortage")
def test_a_host_without_descriptors_makes_no_folder_and_leaves_none(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        scratch = Scratch(tmp_path)
        with no_free_descriptors():
            failure = await scratch.make_instance_folder("acme/p")
        assert isinstance(failure, Failure) and failure.detail["errno"] == "EMFILE"
        assert list((tmp_path / FOLDER).iterdir()) == []
        assert isinstance(await scratch.make_instance_folder("acme/p"), Path)
        assert await scratch.close()

    run(main)
