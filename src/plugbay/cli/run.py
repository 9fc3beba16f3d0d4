"""`plugbay run NAMESPACE ARGS…`: run a command line of a plugin as if it were a program.

The plugin's output arrives byte for byte and its status becomes the exit status. Lines of plugbay itself begin with
`plugbay:`. All arguments after NAMESPACE go to the plugin, `--help` included.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from plugbay.cli import local_host, lookup
from plugbay.cli.call import ConfigFile, Grant, GrantAll, NoSandbox, Timeout, load_config
from plugbay.cli.exit_codes import for_failure
from plugbay.cli.help import HelpCommand
from plugbay.cli.render import output
from plugbay.cli.render.call_view import Refusal
from plugbay.cli.render.manifest_problems import count_problems
from plugbay.model.errors import CallFailed, Code, Failure, PlugbayError

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found

STATUS_BITS = 0xFF
"""An exit status has 8 bits. A plugin's status has 32; the low 8 are what a shell would see."""

PREFIX = "plugbay:"
"""Prefix of lines that plugbay itself writes."""

Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="A plugin's namespace, or PLUGIN/NAMESPACE.")]
Words = Annotated[list[str] | None, typer.Argument(metavar="ARGS…", help="For the plugin, as they are.")]
Plugins = Annotated[Path, typer.Option(metavar="DIR", help="A plugin, or a folder of plugins.")]


class RunCommand(HelpCommand):
    """Options end at the first positional argument."""

    allow_interspersed_args = False


def run(
    namespace: Namespace,
    plugins: Plugins,
    words: Words = None,
    timeout: Timeout = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
) -> None:
    """Run a command line that a plugin answers. Options stand before NAMESPACE; what follows it is the plugin's.

    Its output goes to stdout and stderr byte for byte, and its exit status, the lowest eight bits of it, is ours. A
    failure of plugbay itself has a status of plugbay --help and lines on stderr that begin with plugbay:.
    """
    import logging

    # stderr belongs to the plugin, so notes of the host go only to its log.
    logging.getLogger("plugbay").addHandler(logging.NullHandler())
    found: list[Found] = []
    try:
        found = local_host.discover_in(plugins, prefer="ainb")
        options = {"grant_all": grant_all, "unconfined": no_sandbox}
        host = local_host.make_host(found, load_config(config), grants=grant, **options)
        done = local_host.run_with(host, lambda host: host.run_cli(namespace, words or [], timeout=timeout))
    except Refusal as refusal:
        _explain(refusal.failure, refusal.found)
        raise typer.Exit(refusal.status) from None
    except CallFailed as error:
        _explain(error.failure, found)
        raise typer.Exit(for_failure(error.failure)) from None
    _write_bytes(sys.stdout, done.stdout)
    _write_bytes(sys.stderr, done.stderr)
    raise typer.Exit(done.exit_code & STATUS_BITS)


def _explain(failure: Failure, found: Sequence[Found]) -> None:
    """Print on stderr why the plugin did not run."""
    plugin = f"{failure.plugin}: " if failure.plugin else ""
    _print_line(f"{plugin}{failure.code}: {failure.message}")
    if failure.detail.get("hint"):
        _print_line(f"hint: {failure.detail['hint']}")
    for line in failure.detail.get("stderr_tail", []):
        _print_line(f"its stderr: {line}")
    for item in found if failure.code in (Code.NOT_FOUND, Code.UNAVAILABLE) else []:
        if item.errors and not lookup.is_absent(item):
            _print_line(f"{item.root} is left out: its manifest has {count_problems(item.errors)}")


def _print_line(text: str) -> None:
    """Prefix every line, so that messages of plugbay and of the plugin cannot be confused."""
    for line in text.splitlines():
        output.err().line((PREFIX, output.BAD_STYLE), f" {line}")


def _write_bytes(stream: TextIO | None, data: bytes) -> None:
    """Write past the text layer and flush, so that a full disk or a closed pipe fails this command."""
    if not data:
        return
    if stream is None:
        raise PlugbayError("the plugin wrote something, but the stream it belongs on is closed")
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()
