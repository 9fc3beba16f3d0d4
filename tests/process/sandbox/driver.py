"""A host without pytest: confines programs, and prints what happened as one JSON object.

Run by its path, with the machine's own Python and PYTHONPATH at the sources, as root and as somebody else: so it also
shows that nothing here needs more than the standard library. `doomed` starts children of every kind and waits for its
own end.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import runpy
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from plugbay.process import usage
from plugbay.process.child import Child, Spawner
from plugbay.process.command import Launch, LaunchFailed
from plugbay.process.sandbox import system
from plugbay.process.sandbox.jail import Reports
from plugbay.process.sandbox.launcher import Program, Sandbox, SandboxSettings
from plugbay.process.sandbox.policy import MIB, Limits, Policy
from plugbay.process.sandbox.users import uid_of

PYTHON = "/usr/bin/python3"
PROBE = Path(__file__).with_name("probe.py")
PATIENCE = 60.0
ENV = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "ODD": "--bind / /", "EMPTY": ""}

KINDS = {
    "direct": "echo ready; exec sleep {0}",
    "through a shell": "sh -c 'echo ready; sleep {0}; true'",
    "detached": "(setsid sh -c 'sleep {0}; true' &) ; echo ready; sleep {0}; true",
    "without a name": "env -i /bin/sh -c '(setsid sleep {0} &)'; echo ready; sleep {0}; true",
}


class Yard:
    """Folders for one run, and a spawner."""

    def __init__(self, spawner: Spawner) -> None:
        self.spawner = spawner
        self.root = Path(tempfile.mkdtemp(prefix=f"plugbay-sandbox-{os.getpid()}-"))
        self.root.chmod(0o755)
        for name in ("package", "written", "state", "other"):
            (self.root / name).mkdir()
        (self.root / "other" / "secret").write_text("canary")
        shutil.copy(PROBE, self.root / "package" / "probe.py")
        self.package = self.root / "package"

    def policy(self, **more: Any) -> Policy:
        return Policy(self.package, **more)

    async def start(
        self, *argv: str, policy: Policy | None, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> Child:
        launch = Launch(argv, cwd or self.package, env or ENV, label="driver", policy=policy)
        return await self.spawner.spawn(launch, PATIENCE)

    async def say(self, *argv: str, policy: Policy | None, cwd: Path | None = None) -> tuple[str, Child]:
        """Everything that a command writes, and the command after its end."""
        child = await self.start(*argv, policy=policy, cwd=cwd)
        stdout, stdin = child.take_pipes()
        os.close(stdin)
        try:
            said = await rest(stdout)
        finally:
            os.close(stdout)
        await child.wait(PATIENCE)
        return said, child

    async def ended(self, script: str, policy: Policy | None) -> dict[str, Any]:
        _, child = await self.say("/bin/sh", "-c", script, policy=policy)
        assert child.exit is not None
        return {"code": child.exit.code, "signal": child.exit.signal, "oom": bool(child.oom)}

    def written_owner(self) -> int:
        """As whom a confined program writes."""
        uid = uid_of("driver", SandboxSettings())
        return os.getuid() if uid is None else uid

    async def refused(self, *argv: str, **more: Any) -> dict[str, Any]:
        try:
            child = await self.start(*argv, **more)
        except LaunchFailed as error:
            return {"kind": type(error).__name__, "message": error.message, "hint": error.hint, "code": error.code}
        child.kill()
        child.close()
        return {"kind": "started"}


async def rest(fd: int, end: str | None = None) -> str:
    """What comes through a pipe up to its end, or up to a line."""
    said = b""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        while end is None or f"{end}\n".encode() not in said:
            readable = asyncio.Event()
            loop.add_reader(fd, readable.set)
            await readable.wait()
            loop.remove_reader(fd)
            piece = os.read(fd, 65536)
            if not piece:
                break
            said += piece
    return said.decode()


async def observe(yard: Yard) -> dict[str, Any]:
    """What a program sees with a policy, and what the same program sees without one."""
    uid = yard.written_owner()
    os.chown(yard.root / "written", uid, uid)
    words = [PYTHON, "-I", *map(str, (yard.package / "probe.py", yard.package))]
    words += map(str, (yard.root / "other" / "secret", yard.root / "written"))
    inside, child = await yard.say(*words, policy=yard.policy(write=(yard.root / "written",)))
    assert inside, child.stderr.tail()
    (yard.root / "written" / "new").unlink()
    outside, _ = await yard.say(*words, policy=None)
    for path in (yard.package / "new", Path("/new"), Path("/dev/new"), Path("/tmp/new")):
        path.unlink(missing_ok=True)
    return {"inside": json.loads(inside), "outside": json.loads(outside)}


async def endings(yard: Yard) -> dict[str, Any]:
    policy = yard.policy()
    script = yard.package / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    small = yard.policy(limits=Limits(memory=32 * 2**20))
    hog = f"exec {PYTHON} -I -S -c 'x = bytearray(200 * 2**20)'"
    return {
        "clean": await yard.ended("exit 0", policy),
        "code": await yard.ended("exit 3", policy),
        "signal": await yard.ended("kill -SEGV $$", policy),
        "forbidden call": await yard.ended("exec unshare --user true", policy),
        "allowed call": await yard.ended("exec unshare --user true", None),
        "hog": await yard.ended(hog, small),
        "modest": await yard.ended(hog, yard.policy(limits=Limits(memory=400 * 2**20))),
        "no interpreter": await yard.refused(str(script), policy=policy),
        "not shown": await yard.refused("/bin/sh", policy=policy, cwd=yard.root / "other"),
        "too many variables": await yard.refused(
            "/bin/true", policy=policy, env={f"V{number}": "x" for number in range(4000)}
        ),
        "shown": await yard.refused("/bin/true", policy=policy),
    }


async def refusals(yard: Yard) -> dict[str, Any]:
    link = yard.root / "link"
    link.symlink_to(yard.root / "other")
    inner = yard.root / "way"
    inner.symlink_to(yard.root)
    sly = yard.root / "sly"
    sly.symlink_to("/etc")
    closed = yard.root / "closed"
    closed.mkdir(mode=0o500)
    os.chown(closed, *(0, 0) if os.geteuid() == 0 else (-1, -1))

    async def attempt(**more: Any) -> dict[str, Any]:
        return await yard.refused("/bin/true", policy=yard.policy(**more))

    return {
        "plain": await attempt(read=(yard.root / "other",)),
        "link on the way": await attempt(read=(inner / "other",)),
        "link": await attempt(read=(link,)),
        "link to forbidden": await attempt(read=(sly / "ssl",)),
        "forbidden": await attempt(read=(Path("/etc/shadow"),)),
        "contains forbidden": await attempt(read=(Path("/etc"),)),
        "home": await attempt(read=(Path.home(),)),
        "missing": await attempt(read=(yard.root / "none",)),
        "not writable": await attempt(write=(closed,)),
        "code of the host": await attempt(write=(Path(system.PLUGBAY) / "process",)),
        "code of the host, read": await attempt(read=(Path(system.PLUGBAY) / "process",)),
        **await _chosen_by_the_plugin(yard),
        "covered": await _covered(yard),
    }


async def _chosen_by_the_plugin(yard: Yard) -> dict[str, Any]:
    """A grant of something in a folder where the plugin can put a link."""
    ruled = yard.root / "written"
    (yard.root / "other" / "inner").mkdir()
    (ruled / "real").mkdir()
    (ruled / "way").symlink_to(yard.root / "other")
    os.chown(ruled, yard.written_owner(), -1)
    granted = {"chosen": ruled / "way" / "inner", "not chosen": ruled / "real"}
    found = {
        name: await yard.refused("/bin/true", policy=yard.policy(write=(ruled,), read=(path,)))
        for name, path in granted.items()
    }
    alone = await yard.refused("/bin/true", policy=yard.policy(read=(granted["chosen"],)))
    return {**found, "chosen by nobody": alone}


async def _covered(yard: Yard) -> dict[str, Any]:
    """What a folder around the host's own shows, with and without a cover; the plugin's part of it is shown in both."""
    host = yard.root / "around" / "host"
    (host / "plugins" / "driver").mkdir(parents=True)
    (host / "plugins" / "driver" / "kept").write_text("kept\n")
    (host / "secret").write_text("canary\n")
    os.chown(host / "plugins" / "driver", yard.written_owner(), -1)
    script = f"ls {host}; cat {host}/secret {host}/plugins/driver/kept; (: > {host}/new) 2>&1"
    shown = {"read": (yard.root / "around",), "state": host / "plugins" / "driver"}
    said = [
        (await yard.say("/bin/sh", "-c", script, policy=yard.policy(**shown, hidden=hidden)))[0].split()
        for hidden in ((str(host),), ())
    ]
    return {"covered": said[0], "open": said[1]}


class Land:
    """A folder with everything in it: what the host keeps, two plugins, and what anybody may see.

    All of it is the plugin's own user's, where it has one: not file rights protect it.
    """

    def __init__(self, yard: Yard, name: str) -> None:
        self.root = yard.root / name
        files = (
            "plugbay.toml data/token deep/inner/data/token plugins/other/bin/program plugins/mine/program plain/note"
        )
        for path in (self.root / each for each in files.split()):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{path.relative_to(self.root)}\n")
        self.mine = self.root / "plugins" / "mine"
        (self.root / "plugins/other/bin/program").write_text("#!/bin/sh\n")
        (self.root / "plugins/other/bin/program").chmod(0o755)
        (self.mine / "sly").symlink_to("../other/bin/program")
        self.hidden = tuple(
            str(self.root / each) for each in ("plugbay.toml", "data", "deep/inner/data", "plugins/other")
        )
        for path in (self.root, *self.root.rglob("*")):
            os.chown(path, yard.written_owner(), -1, follow_symlinks=False)

    def policy(self, **more: Any) -> Policy:
        return Policy(**{"package": self.mine, "hidden": self.hidden, **more})

    def look(self) -> str:
        return (
            f"cd {self.root}; cat plugbay.toml data/token deep/inner/data/token plugins/other/bin/program "
            "plugins/mine/program plain/note; echo data: $(ls data) other: $(ls plugins/other)"
        )

    def left(self) -> dict[str, str]:
        """Every file that is there now, and its first line."""
        files = [path for path in sorted(self.root.rglob("*")) if path.is_file() and not path.is_symlink()]
        return {str(path.relative_to(self.root)): path.read_text().strip() for path in files}


ATTACKS = (
    "mv deep moved; mv deep/inner deep/moved; mv plugins gone; mv plugins/other plugins/gone; mv data gone; "
    "mv plugbay.toml gone; ln -sf plain/note plugbay.toml; rm -f plugbay.toml; echo evil > plugbay.toml; "
    "echo evil > data/token; echo evil > plugins/other/bin/program; echo evil > plugins/mine/program; "
    "rm -rf plugins/other; echo written > plain/new"
)


async def covers(yard: Yard) -> dict[str, Any]:
    """What is seen and changed of a folder around all that is hidden, with covers and without."""
    seen: dict[str, Any] = {}
    for name, hides in {"hidden": True, "open": False}.items():
        land = Land(yard, name)
        more = {} if hides else {"hidden": ()}
        for how in ({"read": (land.root,)}, {"write": (land.root,)}, {"package": land.root}):
            said, _ = await yard.say("/bin/sh", "-c", land.look(), policy=land.policy(**how, **more), cwd=Path("/"))
            seen[f"{name} {next(iter(how))}"] = said
        policy = land.policy(write=(land.root,), **more)
        await yard.say("/bin/sh", "-c", f"cd {land.root}; {ATTACKS}", policy=policy, cwd=Path("/"))
        seen[f"{name} left"] = land.left()
        for case, wish in _wishes(Land(yard, f"{name}-wishes")).items():
            argv = wish.pop("argv", ("/bin/true",))
            policy = wish.pop("policy")(**wish, **more)
            seen[f"{name} {case}"] = await yard.refused(*argv, policy=policy, cwd=Path("/"))
    return {**seen, **await _listed(yard)}


def _wishes(land: Land) -> dict[str, dict[str, Any]]:
    (land.root / "turn").symlink_to(land.root / "plain")
    turned = (*land.hidden, f"{land.root}/turn/note")
    link = {"policy": lambda **more: land.policy(**{"hidden": turned, **more}), "write": (land.root,)}
    return {
        "file": {"policy": land.policy, "read": (land.root / "plugbay.toml",)},
        "in a folder": {"policy": land.policy, "read": (land.root / "data" / "token",)},
        "folder": {"policy": land.policy, "write": (land.root / "plugins" / "other",)},
        "program": {"policy": land.policy, "argv": (str(land.mine / "sly"),)},
        "turned link": link,
        "turned link, read": {**link, "write": (), "read": (land.root,)},
    }


async def _listed(yard: Yard) -> dict[str, Any]:
    """The mounts of a sandbox as the kernel tells of them, and as they were announced."""
    land = Land(yard, "listed")
    policy = land.policy(write=(land.root,), state=yard.root / "kept")
    argv = ("/bin/cat", "/proc/self/mountinfo")
    said, _ = await yard.say(*argv, policy=policy, cwd=Path("/"))
    announced = Sandbox().visible(Program(argv, yard.package, ENV, "driver"), policy)
    return {"mounts": [line.split()[4] for line in said.splitlines()], "announced": announced}


async def signals(yard: Yard) -> dict[str, Any]:
    """SIGTERM reaches the program, also one that left its group; and SIGKILL ends all of it."""
    told = {}
    for name, script in {
        "handler": "trap 'echo told; exit 7' TERM; echo ready; while :; do sleep 0.01; done",
        "own session": f"exec {PYTHON} -I -S -c '{_OWN_SESSION}'",
    }.items():
        child = await yard.start("/bin/sh", "-c", script, policy=yard.policy())
        stdout, stdin = child.take_pipes()
        await rest(stdout, "ready")
        child.terminate()
        status = await child.wait(PATIENCE)
        said = await rest(stdout)
        told[name] = [said.strip(), None if status is None else status.code]
        os.close(stdout)
        os.close(stdin)
    return {**told, "fds": await _descriptors(yard)}


_OWN_SESSION = (
    "import os, signal, time\n"
    "os.setsid()\n"
    'signal.signal(15, lambda *_: (os.write(1, b"told"), os._exit(7)))\n'
    'os.write(1, b"ready\\n")\n'
    "while True: time.sleep(1)"
)


async def _descriptors(yard: Yard) -> int:
    """How many descriptors of the host one idle confined child costs, measured while no other one comes or goes."""

    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    await yard.ended("exit 0", yard.policy())
    for _ in range(10):
        await yard.spawner.swept(PATIENCE)
        before = count()
        child = await yard.start("/bin/sleep", "60", policy=yard.policy())
        cost = count() - before
        child.kill()
        await child.wait(PATIENCE)
        child.close()
        await yard.spawner.swept(PATIENCE)
        if count() == before:
            return cost
    raise AssertionError(f"the host had {before} descriptors before a child, and has {count()} after it")


async def used(yard: Yard) -> dict[str, Any]:
    """What the host sees of the memory of a program that holds some in every way, and hides from other users."""
    child = await yard.start(PYTHON, "-I", "-S", "-c", _HOLDS, policy=yard.policy())
    stdout, stdin = child.take_pipes()
    found = {}
    for moment in ("before", "after"):
        await rest(stdout, "ready")
        assert child.jail is not None
        found[moment] = {
            "memory": usage.memory_of_tree(child.pid),
            "sockets": usage.memory_of_sockets(child.jail.first),
        }
        os.write(stdin, b"\n")
    await child.wait(PATIENCE)
    os.close(stdout)
    os.close(stdin)
    return found


_HOLDS = """
import ctypes, os, signal, socket, sys
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
def pause():
    print("ready", flush=True)
    sys.stdin.readline()
