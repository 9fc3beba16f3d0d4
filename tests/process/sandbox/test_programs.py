"""Which programs a command runs in the end: behind `env`, runners of packages, first lines, `exec` and links."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from plugbay.process.sandbox import programs
from plugbay.process.sandbox.programs import Command, alternative, env_command, executed_name, list_programs, unwrap
from tests.support.requirements import requirement


def write_program(path: Path, first_line: str = "#!/bin/sh") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{first_line}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with programs called tool, npx and uvx."""
    for name in ("tool", "npx", "uvx"):
        write_program(tmp_path / "tools" / name)
    return tmp_path / "tools"


@requirement("host:doctor-executed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("/usr/bin/env", "A=1", "tool", "-x"), Command(("/usr/bin/env", "{}/tool"))),
        (("/usr/bin/env", "env", "tool"), Command(("/usr/bin/env", "/usr/bin/env", "{}/tool"))),
        (("/usr/bin/env", "gone"), Command(("/usr/bin/env",), "gone")),
        (("/usr/bin/env", "./tool"), Command(("/usr/bin/env",))),
        (("/usr/bin/env", "-i", "tool"), Command(("/usr/bin/env",))),
        (("{}/uvx", "server"), Command(("{}/uvx",), "", "uvx", "server")),
        (("{}/uvx", "--python", "3.12", "--from", "pkg", "server"), Command(("{}/uvx",), "", "uvx", "pkg")),
        (("/usr/bin/env", "npx", "-y", "@a/b"), Command(("/usr/bin/env", "{}/npx"), "", "npx", "@a/b")),
        (("/usr/bin/env", "bunx", "b"), Command(("/usr/bin/env",), "bunx", "bunx", "b")),
        (("pnpm", "start"), Command(("pnpm",))),
        (("uv", "tool", "run", "server"), Command(("uv",), "", "uv", "server")),
    ],
)
def test_wrappers_are_seen_through(tools: Path, tmp_path: Path, words: tuple[str, ...], expected: Command) -> None:
    named = Command(tuple(path.format(tools) for path in expected.programs), *list_fields(expected))
    found = unwrap([word.format(tools) for word in words], f"{tools}:/usr/bin", tmp_path)
    assert found == named


def list_fields(command: Command) -> tuple[str, str, str]:
    return command.missing, command.runner, command.package


@requirement("host:doctor-executed", "host:sandbox-downloads")
@pytest.mark.parametrize(
    ("words", "program"),
    [
        (("npx", "tea"), "tea"),
        (("npx", "-y", "tea@1.2"), "tea"),
        (("npx", "@acme/server"), "acme-server"),
        (("npm", "exec", "--", "tea"), "tea"),
        (("npx", "--package=@acme/server", "acme-server"), "acme-server"),
        (("npx", "-p", "tea", "-y", "tea"), "tea"),
        (("npx", "tea@latest"), ""),
        (("npx", "coffee"), ""),
    ],
)
def test_a_runner_of_an_installed_package_runs_its_program(
    tools: Path, tmp_path: Path, words: tuple[str, ...], program: str
) -> None:
    modules = tmp_path / "app" / "node_modules"
    write_program(modules / "tea" / "cli.js")
    write_program(modules / "@acme" / "server" / "main.js")
    (modules / ".bin").mkdir()
    (modules / ".bin" / "tea").symlink_to("../tea/cli.js")
    (modules / ".bin" / "acme-server").symlink_to("../@acme/server/main.js")
    folder = tmp_path / "app" / "inner"
    found = unwrap(words, str(tools), folder)
    assert (found.program, bool(found.package)) == (
        (str(modules / ".bin" / program), False) if program else ("npx", True)
    )
    if program:
        (modules / ".bin" / program).resolve().chmod(0o644)
        assert unwrap(words, str(tools), folder).missing == str(modules / ".bin" / program)


def test_a_command_needs_its_wrappers_and_interpreters_too(tools: Path, tmp_path: Path) -> None:
    script = write_program(tmp_path / "script", "#!/usr/bin/env tool")
    found = list(list_programs(["/usr/bin/env", script], f"{tools}:/usr/bin", tmp_path))
    assert found == ["/usr/bin/env", script, "/usr/bin/env", f"{tools}/tool"]


