"""The files of the system that every plugin sees, and those of its program's runtime."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from plugbay.process.sandbox import system
from plugbay.process.sandbox.system import PLUGBAY, fence, is_system, needed
from plugbay.process.sandbox.users import as_user
from tests.process.sandbox.drivers import IDENTITIES, report
from tests.support.machine import needs_root
from tests.support.requirements import requirement


def test_existing_programs_and_libraries_are_shown_read_only() -> None:
    shown = system.binds(own_network=True)
    assert shown[0].path == "/usr"
    assert not any(bind.writable for bind in shown)
    assert all(bind.source == bind.path and os.path.exists(bind.path) for bind in shown)
    names = {bind.path for bind in shown} | {path for _, path in system.links()}
    assert {"/bin", "/lib"} <= names
    assert not names & {"/etc", "/etc/passwd", "/etc/shadow", "/etc/resolv.conf", "/run", "/sys"}


@needs_root
def test_files_that_the_user_may_read_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(user: int | None) -> list[str]:
        with as_user(user):
            found = list(system.copied())
        for fd, _ in found:
            os.close(fd)
        return [os.path.basename(path) for _, path in found]

    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, ThreadPoolExecutor(1) as pool:
        os.chmod(folder, 0o755)
        os.mkdir(f"{folder}/inner")
        for name, mode in (("open", 0o644), ("closed", 0o600)):
            Path(folder, name).touch(mode)
        names = ("open", "closed", "inner", "none")
        monkeypatch.setattr(system, "COPIED", tuple(f"{folder}/{name}" for name in names))
        assert pool.submit(copied, None).result() == ["open", "closed"]
        assert pool.submit(copied, 2_000_000_123).result() == ["open"]


@requirement("host:sandbox-alternatives")
def test_a_program_behind_debian_alternatives_needs_nothing_more(tmp_path: Path) -> None:
    alternatives = "/etc/alternatives"
    names = [name for name in (os.listdir(alternatives) if os.path.isdir(alternatives) else ()) if _is_program(name)]
    for name in names:
        assert system.needed((f"/usr/bin/{name}",), {"PATH": "/usr/bin"}) == (), name
        shown = system.fence([(f"/usr/bin/{name}",)], {"PATH": "/usr/bin"}, own_network=True)
        real = os.path.realpath(f"/usr/bin/{name}")
        assert shown.needed == () and shown.shows(real) and shown.shows(f"{alternatives}/{name}"), name


def _is_program(name: str) -> bool:
    """Whether an alternative is a program of the system and no script."""
    path = os.path.realpath(f"/usr/bin/{name}")
    if not (os.access(path, os.X_OK) and os.path.islink(f"/usr/bin/{name}") and path.startswith("/usr/")):
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


@requirement("host:sandbox-time-zone")
def test_the_time_zone_has_its_name() -> None:
    """Programs read the name of the zone from the target of the link, or from /etc/timezone."""
    is_link = os.path.islink("/etc/localtime")
    assert ("/etc/localtime" in [path for _, path in system.links()]) == is_link
    assert ("/etc/localtime" in system.COPIED) != is_link
    assert "/etc/timezone" in system.COPIED


def test_only_existing_files_of_the_kernel_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "MASKED", ("/proc/self/status", "/proc/no-such-file"))
    assert system.masked() == ("/proc/self/status",)


def test_who_has_the_machines_network_has_its_names_too() -> None:
    shown = {bind.path for bind in system.binds(own_network=False)}
    assert shown >= {path for path in ("/etc/resolv.conf", "/etc/hosts") if os.path.exists(path)}
    assert "/etc/hosts" not in system.files("/tmp", 1000, own_network=False)


def test_the_files_that_exist_only_inside_name_no_user_of_this_machine() -> None:
    files = system.files("/state", 1000, own_network=True)
    assert files["/etc/passwd"] == b"plugin:x:1000:1000::/state:/bin/sh\n"
    assert files["/etc/hosts"].startswith(b"127.0.0.1 localhost plugin\n")


@pytest.mark.parametrize("home", ["/a:0:0::/", "/a\nroot:x:0:0::/:/bin/sh"])
def test_no_path_adds_a_field_or_a_user(home: str) -> None:
    assert system.files(home, 1000, own_network=True)["/etc/passwd"] == b"plugin:x:1000:1000::/:/bin/sh\n"


@pytest.mark.parametrize(
    ("path", "known"),
    [("/usr", True), ("/usr/bin/env", True), ("/bin/sh", True), ("/usrx", False), ("/opt/x", False), ("/", False)],
)
def test_paths_of_the_system_are_recognised(path: str, known: bool) -> None:
    assert system.is_system(path) is known


def program(path: Path, first_line: str = "#!/bin/sh") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{first_line}\n")
    path.chmod(0o755)
    return path


def test_a_program_of_the_system_needs_nothing_more() -> None:
    assert needed(("/bin/sh", "-c", "true"), {"PATH": "/usr/bin"}) == ()


def test_a_program_alone_in_a_folder_is_shown_itself(tmp_path: Path) -> None:
    tool = program(tmp_path / "tool")
    assert needed((str(tool),), {}) == (str(tool),)


def test_a_program_of_a_prefix_comes_with_the_folders_beside_it(tmp_path: Path) -> None:
    tool = program(tmp_path / "bin" / "tool")
    (tmp_path / "lib").mkdir()
    (tmp_path / "etc").mkdir()
    (tmp_path / "pyvenv.cfg").touch()
    assert needed((str(tool),), {}) == tuple(f"{tmp_path}/{name}" for name in ("bin", "lib", "pyvenv.cfg"))


def test_a_link_comes_with_its_target(tmp_path: Path) -> None:
    program(tmp_path / "real" / "bin" / "tool")
    (tmp_path / "alias").symlink_to("real/bin/tool")
    assert needed((str(tmp_path / "alias"),), {}) == (f"{tmp_path}/alias", f"{tmp_path}/real/bin")


@requirement("host:sandbox-executed")
def test_a_program_of_npm_comes_with_all_modules_around_it(tmp_path: Path) -> None:
    modules = tmp_path / "app" / "node_modules"
    program = modules / "tea" / "node_modules" / "cup" / "cli.js"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (modules / ".bin").mkdir()
    link = modules / ".bin" / "cup"
    link.symlink_to("../tea/node_modules/cup/cli.js")
    assert str(modules) in needed([str(link)], {})
    assert str(modules) in fence([[str(link)]], {}, own_network=True).needed
    beside = tmp_path / "app" / "cup.js"
    beside.write_text("#!/bin/sh\n")
    beside.chmod(0o755)
    assert needed([str(beside)], {}) == (str(beside),)


@requirement("host:sandbox-executed")
@pytest.mark.parametrize("words", [("tool",), ("-S", "tool"), ("A=1", "tool"), ("-u", "A", "tool", "--flag")])
def test_env_as_the_command_comes_with_the_program_that_it_runs(tmp_path: Path, words: tuple[str, ...]) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert str(tool) in needed(["/usr/bin/env", *words], {"PATH": str(tmp_path)})
    assert needed(["/usr/bin/env", "tool"], {"PATH": "/nowhere"}) == ()


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert needed((str(tmp_path / "a"),), {}) == ()


@pytest.mark.parametrize("line", ["#!{0}", "#!/usr/bin/env tool", "#!/usr/bin/env -S A=b tool -x"])
def test_a_script_comes_with_its_interpreter(tmp_path: Path, line: str) -> None:
    tool = program(tmp_path / "opt" / "bin" / "tool")
    script = program(tmp_path / "script", line.format(tool))
    path = os.pathsep.join(["relative", str(tmp_path / "none"), str(tool.parent)])
    assert needed((str(script),), {"PATH": path}) == (str(script), str(tool.parent))


def test_the_hosts_own_python_comes_with_its_libraries_and_with_plugbay() -> None:
    found = needed((sys.executable, "-c", "pass"), {})
    for prefix in (sys.prefix, sys.base_prefix):
        assert is_system(prefix) or prefix in found
    assert PLUGBAY in found
    assert Path(PLUGBAY, "process", "sandbox", "system.py").is_file()


def test_a_path_that_leads_to_the_hosts_python_shows_it(tmp_path: Path) -> None:
    script = program(tmp_path / "script")
    folder = os.path.dirname(sys.executable)
    assert PLUGBAY in needed((str(script),), {"PATH": f"/usr/bin:{folder}"})
    assert PLUGBAY not in needed((str(script),), {"PATH": "/usr/local/none"})


def test_an_interpreter_that_is_not_there_is_left_for_the_start_to_complain_of(tmp_path: Path) -> None:
    script = program(tmp_path / "script", "#!/no/such/interpreter")
    assert needed((str(script),), {}) == (str(script),)


def test_a_first_line_shows_no_file_that_is_no_program(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary")
    script = program(tmp_path / "script", f"#!{secret}")
    assert needed((str(script),), {}) == (str(script),)
    secret.chmod(0o755)
    assert needed((str(script),), {}) == (str(script), str(secret))


def test_nothing_comes_before_a_folder_that_holds_it() -> None:
    """So it is not bound once more: four binds for the host's own Python, which were ten."""
    named = needed((sys.executable,), {})
    for number, path in enumerate(named):
        assert [later for later in named[number:] if path.startswith(f"{later}/")] == []


