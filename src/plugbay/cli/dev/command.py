"""`plugbay dev PATH`: watch a plugin's folder; each save restarts the plugin and repeats the last call.

Parses the command line; `DevLoop` does the work. `main` loads this module always, so heavy imports stay inside `dev`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from plugbay.cli import lookup
from plugbay.cli.call import ConfigFile, Grant, GrantAll, NoSandbox, Timeout, load_config
from plugbay.cli.render.manifest_problems import refuse

Where = Annotated[Path, typer.Argument(metavar="PATH", help="The plugin's folder, or one manifest in it.")]
Contract = Annotated[str | None, typer.Option(metavar="C", help="Which contract, where there are several manifests.")]
Calls = Annotated[
    list[str] | None,
    typer.Option("--call", metavar="EXPORT [JSON]", help="Call it now and after each save; repeatable."),
]
Once = Annotated[bool, typer.Option("--once", help="Leave after the calls; the status is that of the first failure.")]
Attach = Annotated[bool, typer.Option("--attach", help="You run the plugin, in a terminal or a debugger of your own.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a line of JSON for everything that happens.")]


def dev(
    path: Where,
    call: Calls = None,
    once: Once = False,
    attach: Attach = False,
    contract: Contract = None,
    timeout: Timeout = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Watch a plugin while you write it: each save restarts it and repeats the last call.

    On a terminal, type `EXPORT {…}` to call it, and `help` for the rest. Shows what it logs and prints, what is wrong
    with its manifest, why it crashed, and how its answer differs from the one before.
    """
    import logging

    from plugbay.cli.dev.loop import DevLoop, DevOptions, parse_call
    from plugbay.cli.dev.view import HumanView, JsonView, View

    # The view shows the host's log notes itself.
    logging.getLogger("plugbay").addHandler(logging.NullHandler())
    found = lookup.find(path, contract)
    if lookup.is_absent(found) or (once and found.spec is None):
        raise typer.Exit(refuse(found, "dev"))
    view: View = JsonView() if as_json else HumanView()
    calls = [parse_call(words) for words in call or ()]
    load_config(config)
    host_options = {"grant_all": grant_all, "unconfined": no_sandbox or attach}
    options = DevOptions(path, contract, calls, timeout, once, attach, config, grant or (), host_options)
    raise typer.Exit(DevLoop(options, view, typed=not as_json and not once and _is_terminal()).run())


def _is_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
