"""Backends by name: the first to register a name keeps it until it is withdrawn."""

from __future__ import annotations

from plugbay.host.services.registry import Registry


class Pumps(Registry[int]):
    KIND = "pump"


def test_the_first_to_register_a_name_keeps_it_until_it_is_withdrawn() -> None:
    pumps = Pumps()
    assert pumps.register("b", 1, "one") is None
    assert pumps.register("b", 2, "two") == "the pump 'b' is offered by 'one' already"
    assert pumps.find("b") == 1
    pumps.withdraw("b")
    assert pumps.find("b") is None
    assert pumps.register("b", 2, "two") is None
    assert pumps.find("b") == 2


def test_names_are_sorted() -> None:
    pumps = Pumps()
    for name in ("c", "a", "b"):
        pumps.register(name, 0, "one")
    assert list(pumps) == ["a", "b", "c"]
