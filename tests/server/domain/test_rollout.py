"""Which binding serves: sticky, in proportion, the project's first."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from plugbay.server.domain.rollout import WHOLE, Share, bucket, chosen, overbooked, selected, stable_key
from tests.support.requirements import requirement

IDS = st.text("abcdef0123456789", min_size=1, max_size=12).map(lambda text: f"bind_{text}")
KEYS = st.text(max_size=30)


@st.composite
def shares(draw: st.DrawFn) -> list[Share]:
    """Bindings of one scope that together have the whole traffic at most."""
    names = draw(st.lists(IDS, unique=True, max_size=5))
    left, found = WHOLE, []
    for name in names:
        percent = draw(st.integers(0, left))
        left -= percent
        found.append(Share(name, percent))
    return found


@requirement("vai:control-rollout")
def test_the_bucket_is_the_hash_of_binding_and_key_in_hundredths() -> None:
    expected = int(hashlib.sha256(b"bind_1sess_1").hexdigest(), 16) % 100
    assert bucket("bind_1", "sess_1") == expected
    assert chosen([Share("bind_1", expected)], "sess_1") is None
    assert chosen([Share("bind_1", expected + 1)], "sess_1") == "bind_1"


@requirement("vai:control-rollout")
@given(shares(), shares(), KEYS)
def test_the_same_key_is_always_served_by_the_same_binding_and_the_projects_come_first(
    of_project: list[Share], of_org: list[Share], key: str
) -> None:
    first = selected(of_project, of_org, key)
    assert selected(of_project, of_org, key) == first
    assert first is None or first in {share.binding_id for share in (*of_project, *of_org)}
    own = chosen(of_project, key)
    assert first == (own if own is not None else chosen(of_org, key))


@given(shares(), KEYS)
def test_a_binding_without_traffic_serves_nobody_and_one_with_all_of_it_everybody(found: list[Share], key: str) -> None:
    idle = {share.binding_id for share in found if share.percent == 0}
    assert chosen(found, key) not in idle
    assert chosen([Share("bind_all", WHOLE)], key) == "bind_all"
    assert (chosen(found, key) is None) <= (sum(share.percent for share in found) < WHOLE)


@given(shares(), KEYS, st.integers(0, 100))
def test_whoever_was_served_stays_when_the_last_share_grows(found: list[Share], key: str, more: int) -> None:
    if not found:
        return
    room = WHOLE - sum(share.percent for share in found)
    grown = [*found[:-1], Share(found[-1].binding_id, found[-1].percent + min(more, room))]
    before = chosen(found, key)
    assert before is None or chosen(grown, key) == before


def test_traffic_is_shared_about_as_it_says() -> None:
    found = [Share("bind_a", 30), Share("bind_b", 50)]
    served = [chosen(found, f"sess_{number}") for number in range(4_000)]
    parts = {name: served.count(name) / len(served) for name in ("bind_a", "bind_b", None)}
    assert all(abs(parts[name] - wanted) < 0.04 for name, wanted in (("bind_a", 0.3), ("bind_b", 0.5), (None, 0.2)))


def test_more_than_all_of_the_traffic_is_too_much() -> None:
    assert overbooked([Share("a", 60), Share("b", 40)]) == 0
    assert overbooked([Share("a", 60), Share("b", 41)]) == 1


def test_selection_sticks_to_the_first_id_there_is() -> None:
    assert stable_key(None, "ch_1", "run_1") == "ch_1"
    assert stable_key(None, None) == ""
