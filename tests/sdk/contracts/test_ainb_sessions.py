"""Usage data of sessions: the version, the fields and the chunks of the contract."""

from __future__ import annotations

import pytest

from plugbay.sdk import WIRE_VERSION, UsageDataEvent
from plugbay.sdk.contracts.ainb_sessions import collect_usage, split_usage
from plugbay.sdk.services.brokered import Mismatch, from_msgpack, to_msgpack
from tests.support.requirements import requirement


@requirement("ainb:sdk-sessions-types")
def test_an_event_has_the_fields_and_the_version_of_the_contract_and_is_read_back() -> None:
    event = UsageDataEvent({"total": 7, "calls": []}, published_ns=5)
    assert from_msgpack(event.encode()) == {
        "version": 3,
        "published_ns": 5,
        "partial": False,
        "chunk_index": 0,
        "is_final": True,
        "data": {"total": 7, "calls": []},
    }
    assert UsageDataEvent.decode(event.encode()) == event
    assert WIRE_VERSION == 3


@requirement("ainb:sdk-sessions-types")
def test_another_version_is_a_value_to_show_and_no_exception() -> None:
    other = UsageDataEvent.decode(to_msgpack({"version": 5, "data": {}}))
    assert isinstance(other, Mismatch)
    assert str(other) == "the publisher writes version 5, and this plugin reads version 3"
    for payload in (to_msgpack([1]), to_msgpack({"version": 3}), b"{}"):
        with pytest.raises(ValueError, match="not a UsageDataEvent"):
            UsageDataEvent.decode(payload)


@requirement("ainb:sdk-sessions-types")
def test_chunks_are_events_and_are_joined_again() -> None:
    calls = [{"n": n, "text": "x" * 1000} for n in range(5000)]
    payloads = list(split_usage(calls, {"total": 5000}, published_ns=9))
    events = [UsageDataEvent.decode(payload) for payload in payloads]
    assert all(isinstance(event, UsageDataEvent) for event in events) and len(events) == 3
    facts = [(event.chunk_index, event.is_final, "total" in event.data) for event in events]  # type: ignore[union-attr]
    assert facts == [(0, False, True), (1, False, False), (2, True, False)]
    collector = collect_usage()
    assert [collector.add(payload) for payload in payloads][-1] == {"total": 5000, "calls": calls}
