"""How often each caller may ask."""

from __future__ import annotations

import pytest

from plugbay.server.api import rates as module
from plugbay.server.api.rates import Rates
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.principal import Principal
from tests.support.clocks import TurnedClock
from tests.support.requirements import requirement


def key(number: int) -> Principal:
    return Principal("key", "org_1", None, "admin", key_id=f"key_{number}")


@requirement("vai:control-rate-limit")
def test_each_caller_has_a_burst_and_then_its_rate() -> None:
    clock = TurnedClock()
    rates = Rates(clock, 10, 3)
    for _ in range(3):
        rates.take(key(1))
    with pytest.raises(GatewayError) as raised:
        rates.take(key(1))
    assert (raised.value.status, raised.value.retry_after) == (429, 0.1)
    rates.take(key(2))
    clock.turn(0.11)
    rates.take(key(1))


def test_callers_are_forgotten_before_they_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CALLERS", 5)
    rates = Rates(TurnedClock(), 1, 1)
    for number in range(20):
        rates.take(key(number))
    assert len(rates._buckets) == 5
