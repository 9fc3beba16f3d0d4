"""Clocks and RFC 3339 timestamps."""

from __future__ import annotations

import time

import pytest

from plugbay.server.domain.clock import CLOCK_JITTER, SharedClock, SystemClock, boot_time, moment, stamp


def test_a_moment_is_written_in_utc_and_read_back() -> None:
    assert stamp(1_770_000_000.25) == "2026-02-02T02:40:00.250000Z"
    assert moment("2026-02-02T02:40:00.250000Z") == 1_770_000_000.25
    assert moment("2026-02-02T03:40:00.250000+01:00") == moment("2026-02-02T02:40:00.25")
    assert stamp(0.0) == "1970-01-01T00:00:00.000000Z"


def test_an_invalid_time_is_refused() -> None:
    with pytest.raises(ValueError):
        moment("yesterday")


def test_the_systems_clock_is_the_systems() -> None:
    clock = SystemClock()
    before = time.time(), time.monotonic()
    now = clock.now(), clock.monotonic()
    assert before[0] - 1e-6 <= now[0] <= time.time() + 1e-6 and before[1] <= now[1] <= time.monotonic()


def test_the_clock_of_several_gateways_is_that_of_their_database() -> None:
    clock = SharedClock()
    assert abs(clock.now() - time.time()) < 1
    asked_at = boot_time()
    clock.follow(1_000.0, asked_at)
    assert 0 <= clock.now() - 1_000.0 < 60
    before = clock.now()
    clock.follow(clock.now() - CLOCK_JITTER / 4, boot_time())
    assert clock.now() >= before, "the time that an answer takes moves nothing"
    assert clock.monotonic() <= time.monotonic()


def test_an_answer_that_took_long_moves_only_a_clock_that_must_be_wrong() -> None:
    """The database said its time some time between question and answer, perhaps at either end."""
    clock, asked_at = SharedClock(), boot_time() - 4.0
    before = clock.now()
    for said in (before - 3.9, before - 2.0, before):
        clock.follow(said, asked_at)
        assert abs(clock.now() - before) < 0.5
    clock.follow(before - 6.0, asked_at)
    assert -2.5 < clock.now() - before < -1.5, "two seconds are the least by which it was wrong"
    clock.follow(before + 3.0, asked_at)
    assert 2.5 < clock.now() - before < 3.5
