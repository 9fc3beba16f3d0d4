"""The entry point `plugbay`: the list of commands, their examples, and the report of errors.

Every command ends with a status of `exit_codes`, and every error is one message on stderr or, with `--json`, one
document on stdout in the shape of `plugbay call --json`. Command modules keep heavy imports inside functions, so that
`--help` is fast.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

import typer

from plugbay import __version__
from plugbay.cli import exit_codes
from plugbay.cli.agents import compact, hook
from plugbay.cli.badplugins import badplugins
from plugbay.cli.call import call
from plugbay.cli.completion import command_word, join_bash_words
from plugbay.cli.config import config
from plugbay.cli.conform import ConformCommand, conform
from plugbay.cli.dev.command import AttachCommand, attach, dev
from plugbay.cli.doctor.command import doctor
from plugbay.cli.events import events, publish
from plugbay.cli.exit_codes import Exit, Refusal, for_failure, for_signal
from plugbay.cli.gateway.resources import RESOURCES
from plugbay.cli.help import HelpCommand, HelpGroup
from plugbay.cli.inspect import inspect
from plugbay.cli.manifest.command import manifest
from plugbay.cli.mcp.commands import mcp
from plugbay.cli.memory import memory
from plugbay.cli.new import new
from plugbay.cli.operate import dashboard, grant, logs, prune, ps, reload, restart, revoke, start, stop
from plugbay.cli.options import CallCommand
from plugbay.cli.packages.install import install, list_, pin, rollback, uninstall, unpin, upgrade
from plugbay.cli.packages.outdated import outdated
from plugbay.cli.packages.publish import pack, pull, push
from plugbay.cli.packages.search import search
from plugbay.cli.packages.signing import SIGN_EXAMPLES, keygen, sign, trust, verify
from plugbay.cli.paths import paths
from plugbay.cli.render import output
from plugbay.cli.render.call_view import HumanView, JsonView, invalid_file
from plugbay.cli.replay import replay
from plugbay.cli.sandbox import sandbox
from plugbay.cli.screens import RunCommand, render, run, tui
from plugbay.cli.serve import serve
from plugbay.cli.tap import tap
from plugbay.model.errors import CallFailed, Code, ConfigInvalid, Failure, ManifestInvalid, PlugbayError
from plugbay.model.text import error_excerpt

FIRST_STEPS = """\
First steps
plugbay new weather     create a plugin, and print the next steps
plugbay dev weather     run the plugin while you write it
plugbay serve plugins/  serve a folder of plugins; ps, logs and grant operate it"""

STATUSES = """\
Exit status
0 ok · 1 failure · 2 usage · 3 invalid manifest or plugbay.toml · 4 not found
5 not granted or denied · 6 invalid signature or package
7 start or handshake failed · 8 timeout · 9 findings · 10 the plugin returned an error"""

EXAMPLES: dict[Callable[..., None], str] = {
    inspect: """\
Examples
plugbay inspect plugins/weather
plugbay inspect plugins/weather --json | jq .problems""",
    call: """\
Examples
plugbay call plugins/weather forecast '{"city": "Lima"}'
plugbay call weather.py forecast city=Lima days=3
plugbay call plugins/weather forecast - < input.json
plugbay call example.weather forecast --plugins plugins/ --grant-all --json""",
    conform: """\
Examples
plugbay conform plugins/weather
plugbay conform plugins/weather --html report.html --badge conforms.svg --junit report.xml
plugbay conform plugins/weather -- ./target/debug/weather
plugbay conform --contract nexo -- node weather.mjs""",
    new: """\
Examples
plugbay new weather
plugbay new weather --contract rune --contract kaged --yes
plugbay new weather --lang shell --contract nexo""",
    manifest: """\
Examples
plugbay manifest plugins/weather
plugbay manifest plugins/weather --contract nexo --contract vai
plugbay manifest plugins/weather --check""",
    dev: """\