@pytest.mark.parametrize(
    "line",
    [
        "#!/usr/bin/env -S -u {0} perl",
        "#!/usr/bin/env -S --unset {0} perl",
        "#!/usr/bin/env -S --argv0 {0} perl",
        "#!/usr/bin/env -S -C {0} perl",
        "#!/usr/bin/env -S -u\t{0} perl",
        "#!/usr/bin/env -S -uA\u00a0{0} perl",
        "#!/usr/bin/env -S 'A=b {0}' perl",
        "#!/usr/bin/env perl {0}",
        "#!/usr/bin/perl\t/any/env {0}",
    ],
)
def test_no_word_of_a_first_line_shows_anything_but_the_program_that_is_run(tmp_path: Path, line: str) -> None:
    tool = program(tmp_path / "opt" / "bin" / "tool")
    script = program(tmp_path / "script", line.format(tool))
    assert needed((str(script),), {"PATH": "/usr/bin"}) == (str(script),)
    control = program(tmp_path / "control", f"#!/usr/bin/env -S -u A {tool}")
    assert needed((str(control),), {"PATH": "/usr/bin"}) == (str(control), str(tool.parent))


def test_no_more_of_a_first_line_counts_than_the_kernel_reads(tmp_path: Path) -> None:
    tool = program(tmp_path / "opt" / "bin" / "tool")
    for blanks, shown in ((10, (str(tool.parent),)), (300, ())):
        script = program(tmp_path / "script", f"#!/usr/bin/env -S A=b{' ' * blanks}{tool}")
        assert needed((str(script),), {"PATH": "/usr/bin"}) == (str(script), *shown)


