"""Finds the broker for a URL by its scheme, among the installed entry points of the group `plugbay.brokers`.

Brokers are adapters in packages above this one; the host knows only their port.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from plugbay.host.config.broker import BrokerConfig
from plugbay.host.events.bus import Bus
from plugbay.host.journal import Journal
from plugbay.host.ports import Broker
from plugbay.model.errors import ConfigInvalid, Problem

GROUP = "plugbay.brokers"
"""The name of an entry is a URL scheme; it makes a `Broker` of settings, bus, journal and environment."""


def broker_for(settings: BrokerConfig, bus: Bus, journal: Journal, source: str = "plugbay.toml") -> Broker:
    """The broker of these settings, not started; raises `ConfigInvalid` when it is not installed."""
    from importlib.metadata import entry_points  # takes 15 ms, only for hosts with a broker

    scheme = urlsplit(settings.url).scheme
    for entry in entry_points(group=GROUP, name=scheme):
        try:
            make = entry.load()
        except ModuleNotFoundError as error:
            text = f"{scheme}:// needs the module {error.name}, which is not installed: pip install 'plugbay[nats]'"
            raise ConfigInvalid(source, [Problem("missing_extra", "broker.url", text)]) from None
        broker: Broker = make(settings, bus, journal, os.environ)
        return broker
    text = f"nothing that is installed here speaks {scheme}://; install plugbay anew: pip install 'plugbay[nats]'"
    raise ConfigInvalid(source, [Problem("missing_broker", "broker.url", text)])
