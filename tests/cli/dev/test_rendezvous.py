"""Which processes the rendezvous accepts and which pipes they get, with real sockets and stand-ins."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import socket
import stat
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from plugbay.cli.dev.rendezvous import Rendezvous, attach_command
from plugbay.model.spec import PluginSpec
from plugbay.sdk.attach import Assignment, NotAttached, Place, parse_address
from tests.support.patience import until

Main = Callable[[], Coroutine[Any, Any, None]]


class RecordingObserver:
    """Records every notification of the rendezvous."""

    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []

    def on_waiting(self) -> None:
        self.lines.append(("waiting",))

    def on_attached(self, pid: int, returns: bool) -> None:
        self.lines.append(("attached", pid, returns))

    def on_detached(self, pid: int) -> None:
        self.lines.append(("detached", pid))

    def on_rejected(self, why: str) -> None:
        self.lines.append(("rejected", why))


@asynccontextmanager
async def open_rendezvous() -> AsyncIterator[tuple[Rendezvous, RecordingObserver]]:
    observer = RecordingObserver()
    opened = Rendezvous("p", observer)
    opened.open()
    try:
        yield opened, observer
    finally:
        opened.close()


def start_stand_in(rendezvous: Rendezvous, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(rendezvous.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)


async def take_place(address: str, **options: bool) -> tuple[Place, Assignment]:
    def take() -> tuple[Place, Assignment]:
        place = Place(address, **options)
        return place, place.wait()

    return await asyncio.to_thread(take)


def test_a_plugin_gets_the_pipes_of_the_stand_in_and_talks_to_the_host_directly(
    on_loop: Callable[[Main], None],
) -> None:
    async def main() -> None:
        async with open_rendezvous() as (here, observer):
            process = start_stand_in(here, COLOUR="blue", PLUGBAY_CHILD="secret")
            await until(lambda: ("waiting",) in observer.lines, 20)
            place, given = await take_place(here.address)
            assert ("attached", os.getpid(), False) in observer.lines
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(b"hello")
            process.stdin.close()
            assert os.read(given.listen, 100) == b"hello"
            assert os.read(given.listen, 100) == b""
            os.write(given.speak, b"answer")
            os.close(given.speak)
            os.close(given.listen)
            assert await asyncio.to_thread(process.stdout.read) == b"answer"
            assert given.env["COLOUR"] == "blue" and "PLUGBAY_CHILD" not in given.env
            place.leave(3)
            assert await asyncio.to_thread(process.wait, 20) == 3
            process.stdout.close()
            assert ("detached", os.getpid()) not in observer.lines

    on_loop(main)


def test_a_plugin_that_disconnects_without_a_status_ends_its_stand_in(on_loop: Callable[[Main], None]) -> None:
    async def main() -> None:
        async with open_rendezvous() as (here, observer):
            process = start_stand_in(here)
            place, given = await take_place(here.address)
            os.close(given.speak)
            os.close(given.listen)
            place.close()
            assert await asyncio.to_thread(process.wait, 20) == 1
            await until(lambda: ("detached", os.getpid()) in observer.lines)
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    on_loop(main)


def test_a_wrong_token_is_rejected_and_the_right_one_is_not(on_loop: Callable[[Main], None]) -> None:
    async def main() -> None:
        async with open_rendezvous() as (here, observer):
            path, token = parse_address(here.address)
            for wrong in (token[:-1] + "_", token[:-1], "é"):
                with pytest.raises(NotAttached, match="the token does not belong to this plugbay dev"):
                    await asyncio.to_thread(Place, f"unix:{path}#{wrong}")
            assert observer.lines == [("rejected", "it did not send the token")] * 3
            (await asyncio.to_thread(Place, here.address)).close()
            assert ("attached", os.getpid(), False) in observer.lines

    on_loop(main)


def test_another_user_is_rejected_before_anything_is_read(
    on_loop: Callable[[Main], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_rendezvous() as (here, observer):
            we = os.geteuid()
            monkeypatch.setattr(os, "geteuid", lambda: we + 1)
            with pytest.raises(NotAttached):
                await asyncio.to_thread(Place, here.address)
            assert observer.lines == [("rejected", "it belongs to another user")]
            monkeypatch.setattr(os, "geteuid", lambda: we)
            (await asyncio.to_thread(Place, here.address)).close()

    on_loop(main)


def test_the_socket_and_the_token_are_private_and_removed_at_the_end(
    on_loop: Callable[[Main], None],
) -> None:
    async def main() -> None:
        async with open_rendezvous() as (here, _):
            path = Path(parse_address(here.address)[0])
            token = path.parent / "token"
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            assert stat.S_IMODE(token.stat().st_mode) == 0o600
            assert token.read_text() == parse_address(here.address)[1]
            assert token.read_text() not in " ".join(here.command)
        assert not path.parent.exists()

    on_loop(main)


@pytest.mark.parametrize("said", [b"nonsense\n", b"[1]\n", b'{"left": 1}\n', b"x" * (2 << 20)])
def test_malformed_messages_are_rejected_and_harm_no_other_peer(on_loop: Callable[[Main], None], said: bytes) -> None:
    async def main() -> None:
        async with open_rendezvous() as (here, _):
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(parse_address(here.address)[0])

                def talk() -> bytes:
                    try:
                        line.sendall(said)
                        return line.recv(1000)
                    except OSError:
                        return b""

                answer = await asyncio.to_thread(talk)
                assert not answer or "refused" in json.loads(answer)
            (await asyncio.to_thread(Place, here.address)).close()

    on_loop(main)


def test_a_stand_in_that_dies_while_it_waits_is_forgotten(on_loop: Callable[[Main], None]) -> None:
    async def main() -> None:
        async with open_rendezvous() as (here, observer):
            first = start_stand_in(here, WHO="first")
            await until(lambda: ("waiting",) in observer.lines, 20)
            first.kill()
            await asyncio.to_thread(first.communicate)
            second = start_stand_in(here, WHO="second")
            place, given = await take_place(here.address)
            place.close()
            assert given.env["WHO"] == "second"
            os.close(given.speak)
            os.close(given.listen)
            second.kill()
            await asyncio.to_thread(second.communicate)

    on_loop(main)


def test_a_waiting_plugin_is_notified_when_the_rendezvous_closes(on_loop: Callable[[Main], None]) -> None:
    async def main() -> None:
        async with open_rendezvous() as (here, _):
            place = await asyncio.to_thread(Place, here.address)
        with pytest.raises(NotAttached, match="plugbay dev has ended") as caught:
            await asyncio.to_thread(place.wait)
        assert caught.value.over
        with pytest.raises(NotAttached, match="no plugbay dev waits"):
            Place(here.address)

    on_loop(main)


ADDRESS = "unix:/run/x/socket#token"
SDK = "from plugbay.sdk import Plugin\n"


def words(root: Path, *command: str, here: Path | None = None) -> tuple[list[str], bool]:
    spec = PluginSpec(id="p", version="1", contract="rune", root=root, command=command)
    line, interactive = attach_command(spec, ADDRESS, here or root)
    return shlex.split(line), interactive


def test_a_script_with_our_sdk_connects_itself_below_a_debugger(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(SDK)
    said, interactive = words(tmp_path, "python3", "plugin.py")
    assert said[0] == f"PLUGBAY_ATTACH={ADDRESS}"
    assert said[2:] == ["-m", "pdb", "plugin.py"]
    assert interactive


def test_the_script_is_found_behind_a_launcher(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "plugin").write_text('#!/bin/sh\nexec python3 "${0%/*}"/../kit.py\n')
    (tmp_path / "kit.py").write_text("import sys\n" + SDK)
    said, interactive = words(tmp_path, "./bin/plugin")
    assert (said[-1], interactive) == ("kit.py", True)


def test_a_path_is_relative_to_the_current_directory_where_that_is_shorter(tmp_path: Path) -> None:
    (tmp_path / "weather").mkdir()
    (tmp_path / "weather" / "plugin.py").write_text(SDK)
    said, _ = words(tmp_path / "weather", "python3", "plugin.py", here=tmp_path)
    assert said[-1] == "weather/plugin.py"


@pytest.mark.parametrize("source", ["import json\n", "# from plugbay.sdk import Plugin\n", "\x00\xff"])
def test_anything_else_is_wrapped(tmp_path: Path, source: str) -> None:
    (tmp_path / "plugin.py").write_text(source)
    said, interactive = words(tmp_path, "python3", "plugin.py", "a b")
    assert said[-5:] == ["attach", "--", "python3", "plugin.py", "a b"]
    assert not interactive
