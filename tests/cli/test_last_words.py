"""Whatever goes wrong has words and a status, for people and for programs."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from plugbay.cli.call_view import Refusal
from plugbay.cli.last_words import ADVICE, failure_of, report, wants_json
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
from tests.cli.conftest import MakePlugin, Run

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


def test_a_failed_call_is_told_in_its_words_with_its_hint_and_what_the_plugin_wrote(
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
    [(errno.ENOENT, "check the path"), (errno.EACCES, "your user may not"), (errno.ENOSPC, "the disk is full")],
)
def test_an_error_of_the_system_comes_with_advice(capsys: pytest.CaptureFixture[str], number: int, words: str) -> None:
    assert report(OSError(number, os.strerror(number), "/some/where")) == 1
    said = capsys.readouterr().err
    assert f"/some/where: {os.strerror(number)}" in said and words in said
    assert errno.ELOOP not in ADVICE
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
        (FileNotFoundError(errno.ENOENT, "No such file"), Code.UNAVAILABLE, ADVICE[errno.ENOENT]),
        (
            OSError("without a number"),
            Code.INTERNAL,
            "this is a bug in plugbay; run with PLUGBAY_DEBUG=1 for the traceback",
        ),
        (KeyError("x"), Code.INTERNAL, "this is a bug in plugbay; run with PLUGBAY_DEBUG=1 for the traceback"),
    ],
)
def test_every_error_is_a_failure(error: Exception, code: str, hint: str | None) -> None:
    failure = failure_of(error)
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
        (["serve", "echo", "--listen", "here"], 2, Code.INVALID_INPUT, "is not like 127.0.0.1:8787"),
        (["mcp", "approve", "nobody"], 4, Code.NOT_FOUND, "nobody"),
        (["mcp", "list", "--plugins", "nowhere"], 4, Code.NOT_FOUND, "nowhere"),
        (["ps"], 4, Code.NOT_FOUND, "no plugbay server runs here"),
        (["logs", "echo"], 4, Code.NOT_FOUND, "no plugbay server runs here"),
        (["new", "echo"], 1, Code.UNAVAILABLE, "the folder echo is not empty"),
        (["new", "x", "--contract", "y"], 2, Code.INVALID_INPUT, "Invalid value for --contract: y is no contract"),
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
