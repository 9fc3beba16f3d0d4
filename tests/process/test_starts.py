"""Threads for what blocks: results come back to the loop, and confined starts have threads apart."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from plugbay.process.command import Launch
from plugbay.process.launch import Newborn
from plugbay.process.sandbox.launcher import Sandbox
from plugbay.process.sandbox.policy import Policy
from plugbay.process.starts import Outcome, Starts
from tests.process.helpers import Run, carrying, launch
from tests.support.patience import PATIENCE

MARKS = {"PLUGBAY_HOST": "1.2.test-starts", "PLUGBAY_CHILD": "test-starts"}


@pytest.fixture(autouse=True)
def open_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)


async def outcome_of(starts: Starts, wanted: Launch, refusal: Exception | None = None) -> Outcome:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[Outcome] = loop.create_future()
    starts.submit(loop, wanted, MARKS, lambda: refusal, arrived.set_result)
    return await arrived


def test_a_start_arrives_in_the_loop_with_what_became_of_it(run: Run) -> None:
    async def main() -> None:
        starts = Starts(1, subprocess.Popen, Sandbox(), False)
        born = await outcome_of(starts, launch("/bin/cat"))
        assert isinstance(born, Newborn)
        born.discard()
        refusal = RuntimeError("not any more")
        assert await outcome_of(starts, launch("/bin/cat"), refusal) is refusal
        assert "does not exist" in str(await outcome_of(starts, launch("/no/such/program")))
        starts.shutdown(wait=True)

    run(main())


def test_what_is_not_confined_shares_the_mounts_of_the_host(run: Run, tmp_path: Path) -> None:
    seen: dict[str, str] = {}

    def popen(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        name = threading.current_thread().name
        seen[name.rpartition("_")[0]] = os.readlink(f"/proc/self/task/{threading.get_native_id()}/ns/mnt")
        return subprocess.Popen(*args, **options)

    async def main() -> None:
        starts = Starts(1, popen, Sandbox(), False)
        confined = Launch(("/bin/cat",), tmp_path, policy=Policy(tmp_path), label="starts")
        for wanted in (confined, launch("/bin/cat")):
            born = await outcome_of(starts, wanted)
            assert isinstance(born, Newborn)
            born.discard()
        starts.shutdown(wait=True)

    run(main())
    host = os.readlink("/proc/self/ns/mnt")
    assert seen["plugbay-spawn"] == host
    assert seen["plugbay-confine"] != host


def test_without_confined_starts_there_are_no_threads_for_them(run: Run) -> None:
    async def main() -> None:
        starts = Starts(1, subprocess.Popen, Sandbox(), True)
        born = await outcome_of(starts, launch("/bin/true"))
        assert isinstance(born, Newborn)
        born.discard()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("plugbay-confine")]
        starts.shutdown(wait=True)

    run(main())


def test_shutdown_waits_for_what_was_left_for_later_and_afterwards_it_is_done_at_once() -> None:
    starts = Starts(1, subprocess.Popen, Sandbox(), False)
    gate = threading.Event()
    done: list[str] = []

    def slow() -> None:
        gate.wait(PATIENCE)
        done.append("first")

    starts.later(slow)
    assert done == []
    gate.set()
    starts.shutdown(wait=True)
    starts.later(lambda: done.append("second"))
    assert done == ["first", "second"]


def test_a_start_whose_loop_is_gone_leaves_nothing() -> None:
    starts = Starts(1, subprocess.Popen, Sandbox(), False)
    loop = asyncio.new_event_loop()
    loop.close()
    starts.submit(loop, launch("/bin/cat"), MARKS, lambda: None, lambda _: None)
    starts.shutdown(wait=True)
    assert not carrying(MARKS["PLUGBAY_HOST"])
