"""Fixtures of the broker tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.nats_server import NatsServer, nats_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A shared real server; tests that disturb a server start their own."""
    with nats_server(tmp_path_factory.mktemp("nats")) as running:
        yield running