def test_a_link_to_the_loader_shows_no_program_among_the_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's arm64 has such a link in /usr/lib; a system with all libraries side by side has the loader itself."""
    libraries = tmp_path / "lib"
    loader = program(libraries / "aarch64-linux-gnu" / "ld-linux-aarch64.so.1")
    helper = program(libraries / "git-core" / "git-add")
    (libraries / loader.name).symlink_to(loader)
    monkeypatch.setattr(system, "LIBRARIES", (str(libraries),))

    def shown() -> set[str]:
        return {path for path in fence([], {}, own_network=True).needed if path.startswith(str(libraries))}

    assert shown() == {str(loader.parent)}
    (libraries / loader.name).unlink()
    loader.rename(libraries / loader.name)
    assert shown() == {str(libraries)} and helper.is_file()


# Fenced plugins, with real processes.

BOTH = pytest.mark.parametrize("identity", IDENTITIES)


def seen(identity: str, case: str) -> dict[str, Any]:
    found = report(identity, "fence")[case]
    assert isinstance(found, dict), found
    return found


def runs(identity: str, case: str) -> set[str]:
    return {name for name, does in seen(identity, case).items() if does is True}


@BOTH
@requirement("kaged:exec-fence", "ainb:spawn-fence")
def test_without_a_fence_every_program_runs(identity: str) -> None:
    assert runs(identity, "open") == {"itself", "ls", "through the loader", "git", "shell", "git's helpers"}


@BOTH
@pytest.mark.parametrize("case", ["fenced", "by env", "by a wrapper", "by a link"])
@requirement("kaged:exec-fence", "ainb:spawn-fence")
def test_behind_a_fence_a_plugin_runs_its_own_interpreter_only(identity: str, case: str) -> None:
    assert runs(identity, case) == {"itself"} | ({"shell"} if case == "by a wrapper" else set())
    assert all(name.startswith(("python3", "env", "sh", "dash")) for name in seen(identity, case)["programs"])


@BOTH
@requirement("kaged:exec-fence")
def test_a_granted_program_runs_behind_the_fence_with_its_helpers(identity: str) -> None:
    assert runs(identity, "granted") == {"itself", "git", "git's helpers"}
    assert runs(identity, "granted a shell") == {"itself", "shell"}


@BOTH
@requirement("kaged:exec-fence")
def test_a_program_that_may_be_read_may_be_run(identity: str) -> None:
    """A limit of the fence: it hides files, and the kernel has no file that is shown and never executed."""
    assert runs(identity, "granted to read") == {"itself", "ls", "through the loader"}


@BOTH
@requirement("kaged:exec-fence")
def test_a_shell_script_has_its_shell_and_the_visible_programs_are_listed(identity: str) -> None:
    assert report(identity, "fence")["a shell script"] == ["it runs", "no ls"]
    assert [os.path.basename(path) for path in report(identity, "fence")["listed"]] == ["dash", "sh"]


@requirement("nexo:host-sandbox-user")
def test_a_dropped_user_is_called_nobody() -> None:
    files = system.files("/state", 65534, own_network=True)
    assert files["/etc/passwd"] == b"nobody:x:65534:65534::/state:/bin/sh\n"
    assert files["/etc/group"] == b"nogroup:x:65534:\n"


@pytest.mark.parametrize(("home", "shown"), [("/usr/bin", True), ("/opt/other/bin", False)])
def test_a_copy_of_the_hosts_python_finds_the_modules_of_the_original(
    home: str, shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("prefix", "exec_prefix", "base_prefix", "base_exec_prefix"):
        monkeypatch.setattr(sys, name, "/usr")
    (tmp_path / "pyvenv.cfg").write_text(f"home = {home}\n")
    (tmp_path / "bin").mkdir()
    copy = shutil.copy("/usr/bin/env", tmp_path / "bin" / "python")
    binds = fence([[str(copy)]], {}, own_network=True).binds
    modules = {str(path) for path in Path("/usr/lib").glob("python3*")}
    assert modules, "Debian's own Python is installed"
    assert modules.issubset({bind.path for bind in binds}) is shown
