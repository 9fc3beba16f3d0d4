"""The page of `plugbay --help`, made from the list of commands without loading them."""

from __future__ import annotations

from plugbay.cli.commands import COMMANDS, GROUPS, SECTIONS
from plugbay.cli.gateway.resources import RESOURCES
from plugbay.cli.render import output

ABOUT = "Run AI-agent plugins: separate processes that speak JSON over stdio."

OPTIONS = {
    "--version": "Print the version and exit.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Show completion for the current shell, to copy it or customize the installation.",
    "-h, --help": "Show this message and exit.",
}
"""Options of `plugbay` itself, as Typer has them; a test compares them."""

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


def show(page: output.Printer) -> None:
    """Print the page."""
    page.line(ABOUT)
    page.blank()
    page.line(("Usage: ", output.NAME), "plugbay COMMAND …")
    summaries = {name: command.summary for name, command in (COMMANDS | GROUPS).items()}
    summaries |= {name: resource.help.partition(". ")[0].rstrip(".") for name, resource in RESOURCES.items()}
    width = max(map(len, summaries)) + output.HELP_GAP
    for title, names in SECTIONS.items():
        page.rows(title, [(name, summaries[name]) for name in names.split()], width)
    page.rows("Options", OPTIONS.items())
    page.blocks(f"{FIRST_STEPS}\n\n{STATUSES}")


def render() -> str:
    """The page as text for stdout."""
    with output.out().capturing() as lines:
        show(output.out())
    return "".join(lines)