pause()
own = b"x" * (24 << 20)
reading, writing = os.pipe()
if os.fork() == 0:
    other = b"y" * (16 << 20)
    os.write(writing, b"x")
    signal.pause()
os.read(reading, 1)
os.write(os.memfd_create("big"), b"x" * (12 << 20))
open("/tmp/big", "wb").write(b"x" * (8 << 20))
listening = socket.create_server(("127.0.0.1", 0), backlog=100)
for _ in range(60):
    with socket.create_connection(listening.getsockname()) as gone:
        gone.send(bytes(40000))
pause()
"""


async def node(yard: Yard) -> dict[str, Any]:
    """Node with worker threads and forks, with the usual memory and with a quarter of it."""
    script = yard.package / "plugin.js"
    script.write_text(runpy.run_path(str(Path(__file__).with_name("runtimes.py")))["NODE"])
    found: dict[str, Any] = {"limits": yard.spawner.sandbox.limits_state}
    for name, limits in {"usual": Limits(), "quarter": Limits(memory=256 * MIB)}.items():
        said, child = await yard.say("/usr/bin/node", str(script), policy=yard.policy(limits=limits))
        found[name] = said or child.stderr.tail()
    return found


PROGRAMS = """
import glob, json, os, subprocess, sys

def runs(*argv):
    try:
        return subprocess.run(argv, capture_output=True).returncode == 0
    except OSError:
        return False

