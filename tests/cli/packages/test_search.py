"""`plugbay search`, against a real server with its built-in cards."""

from __future__ import annotations

from tests.cli.conftest import Run
from tests.cli.gateway.test_commands import Shell, shell, using, world
from tests.support.requirements import requirement
from tests.support.worlds import World

__all__ = ["shell", "world"]


@requirement("host:control-plane-commands")
def test_cards_are_found_by_any_of_their_words(shell: Shell, world: World) -> None:
    cards = shell("marketplace list --json").json["items"]
    card = next(each for each in cards if each["id"] == "thread-weave")
    done = shell("search THREAD-weav")
    assert (done.code, done.err) == (0, using(world)) and "thread-weave" in done.out
    for word in (card["name"], card["package_id"], card["publisher"]["id"], card["description"].split()[-1]):
        found = shell("search", word, "--json").json
        assert found["asked"] == world.url and card in found["items"], word
    assert len(shell("search", card["id"], "--json").json["items"]) < len(cards)


def test_a_word_that_no_card_has_is_not_found(shell: Shell) -> None:
    done = shell("search no-such-card")
    assert (done.code, done.out) == (4, "") and "plugbay marketplace list" in done.err
    assert shell("search no-such-card --json").json["items"] == []


def test_a_search_needs_a_server(run: Run) -> None:
    done = run("search", "tea")
    assert done.code == 4 and "no plugbay server runs" in done.err
