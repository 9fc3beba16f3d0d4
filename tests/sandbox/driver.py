"""A host without pytest: runs the attacks of an area in a sandbox and outside of it, and prints how each went, as JSON.

Run by its path, with the machine's own Python and PYTHONPATH at the sources, as root and as somebody else. Both runs go
through `Spawner.spawn` with a real `Launch`; outside, the one freedom is the missing policy, or where that would harm
the machine, a policy that grants just what the attack takes.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from plugbay.process.child import Spawner
from plugbay.process.command import Launch
from plugbay.process.limits import Rlimits
from plugbay.process.sandbox.egress import listener
from plugbay.process.sandbox.launcher import SandboxSettings
from plugbay.process.sandbox.policy import MIB, Endpoint, Limits, Network, Policy, Reach
from plugbay.process.sandbox.users import uid_of
from tests.sandbox import services
from tests.sandbox.grants import Grants
from tests.sandbox.probes.tools import NUMBERS, X86
from tests.support.patience import PATIENCE

PYTHON = "/usr/bin/python3"
DEATH_SECONDS = 5.0
"""For what was killed to be gone, on a busy machine; whoever is not confined is looked at without delay."""
LABEL = "attacker"
ENV = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
PROBES = Path(__file__).with_name("probes")

SMALL = Limits(processes=12, open_files=40, file_size=MIB, tmp=2 * MIB)
ROOMY = Limits(processes=100, open_files=256, file_size=1 << 41, tmp=64 * MIB)
LITTLE, MUCH = Limits(memory=48 * MIB), Limits(memory=512 * MIB)
SLOW, FAST = Limits(cpu=0.05), Limits(cpu=2.0)

_libc = ctypes.CDLL(None, use_errno=True)


class World:
    """What is attacked: secrets, services, another process; and a plugin to attack it."""

    def __init__(self) -> None:
        self.mark = f"plugbay-escape-{os.getpid()}"
        self.canary = f"canary-{os.urandom(8).hex()}"
        self.root = Path(tempfile.mkdtemp(prefix=f"{self.mark}-"))
        self.root.chmod(0o755)
        self.package = self.root / "package"
        shutil.copytree(PROBES, self.package / "probes", ignore=shutil.ignore_patterns("__pycache__"))
        (self.package / "probes" / "__pycache__").mkdir()
        for name in ("written", "readable", "other", "services", "neighbour"):
            (self.root / name).mkdir()
        (self.root / "other" / "secret").write_text(self.canary)
        (self.root / "neighbour" / "diary").write_text(self.canary)
        (self.root / "readable" / "note").write_text("readable")
        (self.package / "spare").write_text("spare")
        (self.package / "link").symlink_to(self.root / "other" / "secret")
        self.uid = uid_of(LABEL, SandboxSettings())
        # The attacker's own user, where it has one: not file rights protect these, but that they are not shown.
        if self.uid is not None:
            for path in (*self.root.rglob("*"), self.root):
                os.chown(path, self.uid, self.uid, follow_symlinks=False)
        self.victim = self._start_victim()
        self.kept: list[Any] = [os.open(self.root / "other" / "secret", os.O_RDONLY), *os.openpty()]
        os.set_inheritable(self.kept[0], True)
        os.environ["SECRET"] = self.canary
        self.facts = self._furnish()

    def _start_victim(self) -> subprocess.Popen[bytes]:
        """A process of the attacker's user with secrets in its environment and its arguments."""
        who = {} if self.uid is None else {"user": self.uid, "group": self.uid, "extra_groups": []}
        words = [f"sleep-{self.canary}", "600"]
        return subprocess.Popen(words, executable="/bin/sleep", env={"SECRET": self.canary}, **who)  # type: ignore[call-overload, no-any-return]

    def _furnish(self) -> dict[str, str]:
        """Services on every kind of socket; where each is."""
        plain = services.answer(self.canary)
        inner = services.serve(("127.0.0.1", 0), plain)
        address = f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"
        good = services.serve((address, 0), services.answer(f"http://other.test:{inner}/"))
        for name in (f"\0{self.mark}", str(self.root / "services" / "docker.sock")):
            services.serve(name, plain, socket.AF_UNIX)
        services.serve(str(self.root / "written" / "service.sock"), plain, socket.AF_UNIX)
        for path in (self.root / "written" / "service.sock", self.root / "services" / "docker.sock"):
            path.chmod(0o777)
        self.kept.append(services.listen_at(self.root / "written" / "datagrams.sock"))
        self.names = {
            "good.test": [[address]],
            "rebind.test": [[address], ["127.0.0.1"]],
            "metadata.test": [["169.254.169.254"]],
            "mixed.test": [["93.184.216.34", "127.0.0.1"]],
            **{name: [["127.0.0.1"]] for name in ("other.test", "inner.test", "localhost")},
        }
        paths = {name: str(self.root / name) for name in ("package", "written", "readable", "services", "neighbour")}
        return {
            **paths,
            "mark": self.mark,
            "canary": self.canary,
            "secret": str(self.root / "other" / "secret"),
            "home": str(Path.home()) if Path.home().is_dir() else "/root",
            "pid": str(self.victim.pid),
            "host": str(os.getpid()),
            "group": str(os.getpgrp()),
            "abstract": self.mark,
            "address": address,
            "good": str(good),
            "inner": str(inner),
            "tcp": str(inner),
            "tcp6": str(services.serve(("::1", 0, 0, 0), plain, socket.AF_INET6)),
            "udp": str(services.answer_datagrams()),
            "proxy": str(services.credulous_proxy((address, good), inner)),
            "terminal": os.ttyname(self.kept[2]),
            **self._share(),
        }

    def _share(self) -> dict[str, str]:
        """Objects of the kernel that have a number or a name; open to everybody."""
        key = random.randrange(1, 2**31)
        self.shared = (_libc.shmget(key, 4096, 0o1666), _libc.semget(key, 1, 0o1666), _libc.msgget(key, 0o1666))
        Path("/dev/shm", self.mark).write_text(self.canary)
        self.queue = _libc.mq_open(f"/{self.mark}".encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
        name = f"key-{self.mark}"
        _libc.syscall(NUMBERS["keyctl"][not X86], 1, None)  # a ring for this session, which ends with it
        _libc.syscall(NUMBERS["add_key"][not X86], b"user", name.encode(), b"x", 1, -3)
        return {"ipc": str(key), "shared": self.mark, "key": name}

    def policy(self, network: Network | None = None, limits: Limits | None = None) -> Policy:
        return Policy(
            self.package,
            read=(self.root / "readable",),
            write=(self.root / "written",),
            network=network or Network(),
            limits=limits or Limits(),
        )

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        memory, semaphores, messages = self.shared
        _libc.shmctl(memory, 0, None)
        _libc.semctl(semaphores, 0, 0)
        _libc.msgctl(messages, 0, None)
        _libc.mq_unlink(f"/{self.mark}".encode())
        Path("/dev/shm", self.mark).unlink()
        for path in Path("/tmp").glob(f"{self.mark}*"):
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)


