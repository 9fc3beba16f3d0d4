"""Checks of `[cluster]` for `plugbay doctor`: NATS and the permissions of its user, the registry, the database.

Permissions are tried, neither too few nor too many: with empty messages, which gateways and nodes ignore, and with
subscriptions that end at once. The configuration of a node has a section `[node]`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from plugbay.brokers.nats import NatsClient, describe_error, login_options
from plugbay.cli.doctor.checks import ERROR, OK, WARNING, Check
from plugbay.cli.render import output
from plugbay.cluster.subjects import permissions
from plugbay.model.errors import ConfigInvalid
from plugbay.model.topics import matches

if TYPE_CHECKING:
    from plugbay.host.config.config import Config
    from plugbay.host.config.sections import ClusterConfig

OLDEST_NATS = (2, 9, 16)
"""Before it, a server that sends to a dead client never notices that it is dead."""

ANSWER_SECONDS = 5.0

MAX_CLOCK_SECONDS = 1.0
"""Between the clock of this machine and that of the database."""

PROBE = "plugbay-doctor"
"""A word of subjects that no gateway and no node has."""

EVERYTHING = (">", "_INBOX.>")

PUBLISH, SUBSCRIBE = "publish", "subscribe"

NAME_VARIABLE = "PLUGBAY_NODE_NAME"


def check_cluster(config: Config, database: str | None) -> Iterator[Check]:
    """All checks; none without `[cluster]`."""
    if config.cluster is None:
        return
    node = _node_name(config)
    if config.cluster.nats:
        yield from asyncio.run(_check_nats(config.cluster, node, os.environ))
    yield from _check_registry(config)
    if node is None:
        yield from _check_database(database)


def _node_name(config: Config) -> str | None:
    """The name of the node that this is the configuration of; None: of a gateway."""
    named = os.environ.get(NAME_VARIABLE) or config.node.name
    if named is not None or not config.node.model_fields_set:
        return named
    return socket.gethostname().partition(".")[0]


# NATS.


async def _check_nats(cluster: ClusterConfig, node: str | None, environ: Mapping[str, str]) -> list[Check]:
    try:
        login = login_options(cluster, environ, section="cluster")
    except ConfigInvalid as error:
        text = "; ".join(problem.message for problem in error.problems)
        return [Check("cluster_nats", ERROR, "Cluster: NATS", text, "correct [cluster] in plugbay.toml")]
    found: list[Check] = []
    tried = False
    for url in cluster.urls:
        refusals: list[str] = []
        client = NatsClient(lambda *_: None, encrypted=cluster.is_encrypted)
        try:
            await client.join(url, refusals.append, **login)
            await client.round_trip(ANSWER_SECONDS)
            found.append(_nats_check(url, client))
            if not tried:
                tried = True
                found.append(await _check_permissions(Probe(client, refusals), cluster, node))
        except Exception as error:  # nats-py raises whatever failed
            fix = "start the server, or correct [cluster] in plugbay.toml"
            found.append(Check("cluster_nats", ERROR, "Cluster: NATS", f"{url}: {describe_error(error)}", fix))
        finally:
            await client.end()
    return found


def _nats_check(url: str, client: NatsClient) -> Check:
    version = client.connected_server_version
    number = (version.major, version.minor, version.patch)
    text = f"{url} is reached, version {'.'.join(map(str, number))}"
    if number >= OLDEST_NATS:
        return Check("cluster_nats", OK, "Cluster: NATS", text)
    oldest = ".".join(map(str, OLDEST_NATS))
    why = f"{text}; before {oldest} a server may never notice that a busy client is dead"
    return Check("cluster_nats", WARNING, "Cluster: NATS", why, f"install nats-server {oldest} or newer", optional=True)


class Probe:
    """Tries what the user of a connection may do."""

    def __init__(self, client: NatsClient, refusals: list[str]) -> None:
        self._client = client
        self._refusals = refusals
        """What the server has refused so far."""

    async def may(self, action: str, subject: str) -> bool:
        """Whether the server lets the user publish there, or listen."""
        before = len(self._refusals)
        if action == PUBLISH:
            await self._client.publish(subject, b"")
            await self._client.round_trip(ANSWER_SECONDS)
            return len(self._refusals) == before
        name, _, queue = subject.partition(" ")
        subscription = await self._client.subscribe(name, queue)
        await self._client.round_trip(ANSWER_SECONDS)
        allowed = len(self._refusals) == before
        if allowed:
            await subscription.unsubscribe()
        return allowed


class Wanted(NamedTuple):
    """One permission, and whether the user must have it."""

    action: str
    subject: str
    needed: bool


def wanted_permissions(cell: str, node: str | None) -> list[Wanted]:
    """What the user of a gateway, or of this node, must be allowed and must not be allowed."""
    own = permissions(cell, node)
    found = [Wanted(action, _probed(action, pattern), True) for action in own for pattern in own[action]]
    for other in (permissions(cell), permissions(cell, PROBE)):
        for action, patterns in other.items():
            subjects = [_probed(action, pattern) for pattern in patterns]
            found += [Wanted(action, each, False) for each in subjects if not _is_allowed(each, own[action])]
    found += [Wanted(SUBSCRIBE, subject, False) for subject in EVERYTHING]
    return list(dict.fromkeys(found))


def _probed(action: str, pattern: str) -> str:
    """A subject of this pattern: for messages and for queues one without a subscriber, else the pattern."""
    subject, space, queue = pattern.partition(" ")
    if action == SUBSCRIBE and not queue:
        return pattern
    words = [PROBE if word in ("*", ">") else word for word in subject.split(".")]
    return ".".join(words) + space + queue


def _is_allowed(subject: str, patterns: list[str]) -> bool:
    """Whether one of these patterns covers all subjects of this one."""
    words = [PROBE if word in ("*", ">") else word for word in subject.partition(" ")[0].split(".")]
    return any(matches(pattern.partition(" ")[0], ".".join(words)) for pattern in patterns)


async def _check_permissions(probe: Probe, cluster: ClusterConfig, node: str | None) -> Check:
    """One check for all permissions."""
    title = "Cluster: permissions"
    role = "a gateway" if node is None else f"the node {node}"
    tried = [(each, await probe.may(each.action, each.subject)) for each in wanted_permissions(cluster.name, node)]
    missing = [f"{each.action} {each.subject}" for each, allowed in tried if each.needed and not allowed]
    surplus = [f"{each.action} {each.subject}" for each, allowed in tried if not each.needed and allowed]
    own = permissions(cluster.name, node)
    fix = f"give the user of {role} exactly these: " + "; ".join(f"{key} {', '.join(own[key])}" for key in own)
    if missing:
        hint = "" if node is not None else " (the configuration of a node has a section [node])"
        return Check("cluster_permissions", ERROR, title, f"{role} may not {', '.join(missing)}{hint}", fix)
    if surplus:
        return Check("cluster_permissions", WARNING, title, f"{role} may also {', '.join(surplus)}", fix)
    return Check("cluster_permissions", OK, title, f"those of {role}, and no others")


# The registry.


def _check_registry(config: Config) -> Iterator[Check]:
    from plugbay.packages.connection import Connection
    from plugbay.packages.errors import PackageRefused
    from plugbay.packages.reference import Registries, parse

    assert config.cluster is not None
    if config.cluster.registry is None:
        return
    title, named = "Cluster: registry", config.cluster.registry.rstrip("/")
    try:
        reference = parse(f"{named}/{PROBE}:latest")
        registries = Registries.of(config.registries)
        with Connection(
            reference, plain_http=reference.is_local, registries=registries, seconds=ANSWER_SECONDS
        ) as connection:
            connection.tags()
    except PackageRefused as error:
        fix = "start it, correct registry in [cluster], or log in: docker login stores the credentials"
        yield Check("cluster_registry", ERROR, title, f"{named}: {error.message}", fix)
    else:
        yield Check("cluster_registry", OK, title, f"{named} is reached")


# The database of gateways.


def _check_database(url: str | None) -> Iterator[Check]:
    if url is None:
        text = "the clock and the tables of the gateways' database were not checked"
        yield Check(
            "cluster_database", WARNING, "Cluster: database", text, "plugbay doctor --database URL", optional=True
        )
        return
    yield from asyncio.run(_ask_database(url))


async def _ask_database(url: str) -> list[Check]:
    """The clock and the tables. That the database answers at all is a check of its own."""
    from plugbay.store import leases
    from plugbay.store.database import Database
    from plugbay.store.failures import StoreRefused, StoreUnavailable

    title = "Cluster: tables"
    try:
        database = await Database.open(url, migrate=False, check=False)
    except (StoreRefused, StoreUnavailable) as error:
        return [Check("cluster_database", ERROR, "Cluster: database", str(error), "check the URL and its server")]
    try:
        async with database.reading() as tx:
            before = time.time()
            theirs = await leases.database_time(tx)
            clock = _clock_check(before, theirs, time.time())
        try:
            await database.require_current()
            tables = Check("cluster_tables", OK, title, "they are of this version of plugbay")
        except StoreRefused as error:
            tables = Check("cluster_tables", ERROR, title, str(error), "plugbay migrate, or upgrade plugbay here")
        return [clock, tables]
    except StoreUnavailable as error:
        return [Check("cluster_database", ERROR, "Cluster: database", str(error), "check the URL and its server")]
    finally:
        await database.close()


def _clock_check(before: float, theirs: float, after: float) -> Check:
    """Compare with the middle of the question and its answer."""
    off = theirs - (before + after) / 2
    title = "Cluster: clock"
    if abs(off) <= MAX_CLOCK_SECONDS + (after - before) / 2:
        return Check("cluster_clock", OK, title, "that of this machine and that of the database agree")
    word = "ahead of" if off < 0 else "behind"
    text = f"this machine is {output.duration(abs(off) * 1000)} {word} the database"
    return Check("cluster_clock", WARNING, title, text, "have both follow a time server (chrony, systemd-timesyncd)")
