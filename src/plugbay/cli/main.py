"""The entry points `plugbay` and `vai-plugin-sign`.

`plugbay --help` loads neither Typer nor a command: the list of all commands is what a new user asks for first.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line; exits with a status of `exit_codes`."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks must not become a traceback.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    if sys.argv[1:] in (["--help"], ["-h"]):
        from plugbay.cli.overview import show
        from plugbay.cli.render import output

        try:
            show(output.out())
            sys.stdout.flush()
            return
        except OSError:  # the app tries once more, and reports it
            pass
    # While a command loads there is nothing to find, and looking takes a tenth of its time. `run` enables it again.
    gc.disable()
    # pydantic would read the metadata of every installed package for plugins of its own: 30 ms of each command.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    from plugbay.cli.app import run

    run()


def vai_plugin_sign() -> None:
    """The command `vai-plugin-sign`, an alias of `plugbay sign` for release scripts."""
    sys.argv[1:1] = ["sign"]
    main()
