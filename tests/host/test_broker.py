"""Brokers are found among what is installed, and what is missing is said."""

from __future__ import annotations

import sys

import pytest

from plugbay.host.broker import broker_for
from plugbay.host.config.sections import BrokerConfig
from plugbay.host.events.bus import Bus
from plugbay.host.journal import Journal
from plugbay.model.errors import ConfigInvalid


@pytest.mark.parametrize("scheme", ["nats", "tls"])
def test_the_broker_of_a_scheme_is_found_and_not_begun(scheme: str) -> None:
    broker = broker_for(BrokerConfig(url=f"{scheme}://127.0.0.1:4222"), Bus(), Journal())
    assert type(broker).__name__ == "NatsBroker"
    assert (broker.status.joined, broker.status.problem) == (False, "not begun")


def test_an_extra_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("nats", "plugbay.brokers"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(ConfigInvalid, match=r"broker\.url: nats:// needs .*pip install 'plugbay\[nats\]'"):
        broker_for(BrokerConfig(url="nats://127.0.0.1:4222"), Bus(), Journal())


def test_a_scheme_that_nothing_speaks_is_said() -> None:
    settings = BrokerConfig.model_construct(url="amqp://127.0.0.1", topics=[])
    with pytest.raises(ConfigInvalid, match="nothing that is installed here speaks amqp://"):
        broker_for(settings, Bus(), Journal())