@requirement("host:doctor-executed")
def test_a_name_of_the_alternatives_stands_for_the_installed_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "ALTERNATIVES", str(tmp_path / "alternatives"))
    real = write_program(tmp_path / "bin" / "mawk")
    (tmp_path / "alternatives").mkdir()
    (tmp_path / "alternatives" / "awk").symlink_to(real)
    (tmp_path / "bin" / "awk").symlink_to(tmp_path / "alternatives" / "awk")
    (tmp_path / "bin" / "other").symlink_to("mawk")
    (tmp_path / "bin" / "circle").symlink_to("circle")
    names = ("awk", "other", "mawk", "circle")
    assert [alternative(str(tmp_path / "bin" / name)) for name in names] == [real, "", "", ""]


READ = {
    "python3": "python3",
    "/opt/bin/tool": "/opt/bin/tool",
    "-S python3 -u": "python3",
    "-Spython3 -u": "python3",
    "-vS python3": "python3",
    "-S A=b C=d tool -x": "tool",
    "-S -u NAME tool": "tool",
    "-S -uNAME tool": "tool",
    "-S --unset NAME tool": "tool",
    "-S --unset=NAME tool": "tool",
    "-S -C / tool": "tool",
    "-S --chdir=/ tool": "tool",
    "-S -v tool": "tool",
    "-S -v -- tool": "tool",
    "-S --ignore-signal=PIPE tool": "tool",
    "-S -S tool": "tool",
    "--split-string=tool -x": "tool",
    "-S\ttool": "tool",
}
"""By the argument: the program that is run. Each is tried with the real `env` too."""
NOTHING = [
    "",
    "-",
    "-i",
    "-u",
    "NAME=value",
    "-S -i tool",
    "-S - tool",
    "-S --ignore-environment tool",
    "-S -u PATH tool",
    "-S PATH=/other tool",
    "-S --unknown tool",
    "-S --uns NAME tool",
    "-S -z tool",
    "-S -u",
    "-S 'tool'",
    '-S "tool"',
    "-S \\_tool",
    "-S ${TOOL}",
    "-S # tool",
    "tool\0other",
]


@pytest.mark.parametrize(("argument", "program"), READ.items())
def test_the_program_follows_options_and_variables(argument: str, program: str) -> None:
    assert env_command(argument) == program


@pytest.mark.parametrize("argument", NOTHING)
def test_what_cannot_be_read_for_certain_names_no_program(argument: str) -> None:
    assert env_command(argument) == ""


def test_the_real_env_runs_the_same_program(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho tool\n")
    tool.chmod(0o755)
    script = tmp_path / "script"
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for argument in (argument for argument, program in READ.items() if program == "tool"):
        script.write_text(f"#!/usr/bin/env {argument}\n")
        script.chmod(0o755)
        done = subprocess.run([str(script)], capture_output=True, text=True, env=environ, check=False)
        assert done.stdout == "tool\n", (argument, done.stderr)


@pytest.mark.parametrize("blank", ["\u00a0", "\u2003", "\x1c", "\x85"])
def test_only_the_blanks_of_env_divide_words(blank: str) -> None:
    assert env_command(f"-S -uNAME{blank}/opt/bin/tool python3") == "python3"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("#!/bin/sh\nexec python3 x.py\n", "python3"),
        ("#!/bin/sh\n# why\n\n  exec node\n", "node"),
        ("#!/bin/sh\nset -u\nexec python3 x.py\n", ""),
        ("#!/bin/sh\nexec $PYTHON x.py\n", ""),
        ("#!/bin/sh\nexec 2>&1\n", ""),
        ("#!/bin/sh\necho exec git\n", ""),
    ],
)
def test_a_script_becomes_the_program_of_its_first_command(tmp_path: Path, text: str, program: str) -> None:
    (tmp_path / "script").write_text(text)
    assert executed_name(str(tmp_path / "script")) == program


@pytest.mark.parametrize(
    ("words", "package"),
    [
        (("uvx", "--from-where", "https://packages.example/simple", "thing"), "thing"),
        (("pipx", "run", "--from-where=https://packages.example/simple", "thing"), "thing"),
        (("npx", "-y", "https://packages.example/thing.tgz"), "https://packages.example/thing.tgz"),
    ],
)
def test_a_url_after_an_option_of_a_python_runner_is_no_package(
    words: tuple[str, ...], package: str, tmp_path: Path
) -> None:
    assert unwrap(words, "", tmp_path).package == package
