"""Which program `env` runs, from one argument; and that nothing else is taken for it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from plugbay.process.sandbox.env_line import env_command

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
def test_the_program_is_what_follows_options_and_variables(argument: str, program: str) -> None:
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