Examples
plugbay dev plugins/weather
plugbay dev plugins/weather --call forecast '{"city": "Lima"}'
plugbay dev plugins/weather --attach""",
    attach: """\
Examples
plugbay attach unix:/path/to/socket#token -- node plugin.js""",
    run: """\
Examples
plugbay run --plugins plugins/ notes add "buy milk"
plugbay run --plugins plugins/ --grant-all notes --help""",
    render: """\
Examples
plugbay render plugins/usage
plugbay render usage burndown --plugins plugins/ --size 100x30 --key down --key enter
plugbay render plugins/usage --svg usage.svg
plugbay render usage --server http://127.0.0.1:8787""",
    tap: """\
Examples
plugbay tap plugins/weather --call forecast '{"city": "Lima"}'
plugbay tap example.weather --plugins plugins/ --grant-all --record weather.jsonl""",
    replay: """\
Examples
plugbay replay weather.jsonl --check
plugbay replay weather.jsonl --as-host plugins/weather
plugbay replay weather.jsonl --as-host -- python3 plugin.py""",
    serve: """\
Examples
plugbay serve plugins/
plugbay serve plugins/ --listen 127.0.0.1:0 --data ./data --json
plugbay serve plugins/ --database postgresql+asyncpg://plugbay@db/plugbay""",
    dashboard: """\
Examples
plugbay dashboard
plugbay dashboard --open""",
    ps: """\
Examples
plugbay ps
plugbay ps --plugins plugins/
plugbay ps --plugins plugins/ --grant-all --json""",
    logs: """\
Examples
plugbay logs example.weather --follow""",
    start: """\
Examples
plugbay start example.weather""",
    stop: """\
Examples
plugbay stop example.weather""",
    restart: """\
Examples
plugbay restart example.weather""",
    reload: """\
Examples
plugbay reload example.weather""",
    grant: """\
Examples
plugbay grant example.weather network=api.example.com""",
    revoke: """\
Examples
plugbay revoke example.weather network=api.example.com""",
    prune: """\
Examples
plugbay prune --dry-run
plugbay prune --json""",
    sandbox: """\
Examples
plugbay sandbox plugins/weather --show
plugbay sandbox plugins/weather --grant-all -- sh
plugbay sandbox plugins/weather --grant network -- curl https://api.example.com/""",
    publish: """\
Examples
plugbay publish orders.created '{"id": 7}'
plugbay publish orders.created '{"id": 7}' --plugins plugins/ --grant-all --json""",
    hook: """\
Examples
plugbay hook on_user_prompt '{"prompt": "tea?"}' --agent primary
plugbay hook before_message '{"body": "tea?"}' --plugins plugins/ --grant-all --json""",
    compact: """\
Examples
plugbay compact - < messages.json
plugbay compact '[{"role": "user", "content": "tea?"}]' --plugins plugins/ --grant-all --json""",
    events: """\
Examples
plugbay events
plugbay events 'orders.>' --count 1 --json
plugbay events --plugins plugins/ --grant-all""",
    doctor: """\
Examples
plugbay doctor
plugbay doctor plugins/weather""",
    tui: """\
Examples
plugbay tui plugins/
plugbay tui plugins/burndown --grant-all""",
    pack: """\
Examples
plugbay pack plugins/weather
plugbay pack plugins/weather --out dist/ --json""",
    keygen: """\
Examples
plugbay keygen acme""",
    sign: SIGN_EXAMPLES,
    verify: """\
Examples
plugbay verify example.weather-1.0.0.tar.gz""",
    push: """\
Examples
plugbay push example.weather-1.0.0.tar.gz oci://registry.example/acme/weather""",
    pull: """\
Examples
plugbay pull oci://registry.example/acme/weather:1.0.0
plugbay pull oci://registry.example/acme/weather@sha256:…""",
    install: """\
Examples
plugbay install oci://registry.example/acme/weather:1.0.0
plugbay install example.weather-1.0.0.tar.gz --store ./store""",
    upgrade: """\
Examples
plugbay upgrade oci://registry.example/acme/weather:1.1.0
plugbay upgrade --all --json""",
    outdated: """\
Examples
plugbay outdated
plugbay outdated --json""",
    search: """\
Examples
plugbay search review
plugbay search review --server http://127.0.0.1:8787 --json""",
    list_: """\
Examples
plugbay list --json""",
    rollback: """\
Examples
plugbay rollback example.weather""",
    pin: """\
Examples
plugbay pin example.weather""",
    unpin: """\
Examples
plugbay unpin example.weather""",
    uninstall: """\
Examples
plugbay uninstall example.weather""",
    paths: """\
Examples
plugbay paths --json""",
}