loader = glob.glob("/lib*/ld-linux-*.so.*")[0]
print(json.dumps({
    "itself": runs(sys.executable, "-c", "import ssl, sqlite3, ctypes"),
    "ls": runs("/bin/ls", "/"),
    "through the loader": runs(loader, "/bin/ls", "/"),
    "git": runs("git", "--version"),
    "shell": runs("/bin/sh", "-c", ":"),
    "git's helpers": os.path.exists("/usr/lib/git-core"),
    "programs": sorted(os.listdir("/usr/bin"))[:10],
}))
"""
"""What a fenced Python can run."""


async def fence(yard: Yard) -> dict[str, Any]:
    """The programs that plugins of several kinds see, fenced and not."""
    script = yard.package / "programs.py"
    script.write_text(PROGRAMS)
    wrapper, shell = yard.package / "wrapper", yard.package / "shell"
    wrapper.write_text(f"#!/bin/sh\n# Only this.\nexec python3 {script}\n")
    shell.write_text(
        "#!/bin/sh\necho it runs\nls / 2>/dev/null || echo no ls\nexec python3 -c 'print(1)' 2>/dev/null\n"
    )
    linked = yard.root / "linked"
    linked.symlink_to(PYTHON)
    for path in (wrapper, shell):
        path.chmod(0o755)
    fenced = yard.policy(fenced=True)
    cases: dict[str, tuple[tuple[str, ...], Policy]] = {
        "open": ((PYTHON, str(script)), yard.policy()),
        "fenced": ((PYTHON, str(script)), fenced),
        "granted": ((PYTHON, str(script)), yard.policy(fenced=True, run=(Path("/usr/bin/git"),))),
        "granted a shell": ((PYTHON, str(script)), yard.policy(fenced=True, run=(Path("/bin/sh"),))),
        "granted to read": ((PYTHON, str(script)), yard.policy(fenced=True, read=(Path("/bin/ls"),))),
        "by env": (("/usr/bin/env", "python3", str(script)), fenced),
        "by a wrapper": ((str(wrapper),), fenced),
        "by a link": ((str(linked), str(script)), fenced),
    }
    found: dict[str, Any] = {}
    for name, (argv, policy) in cases.items():
        said, child = await yard.say(*argv, policy=policy)
        found[name] = json.loads(said) if said else child.stderr.tail()
    found["a shell script"] = (await yard.say(str(shell), policy=fenced))[0].splitlines()
    listed = Sandbox().visible(Program((str(shell),), yard.package, ENV, "driver"), fenced)
    found["listed"] = sorted(path for _, path in listed if "/bin/" in path)
    return found


HOG = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
taken = 0
while taken < 4000 and libc.inotify_init1(0) >= 0:
    taken += 1
print(taken, flush=True)
sys.stdin.read()
"""


