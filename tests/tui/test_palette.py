"""The palette: everything that is offered can be found, and names are text."""

from __future__ import annotations

from textual.app import App
from textual.command import DiscoveryHit, Hit

from plugbay.tui.palette import Offer, offering
from tests.support.loops import Run


def test_everything_is_offered_and_what_fits_is_found(run: Run) -> None:
    async def main() -> None:
        done: list[str] = []
        offers = [Offer("tidy [up]", "a [red]command[/]", lambda: done.append("tidy")), Offer("quit", "", lambda: None)]
        app: App[None] = App()
        async with app.run_test():
            provider = offering(offers)(app.screen)
            every = [hit async for hit in provider.discover()]
            assert [hit.text for hit in every] == ["tidy [up]", "quit"]
            found = [hit async for hit in provider.search("tidy")]
            assert [hit.text for hit in found] == ["tidy [up]"]
            (hit,) = found
            assert isinstance(hit, Hit)
            hit.command()
            assert done == ["tidy"]
            assert isinstance(every[0], DiscoveryHit)
            assert str(every[0].display) == "tidy [up]"
            assert [hit async for hit in provider.search("zzz")] == []

    run(main)