CLASSES = {run: RunCommand, tap: CallCommand, dev: CallCommand, attach: AttachCommand, conform: ConformCommand}
"""Command classes with their own parsing of arguments."""

GROUPS = {"badplugins": badplugins, "config": config, "mcp": mcp, "memory": memory, "trust": trust}


class Root(HelpGroup):
    """All commands, grouped by task."""

    sections: ClassVar[dict[str, str]] = {
        "Use plugins": "inspect call run render tui",
        "Write a plugin": "new manifest dev attach conform tap replay badplugins",
        "Publish a plugin": "pack keygen sign push",
        "Install plugins": "search trust pull verify install outdated upgrade list rollback pin unpin uninstall",
        "Serve and operate": "serve dashboard ps logs start stop restart reload grant revoke prune config mcp",
        "Services": "publish events memory hook compact",
        "Control plane": " ".join(RESOURCES),
        "This machine": "doctor sandbox paths",
    }


def app_for(word: str) -> typer.Typer:
    """An app with only the command or group of this name: Typer inspects every registered command, 70 ms for all.

    For any other word, such as `--help` or a misspelt name, the app has all commands.
    """
    app = typer.Typer(
        name="plugbay",
        help="Run AI-agent plugins: separate processes that speak JSON over stdio.",
        epilog=f"{FIRST_STEPS}\n\n{STATUSES}",
        cls=Root,
        context_settings={"help_option_names": ["-h", "--help"]},
        invoke_without_command=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    commands = {command.__name__.rstrip("_"): command for command in EXAMPLES}
    known = {*commands, *GROUPS, *RESOURCES}
    wanted = {word} if word in known else known
    for name, command in commands.items():
        if name in wanted:
            app.command(name, cls=CLASSES.get(command, HelpCommand), epilog=EXAMPLES[command])(command)
    for name, group in GROUPS.items():
        if name in wanted:
            app.add_typer(group)
    for name in filter(wanted.__contains__, RESOURCES):
        from plugbay.cli.gateway.commands import group as control_plane

        app.add_typer(control_plane(name, empty=len(wanted) > 1))
    return app


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
    if context.invoked_subcommand is None:
        sys.stderr.write(context.get_help() + "\n")
        raise typer.Exit(Exit.USAGE)


# Errors.

DEBUG_VARIABLE = "PLUGBAY_DEBUG"

STDERR_LINES = 5
"""Lines of the plugin's stderr that are printed; a traceback ends with the error."""

ERRNO_HINTS = {
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "a part of this path is a file; check the path",
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


def main() -> None:
    """Run the command line; exits with a status of `exit_codes`."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks must not become a traceback.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
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
    sys.exit(status)


def _drop_unwritten() -> None:
    """Forget output that cannot be written: at its end the interpreter would try again, and exit with 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())


def vai_plugin_sign() -> None:
    """The command `vai-plugin-sign`, an alias of `plugbay sign` for release scripts."""
    sys.argv[1:1] = ["sign"]
    main()


def _on_sigterm(number: int, frame: object) -> None:
    sys.exit(for_signal(number))