class Attacker:
    """Runs the probes in one way or the other."""

    def __init__(self, world: World, spawner: Spawner) -> None:
        self.world = world
        self.spawner = spawner

    async def run(
        self, area: str, policy: Policy | None, env: dict[str, str], *only: str, kill: bool = False
    ) -> dict[str, str]:
        """How each attack went."""
        # Process 1 of a sandbox dies with the host; whoever is not in one depends on the host itself.
        facts = {**self.world.facts, "first": "1" if policy else self.world.facts["host"]}
        words = (PYTHON, "-S", "-B", "-m", "probes", area, json.dumps(facts), *only)
        loose = Rlimits(core=None, open_files=None, file_size=None)
        limits = Rlimits() if policy else loose
        launch = Launch(words, self.world.package, {**ENV, **env}, limits, LABEL, policy)
        child = await self.spawner.spawn(launch, PATIENCE)
        stdout, stdin = child.take_pipes()
        try:
            said = await line(stdout)
            throttled = slowed_down(child.pid) if "spin" in only else False
            if kill:
                child.kill()
        finally:
            os.close(stdout)
            os.close(stdin)
        await child.wait(PATIENCE)
        if child.oom:
            return dict.fromkeys(only, "out of memory")
        assert said, (child.exit, child.stderr.tail())
        outcomes: dict[str, str] = json.loads(said)
        if throttled:
            outcomes["spin"] = "slowed down"
        if area == "files":
            outcomes["make_on_the_machine"] = "ok" if Path("/tmp", self.world.mark).exists() else "only inside"
        return outcomes

    async def say(
        self, *argv: str, policy: Policy | None, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> str:
        """What a command writes, up to a line end."""
        launch = Launch(argv, cwd or self.world.package, {**ENV, **(env or {})}, label=LABEL, policy=policy)
        child = await self.spawner.spawn(launch, PATIENCE)
        stdout, stdin = child.take_pipes()
        try:
            return await line(stdout)
        finally:
            os.close(stdout)
            os.close(stdin)
            await child.wait(PATIENCE)


async def line(fd: int) -> str:
    """The first line that comes through a pipe, or what comes before its end."""
    said = b""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        while not said.endswith(b"\n"):
            readable = asyncio.Event()
            loop.add_reader(fd, readable.set)
            await readable.wait()
            loop.remove_reader(fd)
            piece = os.read(fd, 65536)
            if not piece:
                break
            said += piece
    return said.decode()


def slowed_down(pid: int) -> bool:
    """Whether the kernel has held a control group back for using too much of the processor."""
    folders = [text.split(":", 2)[2] for text in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    files: list[Path] = []
    for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"):
        files += [Path(f"{top}{folder}/cpu.stat") for folder in folders if "plugbay" in folder]
    words = " ".join(file.read_text() for file in files if file.is_file()).split()
    return any(int(words[at + 1]) > 0 for at, word in enumerate(words) if word == "nr_throttled")


def leaky(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
    """A start that passes every open file on."""
    return subprocess.Popen(*arguments, **{**options, "close_fds": False, "pass_fds": ()})


def resolve_by(world: World) -> None:
    """Make the world's table the name server of this process; the last answer of a name is for all later questions."""
    asked: dict[str, int] = {}

    def look_up(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        answers = world.names.get(host)
        if answers is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        turn = asked[host] = asked.get(host, -1) + 1
        return [(0, 0, 0, "", (address, port)) for address in answers[min(turn, len(answers) - 1)]]

    setattr(socket, "getaddrinfo", look_up)  # noqa: B010, mypy lets nobody assign a function


async def plain(attacker: Attacker, area: str) -> tuple[dict[str, str], dict[str, str]]:
    """Confined as by default, and not confined at all, with the host's environment and open files."""
    held = await attacker.run(area, attacker.world.policy(), {})
    return held, await attacker.run(area, None, dict(os.environ))


async def limits(attacker: Attacker, area: str) -> tuple[dict[str, str], dict[str, str]]:
    """Two sandboxes: nothing of this kind is let loose on a machine."""
    held = await attacker.run(area, attacker.world.policy(limits=SMALL), {})
    return held, await attacker.run(area, attacker.world.policy(limits=ROOMY), {})


async def shares(attacker: Attacker, area: str) -> tuple[dict[str, str], dict[str, str]]:
    """The same, one attack at a time: the kernel may kill the whole tree for one of them."""
    amounts = dict.fromkeys(("memory_hog", "memory_hog_in_parts", "empty_files", "socket_buffers"), (LITTLE, MUCH))
    outcomes: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for name, pair in {**amounts, "spin": (SLOW, FAST)}.items():
        for found, amount in zip(outcomes, pair, strict=True):
            found |= await attacker.run(area, attacker.world.policy(limits=amount), {}, name)
    return outcomes


async def survival(attacker: Attacker, area: str) -> tuple[dict[str, str], dict[str, str]]:
    """Both are killed, and swept after."""
    name = f"survivor-{attacker.world.mark}"
    both = []
    for policy in (attacker.world.policy(), None):
        outcomes = await attacker.run(area, policy, {}, kill=True)
        await attacker.spawner.swept(PATIENCE)
        alive = running(name)
        deadline = time.monotonic() + (DEATH_SECONDS if policy else 0)
        while alive and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
            alive = running(name)
        both.append({attack: seen if alive else "gone" for attack, seen in outcomes.items()})
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
    return both[0], both[1]


def running(name: str) -> list[int]:
    """The processes that call themselves so."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if called(pid) == name]


def called(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").partition("\0")[0]
    except OSError:
        return ""


async def grants(attacker: Attacker, area: str) -> tuple[dict[str, str], dict[str, str]]:
    held, free = (Grants(attacker.world, attacker.say, confined) for confined in (True, False))
    return await held.run(), await free.run()


async def network(attacker: Attacker, area: str, granted: Network) -> tuple[dict[str, str], dict[str, str]]:
    """Through the host's proxy, and unconfined through one that believes everything."""
    open_proxy = f"http://127.0.0.1:{attacker.world.facts['proxy']}"
    held = await attacker.run(area, attacker.world.policy(granted), listener.ENVIRONMENT)
    return held, await attacker.run(area, None, {"HTTP_PROXY": open_proxy})


def listed(world: World) -> Network:
    port = int(world.facts["good"])
    doors = (Endpoint("good.test", port), Endpoint("rebind.test", port))
    return Network(Reach.LISTED, doors, (f"{world.facts['address']}:{port}",))


async def egress(attacker: Attacker, area: str) -> tuple[dict[str, str], dict[str, str]]:
    return await network(attacker, area, listed(attacker.world))


async def closing(attacker: Attacker, area: str) -> tuple[dict[str, str], dict[str, str]]:
    """Two sandboxes: the door of the first is closed, that of the second is left open."""
    both = []
    for close in (True, False):
        asked, closed = (attacker.world.root / "written" / name for name in ("asked", "closed"))
        attack = asyncio.ensure_future(
            attacker.run(area, attacker.world.policy(listed(attacker.world)), listener.ENVIRONMENT)
        )
        while not asked.exists():
            assert not attack.done(), attack.result()
            await asyncio.sleep(0.005)
        (child,) = attacker.spawner.children.values()
        if close and child.jail is not None:
            child.jail.close_network()
            await asyncio.sleep(0)
        closed.touch()
        both.append(await attack)
        asked.unlink()
        closed.unlink()
    return both[0], both[1]


Area = Callable[[Attacker, str], Awaitable[tuple[dict[str, str], dict[str, str]]]]

AREAS: dict[str, Area] = {
    **dict.fromkeys(("files", "kernel", "processes", "channels", "calls", "privileges"), plain),
    "limits": limits,
    "shares": shares,
    "survival": survival,
    "grants": grants,
    "door": closing,
    "egress": egress,
    "addresses": functools.partial(network, granted=Network(Reach.ANY)),
}


async def main(area: str) -> None:
    world = World()
    resolve_by(world)
    spawner = Spawner(popen=leaky_unless_confined)
    try:
        held, free = await AREAS[area](Attacker(world, spawner), area)
        print(json.dumps({"held": held, "free": free}))
    finally:
        await spawner.close()
        world.close()


def leaky_unless_confined(argv: list[str], **options: Any) -> subprocess.Popen[bytes]:
    start = subprocess.Popen if options["pass_fds"] else leaky
    return start(argv, **options)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
