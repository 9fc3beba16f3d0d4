"""Names are short, plain, the same every time, and lead back to where they came from."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.mcp_server import names
from plugbay.mcp_server.names import LONGEST, RULES, Names, NamesCollide, mapped
from tests.support.requirements import requirement

ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")

ids = st.text(min_size=1, max_size=90) | st.from_regex(r"[a-z]{1,6}(\.[a-z]{1,6}){0,2}", fullmatch=True)
exports = st.tuples(ids, ids)
rules = st.sampled_from(list(RULES.values()))


@requirement("mcp:serve-names")
@given(rule=rules, export=exports)
def test_every_client_takes_every_name(rule: names.Rule, export: tuple[str, str]) -> None:
    assert ACCEPTED.match(rule(*export))


@requirement("mcp:serve-names")
@given(rule=rules, given=st.lists(exports, max_size=12, unique=True))
def test_a_name_leads_back_to_its_export_or_the_collision_is_told(
    rule: names.Rule, given: list[tuple[str, str]]
) -> None:
    served = [rule(*export) for export in given]
    if len(set(served)) < len(served):
        with pytest.raises(NamesCollide):
            mapped(rule, given)
    else:
        table = mapped(rule, given)
        assert [table.owner(name) for name in served] == given


@given(rule=rules, given=st.lists(exports, min_size=1, max_size=8, unique=True), data=st.data())
def test_a_name_does_not_depend_on_what_else_is_served(
    rule: names.Rule, given: list[tuple[str, str]], data: st.DataObject
) -> None:
    alone = data.draw(st.sampled_from(given))
    assert Names(rule).add(*alone) == rule(*alone)


@pytest.mark.parametrize(
    ("plugin_id", "name", "full", "short"),
    [
        ("weather", "forecast", "weather__forecast", "forecast"),
        ("example.weather", "forecast", "example_weather__forecast", "forecast"),
        ("tea-shop", "tea-shop.brew", "tea-shop__tea-shop_brew", "tea-shop_brew"),
        ("wörter", "zähle mit", "w_rter__z_hle_mit", "z_hle_mit"),
        ("a", "…", "a___", "_"),
    ],
)
def test_what_no_client_takes_becomes_an_underscore(plugin_id: str, name: str, full: str, short: str) -> None:
    assert names.full(plugin_id, name) == full
    assert names.short(plugin_id, name) == short


def test_long_names_are_cut_and_stay_apart() -> None:
    one, other = names.full("p" * 40, "t" * 60 + "one"), names.full("p" * 40, "t" * 60 + "other")
    assert len(one) == len(other) == LONGEST
    assert one != other
    assert names.full("p" * 30, "t" * 32) == "p" * 30 + "__" + "t" * 32


@requirement("mcp:serve-names-collide")
def test_a_collision_names_both_exports() -> None:
    with pytest.raises(NamesCollide, match=r"a\.b/x and a_b/x would both be served as 'a_b__x'") as caught:
        mapped(names.full, [("a.b", "x"), ("a_b", "x")])
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.served, again.exports) == ("a_b__x", ("a.b/x", "a_b/x"))


def test_an_export_that_is_added_twice_is_the_same_one() -> None:
    table = Names(names.full)
    assert table.add("a", "x") == table.add("a", "x")
    assert table.owner("a__y") is None