async def shares(yard: Yard) -> dict[str, Any]:
    """The inotify instances that a plugin takes, and whether its host still gets one: confined, and not."""
    libc = ctypes.CDLL(None)
    found: dict[str, Any] = {"machine": int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())}
    for name, policy in (("confined", yard.policy()), ("free", None)):
        child = await yard.start(PYTHON, "-I", "-S", "-c", HOG, policy=policy)
        stdout, stdin = child.take_pipes()
        taken = int((await rest(stdout, "")).strip() or -1)
        own = libc.inotify_init1(0)
        found[name] = {"taken": taken, "host": own >= 0}
        if own >= 0:
            os.close(own)
        os.close(stdin)
        os.close(stdout)
        await child.wait(PATIENCE)
    return found


async def crowd(yard: Yard, seconds: str, count: int) -> list[Child]:
    children = []
    for number in range(count):
        script = list(KINDS.values())[number % len(KINDS)].format(seconds)
        child = await yard.start("/bin/sh", "-c", script, policy=yard.policy())
        stdout, _ = child.take_pipes()
        await rest(stdout, "ready")
        children.append(child)
    return children


def hold(reports: Reports) -> None:
    """Never let the program go."""
    print("ready", flush=True)
    threading.Event().wait()


async def main(task: str, seconds: str = "") -> None:
    spawner = Spawner(sandbox=SandboxSettings())
    yard = Yard(spawner)
    try:
        if task == "held":
            setattr(Reports, "release", hold)  # noqa: B010, mypy lets nobody assign a method
        if task in {"doomed", "held"}:
            await crowd(yard, seconds, 8)
            print("ready", flush=True)
            await asyncio.Event().wait()
        parts = {
            "observe": observe,
            "endings": endings,
            "refusals": refusals,
            "signals": signals,
            "used": used,
            "node": node,
            "covers": covers,
            "fence": fence,
            "shares": shares,
        }
        print(json.dumps(await parts[task](yard)))
    finally:
        await spawner.close()
        shutil.rmtree(yard.root, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(main(*sys.argv[1:]))
