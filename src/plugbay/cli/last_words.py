"""What is said when a command cannot go on: words on stderr, or with `--json` one document on stdout.

Owns which failure an error is, and its status: every error plugbay raises on purpose has its own words, everything else
is one line and the way to its traceback. The document is that of `plugbay call --json`. Refuses to know what a command
does.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

import typer

from plugbay.cli import output
from plugbay.cli.call_view import HumanView, JsonView, Refusal, bad_file
from plugbay.cli.exit_codes import Exit, for_failure
from plugbay.model.errors import CallFailed, Code, ConfigInvalid, Failure, ManifestInvalid, PlugbayError

DEBUG_VARIABLE = "PLUGBAY_DEBUG"

STDERR_LINES = 5
"""Of what a plugin wrote before it failed; a traceback ends with what counts."""

CODES: dict[int, str] = {
    Exit.USAGE: Code.INVALID_INPUT,
    Exit.NOT_FOUND: Code.NOT_FOUND,
    Exit.DENIED: Code.CAPABILITY_NOT_ALLOWED,
    Exit.LAUNCH: Code.LAUNCH_FAILED,
    Exit.TIMEOUT: Code.TIMEOUT,
}
"""What a status means where nothing else is known; any other is something that cannot be used now."""

ADVICE = {
    errno.ENOENT: "nothing has this name; check the path",
    errno.ENOTDIR: "a part of this path is a file; check the path",
    errno.EISDIR: "a file is wanted here, and this is a folder",
    errno.EEXIST: "something has this name already; choose another, or move it away",
    errno.EACCES: "your user may not do that; ls -ld shows who may",
    errno.EPERM: "your user may not do that; ls -ld shows who may",
    errno.EROFS: "nothing can be written there; choose another place",
    errno.ENOSPC: "the disk is full; make room, or choose another place",
    errno.EMFILE: "too many files are open; ulimit -n says how many may be",
}
"""What helps with an error of the system."""

FOREIGN = "run"
"""The command whose words are a plugin's own."""

WIRE, NO_WIRE = "replay", {"--check", "--as-host"}
"""The command whose stdout is a wire, unless one of these is among its words."""


def wants_json(words: Sequence[str]) -> bool:
    """Whether a command line asks for JSON; what follows `--` is for somebody else."""
    own = words[: words.index("--")] if "--" in words else words
    if "--json" not in own or own[0] == FOREIGN:
        return False
    return own[0] != WIRE or not NO_WIRE.isdisjoint(own)


def report(error: Exception, as_json: bool = False) -> int:
    """Say what went wrong; the status to leave with."""
    refusal = error if isinstance(error, Refusal) else Refusal(failure_of(error), status=_status(error))
    if as_json and _is_printed(refusal):
        return refusal.status
    output.kept_problems()
    if isinstance(error, CallFailed):
        _explain_failure(error.failure)
    else:
        HumanView().refused(refusal)
    return refusal.status


def _is_printed(refusal: Refusal) -> bool:
    """Whether stdout could take it; it may be what the error is about."""
    try:
        JsonView().refused(refusal)
    except (PlugbayError, OSError):
        return False
    return True


def conclude(status: int) -> None:
    """With `--json`, what a command has said for people so far: in a document, unless there is one already."""
    problems = output.kept_problems()
    if not problems or output.has_printed():
        for problem in problems:
            output.problem(problem.message, hint=problem.hint)
        return
    text = "; ".join(problem.message.removesuffix(":") for problem in problems)
    hint = next((problem.hint for problem in problems if problem.hint), "")
    JsonView().refused(Refusal(Failure(_code(status), text, detail={"hint": hint} if hint else {}), status=status))


def failure_of(error: Exception) -> Failure:
    """An error as the failure that it is."""
    if isinstance(error, CallFailed):
        return error.failure
    if isinstance(error, ManifestInvalid | ConfigInvalid):
        return bad_file(error)
    text, hint = _words(error)
    detail = {"hint": hint} if hint else {}
    if isinstance(error, typer.TyperException | PlugbayError):
        return Failure(_code(_status(error)), text, detail=detail)
    return Failure(Code.UNAVAILABLE if _is_the_systems(error) else Code.INTERNAL, text, detail=detail)


def _words(error: Exception) -> tuple[str, str]:
    """What went wrong, and what to do next."""
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        return error.format_message(), f"{context.command_path if context else 'plugbay'} --help shows what there is"
    if isinstance(error, PlugbayError):
        return getattr(error, "message", None) or str(error), getattr(error, "hint", "")
    more = f"run with {DEBUG_VARIABLE}=1 for the traceback"
    if isinstance(error, OSError) and _is_the_systems(error):
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        return text, ADVICE.get(error.errno or 0, more)
    return f"{type(error).__name__}: {error}", f"this is a bug in plugbay; {more}"


def _is_the_systems(error: Exception) -> bool:
    return isinstance(error, OSError) and bool(error.strerror)


def _status(error: Exception) -> int:
    if isinstance(error, CallFailed):
        return for_failure(error.failure)
    if isinstance(error, ManifestInvalid | ConfigInvalid):
        return Exit.INVALID
    if isinstance(error, typer.TyperException):
        return error.exit_code
    return int(getattr(error, "exit_status", Exit.FAILURE))


def _code(status: int) -> str:
    return CODES.get(status, Code.UNAVAILABLE)


def _explain_failure(failure: Failure) -> None:
    """A call that failed on the way to what was asked for: its words, its hint, and what the plugin wrote."""
    who = f"{failure.plugin}: " if failure.plugin else ""
    wrote = "".join(f"\n{line}" for line in failure.detail.get("stderr_tail", ())[-STDERR_LINES:])
    output.problem(f"{who}{failure.message} ({failure.code}){wrote}", hint=str(failure.detail.get("hint", "")))
