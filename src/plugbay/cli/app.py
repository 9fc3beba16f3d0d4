"""The Typer app of the command line, and the report of errors.

Every command ends with a status of `exit_codes`, and every error is one message on stderr or, with `--json`, one
document on stdout in the shape of `plugbay call --json`. Command modules keep heavy imports inside functions, so that
`--help` is fast.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from plugbay import __version__
from plugbay.cli import exit_codes
from plugbay.cli.commands import COMMANDS, GROUPS
from plugbay.cli.completion import command_word, join_bash_words
from plugbay.cli.exit_codes import Exit, Refusal, for_failure, for_signal
from plugbay.cli.gateway.resources import RESOURCES
from plugbay.cli.help import HelpCommand, HelpGroup
from plugbay.cli.overview import ABOUT, render
from plugbay.cli.render import output
from plugbay.cli.render.call_view import HumanView, JsonView, invalid_file
from plugbay.model.errors import CallFailed, Code, ConfigInvalid, Failure, ManifestInvalid, PlugbayError
from plugbay.model.text import error_excerpt


class Root(HelpGroup):
    """All commands, grouped by task."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(render())


def app_for(word: str) -> typer.Typer:
    """An app with only the command or group of this name: to load and inspect all of them takes 0.2 s.

    For any other word, such as a misspelt name, the app has all commands.
    """
    app = typer.Typer(
        name="plugbay",
        help=ABOUT,
        cls=Root,
        context_settings={"help_option_names": ["-h", "--help"]},
        invoke_without_command=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    known = {*COMMANDS, *GROUPS, *RESOURCES}
    wanted = {word} if word in known else known
    for name in filter(wanted.__contains__, COMMANDS):
        command = COMMANDS[name]
        parser = load(command.parser) if command.parser else HelpCommand
        app.command(name, cls=parser, epilog=command.examples)(load(command.home))
    for name in filter(wanted.__contains__, GROUPS):
        app.add_typer(load(GROUPS[name].home))
    for name in filter(wanted.__contains__, RESOURCES):
        from plugbay.cli.gateway.commands import group

        app.add_typer(group(name, empty=len(wanted) > 1))
    return app


def load(home: str) -> Any:
    """What `MODULE:NAME` names."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"plugbay {__version__}")
        raise typer.Exit(Exit.OK)


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    # Typer is loaded now: `main` disabled the collector for that.
    gc.freeze()
    gc.enable()
    if context.invoked_subcommand is None:
        sys.stderr.write(context.get_help() + "\n")
        raise typer.Exit(Exit.USAGE)


# Errors.

DEBUG_VARIABLE = "PLUGBAY_DEBUG"

STDERR_LINES = 5
"""Lines of the plugin's stderr that are printed; a traceback ends with the error."""

ERRNO_HINTS = {
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "a part of this path is a file, not a folder; check the path",
    errno.EISDIR: "this is a folder; name a file",
    errno.EEXIST: "this path exists already; choose another, or remove it",
    errno.EACCES: "your user has no permission; ls -ld shows the owner and the mode",
    errno.EPERM: "your user has no permission; ls -ld shows the owner and the mode",
    errno.EROFS: "this file system is read-only; choose another path",
    errno.ENOSPC: "the disk is full; free some space, or choose another path",
    errno.EMFILE: "too many files are open; ulimit -n shows the limit",
}
"""Hints for errors of the operating system."""

FOREIGN = "run"
"""The command that passes its arguments to a plugin."""

WIRE, NO_WIRE = "replay", {"--check", "--as-host"}
"""The command whose stdout is the wire, unless one of these options is given."""


def wants_json(words: Sequence[str]) -> bool:
    """Whether a command line asks for JSON; arguments after `--` belong to another program."""
    own = words[: words.index("--")] if "--" in words else words
    if "--json" not in own or own[0] == FOREIGN:
        return False
    return own[0] != WIRE or not NO_WIRE.isdisjoint(own)


def report(error: Exception, as_json: bool = False) -> int:
    """Print an error; return the exit status."""
    refusal = error if isinstance(error, Refusal) else Refusal(to_failure(error), status=_status(error))
    if as_json and _try_print_json(refusal):
        return refusal.status
    if type(error).__name__ == "NoArgsIsHelpError":  # Typer does not export it
        sys.stderr.write(f"{refusal.failure.message}\n")
        return refusal.status
    if isinstance(error, CallFailed):
        _explain_failure(error.failure)
    else:
        HumanView().show_refusal(refusal)
    return refusal.status


def _try_print_json(refusal: Refusal) -> bool:
    """Print the failure as JSON. False if the reason still has to go to stderr: the document of the command does not
    contain it, or stdout failed, which may be the reported error itself.
    """
    try:
        if refusal.document is not None:
            output.print_json(refusal.document)
            return False
        JsonView().show_refusal(refusal)
    except (PlugbayError, OSError):
        return False
    return True


def to_failure(error: Exception) -> Failure:
    """Convert an exception into a failure."""
    if isinstance(error, CallFailed | Refusal):
        return error.failure
    if isinstance(error, ManifestInvalid | ConfigInvalid):
        return invalid_file(error)
    text, hint = _describe(error)
    if isinstance(error, typer.TyperException | PlugbayError):
        return exit_codes.to_failure(text, hint, _status(error))
    code = Code.UNAVAILABLE if _is_system_error(error) else Code.INTERNAL
    return Failure(code, text, detail={"hint": hint} if hint else {})


def _describe(error: Exception) -> tuple[str, str]:
    """Message and hint for an exception."""
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        return (
            error.format_message(),
            f"{context.command_path if context else 'plugbay'} --help shows the arguments and options",
        )
    if isinstance(error, PlugbayError):
        return getattr(error, "message", None) or str(error), getattr(error, "hint", "")
    more = f"run with {DEBUG_VARIABLE}=1 for the traceback"
    if isinstance(error, OSError) and _is_system_error(error):
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        return text, ERRNO_HINTS.get(error.errno or 0, more)
    return f"{type(error).__name__}: {error}", f"this is a bug in plugbay; {more}"


def _is_system_error(error: Exception) -> bool:
    return isinstance(error, OSError) and bool(error.strerror)


def _status(error: Exception) -> int:
    if isinstance(error, CallFailed):
        return for_failure(error.failure)
    if isinstance(error, ManifestInvalid | ConfigInvalid):
        return Exit.INVALID
    if isinstance(error, typer.TyperException):
        return error.exit_code
    return Exit.FAILURE


def _explain_failure(failure: Failure) -> None:
    """Print a failed call: message, hint, and the plugin's last stderr lines."""
    plugin = f"{failure.plugin}: " if failure.plugin else ""
    stderr = "".join(f"\n{line}" for line in error_excerpt(failure.detail.get("stderr_tail", ()), STDERR_LINES))
    output.problem(f"{plugin}{failure.message} ({failure.code}){stderr}", hint=str(failure.detail.get("hint", "")))


# Entry points.


def run() -> None:
    """Run the command line; exits with a status of `exit_codes`."""
    # As with Ctrl-C, `SystemExit` lets running code clean up.
    signal.signal(signal.SIGTERM, _on_sigterm)
    join_bash_words(os.environ)
    as_json = wants_json(sys.argv[1:])
    try:
        app = app_for(sys.argv[1] if sys.argv[1:] else command_word())
        status = app(prog_name="plugbay", standalone_mode=False) or Exit.OK
        if sys.stdout is not None:
            sys.stdout.flush()
    except Exception as error:
        expected = isinstance(error, PlugbayError | typer.TyperException)
        if os.environ.get(DEBUG_VARIABLE) and not expected:
            raise
        status = report(error, as_json)
        _drop_unwritten()
    # At its end the interpreter would search everything that is loaded for garbage, which takes 40 ms.
    gc.freeze()
    sys.exit(status)


def _drop_unwritten() -> None:
    """Forget output that cannot be written: at its end the interpreter would try again, and exit with 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())


def _on_sigterm(number: int, frame: object) -> None:
    sys.exit(for_signal(number))
