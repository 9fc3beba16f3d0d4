"""Checks of `plugbay doctor` for the sandbox: can this machine confine a plugin, and does the egress proxy work?

Turns the facts of `process.sandbox.facts` into checks, and runs one network test: a confined program must reach its one
allowed server and no other.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.cli.doctor.checks import ERROR, OK, TIMEOUT_S, WARNING, Check

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
"""Connects through the proxy to an allowed and to a forbidden server, then tries to connect directly."""

EXPECTED = "allowed True other True no way but through the host"


def check_sandbox(config: Config) -> Iterator[Check]:
    """Run every check in order; the network test only if the sandbox is usable."""
    from plugbay.host.bindings import Bindings, Options

    if platform.system() != "Linux":
        yield _needs_linux()
        return
    settings = Bindings(config, Options(), None).sandbox
    usable = True
    for fact in _facts(settings):
        status = OK if fact.ok else ERROR if fact.vital else WARNING
        usable = usable and status != ERROR
        title = f"Sandbox: {fact.name}"
        yield Check(f"sandbox_{fact.name.replace(' ', '_')}", status, title, fact.text, fact.fix)
    if usable:
        yield check_egress(settings)


def confinement_problem(config: Config) -> Check | None:
    """The reason why plugins cannot be confined on this machine; None when they can."""
    from plugbay.host.bindings import Bindings, Options

    if platform.system() != "Linux":
        return _needs_linux()
    settings = Bindings(config, Options(), None).sandbox
    failed = [fact for fact in _facts(settings) if fact.vital and not fact.ok]
    return Check("sandbox", ERROR, "Sandbox", failed[0].text, failed[0].fix) if failed else None


def _needs_linux() -> Check:
    fix = "run on Linux; here plugins that ask to be confined are refused unless you let them off one by one"
    return Check("sandbox", WARNING, "Sandbox", "confinement needs Linux", fix)


def _facts(settings: SandboxSettings) -> list[Fact]:
    """Run the preflight on its own thread: a thread that starts a confined process unshares its mount namespace."""
    from concurrent.futures import ThreadPoolExecutor

    from plugbay.process.sandbox.facts import preflight
    from plugbay.process.sandbox.launcher import Sandbox

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(preflight, Sandbox(settings)).result()


def check_egress(settings: SandboxSettings) -> Check:
    """Whether a confined program reaches its allowed server and nothing else."""
    import asyncio

    title = "Sandbox: network"
    fix = "see that nothing keeps this user from joining the network namespace of its own children"
    said = asyncio.run(_run_probe(settings))
    if said == EXPECTED:
        return Check("sandbox_network", OK, title, "a confined program reached the one server it may, and no other")
    return Check("sandbox_network", ERROR, title, f"the self-test failed: {said or 'nothing was said'}", fix)


async def _run_probe(settings: SandboxSettings) -> str:
    """The output of the probe on one line, or the reason why it did not start."""
    import asyncio

    from plugbay.process.child import Spawner
    from plugbay.process.command import Launch
    from plugbay.process.diagnose import LaunchFailed
    from plugbay.process.sandbox import system
    from plugbay.process.sandbox.policy import Endpoint, Network, Policy, Reach

    servers = [await asyncio.start_server(_answer, "127.0.0.1", 0) for _ in range(2)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    network = Network(Reach.LISTED, (Endpoint("127.0.0.1", ports[0]),), (f"127.0.0.1:{ports[0]}",))
    argv = (sys.executable, "-I", "-S", "-c", _GOES_OUT, *map(str, ports))
    launch = Launch(argv, Path("/"), label="plugbay-probe", policy=Policy(Path(system.PLUGBAY), network=network))
    spawner = Spawner(sandbox=settings)
    try:
        child = await spawner.spawn(launch, TIMEOUT_S)
        if await child.wait(TIMEOUT_S) is None:
            return f"no end seen within {TIMEOUT_S:g} s"
        return _output_line(child)
    except LaunchFailed as error:
        return error.message
    finally:
        await spawner.close()
        for server in servers:
            server.close()


def _output_line(child: Child) -> str:
    """Its stdout on one line, or its stderr if stdout is empty."""
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
