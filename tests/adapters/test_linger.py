"""The host process that stays between the calls of a rune adapter: shared, and ended when it is idle."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from plugbay.adapters import linger
from plugbay.adapters.failures import SourceFailed
from plugbay.adapters.linger import IDLE_VARIABLE, Lingering
from plugbay.adapters.linger_client import READY, LingeringHost
from plugbay.adapters.pin import USUAL_VARIABLES, Pin, PinnedExport
from plugbay.model.errors import Code
from tests.adapters.adapting import adapt, on_loop
from tests.adapters.test_pin import pinned
from tests.adapters.test_serving import RECORDS_ITS_PID, pids
from tests.support.invoking import alive
from tests.support.mcp_servers import write_server
from tests.support.patience import PATIENCE, until, until_blocking
from tests.support.tiers import exhaustive


@pytest.fixture
def pin(tmp_path: Path) -> Pin:
    body = f"FLAGS = {str(tmp_path)!r}\n{RECORDS_ITS_PID}"
    _, made = adapt(write_server(tmp_path / "servers", body=body), "rune", tmp_path)
    (tmp_path / "pids").unlink()
    return made


@pytest.fixture
def sockets() -> Iterator[str]:
    """A short folder: the address of a socket has at most 107 bytes."""
    with TemporaryDirectory(prefix="pb-") as folder:
        yield folder


def process_of(sockets: str) -> int:
    """The process that holds the lock of the only address."""
    (lock,) = Path(sockets).glob("*.lock")
    inode = os.stat(lock).st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and words[5].endswith(f":{inode}"):
            return int(words[4])
    return 0


def reach(pin: Pin, sockets: str) -> LingeringHost:
    return LingeringHost(pin, sys.executable, sockets)


def call(pin: Pin, sockets: str, tool: str = "echo", **given: object) -> object:
    export = next(export for export in pin.exports if export.name == tool)
    return reach(pin, sockets).call(export, given)


def test_calls_share_one_process_until_it_is_ended(pin: Pin, sockets: str, tmp_path: Path) -> None:
    assert call(pin, sockets, n=1) == {"n": 1}
    process = process_of(sockets)
    assert call(pin, sockets, n=2) == {"n": 2}
    assert process_of(sockets) == process
    (source,) = pids(tmp_path)
    os.kill(process, signal.SIGTERM)
    until_blocking(lambda: not alive(process) and not alive(source))
    assert not [name for name in os.listdir(sockets) if not name.endswith(".lock")]
    assert call(pin, sockets, n=3) == {"n": 3}
    os.kill(process_of(sockets), signal.SIGTERM)


class StubbornSource:
    """A source that does not end before its caller knows that the call has failed."""

    def __init__(self) -> None:
        self.called, self.answered = asyncio.Event(), asyncio.Event()

    async def start(self) -> None: ...

    async def stop(self) -> None:
        await self.answered.wait()

    async def call(self, export: PinnedExport, given: object, ctx: object) -> object:
        self.called.set()
        return await asyncio.Event().wait()


@on_loop
async def test_a_process_that_is_stopped_fails_its_calls_and_makes_room_at_once(
    sockets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, address = StubbornSource(), f"{sockets}/address"
    monkeypatch.setattr(linger, "HostedSource", lambda pin, report: source)
    unlocked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    process = Lingering(pinned(), 60.0)
    serving = asyncio.ensure_future(process.serve(address, lambda: unlocked.set_result(os.path.exists(address))))
    await until(lambda: os.path.exists(address))
    reader, writer = await asyncio.open_unix_connection(address)
    writer.write(json.dumps({"export": "example.source/echo", "kind": "tool", "input": {}}).encode() + b"\n")
    await asyncio.wait_for(source.called.wait(), PATIENCE)
    process.stop()
    assert await asyncio.wait_for(reader.read(), PATIENCE) == READY
    assert await asyncio.wait_for(unlocked, PATIENCE) is False
    assert not serving.done()
    source.answered.set()
    await serving
    writer.close()


def test_the_seconds_of_an_idle_process_come_with_the_adapter() -> None:
    assert IDLE_VARIABLE in USUAL_VARIABLES


def test_an_idle_process_ends(pin: Pin, sockets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(IDLE_VARIABLE, "0.3")
    assert call(pin, sockets, n=1) == {"n": 1}
    (source,) = pids(tmp_path)
    until_blocking(lambda: not process_of(sockets) and not alive(source))


@exhaustive
def test_first_calls_at_the_same_time_start_one_process(pin: Pin, sockets: str, tmp_path: Path) -> None:
    answers: list[object] = []
    threads = [threading.Thread(target=lambda n=n: answers.append(call(pin, sockets, n=n))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, answers)) == [f"{{'n': {n}}}" for n in range(4)]
    assert len(pids(tmp_path)) == 1
    os.kill(process_of(sockets), signal.SIGTERM)


def test_a_caller_that_is_gone_cancels_its_call(pin: Pin, sockets: str, tmp_path: Path) -> None:
    assert call(pin, sockets, n=1) == {"n": 1}
    (address,) = [name for name in os.listdir(sockets) if not name.endswith(".lock")]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"{sockets}/{address}")
        connection.recv(6)
        connection.sendall(json.dumps({"export": "srv/hang", "kind": "tool", "input": {}}).encode() + b"\n")
        until_blocking((tmp_path / "hangs").exists)
    until_blocking((tmp_path / "cancelled").exists)
    os.kill(process_of(sockets), signal.SIGTERM)


@exhaustive
def test_a_request_that_cannot_be_read_is_answered(pin: Pin, sockets: str) -> None:
    assert call(pin, sockets, n=1) == {"n": 1}
    (address,) = [name for name in os.listdir(sockets) if not name.endswith(".lock")]
    for line in (b"nonsense\n", b'{"export": "srv/none", "kind": "tool", "input": {}}\n'):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"{sockets}/{address}")
            connection.recv(6)
            connection.sendall(line)
            assert json.loads(connection.makefile().readline())["failure"]["code"] == Code.PLUGIN_ERROR
    os.kill(process_of(sockets), signal.SIGTERM)


@exhaustive
def test_a_process_that_dies_fails_its_call(pin: Pin, sockets: str, tmp_path: Path) -> None:
    failures: list[SourceFailed] = []

    def hang() -> None:
        try:
            call(pin, sockets, "hang")
        except SourceFailed as failed:
            failures.append(failed)

    thread = threading.Thread(target=hang)
    thread.start()
    until_blocking((tmp_path / "hangs").exists)
    os.kill(process_of(sockets), signal.SIGKILL)
    thread.join()
    assert failures[0].failure().code == Code.PLUGIN_ERROR
    (source,) = pids(tmp_path)
    until_blocking(lambda: not alive(source))
    assert call(pin, sockets, n=1) == {"n": 1}
    os.kill(process_of(sockets), signal.SIGTERM)
