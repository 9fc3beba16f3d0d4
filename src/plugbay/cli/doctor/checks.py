"""The type `Check`, and the checks of `plugbay doctor` that need no plugin: machine, plugbay.toml, broker, sandbox.

A check performs the operation itself where possible (starts a process, writes a file, joins the broker, confines a
probe), and has a fix.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from plugbay.cli.paths import CONFIG_NAME, config_in_use, directories
from plugbay.cli.render import output

if TYPE_CHECKING:
    import asyncio

    from plugbay.host.config.config import Config
    from plugbay.host.ports import Broker, BrokerStatus
    from plugbay.process.child import Child, Spawner
    from plugbay.process.command import Launch
    from plugbay.process.sandbox.facts import Fact
    from plugbay.process.sandbox.policy import SandboxSettings


OLDEST_PYTHON = (3, 11)

OPEN_FILES = 1024
"""Recommended limit. A running plugin takes four descriptors of the host, so this allows about two hundred."""

TIMEOUT_S = 10.0
"""For a self-test that takes milliseconds on a healthy machine."""

RECHECK_DELAY_S = 1.0
"""Wait before reporting orphans: the warden of a host that died a moment ago may still be killing them."""

OK, WARNING, ERROR = "ok", "warning", "error"


class Check(NamedTuple):
    """The result of one check. An `optional` check that warns is advice and does not change the exit status."""

    id: str
    status: str
    title: str
    detail: str
    fix: str = ""
    optional: bool = False

    @property
    def is_finding(self) -> bool:
        return self.status != OK and not (self.optional and self.status == WARNING)

    def to_json(self) -> dict[str, Any]:
        """The public shape, as in `plugbay doctor --json`."""
        return {name: getattr(self, name) for name in ("id", "status", "title", "detail", "fix")}


def check_machine(fix: bool = False) -> Iterator[Check]:
    """Run every check of the machine in order."""
    yield check_python()
    yield check_kernel()
    yield from check_processes()
    yield check_open_files()
    yield check_uvloop()
    for name in ("state", "log"):
        yield check_writable(name, directories()[name])
    yield check_config_file()
    yield check_orphans(fix)


def load_config_or_default() -> Config:
    """The operator's settings; defaults when plugbay.toml is missing or invalid, which `check_config_file` reports."""
    from plugbay.host.config import config
    from plugbay.model.errors import ConfigInvalid

    path = config_in_use()
    try:
        return config.load(path) if path else config.Config.default()
    except ConfigInvalid:
        return config.Config.default()


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Check:
    text = f"{'.'.join(map(str, version))} ({sys.executable})"
    if version >= OLDEST_PYTHON:
        return Check("python", OK, "Python", text)
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return Check("python", ERROR, "Python", f"{text} is too old", f"install Python {oldest} or newer")


def check_kernel() -> Check:
    """Whether the kernel offers pidfd (to watch children without threads) and /proc (to find descendants)."""
    title, name = "Kernel", f"{platform.system()} {platform.release()}"
    if platform.system() != "Linux":
        fix = "run on Linux for the sandbox and for orphan protection"
        return Check("kernel", WARNING, title, f"{name}: child processes are watched by polling", fix)
    if not os.path.exists("/proc/self/environ"):
        return Check("kernel", ERROR, title, f"{name}: /proc is not mounted", "mount -t proc proc /proc")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        fix = "use Linux 5.3 or newer, and a container runtime whose seccomp profile allows pidfd_open"
        return Check("kernel", ERROR, title, f"{name}: no pidfd ({error})", fix)
    return Check("kernel", OK, title, f"{name} with pidfd and /proc")


_LEAVES_A_CHILD = """
import os, time
ready, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(tell, b"x")
    time.sleep(60)
os.read(ready, 1)
"""
"""A child that exits normally and leaves a grandchild running in its own session."""


def check_processes() -> Iterator[Check]:
    """Start a process as plugins are started; check that its end is seen and that its orphan is killed."""
    import asyncio

    yield from asyncio.run(_check_processes())


async def _check_processes() -> list[Check]:
    from plugbay.process.child import Spawner
    from plugbay.process.command import Launch, LaunchFailed

    argv = (sys.executable, "-I", "-S", "-c", _LEAVES_A_CHILD)
    launch = Launch(argv=argv, cwd=Path("/"), label="doctor")
    spawner = Spawner()
    try:
        return await _self_test(spawner, launch)
    except LaunchFailed as error:
        return [Check("spawn", ERROR, "Processes", error.message, error.hint or "see the message above")]
    finally:
        await spawner.close()


async def _self_test(spawner: Spawner, launch: Launch) -> list[Check]:
    import time

    began = time.perf_counter()
    child = await spawner.spawn(launch, TIMEOUT_S)
    status = await child.wait(TIMEOUT_S)
    took = output.duration((time.perf_counter() - began) * 1000)
    if status is None or not status.clean:
        return [_spawn_failed(child)]
    spawned = Check("spawn", OK, "Processes", f"a child process started and exited within {took}")
    return [spawned, await _check_warden(spawner)]


