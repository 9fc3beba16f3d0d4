"""The words for what went wrong: tables for the rules, real files and real programs for the facts."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from plugbay.model.errors import Code
from plugbay.model.text import printable
from plugbay.process import command
from plugbay.process.diagnose import (
    Facts,
    Kind,
    LaunchFailed,
    Look,
    SandboxUnavailable,
    early_exit,
    facts,
    launch_failure,
    not_found,
)
from plugbay.process.status import ExitStatus
from tests.support.patience import PATIENCE

ELF_64_LITTLE = b"\x7fELF\x02\x01\x01" + bytes(11)


def disk(files: Mapping[str, Facts]) -> Look:
    """A disk that has only these files, and the directory /srv."""
    known = {"/srv": Facts(Kind.DIRECTORY), **files}
    return lambda path: known.get(path, Facts(Kind.MISSING))


def program(head: bytes, executable: bool = True) -> Look:
    sh = Facts(Kind.FILE, True, b"\x7fELF")
    return disk({"/p": Facts(Kind.FILE, executable, head), "/bin/sh": sh, "/etc/notes": Facts(Kind.FILE)})


def elf(machine: int, more: bytes = b"") -> bytes:
    return ELF_64_LITTLE + machine.to_bytes(2, "little") + more


@pytest.mark.parametrize(
    ("code", "look", "message", "hint"),
    [
        (errno.ENOENT, disk({}), "/p does not exist", "relative"),
        (errno.EACCES, disk({"/p": Facts(Kind.DIRECTORY)}), "/p is a directory", "use the program file"),
        (errno.EACCES, disk({"/p": Facts(Kind.OTHER)}), "not a regular file", "use a program"),
        (errno.EACCES, program(b"#!/bin/sh\n", executable=False), "not executable", "chmod +x /p"),
        (
            errno.ENOENT,
            program(b"#!/no/such -x\n"),
            "interpreter /no/such: /no/such does not exist",
            "first line",
        ),
        (errno.EACCES, program(b"#!/etc/notes\n"), "/etc/notes is not executable", "first line of /p"),
        (errno.ENOENT, program(b"#!/bin/sh\r\n"), "Windows line ends", "sed -i"),
        (errno.ENOENT, program(b"#! /bin/sh\r\n"), "interpreter is /bin/sh\\r", "sed -i"),
        (errno.ENOEXEC, program(b"#!\n"), "has no interpreter", "#!/usr/bin/env"),
        (errno.ENOEXEC, program(b"print('hi')\n"), "nor a script with a #! line", "#!/usr/bin/env"),
        (errno.ENOEXEC, program(b"\xef\xbb\xbf#!/bin/sh\n"), "byte order mark", "UTF-8 without"),
        (errno.ENOEXEC, program(b""), "is empty", "copied"),
        (errno.ENOEXEC, program(b"MZ\x90"), "a Windows program", "for Linux"),
        (errno.ENOEXEC, program(b"\xcf\xfa\xed\xfe"), "a macOS program", "for Linux"),
        (errno.ENOEXEC, program(elf(183)), "built for aarch64, this machine is x86_64", "for x86_64"),
        (errno.ENOEXEC, program(elf(9999)), "machine type 9999", "for x86_64"),
        (errno.ENOENT, program(elf(62, b"\0/lib/ld-musl-x86_64.so.1\0")), "/lib/ld-musl-x86_64.so.1", "musl"),
        (errno.ENOEXEC, program(elf(62)), "cannot be started: Exec format error", ""),
        (errno.EACCES, program(elf(62)), "not permitted", "noexec"),
        (errno.EPERM, program(b"#!/bin/sh\n"), "not permitted", "noexec"),
        (errno.ETXTBSY, program(elf(62)), "open for writing", "wait"),
        (errno.EMFILE, disk({}), "too many open files", "ulimit -n"),
        (errno.ENFILE, disk({}), "machine has too many open files", "fs.file-max"),
        (errno.EAGAIN, disk({}), "too many processes", "ulimit -u"),
        (errno.ENOMEM, disk({}), "too little free memory", "memory"),
        (errno.E2BIG, disk({}), "too long", "file"),
        (errno.EIO, program(b"#!/bin/sh\n"), "cannot be started: Input/output error", ""),
    ],
)
def test_a_failed_start_is_explained(code: int, look: Look, message: str, hint: str) -> None:
    said, advice = launch_failure(["/p"], "/srv", OSError(code, os.strerror(code)), look, "x86_64")
    assert message in said
    assert hint in advice


@pytest.mark.parametrize(
    ("cwd", "look", "message"),
    [
        ("/gone", disk({}), "the working directory /gone does not exist"),
        ("/file", disk({"/file": Facts(Kind.FILE)}), "the working directory /file is not a directory"),
    ],
)
def test_a_bad_working_directory_is_named_first(cwd: str, look: Look, message: str) -> None:
    said, advice = launch_failure(["/p"], cwd, FileNotFoundError(errno.ENOENT, "x"), look)
    assert said == message
    assert "working directory" in advice


def test_a_name_that_is_not_in_the_path_says_where_it_was_looked_for() -> None:
    assert "(/a:/b)" in not_found("x", "/a:/b", beside=False)[0]
    assert "which is empty" in not_found("x", "", beside=False)[0]


PYTHON_TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/p/main.py", line 3, in <module>',
    "    start()",
    '  File "/p/core.py", line 9, in start',
    '    raise ValueError("no key")',
    "ValueError: no key",
]


@pytest.mark.parametrize(
    ("code", "tail", "message", "hint"),
    [
        (1, PYTHON_TRACEBACK, "exit code 1): ValueError: no key", "/p/core.py, line 9"),
        (1, [*PYTHON_TRACEBACK, "sys:1: a warning"], "ValueError: no key", "/p/core.py, line 9"),
        (
            1,
            [*PYTHON_TRACEBACK[:-1], "mypkg.errors.ConfigError: bad"],
            "mypkg.errors.ConfigError: bad",
            "core.py",
        ),
        (
            1,
            ['  File "/p/x.py", line 1', "    x = =", "SyntaxError: invalid syntax"],
            "SyntaxError",
            "/p/x.py, line 1",
        ),
        (
            1,
            [*PYTHON_TRACEBACK[:-1], "ModuleNotFoundError: No module named 'httpx'"],
            "httpx is not",
            "pip install httpx",
        ),
        (
            1,
            [*PYTHON_TRACEBACK[:-1], "ModuleNotFoundError: No module named 'plugbay'"],
            "the SDK of plugbay is not",
            "pip install plugbay-sdk",
        ),
        (
            1,
            ["/usr/bin/python3: No module named tool"],
            "tool is not installed for /usr/bin/python3",
            "-m pip",
        ),
        (
            2,
            ["python3: can't open file '/p/x.py': [Errno 2] No such file or directory"],
            "/p/x.py does not",
            "arguments",
        ),
        (1, ["Error: Cannot find module 'ws'", "Require stack:", "- /p/x.js"], "module ws", "npm install"),
        (
            1,
            ["Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'ws' imported from /p/x"],
            "module ws",
            "npm install",
        ),
        (
            127,
            ["./l: error while loading shared libraries: libfoo.so.1: cannot open"],
            "libfoo.so.1 is missing",
            "install",
        ),
        (
            1,
            ["./l: /lib/libc.so.6: version `GLIBC_2.99' not found (required by ./l)"],
            "needs GLIBC_2.99",
            "older",
        ),
        (2, ["Can't locate No/Such.pm in @INC (you may need"], "Perl module No/Such", "cpan"),
        (127, ["./c: 2: nosuch: not found"], "nosuch is not installed", "install nosuch"),
        (127, ["./c: line 2: nosuch: command not found"], "nosuch is not installed", "install nosuch"),
        (127, ["./c: 2: exec: nosuch: not found"], "nosuch is not installed", "install nosuch"),
        (126, ["./c: 2: /etc/passwd: Permission denied"], "/etc/passwd may not be run", "chmod +x"),
        (127, ["/usr/bin/env: 'deno': No such file or directory"], "deno is not installed", "install deno"),
        (
            127,
            ["/usr/bin/env: \u2018deno\u2019: No such file or directory"],
            "deno is not installed",
            "install deno",
        ),
        (
            127,
            ["env: can't execute 'deno': No such file or directory"],
            "deno is not installed",
            "install deno",
        ),
        (127, ["/usr/bin/env: 'python3\\r': No such file or directory"], "Windows line end", "sed -i"),
        (127, ["/usr/bin/env: 'python3\\x0d': No such file or directory"], "Windows line end", "sed -i"),
        (127, [], "was not found", "by hand"),
        (126, [], "may not be run", "permission"),
        (3, ["", "config: key: not found", ""], "exit code 3): config: key: not found", ""),
        (3, ["log: Permission denied"], "exit code 3): log: Permission denied", ""),
        (1, ["f:1", "Error: no key", "    at f", "", "Node.js v20.1.0"], "exit code 1): Error: no key", ""),
        (3, [], "exit code 3)", "wrote nothing"),
        (0, ["ready"], "exit code 0)", "run until its stdin is closed"),
    ],
)
def test_an_early_exit_is_explained(code: int, tail: list[str], message: str, hint: str) -> None:
    said, advice = early_exit(["/p/run"], ExitStatus(code=code), tail, disk({}))
    assert said.startswith("the plugin ended early (")
    assert message in said
    assert hint in advice


@pytest.mark.parametrize(
    ("number", "name", "hint"),
    [
        (9, "SIGKILL", "Out of memory"),
        (11, "SIGSEGV", "native"),
        (31, "SIGSYS", "sandbox forbids"),
        (24, "SIGXCPU", "CPU time"),
        (25, "SIGXFSZ", "larger"),
        (6, "SIGABRT", "stderr"),
        (10, "SIGUSR1", ""),
    ],
)
def test_a_death_by_signal_is_explained(number: int, name: str, hint: str) -> None:
    said, advice = early_exit(["/p"], ExitStatus(signal=number), ["noise"], disk({}))
    assert said == f"the plugin ended early (killed by {name})"
    assert hint in advice


@pytest.mark.parametrize(
    ("argv", "head", "interpreter"),
    [
        (["/opt/bin/python3.12", "main.py"], b"\x7fELF", "/opt/bin/python3.12"),
        (["/p/run"], b"#!/usr/bin/python3 -I\n", "/usr/bin/python3"),
        (["/p/run"], b"#!/usr/bin/env python3\n", "python3"),
        (["/p/run"], b"#!/usr/bin/env -S python3\n", "python3"),
        (["/p/run"], b"\x7fELF", "python3"),
    ],
)
def test_a_missing_module_names_the_interpreter(argv: list[str], head: bytes, interpreter: str) -> None:
    tail = ["ModuleNotFoundError: No module named 'x'"]
    said, advice = early_exit(argv, ExitStatus(code=1), tail, disk({argv[0]: Facts(Kind.FILE, True, head)}))
    assert f"for {interpreter}" in said
    assert advice == f"run: {interpreter} -m pip install x"


# Real files: what the operating system says about them is what the rules expect.


def make(path: Path, content: bytes, mode: int = 0o755) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def real_failure(program: str, cwd: Path) -> tuple[str, str]:
    with pytest.raises(OSError) as caught:
        subprocess.Popen([program], cwd=cwd)
    return launch_failure([program], cwd, caught.value)


def foreign_elf() -> bytes:
    return elf(183 if platform.machine() == "x86_64" else 62, bytes(100))


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (b"#!/no/such/interpreter\n", 0o755, "interpreter /no/such/interpreter"),
        (b"#!/bin/sh\r\necho hi\r\n", 0o755, "Windows line ends"),
        (b"echo hi\n", 0o755, "nor a script with a #! line"),
        (b"", 0o755, "is empty"),
        (b"#!/bin/sh\n", 0o644, "is not executable"),
        (foreign_elf(), 0o755, "built for"),
        (b"#!/etc/passwd\n", 0o755, "/etc/passwd is not executable"),
    ],
)
def test_a_real_file_that_cannot_be_run_is_explained(tmp_path: Path, content: bytes, mode: int, message: str) -> None:
    assert message in real_failure(make(tmp_path / "run", content, mode), tmp_path)[0]


def test_a_real_missing_file_directory_and_working_directory_are_explained(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    script = make(tmp_path / "run", b"#!/bin/sh\n")
    assert "does not exist" in real_failure(str(tmp_path / "absent"), tmp_path)[0]
    assert "is a directory" in real_failure(str(tmp_path / "folder"), tmp_path)[0]
    assert "working directory" in real_failure(script, tmp_path / "absent")[0]
    assert "is not a directory" in real_failure(script, Path(script))[0]


def test_a_real_missing_loader_is_explained(tmp_path: Path) -> None:
    patched = Path("/bin/true").read_bytes()
    here = patched.find(b"/ld-linux")
    if here < 0:
        pytest.skip("/bin/true is not dynamically linked with glibc here")
    broken = patched[:here] + b"/ld-nowhe" + patched[here + 9 :]
    said, advice = real_failure(make(tmp_path / "run", broken), tmp_path)
    assert "needs the loader" in said
    assert "ld-nowhe" in said
    assert "musl" in advice


def real_exit(program: str, *arguments: str) -> tuple[str, str]:
    argv = [program, *arguments]
    done = subprocess.run(argv, capture_output=True, env={"PATH": os.environ["PATH"]}, timeout=PATIENCE, check=False)
    tail = [printable(line) for line in done.stderr.split(b"\n") if line][-20:]
    return early_exit(argv, ExitStatus(code=done.returncode), tail)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"#!/usr/bin/env no-such-program\n", "no-such-program is not installed"),
        (b"#!/usr/bin/env sh\r\n", "Windows line end"),
        (b"#!/bin/sh\nno-such-program\n", "no-such-program is not installed"),
        (b"#!/bin/sh\nexec no-such-program\n", "no-such-program is not installed"),
        (b"#!/bin/sh\n/etc/passwd\n", "/etc/passwd may not be run"),
        (b"#!/usr/bin/env python3\nimport no_such_module\n", "no_such_module is not installed for python3"),
        (b"#!/usr/bin/env python3\nx = = 1\n", "SyntaxError"),
        (b"#!/usr/bin/env python3\nraise KeyError('k')\n", "KeyError: 'k'"),
        (b"#!/usr/bin/env perl\nuse No::Such;\n", "Perl module No/Such"),
    ],
)
def test_a_real_script_that_ends_early_is_explained(tmp_path: Path, content: bytes, message: str) -> None:
    assert message in real_exit(make(tmp_path / "run", content))[0]


def test_a_real_missing_script_is_explained() -> None:
    assert "/no/such.py does not exist" in real_exit(shutil.which("python3") or "python3", "/no/such.py")[0]


def test_facts_are_gathered_without_raising(tmp_path: Path) -> None:
    assert facts(str(tmp_path)) == Facts(Kind.DIRECTORY)
    assert facts(str(tmp_path / "absent")) == Facts(Kind.MISSING)
    assert facts("a\0b") == Facts(Kind.MISSING)
    assert facts("/dev/null") == Facts(Kind.OTHER)
    assert facts(make(tmp_path / "x", b"#!/bin/sh\n", 0o644)) == Facts(Kind.FILE, False, b"#!/bin/sh\n")
    assert len(facts("/bin/sh").head) == 4096


def test_what_the_owner_of_a_command_knows_is_the_reason() -> None:
    status, known = ExitStatus(signal=9), ("it used too much", "use less")
    said, advice = early_exit(["/p"], status, ["MemoryError"], disk({}), known=known)
    assert (said, advice) == ("the plugin ended early (killed by SIGKILL): it used too much", "use less")
    assert "too much" not in early_exit(["/p"], status, [], disk({}))[0]


# The exceptions.


def test_a_failed_start_has_words_a_hint_details_and_a_code() -> None:
    error = LaunchFailed("it broke", "mend it", {"command": ["x"]})
    assert (str(error), error.message, error.hint, error.detail) == (
        "it broke",
        "it broke",
        "mend it",
        {"command": ["x"]},
    )
    assert error.code == Code.LAUNCH_FAILED


def test_a_missing_sandbox_is_a_failed_start_with_a_code_of_its_own() -> None:
    error = SandboxUnavailable("no bwrap")
    assert isinstance(error, LaunchFailed)
    assert (error.code, error.hint, error.detail) == (Code.SANDBOX_UNAVAILABLE, "", {})


def test_both_are_found_where_commands_are() -> None:
    assert (command.LaunchFailed, command.SandboxUnavailable) == (LaunchFailed, SandboxUnavailable)
