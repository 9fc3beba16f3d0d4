"""Finds the broker that joins this host with others: by the scheme of its URL, among those that are installed.

Owns the group of entry points that brokers are found in, and what is said when one is missing. Knows no broker: they
are adapters above this package, and know the bus instead.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from plugbay.host.config.sections import BrokerConfig
from plugbay.host.events.bus import Bus
from plugbay.host.journal import Journal
from plugbay.host.ports import Broker
from plugbay.model.errors import ConfigInvalid, Problem

GROUP = "plugbay.brokers"
"""Each entry is called like a scheme, and makes a `Broker` of settings, bus, journal and environment."""


def broker_for(settings: BrokerConfig, bus: Bus, journal: Journal, source: str = "plugbay.toml") -> Broker:
    """The broker of these settings, not begun yet; raises `ConfigInvalid` when it cannot be had."""
    from importlib.metadata import entry_points  # 15 ms, for those who have a broker

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