def _spawn_failed(child: Child) -> Check:
    stderr = " ".join(child.stderr.tail(3))
    how = child.exit.describe() if child.exit else f"no exit within {TIMEOUT_S:g} s"
    fix = "run the interpreter by hand; limits (ulimit -a) or a seccomp profile may prevent it"
    return Check("spawn", ERROR, "Processes", f"a self-test failed: {how} {stderr}".strip(), fix)


async def _check_warden(spawner: Spawner) -> Check:
    from plugbay.process import warden

    title = "Orphan protection"
    if not warden.supported():
        fix = "run on Linux with /proc; without it, orphaned child processes of plugins survive"
        return Check("warden", WARNING, title, "not supported on this system", fix)
    fix = "check that no other program kills helper processes of plugbay, and that /proc shows them (hidepid)"
    if not await spawner.swept(TIMEOUT_S):
        return Check("warden", ERROR, title, f"the warden did not respond within {TIMEOUT_S:g} s", fix)
    if not spawner.survivors_killed:
        return Check("warden", ERROR, title, "the warden did not find a process outside its process group", fix)
    return Check("warden", OK, title, "the warden found and killed a process outside its process group")


def check_open_files() -> Check:
    import resource

    from plugbay.process import limits

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = soft == resource.RLIM_INFINITY
    text = "no limit" if unlimited else f"{soft:,} open files"
    most = limits.most_open_files()
    if most is not None and most < limits.OPEN_FILES:
        found = f"{text}; a plugin gets at most {most:,}, {limits.OPEN_FILES:,} are recommended"
        return Check("open_files", WARNING, "Open files", found, "raise LimitNOFILE")
    if unlimited or soft >= OPEN_FILES:
        return Check("open_files", OK, "Open files", text)
    return Check(
        "open_files", WARNING, "Open files", f"{text}; {OPEN_FILES:,} are recommended", f"ulimit -n {OPEN_FILES}"
    )


def check_uvloop() -> Check:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Check("uvloop", OK, "uvloop", version("uvloop"), optional=True)
    except PackageNotFoundError:
        fix = "pip install 'plugbay[uvloop]'"
        return Check("uvloop", WARNING, "uvloop", "not installed; a busy host is slower without it", fix, optional=True)


