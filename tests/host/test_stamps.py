"""Ids are UUIDs, times are RFC 3339 in UTC, and what others wrote is held to the same."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.stamps import as_utc, is_uuid, new_uuid, rfc3339, utc_now


def test_stamps_of_the_host_pass_its_own_checks() -> None:
    assert is_uuid(new_uuid())
    assert new_uuid() != new_uuid()
    now = utc_now()
    assert as_utc(now) == now


ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(timezones=ZONES, min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1)))
def test_every_moment_is_written_in_utc(moment: datetime) -> None:
    written = rfc3339(moment)
    assert as_utc(written) == written
    assert datetime.fromisoformat(written) == moment


@pytest.mark.parametrize(
    "value", [None, 7, "", "x", "{01940000-0000-0000-0000-000000000001}", "0194000000000000000000000000000001"]
)
def test_other_values_are_no_uuid(value: object) -> None:
    assert not is_uuid(value)


@pytest.mark.parametrize("text", ["2026-05-01T00:00:00Z", "2026-05-01T23:59:59.123456789Z"])
def test_a_time_in_utc_is_kept_as_it_is(text: str) -> None:
    assert as_utc(text) == text


def test_a_time_with_an_offset_becomes_utc() -> None:
    assert as_utc("2026-05-01T02:00:00+02:00") == "2026-05-01T00:00:00Z"


@pytest.mark.parametrize(
    "value",
    [
        None,
        1_700_000_000,
        "",
        "2026-05-01",
        "2026-05-01T00:00:00",
        "2026-05-01 00:00:00Z",
        "20260501T000000Z",
        "2026-13-01T00:00:00Z",
        "2026-05-01T24:00:00Z",
        "0001-01-01T00:00:00+10:00",
        "٢٠٢٦-05-01T00:00:00Z",
        "2026-05-01T00:00:00Z\n",
    ],
)
def test_other_values_are_no_time(value: object) -> None:
    assert as_utc(value) is None
