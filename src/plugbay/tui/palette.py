"""What the command palette offers: commands of the plugin, screens of all plugins, what the host can do.

Owns the search in it. Names are shown as they are, never as markup. Is given what to offer; knows no host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from plugbay.tui.looks import safe


class Offer(NamedTuple):
    """One line of the palette."""

    name: str
    about: str
    do: Callable[[], Any]


def offering(offers: Sequence[Offer]) -> type[Provider]:
    """A provider of exactly these."""

    class Offers(Provider):
        async def discover(self) -> Hits:
            for offer in offers:
                yield DiscoveryHit(Content(safe(offer.name)), offer.do, safe(offer.name), _help(offer))

        async def search(self, query: str) -> Hits:
            matcher = self.matcher(query)
            for offer in offers:
                name = safe(offer.name)
                score = matcher.match(name)
                if score > 0:
                    yield Hit(score, matcher.highlight(name), offer.do, text=name, help=_help(offer))

    return Offers


def _help(offer: Offer) -> str:
    """The palette takes it for markup, so what looks like some is written as text."""
    return Content(safe(offer.about)).markup
