"""`plugbay search WORD`: cards in the marketplace of the running server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plugbay.cli import remote
from plugbay.cli.options import AsJson, Server, TokenFile
from plugbay.cli.render import output

PATH = "/v1/plugin-marketplace"
PAGE, MAX_CARDS = 200, 10_000
"""Cards of one request, and in all."""

SEARCHED = ("id", "name", "description", "kind", "package_id", "export_id")


def search(
    word: Annotated[str, typer.Argument(metavar="WORD", help="A part of a name, a description or a publisher.")],
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Search the marketplace of the running server.

    Exits with 4 when no card has the word. plugbay marketplace install ID installs a card for an org.
    """
    client = remote.find(server, token_file, quiet=as_json)
    found = [card for card in _cards(client) if matches(card, word)]
    if as_json:
        output.print_json({"asked": client.url, "items": found})
    elif found:
        output.out().table(("CARD", "KIND", "VERSION", "PUBLISHER", "DESCRIPTION"), [_row(card) for card in found])
    else:
        output.note(f"no card in the marketplace of {client.url} has {word!r}; plugbay marketplace list shows all")
    if not found:
        raise typer.Exit(remote.STATUSES[404])


def matches(card: dict[str, Any], word: str) -> bool:
    """Whether a card has the word, in any case."""
    texts = [str(card.get(name) or "") for name in SEARCHED]
    return any(word.casefold() in text.casefold() for text in [*texts, str(card["publisher"]["id"])])


def _cards(client: remote.ServerClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = None
    while len(found) < MAX_CARDS:
        page = client.get(PATH, limit=PAGE, cursor=cursor)
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    return found


def _row(card: dict[str, Any]) -> tuple[tuple[str, ...], list[output.Part]]:
    about = card["description"] if card["install_policy"]["installable"] else f"{card['description']} (not installable)"
    return (card["id"], card["kind"], card["version"] or "-", str(card["publisher"]["id"])), [about]
