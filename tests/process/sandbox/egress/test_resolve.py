"""Names are asked for on threads of our own, and the machine knows its own addresses."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from plugbay.process.sandbox.egress.resolve import MAX_LOOKUPS, THREAD, Resolver, is_ours
from tests.process.helpers import ROOT, Run
from tests.support.patience import until

OWN_ADDRESS = """
import fcntl, socket, struct, sys
from plugbay.process.sandbox.egress.resolve import is_ours
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
    print(is_ours("8.8.4.4"))
    fcntl.ioctl(link, 0x8916, struct.pack("16sHH4s8x", b"lo", 2, 0, socket.inet_aton("8.8.4.4")))  # its address
    fcntl.ioctl(link, 0x8914, struct.pack("16sH14x", b"lo", 1))  # up
print(is_ours("8.8.4.4"), is_ours("8.8.8.8"))
"""


def test_the_system_resolves_names(run: Run) -> None:
    async def main() -> None:
        assert "127.0.0.1" in await Resolver()("localhost", 80)

    run(main())


def test_a_name_that_does_not_exist_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def main() -> None:
        monkeypatch.setattr(socket, "getaddrinfo", missing)
        resolver = Resolver()
        for _ in range(MAX_LOOKUPS + 1):  # each gives its place back
            with pytest.raises(socket.gaierror):
                await resolver("missing.test", 80)

    run(main())


def test_name_servers_that_never_answer_hold_a_bounded_number_of_threads(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()

    def slow(*_: Any, **__: Any) -> Any:
        answer.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 80))] * 2

    def threads() -> int:
        return sum(thread.name == THREAD for thread in threading.enumerate())

    async def main() -> None:
        before = threads()
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        resolver = Resolver()
        asked = [asyncio.ensure_future(resolver("slow.test", 80)) for _ in range(MAX_LOOKUPS * 2)]
        try:
            await until(lambda: threads() - before == MAX_LOOKUPS)
            for one in asked[:MAX_LOOKUPS]:
                one.cancel()  # whoever asked is gone, and the thread is not
            await asyncio.wait(asked[:MAX_LOOKUPS])
            assert threads() - before == MAX_LOOKUPS
        finally:
            answer.set()
        assert await asyncio.gather(*asked[MAX_LOOKUPS:]) == [["8.8.8.8"]] * MAX_LOOKUPS
        await until(lambda: threads() == before)

    run(main())


def test_loopback_is_ours_and_what_is_nowhere_is_not() -> None:
    assert is_ours("127.0.0.1")
    assert not is_ours("192.0.2.1")
    assert not is_ours("2001:db8::1")


def test_a_public_address_is_ours_once_the_machine_has_it() -> None:
    """In a network of its own, so that the machine keeps the addresses it has."""
    command = ["unshare", "--net", sys.executable, "-c", OWN_ADDRESS]
    done = subprocess.run(command, cwd=ROOT / "src", capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]
