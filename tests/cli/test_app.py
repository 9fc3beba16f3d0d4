"""Every error has a message and an exit status."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plugbay import __version__
from plugbay.cli.app import ERRNO_HINTS, app_for, report, to_failure, wants_json
from plugbay.cli.exit_codes import Refusal
from plugbay.cli.remote import NoServer, RemoteRefused
from plugbay.model.errors import (
    CallFailed,
    Code,
    ConfigInvalid,
    Failure,
    ManifestInvalid,
    Origin,
    PlugbayError,
    Problem,
)
from plugbay.packages.errors import PackageRefused, Reason
from tests.cli.conftest import Done, MakePlugin, Run, environment
from tests.support.commands import python


def test_the_version_is_the_packages(run: Run) -> None:
    done = run("--version")
    assert (done.code, done.out, done.err) == (0, f"plugbay {__version__}\n", "")


def test_without_a_command_the_help_is_on_stderr_and_the_status_is_usage(run: Run) -> None:
    done = run()
    assert done.code == 2
    assert done.out == ""
    assert "Usage: plugbay COMMAND" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["inspekt", "x"], "inspect"),
        (["--frob"], "No such option: --frob"),
        (["inspect"], "Missing argument 'PATH'"),
        (["call", "x", "y", "{}", "more"], "is not KEY=VALUE"),
        (["call", "x", "y", "--timeout"], "--timeout"),
    ],
)
def test_an_invalid_command_line_is_a_usage_error(run: Run, arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert words in done.err
    assert "--help" in done.err


def test_only_the_command_that_is_asked_for_is_read() -> None:
    def names(word: str) -> list[str | None]:
        app = app_for(word)
        groups = [group.typer_instance.info.name for group in app.registered_groups if group.typer_instance]
        return [*(command.name for command in app.registered_commands), *groups]

    assert (names("call"), names("list"), names("mcp")) == (["call"], ["list"], ["mcp"])
    assert names("") == names("--help") == names("inspekt")
    assert {"call", "list", "inspect", "mcp"} < set(names(""))


BUG = """
import sys
import plugbay.cli.lookup as lookup

def find(path):
    raise {error}

