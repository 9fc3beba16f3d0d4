"""Checks whether this machine can confine a plugin.

The last check is the proof: it starts a probe with the code that starts plugins, and the probe reports from inside what
it can do. Blocks for some tens of milliseconds; for pool threads.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from plugbay.process import pidfd
from plugbay.process.diagnose import LaunchFailed
from plugbay.process.limits import Rlimits
from plugbay.process.sandbox import seccomp, system, users
from plugbay.process.sandbox.bwrap import INSTALL, NAMESPACES
from plugbay.process.sandbox.cgroup import DEGRADED
from plugbay.process.sandbox.launcher import Program, Sandbox, tool
from plugbay.process.sandbox.policy import Policy

LABEL = "plugbay-probe"
PROBE_SECONDS = 10.0

_PROBE = """
cat /proc/self/status
(: >> /proc/sys/kernel/core_pattern) 2>/dev/null && echo 'core_pattern: open'
(: >> /probe) 2>/dev/null && echo 'root: open'
set -- /proc/[0-9]*; echo "processes: $#"
"""
"""Opens for writing and writes nothing: on a machine where it can, no harm is done."""

_EXPECTED = {"Seccomp": "2", "NoNewPrivs": "1", "CapEff": "0" * 16, "CapBnd": "0" * 16}


@dataclass(frozen=True, slots=True)
class Fact:
    """One answer."""

    name: str
    ok: bool
    text: str
    fix: str = ""
    vital: bool = True
    """False: plugins can be confined all the same, only less well."""


def preflight(sandbox: Sandbox) -> list[Fact]:
    """Everything that matters here; the proof is left out when something that it needs is missing."""
    found = [_bubblewrap(), _namespaces(), _filter(), _user(sandbox), _limits(sandbox)]
    if all(fact.ok or not fact.vital for fact in found):
        found.append(_proof(sandbox))
    return found


def _bubblewrap() -> Fact:
    try:
        path = tool("bwrap")
        said = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except LaunchFailed as error:
        return Fact("bubblewrap", False, error.message, error.hint)
    except (OSError, subprocess.SubprocessError) as error:
        return Fact("bubblewrap", False, f"bwrap cannot be run: {error}", INSTALL)
    lacking = [option for option in ("--bind-fd", "--disable-userns") if option not in said.stdout]
    if lacking:
        return Fact("bubblewrap", False, f"{path} is too old: it lacks {', '.join(lacking)}", INSTALL)
    return Fact("bubblewrap", True, path)


def _namespaces(folder: Path = Path("/proc/sys")) -> Fact:
    closed = {
        "user/max_user_namespaces": "0",
        "kernel/unprivileged_userns_clone": "0",
        "kernel/apparmor_restrict_unprivileged_userns": "1",
    }
    wrong = [name.replace("/", ".", 1) for name, value in closed.items() if _read(folder / name) == value]
    # Ubuntu's rule may have an exception for bwrap; whether it has is seen in the proof.
    vital = any(name != "kernel.apparmor_restrict_unprivileged_userns" for name in wrong)
    if wrong:
        return Fact("user namespaces", False, f"restricted by {', '.join(wrong)}", NAMESPACES, vital)
    return Fact("user namespaces", True, "not restricted")


def _filter() -> Fact:
    try:
        sizes = [len(seccomp.program(network=network)) // 8 for network in (True, False)]
    except LaunchFailed as error:
        return Fact("system call filter", False, error.message, error.hint)
    return Fact("system call filter", True, f"{platform.machine()}, {sizes[0]} and {sizes[1]} instructions")


def _user(sandbox: Sandbox) -> Fact:
    uid = users.uid_of(LABEL, sandbox.settings)
    if uid is None:
        return Fact("user", True, f"plugins run as the host's own user {os.geteuid()}, without its rights over others")
    try:
        for number in sandbox.settings.uids:
            users.check_mapped(number, sandbox.settings)
    except LaunchFailed as error:
        return Fact("user", False, error.message, error.hint)
    first, last = sandbox.settings.uids
    return Fact("user", True, f"each plugin has its own user id in {first}-{last}")


def _limits(sandbox: Sandbox) -> Fact:
    state = sandbox.limits_state
    if state == DEGRADED:
        why = "the limits apply to single processes, and the host checks the memory of all of them every second"
        return Fact("limits", False, f"degraded: {why}", sandbox.why, sandbox.settings.require_limits)
    return Fact("limits", True, f"{state}; {sandbox.why}" if sandbox.why else state)


def _proof(sandbox: Sandbox) -> Fact:
    try:
        said = _from_inside(sandbox)
    except LaunchFailed as error:
        return Fact("confinement", False, error.message, error.hint)
    except (OSError, subprocess.SubprocessError) as error:
        return Fact("confinement", False, f"the probe failed: {error}")
    lines = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
    wrong = [name for name, value in _EXPECTED.items() if lines.get(name, "").strip() != value]
    wrong += [f"{name} can be written" for name in ("core_pattern", "root") if name in lines]
    if wrong:
        return Fact("confinement", False, f"it has gaps: {', '.join(wrong)}", "report this with bwrap --version")
    text = f"a probe inside has no rights, a filter, and sees {lines['processes'].strip()} processes"
    return Fact("confinement", True, text)


def _from_inside(sandbox: Sandbox) -> str:
    """The report of the probe. Raises LaunchFailed, OSError or SubprocessError."""
    program = Program(("/bin/sh", "-c", _PROBE), Path("/"), {"PATH": "/usr/bin:/bin"}, LABEL)
    jail = sandbox.prepare(program, Policy(Path(system.PLUGBAY)), Rlimits(), {})
    try:
        with subprocess.Popen(
            jail.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=jail.env,
            pass_fds=jail.pass_fds,
            start_new_session=True,
            text=True,
        ) as process:
            try:
                assert process.stderr is not None
                jail.admit(process.pid, None, process.stderr.fileno())
                return process.communicate(timeout=PROBE_SECONDS)[0]
            finally:
                pidfd.signal_group(process.pid, signal.SIGKILL)
    finally:
        jail.close()


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
