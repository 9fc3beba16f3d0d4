"""`plugbay sandbox`: any command, confined as a plugin is. Real sandboxes, each with its positive control."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plugbay.cli.sandbox import _start
from plugbay.process import limits
from plugbay.process.limits import Rlimits
from plugbay.process.sandbox.cgroup import Cgroups
from plugbay.process.sandbox.launcher import Program, Sandbox
from plugbay.process.sandbox.policy import Policy
from tests.cli.conftest import MakePlugin, Run, descendants_of, environment, wait_until
from tests.support.ainb import write_ainb_plugin
from tests.support.commands import Command
from tests.support.kaged import write_kaged_plugin
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement


def test_a_command_has_the_terminals_streams_and_gives_back_its_status(run: Run, cwd: Path) -> None:
    write_kaged_plugin(cwd, "notes", capabilities=["exec:cat:/usr/bin/cat"])
    done = run("sandbox", "notes", "--grant-all", "--", "sh", "-c", "cat; echo oops >&2; exit 7", stdin="hello")
    assert (done.code, done.out) == (7, "hello")
    assert done.err.endswith("oops\n")
    assert run("sandbox", "notes", "--", "sh", "-c", "kill -TERM $$").code == 128 + signal.SIGTERM


def test_it_is_confined_as_the_plugin_is(run: Run, cwd: Path, tmp_path: Path) -> None:
    reads = f"read:fs:{tmp_path / 'data'}"
    root = write_kaged_plugin(cwd, "notes", capabilities=[reads, "exec:cat:/usr/bin/cat", "exec:touch:/usr/bin/touch"])
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data" / "told").write_text("secret")
    (tmp_path / "data" / "told").chmod(0o644)
    look = ("--", "sh", "-c", f"pwd; cat {tmp_path}/data/told; touch here 2>&1; touch $HOME/kept && echo kept")
    closed = run(
        "sandbox", "notes", "--grant", "exec:cat:/usr/bin/cat", "--grant", "exec:touch:/usr/bin/touch", *look
    ).out
    assert closed.startswith(f"{root}\n") and "secret" not in closed
    assert "Read-only file system" in closed and closed.endswith("kept\n")
    assert "secret" in run("sandbox", "notes", "--grant-all", *look).out
    assert (tmp_path / ".local" / "state" / "plugbay" / "plugins" / "notes" / "kept").exists()


@pytest.mark.parametrize(("granted", "found"), [((), "ls: not found"), (("--grant", "exec:ls:/usr/bin/ls"), "plugin")])
def test_other_programs_than_the_command_are_those_that_the_plugin_may_run(
    run: Run, cwd: Path, granted: tuple[str, ...], found: str
) -> None:
    write_kaged_plugin(cwd, "notes", capabilities=["exec:ls:/usr/bin/ls"])
    done = run("sandbox", "notes", *granted, "--", "sh", "-c", "ls")
    assert found in done.out + done.err
    why = "notes may not run every program, so the command sees these only: "
    assert (why in done.err) == (granted == ())


@requirement("host:sandbox-time-zone", "host:sandbox-alternatives")
def test_a_confined_program_knows_the_time_zone_and_runs_behind_alternatives(run: Run, make_plugin: MakePlugin) -> None:
    folder = make_plugin()
    zone = "readlink /etc/localtime; cat /etc/timezone 2> /dev/null; date +%Z"
    outside = subprocess.run(["sh", "-c", zone], capture_output=True, text=True, timeout=PATIENCE).stdout
    assert run("sandbox", folder, "--", "sh", "-c", zone).out == outside
    assert run("sandbox", folder, "--", "awk", "BEGIN { print 7 }").out == "7\n"


@requirement("host:sandbox-alternatives")
@pytest.mark.skipif(shutil.which("keytool") is None, reason="there is no Java here")
def test_a_confined_java_finds_its_settings(run: Run, make_plugin: MakePlugin) -> None:
    done = run("sandbox", make_plugin(), "--", "keytool", "-list", "-cacerts", "-storepass", "changeit")
    assert done.code == 0, done.out


def test_a_plugin_that_is_not_confined_shows_how_it_would_be(run: Run, make_plugin: MakePlugin) -> None:
    done = run("sandbox", make_plugin(), "--", "grep", "Seccomp:", "/proc/self/status")
    assert (done.code, done.out) == (0, "Seccomp:\t2\n")
    assert "a host runs example.echo unconfined: its manifest does not ask for it" in done.err


def test_a_connection_that_is_refused_is_reported(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, "panel", capabilities={"network": ["api.example.com:443"]})
    asks = "printf 'CONNECT other.example:443 HTTP/1.1\\r\\nHost: other.example:443\\r\\n\\r\\n' >&3"
    asks += '; read line <&3; echo "$line"'
    words = ("--", "bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/3128 && {asks}")
    done = run("sandbox", "panel", "--grant-all", *words)
    assert " 403 " in done.out
    assert "note:  refused: other.example:443: the network is not granted" in done.err
    assert "Connection refused" in run("sandbox", "panel", *words).err


def test_the_policy_can_be_looked_at_without_running_anything(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, "panel", capabilities={"network": ["api.example.com:443"]})
    assert "network   none" in run("sandbox", "panel", "--show").out
    shown = run("sandbox", "panel", "--show", "--grant-all", "--json").json
    opened = {"reach": "listed", "doors": ["api.example.com:443"], "private": []}
    assert shown["policy"]["network"] == opened


def test_everything_that_is_visible_is_listed_with_covers_and_the_runtime(run: Run, cwd: Path, tmp_path: Path) -> None:
    root = write_kaged_plugin(cwd / "plugins", "notes", command=["./program"])
    write_kaged_plugin(cwd / "plugins", "other")
    tool = tmp_path / "opt" / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    (root / "program").write_text(f"#!{tool}\n")
    (root / "program").chmod(0o755)
    (cwd / "plugbay.toml").write_text('[host]\nstate_dir = "state"\n[project]\nroot = "."\n')
    shown = run("sandbox", "plugins/notes", "--show", "--json").json
    seen = {each["path"]: each["as"] for each in shown["visible"]}
    # On arm64, the loader is a link there.
    assert {how for path, how in seen.items() if path.startswith("/usr/lib/")} - {"link"} == {"read-only"}
    assert seen["/etc/passwd"] == "made" and "/usr" not in seen
    assert seen[str(root)] == seen[str(cwd)] == seen[str(tool)] == "read-only"
    assert seen[str(cwd / "state")] == seen[str(cwd / "plugins" / "other")] == "empty"
    assert seen[str(cwd / "plugbay.toml")] == "unreadable"
    assert seen[str(cwd / "state" / "plugins" / "notes")] == "writable"
    assert not (cwd / "state").exists()
    said = run("sandbox", "plugins/notes", "--show").out
    assert all(path in said for path in seen)


def test_a_grant_of_a_protected_path_is_refused_visibly(run: Run, cwd: Path) -> None:
    write_kaged_plugin(cwd / "plugins", "notes", capabilities=[f"read:fs:{cwd}/state"])
    (cwd / "state").mkdir()
    (cwd / "plugbay.toml").write_text('[host]\nstate_dir = "state"\n')
    words = f"{cwd}/state must not be visible to a plugin: it is the host's state folder"
    assert words in run("inspect", "plugins/notes", "--grant-all").out.replace("\n            ", " ")
    refused = run("sandbox", "plugins/notes", "--grant-all", "--show")
    assert refused.code == 5 and words in refused.err and "no grant allows that" in refused.err
    listed = run("ps", "--plugins", "plugins", "--grant-all", "--json").json
    assert words in json.dumps(listed)
    assert words in run("doctor", "plugins/notes", "--json").out
    (cwd / "plugbay.toml").write_text('[host]\nstate_dir = "elsewhere"\n')
    assert run("sandbox", "plugins/notes", "--grant-all", "--show").code == 0


def test_what_cannot_be_run_says_why(run: Run, cwd: Path) -> None:
    write_kaged_plugin(cwd, "notes")
    assert run("sandbox", "notes").code == 2
    assert run("sandbox", "nowhere", "--", "true").code == 4
    missing = run("sandbox", "notes", "--", "no-such-program")
    assert missing.code == 7 and "no-such-program" in missing.err
    (cwd / "plugbay.toml").write_text('[plugins.notes.sandbox]\nread = ["/etc"]\n')
    refused = run("sandbox", "notes", "--", "true")
    assert refused.code == 5 and "must not be visible to a plugin" in refused.err


def test_nothing_is_left_when_it_is_ended(cwd: Path, tmp_path: Path) -> None:
    write_kaged_plugin(cwd, "notes", capabilities=["exec:setsid:/usr/bin/setsid", "exec:sleep:/usr/bin/sleep"])
    (tmp_path / "out").touch()
    with (tmp_path / "out").open("wb") as out, open(os.devnull, "rb") as nothing:
        words = ["sandbox", "notes", "--grant-all", "--", "sh", "-c", "echo $$; setsid sleep 4242 & wait"]
        process = Command(words, (nothing.fileno(), out.fileno(), 2), cwd, environment(tmp_path))
    sleeping = f"sleep\0{4242}\0".encode()
    wait_until(lambda: _running(sleeping), "the command to run")
    process.terminate()
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    wait_until(lambda: not _running(sleeping), "everything to be gone")
    assert not descendants_of(process.pid)


def test_a_sandbox_that_cannot_be_admitted_leaves_nothing_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits inside does not die with its monitor: it takes the group."""
    tmp_path.chmod(0o755)
    waiting: list[int] = []

    def refuse(pid: int, limits: object) -> None:
        waiting.append(pid)
        raise OSError(1, "no limits")

    def attempt() -> None:
        program = Program(("/bin/true",), tmp_path, {}, "p")
        jail = Sandbox(cgroups=Cgroups(tmp_path / "none")).prepare(program, Policy(tmp_path), Rlimits(), {})
        try:
            with pytest.raises(OSError, match="no limits"):
                _start(jail)
        finally:
            jail.close()

    monkeypatch.setattr(limits, "apply", refuse)
    with ThreadPoolExecutor(1) as thread:  # as root it leaves the view of the mounts that others share
        thread.submit(attempt).result()
        wait_until(lambda: not Path(f"/proc/{waiting[0]}").exists(), "the first process to be gone")


def _running(cmdline: bytes) -> bool:
    return any(_cmdline(path) == cmdline for path in Path("/proc").glob("[0-9]*/cmdline"))


def _cmdline(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
