"""Restart decisions, row by row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.supervision.restart import Quarantine, Restart, is_shortage, next_action, recent_failures
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.spec import RestartPolicy
from tests.support.requirements import requirement

POLICY = RestartPolicy(first_delay=1, factor=4, longest_delay=10, jitter=0.5, failures=3, window=60, healthy_after=100)


@pytest.mark.parametrize(
    ("failures", "now", "jitter", "action"),
    [
        ([10.0], 10.0, 0.5, Restart(1)),
        ([9.0, 10.0], 10.0, 0.5, Restart(4)),
        ([8.0, 9.0, 10.0], 10.0, 0.5, Restart(10)),
        ([7.0, 8.0, 9.0, 10.0], 10.0, 0.5, Quarantine(4)),
        ([1.0, 2.0, 3.0, 100.0], 100.0, 0.5, Restart(1)),
        ([10.0], 10.0, 0.0, Restart(0.5)),
        ([10.0], 10.0, 1.0, Restart(1.5)),
    ],
    ids=[
        "first",
        "second waits longer",
        "the delay is capped",
        "too many",
        "old ones are forgotten",
        "least",
        "most",
    ],
)
def test_the_action_after_a_failure(
    failures: list[float], now: float, jitter: float, action: Restart | Quarantine
) -> None:
    assert next_action(failures, now, POLICY, jitter) == action


def test_a_long_healthy_run_forgets_every_failure_and_a_short_one_only_the_old() -> None:
    assert recent_failures([1.0, 150.0], last_start=50.0, now=151.0, policy=POLICY) == []
    assert recent_failures([1.0, 150.0], last_start=149.0, now=151.0, policy=POLICY) == [150.0]


@given(st.lists(st.floats(0, 1000), max_size=20), st.floats(0, 1))
def test_a_delay_is_never_negative_nor_longer_than_the_longest(failures: list[float], jitter: float) -> None:
    action = next_action(sorted(failures), 1000.0, POLICY, jitter)
    if isinstance(action, Restart):
        assert 0 <= action.after <= POLICY.longest_delay
    else:
        assert action.failures > POLICY.failures


def test_a_policy_of_endless_patience_computes_no_number_that_does_not_exist() -> None:
    policy = RestartPolicy(failures=10_000, window=float("inf"), jitter=0)
    assert next_action([0.0] * 5_000, 0.0, policy, 0.5) == Restart(policy.longest_delay)


AINB = RestartPolicy(first_delay=1, factor=4, longest_delay=16, jitter=0.0, failures=2, window=60, healthy_after=60)


@requirement("ainb:host-backoff", "ainb:host-quarantine")
@pytest.mark.parametrize(
    ("failures", "action"),
    [
        ([100.0], Restart(1)),
        ([99.0, 100.0], Restart(4)),
        ([95.0, 99.0, 100.0], Quarantine(3)),
        ([40.0, 99.0, 100.0], Quarantine(3)),
        ([39.9, 99.0, 100.0], Restart(4)),
    ],
    ids=["first", "second", "third", "just inside the window", "just outside of it"],
)
def test_one_second_then_four_then_quarantine(failures: list[float], action: Restart | Quarantine) -> None:
    assert next_action(failures, 100.0, AINB, 0.9) == action


@requirement("ainb:host-backoff")
@pytest.mark.parametrize(("lived", "kept"), [(0.0, [95.0]), (59.9, [95.0]), (60.0, [])])
def test_only_a_run_of_a_minute_begins_the_ladder_again(lived: float, kept: list[float]) -> None:
    assert recent_failures([95.0], last_start=100.0 - lived, now=100.0, policy=AINB) == kept


def test_a_failure_counts_until_the_window_is_over() -> None:
    assert recent_failures([40.0, 39.9], last_start=99.0, now=100.0, policy=AINB) == [40.0]


@pytest.mark.parametrize(
    ("origin", "detail", "shortage"),
    [
        (Origin.SYSTEM, {"errno": "EMFILE"}, True),
        (Origin.SYSTEM, {"errno": "ENOENT"}, False),
        (Origin.SYSTEM, {}, False),
        (Origin.PLUGIN, {"errno": "EMFILE"}, False),
    ],
    ids=["no descriptors are left", "no program is there", "another cause", "a plugin says so"],
)
def test_only_a_shortage_of_the_machine_does_not_count(origin: str, detail: dict[str, str], shortage: bool) -> None:
    failure = Failure(Code.LAUNCH_FAILED, "no", origin=origin, detail=detail)
    assert is_shortage(failure) is shortage