lookup.find = find
sys.argv = ["plugbay", "inspect", "."]
from plugbay.cli.main import main
main()
"""


def broken(cwd: Path, error: str, **env: str) -> Done:
    """`plugbay inspect .` with a bug in it."""
    done = python(BUG.format(error=error), cwd=cwd, env=environment(cwd, **env))
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_bug_is_one_line_and_the_way_to_its_traceback(cwd: Path) -> None:
    done = broken(cwd, "ZeroDivisionError('by accident')")
    assert done.code == 1
    assert done.out == ""
    assert done.err.splitlines() == [
        "error: ZeroDivisionError: by accident",
        "hint:  this is a bug in plugbay; run with PLUGBAY_DEBUG=1 for the traceback",
    ]


def test_the_debug_variable_shows_the_traceback(cwd: Path) -> None:
    done = broken(cwd, "ZeroDivisionError('by accident')", PLUGBAY_DEBUG="1")
    assert done.code == 1
    assert "Traceback (most recent call last)" in done.err
    assert "by accident" in done.err


def test_a_mistake_of_the_caller_never_has_a_traceback(run: Run) -> None:
    done = run("frobnicate", PLUGBAY_DEBUG="1")
    assert done.code == 2
    assert "Traceback" not in done.err


def test_an_error_of_the_system_is_reported_in_its_words(cwd: Path) -> None:
    done = broken(cwd, "PermissionError(13, 'Permission denied', '/secret')")
    assert done.code == 1
    assert done.err.startswith("error: /secret: Permission denied\n")


def test_errors_raised_on_purpose_list_their_problems(cwd: Path) -> None:
    problem = "__import__('plugbay').model.errors.Problem('x', 'command', 'is missing', line=7)"
    done = broken(cwd, f"__import__('plugbay').ManifestInvalid('rterm-plugin.json', [{problem}])")
    assert done.code == 3
    assert "line 7: command: is missing" in done.err


HEAVY = {"asyncio", "pydantic", "msgspec", "jsonschema_rs", "plugbay.host.host", "plugbay.conformance"}

OTHERS = {f"plugbay.contracts.{name}.manifest" for name in ("nexo", "kaged", "ainb", "vai", "mcp")}
OTHERS |= {"plugbay.contracts.mcp.bundle", "ruamel.yaml"}
"""The manifests of the contracts that a rune plugin has nothing to do with."""

SERVER = {"rich", "fastapi", "sqlalchemy", "httpx2", "httpcore2", "anyio", "opentelemetry", "prometheus_client"}
"""Libraries of the server and of services that one call of a tool does not use."""

RUNNING = {"asyncio", "ssl", "sqlite3", "plugbay.host.supervision.instance", "plugbay.process.child"}
"""What runs plugins: `inspect` starts none."""


def loaded(cwd: Path, *arguments: str | Path) -> set[str]:
    """The modules that a command has loaded at its end."""
    code = (
        "import sys, atexit\n"
        f"sys.argv = ['plugbay', *{list(map(str, arguments))!r}]\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from plugbay.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(cwd),
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_the_quick_answers_load_nothing_heavy(cwd: Path, argument: str) -> None:
    assert loaded(cwd, argument) & HEAVY == set()


def test_inspect_loads_one_contract_and_nothing_that_runs_plugins(cwd: Path, make_plugin: MakePlugin) -> None:
    modules = loaded(cwd, "inspect", make_plugin())
    assert "plugbay.contracts.rune.manifest" in modules
    assert modules & (OTHERS | SERVER | RUNNING) == set()


def test_call_loads_one_contract_and_no_service_that_it_does_not_use(cwd: Path, make_plugin: MakePlugin) -> None:
    modules = loaded(cwd, "call", make_plugin(), "echo", "{}", "--grant-all", "--json")
    assert modules >= {"plugbay.contracts.rune.manifest", "plugbay.host.supervision.instance"}
    assert modules & (OTHERS | SERVER) == set()


def test_a_closed_stdout_is_reported(cwd: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "plugbay", "paths", "--json"],
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(cwd),
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == b"error: standard output is closed; the result cannot be written\n"


def test_the_command_is_there_under_its_own_name_when_installed(cwd: Path) -> None:
    script = Path(sys.executable).with_name("plugbay")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, cwd=os.sep, check=True)
    assert done.stdout == f"plugbay {__version__}\n"


PROBLEM = Problem("missing_field", "process.command", "required, but missing", line=7)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ManifestInvalid("rterm-plugin.json", [PROBLEM]), 3),
        (ConfigInvalid("plugbay.toml", [PROBLEM]), 3),
        (CallFailed(Failure(Code.TIMEOUT, "too slow")), 8),
        (CallFailed(Failure(Code.PLUGIN_ERROR, "no", origin=Origin.PLUGIN)), 10),
        (PlugbayError("something else"), 1),
    ],
)
def test_what_plugbay_raises_on_purpose_has_its_status(
    capsys: pytest.CaptureFixture[str], error: PlugbayError, status: int
) -> None:
    assert report(error) == status


def test_a_failed_call_is_reported_with_message_hint_and_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    detail = {"hint": "mend it", "stderr_tail": ["Traceback", "KeyError: 'x'"]}
    report(CallFailed(Failure(Code.CRASHED, "it ended", plugin="weather", detail=detail)))
    assert (
        capsys.readouterr().err
        == "error: weather: it ended (crashed)\n       Traceback\n       KeyError: 'x'\nhint:  mend it\n"
    )


def test_a_refusal_of_a_package_says_its_hint_once(capsys: pytest.CaptureFixture[str]) -> None:
    report(PackageRefused(Reason.UNSIGNED, "nobody signed it", hint="sign it"))
    assert capsys.readouterr().err == "error: nobody signed it\nhint:  sign it\n"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOENT, "check the path"),
        (errno.EACCES, "your user has no permission"),
        (errno.ENOSPC, "the disk is full"),
    ],
)
def test_an_error_of_the_system_comes_with_advice(capsys: pytest.CaptureFixture[str], number: int, words: str) -> None:
    assert report(OSError(number, os.strerror(number), "/some/where")) == 1
    said = capsys.readouterr().err
    assert f"/some/where: {os.strerror(number)}" in said and words in said
    assert errno.ELOOP not in ERRNO_HINTS
    report(OSError(errno.ELOOP, "Too many levels", "/some/where"))
    assert "PLUGBAY_DEBUG=1" in capsys.readouterr().err


# For programs.


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("call x y --json", True),
        ("--json", True),
        ("serve plugins --json", True),
        ("call x y", False),
        ("", False),
        ("conform -- program --json", False),
        ("conform --json -- program", True),
        ("run --plugins p notes --json", False),
        ("replay r.jsonl --json", False),
        ("replay r.jsonl --json --check", True),
        ("replay r.jsonl --as-host --json x", True),
    ],
)
def test_json_is_asked_for_by_the_commands_own_words(words: str, wanted: bool) -> None:
    assert wants_json(words.split()) is wanted


@pytest.mark.parametrize(
    ("error", "code", "hint"),
    [
        (CallFailed(Failure(Code.TIMEOUT, "too slow")), Code.TIMEOUT, None),
        (ConfigInvalid("plugbay.toml", [PROBLEM]), Code.UNAVAILABLE, None),
        (NoServer("no server", "start one"), Code.NOT_FOUND, "start one"),
        (RemoteRefused(403, {"code": "auth.denied", "message": "no"}), Code.CAPABILITY_NOT_ALLOWED, None),
        (RemoteRefused(500, {}), Code.UNAVAILABLE, None),
        (PlugbayError("something else"), Code.UNAVAILABLE, None),
        (FileNotFoundError(errno.ENOENT, "No such file"), Code.UNAVAILABLE, ERRNO_HINTS[errno.ENOENT]),
        (
            OSError("without a number"),
            Code.INTERNAL,
            "this is a bug in plugbay; run with PLUGBAY_DEBUG=1 for the traceback",
        ),
        (KeyError("x"), Code.INTERNAL, "this is a bug in plugbay; run with PLUGBAY_DEBUG=1 for the traceback"),
    ],
)
def test_every_error_is_a_failure(error: Exception, code: str, hint: str | None) -> None:
    failure = to_failure(error)
    assert (failure.code, failure.detail.get("hint")) == (code, hint)


def test_problems_of_a_file_are_in_the_document(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert report(ConfigInvalid("plugbay.toml", [PROBLEM]), as_json=True) == 3
    captured = capsysbinary.readouterr()
    said = json.loads(captured.out)
    assert (said["status"], said["failure"]["detail"]["problems"]) == ("failed", [PROBLEM.to_json()])
    assert captured.err == b""


def test_a_refusal_has_its_own_status(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert report(Refusal(Failure(Code.NOT_FOUND, "nothing"), status=7), as_json=True) == 7


def failure(run: Run, *words: str | Path) -> tuple[int, Any]:
    """The status and the failure of a command that says nothing but one document."""
    done = run(*words, "--json")
    assert done.err == ""
    assert set(done.json) == {"status", "output", "failure", "plugin", "call_id", "duration_ms"}
    return done.code, done.json["failure"]


def test_a_command_that_fails_says_so_in_one_document(run: Run, make_plugin: MakePlugin, cwd: Path) -> None:
    (cwd / make_plugin()).rename(cwd / "echo")
    (cwd / "bad.toml").write_text("x = [")
    (cwd / "file").write_text("")
    for words, status, code, part in (
        (["serve", "nowhere"], 4, Code.NOT_FOUND, "there is no folder nowhere"),
        (["serve", "echo", "--config", "bad.toml"], 3, Code.UNAVAILABLE, "bad.toml cannot be used"),
        (["serve", "echo", "--data", "file"], 2, Code.INVALID_INPUT, "file is a file; name a folder"),
        (["serve", "echo", "--listen", "here"], 2, Code.INVALID_INPUT, "is not an address like 127.0.0.1:8787"),
        (["mcp", "approve", "nobody"], 4, Code.NOT_FOUND, "nobody"),
        (["mcp", "list", "--plugins", "nowhere"], 4, Code.NOT_FOUND, "nowhere"),
        (["ps"], 4, Code.NOT_FOUND, "no plugbay server runs on this machine"),
        (["logs", "echo"], 4, Code.NOT_FOUND, "no plugbay server runs on this machine"),
        (["new", "echo"], 1, Code.UNAVAILABLE, "the folder echo is not empty"),
        (["new", "x", "--contract", "y"], 2, Code.INVALID_INPUT, "Invalid value for --contract: y is not a contract"),
        (["tap", "nowhere"], 4, Code.NOT_FOUND, "there is no folder nowhere"),
        (["render", "echo"], 4, Code.NOT_FOUND, "this plugin has no screen"),
        (["sandbox", "nowhere"], 4, Code.NOT_FOUND, "nowhere does not exist"),
        (["config", "show", "nowhere"], 4, Code.NOT_FOUND, "nowhere does not exist"),
        (["dev", "nowhere"], 4, Code.NOT_FOUND, "nowhere does not exist"),
        (["replay", "nowhere", "--check"], 4, Code.NOT_FOUND, "nowhere: No such file or directory"),
        (["inspect", "echo", "--config", "nowhere"], 3, Code.UNAVAILABLE, "nowhere does not exist"),
        (["inspect", "echo", "--config", "echo"], 3, Code.UNAVAILABLE, "echo is a folder"),
        (["call", "echo", "say", "--frob"], 2, Code.INVALID_INPUT, "No such option: --frob"),
    ):
        found, said = failure(run, *words)
        assert (found, said["code"]) == (status, code), said
        assert part in said["message"], said


def test_a_document_that_is_there_already_stays_the_only_one(run: Run) -> None:
    done = run("inspect", "nowhere", "--json")
    assert done.json["problems"][0]["code"] == "not_found"
    assert done.err.startswith("error: nowhere does not exist\n")
