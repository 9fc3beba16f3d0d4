"""Nodes that misbehave: they have valid credentials, beat like others, and take calls."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from plugbay.cluster import envelope
from plugbay.cluster.envelope import Call
from plugbay.cluster.hosts import NodeHosts
from plugbay.cluster.node import NodeServer
from plugbay.cluster.releases import NodeReleases
from plugbay.cluster.times import Times
from plugbay.host.config.config import Config
from plugbay.host.config.sections import ClusterConfig
from plugbay.packages.trust import TrustStore
from tests.faults.world import BEAT, CELL, LOST, PASSWORD, World
from tests.support.packaged import SIGNED_AT
from tests.support.patience import PATIENCE

STRANGER = "stranger"
"""The name of the node, and of its user."""


class Stranger(NodeServer):
    """Accepts each call and answers none."""

    calls = 0

    def _on_call(self, subject: bytes, headers: bytes, data: bytes) -> None:
        self.calls += 1
        call, _ = envelope.unpack(Call, data)
        self.respond(call)

    def respond(self, call: Call) -> None:
        frame = envelope.Frame(call=call.id, node=self.name, seq=0, kind=envelope.ACCEPTED)
        self._put(call, envelope.pack(frame))


class Silent(Stranger):
    """Not even that."""

    def respond(self, call: Call) -> None:
        pass


class Nonsense(Stranger):
    """Answers with bytes that are no frame, with frames of other calls, and with values that are no JSON."""

    def respond(self, call: Call) -> None:
        frame = envelope.Frame(call=call.id, node=self.name, seq=0, kind="done")
        answers = [
            os.urandom(100),
            b"{}\n{}",
            envelope.pack(frame, b"{not JSON"),
            envelope.pack(envelope.Frame(call="0" * 32, node=self.name, seq=0, kind="done"), b"{}"),
        ]
        self._put(call, answers[self.calls % len(answers)])


@contextmanager
def stranger(world: World, kind: type[Stranger]) -> Iterator[Stranger]:
    """Such a node in a thread; it has joined."""
    settings = ClusterConfig(
        name=CELL, nats=[world.nats[0].url], user=STRANGER, password_env="CELL_PASSWORD", beat_seconds=BEAT
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def make() -> Stranger:
        trust = TrustStore(world.folder / STRANGER / "trust.json")
        releases = NodeReleases(world.folder / STRANGER / "packages", trust, lambda: SIGNED_AT)
        hosts = NodeHosts(releases, Config.default(), world.folder / STRANGER / "state", None, unconfined=True)
        times = Times.of(BEAT, LOST)
        node = kind(settings, {"CELL_PASSWORD": PASSWORD}, STRANGER, hosts, times=times)
        await node.start()
        assert await node.wire.joined(PATIENCE)
        return node

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE)

    node: Stranger = run(make())
    try:
        yield node
    finally:
        run(node.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()
