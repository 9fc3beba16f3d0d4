"""`plugbay dashboard`: a link that logs a browser into the running server, once.

Owns the words on the command line. The link is made by the server; the key it is asked with never leaves this machine.
"""

from __future__ import annotations

from typing import Annotated

import typer

from plugbay.cli import output, remote
from plugbay.cli.remote import Server, TokenFile

Open = Annotated[bool, typer.Option("--open", help="Open it in a browser.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the link as JSON.")]


def dashboard(
    server: Server = None, token_file: TokenFile = None, open_it: Open = False, as_json: AsJson = False
) -> None:
    """Print a link into the dashboard of the running server. It is good for ten minutes, and once."""
    link = remote.find(server, token_file, quiet=as_json).post("/api/v1/dashboard-links")
    if as_json:
        output.print_json(link)
    else:
        print(link["url"])
    if open_it:
        import webbrowser

        if not webbrowser.open(link["url"]):
            output.note("no browser was found here; open the link yourself")