def check_writable(name: str, path: Path) -> Check:
    """Whether a file can be created in `path`, or in its nearest existing parent."""
    title = f"{name.capitalize()} directory"
    there = next(place for place in (path, *path.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            return Check(f"{name}_dir", OK, title, str(path))
    except OSError as error:
        fix = f"make {there} writable for this user, or set XDG_STATE_HOME to a directory that is"
        return Check(f"{name}_dir", ERROR, title, f"{there}: {error.strerror}", fix)


def check_config_file() -> Check:
    from plugbay.host.config import config
    from plugbay.model.errors import ConfigInvalid

    path = config_in_use()
    if path is None:
        return Check("config", OK, CONFIG_NAME, "none in this directory; defaults are used")
    try:
        settings = config.load(path)
    except ConfigInvalid as error:
        problems = "\n".join(map(str, error.problems))
        return Check("config", ERROR, CONFIG_NAME, problems, f"correct {path.absolute()}")
    return Check("config", OK, CONFIG_NAME, f"valid, {output.count(len(settings.plugins), 'plugin')} configured")


class Orphan(NamedTuple):
    """A process whose host is dead."""

    pid: int
    command: str


def check_orphans(fix: bool = False) -> Check:
    """Find processes that dead hosts left behind; kill them with `fix`."""
    import time

    from plugbay.process import warden

    title = "Leftover processes"
    found = find_orphans()
    if found and not fix:
        time.sleep(RECHECK_DELAY_S)
        found = find_orphans()
    if found and fix:
        killed = output.count(warden.sweep_orphans(), "process", "processes")
        return Check("orphans", OK, title, f"killed {killed} of dead hosts")
    if not found:
        return Check("orphans", OK, title, "none")
    listed = "\n".join(f"pid {orphan.pid}: {orphan.command}" for orphan in found)
    return Check(
        "orphans", WARNING, title, f"processes of hosts that no longer exist:\n{listed}", "plugbay doctor --fix"
    )


def find_orphans() -> list[Orphan]:
    """List processes whose host is dead, without touching them."""
    from plugbay.process import warden

    return [Orphan(pid, _command_of(pid)) for pid in warden.orphans()]


def _command_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
    except OSError:
        return "has exited meanwhile"
    return words.decode("utf-8", "backslashreplace")[:120] or "a process without arguments"


# The broker.

BROKER_TIMEOUT_S = 5.0
"""Joining takes about 10 ms on a working network."""


def check_broker(config: Config) -> Iterator[Check]:
    """Join the configured broker for a moment, without publishing or subscribing; no check without a broker."""
    import asyncio

    from plugbay.host.assembly import broker_for
    from plugbay.host.events.bus import Bus
    from plugbay.host.journal import Journal
    from plugbay.model.errors import ConfigInvalid

    if config.broker is None:
        return
    if not config.broker.topics:
        fix = 'name the shared topics: topics = ["agent.>"]'
        yield _broker_check(WARNING, f"{config.broker.url}: no topics are shared, so the host does not join", fix)
        return
    try:
        status = asyncio.run(_join(broker_for(config.broker, Bus(), Journal())))
    except ConfigInvalid as error:
        yield _broker_check(
            ERROR, "; ".join(problem.message for problem in error.problems), "see [broker] in plugbay.toml"
        )
        return
    if status.joined:
        yield _broker_check(OK, f"joined through {status.server}; shared topics: {', '.join(config.broker.topics)}")
    else:
        fix = "start the server, or correct [broker] in plugbay.toml; until then this host works alone"
        yield _broker_check(ERROR, f"{status.server}: {status.problem}", fix)


def _broker_check(status: str, detail: str, fix: str = "") -> Check:
    return Check("broker", status, "Broker", detail, fix)


async def _join(broker: Broker) -> BrokerStatus:
    """The broker's status once it is joined, or after the timeout."""
    broker.begin()
    await broker.joined(BROKER_TIMEOUT_S)
    status = broker.status
    await broker.stop()
    return status


# The sandbox.

ANSWER = b"reached"

_PROBE = """
import socket, sys
def ask(port):
    with socket.create_connection(("127.0.0.1", 3128), 5) as proxy:
        proxy.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\\r\\nHost: 127.0.0.1:%d\\r\\n\\r\\n" % (port, port))
        answer = b""
        while part := proxy.recv(4096):
            answer += part
    return answer
def connect(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as link:
            return link.recv(4096) != b""
    except OSError:
        return False
allowed, other = map(int, sys.argv[1:])
print("proxy", b" 200 " in ask(allowed)[:20], b" 403 " in ask(other)[:20])
print("direct", connect(allowed), not connect(other))
"""
"""Connects to an allowed and to a forbidden server, through the proxy and directly."""

EXPECTED = "proxy True True direct True True"
ONLY_PROXY = "proxy True True direct False True"


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
    fix = "run on Linux; on this system a plugin that requests confinement starts only if plugbay.toml turns it off"
    return Check("sandbox", WARNING, "Sandbox", "confinement needs Linux", fix)


def _facts(settings: SandboxSettings) -> list[Fact]:
    """Run the preflight on its own thread: a thread that starts a confined process unshares its mount namespace."""
    from concurrent.futures import ThreadPoolExecutor
    from contextlib import closing

    from plugbay.process.sandbox.facts import preflight
    from plugbay.process.sandbox.launcher import Sandbox

    with ThreadPoolExecutor(1) as thread, closing(Sandbox(settings)) as sandbox:
        return thread.submit(preflight, sandbox).result()


def check_egress(settings: SandboxSettings) -> Check:
    """Whether a confined program reaches its allowed server and nothing else."""
    import asyncio

    title = "Sandbox: network"
    fix = "check that this user may join the network namespace of its own child processes"
    result, not_forwarded = asyncio.run(_run_probe(settings))
    if result == EXPECTED:
        return Check("sandbox_network", OK, title, "a confined program reached its allowed server, and no other")
    if result == ONLY_PROXY and not_forwarded:
        text = f"only programs that use proxy variables reach their allowed servers: {not_forwarded}"
        return Check("sandbox_network", WARNING, title, text, "use a kernel with nf_tables and nft_tproxy")
    return Check("sandbox_network", ERROR, title, f"the self-test failed: {result or 'no output'}", fix)


async def _run_probe(settings: SandboxSettings) -> tuple[str, str]:
    """The output of the probe on one line, or the reason why it did not start; why connections are not forwarded."""
    import asyncio

    from plugbay.process.child import Spawner
    from plugbay.process.command import Launch
    from plugbay.process.diagnose import LaunchFailed
    from plugbay.process.sandbox import system
    from plugbay.process.sandbox.policy import Endpoint, Network, Policy, Reach

    servers = [await asyncio.start_server(_answer, "127.0.0.1", 0) for _ in range(2)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    network = Network(Reach.LISTED, (Endpoint("127.0.0.1", ports[0]),), (f"127.0.0.1:{ports[0]}",))
    argv = (sys.executable, "-I", "-S", "-c", _PROBE, *map(str, ports))
    launch = Launch(argv, Path("/"), label="plugbay-probe", policy=Policy(Path(system.PLUGBAY), network=network))
    spawner = Spawner(sandbox=settings)
    try:
        child = await spawner.spawn(launch, TIMEOUT_S)
        if await child.wait(TIMEOUT_S) is None:
            return f"no exit within {TIMEOUT_S:g} s", ""
        return _output_line(child), "" if child.jail is None else child.jail.not_forwarded
    except LaunchFailed as error:
        return error.message, ""
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
