"""What an application uses of a host beside calls."""

from __future__ import annotations

import pytest

from plugbay import Host
from tests.support.loops import Run


def test_the_services_are_there_before_the_host_is_started() -> None:
    host = Host([])
    assert host.memory is None
    assert host.llm.names() == []
    assert host.vectors is host._backends.vectors
    assert host.channels is host._backends.channels
    assert host.screens is host._screens
    services = host._backends.services
    assert (host.snapshots, host.actions, host.journal) == (services.snapshots, services.actions, services.journal)


def test_what_is_published_reaches_who_subscribed_and_odd_topics_do_not(run: Run) -> None:
    async def main() -> None:
        async with Host([]) as host, host.subscribe("a.>") as events:
            host.publish("a.b", {"n": 1})
            assert (await anext(events)).payload == {"n": 1}
            with pytest.raises(ValueError, match="cannot publish"):
                host.publish("a..b", {})

    run(main)
