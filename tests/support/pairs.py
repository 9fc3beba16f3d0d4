"""Runs a HOST machine against a PLUGIN machine with no process between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugbay.contracts.base import Machine

if TYPE_CHECKING:
    from plugbay.model.events import Event


def exchange(host: Machine, plugin: Machine) -> tuple[list[Event], list[Event]]:
    """Carry bytes both ways until both are silent; what each reported."""
    at_host: list[Event] = []
    at_plugin: list[Event] = []
    while True:
        to_plugin, to_host = host.outgoing(), plugin.outgoing()
        if not to_plugin and not to_host:
            return at_host, at_plugin
        if to_plugin:
            at_plugin += plugin.receive(to_plugin)
        if to_host:
            at_host += host.receive(to_host)
