"""The faults that a cluster is tested with: each harms a world for a while and leaves the repair to `World.heal`.

`FAULTS` has those that fit any world of two gateways, two nodes and one NATS server, in any order; the random runs draw
from it. The others need a world of their own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from tests.faults.world import BEAT, LEASE, LOST, Gateway, Node, Party, World

Fault = Callable[[World, random.Random], None]

T = TypeVar("T", bound=Party)

SILENT = 3.5 * BEAT

BRIEF, LONG = (0.2, SILENT), (LOST + 1.0, LOST + 2.0)
"""Ranges of seconds: outages that end no call, and those after which calls are lost."""


def _pause(dice: random.Random, *ranges: tuple[float, float]) -> None:
    time.sleep(dice.uniform(*dice.choice(ranges)))


def _one(parties: list[T], dice: random.Random) -> T:
    return dice.choice(parties)


def node_killed(world: World, dice: random.Random) -> None:
    """kill -9 of a node, which comes back at once or later."""
    _kill(_one(world.nodes, dice), dice)


def _kill(node: Node, dice: random.Random) -> None:
    node.kill()
    _pause(dice, (0.0, 0.1), (SILENT, SILENT + 1))
    node.start()
    node.joined()


def gateway_killed(world: World, dice: random.Random) -> None:
    """kill -9 of a gateway; its work is closed by the other, or after its own return."""
    gateway = _one(world.gateways, dice)
    gateway.kill()
    _pause(dice, (0.0, 0.1), (LEASE + 1, LEASE + 2))
    gateway.start()
    gateway.joined()


def nats_restarted(world: World, dice: random.Random) -> None:
    for server in world.nats:
        server.kill()
    _pause(dice, BRIEF)
    for server in world.nats:
        server.start()
    time.sleep(1.0)


def nats_away(world: World, dice: random.Random) -> None:
    """No NATS for longer than calls wait."""
    for server in world.nats:
        server.kill()
    _pause(dice, LONG)
    for server in world.nats:
        server.start()


def nats_frozen(world: World, dice: random.Random) -> None:
    """A server that keeps its connections and says nothing."""
    server = dice.choice(world.nats)
    server.freeze()
    _pause(dice, BRIEF, LONG)
    server.kill()
    server.start()


def postgres_restarted(world: World, dice: random.Random) -> None:
    world.postgres.crash()
    _pause(dice, BRIEF)
    world.postgres.restart()


def postgres_away(world: World, dice: random.Random) -> None:
    """No database for longer than a lease."""
    world.postgres.crash()
    _pause(dice, (LEASE, LEASE + 2))
    world.postgres.restart()


def standby_promoted(world: World, dice: random.Random) -> None:
    """The primary ends for good; the standby takes over."""
    if world.postgres.promoted:
        return postgres_restarted(world, dice)
    world.postgres.crash()
    _pause(dice, (0.1, 1.0))
    world.postgres.promote()
    return None


def _harm_nats(party: Party, toxic: str) -> None:
    for relay in party.nats:
        relay.inject(toxic)


def _cut(party: Party, dice: random.Random, toxics: tuple[str, ...], *ranges: tuple[float, float]) -> None:
    _harm_nats(party, dice.choice(toxics))
    _pause(dice, *ranges)
    for relay in party.nats:
        relay.heal()


def node_mute(world: World, dice: random.Random) -> None:
    """A node hears, and is not heard; what it said arrives late."""
    _cut(_one(world.nodes, dice), dice, ("mute",), BRIEF, LONG)


def node_deaf(world: World, dice: random.Random) -> None:
    """A node is heard, and hears nothing; calls arrive late."""
    _cut(_one(world.nodes, dice), dice, ("deaf",), BRIEF, LONG)


def node_cut(world: World, dice: random.Random) -> None:
    """Both ways: what was sent arrives late, is lost, or the connection is reset."""
    _cut(_one(world.nodes, dice), dice, ("stall", "drop", "half_open", "down"), BRIEF, LONG)


def gateway_without_nats(world: World, dice: random.Random) -> None:
    _cut(_one(world.gateways, dice), dice, ("stall", "mute", "deaf", "drop", "half_open", "down"), BRIEF, LONG)


def gateway_without_database(world: World, dice: random.Random) -> None:
    """For longer than its lease, or briefly."""
    gateway = _one(world.gateways, dice)
    toxic = dice.choice(("stall", "mute", "deaf", "drop", "down"))
    for relay in gateway.database:
        relay.inject(toxic)
    _pause(dice, BRIEF, (LEASE + 1, LEASE + 2))
    for relay in gateway.database:
        relay.heal()


def node_suspended(world: World, dice: random.Random) -> None:
    """SIGSTOP of a node; its plugins go on."""
    node = _one(world.nodes, dice)
    node.suspend()
    _pause(dice, BRIEF, LONG)
    node.resume()


def gateway_suspended(world: World, dice: random.Random) -> None:
    """SIGSTOP of a gateway, also beyond its lease: then it ends when it wakes, and is started again."""
    gateway = _one(world.gateways, dice)
    gateway.suspend()
    _pause(dice, BRIEF, (LEASE + 1, LEASE + 3))
    gateway.resume()


def node_slow(world: World, dice: random.Random) -> None:
    """Each message of a node comes late, and in pieces."""
    _cut(_one(world.nodes, dice), dice, ("latency", "slicer"), (2.0, 3.0))


def nodes_drained(world: World, dice: random.Random) -> None:
    """SIGTERM of each node, one after the other; each is back before the next one goes."""
    for node in world.nodes:
        replace(world, node)


def gateways_replaced(world: World, dice: random.Random) -> None:
    """SIGTERM of each gateway, one after the other."""
    for gateway in world.gateways:
        replace(world, gateway)


def replace(world: World, party: Gateway | Node) -> None:
    """End one in order and start it again. A gateway that lost its lease through the fault before is replaced first."""
    world.until(world.is_whole, "the cluster is whole")
    status = party.terminate()
    assert status == 0, f"{party.name} ended with {status}: {party.log}"
    party.start()
    party.joined()
    world.until(world.is_whole, "the cluster is whole again")
    time.sleep(2 * BEAT)


# Those of the node that runs the singleton: each is long enough that another node takes over.


def holder_killed(world: World, dice: random.Random) -> None:
    _kill(world.holder(), dice)


def holder_suspended(world: World, dice: random.Random) -> None:
    """Longer than its lease, while its plugin could go on: the warden kills it."""
    node = world.holder()
    node.suspend()
    _pause(dice, LONG)
    node.resume()


def holder_cut(world: World, dice: random.Random) -> None:
    """It cannot renew its lease; what its plugin wrote meanwhile may arrive later, and is refused."""
    _cut(world.holder(), dice, ("stall", "mute", "deaf", "drop", "half_open", "down"), LONG)


def holder_drained(world: World, dice: random.Random) -> None:
    """SIGTERM: another node runs the singleton a moment later."""
    replace(world, world.holder())


FAULTS: tuple[Fault, ...] = (
    node_killed,
    gateway_killed,
    nats_restarted,
    nats_away,
    nats_frozen,
    postgres_restarted,
    postgres_away,
    standby_promoted,
    node_mute,
    node_deaf,
    node_cut,
    gateway_without_nats,
    gateway_without_database,
    node_suspended,
    gateway_suspended,
    node_slow,
    nodes_drained,
    gateways_replaced,
)

MOVES: tuple[Fault, ...] = (holder_killed, holder_suspended, holder_cut, holder_drained)
"""Each random run has one of these."""
