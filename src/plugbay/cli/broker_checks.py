"""What `plugbay doctor` asks about the broker of plugbay.toml: can this host be joined with others through it?

Owns the one check, which joins for a moment, hears nothing and says nothing. Silent where no broker is configured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from plugbay.cli.checks import ERROR, OK, WARNING, Check

if TYPE_CHECKING:
    from plugbay.host.config.config import Config
    from plugbay.host.ports import Broker, BrokerStatus

PATIENCE = 5.0
"""Seconds to join, which takes a hundredth of one on a network that works."""


def broker_checks(config: Config) -> Iterator[Check]:
    """The check, if there is a broker to be checked."""
    import asyncio

    from plugbay.host.assembly import broker_for
    from plugbay.host.events.bus import Bus
    from plugbay.host.journal import Journal
    from plugbay.model.errors import ConfigInvalid

    if config.broker is None:
        return
    if not config.broker.topics:
        fix = 'name what is shared: topics = ["agent.>"]'
        yield _check(WARNING, f"{config.broker.url}: nothing is shared, so nobody is joined", fix)
        return
    try:
        status = asyncio.run(_joined(broker_for(config.broker, Bus(), Journal())))
    except ConfigInvalid as error:
        yield _check(ERROR, "; ".join(problem.message for problem in error.problems), "see [broker] in plugbay.toml")
        return
    if status.joined:
        yield _check(OK, f"joined through {status.server}, shared: {', '.join(config.broker.topics)}")
    else:
        fix = "start the server, or correct [broker] in plugbay.toml; meanwhile this host goes on alone"
        yield _check(ERROR, f"{status.server}: {status.problem}", fix)


def _check(status: str, detail: str, fix: str = "") -> Check:
    return Check("broker", status, "Broker", detail, fix)


async def _joined(broker: Broker) -> BrokerStatus:
    """How we stand with it once it is joined, or after a while."""
    broker.begin()
    await broker.joined(PATIENCE)
    status = broker.status
    await broker.stop()
    return status
