"""What `plugbay doctor` asks about confinement: can this machine confine a plugin, does it hold, does the way out work?

Owns how facts become checks, and the one test that needs a network: a confined program that reaches the one server it
may reach, and no other. What is asked of the machine itself is in `process.sandbox.facts`.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.cli.checks import ERROR, OK, PATIENCE, WARNING, Check

if TYPE_CHECKING:
    import asyncio

    from plugbay.host.config.config import Config
    from plugbay.process.child import Child
    from plugbay.process.sandbox.facts import Fact
    from plugbay.process.sandbox.policy import SandboxSettings

ANSWER = b"reached"

_GOES_OUT = """
import socket, sys
def ask(port):
    with socket.create_connection(("127.0.0.1", 3128), 5) as proxy:
        proxy.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\\r\\nHost: 127.0.0.1:%d\\r\\n\\r\\n" % (port, port))
        said = b""
        while part := proxy.recv(4096):
            said += part
    return said
allowed, other = map(int, sys.argv[1:])
print("allowed", b" 200 " in ask(allowed)[:20], "other", b" 403 " in ask(other)[:20])
try:
    socket.create_connection(("127.0.0.1", allowed), 1).close()
    print("direct")
except OSError:
    print("no way but through the host")
"""
"""Asks for the server it may reach and for one that it may not, then tries it without asking."""

EXPECTED = "allowed True other True no way but through the host"


def sandbox_checks(config: Config) -> Iterator[Check]:
    """Every check, one after the other; the last ones only where the first hold."""
    from plugbay.host.bindings import Bindings, Options

    if platform.system() != "Linux":
        yield _elsewhere()
        return
    settings = Bindings(config, Options(), None).sandbox
    usable = True
    for fact in _facts(settings):
        status = OK if fact.ok else ERROR if fact.vital else WARNING
        usable = usable and status != ERROR
        title = f"Sandbox: {fact.name}"
        yield Check(f"sandbox_{fact.name.replace(' ', '_')}", status, title, fact.text, fact.fix)
    if usable:
        yield egress(settings)


def confinement_problem(config: Config) -> Check | None:
    """Why no plugin can be confined here; None when they can."""
    from plugbay.host.bindings import Bindings, Options

    if platform.system() != "Linux":
        return _elsewhere()
    settings = Bindings(config, Options(), None).sandbox
    failed = [fact for fact in _facts(settings) if fact.vital and not fact.ok]
    return Check("sandbox", ERROR, "Sandbox", failed[0].text, failed[0].fix) if failed else None


def _elsewhere() -> Check:
    fix = "run on Linux; here plugins that ask to be confined are refused unless you let them off one by one"
    return Check("sandbox", WARNING, "Sandbox", "confinement needs Linux", fix)


def _facts(settings: SandboxSettings) -> list[Fact]:
    """On a thread: one that starts something confined leaves the view of the mounts that all others share."""
    from concurrent.futures import ThreadPoolExecutor

    from plugbay.process.sandbox.facts import preflight
    from plugbay.process.sandbox.launcher import Sandbox

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(preflight, Sandbox(settings)).result()


def egress(settings: SandboxSettings) -> Check:
    """Whether a confined program gets out where it may, and nowhere else."""
    import asyncio

    title = "Sandbox: network"
    fix = "see that nothing keeps this user from joining the network namespace of its own children"
    said = asyncio.run(_from_inside(settings))
    if said == EXPECTED:
        return Check("sandbox_network", OK, title, "a confined program reached the one server it may, and no other")
    return Check("sandbox_network", ERROR, title, f"the self-test failed: {said or 'nothing was said'}", fix)


async def _from_inside(settings: SandboxSettings) -> str:
    """What the program says, in one line, or why it could not be started."""
    import asyncio

    from plugbay.process.child import Spawner
    from plugbay.process.command import Launch
    from plugbay.process.failures import LaunchFailed
    from plugbay.process.sandbox import runtime
    from plugbay.process.sandbox.policy import Endpoint, Network, Policy, Reach

    servers = [await asyncio.start_server(_answer, "127.0.0.1", 0) for _ in range(2)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    network = Network(Reach.LISTED, (Endpoint("127.0.0.1", ports[0]),), (f"127.0.0.1:{ports[0]}",))
    argv = (sys.executable, "-I", "-S", "-c", _GOES_OUT, *map(str, ports))
    launch = Launch(argv, Path("/"), label="plugbay-probe", policy=Policy(Path(runtime.PLUGBAY), network=network))
    spawner = Spawner(sandbox=settings)
    try:
        child = await spawner.spawn(launch, PATIENCE)
        if await child.wait(PATIENCE) is None:
            return f"no end seen within {PATIENCE:g} s"
        return _said(child)
    except LaunchFailed as error:
        return error.message
    finally:
        await spawner.close()
        for server in servers:
            server.close()


def _said(child: Child) -> str:
    """What it wrote, on one line; on stderr, if it came to nothing else."""
    stdout, stdin = child.take_pipes()
    try:
        words = os.read(stdout, 4096).decode("utf-8", "replace") or " ".join(child.stderr.tail())
    finally:
        os.close(stdout)
        os.close(stdin)
    return " ".join(words.split())


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(ANSWER)
    writer.close()
